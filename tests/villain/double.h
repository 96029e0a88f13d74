/* SPDX-License-Identifier: Apache-2.0
 *
 * The villain in one process with the devices: the VMM's own loop, control socket and signals, one device, guest
 * memory, and a thread in a vCPU's place that runs a case. Only KVM is not there: an access calls the bus directly.
 */
#pragma once

#include "villain.h"

struct double_files {
	int control_fd; /* listening */
	int disk_fd;
	int vsock_fd;   /* listening */
	const char *vsock_path;
	int result_fd;  /* "<verdict> <number> <why>\n" comes here when the case is over */
};

/* Runs in a process of its own until SIGTERM; its exit status. SIGTERM must be blocked already. */
int double_run(const struct villain_instance *instance, const struct double_files *files);
