/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent: a shell around core/supervisor. Everything that happens (a frame, a process's end, a
 * job that is done, a timer) becomes one event for the supervisor; what it answers is performed
 * here, in order. One libevent loop, no locks; file work that may block runs in the worker.
 *
 * Only the files of this folder that perform actions or feed events include this header.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "agent/identity.h"
#include "agent/options.h"
#include "base/err.h"
#include "base/rng.h"
#include "core/supervisor.h"

struct event;
struct event_base;
struct helper_link;
struct host;
struct image_collect;
struct images;
struct link;
struct live_fork;
struct meters;
struct owner;
struct relay;
struct resolver;
struct routes;
struct sandbox;
struct spool;
struct upgrade;
struct worker;

/* A result that is fed to the supervisor on the next turn of the loop. Performers may run inside a
 * step, so they never feed; they post. */
struct post {
	STAILQ_ENTRY(post) link;
	enum sv_event_type type;
	char sandbox[ID_SIZE];
	uint64_t generation;
	struct err err;
	struct sv_vmm_id vmm;       /* VMM_SPAWNED */
	char boot_id[BOOT_ID_SIZE]; /* GUEST_HELLO, ADOPTED */
	uint64_t lease_left_ms;     /* ADOPTED */
	bool is_unforked;           /* likewise */
	bool is_whole;              /* VMM_JAILED; NETWORK_DONE: is_made */
	char text[64];              /* likewise */
	enum sv_exit exit_reason;   /* VMM_EXITED */
	int exit_signal;
	bool reached_userspace;
	struct snapshot_info snapshot; /* SNAPSHOT_KEPT; SNAPSHOT_DROPPED: its id; SNAPSHOT_TAKEN: its size */
	struct sv_frozen_list frozen;  /* SNAPSHOT_TAKEN */
	bool answer;                   /* SNAPSHOT_DROPPED */
	struct sv_reading reading;     /* USED */
};

struct agent {
	const struct agent_options *options;
	struct identity identity;
	struct curve_keys keys;
	char machine[ID_SIZE], instance[ID_SIZE];
	uint64_t saved_epoch; /* as read at the start */

	struct event_base *base;
	void *zmq;
	struct worker *worker;
	struct worker *bulk; /* one thread for what takes long (worker.h) */
	struct spool *spool;
	struct images *images;
	struct image_collect *collect;
	struct routes *routes;
	struct helper_link *helper; /* NULL: none is configured */
	bool helper_starts_vmms;    /* as it last said */
	struct resolver *resolver;  /* likewise */
	uint32_t slots_listed;      /* by the helper, of the walk under way */
	struct relay *relay;
	struct link *link;
	struct host *host;
	struct meters *meters;
	struct owner *owner;
	struct upgrade *upgrade; /* that is under way; NULL: none */

	struct live_fork *forks; /* uthash, forks.h */
	struct supervisor *supervisor;
	struct rng rng;
	struct sv_actions actions;
	struct event *tick;
	bool is_stepping;

	struct sandbox *sandboxes; /* uthash, sandbox.c */
	struct event *post_event;
	STAILQ_HEAD(, post) posts;

	uint64_t step;             /* number of the step whose actions are queued */
	uint64_t last_ticket;      /* of journal writes */
	TAILQ_HEAD(, todo) writes; /* journal writes not yet durable, oldest first */
	STAILQ_HEAD(, held) held;  /* inventories that wait for them */

	struct err fatal; /* set: the loop ends */
};

/* agent.c */
int agent_run(const struct agent_options *options, struct err *reterr);
/* One step of the supervisor; performs or queues what it answers. */
void agent_feed(struct agent *agent, const struct sv_event *event);
/* Copies; without memory the agent ends (VMs live on, the next agent adopts them). */
void agent_post(struct agent *agent, const struct post *post);
void agent_fail(struct agent *agent, const struct err *err);
/* Into the telemetry spool. Of no sandbox, of no snapshot: "". err may be NULL. */
void agent_node_event(
	struct agent *agent, const char *name, const char *sandbox, const char *snapshot, const struct err *err);

/* perform.c: the actions of the node itself; those of a sandbox go to sandbox_queue(). */
void perform_actions(struct agent *agent, struct sv_actions *actions);
/* A journal write ended: inventories that waited for it may go. */
void perform_held(struct agent *agent);
void perform_free(struct agent *agent);
