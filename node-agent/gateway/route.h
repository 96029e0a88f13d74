/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandboxes of this node as the agent told us: id -> VMM socket, digest of the access token, ready or not.
 * Calls hold the route that they use: one that the agent removed or replaced is marked gone at once and freed
 * with its last call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/table.h"

#define ROUTE_DIGEST_SIZE 32u
#define ROUTES_MAX 4096u

struct route {
	char sandbox[ID_SIZE];
	char *vsock_path;
	uint8_t token[ROUTE_DIGEST_SIZE]; /* SHA-256 */
	bool has_token;
	bool ready;
	bool gone;              /* no longer in the table */
	bool seen;              /* by the complete update that is being applied */
	unsigned int n_streams; /* counted by the streams themselves */
	unsigned int n_refs;    /* the table's and each call's */
	UT_hash_handle hh;
};

struct route_table {
	struct route *routes;
	unsigned int n_routes;
};

void route_table_deinit(struct route_table *table);
/* NULL: there is no such sandbox (any more). Borrowed. */
struct route *route_find(const struct route_table *table, const char *sandbox);
struct route *route_ref(struct route *route);
struct route *route_unref(struct route *route); /* returns NULL; accepts NULL */

/* The secret that came with a request, NULL when none did. Every wrong one takes the same time. */
bool route_token_is_valid(const struct route *route, const char *token);

/* The agent's word (node.proto), not yet checked. Everything is borrowed. */
struct route_row {
	const char *sandbox;
	const char *vsock_path;
	const uint8_t *token; /* SHA-256 of the access token; size 0: none is needed */
	size_t token_size;
	bool ready;
};

struct route_update {
	bool complete; /* these rows and no others */
	const struct route_row *rows;
	size_t n_rows;
	char *const *removed;
	size_t n_removed;
};

/* Applies all of it or, when a row is invalid, nothing. FRAME_INVALID, NO_MEMORY. */
int route_table_update(struct route_table *table, const struct route_update *update, struct err *reterr);
