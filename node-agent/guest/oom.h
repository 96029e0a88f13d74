/* SPDX-License-Identifier: Apache-2.0
 *
 * What the guest's own kernel killed for want of memory. The count is the kernel's (/proc/vmstat, oom_kill); that it rose is
 * seen without a clock: the kernel counts before it logs, and its log (/dev/kmsg) is watched. The host is told by a process
 * made for that, again until it takes it, and once a second at most; with longer and longer pauses while it does not (an older
 * agent hears no more than the first hello).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/loop.h"

struct oom {
	struct loop *loop;
	struct source source;
	int fd;                         /* of the log; -1: not watched */
	uint64_t (*count)(void);        /* NULL: nobody can say, and nothing is ever found */
	pid_t (*tell)(uint64_t kills);  /* starts a process that exits with 0 when the host took it; NULL: nobody is told */
	uint64_t kills;                 /* as last counted */
	int64_t rose_usec;              /* when that was seen to rise last; 0: never */
	uint64_t told, telling;
	pid_t teller;                   /* 0: none */
	int64_t again_usec;             /* nothing is told before it */
	int64_t pause_usec;             /* after the last that was not taken; 0: it was */
};

void oom_init(struct oom *oom, struct loop *loop, uint64_t (*count)(void), pid_t (*tell)(uint64_t kills));
void oom_deinit(struct oom *oom);
/* Whenever `fd` (oom_open_log(), which becomes its own) has something the kernel is asked. */
int oom_watch(struct oom *oom, int fd);
/* Asks now. Returns the kills since the start. */
uint64_t oom_look(struct oom *oom);
/* Asks now: whether one of them, and more than `before`, may be what has just died. */
bool oom_is_to_blame(struct oom *oom, uint64_t before);
/* Returns whether `pid` was the teller. */
bool oom_reaped(struct oom *oom, pid_t pid, int status);
/* Tells the host what it does not know. Returns when to be called again, 0: no need. */
int64_t oom_tick(struct oom *oom, int64_t now_usec);

/* The real ones: a descriptor behind all that the kernel has logged (-errno), and the kernel's count. */
int oom_open_log(void);
uint64_t oom_count(void);
