/* SPDX-License-Identifier: Apache-2.0
 *
 * See route.h.
 */
#include "gateway/route.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define SOCKET_PATH_MAX 107u

struct route *route_ref(struct route *route)
{
	route->n_refs++;
	return route;
}

struct route *route_unref(struct route *route)
{
	if (route && --route->n_refs == 0) {
		free(route->vsock_path);
		free(route);
	}
	return NULL;
}

static void remove_route(struct route_table *table, struct route *route)
{
	HASH_DEL(table->routes, route);
	table->n_routes--;
	route->gone = true;
	route_unref(route);
}

void route_table_deinit(struct route_table *table)
{
	struct route *route, *next;

	HASH_ITER(hh, table->routes, route, next)
		remove_route(table, route);
}

struct route *route_find(const struct route_table *table, const char *sandbox)
{
	struct route *route;

	HASH_FIND_STR(table->routes, sandbox, route);
	return route;
}

bool route_token_is_valid(const struct route *route, const char *token)
{
	uint8_t digest[EVP_MAX_MD_SIZE];

	if (!route->has_token)
		return true;
	/* Digests are compared, so neither the length nor a common beginning of the secret shows in the time. */
	if (!token || !EVP_Digest(token, strlen(token), digest, NULL, EVP_sha256(), NULL))
		return false;
	return CRYPTO_memcmp(digest, route->token, ROUTE_DIGEST_SIZE) == 0;
}

static int check_row(const struct route_row *row, struct err *reterr)
{
	size_t digest = row->token_size;

	if (!id_is_valid(row->sandbox))
		return err_set(reterr, FAIL_FRAME_INVALID, EINVAL, "The agent named a sandbox whose id is invalid.");
	if (!*row->vsock_path || strlen(row->vsock_path) > SOCKET_PATH_MAX)
		return err_set(reterr, FAIL_FRAME_INVALID, EINVAL, "The agent sent a route without a usable socket path.");
	if (digest != 0 && digest != ROUTE_DIGEST_SIZE)
		return err_set(reterr, FAIL_FRAME_INVALID, EINVAL, "The agent sent a token digest of %zu bytes.", digest);
	return 0;
}

static int add_route(struct route_table *table, const char *sandbox, struct route **ret)
{
	struct route *route = calloc(1, sizeof(*route));

	if (!route)
		return -ENOMEM;
	route->n_refs = 1;
	memcpy(route->sandbox, sandbox, ID_SIZE);
	HASH_ADD_STR(table->routes, sandbox, route);
	if (!route->hh.tbl) {
		free(route);
		return -ENOMEM;
	}
	table->n_routes++;
	*ret = route;
	return 0;
}

static int apply_row(struct route_table *table, const struct route_row *row)
{
	struct route *route = route_find(table, row->sandbox);
	CLEANUP_FREE char *path = strdup(row->vsock_path);

	if (!path)
		return -ENOMEM;
	/* Another socket is another life of the sandbox: what still runs on the old one has lost its VM. */
	if (route && strcmp(route->vsock_path, path) != 0) {
		remove_route(table, route);
		route = NULL;
	}
	if (!route && add_route(table, row->sandbox, &route) < 0)
		return -ENOMEM;
	free(route->vsock_path);
	route->vsock_path = TAKE(path);
	route->has_token = row->token_size > 0;
	if (route->has_token)
		memcpy(route->token, row->token, ROUTE_DIGEST_SIZE);
	route->ready = row->ready;
	route->seen = true;
	return 0;
}

static int check_update(const struct route_table *table, const struct route_update *update, struct err *reterr)
{
	size_t before = update->complete ? 0 : table->n_routes;

	if (update->n_rows > ROUTES_MAX - before)
		return err_set(reterr, FAIL_FRAME_INVALID, E2BIG, "The agent announced more than %u sandboxes.", ROUTES_MAX);
	for (size_t i = 0; i < update->n_rows; i++) {
		int r = check_row(&update->rows[i], reterr);

		if (r < 0)
			return r;
	}
	return 0;
}

int route_table_update(struct route_table *table, const struct route_update *update, struct err *reterr)
{
	struct route *route, *next;
	int r = check_update(table, update, reterr);

	if (r < 0)
		return r;
	HASH_ITER(hh, table->routes, route, next)
		route->seen = false;
	for (size_t i = 0; i < update->n_removed; i++) {
		route = route_find(table, update->removed[i]);
		if (route)
			remove_route(table, route);
	}
	for (size_t i = 0; i < update->n_rows && r == 0; i++)
		r = apply_row(table, &update->rows[i]);
	if (r < 0)
		return err_set(reterr, FAIL_NO_MEMORY, -r, "No memory for the table of sandboxes.");
	if (!update->complete)
		return 0;
	HASH_ITER(hh, table->routes, route, next)
		if (!route->seen)
			remove_route(table, route);
	return 0;
}
