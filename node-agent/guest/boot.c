/* SPDX-License-Identifier: Apache-2.0
 *
 * See boot.h. The root is in root.c.
 */
#include "guest/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "guest/etc.h"

#define MARK_PORT 0x0680
#define MARK_BYTE 0x55
#define SYSLOG_ACTION_CONSOLE_LEVEL 8 /* no header has it for programs */
#define CONSOLE_LEVEL 4               /* errors and worse */
#define DEFAULT_HOSTNAME "sandbox"

void boot_mark(void)
{
	if (ioperm(MARK_PORT, 1, 1) == 0)
		outb(MARK_BYTE, MARK_PORT);
}

static void log_errno(const char *message, const char *what, int err_no)
{
	log_error(message, "what", what, "errno", strerrorname_np(err_no));
}

static void mount_early(const char *type, const char *path)
{
	(void) mkdir(path, 0755); /* exists in most initramfs */
	if (mount(type, path, type, MS_NOSUID, NULL) < 0 && errno != EBUSY)
		log_errno("cannot mount", path, errno);
}

/* The kernel boots with fewer messages on its console (hypervisor/boot/cmdline.c). From here on errors belong there, ours
 * too. More than that is what the node's owner asked for. */
static void raise_console_level(void)
{
	CLEANUP_FREE char *levels = NULL;

	if (file_read("/proc/sys/kernel/printk", 256, &levels, NULL) == 0 && atoi(levels) < CONSOLE_LEVEL)
		(void) klogctl(SYSLOG_ACTION_CONSOLE_LEVEL, NULL, CONSOLE_LEVEL); /* else the console says less */
}

void boot_early(void)
{
	int null, kmsg;

	mount_early("devtmpfs", "/dev");
	mount_early("proc", "/proc");
	mount_early("sysfs", "/sys");
	raise_console_level();
	/* Not /dev/console: without a UART the first write to it would block for ever. */
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	kmsg = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	for (int fd = 0; fd <= 2; fd++) {
		int from = fd > 0 && kmsg >= 0 ? kmsg : null;

		if (from >= 0 && from != fd)
			(void) dup2(from, fd); /* then there is nowhere to complain */
	}
	if (null > 2)
		(void) fd_close(null);
	if (kmsg > 2)
		(void) fd_close(kmsg);
}

void boot_protect(void)
{
	struct rlimit files = { .rlim_cur = 65536, .rlim_max = 1048576 };
	CLEANUP_FD int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "-1000", 5) < 0)
		log_errno("cannot protect itself", "oom_score_adj", errno);
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		log_errno("cannot raise a limit", "RLIMIT_NOFILE", errno);
	(void) umask(022);
}

static void load_module(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
		log_errno("cannot load a module", path, errno);
	(void) unlink(path); /* memory of the initramfs that nobody needs any more */
}

void boot_modules(void)
{
	CLEANUP_FREE char *order = NULL;
	char *rest, *line;
	int r = file_read("/modules.order", 65536, &order, NULL);

	if (r < 0) {
		if (r != -ENOENT)
			log_errno("cannot read", "/modules.order", -r);
		return; /* a kernel with everything built in */
	}
	for (line = strtok_r(order, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		load_module(line);
}

/* ---- identity ---- */

static void raise_loopback(void)
{
	CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = "lo" };

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0) {
		log_errno("cannot raise", "lo", errno);
		return;
	}
	request.ifr_flags = (short) (request.ifr_flags | IFF_UP);
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		log_errno("cannot raise", "lo", errno);
}

static void write_file(const char *path, const char *text, int flags)
{
	/* O_NONBLOCK: what stands there may be a FIFO without a reader. */
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0644);

	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		log_errno("cannot write", path, errno);
}

/* A file that is absent, or a link to nowhere. */
static void write_where_absent(const char *path, const char *text)
{
	if (access(path, F_OK) == 0)
		return;
	(void) unlink(path); /* the dangling link, where it is one */
	write_file(path, text, O_EXCL);
}

void boot_identity(void)
{
	raise_loopback();
	(void) mkdir("/etc", 0755);
	write_where_absent("/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
	write_where_absent("/etc/resolv.conf", "# no name server: this sandbox has no network\n");
	write_where_absent("/etc/hostname", DEFAULT_HOSTNAME "\n");
	if (sethostname(DEFAULT_HOSTNAME, strlen(DEFAULT_HOSTNAME)) < 0)
		log_errno("cannot set", "hostname", errno);
}

/* Does a line of /etc/hosts name it? */
static bool hosts_has(const char *hosts, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = hosts; (at = strstr(at, name)); at += n)
		if (at > hosts && strchr(" \t", at[-1]) && strchr(" \t\n", at[n]))
			return true;
	return false;
}

void boot_set_hostname(const char *hostname)
{
	CLEANUP_FREE char *hosts = NULL;
	char line[128];

	if (sethostname(hostname, strlen(hostname)) < 0)
		log_errno("cannot set", "hostname", errno);
	(void) snprintf(line, sizeof(line), "%s\n", hostname);
	write_file("/etc/hostname", line, O_TRUNC);
	if (etc_read("/etc/hosts", 1 << 20, &hosts) < 0 || hosts_has(hosts, hostname))
		return;
	(void) snprintf(line, sizeof(line), "127.0.1.1 %s\n", hostname);
	write_file("/etc/hosts", line, O_APPEND);
}

void boot_set_clock(int64_t realtime_usec)
{
	struct timespec time = { .tv_sec = realtime_usec / USEC_PER_SEC,
		.tv_nsec = realtime_usec % USEC_PER_SEC * 1000 };

	if (clock_settime(CLOCK_REALTIME, &time) < 0)
		log_errno("cannot set", "clock", errno);
}
