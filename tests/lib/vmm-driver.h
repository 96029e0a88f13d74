/* SPDX-License-Identifier: Apache-2.0
 *
 * A virtio driver for tests in one process: it drives a device through its registers and lays out rings in guest
 * memory by hand, so that it can also do it wrongly.
 */
#pragma once

#include <check.h>
#include <string.h>
#include <unistd.h>

#include "virtio/mmio.h"

#define DRIVER_RINGS UINT64_C(0x100000) /* rings of queue q at + q * 0x10000 */
#define DRIVER_DATA UINT64_C(0x200000)  /* for the test */
#define DRIVER_MIB 64
#define DRIVER_END ((uint64_t) DRIVER_MIB << 20)
#ifndef DRIVER_N
#define DRIVER_N 16                     /* entries of a ring */
#endif

#define D_NEXT 1u
#define D_WRITE 2u
#define D_INDIRECT 4u

struct driver {
	struct memory memory;
	struct device *device;
	uint16_t avail[DEVICE_QUEUES_MAX], used[DEVICE_QUEUES_MAX]; /* our indices */
};

static inline uint32_t driver_read(struct driver *driver, uint32_t reg)
{
	uint32_t value;
	uint8_t bytes[4];

	mmio_read(driver->device, reg, bytes, sizeof(bytes));
	memcpy(&value, bytes, sizeof(value));
	return value;
}

static inline void driver_write(struct driver *driver, uint32_t reg, uint32_t value)
{
	uint8_t bytes[4];

	memcpy(bytes, &value, sizeof(value));
	mmio_write(driver->device, reg, bytes, sizeof(bytes));
}

static inline void *driver_at(struct driver *driver, uint64_t gpa)
{
	return driver->memory.base + gpa;
}

static inline uint64_t driver_desc(unsigned int q)
{
	return DRIVER_RINGS + q * UINT64_C(0x10000);
}
static inline uint64_t driver_avail(unsigned int q)
{
	return driver_desc(q) + 0x4000;
}
static inline uint64_t driver_used(unsigned int q)
{
	return driver_desc(q) + 0x8000;
}

static inline void driver_set_features(struct driver *driver, uint64_t features)
{
	driver_write(driver, 0x24, 0);
	driver_write(driver, 0x20, (uint32_t) features);
	driver_write(driver, 0x24, 1);
	driver_write(driver, 0x20, (uint32_t) (features >> 32));
}

static inline void driver_set_queue(struct driver *driver, unsigned int q, uint32_t n, uint64_t desc, uint64_t avail,
	uint64_t used)
{
	driver_write(driver, 0x30, q);
	driver_write(driver, 0x38, n);
	driver_write(driver, 0x80, (uint32_t) desc);
	driver_write(driver, 0x84, (uint32_t) (desc >> 32));
	driver_write(driver, 0x90, (uint32_t) avail);
	driver_write(driver, 0x94, (uint32_t) (avail >> 32));
	driver_write(driver, 0xa0, (uint32_t) used);
	driver_write(driver, 0xa4, (uint32_t) (used >> 32));
	driver_write(driver, 0x44, 1);
}

static inline void driver_set_desc(struct driver *driver, unsigned int q, unsigned int index, uint64_t addr,
	uint32_t len, unsigned int flags, unsigned int next)
{
	uint64_t *at = (uint64_t *) driver_at(driver, driver_desc(q)) + (size_t) index * 2;
	uint64_t high = len | (uint64_t) (uint16_t) flags << 32 | (uint64_t) (uint16_t) next << 48;

	/* whole words, as a guest's CPU does it while the device looks */
	__atomic_store_n(&at[0], addr, __ATOMIC_RELAXED);
	__atomic_store_n(&at[1], high, __ATOMIC_RELAXED);
}

/* Up to FEATURES_OK. */
static inline void driver_negotiate(struct driver *driver, uint64_t features)
{
	driver_write(driver, 0x70, 0);
	driver_write(driver, 0x70, 1);
	driver_write(driver, 0x70, 3);
	driver_set_features(driver, features | FEATURE_VERSION_1);
	driver_write(driver, 0x70, 11);
	ck_assert_uint_eq(driver_read(driver, 0x70), 11);
}

/* Up to DRIVER_OK with all queues. */
static inline void driver_start(struct driver *driver, uint64_t features)
{
	driver_negotiate(driver, features);
	for (unsigned int q = 0; q < driver->device->n_queues; q++) {
		for (unsigned int i = 0; i < DRIVER_N; i++)
			driver_set_desc(driver, q, i, 0, 0, 0, 0);
		memset(driver_at(driver, driver_avail(q)), 0, 0x8000); /* both other rings */
		driver->avail[q] = driver->used[q] = 0;
		driver_set_queue(driver, q, DRIVER_N, driver_desc(q), driver_avail(q), driver_used(q));
		ck_assert_uint_eq(driver_read(driver, 0x44), 1);
	}
	driver_write(driver, 0x70, 15);
	ck_assert_uint_eq(driver_read(driver, 0x70), 15);
}

static inline uint16_t *driver_u16(struct driver *driver, uint64_t gpa)
{
	return (uint16_t *) driver_at(driver, gpa);
}

static inline void driver_push(struct driver *driver, unsigned int q, unsigned int head)
{
	__atomic_store_n(&driver_u16(driver, driver_avail(q) + 4)[driver->avail[q] % DRIVER_N], (uint16_t) head,
		__ATOMIC_RELAXED);
	driver->avail[q]++;
	__atomic_store_n(driver_u16(driver, driver_avail(q) + 2), driver->avail[q], __ATOMIC_RELEASE);
}

/* The next used entry: its length, or -1. *ret_head may be NULL. */
static inline int64_t driver_pop(struct driver *driver, unsigned int q, uint32_t *ret_head)
{
	uint32_t entry[2];

	if (*driver_u16(driver, driver_used(q) + 2) == driver->used[q])
		return -1;
	memcpy(entry, (uint8_t *) driver_at(driver, driver_used(q)) + 4 + (driver->used[q] % DRIVER_N) * 8, 8);
	driver->used[q]++;
	if (ret_head)
		*ret_head = entry[0];
	return entry[1];
}

/* Whether an interrupt came since the last call. */
static inline bool driver_interrupted(struct driver *driver)
{
	uint64_t n;

	return read(driver->device->irq_fd, &n, sizeof(n)) == sizeof(n);
}

static inline bool driver_needs_reset(struct driver *driver)
{
	return driver_read(driver, 0x70) & STATUS_NEEDS_RESET;
}
