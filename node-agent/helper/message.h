/* SPDX-License-Identifier: Apache-2.0
 *
 * What passes between the agent and croft-node-helper, as plain structs, checked once. Both ends use this file: the
 * helper decodes requests and encodes replies, the agent the other way round.
 *
 * Decoding is the whole of what a taken-over agent can feed to root: bounded before anything is allocated, every
 * text matched against its one form, every number against its range. What passes is safe to act on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "network/nft.h"
#include "network/policy.h"
#include "network/slot.h"

#define HELPER_VERSION 1u
#define HELPER_PACKET_MAX ((size_t)192 * 1024)
#define HELPER_FDS_MAX 4
#define HELPER_LIST_MAX 128u
#define HELPER_RUN_SIZE 9 /* 8 hex digits and NUL */
#define HELPER_TTL_MAX 86400u
#define HELPER_SIGNATURE_SIZE 1024 /* of a package, with its NUL */

enum helper_type {
	HELPER_HELLO,
	HELPER_SLOT_MAKE,
	HELPER_SLOT_REMOVE,
	HELPER_TAP_OPEN,
	HELPER_DNS_OPEN,
	HELPER_POLICY_SET,
	HELPER_PIN,
	HELPER_COUNTERS,
	HELPER_LIST,
	HELPER_GROUP_MAKE,
	HELPER_GROUP_KILL,
	HELPER_GROUP_REMOVE,
	HELPER_VMM_START,
	HELPER_DISK_OPEN,
	HELPER_UPGRADE,
	HELPER_TYPE_MAX_
};
const char *helper_type_name(enum helper_type type);

struct helper_group_limits {
	uint64_t memory_bytes; /* 0: none; below too */
	uint32_t cpu_percent;
	uint32_t tasks;
};

struct helper_request {
	enum helper_type type;
	uint64_t id;
	char sandbox[ID_SIZE]; /* "" of hello and list */
	uint64_t generation;
	uint32_t version;
	uint32_t from;
	struct net_policy policy; /* owned */
	struct net_pin *pins;     /* owned */
	size_t n_pins;
	struct helper_group_limits limits;
	char run[HELPER_RUN_SIZE];
	bool jail_required;
	char signature[HELPER_SIGNATURE_SIZE];
};
void helper_request_deinit(struct helper_request *request);

struct helper_slot {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char name[NET_SLOT_NAME_SIZE];
	uint32_t guest, gateway, prefix, cid;
	uint8_t mac[NET_MAC_SIZE];
};

struct helper_group_use {
	uint64_t memory_bytes, oom_kills, cpu_usec;
	bool has_status; /* the VMM that the helper started last has ended */
	int status;      /* as wait(2) has it */
};

struct helper_reply {
	uint64_t id;
	struct err failure; /* FAIL_NONE: done */
	bool has_facts;
	struct {
		uint32_t version, slots, stale_slots;
		struct err network, groups; /* FAIL_NONE: can be made */
		bool can_start_vmm;
	} facts;
	struct helper_slot slots[HELPER_LIST_MAX]; /* of slot_make one */
	size_t n_slots;
	bool has_counters;
	struct net_counters counters;
	struct helper_group_use group;
	uint64_t pid, start_ticks;
};

/* Both ways: 0 or -errno; decoding fills reterr with FRAME_INVALID, INVALID_CIDR or INVALID_ARGUMENT, and `*ret` is
 * to be deinitialised in every case. The encoders write at most HELPER_PACKET_MAX bytes to a malloc'ed *ret_data. */
int helper_request_decode(const void *data, size_t size, struct helper_request *ret, struct err *reterr);
int helper_request_encode(const struct helper_request *request, uint8_t **ret_data, size_t *ret_size);
int helper_reply_decode(const void *data, size_t size, struct helper_reply *ret, struct err *reterr);
int helper_reply_encode(const struct helper_reply *reply, uint8_t **ret_data, size_t *ret_size);
