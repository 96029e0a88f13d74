/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox exec: one process in a sandbox, its output here as it comes, its exit status ours.
 *
 * One libcurl multi handle carries the stream and, beside it, one unary call at a time (input, end of input, a
 * signal). poll() on it also hears stdin and signals. Output is written before more is read, so who does not read
 * us stops the process in the sandbox and nothing piles up here.
 *
 * Ctrl-C and SIGTERM go to the process; a second one ends croft. Everything that is croft's own failure is 125, so
 * that no status of the command can be mistaken for it, but for a time limit (124).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "cli/args.h"
#include "cli/exec-stream.h"
#include "cli/print.h"
#include "wire/base64.h"

#define INPUT_PIECE (128u * 1024u)
#define ENVD_PORT "49983"
#define CALLS_MAX 4 /* signals that wait for their turn */

struct exec {
	struct cli *cli;
	const char *sandbox;
	char *token; /* may be NULL: the sandbox needs none */
	CURLM *multi;
	/* the stream */
	CURL *start;
	struct curl_slist *start_headers;
	char *start_body;
	char start_detail[CURL_ERROR_SIZE];
	struct exec_stream stream;
	struct buf refusal; /* the body of an answer that is no stream */
	uint32_t pid;
	int exit_status;    /* of the process, -1: not yet */
	int write_errno;
	/* the unary call under way */
	CURL *call;
	struct curl_slist *call_headers;
	char *call_body;
	int signals[CALLS_MAX];
	unsigned int n_signals;
	/* stdin */
	bool has_input, input_is_over, input_is_closed;
	int signal_fd;
	unsigned int n_interrupts;
	struct failure failure;
	bool is_done;
};

/* ---- requests to the gateway ---- */

static int add_header(struct curl_slist **headers, const char *name, const char *value)
{
	CLEANUP_FREE char *text = NULL;
	struct curl_slist *list;

	if (asprintf(&text, "%s: %s", name, value) < 0) {
		text = NULL;
		return -ENOMEM;
	}
	list = curl_slist_append(*headers, text);
	if (!list)
		return -ENOMEM;
	*headers = list;
	return 0;
}

static size_t ignore_body(char *data, size_t size, size_t n, void *user)
{
	(void) data;
	(void) user;
	return size * n;
}

static CURL *request_new(const struct exec *exec, const char *path, const char *type, const char *body, size_t size,
	struct curl_slist **headers)
{
	CURL *easy = http_easy(exec->cli->sandbox_url, path, headers);
	int r = easy ? 0 : -ENOMEM;

	if (r == 0)
		r = add_header(headers, "Content-Type", type);
	if (r == 0)
		r = add_header(headers, "Connect-Protocol-Version", "1");
	if (r == 0)
		r = add_header(headers, "Expect", ""); /* libcurl would wait for a 100 before a long body */
	if (r == 0)
		r = add_header(headers, "E2b-Sandbox-Id", exec->sandbox);
	if (r == 0)
		r = add_header(headers, "E2b-Sandbox-Port", ENVD_PORT);
	/* The sandbox's own token only: the API key must not reach a node. */
	if (r == 0 && exec->token)
		r = add_header(headers, "X-Access-Token", exec->token);
	if (r < 0) {
		curl_easy_cleanup(easy);
		return NULL;
	}
	(void) curl_easy_setopt(easy, CURLOPT_HTTPHEADER, *headers);
	(void) curl_easy_setopt(easy, CURLOPT_POST, 1L);
	(void) curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	(void) curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) size);
	(void) curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore_body);
	return easy;
}

/* ---- the stream ---- */

/* Why the command ended, where that was none of its own doing. */
static void print_reason(const json_t *failure)
{
	const char *name = json_string_value(json_object_get(failure, "code"));
	enum fail_code code = name ? failure_by_name(name) : FAIL_NONE;

	if (code != FAIL_NONE)
		(void) fprintf(stderr, "croft: %s: %s\n", failure_info(code)->name, failure_info(code)->remedy);
}

static int on_event(const struct exec_event *event, void *user)
{
	struct exec *exec = user;
	int r;

	switch (event->kind) {
	case EXEC_STARTED:
		exec->pid = event->pid;
		return 0;
	case EXEC_OUTPUT:
		r = fd_write_all(event->is_stderr ? STDERR_FILENO : STDOUT_FILENO, event->data, (size_t) event->size);
		exec->write_errno = r < 0 ? -r : 0;
		return r;
	case EXEC_LOST:
		(void) fprintf(stderr, "croft: %llu bytes of output were lost before they could be read\n",
			(unsigned long long) event->size);
		return 0;
	case EXEC_ENDED:
		if (event->exited)
			exec->exit_status = event->exit_code & 0xff;
		else
			exec->exit_status = event->signal ? EXIT_SIGNAL + event->signal : EXIT_EXEC;
		if (!event->exited)
			(void) fprintf(stderr, "croft: the command was ended by signal %d (%s)\n", event->signal,
				strsignal(event->signal));
		print_reason(event->failure);
		return 0;
	}
	return 0;
}

static size_t on_stream(char *data, size_t size, size_t n, void *user)
{
	struct exec *exec = user;
	long status = 0;

	(void) curl_easy_getinfo(exec->start, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return buf_append(&exec->refusal, data, size * n) < 0 ? 0 : size * n;
	return exec_stream_feed(&exec->stream, data, size * n) < 0 ? 0 : size * n;
}

/* The JSON of Start in its frame. */
static char *start_body(const json_t *request, size_t *ret_size)
{
	size_t size = json_dumpb(request, NULL, 0, JSON_COMPACT);
	char *body = size && size <= UINT32_MAX ? malloc(size + 5) : NULL;

	if (!body)
		return NULL;
	body[0] = 0;
	for (unsigned int i = 0; i < 4; i++)
		body[1 + i] = (char) (size >> (24 - 8 * i));
	(void) json_dumpb(request, body + 5, size, JSON_COMPACT);
	*ret_size = size + 5;
	return body;
}

static int begin(struct exec *exec, const json_t *request, const char *user, int64_t timeout_us)
{
	char text[32], *basic = NULL, *encoded = NULL;
	size_t size = 0;
	int r = 0;

	exec->start_body = start_body(request, &size);
	exec->start = exec->start_body ? request_new(exec, "/process.Process/Start", "application/connect+json",
						 exec->start_body, size, &exec->start_headers) : NULL;
	if (!exec->start)
		return -ENOMEM;
	if (user) {
		r = asprintf(&basic, "%s:", user) < 0 ? -ENOMEM : 0;
		encoded = r == 0 ? malloc(BASE64_ENCODED_SIZE(strlen(basic)) + 6) : NULL;
		r = encoded ? 0 : -ENOMEM;
	}
	if (encoded) {
		memcpy(encoded, "Basic ", 6);
		(void) base64_encode(basic, strlen(basic), encoded + 6);
		r = add_header(&exec->start_headers, "Authorization", encoded);
	}
	if (r == 0 && timeout_us) {
		(void) snprintf(text, sizeof(text), "%lld", (long long) (timeout_us / USEC_PER_MSEC));
		r = add_header(&exec->start_headers, "Connect-Timeout-Ms", text);
	}
	if (user)
		free(basic);
	free(encoded);
	(void) curl_easy_setopt(exec->start, CURLOPT_HTTPHEADER, exec->start_headers);
	(void) curl_easy_setopt(exec->start, CURLOPT_WRITEFUNCTION, on_stream);
	(void) curl_easy_setopt(exec->start, CURLOPT_WRITEDATA, exec);
	(void) curl_easy_setopt(exec->start, CURLOPT_ERRORBUFFER, exec->start_detail);
	(void) curl_easy_setopt(exec->start, CURLOPT_TCP_KEEPALIVE, 1L); /* a silent command is no dead link */
	if (r == 0 && curl_multi_add_handle(exec->multi, exec->start) != CURLM_OK)
		r = -ENOMEM;
	return r;
}

/* The stream is over: what became of it? */
static void judge_stream(struct exec *exec, CURLcode code)
{
	struct exec_stream *stream = &exec->stream;
	long status = 0;

	exec->is_done = true;
	(void) curl_easy_getinfo(exec->start, CURLINFO_RESPONSE_CODE, &status);
	if (exec->write_errno) {
		err_set_at(&exec->failure.err, STAGE_EXEC, FAIL_IO_FAILED, exec->write_errno, "Cannot write the output: %s.",
			strerror(exec->write_errno));
	} else if (err_is_set(&stream->failure.err)) {
		exec->failure = stream->failure;
		stream->failure = (struct failure){ 0 };
	} else if (code == CURLE_OK && status != 200) {
		failure_of_answer(&exec->failure, (int) status,
			buf_size(&exec->refusal) ? (const char *) buf_peek(&exec->refusal) : "", buf_size(&exec->refusal));
	} else if (stream->has_ended) {
		return; /* it told how it ended; nothing that comes after matters */
	} else if (code != CURLE_OK && exec->pid == 0) {
		failure_of_curl(&exec->failure, code, exec->start_detail, exec->cli->sandbox_url);
	} else {
		err_set(&exec->failure.err, FAIL_RELAY_BROKEN, 0,
			"The connection broke; the process %u may still run in the sandbox.", exec->pid);
	}
}

/* ---- the calls beside it ---- */

static void call_end(struct exec *exec)
{
	if (!exec->call)
		return;
	(void) curl_multi_remove_handle(exec->multi, exec->call);
	curl_easy_cleanup(exec->call);
	exec->call = NULL;
	curl_slist_free_all(exec->call_headers);
	exec->call_headers = NULL;
	free(exec->call_body);
	exec->call_body = NULL;
}

/* `request` is taken over. Its answer is not waited for by anybody: a process that ended meanwhile is no error. */
static void call_begin(struct exec *exec, const char *path, json_t *request)
{
	exec->call_body = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	exec->call = exec->call_body ? request_new(exec, path, "application/json", exec->call_body,
					       strlen(exec->call_body), &exec->call_headers) : NULL;
	if (exec->call && curl_multi_add_handle(exec->multi, exec->call) == CURLM_OK)
		return;
	call_end(exec);
	(void) fputs("croft: no memory to pass input on\n", stderr);
	exec->input_is_over = exec->input_is_closed = true;
}

static json_t *selector(const struct exec *exec)
{
	return json_pack("{s:I}", "pid", (json_int_t) exec->pid);
}

static void send_input(struct exec *exec)
{
	CLEANUP_FREE uint8_t *data = malloc(INPUT_PIECE);
	CLEANUP_FREE char *text = malloc(BASE64_ENCODED_SIZE(INPUT_PIECE));
	ssize_t n = data && text ? read(STDIN_FILENO, data, INPUT_PIECE) : 0;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		exec->input_is_over = true;
		return;
	}
	(void) base64_encode(data, (size_t) n, text);
	call_begin(exec, "/process.Process/SendInput",
		json_pack("{s:o, s:{s:s}}", "process", selector(exec), "input", "stdin", text));
}

/* Starts the next call where one is due. */
static void call_next(struct exec *exec)
{
	if (exec->call || exec->pid == 0)
		return;
	if (exec->n_signals > 0) {
		int number = exec->signals[0];

		exec->n_signals--;
		memmove(exec->signals, exec->signals + 1, exec->n_signals * sizeof(exec->signals[0]));
		call_begin(exec, "/process.Process/SendSignal",
			json_pack("{s:o, s:i}", "process", selector(exec), "signal", number));
	} else if (exec->has_input && exec->input_is_over && !exec->input_is_closed) {
		exec->input_is_closed = true;
		call_begin(exec, "/process.Process/CloseStdin", json_pack("{s:o}", "process", selector(exec)));
	}
}

/* ---- the loop ---- */

static void take_signal(struct exec *exec)
{
	struct signalfd_siginfo info;

	if (read(exec->signal_fd, &info, sizeof(info)) != (ssize_t) sizeof(info))
		return;
	if (++exec->n_interrupts > 1 || exec->pid == 0) {
		exec->is_done = true;
		exec->exit_status = EXIT_SIGNAL + (int) info.ssi_signo;
	} else if (exec->n_signals < CALLS_MAX) {
		exec->signals[exec->n_signals++] = (int) info.ssi_signo;
	}
}

static void take_messages(struct exec *exec)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(exec->multi, &left))) {
		if (message->msg != CURLMSG_DONE)
			continue;
		if (message->easy_handle == exec->start)
			judge_stream(exec, message->data.result);
		else
			call_end(exec);
	}
}

static void turn(struct exec *exec)
{
	struct curl_waitfd fds[2] = { { .fd = exec->signal_fd, .events = CURL_WAIT_POLLIN },
		{ .fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN } };
	bool wants_input;
	int running;

	(void) curl_multi_perform(exec->multi, &running);
	take_messages(exec);
	call_next(exec);
	if (exec->is_done || exec->stream.is_over)
		return;
	/* One piece of input at a time: what the process does not take stays in our stdin. */
	wants_input = exec->has_input && !exec->input_is_over && exec->pid && !exec->call;
	(void) curl_multi_poll(exec->multi, fds, wants_input ? 2 : 1, 1000, NULL);
	if (fds[0].revents)
		take_signal(exec);
	if (wants_input && fds[1].revents)
		send_input(exec);
}

static void run(struct exec *exec)
{
	while (!exec->is_done) {
		turn(exec);
		/* The end frame is the end, whether or not the server closes at once. */
		if (exec->stream.is_over && !exec->is_done)
			judge_stream(exec, CURLE_OK);
	}
}

static int open_signals(void)
{
	sigset_t set;

	(void) sigemptyset(&set);
	(void) sigaddset(&set, SIGINT);
	(void) sigaddset(&set, SIGTERM);
	(void) sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ---- the command ---- */

/* The access token, and that the sandbox is there and ready. */
static int find_sandbox(struct exec *exec)
{
	json_t *sandbox = NULL;
	const char *token;
	int r;

	if (!id_is_valid(exec->sandbox))
		return err_set(&exec->failure.err, FAIL_SANDBOX_NOT_FOUND, ENOENT, "There is no such sandbox.");
	r = api_get(exec->cli, &sandbox, &exec->failure, "/sandboxes/%s", exec->sandbox);
	if (r < 0)
		return r;
	token = json_string_value(json_object_get(sandbox, "envdAccessToken"));
	exec->token = token ? strdup(token) : NULL;
	json_decref(sandbox);
	return 0;
}

/* The API carries text: an argument that is not must not be left out. */
static int check_command(struct exec *exec, char **argv, int argc)
{
	for (int i = 0; i < argc; i++)
		if (!args_is_text(argv[i])) {
			err_set(&exec->failure.err, FAIL_INVALID_ARGUMENT, EILSEQ,
				"Word %d of the command is not UTF-8, and the API carries no other text.", i + 1);
			err_add(&exec->failure.err, "field", "word %d of the command", i + 1);
			return -EILSEQ;
		}
	return 0;
}

static json_t *make_request(char **argv, int argc, const char *cwd, json_t *envs, bool has_input)
{
	json_t *args = json_array();

	for (int i = 1; i < argc; i++)
		(void) json_array_append_new(args, json_string(argv[i]));
	return json_pack("{s:{s:s, s:o, s:O*, s:s*}, s:b}", "process", "cmd", argv[0], "args", args, "envs", envs, "cwd",
		cwd, "stdin", has_input);
}

static int exit_status(struct exec *exec)
{
	enum fail_code code = exec->failure.err.code;

	if (code == FAIL_NONE && exec->exit_status >= 0)
		return exec->exit_status;
	if (exec->write_errno == EPIPE)
		failure_deinit(&exec->failure); /* who reads us has gone; it knows */
	else
		(void) print_failure(exec->cli, "cannot run the command", &exec->failure);
	switch ((int) code) {
	case FAIL_COMMAND_NOT_FOUND:
		return EXIT_COMMAND_NOT_FOUND;
	case FAIL_COMMAND_NOT_EXECUTABLE:
		return EXIT_NOT_EXECUTABLE;
	case FAIL_EXEC_TIMEOUT:
		return EXIT_TIMEOUT;
	default:
		return EXIT_EXEC;
	}
}

static void exec_deinit(struct exec *exec)
{
	call_end(exec);
	if (exec->start) {
		(void) curl_multi_remove_handle(exec->multi, exec->start);
		curl_easy_cleanup(exec->start);
	}
	curl_slist_free_all(exec->start_headers);
	(void) curl_multi_cleanup(exec->multi);
	exec_stream_deinit(&exec->stream);
	failure_deinit(&exec->failure);
	buf_deinit(&exec->refusal);
	fd_close(exec->signal_fd);
	free(exec->start_body);
	free(exec->token);
}

int sandbox_exec(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct exec exec = { .cli = cli, .exit_status = -1, .stream = EXEC_STREAM_NULL, .signal_fd = -1,
		.refusal = BUF_NULL(1u << 20) };
	const char *user = NULL, *cwd = NULL;
	int64_t timeout_us = 0;
	json_t *envs = NULL, *request;
	const struct arg args[] = {
		{ "user", 'u', ARG_STRING, &user, "USER", "Run as USER instead of the template's default." },
		{ "cwd", 'w', ARG_STRING, &cwd, "DIR", "Working directory; the user's home by default." },
		{ "env", 'e', ARG_PAIRS, &envs, "NAME=VALUE", "Set a variable; may be repeated." },
		{ "timeout", 0, ARG_DURATION, &timeout_us, "DURATION", "Kill the command after this long." },
		{ "interactive", 'i', ARG_FLAG, &exec.has_input, NULL, "Pass standard input on." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status = EXIT_EXEC;

	if (r == ARGS_OK && argc >= 3) {
		exec.sandbox = argv[1];
		exec.multi = curl_multi_init();
		exec.stream.on_event = on_event;
		exec.stream.user = &exec;
		request = make_request(argv + 2, argc - 2, cwd, envs, exec.has_input);
		if (check_command(&exec, argv + 2, argc - 2) == 0 && find_sandbox(&exec) == 0) {
			exec.signal_fd = open_signals();
			if (exec.signal_fd < 0 || !exec.multi || !request || begin(&exec, request, user, timeout_us) < 0)
				err_set(&exec.failure.err, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
			else
				run(&exec);
		}
		json_decref(request);
		status = exit_status(&exec);
	} else if (r == ARGS_OK) {
		(void) args_complain(command, "the sandbox's id and, after --, a command are needed");
	} else if (r == ARGS_HELP) {
		status = EXIT_OK;
	}
	exec_deinit(&exec);
	json_decref(envs);
	return status;
}
