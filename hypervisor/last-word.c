/* SPDX-License-Identifier: Apache-2.0
 *
 * See last-word.h. A filter's trap brings the kind of thread in si_errno (seccomp-compile.c). A second violation
 * in the handler, or one while SIGSYS is blocked, is the kernel's to punish: it kills the process.
 */
#include "last-word.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/clock.h"
#include "control.h"

/* Written once before the guest runs; at file scope since a handler has no argument. */
static struct word {
	int fd;
	size_t size;
	uint8_t data[CONTROL_PACKET_MAX];
} memory_fault, bug, violation;
static size_t syscall_at, argument_at, thread_at; /* in violation.data */

static void write_and_end(const struct word *word, enum exit_reason reason)
{
	if (word->fd >= 0)
		(void) !write(word->fd, word->data, word->size); /* there is nothing left to do about it */
	_exit((int) reason); /* ends the process: a handler of a signal that it cannot survive */
}

static void on_fatal(int number)
{
	if (number == SIGBUS) /* a page of guest memory that the host cannot provide */
		write_and_end(&memory_fault, EXIT_HOST_MEMORY);
	write_and_end(&bug, EXIT_BUG);
}

static void patch(size_t at, uint32_t value)
{
	for (size_t i = 0; at > 0 && i < sizeof(value); i++)
		violation.data[at + i] = (uint8_t) (value >> (8 * i));
}

static void on_violation(int number, siginfo_t *info, void *context)
{
	const ucontext_t *at = context;

	(void) number;
	patch(syscall_at, (uint32_t) info->si_syscall);
	patch(argument_at, (uint32_t) at->uc_mcontext.gregs[REG_RSI]);
	patch(thread_at, (uint32_t) info->si_errno + 1);
	write_and_end(&violation, EXIT_SECCOMP);
}

static void prepare(struct word *word, int exit_fd, struct exit_record *record, enum fail_code code, const char *text)
{
	record->realtime_usec = clock_realtime_usec();
	if (code != FAIL_NONE)
		(void) err_set(&record->failure, code, EFAULT, "%s", text);
	(void) snprintf(record->detail, sizeof(record->detail), "%s", text);
	word->fd = exit_fd;
	word->size = control_encode_exit(record, word->data);
}

/* Where the four bytes of a number that occurs nowhere else lie. 0: not there. */
static size_t find(uint32_t mark)
{
	for (size_t i = 0; i + sizeof(mark) <= violation.size; i++)
		if (!memcmp(violation.data + i, &mark, sizeof(mark)))
			return i;
	return 0;
}

static void prepare_violation(int exit_fd)
{
	struct exit_record record = { .reason = EXIT_SECCOMP, .syscall = 0xf1f2f3f4, .syscall_argument = 0xe1e2e3e4,
		.thread = 0xd1d2d3d4 };

	prepare(&violation, exit_fd, &record, FAIL_NONE, "a system call that the filter forbids");
	syscall_at = find(record.syscall);
	argument_at = find(record.syscall_argument);
	thread_at = find(record.thread);
}

void last_word_prepare(int exit_fd)
{
	struct exit_record fault = { .reason = EXIT_HOST_MEMORY }, assertion = { .reason = EXIT_BUG };
	struct sigaction fatal = { .sa_handler = on_fatal };
	struct sigaction trap = { .sa_sigaction = on_violation, .sa_flags = SA_SIGINFO };

	prepare(&memory_fault, exit_fd, &fault, FAIL_HOST_MEMORY_FAULT, "SIGBUS: the host could not provide a page");
	prepare(&bug, exit_fd, &assertion, FAIL_NONE, "an assertion of croft-vmm failed");
	prepare_violation(exit_fd);
	(void) sigaction(SIGBUS, &fatal, NULL);
	(void) sigaction(SIGABRT, &fatal, NULL);
	(void) sigaction(SIGSYS, &trap, NULL);
}
