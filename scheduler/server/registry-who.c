/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry's part about who is who: customers, pools, tenants, keys, and what creates with an Idempotency-Key
 * made. See registry.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "pb/store.pb-c.h"
#include "server/codec.h"
#include "server/registry.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

static const char *const role_names[ROLE_MAX_] = { [ROLE_NONE] = "none",
	[ROLE_TENANT] = "tenant",
	[ROLE_CUSTOMER_PLANNER] = "customer-planner",
	[ROLE_CUSTOMER] = "customer-operator",
	[ROLE_PROVIDER_PLANNER] = "provider-planner",
	[ROLE_PROVIDER] = "provider-operator" };

static const Croft__KeyRole role_numbers[ROLE_MAX_] = {
	[ROLE_TENANT] = CROFT__KEY_ROLE__KEY_ROLE_TENANT,
	[ROLE_CUSTOMER_PLANNER] = CROFT__KEY_ROLE__KEY_ROLE_CUSTOMER_PLANNER,
	[ROLE_CUSTOMER] = CROFT__KEY_ROLE__KEY_ROLE_CUSTOMER_OPERATOR,
	[ROLE_PROVIDER_PLANNER] = CROFT__KEY_ROLE__KEY_ROLE_PROVIDER_PLANNER,
	[ROLE_PROVIDER] = CROFT__KEY_ROLE__KEY_ROLE_PROVIDER_OPERATOR,
};

const char *role_name(enum role role)
{
	return (unsigned int)role < ROLE_MAX_ ? role_names[role] : "unknown";
}

enum role role_by_name(const char *name)
{
	for (unsigned int i = ROLE_TENANT; i < ROLE_MAX_; i++)
		if (!strcmp(role_names[i], name))
			return (enum role)i;
	return ROLE_NONE;
}

/* ---- lookups ---- */
struct customer_entry *registry_customer(const struct registry *registry, const char *name)
{
	struct customer_entry *entry = NULL;

	HASH_FIND_STR(registry->customers, name, entry);
	return entry;
}

struct pool_entry *registry_pool(const struct registry *registry, const char *name)
{
	struct pool_entry *entry = NULL;

	HASH_FIND_STR(registry->pools, name, entry);
	return entry;
}

struct tenant_entry *registry_tenant(const struct registry *registry, const char *name)
{
	struct tenant_entry *entry = NULL;

	HASH_FIND_STR(registry->tenants, name, entry);
	return entry;
}

const struct tenant_entry *registry_tenant_of_pool(const struct registry *registry, const char *pool, const char *name)
{
	const struct pool_entry *holder = registry_pool(registry, pool);
	const struct tenant_entry *tenant = registry_tenant(registry, name);

	return tenant && !tenant->revoked_us && holder && !strcmp(tenant->customer, holder->record.customer) ? tenant : NULL;
}

bool registry_key_is_good(const struct registry *registry, const struct key_entry *key)
{
	const struct customer_entry *customer = registry_customer(registry, key->customer);
	const struct tenant_entry *tenant = registry_tenant(registry, key->tenant);

	if (key->revoked)
		return false;
	/* the provider's keys outlive the customer that they may act for */
	return role_is_provider(key->role) || !((customer && customer->revoked_us) || (tenant && tenant->revoked_us));
}

/* By its hash: what the comparison takes tells nothing about the key. */
struct key_entry *registry_key(const struct registry *registry, const char *secret)
{
	char hex[KEY_HEX_SIZE];
	struct key_entry *entry = NULL;

	registry_hash(secret, hex);
	HASH_FIND_STR(registry->keys, hex, entry);
	return entry && registry_key_is_good(registry, entry) ? entry : NULL;
}

struct key_entry *registry_key_by_id(const struct registry *registry, const char *id)
{
	if (strlen(id) != KEY_ID_LEN)
		return NULL;
	for (struct key_entry *key = registry->keys; key; key = key->hh.next)
		if (!strncmp(key->hex, id, KEY_ID_LEN))
			return key;
	return NULL;
}

struct idempotency_entry *registry_idempotency(const struct registry *registry, const char *hex)
{
	struct idempotency_entry *entry = NULL;

	HASH_FIND_STR(registry->idempotency, hex, entry);
	return entry;
}

/* ---- records ---- */
void registry_put_customer(struct ops *ops, const struct customer_entry *customer)
{
	Croft__CustomerRecord *message =
		CODEC_NEW(Croft__CustomerRecord, croft__customer_record__init);

	if (!message) {
		ops->no_memory = true;
		return;
	}
	message->created_us = customer->created_us;
	message->revoked_us = customer->revoked_us;
	ops_put(ops, codec_whole(&message->base, codec_set(&message->name, customer->name)),
		STORE_ANY, "customer/%s", customer->name);
}

void registry_put_key(struct ops *ops, const struct key_entry *key)
{
	Croft__KeyRecord *message = CODEC_NEW(Croft__KeyRecord, croft__key_record__init);

	if (!message) {
		ops->no_memory = true;
		return;
	}
	message->role = role_numbers[key->role];
	message->created_us = key->created_us;
	message->revoked = key->revoked;
	ops_put(ops,
		codec_whole(&message->base, codec_set(&message->tenant, key->tenant) &&
						    codec_set(&message->customer, key->customer) &&
						    codec_set(&message->name, key->name) &&
						    codec_set(&message->hint, key->hint)),
		STORE_ANY, "key/%s", key->hex);
}

/* Only what differs from the default is written: a default that a later release mends is then mended everywhere. */
static int encode_owners(const struct pool_record *pool, Croft__PoolRecord *message)
{
	struct sandbox_field fields[COMPONENT_MAX_];
	struct responsibility_table table;
	size_t n = 0;

	responsibility_default(pool->responsibility, &table);
	for (unsigned int i = 1; i < COMPONENT_MAX_; i++)
		if (pool->owners.owner[i] != table.owner[i])
			fields[n++] = (struct sandbox_field){
				(char *)(uintptr_t)component_name((enum fail_component)i),
				(char *)(uintptr_t)owner_name(pool->owners.owner[i])
			};
	return codec_fields_encode(fields, n, &message->owners, &message->n_owners);
}

void registry_put_pool(struct ops *ops, const struct pool_entry *pool)
{
	Croft__PoolRecord *message = CODEC_NEW(Croft__PoolRecord, croft__pool_record__init);
	const struct pool_record *record = &pool->record;
	bool is_managed = record->responsibility == RESPONSIBILITY_MANAGED;

	if (!message) {
		ops->no_memory = true;
		return;
	}
	message->cpu_overcommit_percent = record->cpu_overcommit_percent;
	message->shared = record->shared;
	message->created_us = pool->created_us;
	message->revoked_us = pool->revoked_us;
	message->lost_after_ms = (uint32_t)(record->lost_after_usec / USEC_PER_MSEC);
	message->self_stop_after_ms = (uint32_t)(record->self_stop_after_usec / USEC_PER_MSEC);
	ops_put(ops,
		codec_whole(&message->base,
			codec_set(&message->name, record->name) &&
				codec_set(&message->customer, record->customer) &&
				codec_set(&message->replace,
					record->replace_on_loss ? "on-loss" : "never") &&
				codec_set(&message->responsibility,
					is_managed ? "managed" : "self") &&
				encode_owners(record, message) == 0),
		STORE_ANY, "pool/%s", record->name);
}

void registry_put_tenant(struct ops *ops, const struct tenant_entry *tenant)
{
	Croft__TenantRecord *message = CODEC_NEW(Croft__TenantRecord, croft__tenant_record__init);

	if (!message) {
		ops->no_memory = true;
		return;
	}
	message->created_us = tenant->created_us;
	message->weight = tenant->weight;
	message->revoked_us = tenant->revoked_us;
	message->quota = CODEC_NEW(Croft__QuotaRecord, croft__quota_record__init);
	if (message->quota) {
		message->quota->sandboxes = tenant->quota.sandboxes;
		message->quota->vcpus = tenant->quota.vcpus;
		message->quota->memory_mib = tenant->quota.memory_mib;
		message->quota->starts_per_minute = tenant->quota.starts_per_minute;
		message->quota->paused = tenant->quota.paused;
		message->quota->snapshots = tenant->quota.snapshots;
		message->quota->kept_disk_mib = tenant->quota.kept_disk_mib;
	}
	ops_put(ops,
		codec_whole(&message->base,
			message->quota && codec_set(&message->name, tenant->name) &&
				codec_set(&message->customer, tenant->customer)),
		STORE_ANY, "tenant/%s", tenant->name);
}

/* ---- changes ---- */
int registry_add_customer(
	struct registry *registry, struct ops *ops, const char *name, int64_t now_us)
{
	struct customer_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	COPY(entry->name, name);
	entry->created_us = now_us;
	HASH_ADD_STR(registry->customers, name, entry);
	registry_put_customer(ops, entry);
	return ops->no_memory ? -ENOMEM : 0;
}

int registry_add_key(struct registry *registry, struct ops *ops, const char *secret, enum role role,
	const char *tenant, const char *customer, const char *name, int64_t now_us)
{
	struct key_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	registry_hash(secret, entry->hex);
	entry->role = role;
	entry->created_us = now_us;
	COPY(entry->tenant, tenant);
	COPY(entry->customer, customer);
	COPY(entry->name, name);
	(void)snprintf(entry->hint, sizeof(entry->hint), "%.10s", secret);
	HASH_ADD_STR(registry->keys, hex, entry);
	registry_put_key(ops, entry);
	return ops->no_memory ? -ENOMEM : 0;
}

int registry_add_pool(struct registry *registry, struct ops *ops, const struct pool_record *pool,
	int64_t now_us)
{
	struct pool_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	entry->record = *pool;
	if (entry->record.owners.owner[COMPONENT_CALLER] == OWNER_NONE)
		responsibility_default(pool->responsibility, &entry->record.owners);
	entry->created_us = now_us;
	HASH_ADD_STR(registry->pools, record.name, entry);
	registry_put_pool(ops, entry);
	return ops->no_memory ? -ENOMEM : 0;
}

int registry_add_tenant(struct registry *registry, struct ops *ops, const char *name,
	const char *customer, const struct fleet_quota *quota, uint32_t weight, int64_t now_us)
{
	struct tenant_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	COPY(entry->name, name);
	COPY(entry->customer, customer);
	if (quota)
		entry->quota = *quota;
	entry->weight = weight;
	entry->created_us = now_us;
	HASH_ADD_STR(registry->tenants, name, entry);
	registry_put_tenant(ops, entry);
	return ops->no_memory ? -ENOMEM : 0;
}

int registry_add_idempotency(struct registry *registry, struct ops *ops, const char *hex,
	const char *fingerprint, const char *object, int64_t now_us)
{
	Croft__IdempotencyRecord *message =
		CODEC_NEW(Croft__IdempotencyRecord, croft__idempotency_record__init);
	struct idempotency_entry *entry = calloc(1, sizeof(*entry)),
				 *old = registry_idempotency(registry, hex);

	if (!entry || !message) {
		free(entry);
		free(message);
		return -ENOMEM;
	}
	if (old) {
		HASH_DEL(registry->idempotency, old);
		free(old);
	}
	COPY(entry->hex, hex);
	COPY(entry->fingerprint, fingerprint);
	COPY(entry->object, object);
	entry->created_us = message->created_us = now_us;
	HASH_ADD_STR(registry->idempotency, hex, entry);
	ops_put(ops,
		codec_whole(&message->base, codec_set(&message->fingerprint, fingerprint) &&
						    codec_set(&message->object, object)),
		STORE_ANY, "idempotency/%s", hex);
	return ops->no_memory ? -ENOMEM : 0;
}

void registry_forget_idempotency(
	struct registry *registry, struct ops *ops, int64_t before_us, size_t max)
{
	struct idempotency_entry *entry, *next;

	HASH_ITER (hh, registry->idempotency, entry, next) {
		if (max == 0 || entry->created_us >= before_us)
			return;
		ops_delete(ops, "idempotency/%s", entry->hex);
		HASH_DEL(registry->idempotency, entry);
		free(entry);
		max--;
	}
}

static int by_age(const struct idempotency_entry *a, const struct idempotency_entry *b)
{
	return a->created_us < b->created_us ? -1 : a->created_us > b->created_us;
}

void registry_sort_idempotency(struct registry *registry)
{
	HASH_SORT(registry->idempotency, by_age);
}

/* ---- loading ---- */
int registry_load_customer(
	struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__CustomerRecord *message = (const Croft__CustomerRecord *)base;
	struct customer_entry *entry = calloc(1, sizeof(*entry));

	(void)key;
	if (!entry)
		return -ENOMEM;
	COPY(entry->name, message->name);
	entry->created_us = message->created_us;
	entry->revoked_us = message->revoked_us;
	HASH_ADD_STR(registry->customers, name, entry);
	return 0;
}

int registry_load_key(struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__KeyRecord *message = (const Croft__KeyRecord *)base;
	struct key_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	COPY(entry->hex, key + strlen("key/"));
	COPY(entry->tenant, message->tenant);
	COPY(entry->customer, message->customer);
	COPY(entry->hint, message->hint);
	COPY(entry->name, message->name);
	entry->created_us = message->created_us;
	entry->revoked = message->revoked;
	for (unsigned int i = ROLE_TENANT; i < ROLE_MAX_; i++)
		if (role_numbers[i] == message->role)
			entry->role = (enum role)i; /* a role of a later release stays none: it may nothing */
	HASH_ADD_STR(registry->keys, hex, entry);
	return 0;
}

int registry_load_pool(struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__PoolRecord *message = (const Croft__PoolRecord *)base;
	struct pool_entry *entry = calloc(1, sizeof(*entry));
	struct pool_record *record;

	(void)key;
	if (!entry)
		return -ENOMEM;
	record = &entry->record;
	COPY(record->name, message->name);
	COPY(record->customer, message->customer);
	record->cpu_overcommit_percent = message->cpu_overcommit_percent;
	record->shared = message->shared;
	record->replace_on_loss = !strcmp(message->replace, "on-loss");
	record->lost_after_usec = message->lost_after_ms * USEC_PER_MSEC;
	record->self_stop_after_usec = message->self_stop_after_ms * USEC_PER_MSEC;
	record->responsibility = strcmp(message->responsibility, "managed")
					 ? RESPONSIBILITY_SELF
					 : RESPONSIBILITY_MANAGED;
	responsibility_default(record->responsibility, &record->owners);
	for (size_t i = 0; i < message->n_owners; i++) {
		enum fail_component component = component_by_name(message->owners[i]->key);
		enum fail_owner owner = owner_by_name(message->owners[i]->value);

		if (component != COMPONENT_NONE && owner != OWNER_NONE)
			record->owners.owner[component] = owner;
	}
	entry->created_us = message->created_us;
	entry->revoked_us = message->revoked_us;
	HASH_ADD_STR(registry->pools, record.name, entry);
	return 0;
}

int registry_load_tenant(struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__TenantRecord *message = (const Croft__TenantRecord *)base;
	struct tenant_entry *entry = calloc(1, sizeof(*entry));

	(void)key;
	if (!entry)
		return -ENOMEM;
	COPY(entry->name, message->name);
	COPY(entry->customer, message->customer);
	if (message->quota)
		entry->quota = (struct fleet_quota){ .sandboxes = message->quota->sandboxes,
			.vcpus = message->quota->vcpus,
			.memory_mib = message->quota->memory_mib,
			.starts_per_minute = message->quota->starts_per_minute,
			.paused = message->quota->paused,
			.snapshots = message->quota->snapshots,
			.kept_disk_mib = message->quota->kept_disk_mib };
	entry->created_us = message->created_us;
	entry->revoked_us = message->revoked_us;
	entry->weight = MAX(message->weight, UINT32_C(1));
	HASH_ADD_STR(registry->tenants, name, entry);
	return 0;
}

int registry_load_idempotency(
	struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__IdempotencyRecord *message = (const Croft__IdempotencyRecord *)base;
	struct idempotency_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	COPY(entry->hex, key + strlen("idempotency/"));
	COPY(entry->fingerprint, message->fingerprint);
	COPY(entry->object, message->object);
	entry->created_us = message->created_us;
	HASH_ADD_STR(registry->idempotency, hex, entry);
	return 0;
}
