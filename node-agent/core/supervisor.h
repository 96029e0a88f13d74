/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's brain: every sandbox of this node, the session with the scheduler, admission, adoption after a
 * restart, the reports. Pure: supervisor_step() takes one event, the time and randomness and returns actions;
 * it never does I/O and reads no clock. The shell (node-agent/agent) performs the actions.
 *
 * THE ORDER RULE. The shell performs the actions of a step one after the other, in the order given. An
 * SV_DO_JOURNAL_WRITE is durable (file_replace) before the next action begins: intent is on disk before the
 * act, and nothing is told to anybody that a crash could take back. When a journal write fails, the shell drops
 * the step's remaining actions of the SAME sandbox, except where `best_effort` is set (then it goes on), and
 * feeds SV_EV_JOURNAL_FAILED. Actions of other sandboxes and of the node are performed all the same.
 *
 * Long acts (fetch, mkfs, spawn, guest calls, removal) are started by the action and end in exactly one result
 * event with the same sandbox and generation, unless SV_DO_CANCEL came first. Results that nobody waits for any
 * more are ignored here, so the shell need not be exact about races.
 *
 * Invariants: at most one generation of a sandbox exists on the node; a lower one than known is refused; what
 * ended is never started again; a tombstone stays until the scheduler acknowledged its ENDED report; a VM is
 * destroyed only by a destroy command, a superseding generation, its own end, its life time, or the drift rule of
 * core/reconcile.h, never because a set was empty or partial; an unreadable journal refuses everything and
 * deletes nothing.
 *
 * A paused sandbox (sleep.c) is a disk and a snapshot: no VM, no memory, no slot; it outlives agent and host.
 *
 * A snapshot (snapshot.c) is a moment of a running sandbox that belongs to the node by itself, until the scheduler drops it.
 * It is on the list (inventory, creates) only once it is durable. A sandbox may begin as it.
 *
 * A start that failed for a passing reason before its guest ran keeps its disk for a while; a create of the next
 * generation takes it over and goes on at the stage that failed (keep.c).
 *
 * Leases (link.proto, LeaseGrant): in a pool that wants them no VM is started without one, and none is renewed but
 * to the time at which a heartbeat was sent plus what its grant gives, on CLOCK_BOOTTIME (lease.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/rng.h"
#include "base/sm.h"
#include "core/meter.h"
#include "wire/messages.h"

/* ---- configuration: the node owner's word bounds what any scheduler may ask ---- */
struct sv_config {
	char machine[ID_SIZE];  /* of the state directory, made once at join */
	char instance[ID_SIZE]; /* new at each start */
	char hostname[HOSTNAME_SIZE];
	char version[VERSION_SIZE];
	char cpu_class[ID_NAME_MAX + 1]; /* "": not known */
	char host_boot_id[BOOT_ID_SIZE];
	char run_base[64];              /* /run/croft */
	uint32_t policy_max_sandboxes;  /* 0: no bound beyond the capacity; below too */
	uint64_t policy_max_memory_mib; /* of one sandbox */
	uint32_t policy_max_vcpus;      /* of one sandbox */
	int64_t hello_usec;             /* 1 s: hello again until welcomed */
	int64_t inventory_usec;         /* 5 s: inventory again until the desired set came */
	int64_t resync_usec;            /* 600 s: inventory anew; 60 s while drift is seen */
	int64_t capacity_usec;          /* 5 s: capacity report, if it changed */
	int64_t usage_usec;             /* 60 s: what sandboxes use is told, where it changed; the end of one at once */
	int64_t report_usec;            /* 2 s: first resend of a report; doubles up to 15 s */
	int64_t image_timeout_usec; /* 600 s: IMAGE_FETCH_FAILED (no progress is the shell's own, shorter limit) */
	int64_t disk_timeout_usec;   /* 60 s: DISK_MAKE_FAILED */
	int64_t network_timeout_usec; /* 30 s: HELPER_UNAVAILABLE */
	int64_t vmm_timeout_usec;    /* 20 s: VMM_UNRESPONSIVE; spawn to its STARTED event */
	int64_t kernel_timeout_usec; /* 60 s: KERNEL_TIMEOUT; STARTED to USERSPACE */
	int64_t guest_timeout_usec;  /* 60 s: GUEST_TIMEOUT; USERSPACE to configured */
	int64_t setup_timeout_usec;  /* 300 s: SETUP_TIMEOUT, where the spec names none */
	int64_t adopt_timeout_usec;  /* 10 s */
	int64_t stop_grace_usec; /* 0: SIGKILL at once (nothing of the guest is kept); else power button first */
	int64_t kill_timeout_usec; /* 10 s: STOP_TIMEOUT is reported, and SIGKILL is sent again */
	int64_t remove_retry_usec; /* 5 s */
	int64_t canary_usec; /* 0: none; else at most one test VM in so long, two where the first fails */
	int64_t pause_timeout_usec; /* 300 s: PAUSE_FAILED; until a snapshot is written, and until a VM that was not thaws */
	int64_t keep_usec; /* 60 s: how long a failed start's disk waits for the next attempt; 0: not at all */
	bool pauses; /* the shell can take snapshots and restore them: said in the hello */
	bool stops_on_revoke; /* the scheduler says that the node was removed: sandboxes end; else they run to their timeouts */
	bool snapshots; /* and keep them by themselves: likewise */
	uint32_t part_size;        /* PART_MAX: sandboxes in one part of an inventory */
	uint32_t graves_max; /* 4096: ended or refused (sandbox, generation) remembered in memory */
};
void sv_config_default(struct sv_config *ret); /* timings; the rest is zero */

/* The id of the node's own test VM (canary.c): in actions, and in their results, as a sandbox's. */
#define SV_CANARY "canarycanarycanaryca"

/* ---- states: one table, one mover (sandbox.c) ---- */
enum sv_state {
	SV_IMAGE,    /* waits for the image */
	SV_DISK,     /* waits for the writable disk */
	SV_NETWORK,  /* waits for the network slot */
	SV_VMM,      /* waits for the VMM to be spawned, to confine itself, to take its start and to enter the guest */
	SV_KERNEL,   /* waits for the guest's first process */
	SV_GUEST,    /* waits for croft-guest's hello and for its configuration */
	SV_SETUP,    /* waits for the setup command */
	SV_RUNNING,  /* lives; deadline is its life time */
	SV_ADOPTING, /* after a restart: is its VM still there? */
	/* sleep.c */
	SV_PAUSING,      /* waits for the guest to be frozen and the snapshot to be written */
	SV_SLEEPING,     /* the snapshot is whole: waits for the VMM to end and its slot and run directory to go */
	SV_PAUSED,       /* sleeps: a disk and a snapshot, nothing else */
	SV_WAKE_NETWORK, /* waits for its network slot */
	SV_WAKE_VMM,     /* waits for a VMM that enters the guest where it was */
	SV_WAKE_GUEST,   /* waits for croft-guest to take time, entropy and identity; its processes are frozen */
	SV_THAWING,      /* waits for croft-guest to let them go on */
	SV_STOPPING, /* asked to power off */
	SV_KILLING,  /* SIGKILL was sent; waits for the process to end */
	SV_REMOVING, /* waits for its files to be removed */
	SV_KEPT, /* a start that failed and ended; its disk waits for the next attempt (keep.c) */
	SV_DROPPING, /* nobody came for it: likewise, waits for its files to be removed */
	SV_ENDED, /* tombstone: waits for the scheduler's acknowledgement (a report is sent again and again) */
	SV_STATE_MAX_
};
const char *sv_state_name(enum sv_state state);
enum sv_state sv_state_by_name(const char *name); /* SV_STATE_MAX_: none */
const struct sm_state *sv_state_table(void);

/* ---- the journal: store.proto JournalRecord; the shell encodes, decodes and stores one per sandbox ---- */
struct sv_vmm_id {   /* who the VMM process is; never a bare pid */
	int64_t pid; /* 0: not known */
	uint64_t start_ticks;
	char host_boot_id[BOOT_ID_SIZE];
	char cgroup[128];
	char run_dir[96]; /* <run_base>/<8 hex>: made up by the core, so that the intent names it */
};

/* A file in memory that a fork made and that nobody changes: VMs map it beside what is their own (frozen.c). */
struct sv_frozen {
	uint64_t file; /* its inode; 0: a fork under way may make as much */
	uint32_t mib;
};
#define SV_FROZEN_MAX 10u /* memory, eight layers, a reservation */
struct sv_frozen_list {
	struct sv_frozen items[SV_FROZEN_MAX];
	uint32_t n;
};

struct sv_journal {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	char updated[ID_SIZE];
	uint64_t update_number; /* of the last change that was taken */
	enum sv_state state;
	struct sandbox_spec *spec; /* NULL only in a tombstone */
	uint64_t report_version;
	uint64_t acked_version;
	struct trace trace;
	struct sv_vmm_id vmm;
	char guest_boot_id[BOOT_ID_SIZE];
	struct stage_record *stages;
	size_t n_stages;
	struct err failure;
	enum end_reason end_reason;
	int64_t ready_us;         /* wall clock */
	int64_t life_left_us;     /* at this write; 0: no limit */
	int64_t life_end_mono_us; /* CLOCK_MONOTONIC, of vmm.host_boot_id's boot; 0: no limit */
	uint32_t attempt;
	bool is_waking;       /* SLEEPING, THAWING: of a wake, not of a pause */
	char snapshot[ID_SIZE];           /* the last that was asked for; "": none was */
	char snapshot_operation[ID_SIZE]; /* which asked for it */
	bool is_snapshotting;             /* it is under way */
	struct sv_frozen_list frozen;     /* that its VM maps */
	bool has_no_snapshot; /* of a LOAD: one that sleeps has lost its files */
};
void sv_journal_deinit(struct sv_journal *journal);
int sv_journal_copy(const struct sv_journal *journal, struct sv_journal *ret);

/* Why a VMM ended: vmm.proto VmmExitReason, and what a VMM that left no record tells by itself. */
enum sv_exit {
	SV_EXIT_POWEROFF,
	SV_EXIT_RESET,
	SV_EXIT_PANIC,
	SV_EXIT_TRIPLE_FAULT,
	SV_EXIT_KVM_INTERNAL,
	SV_EXIT_HOST_MEMORY,
	SV_EXIT_STOPPED,      /* by the control socket */
	SV_EXIT_SIGNAL,       /* SIGTERM or SIGINT, handled */
	SV_EXIT_START_FAILED, /* `failure` says why */
	SV_EXIT_BUG,          /* usage, assertion */
	SV_EXIT_KILLED,       /* no record, SIGKILL */
	SV_EXIT_CRASHED,      /* no record otherwise; `signal` where known */
	SV_EXIT_SECCOMP,      /* a system call that its filter forbids; `failure` has its number where known */
	SV_EXIT_LEASE,        /* ended itself: its lease was not renewed */
	SV_EXIT_VANISHED,     /* found gone at adoption */
	SV_EXIT_MAX_
};

/* ---- events ---- */
enum sv_event_type {
	/* At start, before anything else: one LOAD_SNAPSHOT per snapshot that is whole, one LOAD per journal file, one LOAD_BAD
	 * per unreadable one, then START. */
	SV_EV_LOAD_SNAPSHOT, /* snapshot */
	SV_EV_LOAD, /* journal */
	SV_EV_LOAD_USAGE, /* saved: of a sandbox's generation, over or not */
	SV_EV_LOAD_BAD, /* sandbox: its record is torn. It is left alone, its name is refused, nothing is deleted */
	SV_EV_START, /* start: the whole directory is unreadable when start.unreadable is set */

	/* Link. Every message of the scheduler carries the envelope's epoch. */
	SV_EV_LINK_UP,
	SV_EV_LINK_DOWN,
	SV_EV_WELCOME,    /* welcome */
	SV_EV_DESIRED,    /* desired: one part */
	SV_EV_CREATE,     /* create */
	SV_EV_DESTROY,    /* destroy */
	SV_EV_UPDATE,     /* update */
	SV_EV_NETWORK_UPDATE, /* network_update */
	SV_EV_BUDGET_UPDATE, /* budget_update */
	SV_EV_PAUSE,      /* pause */
	SV_EV_RESUME,     /* resume */
	SV_EV_SNAPSHOT,      /* take */
	SV_EV_DROP_SNAPSHOT, /* drop */
	SV_EV_REPORT_ACK, /* ack */
	SV_EV_LEASE,      /* lease */
	SV_EV_USAGE_ACK,  /* number */
	SV_EV_REFUSED,    /* err: HELLO_NEEDED, NODE_ID_IN_USE, ... */

	/* The node's owner, on the node itself. A drain that was asked for in an earlier life comes before START. */
	SV_EV_OWNER_DRAIN, /* owner */
	SV_EV_OWNER_STOP,  /* sandbox: to be ended; "": all */
	SV_EV_OWNER_SNAPSHOT, /* take: of a running one, for the owner alone; no scheduler names it */
	SV_EV_OWNER_DROP,  /* drop */

	/* The host. Whenever it changed, and once right after START. */
	SV_EV_CAPACITY, /* capacity */
	SV_EV_USED,     /* used: what was read of VMs */
	SV_EV_USAGE_SAVED, /* what supervisor_usage_take() gave last is durable */

	/* Results of actions; sandbox and generation say of which. `err` NULL or FAIL_NONE: it worked. */
	SV_EV_JOURNALLED,     /* a journal write that wanted an answer is durable */
	SV_EV_JOURNAL_FAILED, /* err */
	SV_EV_IMAGE_DONE,     /* err */
	SV_EV_DISK_DONE,      /* err */
	SV_EV_NETWORK_DONE,   /* network */
	SV_EV_NETWORK_SET,    /* err: what was in force still is */
	SV_EV_VMM_SPAWNED,    /* vmm or err: the process exists and confines itself */
	SV_EV_VMM_JAILED,     /* jailed: it is confined and waits for its start */
	SV_EV_VMM_STARTED,    /* the first vCPU was entered */
	SV_EV_VMM_USERSPACE,  /* the guest's first process wrote the boot marker */
	SV_EV_VMM_EXITED, /* exited; after SPAWNED, also unasked; also the answer to stop and kill */
	SV_EV_GUEST_HELLO,      /* guest_boot_id, or err: the guest could not make its root */
	SV_EV_GUEST_CONFIGURED, /* err */
	SV_EV_SETUP_DONE, /* err: SETUP_FAILED with field "exit", SETUP_TIMEOUT, GUEST_UNREACHABLE */
	SV_EV_ADOPTED,    /* guest_boot_id, or err: it is not there, or not ours */
	SV_EV_REMOVED,    /* err: files are left */
	SV_EV_SNAPSHOT_DONE, /* err: it is not written, and the VM may be frozen, paused or neither */
	SV_EV_THAWED,     /* err */
	SV_EV_SNAPSHOT_TAKEN,   /* taken: of TAKE_SNAPSHOT; the VM may be frozen, paused or neither, in both cases */
	SV_EV_SNAPSHOT_KEPT,    /* kept */
	SV_EV_SNAPSHOT_DROPPED, /* dropped; of the node */

	SV_EV_TICK, /* actions.next_usec has come */
	SV_EV_MAX_
};

/* What lies in one directory of the disk: a sandbox's, or a snapshot's. */
struct sv_space {
	char id[ID_SIZE];
	uint64_t bytes;
};

struct sv_capacity {
	struct node_capacity capacity;
	uint64_t disk_free_mib;
	struct err unschedulable; /* KVM_UNAVAILABLE, ...; FAIL_NONE: able */
	struct image_list images;
	const struct sv_space *space; /* valid during the event; the supervisor knows whose they are */
	size_t n_space;
};

/* How often a sandbox whose CPU or egress has a budget is to be read. */
#define SV_BUDGET_READ_USEC (250 * USEC_PER_MSEC)

/* Of a sandbox's VM: what its control group and its network slot have counted since they were made. */
struct sv_reading {
	char sandbox[ID_SIZE];
	uint64_t generation;
	bool has_cpu, has_egress;
	uint64_t cpu_us, egress_bytes;
};

/* What outlives the agent of a sandbox's account. */
struct sv_usage_saved {
	struct meter meter;
	uint64_t acked_version;
	char host_boot_id[BOOT_ID_SIZE];
};

struct sv_event {
	enum sv_event_type type;
	char sandbox[ID_SIZE];
	uint64_t generation;
	uint64_t epoch; /* of the envelope, for messages of the scheduler */
	union {
		const struct sv_journal *journal;
		struct {
			const struct err *unreadable; /* NULL: fine */
			uint64_t highest_epoch;       /* as last saved; 0: never */
			struct leader_mark leader;    /* likewise */
		} start;
		const struct welcome *welcome;
		const struct desired_set *desired;
		const struct create_command *create;
		const struct destroy_command *destroy;
		const struct update_command *update;
		const struct network_command *network_update;
		const struct budget_command *budget_update;
		const struct pause_command *pause;
		const struct resume_command *resume;
		const struct snapshot_command *take;
		const char *drop; /* id of a snapshot */
		const struct snapshot_info *snapshot;
		struct {
			const struct err *err;
			const struct sv_frozen_list *frozen; /* of a fork: it lies in the agent's memory; NULL or none: in files */
			uint64_t size_mib;                   /* likewise: that it takes on the disk */
		} taken;
		struct {
			const struct snapshot_info *info; /* complete; its id also where it failed */
			const struct err *err;
		} kept;
		struct {
			const char *snapshot;
			bool answer; /* as in the action */
			const struct err *err;
		} dropped;
		const struct report_ack *ack;
		const struct lease_grant *lease;
		const struct sv_usage_saved *saved;
		uint64_t number;
		struct {
			bool drained;
			const char *why;
			int64_t deadline_usec; /* monotonic: then what runs is ended; 0: nothing is */
		} owner;
		struct {
			const struct sv_reading *readings;
			size_t n;
		} used;
		const struct sv_capacity *capacity;
		struct {
			enum sv_exit reason;
			int signal;
			bool reached_userspace;
			const struct err
				*failure; /* START_FAILED, KVM_INTERNAL, HOST_MEMORY; may be NULL */
		} exited;
		struct {
			bool is_made;     /* false without err: there is none here, `text` says why */
			const char *text; /* which slot */
			const struct err *err;
		} network;
		struct {
			const struct sv_vmm_id *vmm;
			const struct err *err;
		} spawned;
		struct {
			bool is_whole;    /* every step of the jail was applied */
			const char *text; /* what was, or what was not */
		} jailed;
		struct {
			const char *boot_id;
			uint64_t lease_left_ms; /* ADOPTED: of its VM; 0: it has none */
			bool is_unforked; /* ADOPTED: no fork was begun of its VM */
			const struct err *err;
		} guest;               /* GUEST_HELLO, ADOPTED */
		const struct err *err; /* every other result, REFUSED */
	};
};

/* ---- actions ---- */
struct sv_lease {
	uint32_t length_ms; /* 0: none */
	int64_t until_usec; /* CLOCK_BOOTTIME */
};

enum sv_action_type {
	SV_DO_JOURNAL_WRITE, /* journal, best_effort, answer -> JOURNALLED */
	SV_DO_JOURNAL_REMOVE, /* the sandbox's directory as a whole; a failure is only logged (next start tries again) */
	SV_DO_SAVE_EPOCH, /* epoch, leader: durable before the next action, as a journal write */

	SV_DO_FETCH_IMAGE, /* spec: make the image of this digest and size present and verified -> IMAGE_DONE */
	SV_DO_MAKE_DISK, /* spec -> DISK_DONE: an empty one, or a copy of its snapshot's. An existing disk of an interrupted start is made again */
	SV_DO_MAKE_NETWORK, /* spec -> NETWORK_DONE. The same again for a sandbox that has it; REMOVE_FILES gives it back */
	SV_DO_SET_NETWORK, /* spec: its network policy instead of the one in force, as a whole or not at all -> NETWORK_SET */
	SV_DO_SPAWN_VMM, /* spec, frozen_mib -> VMM_SPAWNED, then VMM_JAILED or VMM_EXITED with JAIL_FAILED; out of the agent's process group. vmm.run_dir is in the journal before */
	SV_DO_START_VMM, /* spec, lease, restore: the start request with its descriptors, of the kernel, of its own snapshot (it slept) or of the one that spec names -> VMM_STARTED, or VMM_EXITED with START_FAILED */
	SV_DO_RENEW_VMM, /* lease: its length 0 takes it off. No result: a VMM that does not hear of it ends itself */
	SV_DO_ADOPT_VMM, /* vmm: find it by pidfd + start time + boot id, or by its control socket when pid is 0 -> ADOPTED */
	SV_DO_CONFIGURE_GUEST, /* spec: hostname, env, clock -> GUEST_CONFIGURED */
	SV_DO_RUN_SETUP,       /* spec, timeout_usec -> SETUP_DONE */
	SV_DO_ROUTE,           /* spec, ready: tell the gateway; also again after adoption */
	SV_DO_UNROUTE,
	SV_DO_STOP_VMM, /* power button over the control socket -> VMM_EXITED */
	SV_DO_KILL_VMM, /* vmm: SIGKILL through the pidfd -> VMM_EXITED. pid 0 and no control socket: VANISHED at once */
	SV_DO_SNAPSHOT, /* spec: when there is room the gateway is told that it is not ready, so that who comes meanwhile is refused, not lost, and a refusal for want of room costs no connection; then the guest is frozen, the VMM paused, its memory and state in files beside the disk, all synced -> SNAPSHOT_DONE */
	SV_DO_WAKE_GUEST, /* spec: time, network, entropy, and is_new; it stays frozen -> GUEST_CONFIGURED */
	SV_DO_THAW, /* the VMM runs and the guest is thawed, which both may be already -> THAWED */
	SV_DO_DROP_SNAPSHOT, /* its files, which nobody needs any more; no result */
	SV_DO_TAKE_SNAPSHOT, /* snapshot, spec, frozen_mib: as SNAPSHOT, and a copy of the disk, in an unfinished snapshot of that id; not synced -> SNAPSHOT_TAKEN. With snapshot->is_live memory and state are descriptors that the VMM gives, kept until DROP_KEPT, or files where they cannot be had, of which a NODE_EVENT "fork-by-snapshot" says why */
	SV_DO_KEEP_SNAPSHOT, /* snapshot: what was taken is made durable and whole -> SNAPSHOT_KEPT. CANCEL does not end it */
	SV_DO_DROP_KEPT, /* snapshot_id, answer: all there is of it, unfinished or whole, after a KEEP_SNAPSHOT of it -> SNAPSHOT_DROPPED */
	SV_DO_CANCEL, /* whatever long act of this sandbox is under way; no result is wanted */
	SV_DO_REMOVE_FILES, /* the network slot, all files and sockets but the journal, and but the disk with keep_disk, the snapshot with keep_snapshot; with keep_evidence as of one whose journal has a failure -> REMOVED */

	SV_DO_SEND_HELLO,     /* hello */
	SV_DO_SEND_HEARTBEAT, /* heartbeat */
	SV_DO_SEND_INVENTORY, /* inventory */
	SV_DO_SEND_REPORT,    /* report */
	SV_DO_SEND_CAPACITY,  /* capacity */
	SV_DO_SEND_DROPPED,   /* snapshot_id */
	SV_DO_SEND_USAGE,     /* usage */
	SV_DO_SEND_REFUSED,   /* err: STALE_EPOCH, SCHEDULER_SPLIT */
	SV_DO_STAGE,          /* stage: into the telemetry spool */
	SV_DO_NODE_EVENT, /* name: "sandbox-adopted", "sandbox-drift", ...: into the spool and the log; err may be set */
	SV_DO_RECONNECT, /* drop the connection and dial again after the back-off (the scheduler refused this session) */
	SV_DO_MAX_
};

struct sv_action {
	enum sv_action_type type;
	char sandbox[ID_SIZE]; /* "": of the node */
	uint64_t generation;
	struct sandbox_spec *spec; /* a reference of its own, where the comment says spec */
	struct trace trace;        /* of the sandbox: for the guest, the envelope and the log */
	struct snapshot_info *snapshot; /* owned, where the comment says snapshot */
	uint64_t frozen_mib;            /* that its VM maps, and may come to map, beside its own memory */
	union {
		struct {
			char snapshot_id[ID_SIZE];
			bool answer; /* the scheduler asked */
		};
		struct {
			struct sv_journal *record;
			bool best_effort;
			bool answer;
		} journal;
		struct {
			uint64_t epoch;
			struct leader_mark leader;
		};
		struct {
			struct sv_vmm_id vmm;
			struct sv_lease lease; /* START_VMM, RENEW_VMM */
			bool restore; /* START_VMM: it does not boot, */
			bool restore_own; /* and begins as its own snapshot, in which it slept */
		};
		int64_t timeout_usec;
		bool ready;
		bool is_new; /* WAKE_GUEST: it gets the sandbox's identity, for it had another */
		struct {
			bool keep_disk, keep_snapshot, keep_evidence; /* REMOVE_FILES */
		};
		struct hello *hello;
		struct heartbeat heartbeat;
		struct inventory *inventory;
		struct sandbox_report *report;
		struct capacity_report *capacity;
		struct usage_report *usage;
		struct stage_record *stage;
		struct {
			const char *name; /* static */
			struct err *err;  /* NULL: none */
			char snapshot[ID_SIZE]; /* that it is about; "": none */
		} event;
		struct err *err;
	};
};

struct sv_actions {
	struct sv_action *items;
	size_t n;
	size_t room;
	int64_t next_usec; /* monotonic; SV_EV_TICK is due then. INT64_MAX: nothing waits */
	bool no_memory; /* the step lost an action: the shell ends the process; VMs live on and are adopted */
};
/* Frees what the actions own and makes it ready for the next step; copes with a zeroed one. */
void sv_actions_clear(struct sv_actions *actions);
/* Frees one action's contents and zeroes it: for a shell that holds some of them longer. */
void sv_action_deinit(struct sv_action *action);

/* ---- the object ---- */
struct supervisor;
int supervisor_new(struct supervisor **ret, const struct sv_config *config);
struct supervisor *supervisor_free(struct supervisor *supervisor); /* returns NULL */
DEFINE_CLEANUP(struct supervisor, supervisor_free)

/* `out` must be zeroed or cleared; it is filled. */
void supervisor_step(struct supervisor *supervisor, struct moment now, struct rng *rng,
	const struct sv_event *event, struct sv_actions *out);

/* ---- usage: the shell reads VMs (SV_EV_USED), and writes this down now and then, whole ---- */
/* Every account, counted up to `now`, those of sandboxes that are over too; returns how many. What was given is sent to the
 * scheduler once SV_EV_USAGE_SAVED says that it is durable. */
size_t supervisor_usage_take(
	struct supervisor *supervisor, struct moment now, void (*each)(const struct sv_usage_saved *saved, void *user), void *user);

/* ---- reading ---- */
struct sv_view {
	enum sv_state state;
	uint64_t generation;
	struct sandbox_spec *spec; /* immutable; the supervisor's reference */
	const struct sv_vmm_id *vmm;
	const char *guest_boot_id;
	int64_t deadline_usec; /* monotonic; of the state; 0: none (a life without limit) */
	uint64_t report_version;
	uint64_t acked_version;
};
int supervisor_get(const struct supervisor *supervisor, const char *sandbox,
	struct sv_view *ret); /* 0 or -ENOENT */
/* Ids in no particular order; returns how many there are, of which at most `max` were written. */
size_t supervisor_list(const struct supervisor *supervisor, char (*ret)[ID_SIZE], size_t max);

/* Whether a snapshot needs the image of this digest. */
bool supervisor_keeps_image(const struct supervisor *supervisor, const char *digest);

struct sv_counts {
	uint32_t starting, running, paused, stopping, ended, bad; /* sandboxes */
	uint64_t memory_mib, disk_mib;                    /* taken, overhead, snapshots and what is frozen included */
	uint64_t frozen_mib;                              /* of it */
	uint32_t snapshots;                               /* that are kept */
	uint32_t vcpus;
	uint64_t refused, stale_epoch, drift, destroyed_for_drift;
	bool welcomed;
};
void supervisor_count(const struct supervisor *supervisor, struct sv_counts *ret);
