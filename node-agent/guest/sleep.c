/* SPDX-License-Identifier: Apache-2.0
 *
 * See sleep.h.
 */
#include "guest/sleep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "guest/boot.h"
#include "guest/net.h"
#include "guest/renew.h"
#include "guest/request.h"

#define GROUP "/sys/fs/cgroup/croft"
#define FREEZE_TRIES 1000 /* of 5 ms */
#define EVENTS_MAX 256

static int group_fd = -1, disk_fd = -1, random_fd = -1;
static bool has_new_network; /* its resolver is to be written when the disk is thawed */
static struct guest_network new_network;
static char new_hostname[HOST_NAME_MAX + 1]; /* "": it is who it was; likewise */

int sleep_init(int disk)
{
	int procs;

	disk_fd = disk;
	random_fd = open("/dev/random", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (mkdir(GROUP, 0755) < 0 && errno != EEXIST)
		log_error("cannot make the control group", "errno", strerrorname_np(errno));
	group_fd = open(GROUP, O_PATH | O_DIRECTORY | O_CLOEXEC);
	procs = group_fd < 0 ? -1 : openat(group_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (procs < 0 || random_fd < 0 || disk_fd < 0)
		log_error("this sandbox cannot be paused", "errno", strerrorname_np(errno));
	return procs;
}

static int failed(struct err *reterr, int r, const char *what)
{
	(void) err_set(reterr, FAIL_GUEST_FREEZE_FAILED, -r, "%s", what);
	return r;
}

static int group_write(const char *text)
{
	CLEANUP_FD int fd = openat(group_fd, "cgroup.freeze", O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool group_is_frozen(void)
{
	CLEANUP_FD int fd = openat(group_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	char text[EVENTS_MAX];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return false;
	text[n] = '\0';
	return strstr(text, "frozen 1") != NULL;
}

/* A process that hangs in the kernel never stands still. */
static int freeze_group(void)
{
	static const struct timespec pause = { .tv_nsec = 5000000 };
	int r = group_write("1");

	for (int i = 0; r == 0 && !group_is_frozen(); i++) {
		if (i == FREEZE_TRIES)
			r = -ETIMEDOUT;
		(void) nanosleep(&pause, NULL);
	}
	return r;
}

int sleep_freeze(struct err *reterr)
{
	int r = freeze_group();

	if (r < 0) {
		(void) group_write("0");
		return failed(reterr, r, "the processes do not stand still");
	}
	if (ioctl(disk_fd, FIFREEZE, 0) == 0 || errno == EBUSY)
		return 0;
	r = -errno;
	(void) group_write("0");
	return failed(reterr, r, "the disk does not stand still");
}

static int add_entropy(const struct guest_wake *wake)
{
	int pool[2 + ENTROPY_MAX / sizeof(int)] = { (int) (8 * wake->entropy_size), (int) wake->entropy_size };
	int r;

	/* struct rand_pool_info, which ends in an array without a length */
	memcpy(pool + 2, wake->entropy, wake->entropy_size);
	/* Added first: a new seed without it would be what every other VM of this snapshot draws. */
	r = ioctl(random_fd, RNDADDENTROPY, pool) < 0 || ioctl(random_fd, RNDRESEEDCRNG) < 0 ? -errno : 0;
	explicit_bzero(pool, sizeof(pool));
	return r;
}

int sleep_wake(const struct guest_wake *wake, struct err *reterr)
{
	int r = add_entropy(wake);

	if (r < 0)
		return failed(reterr, r, "the random generator takes no entropy");
	if (wake->realtime_usec > 0)
		boot_set_clock(wake->realtime_usec);
	(void) snprintf(new_hostname, sizeof(new_hostname), "%s", wake->hostname);
	if (!wake->network)
		return 0;
	has_new_network = true;
	new_network = *wake->network;
	return net_replace(wake->network, reterr);
}

int sleep_thaw(int64_t realtime_usec, struct err *reterr)
{
	int r;

	if (ioctl(disk_fd, FITHAW, 0) < 0 && errno != EINVAL) /* EINVAL: it was not frozen */
		return failed(reterr, -errno, "the disk does not go on");
	if (realtime_usec > 0)
		boot_set_clock(realtime_usec);
	/* before the processes, which would see who it was; whoever asked asks again */
	r = *new_hostname ? renew_identity(new_hostname) : 0;
	if (r < 0)
		return failed(reterr, r, "the identity stays another sandbox's");
	new_hostname[0] = '\0';
	r = group_write("0");
	if (r < 0)
		return failed(reterr, r, "the processes do not go on");
	/* behind the processes: one of them may serve the file system that it lies on */
	if (has_new_network)
		net_set_resolver(&new_network);
	has_new_network = false;
	return 0;
}
