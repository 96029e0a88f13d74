/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages.h: snapshots that a node keeps, and the commands that make and drop them.
 */
#include "wire/messages-private.h"

Croft__Snapshot *snapshot_info_encode(const struct snapshot_info *info)
{
	Croft__Snapshot *to = NEW(snapshot, Snapshot);

	if (!to)
		return NULL;
	to->image_size = info->image_size;
	to->vcpus = info->vcpus;
	to->memory_mib = info->memory_mib;
	to->disk_mib = info->disk_mib;
	to->size_mib = info->size_mib;
	to->created_us = info->created_usec;
	to->live = info->is_live;
	if (!put_text(&to->id, info->id) || !put_text(&to->sandbox, info->sandbox) ||
		!put_text(&to->tenant, info->tenant) || !put_text(&to->template_name, info->template_name) ||
		!put_text(&to->image_digest, info->image_digest) || !put_text(&to->cpu_class, info->cpu_class))
		return DROP(to);
	return to;
}

/* The bounds of a specification, which one that begins as it is going to have. */
static bool shape_is_valid(const struct snapshot_info *info)
{
	return digest_is_valid(info->image_digest) && info->vcpus >= 1 && info->vcpus <= SPEC_VCPUS_MAX &&
	       info->memory_mib >= 1 && info->memory_mib <= SPEC_MEMORY_MIB_MAX &&
	       info->disk_mib <= SPEC_DISK_MIB_MAX && info->size_mib <= SPEC_MEMORY_MIB_MAX + SPEC_DISK_MIB_MAX;
}

int snapshot_info_decode(const Croft__Snapshot *message, struct snapshot_info *ret, struct err *reterr)
{
	struct snapshot_info info = {
		.image_size = message->image_size,
		.vcpus = message->vcpus,
		.memory_mib = message->memory_mib,
		.disk_mib = message->disk_mib,
		.size_mib = message->size_mib,
		.created_usec = message->created_us,
		.is_live = message->live,
	};

	if (!take_id(info.id, message->id))
		return refuse(reterr, "id");
	if (!take_id(info.sandbox, message->sandbox))
		return refuse(reterr, "sandbox");
	if (!take_text(info.tenant, sizeof(info.tenant), message->tenant))
		return refuse(reterr, "tenant");
	if (!id_name_is_valid(message->template_name) ||
		!take_text(info.template_name, sizeof(info.template_name), message->template_name))
		return refuse(reterr, "template_name");
	if (!take_text(info.image_digest, sizeof(info.image_digest), message->image_digest))
		return refuse(reterr, "image_digest");
	if (!take_text(info.cpu_class, sizeof(info.cpu_class), message->cpu_class) ||
		(*info.cpu_class && !id_name_is_valid(info.cpu_class)))
		return refuse(reterr, "cpu_class");
	if (!shape_is_valid(&info))
		return refuse(reterr, "snapshot");
	*ret = info;
	return 0;
}

Croft__SnapshotSandbox *snapshot_command_encode(const struct snapshot_command *command)
{
	Croft__SnapshotSandbox *to = NEW(snapshot_sandbox, SnapshotSandbox);

	if (!to)
		return NULL;
	to->generation = command->generation;
	to->number = command->number;
	to->live = command->is_live;
	if (!put_text(&to->sandbox, command->sandbox) || !put_text(&to->operation, command->operation) ||
		!put_text(&to->snapshot, command->snapshot))
		return DROP(to);
	return to;
}

int snapshot_command_decode(const Croft__SnapshotSandbox *message, struct snapshot_command *ret, struct err *reterr)
{
	struct snapshot_command command = { .number = message->number, .is_live = message->live };

	if (!take_target(command.sandbox, &command.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	if (!take_id(command.snapshot, message->snapshot))
		return refuse(reterr, "snapshot");
	*ret = command;
	return 0;
}

Croft__DropSnapshot *drop_snapshot_encode(const char *snapshot)
{
	Croft__DropSnapshot *to = NEW(drop_snapshot, DropSnapshot);

	return !to || put_text(&to->snapshot, snapshot) ? to : DROP(to);
}

int drop_snapshot_decode(const Croft__DropSnapshot *message, char ret[static ID_SIZE], struct err *reterr)
{
	return take_id(ret, message->snapshot) ? 0 : refuse(reterr, "snapshot");
}

Croft__SnapshotDropped *snapshot_dropped_encode(const char *snapshot)
{
	Croft__SnapshotDropped *to = NEW(snapshot_dropped, SnapshotDropped);

	return !to || put_text(&to->snapshot, snapshot) ? to : DROP(to);
}

int snapshot_dropped_decode(const Croft__SnapshotDropped *message, char ret[static ID_SIZE], struct err *reterr)
{
	return take_id(ret, message->snapshot) ? 0 : refuse(reterr, "snapshot");
}
