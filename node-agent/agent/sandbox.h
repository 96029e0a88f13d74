/* SPDX-License-Identifier: Apache-2.0
 *
 * What the agent holds of one sandbox: the queue of its actions, its VMM, its calls to the guest,
 * its listener for the guest's hello, its files. The state machine is the supervisor's; here is
 * only what an action needs a place for. The object is made by the first action (or the journal)
 * that names the sandbox and goes when nothing is left of it.
 *
 *   sandbox.c         the object, its queue, its journal
 *   sandbox-act.c     image, disk, removal
 *   sandbox-vmm.c     VMM
 *   sandbox-sleep.c   snapshot, wake, thaw
 *   sandbox-snapshot.c  what makes a snapshot whole, and what drops one
 *   sandbox-guest.c   hello, configuration, setup, adoption
 *   sandbox-net.c     network slot
 *   sandbox-egress.c  what its network was used for
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "agent/agent.h"
#include "agent/kills.h"
#include "agent/todo.h"
#include "agent/vmm.h"
#include "agent/vmm-spawn.h"
#include "base/table.h"
#include "helper/message.h"

struct evconnlistener;
struct guest_call;
struct hello_listener;
struct image_wait;
struct vmm;

#define DISK_NAME "disk"
#define SNAPSHOT_STATE_NAME "snapshot-state"
#define SNAPSHOT_MEMORY_NAME "snapshot-memory"

/* What is waited for on the way to sleep or back. */
enum sleep_step {
	SLEEP_NONE,
	SLEEP_LIMIT,
	SLEEP_MAKE_ROOM,
	SLEEP_FREEZE,
	SLEEP_PAUSE_VM,
	SLEEP_FORK,
	SLEEP_WRITE,
	SLEEP_COPY,
	SLEEP_SYNC,
	SLEEP_WAKE,
	SLEEP_RESUME_VM,
	SLEEP_THAW_GUEST,
};

struct sandbox {
	UT_hash_handle hh;
	struct agent *agent;
	char id[ID_SIZE];
	uint64_t generation; /* of the last action */
	STAILQ_HEAD(, todo) queue;
	bool is_busy;        /* a journal write or removal is with the worker: the queue stands */
	unsigned int n_jobs; /* of all kinds */

	char run_dir[PATH_MAX]; /* "": none yet */
	bool has_failed;        /* its console is kept */
	bool keeps_disk, keeps_snapshot; /* when its files are removed */
	struct vmm *vmm;
	bool vmm_is_gone; /* its end was posted; freed with the next turn */
	struct vmm_exit end; /* while its helper is asked how */
	bool is_spawning;    /* the helper was asked to start it */
	bool wants_kill;     /* and it is to be killed as soon as it is there */
	struct sv_vmm_id intent;
	struct vmm_files files;            /* for it */
	struct helper_group_limits limits; /* likewise */
	bool group_has_limits;
	bool is_adopting;
	uint64_t lease_left_ms;           /* as its VMM last said */
	bool is_unforked;                 /* likewise */
	char guest_boot_id[BOOT_ID_SIZE]; /* by which an adopted VM is known */
	struct guest_call *call;          /* configure, setup, or the info of an adoption */
	struct guest_call *power_off;
	struct image_wait *image;
	struct hello_listener *hello;
	struct kills kills; /* of its guest's kernel */
	struct helper_slot slot; /* of the start under way */
	struct sandbox_spec *net_spec;   /* with the network policy in force, or being set */
	struct sandbox_spec *net_former; /* with the one in force while another is being set; NULL: none is */
	int tap;                 /* -1: the sandbox has no network, or its VMM has it */
	bool has_slot;           /* the helper holds one for it */
	struct net_counters *counters; /* of its slot, as last read; NULL: not yet */
	int64_t counters_due_usec;
	bool is_counting;        /* they are asked for */
	bool is_quick;           /* for its budget alone */
	unsigned int n_asks;     /* of the helper, not answered yet */
	struct sandbox_spec *spec; /* of the call under way */
	unsigned int tries;        /* of the call under way */
	struct event *retry;
	enum sleep_step sleep_step;
	char snapshot_id[ID_SIZE]; /* of the one that is taken; "": it is its own, to sleep in */
	struct sandbox_spec *taken_spec; /* of the one that is taken, or slept in */
	bool is_live;                    /* its memory is not written */
	struct vmm_fork fork;            /* what the VMM gave */
	void (*limited)(struct sandbox *sandbox, const struct err *err);
	uint64_t limit_act;              /* sleep_acts when the helper was asked */
	uint64_t snapshot_mib; /* that a snapshot under way may yet write; 0: none is */
	uint64_t sleep_acts; /* rises with each act of sleep, and when one is ended */
};

/* sandbox.c */
void sandbox_queue(struct agent *agent, struct sv_action *action); /* takes the action's contents */
void sandbox_run_queues(struct agent *agent);
struct sandbox *sandbox_find(struct agent *agent, const char *id);
/* One that the journal named at the start. */
int sandbox_load(struct agent *agent, const struct sv_journal *journal);
/* Frees the object when nothing is left of it. */
void sandbox_settle(struct sandbox *sandbox);
void sandbox_set_run_dir(struct sandbox *sandbox, const char *path);
/* A result of this sandbox without more than an error (NULL: it worked). */
void sandbox_post(struct sandbox *sandbox, enum sv_event_type type, const struct err *err);
/* After the worker was freed. The VMs live on. */
void sandbox_free_all(struct agent *agent);
/* Every few seconds. */
void sandbox_trim_all(struct agent *agent);
/* The turn after a VMM's end. */
void sandbox_reap(struct sandbox *sandbox);

/* sandbox-act.c */
void sandbox_perform(struct sandbox *sandbox, struct sv_action *action);
void sandbox_route(struct sandbox *sandbox, const struct sandbox_spec *spec, bool ready); /* tells the gateway */
void sandbox_cancel(struct sandbox *sandbox);
void sandbox_post_exit(struct sandbox *sandbox, enum sv_exit reason);

/* sandbox-vmm.c */
void sandbox_spawn_vmm(struct sandbox *sandbox, const struct sv_vmm_id *intent, const struct sandbox_spec *spec,
	uint64_t frozen_mib);
/* Its control group may hold so much frozen memory besides. 0: `done` comes with the helper's answer; 1: nothing is to be done. */
int sandbox_limit_memory(struct sandbox *sandbox, const struct sandbox_spec *spec, uint64_t frozen_mib,
	void (*done)(struct sandbox *sandbox, const struct err *err), struct err *reterr);
void sandbox_kill_vmm(struct sandbox *sandbox, const struct sv_vmm_id *id);
extern const struct vmm_handler sandbox_vmm_handler;

/* Files and sockets; ends in SV_EV_REMOVED. */
void sandbox_remove_files(struct sandbox *sandbox);

/* sandbox-sleep.c */
void sandbox_snapshot(struct sandbox *sandbox, struct sandbox_spec *spec);
void sandbox_take_snapshot(struct sandbox *sandbox, const struct sv_action *action);
void sandbox_snapshot_paths(const struct sandbox *sandbox, char state[static PATH_MAX], char memory[static PATH_MAX]);
/* `spec` NULL: it is who it was. */
void sandbox_wake_guest(struct sandbox *sandbox, struct sandbox_spec *spec);
void sandbox_thaw(struct sandbox *sandbox);
void sandbox_drop_snapshot(struct sandbox *sandbox);
void sandbox_sleep_cancel(struct sandbox *sandbox);
void sandbox_sleep_retry(struct sandbox *sandbox);
void sandbox_on_slept(const struct err *err, void *user); /* of struct vmm_handler */

/* sandbox-snapshot.c: of the node, whatever becomes of a sandbox. Each ends in one posted result. */
void snapshot_keep(struct agent *agent, const char *sandbox, uint64_t generation, const struct snapshot_info *info);
void snapshot_drop(struct agent *agent, const char *snapshot, bool answer);

/* sandbox-net.c */
int sandbox_net_open(struct agent *agent, struct err *reterr);
void sandbox_net_close(struct agent *agent);
void sandbox_make_network(struct sandbox *sandbox, struct sandbox_spec *spec);
void sandbox_set_network(struct sandbox *sandbox, struct sandbox_spec *spec);
/* Then the files; ends in SV_EV_REMOVED. */
void sandbox_give_back_network(struct sandbox *sandbox);

/* sandbox-egress.c */
/* Every few seconds: asks for the counters of those whose turn it is. */
void sandbox_count_all(struct agent *agent);
/* Of one whose egress has a budget: how much was sent, and nothing else of it is told. */
void sandbox_count_sent(struct sandbox *sandbox);
/* For the last time, before the slot goes. */
void sandbox_count_last(struct sandbox *sandbox);

/* sandbox-guest.c */
void sandbox_vsock_path(const struct sandbox *sandbox, char ret[static PATH_MAX]);
void sandbox_configure(struct sandbox *sandbox, const struct sandbox_spec *spec);
void sandbox_setup(struct sandbox *sandbox, const struct sandbox_spec *spec,
	const struct trace *trace, int64_t timeout_usec);
void sandbox_adopt(struct sandbox *sandbox, const struct sv_vmm_id *id);
void sandbox_ask_status(struct sandbox *sandbox);
void sandbox_adopt_status(struct sandbox *sandbox); /* the VMM answered */
int sandbox_listen_hello(struct sandbox *sandbox, struct err *reterr);
void sandbox_stop_hello(struct sandbox *sandbox);
/* Its guest's kills for want of memory, where they are to be told now. */
void sandbox_tell_kills(struct sandbox *sandbox);
void sandbox_power_off(struct sandbox *sandbox);

/* perform.c */
void perform_shared(struct agent *agent, const struct sv_action *action);
void perform_stage(struct agent *agent, const struct stage_record *stage);
