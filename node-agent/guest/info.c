/* SPDX-License-Identifier: Apache-2.0
 *
 * See info.h.
 */
#include "guest/info.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/fd.h"

static void read_boot_id(char ret[static 40])
{
	CLEANUP_FREE char *text = NULL;

	ret[0] = '\0';
	if (file_read("/proc/sys/kernel/random/boot_id", 64, &text, NULL) == 0)
		(void) snprintf(ret, 40, "%.*s", (int) strcspn(text, "\n"), text);
}

static uint64_t meminfo_field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

void info_read(struct guest_info *ret)
{
	CLEANUP_FREE char *text = NULL;

	*ret = (struct guest_info){ .uptime_usec = clock_boottime_usec() };
	read_boot_id(ret->boot_id);
	if (file_read("/proc/meminfo", 65536, &text, NULL) == 0) {
		ret->memory_total_kib = meminfo_field(text, "MemTotal:");
		ret->memory_available_kib = meminfo_field(text, "MemAvailable:");
	}
}

void info_hello(struct guest_hello *ret, const struct err *failure)
{
	struct utsname name;

	*ret = (struct guest_hello){ .uptime_usec = clock_boottime_usec(), .failure = failure };
	read_boot_id(ret->boot_id);
	if (uname(&name) == 0)
		(void) snprintf(ret->kernel, sizeof(ret->kernel), "%s", name.release);
}
