/* SPDX-License-Identifier: Apache-2.0
 *
 * A vCPU and its thread. The thread runs the guest and answers its port and register accesses; it never
 * waits for anything but KVM and the locks of devices.
 */
#pragma once

#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kvm-stats.h"

struct vm;
struct cpuid;

struct vcpu {
	struct vm *vm;
	unsigned int index;
	int fd;
	struct kvm_run *run;
	size_t run_size;
	pthread_t thread;
	bool has_thread;
	struct kvm_stats stats;
	atomic_uint_fast64_t bus_locks;
	atomic_uint_fast64_t runs, io_exits, mmio_exits;
};

/* `cpuid` is what the host supports. */
int vcpu_init(struct vcpu *vcpu, struct vm *vm, unsigned int index, const struct cpuid *cpuid, struct err *reterr);
/* Sets the registers for a kernel's 64-bit entry. */
int vcpu_set_entry(struct vcpu *vcpu, uint64_t entry, struct err *reterr);
/* Once per process, before the first thread: the signal that takes a vCPU out of the guest. */
int vcpu_prepare_signal(void);
int vcpu_start(struct vcpu *vcpu);
/* Takes the vCPU out of the guest; its thread then ends or parks, whichever is wanted. One kick may come to nothing. */
void vcpu_kick(struct vcpu *vcpu);
/* Kicks and joins, at most until `deadline_usec`. 0 or -ETIMEDOUT: the thread hangs in the kernel. */
int vcpu_join(struct vcpu *vcpu, int64_t deadline_usec);
void vcpu_deinit(struct vcpu *vcpu);
/* CPU time of the thread in microseconds, 0 when it does not run. */
uint64_t vcpu_cpu_usec(const struct vcpu *vcpu);
