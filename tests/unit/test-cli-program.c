/* SPDX-License-Identifier: Apache-2.0
 *
 * The real program `croft` against a fake API in this process: exit statuses, what is asked of the API, how failures
 * and results look, exec with output, input and signals.
 */
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "lib/suite.h"
#include "wire/base64.h"
#include "wire/http-server.h"
#include "wire/json.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"
#define ARGS_MAX 24

struct run {
	struct event_base *base;
	struct http_server *server;
	char bin[512], dir[64];
	const char *url; /* NULL: the server's */
	bool has_no_key;
	const char *input_path; /* croft's stdin, instead of a pipe */
	const char *output_path; /* its stdout likewise */
	bool has_terminal; /* its stderr is one */
	/* what was asked */
	char log[8192];
	unsigned int n_polls;
	struct buf input;
	/* the open exec stream */
	struct http_request *stream;
	struct buf out;
	bool stream_is_over;
	/* the child */
	pid_t pid;
	int status, in_fd;
	struct buf out_text, err_text;
	unsigned int n_open;
	int kill_on_input; /* signal to send to croft when it passes input on: then it knows the process */
};

static struct run run;

/* ---- the fake API ---- */

static void put_frame(unsigned int flags, const char *json)
{
	size_t n = strlen(json);
	const uint8_t head[5] = { (uint8_t) flags, (uint8_t) (n >> 24), (uint8_t) (n >> 16), (uint8_t) (n >> 8),
		(uint8_t) n };

	ck_assert_int_eq(buf_append(&run.out, head, 5), 0);
	ck_assert_int_eq(buf_append(&run.out, json, n), 0);
	if (run.stream)
		http_stream_wake(run.stream);
}

static void put_data(const char *stream, const void *data, size_t size)
{
	char *text = malloc(BASE64_ENCODED_SIZE(size)), *json;

	(void) base64_encode(data, size, text);
	ck_assert_int_gt(asprintf(&json, "{\"event\":{\"data\":{\"%s\":\"%s\"}}}", stream, text), 0);
	put_frame(0, json);
	free(text);
	free(json);
}

static void put_end(const char *end)
{
	char json[128];

	(void) snprintf(json, sizeof(json), "{\"event\":{\"end\":%s}}", end);
	put_frame(0, json);
	put_frame(2, "{}");
	run.stream_is_over = true;
}

static void put_failure(enum fail_code code)
{
	struct failure_context context = { .responsibility = RESPONSIBILITY_MANAGED };
	struct err err = ERR_NULL;
	char *text, *json;
	json_t *failure;

	err_set(&err, code, 0, "It \x1b[31mdid not\nwork.");
	failure = json_failure(&err, &context);
	text = json_dumps(failure, JSON_COMPACT);
	ck_assert_int_gt(asprintf(&json, "{\"error\":{\"code\":\"x\",\"message\":\"m\",\"failure\":%s}}", text), 0);
	put_frame(2, json);
	run.stream_is_over = true;
	json_decref(failure);
	free(text);
	free(json);
}

static long on_want(struct http_request *req, void *buf, size_t room, void *user)
{
	size_t n = MIN(room, buf_size(&run.out));

	(void) req;
	(void) user;
	if (n == 0)
		return run.stream_is_over ? -1 : 0;
	memcpy(buf, buf_peek(&run.out), n);
	buf_consume(&run.out, n);
	return (long) n;
}

static void big(void)
{
	uint8_t *data = malloc(30000);

	for (unsigned int k = 0; k < 350; k++) {
		for (unsigned int i = 0; i < 30000; i++)
			data[i] = (uint8_t) (k * 7 + i);
		put_data("stdout", data, 30000);
	}
	free(data);
}

static void start_process(struct http_request *req, const char *cmd)
{
	run.stream = req;
	ck_assert_int_eq(http_respond_stream(req, 200, "application/connect+json", NULL, 0, -1, on_want, NULL), 0);
	if (!strcmp(cmd, "notfound")) {
		put_failure(FAIL_COMMAND_NOT_FOUND);
		return;
	}
	if (!strcmp(cmd, "notexec")) {
		put_failure(FAIL_COMMAND_NOT_EXECUTABLE);
		return;
	}
	put_frame(0, "{\"event\":{\"start\":{\"pid\":77}}}");
	if (!strcmp(cmd, "both")) {
		put_data("stdout", "out", 3);
		put_data("stderr", "err", 3);
		put_end("{\"exited\":true,\"exitCode\":0}");
	} else if (!strcmp(cmd, "exit7")) {
		put_end("{\"exited\":true,\"exitCode\":7}");
	} else if (!strcmp(cmd, "killed")) {
		put_end("{\"exited\":false,\"exitCode\":-1,\"signal\":9}");
	} else if (!strcmp(cmd, "hungry")) {
		put_end("{\"exited\":true,\"exitCode\":137,\"failure\":{\"code\":\"GUEST_OOM\",\"remedy\":\"\\u001b[31m\"}}");
	} else if (!strcmp(cmd, "timeout")) {
		put_failure(FAIL_EXEC_TIMEOUT);
	} else if (!strcmp(cmd, "gone")) {
		put_failure(FAIL_SANDBOX_GONE);
	} else if (!strcmp(cmd, "noend")) {
		run.stream_is_over = true;
	} else if (!strcmp(cmd, "big")) {
		big();
		put_end("{\"exited\":true,\"exitCode\":0}");
	}
}

static void answer_failure(struct http_request *req, enum fail_code code)
{
	struct failure_context context = { .responsibility = RESPONSIBILITY_MANAGED };
	struct err err = ERR_NULL;

	err_set(&err, code, ENOMEM, "It did not work.");
	err_add(&err, "largest", "512");
	ck_assert_int_eq(http_respond_failure(req, &err, &context), 0);
}

static void answer_poll(struct http_request *req, const char *template)
{
	static const char *const stages =
		"[{\"stage\":\"admit\",\"outcome\":\"ok\",\"took_us\":900},{\"stage\":\"network\",\"outcome\":\"skipped\","
		"\"took_us\":0,\"reason\":\"not built yet\"}]";
	char json[1024];

	if (run.n_polls++ == 0)
		(void) snprintf(json, sizeof(json),
			"{\"id\":\"" ID "\",\"state\":\"starting\",\"version\":\"1\",\"stages\":%s,\"stage\":\"vmm\",\"failure\":null}",
			stages);
	else
		(void) snprintf(json, sizeof(json), "{\"id\":\"" ID "\",\"state\":\"%s\",\"version\":\"2\",\"stages\":%s,"
			"\"failure\":%s}", template, stages, !strcmp(template, "ended") ?
			"{\"code\":\"KVM_UNAVAILABLE\",\"stage\":\"vmm\",\"component\":\"node-host\",\"owner\":\"customer\","
			"\"class\":\"permanent\",\"retryable\":false,\"errno\":\"EACCES\",\"message\":\"No KVM.\",\"detail\":{},"
			"\"remedy\":\"Mend it.\",\"trace\":\"t1\"}" : "null");
	ck_assert_int_eq(http_respond_json(req, 200, json), 0);
}

static const char *poll_state = "running";

static void answer_diff(struct http_request *req, const char *state)
{
	static const char changes[] = "{\"change\":\"added\",\"path\":\"/new\\u001b[2J\"}\n{\"change\":\"changed\",\"path\":\"/etc/hosts\"}\n"
				      "{\"change\":\"deleted\",\"path_base64\":\"L3j/eQ==\",\"mode\":\"0644\"}\n";
	const char *last = !strcmp(state, "more") ? "{\"end\":{\"complete\":false}}\n" :
		!strcmp(state, "cut")		  ? "" :
		!strcmp(state, "broken") ? "{\"code\":503,\"message\":\"m\",\"failure\":{\"stage\":\"files\",\"code\":\"GUEST_UNREACHABLE\","
					   "\"component\":\"guest\"}}\n" :
					   "{\"end\":{\"complete\":true}}\n";
	char text[512];
	int n = snprintf(text, sizeof(text), "%s%s", !strcmp(state, "nonsense") ? "no json\n" : changes, last);

	ck_assert_int_eq(http_respond(req, 200, "application/x-ndjson", NULL, 0, text, (size_t) n), 0);
}

static void answer_audit(struct http_request *req, const char *state)
{
	static const char text[] =
		"{\"kind\":\"setup\",\"when\":\"w0\",\"command\":\"make x\"}\n{\"kind\":\"setup-ended\",\"exit\":0,\"tail\":\"t\"}\n"
		"{\"kind\":\"command\",\"when\":\"w1\",\"span\":\"s1\",\"command\":[\"sh\",\"-c\",\"\\u001b[2J\"],\"user\":\"u\",\"cwd\":\"/\"}\n"
		"{\"kind\":\"command\",\"when\":\"w2\",\"span\":\"s2\",\"command\":[\"sleep\"]}\n"
		"{\"kind\":\"ended\",\"span\":\"s1\",\"exit\":7,\"stdout\":{\"size\":3,\"sha256\":\"abc\"},\"stderr\":{\"size\":0,\"sha256\":\"def\"}}\n"
		"{\"kind\":\"denied\",\"address\":\"192.0.2.7\",\"protocol\":\"tcp\",\"port\":80,\"packets\":4}\n"
		"{\"kind\":\"connections\",\"sent_packets\":1}\n{\"kind\":\"connections\",\"sent_packets\":9,\"sent_bytes\":99,\"denied_packets\":4}\n"
		"{\"end\":{\"entries\":8}}\n";

	ck_assert_int_eq(http_respond(req, 200, "application/x-ndjson", NULL, 0, text, sizeof(text) - 1 - (!strcmp(state, "cut") ? 23 : 0)), 0);
}

static void answer(struct http_request *req, const char *body)
{
	const char *method = http_method(req), *path = http_path(req);
	json_t *json = *body == '{' ? json_loads(body, 0, NULL) : NULL;

	if (!strcmp(path, "/sandboxes/" ID) && !strcmp(method, "GET"))
		ck_assert_int_eq(http_respond_json(req, 200, "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"tok\"}"), 0);
	else if (!strcmp(method, "DELETE"))
		ck_assert_int_eq(http_respond(req, 204, NULL, NULL, 0, NULL, 0), 0);
	else if (!strcmp(path, "/v1/sandboxes") && !strcmp(method, "POST") &&
		strstr(body, "\"templateID\":\"nope\""))
		answer_failure(req, FAIL_TEMPLATE_NOT_FOUND);
	else if (!strcmp(path, "/v1/sandboxes") && !strcmp(method, "POST") && json_object_get(json, "memoryMB"))
		answer_failure(req, FAIL_NO_CAPACITY);
	else if (!strcmp(path, "/v1/sandboxes") && !strcmp(method, "POST") && !strcmp(poll_state, "deaf"))
		(void) kill(run.pid, SIGINT);
	else if (!strcmp(path, "/v1/keys") && !strcmp(method, "POST"))
		ck_assert_int_eq(http_respond_json(req, 201, "{\"id\":\"k1\",\"key\":\"croft_secret\"}"), 0);
	else if (!strcmp(path, "/v1/sandboxes") && !strcmp(method, "POST"))
		ck_assert_int_eq(http_respond_json(req, 202,
			"{\"sandboxID\":\"" ID "\",\"id\":\"" ID "\",\"state\":\"starting\",\"envdAccessToken\":\"tok\"}"), 0);
	else if (!strcmp(path, "/v1/sandboxes") && !http_query(req, "nextToken"))
		ck_assert_int_eq(http_respond(req, 200, "application/json",
			&(struct http_field){ "X-Next-Token", "t1" }, 1, "[{\"id\":\"first\"}]", 16), 0);
	else if (!strcmp(path, "/v1/sandboxes"))
		ck_assert_int_eq(http_respond_json(req, 200, "[{\"id\":\"second\"}]"), 0);
	else if (!strcmp(path, "/v1/sandboxes/" ID) && run.n_polls > 0 && !strcmp(poll_state, "hang"))
		(void) kill(run.pid, SIGINT);
	else if (!strcmp(path, "/v1/sandboxes/" ID))
		answer_poll(req, poll_state);
	else if (!strcmp(path, "/v1/nodes"))
		ck_assert_int_eq(http_respond_json(req, 200,
			"[{\"id\":\"n1\",\"pool\":\"p\",\"hostname\":\"a\\u001b[2Jb\",\"state\":\"ready\",\"schedulable\":true,"
			"\"capacity\":{\"sandboxes\":1,\"memory_mib\":1024,\"memory_reserved_mib\":5},\"unschedulable\":null}]"), 0);
	else if (!strcmp(path, "/v1/tokens") && !strcmp(method, "POST"))
		ck_assert_int_eq(http_respond_json(req, 201, "{\"id\":\"x\",\"file\":\"# croft join token\\nkey = 1\\n\"}"), 0);
	else if (!strncmp(path, "/v1/templates/", 14))
		ck_assert_int_eq(http_respond_json(req, 201, "{\"name\":\"base\",\"version\":3}"), 0);
	else if (!strncmp(path, "/v1/stages", 10) && http_query(req, "scope"))
		ck_assert_int_eq(http_respond_json(req, 200, "{\"stages\":[{\"stage\":\"vmm\",\"attempts\":3,\"failed\":1,"
			"\"saved\":0,\"skipped\":2,\"success\":0.66666,\"low\":0.2077,\"high\":0.9385,\"p50_ms\":12.0,"
			"\"p95_ms\":1500.0,\"p99_ms\":1500.0,\"codes\":[{\"code\":\"KERNEL_MISSING\",\"n\":1,"
			"\"owner\":\"cust\\u001b[2Jomer\",\"sandbox\":\"s1\",\"remedy\":\"Put it back.\"}]},{\"stage\":\"setup\","
			"\"attempts\":0,\"failed\":0,\"saved\":0,\"skipped\":3,\"success\":null,\"codes\":[]}],\"product\":0.66666,"
			"\"product_low\":0.3,\"product_high\":1.0,\"weakest\":\"vmm\",\"complete\":false,\"dropped\":7,"
			"\"what_if\":{\"stage\":\"vmm\",\"success\":0.999,\"product\":0.999}}"), 0);
	else if (!strncmp(path, "/v1/traces/", 11))
		ck_assert_int_eq(http_respond_json(req, 200, "{\"trace\":\"t1\",\"sandbox\":\"s1\",\"took_us\":1512000,\"steps\":["
			"{\"at_us\":0,\"took_us\":90,\"process\":\"scheduler\",\"stage\":\"admit\",\"outcome\":\"ok\",\"attempt\":1,"
			"\"sandbox\":\"s1\"},{\"at_us\":12000,\"took_us\":1500000,\"process\":\"vmm\",\"stage\":\"vmm\","
			"\"outcome\":\"failed\",\"attempt\":1,\"sandbox\":\"s2\",\"node\":\"n1\",\"failure\":{\"code\":\"KERNEL_MISSING\","
			"\"owner\":\"customer\",\"message\":\"No\\u001b[2J kernel.\",\"remedy\":\"Put it back.\"}}],"
			"\"more\":true,\"complete\":false}"), 0);
	else if (!strncmp(path, "/v1/capacity", 12))
		ck_assert_int_eq(http_respond_json(req, 200, "{\"shape\":{},\"if\":{\"nodes\":1},\"pools\":[{\"pool\":\"eu\","
			"\"customer\":\"a,\\\"b\\\"\",\"fits\":7,\"waiting\":2,\"nodes\":3,\"fitting\":1,\"used\":{\"memory_mib\":5,"
			"\"vcpus\":1,\"disk_mib\":2,\"sandboxes\":1},\"total\":{\"memory_mib\":10,\"vcpus\":8,\"disk_mib\":9,"
			"\"sandboxes\":64},\"stops\":[{\"by\":\"cpu\",\"nodes\":2,\"memory_mib\":500,\"vcpus\":0,\"disk_mib\":7}],"
			"\"change\":\"Add a node.\",\"if\":{\"fits\":9,\"more\":2},"
			"\"forecast\":{\"verdict\":\"grows\",\"by\":\"cpu\",\"runs_out\":\"2027-01-02T00:00:00.000Z\","
			"\"earliest\":\"2026-12-30T12:00:00.000Z\",\"latest\":null},"
			"\"replay\":{\"from\":\"2026-11-01T00:00:00.000Z\",\"complete\":false,\"since\":\"2026-11-02T00:00:00.000Z\",\"requests\":6,\"unplaced\":2,"
			"\"now\":{\"placed\":4,\"refused\":2,\"standing_refused\":0,\"first_refused\":\"2026-11-03T00:00:00.000Z\",\"by\":{\"cpu\":2},\"peak\":{\"sandboxes\":4}},"
			"\"if\":{\"placed\":6,\"refused\":0,\"standing_refused\":0,\"by\":{},\"peak\":{\"sandboxes\":6}}}},{\"pool\":\"us\",\"forecast\":{"
			"\"verdict\":\"none\"}},{\"pool\":\"ap\",\"forecast\":{\"verdict\":\"too_short\"}}]}"), 0);
	else if (!strcmp(path, "/v1/sandboxes/" ID "/audit"))
		answer_audit(req, poll_state);
	else if (!strcmp(path, "/v1/sandboxes/" ID "/diff"))
		answer_diff(req, poll_state);
	else if (!strcmp(path, "/v1/stages"))
		ck_assert_int_eq(http_respond_json(req, 200, "{\"records\":[{\"stage\":\"vmm\",\"outcome\":\"failed\","
			"\"took_us\":12000,\"attempt\":1,\"node\":\"n1\",\"failure\":{\"code\":\"KERNEL_MISSING\"}}]}"), 0);
	else
		ck_assert_int_eq(http_respond_json(req, 200, "{}"), 0);
	json_decref(json);
}

static void on_process_call(struct http_request *req, const char *body)
{
	json_t *json = json_loads(body, 0, NULL);
	const char *text = json_string_value(json_object_get(json_object_get(json, "input"), "stdin"));
	uint8_t *data;
	size_t size;

	ck_assert_int_eq(http_respond_json(req, 200, "{}"), 0);
	if (text) {
		ck_assert_int_eq(base64_decode(text, strlen(text), &data, &size), 0);
		ck_assert_int_eq(buf_append(&run.input, data, size), 0);
		free(data);
		if (run.kill_on_input)
			(void) kill(run.pid, run.kill_on_input);
	} else if (strstr(http_path(req), "CloseStdin") && !run.kill_on_input) {
		while (buf_size(&run.input) > 0) {
			size = MIN(buf_size(&run.input), (size_t) 30000);
			put_data("stdout", buf_peek(&run.input), size);
			buf_consume(&run.input, size);
		}
		put_end("{\"exited\":true,\"exitCode\":0}");
	} else if (strstr(http_path(req), "SendSignal") && json_integer_value(json_object_get(json, "signal")) == 2) {
		put_end("{\"exited\":false,\"exitCode\":-1,\"signal\":2}");
	}
	json_decref(json);
}

static void on_body(struct http_request *req, const char *body, size_t size, void *user)
{
	bool is_start = !strcmp(http_path(req), "/process.Process/Start");
	const char *text = is_start && size > 5 ? body + 5 : body;
	const char *token = http_header(req, "x-access-token"), *sandbox = http_header(req, "e2b-sandbox-id");
	const char *timeout = http_header(req, "connect-timeout-ms"), *user_header = http_header(req, "authorization");
	size_t n = strlen(run.log);
	json_t *json;

	(void) user;
	(void) snprintf(run.log + n, sizeof(run.log) - n, "%s %s key=%s%s%s%s%s%s%s%s%s %.400s\n", http_method(req),
		http_target(req), http_header(req, "x-api-key"), token ? " token=" : "", token ? token : "",
		sandbox ? " sandbox=" : "", sandbox ? sandbox : "", timeout ? " timeout=" : "", timeout ? timeout : "",
		user_header ? " auth=" : "", user_header ? user_header : "", size < 2000 ? text : "...");
	if (is_start) {
		json = json_loads(text, 0, NULL);
		start_process(req, json_string_value(json_object_get(json_object_get(json, "process"), "cmd")));
		json_decref(json);
	} else if (!strncmp(http_path(req), "/process.Process/", 17)) {
		on_process_call(req, text);
	} else {
		answer(req, text);
	}
}

static void on_request(struct http_request *req, void *user)
{
	http_read_body(req, 32u << 20, on_body, user);
}

static void on_closed(struct http_request *req, void *user)
{
	(void) user;
	if (req == run.stream)
		run.stream = NULL;
}

/* ---- the child ---- */

static void on_guard(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	(void) user;
	(void) kill(run.pid, SIGKILL);
}

struct reader {
	struct event *event;
	struct buf *to;
	int fd;
};

static void on_reader(evutil_socket_t fd, short what, void *user)
{
	struct reader *reader = user;
	char bytes[65536];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	(void) what;
	if (n > 0) {
		ck_assert_int_eq(buf_append(reader->to, bytes, (size_t) n), 0);
		return;
	}
	event_del(reader->event);
	run.n_open--;
}

static pid_t spawn(char **argv, const char *input, int out_fd, int err_fd)
{
	char own[64];
	const char *url = run.url ? run.url : own;
	int in[2] = { -1, -1 };
	pid_t pid;

	if (run.input_path) {
		in[0] = open(run.input_path, O_RDONLY | O_CLOEXEC);
		ck_assert_int_ge(in[0], 0);
	} else {
		ck_assert_int_eq(pipe(in), 0);
	}
	(void) snprintf(own, sizeof(own), "http://127.0.0.1:%u/", http_server_port(run.server));
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		(void) sigemptyset(&none);
		(void) sigprocmask(SIG_SETMASK, &none, NULL);
		(void) setenv("CROFT_API_URL", url, 1);
		(void) (run.has_no_key ? unsetenv("CROFT_API_KEY") : setenv("CROFT_API_KEY", "croft_k", 1));
		(void) unsetenv("CROFT_SANDBOX_URL");
		(void) dup2(in[0], 0);
		(void) dup2(run.output_path ? open(run.output_path, O_WRONLY | O_CLOEXEC) : out_fd, 1);
		(void) dup2(err_fd, 2);
		for (int fd = 3; fd < 256; fd++)
			(void) close(fd);
		execv(run.bin, argv);
		_exit(99);
	}
	close(in[0]);
	if (input)
		ck_assert_int_eq(write(in[1], input, strlen(input)), (ssize_t) strlen(input));
	fd_close(in[1]);
	return pid;
}

/* Runs croft with `line` (words apart by spaces, '_' in a word is a space). Returns its exit status. */
static int croft(const char *line, const char *input)
{
	char copy[512], *argv[ARGS_MAX] = { run.bin }, *rest, *word;
	const struct timeval guard = { 20, 0 };
	struct event *timer = evtimer_new(run.base, on_guard, NULL);
	int out[2], err[2], n = 1, status;
	struct reader readers[2] = { { .to = &run.out_text }, { .to = &run.err_text } };

	buf_consume(&run.out_text, buf_size(&run.out_text)); /* of an earlier call */
	buf_consume(&run.err_text, buf_size(&run.err_text));
	(void) snprintf(copy, sizeof(copy), "%s", line);
	for (word = strtok_r(copy, " ", &rest); word && n < ARGS_MAX - 1; word = strtok_r(NULL, " ", &rest)) {
		for (char *p = word; *p; p++)
			*p = *p == '_' ? ' ' : *p;
		argv[n++] = word;
	}
	argv[n] = NULL;
	ck_assert_int_eq(pipe(out), 0);
	ck_assert_int_eq(run.has_terminal ? openpty(&err[0], &err[1], NULL, NULL, NULL) : pipe(err), 0);
	run.pid = spawn(argv, input, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	readers[0].fd = out[0];
	readers[1].fd = err[0];
	run.n_open = 2;
	for (unsigned int i = 0; i < 2; i++) {
		readers[i].event = event_new(run.base, readers[i].fd, EV_READ | EV_PERSIST, on_reader, &readers[i]);
		event_add(readers[i].event, NULL);
	}
	event_add(timer, &guard);
	while (run.n_open > 0)
		ck_assert_int_ge(event_base_loop(run.base, EVLOOP_ONCE), 0);
	for (unsigned int i = 0; i < 2; i++) {
		event_free(readers[i].event);
		close(readers[i].fd);
	}
	event_free(timer);
	ck_assert_int_eq(waitpid(run.pid, &status, 0), run.pid);
	ck_assert_int_eq(buf_append(&run.out_text, "", 1), 0);
	ck_assert_int_eq(buf_append(&run.err_text, "", 1), 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const char *out_text(void)
{
	return (const char *) buf_peek(&run.out_text);
}

static const char *err_text(void)
{
	return (const char *) buf_peek(&run.err_text);
}

static void set_up(void)
{
	static const struct http_handler handler = { on_request, on_closed };
	const struct http_server_config config = { .address = "127.0.0.1", .max_connections = 32 };
	const char *bin = getenv("CROFT_BIN");
	struct err err = ERR_NULL;

	(void) signal(SIGPIPE, SIG_IGN);
	run = (struct run){ .in_fd = -1 };
	(void) snprintf(run.bin, sizeof(run.bin), "%s/croft", bin ? bin : "build/dev/bin");
	run.out = run.input = run.out_text = run.err_text = (struct buf) BUF_NULL(64u << 20);
	run.base = event_base_new();
	ck_assert_int_eq(http_server_new(&run.server, run.base, &config, &handler, NULL, &err), 0);
	(void) snprintf(run.dir, sizeof(run.dir), "/tmp/croft-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(run.dir));
}

static void tear_down(void)
{
	http_server_free(run.server);
	event_base_free(run.base);
	buf_deinit(&run.out);
	buf_deinit(&run.input);
	buf_deinit(&run.out_text);
	buf_deinit(&run.err_text);
	(void) dir_remove(run.dir);
}

/* ---- exec ---- */

static const struct {
	const char *line;
	int status;
	const char *out, *err; /* all of stdout; a part of stderr, NULL: stderr is empty */
} execs[] = {
	{ "sandbox exec " ID " -- both", 0, "out", "err" },
	{ "sandbox exec " ID " -- exit7", 7, "", NULL },
	{ "sandbox exec " ID " -- killed", 137, "", "signal 9" },
	{ "sandbox exec " ID " -- hungry", 137, "", "croft: GUEST_OOM: The sandbox used up its own memory" },
	{ "sandbox exec " ID " -- notfound", 127, "", "COMMAND_NOT_FOUND" },
	{ "sandbox exec " ID " -- notexec", 126, "", "COMMAND_NOT_EXECUTABLE" },
	{ "sandbox exec " ID " -- timeout", 124, "", "EXEC_TIMEOUT" },
	{ "sandbox exec " ID " -- gone", 125, "", "SANDBOX_GONE" },
	{ "sandbox exec " ID " -- noend", 125, "", "RELAY_BROKEN" },
	{ "sandbox exec nonsense -- ls", 125, "", "SANDBOX_NOT_FOUND" },
	{ "sandbox exec " ID, 125, "", "usage" },
	{ "sandbox exec --bogus " ID " -- ls", 125, "", "usage" },
	{ "sandbox exec -o json " ID " -- notfound", 127, "", "\"failure\":{\"code\":\"COMMAND_NOT_FOUND\"" },
};

START_TEST(test_exec)
{
	ck_assert_int_eq(croft(execs[_i].line, NULL), execs[_i].status);
	ck_assert_str_eq(out_text(), execs[_i].out);
	if (execs[_i].err)
		ck_assert_msg(strstr(err_text(), execs[_i].err) != NULL, "stderr is: %s", err_text());
	else
		ck_assert_str_eq(err_text(), "");
	ck_assert_ptr_null(strchr(err_text(), '\x1b')); /* nothing from outside moves the cursor */
}
END_TEST

START_TEST(test_exec_request)
{
	ck_assert_int_eq(croft("sandbox exec -u bob -w /w -e A=1 -e B=x=y --timeout 1500ms " ID " -- exit7 a -l b_c", NULL), 7);
	ck_assert_ptr_nonnull(strstr(run.log, "POST /process.Process/Start key=(null) token=tok sandbox=" ID
		" timeout=1500 auth=Basic Ym9iOg== {\"process\":{\"cmd\":\"exit7\",\"args\":[\"a\",\"-l\",\"b c\"],"
		"\"envs\":{\"A\":\"1\",\"B\":\"x=y\"},\"cwd\":\"/w\"},\"stdin\":false}"));
}
END_TEST

START_TEST(test_exec_big_output)
{
	size_t k = 0;

	ck_assert_int_eq(croft("sandbox exec " ID " -- big", NULL), 0);
	ck_assert_uint_eq(buf_size(&run.out_text), 350u * 30000u + 1);
	for (unsigned int i = 0; i < 350; i++)
		for (unsigned int j = 0; j < 30000; j++)
			if ((uint8_t) out_text()[k++] != (uint8_t) (i * 7 + j))
				ck_abort_msg("byte %zu differs", k - 1);
}
END_TEST

START_TEST(test_exec_input)
{
	ck_assert_int_eq(croft("sandbox exec -i " ID " -- cat", "some input\n"), 0);
	ck_assert_str_eq(out_text(), "some input\n");
	ck_assert_ptr_nonnull(strstr(run.log, "\"stdin\":true"));
	ck_assert_ptr_nonnull(strstr(run.log, "POST /process.Process/CloseStdin"));
}
END_TEST

/* Piece by piece, and each at once when the one before is acknowledged: a pause between them would take this test
 * over its time. */
START_TEST(test_exec_large_input)
{
	const size_t size = 40u * 128 * 1024 + 3;
	CLEANUP_FREE char *data = malloc(size);
	char path[128];

	for (size_t i = 0; i < size; i++)
		data[i] = (char) (i * 31 + i / 251);
	(void) snprintf(path, sizeof(path), "%s/input", run.dir);
	ck_assert_int_eq(file_replace(path, data, size, 0600), 0);
	run.input_path = path;
	ck_assert_int_eq(croft("sandbox exec -i " ID " -- cat", NULL), 0);
	ck_assert_uint_eq(buf_size(&run.out_text), size + 1);
	ck_assert_mem_eq(out_text(), data, size);
}
END_TEST

START_TEST(test_exec_without_i_reads_no_stdin)
{
	ck_assert_int_eq(croft("sandbox exec " ID " -- both", "some input\n"), 0);
	ck_assert_ptr_null(strstr(run.log, "SendInput"));
	ck_assert_ptr_null(strstr(run.log, "CloseStdin"));
}
END_TEST

START_TEST(test_exec_passes_interrupt_on)
{
	run.kill_on_input = SIGINT;
	ck_assert_int_eq(croft("sandbox exec -i " ID " -- hang", "x"), 130);
	ck_assert_ptr_nonnull(strstr(run.log, "SendSignal"));
	ck_assert_ptr_nonnull(strstr(run.log, "\"signal\":2"));
}
END_TEST

/* ---- the rest ---- */

static const struct {
	const char *line, *state;
	int status;
	const char *out, *err, *asked; /* parts; NULL: nothing there, or not looked at for `asked` */
} others[] = {
	{ "--version", "running", 0, "croft ", NULL, NULL },
	{ "--help", "running", 0, "usage: croft", NULL, NULL },
	{ "sandbox --help", "running", 0, "sandbox exec", NULL, NULL },
	{ "sandbox create --help", "running", 0, "--memory SIZE", NULL, NULL },
	{ "", "running", 2, NULL, "usage", NULL },
	{ "nope", "running", 2, NULL, "unknown command", NULL },
	{ "sandbox nope", "running", 2, NULL, "unknown verb", NULL },
	{ "sandbox create extra", "running", 2, NULL, "unexpected", NULL },
	{ "sandbox create --memory x", "running", 2, NULL, "is no value for --memory", NULL },
	{ "sandbox create --timeout 0", "running", 2, NULL, "is no value for --timeout", NULL },
	{ "sandbox create --env A", "running", 2, NULL, "is no value for --env", NULL },
	{ "sandbox create -o xml", "running", 2, NULL, "is no value for --output", NULL },
	{ "sandbox create", "running", 0, ID "\n", NULL, "GET /v1/sandboxes/" ID "?wait_ms=20000&after=1 " },
	{ "sandbox create --no-wait -q", "running", 0, ID "\n", NULL, "POST /v1/sandboxes key=croft_k {}" },
	{ "sandbox create -o json", "running", 0, "\"state\": \"running\"", NULL, NULL },
	{ "sandbox create -o json", "running", 0, "\"sandboxID\": \"" ID "\"", NULL, NULL },
	{ "sandbox create -t t --vcpus 2 --disk 1G --timeout 90s --env A=1 --metadata k=v --setup make_x --setup-timeout 2s",
		"running", 0, ID, NULL,
		"{\"templateID\":\"t\",\"setupCommand\":\"make x\",\"vcpus\":2,\"diskSizeMB\":1024,\"timeout\":90,"
		"\"setupTimeoutMs\":2000,\"envVars\":{\"A\":\"1\"},\"metadata\":{\"k\":\"v\"}}" },
	{ "sandbox create --region north --label disk=nvme -l rack=7 --cpu-class zen4 --priority 3", "running", 0, ID, NULL,
		"{\"region\":\"north\",\"cpuClass\":\"zen4\",\"labels\":{\"disk\":\"nvme\",\"rack\":\"7\"},\"priority\":3}" },
	{ "sandbox create", "ended", 1, NULL,
		"croft: the sandbox did not start: No KVM.\n  stage     vmm\n  code      KVM_UNAVAILABLE (EACCES)\n"
		"  owner     customer (node-host)\n  remedy    Mend it.\n  retry     does not help\n  trace     t1\n", NULL },
	{ "sandbox create", "hang", 130, NULL, "the sandbox " ID " goes on starting", NULL },
	{ "sandbox create", "deaf", 130, NULL, "interrupted before the answer: `croft sandbox list` shows", NULL },
	{ "sandbox list", "running", 0, "first", NULL, "GET /v1/sandboxes?limit=1000&nextToken=t1 " },
	{ "sandbox list", "running", 0, "second", NULL, NULL },
	{ "template list", "running", 1, NULL, "API_PROTOCOL", NULL }, /* {} is no list */
	{ "sandbox create --memory 64G", "running", 1, NULL,
		"code      NO_CAPACITY (ENOMEM)\n  owner     customer (node-host)\n  detail    largest = 512\n", NULL },
	{ "sandbox create -t nope", "running", 3, NULL, "TEMPLATE_NOT_FOUND", NULL },
	{ "sandbox create -t nope -o json", "running", 3, NULL, "{\"code\":404,", NULL },
	{ "sandbox info nonsense", "running", 3, NULL, "SANDBOX_NOT_FOUND", NULL },
	{ "sandbox info", "running", 2, NULL, "usage", NULL },
	{ "sandbox kill " ID, "running", 0, ID, NULL, "DELETE /sandboxes/" ID },
	{ "sandbox rm", "running", 2, NULL, "usage", NULL },
	{ "sandbox stages " ID, "running", 0, "vmm    failed   12 ms  1        n1    KERNEL_MISSING", NULL,
		"GET /v1/stages?sandbox=" ID },
	{ "sandbox diff " ID, "running", 0, "A /new?[2J\nC /etc/hosts\nD base64:L3j/eQ==\n", NULL, "GET /v1/sandboxes/" ID "/diff " },
	{ "sandbox diff -o json " ID, "running", 0, "\"mode\":\"0644\"}\n], \"end\": {\"complete\":true}}\n", NULL, NULL },
	{ "sandbox diff " ID, "more", 0, "C /etc/hosts", "there are more changes than these", NULL },
	{ "sandbox diff " ID, "cut", 1, "C /etc/hosts", "API_PROTOCOL", NULL },
	{ "sandbox diff -o json " ID, "cut", 1, "], \"end\": {\"complete\":false}}\n", "{\"code\":", NULL },
	{ "sandbox diff " ID, "broken", 1, "C /etc/hosts", "GUEST_UNREACHABLE", NULL },
	{ "sandbox diff " ID, "nonsense", 1, NULL, "API_PROTOCOL", NULL },
	{ "sandbox audit " ID, "running", 0, "Commands: 3\n  w0  exit 0    make x\n  w1  exit 7    sh -c ?[2J\n  w2  no end yet  sleep\nFiles: 3\n  A /new", NULL,
		"GET /v1/sandboxes/" ID "/audit " },
	{ "sandbox audit " ID, "running", 0, "Connections: 9 packets out (99 bytes), 0 in (0 bytes), 4 denied\n  denied 192.0.2.7 tcp port 80, 4 packets\n"
		"Packages: 0\n", NULL, "GET /v1/sandboxes/" ID "/diff " },
	{ "sandbox audit " ID, "running", 0, "Output: of 2 commands\n  stdout 3 bytes sha256:abc  sh -c ?[2J\n", NULL, NULL },
	{ "sandbox audit -o json " ID, "running", 0, "\"complete\": true", NULL, NULL },
	{ "sandbox audit " ID, "more", 0, "Files: 3", "there is more than this", NULL },
	{ "sandbox audit " ID, "cut", 1, NULL, "API_PROTOCOL", NULL },
	{ "sandbox audit " ID, "broken", 1, NULL, "GUEST_UNREACHABLE", NULL },
	{ "sandbox audit nonsense", "running", 3, NULL, "SANDBOX_NOT_FOUND", NULL },
	{ "sandbox diff nonsense", "running", 3, NULL, "SANDBOX_NOT_FOUND", NULL },
	{ "sandbox diff", "running", 2, NULL, "one argument", NULL },
	{ "stages", "running", 0, "vmm    3         1       0      2        0.6667   0.2077 to 0.9385  12 ms  1500 ms  1500 ms", NULL,
		"GET /v1/stages?scope=own " },
	{ "stages", "running", 0, "setup  0         0       0      3        -        -", NULL, NULL },
	{ "stages", "running", 0, "success of a whole start: 0.6667 (0.3000 to 1.0000)\n"
		"weakest stage: vmm, 0.6667 of its attempts succeed\n"
		"  KERNEL_MISSING, 1x, owner cust?[2Jomer, last at sandbox s1: Put it back.\n"
		"if vmm succeeded at 0.9990: 0.9990\n"
		"not all of that time is held any more: 7 older facts are gone\n", NULL, NULL },
	{ "stages -a -w 24h --pool a&b --vcpus 2 --memory 1G --what-if vmm:0.9", "running", 0, "vmm", NULL,
		"GET /v1/stages?scope=all&window=86400000ms&vcpus=2&memoryMB=1024&pool=a%26b&what_if=vmm%3A0.9 " },
	{ "stages --window soon", "running", 2, NULL, "window", NULL },
	{ "stages -o json", "running", 0, "\"product_low\"", NULL, NULL },
	{ "trace " ID, "running", 0, "0 us   90 us    scheduler  admit  ok       1        -     -                               s1\n"
		"12 ms  1500 ms  vmm        vmm    failed   1        n1    KERNEL_MISSING, owner customer  s2\n"
		"vmm failed: No?[2J kernel. Put it back.\n"
		"only the first steps are shown\n"
		"not all of that time is held any more\n", NULL, "GET /v1/traces/" ID " " },
	{ "trace -o json " ID, "running", 0, "\"steps\"", NULL, NULL },
	{ "trace", "running", 2, NULL, "one argument", NULL },
	{ "trace ../x", "running", 2, NULL, "32 hex digits", NULL },
	{ "stages --region a&b", "running", 0, "vmm", NULL, "GET /v1/stages?scope=own&region=a%26b " },
	{ "capacity", "running", 0, "eu    7     2        3      1       5 of 10     1 of 8  2 of 9    1 of 64  9\n", NULL, NULL },
	{ "capacity", "running", 0, "eu: 2 node(s) stop at cpu, with 500 MiB, 0 vCPUs and 7 MiB of disk left\n"
		"eu: for one more then: Add a node.\n"
		"eu: runs out of cpu on 2027-01-02 as it grows now (95 %: 2026-12-30 to never)\n"
		"eu: 6 requests since 2026-11-01T00:00:00.000Z, of which 2 got no room\n"
		"eu: all of them are known only since 2026-11-02T00:00:00.000Z\n"
		"eu: asked again of the pool as it is: 4 find room, 2 do not, 2 for cpu, the first at 2026-11-03T00:00:00.000Z; 4 at once at most\n"
		"eu: with the change: 6 find room, 0 do not; 6 at once at most\n"
		"us: no trend: it does not grow beyond what chance explains\n"
		"ap: less than seven whole days are known, too few for a trend\n", NULL, "GET /v1/capacity? " },
	{ "capacity --pool a&b --vcpus 2 -m 1G --label k=v --label l=w --if-nodes 3 --if-node-memory 2G", "running", 0, "eu", NULL,
		"GET /v1/capacity?pool=a%26b&labels=k%3Dv%2Cl%3Dw&vcpus=2&memoryMB=1024&if_nodes=3&if_node_memoryMB=2048 " },
	{ "capacity -o csv", "running", 0, "pool,customer,overcommit_percent,fits,waiting", NULL, NULL },
	{ "capacity -o csv", "running", 0, "\r\neu,\"a,\"\"b\"\"\",,7,2,3,1,10,8,9,64,5,1,2,1,9,,2,grows,cpu,2027-01-02T00:00:00.000Z,2026-12-30T12:00:00.000Z,,6,2,no,4,2,6,0\r\n", NULL, NULL },
	{ "capacity --replay 7d --vcpus 4 --if-vcpus 2", "running", 0, "eu: 6 requests since", NULL,
		"GET /v1/capacity?vcpus=4&replay=7d&if_vcpus=2 " },
	{ "capacity --output jsonl", "running", 0, "{\"pool\":\"eu\",\"customer\"", NULL, NULL },
	{ "capacity -o json", "running", 0, "\"shape\"", NULL, NULL },
	{ "capacity -o yaml", "running", 2, NULL, "text, json, csv or jsonl", NULL },
	{ "stages -o csv", "running", 0, "stage,attempts,ok,failed,saved,", NULL, NULL },
	{ "stages -o yaml", "running", 2, NULL, "text, json, csv or jsonl", NULL },
	{ "capacity more", "running", 2, NULL, "no arguments", NULL },
	{ "node list", "running", 0, "a?[2Jb", NULL, "GET /v1/nodes" },
	{ "node ls -o json", "running", 0, "\"hostname\"", NULL, NULL },
	{ "token create --pool p --ttl 1h --label a=b", "running", 0, "# croft join token\nkey = 1\n", NULL,
		"{\"pool\":\"p\",\"ttl_s\":3600,\"labels\":{\"a\":\"b\"}}" },
	{ "template import Bad_Name x", "running", 1, NULL, "INVALID_ARGUMENT", NULL },
	{ "template import base /does/not/exist", "running", 1, NULL, "IMAGE_INVALID", NULL },
};

START_TEST(test_other)
{
	poll_state = others[_i].state;
	ck_assert_int_eq(croft(others[_i].line, NULL), others[_i].status);
	if (others[_i].out)
		ck_assert_msg(strstr(out_text(), others[_i].out) != NULL, "stdout is: %s", out_text());
	else
		ck_assert_str_eq(out_text(), "");
	if (others[_i].err)
		ck_assert_msg(strstr(err_text(), others[_i].err) != NULL, "stderr is: %s", err_text());
	else
		ck_assert_str_eq(err_text(), "");
	if (others[_i].asked)
		ck_assert_msg(strstr(run.log, others[_i].asked) != NULL, "asked: %s", run.log);
	ck_assert_ptr_null(strchr(out_text(), '\x1b'));
}
END_TEST

/* What was printed did not get there: no command is a success, and what it made can be found again. */
static const struct {
	const char *line;
	int status;
	const char *err;
} lost[] = {
	{ "--help", 1, "cannot write to stdout" },
	{ "--version", 1, "cannot write to stdout" },
	{ "sandbox create --help", 1, "cannot write to stdout" },
	{ "sandbox list", 1, "cannot write to stdout" },
	{ "sandbox list -o json", 1, "cannot write to stdout" },
	{ "sandbox info " ID, 1, "cannot write to stdout" },
	{ "sandbox kill " ID, 1, "cannot write to stdout" },
	{ "sandbox stages " ID, 1, "cannot write to stdout" },
	{ "node list", 1, "cannot write to stdout" },
	{ "sandbox exec " ID " -- both", 125, "No space left on device" },
	{ "sandbox create", 1, "the sandbox " ID " was made; `croft sandbox kill " ID "` ends it" },
	{ "sandbox create --no-wait -o json", 1, "the sandbox " ID " was made" },
	{ "token create", 1, "`croft token revoke x` revokes it" },
	{ "key create --role tenant", 1, "`croft key revoke k1` revokes it" },
};

START_TEST(test_stdout_is_full)
{
	run.output_path = "/dev/full";
	ck_assert_int_eq(croft(lost[_i].line, NULL), lost[_i].status);
	ck_assert_msg(strstr(err_text(), lost[_i].err) != NULL, "stderr is: %s", err_text());
}
END_TEST

/* A word that JSON cannot hold is refused: a command without it would be another command. */
START_TEST(test_not_utf8)
{
	ck_assert_int_eq(croft("sandbox exec " ID " -- rm -r x\xff y", NULL), 125);
	ck_assert_ptr_nonnull(strstr(err_text(), "INVALID_ARGUMENT (EILSEQ)"));
	ck_assert_ptr_nonnull(strstr(err_text(), "Word 3 of the command"));
	ck_assert_int_eq(croft("sandbox create --setup a\xff", NULL), 2);
	ck_assert_ptr_nonnull(strstr(err_text(), "is no value for --setup: a text in UTF-8"));
	ck_assert_int_eq(croft("sandbox exec -w /\xff " ID " -- true", NULL), 125);
	ck_assert_int_eq(croft("sandbox create --env A=\xff", NULL), 2);
	ck_assert_str_eq(run.log, ""); /* nothing was asked for */
	ck_assert_int_eq(croft("sandbox exec " ID " -- exit7 \xc3\xa4", NULL), 7);
	ck_assert_ptr_nonnull(strstr(run.log, "\"args\":[\"\xc3\xa4\"]"));
}
END_TEST

START_TEST(test_progress_on_a_terminal)
{
	const char *skipped;

	run.has_terminal = true;
	ck_assert_int_eq(croft("sandbox create", NULL), 0);
	ck_assert_str_eq(out_text(), ID "\n");
	skipped = strstr(err_text(), "network");
	ck_assert_msg(strstr(err_text(), "admit") && skipped && strstr(skipped, "vmm"), "stderr is: %s", err_text());
	ck_assert_int_eq(croft("sandbox create -q", NULL), 0);
	ck_assert_str_eq(err_text(), "");
	ck_assert_int_eq(croft("sandbox create -o json", NULL), 0);
	ck_assert_str_eq(err_text(), "");
}
END_TEST

START_TEST(test_import_of_an_image)
{
	char path[128], line[256];

	(void) snprintf(path, sizeof(path), "%s/x.sqfs", run.dir);
	ck_assert_int_eq(file_replace(path, "hsqs and more", 13, 0600), 0);
	(void) snprintf(line, sizeof(line), "template import --shared base %s", path);
	ck_assert_int_eq(croft(line, NULL), 0);
	ck_assert_ptr_nonnull(strstr(out_text(), "base version 3 sha256:"));
	ck_assert_ptr_nonnull(strstr(run.log, "PUT /v1/templates/base?shared=true key=croft_k hsqs and more"));
}
END_TEST

/* The key is asked for last: what is wrong with the words is said without one. */
START_TEST(test_without_a_key)
{
	run.has_no_key = true;
	ck_assert_int_eq(croft("sandbox create --memory lots", NULL), 2);
	ck_assert_ptr_nonnull(strstr(err_text(), "\"lots\" is no value for --memory: a size like 512M or 2G"));
	ck_assert_int_eq(croft("sandbox kill", NULL), 2);
	ck_assert_int_eq(croft("token create --help", NULL), 0);
	ck_assert_int_eq(croft("sandbox list", NULL), 1);
	ck_assert_ptr_nonnull(strstr(err_text(), "CROFT_API_KEY is not set."));
	ck_assert_int_eq(croft("sandbox exec " ID " -- true", NULL), 125);
	ck_assert_int_eq(croft("template import base /nonexistent", NULL), 1);
	ck_assert_ptr_nonnull(strstr(err_text(), "UNAUTHENTICATED"));
	ck_assert_str_eq(run.log, "");
}
END_TEST

START_TEST(test_no_proxy_for_loopback)
{
	ck_assert_int_eq(setenv("http_proxy", "http://127.0.0.1:1/", 1), 0);
	ck_assert_int_eq(croft("sandbox list", NULL), 0);
}
END_TEST

START_TEST(test_unreachable)
{
	run.url = "http://127.0.0.1:1"; /* nobody has this port */
	ck_assert_int_eq(croft("sandbox list", NULL), 1);
	ck_assert_ptr_nonnull(strstr(err_text(), "code      API_UNREACHABLE"));
	ck_assert_ptr_nonnull(strstr(err_text(), "retry     may help"));
}
END_TEST

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int size, void *user)
{
	(void) listener, (void) from, (void) size, (void) user;
	ck_assert_int_eq(write(fd, "\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE", 17), 17); /* ZeroMQ's greeting */
	fd_close(fd);
}

/* 7281 for 7280: what answers there is no API, and the scheme is not what is wrong. */
START_TEST(test_no_http)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct evconnlistener *listener = evconnlistener_new_bind(run.base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE, 4,
		(struct sockaddr *) &addr, sizeof(addr));
	socklen_t size = sizeof(addr);
	char url[64];

	ck_assert_ptr_nonnull(listener);
	ck_assert_int_eq(getsockname(evconnlistener_get_fd(listener), (struct sockaddr *) &addr, &size), 0);
	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%u", ntohs(addr.sin_port));
	run.url = url;
	ck_assert_int_eq(croft("sandbox list", NULL), 1);
	ck_assert_msg(strstr(err_text(), "code      API_PROTOCOL") != NULL, "stderr is: %s", err_text());
	evconnlistener_free(listener);
	run.url = "ftp://127.0.0.1";
	ck_assert_int_eq(croft("sandbox list", NULL), 1);
	ck_assert_ptr_nonnull(strstr(err_text(), "is no http or https address"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli-program");
	TCase *tc = tcase_create("program");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, test_exec, 0, ARRAY_LEN(execs));
	tcase_add_test(tc, test_exec_request);
	tcase_add_test(tc, test_exec_big_output);
	tcase_add_test(tc, test_exec_input);
	tcase_add_test(tc, test_exec_large_input);
	tcase_add_test(tc, test_exec_without_i_reads_no_stdin);
	tcase_add_test(tc, test_exec_passes_interrupt_on);
	tcase_add_loop_test(tc, test_other, 0, ARRAY_LEN(others));
	tcase_add_loop_test(tc, test_stdout_is_full, 0, ARRAY_LEN(lost));
	tcase_add_test(tc, test_not_utf8);
	tcase_add_test(tc, test_progress_on_a_terminal);
	tcase_add_test(tc, test_no_http);
	tcase_add_test(tc, test_import_of_an_image);
	tcase_add_test(tc, test_without_a_key);
	tcase_add_test(tc, test_no_proxy_for_loopback);
	tcase_add_test(tc, test_unreachable);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
