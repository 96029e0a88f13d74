/* SPDX-License-Identifier: Apache-2.0
 *
 * See reserve.h.
 */
#include "store/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"

static int path_of(const char *dir, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/reserve", dir);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int reserve_take(const char *dir, uint64_t size)
{
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];
	int r = path_of(dir, path);

	if (r < 0)
		return r;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (fallocate(fd, 0, 0, (off_t)size) < 0) {
		r = -errno;
		(void)unlink(path); /* a part of it helps nobody */
		return r;
	}
	return 0;
}

int reserve_take_again(const char *dir, uint64_t size)
{
	struct statvfs fs;

	if (statvfs(dir, &fs) < 0)
		return -errno;
	return (uint64_t)fs.f_bavail * fs.f_frsize < 2 * size ? -ENOSPC : reserve_take(dir, size);
}

void reserve_give(const char *dir)
{
	char path[PATH_MAX];

	if (path_of(dir, path) == 0)
		(void)unlink(path);
}
