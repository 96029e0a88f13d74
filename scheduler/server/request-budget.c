/* SPDX-License-Identifier: Apache-2.0
 *
 * See request.h: what a sandbox may use, in seconds and bytes as people say it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/request.h"
#include "wire/json.h"

#define SECONDS_MAX 1e9 /* thirty years */
#define MIB_MS 1024e3   /* of a GiB-second */

static int invalid(const char *prefix, const char *member, const char *why, struct err *reterr)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s%.40s %s", prefix, member, why);
	err_add(reterr, "field", "%s%.40s", prefix, member);
	return -EINVAL;
}

/* A number above 0, times `unit`; absent or null: 0. */
static int read_number(const json_t *body, const char *prefix, const char *member, double unit, double max, uint64_t *ret, struct err *reterr)
{
	const json_t *value = json_object_get(body, member);
	double number = json_number_value(value);

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_number(value) || !(number > 0) || number > max || number * unit < 1)
		return invalid(prefix, member, "must be a number above 0, and not beyond what can be counted", reterr);
	*ret = (uint64_t)(number * unit);
	return 0;
}

/* Who misspells a limit has none. */
static int check_names(const json_t *body, const char *prefix, struct err *reterr)
{
	static const char *const known[] = { "cpu_s", "gib_s", "egress_bytes", "wall_s", "action" };
	json_t *value;
	const char *name;

	json_object_foreach((json_t *)(uintptr_t)body, name, value) {
		size_t i = 0;

		while (i < ARRAY_LEN(known) && strcmp(name, known[i]) != 0)
			i++;
		if (i == ARRAY_LEN(known))
			return invalid(prefix, name, "is no member of a budget", reterr);
	}
	return 0;
}

int request_budget(const json_t *body, const char *prefix, struct budget *ret, struct err *reterr)
{
	struct budget budget = { .cpu_us = 0 };
	const char *action = "kill";
	int r;

	if (!body || json_is_null(body))
		return 0;
	if (!json_is_object(body))
		return invalid("", "budget", "must be an object", reterr);
	r = check_names(body, prefix, reterr);
	if (r == 0)
		r = read_number(body, prefix, "cpu_s", 1e6, SECONDS_MAX, &budget.cpu_us, reterr);
	if (r == 0)
		r = read_number(body, prefix, "gib_s", MIB_MS, SECONDS_MAX, &budget.memory_mib_ms, reterr);
	if (r == 0)
		r = read_number(body, prefix, "egress_bytes", 1, 9e15, &budget.egress_bytes, reterr);
	if (r == 0)
		r = read_number(body, prefix, "wall_s", 1e6, SECONDS_MAX, &budget.wall_us, reterr);
	if (r == 0)
		r = json_get_string(body, "action", 8, &action, reterr);
	if (r < 0)
		return r;
	if (strcmp(action, "kill") != 0 && strcmp(action, "pause") != 0)
		return invalid(prefix, "action", "is kill or pause", reterr);
	budget.pauses = !strcmp(action, "pause");
	*ret = budget;
	return 0;
}

static json_t *limit(uint64_t value, double unit)
{
	return value ? json_real((double)value / unit) : json_null();
}

json_t *view_budget(const struct budget *budget)
{
	if (!budget_is_set(budget))
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:s}", "cpu_s", limit(budget->cpu_us, 1e6), "gib_s", limit(budget->memory_mib_ms, MIB_MS),
		"egress_bytes", budget->egress_bytes ? json_integer((json_int_t)budget->egress_bytes) : json_null(), "wall_s",
		limit(budget->wall_us, 1e6), "action", budget->pauses ? "pause" : "kill");
}
