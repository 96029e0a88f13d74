/* SPDX-License-Identifier: Apache-2.0
 *
 * See registry.h. Customers, pools, tenants, keys and idempotency stand in registry-who.c.
 */
#include "server/registry.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "pb/store.pb-c.h"
#include "server/codec.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

void registry_hash(const char *secret, char ret[static KEY_HEX_SIZE])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int size = 0;

	ret[0] = '\0';
	if (EVP_Digest(secret, strlen(secret), digest, &size, EVP_sha256(), NULL) != 1)
		return; /* the empty hash is no key's */
	hex_put(ret, digest, MIN(size, (KEY_HEX_SIZE - 1) / 2));
}

/* ---- lookups ---- */

struct token_entry *registry_token(const struct registry *registry, const char *id)
{
	struct token_entry *entry = NULL;

	HASH_FIND_STR(registry->tokens, id, entry);
	return entry;
}

const struct revoked_entry *registry_revoked(const struct registry *registry, const char *node)
{
	struct revoked_entry *entry = NULL;

	HASH_FIND_STR(registry->revoked, node, entry);
	return entry;
}

static struct template_entry *find_template(
	const struct registry *registry, const char *tenant, const char *name)
{
	char key[2 * (ID_NAME_MAX + 1)];
	struct template_entry *entry = NULL;

	(void)snprintf(key, sizeof(key), "%s/%s", tenant, name);
	HASH_FIND_STR(registry->templates, key, entry);
	return entry;
}

const struct template_entry *registry_template(
	const struct registry *registry, const char *tenant, const char *name)
{
	const struct template_entry *own = *tenant ? find_template(registry, tenant, name) : NULL;

	return own ? own : find_template(registry, "", name);
}

bool registry_pool_may_hold(
	const struct registry *registry, const char *pool, const char *digest, uint64_t *ret_size)
{
	const struct pool_entry *holder = registry_pool(registry, pool);

	if (!holder)
		return false;
	for (const struct template_entry *t = registry->templates; t; t = t->hh.next) {
		const struct tenant_entry *tenant = registry_tenant(registry, t->tenant);

		if (*t->tenant && !holder->record.shared &&
			(!tenant || strcmp(tenant->customer, holder->record.customer)))
			continue;
		for (size_t i = 0; i < t->n_versions; i++)
			if (!strcmp(t->versions[i].digest, digest)) {
				*ret_size = t->versions[i].size;
				return true;
			}
	}
	return false;
}

/* ---- changes ---- */
void registry_put_token(struct ops *ops, const struct token_entry *token)
{
	Croft__TokenRecord *message = CODEC_NEW(Croft__TokenRecord, croft__token_record__init);
	bool is_whole;

	if (!message) {
		ops->no_memory = true;
		return;
	}
	message->created_us = token->created_us;
	message->expires_us = token->expires_us;
	message->used = token->used;
	message->revoked = token->revoked;
	is_whole = codec_set(&message->id, token->id) &&
		   codec_set(&message->public_key, token->public_key) &&
		   codec_set(&message->pool, token->pool) &&
		   codec_set(&message->used_by, token->used_by) &&
		   codec_set(&message->adopt_tenant, token->adopt_tenant) &&
		   codec_set(&message->replaces, token->replaces) &&
		   codec_fields_encode(token->labels, token->n_labels, &message->labels,
			   &message->n_labels) == 0;
	ops_put(ops, codec_whole(&message->base, is_whole), STORE_ANY, "token/%s", token->id);
}

int registry_copy_labels(const struct sandbox_field *labels, size_t n, struct token_entry *to)
{
	to->labels = NULL;
	to->n_labels = 0;
	if (n == 0)
		return 0;
	to->labels = calloc(n, sizeof(*to->labels));
	if (!to->labels)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		to->labels[i].key = strdup(labels[i].key);
		to->labels[i].value = strdup(labels[i].value);
		to->n_labels = i + 1;
		if (!to->labels[i].key || !to->labels[i].value)
			return -ENOMEM;
	}
	return 0;
}

int registry_add_token(struct registry *registry, struct ops *ops, const struct token_entry *token)
{
	struct token_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	*entry = *token;
	if (registry_copy_labels(token->labels, token->n_labels, entry) < 0) {
		codec_fields_free(entry->labels, entry->n_labels);
		free(entry);
		return -ENOMEM;
	}
	HASH_ADD_STR(registry->tokens, id, entry);
	if (ops)
		registry_put_token(ops, entry);
	return ops && ops->no_memory ? -ENOMEM : 0;
}

void registry_remove_token(struct registry *registry, struct ops *ops, struct token_entry *token)
{
	ops_delete(ops, "token/%s", token->id);
	HASH_DEL(registry->tokens, token);
	codec_fields_free(token->labels, token->n_labels);
	free(token);
}

/* Appends a version in memory; `ops` NULL: it comes from the store. */
static int add_version(struct registry *registry, const char *tenant, const char *name,
	const struct template_version *version, const struct template_version **ret)
{
	struct template_entry *entry = find_template(registry, tenant, name);
	struct template_version *versions;

	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			return -ENOMEM;
		(void)snprintf(entry->key, sizeof(entry->key), "%s/%s", tenant, name);
		COPY(entry->tenant, tenant);
		COPY(entry->name, name);
		HASH_ADD_STR(registry->templates, key, entry);
	}
	versions = reallocarray(entry->versions, entry->n_versions + 1, sizeof(*versions));
	if (!versions) {
		if (entry->n_versions == 0) {
			HASH_DEL(registry->templates, entry);
			free(entry);
		}
		return -ENOMEM;
	}
	entry->versions = versions;
	versions[entry->n_versions++] = *version;
	if (ret)
		*ret = template_latest(entry);
	return 0;
}

int registry_add_template(struct registry *registry, struct ops *ops, const char *tenant,
	const char *name, const char *digest, uint64_t size, int64_t now_us,
	const struct template_version **ret)
{
	const struct template_entry *old = find_template(registry, tenant, name);
	struct template_version version = { .version = old ? template_latest(old)->version + 1 : 1,
		.size = size,
		.created_us = now_us };
	Croft__TemplateRecord *message =
		CODEC_NEW(Croft__TemplateRecord, croft__template_record__init);

	if (!message)
		return -ENOMEM;
	COPY(version.digest, digest);
	message->version = version.version;
	message->size = size;
	message->created_us = now_us;
	if (add_version(registry, tenant, name, &version, ret) < 0) {
		free(message);
		return -ENOMEM;
	}
	/* versions are read back in the order of keys */
	ops_put(ops,
		codec_whole(&message->base, codec_set(&message->name, name) &&
					      codec_set(&message->tenant, tenant) &&
					      codec_set(&message->digest, digest)),
		STORE_ABSENT, "template/%s/%s/%010u", tenant, name, version.version);
	return ops->no_memory ? -ENOMEM : 0;
}

int registry_add_revoked(struct registry *registry, struct ops *ops, const char *node,
	const char *public_key, int64_t now_us)
{
	Croft__RevokedRecord *message =
		CODEC_NEW(Croft__RevokedRecord, croft__revoked_record__init);
	struct revoked_entry *entry = calloc(1, sizeof(*entry));

	if (!entry || !message) {
		free(entry);
		free(message);
		return -ENOMEM;
	}
	COPY(entry->node, node);
	COPY(entry->public_key, public_key);
	entry->revoked_us = now_us;
	HASH_ADD_STR(registry->revoked, node, entry);
	message->revoked_us = now_us;
	ops_put(ops,
		codec_whole(&message->base, codec_set(&message->node, node) &&
					      codec_set(&message->public_key, public_key)),
		STORE_ANY, "revoked/%s", node);
	return ops->no_memory ? -ENOMEM : 0;
}

void registry_remove_revoked(struct registry *registry, struct ops *ops, const char *node)
{
	struct revoked_entry *entry = NULL;

	HASH_FIND_STR(registry->revoked, node, entry);
	if (!entry)
		return;
	ops_delete(ops, "revoked/%s", node);
	HASH_DEL(registry->revoked, entry);
	free(entry);
}

/* ---- load and free ---- */
struct loading {
	struct registry *registry;
	struct err *err;
};

static int load_token(struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__TokenRecord *message = (const Croft__TokenRecord *)base;
	struct token_entry entry = { .created_us = message->created_us,
		.expires_us = message->expires_us,
		.used = message->used,
		.revoked = message->revoked };
	int r;

	(void)key;
	COPY(entry.id, message->id);
	COPY(entry.public_key, message->public_key);
	COPY(entry.pool, message->pool);
	COPY(entry.used_by, message->used_by);
	COPY(entry.adopt_tenant, message->adopt_tenant);
	COPY(entry.replaces, message->replaces);
	r = codec_fields_decode(message->labels, message->n_labels, &entry.labels, &entry.n_labels);
	if (r == 0)
		r = registry_add_token(registry, NULL, &entry);
	codec_fields_free(entry.labels, entry.n_labels);
	return r;
}

static int load_template(struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__TemplateRecord *message = (const Croft__TemplateRecord *)base;
	struct template_version version = { .version = message->version,
		.size = message->size,
		.created_us = message->created_us };

	(void)key;
	COPY(version.digest, message->digest);
	return add_version(registry, message->tenant, message->name, &version, NULL);
}

static int load_revoked(struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__RevokedRecord *message = (const Croft__RevokedRecord *)base;
	struct revoked_entry *entry = calloc(1, sizeof(*entry));

	(void)key;
	if (!entry)
		return -ENOMEM;
	COPY(entry->node, message->node);
	COPY(entry->public_key, message->public_key);
	entry->revoked_us = message->revoked_us;
	HASH_ADD_STR(registry->revoked, node, entry);
	return 0;
}

struct loader {
	const char *prefix;
	const ProtobufCMessageDescriptor *descriptor;
	int (*load)(struct registry *registry, const char *key, const ProtobufCMessage *message);
	struct loading loading;
};

static bool load_one(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	const struct loader *loader = user;
	ProtobufCMessage *message =
		codec_unpack(loader->descriptor, key, value, size, loader->loading.err);

	(void)revision;
	if (!message)
		return false;
	if (loader->load(loader->loading.registry, key, message) < 0)
		(void)err_set(loader->loading.err, FAIL_NO_MEMORY, ENOMEM,
			"no memory for record %s", key);
	protobuf_c_message_free_unpacked(message, NULL);
	return !err_is_set(loader->loading.err);
}

int registry_load(struct registry *ret, struct store *store, struct err *reterr)
{
	struct registry registry = { .keys = NULL };
	struct err err = ERR_NULL;
	const struct loading loading = { &registry, &err };
	struct loader loaders[] = { { "customer/", &croft__customer_record__descriptor,
					    registry_load_customer, loading },
		{ "pool/", &croft__pool_record__descriptor, registry_load_pool, loading },
		{ "tenant/", &croft__tenant_record__descriptor, registry_load_tenant, loading },
		{ "key/", &croft__key_record__descriptor, registry_load_key, loading },
		{ "idempotency/", &croft__idempotency_record__descriptor, registry_load_idempotency,
			loading },
		{ "token/", &croft__token_record__descriptor, load_token, loading },
		{ "warm/", &croft__warm_record__descriptor, registry_load_warm, loading },
		{ "template/", &croft__template_record__descriptor, load_template, loading },
		{ "revoked/", &croft__revoked_record__descriptor, load_revoked, loading } };

	for (size_t i = 0; i < ARRAY_LEN(loaders) && !err_is_set(&err); i++)
		(void)store_load(store, loaders[i].prefix, load_one, &loaders[i], &err);
	if (err_is_set(&err)) {
		registry_deinit(&registry);
		if (reterr && !err_is_set(reterr))
			*reterr = err;
		return -EIO;
	}
	registry_sort_idempotency(&registry);
	*ret = registry;
	return 0;
}

#define FREE_ALL(type, head, before)                                                               \
	do {                                                                                       \
		struct type *entry, *next;                                                         \
		HASH_ITER (hh, head, entry, next) {                                                \
			HASH_DEL(head, entry);                                                     \
			before;                                                                    \
			free(entry);                                                               \
		}                                                                                  \
	} while (0)

void registry_deinit(struct registry *registry)
{
	FREE_ALL(customer_entry, registry->customers, (void)0);
	FREE_ALL(key_entry, registry->keys, (void)0);
	FREE_ALL(token_entry, registry->tokens, codec_fields_free(entry->labels, entry->n_labels));
	FREE_ALL(pool_entry, registry->pools, (void)0);
	FREE_ALL(tenant_entry, registry->tenants, (void)0);
	FREE_ALL(template_entry, registry->templates, free(entry->versions));
	FREE_ALL(revoked_entry, registry->revoked, (void)0);
	registry_free_warms(registry);
	FREE_ALL(idempotency_entry, registry->idempotency, (void)0);
}
