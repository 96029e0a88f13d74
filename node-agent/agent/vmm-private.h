/* SPDX-License-Identifier: Apache-2.0
 *
 * Between vmm.c (the process and its control socket), vmm-start.c and vmm-sleep.c (what it is asked with descriptors).
 */
#pragma once

#include <limits.h>

#include "agent/vmm.h"
#include "pb/vmm.pb-c.h"

struct event;

struct vmm {
	struct event_base *base;
	char run_dir[PATH_MAX];
	struct vmm_handler handler;
	void *user;
	int pid_fd, control_fd;
	struct event *pid_event, *control_event, *kill_timer;
	uint64_t last_id, start_id, status_id, jail_id, sleep_id; /* 0: not asked */
	bool wants_fork; /* sleep_id is one's */
	struct vmm_fork fork; /* that came with the answer, until it is taken */
	struct err start_failure;
};

/* 0 or -errno. The answer's id is vmm->last_id then. */
int vmm_send_request(struct vmm *vmm, Croft__VmmRequest *request, const int *fds, size_t n_fds);
/* Remembers why and ends the process; on_exit tells. */
void vmm_start_failed(struct vmm *vmm, const struct err *err, bool at_once);
