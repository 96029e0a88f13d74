/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's wire: every message is really packed and unpacked, so that what the codecs of
 * wire/messages.h lose or refuse shows here.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static struct bytes pack(Croft__Envelope *envelope)
{
	struct bytes bytes = { .size = croft__envelope__get_packed_size(envelope) };

	bytes.data = malloc(bytes.size + 1);
	if (bytes.data)
		(void)croft__envelope__pack(envelope, bytes.data);
	else
		bytes.size = 0;
	croft__envelope__free_unpacked(envelope, NULL);
	return bytes;
}

static Croft__Envelope *envelope_new(void)
{
	Croft__Envelope *envelope = malloc(sizeof(*envelope));

	if (!envelope)
		exit(3);
	croft__envelope__init(envelope);
	envelope->version_major = 1;
	return envelope;
}

#define BODY(envelope, CASE, member, value)                                                        \
	((envelope)->body_case = CROFT__ENVELOPE__BODY_##CASE, (envelope)->member = (value))

static Croft__Refused *refused_encode(const struct err *err)
{
	Croft__Refused *message = malloc(sizeof(*message));

	if (!message)
		exit(3);
	croft__refused__init(message);
	message->failure = failure_encode(err);
	return message;
}

struct bytes wire_pack_send(const struct fleet_send *send, uint64_t epoch)
{
	Croft__Envelope *envelope = envelope_new();

	envelope->epoch = epoch;
	switch (send->type) {
	case SEND_WELCOME:
		BODY(envelope, WELCOME, welcome, welcome_encode(&send->welcome));
		break;
	case SEND_DESIRED:
		BODY(envelope, DESIRED, desired, desired_set_encode(&send->desired));
		break;
	case SEND_CREATE:
		envelope->deadline_ms = (uint64_t)(send->create.left_usec / USEC_PER_MSEC);
		BODY(envelope, CREATE, create, create_command_encode(&send->create));
		break;
	case SEND_DESTROY:
		BODY(envelope, DESTROY, destroy, destroy_command_encode(&send->destroy));
		break;
	case SEND_NETWORK:
		BODY(envelope, NETWORK_UPDATE, network_update, network_command_encode(&send->network));
		break;
	case SEND_BUDGET:
		BODY(envelope, BUDGET_UPDATE, budget_update, budget_command_encode(&send->budget));
		break;
	case SEND_PAUSE:
		BODY(envelope, PAUSE, pause, pause_command_encode(&send->pause));
		break;
	case SEND_SNAPSHOT:
		BODY(envelope, SNAPSHOT, snapshot, snapshot_command_encode(&send->snapshot));
		break;
	case SEND_DROP_SNAPSHOT:
		BODY(envelope, DROP_SNAPSHOT, drop_snapshot, drop_snapshot_encode(send->drop_snapshot));
		break;
	case SEND_RESUME:
		BODY(envelope, RESUME, resume, resume_command_encode(&send->resume));
		break;
	case SEND_UPDATE:
		BODY(envelope, UPDATE, update, update_command_encode(&send->update));
		break;
	case SEND_REPORT_ACK:
		BODY(envelope, REPORT_ACK, report_ack, report_ack_encode(&send->ack));
		break;
	case SEND_LEASE:
		BODY(envelope, LEASE, lease, lease_grant_encode(&send->lease));
		break;
	case SEND_REFUSED:
		BODY(envelope, REFUSED, refused, refused_encode(send->refused));
		break;
	}
	return pack(envelope);
}

struct bytes wire_pack_action(const struct sv_action *action)
{
	Croft__Envelope *envelope = envelope_new();

	switch (action->type) {
	case SV_DO_SEND_HELLO:
		BODY(envelope, HELLO, hello, hello_encode(action->hello));
		break;
	case SV_DO_SEND_HEARTBEAT:
		BODY(envelope, HEARTBEAT, heartbeat, heartbeat_encode(&action->heartbeat));
		break;
	case SV_DO_SEND_INVENTORY:
		BODY(envelope, INVENTORY, inventory, inventory_encode(action->inventory));
		break;
	case SV_DO_SEND_REPORT:
		BODY(envelope, REPORT, report, sandbox_report_encode(action->report));
		break;
	case SV_DO_SEND_CAPACITY:
		BODY(envelope, CAPACITY, capacity, capacity_report_encode(action->capacity));
		break;
	case SV_DO_SEND_REFUSED:
		BODY(envelope, REFUSED, refused, refused_encode(action->err));
		break;
	case SV_DO_SEND_DROPPED:
		BODY(envelope, SNAPSHOT_DROPPED, snapshot_dropped, snapshot_dropped_encode(action->snapshot_id));
		break;
	default:
		break;
	}
	return pack(envelope);
}

typedef void (*to_fleet)(const struct fleet_event *event, void *user);
typedef void (*to_core)(const struct sv_event *event, void *user);

static bool deliver_hello(
	const Croft__Hello *message, struct fleet_event *event, to_fleet deliver, void *user)
{
	struct hello hello;

	if (hello_decode(message, &hello, NULL) < 0)
		return false;
	event->type = FLEET_NODE_HELLO;
	event->hello = &hello;
	deliver(event, user);
	hello_deinit(&hello);
	return true;
}

static bool deliver_inventory(
	const Croft__Inventory *message, struct fleet_event *event, to_fleet deliver, void *user)
{
	struct inventory inventory;

	if (inventory_decode(message, &inventory, NULL) < 0)
		return false;
	event->type = FLEET_NODE_INVENTORY;
	event->inventory = &inventory;
	deliver(event, user);
	inventory_deinit(&inventory);
	return true;
}

static bool deliver_report(const Croft__SandboxReport *message, struct fleet_event *event,
	to_fleet deliver, void *user)
{
	struct sandbox_report report;

	if (sandbox_report_decode(message, &report, NULL) < 0)
		return false;
	event->type = FLEET_NODE_REPORT;
	event->report = &report;
	deliver(event, user);
	sandbox_report_deinit(&report);
	return true;
}

static bool deliver_capacity(const Croft__CapacityReport *message, struct fleet_event *event,
	to_fleet deliver, void *user)
{
	struct capacity_report report;

	if (capacity_report_decode(message, &report, NULL) < 0)
		return false;
	event->type = FLEET_NODE_CAPACITY;
	event->capacity = &report;
	deliver(event, user);
	capacity_report_deinit(&report);
	return true;
}

bool wire_to_fleet(
	struct bytes bytes, const char *node, uint64_t session, to_fleet deliver, void *user)
{
	Croft__Envelope *envelope = croft__envelope__unpack(NULL, bytes.size, bytes.data);
	struct fleet_event event = { .session = session };
	struct heartbeat heartbeat;
	char snapshot[ID_SIZE];
	bool ok = true;

	if (!envelope)
		return false;
	memcpy(event.node, node, sizeof(event.node));
	switch ((int)envelope->body_case) {
	case CROFT__ENVELOPE__BODY_HELLO:
		ok = deliver_hello(envelope->hello, &event, deliver, user);
		break;
	case CROFT__ENVELOPE__BODY_HEARTBEAT:
		heartbeat_decode(envelope->heartbeat, &heartbeat);
		event.type = FLEET_NODE_HEARTBEAT;
		event.heartbeat = &heartbeat;
		deliver(&event, user);
		break;
	case CROFT__ENVELOPE__BODY_INVENTORY:
		ok = deliver_inventory(envelope->inventory, &event, deliver, user);
		break;
	case CROFT__ENVELOPE__BODY_REPORT:
		ok = deliver_report(envelope->report, &event, deliver, user);
		break;
	case CROFT__ENVELOPE__BODY_CAPACITY:
		ok = deliver_capacity(envelope->capacity, &event, deliver, user);
		break;
	case CROFT__ENVELOPE__BODY_SNAPSHOT_DROPPED:
		ok = snapshot_dropped_decode(envelope->snapshot_dropped, snapshot, NULL) == 0;
		event.type = FLEET_NODE_SNAPSHOT_DROPPED;
		event.dropped_snapshot = snapshot;
		if (ok)
			deliver(&event, user);
		break;
	case CROFT__ENVELOPE__BODY_REFUSED:
		break;
	default:
		ok = false;
		break;
	}
	croft__envelope__free_unpacked(envelope, NULL);
	return ok;
}

static bool deliver_create(
	const Croft__Envelope *envelope, struct sv_event *event, to_core deliver, void *user)
{
	struct create_command command;

	if (create_command_decode(envelope->create, &command, NULL) < 0)
		return false;
	command.left_usec = (int64_t)envelope->deadline_ms * USEC_PER_MSEC;
	event->type = SV_EV_CREATE;
	event->create = &command;
	deliver(event, user);
	create_command_deinit(&command);
	return true;
}

static bool deliver_desired(
	const Croft__DesiredSet *message, struct sv_event *event, to_core deliver, void *user)
{
	struct desired_set set;

	if (desired_set_decode(message, &set, NULL) < 0)
		return false;
	event->type = SV_EV_DESIRED;
	event->desired = &set;
	deliver(event, user);
	desired_set_deinit(&set);
	return true;
}

static bool deliver_network(
	const Croft__NetworkUpdate *message, struct sv_event *event, to_core deliver, void *user)
{
	struct network_command command = { .generation = 0 };

	if (network_command_decode(message, &command, NULL) < 0)
		return false;
	event->type = SV_EV_NETWORK_UPDATE;
	event->network_update = &command;
	deliver(event, user);
	network_command_deinit(&command);
	return true;
}

/* Messages without memory of their own. */
static bool deliver_small(
	const Croft__Envelope *envelope, struct sv_event *event, to_core deliver, void *user)
{
	struct welcome welcome;
	struct destroy_command destroy;
	struct update_command update;
	struct budget_command budget;
	struct pause_command pause;
	struct resume_command resume;
	struct snapshot_command take;
	char drop[ID_SIZE];
	struct report_ack ack;
	struct lease_grant lease;
	struct err err = ERR_NULL;
	int r = 0;

	switch ((int)envelope->body_case) {
	case CROFT__ENVELOPE__BODY_WELCOME:
		r = welcome_decode(envelope->welcome, &welcome, NULL);
		event->type = SV_EV_WELCOME;
		event->welcome = &welcome;
		break;
	case CROFT__ENVELOPE__BODY_DESTROY:
		r = destroy_command_decode(envelope->destroy, &destroy, NULL);
		event->type = SV_EV_DESTROY;
		event->destroy = &destroy;
		break;
	case CROFT__ENVELOPE__BODY_UPDATE:
		r = update_command_decode(envelope->update, &update, NULL);
		event->type = SV_EV_UPDATE;
		event->update = &update;
		break;
	case CROFT__ENVELOPE__BODY_BUDGET_UPDATE:
		r = budget_command_decode(envelope->budget_update, &budget, NULL);
		event->type = SV_EV_BUDGET_UPDATE;
		event->budget_update = &budget;
		break;
	case CROFT__ENVELOPE__BODY_PAUSE:
		r = pause_command_decode(envelope->pause, &pause, NULL);
		event->type = SV_EV_PAUSE;
		event->pause = &pause;
		break;
	case CROFT__ENVELOPE__BODY_RESUME:
		r = resume_command_decode(envelope->resume, &resume, NULL);
		event->type = SV_EV_RESUME;
		event->resume = &resume;
		break;
	case CROFT__ENVELOPE__BODY_SNAPSHOT:
		r = snapshot_command_decode(envelope->snapshot, &take, NULL);
		event->type = SV_EV_SNAPSHOT;
		event->take = &take;
		break;
	case CROFT__ENVELOPE__BODY_DROP_SNAPSHOT:
		r = drop_snapshot_decode(envelope->drop_snapshot, drop, NULL);
		event->type = SV_EV_DROP_SNAPSHOT;
		event->drop = drop;
		break;
	case CROFT__ENVELOPE__BODY_REPORT_ACK:
		r = report_ack_decode(envelope->report_ack, &ack, NULL);
		event->type = SV_EV_REPORT_ACK;
		event->ack = &ack;
		break;
	case CROFT__ENVELOPE__BODY_LEASE:
		lease_grant_decode(envelope->lease, &lease);
		event->type = SV_EV_LEASE;
		event->lease = &lease;
		break;
	case CROFT__ENVELOPE__BODY_REFUSED:
		failure_decode(envelope->refused->failure, &err);
		event->type = SV_EV_REFUSED;
		event->err = &err;
		break;
	default:
		return false;
	}
	if (r == 0)
		deliver(event, user);
	return r == 0;
}

bool wire_to_core(struct bytes bytes, to_core deliver, void *user)
{
	Croft__Envelope *envelope = croft__envelope__unpack(NULL, bytes.size, bytes.data);
	struct sv_event event = { 0 };
	bool ok;

	if (!envelope)
		return false;
	event.epoch = envelope->epoch;
	if (envelope->body_case == CROFT__ENVELOPE__BODY_CREATE)
		ok = deliver_create(envelope, &event, deliver, user);
	else if (envelope->body_case == CROFT__ENVELOPE__BODY_DESIRED)
		ok = deliver_desired(envelope->desired, &event, deliver, user);
	else if (envelope->body_case == CROFT__ENVELOPE__BODY_NETWORK_UPDATE)
		ok = deliver_network(envelope->network_update, &event, deliver, user);
	else
		ok = deliver_small(envelope, &event, deliver, user);
	croft__envelope__free_unpacked(envelope, NULL);
	return ok;
}
