/* SPDX-License-Identifier: Apache-2.0
 *
 * Forks: one snapshot, and sandboxes that begin as it. The ids of the sandboxes are chosen by whoever asks and stand in the
 * snapshot's record, so that what was begun is carried through by whichever scheduler comes to know that the snapshot is
 * there. The sandboxes are made in the step that learns it; from then on the records of those that are on their way say
 * that it is needed, and when none is, it is dropped.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "fleet/internal.h"

#define TOKEN_BYTES 25

static bool is_starting(enum sandbox_state state)
{
	return state == SANDBOX_PLACING || state == SANDBOX_DISPATCHED || state == SANDBOX_STARTING ||
	       state == SANDBOX_BACKOFF || state == SANDBOX_RECALL;
}

/* What the sandboxes have in common: all that the parent was made with, but for what was done to it at its own start. */
static struct sandbox_spec *child_of(const struct sandbox_spec *parent, uint32_t timeout_s)
{
	struct sandbox_spec *spec = spec_with_network(parent, &parent->network);

	if (!spec)
		return NULL;
	free(spec->setup_command);
	spec->setup_command = NULL;
	spec->setup_timeout_ms = 0;
	if (timeout_s)
		spec->timeout_s = timeout_s;
	return spec;
}

int fleet_fork_prepare(struct snapshot *snapshot, const struct sandbox *parent, const struct fleet_snapshot *request)
{
	struct snapshot_record *record = &snapshot->record;
	struct sandbox_spec *spec;

	if (request->n_forks == 0)
		return 0;
	spec = child_of(parent->record.spec, request->timeout_s);
	if (!spec)
		return -ENOMEM;
	memcpy(spec->snapshot, record->id, sizeof(spec->snapshot));
	spec_unref(record->spec);
	record->spec = spec;
	record->forks = calloc(request->n_forks, sizeof(*record->forks));
	snapshot->fork_errs = calloc(request->n_forks, sizeof(*snapshot->fork_errs));
	if (!record->forks || !snapshot->fork_errs ||
		sandbox_fields_copy(parent->record.metadata, parent->record.n_metadata, &record->metadata) < 0)
		return -ENOMEM;
	record->n_metadata = parent->record.n_metadata;
	memcpy(record->forks, request->forks, request->n_forks * sizeof(*record->forks));
	record->n_forks = request->n_forks;
	return 0;
}

static struct sandbox_spec *one_of(struct fleet *fleet, const struct sandbox_spec *common)
{
	struct sandbox_spec *spec = spec_with_network(common, &common->network);
	unsigned char bytes[TOKEN_BYTES];

	if (!spec || !*common->access_token)
		return spec;
	rng_bytes(fleet->rng, bytes, sizeof(bytes)); /* who may reach its parent may not reach it */
	hex_put(spec->access_token, bytes, MIN(sizeof(bytes), (sizeof(spec->access_token) - 1) / 2));
	return spec;
}

static void set_error(struct snapshot *snapshot, size_t i, const struct err *err)
{
	if (snapshot->fork_errs && i < snapshot->record.n_forks)
		snapshot->fork_errs[i] = *err;
}

static void begin_one(struct fleet *fleet, struct snapshot *snapshot, size_t i)
{
	const struct snapshot_record *record = &snapshot->record;
	struct sandbox_spec *spec = one_of(fleet, record->spec);
	struct fleet_create create = { .spec = spec,
		.quota = snapshot->quota,
		.metadata = record->metadata,
		.n_metadata = record->n_metadata,
		.began_us = fleet->now.real_usec };
	struct err err = ERR_NULL;

	memcpy(create.id, record->forks[i], sizeof(create.id));
	memcpy(create.tenant, record->tenant, sizeof(create.tenant));
	memcpy(create.pool, record->pool, sizeof(create.pool));
	memcpy(create.template_alias, record->spec->template_name, sizeof(create.template_alias));
	trace_new(fleet->rng, &create.trace);
	if (!spec)
		(void)err_set(&err, FAIL_NO_MEMORY, 0, "No memory for another sandbox.");
	else
		(void)fleet_create(fleet, &create, &err);
	if (err_is_set(&err))
		set_error(snapshot, i, &err);
	spec_unref(spec);
}

void fleet_fork_begin(struct fleet *fleet, struct snapshot *snapshot)
{
	snapshot->is_held = true; /* one may fail before the next is made */
	for (size_t i = 0; i < snapshot->record.n_forks; i++)
		if (!fleet_sandbox_find(fleet, snapshot->record.forks[i]))
			begin_one(fleet, snapshot, i);
	snapshot->is_held = false;
	fleet_fork_check(fleet, snapshot);
}

void fleet_fork_check(struct fleet *fleet, struct snapshot *snapshot)
{
	if (!snapshot->record.is_fork || snapshot->record.state != SNAPSHOT_READY || snapshot->is_held ||
		snapshot->n_starting > 0)
		return;
	fleet_snapshot_answer(fleet, snapshot, NULL);
	if (!PLANTED(FORK_SNAPSHOT_KEPT))
		fleet_snapshot_move(fleet, snapshot, SNAPSHOT_DROPPING);
}

void fleet_fork_enter(struct fleet *fleet, const struct sandbox *sandbox)
{
	struct snapshot *snapshot =
		*sandbox->record.spec->snapshot ? fleet_snapshot_find(fleet, sandbox->record.spec->snapshot) : NULL;

	if (snapshot && is_starting(sandbox->record.state))
		snapshot->n_starting++;
}

static void note_end(struct snapshot *snapshot, const struct sandbox *sandbox)
{
	struct err err = sandbox->record.failure;

	if (sandbox->record.state == SANDBOX_RUNNING)
		return;
	if (!err_is_set(&err))
		(void)err_set_at(&err, STAGE_ADMIT, FAIL_SANDBOX_GONE, 0, "The sandbox was ended before it was ready.");
	for (size_t i = 0; i < snapshot->record.n_forks; i++)
		if (!strcmp(snapshot->record.forks[i], sandbox->record.id))
			set_error(snapshot, i, &err);
}

void fleet_fork_leave(struct fleet *fleet, const struct sandbox *sandbox, enum sandbox_state from)
{
	struct snapshot *snapshot =
		*sandbox->record.spec->snapshot ? fleet_snapshot_find(fleet, sandbox->record.spec->snapshot) : NULL;

	if (!snapshot || !is_starting(from) || is_starting(sandbox->record.state))
		return;
	snapshot->n_starting -= snapshot->n_starting > 0;
	note_end(snapshot, sandbox);
	fleet_fork_check(fleet, snapshot);
}
