/* SPDX-License-Identifier: Apache-2.0
 *
 * How records look as JSON. E2B's names where its SDKs read them, croft's own members beside them. Times are RFC
 * 3339; durations carry their unit in the name.
 */
#pragma once

#include <jansson.h>

#include "fleet/fleet.h"
#include "server/server.h"

/* What the SDK's create and connect read. With the access token: for its tenant alone. */
json_t *view_sandbox_e2b(const struct server *server, const struct sandbox_record *record);
/* SandboxDetail and ListedSandbox. */
json_t *view_sandbox_detail(const struct server *server, const struct sandbox_record *record,
	const struct fleet_sandbox_view *view);
/* croft's own: everything but the access token. `view` NULL: it ended and this is its history. */
json_t *view_sandbox(const struct server *server, const struct sandbox_record *record,
	const struct fleet_sandbox_view *view);
json_t *view_stages(const struct server *server, const struct sandbox_record *record);
json_t *view_failure(const struct server *server, const struct sandbox_record *record);
json_t *view_node(const struct server *server, const struct fleet_node_view *view);
json_t *view_fields(const struct sandbox_field *fields, size_t n);
json_t *view_time(int64_t realtime_us); /* null for 0 */

/* Changes whenever what view_sandbox() shows about its life does. */
uint64_t view_version(const struct sandbox_record *record);
