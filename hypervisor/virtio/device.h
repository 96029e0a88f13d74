/* SPDX-License-Identifier: Apache-2.0
 *
 * What all virtio devices share: the status machine, feature negotiation, queue set-up, reset, interrupts.
 * A device supplies its id, features, configuration space, queue sizes and what happens on activation and
 * reset; it never sees the transport and cannot weaken these rules.
 *
 * Threads: register accesses come on vCPU threads. Queues are walked on the loop thread or on a worker,
 * under the lock. Work that must not hold the lock (disk I/O) stands between device_work_begin() and
 * device_work_end(); a reset or a queue's stop waits until no such work is left, so after it nothing of the
 * old life touches guest memory.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory.h"
#include "virtio/queue.h"

#define DEVICE_QUEUES_MAX 3

#define STATUS_ACKNOWLEDGE 1u
#define STATUS_DRIVER 2u
#define STATUS_DRIVER_OK 4u
#define STATUS_FEATURES_OK 8u
#define STATUS_NEEDS_RESET 64u
#define STATUS_FAILED 128u

#define FEATURE_INDIRECT_DESC (UINT64_C(1) << 28)
#define FEATURE_EVENT_IDX (UINT64_C(1) << 29)
#define FEATURE_VERSION_1 (UINT64_C(1) << 32)

struct device;

/* All are called with the device's lock held. NULL: nothing to do. */
struct device_ops {
	/* Fills `len` bytes of the configuration space at `offset`; bytes behind its end stay 0. */
	void (*config_read)(struct device *device, uint32_t offset, uint8_t *bytes, uint32_t len);
	/* 1, 2 or 4 bytes at `offset`, which may lie anywhere */
	void (*config_write)(struct device *device, uint32_t offset, const uint8_t *bytes, uint32_t len);
	void (*activate)(struct device *device); /* DRIVER_OK was set */
	void (*reset)(struct device *device);    /* nothing is under way any more; queues are still as they were */
};

struct device {
	const struct device_ops *ops;
	uint32_t id;
	uint64_t features;   /* offered */
	unsigned int n_queues;
	const struct memory *memory;
	int irq_fd;                          /* eventfd of the interrupt; owned */
	int notify_fds[DEVICE_QUEUES_MAX];   /* eventfds that QueueNotify signals; owned */
	atomic_uint interrupt_status;        /* outside the lock: the guest's handler never waits for us */
	atomic_uint config_generation;       /* goes up with each change of the configuration space */

	pthread_mutex_t lock;                /* guards what follows */
	pthread_cond_t idle;
	unsigned int busy;                   /* pieces of work under way without the lock */
	bool is_resetting;
	uint8_t status;
	uint32_t features_page, driver_features_page, queue_index;
	uint64_t driver_features;            /* as written, checked at FEATURES_OK */
	struct queue queues[DEVICE_QUEUES_MAX];
	uint64_t needs_reset;                /* times that we gave up on the driver */
	bool was_reported;                   /* one line in the log per life */
};

struct device_config {
	const struct device_ops *ops;
	uint32_t id;
	uint64_t features;                   /* those of every device are added */
	unsigned int n_queues;
	uint16_t queue_size;
};

/* What a snapshot keeps of a device. */
struct device_state {
	uint32_t id;
	uint8_t status;
	uint64_t driver_features;
	uint32_t features_page, driver_features_page, queue_index, interrupt_status, config_generation;
	unsigned int n_queues;
	struct queue_state queues[DEVICE_QUEUES_MAX];
};

int device_init(struct device *device, const struct memory *memory, const struct device_config *config);
void device_deinit(struct device *device);

/* ---- for the transport: lock held by none ---- */
uint8_t device_status(struct device *device);
void device_set_status(struct device *device, uint32_t value);

/* ---- for snapshots: the VM stands still ---- */
void device_save(struct device *device, struct device_state *ret);
/* Into a device that is as after power-on. -EINVAL: not a state that such a device can be in; nothing was served yet. */
int device_load(struct device *device, const struct device_state *state);
/* After a restore: the driver looks at its queues once, and so do we; nothing that was under way is lost. */
void device_wake(struct device *device);

/* ---- for devices and the transport: lock held ---- */
static inline bool device_is_active(const struct device *device)
{
	return (device->status & (STATUS_DRIVER_OK | STATUS_NEEDS_RESET | STATUS_FAILED)) == STATUS_DRIVER_OK &&
		!device->is_resetting;
}
static inline bool device_has(const struct device *device, uint64_t feature)
{
	return (device->driver_features & feature) == feature;
}
/* The driver sent nonsense: nothing more is served until it resets the device. */
void device_set_needs_reset(struct device *device, const char *why);
/* The device changed its configuration space: the driver is told. */
void device_config_changed(struct device *device);
/* A condition whose waits go by CLOCK_MONOTONIC: a host's clock that is put back must not hold the loop, nor the lease. 0 or
 * an errno. */
int device_cond_init(pthread_cond_t *ret);
/* Waits until no work is under way. */
void device_wait_idle(struct device *device);
/* The same, and nothing begins meanwhile: else the wait would last for as long as the driver feeds the ring. */
void device_drain(struct device *device);
/* As device_wait_idle(), or -ETIMEDOUT at `deadline_usec` of CLOCK_MONOTONIC. */
int device_wait_idle_until(struct device *device, int64_t deadline_usec);
/* Pops from queue `index`; a broken ring sets NEEDS_RESET and reads as empty. */
bool device_pop(struct device *device, unsigned int index, struct chain *ret) MUST_USE;
/* Interrupts the guest where what was pushed to queue `index` calls for it. */
void device_signal(struct device *device, unsigned int index);
/* Lets the lock go for a piece of work that device_work_end() ends, with the lock taken again. */
void device_work_begin(struct device *device);
void device_work_end(struct device *device);
/* Makes queue `index` be looked at again. Needs no lock. */
void device_kick(struct device *device, unsigned int index);
