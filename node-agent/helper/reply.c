/* SPDX-License-Identifier: Apache-2.0
 *
 * See message.h: replies. The agent believes the helper, but a helper of another release is decoded with the same
 * care as anything else.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "helper/edge.h"
#include "helper/message.h"
#include "wire/check.h"

/* ---- failures ---- */

struct failure_parts {
	Croft__HelperFailure failure;
	Croft__HelperFailureField fields[ERR_FIELDS_MAX], *list[ERR_FIELDS_MAX];
	char code[48], message[ERR_MSG_MAX];
	char keys[ERR_FIELDS_MAX][ERR_KEY_MAX], values[ERR_FIELDS_MAX][ERR_VALUE_MAX];
};

static Croft__HelperFailure *put_failure(struct failure_parts *parts, const struct err *err)
{
	Croft__HelperFailure *failure = &parts->failure;

	if (!err_is_set(err))
		return NULL;
	croft__helper_failure__init(failure);
	(void)snprintf(parts->code, sizeof(parts->code), "%s", failure_info(err->code)->name);
	memcpy(parts->message, err->msg, sizeof(parts->message));
	failure->code = parts->code;
	failure->err_no = err->err_no;
	failure->message = parts->message;
	for (unsigned int i = 0; i < err->n_fields; i++) {
		memcpy(parts->keys[i], err->fields[i].key, ERR_KEY_MAX);
		memcpy(parts->values[i], err->fields[i].value, ERR_VALUE_MAX);
		croft__helper_failure_field__init(&parts->fields[i]);
		parts->fields[i].key = parts->keys[i];
		parts->fields[i].value = parts->values[i];
		parts->list[i] = &parts->fields[i];
	}
	failure->n_fields = err->n_fields;
	failure->fields = parts->list;
	return failure;
}

static void take_failure(const Croft__HelperFailure *failure, struct err *ret)
{
	enum fail_code code;

	*ret = (struct err)ERR_NULL;
	if (!failure)
		return;
	code = failure_by_name(failure->code);
	if (code == FAIL_NONE) {
		(void)err_set(ret, FAIL_PEER_FAILURE, failure->err_no, "%s", failure->message);
		err_add(ret, "peer_code", "%.60s", failure->code);
		return;
	}
	(void)err_set(ret, code, failure->err_no, "%s", failure->message);
	for (size_t i = 0; i < failure->n_fields; i++)
		err_add(ret, failure->fields[i]->key, "%s", failure->fields[i]->value);
}

/* ---- slots ---- */

struct slot_parts {
	Croft__HelperSlot slot;
	char sandbox[ID_SIZE], name[NET_SLOT_NAME_SIZE];
	uint8_t mac[NET_MAC_SIZE];
};

static Croft__HelperSlot *put_slot(struct slot_parts *parts, const struct helper_slot *slot)
{
	croft__helper_slot__init(&parts->slot);
	memcpy(parts->sandbox, slot->sandbox, sizeof(parts->sandbox));
	memcpy(parts->name, slot->name, sizeof(parts->name));
	memcpy(parts->mac, slot->mac, sizeof(parts->mac));
	parts->slot.sandbox = parts->sandbox;
	parts->slot.generation = slot->generation;
	parts->slot.name = parts->name;
	parts->slot.guest = slot->guest;
	parts->slot.gateway = slot->gateway;
	parts->slot.prefix = slot->prefix;
	parts->slot.cid = slot->cid;
	parts->slot.mac.data = parts->mac;
	parts->slot.mac.len = NET_MAC_SIZE;
	return &parts->slot;
}

static bool take_slot(const Croft__HelperSlot *from, struct helper_slot *ret)
{
	if (!id_is_valid(from->sandbox) || !net_slot_name_is_valid(from->name) || from->prefix > 32 ||
		from->mac.len != NET_MAC_SIZE)
		return false;
	(void)snprintf(ret->sandbox, sizeof(ret->sandbox), "%s", from->sandbox);
	(void)snprintf(ret->name, sizeof(ret->name), "%s", from->name);
	ret->generation = from->generation;
	ret->guest = from->guest;
	ret->gateway = from->gateway;
	ret->prefix = from->prefix;
	ret->cid = from->cid;
	memcpy(ret->mac, from->mac.data, NET_MAC_SIZE);
	return true;
}

/* ---- counters ---- */

#define COUNTERS 6

struct counter_parts {
	Croft__HelperCounters counters;
	Croft__HelperCounter each[COUNTERS];
	Croft__HelperDenied refused[NET_DENIED_MAX], *list[NET_DENIED_MAX];
};

static Croft__HelperCounters *put_counters(struct counter_parts *parts, const struct helper_reply *reply)
{
	const struct net_counters *from = &reply->counters;
	const struct net_counter *all[COUNTERS] = { &from->sent, &from->received, &from->denied,
		&from->over_connections, &from->over_rate, &from->strayed };
	Croft__HelperCounters *to = &parts->counters;
	Croft__HelperCounter **places[COUNTERS] = { &to->sent, &to->received, &to->denied, &to->over_connections,
		&to->over_rate, &to->strayed };

	croft__helper_counters__init(to);
	for (size_t i = 0; i < COUNTERS; i++) {
		croft__helper_counter__init(&parts->each[i]);
		parts->each[i].packets = all[i]->packets;
		parts->each[i].bytes = all[i]->bytes;
		*places[i] = &parts->each[i];
	}
	for (size_t i = 0; i < from->n_refused; i++) {
		croft__helper_denied__init(&parts->refused[i]);
		parts->refused[i].address = from->refused[i].address;
		parts->refused[i].protocol = from->refused[i].protocol;
		parts->refused[i].port = from->refused[i].port;
		parts->refused[i].packets = from->refused[i].packets;
		parts->list[i] = &parts->refused[i];
	}
	to->n_refused = from->n_refused;
	to->refused = parts->list;
	to->group_memory_bytes = reply->group.memory_bytes;
	to->group_oom_kills = reply->group.oom_kills;
	to->group_cpu_usec = reply->group.cpu_usec;
	to->has_status = reply->group.has_status;
	to->status = reply->group.status;
	return to;
}

static struct net_counter counter_of(const Croft__HelperCounter *from)
{
	return from ? (struct net_counter){ from->packets, from->bytes } : (struct net_counter){ 0, 0 };
}

static void take_counters(const Croft__HelperCounters *from, struct helper_reply *ret)
{
	struct net_counters *to = &ret->counters;

	ret->has_counters = true;
	to->sent = counter_of(from->sent);
	to->received = counter_of(from->received);
	to->denied = counter_of(from->denied);
	to->over_connections = counter_of(from->over_connections);
	to->over_rate = counter_of(from->over_rate);
	to->strayed = counter_of(from->strayed);
	to->n_refused = MIN(from->n_refused, (size_t)NET_DENIED_MAX);
	for (size_t i = 0; i < to->n_refused; i++)
		to->refused[i] = (struct net_denied){ from->refused[i]->address,
			(uint8_t)from->refused[i]->protocol, (uint16_t)from->refused[i]->port,
			from->refused[i]->packets };
	ret->group = (struct helper_group_use){ from->group_memory_bytes, from->group_oom_kills, from->group_cpu_usec,
		from->has_status, from->status };
}

/* ---- the whole ---- */

struct reply_parts {
	struct failure_parts failure, network, groups;
	Croft__HelperFacts facts;
	struct slot_parts slots[HELPER_LIST_MAX];
	Croft__HelperSlot *list[HELPER_LIST_MAX];
	struct counter_parts counters;
};

int helper_reply_encode(const struct helper_reply *reply, uint8_t **ret_data, size_t *ret_size)
{
	CLEANUP_FREE struct reply_parts *parts = calloc(1, sizeof(*parts));
	Croft__HelperReply message;

	if (!parts)
		return -ENOMEM;
	croft__helper_reply__init(&message);
	message.id = reply->id;
	message.failure = put_failure(&parts->failure, &reply->failure);
	if (reply->has_facts) {
		croft__helper_facts__init(&parts->facts);
		parts->facts.version = reply->facts.version;
		parts->facts.slots = reply->facts.slots;
		parts->facts.stale_slots = reply->facts.stale_slots;
		parts->facts.can_start_vmm = reply->facts.can_start_vmm;
		parts->facts.network = put_failure(&parts->network, &reply->facts.network);
		parts->facts.groups = put_failure(&parts->groups, &reply->facts.groups);
		message.facts = &parts->facts;
	}
	for (size_t i = 0; i < reply->n_slots; i++)
		parts->list[i] = put_slot(&parts->slots[i], &reply->slots[i]);
	message.n_slots = reply->n_slots;
	message.slots = parts->list;
	if (reply->has_counters)
		message.counters = put_counters(&parts->counters, reply);
	message.pid = reply->pid;
	message.start_ticks = reply->start_ticks;
	return helper_pack(&message.base, ret_data, ret_size);
}

static int take(const Croft__HelperReply *message, struct helper_reply *ret, struct err *reterr)
{
	ret->id = message->id;
	take_failure(message->failure, &ret->failure);
	if (message->facts) {
		ret->has_facts = true;
		ret->facts.version = message->facts->version;
		ret->facts.slots = message->facts->slots;
		ret->facts.stale_slots = message->facts->stale_slots;
		ret->facts.can_start_vmm = message->facts->can_start_vmm;
		take_failure(message->facts->network, &ret->facts.network);
		take_failure(message->facts->groups, &ret->facts.groups);
	}
	for (size_t i = 0; i < message->n_slots && i < HELPER_LIST_MAX; i++)
		if (!take_slot(message->slots[i], &ret->slots[ret->n_slots++]))
			return err_set(reterr, FAIL_FRAME_INVALID, EBADMSG, "the helper names an odd slot");
	if (message->counters)
		take_counters(message->counters, ret);
	ret->pid = message->pid;
	ret->start_ticks = message->start_ticks;
	return 0;
}

int helper_reply_decode(const void *data, size_t size, struct helper_reply *ret, struct err *reterr)
{
	Croft__HelperReply *message;
	int r;

	memset(ret, 0, sizeof(*ret));
	message = (Croft__HelperReply *)(void *)check_unpack(&croft__helper_reply__descriptor, data, size, reterr);
	if (!message)
		return -EBADMSG;
	r = take(message, ret, reterr);
	croft__helper_reply__free_unpacked(message, NULL);
	return r;
}
