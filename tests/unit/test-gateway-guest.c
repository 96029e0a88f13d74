/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway in front of croft-guest's real process service: real processes of this machine behind real HTTP. A
 * child process plays the VMM (it answers CONNECT) and hosts the service.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/diff.h"
#include "guest/server.h"
#include "lib/suite.h"
#include "unit/test-gateway-rig.h"
#include "wire/base64.h"

static struct rig rig;
static pid_t guest;
static char auth[96]; /* the user who runs this test */

/* ---- the child ---- */

/* The VMM's side of the handshake; the client sends it at once. */
static void greet(int fd)
{
	char line[13];

	if (fd_read_all(fd, line, sizeof(line)) < 0 || memcmp(line, "CONNECT 1024\n", sizeof(line)) != 0 ||
		fd_write_all(fd, "OK 1\n", 5) < 0)
		_exit(1);
}

/* The layers are two folders of this test. */
static pid_t diff(int fd)
{
	char path[128];
	int upper, lower;

	(void) snprintf(path, sizeof(path), "%s/upper", rig.run);
	upper = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void) snprintf(path, sizeof(path), "%s/lower", rig.run);
	lower = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return diff_fork(fd, upper, lower);
}

static void serve(int listen_fd)
{
	static const struct server_host host = { .diff = diff };
	struct server server;

	if (server_init(&server, "/etc", &host) < 0)
		_exit(1);
	for (;;) {
		int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0) {
			greet(fd);
			if (fd_set_nonblock(fd) < 0 || server_adopt(&server, fd) < 0)
				_exit(1);
		} else if (errno != EAGAIN && errno != EINTR) {
			_exit(1);
		}
		if (server_turn(&server, 5) < 0)
			_exit(1);
	}
}

static void set_up(void)
{
	char path[128], user[32], text[64];
	int listen_fd;

	rig_init(&rig);
	(void) snprintf(path, sizeof(path), "%s/guest", rig.run);
	listen_fd = unix_listen(path, SOCK_STREAM, 0600, 64);
	ck_assert_int_ge(listen_fd, 0);
	guest = fork();
	if (guest == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(listen_fd);
	}
	ck_assert_int_gt(guest, 0);
	fd_close(listen_fd);
	rig_set_route(&rig, RIG_SANDBOX, path, RIG_TOKEN, true);
	(void) base64_encode(user, (size_t) snprintf(user, sizeof(user), "%u:", geteuid()), text);
	(void) snprintf(auth, sizeof(auth), "Basic %s", text);
}

static void tear_down(void)
{
	rig_deinit(&rig);
	(void) kill(guest, SIGKILL);
	(void) waitpid(guest, NULL, 0);
}

static struct reply *start_shell(const char *script, bool stdin_open, const char *timeout_ms)
{
	const char *extra[] = { "authorization", auth, timeout_ms ? "connect-timeout-ms" : NULL, timeout_ms, NULL };
	json_t *json = json_pack("{s:{s:s, s:[s,s], s:s}, s:b}", "process", "cmd", "/bin/sh", "args", "-c", script, "cwd",
		"/", "stdin", stdin_open);
	char *text = json_dumps(json, JSON_COMPACT);
	struct reply *reply = rig_stream_start(&rig, "Start", text, extra);

	free(text);
	json_decref(json);
	return reply;
}

static struct reply *shell(const char *script)
{
	struct reply *reply = start_shell(script, false, NULL);

	rig_until(&rig, reply->done);
	return reply;
}

static uint32_t pid_of(struct reply *reply)
{
	json_int_t pid;
	json_t *json;
	char *frame;

	rig_until(&rig, reply_frames(reply) > 0 || reply->done);
	frame = reply_frame(reply, 0, NULL);
	ck_assert_ptr_nonnull(frame);
	json = json_loads(frame, 0, NULL);
	pid = json_integer_value(json_object_get(json_object_get(json_object_get(json, "event"), "start"), "pid"));
	ck_assert_msg(pid > 0, "first frame: %s", frame);
	json_decref(json);
	free(frame);
	return (uint32_t) pid;
}

static void assert_output(const struct reply *reply, const char *stream, const char *expected)
{
	size_t size;
	CLEANUP_FREE uint8_t *out = reply_output(reply, stream, &size);

	ck_assert_uint_eq(size, strlen(expected));
	if (size)
		ck_assert_mem_eq(out, expected, size);
}

/* The end event is the one before the end frame. */
static void assert_end(const struct reply *reply, const char *expected)
{
	char *frame = reply_frame(reply, reply_frames(reply) - 2, NULL), code[64];

	ck_assert_ptr_nonnull(frame);
	ck_assert_str_eq(frame, expected);
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "");
	free(frame);
}

START_TEST(test_output_apart)
{
	struct reply *reply = shell("echo out; echo err >&2; exit 7");

	assert_output(reply, "stdout", "out\n");
	assert_output(reply, "stderr", "err\n");
	assert_end(reply, "{\"event\":{\"end\":{\"exitCode\":7,\"exited\":true,\"status\":\"exit status 7\","
			  "\"error\":\"exit status 7\"}}}");
	reply_free(reply);
}
END_TEST

START_TEST(test_ten_megabytes)
{
	struct reply *reply = shell("head -c 10485760 /dev/zero | tr '\\0' x");
	size_t size;
	CLEANUP_FREE uint8_t *out = reply_output(reply, "stdout", &size);

	ck_assert_uint_eq(size, 10485760);
	for (size_t i = 0; i < size; i++)
		if (out[i] != 'x')
			ck_abort_msg("byte %zu differs", i);
	reply_free(reply);
}
END_TEST

START_TEST(test_kill)
{
	struct reply *reply = start_shell("sleep 60", false, NULL), *answer;
	char json[96];

	(void) snprintf(json, sizeof(json), "{\"process\":{\"pid\":%u},\"signal\":\"SIGNAL_SIGKILL\"}", pid_of(reply));
	answer = rig_unary(&rig, "SendSignal", json);
	ck_assert_int_eq(answer->status, 200);
	reply_free(answer);
	rig_until(&rig, reply->done);
	assert_end(reply, "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\","
			  "\"error\":\"signal: killed\",\"signal\":9}}}");
	answer = rig_unary(&rig, "SendSignal", json);
	ck_assert_int_eq(answer->status, 404);
	reply_free(answer);
	reply_free(reply);
}
END_TEST

START_TEST(test_input_and_its_end)
{
	struct reply *reply = start_shell("cat", true, NULL), *answer;
	uint32_t pid = pid_of(reply);
	char json[128];

	(void) snprintf(json, sizeof(json), "{\"process\":{\"pid\":%u},\"input\":{\"stdin\":\"aGVsbG8=\"}}", pid);
	answer = rig_unary(&rig, "SendInput", json);
	ck_assert_int_eq(answer->status, 200);
	reply_free(answer);
	(void) snprintf(json, sizeof(json), "{\"process\":{\"pid\":%u}}", pid);
	answer = rig_unary(&rig, "CloseStdin", json);
	ck_assert_int_eq(answer->status, 200);
	reply_free(answer);
	rig_until(&rig, reply->done);
	assert_output(reply, "stdout", "hello");
	reply_free(reply);
}
END_TEST

/* More than pipe and guest hold, to a process that reads late: it waits longer than the guest's time to answer, and
 * that is nobody's failure. */
START_TEST(test_input_that_waits)
{
	const size_t size = 400000;
	struct reply *reply, *answer;
	CLEANUP_FREE char *data = malloc(size), *text = malloc(BASE64_ENCODED_SIZE(size)), *json = NULL;

	reply = start_shell("sleep 2; wc -c", true, NULL);
	(void) pid_of(reply);
	rig.options.guest_timeout_us = 700 * USEC_PER_MSEC;
	memset(data, 'x', size);
	(void) base64_encode(data, size, text);
	ck_assert_int_gt(asprintf(&json, "{\"process\":{\"pid\":%u},\"input\":{\"stdin\":\"%s\"}}", pid_of(reply), text), 0);
	answer = rig_unary(&rig, "SendInput", json);
	ck_assert_int_eq(answer->status, 200);
	reply_free(answer);
	answer = rig_unary(&rig, "SendInput", json);
	ck_assert_int_eq(answer->status, 200);
	reply_free(answer);
	(void) snprintf(json, 100, "{\"process\":{\"pid\":%u}}", pid_of(reply));
	answer = rig_unary(&rig, "CloseStdin", json);
	ck_assert_int_eq(answer->status, 200);
	reply_free(answer);
	rig_until(&rig, reply->done);
	assert_output(reply, "stdout", "800000\n");
	reply_free(reply);
}
END_TEST

START_TEST(test_time_limit)
{
	struct reply *reply = start_shell("echo begun; sleep 60", false, "300");
	char code[64];

	rig_until(&rig, reply->done);
	assert_output(reply, "stdout", "begun\n");
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "deadline_exceeded");
	reply_free(reply);
}
END_TEST

START_TEST(test_reconnect)
{
	struct reply *reply = start_shell("echo one; sleep 0.4; echo two; sleep 0.2", false, NULL);
	uint32_t pid = pid_of(reply);
	char json[64];

	rig_until(&rig, reply_frames(reply) == 2); /* "one" was read */
	reply_free(reply);
	(void) snprintf(json, sizeof(json), "{\"process\":{\"pid\":%u}}", pid);
	reply = rig_stream(&rig, "Connect", json, NULL);
	ck_assert_uint_eq(pid_of(reply), pid);
	assert_output(reply, "stdout", "two\n");
	assert_end(reply, "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}}}");
	reply_free(reply);
}
END_TEST

START_TEST(test_list)
{
	struct reply *reply = start_shell("sleep 60", false, NULL), *answer;
	uint32_t pid = pid_of(reply);
	json_t *json, *process;

	answer = rig_unary(&rig, "List", "{}");
	json = json_loadb((const char *) buf_peek(&answer->body), buf_size(&answer->body), 0, NULL);
	process = json_array_get(json_object_get(json, "processes"), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(process, "pid")), pid);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(process, "config"), "cmd")), "/bin/sh");
	json_decref(json);
	reply_free(answer);
	reply_free(reply);
}
END_TEST

static const struct {
	const char *request, *failure;
} refused[] = {
	{ "{\"process\":{\"cmd\":\"/no/such/program\",\"cwd\":\"/\"}}", "COMMAND_NOT_FOUND" },
	{ "{\"process\":{\"cmd\":\"/etc/passwd\",\"cwd\":\"/\"}}", "COMMAND_NOT_EXECUTABLE" },
	{ "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/no/such/dir\"}}", "CWD_NOT_FOUND" },
};

START_TEST(test_refused)
{
	const char *extra[] = { "authorization", auth, NULL };
	struct reply *reply = rig_stream(&rig, "Start", refused[_i].request, extra);
	char code[64];

	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), refused[_i].failure);
	reply_free(reply);
}
END_TEST

START_TEST(test_guest_that_dies)
{
	struct reply *reply = start_shell("sleep 60", false, NULL);
	char code[64];

	(void) pid_of(reply);
	(void) kill(guest, SIGKILL);
	rig_until(&rig, reply->done);
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), "GUEST_UNREACHABLE");
	reply_free(reply);
}
END_TEST

static void in_layers(const char *script)
{
	char command[1024];

	(void) snprintf(command, sizeof(command), "cd %s && mkdir -p upper lower && %s", rig.run, script);
	ck_assert_int_eq(system(command), 0);
}

static struct reply *ask_diff(const char *token)
{
	return rig_start(&rig, &(struct ask){ .method = "GET", .path = "/croft/diff", .body = NULL, .sandbox = RIG_SANDBOX, .port = "49983",
		.token = token });
}

static void assert_body(const struct reply *reply, const char *expected)
{
	ck_assert_uint_eq(buf_size(&reply->body), strlen(expected));
	ck_assert_mem_eq(buf_peek(&reply->body), expected, strlen(expected));
}

/* One line a change and one at the end; a name that is no text is base64. */
START_TEST(test_diff)
{
	struct reply *reply;

	in_layers("cd upper && mkdir a && printf 12345 > 'a/\"quoted\"\t' && chmod 0604 a/*");
	reply = ask_diff(RIG_TOKEN);
	rig_until(&rig, reply->done);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_str_eq(reply->content_type, "application/x-ndjson");
	assert_body(reply,
		"{\"change\":\"added\",\"path\":\"/a\",\"type\":\"directory\",\"size\":0,\"mode\":\"0755\"}\n"
		"{\"change\":\"added\",\"path\":\"/a/\\\"quoted\\\"\\t\",\"type\":\"file\",\"size\":5,\"mode\":\"0604\"}\n"
		"{\"end\":{\"complete\":true,\"added\":2,\"changed\":0,\"deleted\":0,\"source\":\"guest\"}}\n");
	reply_free(reply);
	in_layers("rm -r upper/a && touch upper/$(printf 'x\\377y')");
	reply = ask_diff(RIG_TOKEN);
	rig_until(&rig, reply->done);
	assert_body(reply,
		"{\"change\":\"added\",\"path_base64\":\"L3j/eQ==\",\"type\":\"file\",\"size\":0,\"mode\":\"0644\"}\n"
		"{\"end\":{\"complete\":true,\"added\":1,\"changed\":0,\"deleted\":0,\"source\":\"guest\"}}\n");
	reply_free(reply);
}
END_TEST

/* Nobody without the token sees a name, and what a guest cannot answer has a status. */
START_TEST(test_diff_refused)
{
	char code[64];
	struct reply *reply;

	in_layers("touch upper/secret");
	reply = ask_diff("wrong");
	rig_until(&rig, reply->done);
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), "ACCESS_TOKEN_INVALID");
	reply_free(reply);
	in_layers("rm -r upper"); /* the child has no layer then */
	reply = ask_diff(RIG_TOKEN);
	rig_until(&rig, reply->done);
	ck_assert_int_eq(reply->status, 503);
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), "NO_MEMORY");
	reply_free(reply);
}
END_TEST

/* A client that does not read holds up the guest's child, and little is kept here; it gets all of it when it does. */
START_TEST(test_diff_slow_reader)
{
	struct reply *reply;
	size_t lines = 0;
	const char *at;

	in_layers("cd upper && seq -f 'a-rather-long-name-so-that-buffers-fill-and-fill-and-fill-%.0f' 30000 | xargs touch");
	reply = ask_diff(RIG_TOKEN);
	reply->holds = true;
	rig_rest(&rig, 500);
	ck_assert(!reply->done);
	reply->holds = false;
	http_call_wake(reply->call);
	rig_until(&rig, reply->done);
	ck_assert(!reply->failed);
	at = (const char *) buf_peek(&reply->body);
	for (size_t i = 0; i < buf_size(&reply->body); i++)
		lines += at[i] == '\n';
	ck_assert_uint_eq(lines, 30001);
	reply_free(reply);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gateway-guest");
	TCase *tc = tcase_create("guest");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_output_apart);
	tcase_add_test(tc, test_ten_megabytes);
	tcase_add_test(tc, test_kill);
	tcase_add_test(tc, test_input_and_its_end);
	tcase_add_test(tc, test_input_that_waits);
	tcase_add_test(tc, test_time_limit);
	tcase_add_test(tc, test_reconnect);
	tcase_add_test(tc, test_list);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_LEN(refused));
	tcase_add_test(tc, test_guest_that_dies);
	tcase_add_test(tc, test_diff);
	tcase_add_test(tc, test_diff_refused);
	tcase_add_test(tc, test_diff_slow_reader);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
