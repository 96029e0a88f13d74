/* SPDX-License-Identifier: Apache-2.0
 *
 * See pause.h, and vm_pause() in vm.h.
 */
#include "pause.h"

#include <errno.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <time.h>

#include "base/clock.h"
#include "vm.h"

#define PAUSE_USEC (5 * USEC_PER_SEC) /* for a disk's request that is under way, on a slow disk */
#define KICK_USEC (20 * USEC_PER_MSEC)

int pause_init(struct pause *pause)
{
	if (pthread_mutex_init(&pause->lock, NULL) != 0 || device_cond_init(&pause->changed) != 0)
		return -ENOMEM;
	return 0;
}

void pause_deinit(struct pause *pause)
{
	(void) pthread_cond_destroy(&pause->changed);
	(void) pthread_mutex_destroy(&pause->lock);
}

void pause_park(struct pause *pause)
{
	(void) pthread_mutex_lock(&pause->lock);
	pause->n_parked++;
	(void) pthread_cond_broadcast(&pause->changed);
	while (pause_is_wanted(pause) && !pause->is_abandoned)
		(void) pthread_cond_wait(&pause->changed, &pause->lock);
	pause->n_parked--;
	(void) pthread_mutex_unlock(&pause->lock);
}

void pause_abandon(struct pause *pause)
{
	(void) pthread_mutex_lock(&pause->lock);
	pause->is_abandoned = true;
	(void) pthread_cond_broadcast(&pause->changed);
	(void) pthread_mutex_unlock(&pause->lock);
}

static void release(struct pause *pause)
{
	(void) pthread_mutex_lock(&pause->lock);
	atomic_store(&pause->is_wanted, false);
	(void) pthread_cond_broadcast(&pause->changed);
	(void) pthread_mutex_unlock(&pause->lock);
}

/* Whether all have parked, after a moment at most. */
static bool wait_parked(struct pause *pause, unsigned int n)
{
	int64_t until = clock_monotonic_usec() + KICK_USEC; /* the clock of the condition */
	struct timespec ts = { .tv_sec = until / USEC_PER_SEC, .tv_nsec = until % USEC_PER_SEC * 1000 };
	bool all;

	(void) pthread_mutex_lock(&pause->lock);
	while (pause->n_parked < n && !pause->is_abandoned)
		if (pthread_cond_timedwait(&pause->changed, &pause->lock, &ts) != 0)
			break;
	all = pause->n_parked == n;
	(void) pthread_mutex_unlock(&pause->lock);
	return all;
}

static int park_vcpus(struct vm *vm, int64_t deadline_usec)
{
	atomic_store(&vm->pause.is_wanted, true);
	do {
		if (vm_is_stopping(vm))
			return -ESHUTDOWN;
		for (unsigned int i = 0; i < vm->n_vcpus; i++)
			vcpu_kick(&vm->vcpus[i]);
		if (wait_parked(&vm->pause, vm->n_vcpus))
			return 0;
	} while (clock_monotonic_usec() < deadline_usec);
	return -ETIMEDOUT;
}

void pause_run_on(struct vm *vm)
{
	loop_rest(&vm->devices_loop, false);
	for (unsigned int i = 0; i < vm->n_disks; i++)
		blk_resume(&vm->disks[i]);
	release(&vm->pause);
}

void pause_begin(struct vm *vm)
{
	atomic_store(&vm->pause.is_wanted, true);
	for (unsigned int i = 0; i < vm->n_disks; i++)
		(void) blk_pause(&vm->disks[i], 0); /* nothing is under way */
	loop_rest(&vm->devices_loop, true);
}

/* The vCPUs first: one may wait for its disk, which must go on for that. */
static int stop_all(struct vm *vm, const char **ret_what)
{
	int64_t deadline = clock_monotonic_usec() + PAUSE_USEC;
	struct kvm_clock_data clock = { 0 };
	int r = park_vcpus(vm, deadline);

	*ret_what = "a vCPU does not come to rest";
	if (r == 0 && ioctl(vm->vm_fd, KVM_GET_CLOCK, &clock) < 0) {
		*ret_what = "KVM_GET_CLOCK";
		r = -errno;
	}
	vm->pause.clock_nsec = clock.clock; /* at the guest's last instruction: disks may take seconds more */
	for (unsigned int i = 0; r == 0 && i < vm->n_disks; i++) {
		*ret_what = "a disk does not come to rest";
		r = blk_pause(&vm->disks[i], deadline);
	}
	if (r < 0)
		return r;
	loop_rest(&vm->devices_loop, true);
	return 0;
}

int vm_pause(struct vm *vm, struct err *reterr)
{
	const char *what;
	int r;

	if (vm->pause.is_done)
		return 0;
	r = stop_all(vm, &what);
	if (r < 0) {
		pause_run_on(vm);
		return err_set_at(reterr, STAGE_PAUSE, FAIL_PAUSE_FAILED, -r, "%s", what);
	}
	vm->pause.is_done = true;
	return 0;
}

int pause_start_clock(struct vm *vm)
{
	struct kvm_clock_data clock = { .clock = vm->pause.clock_nsec };

	if (ioctl(vm->vm_fd, KVM_SET_CLOCK, &clock) < 0)
		return -errno;
	/* so that the guest's watchdog does not take the pause for a hang; refused by a guest without kvm-clock */
	for (unsigned int i = 0; i < vm->n_vcpus; i++)
		(void) ioctl(vm->vcpus[i].fd, KVM_KVMCLOCK_CTRL, 0);
	return 0;
}

int vm_resume(struct vm *vm, struct err *reterr)
{
	int r;

	if (!vm->pause.is_done)
		return 0;
	r = pause_start_clock(vm);
	if (r < 0)
		return err_set_at(reterr, STAGE_RESUME, FAIL_RESUME_FAILED, -r, "KVM_SET_CLOCK");
	vm->pause.is_done = false;
	pause_run_on(vm);
	return 0;
}
