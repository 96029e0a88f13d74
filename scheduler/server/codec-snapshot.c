/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec.h: the record of a snapshot.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/codec.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

static void message_freep(ProtobufCMessage **message)
{
	if (*message)
		protobuf_c_message_free_unpacked(*message, NULL);
}

static bool encode_texts(const struct snapshot_record *record, Croft__SnapshotRecord *message)
{
	return codec_set(&message->id, record->id) && codec_set(&message->tenant, record->tenant) &&
	       codec_set(&message->pool, record->pool) && codec_set(&message->node, record->node) &&
	       codec_set(&message->sandbox, record->sandbox) &&
	       codec_set(&message->state, snapshot_state_name(record->state)) &&
	       codec_set(&message->name, record->name) && codec_set(&message->operation, record->operation) &&
	       codec_set(&message->cpu_class, record->cpu_class);
}

static bool encode_forks(const struct snapshot_record *record, Croft__SnapshotRecord *message)
{
	if (record->n_forks == 0)
		return true;
	message->forks = calloc(record->n_forks, sizeof(char *));
	if (!message->forks)
		return false;
	for (size_t i = 0; i < record->n_forks; i++) {
		message->forks[i] = strdup(record->forks[i]);
		if (!message->forks[i])
			return false;
		message->n_forks = i + 1;
	}
	return true;
}

Croft__SnapshotRecord *codec_snapshot_encode(const struct snapshot_record *record)
{
	Croft__SnapshotRecord *message = CODEC_NEW(Croft__SnapshotRecord, croft__snapshot_record__init);
	CLEANUP(message_freep) ProtobufCMessage *owner = NULL;

	if (!message)
		return NULL;
	owner = &message->base;
	message->generation = record->generation;
	message->size_mib = record->size_mib;
	message->created_us = record->created_us;
	message->fork = record->is_fork;
	message->unwanted = record->is_unwanted;
	message->spec = spec_encode(record->spec);
	if (!message->spec || !encode_texts(record, message) || !encode_forks(record, message) ||
		codec_fields_encode(record->metadata, record->n_metadata, &message->metadata, &message->n_metadata) < 0)
		return NULL;
	owner = NULL;
	return message;
}

static int decode_lists(const Croft__SnapshotRecord *message, struct snapshot_record *record)
{
	if (message->n_forks) {
		record->forks = calloc(message->n_forks, sizeof(*record->forks));
		if (!record->forks)
			return -ENOMEM;
		for (size_t i = 0; i < message->n_forks && record->n_forks < FORKS_MAX; i++)
			if (id_is_valid(message->forks[i]))
				memcpy(record->forks[record->n_forks++], message->forks[i], ID_SIZE);
	}
	return codec_fields_decode(message->metadata, message->n_metadata, &record->metadata, &record->n_metadata);
}

int codec_snapshot_decode(
	const char *key, const void *data, size_t size, struct snapshot_record *ret, struct err *reterr)
{
	CLEANUP(message_freep)
	ProtobufCMessage *owner = codec_unpack(&croft__snapshot_record__descriptor, key, data, size, reterr);
	const Croft__SnapshotRecord *message = (const Croft__SnapshotRecord *)owner;
	struct snapshot_record record = { .is_fork = false };
	struct err cause = ERR_NULL;

	if (!message)
		return -EBADMSG;
	record.state = snapshot_state_by_name(message->state);
	if (!id_is_valid(message->id) || !id_is_valid(message->sandbox) || !message->spec ||
		record.state == SNAPSHOT_STATE_MAX_)
		return err_set(reterr, FAIL_STORE_CORRUPT, EBADMSG,
			"record %s lacks its id, its sandbox, its spec or its state", key);
	if (spec_decode(message->spec, &record.spec, &cause) < 0)
		return err_set(reterr, FAIL_STORE_CORRUPT, EBADMSG, "record %s: %s", key, cause.msg);
	COPY(record.id, message->id);
	COPY(record.tenant, message->tenant);
	COPY(record.pool, message->pool);
	COPY(record.node, message->node);
	COPY(record.sandbox, message->sandbox);
	COPY(record.name, message->name);
	COPY(record.operation, message->operation);
	COPY(record.cpu_class, message->cpu_class);
	record.generation = message->generation;
	record.size_mib = message->size_mib;
	record.created_us = message->created_us;
	record.is_fork = message->fork;
	record.is_unwanted = message->unwanted;
	if (decode_lists(message, &record) < 0) {
		snapshot_record_deinit(&record);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for record %s", key);
	}
	*ret = record;
	return 0;
}
