/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream that `croft sandbox exec` reads: every cut of it gives the same events, and what is no such stream is
 * refused by name.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "cli/exec-stream.h"
#include "lib/suite.h"

struct seen {
	char text[1024];
	size_t n;
};

static int on_event(const struct exec_event *event, void *user)
{
	struct seen *seen = user;
	size_t room = sizeof(seen->text) - seen->n;
	char *to = seen->text + seen->n;
	int n = 0;

	switch (event->kind) {
	case EXEC_STARTED:
		n = snprintf(to, room, "started %u;", event->pid);
		break;
	case EXEC_OUTPUT:
		n = snprintf(to, room, "%s %.*s;", event->is_stderr ? "err" : "out", (int) event->size,
			(const char *) event->data);
		break;
	case EXEC_LOST:
		n = snprintf(to, room, "lost %llu;", (unsigned long long) event->size);
		break;
	case EXEC_ENDED:
		n = snprintf(to, room, "ended %d %d %d;", event->exited, event->exit_code, event->signal);
		break;
	}
	seen->n += (size_t) n;
	return 0;
}

static size_t frame(char *to, unsigned int flags, const char *json)
{
	size_t n = strlen(json);

	to[0] = (char) flags;
	to[1] = (char) (n >> 24);
	to[2] = (char) (n >> 16);
	to[3] = (char) (n >> 8);
	to[4] = (char) n;
	memcpy(to + 5, json, n);
	return n + 5;
}

static size_t whole_stream(char *to)
{
	size_t n = 0;

	n += frame(to + n, 0, "{\"event\":{\"start\":{\"pid\":7}}}");
	n += frame(to + n, 0, "{\"event\":{\"data\":{\"stdout\":\"b3V0\",\"lost\":3}}}");
	n += frame(to + n, 0, "{\"event\":{\"keepalive\":{}}}");
	n += frame(to + n, 0, "{\"event\":{\"new\":{}},\"more\":1}");
	n += frame(to + n, 0, "{\"event\":{\"data\":{\"stderr\":\"ZXI\"}}}");
	n += frame(to + n, 0, "{\"event\":{\"end\":{\"exitCode\":7,\"exited\":true,\"status\":\"exit status 7\"}}}");
	n += frame(to + n, 2, "{}");
	n += frame(to + n, 0, "{\"event\":{\"start\":{\"pid\":8}}}"); /* nothing counts after the end */
	return n;
}

#define WHOLE "started 7;lost 3;out out;err er;ended 1 7 0;"

START_TEST(test_cut_anywhere)
{
	char bytes[1024];
	size_t size = whole_stream(bytes);

	for (size_t cut = 0; cut <= size; cut++) {
		struct seen seen = { .n = 0 };
		struct exec_stream stream = EXEC_STREAM_NULL;

		stream.on_event = on_event;
		stream.user = &seen;
		ck_assert_int_eq(exec_stream_feed(&stream, bytes, cut), 0);
		ck_assert_int_eq(exec_stream_feed(&stream, bytes + cut, size - cut), 0);
		ck_assert_str_eq(seen.text, WHOLE);
		ck_assert(stream.is_over && stream.has_ended);
		exec_stream_deinit(&stream);
	}
}
END_TEST

START_TEST(test_byte_by_byte)
{
	struct seen seen = { .n = 0 };
	struct exec_stream stream = EXEC_STREAM_NULL;
	char bytes[1024];
	size_t size = whole_stream(bytes);

	stream.on_event = on_event;
	stream.user = &seen;
	for (size_t i = 0; i < size; i++)
		ck_assert_int_eq(exec_stream_feed(&stream, bytes + i, 1), 0);
	ck_assert_str_eq(seen.text, WHOLE);
	exec_stream_deinit(&stream);
}
END_TEST

static const struct {
	unsigned int flags;
	const char *json;
	enum fail_code code;
} refused[] = {
	{ 1, "{}", FAIL_API_PROTOCOL },
	{ 0, "nonsense", FAIL_API_PROTOCOL },
	{ 0, "[]", FAIL_API_PROTOCOL },
	{ 2, "", FAIL_API_PROTOCOL },
	{ 0, "{\"event\":{\"start\":{\"pid\":0}}}", FAIL_API_PROTOCOL },
	{ 0, "{\"event\":{\"start\":{\"pid\":99999999999}}}", FAIL_API_PROTOCOL },
	{ 0, "{\"event\":{\"data\":{\"stdout\":7}}}", FAIL_API_PROTOCOL },
	{ 0, "{\"event\":{\"data\":{\"stdout\":\"*\"}}}", FAIL_API_PROTOCOL },
	{ 0, "{\"event\":{\"end\":{\"exitCode\":300,\"exited\":true}}}", FAIL_API_PROTOCOL },
	{ 0, "{\"event\":{\"end\":{\"signal\":65}}}", FAIL_API_PROTOCOL },
	{ 2, "{\"error\":{\"code\":\"internal\",\"message\":\"x\"}}", FAIL_API_PROTOCOL },
	{ 2, "{\"error\":{\"code\":\"not_found\",\"message\":\"x\",\"failure\":{\"code\":\"COMMAND_NOT_FOUND\","
	     "\"stage\":\"exec\",\"component\":\"caller\",\"class\":\"caller\",\"message\":\"x\"}}}",
		FAIL_COMMAND_NOT_FOUND },
};

START_TEST(test_refused)
{
	struct seen seen = { .n = 0 };
	struct exec_stream stream = EXEC_STREAM_NULL;
	char bytes[512];
	size_t size = frame(bytes, refused[_i].flags, refused[_i].json);

	stream.on_event = on_event;
	stream.user = &seen;
	(void) exec_stream_feed(&stream, bytes, size);
	ck_assert_int_eq(stream.failure.err.code, refused[_i].code);
	exec_stream_deinit(&stream);
}
END_TEST

START_TEST(test_frame_over_the_limit)
{
	struct exec_stream stream = EXEC_STREAM_NULL;

	ck_assert_int_lt(exec_stream_feed(&stream, "\0\0\x20\0\0", 5), 0);
	ck_assert_int_eq(stream.failure.err.code, FAIL_API_PROTOCOL);
	exec_stream_deinit(&stream);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli-exec");
	TCase *tc = tcase_create("stream");

	tcase_add_test(tc, test_cut_anywhere);
	tcase_add_test(tc, test_byte_by_byte);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_LEN(refused));
	tcase_add_test(tc, test_frame_over_the_limit);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
