/* SPDX-License-Identifier: Apache-2.0
 *
 * virtio-balloon: the guest gives pages back and takes them again; the host sets how many it would like. With
 * statistics of the guest's memory, and deflation by the guest when it runs out.
 *
 * A page that is given back becomes a hole of the memory file and reads as zeros when it is touched again, so the guest
 * need not tell before it does (MUST_TELL_HOST is not offered). One bit per page of RAM says which lie in the balloon:
 * what is no RAM, what is inflated twice or deflated without having been, is counted and does nothing. What the guest
 * claims about its memory (statistics, `actual`) is shown, never used.
 */
#pragma once

#include "loop.h"
#include "virtio/device.h"

#define BALLOON_PAGE 4096u
#define BALLOON_REQUEST_MAX 1024u /* pages of one request; those behind are refused */
#define BALLOON_QUEUE_INFLATE 0
#define BALLOON_QUEUE_DEFLATE 1
#define BALLOON_QUEUE_STATS 2

/* In the order of the tags of virtio 1.2, 5.5.6.3. */
enum balloon_tag {
	BALLOON_SWAP_IN,         /* bytes, like all up to MINOR_FAULTS and without those */
	BALLOON_SWAP_OUT,
	BALLOON_MAJOR_FAULTS,
	BALLOON_MINOR_FAULTS,
	BALLOON_FREE,
	BALLOON_TOTAL,
	BALLOON_AVAILABLE,
	BALLOON_CACHES,
	BALLOON_HUGE_ALLOCATED,  /* pages */
	BALLOON_HUGE_FAILED,
	BALLOON_TAG_MAX_
};

struct balloon_stats {
	uint64_t target_pages, pages; /* what the host asked for, what lies in the balloon */
	uint64_t inflated, deflated;  /* pages, ever */
	uint64_t refused;             /* no RAM, there already, not there, too many in a request */
	uint64_t failed;              /* the host did not take them back */
	/* as the guest claims */
	bool has_guest;
	int64_t guest_usec;           /* CLOCK_MONOTONIC at which it said so */
	uint32_t guest_has;           /* bit per tag */
	uint64_t guest[BALLOON_TAG_MAX_];
};

struct balloon_device {
	struct device device;
	struct loop *loop;
	const struct memory *memory;
	struct loop_source notify[3];
	/* under the device's lock */
	uint64_t *held;               /* bit per page of the memory file */
	uint32_t target, claimed;     /* the configuration space */
	bool has_stats_buffer;        /* the driver waits for us to give it back */
	uint16_t stats_buffer;
	struct balloon_stats stats;
	uint64_t offsets[BALLOON_REQUEST_MAX];
};

/* What a snapshot keeps beside the device's own. */
struct balloon_state {
	uint32_t target, claimed;
	bool has_stats_buffer;
	uint16_t stats_buffer;
	uint64_t *held;               /* a bit per page of RAM */
	size_t held_size;             /* bytes */
};
/* `ret->held` is the caller's to free. 0 or -ENOMEM. The VM stands still. */
int balloon_save(struct balloon_device *balloon, struct balloon_state *ret);
/* Copies. -EINVAL: of a VM of another size. */
int balloon_load(struct balloon_device *balloon, const struct balloon_state *state);

int balloon_init(struct balloon_device *balloon, struct loop *loop, const struct memory *memory);
void balloon_deinit(struct balloon_device *balloon);
/* What the guest is asked to give back, in pages; at most all of its RAM. */
void balloon_set_target(struct balloon_device *balloon, uint64_t pages);
/* What is known now. Asks the guest for newer statistics when the last are a second old. */
struct balloon_stats balloon_stats(struct balloon_device *balloon);
