/* SPDX-License-Identifier: Apache-2.0
 *
 * What a key reaches. Handlers ask here before they show or touch anything, so that the rule stands once: a tenant
 * reaches itself, a customer's keys their customer's tenants and pools, the provider's keys everything. What is not
 * reached is answered like what does not exist.
 */
#include <string.h>

#include "server/api.h"

bool api_may_see_customer(const struct api_request *req, const char *customer)
{
	if (role_is_provider(req->role))
		return true;
	return role_is_customer(req->role) && *req->customer && !strcmp(customer, req->customer);
}

bool api_may_see_pool(const struct api_request *req, const char *pool)
{
	const struct pool_entry *entry = registry_pool(&req->server->registry, pool);

	return api_may_see_customer(req, entry ? entry->record.customer : "");
}

bool api_may_see_tenant(const struct api_request *req, const char *tenant)
{
	const struct tenant_entry *entry;

	if (*req->tenant && !strcmp(tenant, req->tenant))
		return true;
	entry = registry_tenant(&req->server->registry, tenant);
	return api_may_see_customer(req, entry ? entry->customer : "");
}

bool api_wants_all(const struct api_request *req)
{
	const char *scope = api_query(req, "scope");

	return req->role != ROLE_TENANT && (!*req->tenant || (scope && !strcmp(scope, "all")));
}
