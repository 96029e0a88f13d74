/* SPDX-License-Identifier: Apache-2.0
 *
 * See mmio.h. Registers are those of virtio 1.2, 4.2.2.
 */
#include "virtio/mmio.h"

#include <string.h>

#define MAGIC 0x74726976u  /* "virt" */
#define VENDOR 0x46524f43u /* "CORF" read as bytes */
#define CONFIG 0x100u

enum reg {
	REG_MAGIC = 0x00,
	REG_VERSION = 0x04,
	REG_DEVICE_ID = 0x08,
	REG_VENDOR_ID = 0x0c,
	REG_DEVICE_FEATURES = 0x10,
	REG_DEVICE_FEATURES_SEL = 0x14,
	REG_DRIVER_FEATURES = 0x20,
	REG_DRIVER_FEATURES_SEL = 0x24,
	REG_QUEUE_SEL = 0x30,
	REG_QUEUE_NUM_MAX = 0x34,
	REG_QUEUE_NUM = 0x38,
	REG_QUEUE_READY = 0x44,
	REG_QUEUE_NOTIFY = MMIO_QUEUE_NOTIFY,
	REG_INTERRUPT_STATUS = 0x60,
	REG_INTERRUPT_ACK = 0x64,
	REG_STATUS = 0x70,
	REG_QUEUE_DESC_LOW = 0x80,
	REG_QUEUE_DESC_HIGH = 0x84,
	REG_QUEUE_AVAIL_LOW = 0x90,
	REG_QUEUE_AVAIL_HIGH = 0x94,
	REG_QUEUE_USED_LOW = 0xa0,
	REG_QUEUE_USED_HIGH = 0xa4,
	REG_SHM_LEN_LOW = 0xb0,
	REG_SHM_LEN_HIGH = 0xb4,
	REG_SHM_BASE_LOW = 0xb8,
	REG_SHM_BASE_HIGH = 0xbc,
	REG_CONFIG_GENERATION = 0xfc,
};

static struct queue *selected(struct device *device)
{
	return device->queue_index < device->n_queues ? &device->queues[device->queue_index] : NULL;
}

static uint32_t read_locked(struct device *device, uint32_t reg)
{
	struct queue *queue = selected(device);

	switch (reg) {
	case REG_DEVICE_FEATURES:
		return device->features_page > 1 ? 0 : (uint32_t) (device->features >> (32 * device->features_page));
	case REG_QUEUE_NUM_MAX:
		return queue ? queue->size_max : 0;
	case REG_QUEUE_READY:
		return queue && queue->is_ready;
	case REG_STATUS:
		return device->status;
	default:
		return 0;
	}
}

static uint32_t read_register(struct device *device, uint32_t reg)
{
	uint32_t value;

	switch (reg) {
	case REG_MAGIC:
		return MAGIC;
	case REG_VERSION:
		return 2;
	case REG_DEVICE_ID:
		return device->id;
	case REG_VENDOR_ID:
		return VENDOR;
	case REG_INTERRUPT_STATUS: /* without the lock: the guest's handler reads it for every interrupt */
		return atomic_load(&device->interrupt_status);
	case REG_CONFIG_GENERATION:
		return atomic_load(&device->config_generation);
	case REG_SHM_LEN_LOW:
	case REG_SHM_LEN_HIGH:
	case REG_SHM_BASE_LOW:
	case REG_SHM_BASE_HIGH:
		return UINT32_MAX; /* no shared memory region */
	default:
		break;
	}
	(void) pthread_mutex_lock(&device->lock);
	value = read_locked(device, reg);
	(void) pthread_mutex_unlock(&device->lock);
	return value;
}

void mmio_read(void *data, uint64_t offset, uint8_t *bytes, uint32_t len)
{
	struct device *device = data;
	uint32_t value;

	memset(bytes, 0, len);
	if (offset >= CONFIG) {
		if ((len != 1 && len != 2 && len != 4) || !device->ops->config_read)
			return;
		(void) pthread_mutex_lock(&device->lock);
		device->ops->config_read(device, (uint32_t) offset - CONFIG, bytes, len);
		(void) pthread_mutex_unlock(&device->lock);
		return;
	}
	if (len != 4 || offset % 4 != 0)
		return;
	value = read_register(device, (uint32_t) offset);
	memcpy(bytes, &value, sizeof(value));
}

static void set_low(uint64_t *field, uint32_t value)
{
	*field = (*field & ~(uint64_t) UINT32_MAX) | value;
}

static void set_high(uint64_t *field, uint32_t value)
{
	*field = (*field & UINT32_MAX) | (uint64_t) value << 32;
}

/* Between FEATURES_OK and DRIVER_OK. */
static bool may_set_up_queues(const struct device *device)
{
	return (device->status & (STATUS_FEATURES_OK | STATUS_DRIVER_OK | STATUS_FAILED | STATUS_NEEDS_RESET)) ==
		STATUS_FEATURES_OK &&
		!device->is_resetting;
}

static void write_ready(struct device *device, struct queue *queue, uint32_t value)
{
	struct queue_features features = { .has_indirect = device_has(device, FEATURE_INDIRECT_DESC),
		.has_event_index = device_has(device, FEATURE_EVENT_IDX) };

	if (value == 0 && queue->is_ready && !device->is_resetting) {
		device_drain(device); /* the driver stops the queue: what is under way ends first */
		queue->is_ready = false;
		for (unsigned int i = 0; i < device->n_queues; i++)
			device_kick(device, i);
		return;
	}
	if (value != 1 || queue->is_ready || !may_set_up_queues(device))
		return;
	switch (queue_latch(queue, device->memory, features)) {
	case QUEUE_LATCHED:
		break;
	case QUEUE_BAD_SIZE:
		device_set_needs_reset(device, "a queue's size is not allowed");
		break;
	case QUEUE_BAD_ADDRESS:
		device_set_needs_reset(device, "a ring does not lie in memory or is not aligned");
		break;
	}
}

static void write_queue(struct device *device, struct queue *queue, uint32_t reg, uint32_t value)
{
	if (!may_set_up_queues(device) || queue->is_ready)
		return;
	switch (reg) {
	case REG_QUEUE_NUM:
		queue->size = value > UINT16_MAX ? 0 : (uint16_t) value; /* 0 is refused when it becomes ready */
		break;
	case REG_QUEUE_DESC_LOW:
		set_low(&queue->desc, value);
		break;
	case REG_QUEUE_DESC_HIGH:
		set_high(&queue->desc, value);
		break;
	case REG_QUEUE_AVAIL_LOW:
		set_low(&queue->avail, value);
		break;
	case REG_QUEUE_AVAIL_HIGH:
		set_high(&queue->avail, value);
		break;
	case REG_QUEUE_USED_LOW:
		set_low(&queue->used, value);
		break;
	case REG_QUEUE_USED_HIGH:
		set_high(&queue->used, value);
		break;
	default:
		break;
	}
}

/* Features count only between DRIVER and FEATURES_OK. */
static void write_features(struct device *device, uint32_t value)
{
	if ((device->status & (STATUS_DRIVER | STATUS_FEATURES_OK)) != STATUS_DRIVER)
		return;
	if (device->driver_features_page == 0)
		set_low(&device->driver_features, value);
	else if (device->driver_features_page == 1)
		set_high(&device->driver_features, value);
	else if (value != 0) /* a bit that nobody has: cannot be acceptable */
		device->driver_features |= ~device->features;
}

static void write_locked(struct device *device, uint32_t reg, uint32_t value)
{
	struct queue *queue = selected(device);

	switch (reg) {
	case REG_DEVICE_FEATURES_SEL:
		device->features_page = value;
		break;
	case REG_DRIVER_FEATURES:
		write_features(device, value);
		break;
	case REG_DRIVER_FEATURES_SEL:
		device->driver_features_page = value;
		break;
	case REG_QUEUE_SEL:
		device->queue_index = value;
		break;
	case REG_QUEUE_READY:
		if (queue)
			write_ready(device, queue, value);
		break;
	default:
		if (queue)
			write_queue(device, queue, reg, value);
		break;
	}
}

static void write_config(struct device *device, uint32_t offset, const uint8_t *bytes, uint32_t len)
{
	if ((len != 1 && len != 2 && len != 4) || !device->ops->config_write)
		return;
	(void) pthread_mutex_lock(&device->lock);
	device->ops->config_write(device, offset, bytes, len);
	(void) pthread_mutex_unlock(&device->lock);
}

void mmio_write(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len)
{
	struct device *device = data;
	uint32_t value;

	if (offset >= CONFIG) {
		write_config(device, (uint32_t) offset - CONFIG, bytes, len);
		return;
	}
	if (len != 4 || offset % 4 != 0)
		return;
	memcpy(&value, bytes, sizeof(value));
	switch (offset) {
	case REG_STATUS:
		device_set_status(device, value);
		return;
	case REG_INTERRUPT_ACK:
		atomic_fetch_and(&device->interrupt_status, ~value);
		return;
	case REG_QUEUE_NOTIFY: /* only where no ioeventfd took it */
		if (value < device->n_queues)
			device_kick(device, value);
		return;
	default:
		break;
	}
	(void) pthread_mutex_lock(&device->lock);
	write_locked(device, (uint32_t) offset, value);
	(void) pthread_mutex_unlock(&device->lock);
}
