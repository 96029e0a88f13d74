/* SPDX-License-Identifier: Apache-2.0
 *
 * base/ without files and sockets (those are in test-base-fd.c): buffers, frames, time, ids and traces,
 * randomness, errors, configuration, log lines.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/id.h"
#include "base/limit.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/sm.h"
#include "lib/loop.h"
#include "lib/suite.h"

/* ---- buf ---- */

static const struct {
	enum limit_act act;
	int err_no;
	const char *resource; /* how it begins; NULL: no limit */
} limit_rows[] = {
	{ LIMIT_FILE, EMFILE, "descriptors of the process" },
	{ LIMIT_FILE, ENFILE, "descriptors of the host" },
	{ LIMIT_FILE, EAGAIN, NULL },
	{ LIMIT_FILE, ENOSPC, NULL },
	{ LIMIT_PROCESS, EAGAIN, "processes" },
	{ LIMIT_PROCESS, ENFILE, "descriptors of the host" },
	{ LIMIT_PROCESS, ENOENT, NULL },
	{ LIMIT_NAMESPACE, ENOSPC, "network namespaces" },
	{ LIMIT_NAMESPACE, EAGAIN, NULL },
	{ LIMIT_GROUP, EAGAIN, "control groups" },
	{ LIMIT_GROUP, ENOSPC, "control groups" },
	{ LIMIT_GROUP, EACCES, NULL },
};

START_TEST(test_limit)
{
	struct err err = ERR_NULL;
	bool is_limit = limit_is_reached(&err, STAGE_DISK, limit_rows[_i].act, limit_rows[_i].err_no, "cannot do it");
	const char *field = err_field(&err, "resource");

	ck_assert(is_limit == (limit_rows[_i].resource != NULL));
	ck_assert(err_is_set(&err) == is_limit);
	if (!is_limit)
		return;
	ck_assert_int_eq(err.code, FAIL_HOST_LIMIT);
	ck_assert_int_eq(err.stage, STAGE_DISK);
	ck_assert_int_eq(err.err_no, limit_rows[_i].err_no);
	ck_assert_int_eq(strncmp(field, limit_rows[_i].resource, strlen(limit_rows[_i].resource)), 0);
	ck_assert(!strcmp(strrchr(err.msg, ':') + 2 + strlen("the host ran out of "), field));
	ck_assert(limit_is_reached(NULL, STAGE_DISK, limit_rows[_i].act, limit_rows[_i].err_no, "nobody asks"));
}
END_TEST

START_TEST(test_buf_bounds)
{
	struct buf buf = BUF_NULL(10);
	uint8_t *to;

	ck_assert_uint_eq(buf_size(&buf), 0);
	ck_assert_int_eq(buf_append(&buf, "", 0), 0);
	ck_assert_int_eq(buf_append(&buf, "12345678901", 11), -ENOBUFS);
	ck_assert_int_eq(buf_append(&buf, "1234567", 7), 0);
	ck_assert_int_eq(buf_append(&buf, "8901", 4), -ENOBUFS);
	ck_assert_uint_eq(buf_size(&buf), 7);
	buf_consume(&buf, 5);
	ck_assert_int_eq(buf_append(&buf, "abcdefgh", 8), 0);
	ck_assert_uint_eq(buf_size(&buf), 10);
	ck_assert_int_eq(memcmp(buf_peek(&buf), "67abcdefgh", 10), 0);
	ck_assert_int_eq(buf_reserve(&buf, 1, &to), -ENOBUFS);
	ck_assert_int_eq(buf_reserve(&buf, SIZE_MAX, &to), -ENOBUFS);
	buf_consume(&buf, 10);
	ck_assert_uint_eq(buf_size(&buf), 0);
	buf_deinit(&buf);
	buf_deinit(&buf);
}
END_TEST

/* Against a plain array, through many growths and moves. */
START_TEST(test_buf_model)
{
	struct buf buf = BUF_NULL(5000);
	struct rng rng = rng_seeded(5);
	uint8_t piece[700];
	uint8_t next_in = 0, next_out = 0;
	size_t held = 0;

	for (int round = 0; round < 5000; round++) {
		size_t n = rng_below(&rng, sizeof(piece)), take;

		for (size_t i = 0; i < n; i++)
			piece[i] = (uint8_t) (next_in + i);
		if (held + n <= 5000) {
			ck_assert_int_eq(buf_append(&buf, piece, n), 0);
			next_in = (uint8_t) (next_in + n);
			held += n;
		} else {
			ck_assert_int_eq(buf_append(&buf, piece, n), -ENOBUFS);
		}
		take = held ? rng_below(&rng, held + 1) : 0;
		for (size_t i = 0; i < take; i++) /* no assertion for each byte: check writes a message for each */
			if (buf_peek(&buf)[i] != (uint8_t) (next_out + i))
				ck_abort_msg("round %d, byte %zu", round, i);
		buf_consume(&buf, take);
		next_out = (uint8_t) (next_out + take);
		held -= take;
		ck_assert_uint_eq(buf_size(&buf), held);
	}
	buf_deinit(&buf);
}
END_TEST

/* ---- frame ---- */

START_TEST(test_frame)
{
	struct buf buf = BUF_NULL(100);
	const uint8_t *data;
	uint8_t *to;
	size_t size;

	ck_assert_int_eq(frame_peek(&buf, 50, &data, &size), FRAME_PARTIAL);
	ck_assert_int_eq(frame_reserve(&buf, 3, &to), 0);
	memcpy(to, "abc", 3);
	ck_assert_int_eq(frame_reserve(&buf, 0, &to), 0);
	ck_assert_int_eq(frame_reserve(&buf, 90, &to), -ENOBUFS);
	ck_assert_int_eq(frame_reserve(&buf, SIZE_MAX - 1, &to), -ENOBUFS);
	ck_assert_uint_eq(buf_size(&buf), 11); /* a failure adds nothing */
	ck_assert_int_eq(frame_peek(&buf, 2, &data, &size), FRAME_TOO_LARGE);
	ck_assert_int_eq(frame_peek(&buf, 3, &data, &size), FRAME_WHOLE);
	ck_assert_uint_eq(size, 3);
	ck_assert_int_eq(memcmp(data, "abc", 3), 0);
	frame_consume(&buf, size);
	ck_assert_int_eq(frame_peek(&buf, 3, &data, &size), FRAME_WHOLE);
	ck_assert_uint_eq(size, 0);
	frame_consume(&buf, size);
	ck_assert_uint_eq(buf_size(&buf), 0);
	/* byte by byte */
	for (const char *p = "\0\0\0\2x"; buf_size(&buf) < 5; p++) {
		ck_assert_int_eq(buf_append(&buf, p, 1), 0);
		ck_assert_int_eq(frame_peek(&buf, 9, &data, &size), FRAME_PARTIAL);
	}
	ck_assert_int_eq(buf_append(&buf, "y", 1), 0);
	ck_assert_int_eq(frame_peek(&buf, 9, &data, &size), FRAME_WHOLE);
	buf_consume(&buf, buf_size(&buf));
	ck_assert_int_eq(buf_append(&buf, "\xff\xff\xff\xff", 4), 0);
	ck_assert_int_eq(frame_peek(&buf, 1024 * 1024, &data, &size), FRAME_TOO_LARGE);
	buf_deinit(&buf);
}
END_TEST

/* ---- clock ---- */

static const struct {
	const char *text;
	int64_t usec; /* -1: refused */
} times[] = {
	{ "1970-01-01T00:00:00Z", 0 },
	{ "1970-01-01T00:00:01.5Z", 1500000 },
	{ "2026-11-29T14:03:54.123Z", INT64_C(1795961034123000) },
	{ "2026-11-29T14:03:54.123456789Z", INT64_C(1795961034123456) },
	{ "2026-11-29T15:03:54+01:00", INT64_C(1795961034000000) },
	{ "2026-11-29T12:33:54-01:30", INT64_C(1795961034000000) },
	{ "2024-02-29T00:00:00z", INT64_C(1709164800000000) },
	{ "2023-02-29T00:00:00Z", -1 },
	{ "2026-02-31T00:00:00Z", -1 },
	{ "2026-13-01T00:00:00Z", -1 },
	{ "2026-11-29T24:00:00Z", -1 },
	{ "2026-11-29T14:60:00Z", -1 },
	{ "2026-11-29 14:03:54Z", -1 },
	{ "2026-11-29T14:03:54", -1 },
	{ "2026-11-29T14:03:54.Z", -1 },
	{ "2026-11-29T14:03:54+0100", -1 },
	{ "2026-11-29T14:03:54+01:00x", -1 },
	{ "2026-11-29T14:03:54+24:00", -1 },
	{ "2026-11-29T14:03:54+ 1:00", -1 },
	{ "2026-11-29T14:03:54Zx", -1 },
	{ "2026-1-2T14:03:54Z", -1 },
	{ " 2026-11-29T14:03:54Z", -1 },
	{ "", -1 },
};

START_TEST(test_clock_parse)
{
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		int64_t usec = -7;
		int r = clock_parse_rfc3339(times[i].text, &usec);

		ck_assert_msg(r == (times[i].usec < 0 ? -EINVAL : 0), "%s", times[i].text);
		ck_assert_msg(usec == (r < 0 ? -7 : times[i].usec), "%s: %lld", times[i].text, (long long) usec);
	}
}
END_TEST

START_TEST(test_clock_format)
{
	char text[CLOCK_RFC3339_SIZE];
	struct rng rng = rng_seeded(1);

	ck_assert_str_eq(clock_format_rfc3339(0, text, sizeof(text)), "1970-01-01T00:00:00.000Z");
	ck_assert_str_eq(clock_format_rfc3339(-1, text, sizeof(text)), "1970-01-01T00:00:00.000Z");
	ck_assert_str_eq(clock_format_rfc3339(INT64_C(1795961034123999), text, sizeof(text)), "2026-11-29T14:03:54.123Z");
	ck_assert_uint_lt(strlen(clock_format_rfc3339(INT64_MAX, text, sizeof(text))), sizeof(text));
	for (int i = 0; i < 1000; i++) {
		int64_t usec = (int64_t) rng_below(&rng, UINT64_C(250000000000)) * USEC_PER_SEC, back;

		ck_assert_int_eq(clock_parse_rfc3339(clock_format_rfc3339(usec, text, sizeof(text)), &back), 0);
		ck_assert_int_eq(back, usec);
	}
	ck_assert_int_gt(clock_monotonic_usec(), 0);
	ck_assert_int_ge(clock_boottime_usec(), clock_monotonic_usec() - USEC_PER_SEC);
	ck_assert_int_gt(clock_realtime_usec(), INT64_C(1700000000) * USEC_PER_SEC);
}
END_TEST

static const struct {
	const char *text;
	int64_t usec;
} durations[] = {
	{ "90", 90 * USEC_PER_SEC }, { "90s", 90 * USEC_PER_SEC }, { "15m", 900 * USEC_PER_SEC },
	{ "1h", 3600 * USEC_PER_SEC }, { "7d", 7 * 86400 * USEC_PER_SEC }, { "250ms", 250000 }, { "0", 0 },
	{ "", -1 }, { "-1", -1 }, { "+1", -1 }, { " 1", -1 }, { "1 s", -1 }, { "1x", -1 }, { "s", -1 }, { "1.5s", -1 },
	{ "99999999999999999999", -1 }, { "9223372036854775807d", -1 },
};

START_TEST(test_clock_duration)
{
	for (size_t i = 0; i < ARRAY_LEN(durations); i++) {
		int64_t usec = -7;
		int r = clock_parse_duration(durations[i].text, &usec);

		ck_assert_msg(r == (durations[i].usec < 0 ? -EINVAL : 0), "%s", durations[i].text);
		if (r == 0)
			ck_assert_msg(usec == durations[i].usec, "%s", durations[i].text);
	}
}
END_TEST

/* ---- id, trace, rng ---- */

START_TEST(test_id)
{
	struct rng rng = rng_system(), seeded = rng_seeded(1), same = rng_seeded(1);
	char one[ID_SIZE], two[ID_SIZE], key[API_KEY_SIZE], name[ID_NAME_MAX + 2];

	for (int i = 0; i < 200; i++) {
		id_new(&rng, one);
		id_new(&rng, two);
		ck_assert(id_is_valid(one));
		ck_assert(id_name_is_valid(one));
		ck_assert_str_ne(one, two);
	}
	id_new(&seeded, one);
	id_new(&same, two);
	ck_assert_str_eq(one, two);
	ck_assert(!id_is_valid(""));
	ck_assert(!id_is_valid("abcdefghijklmnopqrs"));
	ck_assert(!id_is_valid("abcdefghijklmnopqrstu"));
	ck_assert(!id_is_valid("abcdefghijklmnopqrsT"));
	ck_assert(!id_is_valid("abcdefghijklmnopqrs1"));
	ck_assert(!id_is_valid("abcdefghij/../mnopqr"));
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ck_assert(!id_name_is_valid(name));
	name[ID_NAME_MAX] = '\0';
	ck_assert(id_name_is_valid(name));
	ck_assert(id_name_is_valid("a-0"));
	ck_assert(!id_name_is_valid(""));
	ck_assert(!id_name_is_valid("a_b"));
	ck_assert(!id_name_is_valid("a.b"));
	ck_assert(!id_name_is_valid("A"));
	ck_assert(!id_name_is_valid("a\n"));
	api_key_new(&rng, key);
	ck_assert_int_eq(memcmp(key, "croft_", 6), 0);
	ck_assert_uint_eq(strlen(key), 38);
}
END_TEST

static const struct {
	const char *text;
	bool ok;
} traces[] = {
	{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true },
	{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", true },
	{ "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", true },
	{ "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true },
	{ "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more", false },
	{ "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false },
	{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", false },
	{ "00-00000000000000000000000000000000-b7ad6b7169203331-01", false },
	{ "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false },
	{ "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false },
	{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x", false },
	{ "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", false },
	{ "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01", false },
	{ "00-", false },
	{ "", false },
};

START_TEST(test_trace_parse)
{
	for (size_t i = 0; i < ARRAY_LEN(traces); i++) {
		struct trace trace = { "old", "old" };

		ck_assert_msg(trace_parse(traces[i].text, &trace) == (traces[i].ok ? 0 : -EINVAL), "%s", traces[i].text);
		ck_assert_str_eq(trace.trace_id, traces[i].ok ? "0af7651916cd43dd8448eb211c80319c" : "old");
		ck_assert_str_eq(trace.span_id, traces[i].ok ? "b7ad6b7169203331" : "old");
	}
}
END_TEST

START_TEST(test_trace)
{
	struct rng rng = rng_system();
	struct trace one = { "", "" }, child, back;
	char text[TRACEPARENT_SIZE];

	for (int i = 0; i < 200; i++) {
		trace_new(&rng, &one);
		trace_child(&rng, &one, &child);
		ck_assert_str_eq(one.trace_id, child.trace_id);
		ck_assert_str_ne(one.span_id, child.span_id);
		trace_format(&child, text);
		ck_assert_int_eq(trace_parse(text, &back), 0);
		ck_assert_int_eq(memcmp(&back, &child, sizeof(back)), 0);
	}
	back = one;
	trace_child(&rng, &one, &one); /* in place */
	ck_assert_str_eq(one.trace_id, back.trace_id);
	ck_assert_str_ne(one.span_id, back.span_id);
}
END_TEST

START_TEST(test_rng)
{
	struct rng seeded = rng_seeded(42), again = rng_seeded(42), other = rng_seeded(43), system = rng_system();
	unsigned int counts[10] = { 0 };
	uint8_t bytes[1000] = { 0 };
	unsigned int zeroes = 0;

	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(rng_u64(&seeded), rng_u64(&again));
	ck_assert_uint_ne(rng_u64(&seeded), rng_u64(&other));
	for (int i = 0; i < 100000; i++)
		counts[rng_below(&seeded, 10)]++;
	for (int i = 0; i < 10; i++)
		ck_assert(counts[i] > 9500 && counts[i] < 10500);
	ck_assert_uint_eq(rng_below(&seeded, 1), 0);
	ck_assert_uint_lt(rng_below(&system, UINT64_C(1) << 63), UINT64_C(1) << 63);
	rng_bytes(&system, bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++)
		zeroes += bytes[i] == 0;
	ck_assert_uint_lt(zeroes, 40);
}
END_TEST

/* ---- err ---- */

START_TEST(test_err)
{
	struct err err = ERR_NULL;
	char line[1024];

	ck_assert(!err_is_set(&err));
	ck_assert_int_eq(err_set(&err, FAIL_DISK_FULL, ENOSPC, "no room for %s", "x"), -ENOSPC);
	ck_assert_int_eq(err_set(&err, FAIL_IO_FAILED, EIO, "the clean-up failed too"), -EIO);
	ck_assert_int_eq(err.code, FAIL_DISK_FULL); /* the first wins */
	ck_assert_str_eq(err.msg, "no room for x");
	ck_assert_int_eq(err.stage, STAGE_DISK);
	ck_assert_int_eq(err.component, COMPONENT_NODE_HOST);
	ck_assert_int_eq(err.err_no, ENOSPC);
	ck_assert(err_is_retryable(&err));
	ck_assert_int_eq(err_class(&err), CLASS_CAPACITY);
	for (int i = 0; i < ERR_FIELDS_MAX + 3; i++)
		err_add(&err, "key", "%d", i);
	ck_assert_uint_eq(err.n_fields, ERR_FIELDS_MAX);
	ck_assert_str_eq(err_field(&err, "key"), "0");
	ck_assert_ptr_null(err_field(&err, "other"));
	ck_assert_int_eq(err_prefix(&err, "while %s", "writing"), -ENOSPC);
	ck_assert_str_eq(err.msg, "while writing: no room for x");
	err_format(&err, line, sizeof(line));
	ck_assert_msg(!strncmp(line, "disk DISK_FULL (node-host): while writing", 41), "%s", line);
	ck_assert_ptr_nonnull(strstr(line, failure_info(FAIL_DISK_FULL)->remedy));
	err_format(&err, line, 10);
	ck_assert_uint_eq(strlen(line), 9);

	ck_assert_int_eq(err_set(NULL, FAIL_IO_FAILED, ENOENT, "nobody listens"), -ENOENT);
	ck_assert_int_eq(err_set(NULL, FAIL_IO_FAILED, 0, "no errno"), -EIO);
	err_add(NULL, "k", "v");
	ck_assert_int_eq(err_prefix(NULL, "p"), -EIO);
	err = (struct err) ERR_NULL;
	ck_assert_int_eq(err_set_at(&err, STAGE_RUN, FAIL_GUEST_PANIC, 0, "late"), -EIO);
	ck_assert_int_eq(err.stage, STAGE_RUN);
	ck_assert_int_eq(err.err_no, 0);
}
END_TEST

START_TEST(test_err_long)
{
	struct err err = ERR_NULL;
	char text[2000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void) err_set(&err, FAIL_IO_FAILED, EIO, "%s", text);
	err_add(&err, text, "%s", text);
	(void) err_prefix(&err, "%s", text);
	ck_assert_uint_lt(strlen(err.msg), ERR_MSG_MAX);
	ck_assert_uint_lt(strlen(err.fields[0].key), ERR_KEY_MAX);
	ck_assert_uint_lt(strlen(err.fields[0].value), ERR_VALUE_MAX);
}
END_TEST

START_TEST(test_sm)
{
	static const struct sm_state table[] = {
		{ "a", SM_TO(1), 0, 0 }, { "b", SM_TO(0) | SM_TO(1), 0, 0 }, { "c", 0, 0, 0 },
	};

	ck_assert(sm_move_is_allowed(table, 0, 1));
	ck_assert(!sm_move_is_allowed(table, 0, 0));
	ck_assert(!sm_move_is_allowed(table, 0, 2));
	ck_assert(sm_move_is_allowed(table, 1, 1));
	ck_assert(!sm_move_is_allowed(table, 2, 0));
}
END_TEST

/* ---- log ---- */

/* Runs `say` with stderr in a pipe; what it wrote. */
static void capture(void (*say)(void), char *ret, size_t size)
{
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_ge(dup2(fds[1], STDERR_FILENO), 0);
	say();
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	n = read(fds[0], ret, size - 1);
	ret[n > 0 ? n : 0] = '\0';
	(void) close(fds[0]);
	(void) close(fds[1]);
	(void) close(saved);
}

static void say_plain(void)
{
	log_init("croft-test", LOG_LEVEL_INFO);
	log_info("it starts", "sandbox", "abc", "empty", "", "absent", NULL, "text", "two words", "n", LOG_NUM(-5));
	log_debug("not at this level");
}

static void say_hostile(void)
{
	struct err err = ERR_NULL;

	log_init("croft-test", LOG_LEVEL_INFO);
	log_warn("a message", "value", "x\ncroft-test error forged=1\r\x1b[31mred\x9b\x7f", "quote", "a\" b\\");
	(void) err_set(&err, FAIL_GUEST_PROTOCOL, EPROTO, "it said\n<0>forged");
	err_add(&err, "key\nforged", "v\nforged");
	err_add(&err, "request", "own");
	log_failure(LOG_LEVEL_ERROR, "failed\nforged", &err, "sandbox", "s\n", "request", "again", NULL);
}

START_TEST(test_log)
{
	char text[8192];
	size_t lines = 0;

	ck_assert_int_eq(unsetenv("CROFT_LOG"), 0);
	ck_assert_int_eq(unsetenv("JOURNAL_STREAM"), 0);
	capture(say_plain, text, sizeof(text));
	ck_assert_str_eq(text, "croft-test info it starts sandbox=abc empty=\"\" text=\"two words\" n=-5\n");
	capture(say_hostile, text, sizeof(text));
	for (const char *p = text; *p; p++) {
		lines += *p == '\n';
		ck_assert_msg(*p == '\n' || (*p >= 0x20 && *p < 0x7f), "byte %d in: %s", *p, text);
	}
	ck_assert_uint_eq(lines, 2); /* one line per event, whatever is in it */
	ck_assert_ptr_nonnull(strstr(text, "code=GUEST_PROTOCOL component=guest errno=EPROTO"));
	ck_assert_ptr_nonnull(strstr(text, " request=own ")); /* and not a second time */
	ck_assert_ptr_null(strstr(text, "again"));
	ck_assert_ptr_nonnull(strstr(text, " remedy=\""));
	ck_assert_ptr_nonnull(strstr(text, failure_info(FAIL_GUEST_PROTOCOL)->remedy));
	ck_assert_ptr_nonnull(strstr(text, "\\x0a"));
	ck_assert_ptr_nonnull(strstr(text, "\\x1b"));
}
END_TEST

static void say_level(void)
{
	log_init("croft-test", LOG_LEVEL_ERROR);
	log_debug("now it shows");
}

START_TEST(test_log_level)
{
	char text[256];

	ck_assert_int_eq(setenv("CROFT_LOG", "debug", 1), 0);
	capture(say_level, text, sizeof(text));
	ck_assert_str_eq(text, "croft-test debug now it shows\n");
}
END_TEST

/* A reader that does not read: lines are dropped and counted, nothing waits. _i 0: a blocking pipe, 1: a
 * blocking stream socket. */
START_TEST(test_log_never_blocks)
{
	int fds[2], saved = dup(STDERR_FILENO);
	uint64_t dropped = log_dropped();
	char value[500];

	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	if (_i == 0)
		ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	else
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ck_assert_int_ge(dup2(fds[1], STDERR_FILENO), 0);
	log_init("croft-test", LOG_LEVEL_INFO);
	for (int i = 0; i < 5000; i++)
		log_info("a line", "value", value); /* check's timeout ends the test if this waits */
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	ck_assert_uint_gt(log_dropped(), dropped + 3000);
	(void) close(fds[0]);
	(void) close(fds[1]);
	(void) close(saved);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("base");
	TCase *tc = tcase_create("base");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_limit, 0, (int) ARRAY_LEN(limit_rows));
	tcase_add_test(tc, test_buf_bounds);
	tcase_add_test(tc, test_buf_model);
	tcase_add_test(tc, test_frame);
	tcase_add_test(tc, test_clock_parse);
	tcase_add_test(tc, test_clock_format);
	tcase_add_test(tc, test_clock_duration);
	tcase_add_test(tc, test_id);
	tcase_add_test(tc, test_trace_parse);
	tcase_add_test(tc, test_trace);
	tcase_add_test(tc, test_rng);
	tcase_add_test(tc, test_err);
	tcase_add_test(tc, test_err_long);
	tcase_add_test(tc, test_sm);
	tcase_add_test(tc, test_log);
	tcase_add_test(tc, test_log_level);
	tcase_add_loop_test(tc, test_log_never_blocks, 0, 2);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
