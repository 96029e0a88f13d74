/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec.h.
 */
#include "server/codec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/check.h"

static void message_freep(ProtobufCMessage **message)
{
	if (*message)
		protobuf_c_message_free_unpacked(*message, NULL);
}

bool codec_set(char **member, const char *text)
{
	char *copy;

	if (!*text)
		return true; /* the initialiser's empty string, which is nobody's */
	copy = strdup(text);
	if (!copy)
		return false;
	*member = copy;
	return true;
}

/* ---- fields ---- */
int codec_fields_encode(
	const struct sandbox_field *fields, size_t n, Croft__Field ***ret, size_t *ret_n)
{
	Croft__Field **list;

	if (n == 0)
		return 0;
	list = calloc(n, sizeof(*list));
	if (!list)
		return -ENOMEM;
	*ret = list; /* the message owns it from here on, whole or not */
	for (size_t i = 0; i < n; i++) {
		list[i] = malloc(sizeof(**list));
		if (!list[i])
			return -ENOMEM;
		croft__field__init(list[i]);
		*ret_n = i + 1;
		if (!codec_set(&list[i]->key, fields[i].key) ||
			!codec_set(&list[i]->value, fields[i].value))
			return -ENOMEM;
	}
	return 0;
}

void codec_fields_free(struct sandbox_field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(fields[i].key);
		free(fields[i].value);
	}
	free(fields);
}

int codec_fields_decode(
	Croft__Field *const *fields, size_t n, struct sandbox_field **ret, size_t *ret_n)
{
	struct sandbox_field *list;

	*ret = NULL;
	*ret_n = 0;
	if (n == 0)
		return 0;
	list = calloc(n, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		list[i].key = strdup(fields[i]->key);
		list[i].value = strdup(fields[i]->value);
		if (!list[i].key || !list[i].value) {
			codec_fields_free(list, n);
			return -ENOMEM;
		}
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

ProtobufCMessage *codec_unpack(const ProtobufCMessageDescriptor *descriptor, const char *key,
	const void *data, size_t size, struct err *reterr)
{
	struct err cause = ERR_NULL;
	ProtobufCMessage *message = check_unpack(descriptor, data, size, &cause);

	if (!message)
		(void)err_set(reterr, FAIL_STORE_CORRUPT, EBADMSG, "record %s cannot be read: %s",
			key, cause.msg);
	return message;
}

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

/* ---- sandboxes ---- */
static bool encode_stages(const struct sandbox_record *record, Croft__SandboxRecord *message)
{
	if (record->n_stages == 0)
		return true;
	message->stages = calloc(record->n_stages, sizeof(Croft__StageRecord *));
	if (!message->stages)
		return false;
	for (size_t i = 0; i < record->n_stages; i++) {
		message->stages[i] = stage_record_encode(&record->stages[i]);
		if (!message->stages[i])
			return false;
		message->n_stages = i + 1;
	}
	return true;
}

static bool encode_excluded(const struct sandbox_record *record, Croft__SandboxRecord *message)
{
	if (record->n_excluded == 0)
		return true;
	message->excluded_nodes = calloc(record->n_excluded, sizeof(char *));
	if (!message->excluded_nodes)
		return false;
	for (size_t i = 0; i < record->n_excluded; i++) {
		message->excluded_nodes[i] = strdup(record->excluded[i]);
		if (!message->excluded_nodes[i])
			return false;
		message->n_excluded_nodes = i + 1;
	}
	return true;
}

static bool encode_events(const struct sandbox_record *record, Croft__SandboxRecord *message)
{
	if (record->n_events == 0)
		return true;
	message->events = calloc(record->n_events, sizeof(Croft__SandboxEvent *));
	if (!message->events)
		return false;
	for (size_t i = 0; i < record->n_events; i++) {
		const struct sandbox_event *from = &record->events[i];
		Croft__SandboxEvent *to = CODEC_NEW(Croft__SandboxEvent, croft__sandbox_event__init);

		if (!to)
			return false;
		message->events[message->n_events++] = to;
		to->when_us = from->when_us;
		if (!codec_set(&to->name, from->name) || !codec_set(&to->node, from->node) ||
			!codec_set(&to->detail, from->detail))
			return false;
	}
	return true;
}

static bool encode_sandbox_texts(const struct sandbox_record *record, Croft__SandboxRecord *message)
{
	return codec_set(&message->id, record->id) && codec_set(&message->tenant, record->tenant) &&
	       codec_set(&message->region, record->wish.region) &&
	       codec_set(&message->cpu_class, record->wish.cpu_class) &&
	       codec_set(&message->pool, record->pool) && codec_set(&message->node, record->node) &&
	       codec_set(&message->state, sandbox_state_name(record->state)) &&
	       codec_set(&message->template_alias, record->template_alias) &&
	       codec_set(&message->trace_id, record->trace.trace_id) &&
	       codec_set(&message->span_id, record->trace.span_id) &&
	       codec_set(&message->operation, record->operation) &&
	       codec_set(&message->end_reason, end_reason_name(record->end_reason)) &&
	       codec_set(&message->guest_boot_id, record->guest_boot_id);
}

Croft__SandboxRecord *codec_sandbox_encode(const struct sandbox_record *record)
{
	Croft__SandboxRecord *message = malloc(sizeof(*message));
	CLEANUP(message_freep) ProtobufCMessage *owner = NULL;

	if (!message)
		return NULL;
	croft__sandbox_record__init(message);
	owner = &message->base;
	message->generation = record->generation;
	message->incarnation = record->incarnation;
	message->created_us = record->created_us;
	message->started_us = record->started_us;
	message->ends_us = record->ends_us;
	message->ended_us = record->ended_us;
	message->attempts = record->attempts;
	message->report_version = record->report_version;
	message->spec = spec_encode(record->spec);
	if (!message->spec || !encode_sandbox_texts(record, message) ||
		!encode_events(record, message) || !encode_stages(record, message) || !encode_excluded(record, message) ||
		codec_fields_encode(record->metadata, record->n_metadata, &message->metadata,
			&message->n_metadata) < 0 ||
		codec_fields_encode(record->wish.labels, record->wish.n_labels, &message->labels,
			&message->n_labels) < 0)
		return NULL;
	message->priority = record->priority;
	message->took = record->took;
	message->resume_timeout_s = record->resume_timeout_s;
	message->asleep = record->is_asleep;
	if (err_is_set(&record->failure) && !(message->failure = failure_encode(&record->failure)))
		return NULL;
	owner = NULL;
	return message;
}

static int decode_lists(const Croft__SandboxRecord *message, struct sandbox_record *record)
{
	if (message->n_stages) {
		record->stages = calloc(message->n_stages, sizeof(*record->stages));
		if (!record->stages)
			return -ENOMEM;
		for (size_t i = 0; i < message->n_stages; i++)
			/* a stage that this version does not know is left out */
			if (stage_record_decode(
				    message->stages[i], &record->stages[record->n_stages]) == 0)
				record->n_stages++;
	}
	if (message->n_excluded_nodes) {
		record->excluded = calloc(message->n_excluded_nodes, sizeof(*record->excluded));
		if (!record->excluded)
			return -ENOMEM;
		for (size_t i = 0; i < message->n_excluded_nodes; i++)
			if (id_is_valid(message->excluded_nodes[i]))
				memcpy(record->excluded[record->n_excluded++],
					message->excluded_nodes[i], ID_SIZE);
	}
	if (message->n_events) {
		record->events = calloc(SANDBOX_EVENTS_MAX, sizeof(*record->events));
		if (!record->events)
			return -ENOMEM;
		for (size_t i = 0; i < message->n_events && i < SANDBOX_EVENTS_MAX; i++) {
			struct sandbox_event *to = &record->events[record->n_events++];

			to->when_us = message->events[i]->when_us;
			COPY(to->name, message->events[i]->name);
			COPY(to->node, message->events[i]->node);
			COPY(to->detail, message->events[i]->detail);
		}
	}
	if (codec_fields_decode(message->metadata, message->n_metadata, &record->metadata,
		    &record->n_metadata) < 0)
		return -ENOMEM;
	return codec_fields_decode(message->labels, message->n_labels, &record->wish.labels,
		&record->wish.n_labels);
}

int codec_sandbox_decode(const char *key, const void *data, size_t size, struct sandbox_record *ret,
	struct err *reterr)
{
	CLEANUP(message_freep)
	ProtobufCMessage *owner =
		codec_unpack(&croft__sandbox_record__descriptor, key, data, size, reterr);
	const Croft__SandboxRecord *message = (const Croft__SandboxRecord *)owner;
	struct sandbox_record record = { .incarnation = 0 };
	struct err cause = ERR_NULL;

	if (!message)
		return -EBADMSG;
	record.state = sandbox_state_by_name(message->state);
	if (!id_is_valid(message->id) || !message->spec || record.state == SANDBOX_STATE_MAX_)
		return err_set(reterr, FAIL_STORE_CORRUPT, EBADMSG,
			"record %s lacks its id, its spec or its state", key);
	if (spec_decode(message->spec, &record.spec, &cause) < 0)
		return err_set(
			reterr, FAIL_STORE_CORRUPT, EBADMSG, "record %s: %s", key, cause.msg);
	COPY(record.id, message->id);
	COPY(record.tenant, message->tenant);
	COPY(record.pool, message->pool);
	COPY(record.node, message->node);
	COPY(record.template_alias, message->template_alias);
	COPY(record.trace.trace_id, message->trace_id);
	COPY(record.trace.span_id, message->span_id);
	COPY(record.operation, message->operation);
	COPY(record.guest_boot_id, message->guest_boot_id);
	record.generation = message->generation;
	record.incarnation = message->incarnation;
	record.created_us = message->created_us;
	record.started_us = message->started_us;
	record.ends_us = message->ends_us;
	record.ended_us = message->ended_us;
	record.end_reason = end_reason_by_name(message->end_reason);
	record.attempts = message->attempts;
	record.report_version = message->report_version;
	record.priority = message->priority;
	record.took = message->took;
	record.resume_timeout_s = message->resume_timeout_s;
	record.is_asleep = message->asleep;
	COPY(record.wish.region, message->region);
	COPY(record.wish.cpu_class, message->cpu_class);
	if (message->failure)
		failure_decode(message->failure, &record.failure);
	if (decode_lists(message, &record) < 0) {
		sandbox_record_deinit(&record);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for record %s", key);
	}
	*ret = record;
	return 0;
}

/* ---- nodes ---- */
static bool encode_facts(const struct node_record *record, Croft__NodeRecord *message)
{
	message->facts = calloc(NODE_FACT_MAX_, sizeof(Croft__NodeFact *));
	if (!message->facts)
		return false;
	for (enum node_fact i = 0; i < NODE_FACT_MAX_; i++) {
		const struct node_fact_entry *entry = &record->facts[i];
		Croft__NodeFact *fact;

		if (!entry->is_set)
			continue;
		fact = malloc(sizeof(*fact));
		if (!fact)
			return false;
		croft__node_fact__init(fact);
		message->facts[message->n_facts++] = fact;
		fact->since_us = entry->since_us;
		fact->until_us = entry->until_us;
		if (!codec_set(&fact->name, node_fact_name(i)) ||
			!codec_set(&fact->who, entry->who) || !codec_set(&fact->why, entry->why))
			return false;
	}
	return true;
}

static bool encode_health(const struct node_record *record, Croft__NodeRecord *message)
{
	const struct node_health *health = &record->health;

	message->health = malloc(sizeof(*message->health));
	if (!message->health)
		return false;
	croft__node_health__init(message->health);
	message->health->against_milli = health->against_milli;
	message->health->starts = health->starts;
	message->health->failures = health->failures;
	message->health->proven = health->is_proven;
	message->health->last_since_us = health->last_since_us;
	message->health->last_until_us = health->last_until_us;
	return codec_set(&message->health->last_why, health->last_why);
}

static bool encode_images(const struct node_record *record, Croft__NodeRecord *message)
{
	message->images = calloc(record->n_images + 1, sizeof(Croft__NodeImage *));
	if (!message->images)
		return false;
	for (size_t i = 0; i < record->n_images; i++) {
		const struct node_image *pair = &record->images[i];
		Croft__NodeImage *image = malloc(sizeof(*image));

		if (!image)
			return false;
		croft__node_image__init(image);
		message->images[message->n_images++] = image;
		image->size = pair->image.size;
		image->against_milli = pair->against_milli;
		image->node_part_milli = pair->node_part_milli;
		image->failures = pair->failures;
		image->barred = pair->is_barred;
		image->since_us = pair->since_us;
		if (!codec_set(&image->digest, pair->image.digest) ||
			!codec_set(&image->name, pair->image.name) ||
			!codec_set(&image->why, pair->why))
			return false;
	}
	return true;
}

static void decode_health(const Croft__NodeHealth *message, struct node_health *health)
{
	health->against_milli = message->against_milli;
	health->starts = message->starts;
	health->failures = message->failures;
	health->is_proven = message->proven;
	health->last_since_us = message->last_since_us;
	health->last_until_us = message->last_until_us;
	COPY(health->last_why, message->last_why);
}

static int decode_images(const Croft__NodeRecord *message, struct node_record *record)
{
	record->images = calloc(message->n_images + 1, sizeof(*record->images));
	if (!record->images)
		return -ENOMEM;
	for (size_t i = 0; i < message->n_images; i++) {
		const Croft__NodeImage *image = message->images[i];
		struct node_image *pair = &record->images[record->n_images++];

		COPY(pair->image.digest, image->digest);
		COPY(pair->image.name, image->name);
		COPY(pair->why, image->why);
		pair->image.size = image->size;
		pair->against_milli = image->against_milli;
		pair->node_part_milli = image->node_part_milli;
		pair->failures = image->failures;
		pair->is_barred = image->barred;
		pair->since_us = image->since_us;
	}
	return 0;
}

Croft__NodeRecord *codec_node_encode(const struct node_record *record)
{
	Croft__NodeRecord *message = malloc(sizeof(*message));
	CLEANUP(message_freep) ProtobufCMessage *owner = NULL;

	if (!message)
		return NULL;
	croft__node_record__init(message);
	owner = &message->base;
	message->joined_us = record->joined_us;
	message->revoked = record->revoked;
	message->telemetry_acked = record->telemetry_acked;
	message->lease_ms = record->lease_ms;
	message->capacity = capacity_encode(&record->capacity);
	if (!message->capacity || !codec_set(&message->id, record->id) ||
		!codec_set(&message->public_key, record->public_key) ||
		!codec_set(&message->pool, record->pool) ||
		!codec_set(&message->hostname, record->hostname) ||
		!codec_set(&message->machine, record->machine) ||
		!codec_set(&message->lineage, record->lineage) ||
		!codec_set(&message->adopt_tenant, record->adopt_tenant) ||
		!codec_set(&message->version, record->version) ||
		!codec_set(&message->server_key, record->server_key) ||
		!codec_set(&message->next_key, record->next_key) ||
		!codec_set(&message->cpu_class, record->cpu_class) || !encode_facts(record, message) ||
		!encode_health(record, message) || !encode_images(record, message) ||
		codec_fields_encode(
			record->labels, record->n_labels, &message->labels, &message->n_labels) < 0)
		return NULL;
	owner = NULL;
	return message;
}

int codec_node_decode(
	const char *key, const void *data, size_t size, struct node_record *ret, struct err *reterr)
{
	CLEANUP(message_freep)
	ProtobufCMessage *owner =
		codec_unpack(&croft__node_record__descriptor, key, data, size, reterr);
	const Croft__NodeRecord *message = (const Croft__NodeRecord *)owner;
	struct node_record record = { .joined_us = 0 };

	if (!message)
		return -EBADMSG;
	if (!id_is_valid(message->id))
		return err_set(
			reterr, FAIL_STORE_CORRUPT, EBADMSG, "record %s has no valid id", key);
	COPY(record.id, message->id);
	COPY(record.public_key, message->public_key);
	COPY(record.pool, message->pool);
	COPY(record.hostname, message->hostname);
	COPY(record.machine, message->machine);
	COPY(record.version, message->version);
	COPY(record.cpu_class, message->cpu_class);
	COPY(record.server_key, message->server_key);
	COPY(record.next_key, message->next_key);
	COPY(record.lineage, message->lineage);
	COPY(record.adopt_tenant, message->adopt_tenant);
	record.joined_us = message->joined_us;
	record.revoked = message->revoked;
	record.telemetry_acked = message->telemetry_acked;
	record.lease_ms = message->lease_ms;
	if (message->capacity)
		capacity_decode(message->capacity, &record.capacity);
	for (size_t i = 0; i < message->n_facts; i++)
		for (enum node_fact k = 0; k < NODE_FACT_MAX_; k++) {
			struct node_fact_entry *entry = &record.facts[k];

			if (strcmp(message->facts[i]->name, node_fact_name(k)))
				continue;
			entry->is_set = true;
			entry->since_us = message->facts[i]->since_us;
			entry->until_us = message->facts[i]->until_us;
			COPY(entry->who, message->facts[i]->who);
			COPY(entry->why, message->facts[i]->why);
		}
	if (message->health)
		decode_health(message->health, &record.health);
	if (decode_images(message, &record) < 0 ||
		codec_fields_decode(message->labels, message->n_labels, &record.labels,
			&record.n_labels) < 0) {
		node_record_deinit(&record);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for record %s", key);
	}
	*ret = record;
	return 0;
}

ProtobufCMessage *codec_whole(ProtobufCMessage *message, bool is_whole)
{
	if (is_whole)
		return message;
	protobuf_c_message_free_unpacked(message, NULL);
	return NULL;
}
