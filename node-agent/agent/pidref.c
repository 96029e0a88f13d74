/* SPDX-License-Identifier: Apache-2.0
 *
 * See pidref.h.
 */
#include "agent/pidref.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define STAT_MAX 4096

void pidref_boot_id(char ret[static HOST_BOOT_ID_SIZE])
{
	CLEANUP_FREE char *text = NULL;
	size_t size;

	ret[0] = '\0';
	if (file_read("/proc/sys/kernel/random/boot_id", 256, &text, &size) < 0 ||
		size < HOST_BOOT_ID_SIZE - 1)
		return;
	memcpy(ret, text, HOST_BOOT_ID_SIZE - 1);
	ret[HOST_BOOT_ID_SIZE - 1] = '\0';
}

int pidref_start_ticks(pid_t pid, uint64_t *ret)
{
	CLEANUP_FREE char *text = NULL;
	char path[64], *at;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	r = file_read(path, STAT_MAX, &text, NULL);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	/* the second field is the program's name in parentheses, which may hold spaces and
	 * parentheses */
	at = strrchr(text, ')');
	if (!at || at[1] != ' ')
		return -EIO;
	at += 2;
	if (*at == 'Z' || *at == 'X')
		return -ESRCH;
	for (int field = 3; field < 22; field++) {
		at = strchr(at, ' ');
		if (!at)
			return -EIO;
		at++;
	}
	*ret = strtoull(at, NULL, 10);
	return 0;
}

int pidref_open(pid_t pid, uint64_t start_ticks)
{
	CLEANUP_FD int fd = -1;
	uint64_t ticks;
	int r;

	if (pid <= 0)
		return -ESRCH;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -errno;
	/* read after the pidfd holds the process: what is read now is its own start */
	r = pidref_start_ticks(pid, &ticks);
	if (r < 0)
		return r;
	if (ticks != start_ticks)
		return -ESRCH;
	return TAKE_FD(fd);
}

int pidref_open_child(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

int pidref_signal(int pid_fd, int signal)
{
	return syscall(SYS_pidfd_send_signal, pid_fd, signal, NULL, 0) < 0 ? -errno : 0;
}
