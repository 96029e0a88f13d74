/* SPDX-License-Identifier: Apache-2.0
 *
 * What the scheduler asks: create, destroy, update, acknowledge. All are idempotent by sandbox and generation. The
 * node owner's bounds and the node's own room have the last word. An answer about a generation that is not here
 * sticks (a grave): the same command again gets the same answer, because the scheduler may have acted on the
 * first one already.
 */
#include <errno.h>
#include <string.h>

#include "core/internal.h"

/* ---- graves ---- */

static struct sv_grave *grave_find(const struct supervisor *sv, const char *id)
{
	struct sv_grave *grave;

	HASH_FIND_STR(sv->graves, id, grave);
	return grave;
}

static void grave_drop(struct supervisor *sv, struct sv_grave *grave)
{
	HASH_DEL(sv->graves, grave);
	TAILQ_REMOVE(&sv->graves_by_age, grave, in_age);
	sv->n_graves--;
	free(grave->refusal);
	free(grave);
}

void sv_graves_free(struct supervisor *sv)
{
	while (!TAILQ_EMPTY(&sv->graves_by_age))
		grave_drop(sv, TAILQ_FIRST(&sv->graves_by_age));
}

/* Without memory there is no grave: the answer was given, it only does not stick. */
static void grave_dig(struct supervisor *sv, const char *id, uint64_t generation,
	enum end_reason reason, const struct err *refusal)
{
	struct sv_grave *grave = grave_find(sv, id);

	if (grave && grave->generation > generation)
		return;
	if (grave)
		grave_drop(sv, grave);
	if (sv->n_graves >= sv->config.graves_max && !TAILQ_EMPTY(&sv->graves_by_age))
		grave_drop(sv, TAILQ_FIRST(&sv->graves_by_age));
	grave = calloc(1, sizeof(*grave));
	if (!grave)
		return;
	grave->generation = generation;
	grave->reason = reason;
	memcpy(grave->sandbox, id, sizeof(grave->sandbox));
	if (refusal) {
		grave->refusal = malloc(sizeof(*grave->refusal));
		if (grave->refusal)
			*grave->refusal = *refusal;
	}
	HASH_ADD_STR(sv->graves, sandbox, grave);
	if (!grave->hh.tbl) {
		free(grave->refusal);
		free(grave);
		return;
	}
	TAILQ_INSERT_TAIL(&sv->graves_by_age, grave, in_age);
	sv->n_graves++;
}

void sv_bury(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	const struct sv_journal *journal = &sandbox->journal;

	grave_dig(sv, journal->sandbox, journal->generation, journal->end_reason, NULL);
	(void)sv_emit(sv, SV_DO_JOURNAL_REMOVE, sandbox);
	sv_sandbox_remove(sv, sandbox);
}

/* ---- admission ---- */

struct usage {
	uint64_t memory_mib, disk_mib;
	uint32_t sandboxes, starting;
};

static void usage_sum(const struct supervisor *sv, struct usage *ret)
{
	const struct sv_sandbox *sandbox;

	*ret = (struct usage){ .disk_mib = sv_snapshots_mib(sv), .memory_mib = sv_frozen_mib(sv) };
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next) {
		if (!sandbox->is_bad && (sandbox->journal.state == SV_ENDED || sandbox->journal.state == SV_KEPT ||
					       sandbox->journal.state == SV_DROPPING))
			continue; /* a disk that is kept is as good as free: its sandbox or nobody takes it */
		if (sv_has_no_vm(sandbox)) {
			ret->disk_mib += sandbox->journal.spec->disk_mib;
			continue;
		}
		ret->sandboxes++;
		if (!sandbox->journal.spec)
			continue;
		ret->memory_mib += spec_memory_cost(sandbox->journal.spec);
		ret->disk_mib += sandbox->journal.spec->disk_mib;
		ret->starting += sv_is_starting(sandbox->journal.state);
	}
}

static int lacks(struct err *reterr, enum fail_code code, const char *resource, uint64_t asked,
	uint64_t available)
{
	int r = err_set_at(reterr, STAGE_ACCEPT, code, 0, "%s: %llu asked, %llu left on this node.",
		resource, (unsigned long long)asked, (unsigned long long)available);

	err_add(reterr, "resource", "%s", resource);
	err_add(reterr, "asked", "%llu", (unsigned long long)asked);
	err_add(reterr, "largest", "%llu", (unsigned long long)available);
	return r;
}

static uint64_t left(uint64_t whole, uint64_t used)
{
	return whole > used ? whole - used : 0;
}

static int check_policy(const struct supervisor *sv, const struct sandbox_spec *spec,
	const struct usage *used, struct err *reterr)
{
	const struct sv_config *config = &sv->config;

	if (config->policy_max_memory_mib && spec->memory_mib > config->policy_max_memory_mib)
		return lacks(reterr, FAIL_NODE_POLICY, "memory", spec->memory_mib,
			config->policy_max_memory_mib);
	if (config->policy_max_vcpus && spec->vcpus > config->policy_max_vcpus)
		return lacks(
			reterr, FAIL_NODE_POLICY, "vcpus", spec->vcpus, config->policy_max_vcpus);
	if (config->policy_max_sandboxes && used->sandboxes >= config->policy_max_sandboxes)
		return lacks(reterr, FAIL_CAPACITY_STALE, "sandboxes", 1, 0);
	return 0;
}

static int check_room(const struct supervisor *sv, const struct sandbox_spec *spec,
	const struct usage *used, struct err *reterr)
{
	const struct node_capacity *capacity = &sv->capacity.capacity;
	uint64_t memory = left(capacity->memory_mib, used->memory_mib);
	uint64_t disk = MIN(left(capacity->disk_mib, used->disk_mib), sv->capacity.disk_free_mib);

	if (spec_memory_cost(spec) > memory)
		return lacks(reterr, FAIL_CAPACITY_STALE, "memory", spec_memory_cost(spec), memory);
	if (spec->disk_mib > disk)
		return lacks(reterr, FAIL_CAPACITY_STALE, "disk", spec->disk_mib, disk);
	if (spec->vcpus > capacity->max_vcpus)
		return lacks(reterr, FAIL_NODE_POLICY, "vcpus", spec->vcpus, capacity->max_vcpus);
	if (used->sandboxes >= capacity->max_sandboxes)
		return lacks(reterr, FAIL_CAPACITY_STALE, "sandboxes", 1, 0);
	if (used->starting >= capacity->max_starts)
		return lacks(reterr, FAIL_NODE_BUSY, "starts", 1, 0);
	return 0;
}

static int admit(
	const struct supervisor *sv, const struct create_command *command, struct err *reterr)
{
	struct usage used;
	int r;

	if (err_is_set(&sv->unreadable))
		return err_set(reterr, FAIL_STATE_UNREADABLE, sv->unreadable.err_no, "%s",
			sv->unreadable.msg);
	if (!sv->started || !sv->has_capacity)
		return err_set(
			reterr, FAIL_NODE_NOT_READY, 0, "The node is still reading its state.");
	if (command->left_usec < 0)
		return err_set(
			reterr, FAIL_CREATE_EXPIRED, 0, "The command came after its deadline.");
	if (err_is_set(sv_unable(sv))) {
		*reterr = *sv_unable(sv);
		return -EIO;
	}
	usage_sum(sv, &used);
	r = sv_snapshot_check(sv, command->spec, reterr);
	if (r == 0)
		r = check_policy(sv, command->spec, &used, reterr);
	return r < 0 ? r : check_room(sv, command->spec, &used, reterr);
}

bool sv_has_room(const struct supervisor *sv, const struct sandbox_spec *spec)
{
	struct usage used;

	usage_sum(sv, &used);
	return check_room(sv, spec, &used, NULL) == 0;
}

bool sv_has_memory(const struct supervisor *sv, const struct sandbox_spec *spec)
{
	struct usage used;

	usage_sum(sv, &used);
	return spec_memory_cost(spec) <= left(sv->capacity.capacity.memory_mib, used.memory_mib);
}

int sv_admit_frozen(const struct supervisor *sv, uint64_t mib, struct err *reterr)
{
	struct usage used;
	uint64_t memory;

	usage_sum(sv, &used);
	memory = left(sv->capacity.capacity.memory_mib, used.memory_mib);
	return mib > memory ? lacks(reterr, FAIL_CAPACITY_STALE, "memory", mib, memory) : 0;
}

int sv_admit_wake(const struct supervisor *sv, const struct sv_sandbox *sandbox, struct err *reterr)
{
	const struct node_capacity *capacity = &sv->capacity.capacity;
	const struct sandbox_spec *spec = sandbox->journal.spec;
	struct usage used;
	uint64_t memory;

	if (!sv->started || !sv->has_capacity)
		return err_set(reterr, FAIL_NODE_NOT_READY, 0, "The node is still reading its state.");
	/* what wakes has its disk; more space than before it does not need */
	if (err_is_set(&sv->capacity.unschedulable) && sv->capacity.unschedulable.code != FAIL_DISK_PRESSURE) {
		*reterr = sv->capacity.unschedulable;
		return -EIO;
	}
	usage_sum(sv, &used);
	memory = left(capacity->memory_mib, used.memory_mib);
	if (spec_memory_cost(spec) > memory)
		return lacks(reterr, FAIL_CAPACITY_STALE, "memory", spec_memory_cost(spec), memory);
	if (used.sandboxes >= capacity->max_sandboxes)
		return lacks(reterr, FAIL_CAPACITY_STALE, "sandboxes", 1, 0);
	return 0;
}

/* ---- create ---- */

static void refuse(
	struct supervisor *sv, const struct create_command *command, const struct err *err)
{
	struct sv_action *action;

	sv->counts.refused++;
	grave_dig(sv, command->sandbox, command->generation, END_FAILED, err);
	sv_report_gone(sv, command->sandbox, command->generation, END_FAILED, err);
	action = sv_emit(sv, SV_DO_STAGE, NULL);
	if (!action)
		return;
	action->stage = calloc(1, sizeof(*action->stage));
	if (!action->stage) {
		sv->out->no_memory = true;
		return;
	}
	action->stage->stage = STAGE_ACCEPT;
	action->stage->outcome = RESULT_FAILED;
	action->stage->began_us = sv->now.real_usec;
	action->stage->attempt = command->attempt;
	action->stage->generation = command->generation;
	action->stage->failure = *err;
	if (*command->trace.trace_id)
		trace_child(sv->rng, &command->trace, &action->stage->trace);
	memcpy(action->stage->sandbox, command->sandbox, sizeof(action->stage->sandbox));
	memcpy(action->stage->operation, command->operation, sizeof(action->stage->operation));
	memcpy(action->stage->node, sv->node, sizeof(action->stage->node));
}

/* Its first journal write failed: it never was. */
void sv_refuse_create(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	struct err why = ERR_NULL;

	(void)err_set(&why, FAIL_STATE_WRITE_FAILED, err ? err->err_no : 0,
		"The command could not be journalled: %s", err ? err->msg : "");
	sv->counts.refused++;
	(void)sv_emit(sv, SV_DO_JOURNAL_REMOVE, sandbox);
	grave_dig(sv, sandbox->journal.sandbox, sandbox->journal.generation, END_FAILED, &why);
	sv_report_gone(sv, sandbox->journal.sandbox, sandbox->journal.generation, END_FAILED, &why);
	sv_sandbox_remove(sv, sandbox);
}

static void accept_create(struct supervisor *sv, const struct create_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_add(sv, command->sandbox);
	struct sv_journal *journal;

	if (!sandbox)
		return;
	journal = &sandbox->journal;
	journal->generation = command->generation;
	journal->attempt = command->attempt;
	journal->spec = spec_ref(command->spec);
	journal->trace = command->trace;
	memcpy(journal->operation, command->operation, sizeof(journal->operation));
	sv_snapshot_begun(sv, sandbox);
	sv_start(sv, sandbox);
}

/* A warm VM becomes somebody's sandbox: the same VM goes on under the next generation, with another environment, token
 * and life time, and is set up as after a start. */
static void take_over(
	struct supervisor *sv, struct sv_sandbox *sandbox, const struct create_command *command)
{
	struct sv_journal *journal = &sandbox->journal;

	spec_unref(journal->spec);
	journal->spec = spec_ref(command->spec);
	sandbox->took = command->took;
	journal->generation = command->generation;
	journal->attempt = command->attempt;
	journal->trace = command->trace;
	memcpy(journal->operation, command->operation, sizeof(journal->operation));
	memset(journal->updated, 0, sizeof(journal->updated));
	sandbox->former_spec = spec_unref(sandbox->former_spec);
	memset(sandbox->network_operation, 0, sizeof(sandbox->network_operation));
	free(journal->stages);
	journal->stages = NULL;
	journal->n_stages = 0;
	journal->ready_us = journal->life_end_mono_us = 0;
	sv_start_warm(sv, sandbox);
}

static bool is_taken(const struct sv_sandbox *sandbox, const struct create_command *command)
{
	return command->took == sandbox->journal.generation && command->took &&
	       sandbox->journal.state == SV_RUNNING && !sandbox->opening && !sandbox->journal.is_snapshotting;
}

/* About a sandbox that is here. Returns whether the create is dealt with. */
static bool create_known(
	struct supervisor *sv, struct sv_sandbox *sandbox, const struct create_command *command)
{
	struct sv_journal *journal = &sandbox->journal;
	struct err err = ERR_NULL;

	if (sandbox->is_bad) {
		(void)err_set(&err, FAIL_STATE_UNREADABLE, 0,
			"This sandbox's record on the node is torn.");
		refuse(sv, command, &err);
		return true;
	}
	if (journal->generation == command->generation) {
		if (!sandbox->accepting) /* else the answer comes when it is journalled */
			sv_report_again(sv, sandbox);
		return true;
	}
	if (journal->generation > command->generation) {
		(void)err_set(&err, FAIL_STALE_GENERATION, 0, "Generation %llu is here already.",
			(unsigned long long)journal->generation);
		sv->counts.refused++;
		sv_report_gone(sv, command->sandbox, command->generation, END_SUPERSEDED, &err);
		return true;
	}
	if (is_taken(sandbox, command)) {
		take_over(sv, sandbox, command);
		return true;
	}
	if (command->took == journal->generation && (journal->state == SV_ADOPTING || journal->is_snapshotting))
		return true; /* whether it is there is known soon; the command comes again */
	if (journal->state == SV_KEPT && admit(sv, command, &err) < 0) {
		refuse(sv, command, &err);
		return true;
	}
	if (sv_keep_resume(sv, sandbox, command))
		return true;
	if (journal->state != SV_ENDED) { /* the older one goes first; the command comes again */
		sv_keep_drop(sv, sandbox);
		sv_end(sv, sandbox, END_SUPERSEDED, NULL);
		return true;
	}
	return false;
}

void sv_on_create(struct supervisor *sv, const struct create_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	const struct sv_grave *grave = grave_find(sv, command->sandbox);
	struct err err = ERR_NULL;

	if (sv_is_canary(command->sandbox))
		return; /* no scheduler makes up this name by chance */
	if (sandbox && create_known(sv, sandbox, command))
		return;
	if (grave && grave->generation >= command->generation) {
		sv_report_gone(
			sv, command->sandbox, command->generation, grave->reason, grave->refusal);
		return;
	}
	if (admit(sv, command, &err) < 0) {
		refuse(sv, command, &err);
		return;
	}
	if (sandbox) /* whoever sends a newer generation has recorded that this one ended; its record is written over */
		sv_sandbox_remove(sv, sandbox);
	accept_create(sv, command);
	sv_canary_make_room(sv);
}

/* ---- destroy, update, acknowledge ---- */

static void gone(struct supervisor *sv, const struct destroy_command *command)
{
	grave_dig(sv, command->sandbox, command->generation, command->reason, NULL);
	sv_report_gone(sv, command->sandbox, command->generation, command->reason, NULL);
}

void sv_on_destroy(struct supervisor *sv, const struct destroy_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	struct sv_journal *journal;

	if (!sv->started || err_is_set(&sv->unreadable))
		return; /* nothing is known yet, so nothing can be said */
	if (!sandbox) {
		gone(sv, command);
		return;
	}
	journal = &sandbox->journal;
	if (sandbox->is_bad) {
		sv_report_again(sv, sandbox);
		return;
	}
	if (journal->generation > command->generation) {
		gone(sv, command);
		return;
	}
	sv_keep_drop(sv, sandbox);
	if (journal->state == SV_ENDED || journal->state == SV_DROPPING) {
		sv_report_again(sv, sandbox);
		if (journal->generation < command->generation)
			gone(sv, command);
		return;
	}
	memcpy(journal->operation, command->operation, sizeof(journal->operation));
	sv_end(sv, sandbox, command->reason, NULL);
}

/* 0: no limit. */
static void set_life_end(struct sv_sandbox *sandbox, int64_t end_mono_us)
{
	sandbox->journal.life_end_mono_us = end_mono_us;
	sandbox->deadline_usec = end_mono_us ? end_mono_us : NEVER;
}

/* A later change was taken already: the link delivers at most once, but not in order over two connections. */
bool sv_is_overtaken(const struct sv_sandbox *sandbox, uint64_t number)
{
	return number && number < sandbox->journal.update_number;
}

void sv_on_update(struct supervisor *sv, const struct update_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	struct sv_journal *journal;

	if (!sandbox || sandbox->is_bad || sandbox->journal.generation != command->generation)
		return;
	journal = &sandbox->journal;
	if (journal->state != SV_RUNNING || strcmp(journal->updated, command->operation) == 0 ||
		sv_is_overtaken(sandbox, command->number)) {
		sv_report_again(sv, sandbox);
		return;
	}
	journal->update_number = MAX(journal->update_number, command->number);
	memcpy(journal->updated, command->operation, sizeof(journal->updated));
	sandbox->update_failure = (struct err)ERR_NULL;
	sandbox->auto_pauses = 0; /* what was tried at another end says nothing of the new one */
	sandbox->former_life_end_us = journal->life_end_mono_us;
	set_life_end(sandbox, command->timeout_s ? sv->now.mono_usec + command->timeout_s * USEC_PER_SEC : 0);
	sv_emit_journal(sv, sandbox, SV_WRITE_UPDATE);
	sv_report(sv, sandbox);
}

/* Nothing was confirmed. As if it had not come, so that the scheduler's next try is none that was done already. */
void sv_update_undo(struct sv_sandbox *sandbox)
{
	if (PLANTED(UNWRITTEN_CONFIRMED))
		return;
	memset(sandbox->journal.updated, 0, sizeof(sandbox->journal.updated));
	set_life_end(sandbox, sandbox->former_life_end_us);
}

void sv_on_report_ack(struct supervisor *sv, const struct report_ack *ack)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, ack->sandbox);
	struct sv_journal *journal;

	if (!sandbox || sandbox->is_bad || sandbox->journal.generation != ack->generation)
		return;
	journal = &sandbox->journal;
	journal->acked_version = MAX(journal->acked_version, ack->version);
	if (ack->version < journal->report_version)
		return;
	sandbox->report_due_usec = NEVER;
	if (journal->state == SV_ENDED)
		sv_bury(sv, sandbox);
}
