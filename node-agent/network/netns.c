/* SPDX-License-Identifier: Apache-2.0
 *
 * See netns.h.
 */
#include "network/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#ifndef NSFS_MAGIC
#define NSFS_MAGIC 0x6e736673
#endif
#define OWN_NETNS "/proc/thread-self/ns/net"

int netns_dir_make(const char *dir)
{
	int r = dir_make(dir, 0700);

	if (r < 0)
		return r;
	/* EINVAL: not a mount point yet */
	if (mount("", dir, "none", MS_SHARED | MS_REC, NULL) == 0)
		return 0;
	if (errno != EINVAL || mount(dir, dir, "none", MS_BIND | MS_REC, NULL) < 0 ||
		mount("", dir, "none", MS_SHARED | MS_REC, NULL) < 0)
		return -errno;
	return 0;
}

int netns_dir_remove(const char *dir)
{
	/* EINVAL: no mount */
	return umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT ? -errno : 0;
}

static void path_of(const char *dir, const char *name, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.4000s/%.64s", dir, name);
}

int netns_make(const char *dir, const char *name)
{
	CLEANUP_NETNS int home = -1;
	char path[PATH_MAX];
	int fd, r = 0;

	path_of(dir, name, path);
	fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)fd_close(fd);
	home = open(OWN_NETNS, O_RDONLY | O_CLOEXEC);
	if (home < 0 || unshare(CLONE_NEWNET) < 0) {
		r = -errno;
		home = fd_close(home);
	} else if (mount(OWN_NETNS, path, "none", MS_BIND, NULL) < 0) {
		r = -errno;
	}
	if (r < 0)
		(void)unlink(path);
	return r;
}

int netns_remove(const char *dir, const char *name)
{
	char path[PATH_MAX];

	path_of(dir, name, path);
	/* EINVAL: nothing is mounted there; a crash between the steps */
	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT)
		return -errno;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

int netns_open(const char *dir, const char *name)
{
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];
	struct statfs fs;

	path_of(dir, name, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (fs.f_type != NSFS_MAGIC)
		return -EINVAL;
	return TAKE_FD(fd);
}

int netns_enter(int netns, int *home)
{
	*home = open(OWN_NETNS, O_RDONLY | O_CLOEXEC);
	if (*home < 0)
		return -errno;
	if (setns(netns, CLONE_NEWNET) < 0) {
		int r = -errno;

		*home = fd_close(*home);
		return r;
	}
	return 0;
}

void netns_leave(int *home)
{
	if (*home < 0)
		return;
	/* a namespace that we came from, and a capability that we used a moment ago */
	if (setns(*home, CLONE_NEWNET) < 0)
		log_error("cannot go back to the host's network namespace", "errno", strerrorname_np(errno));
	*home = fd_close(*home);
}
