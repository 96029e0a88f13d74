/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of link.proto as plain structs, for the pure cores (scheduler/fleet, node-agent/core) and for
 * the shells around them. Conversion in both directions stands here and nowhere else, and a decoder is the
 * one place where a peer's message is validated: ids, names, digests, bounds, known enum values. What a
 * decoder let through needs no second check; what it refuses is FRAME_INVALID naming the member.
 *
 * Every struct that owns heap memory has a ..._deinit() that copes with a zeroed struct. A struct
 * sandbox_spec is immutable once made and shared by reference count (one thread only).
 *
 * Encoders allocate with malloc: free the result with protobuf_c_message_free_unpacked(&m->base, NULL); NULL
 * when memory is short. Decoders set *ret only on success and return 0 or a negative errno with reterr.
 * check_unpack() must have stood before every decoder.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/net-policy.h"
#include "pb/link.pb-c.h"
#include "wire/records.h"

/* The time of a step: pure code gets it as an argument. Both in microseconds. */
struct moment {
	int64_t mono_usec; /* CLOCK_MONOTONIC; all deadlines are measured on it */
	int64_t real_usec; /* since the epoch; for records only, it may jump */
	int64_t boot_usec; /* CLOCK_BOOTTIME, for leases: it goes on while the host sleeps. Of a node; else 0 */
};

#define BOOT_ID_SIZE 37 /* a UUID and NUL */
#define HOSTNAME_SIZE 65
#define VERSION_SIZE 32
#define ACCESS_TOKEN_SIZE 128
#define SPEC_ENV_MAX 256          /* variables */
#define SPEC_TEXT_MAX (64 * 1024) /* bytes of all env together, and of the setup command */
#define SPEC_VCPUS_MAX 255
#define SPEC_MEMORY_MIB_MAX (UINT64_C(1) << 24)
#define SPEC_DISK_MIB_MAX (UINT64_C(1) << 28)
#define SPEC_TIMEOUT_S_MAX (366u * 24 * 3600)
#define IMAGES_MAX 4096 /* of one node */
#define STAGES_MAX 64   /* of one report */
#define PART_MAX 256    /* sandboxes in one part of an inventory or desired set */

/* ---- the sandbox's specification ---- */
struct sandbox_field {
	char *key;
	char *value;
};

/* What one generation of a sandbox may use (usage_record); 0: no limit. */
struct budget {
	uint64_t cpu_us;
	uint64_t memory_mib_ms; /* memory times the time that it runs */
	uint64_t egress_bytes;
	uint64_t wall_us; /* that it runs: sleep costs none */
	bool pauses;      /* it is paused then, not ended */
};
bool budget_is_set(const struct budget *budget);
bool budget_is_equal(const struct budget *a, const struct budget *b);
bool budget_is_valid(const struct budget *budget); /* no limit is beyond what can be counted */
Croft__Budget *budget_encode(const struct budget *budget);
int budget_decode(const Croft__Budget *message, struct budget *ret, struct err *reterr); /* absent: none */

struct sandbox_spec {
	unsigned int n_refs;
	char template_name[ID_NAME_MAX + 1];
	char image_digest[DIGEST_SIZE];
	uint64_t image_size;
	uint32_t vcpus;
	uint64_t memory_mib;
	uint64_t disk_mib;
	struct sandbox_field *env;
	size_t n_env;
	char *setup_command;       /* NULL: none */
	uint32_t setup_timeout_ms; /* 0: the node's default */
	uint32_t timeout_s;        /* life after ready; 0: none */
	char access_token[ACCESS_TOKEN_SIZE];
	bool secure;
	bool auto_pause;  /* at the end of its life it is paused instead of ended */
	bool auto_resume; /* a call for it wakes it where it sleeps */
	char tenant[ID_NAME_MAX + 1]; /* whose it is; the node only says it back. "": an older scheduler made it */
	char snapshot[ID_SIZE]; /* it begins as this one; "": it boots */
	struct budget budget;
	struct net_policy network;
};

/* One with one reference: zeroed but for the network, which is the internet. NULL when memory is short. */
struct sandbox_spec *spec_new(void);
/* Adds a variable (copies); 0, -E2BIG over the bounds, -EINVAL for a bad name, -ENOMEM. Only before it is shared. */
int spec_add_env(struct sandbox_spec *spec, const char *name, const char *value);
/* 0, -E2BIG, -ENOMEM. Only before it is shared. */
int spec_set_setup(struct sandbox_spec *spec, const char *command);
/* The same with another network policy (copies), with one reference; NULL when memory is short. */
struct sandbox_spec *spec_with_network(const struct sandbox_spec *spec, const struct net_policy *network);
/* With another budget. */
struct sandbox_spec *spec_with_budget(const struct sandbox_spec *spec, const struct budget *budget);
struct sandbox_spec *spec_ref(struct sandbox_spec *spec);   /* NULL gives NULL */
struct sandbox_spec *spec_unref(struct sandbox_spec *spec); /* returns NULL */
DEFINE_CLEANUP(struct sandbox_spec, spec_unref)
/* What a decoder demands: 1 or more vCPUs, memory and digest, and the bounds above. INVALID_ARGUMENT naming the
 * field; the API uses it too, so that what it lets through no node refuses as malformed. */
int spec_check(const struct sandbox_spec *spec, struct err *reterr);
/* What one sandbox takes from NodeCapacity.memory_mib, VMM overhead included. The one formula, used by the
 * scheduler and by the node. */
uint64_t spec_memory_cost(const struct sandbox_spec *spec);
/* The other way round: the most memory that a sandbox which takes no more than `cost` may ask for; 0: none. */
uint64_t spec_memory_within(uint64_t cost_mib);

Croft__SandboxSpec *spec_encode(const struct sandbox_spec *spec);
int spec_decode(const Croft__SandboxSpec *message, struct sandbox_spec **ret, struct err *reterr);

/* ---- node: who and how much ---- */
struct node_capacity {
	uint64_t memory_mib; /* for sandboxes, VMM overhead included */
	uint32_t cpus;
	uint64_t disk_mib;
	uint32_t max_sandboxes;
	uint32_t max_starts; /* at once */
	uint32_t max_vcpus;  /* of one sandbox */
	uint64_t frozen_mib; /* of the memory, beside what sandboxes have of it */
};
Croft__NodeCapacity *capacity_encode(const struct node_capacity *capacity);
void capacity_decode(const Croft__NodeCapacity *message, struct node_capacity *ret); /* clamps */
bool capacity_is_equal(const struct node_capacity *a, const struct node_capacity *b);

struct image_list {
	char (*digests)[DIGEST_SIZE];
	size_t n;
};
void image_list_deinit(struct image_list *list);
int image_list_add(struct image_list *list, const char *digest); /* 0, -EINVAL, -E2BIG, -ENOMEM */
int image_list_copy(const struct image_list *list, struct image_list *ret);

#define LINK_KEY_SIZE 41 /* as KEY_Z85_SIZE */
#define LINK_ENDPOINTS_MAX 8
#define LINK_ENDPOINT_SIZE 256

/* instance and machine have the form of id_new(). */
/* Whom a node obeyed last: with the epoch, enough to tell a copied scheduler from one that was started again. */
struct leader_mark {
	char lineage[ID_SIZE]; /* "": not known */
	char run[ID_SIZE];
};

struct hello {
	char instance[ID_SIZE]; /* new at each start of the agent */
	char machine[ID_SIZE];  /* of the state directory */
	char boot_id[BOOT_ID_SIZE];
	char hostname[HOSTNAME_SIZE];
	char version[VERSION_SIZE];
	char cpu_class[ID_NAME_MAX + 1]; /* "": not known */
	struct node_capacity capacity;
	struct err unschedulable; /* FAIL_NONE: may be placed on */
	struct image_list images;
	uint64_t highest_epoch;
	struct leader_mark leader; /* who had it */
	bool pauses; /* it knows pause and resume */
	bool snapshots; /* it knows snapshots, and specs with one */
	char server_key[LINK_KEY_SIZE]; /* that its link was made with; "": not said */
	char next_key[LINK_KEY_SIZE];   /* that it has stored */
	int64_t realtime_us; /* its clock; 0: an agent that does not know ClockPing */
};
void hello_deinit(struct hello *hello);
Croft__Hello *hello_encode(const struct hello *hello);
int hello_decode(const Croft__Hello *message, struct hello *ret, struct err *reterr);

/* Beside the welcome, which the fleet makes; proto/link.proto says what a node takes of it. */
struct link_set {
	char key[LINK_KEY_SIZE]; /* "": not said */
	char next_key[LINK_KEY_SIZE], old_key[LINK_KEY_SIZE]; /* "": none */
	char endpoints[LINK_ENDPOINTS_MAX][LINK_ENDPOINT_SIZE];
	unsigned int n_endpoints;
};
Croft__LinkSet *link_set_encode(const struct link_set *set);
int link_set_decode(const Croft__LinkSet *message, struct link_set *ret, struct err *reterr);

struct welcome {
	char node[ID_SIZE];
	char pool[ID_NAME_MAX + 1];
	uint32_t heartbeat_ms;
	char lineage[ID_SIZE];
	uint64_t telemetry_acked;
	int64_t realtime_us;
	uint32_t lease_ms; /* 0: VMs of this pool have none */
	uint64_t greeting; /* of this session with this scheduler */
	char run[ID_SIZE]; /* of the scheduler; "": one that does not say */
	bool takes_usage;  /* it wants to hear what sandboxes use */
};
Croft__Welcome *welcome_encode(const struct welcome *welcome);
int welcome_decode(const Croft__Welcome *message, struct welcome *ret, struct err *reterr);

struct heartbeat {
	bool schedulable;
	uint32_t starting;
	uint32_t running;
	int64_t realtime_us;
	uint64_t number;   /* 0: an agent without leases */
	uint32_t lease_ms; /* every VM there has a lease of at most this; 0: not every one */
};
Croft__Heartbeat *heartbeat_encode(const struct heartbeat *heartbeat);
void heartbeat_decode(const Croft__Heartbeat *message, struct heartbeat *ret);

struct lease_grant {
	uint64_t heartbeat; /* the number that it answers */
	uint32_t lease_ms;
};
Croft__LeaseGrant *lease_grant_encode(const struct lease_grant *grant);
void lease_grant_decode(const Croft__LeaseGrant *message, struct lease_grant *ret);

/* How much of a node's disk is whose. The unit is its maker's: a report has MiB. */
#define SPACE_TENANTS_MAX 256
struct tenant_space {
	char tenant[ID_NAME_MAX + 1]; /* "": nobody's, and of those that came when the list was full */
	uint64_t used;
};
struct space_list {
	struct tenant_space *items;
	size_t n;
};
void space_list_deinit(struct space_list *list);
int space_list_add(struct space_list *list, const char *tenant, uint64_t used); /* to what is there: 0, -EINVAL, -ENOMEM */
int space_list_copy(const struct space_list *list, struct space_list *ret);
uint64_t space_list_of(const struct space_list *list, const char *tenant);

struct capacity_report {
	struct node_capacity capacity;
	uint64_t memory_used_mib;
	uint64_t disk_free_mib;
	struct err unschedulable;
	struct image_list images;
	struct space_list space; /* MiB */
};
void capacity_report_deinit(struct capacity_report *report);
Croft__CapacityReport *capacity_report_encode(const struct capacity_report *report);
int capacity_report_decode(
	const Croft__CapacityReport *message, struct capacity_report *ret, struct err *reterr);

/* ---- commands: scheduler -> node ---- */
enum end_reason {
	END_NONE,
	END_REQUEST,    /* somebody asked */
	END_TIMEOUT,    /* its life ran out */
	END_SUPERSEDED, /* a newer generation exists: fencing */
	END_UNKNOWN,    /* nobody knows it: drift */
	END_FAILED,     /* start or life failed; the failure says how */
	END_GUEST,      /* the guest powered itself off */
	END_DRAINED,    /* its node was drained and the deadline came */
	END_REASON_MAX_
};
const char *end_reason_name(enum end_reason reason);  /* "request", ...; "" for END_NONE */
enum end_reason end_reason_by_name(const char *name); /* END_NONE when unknown */

/* Trace and time left travel in the envelope; the shell moves them there and back. */
struct create_command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	uint32_t attempt; /* from 1 */
	uint64_t took;    /* generation of the warm VM that becomes it; 0: none */
	struct sandbox_spec *spec;
	struct trace trace; /* envelope */
	int64_t left_usec;  /* envelope deadline_ms; 0: none */
};
void create_command_deinit(struct create_command *command);
Croft__CreateSandbox *create_command_encode(const struct create_command *command);
int create_command_decode(
	const Croft__CreateSandbox *message, struct create_command *ret, struct err *reterr);

struct destroy_command {
	char sandbox[ID_SIZE];
	uint64_t generation; /* this one or older */
	char operation[ID_SIZE];
	enum end_reason reason;
};
Croft__DestroySandbox *destroy_command_encode(const struct destroy_command *command);
int destroy_command_decode(
	const Croft__DestroySandbox *message, struct destroy_command *ret, struct err *reterr);

/* A new life time, counted from its arrival. Done when a report's `updated` is this operation. */
struct update_command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	uint32_t timeout_s; /* 0: none */
	uint64_t number;    /* rises with each change of the sandbox, of either kind; 0: not said */
};
Croft__UpdateSandbox *update_command_encode(const struct update_command *command);
int update_command_decode(
	const Croft__UpdateSandbox *message, struct update_command *ret, struct err *reterr);

/* Done when a report says paused (running); not done when one names the operation in `updated` and says the other. */
struct pause_command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	uint64_t number; /* as in update_command */
};
Croft__PauseSandbox *pause_command_encode(const struct pause_command *command);
int pause_command_decode(const Croft__PauseSandbox *message, struct pause_command *ret, struct err *reterr);

struct resume_command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	uint32_t timeout_s; /* from then on; 0: none */
	uint64_t number;    /* as in update_command */
	bool has_budget;    /* false: it stays as it is */
	struct budget budget;
};
Croft__ResumeSandbox *resume_command_encode(const struct resume_command *command);
int resume_command_decode(const Croft__ResumeSandbox *message, struct resume_command *ret, struct err *reterr);

/* A moment of a sandbox that its node keeps by itself: what a sandbox that begins as it has to be. */
struct snapshot_info {
	char id[ID_SIZE];
	char sandbox[ID_SIZE]; /* of which it is a moment */
	char tenant[ID_NAME_MAX + 1];
	char template_name[ID_NAME_MAX + 1];
	char image_digest[DIGEST_SIZE];
	uint64_t image_size;
	uint32_t vcpus;
	uint64_t memory_mib;
	uint64_t disk_mib;
	uint64_t size_mib; /* that it takes on the node's disk */
	char cpu_class[ID_NAME_MAX + 1]; /* of the node; "": not known */
	int64_t created_usec; /* realtime */
	bool is_live; /* in the agent's memory */
};
Croft__Snapshot *snapshot_info_encode(const struct snapshot_info *info);
int snapshot_info_decode(const Croft__Snapshot *message, struct snapshot_info *ret, struct err *reterr);

/* Done when a report names it in `updated`: with the snapshot, or with the reason in `update_failure`. */
struct snapshot_command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	uint64_t number; /* as in update_command */
	char snapshot[ID_SIZE];
	bool is_live; /* of a fork: it may be one in memory */
};
Croft__SnapshotSandbox *snapshot_command_encode(const struct snapshot_command *command);
int snapshot_command_decode(const Croft__SnapshotSandbox *message, struct snapshot_command *ret, struct err *reterr);

/* Another budget. Done when a report's `updated` is this. */
struct budget_command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	struct budget budget;
	uint64_t number; /* as in update_command */
};
Croft__BudgetUpdate *budget_command_encode(const struct budget_command *command);
int budget_command_decode(const Croft__BudgetUpdate *message, struct budget_command *ret, struct err *reterr);

/* Both name the snapshot alone. */
Croft__DropSnapshot *drop_snapshot_encode(const char *snapshot);
int drop_snapshot_decode(const Croft__DropSnapshot *message, char ret[static ID_SIZE], struct err *reterr);
Croft__SnapshotDropped *snapshot_dropped_encode(const char *snapshot);
int snapshot_dropped_decode(const Croft__SnapshotDropped *message, char ret[static ID_SIZE], struct err *reterr);

/* Another network policy. Done, or failed with the report's `update_failure`, when a report's `updated` is this. */
struct network_command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE];
	struct net_policy network;
	uint64_t number; /* as in update_command */
};
void network_command_deinit(struct network_command *command);
Croft__NetworkUpdate *network_command_encode(const struct network_command *command);
int network_command_decode(const Croft__NetworkUpdate *message, struct network_command *ret, struct err *reterr);
/* Of a message; absent: the internet. `ret` is to be deinitialised in every case. */
Croft__NetworkPolicy *net_policy_encode(const struct net_policy *policy);
int net_policy_decode(const Croft__NetworkPolicy *message, struct net_policy *ret, struct err *reterr);

struct report_ack {
	char sandbox[ID_SIZE];
	uint64_t generation;
	uint64_t version;
};
Croft__ReportAck *report_ack_encode(const struct report_ack *ack);
int report_ack_decode(const Croft__ReportAck *message, struct report_ack *ret, struct err *reterr);

struct desired_sandbox {
	char sandbox[ID_SIZE];
	uint64_t generation;
};

/* Parts are numbered from 0; `complete` stands on the last; `inventory` is the number of the inventory that is
 * answered. Parts of different numbers are never put together. */
struct desired_set {
	struct desired_sandbox *sandboxes;
	size_t n;
	uint32_t part;
	bool complete;
	uint64_t inventory;
	char (*snapshots)[ID_SIZE]; /* to be kept; at most PART_MAX in a part */
	size_t n_snapshots;
	bool knows_snapshots; /* false: the set says nothing of them */
};
void desired_set_deinit(struct desired_set *set);
Croft__DesiredSet *desired_set_encode(const struct desired_set *set);
int desired_set_decode(
	const Croft__DesiredSet *message, struct desired_set *ret, struct err *reterr);

/* ---- reports: node -> scheduler ---- */
enum report_state {
	REPORT_NONE,
	REPORT_STARTING,
	REPORT_RUNNING,
	REPORT_STOPPING,
	REPORT_ENDED,
	REPORT_PAUSED,
	REPORT_UNKNOWN, /* one that a newer node knows: the sandbox is there, and nothing more can be said */
	REPORT_MAX_
};
const char *report_state_name(enum report_state state);

/* The whole truth about one sandbox on its node. */
struct sandbox_report {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char operation[ID_SIZE]; /* of the last create or destroy that it answers; may be empty */
	char updated[ID_SIZE];   /* of the last update that was done or failed; may be empty */
	struct err update_failure; /* of that one; FAIL_NONE: it was done */
	uint64_t version;        /* rises with each change of this sandbox on this node */
	enum report_state state;
	bool accepted; /* the create is journalled; false only in the refusal of one */
	bool kept;     /* of a start that failed: its disk waits there for the next generation */
	struct stage_record *stages;
	size_t n_stages;
	struct err failure;
	char guest_boot_id[BOOT_ID_SIZE];
	enum end_reason end_reason;
	struct sandbox_spec *spec; /* in an inventory; else NULL */
	struct snapshot_info *snapshot; /* of the one that `updated` asked for; else NULL */
};
void sandbox_report_deinit(struct sandbox_report *report);
/* 0 or -ENOMEM; *ret is the caller's. */
int sandbox_report_copy(const struct sandbox_report *report, struct sandbox_report *ret);
Croft__SandboxReport *sandbox_report_encode(const struct sandbox_report *report);
int sandbox_report_decode(
	const Croft__SandboxReport *message, struct sandbox_report *ret, struct err *reterr);

struct inventory {
	struct sandbox_report *sandboxes;
	size_t n;
	uint32_t part;   /* from 0 */
	bool complete;   /* on the last part */
	uint64_t number; /* rises with each inventory of this instance */
	uint64_t greeting; /* of the welcome that it answers; 0: not said */
	struct snapshot_info *snapshots; /* that are whole; at most PART_MAX in a part */
	size_t n_snapshots;
};
void inventory_deinit(struct inventory *inventory);
Croft__Inventory *inventory_encode(const struct inventory *inventory);
int inventory_decode(const Croft__Inventory *message, struct inventory *ret, struct err *reterr);

/* ---- usage: node -> scheduler ---- */
#define USAGE_RECORDS_MAX 256 /* of one report */

/* What one generation of a sandbox has used on its node: cumulative, so that of two versions the later one says it all. What it
 * asked for is part of it: memory and disk are counted as what was set aside (docs/decisions/0032). */
struct usage_record {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char tenant[ID_NAME_MAX + 1];
	uint64_t version;
	int64_t began_us, until_us; /* wall clock */
	uint32_t vcpus;
	uint64_t memory_mib, disk_mib;
	uint64_t running_us, paused_us, disk_us;
	uint64_t cpu_us, egress_bytes;
	uint64_t uncounted_us; /* in which it may have run or slept, and nobody counted */
	uint64_t lost_us[COMPONENT_MAX_]; /* to failures, by who broke */
	bool is_over;
};
Croft__SandboxUsage *usage_record_encode(const struct usage_record *record);
/* A component that is not known here counts as none of them. */
int usage_record_decode(const Croft__SandboxUsage *message, struct usage_record *ret, struct err *reterr);

struct usage_report {
	uint64_t number;
	struct usage_record *records;
	size_t n;
	uint64_t n_dropped;
};
void usage_report_deinit(struct usage_report *report);
Croft__UsageReport *usage_report_encode(const struct usage_report *report);
int usage_report_decode(const Croft__UsageReport *message, struct usage_report *ret, struct err *reterr);

/* Croft__Refused carries a struct err: failure_encode() and failure_decode() of records.h. A node that gets
 * HELLO_NEEDED sends its hello and inventory again on the same connection. */
