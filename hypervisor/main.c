/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-vmm: one microVM. Command line, signals, the last word. Everything else is in the library.
 *
 * The process outlives whoever started it: it has no death signal, ignores SIGHUP and SIGPIPE, and its end is
 * told through the exit record and the exit status.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "options.h"
#include "vmm.h"

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

/* What a handler of a synchronous signal needs, prepared before the guest runs: nothing can be encoded in a
 * handler. The only mutable state at file scope here, since a handler has no argument. */
static struct last_word {
	int fd;
	size_t size;
	uint8_t data[CONTROL_PACKET_MAX];
} memory_fault, bug;

static void write_last_word(const struct last_word *word, enum exit_reason reason)
{
	if (word->fd >= 0)
		(void) !write(word->fd, word->data, word->size); /* there is nothing left to do about it */
	_exit((int) reason);
}

static void on_fatal(int number)
{
	if (number == SIGBUS) /* a page of guest memory that the host cannot provide */
		write_last_word(&memory_fault, EXIT_HOST_MEMORY);
	write_last_word(&bug, EXIT_BUG);
}

static void prepare_last_word(struct last_word *word, int exit_fd, enum exit_reason reason, enum fail_code code,
	const char *text)
{
	struct exit_record record = { .reason = reason, .realtime_usec = clock_realtime_usec() };

	if (code != FAIL_NONE)
		(void) err_set(&record.failure, code, EFAULT, "%s", text);
	(void) snprintf(record.detail, sizeof(record.detail), "%s", text);
	word->fd = exit_fd;
	word->size = control_encode_exit(&record, word->data);
}

static void set_signals(int exit_fd)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, fatal = { .sa_handler = on_fatal };
	sigset_t set;

	prepare_last_word(&memory_fault, exit_fd, EXIT_HOST_MEMORY, FAIL_HOST_MEMORY_FAULT,
		"SIGBUS: the host could not provide a page");
	prepare_last_word(&bug, exit_fd, EXIT_BUG, FAIL_NONE, "an assertion of croft-vmm failed");
	(void) sigaction(SIGPIPE, &ignore, NULL);
	(void) sigaction(SIGHUP, &ignore, NULL);
	(void) sigaction(SIGXFSZ, &ignore, NULL); /* a console or disk at its limit is an error, not the end */
	(void) sigaction(SIGBUS, &fatal, NULL);
	(void) sigaction(SIGABRT, &fatal, NULL);
	(void) sigemptyset(&set);
	(void) sigaddset(&set, SIGTERM);
	(void) sigaddset(&set, SIGINT);
	(void) sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Each connection of the guest is a descriptor; the soft limit is for programs that use select(). */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void) setrlimit(RLIMIT_NOFILE, &limit); /* fewer connections, then */
	}
}

static int check_listening(int fd, struct err *reterr)
{
	int type = 0, listening = 0;
	socklen_t size = sizeof(type);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, errno, "--control-fd %d is no socket", fd);
	size = sizeof(listening);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening || type != SOCK_SEQPACKET)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"--control-fd %d is no listening SOCK_SEQPACKET socket", fd);
	return 0;
}

static int open_control(const struct options *options, int *ret, struct err *reterr)
{
	int r;

	if (options->control_fd_number >= 0) {
		r = check_listening(options->control_fd_number, reterr);
		*ret = options->control_fd_number;
		return r;
	}
	*ret = unix_listen(options->control, SOCK_SEQPACKET, 0600, SERVER_CONNECTIONS_MAX);
	if (*ret == -ENAMETOOLONG)
		return err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG, "--control %s", options->control);
	return *ret < 0 ? err_set(reterr, FAIL_LISTEN_FAILED, -*ret, "--control %s", options->control) : 0;
}

/* Writes the record and returns the exit status. */
static int finish(const struct exit_record *record, int exit_fd)
{
	uint8_t buf[CONTROL_PACKET_MAX];
	size_t size = control_encode_exit(record, buf);
	char number[16];

	(void) snprintf(number, sizeof(number), "%d", (int) record->reason);
	log_info("ended", "status", number, "detail", record->detail);
	if (exit_fd >= 0 && fd_write_all(exit_fd, buf, size) < 0)
		log_warn("the exit record could not be written");
	return (int) record->reason;
}

static int run(const struct options *options)
{
	struct exit_record record = { .reason = EXIT_START_FAILED, .realtime_usec = clock_realtime_usec() };
	struct err err = ERR_NULL;
	struct vmm *vmm = calloc(1, sizeof(*vmm));
	int fd = -1, status;

	if (!vmm || open_control(options, &fd, &err) < 0 || vmm_init(vmm, fd, &err) < 0) {
		log_failure(LOG_LEVEL_ERROR, "cannot start", &err, NULL);
		record.failure = err;
		free(vmm); /* the descriptors end with the process */
		return finish(&record, options->exit_fd_number);
	}
	if (vmm_run(vmm) < 0) {
		log_error("a thread hangs in the host's kernel; ending without it");
		return finish(&vmm->exit, options->exit_fd_number);
	}
	record = vmm->exit;
	vmm_deinit(vmm);
	free(vmm);
	status = finish(&record, options->exit_fd_number);
	if (*options->control)
		(void) unlink(options->control);
	return status;
}

int main(int argc, char **argv)
{
	struct options options;
	struct err err = ERR_NULL;
	int status;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help")) {
			options_print_help(stdout);
			return 0;
		}
		if (!strcmp(argv[i], "--version")) {
			(void) printf("croft-vmm %s\n", CROFT_VERSION);
			return 0;
		}
	}
	if (options_load(&options, &argc, argv, &err) < 0) {
		(void) fprintf(stderr, "croft-vmm: %s\nTry 'croft-vmm --help'.\n", err.msg);
		options_free(&options);
		return EXIT_USAGE;
	}
	log_init("croft-vmm", options.log_level);
	/* no core dump and no ptrace by others of this user: the memory is a guest's. LeakSanitizer needs ptrace. */
	if (!IS_SANITIZED)
		(void) prctl(PR_SET_DUMPABLE, 0);
	set_signals(options.exit_fd_number);
	raise_descriptor_limit();
	status = run(&options);
	options_free(&options);
	return status;
}
