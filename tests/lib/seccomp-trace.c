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

#include "thread.h"

#define ROWS_MAX 4096
#define KINDS_MAX 16
#define OPTIONS                                                                                                        \
	(PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)

struct trace {
	const char *count_path, *thread;
	long force; /* -1: nothing */
	bool is_told;
	sigset_t before; /* the mask that the program gets */
	pid_t pid;
	unsigned long counts[KINDS_MAX][ROWS_MAX];
};

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
	bool is_ours = trace->is_told && trace->force >= 0 && is_named(trace->pid, tid, trace->thread);

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

/* All that waits; true when the program has ended, with *ret_status. */
static bool take_stops(struct trace *trace, int *ret_status)
{
	int status;
	pid_t tid;

	while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
		if (WIFSTOPPED(status)) {
			handle_stop(trace, tid, status);
		} else if (tid == trace->pid) {
			*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			return true;
		}
	}
	*ret_status = 125;
	return tid < 0;
}

/* Signals are taken here and nowhere else: none is lost between a look and a wait. */
static int run(struct trace *trace, const sigset_t *signals)
{
	int status;

	while (!take_stops(trace, &status)) {
		int number = sigwaitinfo(signals, NULL);

		if (number == SIGUSR1 && !trace->is_told) {
			trace->is_told = true;
			interrupt_threads(trace);
		} else if (number > 0 && number != SIGUSR1 && number != SIGCHLD) {
			(void) kill(trace->pid, number);
		}
	}
	return status;
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

static pid_t start(const struct trace *trace, char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		(void) sigprocmask(SIG_SETMASK, &trace->before, NULL);
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
	static const int taken[] = { SIGCHLD, SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGPIPE, VCPU_SIGNAL };
	static struct trace trace = { .force = -1, .thread = "" };
	sigset_t signals;
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
	(void) sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		(void) sigaddset(&signals, taken[i]);
	(void) sigprocmask(SIG_BLOCK, &signals, &trace.before);
	trace.pid = start(&trace, argv + at + 1);
	if (trace.pid < 0)
		return 125;
	result = run(&trace, &signals);
	if (trace.count_path && write_counts(&trace) != 0)
		return 125;
	return result;
}
