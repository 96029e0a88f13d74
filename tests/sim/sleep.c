/* SPDX-License-Identifier: Apache-2.0
 *
 * Sandboxes that sleep: what a node's shell does with them, and the world's own book of it. A disk has a version, which
 * changes while a guest that is not frozen may write to it; a snapshot has the version of the disk that it was taken
 * over. Only over that disk may it be restored, and only a VM whose snapshot is whole may be killed unasked.
 */
#include <string.h>

#include "sim.h"

bool sleep_is_whole(const struct truth *truth)
{
	return truth->snapshot != 0 && truth->snapshot == truth->disk;
}

/* Its guest runs on: from now on its disk is another one. A life that was superseded has a disk of its own. */
void sleep_guest_runs(struct truth *truth, const struct sim_node *node, struct vm *vm)
{
	vm->is_frozen = false;
	if (truth->snapshot == 0 || truth->snapshot_node == node->number || vm->generation > truth->snapshot_generation)
		truth->disk++;
}

/* All files of the sandbox on that node go, or those of its snapshot. */
void sleep_forget(struct truth *truth, const struct sim_node *node)
{
	if (truth->snapshot_node == node->number)
		truth->snapshot = 0;
}

/* The moments that matter are short, and a kill at random seldom meets one. */
static void kill_soon(struct sim *sim, const struct sim_node *node, uint64_t permille)
{
	if (sim_chance(sim, permille))
		sim_plan(sim, SIM_KILL, sim_between(sim, 0, 300000), node->number)->life = node->life;
}

static void count_killed(struct sim *sim, enum sv_state state)
{
	if (state == SV_PAUSING || state == SV_SLEEPING)
		sim->killed_pausing++;
	else if (state >= SV_WAKE_NETWORK && state <= SV_THAWING)
		sim->killed_waking++;
}

void sleep_killed(struct sim *sim, const struct sim_node *node)
{
	const struct sim_journal *journal;

	for (journal = node->journals; journal; journal = journal->hh.next)
		count_killed(sim, journal->record.state);
}

/* What an agent reads that starts: one that sleeps has the disk that its snapshot was taken over. */
void sleep_check_load(struct sim *sim, const struct sim_node *node, const struct sv_journal *journal)
{
	const struct truth *truth = sim_truth(sim, journal->sandbox);

	if (truth->spawned > journal->generation)
		return; /* replaced elsewhere: what ran there wrote to a disk of its own */
	if (journal->state >= SV_SLEEPING && journal->state <= SV_WAKE_GUEST && truth->snapshot &&
		truth->snapshot_node == node->number && truth->snapshot_generation == journal->generation && !sleep_is_whole(truth))
		sim_violation(sim, "the journal of node %d says that %s sleeps, and its guest wrote to the disk", node->number,
			journal->sandbox);
}

static void snapshot(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct vm *vm = node_vm_by_dir(node, action->vmm.run_dir);
	struct result *result = node_plan(sim, node, action, SV_EV_SNAPSHOT_DONE, sim_between(sim, 1000, 3000000));

	if (!vm || sim_chance(sim, 80)) {
		(void)err_set(&result->err, FAIL_SNAPSHOT_FAILED, 0, "Injected.");
		return;
	}
	vm->is_frozen = true;
	result->vm = vm->number;
}

/* The files are whole and synced when the agent is told so; one that died meanwhile has left a part of them. */
void sleep_snapshot_done(
	struct sim *sim, const struct sim_node *node, const struct result *result, const struct vm *vm)
{
	struct truth *truth = sim_truth(sim, result->sandbox);

	if (result->type != SV_EV_SNAPSHOT_DONE || !vm || !vm->is_frozen || err_is_set(&result->err))
		return;
	truth->snapshot = truth->disk;
	truth->snapshot_node = node->number;
	truth->snapshot_generation = vm->generation;
}

static void thaw(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct vm *vm = node_vm_by_dir(node, action->vmm.run_dir);
	struct result *result = node_plan(sim, node, action, SV_EV_THAWED, sim_between(sim, 100, 300000));
	struct truth *truth = sim_truth(sim, action->sandbox);

	if (!vm) {
		(void)err_set(&result->err, FAIL_GUEST_UNREACHABLE, 0, "It is not there.");
		return;
	}
	result->vm = vm->number;
	sleep_guest_runs(truth, node, vm);
	if (!sim_chance(sim, 10))
		return;
	(void)err_set(&result->err, FAIL_GUEST_UNREACHABLE, 0, "Injected.");
	truth->was_hurt = true;
}

static void wake_guest(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct result *result = node_plan(sim, node, action, SV_EV_GUEST_CONFIGURED, sim_between(sim, 100, 20000));

	if (sim_chance(sim, 30))
		(void)err_set(&result->err, FAIL_GUEST_UNREACHABLE, 0, "Injected.");
}

bool sleep_act(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	if (action->type == SV_DO_SNAPSHOT)
		snapshot(sim, node, action);
	else if (action->type == SV_DO_THAW)
		thaw(sim, node, action);
	else if (action->type == SV_DO_WAKE_GUEST)
		wake_guest(sim, node, action);
	else if (action->type == SV_DO_DROP_SNAPSHOT)
		sleep_forget(sim_truth(sim, action->sandbox), node);
	else
		return false;
	if (action->type != SV_DO_DROP_SNAPSHOT)
		kill_soon(sim, node, action->type == SV_DO_SNAPSHOT ? 50 : 300);
	return true;
}

/* A VM that is made of a snapshot. */
void sleep_restore(struct sim *sim, struct sim_node *node, const struct sv_action *action, struct vm *vm)
{
	struct truth *truth = sim_truth(sim, action->sandbox);
	int64_t in = sim_between(sim, 2000, 60000);
	struct result *result;

	if (!sleep_is_whole(truth))
		sim_violation(sim, "%s is restored over a disk that is not its snapshot's", action->sandbox);
	vm->is_frozen = true;
	result = node_plan(sim, node, action, SV_EV_VMM_STARTED, in);
	result->vm = vm->number;
	if (!sim_chance(sim, 40))
		return;
	result->type = SV_EV_VMM_EXITED;
	result->exit = SV_EXIT_START_FAILED;
	(void)err_set(&result->err, FAIL_RESTORE_FAILED, 0, "Injected.");
}

/* ---- clients ---- */

static struct client *client_of(struct sim *sim, const char *id)
{
	struct client *client = client_new(sim);

	memcpy(client->id, id, sizeof(client->id));
	client->is_sleep = true;
	return client;
}

static void resume(struct sim *sim, const char *id)
{
	struct truth *truth = sim_truth(sim, id);
	struct fleet_resume request = { .request = client_of(sim, id)->request, .sandbox = id };
	struct fleet_event event = { .type = FLEET_RESUME, .resume = &request };

	if (rng_below(&sim->rng, 3) == 0) {
		request.timeout_s = (uint32_t)sim_between(sim, 5, 90);
		truth->has_life_time = true;
	}
	truth->promised_usec = 0;
	scheduler_step(sim, &event);
}

static void pause(struct sim *sim, const char *id)
{
	struct fleet_event event = { .type = FLEET_PAUSE };

	event.pause.request = client_of(sim, id)->request;
	event.pause.sandbox = id;
	scheduler_step(sim, &event);
}

/* What sleeps is woken, what is awake put to sleep; and now and then the other way round. */
void sleep_client(struct sim *sim, const char *id)
{
	const char *tenant = fleet_sandbox_tenant(sim->scheduler.fleet, id);
	struct fleet_sandbox_view view;
	char again[ID_SIZE];

	if (!tenant || strchr(tenant, ':') || fleet_sandbox_get(sim->scheduler.fleet, id, NULL, &view) < 0)
		return; /* the scheduler's own */
	if (view.internal == SANDBOX_PAUSING || view.internal == SANDBOX_RESUMING || rng_below(&sim->rng, 12) == 0) {
		client_delete(sim, id);
		return;
	}
	if ((view.state == PUBLIC_PAUSED) != (rng_below(&sim->rng, 10) == 0))
		resume(sim, id);
	else
		pause(sim, id);
	memcpy(again, id, sizeof(again));
	if (rng_below(&sim->rng, 6) == 0 && sim->scheduler.fleet && fleet_sandbox_tenant(sim->scheduler.fleet, again))
		client_delete(sim, again); /* before it is done */
}

void sleep_reply(struct sim *sim, const struct client *client, const struct fleet_reply *reply)
{
	struct stored *live;

	if (err_is_set(&reply->err))
		return;
	HASH_FIND_STR(sim->scheduler.live, client->id, live);
	if (!live || live->record.state != reply->sandbox->state)
		sim_violation(sim, "%s was answered as %s while the store said %s", client->id,
			sandbox_state_name(reply->sandbox->state),
			live ? sandbox_state_name(live->record.state) : "nothing");
	if (reply->sandbox->state == SANDBOX_PAUSED)
		sim->pauses++;
	else
		sim->wakes++;
}
