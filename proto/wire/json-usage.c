/* SPDX-License-Identifier: Apache-2.0
 *
 * See json.h: one shape for what sandboxes used, on the node, in the API and on the command line, so that they can be compared.
 */
#include "wire/json.h"
#include "wire/messages.h"

#include "base/clock.h"

#define SECONDS 1e6
#define GIB 1024.0 /* in MiB */

json_t *json_usage(const struct usage_record *record)
{
	char began[CLOCK_RFC3339_SIZE], until[CLOCK_RFC3339_SIZE];
	json_t *lost = json_object();

	for (unsigned int i = 0; i < COMPONENT_MAX_; i++)
		if (record->lost_us[i] > 0)
			(void)json_object_set_new(lost, component_name((enum fail_component)i), json_integer((json_int_t)record->lost_us[i]));
	return json_pack("{s:s, s:I, s:s, s:I, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:f}", "sandbox",
		record->sandbox, "generation", (json_int_t)record->generation, "tenant", record->tenant, "version",
		(json_int_t)record->version, "began", clock_format_rfc3339(record->began_us, began, sizeof(began)), "until",
		clock_format_rfc3339(record->until_us, until, sizeof(until)), "over", record->is_over, "vcpus",
		(json_int_t)record->vcpus, "memory_mib", (json_int_t)record->memory_mib, "disk_mib", (json_int_t)record->disk_mib,
		"running_us", (json_int_t)record->running_us, "paused_us", (json_int_t)record->paused_us, "disk_us",
		(json_int_t)record->disk_us, "cpu_us", (json_int_t)record->cpu_us, "egress_bytes",
		(json_int_t)record->egress_bytes, "uncounted_us", (json_int_t)record->uncounted_us, "lost_us", lost, "cpu_s",
		(double)record->cpu_us / SECONDS, "memory_gib_s",
		(double)record->running_us / SECONDS * (double)record->memory_mib / GIB, "disk_gib_s",
		(double)record->disk_us / SECONDS * (double)record->disk_mib / GIB);
}
