/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the bytes of the control socket (vmm.proto) and plain structs. The only file of the VMM that knows
 * generated types. Decoding checks all that can be checked without looking at the machine; whatever does not
 * make sense is VMM_CONTROL_INVALID and changes nothing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "exit.h"
#include "jail.h"
#include "lease.h"
#include "vm.h"

#define CONTROL_PACKET_MAX (64u * 1024)
#define CONTROL_FDS_MAX (CONFIG_DISKS_MAX + MEMORY_LAYERS_MAX + 6)

enum control_kind { CONTROL_START, CONTROL_STOP, CONTROL_STATUS, CONTROL_STATS, CONTROL_RENEW, CONTROL_BALLOON,
	CONTROL_GENERATION, CONTROL_PAUSE, CONTROL_RESUME,
	CONTROL_SNAPSHOT, CONTROL_FORK, CONTROL_PREPARE };

struct control_request {
	uint64_t id;
	enum control_kind kind;
	struct vm_config start;  /* CONTROL_START, CONTROL_PREPARE: owns the descriptors */
	bool force;              /* CONTROL_STOP */
	uint32_t grace_ms;
	uint64_t lease_ms;       /* CONTROL_RENEW; 0: as before */
	int64_t lease_until_usec; /* CONTROL_RENEW, CLOCK_BOOTTIME; 0: lease_ms counts */
	bool ends_lease;         /* CONTROL_RENEW */
	uint64_t balloon_mib;    /* CONTROL_BALLOON */
	int state_fd, memory_fd; /* CONTROL_SNAPSHOT: owned; -1 otherwise */
	bool is_differential;    /* CONTROL_SNAPSHOT */
};

enum control_state { CONTROL_WAITING, CONTROL_PREPARED, CONTROL_RUNNING, CONTROL_PAUSED, CONTROL_STOPPING };

struct control_status {
	enum control_state state;
	int64_t event_usec[VM_EVENT_MAX_]; /* 0: has not happened */
	const struct jail_report *jail;    /* NULL: there is no jail */
	uint64_t lease_left_ms;
	bool is_unforked;
};

struct control_stats {
	uint64_t memory_mib;
	uint32_t vcpus;
	struct vm_stats vm;
};

/* On success the descriptors belong to `ret` (free it with control_request_deinit()); on failure all of them
 * were closed. `ret->id` is set whenever it could be read, 0 otherwise. */
int control_decode(const uint8_t *data, size_t size, int *fds, size_t n_fds, struct control_request *ret,
	struct err *reterr);
void control_request_deinit(struct control_request *request);

/* Each fills `buf` (CONTROL_PACKET_MAX) and returns the bytes. */
size_t control_encode_done(uint64_t id, uint8_t *buf);
size_t control_encode_failure(uint64_t id, const struct err *failure, uint8_t *buf);
size_t control_encode_status(uint64_t id, const struct control_status *status, uint8_t *buf);
size_t control_encode_stats(uint64_t id, const struct control_stats *stats, uint8_t *buf);
size_t control_encode_forked(uint64_t id, unsigned int layers, uint64_t copied_pages, uint8_t *buf);
size_t control_encode_event(enum vm_event event, int64_t monotonic_usec, uint8_t *buf);
size_t control_encode_exiting(const struct exit_record *record, int64_t monotonic_usec, uint8_t *buf);
/* The bare VmmExit for --exit-fd. */
size_t control_encode_exit(const struct exit_record *record, uint8_t *buf);
