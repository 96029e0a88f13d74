/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's small records in memory: customers, pools, tenants, keys, join tokens, templates, keys of revoked
 * nodes, and what creates with an Idempotency-Key made. Loaded from the store at start; each change is made here and put into the same batch as what it belongs to.
 * When a commit fails all of it is thrown away and loaded again.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"
#include "base/table.h"
#include "fleet/fleet.h"
#include "server/ops.h"
#include "server/rate.h"
#include "wire/endpoint.h"

#define KEY_HEX_SIZE 65

enum role {
	ROLE_NONE,
	ROLE_TENANT,
	ROLE_CUSTOMER_PLANNER, /* a planner reads what its operator reads, and changes nothing */
	ROLE_CUSTOMER,
	ROLE_PROVIDER_PLANNER,
	ROLE_PROVIDER,
	ROLE_MAX_
};
const char *role_name(enum role role);
enum role role_by_name(const char *name); /* ROLE_NONE: there is none of that name */
static inline bool role_is_provider(enum role role)
{
	return role == ROLE_PROVIDER || role == ROLE_PROVIDER_PLANNER;
}
static inline bool role_is_customer(enum role role)
{
	return role == ROLE_CUSTOMER || role == ROLE_CUSTOMER_PLANNER;
}

struct customer_entry {
	char name[ID_NAME_MAX + 1];
	int64_t created_us;
	int64_t revoked_us; /* its keys, tenants' keys included, are refused; 0: not */
	UT_hash_handle hh;
};

struct key_entry {
	char hex[KEY_HEX_SIZE]; /* SHA-256 of the key; the key itself is nowhere */
	enum role role;
	char tenant[ID_NAME_MAX + 1]; /* "": may not act as a tenant */
	char customer[ID_NAME_MAX + 1];
	char hint[16];
	char name[ID_NAME_MAX + 1]; /* a note of whoever made it */
	int64_t created_us;
	bool revoked;
	struct rate rate; /* of this process */
	UT_hash_handle hh;
};
#define KEY_ID_LEN 20 /* a key's id: so many digits of its hash */

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
	char adopt_tenant[ID_NAME_MAX + 1]; /* whose become the sandboxes that the node brings along; "": it brings none */
	char replaces[ID_SIZE];             /* the node that its host was before; "": none */
	UT_hash_handle hh;
};

struct pool_entry {
	struct pool_record record;
	int64_t created_us;
	int64_t revoked_us; /* nothing is placed there; 0: not */
	UT_hash_handle hh;
};

struct tenant_entry {
	char name[ID_NAME_MAX + 1];
	char customer[ID_NAME_MAX + 1];
	struct fleet_quota quota;
	int64_t created_us;
	int64_t revoked_us; /* its keys are refused; 0: not */
	uint32_t weight;    /* whose turn it is when many wait; at least 1 */
	UT_hash_handle hh;
};

#define IDEMPOTENCY_USEC (INT64_C(24) * 3600 * USEC_PER_SEC)
struct idempotency_entry {
	char hex[KEY_HEX_SIZE];         /* SHA-256 of whose it is and the header's text */
	char fingerprint[KEY_HEX_SIZE]; /* of path and body */
	char object[ID_NAME_MAX + 1];   /* what was made */
	int64_t created_us;
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

struct warm_entry {
	char key[2 * (ID_NAME_MAX + 1)]; /* "<pool>/<template>" */
	struct warm_record record;
	char tenant[ID_NAME_MAX + 1]; /* whose template; "": everybody's */
	UT_hash_handle hh;
};

struct revoked_entry {
	char node[ID_SIZE];
	char public_key[KEY_Z85_SIZE];
	int64_t revoked_us;
	UT_hash_handle hh;
};

struct registry {
	struct customer_entry *customers;
	struct key_entry *keys;
	struct token_entry *tokens;
	struct pool_entry *pools;
	struct tenant_entry *tenants;
	struct template_entry *templates;
	struct revoked_entry *revoked;
	struct warm_entry *warms;
	struct idempotency_entry *idempotency; /* in the order of their making */
};

/* 0, STORE_CORRUPT, STORE_FAILED. */
int registry_load(struct registry *ret, struct store *store, struct err *reterr);
void registry_deinit(struct registry *registry);

/* NULL: absent. */
struct customer_entry *registry_customer(const struct registry *registry, const char *name);
/* Neither it nor its tenant or customer was revoked. */
bool registry_key_is_good(const struct registry *registry, const struct key_entry *key);
/* By the secret; one that is not good is absent. */
struct key_entry *registry_key(const struct registry *registry, const char *secret);
struct key_entry *registry_key_by_id(const struct registry *registry, const char *id); /* also a revoked one */
struct token_entry *registry_token(const struct registry *registry, const char *id);
struct pool_entry *registry_pool(const struct registry *registry, const char *name);
struct tenant_entry *registry_tenant(const struct registry *registry, const char *name);
/* One of the customer whose the pool is, that was not revoked; NULL: there is none of this name. */
const struct tenant_entry *registry_tenant_of_pool(const struct registry *registry, const char *pool, const char *name);
struct idempotency_entry *registry_idempotency(const struct registry *registry, const char *hex);
const struct revoked_entry *registry_revoked(const struct registry *registry, const char *node);
/* The tenant's own template, else everybody's. */
const struct template_entry *registry_template(
	const struct registry *registry, const char *tenant, const char *name);
static inline const struct template_version *template_latest(const struct template_entry *template)
{
	return &template->versions[template->n_versions - 1];
}

/* Changes, each with its operation added to `ops`. 0 or -ENOMEM. Texts were checked before. */
int registry_add_customer(
	struct registry *registry, struct ops *ops, const char *name, int64_t now_us);
int registry_add_key(struct registry *registry, struct ops *ops, const char *secret, enum role role,
	const char *tenant, const char *customer, const char *name, int64_t now_us);
/* A zeroed table of owners is filled with the default that `responsibility` names. */
int registry_add_pool(struct registry *registry, struct ops *ops, const struct pool_record *pool,
	int64_t now_us);
int registry_add_tenant(struct registry *registry, struct ops *ops, const char *name,
	const char *customer, const struct fleet_quota *quota, uint32_t weight, int64_t now_us);
/* Replaces what was there under `hex`. */
int registry_add_idempotency(struct registry *registry, struct ops *ops, const char *hex,
	const char *fingerprint, const char *object, int64_t now_us);
/* Those made before `before_us` leave, at most `max` at once. */
void registry_forget_idempotency(
	struct registry *registry, struct ops *ops, int64_t before_us, size_t max);
/* The entry as it is now. */
void registry_put_customer(struct ops *ops, const struct customer_entry *customer);
void registry_put_key(struct ops *ops, const struct key_entry *key);
void registry_put_pool(struct ops *ops, const struct pool_entry *pool);
void registry_put_tenant(struct ops *ops, const struct tenant_entry *tenant);
int registry_add_token(
	struct registry *registry, struct ops *ops, const struct token_entry *token); /* copied */
int registry_add_template(struct registry *registry, struct ops *ops, const char *tenant,
	const char *name, const char *digest, uint64_t size, int64_t now_us,
	const struct template_version **ret);
int registry_add_revoked(struct registry *registry, struct ops *ops, const char *node,
	const char *public_key, int64_t now_us);
/* 0 or -ENOMEM; what was copied is to->labels' in both cases. */
int registry_copy_labels(const struct sandbox_field *labels, size_t n, struct token_entry *to);
void registry_put_token(struct ops *ops, const struct token_entry *token);
void registry_remove_token(struct registry *registry, struct ops *ops, struct token_entry *token);
void registry_remove_revoked(struct registry *registry, struct ops *ops, const char *node);

/* Whether a node of `pool` may hold an image: it belongs to a template of the pool's customer, or to everybody's.
 * A shared pool may hold all. */
bool registry_pool_may_hold(
	const struct registry *registry, const char *pool, const char *digest, uint64_t *ret_size);
/* SHA-256 of a text as 64 hex digits. */
void registry_hash(const char *secret, char ret[static KEY_HEX_SIZE]);

/* ---- registry-warm.c ---- */
/* Makes or replaces; takes a reference of the spec. NULL without memory. */
struct warm_entry *registry_set_warm(struct registry *registry, struct ops *ops,
	const struct warm_record *record, const char *tenant);
int registry_load_warm(struct registry *registry, const char *key, const ProtobufCMessage *message);
void registry_free_warms(struct registry *registry);

/* ---- registry-who.c's part of loading and freeing; each also named in registry.c's table ---- */
int registry_load_customer(
	struct registry *registry, const char *key, const ProtobufCMessage *message);
int registry_load_key(struct registry *registry, const char *key, const ProtobufCMessage *message);
int registry_load_pool(struct registry *registry, const char *key, const ProtobufCMessage *message);
int registry_load_tenant(
	struct registry *registry, const char *key, const ProtobufCMessage *message);
int registry_load_idempotency(
	struct registry *registry, const char *key, const ProtobufCMessage *message);
void registry_sort_idempotency(struct registry *registry); /* they were loaded by their hashes */
