/* SPDX-License-Identifier: Apache-2.0
 *
 * The VMM process as an object: it waits for `start` on its control socket, builds and runs one VM, answers
 * requests, and learns why it ended.
 *
 *   waiting --start--> running --stop--> stopping --> ended
 *      |   prepare> prepared --start-^      ^           ^
 *      |              pause| ^resume        |           |
 *      |                   v |              |           |
 *      |                 paused -----stop---+           |
 *      +---- start fails, the guest ends, a signal -----+
 */
#pragma once

#include "loop.h"
#include "server.h"
#include "snapshot-write.h"
#include "vm.h"

struct vmm {
	struct loop loop;
	struct server server;
	int signal_fd;
	struct loop_source signals;
	struct loop_timer grace;
	int lease_fd;            /* a timer on CLOCK_BOOTTIME */
	struct loop_source lease_source;
	struct lease lease;
	enum control_state state;
	struct vm *vm;
	struct snapshot_writer snapshot;
	uint64_t snapshot_id, snapshot_connection; /* the request that is answered when it is written */
	uint64_t memory_mib;
	uint32_t vcpus;
	/* set after vmm_init() by a process that is jailed */
	const struct jail_report *jail;
	bool is_filtered;
	bool has_forked; /* a fork was begun: some of its memory may be frozen */
	int pagemap_fd;          /* of this process; borrowed; -1: none */
	const char *run;         /* all that the jail shows; NULL: no jail */
	struct exit_record exit; /* reason EXIT_NONE: goes on */
};

/* Into memory that is all zeros: the server's buffers in it are as large as a clone's other pages, and nobody writes to them first.
 * SIGTERM and SIGINT must be blocked already; they end the VMM. Takes over `listen_fd`. */
int vmm_init(struct vmm *vmm, int listen_fd, struct err *reterr);
/* Runs until the end; vmm->exit says why. Peers have been told, vCPUs have stopped. 0, or -ETIMEDOUT when a
 * thread hangs in the host's kernel: then vmm_deinit() must not be called. */
int vmm_run(struct vmm *vmm);
void vmm_deinit(struct vmm *vmm);
