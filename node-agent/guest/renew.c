/* SPDX-License-Identifier: Apache-2.0
 *
 * See renew.h.
 */
#include "guest/renew.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/rng.h"
#include "guest/boot.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_FILE "/run/croft-boot-id"
#define MACHINE_ID "/etc/machine-id"
#define TRIES 600 /* of 5 ms; a busy host is no reason */

static void failed(const char *what)
{
	log_error("a part of the identity stays another sandbox's", "what", what, "errno", strerrorname_np(errno));
}

/* What stands there may be a FIFO without a reader. */
static int write_new(const char *path, const char *text, int flags, mode_t mode)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, mode);

	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

static void renew_machine_id(struct rng *rng)
{
	char text[64];

	if (access(MACHINE_ID, F_OK) < 0)
		return;
	(void) snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64 "\n", rng_u64(rng), rng_u64(rng));
	if (write_new(MACHINE_ID, text, O_TRUNC, 0444) < 0)
		failed(MACHINE_ID);
}

/* A random UUID (version 4). */
static void renew_boot_id(struct rng *rng)
{
	uint64_t a = (rng_u64(rng) & ~UINT64_C(0xf000)) | 0x4000, b = (rng_u64(rng) & ~(UINT64_C(3) << 62)) | UINT64_C(1) << 63;
	char text[64];

	(void) snprintf(text, sizeof(text), "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64 "\n", a >> 32,
		a >> 16 & 0xffff, a & 0xffff, b >> 48, b & UINT64_C(0xffffffffffff));
	(void) umount2(BOOT_ID, MNT_DETACH); /* of the one before, where that began as a snapshot too */
	(void) unlink(BOOT_ID_FILE);
	if (write_new(BOOT_ID_FILE, text, O_CREAT | O_EXCL, 0444) < 0 ||
		mount(BOOT_ID_FILE, BOOT_ID, NULL, MS_BIND, NULL) < 0)
		failed(BOOT_ID);
	(void) unlink(BOOT_ID_FILE); /* the mount holds it */
}

static void renew(const char *hostname)
{
	struct rng rng = rng_system();

	renew_boot_id(&rng);
	renew_machine_id(&rng);
	boot_set_hostname(hostname);
}

/* In a process of its own: a path may lie on a file system that is served by one that stands still. */
void renew_identity(const char *hostname)
{
	static const struct timespec pause = { .tv_nsec = 5000000 };
	pid_t pid;

	if (sethostname(hostname, strlen(hostname)) < 0)
		failed("hostname");
	pid = fork();
	if (pid < 0) {
		failed("fork");
		return;
	}
	if (pid == 0) {
		renew(hostname);
		_exit(0); /* ends the process: the one that was forked for this alone */
	}
	for (int i = 0; waitpid(pid, NULL, WNOHANG) == 0; i++) {
		if (i == TRIES) {
			failed("time");
			return; /* it is reaped when it ends, like every orphan */
		}
		(void) nanosleep(&pause, NULL);
	}
}
