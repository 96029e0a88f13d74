/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry's part about warm pools. See registry.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "pb/store.pb-c.h"
#include "server/codec.h"
#include "server/registry.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

static void make_key(char *ret, size_t size, const char *pool, const char *name)
{
	(void)snprintf(ret, size, "%s/%s", pool, name);
}

static struct warm_entry *find_warm(const struct registry *registry, const char *pool, const char *name)
{
	char key[2 * (ID_NAME_MAX + 1)];
	struct warm_entry *entry = NULL;

	make_key(key, sizeof(key), pool, name);
	HASH_FIND_STR(registry->warms, key, entry);
	return entry;
}

static void put_warm(struct ops *ops, const struct warm_entry *warm)
{
	Croft__WarmRecord *message = CODEC_NEW(Croft__WarmRecord, croft__warm_record__init);

	if (!message) {
		ops->no_memory = true;
		return;
	}
	message->target = warm->record.target;
	message->max_starts = warm->record.max_starts;
	message->max_age_ms = (uint64_t)(warm->record.max_age_usec / USEC_PER_MSEC);
	message->spec = spec_encode(warm->record.spec);
	ops_put(ops,
		codec_whole(&message->base, message->spec &&
						    codec_set(&message->pool, warm->record.pool) &&
						    codec_set(&message->name, warm->record.name) &&
						    codec_set(&message->tenant, warm->tenant)),
		STORE_ANY, "warm/%s", warm->key);
}

static struct warm_entry *entry_make(struct registry *registry, const char *pool, const char *name)
{
	struct warm_entry *entry = find_warm(registry, pool, name);

	if (entry)
		return entry;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	make_key(entry->key, sizeof(entry->key), pool, name);
	COPY(entry->record.pool, pool);
	COPY(entry->record.name, name);
	HASH_ADD_STR(registry->warms, key, entry);
	if (entry->hh.tbl)
		return entry;
	free(entry);
	return NULL;
}

struct warm_entry *registry_set_warm(struct registry *registry, struct ops *ops,
	const struct warm_record *record, const char *tenant)
{
	struct warm_entry *entry = entry_make(registry, record->pool, record->name);

	if (!entry) {
		ops->no_memory = true;
		return NULL;
	}
	spec_unref(entry->record.spec);
	entry->record = *record;
	entry->record.spec = spec_ref(record->spec);
	COPY(entry->tenant, tenant);
	put_warm(ops, entry);
	return entry;
}

int registry_load_warm(struct registry *registry, const char *key, const ProtobufCMessage *base)
{
	const Croft__WarmRecord *message = (const Croft__WarmRecord *)base;
	struct sandbox_spec *spec = NULL;
	struct warm_entry *entry;

	(void)key;
	if (!message->spec || spec_decode(message->spec, &spec, NULL) < 0)
		return -ENOMEM;
	entry = entry_make(registry, message->pool, message->name);
	if (!entry) {
		spec_unref(spec);
		return -ENOMEM;
	}
	entry->record.spec = spec;
	entry->record.target = message->target;
	entry->record.max_starts = message->max_starts;
	entry->record.max_age_usec = (int64_t)message->max_age_ms * USEC_PER_MSEC;
	COPY(entry->tenant, message->tenant);
	return 0;
}

void registry_free_warms(struct registry *registry)
{
	struct warm_entry *entry, *next;

	HASH_ITER (hh, registry->warms, entry, next) {
		HASH_DEL(registry->warms, entry);
		spec_unref(entry->record.spec);
		free(entry);
	}
}
