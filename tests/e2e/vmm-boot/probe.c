/* SPDX-License-Identifier: Apache-2.0
 *
 * The first process of the guest in tests/e2e/vmm-boot: loads the modules listed in /modules, writes the boot
 * marker, checks each device and then answers on vsock. Each result is a line "probe: NAME ok" or "probe: NAME
 * FAILED ..." on the console. What it does at the end is the kernel command line's probe.end=...: poweroff (the
 * default), reset, panic, serve (until told by a connection to port 9).
 *
 * vsock ports: 7 echoes, 8 takes a number of bytes ("N\n") and sends as many of a known pattern, 9 ends the guest,
 * 10 swallows all and answers with the count when the peer has shut down its sending side.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
/* must come behind sys/socket.h */
#include <linux/vm_sockets.h>

#define MARKER_PORT 0x680
#define MARKER_VALUE 0x55

static void say(const char *name, bool is_ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(const char *name, bool is_ok, const char *fmt, ...)
{
	va_list ap;

	printf("probe: %s %s ", name, is_ok ? "ok" : "FAILED");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

static void mount_all(void)
{
	(void) mkdir("/dev", 0755);
	(void) mkdir("/proc", 0755);
	(void) mkdir("/sys", 0755);
	(void) mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	(void) mount("proc", "/proc", "proc", 0, NULL);
	(void) mount("sysfs", "/sys", "sysfs", 0, NULL);
}

static void open_console(void)
{
	int fd = open("/dev/console", O_RDWR);

	if (fd < 0)
		return;
	(void) dup2(fd, 0);
	(void) dup2(fd, 1);
	(void) dup2(fd, 2);
}

static void load_modules(void)
{
	FILE *list = fopen("/modules", "r");
	char name[256];
	int n = 0, failed = 0;

	while (list && fgets(name, sizeof(name), list)) {
		int fd;

		name[strcspn(name, "\n")] = '\0';
		fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)) {
			say("modules", false, "%s: %s", name, strerror(errno));
			failed++;
		}
		n++;
		(void) close(fd);
	}
	if (list)
		(void) fclose(list);
	say("modules", n > 0 && failed == 0, "%d", n);
}

static void check_devices(void)
{
	char path[96], line[96];
	int n = 0;

	for (int i = 0; i < 24; i++) {
		(void) snprintf(path, sizeof(path), "/sys/bus/virtio/devices/virtio%d/status", i);
		FILE *file = fopen(path, "r");

		if (!file)
			continue;
		if (fgets(line, sizeof(line), file) && strtoul(line, NULL, 0) == 0xf)
			n++;
		(void) fclose(file);
	}
	say("devices", n > 0, "%d", n);
}

static void check_rng(void)
{
	unsigned char bytes[64] = { 0 };
	int fd = open("/dev/hwrng", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));
	int ones = 0;

	for (size_t i = 0; i < sizeof(bytes); i++)
		ones += __builtin_popcount(bytes[i]);
	say("rng", n > 0 && (n < 64 || (ones > 150 && ones < 360)), "%zd bytes", n);
}

/* vda is read-only and begins with a line of text; vdb is written and read back past the cache. */
static void check_disks(void)
{
	static unsigned char out[65536] __attribute__((aligned(4096))), in[65536] __attribute__((aligned(4096)));
	int ro = open("/dev/vda", O_RDONLY), rw;
	ssize_t n = ro < 0 ? -1 : read(ro, in, 4096);

	in[40] = '\0';
	say("blk-read", n == 4096 && !strncmp((char *) in, "croft test disk", 15), "%zd bytes, %.15s", n, (char *) in);
	rw = open("/dev/vda", O_RDWR);
	if (rw >= 0) {
		int r = (int) write(rw, out, 4096);

		r = r < 0 || fsync(rw) < 0;
		say("blk-readonly", r, "write went through");
	} else {
		say("blk-readonly", errno == EROFS || errno == EACCES || errno == EPERM, "%s", strerror(errno));
	}
	(void) getrandom(out, sizeof(out), 0);
	rw = open("/dev/vdb", O_RDWR | O_DIRECT);
	n = rw < 0 ? -1 : pwrite(rw, out, sizeof(out), 8192);
	if (n == (ssize_t) sizeof(out) && fsync(rw) == 0)
		n = pread(rw, in, sizeof(in), 8192);
	say("blk-write", n == (ssize_t) sizeof(in) && !memcmp(in, out, sizeof(in)), "%zd bytes", n);
	n = rw < 0 ? -1 : pwrite(rw, "from the guest", 14, 0);
	if (n < 0) { /* O_DIRECT wants whole sectors */
		(void) memset(out, 0, 512);
		(void) memcpy(out, "from the guest", 14);
		n = pwrite(rw, out, 512, 0);
	}
	say("blk-sector", n > 0 && fsync(rw) == 0, "%zd bytes", n);
	char serial[32] = "";
	int fd = open("/sys/block/vdb/serial", O_RDONLY);

	n = fd < 0 ? -1 : read(fd, serial, sizeof(serial) - 1);
	say("blk-serial", n > 0 && !strncmp(serial, "upper", 5), "%s", serial);
}

static int vsock_socket(void)
{
	return socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void check_vsock_out(void)
{
	struct sockaddr_vm addr = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = 1 };
	char line[64] = "";
	int fd = vsock_socket();
	ssize_t n = -1;

	if (fd >= 0 && connect(fd, (struct sockaddr *) &addr, sizeof(addr)) == 0 && write(fd, "hello host\n", 11) == 11)
		n = read(fd, line, sizeof(line) - 1);
	say("vsock-out", n > 0 && !strncmp(line, "hello guest", 11), "%s", n < 0 ? strerror(errno) : line);
	(void) close(fd);
	addr.svm_port = 4444; /* nobody listens there */
	fd = vsock_socket();
	n = connect(fd, (struct sockaddr *) &addr, sizeof(addr));
	say("vsock-refused", n < 0 && (errno == ECONNRESET || errno == ECONNREFUSED), "%s", strerror(errno));
	(void) close(fd);
}

static void serve_echo(int fd)
{
	static char buf[65536];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t done = 0, w; done < n; done += w)
			if ((w = write(fd, buf + done, (size_t) (n - done))) <= 0)
				return;
}

/* Byte i of the stream is a function of i alone, so that a lost or doubled block shows. */
static void serve_source(int fd)
{
	static unsigned char buf[65536];
	char line[32] = "";
	uint64_t left, at = 0;

	for (size_t i = 0; i < sizeof(line) - 1 && read(fd, &line[i], 1) == 1 && line[i] != '\n'; i++)
		;
	left = strtoull(line, NULL, 10);
	while (left > 0) {
		size_t want = left < sizeof(buf) ? (size_t) left : sizeof(buf);
		ssize_t n;

		for (size_t i = 0; i < want; i++) {
			uint64_t x = at + i;

			buf[i] = (unsigned char) (x ^ x >> 8 ^ x >> 16 ^ x >> 24);
		}
		n = write(fd, buf, want);
		if (n <= 0)
			return;
		left -= (uint64_t) n;
		at += (uint64_t) n;
	}
}

static void serve_sink(int fd)
{
	static unsigned char buf[65536];
	uint64_t total = 0, wrong = 0;
	char line[64];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			uint64_t x = total + (uint64_t) i;

			wrong += buf[i] != (unsigned char) (x ^ x >> 8 ^ x >> 16 ^ x >> 24);
		}
		total += (uint64_t) n;
	}
	n = snprintf(line, sizeof(line), "%llu %llu\n", (unsigned long long) total, (unsigned long long) wrong);
	(void) !write(fd, line, (size_t) n);
}

static void serve(void)
{
	static const unsigned int ports[] = { 7, 8, 9, 10 };
	struct pollfd fds[4];

	for (int i = 0; i < 4; i++) {
		struct sockaddr_vm addr = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = ports[i] };

		fds[i] = (struct pollfd) { .fd = vsock_socket(), .events = POLLIN };
		if (bind(fds[i].fd, (struct sockaddr *) &addr, sizeof(addr)) < 0 || listen(fds[i].fd, 64) < 0)
			say("vsock-listen", false, "port %u: %s", ports[i], strerror(errno));
	}
	say("serve", true, "-");
	for (;;) {
		if (poll(fds, 4, -1) < 0)
			continue;
		for (int i = 0; i < 4; i++) {
			int fd;

			if (!(fds[i].revents & POLLIN))
				continue;
			fd = accept(fds[i].fd, NULL, NULL);
			if (ports[i] == 9)
				return;
			if (fork() == 0) {
				if (ports[i] == 7)
					serve_echo(fd);
				else if (ports[i] == 8)
					serve_source(fd);
				else
					serve_sink(fd);
				_exit(0);
			}
			(void) close(fd);
		}
	}
}

static void end(const char *how)
{
	if (!strncmp(how, "reset", 5))
		(void) reboot(RB_AUTOBOOT);
	if (!strncmp(how, "panic", 5)) {
		int fd = open("/proc/sysrq-trigger", O_WRONLY);

		(void) !write(fd, "c", 1);
	}
	if (!strncmp(how, "die", 3)) /* PID 1 ends: a panic without SysRq */
		_exit(1);
	(void) reboot(RB_POWER_OFF);
}

int main(void)
{
	static char cmdline[4096];
	const char *how;
	int fd;

	(void) signal(SIGCHLD, SIG_IGN);
	(void) signal(SIGPIPE, SIG_IGN);
	mount_all();
	open_console();
	if (ioperm(MARKER_PORT, 1, 1) == 0)
		outb(MARKER_VALUE, MARKER_PORT);
	say("marker", true, "-");
	fd = open("/proc/cmdline", O_RDONLY);
	(void) !read(fd, cmdline, sizeof(cmdline) - 1);
	how = strstr(cmdline, "probe.end=");
	how = how ? how + 10 : "poweroff";
	load_modules();
	if (!strstr(cmdline, "probe.quick")) {
		say("cpus", true, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
		say("memory", true, "%ld MiB", sysconf(_SC_PHYS_PAGES) / 256);
		check_devices();
		check_rng();
		check_disks();
		check_vsock_out();
	}
	if (!strncmp(how, "serve", 5))
		serve();
	sync();
	end(how);
	for (;;)
		(void) pause();
}
