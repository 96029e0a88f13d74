/* SPDX-License-Identifier: Apache-2.0
 *
 * See renew.h.
 */
#include "guest/renew.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rng.h"
#include "guest/boot.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_FILE "/run/croft-boot-id"
#define MACHINE_ID "/etc/machine-id"
#define MACHINE_ID_FILE "/run/croft-machine-id"
#define TRIES 600 /* of 5 ms; a busy host is no reason */

/* What stands there may be a FIFO without a reader. */
static int write_new(const char *path, const char *text, int flags, mode_t mode)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, mode);

	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* What a place shows from now on: a file with the text, mounted over it. What stands there is not changed. */
static int show(const char *place, const char *file, const char *text)
{
	int r;

	(void) umount2(place, MNT_DETACH); /* of the one before, where that began as a snapshot too */
	(void) unlink(file);
	r = write_new(file, text, O_CREAT | O_EXCL, 0444);
	if (r == 0 && mount(file, place, NULL, MS_BIND, NULL) < 0)
		r = -errno;
	(void) unlink(file); /* the mount holds it */
	return r;
}

/* Where it has one: written where it can be, else hidden, as on a root that is read-only. */
static int renew_machine_id(struct rng *rng)
{
	char text[64];
	struct stat st;

	if (stat(MACHINE_ID, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	(void) snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64 "\n", rng_u64(rng), rng_u64(rng));
	return write_new(MACHINE_ID, text, O_TRUNC, 0444) == 0 ? 0 : show(MACHINE_ID, MACHINE_ID_FILE, text);
}

/* A random UUID (version 4). */
static int renew_boot_id(struct rng *rng)
{
	uint64_t a = (rng_u64(rng) & ~UINT64_C(0xf000)) | 0x4000, b = (rng_u64(rng) & ~(UINT64_C(3) << 62)) | UINT64_C(1) << 63;
	char text[64];

	(void) snprintf(text, sizeof(text), "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64 "\n", a >> 32,
		a >> 16 & 0xffff, a & 0xffff, b >> 48, b & UINT64_C(0xffffffffffff));
	return show(BOOT_ID, BOOT_ID_FILE, text);
}

/* 0 or an errno, as an exit status. *is_other: what follows is of use, and no part of who it is. */
static int renew(const char *hostname, volatile bool *is_other)
{
	struct rng rng = rng_system();
	int r = renew_boot_id(&rng);

	if (r == 0)
		r = renew_machine_id(&rng);
	*is_other = r == 0;
	boot_set_hostname(hostname); /* and its files */
	return -r;
}

/* In a process of its own: a path may lie on a file system that is served by one that stands still. */
int renew_identity(const char *hostname)
{
	static const struct timespec pause = { .tv_nsec = 5000000 };
	volatile bool *is_other; /* shared with that process, which may outlive this call: a page each time, once or twice in a life */
	int status = 0;
	pid_t pid, ended;

	if (sethostname(hostname, strlen(hostname)) < 0)
		return -errno;
	is_other = mmap(NULL, sizeof(*is_other), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (is_other == MAP_FAILED)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		_exit(renew(hostname, is_other)); /* ends the process: the one that was forked for this alone */
	for (int i = 0; (ended = waitpid(pid, &status, WNOHANG)) == 0; i++) {
		if (i == TRIES)
			return *is_other ? 0 : -ETIMEDOUT; /* it is reaped when it ends, like every orphan */
		(void) nanosleep(&pause, NULL);
	}
	if (ended < 0 || !WIFEXITED(status))
		return -ECHILD;
	return -WEXITSTATUS(status);
}
