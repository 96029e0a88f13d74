/* SPDX-License-Identifier: Apache-2.0
 *
 * See clock.h.
 */
#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t clock_usec(clockid_t id)
{
	struct timespec ts = { 0 };

	(void) clock_gettime(id, &ts); /* cannot fail for the three clocks used here */
	return (int64_t) ts.tv_sec * USEC_PER_SEC + ts.tv_nsec / 1000;
}

int64_t clock_monotonic_usec(void)
{
	return clock_usec(CLOCK_MONOTONIC);
}

int64_t clock_boottime_usec(void)
{
	return clock_usec(CLOCK_BOOTTIME);
}

int64_t clock_realtime_usec(void)
{
	return clock_usec(CLOCK_REALTIME);
}

char *clock_format_rfc3339(int64_t realtime_usec, char *buf, size_t size)
{
	time_t sec = (time_t) (realtime_usec / USEC_PER_SEC);
	int msec = (int) (realtime_usec % USEC_PER_SEC / 1000);
	char date[24];
	struct tm tm;

	if (realtime_usec < 0 || !gmtime_r(&sec, &tm) || !strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm)) {
		(void) snprintf(buf, size, "1970-01-01T00:00:00.000Z");
		return buf;
	}
	(void) snprintf(buf, size, "%s.%03dZ", date, msec);
	return buf;
}

/* Whether `text` begins with this shape: a digit for each 0, anything else as it is. */
static bool has_shape(const char *text, const char *shape)
{
	for (; *shape; text++, shape++)
		if (*shape == '0' ? *text < '0' || *text > '9' : *text != *shape)
			return false;
	return true;
}

/* "+01:30" and nothing behind it. */
static bool parse_offset(const char *text, int64_t *ret_sec)
{
	int hours, minutes;

	if (!has_shape(text + 1, "00:00") || text[6])
		return false;
	hours = (text[1] - '0') * 10 + (text[2] - '0');
	minutes = (text[4] - '0') * 10 + (text[5] - '0');
	if (hours > 23 || minutes > 59)
		return false;
	*ret_sec = (int64_t) (hours * 3600 + minutes * 60) * (*text == '-' ? -1 : 1);
	return true;
}

int clock_parse_rfc3339(const char *text, int64_t *ret_realtime_usec)
{
	struct tm tm = { 0 }, same;
	int64_t usec = 0, scale = 100000, offset = 0;
	const char *p;
	time_t sec;

	/* strptime() alone takes spaces and missing digits */
	if (!has_shape(text, "0000-00-00T00:00:00"))
		return -EINVAL;
	p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	if (!p)
		return -EINVAL;
	same = tm;
	sec = timegm(&same);
	if (same.tm_mday != tm.tm_mday || same.tm_sec != tm.tm_sec)
		return -EINVAL; /* no such day: timegm() makes 31 February a day of March */
	if (*p == '.') {
		if (p[1] < '0' || p[1] > '9')
			return -EINVAL;
		for (p++; *p >= '0' && *p <= '9'; p++, scale /= 10)
			usec += (*p - '0') * scale;
	}
	if (*p == '+' || *p == '-') {
		if (!parse_offset(p, &offset))
			return -EINVAL;
	} else if (strcmp(p, "Z") && strcmp(p, "z")) {
		return -EINVAL;
	}
	*ret_realtime_usec = ((int64_t) sec - offset) * USEC_PER_SEC + usec;
	return 0;
}

int clock_parse_duration(const char *text, int64_t *ret_usec)
{
	static const struct {
		const char *unit;
		int64_t usec;
	} units[] = { { "", USEC_PER_SEC }, { "ms", 1000 }, { "s", USEC_PER_SEC }, { "m", 60 * USEC_PER_SEC },
		{ "h", 3600 * USEC_PER_SEC }, { "d", 86400 * USEC_PER_SEC } };
	long long value;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(end, units[i].unit))
			return __builtin_mul_overflow((int64_t) value, units[i].usec, ret_usec) ? -EINVAL : 0;
	return -EINVAL;
}
