/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of a create, read and checked: E2B's members and croft's own. Unknown members are ignored; a wrong type or
 * value is INVALID_ARGUMENT naming the member.
 */
#pragma once

#include <jansson.h>

#include "server/server.h"

#define METADATA_MAX 64        /* entries */
#define METADATA_TEXT_MAX 4096 /* bytes of each key and value */
#define VCPUS_MAX 32
#define MEMORY_MIB_MIN 64
#define DISK_MIB_MIN 16
#define TIMEOUT_S_MAX (30u * 24 * 3600)

struct create_request {
	struct sandbox_spec *spec;
	char pool[ID_NAME_MAX + 1];
	char alias[ID_NAME_MAX + 1];
	struct sandbox_field *metadata;
	size_t n_metadata;
	struct sandbox_wish wish;
	uint32_t priority;
	int64_t queue_usec;
};
void create_request_deinit(struct create_request *request);

/* Names are resolved for `tenant`: TEMPLATE_NOT_FOUND, POOL_NOT_FOUND. */
int create_request_read(const json_t *body, struct server *server, const char *tenant,
	struct create_request *ret, struct err *reterr);
/* What a warm VM is made of: size and token; of a snapshot (NULL: it boots) its size, image and disk. */
int create_request_read_shape(const json_t *body, struct server *server, const struct snapshot_record *snapshot,
	struct sandbox_spec *spec, struct err *reterr);
/* Of this tenant: by its id, or, where no template is called so, the newest by its name. NULL: none. */
const struct snapshot_record *create_request_snapshot(
	const struct server *server, const char *tenant, const char *name);
/* What the sandbox may reach: of a create (`allow_internet_access`, `network`), and of a change, whose body is the
 * network's and replaces all of it. `ret` is zeroed before, and to be deinitialised in every case. INVALID_ARGUMENT,
 * INVALID_CIDR, UNSUPPORTED, naming the field. */
int request_network_create(const json_t *body, struct net_policy *ret, struct err *reterr);
int request_network_update(const json_t *body, struct net_policy *ret, struct err *reterr);
/* What the sandbox may use: the body's own members, all of them. INVALID_ARGUMENT naming the field. */
int request_budget(const json_t *body, const char *prefix, struct budget *ret, struct err *reterr);
json_t *view_budget(const struct budget *budget);
/* `timeout` in seconds: 1 and more. */
/* 0 unless the member is false: UNSUPPORTED, for a pause that keeps the disk alone is not built. */
int request_keeps_memory(const json_t *body, const char *name, struct err *reterr);
int request_timeout(const json_t *body, uint64_t *ret, struct err *reterr);
