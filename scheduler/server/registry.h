/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's small records in memory: keys, join tokens, pools, tenants, templates, and keys of revoked nodes.
 * Loaded from the store at start; each change is made here and put into the same batch as what it belongs to.
 * When a commit fails all of it is thrown away and loaded again.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"
#include "base/table.h"
#include "fleet/fleet.h"
#include "server/ops.h"
#include "wire/endpoint.h"

#define KEY_HEX_SIZE 65

enum role { ROLE_NONE, ROLE_TENANT, ROLE_CUSTOMER, ROLE_PROVIDER, ROLE_MAX_ };
const char *role_name(enum role role);

struct key_entry {
	char hex[KEY_HEX_SIZE]; /* SHA-256 of the key; the key itself is nowhere */
	enum role role;
	char tenant[ID_NAME_MAX + 1]; /* "": may not act as a tenant */
	char customer[ID_NAME_MAX + 1];
	char hint[16];
	int64_t created_us;
	bool revoked;
	UT_hash_handle hh;
};

struct token_entry {
	char id[ID_SIZE];
	char public_key[KEY_Z85_SIZE];
	char pool[ID_NAME_MAX + 1];
	struct sandbox_field *labels;
	size_t n_labels;
	int64_t created_us;
	int64_t expires_us;
	bool used;
	bool revoked;
	char used_by[ID_SIZE];
	UT_hash_handle hh;
};

struct pool_entry {
	struct pool_record record;
	UT_hash_handle hh;
};

struct tenant_entry {
	char name[ID_NAME_MAX + 1];
	char customer[ID_NAME_MAX + 1];
	UT_hash_handle hh;
};

struct template_version {
	uint32_t version;
	char digest[DIGEST_SIZE];
	uint64_t size;
	int64_t created_us;
};

struct template_entry {
	char key[2 * (ID_NAME_MAX + 1)]; /* "<tenant>/<name>" */
	char tenant[ID_NAME_MAX + 1];    /* "": everybody's */
	char name[ID_NAME_MAX + 1];
	struct template_version *versions; /* rising; the last one is used */
	size_t n_versions;
	UT_hash_handle hh;
};

struct revoked_entry {
	char node[ID_SIZE];
	char public_key[KEY_Z85_SIZE];
	int64_t revoked_us;
	UT_hash_handle hh;
};

struct registry {
	struct key_entry *keys;
	struct token_entry *tokens;
	struct pool_entry *pools;
	struct tenant_entry *tenants;
	struct template_entry *templates;
	struct revoked_entry *revoked;
};

/* 0, STORE_CORRUPT, STORE_FAILED. */
int registry_load(struct registry *ret, struct store *store, struct err *reterr);
void registry_deinit(struct registry *registry);

/* NULL: absent. */
const struct key_entry *registry_key(const struct registry *registry, const char *secret);
struct token_entry *registry_token(const struct registry *registry, const char *id);
const struct pool_entry *registry_pool(const struct registry *registry, const char *name);
const struct tenant_entry *registry_tenant(const struct registry *registry, const char *name);
const struct revoked_entry *registry_revoked(const struct registry *registry, const char *node);
/* The tenant's own template, else everybody's. */
const struct template_entry *registry_template(
	const struct registry *registry, const char *tenant, const char *name);
static inline const struct template_version *template_latest(const struct template_entry *template)
{
	return &template->versions[template->n_versions - 1];
}

/* Changes, each with its operation added to `ops`. 0 or -ENOMEM. Texts were checked before. */
int registry_add_key(struct registry *registry, struct ops *ops, const char *secret, enum role role,
	const char *tenant, const char *customer, int64_t now_us);
int registry_add_pool(struct registry *registry, struct ops *ops, const struct pool_record *pool);
int registry_add_tenant(
	struct registry *registry, struct ops *ops, const char *name, const char *customer);
int registry_add_token(
	struct registry *registry, struct ops *ops, const struct token_entry *token); /* copied */
int registry_add_template(struct registry *registry, struct ops *ops, const char *tenant,
	const char *name, const char *digest, uint64_t size, int64_t now_us,
	const struct template_version **ret);
int registry_add_revoked(struct registry *registry, struct ops *ops, const char *node,
	const char *public_key, int64_t now_us);
/* The token as it is now. */
void registry_put_token(struct ops *ops, const struct token_entry *token);
void registry_remove_token(struct registry *registry, struct ops *ops, struct token_entry *token);
void registry_remove_revoked(struct registry *registry, struct ops *ops, const char *node);

/* Whether a node of `pool` may hold an image: it belongs to a template of the pool's customer, or to everybody's.
 * A shared pool may hold all. */
bool registry_pool_may_hold(
	const struct registry *registry, const char *pool, const char *digest, uint64_t *ret_size);
/* SHA-256 of a text as 64 hex digits. */
void registry_hash(const char *secret, char ret[static KEY_HEX_SIZE]);
