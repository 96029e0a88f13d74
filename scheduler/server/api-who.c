/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is who over HTTP: customers, tenants with their quotas, and keys. Pools stand in api-pool.c.
 *
 * Names are one space for the whole installation. So that a customer's operator cannot find out by trying which
 * names others took, what it makes begins with its customer's name and a dash.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/api-who.h"
#include "server/shell.h"
#include "server/view.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

/* ---- what all of them need ---- */
int who_invalid(const char *field, const char *why, struct err *reterr)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s", field, why);
	err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

int who_read_name(const struct api_request *req, const json_t *body, const char **ret,
	struct err *reterr)
{
	size_t len = strlen(req->customer);
	int r;

	*ret = "";
	r = json_get_string(body, "name", ID_NAME_MAX, ret, reterr);
	if (r < 0)
		return r;
	if (!id_name_is_valid(*ret))
		return who_invalid("name", "has 1 to 63 of the characters a-z, 0-9 and -", reterr);
	if (!role_is_provider(req->role) &&
		(strncmp(*ret, req->customer, len) != 0 || (*ret)[len] != '-'))
		return who_invalid("name", "must begin with the customer's name and a dash", reterr);
	return 0;
}

int who_read_customer(const struct api_request *req, const json_t *body, const char **ret,
	struct err *reterr)
{
	const struct customer_entry *entry;
	int r;

	*ret = req->customer;
	r = json_get_string(body, "customer", ID_NAME_MAX, ret, reterr);
	if (r < 0)
		return r;
	entry = registry_customer(&req->server->registry, *ret);
	if (!entry || entry->revoked_us || !api_may_see_customer(req, *ret))
		return err_set(
			reterr, FAIL_CUSTOMER_NOT_FOUND, ENOENT, "there is no such customer");
	return 0;
}

int who_taken(const char *what, struct err *reterr)
{
	return err_set(reterr, FAIL_CONFLICT, EEXIST, "there is a %s of this name", what);
}

const char *who_state(int64_t revoked_us)
{
	return revoked_us ? "revoked" : "active";
}

void who_on_no_content(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err))
		api_fail(req, &reply->err);
	else
		api_answer_empty(req, 204);
}

struct made {
	char name[ID_NAME_MAX + 1];
	json_t *(*view)(const struct api_request *req, const char *name);
	char key[API_KEY_SIZE]; /* of a new key alone */
	int status;
};

static void made_free(void *extra)
{
	explicit_bzero(extra, sizeof(struct made));
	free(extra);
}

static void on_made(struct api_request *req, const struct fleet_reply *reply)
{
	const struct made *made = req->extra;
	json_t *object;

	if (err_is_set(&reply->err)) {
		api_fail(req, &reply->err);
		return;
	}
	object = made->view(req, made->name);
	if (*made->key)
		(void)json_object_set_new(object, "key", json_string(made->key));
	api_answer(req, made->status, object);
}

/* Commits `ops` and answers with the object. */
static void commit_and_show(struct api_request *req, struct ops *ops, int status, const char *name,
	const char *key, json_t *(*view)(const struct api_request *req, const char *name))
{
	struct made *made = calloc(1, sizeof(*made));

	if (!made)
		ops->no_memory = true;
	else
		*made = (struct made){ .view = view, .status = status };
	if (made) {
		COPY(made->name, name);
		COPY(made->key, key);
	}
	req->extra = made;
	req->extra_free = made ? made_free : NULL;
	api_step(req, NULL, ops, on_made);
}

void who_commit_and_show(struct api_request *req, struct ops *ops, int status, const char *name,
	json_t *(*view)(const struct api_request *req, const char *name))
{
	commit_and_show(req, ops, status, name, "", view);
}

/* ---- customers ---- */
static json_t *view_customer(const struct api_request *req, const char *name)
{
	const struct registry *registry = &req->server->registry;
	const struct customer_entry *c = registry_customer(registry, name);
	json_int_t pools = 0, tenants = 0;

	if (!c)
		return NULL;
	for (const struct pool_entry *p = registry->pools; p; p = p->hh.next)
		pools += !strcmp(p->record.customer, name);
	for (const struct tenant_entry *t = registry->tenants; t; t = t->hh.next)
		tenants += !strcmp(t->customer, name);
	return json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "name", c->name, "state",
		who_state(c->revoked_us), "pools", pools, "tenants", tenants, "created",
		view_time(c->created_us), "revoked", view_time(c->revoked_us));
}

void api_customer_create(struct api_request *req)
{
	json_t *body = api_json(req);
	struct api_idempotency idempotency;
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;
	const char *name = "", *before = NULL;

	if (!body)
		return;
	switch (api_idempotency(req, "customer", body, &idempotency, &before)) {
	case IDEMPOTENCY_NEW:
		if (who_read_name(req, body, &name, &err) == 0 &&
			registry_customer(&req->server->registry, name))
			(void)who_taken("customer", &err);
		if (err_is_set(&err)) {
			api_fail(req, &err);
			break;
		}
		if (registry_add_customer(&req->server->registry, &ops, name,
			    clock_realtime_usec()) < 0)
			ops.no_memory = true;
		api_idempotency_keep(req, &idempotency, &ops, name);
		log_info("a customer is made", "customer", name);
		commit_and_show(req, &ops, 201, name, "", view_customer);
		break;
	case IDEMPOTENCY_REPEATED:
		commit_and_show(req, &ops, 201, before, "", view_customer);
		break;
	case IDEMPOTENCY_REFUSED:
		break;
	}
	json_decref(body);
}

void api_customer_list(struct api_request *req)
{
	json_t *list = json_array();

	for (const struct customer_entry *c = req->server->registry.customers; c; c = c->hh.next)
		if (api_may_see_customer(req, c->name))
			(void)json_array_append_new(list, view_customer(req, c->name));
	api_answer(req, 200, list);
}

static struct customer_entry *find_customer(struct api_request *req)
{
	struct customer_entry *entry = registry_customer(&req->server->registry, req->params[0]);
	struct err err = ERR_NULL;

	if (entry && api_may_see_customer(req, entry->name))
		return entry;
	(void)err_set(&err, FAIL_CUSTOMER_NOT_FOUND, ENOENT, "there is no such customer");
	api_fail(req, &err);
	return NULL;
}

void api_customer_get(struct api_request *req)
{
	if (find_customer(req))
		api_answer(req, 200, view_customer(req, req->params[0]));
}

void api_customer_revoke(struct api_request *req)
{
	struct customer_entry *entry = find_customer(req);
	struct ops ops = { .n = 0 };

	if (!entry)
		return;
	if (!entry->revoked_us)
		entry->revoked_us = clock_realtime_usec();
	registry_put_customer(&ops, entry);
	log_info("a customer is revoked", "customer", entry->name);
	api_step(req, NULL, &ops, who_on_no_content);
}

/* ---- tenants ---- */
static json_t *view_quota(const struct fleet_quota *quota)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "sandboxes", (json_int_t)quota->sandboxes, "vcpus",
		(json_int_t)quota->vcpus, "memory_mib", (json_int_t)quota->memory_mib,
		"starts_per_minute", (json_int_t)quota->starts_per_minute, "paused",
		(json_int_t)quota->paused, "snapshots", (json_int_t)quota->snapshots, "kept_disk_mib",
		(json_int_t)quota->kept_disk_mib);
}

static json_t *view_tenant(const struct api_request *req, const char *name)
{
	const struct tenant_entry *t = registry_tenant(&req->server->registry, name);
	struct fleet_quota used;

	if (!t)
		return NULL;
	fleet_quota_used(shell_fleet(req->server->shell), name, &used);
	return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o}", "name", t->name, "customer",
		t->customer, "state", who_state(t->revoked_us), "weight", (json_int_t)t->weight, "quota",
		view_quota(&t->quota),
		"used", view_quota(&used), "created", view_time(t->created_us), "revoked",
		view_time(t->revoked_us));
}

static int read_quota(const json_t *body, struct fleet_quota *quota, struct err *reterr)
{
	const json_t *object = json_object_get(body, "quota");
	uint64_t sandboxes = quota->sandboxes, vcpus = quota->vcpus, memory = quota->memory_mib,
		 starts = quota->starts_per_minute, paused = quota->paused, snapshots = quota->snapshots,
		 kept = quota->kept_disk_mib;
	int r;

	if (!object)
		return 0;
	if (!json_is_object(object))
		return who_invalid("quota", "must be an object", reterr);
	r = json_get_u64(object, "sandboxes", 0, UINT32_MAX, &sandboxes, reterr);
	if (r == 0)
		r = json_get_u64(object, "vcpus", 0, UINT32_MAX, &vcpus, reterr);
	if (r == 0)
		r = json_get_u64(object, "memory_mib", 0, INT64_MAX, &memory, reterr);
	if (r == 0)
		r = json_get_u64(object, "starts_per_minute", 0, 1000000, &starts, reterr);
	if (r == 0)
		r = json_get_u64(object, "paused", 0, UINT32_MAX, &paused, reterr);
	if (r == 0)
		r = json_get_u64(object, "snapshots", 0, UINT32_MAX, &snapshots, reterr);
	if (r == 0)
		r = json_get_u64(object, "kept_disk_mib", 0, INT64_MAX, &kept, reterr);
	if (r == 0)
		*quota = (struct fleet_quota){ .sandboxes = (uint32_t)sandboxes,
			.vcpus = (uint32_t)vcpus,
			.memory_mib = memory,
			.starts_per_minute = (uint32_t)starts,
			.paused = (uint32_t)paused,
			.snapshots = (uint32_t)snapshots,
			.kept_disk_mib = kept };
	return r;
}

/* Whose turn it is is between customers too: the provider's word. */
static int read_weight(const struct api_request *req, const json_t *body, uint32_t *weight,
	struct err *reterr)
{
	uint64_t value = *weight;
	int r;

	if (!json_object_get(body, "weight"))
		return 0;
	if (req->role != ROLE_PROVIDER)
		return err_set(reterr, FAIL_FORBIDDEN, EPERM,
			"only the provider's operator sets a tenant's weight");
	r = json_get_u64(body, "weight", 1, 1000, &value, reterr);
	*weight = (uint32_t)value;
	return r;
}

static void tell_weight(struct api_request *req, const char *name)
{
	const struct tenant_entry *t = registry_tenant(&req->server->registry, name);
	const struct fleet_event event = { .type = FLEET_TENANT_WEIGHT,
		.weight = { name, t ? t->weight : 1 } };

	shell_step(req->server->shell, &event, NULL, NULL, NULL);
}

static void make_tenant(
	struct api_request *req, const json_t *body, const struct api_idempotency *idempotency)
{
	struct registry *registry = &req->server->registry;
	const char *name = "", *customer = "";
	struct fleet_quota quota = { .sandboxes = 0 };
	uint32_t weight = 1;
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (who_read_name(req, body, &name, &err) == 0 &&
		who_read_customer(req, body, &customer, &err) == 0 &&
		read_quota(body, &quota, &err) == 0 && read_weight(req, body, &weight, &err) == 0 &&
		registry_tenant(registry, name))
		(void)who_taken("tenant", &err);
	if (err_is_set(&err)) {
		api_fail(req, &err);
		return;
	}
	if (registry_add_tenant(registry, &ops, name, customer, &quota, weight, clock_realtime_usec()) < 0)
		ops.no_memory = true;
	tell_weight(req, name);
	api_idempotency_keep(req, idempotency, &ops, name);
	log_info("a tenant is made", "tenant", name, "customer", customer);
	commit_and_show(req, &ops, 201, name, "", view_tenant);
}

void api_tenant_create(struct api_request *req)
{
	json_t *body = api_json(req);
	struct api_idempotency idempotency;
	struct ops none = { .n = 0 };
	const char *before = NULL;

	if (!body)
		return;
	switch (api_idempotency(req, "tenant", body, &idempotency, &before)) {
	case IDEMPOTENCY_NEW:
		make_tenant(req, body, &idempotency);
		break;
	case IDEMPOTENCY_REPEATED:
		commit_and_show(req, &none, 201, before, "", view_tenant);
		break;
	case IDEMPOTENCY_REFUSED:
		break;
	}
	json_decref(body);
}

void api_tenant_list(struct api_request *req)
{
	json_t *list = json_array();

	for (const struct tenant_entry *t = req->server->registry.tenants; t; t = t->hh.next)
		if (api_may_see_tenant(req, t->name))
			(void)json_array_append_new(list, view_tenant(req, t->name));
	api_answer(req, 200, list);
}

static struct tenant_entry *find_tenant(struct api_request *req)
{
	struct tenant_entry *entry = registry_tenant(&req->server->registry, req->params[0]);
	struct err err = ERR_NULL;

	if (entry && api_may_see_tenant(req, entry->name))
		return entry;
	(void)err_set(&err, FAIL_TENANT_NOT_FOUND, ENOENT, "there is no such tenant");
	api_fail(req, &err);
	return NULL;
}

void api_tenant_get(struct api_request *req)
{
	if (find_tenant(req))
		api_answer(req, 200, view_tenant(req, req->params[0]));
}

/* Only the owner's operators change a tenant: an operator's key that acts as a tenant of another customer does not. */
static struct tenant_entry *find_own_tenant(struct api_request *req)
{
	struct tenant_entry *entry = find_tenant(req);
	struct err err = ERR_NULL;

	if (!entry || api_may_see_customer(req, entry->customer))
		return entry;
	(void)err_set(&err, FAIL_TENANT_NOT_FOUND, ENOENT, "there is no such tenant");
	api_fail(req, &err);
	return NULL;
}

void api_tenant_change(struct api_request *req)
{
	json_t *body = api_json(req);
	struct tenant_entry *entry = body ? find_own_tenant(req) : NULL;
	struct fleet_quota quota;
	uint32_t weight;
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (!entry) {
		json_decref(body);
		return;
	}
	quota = entry->quota;
	weight = entry->weight;
	if (read_quota(body, &quota, &err) < 0 || read_weight(req, body, &weight, &err) < 0) {
		api_fail(req, &err);
	} else {
		entry->quota = quota;
		entry->weight = weight;
		tell_weight(req, entry->name);
		registry_put_tenant(&ops, entry);
		log_info("a tenant's quota is set", "tenant", entry->name);
		commit_and_show(req, &ops, 200, entry->name, "", view_tenant);
	}
	json_decref(body);
}

void api_tenant_revoke(struct api_request *req)
{
	struct tenant_entry *entry = find_own_tenant(req);
	struct ops ops = { .n = 0 };

	if (!entry)
		return;
	if (!entry->revoked_us)
		entry->revoked_us = clock_realtime_usec();
	registry_put_tenant(&ops, entry);
	log_info("a tenant is revoked", "tenant", entry->name);
	api_step(req, NULL, &ops, who_on_no_content);
}

/* ---- keys ---- */
static json_t *view_key_entry(const struct key_entry *key)
{
	char id[KEY_ID_LEN + 1];

	(void)snprintf(id, sizeof(id), "%.*s", KEY_ID_LEN, key->hex);
	return json_pack("{s:s, s:s, s:s?, s:s?, s:s, s:s, s:s, s:o}", "id", id, "role",
		role_name(key->role), "tenant", *key->tenant ? key->tenant : NULL, "customer",
		*key->customer ? key->customer : NULL, "name", key->name, "hint", key->hint,
		"state", key->revoked ? "revoked" : "active", "created",
		view_time(key->created_us));
}

static json_t *view_key(const struct api_request *req, const char *id)
{
	const struct key_entry *key = registry_key_by_id(&req->server->registry, id);

	return key ? view_key_entry(key) : NULL;
}

/* The provider's keys are the provider's own business, also where they may act for a customer. */
static bool may_see_key(const struct api_request *req, const struct key_entry *key)
{
	return role_is_provider(key->role) ? req->role == ROLE_PROVIDER
					   : api_may_see_customer(req, key->customer);
}

struct key_request {
	enum role role;
	const char *tenant, *customer, *name;
};

static int read_key(const struct api_request *req, const json_t *body, struct key_request *ret,
	struct err *reterr)
{
	const struct tenant_entry *tenant;
	const char *role = "tenant";
	int r = json_get_string(body, "role", ID_NAME_MAX, &role, reterr);

	*ret = (struct key_request){ ROLE_NONE, "", "", "" };
	if (r == 0)
		r = json_get_string(body, "tenant", ID_NAME_MAX, &ret->tenant, reterr);
	if (r == 0)
		r = json_get_string(body, "name", ID_NAME_MAX, &ret->name, reterr);
	if (r < 0)
		return r;
	ret->role = role_by_name(role);
	if (ret->role == ROLE_NONE)
		return who_invalid("role",
			"is tenant, customer-operator, customer-planner, provider-operator or provider-planner",
			reterr);
	if (role_is_provider(ret->role) && req->role != ROLE_PROVIDER)
		return err_set(reterr, FAIL_FORBIDDEN, EPERM,
			"only the provider's operator makes the provider's keys");
	if (ret->role == ROLE_TENANT && !*ret->tenant)
		return who_invalid("tenant", "is missing", reterr);
	if (*ret->tenant) {
		tenant = registry_tenant(&req->server->registry, ret->tenant);
		if (!tenant || tenant->revoked_us || !api_may_see_customer(req, tenant->customer))
			return err_set(
				reterr, FAIL_TENANT_NOT_FOUND, ENOENT, "there is no such tenant");
		ret->customer = tenant->customer;
		return 0;
	}
	return role_is_provider(ret->role) ? 0 : who_read_customer(req, body, &ret->customer, reterr);
}

static void make_key(
	struct api_request *req, const json_t *body, const struct api_idempotency *idempotency)
{
	struct registry *registry = &req->server->registry;
	struct key_request request;
	char secret[API_KEY_SIZE], hex[KEY_HEX_SIZE];
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (read_key(req, body, &request, &err) < 0) {
		api_fail(req, &err);
		return;
	}
	api_key_new(&req->server->rng, secret);
	registry_hash(secret, hex);
	hex[KEY_ID_LEN] = '\0';
	if (registry_add_key(registry, &ops, secret, request.role, request.tenant,
		    request.customer, request.name, clock_realtime_usec()) < 0)
		ops.no_memory = true;
	api_idempotency_keep(req, idempotency, &ops, hex);
	log_info("a key is made", "key", hex, "role", role_name(request.role), "tenant",
		request.tenant, "customer", request.customer);
	commit_and_show(req, &ops, 201, hex, secret, view_key);
	explicit_bzero(secret, sizeof(secret));
}

void api_key_create(struct api_request *req)
{
	json_t *body = api_json(req);
	struct api_idempotency idempotency;
	struct ops none = { .n = 0 };
	const char *before = NULL;

	if (!body)
		return;
	switch (api_idempotency(req, "key", body, &idempotency, &before)) {
	case IDEMPOTENCY_NEW:
		make_key(req, body, &idempotency);
		break;
	case IDEMPOTENCY_REPEATED: /* the key itself is nowhere any more */
		commit_and_show(req, &none, 201, before, "", view_key);
		break;
	case IDEMPOTENCY_REFUSED:
		break;
	}
	json_decref(body);
}

void api_key_list(struct api_request *req)
{
	json_t *list = json_array();

	for (const struct key_entry *key = req->server->registry.keys; key; key = key->hh.next)
		if (may_see_key(req, key))
			(void)json_array_append_new(list, view_key_entry(key));
	api_answer(req, 200, list);
}

static struct key_entry *find_key(struct api_request *req)
{
	struct key_entry *key = registry_key_by_id(&req->server->registry, req->params[0]);
	struct err err = ERR_NULL;

	if (key && may_see_key(req, key))
		return key;
	(void)err_set(&err, FAIL_KEY_NOT_FOUND, ENOENT, "there is no such key");
	api_fail(req, &err);
	return NULL;
}

void api_key_get(struct api_request *req)
{
	const struct key_entry *key = find_key(req);

	if (key)
		api_answer(req, 200, view_key_entry(key));
}

/* Without a provider operator's key nobody could make another one. */
static bool is_last_provider(const struct registry *registry, const struct key_entry *key)
{
	if (key->role != ROLE_PROVIDER || key->revoked)
		return false;
	for (const struct key_entry *k = registry->keys; k; k = k->hh.next)
		if (k != key && k->role == ROLE_PROVIDER && !k->revoked)
			return false;
	return true;
}

void api_key_revoke(struct api_request *req)
{
	struct key_entry *key = find_key(req);
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (!key)
		return;
	if (is_last_provider(&req->server->registry, key)) {
		(void)err_set(&err, FAIL_CONFLICT, EBUSY,
			"this is the last key of the provider's operator: make another one first");
		api_fail(req, &err);
		return;
	}
	key->revoked = true;
	registry_put_key(&ops, key);
	log_info("a key is revoked", "key", req->params[0]);
	api_step(req, NULL, &ops, who_on_no_content);
}
