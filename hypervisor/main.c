/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-vmm: one microVM. Command line, signals, the last word. Everything else is in the library.
 *
 * The process outlives whoever started it: it has no death signal, ignores SIGHUP and SIGPIPE, and its end is
 * told through the exit record and the exit status.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "jail.h"
#include "last-word.h"
#include "options.h"
#include "vmm.h"

static void set_signals(int exit_fd)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t set;

	last_word_prepare(exit_fd);
	(void) sigaction(SIGPIPE, &ignore, NULL);
	(void) sigaction(SIGHUP, &ignore, NULL);
	(void) sigaction(SIGXFSZ, &ignore, NULL); /* a console or disk at its limit is an error, not the end */
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

/* Everything that the process is and has from here on. Nothing was read from outside before. */
static int begin(struct vmm *vmm, const struct options *options, int fd, struct jail *jail, struct err *reterr)
{
	struct jail_config config = { .mode = options->jail_mode, .run = options->run, .has_user = options->has_user,
		.has_run_owner = options->has_run_owner, .run_owner = (uid_t) options->run_owner,
		.uid = (uid_t) options->uid, .gid = (gid_t) options->gid, .cgroup_fd = options->cgroup_fd_number,
		.keep = { fd, options->exit_fd_number }, .n_keep = 2 };
	char text[JAIL_TEXT_MAX];
	int r = jail_enter(jail, &config, reterr);

	if (r == 0)
		r = vmm_init(vmm, fd, reterr);
	if (r == 0)
		r = jail_arm(jail, &config, reterr);
	if (r < 0)
		return r;
	vmm->pagemap_fd = jail->pagemap_fd;
	if (config.mode == JAIL_OFF)
		return 0;
	vmm->run = options->run;
	vmm->jail = &jail->report;
	vmm->is_filtered = jail->report.applied & 1u << JAIL_FILTERS;
	jail_report_format(&jail->report, text);
	if (jail->report.missing)
		log_warn("jailed, but not wholly", "steps", text);
	else
		log_info("jailed", "steps", text);
	return 0;
}

static int run(const struct options *options)
{
	struct jail jail = JAIL_NULL;
	struct exit_record record = { .reason = EXIT_START_FAILED, .realtime_usec = clock_realtime_usec() };
	struct err err = ERR_NULL;
	struct vmm *vmm = calloc(1, sizeof(*vmm));
	int fd = -1, status;

	if (!vmm || open_control(options, &fd, &err) < 0 || begin(vmm, options, fd, &jail, &err) < 0) {
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
	/* in a jail the socket of --control stays behind: there is no way to it any more */
	if (*options->control && options->jail_mode == JAIL_OFF)
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
	set_signals(options.exit_fd_number);
	raise_descriptor_limit();
	(void) mallopt(M_ARENA_MAX, 1); /* threads hardly allocate, and the filters need know one allocator only */
	status = run(&options);
	options_free(&options);
	return status;
}
