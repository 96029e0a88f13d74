/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the node's core: what its files share. Nobody else includes this.
 */
#pragma once

#include <sys/queue.h>

#include "base/clock.h"
#include "base/plant.h"
#include "base/table.h"
#include "core/reconcile.h"
#include "core/supervisor.h"

#define NEVER INT64_MAX
/* Reports that a crash may have left unjournalled: versions go on behind them. */
#define VERSION_GAP 1000
#define HEARTBEATS_KEPT 64 /* a grant that answers an older one is of no use */

/* Which journal write must not fail, and what it means when it does. */
enum sv_write { SV_WRITE_NONE, SV_WRITE_ACCEPT, SV_WRITE_START, SV_WRITE_READY, SV_WRITE_UPDATE, SV_WRITE_BUDGET, SV_WRITE_NETWORK,
	SV_WRITE_PAUSE, SV_WRITE_WAKE, SV_WRITE_SNAPSHOT };

/* What one generation of a sandbox used (usage.c). It outlives the sandbox. */
struct sv_account {
	struct meter meter;
	struct usage_record pending, saved; /* being written; durable. Version 0: neither */
	uint64_t acked_version, sent_version;
	uint64_t sent_in; /* number of the report that had it last */
	int64_t sent_usec;
	TAILQ_ENTRY(sv_account) in_order;
};

struct sv_sandbox {
	struct sv_journal journal; /* its truth; report_version rises with each report's content */
	bool is_bad;               /* its journal is torn: left alone */
	int64_t deadline_usec;     /* of the state; NEVER: none */
	int64_t report_due_usec;   /* NEVER: acknowledged */
	int64_t report_pause_usec;
	int64_t stage_began_us;   /* wall clock, of the stage under way */
	int64_t stage_began_usec; /* monotonic */
	int64_t ending_usec;      /* when the teardown began */
	uint64_t listed_in;       /* number of the last inventory that had it */
	enum sv_write last_write; /* the last that was not best effort */
	uint32_t removals;        /* tries */
	bool is_jailed;  /* the VMM said what of its jail was applied */
	bool vmm_seen;   /* spawned in this life of the agent, or may be there from a former one */
	bool hello_seen; /* croft-guest's, before the configuration */
	bool accepting;  /* the accept is being journalled: nobody was told of it yet */
	bool opening;    /* that it is ready is being journalled: likewise */
	struct sandbox_spec *former_spec;    /* with the network policy in force, while another is being set; NULL: none is */
	char network_operation[ID_SIZE];     /* that asked for it */
	uint64_t took;                       /* generation from which the VM was taken over; 0: it is its own */
	struct err update_failure;           /* of journal.updated */
	int64_t former_life_end_us;          /* as journal.life_end_mono_us, should the one that is being journalled not be */
	bool awaits_network;      /* warm: its new owner's policy is being set */
	char sleep_operation[ID_SIZE]; /* of the pause or resume under way; "": its own, or a former agent's */
	struct err sleep_failure;      /* why it is undone */
	uint32_t auto_pauses;          /* tries at the end of its life */
	/* of the snapshot under way (snapshot.c) */
	bool is_taking, is_thawing, is_keeping; /* what is waited for */
	bool is_stuck;                /* it does not thaw */
	int64_t snapshot_deadline_usec; /* of the steps above; NEVER: none */
	struct err snapshot_failure;
	bool awaits_thaw;         /* of a start from a snapshot: it has its new identity */
	bool is_own_start;        /* under way since before its disk was made, in this life of the agent */
	bool keeps;               /* its start failed; the next attempt may have its disk */
	bool is_resumed;          /* its disk was made by the attempt before */
	enum sv_state failed_in;  /* of that attempt */
	bool awaits_lease;        /* confined, and not started before there is a lease for it */
	int64_t lease_until_usec; /* boot time: its VM has ended itself then; 0: it has no lease */
	struct sv_account *account; /* NULL: none is open */
	int64_t budget_deadline_usec; /* it is looked at then; NEVER: only with a reading, or not at all */
	struct budget former_budget;  /* should the one that is being journalled not be */
	uint32_t budget_pauses;       /* tries to pause it over its budget */
	UT_hash_handle hh;
};

/* An end without a tombstone: refused creates and destroys of what never came. In memory only: after a restart
 * of the agent the connection is new, and nothing old can come over it. */
struct sv_grave {
	char sandbox[ID_SIZE];
	uint64_t generation;
	enum end_reason reason;
	struct err *refusal; /* NULL: it ended */
	TAILQ_ENTRY(sv_grave) in_age;
	UT_hash_handle hh;
};

enum sv_canary_state { CANARY_IDLE, CANARY_NETWORK, CANARY_SPAWN, CANARY_BOOT, CANARY_KILLING, CANARY_REMOVING };

struct sv_canary {
	enum sv_canary_state state;
	int64_t deadline_usec; /* of the state; IDLE: when the next is due */
	int64_t began_usec;
	int64_t patience_usec; /* of its lease */
	uint64_t number;       /* of the one under way, as its generation */
	struct sv_vmm_id vmm;
	struct err verdict;    /* FAIL_NONE: the last one booted */
	bool is_before;        /* what is cleared away is a former one's */
	bool has_failed;       /* the one under way */
	bool is_doubted;       /* the last one failed, and that decides nothing until the next does too */
	bool is_news;          /* the verdict is another, and not told yet */
	uint32_t tries;        /* of a removal */
};

/* Durable, or a fork's own in the agent's memory, and on the node's list. */
struct sv_snapshot {
	struct snapshot_info info;
	uint64_t listed_in; /* number of the last inventory that had it */
	bool is_dropping;   /* it is off the list */
	struct sv_frozen_list frozen; /* of one in memory */
	UT_hash_handle hh;
};

struct supervisor {
	struct sv_config config;
	struct sv_sandbox *sandboxes;
	struct sv_snapshot *snapshots;
	struct sv_grave *graves;
	TAILQ_HEAD(, sv_grave) graves_by_age;
	uint32_t n_graves;
	struct reconcile *reconcile;
	/* usage */
	TAILQ_HEAD(, sv_account) accounts; /* oldest first */
	size_t n_over;
	uint64_t n_usage_dropped; /* that the scheduler never had */
	bool takes_usage;         /* the scheduler */
	uint64_t usage_number;    /* of the last report */
	int64_t usage_due_usec, usage_sent_usec;
	struct sv_counts counts;
	struct err unreadable; /* the whole state directory */
	struct err owner_drain; /* FAIL_NONE: its owner drains it not */
	int64_t owner_deadline_usec; /* when what runs is ended for it */
	bool started;
	/* host */
	struct sv_capacity capacity;
	struct space_list space, space_told; /* MiB */
	bool has_capacity;
	bool capacity_changed;
	int64_t capacity_sent_usec;
	/* session */
	bool link_up;
	bool welcomed;
	char node[ID_SIZE];
	uint64_t highest_epoch;
	struct leader_mark leader; /* who had it */
	int64_t heartbeat_usec;
	int64_t hello_due_usec, heartbeat_due_usec, inventory_due_usec;
	uint64_t inventory; /* number of the last one */
	uint64_t greeting;  /* of the last welcome */
	bool inventory_answered;
	/* leases */
	bool was_welcomed; /* by somebody, in this life: what the pool wants is known */
	uint32_t lease_ms; /* that the pool wants; 0: none */
	uint64_t heartbeat;         /* number of the last one */
	uint64_t leased_heartbeat;  /* that the last grant answered */
	int64_t heartbeat_sent_usec[HEARTBEATS_KEPT]; /* boot time, by number */
	int64_t lease_until_usec;   /* boot time, of the last grant */
	struct sv_canary canary;
	/* of the step */
	struct moment now;
	struct rng *rng;
	struct sv_actions *out;
};

/* ---- emit.c ---- */
/* A zeroed action at the end, of the node when `sandbox` is NULL; NULL without memory. */
struct sv_action *sv_emit(
	struct supervisor *sv, enum sv_action_type type, const struct sv_sandbox *sandbox);
void sv_emit_spec(
	struct supervisor *sv, enum sv_action_type type, const struct sv_sandbox *sandbox);
void sv_emit_vmm(struct supervisor *sv, enum sv_action_type type, const struct sv_sandbox *sandbox);
void sv_emit_route(struct supervisor *sv, const struct sv_sandbox *sandbox, bool ready);
/* SV_WRITE_NONE: best effort. */
void sv_emit_journal(struct supervisor *sv, struct sv_sandbox *sandbox, enum sv_write write);
/* Returns it, NULL without memory. */
struct sv_action *sv_emit_event(struct supervisor *sv, const char *name, const struct sv_sandbox *sandbox,
	const struct err *err);

/* ---- sandbox.c: the object, the mover, stages ---- */
struct sv_sandbox *sv_sandbox_find(const struct supervisor *sv, const char *id);
struct sv_sandbox *sv_sandbox_add(struct supervisor *sv, const char *id);
void sv_sandbox_remove(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_sandbox_move(struct supervisor *sv, struct sv_sandbox *sandbox, enum sv_state state);
void sv_stage_begin(struct supervisor *sv, struct sv_sandbox *sandbox);
/* Notes a stage from stage_began to now and begins the next. `failure` NULL: none. */
void sv_stage_end(struct supervisor *sv, struct sv_sandbox *sandbox, enum fail_stage stage,
	enum outcome outcome, const char *reason, const struct err *failure);
bool sv_is_starting(enum sv_state state);
bool sv_is_ending(enum sv_state state);

/* ---- start.c: from accept to ready ---- */
void sv_start(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_start_warm(struct supervisor *sv, struct sv_sandbox *sandbox); /* its VM runs already */
void sv_start_resume(
	struct supervisor *sv, struct sv_sandbox *sandbox); /* after a restart of the agent */
void sv_on_result(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event);
void sv_on_journal_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
void sv_on_deadline(struct supervisor *sv, struct sv_sandbox *sandbox);

/* The run directory is named before the journal write, so that after a crash the VMM is looked for there. */
void sv_name_run_dir(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_take_vmm(struct sv_vmm_id *vmm, const struct sv_vmm_id *spawned);

/* ---- sleep.c ---- */
bool sv_is_asleep(enum sv_state state); /* the snapshot is the sandbox */
/* It sleeps, or ended in its sleep: nothing of it is in memory. */
bool sv_has_no_vm(const struct sv_sandbox *sandbox);
void sv_on_pause(struct supervisor *sv, const struct pause_command *command);
void sv_on_resume(struct supervisor *sv, const struct resume_command *command);
/* Running, and nothing else is under way. */
void sv_pause_now(struct supervisor *sv, struct sv_sandbox *sandbox);
/* Its life is over: true where it is paused instead of ended. */
bool sv_pause_at_end(struct supervisor *sv, struct sv_sandbox *sandbox);
bool sv_sleep_result(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event); /* taken */
/* The VMM ended in SLEEPING or on the way to wake. */
void sv_sleep_exit(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
void sv_sleep_removed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
void sv_sleep_journal_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
void sv_sleep_deadline(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_sleep_resume(struct supervisor *sv, struct sv_sandbox *sandbox, bool other_boot);

/* ---- snapshot.c: moments that are kept ---- */
void sv_snapshot_load(struct supervisor *sv, const struct snapshot_info *info);
void sv_snapshots_free(struct supervisor *sv);
void sv_on_snapshot(struct supervisor *sv, const struct snapshot_command *command);
void sv_on_drop_snapshot(struct supervisor *sv, const char *id);
void sv_on_snapshot_dropped(struct supervisor *sv, const struct sv_event *event);
bool sv_snapshot_result(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event); /* taken */
void sv_snapshot_deadline(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_snapshot_journal_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
/* The VM was found again: thaws it, and answers, where a former agent took a snapshot of it. */
void sv_snapshot_adopted(struct supervisor *sv, struct sv_sandbox *sandbox);
/* The sandbox ends: the one under way is none, unless it is whole. Before the journal is written; true: sv_snapshot_drop()
 * behind the CANCEL. */
bool sv_snapshot_give_up(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_snapshot_drop(struct supervisor *sv, const struct sv_sandbox *sandbox);
/* It sleeps: none is under way, and nothing is waited for. */
void sv_snapshot_forget(struct sv_sandbox *sandbox);
/* Whether its life's end waits for the snapshot. */
bool sv_snapshot_holds(const struct sv_sandbox *sandbox);
/* Whether a sandbox with this specification can begin here. SNAPSHOT_LOST, SNAPSHOT_INVALID; one without a snapshot can. */
int sv_snapshot_check(const struct supervisor *sv, const struct sandbox_spec *spec, struct err *reterr);
/* Of the one that journal.updated asked for; NULL: another change, or there is none, and then *ret says why. */
const struct snapshot_info *sv_snapshot_answer(
	const struct supervisor *sv, const struct sv_sandbox *sandbox, struct err *ret);
/* A whole desired set came: those of its inventory that it does not name go, by the drift rule. */
void sv_snapshots_judge(struct supervisor *sv);
uint64_t sv_snapshots_mib(const struct supervisor *sv);
/* A sandbox that begins as a fork's own maps what that froze. */
void sv_snapshot_begun(const struct supervisor *sv, struct sv_sandbox *sandbox);
/* Of a start that a former agent began: SNAPSHOT_LOST where what it was to begin as went with that. */
int sv_snapshot_check_resumed(const struct supervisor *sv, const struct sv_sandbox *sandbox, struct err *reterr);

/* ---- frozen.c: what forks froze ---- */
uint64_t sv_frozen_mib(const struct supervisor *sv); /* of the node, each once */
uint64_t sv_frozen_limit_mib(const struct sv_frozen_list *list); /* that one VM may be charged for */
void sv_frozen_reserve(struct sv_frozen_list *list, uint64_t mib);
void sv_frozen_unreserve(struct sv_frozen_list *list);
/* Whether there is room to freeze so much. CAPACITY_STALE. */
int sv_admit_frozen(const struct supervisor *sv, uint64_t mib, struct err *reterr);

/* ---- end.c: teardown ---- */
void sv_end(struct supervisor *sv, struct sv_sandbox *sandbox, enum end_reason reason,
	const struct err *failure);
void sv_on_exit(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event);
void sv_end_resume(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_on_removed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
void sv_kill(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_remove_files(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_kill_timeout(struct supervisor *sv, struct sv_sandbox *sandbox);

/* Of a VMM that ended by itself in this stage. */
void sv_exit_failure(enum fail_stage stage, const struct sv_event *event, struct err *ret);

/* ---- keep.c: what a failed start leaves to the next ---- */
void sv_keep_judge(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *failure);
void sv_keep(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_keep_drop(struct supervisor *sv, struct sv_sandbox *sandbox);
/* Whether the create takes over what is kept; then it is under way. */
bool sv_keep_resume(struct supervisor *sv, struct sv_sandbox *sandbox, const struct create_command *command);

/* ---- command.c: what the scheduler asks ---- */
void sv_on_create(struct supervisor *sv, const struct create_command *command);
void sv_on_destroy(struct supervisor *sv, const struct destroy_command *command);
void sv_on_update(struct supervisor *sv, const struct update_command *command);
bool sv_is_overtaken(const struct sv_sandbox *sandbox, uint64_t number);
/* Whether a new one of that size would find room. */
bool sv_has_room(const struct supervisor *sv, const struct sandbox_spec *spec);
bool sv_has_memory(const struct supervisor *sv, const struct sandbox_spec *spec);
/* Whether there is room for it to wake. CAPACITY_STALE, what makes the node unschedulable. */
int sv_admit_wake(const struct supervisor *sv, const struct sv_sandbox *sandbox, struct err *reterr);
void sv_update_undo(struct sv_sandbox *sandbox); /* it could not be journalled */
void sv_on_report_ack(struct supervisor *sv, const struct report_ack *ack);
void sv_refuse_create(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
void sv_graves_free(struct supervisor *sv);
void sv_bury(struct supervisor *sv, struct sv_sandbox *sandbox); /* ended, and the scheduler knows it */

/* ---- network.c: another network policy ---- */
void sv_on_network_update(struct supervisor *sv, const struct network_command *command);
/* NETWORK_SET of a running sandbox. */
void sv_network_set(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err);
/* Its journal write failed: what was in force is set again. */
void sv_network_undo(struct supervisor *sv, struct sv_sandbox *sandbox);

/* ---- budget.c: what they may use ---- */
/* BUDGET_EXCEEDED where one of its limits is reached. */
int sv_budget_check(const struct sv_sandbox *sandbox, struct err *reterr);
void sv_budget_arm(struct supervisor *sv, struct sv_sandbox *sandbox); /* its state or its budget is another */
/* Pauses or ends it where it is over. */
void sv_budget_look(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_on_budget_update(struct supervisor *sv, const struct budget_command *command);
void sv_budget_undo(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_budget_woken(struct supervisor *sv, struct sv_sandbox *sandbox, const struct budget *budget);

/* ---- usage.c: what sandboxes use ---- */
void sv_usage_free(struct supervisor *sv);
/* A generation of it begins; that of before, if any, is over. `same_vm`: it goes on with that one's. */
void sv_usage_begin(struct supervisor *sv, struct sv_sandbox *sandbox, bool same_vm);
void sv_usage_end(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_usage_moved(struct supervisor *sv, struct sv_sandbox *sandbox); /* its state is another */
/* In the state in which it failed. */
void sv_usage_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *failure);
void sv_on_used(struct supervisor *sv, const struct sv_reading *readings, size_t n);
void sv_usage_load(struct supervisor *sv, const struct sv_usage_saved *saved);
/* All is loaded: before the sandboxes are resumed; and each of them was. */
void sv_usage_start(struct supervisor *sv);
void sv_usage_resumed(struct supervisor *sv, struct sv_sandbox *sandbox);
void sv_on_usage_saved(struct supervisor *sv);
void sv_on_usage_ack(struct supervisor *sv, uint64_t number);
void sv_usage_welcomed(struct supervisor *sv, bool takes_usage);
void sv_usage_tick(struct supervisor *sv);

/* ---- owner.c: what is asked on the node itself ---- */
void sv_on_owner_drain(struct supervisor *sv, bool drained, const char *why, int64_t deadline_usec);
void sv_on_owner_stop(struct supervisor *sv, const char *id); /* "": all */
void sv_owner_revoked(struct supervisor *sv, const struct err *err); /* its owner wants that all end then */
void sv_owner_tick(struct supervisor *sv);

/* ---- canary.c ---- */
bool sv_is_canary(const char *sandbox);
void sv_canary_init(struct supervisor *sv);
void sv_canary_start(struct supervisor *sv);
void sv_canary_tick(struct supervisor *sv);
void sv_canary_event(struct supervisor *sv, const struct sv_event *event);
/* A sandbox's guest said hello: as good as a canary's. */
void sv_canary_saw_boot(struct supervisor *sv);
/* After a sandbox was taken on: a canary for which there is no room any more ends. */
void sv_canary_make_room(struct supervisor *sv);
const struct err *sv_canary_verdict(const struct supervisor *sv); /* FAIL_NONE: nothing against the node */
void sv_canary_tell(struct supervisor *sv);

/* ---- lease.c ---- */
void sv_lease_welcomed(struct supervisor *sv, uint32_t lease_ms);
void sv_on_lease(struct supervisor *sv, const struct lease_grant *grant);
/* Of the next heartbeat, which is sent now: its number, and what it says of the VMs' leases. */
void sv_lease_heartbeat(struct supervisor *sv, struct heartbeat *heartbeat);
/* Its VM is confined: starts it, or waits for a lease. */
void sv_lease_start(struct supervisor *sv, struct sv_sandbox *sandbox);

/* ---- session.c ---- */
void sv_report(struct supervisor *sv,
	struct sv_sandbox *sandbox); /* its content changed: a new version, sent */
void sv_report_again(struct supervisor *sv, struct sv_sandbox *sandbox);
/* About a generation that is not (or no longer) here; not repeated. */
void sv_report_gone(struct supervisor *sv, const char *id, uint64_t generation,
	enum end_reason reason, const struct err *refusal);
void sv_on_link(struct supervisor *sv, bool up);
void sv_on_welcome(struct supervisor *sv, const struct welcome *welcome);
void sv_on_refused(struct supervisor *sv, const struct err *err);
void sv_greet_again(struct supervisor *sv); /* a hello, within the session too */
void sv_on_desired(struct supervisor *sv, const struct desired_set *part);
void sv_on_capacity(struct supervisor *sv, const struct sv_capacity *capacity);
/* Why nothing may be placed here: the state, the host as it was last looked at, or the canary. FAIL_NONE: it may. */
const struct err *sv_unable(const struct supervisor *sv);
void sv_unable_changed(struct supervisor *sv); /* told at once */
void sv_session_tick(struct supervisor *sv);
int64_t sv_session_next(const struct supervisor *sv);
