/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the threads of vCPUs wait while the VM is paused. vm_pause() and vm_resume() in vm.h are what the rest uses.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pause {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	atomic_bool is_wanted;
	bool is_abandoned;      /* the VM ends: nobody waits any more */
	unsigned int n_parked;
	/* loop thread only */
	bool is_done;           /* all threads wait */
	uint64_t clock_nsec;    /* the guest's monotonic clock, to go on from */
};

int pause_init(struct pause *pause); /* 0 or -errno */
void pause_deinit(struct pause *pause);

static inline bool pause_is_wanted(struct pause *pause)
{
	return atomic_load(&pause->is_wanted);
}
struct vm;
/* The guest's clock goes on from where it stood. 0 or -errno. */
int pause_start_clock(struct vm *vm);
/* Of a VM that is made ahead: whatever thread it gets waits, and devices rest, until pause_run_on(). */
void pause_begin(struct vm *vm);
void pause_run_on(struct vm *vm);
/* On a vCPU's thread: waits until the pause is over. */
void pause_park(struct pause *pause);
/* From any thread: whoever waits goes on, for good. */
void pause_abandon(struct pause *pause);
