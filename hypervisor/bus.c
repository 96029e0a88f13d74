/* SPDX-License-Identifier: Apache-2.0
 *
 * See bus.h.
 */
#include "bus.h"

#include <errno.h>
#include <string.h>

int bus_add(struct bus *bus, const struct bus_range *range)
{
	for (unsigned int i = 0; i < bus->n_ranges; i++) {
		const struct bus_range *other = &bus->ranges[i];

		if (range->base < other->base + other->size && other->base < range->base + range->size)
			return -EEXIST;
	}
	if (bus->n_ranges == BUS_RANGES_MAX)
		return -ENOSPC;
	bus->ranges[bus->n_ranges++] = *range;
	return 0;
}

static const struct bus_range *find(const struct bus *bus, uint64_t addr, uint32_t len)
{
	for (unsigned int i = 0; i < bus->n_ranges; i++) {
		const struct bus_range *range = &bus->ranges[i];

		if (addr >= range->base && addr - range->base < range->size &&
			len <= range->size - (addr - range->base))
			return range;
	}
	return NULL;
}

void bus_read(const struct bus *bus, uint64_t addr, uint8_t *bytes, uint32_t len)
{
	const struct bus_range *range = find(bus, addr, len);

	if (range && range->read)
		range->read(range->data, addr - range->base, bytes, len);
	else
		memset(bytes, 0xff, len);
}

void bus_write(const struct bus *bus, uint64_t addr, const uint8_t *bytes, uint32_t len)
{
	const struct bus_range *range = find(bus, addr, len);

	if (range && range->write)
		range->write(range->data, addr - range->base, bytes, len);
}
