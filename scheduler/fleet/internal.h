/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of fleet: what its files share. Nobody else includes this.
 *
 * One step: fleet_step() sets now, rng and out; handlers change objects and mark them dirty; flush.c turns
 * dirty objects into records, each key once, and removes what ended. A handler never frees a sandbox.
 */
#pragma once

#include <sys/queue.h>

#include "base/clock.h"
#include "base/plant.h"
#include "base/table.h"
#include "fleet/fleet.h"
#include "fleet/timer.h"
#include "place/place.h"

#define EXCLUDED_MAX 16
#define NOTES_MAX SANDBOX_STAGES_MAX

/* A stage record in short: what a sandbox keeps of each. */
struct note {
	enum fail_stage stage;
	enum outcome outcome;
	uint32_t attempt;
	uint64_t generation;
	int64_t began_us;
	int64_t corrected_us; /* of stage_record */
	int64_t took_us;
	char node[ID_SIZE];
	char operation[ID_SIZE];
	char span_id[SPAN_ID_SIZE];
	char reason[STAGE_REASON_MAX];
	struct err *failure; /* NULL: none */
};

enum timer_kind {
	TIMER_DEADLINE, TIMER_RESEND, TIMER_LIVE, TIMER_BUSY, TIMER_DRAIN, TIMER_REPLACE, TIMER_QUEUE, TIMER_PROBE,
	TIMER_WARM, TIMER_SNAPSHOT_DEADLINE, TIMER_SNAPSHOT_RESEND
};

enum waiter_kind { WAITS_CREATE, WAITS_UPDATE, WAITS_SLEEP, WAITS_SNAPSHOT };

/* A request of the API that was not answered yet. */
struct waiter {
	uint64_t request;
	enum waiter_kind kind;
	struct sandbox *sandbox;
	struct snapshot *snapshot; /* WAITS_SNAPSHOT */
	TAILQ_ENTRY(waiter) in_sleepers; /* WAITS_SLEEP */
	UT_hash_handle hh;
};

/* A change of a sandbox that runs, until its node says that it was done. */
struct update {
	bool pending;
	char operation[ID_SIZE];
	uint64_t number; /* of this leader's changes, below its epoch */
	uint32_t timeout_s;
	struct sandbox_spec *spec; /* with another network policy or budget; NULL: it is the life time that changes */
	bool is_budget;
	uint64_t request; /* 0: nobody waits */
	int64_t until_usec;
};

struct sandbox {
	struct sandbox_record record; /* stages stay NULL: they are in notes */
	struct note *notes;
	size_t n_notes, notes_room;
	struct node *node;                   /* the same as record.node; NULL: none */
	bool reserved;                       /* room on node */
	bool start_slot;                     /* and a start */
	char refused[EXCLUDED_MAX][ID_SIZE]; /* nodes that refused for capacity, of this request */
	size_t n_refused;
	uint32_t refusals;
	char refusals_text[ERR_VALUE_MAX];
	char kept_on[ID_SIZE]; /* node that keeps what the attempt before made; "": none */
	int64_t kept_until_usec;
	uint64_t request;         /* of the create; 0: answered or nobody waits */
	int64_t since_usec;       /* this state */
	int64_t queue_until_usec; /* for room, not only for a start slot */
	uint64_t
		accepted_session; /* in which the node accepted, or last mentioned, this generation */
	uint32_t resends;         /* of the command under way */
	struct timer deadline;
	struct timer resend;
	struct update update;
	TAILQ_HEAD(, waiter) sleepers; /* who waits for its pause or resume */
	uint64_t sleep_number; /* of that, as update.number; 0: a former leader asked */
	bool is_unreadable; /* at its node, where it takes room whatever becomes of it here */
	bool network_differs, budget_differs; /* at its node, from what is recorded; or that is not known */
	uint64_t differed; /* the generation of which an event says so; 0: none */
	uint64_t placed_batch; /* its reservation is durable with this one; 0: it is, or there is none */
	bool queued, dirty, is_new, is_counted, is_counted_paused;
	struct snapshot *snapshot; /* that is being made of it; NULL: none */
	struct node *origin; /* that keeps the snapshot as which it begins; NULL: it boots */
	struct warm *warm; /* of which it is one; NULL: of none */
	bool is_warm_ready;
	bool is_leaving; /* its room is still taken: coming.c */
	TAILQ_ENTRY(sandbox) in_all, in_node, in_queue, in_dirty, in_placed, in_warm, in_leaving;
	UT_hash_handle hh;
};
TAILQ_HEAD(sandbox_list, sandbox);

/* snapshot.c */
struct snapshot {
	struct snapshot_record record;
	struct node *node;       /* that keeps it; NULL: it was removed */
	struct sandbox *sandbox; /* of which it is being made; NULL: it is not */
	uint64_t request;        /* 0: nobody waits */
	uint64_t number;         /* of the command, as update.number; 0: it was not sent by this leader */
	uint64_t seen_session;   /* in which its node spoke of it last */
	int64_t until_usec;      /* MAKING: it is given up then */
	struct fleet_quota quota; /* of the tenant, for the sandboxes of a fork */
	struct err *fork_errs;   /* one each of record.forks; NULL: nobody waits */
	size_t n_starting;       /* sandboxes on their way that begin as it */
	uint64_t counted_mib;    /* of its tenant's disk */
	uint64_t node_mib;       /* of its node's */
	uint64_t freezing_mib;   /* of its node's memory; 0: it goes by files, or its node says what it froze */
	uint32_t resends;
	struct timer deadline, resend;
	bool dirty, is_new, is_counted, is_held;
	TAILQ_ENTRY(snapshot) in_all, in_node, in_dirty;
	UT_hash_handle hh;
};
TAILQ_HEAD(snapshot_list, snapshot);

/* A warm pool: warm.c. */
struct warm {
	char pool[ID_NAME_MAX + 1], name[ID_NAME_MAX + 1];
	struct sandbox_spec *spec;
	uint32_t target, max_starts;
	int64_t max_age_usec;
	uint32_t n_ready, n_starting;
	struct sandbox_list ready; /* the oldest first */
	int64_t next_usec, pause_usec; /* after one that found no room */
	TAILQ_ENTRY(warm) in_all;
};

/* What a tenant has: quota.c. */
struct tenant_use {
	char tenant[ID_NAME_MAX + 1];
	struct fleet_quota used; /* starts_per_minute is not counted here */
	int64_t owed_usec, owed_at_usec; /* the bucket of starts */
	UT_hash_handle hh;
};

struct collected {
	char sandbox[ID_SIZE];
	UT_hash_handle hh;
};

/* A pool as the fleet needs it; its room is in place. */
struct pool_policy {
	char name[ID_NAME_MAX + 1];
	bool on_loss;
	int64_t lost_after_usec; /* 0: the fleet's */
	int64_t self_stop_after_usec;
	int64_t next_usec; /* while the brakes hold: no node is replaced before */
	UT_hash_handle hh;
};

struct node {
	/* What every heartbeat touches: together, and beside record.lease_ms, for each cache line of a fleet's is a miss. */
	uint64_t session; /* 0: not connected */
	int64_t heard_usec;    /* monotonic; at the start: the start */
	int64_t heard_real_us; /* 0: never */
	struct pool_policy *policy; /* NULL: a pool that nobody told of */
	enum node_link link;
	struct node_record record;
	struct timer drain;
	bool pauses; /* this session's agent knows pause and resume */
	bool snapshots_are_known; /* and snapshots */
	char takes_for[ID_NAME_MAX + 1]; /* an operator's word of this process alone: a restored store must not have it */
	int64_t takes_until_us;
	uint64_t greeting; /* of this session: an inventory that names another was made for another scheduler */
	char instance[ID_SIZE];
	char boot_id[BOOT_ID_SIZE];
	struct err unschedulable;
	struct place_node *place;
	struct sandbox_list sandboxes;
	struct snapshot_list snapshots;
	uint64_t snapshots_mib; /* that they take */
	uint64_t freezing_mib;  /* memory, that forks under way may freeze */
	uint64_t settling_mib;  /* and that those did which its capacity does not speak of yet */
	size_t n_images;
	struct space_list space; /* of its disk, MiB */
	int64_t busy_until_usec;
	int64_t busy_usec; /* the next back-off */
	uint64_t foreign_memory_mib, foreign_disk_mib;
	uint32_t foreign_vcpus, foreign_sandboxes;
	bool is_known; /* its whole inventory was taken in this session: only then is its free room known */
	/* inventory being collected */
	uint64_t inventory;
	uint32_t next_part;
	bool collecting;
	struct collected *collected;
	uint64_t counted_memory_mib, counted_disk_mib;
	uint32_t counted_vcpus, counted_sandboxes;
	struct timer live; /* link state */
	struct timer busy;
	struct timer probe; /* of a quarantine: its next canary */
	int64_t probe_usec; /* the next back-off */
	uint32_t wrong_reports; /* about other nodes' sandboxes, since this scheduler started */
	bool dirty;
	TAILQ_ENTRY(node) in_all, in_dirty;
	UT_hash_handle hh;
};
TAILQ_HEAD(node_list, node);

/* An image that started, and on which two nodes it did last. */
struct proof {
	struct node_image_id image;
	char nodes[2][ID_SIZE];
	UT_hash_handle hh;
};

struct held_reply {
	uint64_t request;
	struct err err;
	struct sandbox *sandbox;
	struct snapshot *snapshot;
};

struct fleet {
	struct fleet_config config;
	struct place *place;
	struct node *nodes;
	struct node_list all_nodes;
	struct sandbox *sandboxes;
	struct sandbox_list placed; /* whose placement waits for its commit, in order of batches */
	struct sandbox_list leaving; /* the room of which comes free */
	struct sandbox_list all_sandboxes, dirty_sandboxes;
	struct snapshot *snapshots;
	struct snapshot_list all_snapshots, dirty_snapshots;
	struct sandbox_list late; /* of a planted fault: flush.c */
	struct tenant_queue *queues; /* who waits for room: queue.c */
	struct tenant_weight *weights; /* other than 1 */
	uint64_t queue_pass, queue_run;
	struct node_list dirty_nodes;
	struct waiter *waiters;
	struct tenant_use *uses;
	struct proof *proofs;
	struct timers timers;
	struct timer queue_timer, replace_timer, warm_timer;
	TAILQ_HEAD(, warm) warms;
	struct pool_policy *pools;
	struct fleet_counts counts;
	bool loaded, failed;
	bool is_tight; /* the store: nothing is begun that nobody asked for */
	bool kicked; /* room may have come free */
	size_t n_unknown; /* nodes that are connected and have not said yet what is there */
	int64_t started_usec;
	uint64_t batch;
	uint64_t updates; /* changes of sandboxes that were asked for since the start */
	/* of the step */
	struct moment now;
	struct rng *rng;
	struct fleet_actions *out;
	struct held_reply *replies;
	size_t n_replies, replies_room;
};

/* ---- emit.c: actions ---- */
struct fleet_send *fleet_emit_send(
	struct fleet *fleet, const struct node *node, enum fleet_send_type type);
void fleet_emit_refused(
	struct fleet *fleet, const char *node, uint64_t session, const struct err *err);
/* `err` NULL: done; `sandbox` NULL: none. */
void fleet_emit_reply(
	struct fleet *fleet, uint64_t request, const struct err *err, struct sandbox *sandbox);
void fleet_emit_notice(
	struct fleet *fleet, const struct err *err, const char *node, const char *sandbox);
void fleet_emit_stage(struct fleet *fleet, const struct sandbox *sandbox, const struct note *note);
void fleet_emit_put_node(struct fleet *fleet, const struct node *node);
void fleet_emit_put_sandbox(
	struct fleet *fleet, const struct sandbox *sandbox, enum fleet_record_type type);
void fleet_emit_delete_sandbox(struct fleet *fleet, const char *id);
void fleet_emit_snapshot_reply(struct fleet *fleet, uint64_t request, const struct err *err, struct snapshot *snapshot);
void fleet_emit_put_snapshot(struct fleet *fleet, const struct snapshot *snapshot);
void fleet_emit_delete_snapshot(struct fleet *fleet, const char *id);
void fleet_emit_claim(struct fleet *fleet, const char *id);
void fleet_emit_delete_claim(struct fleet *fleet, const char *id);
/* The record with its stages; 0 or -ENOMEM. */
int fleet_sandbox_export(const struct sandbox *sandbox, struct sandbox_record *ret);

/* ---- sandbox.c: objects and the mover ---- */
struct sandbox *fleet_sandbox_find(const struct fleet *fleet, const char *id);
/* Takes over `record`'s contents on success. */
struct sandbox *fleet_sandbox_add(struct fleet *fleet, struct sandbox_record *record);
void fleet_sandbox_remove(struct fleet *fleet, struct sandbox *sandbox);
void fleet_sandbox_dirty(struct fleet *fleet, struct sandbox *sandbox);
void fleet_sandbox_move(struct fleet *fleet, struct sandbox *sandbox, enum sandbox_state state);
void fleet_sandbox_arm(
	struct fleet *fleet, struct sandbox *sandbox); /* the deadline of its state, from now */
void fleet_sandbox_attach(struct fleet *fleet, struct sandbox *sandbox, struct node *node);
void fleet_sandbox_detach(struct fleet *fleet, struct sandbox *sandbox);
void fleet_sandbox_reserve(struct fleet *fleet, struct sandbox *sandbox, bool starting);
void fleet_sandbox_release(struct fleet *fleet, struct sandbox *sandbox);
/* Of its room all but the disk's is given back, and taken again. Idempotent. */
void fleet_sandbox_sleep(struct fleet *fleet, struct sandbox *sandbox);
void fleet_sandbox_wake(struct fleet *fleet, struct sandbox *sandbox);
bool fleet_is_sleeping(enum sandbox_state state); /* PAUSING, PAUSED, RESUMING */
void fleet_sandbox_demand(const struct sandbox *sandbox, struct place_demand *ret);
void fleet_sandbox_demand_add(const struct sandbox *sandbox, struct place_demand *sum); /* its room to others' */
/* A zeroed slot at the end, NULL without memory. */
struct note *fleet_sandbox_note_slot(struct sandbox *sandbox);
struct note *fleet_sandbox_note_import(struct sandbox *sandbox, const struct stage_record *from);
/* Records one of our own stages and emits it. */
void fleet_sandbox_note(struct fleet *fleet, struct sandbox *sandbox, enum fail_stage stage,
	enum outcome outcome, int64_t began_us, int64_t took_us, const struct err *failure);
bool fleet_sandbox_was_on(const struct sandbox *sandbox, const char *node, uint64_t generation);
bool fleet_sandbox_has_vm(enum sandbox_state state); /* a node may hold a VM of it */

/* ---- start.c: placing, sending, failing ---- */
void fleet_start_place(struct fleet *fleet, struct sandbox *sandbox);
/* Up to `batch` all is durable: what was placed there is placed now, and on its way. */
void fleet_start_committed(struct fleet *fleet, uint64_t batch);
void fleet_start_unplaced(struct fleet *fleet, struct sandbox *sandbox); /* leaves `placed` */
void fleet_start_accepted(struct fleet *fleet, struct sandbox *sandbox);
void fleet_start_ready(struct fleet *fleet, struct sandbox *sandbox);
/* The node said that this generation is gone (or was never taken): `err` decides what follows. */
void fleet_start_failed(struct fleet *fleet, struct sandbox *sandbox, const struct err *err);
void fleet_start_recall(struct fleet *fleet, struct sandbox *sandbox, const struct err *err);
void fleet_sandbox_end(struct fleet *fleet, struct sandbox *sandbox, enum end_reason reason,
	const struct err *failure);
void fleet_sandbox_fence(struct fleet *fleet, struct sandbox *sandbox);
void fleet_sandbox_command(struct fleet *fleet,
	struct sandbox *sandbox); /* sends what its state wants, and arms the resend */
void fleet_sandbox_command_later(struct fleet *fleet, struct sandbox *sandbox); /* after the longest pause between two */
void fleet_sandbox_on_deadline(struct fleet *fleet, struct sandbox *sandbox);
void fleet_sandbox_on_resend(struct fleet *fleet, struct sandbox *sandbox);

/* Places it if there is room now; else false, and nothing has happened. */
bool fleet_start_try(struct fleet *fleet, struct sandbox *sandbox);
/* A warm VM, where it is, becomes this sandbox. */
void fleet_start_taken(struct fleet *fleet, struct sandbox *sandbox);
/* Places it there and nowhere else, whatever is said against the node. */
void fleet_start_on(struct fleet *fleet, struct sandbox *sandbox, struct node *node);

/* ---- queue.c ---- */
void fleet_queue_add(struct fleet *fleet, struct sandbox *sandbox);
void fleet_queue_leave(struct fleet *fleet, struct sandbox *sandbox);
bool fleet_queue_has_room(const struct fleet *fleet, const char *tenant);
bool fleet_queue_is_empty(const struct fleet *fleet);
void fleet_queue_run(struct fleet *fleet);
void fleet_queue_free(struct fleet *fleet);
int fleet_tenant_set_weight(struct fleet *fleet, const char *tenant, uint32_t weight);

/* ---- coming.c ---- */
void fleet_coming_count(struct fleet *fleet, struct sandbox *sandbox);
/* Whether it is worth a moment's wait although nothing fits now. */
bool fleet_coming_room(const struct fleet *fleet, const struct sandbox *sandbox, const struct place_demand *demand);

/* ---- learn.c ---- */
bool fleet_sandbox_is_canary(const struct sandbox *sandbox);
void fleet_learn_node_init(struct node *node);
void fleet_learn_loaded(struct fleet *fleet);
void fleet_learn_forget(struct fleet *fleet); /* frees the proofs */
void fleet_learn_failed(struct fleet *fleet, struct sandbox *sandbox, const struct err *err);
void fleet_learn_ready(struct fleet *fleet, struct sandbox *sandbox);
void fleet_learn_pardoned(struct fleet *fleet, struct node *node);
/* It speaks about what is not its own, again and again: nothing more goes there until a probe shows it well. */
void fleet_learn_wrong(struct fleet *fleet, struct node *node);
void fleet_learn_on_probe(struct fleet *fleet, struct node *node);
/* A canary ended, in whatever way. */
void fleet_learn_probe_over(struct fleet *fleet, struct node *node);
uint32_t fleet_learn_max_starts(const struct node *node);
uint32_t fleet_learn_ill_permille(const struct node *node);

/* ---- report.c ---- */
void fleet_report_apply(
	struct fleet *fleet, struct node *node, const struct sandbox_report *report);
void fleet_inventory_apply(
	struct fleet *fleet, struct node *node, const struct inventory *inventory);
void fleet_inventory_forget(struct node *node);

/* ---- node.c ---- */
struct node *fleet_node_find(const struct fleet *fleet, const char *id);
int fleet_node_add(struct fleet *fleet, const struct node_record *record);
void fleet_node_free_all(struct fleet *fleet);
void fleet_node_dirty(struct fleet *fleet, struct node *node);
void fleet_node_update_place(struct fleet *fleet, struct node *node);
void fleet_node_known(struct fleet *fleet, struct node *node); /* its whole inventory was taken */
void fleet_node_hello(struct fleet *fleet, const struct fleet_event *event);
/* The node if the event's session is its current one; else NULL, counted and answered. */
struct node *fleet_node_of_session(struct fleet *fleet, const struct fleet_event *event);
void fleet_node_heard(struct fleet *fleet, struct node *node);
void fleet_node_capacity_report(
	struct fleet *fleet, struct node *node, const struct capacity_report *report);
void fleet_node_disconnected(struct fleet *fleet, struct node *node);
void fleet_node_revoke(struct fleet *fleet, struct node *node, bool is_reimaged);
void fleet_node_set_fact(struct fleet *fleet, struct node *node, const struct fleet_event *event);
void fleet_node_on_live(struct fleet *fleet, struct node *node);
void fleet_node_refused(struct fleet *fleet, struct node *node);
void fleet_node_started(struct fleet *fleet, struct node *node);
void fleet_node_on_busy(struct fleet *fleet, struct node *node);
void fleet_node_stall(struct fleet *fleet, int64_t stall_usec);

/* ---- request.c ---- */
void fleet_request_create(struct fleet *fleet, const struct fleet_create *create);
/* The same without the reply when it is refused: NULL, with `reterr`. */
struct sandbox *fleet_create(struct fleet *fleet, const struct fleet_create *create, struct err *reterr);
void fleet_request_destroy(
	struct fleet *fleet, uint64_t request, const char *id, enum end_reason reason);
void fleet_request_set_timeout(
	struct fleet *fleet, uint64_t request, const char *id, uint32_t timeout_s);
void fleet_request_set_budget(struct fleet *fleet, uint64_t request, const char *id, const struct budget *budget);
void fleet_request_set_network(
	struct fleet *fleet, uint64_t request, const char *id, const struct net_policy *network);
/* A node may hold a VM of it: it is told to end it. */
void fleet_sandbox_stop(struct fleet *fleet, struct sandbox *sandbox, enum end_reason reason);
void fleet_request_forget(struct fleet *fleet, uint64_t request);
uint64_t fleet_change_number(struct fleet *fleet); /* higher than all before, of former leaders too */
void fleet_request_update_done(struct fleet *fleet, struct sandbox *sandbox, const struct err *err);
void fleet_request_update_drop(struct fleet *fleet, struct sandbox *sandbox, const struct err *err); /* its node did not answer */
/* A change that its node is yet to be told. Takes the specification. */
void fleet_request_change(struct fleet *fleet, struct sandbox *sandbox, uint64_t request, uint32_t timeout_s,
	struct sandbox_spec *spec, bool is_budget);
/* differ.c */
void fleet_differ_compare(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report);
/* Tells the node again what is recorded, if it differs; not `at_once`: after the longest pause between two commands. */
void fleet_differ_correct(struct fleet *fleet, struct sandbox *sandbox, bool at_once);
bool fleet_waiter_add(
	struct fleet *fleet, uint64_t request, enum waiter_kind kind, struct sandbox *sandbox);
bool fleet_waiter_add_snapshot(struct fleet *fleet, uint64_t request, struct snapshot *snapshot);
void fleet_waiter_remove(struct fleet *fleet, uint64_t request);

/* ---- sleep.c ---- */
void fleet_request_pause(struct fleet *fleet, uint64_t request, const char *id, const struct fleet_quota *quota);
void fleet_request_resume(struct fleet *fleet, const struct fleet_resume *request);
/* The node says PAUSED; in any state. */
void fleet_sleep_paused(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report);
/* The node says RUNNING; PAUSING, PAUSED and RESUMING. */
void fleet_sleep_running(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report);
void fleet_sleep_deadline(struct fleet *fleet, struct sandbox *sandbox);
/* Whoever waits for its pause or resume. */
void fleet_sleep_answer(struct fleet *fleet, struct sandbox *sandbox, const struct err *err);

/* ---- snapshot.c ---- */
struct snapshot *fleet_snapshot_find(const struct fleet *fleet, const char *id);
/* Takes over `record`'s contents on success. */
struct snapshot *fleet_snapshot_add(struct fleet *fleet, struct snapshot_record *record);
void fleet_snapshot_remove(struct fleet *fleet, struct snapshot *snapshot);
void fleet_snapshot_dirty(struct fleet *fleet, struct snapshot *snapshot);
void fleet_snapshot_move(struct fleet *fleet, struct snapshot *snapshot, enum snapshot_state state);
void fleet_snapshot_attach(struct fleet *fleet, struct snapshot *snapshot, struct node *node);
void fleet_snapshot_loaded(struct fleet *fleet, struct snapshot *snapshot); /* its deadline, from now */
void fleet_request_snapshot(struct fleet *fleet, const struct fleet_snapshot *request);
void fleet_request_drop_snapshot(struct fleet *fleet, uint64_t request, const char *id);
/* Sends what its state wants, and arms the resend. */
void fleet_snapshot_command(struct fleet *fleet, struct snapshot *snapshot);
void fleet_snapshot_on_deadline(struct fleet *fleet, struct snapshot *snapshot);
void fleet_snapshot_on_resend(struct fleet *fleet, struct snapshot *snapshot);
/* Whether a node was asked for one of it and has not answered: no other change of it is sent meanwhile. */
bool fleet_snapshot_is_sent(const struct sandbox *sandbox);
/* Its node says what it has: in a report or in an inventory. */
void fleet_snapshot_made(struct fleet *fleet, struct snapshot *snapshot, const struct snapshot_info *info);
/* It will not be: whoever waits is told, and nothing of it is on its node. */
void fleet_snapshot_failed(struct fleet *fleet, struct snapshot *snapshot, const struct err *err);
/* It is of no use any more when it is there. */
void fleet_snapshot_give_up(struct fleet *fleet, struct snapshot *snapshot, const struct err *err);
void fleet_snapshot_answer(struct fleet *fleet, struct snapshot *snapshot, const struct err *err);

/* ---- snapshot-node.c ---- */
void fleet_snapshot_load(struct fleet *fleet, const struct snapshot_record *from, const struct fleet_quota *quota);
void fleet_snapshots_loaded(struct fleet *fleet);
void fleet_node_take(struct fleet *fleet, struct node *node, const char *tenant);
/* Whose become the snapshots there that nobody knows; "": nobody's, and the node drops them. */
const char *fleet_node_takes_for(const struct fleet *fleet, const struct node *node);
void fleet_snapshot_reported(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report);
/* The sandbox leaves its node, or sleeps: nothing more is made of it there. `code` says which. */
void fleet_snapshot_orphan(struct fleet *fleet, struct sandbox *sandbox, enum fail_code code);
void fleet_snapshot_dropped(struct fleet *fleet, struct node *node, const char *id);
void fleet_snapshots_seen(struct fleet *fleet, struct node *node, const struct inventory *inventory);
/* The whole inventory was seen. */
void fleet_snapshots_settle(struct fleet *fleet, struct node *node);
void fleet_snapshots_node_lost(struct fleet *fleet, struct node *node);
void fleet_snapshots_node_removed(struct fleet *fleet, struct node *node);
void fleet_snapshots_disconnected(struct fleet *fleet, struct node *node);
/* Whether the sandbox, which begins as a snapshot, may be placed now: its node is found. 0, or -1 with `reterr`. */
int fleet_snapshot_resolve(struct fleet *fleet, struct sandbox *sandbox, struct err *reterr);
/* It is there, and this tenant's (NULL: whoever's). */
bool fleet_snapshot_may_be_begun(const struct fleet *fleet, const char *id, const char *tenant);

/* ---- fork.c ---- */
int fleet_fork_prepare(
	struct snapshot *snapshot, const struct sandbox *parent, const struct fleet_snapshot *request); /* 0 or -ENOMEM */
/* Its snapshot is there. */
void fleet_fork_begin(struct fleet *fleet, struct snapshot *snapshot);
void fleet_fork_check(struct fleet *fleet, struct snapshot *snapshot); /* are all of its sandboxes through? */
/* A sandbox that begins as a snapshot is on its way, and no longer. */
void fleet_fork_enter(struct fleet *fleet, const struct sandbox *sandbox);
void fleet_fork_leave(struct fleet *fleet, const struct sandbox *sandbox, enum sandbox_state from);

/* ---- adopt.c ---- */
/* The store was restored since this node's inventory was last settled: what only the node knows is adopted. */
bool fleet_node_is_unsettled(const struct fleet *fleet, const struct node *node);
void fleet_adopt(struct fleet *fleet, struct node *node, const struct sandbox_report *report);
void fleet_node_settle(struct fleet *fleet, struct node *node); /* its whole inventory was seen */

/* ---- drain.c ---- */
void fleet_sandbox_event(
	struct fleet *fleet, struct sandbox *sandbox, const char *name, const char *detail);
void fleet_drain_begin(struct fleet *fleet, struct node *node);
void fleet_drain_arm(struct fleet *fleet, struct node *node); /* as its record says */
void fleet_drain_on_deadline(struct fleet *fleet, struct node *node);

/* ---- replace.c ---- */
struct pool_policy *fleet_pool_find(const struct fleet *fleet, const char *name);
void fleet_pool_set(struct fleet *fleet, const struct pool_record *record);
void fleet_pools_free(struct fleet *fleet);
int64_t fleet_node_lost_after(const struct fleet *fleet, const struct node *node);
uint32_t fleet_node_lease_ms(const struct node *node); /* 0: none is wanted */
void fleet_lease_grant(struct fleet *fleet, struct node *node, const struct heartbeat *heartbeat);
void fleet_replace_run(struct fleet *fleet); /* a node was lost, or the brakes may let go */

/* ---- quota.c ---- */
void fleet_quota_free(struct fleet *fleet);
void fleet_quota_count(struct fleet *fleet, struct sandbox *sandbox);
void fleet_quota_leave(struct fleet *fleet, struct sandbox *sandbox); /* its tenant changes */
void fleet_quota_start(struct fleet *fleet, const char *tenant, const struct fleet_quota *quota);
/* Counts or uncounts a snapshot, as its state and size say. Idempotent. */
void fleet_quota_count_snapshot(struct fleet *fleet, struct snapshot *snapshot);
uint64_t fleet_quota_kept_mib(const struct sandbox_spec *spec); /* that one which sleeps, or a snapshot, may take */
/* Whether one more may be kept, which takes about `disk_mib`. 0, or -1 with QUOTA_EXCEEDED. */
int fleet_quota_check_pause(const struct fleet *fleet, const char *tenant, const struct fleet_quota *quota, uint64_t disk_mib,
	struct err *reterr);
int fleet_quota_check_snapshot(const struct fleet *fleet, const char *tenant, const struct fleet_quota *quota,
	uint64_t disk_mib, struct err *reterr);

/* ---- warm.c ---- */
bool fleet_sandbox_is_warm(const struct sandbox *sandbox);
bool fleet_sandbox_is_taking(const struct sandbox *sandbox); /* its node may still have the warm generation */
void fleet_warm_set(struct fleet *fleet, const struct warm_record *record);
void fleet_warm_free(struct fleet *fleet);
void fleet_warm_count(struct fleet *fleet, struct sandbox *sandbox);
void fleet_warm_leave(struct sandbox *sandbox);
void fleet_warm_run(struct fleet *fleet);
void fleet_warm_snapshot_moved(struct fleet *fleet, const char *id);
void fleet_warm_loaded(struct fleet *fleet);
void fleet_warm_give_up(struct fleet *fleet, struct node *node);
struct sandbox *fleet_warm_claim(
	struct fleet *fleet, const struct fleet_create *create, struct err *reterr);
bool fleet_warm_yield(
	struct fleet *fleet, struct sandbox *sandbox, const struct place_demand *demand);

/* ---- flush.c ---- */
void fleet_flush(struct fleet *fleet);
