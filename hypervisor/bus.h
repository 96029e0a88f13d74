/* SPDX-License-Identifier: Apache-2.0
 *
 * Who answers at a port or at an address between RAM. Filled once before the first vCPU runs, only read
 * afterwards. An access that no range holds whole reads as all ones and writes to nowhere.
 */
#pragma once

#include <stdint.h>

/* Called on a vCPU thread; 1 <= len <= 8; offset + len lies within the range. */
typedef void (*bus_read_fn)(void *data, uint64_t offset, uint8_t *bytes, uint32_t len);
typedef void (*bus_write_fn)(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len);

struct bus_range {
	uint64_t base, size;
	bus_read_fn read;
	bus_write_fn write;
	void *data;
};

#define BUS_RANGES_MAX 32

struct bus {
	unsigned int n_ranges;
	struct bus_range ranges[BUS_RANGES_MAX];
};

/* 0, -EEXIST when it overlaps another, -ENOSPC. */
int bus_add(struct bus *bus, const struct bus_range *range);
void bus_read(const struct bus *bus, uint64_t addr, uint8_t *bytes, uint32_t len);
void bus_write(const struct bus *bus, uint64_t addr, const uint8_t *bytes, uint32_t len);
