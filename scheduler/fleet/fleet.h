/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's brain: pools, nodes, sandboxes, and what to do next. Pure: fleet_step() takes one event, the
 * time and randomness, changes the state and returns actions; it never does I/O, reads no clock and blocks
 * nowhere. The shell (scheduler/server) performs the actions.
 *
 * THE COMMIT RULE. The actions of one step are one batch. The shell
 *   1. encodes the step's records and deletes and hands them, with whatever records of its own belong to the
 *      same decision (a used join token), to the store as ONE commit named actions.batch;
 *   2. holds every send, reply and stage of the step until that batch is durable, and also until every EARLIER
 *      batch is: a step without records may speak of what an earlier, still uncommitted step decided. So the
 *      held steps form one queue in order of batch; a step without records waits only for those before it;
 *   3. tells FLEET_COMMITTED {batch} after releasing: a reservation counts as made when it is durable, and only
 *      this event tells the time of that (stage place ends and dispatch begins there);
 *   4. when a commit fails: answers every held reply with STORE_FAILED, drops every held send and stage, and
 *      tells FLEET_COMMIT_FAILED. The fleet is then ahead of the store and is `failed`: it answers every change
 *      with STORE_FAILED, sends nothing, and serves reads. When the store writes again the shell makes a new
 *      fleet from the store (fleet_new and load events) and throws this one away. Nodes notice by HELLO_NEEDED.
 * `notices` are for the log and counters and are never held.
 *
 * A sandbox has one node at a time. It goes to another node only when the former one said that its generation
 * is gone or was never accepted: at most one live VM per id, whatever the network does. A start whose node fell
 * silent is therefore ended with NODE_LOST instead of being doubled; its room stays reserved, and the node is
 * told to destroy it as soon as it is heard again (state `fenced`).
 *
 * What it refuses: a report about another node's sandbox (AUTH_WRONG_NODE), a second host with a key in use
 * (NODE_ID_IN_USE), any change while `failed`, anything of a session that is not the node's current one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/rng.h"
#include "base/sm.h"
#include "wire/messages.h"

/* ---- configuration ---- */
struct fleet_config {
	char lineage[ID_SIZE];   /* of the store */
	uint64_t epoch;          /* of this leader; the shell puts it on every envelope */
	char run[ID_SIZE];       /* of this process; "": welcomes do not say */
	const struct runs *runs; /* borrowed: this one and those that it follows; NULL: not known */
	uint32_t heartbeat_ms;   /* 1000 */
	int64_t suspect_usec;    /* 2.8 s of silence: no placing there; so that it is seen within 3 s */
	int64_t lost_after_usec; /* 60 s of silence: lost */
	int64_t grace_usec;      /* 300 s: after a start no node is lost earlier */
	int64_t resend_usec; /* 2 s: first resend of a command; doubles up to 16 s, with jitter */
	int64_t place_timeout_usec;    /* 60 s: longest wait for a start slot */
	int64_t dispatch_timeout_usec; /* 20 s: until the node accepted */
	int64_t start_timeout_usec;    /* 120 s: from accepted to ready */
	int64_t recall_timeout_usec;   /* 30 s: until a failed start's node said that it is gone */
	int64_t sleep_timeout_usec;    /* 50 s: until whoever asked for a pause, resume or snapshot is answered in any case */
	int64_t snapshot_timeout_usec; /* 360 s, above its node's own limit: until a snapshot under way is given up */
	int64_t stop_timeout_usec;     /* 60 s: until the node said that it ended; then `fenced` */
	int64_t fence_usec;            /* 30 days: how long an unconfirmed end is remembered */
	int64_t backoff_min_usec;      /* 1 s: before a transient failure is tried again; doubles */
	int64_t backoff_max_usec;      /* 10 s */
	int64_t node_busy_usec; /* 2 s: a node that refused for capacity is passed over; doubles up to 60 s */
	uint32_t max_attempts; /* 3 */
	uint32_t max_refusals; /* 3: capacity refusals of one request, no attempt each */
	uint32_t max_queued;   /* 10 000 requests waiting for room */
	uint32_t part_size;    /* PART_MAX: sandboxes in one part of a desired set */
};
void fleet_config_default(struct fleet_config *ret);

/* ---- the sandbox's states: one table, one mover (sandbox.c) ---- */
enum sandbox_state {
	SANDBOX_PLACING,    /* waits for room or for a start slot */
	SANDBOX_DISPATCHED, /* placed; the node has not acknowledged the command */
	SANDBOX_STARTING,   /* the node accepted */
	SANDBOX_BACKOFF,    /* a transient failure; tried again when the pause is over */
	SANDBOX_RECALL, /* a failed or overdue start: its node must say that it is gone, then it is retried or ended */
	SANDBOX_RUNNING, /* with its node lost and its pool's replacement on-loss: PLACING again, another incarnation */
	SANDBOX_PAUSING,  /* asked to sleep; runs until its node says otherwise */
	SANDBOX_PAUSED,   /* sleeps on its node: only its disk's room is taken there */
	SANDBOX_RESUMING, /* its room is taken again; its node was asked to wake it */
	SANDBOX_STOPPING, /* its node must say that it ended */
	SANDBOX_FENCED, /* ended for everybody; its node could not be asked yet. Room stays reserved */
	SANDBOX_ENDED, /* leaves memory in the same step: record deleted, history written */
	SANDBOX_STATE_MAX_
};
enum public_state {
	PUBLIC_STARTING,
	PUBLIC_RUNNING,
	PUBLIC_PAUSED,
	PUBLIC_STOPPING,
	PUBLIC_ENDED,
	PUBLIC_MAX_
};
const char *public_state_name(enum public_state state); /* "starting", ... */
const char *sandbox_state_name(enum sandbox_state state);
/* SANDBOX_STATE_MAX_ when there is none of that name. */
enum sandbox_state sandbox_state_by_name(const char *name);
const struct sm_state *sandbox_state_table(void); /* SANDBOX_STATE_MAX_ rows */

/* ---- records: what the store keeps; the shell encodes and decodes them ---- */

/* What happened to a sandbox besides the stages of its starts; the last SANDBOX_EVENTS_MAX are kept. */
#define SANDBOX_EVENTS_MAX 16
struct sandbox_event {
	int64_t when_us;
	char name[24]; /* "NODE_DRAIN", "REPLACED", "RECOVERED", "PAUSED", "WOKEN", "SNAPSHOT" */
	char node[ID_SIZE];
	char detail[96];
};

/* Stages of a sandbox that are kept: the last ones. */
#define SANDBOX_STAGES_MAX STAGES_MAX

/* store.proto SandboxRecord. Owns everything it points to. */

/* Which nodes a sandbox may be placed on, and when. */
struct sandbox_wish {
	char region[ID_NAME_MAX + 1];    /* "": any */
	char cpu_class[ID_NAME_MAX + 1]; /* "": any */
	struct sandbox_field *labels;    /* all of them */
	size_t n_labels;
};

#define FLEET_WARM_TENANT "croft:warm" /* no tenant can be called so */
struct sandbox_record {
	char id[ID_SIZE];
	char tenant[ID_NAME_MAX + 1];
	char pool[ID_NAME_MAX + 1];
	char node[ID_SIZE]; /* "": not placed */
	uint64_t generation;
	uint32_t incarnation;
	enum sandbox_state state;
	struct sandbox_spec *spec; /* never NULL */
	char template_alias[ID_NAME_MAX + 1];
	struct sandbox_field *metadata;
	size_t n_metadata;
	struct trace trace;      /* trace_id and span_id */
	char operation[ID_SIZE]; /* of the command that is or was last under way */
	int64_t created_us;
	int64_t started_us; /* ready; 0: never */
	int64_t ends_us;    /* life ends; 0: none */
	int64_t ended_us;
	enum end_reason end_reason;
	struct stage_record *stages; /* all attempts, in order */
	size_t n_stages;
	struct err failure; /* the last one; FAIL_NONE: none */
	uint32_t attempts;
	uint64_t report_version;
	char (*excluded)[ID_SIZE]; /* nodes that failed it for good */
	size_t n_excluded;
	char guest_boot_id[BOOT_ID_SIZE];
	struct sandbox_event *events; /* in order */
	size_t n_events;
	struct sandbox_wish wish;
	uint32_t priority; /* among its tenant's own: higher first */
	uint64_t took; /* generation of the warm VM that became this sandbox; 0: none */
	uint32_t resume_timeout_s; /* life after the last resume; 0: none */
	bool is_asleep; /* of its room on the node only the disk's is taken */
};
void sandbox_record_deinit(struct sandbox_record *record);
/* *ret is NULL when n is 0, and on failure. 0 or -ENOMEM. */
void sandbox_fields_free(struct sandbox_field *fields, size_t n);
int sandbox_fields_copy(const struct sandbox_field *fields, size_t n, struct sandbox_field **ret);
/* 0 or -ENOMEM. */
int sandbox_record_copy(const struct sandbox_record *record, struct sandbox_record *ret);

enum node_fact { NODE_CORDONED, NODE_DRAINING, NODE_QUARANTINED, NODE_FACT_MAX_ };
const char *node_fact_name(enum node_fact fact);

struct node_fact_entry {
	bool is_set;
	char who[ID_NAME_MAX + 1];
	char why[128];
	int64_t since_us;
	int64_t until_us; /* of NODE_DRAINING: its deadline, wall clock; 0: none */
};

struct node_image_id {
	char digest[DIGEST_SIZE];
	char name[ID_NAME_MAX + 1]; /* of the template, for people and for a probe */
	uint64_t size;
};

/* What is held against starting one image on one node (learn.c). */
struct node_image {
	struct node_image_id image;
	int64_t against_milli;   /* evidence */
	int64_t node_part_milli; /* how much of it counts against the node itself */
	uint32_t failures;
	bool is_barred; /* quarantined: nobody's start of it goes there */
	int64_t since_us;
	char why[112];
};

/* What is held against a node, since its evidence was last zero. */
struct node_health {
	int64_t against_milli;
	uint32_t starts, failures;
	bool is_proven; /* something started there since it joined, and since its quarantine */
	/* the quarantine that ended last; until_us 0: none did */
	char last_why[128];
	int64_t last_since_us, last_until_us;
};

/* store.proto NodeRecord. */
struct node_record {
	uint32_t lease_ms; /* that each VM there is armed with, as it last said; 0: not each */
	char id[ID_SIZE], public_key[41];
	char pool[ID_NAME_MAX + 1];
	char hostname[HOSTNAME_SIZE], machine[ID_SIZE];
	struct sandbox_field *labels;
	size_t n_labels;
	int64_t joined_us;
	bool revoked;
	struct node_capacity capacity; /* as last reported */
	char version[VERSION_SIZE];
	char cpu_class[ID_NAME_MAX + 1]; /* "": not known */
	char server_key[41], next_key[41]; /* of this scheduler: that it came with last, and the next one that it had stored */
	uint64_t telemetry_acked;
	struct node_fact_entry facts[NODE_FACT_MAX_];
	char lineage[ID_SIZE]; /* of the store under which its inventory was last settled; "": the present one */
	char adopt_tenant[ID_NAME_MAX + 1]; /* whose the sandboxes are that it brought along, until its inventory is settled */
	struct node_health health;
	struct node_image *images; /* that something is held against */
	size_t n_images;
};
void node_record_deinit(struct node_record *record);
int node_record_copy(const struct node_record *record, struct node_record *ret);

/* A moment of a sandbox that its node keeps: snapshot.c. */
enum snapshot_state {
	SNAPSHOT_MAKING, /* its node was asked, or is to be */
	SNAPSHOT_READY,
	SNAPSHOT_DROPPING, /* gone for everybody; its node has not said so yet */
	SNAPSHOT_LOST,     /* its node was removed, or does not have it any more */
	SNAPSHOT_GONE,     /* leaves memory in the same step */
	SNAPSHOT_STATE_MAX_
};
const char *snapshot_state_name(enum snapshot_state state);
/* SNAPSHOT_STATE_MAX_ when there is none of that name. */
enum snapshot_state snapshot_state_by_name(const char *name);
const struct sm_state *snapshot_state_table(void); /* SNAPSHOT_STATE_MAX_ rows */

#define FORKS_MAX 32 /* of one request */

/* store.proto SnapshotRecord. Owns everything it points to. */
struct snapshot_record {
	char id[ID_SIZE];
	char tenant[ID_NAME_MAX + 1];
	char pool[ID_NAME_MAX + 1];
	char node[ID_SIZE];
	char sandbox[ID_SIZE]; /* of which it is a moment */
	uint64_t generation;   /* of that */
	enum snapshot_state state;
	char name[ID_NAME_MAX + 1]; /* "": none */
	char operation[ID_SIZE];    /* that made it */
	struct sandbox_spec *spec;  /* never NULL: the shape; of a fork's own all that its sandboxes have in common */
	char cpu_class[ID_NAME_MAX + 1];
	uint64_t size_mib; /* on the node's disk; 0: not known yet */
	int64_t created_us;
	bool is_fork;     /* a fork's own: nobody sees it, and it goes when its sandboxes have begun */
	bool is_unwanted; /* MAKING, and dropped as soon as it is there */
	char (*forks)[ID_SIZE]; /* the sandboxes that are to begin as it */
	size_t n_forks;
	struct sandbox_field *metadata; /* of those */
	size_t n_metadata;
};
void snapshot_record_deinit(struct snapshot_record *record);
int snapshot_record_copy(const struct snapshot_record *record, struct snapshot_record *ret); /* 0 or -ENOMEM */

/* store.proto PoolRecord; the fleet reads it and never writes it. */
struct pool_record {
	char name[ID_NAME_MAX + 1];
	char customer[ID_NAME_MAX + 1];
	uint32_t cpu_overcommit_percent; /* 0 counts as 100 */
	enum responsibility responsibility;   /* the default that `owners` differs from */
	struct responsibility_table owners;   /* whole */
	bool shared;
	bool replace_on_loss;
	int64_t lost_after_usec;      /* 0: the fleet's */
	int64_t self_stop_after_usec; /* with replace_on_loss: a VM that is cut off stops itself after this */
};

/* store.proto WarmRecord: microVMs that are kept ready (warm.c); the shell's own record. */
struct warm_record {
	char pool[ID_NAME_MAX + 1];
	char name[ID_NAME_MAX + 1]; /* of it, in its pool: the template's alias */
	struct sandbox_spec *spec;  /* image and size; no environment, setup or life time */
	uint32_t target;            /* ready ones; 0: none any more */
	uint32_t max_starts;        /* of them on their way at once; 0: 2 */
	int64_t max_age_usec;       /* since it was ready; 0: an hour */
};

/* What a tenant may have at once, and start in a minute; 0 in any member: no limit. */
struct fleet_quota {
	uint32_t sandboxes;
	uint32_t vcpus;
	uint64_t memory_mib;
	uint32_t starts_per_minute;
	uint32_t paused;        /* sandboxes that sleep: they count here and in kept_disk_mib alone */
	uint32_t snapshots;     /* but a fork's own */
	uint64_t kept_disk_mib; /* of what sleeps and of snapshots */
};

enum node_link {
	NODE_JOINING, /* known, not heard since this scheduler started or since it was enrolled */
	NODE_READY,
	NODE_SUSPECT, /* silent for suspect_usec, or disconnected */
	NODE_LOST,    /* silent for lost_after_usec */
	NODE_REMOVED, /* revoked */
	NODE_LINK_MAX_
};
const char *node_link_name(enum node_link link);

/* ---- events ---- */
enum fleet_event_type {
	/* At start, in this order, before anything else: all pools, all nodes, all sandboxes, then LOADED. */
	FLEET_LOAD_POOL, /* pool; also later, when a pool was made or changed (the shell's own record) */
	FLEET_TENANT_WEIGHT, /* weight; at load and later: whose turn it is in the queue */
	FLEET_WARM, /* warm; at load before the sandboxes, and when it was made or changed */
	FLEET_LOAD_NODE,    /* node_record */
	FLEET_LOAD_SNAPSHOT, /* load_snapshot; before the sandboxes */
	FLEET_LOAD_SANDBOX, /* sandbox_record (live ones, not history) */
	FLEET_LOADED,
	FLEET_NODE_ENROLLED, /* node_record: a join token was used; the shell adds the token's record to this batch */
	FLEET_NODE_REVOKED, /* node, is_reimaged: its host is another node now */
	FLEET_NODE_FACT,    /* node, fact */
	FLEET_NODE_TAKE,    /* node, take_for: whose become snapshots there that nobody knows, for an hour; "": nobody's */

	/* From the link. `node` is from the authenticated User-Id, `session` names the route (below). */
	FLEET_NODE_HELLO,     /* hello */
	FLEET_NODE_HEARTBEAT, /* heartbeat; any other message of the node counts as one too */
	FLEET_NODE_INVENTORY, /* inventory: one part */
	FLEET_NODE_CAPACITY,  /* capacity */
	FLEET_NODE_REPORT,    /* report */
	FLEET_NODE_TELEMETRY, /* telemetry_seq: stored in this step's batch up to here; the shell acks after it */
	FLEET_NODE_SNAPSHOT_DROPPED, /* dropped_snapshot */
	FLEET_NODE_DISCONNECTED, /* the route is gone */

	/* From the API. Each gets exactly one REPLY with its `request`, at once or later. */
	FLEET_CREATE, /* create */
	FLEET_DESTROY, /* destroy: accepted in every state; replies when it is recorded, not when it is done */
	FLEET_SET_TIMEOUT, /* set_timeout: replies when the node did it */
	FLEET_SET_NETWORK, /* change: likewise */
	FLEET_SET_BUDGET, /* change: likewise; of one that is paused when it is recorded, and in force when it wakes */
	FLEET_PAUSE, /* pause: replies when it sleeps, or runs on; CONFLICT when it is asleep already */
	FLEET_RESUME, /* resume: replies when it runs, or sleeps on. Of one that runs: sets its time where one is named */
	FLEET_SNAPSHOT, /* snapshot: replies when it is there, or will not be; a fork's when its sandboxes run or failed */
	FLEET_DROP_SNAPSHOT, /* drop_snapshot: replies when it is recorded, not when it is done */
	FLEET_FORGET, /* request: the client went away, no reply is wanted; changes nothing else */

	FLEET_STORE_TIGHT, /* is_tight: the store has little room; nothing is begun that nobody asked for (warm VMs) */
	FLEET_COMMITTED,     /* batch */
	FLEET_COMMIT_FAILED, /* batch, err */
	FLEET_STALL, /* stall_usec: this process did not run for so long (stopped, blocked); nobody's silence */
	FLEET_TICK, /* actions.next_usec has come. Drain the link's receive queue before this one. */
	FLEET_EVENT_MAX_
};

/* The shell resolves names to values first: template -> digest, key -> tenant, pool by its own rules. */
struct fleet_create {
	uint64_t request; /* handle of the shell, never 0 */
	char id[ID_SIZE]; /* of the sandbox; "": the fleet makes one */
	struct fleet_quota quota; /* of the tenant */
	char tenant[ID_NAME_MAX + 1];
	char pool[ID_NAME_MAX + 1];
	struct sandbox_spec *spec; /* passed spec_check(); the fleet takes a reference of its own */
	char template_alias[ID_NAME_MAX + 1];
	const struct sandbox_field *metadata; /* copied */
	size_t n_metadata;
	struct trace trace; /* made or taken from traceparent by the shell */
	int64_t began_us;   /* wall clock at which the request arrived: start of stage admit */
	int64_t admit_usec; /* how long admitting took so far */
	int64_t queue_usec; /* longest wait for room; 0: NO_CAPACITY at once, but for what comes in a moment (coming.c) */
	struct sandbox_wish wish; /* copied */
	uint32_t priority;
	const char *claim; /* the warm sandbox that is to become this one (fleet_warm_pick()); NULL: none. Its id is then
			    * the one that counts. NODE_DRAINING or WARM_TAKEN when it is not to be had any more */
	bool no_wait; /* reply as soon as it is placed and recorded; else when it is ready or failed */
};

struct fleet_resume {
	uint64_t request;
	const char *sandbox;
	uint32_t timeout_s; /* life from then on; 0: as it was created with */
	struct fleet_quota quota; /* of the tenant */
};

/* A snapshot of a sandbox that runs; with forks, one of its own for as many sandboxes, all like it. */
struct fleet_snapshot {
	uint64_t request;
	const char *sandbox;
	char id[ID_SIZE];  /* "": the fleet makes one */
	const char *name;  /* "": none */
	struct fleet_quota quota; /* of the tenant */
	const char (*forks)[ID_SIZE]; /* ids of the sandboxes; at most FORKS_MAX */
	size_t n_forks;    /* 0: no fork */
	uint32_t timeout_s; /* of theirs; 0: as the sandbox was created with */
};

struct fleet_event {
	enum fleet_event_type type;
	char node[ID_SIZE];
	/* A number that the shell gives to each route (router's routing id) when it first sees it, never used
	 * again in this process, never 0. Only the session of the last accepted hello is the node's. */
	uint64_t session;
	struct node *at; /* fleet_node_handle() of `node`; NULL: it is looked up */
	union {
		const struct pool_record *pool;
		const struct warm_record *warm;
		const struct node_record *node_record;       /* copied */
		const struct sandbox_record *sandbox_record; /* copied */
		struct {
			const struct snapshot_record *record; /* copied */
			struct fleet_quota quota;             /* of its tenant: a fork is carried through within it */
		} load_snapshot;
		const struct hello *hello;                   /* this and below: copied where kept */
		const struct heartbeat *heartbeat;
		const struct inventory *inventory;
		const struct capacity_report *capacity;
		const struct sandbox_report *report;
		const char *dropped_snapshot, *take_for;
		uint64_t telemetry_seq;
		struct {
			enum node_fact fact;
			bool set;
			const char *who, *why;
			int64_t until_us; /* NODE_DRAINING: what is there then is ended; wall clock */
		} fact;
		const struct fleet_create *create;
		struct {
			uint64_t request; /* 0: no reply wanted */
			const char *sandbox;
			enum end_reason reason; /* END_REQUEST */
		} destroy;
		struct {
			uint64_t request;
			const char *sandbox;
			uint32_t timeout_s; /* from now; 0: none */
		} set_timeout;
		struct {
			uint64_t request;
			const char *sandbox;
			const struct net_policy *network; /* SET_NETWORK */
			const struct budget *budget;      /* SET_BUDGET */
		} change;
		struct {
			uint64_t request;
			const char *sandbox;
			struct fleet_quota quota; /* of the tenant */
		} pause;
		const struct fleet_resume *resume;
		const struct fleet_snapshot *snapshot;
		struct {
			uint64_t request;
			const char *snapshot;
		} drop_snapshot;
		struct {
			const char *tenant;
			uint32_t weight; /* 1 for who was never named */
		} weight;
		uint64_t request; /* FLEET_FORGET */
		struct {
			uint64_t batch;
			const struct err *err; /* COMMIT_FAILED */
		} commit;
		int64_t stall_usec;
		bool is_tight, is_reimaged;
	};
};

/* ---- actions ---- */
enum fleet_record_type {
	FLEET_PUT_NODE,
	FLEET_PUT_SANDBOX,
	FLEET_DELETE_SANDBOX,
	FLEET_PUT_HISTORY,
	FLEET_PUT_SNAPSHOT,
	FLEET_DELETE_SNAPSHOT,
	FLEET_PUT_CLAIM, /* claim/<id>, which must be absent: else the batch is a conflict */
	FLEET_DELETE_CLAIM
};
struct fleet_put {
	enum fleet_record_type type;
	char id[ID_SIZE];               /* key: node/<id>, sandbox/<id>, history/<id> */
	struct sandbox_record *sandbox; /* PUT_SANDBOX, PUT_HISTORY */
	struct node_record *node;       /* PUT_NODE */
	struct snapshot_record *snapshot; /* PUT_SNAPSHOT */
};

enum fleet_send_type {
	SEND_WELCOME, SEND_DESIRED,
	SEND_CREATE, SEND_DESTROY, SEND_UPDATE, SEND_NETWORK, SEND_BUDGET,
	SEND_PAUSE, SEND_RESUME,
	SEND_SNAPSHOT, SEND_DROP_SNAPSHOT,
	SEND_REPORT_ACK, SEND_LEASE, SEND_REFUSED
};
/* At most once, and best effort: what matters is sent again by a later step. */
struct fleet_send {
	enum fleet_send_type type;
	char node[ID_SIZE];
	uint64_t session; /* the route to send to */
	union {
		struct welcome welcome;
		struct desired_set desired;
		struct create_command create;
		struct destroy_command destroy;
		struct update_command update;
		struct network_command network;
		struct budget_command budget;
		struct pause_command pause;
		struct resume_command resume;
		struct snapshot_command snapshot;
		char drop_snapshot[ID_SIZE];
		struct lease_grant lease;
		struct report_ack ack;
		struct err *refused;
	};
};

/* What became of one sandbox of a fork. */
struct fleet_fork {
	char sandbox[ID_SIZE];
	struct err err; /* FAIL_NONE: it runs */
};

struct fleet_reply {
	uint64_t request;
	struct err err; /* FAIL_NONE: done */
	struct sandbox_record
		*sandbox; /* as it is after this step; NULL when the request made or found none */
	struct snapshot_record *snapshot; /* of FLEET_SNAPSHOT that was done; else NULL */
	struct fleet_fork *forks; /* of a fork that began */
	size_t n_forks;
};

/* Something for the log and a counter: refused messages, drift, link changes. */
struct fleet_notice {
	struct err err; /* AUTH_WRONG_NODE, NODE_ID_IN_USE, NODE_LOST, ... */
	char node[ID_SIZE];
	char sandbox[ID_SIZE];
};

struct fleet_stage {
	struct stage_record
		record; /* admit, place, dispatch; the node's own come by its telemetry spool */
	char tenant[ID_NAME_MAX + 1];
	char pool[ID_NAME_MAX + 1];
	char template_name[ID_NAME_MAX + 1];
};

struct fleet_actions {
	uint64_t batch;         /* of this step; rises by 1 with each step of this fleet */
	struct fleet_put *puts; /* each key at most once */
	size_t n_puts;
	struct fleet_send *sends;
	size_t n_sends;
	struct fleet_reply *replies;
	size_t n_replies;
	struct fleet_stage *stages;
	size_t n_stages;
	struct fleet_notice *notices;
	size_t n_notices;
	int64_t next_usec; /* monotonic; FLEET_TICK is due then. INT64_MAX: nothing waits */
	size_t room[5];    /* the module's own */
	bool no_memory; /* the step lost something for want of memory: treat as a failed commit */
};
/* Frees what the actions own and makes it ready for the next step; copes with a zeroed one. The shell may move a
 * pointer out (TAKE) when it keeps it. */
void fleet_actions_clear(struct fleet_actions *actions);

/* ---- the object ---- */
struct fleet;
int fleet_new(struct fleet **ret, const struct fleet_config *config);
struct fleet *fleet_free(struct fleet *fleet); /* returns NULL */
DEFINE_CLEANUP(struct fleet, fleet_free)

/* `out` must be zeroed or cleared; it is filled. */
void fleet_step(struct fleet *fleet, struct moment now, struct rng *rng,
	const struct fleet_event *event, struct fleet_actions *out);

/* Whether a create would be refused before anything is made: QUOTA_EXCEEDED with resource, asked, used and limit (and
 * retry_after_s where time alone helps). 0, or -1 with `reterr`. */
int fleet_quota_check(const struct fleet *fleet, int64_t now_usec, const char *tenant,
	const struct fleet_quota *quota, const struct sandbox_spec *spec, struct err *reterr);
/* What the tenant's live sandboxes take; starts_per_minute is 0. */
void fleet_quota_used(const struct fleet *fleet, const char *tenant, struct fleet_quota *ret);

/* ---- reading: for the API; pointers are valid until the next step ---- */
struct fleet_sandbox_view {
	enum public_state state;
	enum sandbox_state internal;
	enum node_link node_link; /* meaningful when it has a node */
	bool certain;             /* false: its node is not ready, so this is what was last known */
	int64_t as_of_us;         /* wall clock of the last word of its node */
	int64_t deadline_usec;    /* monotonic; of the state; 0: it does not wait */
	int64_t created_us;       /* as the record has it */
	bool network_differs, budget_differs; /* its node has another one than is recorded, or did not confirm a change */
};
/* A copy of the whole record (free with sandbox_record_deinit) and the view; either may be NULL.
 * 0, -ENOENT (ended ones are in the store's history), -ENOMEM. */
int fleet_sandbox_get(const struct fleet *fleet, const char *id, struct sandbox_record *ret_record, struct fleet_sandbox_view *ret_view);
/* Cheap: tenant, node and the span of its run as a whole (valid until the next step), for authorisation, relaying and what lies under
 * that span; NULL when it is not there. `ret_session` is the route to its node, 0 when the node is not connected. */
const char *fleet_sandbox_tenant(const struct fleet *fleet, const char *id);
const char *fleet_sandbox_node(const struct fleet *fleet, const char *id, uint64_t *ret_session);
const struct trace *fleet_sandbox_trace(const struct fleet *fleet, const char *id);
/* Whose `generation` of it is (of a warm VM that was taken: FLEET_WARM_TENANT's), where it is now (NULL: nowhere), and its
 * latest generation. False: it is not there. */
struct fleet_owner { const char *tenant, *node; uint64_t generation; };
bool fleet_sandbox_owner(const struct fleet *fleet, const char *id, uint64_t generation, struct fleet_owner *ret);
/* Template and shape of a live sandbox; NULL when it is not there. Valid until the next step. */
const struct sandbox_spec *fleet_sandbox_spec(const struct fleet *fleet, const char *id);
/* Ids in order of creation, beginning after `after` ("": from the start); `tenant` NULL: all. Where `after` is gone, with the
 * first that was not made before it (`after_us`: its created_us): that may repeat one of the same microsecond, and misses none. Returns how many of at most `max` were written. FENCED
 * ones are left out: they ended for everybody. */
size_t fleet_sandbox_list(const struct fleet *fleet, const char *tenant, const char *after, int64_t after_us,
	char (*ret)[ID_SIZE], size_t max);

/* Of one that is there for its tenant: MAKING, READY or LOST, and no fork's own. Valid until the next step; NULL: none. */
const struct snapshot_record *fleet_snapshot_get(const struct fleet *fleet, const char *id);
/* The newest that is READY of this name. */
const struct snapshot_record *fleet_snapshot_named(const struct fleet *fleet, const char *tenant, const char *name);
/* Ids of such in order of creation, as of fleet_sandbox_list(). */
size_t fleet_snapshot_list(const struct fleet *fleet, const char *tenant, const char *after, int64_t after_us,
	char (*ret)[ID_SIZE], size_t max);
/* Also a fork's own: while it is made, and while one of its sandboxes is on its way. */
bool fleet_snapshot_is_used(const struct fleet *fleet, const char *id);

/* Whether the node that says so obeyed another scheduler of this very store: this one, or the other, is a copy. */
bool fleet_hello_is_split(const struct fleet *fleet, const struct hello *hello);

struct fleet_node_view {
	const struct node_record *record;
	enum node_link link;
	bool schedulable; /* ready, its inventory taken in this session, none of the facts, no `unschedulable` */
	const struct err *unschedulable; /* the node's own reason; FAIL_NONE: none */
	int64_t heard_us;                /* wall clock; 0: never */
	uint64_t session;                /* 0: not connected */
	const char *instance, *takes_for; /* takes_for: of FLEET_NODE_TAKE, while it holds */
	uint32_t n_sandboxes; /* with room reserved */
	uint32_t n_starting;
	uint64_t memory_reserved_mib;
	uint64_t disk_reserved_mib;
	uint32_t cpus_reserved; /* vCPUs */
	size_t n_images;
	const struct space_list *space; /* how much of its disk is whose, MiB, as it said */
};
/* For events of this node, which come often; NULL: no such node. Valid until the fleet is freed. */
struct node *fleet_node_handle(struct fleet *fleet, const char *id);
int fleet_node_get(const struct fleet *fleet, const char *id, struct fleet_node_view *ret); /* 0 or -ENOENT */
/* What only this node has, and nothing else can make again: sandboxes that sleep there and snapshots that somebody keeps. */
struct fleet_node_kept {
	uint32_t paused, snapshots;
};
struct fleet_node_kept fleet_node_keeps(const struct fleet *fleet, const char *id);
size_t fleet_node_list(const struct fleet *fleet, const char *pool, const char *after,
	char (*ret)[ID_SIZE], size_t max);

struct fleet_warm_view {
	char pool[ID_NAME_MAX + 1];
	char name[ID_NAME_MAX + 1];
	const struct sandbox_spec *spec;
	uint32_t target, max_starts;
	int64_t max_age_usec;
	uint32_t ready, starting;
};
size_t fleet_warm_list(const struct fleet *fleet, struct fleet_warm_view *ret, size_t max);
/* A ready one that such a create could take now; NULL: none. Valid until the next step. */
const char *fleet_warm_pick(const struct fleet *fleet, const char *pool,
	const struct sandbox_spec *spec, const struct sandbox_wish *wish);

struct fleet_counts {
	size_t nodes[NODE_LINK_MAX_];
	size_t sandboxes[SANDBOX_STATE_MAX_];
	size_t snapshots[SNAPSHOT_STATE_MAX_];
	size_t queued;
	uint64_t wrong_node;    /* reports about another node's sandbox */
	uint64_t stale_session; /* messages of a session that is not the node's */
	uint64_t key_in_use;
	uint64_t resends;
	uint64_t resumed; /* starts that went back to where the attempt before left its disk */
	uint64_t replaced; /* sandboxes that were given another node because theirs was lost */
	uint64_t drained;  /* sandboxes that were ended by a drain's deadline */
	uint64_t recovered; /* sandboxes that only a node knew, after a restore */
	uint64_t unknown; /* sandboxes in inventories that nobody knows */
	uint64_t differs; /* times that a node had another network policy or budget for a sandbox than is recorded */
	bool failed;      /* after FLEET_COMMIT_FAILED */
};
void fleet_count(const struct fleet *fleet, struct fleet_counts *ret);

/* How a request of this shape would be placed now, without placing it: place/place.h */
struct place_explanation;
int fleet_explain(const struct fleet *fleet, const char *pool, const struct sandbox_spec *spec, const struct sandbox_wish *wish, struct place_explanation *ret); /* 0, or -ENOENT: no such pool */
/* What place_capacity() fills: place/capacity.h. 0, -ENOENT or -ENOMEM. */
struct place_copy;
int fleet_place_copy(const struct fleet *fleet, const char *pool, const char *digest, struct place_copy **ret);
/* place_pool_room(): place/capacity.h */
struct place_room;
bool fleet_pool_room(const struct fleet *fleet, const char *pool, struct place_room *ret_total, struct place_room *ret_used);
