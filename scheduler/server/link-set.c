/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes are told of how this scheduler is reached: keys and addresses.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/link-private.h"
#include "server/server.h"

const char *link_own_endpoint(const char *scheme, const char *address, unsigned int port, char *buf, size_t size)
{
	char host[65];

	if (!strcmp(address, "*") || !strcmp(address, "0.0.0.0") || !strcmp(address, "::")) {
		if (gethostname(host, sizeof(host)) < 0)
			(void)snprintf(host, sizeof(host), "localhost");
		host[sizeof(host) - 1] = '\0';
		address = host;
	}
	(void)snprintf(buf, size, strchr(address, ':') ? "%s://[%s]:%u" : "%s://%s:%u", scheme, address, port);
	return buf;
}

/* Where we listen, as far as others can dial it: what is advertised, and the port of an overlap beside each. */
void link_set_fill(struct link *link)
{
	const struct server *server = link->server;
	const struct link_keys *keys = &server->keys;
	CLEANUP_FREE char *copy = strdup(server->options->link_advertise);
	struct link_set *set = &link->set;
	char *rest, *one;

	memcpy(set->key, link_keys_newest(keys)->public_key, sizeof(set->key));
	memcpy(set->next_key, keys->next, sizeof(set->next_key));
	if (*keys->fresh.public_key)
		memcpy(set->old_key, keys->served.public_key, sizeof(set->old_key));
	for (one = copy ? strtok_r(copy, ", ", &rest) : NULL; one && set->n_endpoints < LINK_ENDPOINTS_MAX;
		one = strtok_r(NULL, ", ", &rest))
		if (strlen(one) < LINK_ENDPOINT_SIZE)
			(void)snprintf(set->endpoints[set->n_endpoints++], LINK_ENDPOINT_SIZE, "%s", one);
	if (*keys->fresh.public_key && server->options->link_next_port && set->n_endpoints < LINK_ENDPOINTS_MAX)
		(void)link_own_endpoint("tcp", server->options->link_address, (unsigned int)server->options->link_next_port,
			set->endpoints[set->n_endpoints++], LINK_ENDPOINT_SIZE);
}
