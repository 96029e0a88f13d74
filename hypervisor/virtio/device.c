/* SPDX-License-Identifier: Apache-2.0
 *
 * See device.h.
 *
 *      0 --> ACKNOWLEDGE --> DRIVER --> FEATURES_OK --> DRIVER_OK
 *      ^          |            |            |              |          FAILED may be added anywhere but at 0,
 *      +----------+------------+------------+--------------+          and NEEDS_RESET is added by us
 *                         write 0: reset
 */
#include "virtio/device.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/plant.h"

#define INTERRUPT_USED 1u
#define INTERRUPT_CONFIG 2u
#define STATUS_STEPS (STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK | STATUS_DRIVER_OK)

int device_cond_init(pthread_cond_t *ret)
{
	pthread_condattr_t attributes;
	int r = pthread_condattr_init(&attributes);

	if (r != 0)
		return r;
	r = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	if (r == 0)
		r = pthread_cond_init(ret, &attributes);
	(void) pthread_condattr_destroy(&attributes);
	return r;
}

int device_init(struct device *device, const struct memory *memory, const struct device_config *config)
{
	*device = (struct device) { .ops = config->ops, .id = config->id, .n_queues = config->n_queues,
		.features = config->features | FEATURE_VERSION_1 | FEATURE_INDIRECT_DESC | FEATURE_EVENT_IDX,
		.memory = memory, .irq_fd = -1,
		.notify_fds = { -1, -1, -1 } };
	if (pthread_mutex_init(&device->lock, NULL) != 0 || device_cond_init(&device->idle) != 0)
		return -ENOMEM;
	device->irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (device->irq_fd < 0)
		return -errno;
	for (unsigned int i = 0; i < config->n_queues; i++) {
		device->queues[i].size_max = config->queue_size;
		device->notify_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (device->notify_fds[i] < 0)
			return -errno;
	}
	return 0;
}

void device_deinit(struct device *device)
{
	if (!device->memory)
		return;
	(void) fd_close(device->irq_fd);
	for (unsigned int i = 0; i < DEVICE_QUEUES_MAX; i++)
		(void) fd_close(device->notify_fds[i]);
	(void) pthread_cond_destroy(&device->idle);
	(void) pthread_mutex_destroy(&device->lock);
	device->memory = NULL;
}

static void interrupt(struct device *device, unsigned int bit)
{
	uint64_t one = 1;

	/* set before the edge: a handler that runs for the edge finds it */
	atomic_fetch_or(&device->interrupt_status, bit);
	(void) !write(device->irq_fd, &one, sizeof(one)); /* EAGAIN: an edge waits already */
}

void device_kick(struct device *device, unsigned int index)
{
	uint64_t one = 1;

	(void) !write(device->notify_fds[index], &one, sizeof(one));
}

void device_signal(struct device *device, unsigned int index)
{
	if (queue_wants_interrupt(&device->queues[index]))
		interrupt(device, INTERRUPT_USED);
}

void device_set_needs_reset(struct device *device, const char *why)
{
	if (device->status & STATUS_NEEDS_RESET)
		return;
	device->needs_reset++;
	device->status |= STATUS_NEEDS_RESET;
	if (!device->was_reported) { /* a guest that does it again and again writes one line */
		char id[16];

		(void) snprintf(id, sizeof(id), "%u", device->id);
		log_warn("a virtio driver broke the rules", "device", id, "why", why);
		device->was_reported = true;
	}
	if (device->status & STATUS_DRIVER_OK)
		interrupt(device, INTERRUPT_CONFIG);
}

void device_config_changed(struct device *device)
{
	atomic_fetch_add(&device->config_generation, 1);
	if (device->status & STATUS_DRIVER_OK)
		interrupt(device, INTERRUPT_CONFIG);
}

bool device_pop(struct device *device, unsigned int index, struct chain *ret)
{
	if (!device_is_active(device))
		return false;
	switch (queue_pop(&device->queues[index], device->memory, ret)) {
	case CHAIN_OK:
		return true;
	case CHAIN_BROKEN:
		device_set_needs_reset(device, "a ring or a chain makes no sense");
		return false;
	case CHAIN_NONE:
		break;
	}
	return false;
}

void device_work_begin(struct device *device)
{
	device->busy++;
	(void) pthread_mutex_unlock(&device->lock);
}

void device_work_end(struct device *device)
{
	(void) pthread_mutex_lock(&device->lock);
	if (--device->busy == 0)
		(void) pthread_cond_broadcast(&device->idle);
}

void device_wait_idle(struct device *device)
{
	while (device->busy > 0)
		(void) pthread_cond_wait(&device->idle, &device->lock);
}

void device_drain(struct device *device)
{
	device->is_resetting = true;
	device_wait_idle(device);
	device->is_resetting = false;
	(void) pthread_cond_broadcast(&device->idle); /* a reset may wait behind it */
}

int device_wait_idle_until(struct device *device, int64_t deadline_usec)
{
	struct timespec ts = { .tv_sec = deadline_usec / USEC_PER_SEC, .tv_nsec = deadline_usec % USEC_PER_SEC * 1000 };

	while (device->busy > 0)
		if (pthread_cond_timedwait(&device->idle, &device->lock, &ts) == ETIMEDOUT)
			return -ETIMEDOUT;
	return 0;
}

static void reset(struct device *device)
{
	/* nothing new begins while we wait; what runs may still finish into the old rings */
	device->is_resetting = true;
	device_wait_idle(device);
	if (device->ops->reset)
		device->ops->reset(device);
	for (unsigned int i = 0; i < device->n_queues && !PLANTED(RESET_KEEPS_QUEUES); i++)
		queue_reset(&device->queues[i]);
	device->status = 0;
	device->features_page = device->driver_features_page = device->queue_index = 0;
	device->driver_features = 0;
	atomic_store(&device->interrupt_status, 0);
	device->is_resetting = false;
}

static bool features_are_acceptable(const struct device *device)
{
	return (device->driver_features & ~device->features) == 0 && device_has(device, FEATURE_VERSION_1);
}

/* The one step that may follow `status`, 0 when there is none. */
static uint8_t next_step(uint8_t status)
{
	switch (status & STATUS_STEPS) {
	case 0:
		return STATUS_ACKNOWLEDGE;
	case STATUS_ACKNOWLEDGE:
		return STATUS_DRIVER;
	case STATUS_ACKNOWLEDGE | STATUS_DRIVER:
		return STATUS_FEATURES_OK;
	case STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK:
		return STATUS_DRIVER_OK;
	default:
		return 0;
	}
}

/* A write must repeat every bit that is set (NEEDS_RESET, which is ours, may be repeated or not) and add
 * one legal bit or none; anything else changes nothing. */
static void set_status(struct device *device, uint32_t value)
{
	uint8_t status = device->status, added;

	if (value == 0) {
		reset(device);
		return;
	}
	if (value > 0xff || (status & ~value & (uint32_t) ~STATUS_NEEDS_RESET) != 0 || (status & STATUS_FAILED))
		return;
	added = (uint8_t) (value & (uint32_t) ~status);
	if (added == STATUS_FAILED && status != 0) {
		device->status |= STATUS_FAILED;
		return;
	}
	if (added == 0 || (added != next_step(status) && !PLANTED(STATUS_SKIPPED)) || (status & STATUS_NEEDS_RESET))
		return;
	if (added == STATUS_FEATURES_OK && !features_are_acceptable(device))
		return;
	device->status |= added;
	if (added == STATUS_DRIVER_OK && device->ops->activate)
		device->ops->activate(device);
}

void device_save(struct device *device, struct device_state *ret)
{
	(void) pthread_mutex_lock(&device->lock);
	*ret = (struct device_state) { .id = device->id, .status = device->status, .driver_features = device->driver_features,
		.features_page = device->features_page, .driver_features_page = device->driver_features_page,
		.queue_index = device->queue_index, .interrupt_status = atomic_load(&device->interrupt_status),
		.config_generation = atomic_load(&device->config_generation), .n_queues = device->n_queues };
	for (unsigned int i = 0; i < device->n_queues; i++)
		queue_save(&device->queues[i], &ret->queues[i]);
	(void) pthread_mutex_unlock(&device->lock);
}

static int load(struct device *device, const struct device_state *state)
{
	struct queue_features features;

	if (state->id != device->id || state->n_queues != device->n_queues ||
		((state->status & STATUS_FEATURES_OK) && (state->driver_features & ~device->features) != 0))
		return -EINVAL;
	device->status = state->status;
	device->driver_features = state->driver_features;
	device->features_page = state->features_page;
	device->driver_features_page = state->driver_features_page;
	device->queue_index = state->queue_index;
	atomic_store(&device->interrupt_status, state->interrupt_status);
	atomic_store(&device->config_generation, state->config_generation);
	features = (struct queue_features) { .has_indirect = device_has(device, FEATURE_INDIRECT_DESC),
		.has_event_index = device_has(device, FEATURE_EVENT_IDX) };
	for (unsigned int i = 0; i < device->n_queues; i++)
		if (!queue_load(&device->queues[i], device->memory, features, &state->queues[i]))
			return -EINVAL;
	return 0;
}

int device_load(struct device *device, const struct device_state *state)
{
	int r;

	(void) pthread_mutex_lock(&device->lock);
	r = load(device, state);
	(void) pthread_mutex_unlock(&device->lock);
	return r;
}

void device_wake(struct device *device)
{
	(void) pthread_mutex_lock(&device->lock);
	if (device->status & STATUS_DRIVER_OK)
		interrupt(device, INTERRUPT_USED);
	for (unsigned int i = 0; i < device->n_queues; i++)
		device_kick(device, i);
	(void) pthread_mutex_unlock(&device->lock);
}

uint8_t device_status(struct device *device)
{
	uint8_t status;

	(void) pthread_mutex_lock(&device->lock);
	status = device->status;
	(void) pthread_mutex_unlock(&device->lock);
	return status;
}

void device_set_status(struct device *device, uint32_t value)
{
	(void) pthread_mutex_lock(&device->lock);
	/* another vCPU's reset may wait with the lock let go: its end decides what we find */
	while (device->is_resetting)
		(void) pthread_cond_wait(&device->idle, &device->lock);
	set_status(device, value);
	(void) pthread_cond_broadcast(&device->idle);
	(void) pthread_mutex_unlock(&device->lock);
}
