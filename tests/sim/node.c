/* SPDX-License-Identifier: Apache-2.0
 *
 * One node's host and agent shell in the simulator. The agent can be killed between any two actions; journals and
 * VMs stay. A reboot ends the VMs too. Acts take time and sometimes fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct moment node_now(const struct sim *sim, const struct sim_node *node)
{
	return (struct moment){
		.mono_usec = sim->now_usec + node->mono_offset + USEC_PER_SEC,
		.real_usec = REAL_BASE + sim->now_usec + node->real_offset,
		.boot_usec = sim->now_usec + node->mono_offset + USEC_PER_SEC,
	};
}

static void step(struct sim *sim, struct sim_node *node, const struct sv_event *event);

/* ---- journals ---- */

static void journal_write(struct sim_node *node, const struct sv_journal *record)
{
	struct sim_journal *journal;

	HASH_FIND_STR(node->journals, record->sandbox, journal);
	if (journal) {
		sv_journal_deinit(&journal->record);
	} else { /* a file that is new in its directory is there after a power cut when that was synced */
		journal = calloc(1, sizeof(*journal));
		if (!journal)
			exit(3);
		memcpy(journal->sandbox, record->sandbox, sizeof(journal->sandbox));
		HASH_ADD_STR(node->journals, sandbox, journal);
	}
	if (sv_journal_copy(record, &journal->record) < 0)
		exit(3);
	if (PLANTED(RENAME_WITHOUT_SYNC))
		return;
	if (journal->is_durable)
		sv_journal_deinit(&journal->durable);
	if (sv_journal_copy(record, &journal->durable) < 0)
		exit(3);
	journal->is_durable = true;
}

/* What was not synced is gone, and what was comes back. */
static void journals_after_power_cut(struct sim_node *node)
{
	struct sim_journal *journal, *next;

	HASH_ITER (hh, node->journals, journal, next) {
		sv_journal_deinit(&journal->record);
		if (journal->is_durable) {
			if (sv_journal_copy(&journal->durable, &journal->record) < 0)
				exit(3);
			continue;
		}
		HASH_DEL(node->journals, journal);
		free(journal);
	}
}

void node_journal_remove(struct sim_node *node, const char *id)
{
	struct sim_journal *journal;

	HASH_FIND_STR(node->journals, id, journal);
	if (!journal)
		return;
	HASH_DEL(node->journals, journal);
	sv_journal_deinit(&journal->record);
	if (journal->is_durable)
		sv_journal_deinit(&journal->durable);
	free(journal);
}

/* ---- VMs ---- */

static uint64_t disk_bit(const struct sim_node *node)
{
	return UINT64_C(1) << node->number % 64;
}

void node_disk_removed(struct sim *sim, const struct sim_node *node, const char *id)
{
	sim_truth(sim, id)->disks &= ~disk_bit(node);
}

struct vm *node_vm_by_dir(struct sim_node *node, const char *run_dir)
{
	struct vm *vm;

	for (vm = node->vms; vm; vm = vm->next)
		if (vm->is_alive && strcmp(vm->run_dir, run_dir) == 0)
			return vm;
	return NULL;
}

static struct vm *vm_by_number(struct sim_node *node, uint64_t number)
{
	struct vm *vm;

	for (vm = node->vms; vm; vm = vm->next)
		if (vm->number == number)
			return vm;
	return NULL;
}

static void vm_dies(struct sim *sim, struct vm *vm)
{
	vm->is_alive = false;
	sim_truth(sim, vm->sandbox)->n_live--;
}

static struct vm *vm_spawn(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct vm *vm = calloc(1, sizeof(*vm));

	if (!vm)
		exit(3);
	vm->number = ++sim->next_vm;
	vm->generation = action->generation;
	vm->memory_mib = spec_memory_cost(action->spec);
	vm->is_alive = true;
	vm->attached = node->life;
	memcpy(vm->sandbox, action->sandbox, sizeof(vm->sandbox));
	memcpy(vm->run_dir, action->vmm.run_dir, sizeof(vm->run_dir));
	vm->next = node->vms;
	node->vms = vm;
	sim_truth(sim, vm->sandbox)->n_live++;
	check_spawn(sim, node, vm);
	return vm;
}

/* ---- results ---- */

struct result *node_plan(struct sim *sim, struct sim_node *node,
	const struct sv_action *action, enum sv_event_type type, int64_t in_usec)
{
	struct result *result = calloc(1, sizeof(*result));
	struct sim_event *event;

	if (!result)
		exit(3);
	result->type = type;
	result->generation = action->generation;
	memcpy(result->sandbox, action->sandbox, sizeof(result->sandbox));
	event = sim_plan(sim, SIM_RESULT, in_usec, node->number);
	event->life = node->life;
	event->result = result;
	return result;
}

static void fail_sometimes(
	struct sim *sim, struct result *result, uint64_t permille, enum fail_code code)
{
	if (sim_chance(sim, permille))
		(void)err_set(&result->err, code, 0, "Injected.");
}

static void deliver_result(
	struct sim *sim, struct sim_node *node, const struct result *result, const struct vm *vm)
{
	struct sv_event event = { .type = result->type, .generation = result->generation };
	struct sv_vmm_id id = { 0 };

	memcpy(event.sandbox, result->sandbox, sizeof(event.sandbox));
	switch (result->type) {
	case SV_EV_VMM_SPAWNED:
		id.pid = vm ? (int64_t)vm->number : 0;
		event.spawned.vmm = &id;
		event.spawned.err = &result->err;
		break;
	case SV_EV_VMM_JAILED:
		event.jailed.is_whole = true;
		event.jailed.text = "simulated";
		break;
	case SV_EV_NETWORK_DONE:
		event.network.is_made = true;
		event.network.text = "slot";
		event.network.err = &result->err;
		break;
	case SV_EV_GUEST_HELLO:
	case SV_EV_ADOPTED:
		event.guest.lease_left_ms = vm ? lease_left_ms(sim, node, vm) : 0;
		event.guest.boot_id = "guest-boot";
		event.guest.err = &result->err;
		break;
	case SV_EV_VMM_EXITED:
		event.exited.reason = result->exit;
		event.exited.failure = &result->err;
		break;
	default:
		if (!snaps_result(sim, node, result, &event))
			event.err = &result->err;
		break;
	}
	step(sim, node, &event);
}

/* What a VMM says to who asked it: an agent that is gone takes it along, and the next one has asked nothing. */
static bool is_answer(enum sv_event_type type)
{
	return type == SV_EV_SNAPSHOT_DONE || type == SV_EV_THAWED;
}

void node_result(struct sim *sim, const struct sim_event *event)
{
	struct sim_node *node = &sim->nodes[event->node];
	struct vm *vm = vm_by_number(node, event->result->vm);
	bool of_vm = event->result->vm != 0;

	if (of_vm && (!vm || !vm->is_alive))
		return;
	if (of_vm && event->result->type == SV_EV_VMM_EXITED)
		vm_dies(sim, vm);
	if (!node->core || (of_vm && vm->attached != node->life) ||
		((!of_vm || is_answer(event->result->type)) && event->life != node->life))
		return;
	sleep_snapshot_done(sim, node, event->result, vm);
	deliver_result(sim, node, event->result, vm);
}

/* ---- acts ---- */

static void act_spawn(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct result *result;
	struct vm *vm;
	int64_t in;

	if (sim_chance(sim, 15)) {
		result = node_plan(sim, node, action, SV_EV_VMM_SPAWNED, 3000);
		(void)err_set(&result->err, FAIL_VMM_START_FAILED, 0, "Injected.");
		return;
	}
	vm = vm_spawn(sim, node, action);
	in = sim_between(sim, 1000, 40000);
	node_plan(sim, node, action, SV_EV_VMM_SPAWNED, in)->vm = vm->number;
	in += sim_between(sim, 1, 20000);
	if (sim_chance(sim, 10)) {
		result = node_plan(sim, node, action, SV_EV_VMM_EXITED, in);
		result->exit = SV_EXIT_START_FAILED;
		(void)err_set(&result->err, FAIL_JAIL_FAILED, 0, "Injected.");
	} else {
		result = node_plan(sim, node, action, SV_EV_VMM_JAILED, in);
	}
	result->vm = vm->number;
}

static void act_start(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct vm *vm = node_vm_by_dir(node, action->vmm.run_dir);
	int64_t in = sim_between(sim, 2000, 60000);
	struct result *result;

	if (!vm || vm->is_started)
		return;
	vm->is_started = true;
	sim_truth(sim, vm->sandbox)->disks &= ~disk_bit(node); /* a guest's from now on */
	lease_set(sim, node, vm, &action->lease);
	if (action->restore && !action->restore_own) {
		snaps_restore(sim, node, action, vm);
		return;
	}
	if (action->restore) {
		sleep_restore(sim, node, action, vm);
		return;
	}
	sleep_guest_runs(sim_truth(sim, vm->sandbox), node, vm);
	if (node->is_broken) {
		result = node_plan(sim, node, action, SV_EV_VMM_EXITED, in);
		result->exit = SV_EXIT_START_FAILED;
		(void)err_set(&result->err, FAIL_KVM_UNAVAILABLE, 0, "No /dev/kvm.");
		result->vm = vm->number;
		return;
	}
	if (sim_chance(sim, 15)) {
		result = node_plan(sim, node, action, SV_EV_VMM_EXITED, in);
		result->exit = SV_EXIT_START_FAILED;
		(void)err_set(&result->err, FAIL_KVM_UNAVAILABLE, 0, "Injected.");
		result->vm = vm->number;
		return;
	}
	node_plan(sim, node, action, SV_EV_VMM_STARTED, in)->vm = vm->number;
	in += sim_between(sim, 1000, 500000);
	if (sim_chance(sim, 15)) {
		result = node_plan(sim, node, action, SV_EV_VMM_EXITED, in);
		result->exit = SV_EXIT_PANIC;
		result->vm = vm->number;
		return;
	}
	node_plan(sim, node, action, SV_EV_VMM_USERSPACE, in)->vm = vm->number;
	if (sim_chance(sim, 5))
		return; /* the guest never answers */
	node_plan(sim, node, action, SV_EV_GUEST_HELLO, in + sim_between(sim, 0, 300000))->vm =
		vm->number;
}

static void act_renew(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct vm *vm = node_vm_by_dir(node, action->vmm.run_dir);

	if (vm)
		lease_set(sim, node, vm, &action->lease);
}

/* Its VM ends itself; whoever watches it sees that. */
void node_lease(struct sim *sim, const struct sim_event *event)
{
	struct sim_node *node = &sim->nodes[event->node];
	struct vm *vm = vm_by_number(node, event->life);
	struct sv_action action = { 0 };
	struct result *result;

	if (!vm || !lease_is_over(sim, node, vm))
		return;
	vm_dies(sim, vm);
	if (!node->core || vm->attached != node->life)
		return;
	action.generation = vm->generation;
	memcpy(action.sandbox, vm->sandbox, sizeof(action.sandbox));
	result = node_plan(sim, node, &action, SV_EV_VMM_EXITED, 0);
	result->exit = SV_EXIT_LEASE;
}

/* A start that does not make its disk has the one of the attempt before, here and untouched by a guest. */
static void check_disk(struct sim *sim, const struct sim_node *node, const struct sv_action *action)
{
	if (!(sim_truth(sim, action->sandbox)->disks & disk_bit(node)))
		sim_violation(sim, "%s goes on without a disk on node %d", action->sandbox, node->number);
}

/* Of a start, or of a warm VM that goes on under the next generation. */
static void act_configure(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct truth *truth = sim_truth(sim, action->sandbox);
	struct vm *vm;

	for (vm = node->vms; vm; vm = vm->next)
		if (vm->is_alive && strcmp(vm->sandbox, action->sandbox) == 0)
			vm->generation = action->generation;
	truth->spawned = MAX(truth->spawned, action->generation);
	if (action->spec && strcmp(action->spec->tenant, FLEET_WARM_TENANT) != 0)
		snaps_check_tenant(sim, action->sandbox, action->spec);
	(void)node_plan(sim, node, action, SV_EV_GUEST_CONFIGURED, sim_between(sim, 100, 20000));
}

static void act_kill(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct vm *vm = node_vm_by_dir(node, action->vmm.run_dir);
	struct result *result =
		node_plan(sim, node, action, SV_EV_VMM_EXITED, sim_between(sim, 100, 30000));

	result->exit = vm ? SV_EXIT_KILLED : SV_EXIT_VANISHED;
	if (!vm)
		return;
	check_kill(sim, vm);
	if (sim->now_usec < node->full_until_usec) /* why it ended may find no room in the journal */
		sim_truth(sim, vm->sandbox)->was_hurt = true;
	result->vm = vm->number;
	vm->attached = node->life;
}

static void act_adopt(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct vm *vm = node_vm_by_dir(node, action->vmm.run_dir);
	struct result *result =
		node_plan(sim, node, action, SV_EV_ADOPTED, sim_between(sim, 100, 30000));

	if (vm)
		vm->attached = node->life;
	else
		(void)err_set(&result->err, FAIL_VM_VANISHED, 0, "It is not there.");
}

static void act_remove(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct result *result =
		node_plan(sim, node, action, SV_EV_REMOVED, sim_between(sim, 100, 30000));
	struct vm *vm;

	fail_sometimes(sim, result, 20, FAIL_IO_FAILED);
	if (!action->keep_disk)
		node_disk_removed(sim, node, action->sandbox);
	if (!action->keep_snapshot)
		sleep_forget(sim_truth(sim, action->sandbox), node);
	for (vm = node->vms; vm; vm = vm->next)
		if (vm->is_alive && vm->generation == action->generation &&
			strcmp(vm->sandbox, action->sandbox) == 0)
			sim_violation(
				sim, "files of %s removed while its VM lives", action->sandbox);
}

/* A start that is to be broken off holds its slot until the destroy comes. On a link nothing overtakes it; here it does. */
static bool is_overtaken(struct sim *sim, const struct sim_node *node)
{
	const struct sim_journal *journal;

	for (journal = node->journals; journal; journal = journal->hh.next)
		if (journal->record.state < SV_RUNNING && sim_truth(sim, journal->sandbox)->is_deleted)
			return true;
	return false;
}

/* What leaves the node must be true after a crash at this very moment. */
static void check_report(struct sim *sim, struct sim_node *node, const struct sandbox_report *report)
{
	struct sim_journal *journal;

	HASH_FIND_STR(node->journals, report->sandbox, journal);
	if (journal && journal->is_torn) {
		if (report->failure.code != FAIL_STATE_UNREADABLE)
			sim_violation(sim, "node %d told of %s, whose record is torn", node->number, report->sandbox);
		return;
	}
	if (journal && (!journal->is_durable ||
			       journal->durable.state != journal->record.state ||
			       journal->durable.generation != journal->record.generation))
		sim_violation(sim, "node %d told of %s what a power cut would undo", node->number,
			report->sandbox);
	if (report->accepted && report->state != REPORT_ENDED && !journal)
		sim_violation(sim, "node %d told of %s before it was journalled", node->number,
			report->sandbox);
	else if (report->state == REPORT_RUNNING && journal->record.state != SV_RUNNING &&
		 journal->record.state != SV_PAUSING && journal->record.state != SV_THAWING &&
		 journal->record.state != SV_ADOPTING)
		sim_violation(sim, "node %d told that %s runs before that was journalled",
			node->number, report->sandbox);
	if (report->state == REPORT_PAUSED && report->update_failure.code == FAIL_CAPACITY_STALE)
		sim_violation(sim, "node %d had to let %s sleep: the scheduler woke it without room", node->number,
			report->sandbox);
	if (!report->accepted && (report->failure.code == FAIL_CAPACITY_STALE ||
					 (report->failure.code == FAIL_NODE_BUSY && !is_overtaken(sim, node))))
		sim_violation(sim, "node %d had to refuse %s: the scheduler placed over its room",
			node->number, report->sandbox);
	for (size_t i = 0; i < report->n_stages; i++)
		sim->resumed += report->state == REPORT_RUNNING && report->stages[i].stage == STAGE_ACCEPT &&
				strncmp(report->stages[i].reason, "resumed_from=", 13) == 0;
	if (node->is_broken && report->state == REPORT_ENDED && report->failure.code == FAIL_KVM_UNAVAILABLE)
		check_broken(sim, node, report);
}

static void act(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	if (sleep_act(sim, node, action) || snaps_act(sim, node, action))
		return;
	switch (action->type) {
	case SV_DO_JOURNAL_REMOVE:
		node_journal_remove(node, action->sandbox);
		break;
	case SV_DO_SAVE_EPOCH:
		node->highest_epoch = action->epoch;
		node->leader = action->leader;
		copy_check(sim, node);
		break;
	case SV_DO_FETCH_IMAGE:
		fail_sometimes(sim,
			node_plan(sim, node, action, SV_EV_IMAGE_DONE,
				sim_between(sim, 1000, 800000)),
			20, FAIL_IMAGE_FETCH_FAILED);
		break;
	case SV_DO_MAKE_DISK:
		sim_truth(sim, action->sandbox)->disks |= disk_bit(node);
		fail_sometimes(sim,
			node_plan(
				sim, node, action, SV_EV_DISK_DONE, sim_between(sim, 1000, 90000)),
			20, FAIL_DISK_FULL);
		break;
	case SV_DO_MAKE_NETWORK:
		/* of a wake there is a snapshot, of a start a fresh disk */
		if (!sleep_is_whole(sim_truth(sim, action->sandbox)))
			check_disk(sim, node, action);
		fail_sometimes(sim,
			node_plan(sim, node, action, SV_EV_NETWORK_DONE, sim_between(sim, 1000, 60000)),
			30, rng_below(&sim->rng, 3) ? FAIL_HELPER_UNAVAILABLE : FAIL_NETWORK_SLOT_FAILED);
		break;
	case SV_DO_SET_NETWORK:
		fail_sometimes(sim,
			node_plan(sim, node, action, SV_EV_NETWORK_SET, sim_between(sim, 1000, 60000)), 20,
			FAIL_NETWORK_RULES_FAILED);
		break;
	case SV_DO_SPAWN_VMM:
		act_spawn(sim, node, action);
		break;
	case SV_DO_START_VMM:
		act_start(sim, node, action);
		break;
	case SV_DO_RENEW_VMM:
		act_renew(sim, node, action);
		break;
	case SV_DO_ADOPT_VMM:
		act_adopt(sim, node, action);
		break;
	case SV_DO_CONFIGURE_GUEST:
		act_configure(sim, node, action);
		break;
	case SV_DO_RUN_SETUP:
		fail_sometimes(sim,
			node_plan(sim, node, action, SV_EV_SETUP_DONE,
				sim_between(sim, 1000, 900000)),
			30, FAIL_SETUP_FAILED);
		break;
	case SV_DO_KILL_VMM:
	case SV_DO_STOP_VMM:
		act_kill(sim, node, action);
		break;
	case SV_DO_REMOVE_FILES:
		act_remove(sim, node, action);
		break;
	case SV_DO_SEND_HELLO:
	case SV_DO_SEND_HEARTBEAT:
	case SV_DO_SEND_INVENTORY:
	case SV_DO_SEND_REPORT:
	case SV_DO_SEND_CAPACITY:
	case SV_DO_SEND_DROPPED:
	case SV_DO_SEND_REFUSED:
		if (action->type == SV_DO_SEND_REPORT)
			check_report(sim, node, action->report);
		if (action->type == SV_DO_SEND_INVENTORY)
			policy_lie(sim, node, action->inventory);
		if (action->type == SV_DO_SEND_REPORT)
			sim_log(sim, "node %d reports %s gen %llu v%llu %s", node->number,
				action->report->sandbox,
				(unsigned long long)action->report->generation,
				(unsigned long long)action->report->version,
				report_state_name(action->report->state));
		sim_to_scheduler(sim, node, wire_pack_action(action));
		break;
	case SV_DO_RECONNECT:
		node_disconnect(sim, node);
		break;
	default:
		break;
	}
}

enum survival { ALIVE, AGENT_KILLED, POWER_CUT };

/* In the middle of a write: the former record is there, or the new one of which nobody was told, or what can be read of
 * neither. The files of a sandbox whose guest slept are whole all the same: its record alone says that they are. */
static enum survival cut_power(struct sim *sim, struct sim_node *node, const struct sv_journal *record)
{
	struct sim_journal *journal;

	sim_log(sim, "FAULT node %d loses its power while it writes of %s", node->number, record->sandbox);
	if (rng_below(&sim->rng, 3) == 0) {
		sim->met[FAULT_JOURNAL_LOST]++;
		return POWER_CUT;
	}
	journal_write(node, record);
	if (rng_below(&sim->rng, 2) == 0) {
		sim->met[FAULT_JOURNAL_UNTOLD]++;
		return POWER_CUT;
	}
	sim->met[FAULT_JOURNAL_TORN]++;
	tear(sim, record);
	HASH_FIND_STR(node->journals, record->sandbox, journal);
	journal->is_torn = node->has_torn = true;
	sim_truth(sim, record->sandbox)->was_hurt = true;
	return POWER_CUT;
}

/* Performs in order, until the agent dies on the way. */
static enum survival perform(struct sim *sim, struct sim_node *node, const struct sv_actions *actions,
	char ret_failed[ID_SIZE], uint64_t *ret_generation)
{
	for (size_t i = 0; i < actions->n; i++) {
		const struct sv_action *action = &actions->items[i];

		if (sim_chance(sim, action->type == SV_DO_JOURNAL_WRITE ? 8 : 1)) {
			sim->met[FAULT_BETWEEN_ACTS]++;
			sim_log(sim, "FAULT node %d agent killed between two actions",
				node->number);
			return AGENT_KILLED;
		}
		if (action->type == SV_DO_JOURNAL_WRITE && sim_chance(sim, 3))
			return cut_power(sim, node, action->journal.record);
		if (*ret_failed && strcmp(ret_failed, action->sandbox) == 0)
			continue;
		if (action->type != SV_DO_JOURNAL_WRITE) {
			act(sim, node, action);
			continue;
		}
		if (sim->now_usec >= node->full_until_usec && !sim_chance(sim, 3)) {
			journal_write(node, action->journal.record);
			if (action->journal.answer)
				node_plan(sim, node, action, SV_EV_JOURNALLED, sim_between(sim, 50, 3000));
		} else if (!action->journal.best_effort && !*ret_failed) {
			memcpy(ret_failed, action->sandbox, ID_SIZE);
			*ret_generation = action->generation;
		}
	}
	return ALIVE;
}

static void plan_tick(struct sim *sim, struct sim_node *node, int64_t next_usec)
{
	int64_t at;

	if (next_usec == INT64_MAX)
		return;
	at = MAX(next_usec - node->mono_offset - USEC_PER_SEC, sim->now_usec + 1);
	if (node->tick_usec > sim->now_usec && at >= node->tick_usec)
		return;
	node->tick_usec = at;
	(void)sim_plan(sim, SIM_NODE_TICK, at - sim->now_usec, node->number);
}

static void step(struct sim *sim, struct sim_node *node, const struct sv_event *event)
{
	struct sv_event failed = { .type = SV_EV_JOURNAL_FAILED };
	struct sv_actions actions = { 0 };
	struct err err = ERR_NULL;
	enum survival survival;

	if (!node->core)
		return;
	node->stepped = true;
	supervisor_step(node->core, node_now(sim, node), &sim->core_rng, event, &actions);
	if (actions.no_memory)
		exit(3);
	survival = perform(sim, node, &actions, failed.sandbox, &failed.generation);
	plan_tick(sim, node, actions.next_usec);
	sv_actions_clear(&actions);
	if (survival == POWER_CUT) {
		node_reboot(sim, node);
	} else if (survival == AGENT_KILLED) {
		node_crash(sim, node);
	} else if (*failed.sandbox) {
		(void)err_set(&err, FAIL_STATE_WRITE_FAILED, 0, "Injected.");
		failed.err = &err;
		step(sim, node, &failed);
	}
}

/* ---- life of the agent ---- */

void node_start(struct sim *sim, struct sim_node *node)
{
	struct sv_event event = { .type = SV_EV_LOAD };
	struct sv_capacity capacity = { .capacity = node->capacity,
		.disk_free_mib = node->capacity.disk_mib };
	struct sim_journal *journal;
	struct sv_config config;

	if (node->core)
		return;
	sv_config_default(&config);
	config.pauses = config.snapshots = true;
	memcpy(config.machine, node->machine, sizeof(config.machine));
	id_new(&sim->core_rng, config.instance);
	memcpy(config.host_boot_id, node->boot_id, sizeof(config.host_boot_id));
	memcpy(config.run_base, "/run/croft", 11);
	config.part_size = 2;
	config.stop_grace_usec = node->number % 2 ? 500 * USEC_PER_MSEC : 0;
	node->life++;
	node->tick_usec = 0;
	if (supervisor_new(&node->core, &config) < 0)
		exit(3);
	snaps_begin(sim, node, step);
	for (journal = node->journals; node->core && journal; journal = journal->hh.next) {
		event = (struct sv_event){ .type = journal->is_torn ? SV_EV_LOAD_BAD : SV_EV_LOAD };
		event.journal = &journal->record;
		memcpy(event.sandbox, journal->sandbox, sizeof(event.sandbox));
		sleep_check_load(sim, node, &journal->record);
		journal->record.has_no_snapshot = !sleep_is_whole(sim_truth(sim, journal->sandbox));
		step(sim, node, &event);
		if (!node->core)
			return;
	}
	if (!node->core)
		return;
	event = (struct sv_event){ .type = SV_EV_START };
	event.start.highest_epoch = node->highest_epoch;
	event.start.leader = node->leader;
	step(sim, node, &event);
	event = (struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity };
	step(sim, node, &event);
	(void)sim_plan(sim, SIM_CONNECT, sim_between(sim, 1000, 200000), node->number);
}

static uint64_t connection_new(struct sim *sim)
{
	uint64_t route = 0;

	while (sim->route_taken[route])
		route++;
	sim->route_taken[route] = true;
	return ++sim->next_conn * ROUTES + route;
}

static void lose_connection(struct sim *sim, struct sim_node *node)
{
	struct sim_event *event;

	if (node->conn == 0)
		return;
	event = sim_plan(
		sim, SIM_DISCONNECT, sim_between(sim, 100, 2 * USEC_PER_SEC), node->number);
	event->conn = node->conn;
	sim->route_taken[node->conn % ROUTES] = false;
	node->conn = 0;
}

void node_crash(struct sim *sim, struct sim_node *node)
{
	struct vm *vm;

	if (!node->core)
		return;
	sleep_killed(sim, node);
	node->core = supervisor_free(node->core);
	node->life++;
	for (vm = node->vms; vm; vm = vm->next)
		vm->attached = 0;
	lose_connection(sim, node);
	(void)sim_plan(sim, SIM_NODE_START, sim_between(sim, 100 * USEC_PER_MSEC, 8 * USEC_PER_SEC),
		node->number);
}

void node_reboot(struct sim *sim, struct sim_node *node)
{
	struct vm *vm;

	if (!node->core)
		return;
	node_crash(sim, node);
	journals_after_power_cut(node);
	for (vm = node->vms; vm; vm = vm->next)
		if (vm->is_alive) {
			sim_truth(sim, vm->sandbox)->was_hurt = true;
			vm_dies(sim, vm);
		}
	(void)snprintf(node->boot_id, sizeof(node->boot_id), "boot-%d-%llu", node->number,
		(unsigned long long)node->life);
	node->mono_offset = -sim->now_usec;
}

void node_hurt_vm(struct sim *sim, struct sim_node *node)
{
	struct sv_action action = { 0 };
	struct result *result;
	struct vm *vm;

	for (vm = node->vms; vm; vm = vm->next)
		if (vm->is_alive)
			break;
	if (!vm)
		return;
	sim_truth(sim, vm->sandbox)->was_hurt = true;
	action.generation = vm->generation;
	memcpy(action.sandbox, vm->sandbox, sizeof(action.sandbox));
	result = node_plan(sim, node, &action, SV_EV_VMM_EXITED, 0);
	result->exit = SV_EXIT_KILLED;
	result->vm = vm->number;
}

/* ---- the link ---- */

void node_connect(struct sim *sim, struct sim_node *node)
{
	struct sv_event event = { .type = SV_EV_LINK_UP };
	bool to_copy;

	if (!node->core || node->conn)
		return;
	to_copy = sim->now_usec >= node->cut_until_usec && copy_is_dialled(sim, node);
	if ((!sim->scheduler.fleet && !to_copy) || sim->now_usec < node->cut_until_usec) {
		int64_t in = sim_between(sim, 500 * USEC_PER_MSEC, 2 * USEC_PER_SEC);

		if (node->cut_until_usec - sim->now_usec > DAY_USEC) /* a week of vain calls */
			in += node->cut_until_usec - sim->now_usec;
		(void)sim_plan(sim, SIM_CONNECT, in, node->number);
		return;
	}
	node->conn = connection_new(sim) | (to_copy ? TO_COPY : 0);
	step(sim, node, &event);
}

void node_disconnect(struct sim *sim, struct sim_node *node)
{
	struct sv_event event = { .type = SV_EV_LINK_DOWN };

	if (node->conn == 0)
		return;
	lose_connection(sim, node);
	step(sim, node, &event);
	(void)sim_plan(sim, SIM_CONNECT, sim_between(sim, 200 * USEC_PER_MSEC, 3 * USEC_PER_SEC),
		node->number);
}

struct delivery {
	struct sim *sim;
	struct sim_node *node;
};

static void deliver(const struct sv_event *event, void *user)
{
	struct delivery *delivery = user;

	step(delivery->sim, delivery->node, event);
}

void node_message(struct sim *sim, const struct sim_event *event)
{
	struct sim_node *node = &sim->nodes[event->node];
	struct delivery delivery = { sim, node };

	if (!node->core || node->conn != event->conn)
		return; /* that connection is gone, and what was on it */
	if (!wire_to_core(event->bytes, deliver, &delivery))
		sim_violation(sim, "the scheduler's message was not understood");
}

void node_tick(struct sim *sim, struct sim_node *node)
{
	struct sv_event event = { .type = SV_EV_TICK };

	step(sim, node, &event);
}

void node_free(struct sim_node *node)
{
	struct vm *vm;

	node->core = supervisor_free(node->core);
	while (node->journals)
		node_journal_remove(node, node->journals->sandbox);
	while ((vm = node->vms)) {
		node->vms = vm->next;
		free(vm);
	}
}
