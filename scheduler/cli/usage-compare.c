/* SPDX-License-Identifier: Apache-2.0
 *
 * See usage.h.
 */
#include "cli/usage.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* What both have to say in the same words. */
static const char *const members[] = { "version", "over", "vcpus", "memory_mib", "disk_mib", "running_us", "paused_us", "disk_us", "cpu_us",
	"egress_bytes", "uncounted_us", "lost_us" };

static json_int_t number_of(const json_t *record, const char *name)
{
	return json_integer_value(json_object_get(record, name));
}

static bool is_of(const json_t *record, const json_t *other)
{
	const char *a = json_string_value(json_object_get(record, "sandbox")), *b = json_string_value(json_object_get(other, "sandbox"));

	return a && b && !strcmp(a, b) && number_of(record, "generation") == number_of(other, "generation");
}

static const json_t *find(const json_t *list, const json_t *wanted)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (is_of(json_array_get(list, i), wanted))
			return json_array_get(list, i);
	return NULL;
}

static void add(json_t *list, const json_t *record, const char *cause, bool is_explained, const char *what, const json_t *node,
	const json_t *scheduler)
{
	(void)json_array_append_new(list,
		json_pack("{s:O, s:O, s:s, s:b, s:s, s:O?, s:O?}", "sandbox", json_object_get(record, "sandbox"), "generation",
			json_object_get(record, "generation"), "cause", cause, "explained", is_explained, "what", what, "node", node,
			"scheduler", scheduler));
}

/* The names of what differs. */
static bool differs(const json_t *node, const json_t *scheduler, char *ret, size_t size)
{
	size_t n = 0;

	*ret = '\0';
	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		const json_t *a = json_object_get(node, members[i]), *b = json_object_get(scheduler, members[i]);

		if (a && b && json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b))
			continue;
		n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? " " : "", members[i]);
	}
	return n > 0;
}

static void compare(json_t *list, const json_t *node, const json_t *scheduler)
{
	const json_int_t here = number_of(node, "version"), there = number_of(scheduler, "version"), acked = number_of(node, "acked_version");
	char what[256];

	if (!differs(node, scheduler, what, sizeof(what)))
		return;
	if (here == there)
		add(list, node, "the same version says something else: one of the two was changed", false, what, node, scheduler);
	else if (here < there)
		add(list, node, "the node's books are older than what the scheduler was told: its state was put back, or they were read before", false,
			what, node, scheduler);
	else if (acked > there)
		add(list, node, "the scheduler has lost what it acknowledged: its books were put back or damaged", false, what, node,
			scheduler);
	else
		add(list, node, "not told yet", true, what, node, scheduler);
}

json_t *usage_differences(const json_t *node, const json_t *scheduler)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < json_array_size(node); i++) {
		const json_t *record = json_array_get(node, i), *other = find(scheduler, record);

		if (other)
			compare(list, record, other);
		else if (number_of(record, "acked_version") > 0)
			add(list, record, "the scheduler has lost what it acknowledged: its books were put back or damaged, or it was over too long ago",
				false, "all", record, NULL);
		else
			add(list, record, "not told yet", true, "all", record, NULL);
	}
	for (size_t i = 0; list && i < json_array_size(scheduler); i++) {
		const json_t *record = json_array_get(scheduler, i);

		if (find(node, record))
			continue;
		if (json_is_true(json_object_get(record, "over")))
			add(list, record, "the node keeps its last 4,096 accounts of what is over; this one went", true, "all", NULL, record);
		else
			add(list, record, "the node has no account of what is not over: its state was lost or put back", false, "all", NULL,
				record);
	}
	return list;
}
