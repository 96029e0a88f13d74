/* SPDX-License-Identifier: Apache-2.0
 *
 * One virtual machine: its memory, KVM descriptors, vCPUs, buses and devices. vm_build() makes all of it in
 * written order, vm_free() undoes it in the reverse. Nothing is opened after vm_build().
 *
 * What happens on vCPU threads (the guest reset, panicked, ...) is put down by vm_post() and
 * vm_report_exit() and comes to the loop thread through the hooks. The first cause of an end wins.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "bus.h"
#include "config.h"
#include "exit.h"
#include "generation.h"
#include "kvm-stats.h"
#include "loop.h"
#include "memory.h"
#include "pause.h"
#include "serial.h"
#include "state.h"
#include "thread.h"
#include "vcpu.h"
#include "virtio/balloon.h"
#include "virtio/blk.h"
#include "virtio/net.h"
#include "virtio/rng.h"
#include "virtio/vsock.h"

#define VM_DEVICES_MAX (CONFIG_DISKS_MAX + 4) /* vsock, rng, net, balloon */

enum vm_event {
	VM_EVENT_STARTED,   /* the first vCPU was entered */
	VM_EVENT_USERSPACE, /* the boot marker */
	VM_EVENT_PANICKED,  /* pvpanic */
	VM_EVENT_MAX_
};

/* Called on the loop thread. */
struct vm_hooks {
	void (*event)(void *data, enum vm_event event, int64_t monotonic_usec);
	void (*ended)(void *data);
};

struct vm_stats {
	uint64_t vcpu_usec, kvm_runs, io_exits, mmio_exits;
	struct serial_stats serial;
	uint64_t bad_gpa, needs_reset;
	unsigned int n_disks;
	struct blk_stats disks[CONFIG_DISKS_MAX];
	struct vsock_stats vsock;
	uint64_t rng_bytes;
	bool has_kvm;            /* this KVM counts */
	uint64_t kvm[KVM_STAT_MAX_];
	uint64_t bus_locks;
	bool has_net, has_balloon;
	struct net_stats net;
	struct balloon_stats balloon;
};

struct vm {
	struct loop *loop;
	struct loop devices_loop;             /* a part of it that rests while the VM is paused */
	const struct vm_hooks *hooks;
	void *hooks_data;

	bool is_restored, has_threads;
	bool is_filtered;                     /* its threads put on their seccomp filters */
	int kvm_fd, vm_fd;
	struct kvm_stats stats;
	struct memory memory;
	struct bus ports, mmio;
	unsigned int n_vcpus;
	struct vcpu vcpus[CONFIG_VCPUS_MAX];
	struct cpuid *cpuid;                  /* of vCPU 0; owned */
	struct msr_list msrs;

	int serial_irq_fd;
	struct serial serial;
	struct generation generation;
	unsigned int n_disks;
	struct blk_device disks[CONFIG_DISKS_MAX];
	bool has_vsock;
	struct vsock_device vsock;
	struct rng_device rng;
	bool has_net;
	struct net_device net;
	bool has_balloon;
	struct balloon_device balloon;
	unsigned int n_devices;               /* those of virtio, by their place on the bus */
	struct device *devices[VM_DEVICES_MAX];

	atomic_bool is_stopping;
	struct pause pause;
	int wake_fd;
	struct loop_source wake;
	struct loop_timer panic_timer;
	atomic_int_fast64_t event_usec[VM_EVENT_MAX_]; /* 0: has not happened */
	bool event_told[VM_EVENT_MAX_];                /* loop thread only */
	pthread_mutex_t exit_lock;
	struct exit_record exit;              /* under exit_lock until vm_stop() */
};

/* Builds the machine and loads the guest, or what a snapshot kept of one, or with is_shell nothing as yet; no vCPU runs. Takes the descriptors out of `config` that it
 * needs. On failure nothing is left. */
int vm_build(struct vm **ret, struct loop *loop, struct vm_config *config, const char *cmdline,
	const struct vm_hooks *hooks, void *hooks_data, struct err *reterr);
/* The guest of a VM that vm_build() made as a shell: memory, state and disks of `config`, whose shape must be the shell's
 * (SNAPSHOT_MISMATCH). On failure the VM is of no use any more. */
int vm_fill(struct vm *vm, struct vm_config *config, struct err *reterr);
int vm_start(struct vm *vm, struct err *reterr);
/* Of a shell: its threads, which wait for vm_start(). */
int vm_make_threads(struct vm *vm, struct err *reterr);
/* For vm_build() alone: its second half, which needs the loop already. */
int vm_make(struct vm *vm, struct vm_config *config, const char *cmdline, struct err *reterr);
/* Ends the threads of vCPUs and disks. 0, or -ETIMEDOUT: one hangs in the host's kernel, and vm_free() must not be
 * called. */
int vm_stop(struct vm *vm);
void vm_free(struct vm *vm);
DEFINE_CLEANUP(struct vm, vm_free)

/* A thread_begin_fn; `data` is the VM. Only `is_filtered` threads can be refused, and then the VM ends. */
bool vm_thread_begin(void *data, enum thread_kind kind, unsigned int index);

/* Stops the guest between two instructions: no vCPU runs, no device touches guest memory, the guest's monotonic clock
 * stands still. What hosts send waits. Done already: 0. PAUSE_FAILED where a thread does not come to rest in time: the
 * guest runs on then. */
int vm_pause(struct vm *vm, struct err *reterr);
int vm_resume(struct vm *vm, struct err *reterr);

/* Memory and state of a paused VM as descriptors that others can start from: *ret_state_fd is the caller's, the memory's file
 * and layers stay those of vm->memory. SNAPSHOT_FAILED or FORK_FAILED: the VM is as it was, but for -ENOTRECOVERABLE, after
 * which it must end. */
int vm_fork(struct vm *vm, int *ret_state_fd, struct err *reterr);

/* What a snapshot keeps beside memory. The VM is paused. SNAPSHOT_FAILED. */
int vm_save(struct vm *vm, struct vm_state **ret, struct err *reterr);
/* For vm_build() and vm_start(): puts it into a machine that has not run; then, with the vCPUs about to run, lets the clock
 * go on and everybody look for what was under way. SNAPSHOT_MISMATCH, SNAPSHOT_CPU_MISMATCH, SNAPSHOT_INVALID,
 * RESTORE_FAILED. */
int vm_load(struct vm *vm, const struct vm_state *state, struct err *reterr);
int vm_wake(struct vm *vm, struct err *reterr);

/* From any thread. */
void vm_post(struct vm *vm, enum vm_event event);
/* The VM ends: with `reason`, unless an end was reported before. `failure` may be NULL and is copied. */
void vm_report_exit(struct vm *vm, enum exit_reason reason, const struct err *failure, const char *detail);
/* Whether the guest's local APIC has the mode that counts by the TSC. */
bool vm_has_tsc_deadline(const struct vm *vm);
static inline bool vm_is_stopping(struct vm *vm)
{
	return atomic_load(&vm->is_stopping);
}

/* Loop thread. */
bool vm_has_event(struct vm *vm, enum vm_event event);
struct exit_record vm_exit_record(struct vm *vm);
void vm_stats(struct vm *vm, struct vm_stats *ret);
/* Bytes of the largest file that the VM may write: guest memory, a disk, the console. */
uint64_t vm_largest_file(const struct vm *vm);
/* INVALID_ARGUMENT where there is no balloon or the target is over the VM's memory. */
int vm_set_balloon(struct vm *vm, uint64_t mib, struct err *reterr);
