/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator: the real fleet and twenty real node cores in one process on a virtual clock. What is simulated
 * is everything around them: network, store, journals, VMMs, clients, crashes. Messages travel as the packed
 * protobuf bytes of the real wire. One seed is one history: the same seed gives the same run.
 *
 * After every step of any core check.c looks at the whole world. A broken promise is printed with the seed and
 * the time and counted; it never stops the run.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/plant.h"
#include "base/rng.h"
#include "base/table.h"
#include "core/supervisor.h"
#include "fleet/fleet.h"
#include "fleet/runs.h"

#define NODES 20
#define HEAL_NODES 1000
#define TO_COPY (UINT64_C(1) << 62) /* of a connection: it goes to the copy */
#define ROUTES 4096 /* routing ids: small and used again, as nobody promises otherwise */
#define DAY_USEC (INT64_C(86400) * USEC_PER_SEC)
#define POOL "pool-a"
#define TENANT "tenant-a" /* and -b, -c */
#define TENANTS 3
#define CHAOS_USEC (150 * USEC_PER_SEC) /* faults happen until here */
#define WORKS_USEC (CHAOS_USEC + 30 * USEC_PER_SEC) /* nobody keeps a node out any more */
#define SETTLE_USEC                                                                                \
	(400 * USEC_PER_SEC) /* every request is answered and every fence resolved by here */
#define END_USEC (640 * USEC_PER_SEC) /* and after deleting everything nothing is left here */
#define REAL_BASE (INT64_C(1750000000) * USEC_PER_SEC)

struct bytes {
	uint8_t *data;
	size_t size;
};

enum sim_event_type {
	SIM_TO_SCHEDULER, /* node, conn, bytes */
	SIM_TO_NODE,      /* node, conn, bytes */
	SIM_DISCONNECT,   /* node, conn: the scheduler notices */
	SIM_CONNECT,      /* node */
	SIM_COMMIT,       /* life */
	SIM_SCHEDULER_TICK,
	SIM_SCHEDULER_START,
	SIM_NODE_TICK,  /* node */
	SIM_NODE_START, /* node */
	SIM_RESULT,     /* node, life, result */
	SIM_LEASE,      /* node; life: which VM */
	SIM_CLIENT,
	SIM_FAULT,
	SIM_COPY,
	SIM_KILL, /* node, life: of the agent that is killed */
};

/* The end of an act on a node, or something that a VM did. */
struct result {
	enum sv_event_type type;
	char sandbox[ID_SIZE];
	uint64_t generation;
	uint64_t vm; /* of which VM; 0: of none */
	enum sv_exit exit;
	struct err err;
	struct snapshot_info snapshot; /* SNAPSHOT_KEPT, SNAPSHOT_DROPPED */
	bool answer;                   /* SNAPSHOT_DROPPED */
	struct sv_frozen_list frozen;  /* SNAPSHOT_TAKEN */
};

/* What the world does to the fleet: a run of many seeds that lacks one of these has shown nothing about it. */
enum sim_fault {
	FAULT_DROPPED, FAULT_DOUBLED, FAULT_OVERTAKEN, FAULT_CUT, FAULT_DEAF, FAULT_AGENT_KILLED, FAULT_REBOOTED, FAULT_VM_KILLED,
	FAULT_DISCONNECTED, FAULT_NODE_CLOCK, FAULT_SCHEDULER_KILLED, FAULT_ALL_KILLED, FAULT_OLD_LEADER, FAULT_NODE_FULL,
	FAULT_STORE_FULL, FAULT_SCHEDULER_CLOCK, FAULT_HALF_CUT, FAULT_DRAINED, FAULT_CORDONED, FAULT_CUT_AND_KILLED,
	FAULT_STALLED, FAULT_LIED, FAULT_BETWEEN_ACTS, FAULT_COMMIT_SLOW, FAULT_COMMIT_FAILED, FAULT_COMMIT_LOST, FAULT_COMMIT_UNTOLD,
	FAULT_JOURNAL_LOST, FAULT_JOURNAL_UNTOLD, FAULT_JOURNAL_TORN, FAULT_YEARS, FAULT_MAX_
};

struct sim_event {
	int64_t at_usec;
	uint64_t order;
	enum sim_event_type type;
	int node;
	uint64_t conn, life;
	struct bytes bytes;
	struct result *result;
};

/* ---- what is durable on a host ---- */
struct sim_journal {
	char sandbox[ID_SIZE];
	struct sv_journal record;
	struct sv_journal durable; /* what a power cut leaves */
	bool is_durable;           /* there is such a thing */
	bool is_torn;              /* nobody can read it any more */
	UT_hash_handle hh;
};

struct vm {
	uint64_t number;
	char sandbox[ID_SIZE];
	uint64_t generation;
	char run_dir[96];
	uint64_t memory_mib;
	bool is_alive;
	bool is_started;
	bool is_frozen; /* its guest writes nothing to its disk */
	struct sv_frozen_list frozen; /* that it maps: one file at most */
	uint64_t attached; /* life of the agent that watches it; 0: none */
	int64_t lease_until_usec; /* boot time of the host; 0: it has none */
	bool lease_planned;       /* it will be looked at */
	struct vm *next;
};

struct sim_node {
	int number;
	char id[ID_SIZE], machine[ID_SIZE];
	struct node_capacity capacity;
	struct sim_journal *journals;
	struct vm *vms;
	uint64_t highest_epoch;
	struct leader_mark leader;
	char boot_id[BOOT_ID_SIZE];
	int64_t mono_offset, real_offset;
	/* the agent */
	struct supervisor *core; /* NULL: not running */
	uint64_t life;
	uint64_t conn; /* 0: none */
	int64_t tick_usec;
	int64_t cut_until_usec;  /* packets of both ways are lost */
	int64_t deaf_until_usec; /* packets to the node are lost */
	int64_t heard_usec;       /* when the fleet took something from it last */
	bool stepped;             /* since the last check */
	int64_t full_until_usec;  /* no space left on its disk */
	bool has_torn;            /* records, until its operator removes them */
	bool is_broken;           /* no KVM, from the beginning until the chaos ends */
	unsigned int n_broken;    /* starts of clients that it told had failed for it */
};

/* ---- the scheduler's shell ---- */
struct stored {
	char id[ID_SIZE];
	struct sandbox_record record;
	UT_hash_handle hh;
};

/* A snapshot in the store. */
struct stored_snapshot {
	char id[ID_SIZE];
	struct snapshot_record record;
	UT_hash_handle hh;
};

/* The warm pool of a snapshot. */
struct stored_warm {
	char snapshot[ID_SIZE]; /* "": there is none */
	struct sandbox_spec *spec;
};

struct sim_batch {
	struct fleet_actions actions;
	bool fails;
	struct sim_batch *next;
};

struct sim_scheduler {
	struct fleet *fleet; /* NULL: not running */
	uint64_t life;
	uint64_t epoch;
	int64_t tick_usec;
	int64_t stalled_until_usec, stalled_since_usec;
	bool commit_planned;
	struct sim_batch *first, **last;          /* not yet durable, in order */
	struct stored *live, *history, *claims;   /* durable */
	struct stored_snapshot *snapshots;        /* likewise */
	struct stored_warm warm;                  /* likewise */
	struct node_record *node_records; /* durable; of each node */
	int64_t real_offset;              /* its wall clock jumps too */
	int64_t full_until_usec;          /* no space: every write fails */
	struct runs runs;                 /* durable */
};

/* A scheduler with a copy of the store; see copy.c. */
struct sim_copy {
	struct fleet *fleet; /* NULL: there is none */
	struct rng rng;
	uint64_t epoch;
	struct runs runs;
};

/* ---- clients ---- */
struct client {
	uint64_t request;
	char id[ID_SIZE]; /* "": not known */
	bool is_answered;
	bool is_lost;   /* the scheduler died: nobody will answer */
	bool is_acked;  /* 201 */
	bool is_delete; /* this is a DELETE of `id` */
	bool is_claim;  /* of a warm sandbox */
	bool is_sleep;  /* a pause or resume of `id` */
	bool is_snapshot, is_fork, is_drop; /* of the sandbox, or of the snapshot, `id` */
	uint64_t policy, budget; /* the number of the one that is asked for; 0: none is */
	int64_t extends_usec; /* a change of the time limit: until when it is to live at least */
	UT_hash_handle hh;
};

/* What the world knows about one sandbox, apart from what the cores believe. */
struct truth {
	char id[ID_SIZE];
	bool is_acked;        /* its creation was acknowledged */
	bool is_deleted;      /* somebody asked for its end */
	bool is_delete_acked; /* and was told that it will come */
	bool has_life_time;
	uint64_t extending;    /* the last request to change its time limit */
	int64_t promised_usec; /* as long it was told to live; 0: no such promise */
	bool is_canary;      /* the scheduler's own */
	bool was_hurt;       /* we killed its VM or its host: it may end by itself */
	unsigned int n_live; /* VMs now */
	uint32_t incarnation; /* 0: not seen */
	uint64_t disks;       /* bits of nodes that hold a disk of it which no guest has touched */
	uint64_t disk;        /* version of its disk's content */
	uint64_t snapshot;    /* of which disk there is a whole snapshot; 0: none */
	int snapshot_node;
	uint64_t snapshot_generation;
	uint64_t spawned;    /* highest generation that was spawned */
	uint64_t sent;       /* highest generation that was placed and sent */
	uint64_t broken_told; /* highest generation of which a node told that it has no KVM */
	/* numbers of network policies and budgets: the latest that somebody asked for, and was told of that it holds */
	uint64_t policy_asked, policy_told, budget_asked, budget_told;
	bool has_record; /* it was in the store */
	UT_hash_handle hh;
};

/* What the world knows of a snapshot: its files, and what somebody was told. */
struct kept {
	struct snapshot_info info;
	int node;
	bool is_there, is_whole;
	bool is_live; /* in the memory of its node's agent */
	struct sv_frozen_list frozen;
	bool is_acked, is_deleted;
	UT_hash_handle hh;
};

struct sim {
	uint64_t seed;
	struct rng rng;      /* of the world */
	struct rng core_rng; /* of the cores */
	int64_t now_usec;
	struct sim_event *heap;
	size_t n_heap, heap_room;
	uint64_t order, next_conn, next_vm, next_request;
	struct sim_node *nodes;
	int n_nodes;
	bool is_heal; /* a week's cut of many nodes that heal together, instead of chaos */
	bool route_taken[ROUTES];
	int route_owner[ROUTES]; /* who said hello there first: what a planted fault believes */
	struct sim_scheduler scheduler;
	struct sim_copy copy;
	struct client *clients;
	struct truth *truths;
	struct kept *kept;
	uint64_t snapshots, forks, begun, begun_live;
	uint64_t splits; /* hellos that the copy refused */
	uint64_t next_policy, policies; /* changes that were confirmed */
	uint64_t met[FAULT_MAX_]; /* how often each kind of fault was */
	uint64_t steps, faults, violations, creates, acks, deletes;
	uint64_t claims, claims_refused, claims_restored;
	uint64_t leases_over, replaced, resumed, pauses, wakes;
	uint64_t killed_pausing, killed_waking; /* agents, beside a sandbox that was falling asleep, that was waking */
	uint64_t deletes_in[SANDBOX_STATE_MAX_];
	char seen_warm[ID_SIZE]; /* a warm sandbox that some client saw a while ago */
	bool fleet_stepped;     /* since the last check */
	bool verbose;
};

/* ---- world.c ---- */
extern const char *const sim_fault_names[FAULT_MAX_];
struct sim_event *sim_plan(struct sim *sim, enum sim_event_type type, int64_t in_usec, int node);
bool sim_chance(struct sim *sim, uint64_t permille); /* of a fault: false after the chaos; counts */
int64_t sim_between(struct sim *sim, int64_t low, int64_t high);
bool sim_is_chaos(const struct sim *sim);
struct truth *sim_truth(struct sim *sim, const char *id);
void sim_violation(struct sim *sim, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_log(const struct sim *sim, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_to_scheduler(struct sim *sim, struct sim_node *node, struct bytes bytes);
void sim_to_node(struct sim *sim, int node, uint64_t conn, struct bytes bytes);
void sim_begin(struct sim *sim); /* nodes, scheduler; n_nodes is set */
void sim_turn(struct sim *sim);  /* the next event */
int64_t sim_next_usec(const struct sim *sim); /* INT64_MAX: nothing is planned */
void sim_run(struct sim *sim);
void sim_heal(struct sim *sim); /* instead of sim_run(): a week's cut of HEAL_NODES nodes */
void sim_free(struct sim *sim);

/* ---- wire.c: plain structs to bytes and back ---- */
struct bytes wire_pack_send(const struct fleet_send *send, uint64_t epoch);
struct bytes wire_pack_action(const struct sv_action *action);
/* Decodes and calls `deliver` with the event; returns whether it was decodable. */
bool wire_to_fleet(struct bytes bytes, const char *node, uint64_t session,
	void (*deliver)(const struct fleet_event *event, void *user), void *user);
bool wire_to_core(
	struct bytes bytes, void (*deliver)(const struct sv_event *event, void *user), void *user);

/* ---- scheduler.c ---- */
void scheduler_start(struct sim *sim);
/* What the store holds, as events of a start. */
void scheduler_load(struct sim *sim, void (*step)(struct sim *sim, const struct fleet_event *event));
void scheduler_crash(struct sim *sim);
void scheduler_step(struct sim *sim, const struct fleet_event *event);
void scheduler_set_warm(struct sim *sim);
void scheduler_set_warm_snapshot(struct sim *sim, const struct snapshot_record *record); /* in place of the one before */
void scheduler_drain(struct sim *sim, int node); /* or where a client has just seen a warm sandbox */
void scheduler_set_fact(struct sim *sim, int node, enum node_fact fact, bool is_set);
struct sandbox_spec *sim_spec(void); /* of the one template; its size is the caller's */
struct sandbox_spec *sim_warm_spec(void); /* what the warm pool keeps */
void scheduler_message(struct sim *sim, const struct sim_event *event);
void scheduler_tick(struct sim *sim);
void scheduler_commit(struct sim *sim, uint64_t life);
void scheduler_free(struct sim *sim);

/* ---- copy.c ---- */
void copy_plan(struct sim *sim);
void copy_act(struct sim *sim);
void copy_mark(struct sim *sim, const struct fleet_config *config); /* of the first one's start */
bool copy_is_dialled(struct sim *sim, const struct sim_node *node); /* this time, instead of the first */
void copy_message(struct sim *sim, const struct sim_event *event);
void copy_check(struct sim *sim, const struct sim_node *node); /* whom it follows now */
void copy_free(struct sim *sim);

/* ---- lease.c ---- */
bool sim_has_leases(const struct sim *sim);
void lease_set(struct sim *sim, struct sim_node *node, struct vm *vm, const struct sv_lease *lease);
uint64_t lease_left_ms(const struct sim *sim, const struct sim_node *node, const struct vm *vm);
bool lease_is_over(struct sim *sim, struct sim_node *node, struct vm *vm); /* it ends itself now */

/* ---- node.c ---- */
struct moment node_now(const struct sim *sim, const struct sim_node *node);
void node_lease(struct sim *sim, const struct sim_event *event);
void node_start(struct sim *sim, struct sim_node *node);
void node_crash(struct sim *sim, struct sim_node *node);
void node_reboot(struct sim *sim, struct sim_node *node);
void node_connect(struct sim *sim, struct sim_node *node);
void node_disconnect(struct sim *sim, struct sim_node *node);
void node_message(struct sim *sim, const struct sim_event *event);
void node_tick(struct sim *sim, struct sim_node *node);
void node_result(struct sim *sim, const struct sim_event *event);
void node_hurt_vm(struct sim *sim, struct sim_node *node);
void node_free(struct sim_node *node);

/* For the other files that act for a node. */
void node_journal_remove(struct sim_node *node, const char *id);
void node_disk_removed(struct sim *sim, const struct sim_node *node, const char *id);
struct vm *node_vm_by_dir(struct sim_node *node, const char *run_dir);
struct result *node_plan(struct sim *sim, struct sim_node *node, const struct sv_action *action, enum sv_event_type type,
	int64_t in_usec);

/* ---- tear.c ---- */
void tear(struct sim *sim, const struct sv_journal *record); /* the bytes of the record: what is left is refused */
void tear_removed(struct sim *sim, struct sim_node *node);   /* by the operator, with what it is about */

/* ---- sleep.c ---- */
bool sleep_is_whole(const struct truth *truth);
void sleep_guest_runs(struct truth *truth, const struct sim_node *node, struct vm *vm);
void sleep_forget(struct truth *truth, const struct sim_node *node);
void sleep_snapshot_done(
	struct sim *sim, const struct sim_node *node, const struct result *result, const struct vm *vm);
void sleep_killed(struct sim *sim, const struct sim_node *node);
void sleep_check_load(struct sim *sim, const struct sim_node *node, const struct sv_journal *journal);
bool sleep_act(struct sim *sim, struct sim_node *node, const struct sv_action *action); /* whether it was one of these */
void sleep_restore(struct sim *sim, struct sim_node *node, const struct sv_action *action, struct vm *vm);
void sleep_client(struct sim *sim, const char *id);
void sleep_reply(struct sim *sim, const struct client *client, const struct fleet_reply *reply);

/* ---- snaps.c ---- */
void snaps_put(struct sim *sim, const struct snapshot_record *record);
void snaps_delete(struct sim *sim, const char *id);
void snaps_load(struct sim *sim, void (*step)(struct sim *sim, const struct fleet_event *event)); /* into a new fleet */
void snaps_free(struct sim *sim);
bool snaps_act(struct sim *sim, struct sim_node *node, const struct sv_action *action); /* whether it was one of these */
/* The end of such an act, before it is delivered: true when `event` is filled. */
bool snaps_result(struct sim *sim, struct sim_node *node, const struct result *result, struct sv_event *event);
void snaps_check_tenant(struct sim *sim, const char *sandbox, const struct sandbox_spec *spec);
void snaps_restore(struct sim *sim, struct sim_node *node, const struct sv_action *action, struct vm *vm);
void snaps_begin(struct sim *sim, struct sim_node *node, void (*step)(struct sim *, struct sim_node *, const struct sv_event *));
void snaps_client(struct sim *sim, const char *id);
void snaps_delete_all(struct sim *sim);
bool snaps_reply(struct sim *sim, const struct client *client, const struct fleet_reply *reply);
void snaps_check_settled(struct sim *sim);
void snaps_check_end(struct sim *sim);

/* ---- policy.c ---- */
void policy_client(struct sim *sim, const char *id);
void policy_reply(struct sim *sim, const struct client *client);
void policy_check_record(struct sim *sim, const struct sandbox_record *record);
void policy_check_settled(struct sim *sim, const struct sandbox_record *record);
void policy_lie(struct sim *sim, const struct sim_node *node, struct inventory *inventory);

/* ---- client.c ---- */
struct client *client_new(struct sim *sim);
void client_act(struct sim *sim);
void client_create_many(struct sim *sim, int n);
void client_delete(struct sim *sim, const char *id);
void client_reply(struct sim *sim, const struct fleet_reply *reply);
void client_scheduler_died(struct sim *sim);

/* ---- check.c ---- */
void check_step(struct sim *sim);
void check_acked(struct sim *sim);
void check_broken(struct sim *sim, struct sim_node *node, const struct sandbox_report *report);
void check_spawn(struct sim *sim, const struct sim_node *node, const struct vm *vm);
void check_memory(struct sim *sim, const struct sim_node *node);
void check_kill(struct sim *sim, const struct vm *vm);
void check_settled(struct sim *sim);
void check_end(struct sim *sim);
