/* SPDX-License-Identifier: Apache-2.0
 *
 * sim [--seed N | --seeds A..B | --kept FILE | --heal] [--verbose]   last line "seeds N, faults N, violations N"
 * sim-planted [--seeds A..B | --kept FILE]         last line "planted N, found N" (built with CROFT_PLANT)
 *
 * Exit 1 when a promise was broken (or a planted fault not found), and when a run injected no fault at all.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define COVERING_SEEDS 50 /* from so many on, every state must have met a DELETE */

struct totals {
	uint64_t seeds, faults, violations, steps, creates, acks, deletes, claims, claims_refused, claims_restored;
	uint64_t leases_over, replaced, resumed, pauses, wakes, killed_pausing, killed_waking, snapshots, forks, begun, begun_live, splits, policies;
	uint64_t deletes_in[SANDBOX_STATE_MAX_], met[FAULT_MAX_];
};

static void run_seed(uint64_t seed, bool heal, bool verbose, struct totals *totals)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	if (!sim)
		exit(3);
	sim->seed = seed;
	sim->verbose = verbose;
	if (heal)
		sim_heal(sim);
	else
		sim_run(sim);
	totals->seeds++;
	totals->faults += sim->faults;
	totals->violations += sim->violations;
	totals->steps += sim->steps;
	totals->creates += sim->creates;
	totals->acks += sim->acks;
	totals->deletes += sim->deletes;
	totals->claims += sim->claims;
	totals->claims_refused += sim->claims_refused;
	totals->claims_restored += sim->claims_restored;
	totals->leases_over += sim->leases_over;
	totals->replaced += sim->replaced;
	totals->resumed += sim->resumed;
	totals->pauses += sim->pauses;
	totals->wakes += sim->wakes;
	totals->killed_pausing += sim->killed_pausing;
	totals->killed_waking += sim->killed_waking;
	totals->snapshots += sim->snapshots;
	totals->forks += sim->forks;
	totals->begun += sim->begun;
	totals->begun_live += sim->begun_live;
	totals->splits += sim->splits;
	totals->policies += sim->policies;
	for (unsigned int i = 0; i < SANDBOX_STATE_MAX_; i++)
		totals->deletes_in[i] += sim->deletes_in[i];
	for (unsigned int i = 0; i < FAULT_MAX_; i++)
		totals->met[i] += sim->met[i];
	if (sim->violations)
		printf("seed %llu failed: run again with --seed %llu --verbose\n",
			(unsigned long long)seed, (unsigned long long)seed);
	sim_free(sim);
	free(sim);
}

#ifdef CROFT_PLANT
enum plant plant_chosen;

static const char *const plants[PLANT_MAX_] = {
	[PLANT_REPLY_BEFORE_COMMIT] = "reply before commit",
	[PLANT_FENCING_DROPPED] = "fencing dropped",
	[PLANT_ROOM_KEPT_ON_REFUSAL] = "reservation not freed on refusal",
	[PLANT_ROOM_NOT_COUNTED] = "reservation after the decision",
	[PLANT_PARTIAL_INVENTORY] = "partial inventory taken as complete",
	[PLANT_DELETE_LOST_IN_STARTING] = "DELETE lost in starting",
	[PLANT_DEADLINE_NOT_REARMED] = "deadline not re-armed after restart",
	[PLANT_STALL_COUNTED] = "own stall counted as the node's silence",
	[PLANT_RESEND_NEW_OPERATION] = "resend with a new operation",
	[PLANT_ACK_BEFORE_JOURNAL] = "acknowledged before the journal",
	[PLANT_TOMBSTONE_DROPPED] = "tombstone dropped before the ack",
	[PLANT_OLD_EPOCH_ACCEPTED] = "old epoch accepted",
	[PLANT_RENAME_WITHOUT_SYNC] = "rename without fsync of the directory",
	[PLANT_HELLO_BY_ROUTE] = "hello routed by routing id",
	[PLANT_QUARANTINE_FORGOTTEN] = "quarantine forgotten on restart",
	[PLANT_HISTORY_BEFORE_COMMIT] = "history moved before the commit",
	[PLANT_EMPTY_SET_DESTROYS] = "empty set destroys",
	[PLANT_CLAIM_NOT_COMPARED] = "claim without compare-and-set",
	[PLANT_DRAIN_RACES_CLAIM] = "drain racing a claim",
	[PLANT_LEASE_ON_WALL_CLOCK] = "lease on the wall clock",
	[PLANT_THAWED_BEFORE_JOURNAL] = "woken before the journal",
	[PLANT_WAKE_NOT_RESERVED] = "woken without room",
	[PLANT_FORK_SNAPSHOT_KEPT] = "a fork's snapshot kept",
	[PLANT_SNAPSHOT_NOT_DESIRED] = "snapshots left out of the desired set",
	[PLANT_REPLACED_BEFORE_STOP] = "replacement before self-stop",
	[PLANT_COPY_FOLLOWED] = "a copied scheduler followed",
	[PLANT_EPOCH_WITHOUT_WELCOME] = "higher epoch obeyed without a welcome",
	[PLANT_INVENTORY_NOT_AWAITED] = "placed on before the inventory",
	[PLANT_OTHER_INVENTORY_TAKEN] = "inventory for another scheduler taken",
	[PLANT_DELETED_START_UNHEARD] = "failure of a deleted start unheard",
	[PLANT_CLAIM_FORGETS_PLACES] = "claim forgets where it was",
	[PLANT_UNWRITTEN_CONFIRMED] = "unwritten life time confirmed",
};

struct score {
	unsigned int planted, found;
};

static void look_for(enum plant plant, uint64_t first, uint64_t last, bool verbose, struct score *score)
{
	struct totals totals = { 0 };

	plant_chosen = plant;
	score->planted++;
	for (uint64_t seed = first; seed <= last && totals.violations == 0; seed++)
		run_seed(seed, false, verbose, &totals);
	score->found += totals.violations > 0;
	printf("%-45s %s by seed %llu\n", plants[plant], totals.violations ? "found" : "NOT FOUND",
		(unsigned long long)(first + totals.seeds - 1));
}

/* "SEED  NAME: ...": this seed finds that mistake when it is made again. Other lines are of none that is planted. */
static bool look_for_kept(const char *path, bool verbose, struct score *score)
{
	FILE *file = fopen(path, "r");
	char line[256], name[64];
	bool is_well = file;

	while (file && fgets(line, sizeof(line), file)) {
		enum plant plant = PLANT_NONE + 1;
		unsigned long long seed;

		if (sscanf(line, "%llu %63[^:\n]:", &seed, name) != 2 || !strchr(line, ':'))
			continue;
		while (plant < PLANT_MAX_ && strcmp(plants[plant], name) != 0)
			plant++;
		if (plant < PLANT_MAX_)
			look_for(plant, seed, seed, verbose, score);
		else if (strcmp(name, "no mistake of ours") != 0 && strcmp(name, "not planted") != 0)
			is_well = fprintf(stderr, "sim-planted: no fault is called %s\n", name) < 0;
	}
	return file && fclose(file) == 0 && is_well;
}

static int run(uint64_t first, uint64_t last, const char *kept, bool heal, bool verbose)
{
	struct score score = { 0, 0 };
	bool is_well = true;

	(void)heal;
	if (kept)
		is_well = look_for_kept(kept, verbose, &score);
	for (enum plant plant = PLANT_NONE + 1; !kept && plant < PLANT_OF_KEPT_SEEDS_; plant++)
		look_for(plant, first, last, verbose, &score);
	printf("planted %u, found %u\n", score.planted, score.found);
	return is_well && score.planted == score.found && score.planted > 0 ? 0 : 1;
}
#else
/* A long run that never deleted in some state has not shown that DELETE works there, nor one without a kind of fault what
 * that does. */
static bool covered(const struct totals *totals)
{
	for (unsigned int i = SANDBOX_PLACING; i <= SANDBOX_STOPPING; i++)
		if (totals->deletes_in[i] == 0) {
			printf("no DELETE met a sandbox in %s\n",
				sandbox_state_name((enum sandbox_state)i));
			return totals->seeds < COVERING_SEEDS;
		}
	for (unsigned int i = 0; i < FAULT_MAX_; i++)
		if (totals->met[i] == 0) {
			printf("no fault of the kind: %s\n", sim_fault_names[i]);
			return totals->seeds < COVERING_SEEDS;
		}
	return totals->seeds < COVERING_SEEDS ||
	       (totals->claims && totals->claims_refused && totals->claims_restored && totals->leases_over && totals->replaced &&
		       totals->resumed && totals->pauses && totals->wakes && totals->killed_pausing &&
		       totals->killed_waking && totals->snapshots && totals->forks && totals->begun && totals->begun_live && totals->splits && totals->policies);
}

/* Seeds that once showed a mistake: a file with one number at the beginning of each line. */
static bool run_kept(const char *path, bool verbose, struct totals *totals)
{
	FILE *file = fopen(path, "r");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		unsigned long long seed;

		if (sscanf(line, "%llu", &seed) == 1)
			run_seed(seed, false, verbose, totals);
	}
	if (!file || fclose(file) != 0 || totals->seeds == 0) {
		fprintf(stderr, "sim: %s: no seeds\n", path);
		return false;
	}
	return true;
}

static int run(uint64_t first, uint64_t last, const char *kept, bool heal, bool verbose)
{
	struct totals totals = { 0 };
	bool complete;

	if (kept && !run_kept(kept, verbose, &totals))
		return 1;
	for (uint64_t seed = first; !kept && seed <= last; seed++)
		run_seed(seed, heal, verbose, &totals);
	printf("warm sandboxes claimed %llu (of a snapshot %llu), refused %llu\n", (unsigned long long)totals.claims,
		(unsigned long long)totals.claims_restored, (unsigned long long)totals.claims_refused);
	printf("leases that ran out %llu, sandboxes replaced %llu, reports of starts that were resumed %llu\n",
		(unsigned long long)totals.leases_over, (unsigned long long)totals.replaced,
		(unsigned long long)totals.resumed);
	printf("put to sleep %llu, woken %llu, agents killed beside the one %llu, beside the other %llu\n",
		(unsigned long long)totals.pauses, (unsigned long long)totals.wakes,
		(unsigned long long)totals.killed_pausing, (unsigned long long)totals.killed_waking);
	printf("snapshots %llu, forks %llu, begun as one %llu (live %llu)\n", (unsigned long long)totals.snapshots,
		(unsigned long long)totals.forks, (unsigned long long)totals.begun, (unsigned long long)totals.begun_live);
	printf("nodes that a copy of the scheduler sent back %llu, policies and budgets changed %llu\n", (unsigned long long)totals.splits,
		(unsigned long long)totals.policies);
	printf("steps %llu, creates %llu, acknowledged %llu, deletes %llu:",
		(unsigned long long)totals.steps, (unsigned long long)totals.creates,
		(unsigned long long)totals.acks, (unsigned long long)totals.deletes);
	for (unsigned int i = 0; i < SANDBOX_STATE_MAX_; i++)
		if (totals.deletes_in[i])
			printf(" %s %llu", sandbox_state_name((enum sandbox_state)i),
				(unsigned long long)totals.deletes_in[i]);
	printf("\n");
	complete = heal || covered(&totals);
	printf("seeds %llu, faults %llu, violations %llu\n", (unsigned long long)totals.seeds,
		(unsigned long long)totals.faults, (unsigned long long)totals.violations);
	return totals.violations == 0 && totals.faults > 0 && complete ? 0 : 1;
}
#endif

int main(int argc, char **argv)
{
	unsigned long long first = 1, last = 20;
	bool verbose = false, heal = false;
	const char *kept = NULL;

	/* A seed makes and drops much: giving it back to the system each time costs more than the run. */
	(void)mallopt(M_TRIM_THRESHOLD, 512 * 1024 * 1024);
	(void)mallopt(M_TOP_PAD, 64 * 1024 * 1024);
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--verbose") == 0) {
			verbose = true;
		} else if (strcmp(argv[i], "--heal") == 0) {
			heal = true;
			last = first;
		} else if (strcmp(argv[i], "--seed") == 0 && sscanf(value, "%llu", &first) == 1) {
			last = first;
			i++;
		} else if (strcmp(argv[i], "--seeds") == 0 &&
			   sscanf(value, "%llu..%llu", &first, &last) == 2 && first <= last) {
			i++;
		} else if (strcmp(argv[i], "--kept") == 0 && *value) {
			kept = value;
			i++;
		} else {
			fprintf(stderr, "usage: %s [--seed N | --seeds A..B | --kept FILE | --heal] [--verbose]\n",
				argv[0]);
			return 2;
		}
	}
	if (!kept)
		printf("seeds %llu..%llu\n", first, last);
	return run(first, last, kept, heal, verbose);
}
