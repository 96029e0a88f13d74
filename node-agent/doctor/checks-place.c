/* SPDX-License-Identifier: Apache-2.0
 *
 * See doctor.h: where the node's data, time and logs go, and whether its scheduler can be reached.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "doctor/doctor.h"

#define CONNECT_MS 5000
#define BLOCK 4096
#define EARLIEST_USEC (INT64_C(1704067200) * USEC_PER_SEC) /* 2024 */
#define LATEST_USEC (INT64_C(4102444800) * USEC_PER_SEC)   /* 2100 */

/* The directory, or the nearest above it that is there. */
static void existing(const char *path, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%s", path);
	while (access(ret, F_OK) < 0 && *ret) {
		char *slash = strrchr(ret, '/');

		if (!slash || slash == ret) {
			(void)snprintf(ret, PATH_MAX, "/");
			return;
		}
		*slash = '\0';
	}
}

enum reflink { REFLINK_YES, REFLINK_NO, REFLINK_UNKNOWN };

static enum reflink try_reflink(const char *dir)
{
	CLEANUP_FD int from = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), to = -1;
	static const char block[BLOCK];

	if (from < 0)
		return errno == EOPNOTSUPP ? REFLINK_NO : REFLINK_UNKNOWN;
	to = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (to < 0 || fd_pwrite_all(from, block, sizeof(block), 0) < 0)
		return REFLINK_UNKNOWN;
	return ioctl(to, FICLONE, from) == 0 ? REFLINK_YES : REFLINK_NO;
}

void doctor_check_disk(struct doctor *doctor)
{
	unsigned int floor = doctor->config->disk_floor_percent;
	unsigned long long free_percent;
	size_t before = doctor->n;
	char dir[PATH_MAX];
	struct statvfs fs;

	existing(doctor->config->state, dir);
	if (statvfs(dir, &fs) < 0 || fs.f_blocks == 0) {
		(void)doctor_say(doctor, DOCTOR_ERROR, "Mount a file system there.", "%.100s: how much is free cannot be read", dir);
		return;
	}
	free_percent = (unsigned long long)fs.f_bavail * 100 / fs.f_blocks;
	if (free_percent < floor)
		(void)doctor_say(doctor, DOCTOR_ERROR, "Free some, or put the node's state on a larger disk.",
			"%llu %% of the file system of %.100s are free; with less than %u %% nothing new starts", free_percent, dir, floor);
	switch (try_reflink(dir)) {
	case REFLINK_NO:
		(void)doctor_say(doctor, DOCTOR_INFO, "Put the node's state on XFS (reflink=1) or btrfs.",
			"the file system of %.100s shares no blocks: each fork copies its disk", dir);
		break;
	case REFLINK_UNKNOWN:
		(void)doctor_say(doctor, DOCTOR_INFO, "Run this as root or as the node's user.",
			"whether %.100s can share blocks was not tried: no file can be made there", dir);
		break;
	case REFLINK_YES:
		break;
	}
	if (doctor->n == before)
		(void)doctor_say(doctor, DOCTOR_OK, "", "%llu %% of %.100s are free, and blocks can be shared", free_percent, dir);
}

void doctor_check_clock(struct doctor *doctor)
{
	int64_t now = clock_realtime_usec();
	struct timex timex = { .modes = 0 };
	size_t before = doctor->n;
	char source[32];

	if (now < EARLIEST_USEC || now > LATEST_USEC)
		(void)doctor_say(doctor, DOCTOR_ERROR, "Set the clock, and run a time service.", "the clock shows no date of today");
	else if (adjtimex(&timex) == TIME_ERROR || (timex.status & STA_UNSYNC))
		(void)doctor_say(doctor, DOCTOR_WARNING, "Run systemd-timesyncd or chrony.",
			"no time service keeps the clock right: what happened when on this node is told wrongly");
	if (doctor_read(doctor, "/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof(source)) &&
		strcmp(source, "tsc") && strcmp(source, "kvm-clock") && strcmp(source, "hyperv_clocksource_tsc_page"))
		(void)doctor_say(doctor, DOCTOR_INFO, "See the kernel's log for why it left the time stamp counter.",
			"the kernel takes the time from %s, which is slow to read, and guests' counters drift apart", source);
	if (doctor->n == before)
		(void)doctor_say(doctor, DOCTOR_OK, "", "the clock is kept right");
}

void doctor_check_logs(struct doctor *doctor)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%.3000s/run/systemd/journal/socket", doctor->config->root);
	if (access(path, F_OK) == 0)
		(void)doctor_say(doctor, DOCTOR_OK, "", "logs go to the journal, which bounds itself");
	else
		(void)doctor_say(doctor, DOCTOR_INFO, "Let whoever starts croft-node bound what its standard error is written to.",
			"there is no journal");
}

/* ---- the scheduler ---- */

/* "tcp://HOST:PORT", HOST perhaps in brackets. */
static bool split_address(const char *address, char host[static 256], char port[static 8])
{
	static const char scheme[] = "tcp://";
	const char *begin = address + strlen(scheme), *colon;
	size_t n;

	if (strncmp(address, scheme, strlen(scheme)) && strncmp(address, "tls://", strlen(scheme)))
		return false;
	colon = strrchr(begin, ':');
	if (!colon || colon == begin || strlen(colon + 1) >= 8)
		return false;
	n = (size_t)(colon - begin);
	if (*begin == '[' && n > 2 && begin[n - 1] == ']') {
		begin++;
		n -= 2;
	}
	if (n >= 256)
		return false;
	memcpy(host, begin, n);
	host[n] = '\0';
	(void)snprintf(port, 8, "%s", colon + 1);
	return true;
}

/* 0 or -errno. */
static int connect_within(const struct addrinfo *to)
{
	CLEANUP_FD int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };
	socklen_t size = sizeof(int);
	int error = 0, r;

	if (fd < 0)
		return -errno;
	if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	r = poll(&poll_fd, 1, CONNECT_MS);
	if (r <= 0)
		return r == 0 ? -ETIMEDOUT : -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -errno;
	return -error;
}

static bool reach(struct doctor *doctor, const char *address)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	char host[256], port[8];
	int r;

	if (!split_address(address, host, port)) {
		(void)doctor_say(doctor, DOCTOR_WARNING, "Join again with a token of this scheduler.", "%.100s is no address of a scheduler", address);
		return false;
	}
	r = getaddrinfo(host, port, &hints, &list);
	if (r != 0) {
		(void)doctor_say(doctor, DOCTOR_WARNING, "Give this host a name server that knows it.", "%.100s has no address: %s", host, gai_strerror(r));
		return false;
	}
	r = -EADDRNOTAVAIL;
	for (const struct addrinfo *at = list; at && r < 0; at = at->ai_next)
		r = connect_within(at);
	freeaddrinfo(list);
	if (r < 0)
		(void)doctor_say(doctor, DOCTOR_WARNING, "Let this host open TCP connections to it: the node dials, nothing listens here.",
			"%.100s cannot be reached: %s", address, strerror(-r));
	else
		(void)doctor_say(doctor, DOCTOR_OK, "", "%.100s takes connections", address);
	return r == 0;
}

void doctor_check_scheduler(struct doctor *doctor)
{
	const struct doctor_config *config = doctor->config;
	bool any = false;

	if (config->n_schedulers == 0) {
		(void)doctor_say(doctor, DOCTOR_INFO, "croft-node join --token-file FILE", "this host is no node yet");
		return;
	}
	for (size_t i = 0; i < config->n_schedulers; i++)
		any |= reach(doctor, config->schedulers[i]);
	if (!any)
		(void)doctor_say(doctor, DOCTOR_ERROR, "See above; until then nothing new is placed here, and what runs goes on.",
			"none of its scheduler's addresses can be reached");
}
