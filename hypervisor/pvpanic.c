/* SPDX-License-Identifier: Apache-2.0
 *
 * See pvpanic.h.
 */
#include "pvpanic.h"

#include <string.h>

#include "boot/layout.h"
#include "vm.h"

#define PVPANIC_PANICKED 0x01
#define PVPANIC_CRASH_LOADED 0x02 /* a crash kernel takes over: no end yet */

static void read_events(void *data, uint64_t offset, uint8_t *bytes, uint32_t len)
{
	(void) data, (void) offset;
	memset(bytes, 0, len);
	bytes[0] = PVPANIC_PANICKED | PVPANIC_CRASH_LOADED; /* those that we know */
}

static void write_event(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len)
{
	(void) offset, (void) len;
	if (bytes[0] & PVPANIC_PANICKED)
		vm_post(data, VM_EVENT_PANICKED);
}

static void read_sleep(void *data, uint64_t offset, uint8_t *bytes, uint32_t len)
{
	(void) data, (void) offset;
	memset(bytes, 0, len); /* the status register: never woken */
}

static void write_sleep(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len)
{
	(void) len;
	if (offset == 0 &&
		bytes[0] == (LAYOUT_SLEEP_TYPE_S5 << 2 | LAYOUT_SLEEP_ENABLE))
		vm_report_exit(data, EXIT_POWEROFF, NULL, "the guest powered off");
}

static void write_reset(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len)
{
	(void) offset, (void) len;
	if (bytes[0] == LAYOUT_RESET_VALUE)
		vm_report_exit(data, EXIT_RESET, NULL, "the guest reset");
}

static void write_marker(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len)
{
	(void) offset, (void) len;
	if (bytes[0] == LAYOUT_BOOT_MARKER_VALUE)
		vm_post(data, VM_EVENT_USERSPACE);
}

int pvpanic_init(struct vm *vm, struct bus *ports)
{
	const struct bus_range ranges[] = {
		{ .base = LAYOUT_PORT_PVPANIC, .size = 1, .read = read_events, .write = write_event, .data = vm },
		{ .base = LAYOUT_PORT_SLEEP_CONTROL, .size = 2, .read = read_sleep, .write = write_sleep, .data = vm },
		{ .base = LAYOUT_PORT_RESET, .size = 1, .write = write_reset, .data = vm },
		{ .base = LAYOUT_PORT_BOOT_MARKER, .size = 1, .write = write_marker, .data = vm },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(ranges); i++)
		r = bus_add(ports, &ranges[i]);
	return r;
}
