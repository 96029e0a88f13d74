/* SPDX-License-Identifier: Apache-2.0
 *
 * See cpu-class.h.
 */
#include "agent/cpu-class.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define FAMILY_EXTENDED 15u
#define FAMILY_INTEL 6u

static const struct {
	char vendor[13];
	const char *name;
} vendors[] = { { "AuthenticAMD", "amd" }, { "GenuineIntel", "intel" }, { "HygonGenuine", "hygon" } };

void cpu_class_name(const char vendor[static 12], uint32_t signature, char ret[static CPU_CLASS_SIZE])
{
	uint32_t family = signature >> 8 & 15, model = signature >> 4 & 15;
	const char *name = "other";

	if (family == FAMILY_INTEL || family == FAMILY_EXTENDED)
		model |= (signature >> 16 & 15) << 4;
	if (family == FAMILY_EXTENDED)
		family += signature >> 20 & 255;
	for (size_t i = 0; i < ARRAY_LEN(vendors); i++)
		if (!memcmp(vendor, vendors[i].vendor, 12))
			name = vendors[i].name;
	(void) snprintf(ret, CPU_CLASS_SIZE, "%s-%u-%u", name, family, model);
}

void cpu_class_of_host(char ret[static CPU_CLASS_SIZE])
{
	uint32_t a, b, c, d;
	char vendor[12];

	*ret = '\0';
	if (!__get_cpuid(0, &a, &b, &c, &d))
		return;
	memcpy(vendor, &b, 4);
	memcpy(vendor + 4, &d, 4);
	memcpy(vendor + 8, &c, 4);
	if (__get_cpuid(1, &a, &b, &c, &d))
		cpu_class_name(vendor, a, ret);
}
