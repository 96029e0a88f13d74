/* SPDX-License-Identifier: Apache-2.0
 *
 * The hostile-driver suite: runs every case against every device that it concerns, each in a process of its own, and
 * watches that process from outside. While a case runs the control socket must answer, afterwards SIGTERM must end the
 * process, and its memory stays under a bound.
 *
 *   villain [-v] [--list] [PATTERN...]   PATTERN is a part of a case's name
 *   villain --guest [--batch N] [--every N] [PATTERN...]   the same in real guests, up to N cases (64) in each; every N-th
 *   villain-planted --planted            faults on purpose (base/plant.h); the last line is `planted N, found N`
 *
 * Output: one line for each case that failed, wedged or was skipped (with -v for each case); the last line is
 * `cases N, pass N, reject N, skip N, fail N, wedged N`.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/plant.h"
#include "devices.h"
#include "double.h"
#include "exit.h"
#include "peers.h"
#include "suite.h"

#ifdef CROFT_PLANT
enum plant plant_chosen;
#endif

void suite_name(const struct villain_instance *instance, char *ret, size_t size)
{
	(void) snprintf(ret, size, "%s %s%s/%s", instance->row->clause, instance->device->name, instance->queue_name,
		instance->row->id);
}

bool suite_wants(const struct villain_instance *instance, char **patterns, int n)
{
	char name[128];

	suite_name(instance, name, sizeof(name));
	for (int i = 0; i < n; i++)
		if (strstr(name, patterns[i]))
			return true;
	return n == 0;
}

/* ---- the disk: every byte of sector i is i + 1 ---- */

static int disk_make(void)
{
	uint8_t sector[512];
	int fd = memfd_create("villain-disk", MFD_CLOEXEC);

	for (unsigned int i = 0; fd >= 0 && i < DISK_SECTORS; i++) {
		memset(sector, (int) i + 1, sizeof(sector));
		if (fd_pwrite_all(fd, sector, sizeof(sector), (off_t) i * 512) < 0)
			return fd_close(fd);
	}
	return fd;
}

/* NULL, or what happened to it: it has its size, and below the sectors that cases may write all is as it was. */
static const char *disk_check(int fd)
{
	uint8_t sector[512];

	if (lseek(fd, 0, SEEK_END) != DISK_SECTORS * 512)
		return "the disk's file changed its size";
	for (unsigned int i = 0; i < DISK_SCRATCH; i++) {
		if (fd_pread_all(fd, sector, sizeof(sector), (off_t) i * 512) < 0)
			return "the disk's file cannot be read";
		for (size_t k = 0; k < sizeof(sector); k++)
			if (sector[k] != i + 1)
				return "the disk was written where nobody asked for it";
	}
	return NULL;
}

/* ---- one case ---- */

static pid_t spawn(struct suite *suite, const struct villain_instance *instance, int result_fd)
{
	struct double_files files = { .disk_fd = dup(suite->disk_fd), .vsock_path = suite->vsock_path,
		.control_fd = unix_listen(suite->control_path, SOCK_SEQPACKET, 0600, 8),
		.vsock_fd = unix_listen(suite->vsock_path, SOCK_STREAM, 0600, 8), .result_fd = result_fd };
	pid_t pid = fork();

	if (pid == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(double_run(instance, &files));
	}
	(void) fd_close(files.disk_fd);
	(void) fd_close(files.control_fd);
	(void) fd_close(files.vsock_fd);
	return pid;
}

void suite_count(struct suite *suite, const struct villain_instance *instance, const struct watch_result *result)
{
	char name[128];
	const char *word = "";

	suite_name(instance, name, sizeof(name));
	suite->totals.cases++;
	switch (result->outcome) {
	case OUTCOME_PASS:
		suite->totals.pass++;
		word = "pass";
		break;
	case OUTCOME_REJECT:
		suite->totals.reject++;
		word = "reject";
		break;
	case OUTCOME_SKIP:
		suite->totals.skip++;
		word = "SKIP";
		break;
	case OUTCOME_FAIL:
		suite->totals.fail++;
		word = "FAIL";
		break;
	case OUTCOME_WEDGED:
		suite->totals.wedged++;
		word = "WEDGED";
		break;
	}
	if (suite->is_verbose || (result->outcome != OUTCOME_PASS && result->outcome != OUTCOME_REJECT))
		(void) printf("%-6s %s (%s%s%s) %s\n", word, name, instance->row->what, instance->row->row ? ", " : "",
			instance->row->row ? instance->row->row : "", result->text);
	(void) fflush(stdout);
}

const char *suite_check_disk(struct suite *suite)
{
	const char *why = disk_check(suite->disk_fd);

	if (why) {
		(void) fd_close(suite->disk_fd);
		suite->disk_fd = disk_make();
	}
	return why;
}

static void run_case(struct suite *suite, const struct villain_instance *instance)
{
	struct watch_result result = { .outcome = OUTCOME_FAIL, .text = "no process" };
	struct watch watch;
	const char *why;
	char line[256];
	int results[2];

	if (pipe2(results, O_CLOEXEC) < 0)
		return;
	watch.pid = spawn(suite, instance, results[1]);
	(void) fd_close(results[1]);
	if (watch.pid > 0) {
		if (watch_init(&watch, watch.pid, suite->control_path, results[0]) &&
			watch_line(&watch, CASE_MSEC, line, &result)) {
			result = watch_judge(line);
			(void) watch_check(&watch, &result);
		}
		watch_end(&watch, &result);
	}
	(void) fd_close(results[0]);
	why = suite_check_disk(suite);
	if (why && result.outcome != OUTCOME_WEDGED) {
		result.outcome = OUTCOME_FAIL;
		(void) snprintf(result.text, sizeof(result.text), "%s", why);
	}
	suite_count(suite, instance, &result);
}

/* With a planted fault the first case that sees it is enough. */
static bool is_found(const struct suite *suite)
{
	return suite->stop_at_first && suite->totals.fail + suite->totals.wedged > 0;
}

static void run_all(struct suite *suite, char **patterns, int n, bool only_list)
{
	struct villain_instance instance;
	char name[128];

	for (unsigned int i = 0; !is_found(suite) && villain_find(i, &instance); i++) {
		if (!suite_wants(&instance, patterns, n))
			continue;
		suite_name(&instance, name, sizeof(name));
		if (only_list)
			(void) printf("%s: %s\n", name, instance.row->what);
		else
			run_case(suite, &instance);
	}
}

/* ---- the suite ---- */

static pid_t start_peers(const char *path)
{
	int ready[2];
	pid_t pid;
	char byte;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void) fd_close(ready[0]);
		peers_serve(path, ready[1]);
		_exit(1);
	}
	(void) fd_close(ready[1]);
	(void) !read(ready[0], &byte, 1); /* the end, when they listen */
	(void) fd_close(ready[0]);
	return pid;
}

static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void) setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static bool suite_init(struct suite *suite)
{
	sigset_t set;

	(void) signal(SIGPIPE, SIG_IGN);
	(void) sigemptyset(&set);
	(void) sigaddset(&set, SIGTERM); /* the double takes it from its loop, as the VMM does */
	(void) sigprocmask(SIG_BLOCK, &set, NULL);
	raise_descriptor_limit();
	log_init("villain", LOG_LEVEL_ERROR);
	(void) snprintf(suite->directory, sizeof(suite->directory), "/tmp/villain-XXXXXX");
	if (!mkdtemp(suite->directory))
		return false;
	(void) snprintf(suite->control_path, sizeof(suite->control_path), "%s/control", suite->directory);
	(void) snprintf(suite->vsock_path, sizeof(suite->vsock_path), "%s/v", suite->directory);
	suite->disk_fd = disk_make();
	return suite->disk_fd >= 0;
}

#ifdef CROFT_PLANT
/* Each fault, and the device that has it. */
static const struct {
	enum plant plant;
	const char *what, *device;
} plants[] = {
	{ PLANT_RING_LOOP, "a chain longer than its table", "blk/" },
	{ PLANT_MAP_LENGTH, "only a buffer's first byte is checked", "rng/" },
	{ PLANT_STATUS_SKIPPED, "any status after any other", "rng/" },
	{ PLANT_RESET_KEEPS_QUEUES, "queues survive a reset", "blk/" },
	{ PLANT_DISK_END, "a disk's end that wraps", "blk/" },
	{ PLANT_READ_ONLY_WRITTEN, "a read-only disk is written", "blk-ro/" },
	{ PLANT_VSOCK_CID, "packets in another's name", "vsock/" },
	{ PLANT_USED_UNWRITTEN, "bytes used that were not written", "blk/" },
	{ PLANT_MEMORY_KEPT, "memory that grows with each request", "rng/" },
	{ PLANT_LOOP_STUCK, "a control socket that does not answer", "rng/identity" },
	{ PLANT_USED_TOO_LONG, "more bytes used than there is room for", "balloon/" },
};

static int run_planted(struct suite *suite)
{
	unsigned int n = sizeof(plants) / sizeof(plants[0]), found = 0;

	_Static_assert(sizeof(plants) / sizeof(plants[0]) == PLANT_HARDWARE_MAX_ - PLANT_MAX_ - 1, "each has a row");
	suite->stop_at_first = true;
	for (unsigned int i = 0; i < n; i++) {
		char *pattern = strdup(plants[i].device);

		plant_chosen = plants[i].plant;
		memset(&suite->totals, 0, sizeof(suite->totals));
		run_all(suite, &pattern, 1, false);
		free(pattern);
		(void) printf("%-42s %s after %u cases\n", plants[i].what, is_found(suite) ? "found" : "NOT FOUND",
			suite->totals.cases);
		found += is_found(suite);
	}
	(void) printf("planted %u, found %u\n", n, found);
	return found == n ? 0 : 1;
}
#else
static int run_planted(struct suite *suite)
{
	(void) suite;
	(void) fprintf(stderr, "villain: this is not villain-planted\n");
	return 2;
}
#endif

int main(int argc, char **argv)
{
	static const struct option options[] = { { "list", no_argument, NULL, 'l' }, { "planted", no_argument, NULL, 'p' },
		{ "guest", no_argument, NULL, 'g' }, { "batch", required_argument, NULL, 'b' },
		{ "every", required_argument, NULL, 'e' },
		{ NULL, 0, NULL, 0 } };
	struct suite suite = { .disk_fd = -1, .tap_fd = -1 };
	bool only_list = false, is_planted = false, in_guest = false;
	unsigned int batch = 64, every = 1;
	int option, status = 0;
	pid_t peers;

	while ((option = getopt_long(argc, argv, "v", options, NULL)) != -1)
		switch (option) {
		case 'l':
			only_list = true;
			break;
		case 'v':
			suite.is_verbose = true;
			break;
		case 'g':
			in_guest = true;
			break;
		case 'b':
			batch = (unsigned int) MAX(atoi(optarg), 1);
			break;
		case 'e':
			every = (unsigned int) MAX(atoi(optarg), 1);
			break;
		case 'p':
			is_planted = true;
			break;
		default:
			(void) fprintf(stderr, "villain: see the head of tests/villain/main.c\n");
			return 2;
		}
	if (only_list) {
		run_all(&suite, argv + optind, argc - optind, true);
		return 0;
	}
	if (!suite_init(&suite)) {
		(void) fprintf(stderr, "villain: %s\n", strerror(errno));
		return 1;
	}
	peers = start_peers(suite.vsock_path);
	if (is_planted)
		status = run_planted(&suite);
	else if (in_guest)
		status = real_run(&suite, argv + optind, argc - optind, batch, every);
	else
		run_all(&suite, argv + optind, argc - optind, false);
	if (peers > 0) {
		(void) kill(peers, SIGKILL);
		(void) waitpid(peers, NULL, 0);
	}
	(void) dir_remove(suite.directory);
	if (is_planted || status != 0)
		return status;
	(void) printf("cases %u, pass %u, reject %u, skip %u, fail %u, wedged %u\n", suite.totals.cases, suite.totals.pass,
		suite.totals.reject, suite.totals.skip, suite.totals.fail, suite.totals.wedged);
	return suite.totals.fail || suite.totals.wedged || suite.totals.cases == 0 ? 1 : 0;
}
