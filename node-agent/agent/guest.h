/* SPDX-License-Identifier: Apache-2.0
 *
 * What the agent asks of croft-guest: each call is one connection through the VMM's vsock socket,
 * one request and its answer. The guest is hostile: every answer is bounded in size and time, and
 * one that croft-guest never gives is GUEST_PROTOCOL. What a guest prints is never sent anywhere;
 * the last of a setup command's output goes into this node's own log.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/messages.h"

struct event_base;
struct guest_call;
struct helper_slot;

#define GUEST_PORT 1024
#define GUEST_TAIL_MAX 1024

struct guest_result {
	struct err failure; /* set: there is no answer */
	/* info */
	char boot_id[BOOT_ID_SIZE];
	uint64_t uptime_us;
	/* run */
	bool exited; /* else it was killed by `signal` */
	int exit_code;
	unsigned int signal;
	bool timed_out;                /* by the guest, at the limit that was given */
	bool out_of_memory;            /* its kernel killed for want of it meanwhile */
	char tail[GUEST_TAIL_MAX + 1]; /* last of its output, as it came */
};

/* Called once; the call is gone when it returns. */
typedef void (*guest_done)(const struct guest_result *result, void *user);

/* `vsock_path` is the VMM's socket. On failure (no memory) done is not called. Without an answer in
 * time the failure is GUEST_UNREACHABLE. */
int guest_info(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, guest_done done, void *user);
int guest_configure(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, const char *hostname, const struct sandbox_spec *spec,
	const struct helper_slot *slot, guest_done done, void *user);
/* (guest_configure: `slot` is its network, NULL: none.) */
/* `sh -c command` as root; the guest kills it after limit_ms (0: none), this side gives up
 * timeout_usec after the start. */
int guest_run(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, const char *command, uint64_t limit_ms, const struct trace *trace,
	guest_done done, void *user);
/* Its processes and its disk stand still, all of it written, until guest_thaw(). */
int guest_freeze(struct guest_call **ret, struct event_base *base, const char *vsock_path, int64_t timeout_usec,
	guest_done done, void *user);
/* After a restore, while all is frozen: entropy, the time, the network (`slot` NULL: none), and who it is from now on with the
 * environment of `spec` (`hostname` NULL: who it was). */
#define GUEST_ENTROPY_SIZE 64
int guest_wake(struct guest_call **ret, struct event_base *base, const char *vsock_path, int64_t timeout_usec,
	const uint8_t entropy[static GUEST_ENTROPY_SIZE], const struct helper_slot *slot, const char *hostname,
	const struct sandbox_spec *spec, guest_done done, void *user);
int guest_thaw(struct guest_call **ret, struct event_base *base, const char *vsock_path, int64_t timeout_usec,
	guest_done done, void *user);
int guest_power_off(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, guest_done done, void *user);
/* Ends it without `done`. Accepts NULL. */
void guest_call_free(struct guest_call *call);
