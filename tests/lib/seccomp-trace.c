/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: runs a program under ptrace and ends with its status.
 *
 *   seccomp-trace --count FILE -- PROGRAM ARGUMENT...
 *       PROGRAM is croft-vmm with the counting filters (seccomp-compile --count): each call that a filter allows stops
 *       here. Appends to FILE one line "KIND ROW COUNT" for each pair that was seen.
 *
 *   seccomp-trace --force NUMBER --thread NAME -- PROGRAM ARGUMENT...
 *       On SIGUSR1 the next system call of the thread of that name (/proc/PID/task/TID/comm) becomes call NUMBER, as
 *       if the thread had been taken over.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS_MAX 4096
#define KINDS_MAX 16
#define OPTIONS                                                                                                        \
	(PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)

struct trace {
	const char *count_path, *thread;
	long force; /* -1: nothing */
	pid_t pid;
	unsigned long counts[KINDS_MAX][ROWS_MAX];
};

/* Set by the signal handler: the one that tells us, and one that is meant for the program. */
static volatile sig_atomic_t is_told, to_forward;

static void on_signal(int number)
{
	if (number == SIGUSR1)
		is_told = 1;
	else
		to_forward = number;
}

static int usage(void)
{
	(void) fprintf(stderr, "usage: seccomp-trace --count FILE | --force NUMBER --thread NAME -- PROGRAM...\n");
	return 2;
}

static bool is_named(pid_t pid, pid_t tid, const char *name)
{
	char path[64], text[32] = "";
	FILE *file;

	(void) snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int) pid, (int) tid);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	(void) fclose(file);
	text[strcspn(text, "\n")] = '\0';
	return !strcmp(text, name);
}

/* Threads run freely until it is time; then all are stopped once, so that they go on from call to call. */
static void interrupt_threads(const struct trace *trace)
{
	char path[64];
	FILE *list;
	int tid;

	(void) snprintf(path, sizeof(path), "ls /proc/%d/task", (int) trace->pid);
	list = popen(path, "r");
	while (list && fscanf(list, "%d", &tid) == 1)
		if (is_named(trace->pid, tid, trace->thread))
			(void) ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	if (list)
		(void) pclose(list);
}

static void count(struct trace *trace, pid_t tid)
{
	unsigned long mark = 0;

	(void) ptrace(PTRACE_GETEVENTMSG, tid, NULL, &mark);
	trace->counts[mark >> 12 & (KINDS_MAX - 1)][mark & (ROWS_MAX - 1)]++;
}

/* One stop of a thread; what it is to be continued with. */
static void handle_stop(struct trace *trace, pid_t tid, int status)
{
	enum __ptrace_request how = PTRACE_CONT;
	int sig = WSTOPSIG(status), event = status >> 16;
	bool is_ours = is_told && trace->force >= 0 && is_named(trace->pid, tid, trace->thread);

	if (event == PTRACE_EVENT_SECCOMP)
		count(trace, tid);
	if (sig == (SIGTRAP | 0x80) && is_ours) {
		(void) ptrace(PTRACE_POKEUSER, tid, offsetof(struct user_regs_struct, orig_rax), trace->force);
		trace->force = -1; /* once */
		is_ours = false;
	}
	if (is_ours)
		how = PTRACE_SYSCALL;
	if (event != 0 || sig == (SIGTRAP | 0x80))
		sig = 0;
	(void) ptrace(how, tid, NULL, sig);
}

static int run(struct trace *trace)
{
	bool has_told = false;

	for (;;) {
		int status;
		pid_t tid;

		if (is_told && !has_told) {
			has_told = true;
			interrupt_threads(trace);
		}
		if (to_forward) {
			(void) kill(trace->pid, to_forward);
			to_forward = 0;
		}
		tid = waitpid(-1, &status, __WALL);
		if (tid < 0 && errno == EINTR)
			continue;
		if (tid < 0)
			return 125;
		if (WIFSTOPPED(status))
			handle_stop(trace, tid, status);
		else if (tid == trace->pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
}

static int write_counts(const struct trace *trace)
{
	FILE *file = fopen(trace->count_path, "a");

	if (!file)
		return 125;
	for (int kind = 0; kind < KINDS_MAX; kind++)
		for (int row = 0; row < ROWS_MAX; row++)
			if (trace->counts[kind][row] > 0)
				(void) fprintf(file, "%d %d %lu\n", kind, row, trace->counts[kind][row]);
	return fclose(file) == 0 ? 0 : 125;
}

static pid_t start(char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		(void) raise(SIGSTOP);
		(void) execvp(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid || ptrace(PTRACE_SEIZE, pid, NULL, OPTIONS) < 0)
		return -1;
	(void) kill(pid, SIGCONT);
	return pid;
}

int main(int argc, char **argv)
{
	static struct trace trace = { .force = -1, .thread = "" };
	struct sigaction action = { .sa_handler = on_signal };
	int at = 1, result;

	for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
		if (!strcmp(argv[at], "--count"))
			trace.count_path = argv[at + 1];
		else if (!strcmp(argv[at], "--force"))
			trace.force = strtol(argv[at + 1], NULL, 10);
		else if (!strcmp(argv[at], "--thread"))
			trace.thread = argv[at + 1];
		else
			return usage();
	}
	if (at + 1 >= argc)
		return usage();
	(void) sigaction(SIGUSR1, &action, NULL); /* no SA_RESTART: waitpid() is to return */
	(void) sigaction(SIGTERM, &action, NULL);
	(void) sigaction(SIGINT, &action, NULL);
	trace.pid = start(argv + at + 1);
	if (trace.pid < 0)
		return 125;
	result = run(&trace);
	if (trace.count_path && write_counts(&trace) != 0)
		return 125;
	return result;
}
