/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-guest's process service against real children of this machine, over socket pairs instead of vsock:
 * service and client run in one thread, turn by turn, so nothing here depends on timing but the service's own
 * limits. What the test says is what guest.proto and guest/process.h promise.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "guest/server.h"
#include "lib/guest-client.h"
#include "lib/suite.h"
#include "pb/guest.pb-c.h"

static const struct {
	const char *script;
	bool exited;
	int exit_code;
	uint32_t signal;
	const char *out, *err;
} endings[] = {
	{ "exit 0", true, 0, 0, "", "" },
	{ "exit 7", true, 7, 0, "", "" },
	{ "exit 255", true, 255, 0, "", "" },
	{ "kill -KILL $$", false, 0, SIGKILL, "", "" },
	{ "kill -TERM $$", false, 0, SIGTERM, "", "" },
	{ "kill -SEGV $$", false, 0, SIGSEGV, "", "" },
	{ "echo out; echo err >&2; exit 3", true, 3, 0, "out\n", "err\n" },
	{ "printf 'a\\000b' | wc -c", true, 0, 0, "3\n", "" },
	{ "cat", true, 0, 0, "", "" },                          /* stdin is /dev/null */
	{ "umask; ulimit -Sn", true, 0, 0, "0022\n1024\n", "" },
	{ "ls /proc/self/fd | wc -l", true, 0, 0, "4\n", "" },  /* 0 1 2 and ls's own */
	{ "trap '' PIPE; kill -PIPE $$; (sh -c 'kill -PIPE $$'); exit 4", true, 4, 0, "", "" },
	{ "sh -c 'kill -PIPE $$'; echo $?", true, 0, 0, "141\n", "" }, /* SIGPIPE is not ignored */
	{ "ps -o pid=,pgid=,sid= -p $$ | awk '{ print ($1 == $2 && $2 == $3) }'", true, 0, 0, "1\n", "" },
};

START_TEST(test_ending)
{
	struct result result;

	run(&(struct command){ .script = endings[_i].script }, &result);
	ck_assert_int_eq(result.exited, endings[_i].exited);
	ck_assert_int_eq(result.exit_code, endings[_i].exit_code);
	ck_assert_uint_eq(result.signal, endings[_i].signal);
	ck_assert(!result.timed_out);
	if (_i != 11) /* whose shell may say "Broken pipe" */
		expect_output(&result, STDERR, endings[_i].err);
	expect_output(&result, STDOUT, endings[_i].out);
	ck_assert_uint_eq(result.lost, 0);
	result_free(&result);
}
END_TEST

static const struct {
	struct command command;
	const char *code;
} refusals[] = {
	{ { .cmd = "/nowhere/command" }, "COMMAND_NOT_FOUND" },
	{ { .cmd = "croft-no-such-command" }, "COMMAND_NOT_FOUND" },
	{ { .cmd = "/etc/passwd/x" }, "COMMAND_NOT_FOUND" },
	{ { .cmd = "/etc/passwd" }, "COMMAND_NOT_EXECUTABLE" },
	{ { .cmd = "/etc" }, "COMMAND_NOT_EXECUTABLE" },
	{ { .cmd = "@format" }, "COMMAND_NOT_EXECUTABLE" },
	{ { .cmd = "@interpreter" }, "COMMAND_NOT_EXECUTABLE" },
	{ { .cmd = "" }, "INVALID_ARGUMENT" },
	{ { .script = "exit 0", .cwd = "/nowhere" }, "CWD_NOT_FOUND" },
	{ { .script = "exit 0", .cwd = "/etc/passwd" }, "CWD_NOT_FOUND" },
	{ { .script = "exit 0", .user = "croft-nobody" }, "USER_NOT_FOUND" },
	{ { .script = "exit 0", .user = "-1" }, "USER_NOT_FOUND" },
	{ { .script = "exit 0", .user = "4294967295" }, "USER_NOT_FOUND" },
	{ { .script = "exit 0", .cols = 70000, .rows = 1 }, "INVALID_ARGUMENT" },
	{ { .script = "exit 0", .tag = "t234567890123456789012345678901234567890123456789012345678901234567890"
		"12345678901234567890123456789012345678901234567890123456789" }, "INVALID_ARGUMENT" },
};

static void write_program(const char *name, const char *content, char *ret, size_t size)
{
	snprintf(ret, size, "%s/%s", fx.dir, name);
	ck_assert_int_eq(file_replace(ret, content, strlen(content), 0755), 0);
}

START_TEST(test_refusal)
{
	struct command command = refusals[_i].command;
	struct client client;
	char path[128];

	if (command.cmd && !strcmp(command.cmd, "@format")) {
		write_program("format", "no program at all\n", path, sizeof(path));
		command.cmd = path;
	} else if (command.cmd && !strcmp(command.cmd, "@interpreter")) {
		write_program("interpreter", "#!/nowhere/interpreter\n", path, sizeof(path));
		command.cmd = path;
	}
	client = start(&command);
	expect_failure(&client, refusals[_i].code);
	turn();
	ck_assert_uint_eq(fx.server.processes.n, 0);
	ck_assert_uint_eq(fx.server.n_conns, 0);
}
END_TEST

START_TEST(test_program_is_searched)
{
	Croft__GuestEnv env = MESSAGE(Croft__GuestEnv, croft__guest_env__init);
	struct result result;
	char path[128], value[160];

	write_program("croft-tool", "#!/bin/sh\necho found \"$0\"\n", path, sizeof(path));
	snprintf(value, sizeof(value), "/nowhere:%s:/bin", fx.dir);
	env.name = text("PATH");
	env.value = value;
	run(&(struct command){ .cmd = "croft-tool", .env = &env }, &result);
	snprintf(value, sizeof(value), "found %s\n", path);
	expect_output(&result, STDOUT, value);
	result_free(&result);
}
END_TEST

START_TEST(test_environment)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestConfigure configure = MESSAGE(Croft__GuestConfigure, croft__guest_configure__init);
	Croft__GuestEnv one = MESSAGE(Croft__GuestEnv, croft__guest_env__init), two = one, mine = one;
	Croft__GuestEnv *env[2] = { &one, &two };
	struct client client = client_new();
	struct result result;

	one.name = text("ONE");
	one.value = text("1");
	two.name = text("TWO");
	two.value = text("2");
	configure.env = env;
	configure.n_env = 2;
	request.body_case = CROFT__GUEST_REQUEST__BODY_CONFIGURE;
	request.configure = &configure;
	client_send(&client, &request);
	expect_done(&client);
	mine.name = text("TWO");
	mine.value = text("mine=2");
	run(&(struct command){ .script = "env | grep -v -e ^PWD= -e ^_= -e ^HOME= -e ^USER= -e ^LOGNAME= "
					 "-e ^OLDPWD= -e ^SHLVL= | sort",
		    .env = &mine, .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }, &result);
	expect_output(&result, STDOUT,
		"ONE=1\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
		"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nTWO=mine=2\n");
	result_free(&result);
	run(&(struct command){ .script = "test -n \"$HOME\" && test -n \"$USER\" && "
					 "test \"$USER\" = \"$LOGNAME\" && test \"$HOME\" = \"$PWD\"" },
		&result);
	ck_assert_int_eq(result.exit_code, 0);
	result_free(&result);
	run(&(struct command){ .script = "pwd", .cwd = "/usr" }, &result);
	expect_output(&result, STDOUT, "/usr\n");
	result_free(&result);
}
END_TEST

START_TEST(test_user)
{
	struct result result;

	if (geteuid() != 0)
		return; /* only root can become another */
	run(&(struct command){ .script = "id -un; id -u; id -G; cat /proc/self/oom_score_adj", .user = "daemon",
		    .cwd = "/" }, &result);
	expect_output(&result, STDOUT, "daemon\n1\n1\n0\n");
	result_free(&result);
	run(&(struct command){ .script = "id -u; id -g; pwd", .user = "54321" }, &result);
	expect_output(&result, STDOUT, "54321\n54321\n/\n");
	result_free(&result);
}
END_TEST

/* 10 MB arrive byte for byte, though the client reads seldom. */
START_TEST(test_large_output)
{
	static const size_t size = 10u << 20;
	struct client client = start_script("head -c 10485760 /dev/zero | tr '\\000' '\\245'; printf done >&2");
	struct result result;
	const uint8_t *p;

	expect_started(&client);
	finish(&client, &result);
	ck_assert_uint_eq(buf_size(&result.out[STDOUT]), size);
	p = buf_peek(&result.out[STDOUT]);
	for (size_t i = 0; i < size; i++)
		if (p[i] != 0245)
			ck_abort_msg("byte %zu is %u", i, p[i]);
	expect_output(&result, STDERR, "done");
	ck_assert_uint_eq(result.lost, 0);
	ck_assert_int_eq(result.exit_code, 0);
	result_free(&result);
}
END_TEST

/* Every number once and in order, through rings, frames and pauses of every length. */
START_TEST(test_order)
{
	struct client client = start_script("seq 1 300000");
	struct result result;
	char *p;

	expect_started(&client);
	finish(&client, &result);
	ck_assert_int_eq(buf_append(&result.out[STDOUT], "", 1), 0);
	p = (char *) result.out[STDOUT].data + result.out[STDOUT].start;
	for (unsigned long i = 1; i <= 300000; i++, p++)
		if (strtoul(p, &p, 10) != i)
			ck_abort_msg("%lu is missing", i);
	ck_assert_str_eq(p, "");
	result_free(&result);
}
END_TEST

static size_t resident_kib(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (size_t) usage.ru_maxrss;
}

/* A client that does not read stops the process, and costs no more than one ring and one frame. */
START_TEST(test_slow_reader)
{
	struct client client = start_script("dd if=/dev/zero bs=65536 count=256 2>/dev/null; echo end");
	size_t before = resident_kib();
	const struct process *process;
	struct result result;
	uint64_t head;

	expect_started(&client);
	process = TAILQ_FIRST(&fx.server.processes.list);
	for (int i = 0; i < 100; i++)
		turn();
	head = process->output.head;
	ck_assert_uint_gt(head, 0);
	ck_assert_uint_lt(head, 4u << 20);
	for (int i = 0; i < 20; i++)
		turn();
	ck_assert_uint_eq(process->output.head, head); /* it stands still */
	ck_assert_int_eq(process->state, PROCESS_RUNNING);
	ck_assert_uint_lt(resident_kib() - before, 8192 * 4); /* ASan's own memory included */
	finish(&client, &result);
	ck_assert_uint_eq(buf_size(&result.out[STDOUT]), 256u * 65536 + 4);
	ck_assert_uint_eq(result.lost, 0);
	result_free(&result);
}
END_TEST

/* A lost client neither kills nor blocks: the process ends, its last 64 KiB are kept, the rest is counted. */
START_TEST(test_lost_client)
{
	struct client client = start(&(struct command){ .script = "read go; seq 1 100000; exit 9", .wants_stdin = true });
	uint32_t pid = expect_started(&client);
	struct process *process = TAILQ_FIRST(&fx.server.processes.list);
	struct result result;

	client_close(&client);
	client = client_new();
	send_input(&client, pid, "\n", 1);
	expect_done(&client);
	for (int i = 0; i < 2000 && process->state != PROCESS_ENDED; i++)
		turn();
	ck_assert_int_eq(process->state, PROCESS_ENDED);
	client = attach(pid, NULL);
	ck_assert_uint_eq(expect_started(&client), pid);
	finish(&client, &result);
	ck_assert_uint_eq(buf_size(&result.out[STDOUT]), OUTPUT_SIZE);
	ck_assert_uint_eq(buf_size(&result.out[STDOUT]) + result.lost, 588895); /* bytes of seq 1 100000 */
	ck_assert(!memcmp(buf_peek(&result.out[STDOUT]) + OUTPUT_SIZE - 7, "100000\n", 7));
	ck_assert_int_eq(result.exit_code, 9);
	result_free(&result);
	/* Its end was read: it is gone. */
	for (int i = 0; i < 2000 && fx.server.processes.n > 0; i++)
		turn();
	ck_assert_uint_eq(fx.server.processes.n, 0);
	client = attach(pid, NULL);
	expect_failure(&client, "PROCESS_NOT_FOUND");
}
END_TEST

/* What was read is not repeated; what was not is. */
START_TEST(test_reconnect)
{
	struct client client = start(&(struct command){ .script = "echo one; read x; echo two; read x; echo three",
		.wants_stdin = true, .tag = "job" });
	uint32_t pid = expect_started(&client);
	struct result result;

	collect_init(&result);
	read_until(&client, &result, STDOUT, "one\n");
	client_close(&client);
	client = client_new();
	send_input(&client, pid, "\n", 1);
	expect_done(&client);
	for (int i = 0; i < 20; i++)
		turn();
	client = attach(0, "job");
	ck_assert_uint_eq(expect_started(&client), pid);
	read_until(&client, &result, STDOUT, "two\n");
	send_input(&client, 0, "\n", 1);
	collect(&client, &result);
	expect_output(&result, STDOUT, "one\ntwo\nthree\n");
	ck_assert_uint_eq(result.lost, 0);
	result_free(&result);
}
END_TEST

/* Two readers get the same; one that stands still holds the other up only for a while. */
START_TEST(test_two_readers)
{
	struct client one = start(&(struct command){ .script = "read x; seq 1 1000; read x", .wants_stdin = true }), two;
	uint32_t pid = expect_started(&one);
	struct result first, second;

	two = attach(pid, NULL);
	ck_assert_uint_eq(expect_started(&two), pid);
	send_input(&one, 0, "\n", 1);
	collect_init(&first);
	collect_init(&second);
	read_until(&one, &first, STDOUT, "\n1000\n");
	read_until(&two, &second, STDOUT, "\n1000\n");
	ck_assert_uint_eq(buf_size(&first.out[STDOUT]), buf_size(&second.out[STDOUT]));
	send_close_stdin(&two, 0);
	collect(&one, &first);
	collect(&two, &second);
	ck_assert_int_eq(first.exit_code, second.exit_code);
	result_free(&first);
	result_free(&second);
}
END_TEST

START_TEST(test_stalled_reader)
{
	struct client one = start_script("yes | head -c 4000000"), two;
	uint32_t pid = expect_started(&one);
	const struct process *process = TAILQ_FIRST(&fx.server.processes.list);
	struct reader *reader;
	struct result second;

	two = attach(pid, NULL);
	ck_assert_uint_eq(expect_started(&two), pid);
	/* `one` reads nothing more; `two` all that comes until that holds it up. */
	collect_init(&second);
	for (int i = 0; i < 200; i++) {
		Croft__GuestEvent *event;

		turn();
		ck_assert(client_read(&two));
		while ((event = client_take(&two)))
			ck_assert(!collect_one(&second, event));
	}
	ck_assert_uint_lt(process->output.head, 4000000);
	/* As if 5 s had gone by since `one` took something. */
	reader = TAILQ_FIRST(&process->readers);
	reader->progress_usec -= STALL_USEC;
	collect(&two, &second);
	ck_assert_uint_eq(buf_size(&second.out[STDOUT]), 4000000);
	ck_assert_uint_eq(second.lost, 0);
	result_free(&second);
	collect_init(&second);
	collect(&one, &second);
	ck_assert_uint_gt(second.lost, 0);
	ck_assert_uint_eq(buf_size(&second.out[STDOUT]) + second.lost, 4000000);
	result_free(&second);
}
END_TEST

START_TEST(test_stdin)
{
	static char data[3u << 20];
	struct client client = start(&(struct command){ .script = "cat | cksum", .wants_stdin = true }), other;
	uint32_t pid = expect_started(&client);
	struct result result;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char) (i * 7 + i / 251);
	for (size_t i = 0; i < sizeof(data); i += 1000000)
		send_input(&client, 0, data + i, MIN(sizeof(data) - i, (size_t) 1000000));
	send_close_stdin(&client, 0);
	finish(&client, &result);
	expect_output(&result, STDOUT, "2228603133 3145728\n");
	result_free(&result);
	/* The process is over, so is its input. */
	turn();
	other = client_new();
	send_input(&other, pid, "x", 1);
	expect_failure(&other, "PROCESS_NOT_FOUND");
}
END_TEST

/* A process that does not read its input stops the sender, who waits for his answer, and no longer. */
START_TEST(test_stdin_back_pressure)
{
	static const char data[600000];
	struct client client = start(&(struct command){ .script = "read go; cat | wc -c", .wants_stdin = true });
	struct client first = client_new(), second = client_new();
	uint32_t pid = expect_started(&client);
	struct result result;

	send_input(&first, pid, data, sizeof(data));
	expect_done(&first);
	send_input(&second, pid, data, sizeof(data));
	for (int i = 0; i < 20; i++)
		turn();
	ck_assert(client_read(&second));
	ck_assert_uint_eq(buf_size(&second.in), 0);
	ck_assert_uint_eq(fx.server.n_waiting, 1);
	send_signal(&client, 0, NULL, SIGKILL); /* it can still be killed */
	finish(&client, &result);
	ck_assert_uint_eq(result.signal, SIGKILL);
	expect_failure_of(&second, "CONFLICT", "PROCESS_NOT_FOUND"); /* its end may be read first */
	ck_assert_uint_eq(fx.server.n_waiting, 0);
	result_free(&result);
}
END_TEST

START_TEST(test_stdin_closed)
{
	struct client client = start_script("sleep 10"), other = client_new();
	uint32_t pid = expect_started(&client);
	struct result result;

	send_input(&other, pid, "x", 1);
	expect_failure(&other, "CONFLICT");
	other = client_new();
	send_close_stdin(&other, pid);
	expect_failure(&other, "CONFLICT");
	other = client_new();
	send_resize(&other, pid, 80, 24);
	expect_failure(&other, "CONFLICT");
	send_input(&client, 0, "x", 1); /* on a stream it is dropped */
	send_signal(&client, 0, NULL, SIGTERM);
	finish(&client, &result);
	ck_assert_uint_eq(result.signal, SIGTERM);
	result_free(&result);
}
END_TEST

START_TEST(test_pty)
{
	struct client client = start(&(struct command){
		.script = "test -t 0 && test -t 2 && stty size; read x; stty size; echo \"<$x>\"; exit 5",
		.cols = 132, .rows = 43 });
	uint32_t pid = expect_started(&client);
	struct client other = client_new();
	struct result result;

	collect_init(&result);
	read_until(&client, &result, PTY, "43 132\r\n");
	send_resize(&other, pid, 100, 50);
	expect_done(&other);
	send_input(&client, 0, "hello\r", 6);
	collect(&client, &result);
	expect_output(&result, PTY, "43 132\r\nhello\r\n50 100\r\n<hello>\r\n");
	ck_assert_int_eq(result.exit_code, 5);
	result_free(&result);
}
END_TEST

START_TEST(test_pty_interrupt)
{
	struct client client = start(&(struct command){ .script = "trap 'exit 130' INT; echo ready; read x", .cols = 80, .rows = 24 });
	struct result result;

	expect_started(&client);
	collect_init(&result);
	read_until(&client, &result, PTY, "ready\r\n");
	send_input(&client, 0, "\003", 1);
	collect(&client, &result);
	ck_assert_int_eq(result.exit_code, 130);
	result_free(&result);
}
END_TEST

START_TEST(test_signal_reaches_group)
{
	struct client client = start(&(struct command){ .script = "sleep 30 & echo $!; wait", .tag = "group" });
	struct client other = client_new();
	struct result result;
	pid_t child;

	expect_started(&client);
	collect_init(&result);
	read_until(&client, &result, STDOUT, "\n");
	child = (pid_t) strtol((const char *) buf_peek(&result.out[STDOUT]), NULL, 10);
	send_signal(&other, 0, "group", SIGKILL);
	expect_done(&other);
	collect(&client, &result);
	ck_assert(!result.exited);
	ck_assert_uint_eq(result.signal, SIGKILL);
	for (int i = 0; i < 400 && kill(child, 0) == 0; i++) {
		char path[64];
		CLEANUP_FREE char *stat = NULL;

		turn();
		snprintf(path, sizeof(path), "/proc/%d/stat", (int) child);
		if (file_read(path, 4096, &stat, NULL) < 0 || strstr(stat, ") Z "))
			break; /* an orphan that the init of this machine has not reaped */
		ck_assert_int_lt(i, 399);
	}
	result_free(&result);
	other = client_new();
	send_signal(&other, 0, "group", SIGTERM);
	expect_failure(&other, "PROCESS_NOT_FOUND");
	other = client_new();
	send_signal(&other, 1, NULL, 200);
	expect_failure(&other, "INVALID_ARGUMENT");
}
END_TEST

static void expect_list(const char *cmd, const char *tag, const char *cwd)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestList message = MESSAGE(Croft__GuestList, croft__guest_list__init);
	struct client client = client_new();
	Croft__GuestEvent *event;

	request.body_case = CROFT__GUEST_REQUEST__BODY_LIST;
	request.list = &message;
	client_send(&client, &request);
	event = client_next(&client);
	ck_assert_ptr_nonnull(event);
	ck_assert_int_eq(event->body_case, CROFT__GUEST_EVENT__BODY_PROCESSES);
	ck_assert_uint_eq(event->processes->n_processes, cmd ? 1 : 0);
	if (cmd) {
		const Croft__GuestProcess *process = event->processes->processes[0];

		ck_assert_str_eq(process->cmd, cmd);
		ck_assert_str_eq(process->tag, tag);
		ck_assert_str_eq(process->cwd, cwd);
		ck_assert_uint_eq(process->n_args, 2);
		ck_assert_str_eq(process->args[0], "-c");
		ck_assert_uint_eq(process->n_env, 1);
		ck_assert_str_eq(process->env[0]->name, "A");
		ck_assert_str_eq(process->env[0]->value, "b=c");
	}
	event_free(event);
	expect_closed(&client);
}

START_TEST(test_timeout)
{
	struct client client = start(&(struct command){ .script = "echo begun; sleep 30 & sleep 30", .timeout_ms = 60000 });
	struct process *process;
	struct result result;

	expect_started(&client);
	process = TAILQ_FIRST(&fx.server.processes.list);
	ck_assert_int_gt(process->kill_at_usec, clock_monotonic_usec() + 30 * USEC_PER_SEC);
	collect_init(&result);
	read_until(&client, &result, STDOUT, "begun\n");
	process->kill_at_usec = clock_monotonic_usec(); /* as if the minute were over */
	collect(&client, &result);
	ck_assert(result.timed_out);
	ck_assert(!result.exited);
	ck_assert_uint_eq(result.signal, SIGKILL);
	expect_output(&result, STDOUT, "begun\n");
	result_free(&result);
	run(&(struct command){ .script = "exit 0", .timeout_ms = 60000 }, &result);
	ck_assert(!result.timed_out);
	result_free(&result);
}
END_TEST

/* The limit fires by itself, too. */
START_TEST(test_timeout_fires)
{
	struct result result;

	run(&(struct command){ .script = "sleep 30", .timeout_ms = 50 }, &result);
	ck_assert(result.timed_out);
	result_free(&result);
}
END_TEST

/* The end comes though a daemon holds the pipe, with all that was written before it; and the daemon lives. */
START_TEST(test_daemon)
{
	struct client client;
	struct result result;
	CLEANUP_FD int gate = -1;

	ck_assert_int_eq(chdir(fx.dir), 0);
	ck_assert_int_eq(mkfifo("gate", 0600), 0);
	client = start(&(struct command){ .cwd = fx.dir,
		.script = "(read x <gate; echo late; echo late >&2; touch alive) & echo early; exit 2" });
	expect_started(&client);
	finish(&client, &result);
	expect_output(&result, STDOUT, "early\n");
	ck_assert_int_eq(result.exit_code, 2);
	result_free(&result);
	turn();
	ck_assert_uint_eq(fx.server.processes.n, 1); /* its pipes are still read */
	expect_list(NULL, NULL, NULL);               /* but it is over */
	gate = open("gate", O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(fd_write_all(gate, "\n", 1), 0);
	for (int i = 0; i < 2000 && fx.server.processes.n > 0; i++)
		turn();
	ck_assert_uint_eq(fx.server.processes.n, 0);
	ck_assert_int_eq(access("alive", F_OK), 0); /* it did not die of SIGPIPE */
}
END_TEST

START_TEST(test_list)
{
	Croft__GuestEnv env = MESSAGE(Croft__GuestEnv, croft__guest_env__init);
	struct client client;
	struct result result;

	env.name = text("A");
	env.value = text("b=c");
	expect_list(NULL, NULL, NULL);
	client = start(&(struct command){ .script = "read x", .wants_stdin = true, .tag = "t", .cwd = "/tmp", .env = &env });
	expect_started(&client);
	expect_list("/bin/sh", "t", "/tmp");
	send_close_stdin(&client, 0);
	finish(&client, &result);
	expect_list(NULL, NULL, NULL);
	result_free(&result);
}
END_TEST

START_TEST(test_info)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestInfoRequest message = MESSAGE(Croft__GuestInfoRequest, croft__guest_info_request__init);
	struct client client = client_new();
	Croft__GuestEvent *event;

	request.body_case = CROFT__GUEST_REQUEST__BODY_INFO;
	request.info = &message;
	client_send(&client, &request);
	event = client_next(&client);
	ck_assert_int_eq(event->body_case, CROFT__GUEST_EVENT__BODY_INFO);
	ck_assert_uint_eq(strlen(event->info->boot_id), 36);
	ck_assert_uint_gt(event->info->uptime_us, 0);
	ck_assert_uint_gt(event->info->memory_total_kib, event->info->memory_available_kib);
	ck_assert_uint_gt(event->info->memory_available_kib, 0);
	event_free(event);
	expect_closed(&client);
}
END_TEST

/* ---- what is no request ---- */

static const struct {
	const char *bytes;
	size_t size;
	const char *code;
} garbage[] = {
	{ "\xff\xff\xff\xff", 4, "FRAME_INVALID" },
	{ "\x00\x10\x00\x01xx", 6, "FRAME_INVALID" },
	{ "\x00\x00\x00\x04\xff\xff\xff\xff", 8, "FRAME_INVALID" },
	{ "\x00\x00\x00\x02\x1a\x7f", 6, "FRAME_INVALID" },            /* start, cut short */
	{ "\x00\x00\x00\x00", 4, "FRAME_UNSUPPORTED" },                /* no body */
	{ "\x00\x00\x00\x03\xca\x3e\x00", 7, "FRAME_UNSUPPORTED" },    /* a body of the future */
	{ "GET / HTTP/1.1\r\n\r\n", 18, "FRAME_INVALID" },
};

START_TEST(test_garbage)
{
	struct client client = client_new();

	client_send_bytes(&client, garbage[_i].bytes, garbage[_i].size);
	expect_failure(&client, garbage[_i].code);
	turn();
	ck_assert_uint_eq(fx.server.n_conns, 0);
}
END_TEST

/* A frame of many empty strings must not cost many times its size. */
START_TEST(test_unpack_is_bounded)
{
	static uint8_t frame[FRAME_HEAD + REQUEST_FRAME_MAX];
	const size_t size = REQUEST_FRAME_MAX, body = size - 4;
	struct client client = client_new();

	frame[0] = 0;
	frame[1] = 0x10;
	frame[4] = 0x1a; /* start, its length in three bytes */
	frame[5] = (uint8_t) (body & 0x7f) | 0x80;
	frame[6] = (uint8_t) (body >> 7 & 0x7f) | 0x80;
	frame[7] = (uint8_t) (body >> 14);
	for (size_t i = 0; i < body; i += 2)
		frame[FRAME_HEAD + 4 + i] = 0x12; /* args: "" */
	client_send_bytes(&client, frame, sizeof(frame));
	expect_failure(&client, "FRAME_INVALID");
}
END_TEST

START_TEST(test_stream_takes_only_its_own)
{
	struct client client = start_script("sleep 10");
	uint32_t pid = expect_started(&client);
	struct client other;

	send_signal(&client, pid, NULL, SIGTERM);
	expect_failure(&client, "FRAME_INVALID");
	other = client_new();
	send_signal(&other, pid, NULL, SIGKILL);
	expect_done(&other);
}
END_TEST

START_TEST(test_too_many_connections)
{
	static struct client clients[CONNS_MAX];
	struct client one;

	for (size_t i = 0; i < ARRAY_LEN(clients); i++)
		clients[i] = client_new();
	one = client_new();
	expect_failure(&one, "TOO_MANY_STREAMS");
	for (size_t i = 0; i < ARRAY_LEN(clients); i++)
		client_close(&clients[i]);
	for (int i = 0; i < 50; i++)
		turn();
	ck_assert_uint_eq(fx.server.n_conns, 0);
	one = start_script("exit 0");
	expect_started(&one);
	client_close(&one);
}
END_TEST

START_TEST(test_unusable_root)
{
	struct err failure = ERR_NULL;
	struct client client;

	(void) err_set(&failure, FAIL_ROOTFS_UNREADABLE, EINVAL, "the image is no file system");
	fx.server.failure = &failure;
	client = start_script("exit 0");
	expect_failure(&client, "ROOTFS_UNREADABLE");
}
END_TEST

/* Many at once, all of them whole, nothing left. */
/* ---- sleep: what PID 1 does is counted, and who may ask meanwhile ---- */

static struct {
	int freezes, thaws, wakes;
	int64_t thawed_at;
	bool fails;
	uint8_t entropy[ENTROPY_MAX];
	size_t entropy_size;
	int64_t realtime_usec;
	bool has_network;
} slept;

static int on_freeze(struct err *reterr)
{
	slept.freezes++;
	return slept.fails ? err_set(reterr, FAIL_GUEST_FREEZE_FAILED, ETIMEDOUT, "no") : 0;
}

static int on_wake(const struct guest_wake *wake, struct err *reterr)
{
	(void) reterr;
	slept.wakes++;
	slept.realtime_usec = wake->realtime_usec;
	slept.entropy_size = wake->entropy_size;
	slept.has_network = wake->network != NULL;
	memcpy(slept.entropy, wake->entropy, wake->entropy_size);
	return 0;
}

static int on_thaw(int64_t realtime_usec, struct err *reterr)
{
	(void) reterr;
	slept.thawed_at = realtime_usec;
	slept.thaws++;
	return 0;
}

static struct client ask(Croft__GuestRequest__BodyCase kind, size_t entropy_size)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestFreeze freeze = MESSAGE(Croft__GuestFreeze, croft__guest_freeze__init);
	Croft__GuestThaw thaw = MESSAGE(Croft__GuestThaw, croft__guest_thaw__init);
	Croft__GuestWake wake = MESSAGE(Croft__GuestWake, croft__guest_wake__init);
	uint8_t entropy[ENTROPY_MAX + 1];
	struct client client = client_new();

	memset(entropy, 0x5a, sizeof(entropy));
	wake.realtime_us = 12345678;
	thaw.realtime_us = 87654321;
	wake.entropy.data = entropy;
	wake.entropy.len = entropy_size;
	request.body_case = kind;
	if (kind == CROFT__GUEST_REQUEST__BODY_FREEZE)
		request.freeze = &freeze;
	else if (kind == CROFT__GUEST_REQUEST__BODY_THAW)
		request.thaw = &thaw;
	else
		request.wake = &wake;
	client_send(&client, &request);
	return client;
}

static void ask_done(Croft__GuestRequest__BodyCase kind)
{
	struct client client = ask(kind, ENTROPY_MIN);

	expect_done(&client);
	client_close(&client);
}

static void ask_fails(Croft__GuestRequest__BodyCase kind, size_t entropy_size, const char *code)
{
	struct client client = ask(kind, entropy_size);

	expect_failure(&client, code);
	client_close(&client);
}

/* Whoever would write to the disk would wait for a thaw that could not come through. */
START_TEST(test_frozen_it_serves_its_thaw_alone)
{
	struct client sleeper = start_script("sleep 100"), client;

	memset(&slept, 0, sizeof(slept));
	fx.server.host.freeze = on_freeze;
	fx.server.host.wake = on_wake;
	fx.server.host.thaw = on_thaw;
	(void) expect_started(&sleeper);
	ask_done(CROFT__GUEST_REQUEST__BODY_THAW); /* it is not frozen */
	ck_assert_int_eq(slept.thaws, 0);
	ask_done(CROFT__GUEST_REQUEST__BODY_FREEZE);
	ask_done(CROFT__GUEST_REQUEST__BODY_FREEZE); /* again: it is */
	ck_assert_int_eq(slept.freezes, 1);
	client = start_script("true");
	expect_failure(&client, "SANDBOX_NOT_READY");
	client_close(&client);
	ask_fails(CROFT__GUEST_REQUEST__BODY_WAKE, ENTROPY_MIN - 1, "INVALID_ARGUMENT");
	ask_fails(CROFT__GUEST_REQUEST__BODY_WAKE, ENTROPY_MAX + 1, "INVALID_ARGUMENT");
	ck_assert_int_eq(slept.wakes, 0);
	ask_done(CROFT__GUEST_REQUEST__BODY_WAKE);
	ck_assert_int_eq(slept.wakes, 1);
	ck_assert_uint_eq(slept.entropy_size, ENTROPY_MIN);
	ck_assert_uint_eq(slept.entropy[ENTROPY_MIN - 1], 0x5a);
	ck_assert_int_eq(slept.realtime_usec, 12345678);
	ck_assert(!slept.has_network);
	client = start_script("true");
	expect_failure(&client, "SANDBOX_NOT_READY"); /* awake, and frozen yet */
	client_close(&client);
	ask_done(CROFT__GUEST_REQUEST__BODY_THAW);
	ck_assert_int_eq(slept.thaws, 1);
	ck_assert_int_eq(slept.thawed_at, 87654321);
	client = start_script("true");
	(void) expect_started(&client);
	client_close(&client);
	client_close(&sleeper);
}
END_TEST

/* One that cannot says so, and serves on. */
START_TEST(test_what_does_not_freeze_goes_on)
{
	struct client client;

	memset(&slept, 0, sizeof(slept));
	ask_fails(CROFT__GUEST_REQUEST__BODY_FREEZE, 0, "GUEST_FREEZE_FAILED"); /* nothing to freeze here */
	fx.server.host.freeze = on_freeze;
	slept.fails = true;
	ask_fails(CROFT__GUEST_REQUEST__BODY_FREEZE, 0, "GUEST_FREEZE_FAILED");
	ck_assert_int_eq(slept.freezes, 1);
	client = start_script("true");
	(void) expect_started(&client);
	client_close(&client);
}
END_TEST

START_TEST(test_many)
{
	static struct client clients[200];

	for (size_t i = 0; i < ARRAY_LEN(clients); i++)
		clients[i] = start_script("echo $$; exit 1");
	for (size_t i = 0; i < ARRAY_LEN(clients); i++) {
		uint32_t pid = expect_started(&clients[i]);
		struct result result;
		char expected[16];

		finish(&clients[i], &result);
		snprintf(expected, sizeof(expected), "%u\n", pid);
		expect_output(&result, STDOUT, expected);
		ck_assert_int_eq(result.exit_code, 1);
		result_free(&result);
	}
	for (int i = 0; i < 2000 && fx.server.processes.n > 0; i++)
		turn(); /* the ends of their pipes may come after their own */
	ck_assert_uint_eq(fx.server.processes.n, 0);
	ck_assert_uint_eq(fx.server.n_conns, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("guest-process");
	TCase *t = tcase_create("processes");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, test_ending, 0, (int) ARRAY_LEN(endings));
	tcase_add_loop_test(t, test_refusal, 0, (int) ARRAY_LEN(refusals));
	tcase_add_loop_test(t, test_garbage, 0, (int) ARRAY_LEN(garbage));
	tcase_add_test(t, test_program_is_searched);
	tcase_add_test(t, test_environment);
	tcase_add_test(t, test_user);
	tcase_add_test(t, test_large_output);
	tcase_add_test(t, test_order);
	tcase_add_test(t, test_slow_reader);
	tcase_add_test(t, test_lost_client);
	tcase_add_test(t, test_reconnect);
	tcase_add_test(t, test_two_readers);
	tcase_add_test(t, test_stalled_reader);
	tcase_add_test(t, test_stdin);
	tcase_add_test(t, test_stdin_back_pressure);
	tcase_add_test(t, test_stdin_closed);
	tcase_add_test(t, test_pty);
	tcase_add_test(t, test_pty_interrupt);
	tcase_add_test(t, test_signal_reaches_group);
	tcase_add_test(t, test_timeout);
	tcase_add_test(t, test_timeout_fires);
	tcase_add_test(t, test_daemon);
	tcase_add_test(t, test_list);
	tcase_add_test(t, test_info);
	tcase_add_test(t, test_unpack_is_bounded);
	tcase_add_test(t, test_stream_takes_only_its_own);
	tcase_add_test(t, test_too_many_connections);
	tcase_add_test(t, test_unusable_root);
	tcase_add_test(t, test_frozen_it_serves_its_thaw_alone);
	tcase_add_test(t, test_what_does_not_freeze_goes_on);
	tcase_add_test(t, test_many);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
