/* SPDX-License-Identifier: Apache-2.0
 *
 * The first process of the guest in tests/e2e/vmm-boot: loads the modules listed in /modules, writes the boot
 * marker, checks each device and then answers on vsock. Each result is a line "probe: NAME ok" or "probe: NAME
 * FAILED ..." on the console. What it does at the end is the kernel command line's probe.end=...: poweroff (the
 * default), reset, panic, serve (until told by a connection to port 9).
 *
 * vsock ports: 7 echoes, 8 takes a number of bytes ("N\n") and sends as many of a known pattern, 9 ends the guest,
 * 10 swallows all and answers with the count when the peer has shut down its sending side, 11 takes a number of MiB,
 * touches and frees as many and repeats the number, 12 answers with /proc/interrupts, 13 takes a number of MiB, writes
 * as many to the second disk, reads them back and answers with how many blocks differ, 14 answers with the clocks in ns
 * (monotonic, real time) and the boot id, 16 with a number that a process counts up from the first question on, 15 takes a number of ms, sleeps and answers with how many ns that took by the monotonic clock.
 * 17 takes a number of connections, makes as many to CID 2, port 5, holds what it gets as long as descriptors last, and
 * answers with how many were accepted and how many refused, 18 takes a number of MiB and writes as many to the console.
 * 7, 8 and 10 also on TCP where probe.ip=... gives eth0 an address; probe.host=... is then pinged.
 */
#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netpacket/packet.h>
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
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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

static char cmdline[4096];

/* The value behind `key` on the command line, "" when it is not there. */
static const char *option(const char *key)
{
	static char value[64];
	const char *at = strstr(cmdline, key);
	size_t n = at ? strcspn(at + strlen(key), " \n") : 0;

	(void) snprintf(value, sizeof(value), "%.*s", (int) n, at ? at + strlen(key) : "");
	return value;
}

static struct ifreq eth0(void)
{
	struct ifreq ifr = { .ifr_flags = 0 };

	(void) strcpy(ifr.ifr_name, "eth0");
	return ifr;
}

static void set_address(int fd, unsigned long what, const char *text)
{
	struct ifreq ifr = eth0();
	struct sockaddr_in addr = { .sin_family = AF_INET };

	(void) inet_pton(AF_INET, text, &addr.sin_addr);
	(void) memcpy(&ifr.ifr_addr, &addr, sizeof(addr));
	if (ioctl(fd, what, &ifr) < 0)
		say("net-address", false, "%s: %s", text, strerror(errno));
}

static uint16_t checksum(const void *data, size_t n)
{
	const uint16_t *at = data;
	uint32_t sum = 0;

	for (size_t i = 0; i < n / 2; i++)
		sum += at[i];
	sum = (sum >> 16) + (sum & 0xffff);
	return (uint16_t) ~(sum + (sum >> 16));
}

/* Five echo requests of 1400 bytes, each answered with the same bytes. */
static void check_ping(const char *host)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct timeval wait = { .tv_sec = 10 };
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), good = 0;

	(void) inet_pton(AF_INET, host, &to.sin_addr);
	(void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	for (uint16_t i = 0; i < 5; i++) {
		struct {
			struct icmphdr head;
			uint8_t data[1400];
		} out = { .head = { .type = ICMP_ECHO, .un.echo = { .id = 77, .sequence = i } } };
		uint8_t in[2000];
		ssize_t n;

		(void) memset(out.data, 'a' + i, sizeof(out.data));
		out.head.checksum = checksum(&out, sizeof(out));
		if (sendto(fd, &out, sizeof(out), 0, (struct sockaddr *) &to, sizeof(to)) < 0)
			break;
		while ((n = recv(fd, in, sizeof(in), 0)) > 0) /* behind an IP header of 20 bytes */
			if (n == 20 + (ssize_t) sizeof(out) && in[20] == ICMP_ECHOREPLY &&
				!memcmp(in + 28, out.data, sizeof(out.data))) {
				good++;
				break;
			}
	}
	say("net-ping", good == 5, "%d of 5", good);
	(void) close(fd);
}

/* Three frames with another's source address. */
static void forge(void)
{
	uint8_t frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 9, 99, 0x88, 0xb5 };
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int) if_nametoindex("eth0") };
	int fd = socket(AF_PACKET, SOCK_RAW, htons(0x88b5)), sent = 0;

	for (int i = 0; i < 3; i++)
		sent += sendto(fd, frame, sizeof(frame), 0, (struct sockaddr *) &to, sizeof(to)) == sizeof(frame);
	say("net-forge", sent == 3, "%d sent: %s", sent, sent == 3 ? "-" : strerror(errno));
	(void) close(fd);
}

static void check_net(const char *ip)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq ifr = eth0();
	const uint8_t *mac = (const uint8_t *) ifr.ifr_hwaddr.sa_data;

	if (ioctl(fd, SIOCGIFHWADDR, &ifr) < 0) {
		say("net-mac", false, "%s", strerror(errno));
		return;
	}
	say("net-mac", true, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
	set_address(fd, SIOCSIFADDR, ip);
	set_address(fd, SIOCSIFNETMASK, "255.255.255.0");
	ifr = eth0();
	(void) ioctl(fd, SIOCGIFFLAGS, &ifr);
	ifr.ifr_flags |= IFF_UP;
	(void) ioctl(fd, SIOCSIFFLAGS, &ifr);
	(void) close(fd);
	check_ping(option("probe.host="));
	forge();
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

/* A number that the peer sends as a line. */
static uint64_t read_number(int fd)
{
	char line[32] = "";

	for (size_t i = 0; i < sizeof(line) - 1 && read(fd, &line[i], 1) == 1 && line[i] != '\n'; i++)
		;
	return strtoull(line, NULL, 10);
}

/* Byte i of the stream is a function of i alone, so that a lost or doubled block shows. */
static void serve_source(int fd)
{
	static unsigned char buf[65536];
	uint64_t left = read_number(fd), at = 0;

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

static void serve_touch(int fd)
{
	uint64_t mib = read_number(fd);
	size_t size = (size_t) mib << 20;
	volatile uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char line[32];

	for (size_t i = 0; at != MAP_FAILED && i < size; i += 4096)
		at[i] = 1;
	(void) !write(fd, line, (size_t) snprintf(line, sizeof(line), "%llu\n", at == MAP_FAILED ? 0ULL : (unsigned long long) mib));
}

static void serve_interrupts(int fd)
{
	char buf[4096];
	int file = open("/proc/interrupts", O_RDONLY);
	ssize_t n;

	(void) read_number(fd);
	while ((n = read(file, buf, sizeof(buf))) > 0)
		(void) !write(fd, buf, (size_t) n);
}

#define DISK_BLOCK 65536u

static void serve_disk(int fd)
{
	uint64_t n_blocks = read_number(fd) * (1 << 20) / DISK_BLOCK, wrong = 0;
	int disk = open("/dev/vdb", O_RDWR | O_DIRECT);
	uint64_t *block = aligned_alloc(4096, DISK_BLOCK);
	char line[32];

	for (int pass = 0; pass < 2 && block; pass++) {
		for (uint64_t i = 0; i < n_blocks; i++) {
			off_t at = (off_t) (DISK_BLOCK * (1 + i % 100)); /* behind what check_disks() wrote */

			for (size_t j = 0; pass == 0 && j < DISK_BLOCK / 8; j++)
				block[j] = i % 100 << 32 | j;
			if (pass == 0 ? pwrite(disk, block, DISK_BLOCK, at) != DISK_BLOCK
				      : pread(disk, block, DISK_BLOCK, at) != DISK_BLOCK)
				wrong++;
			for (size_t j = 0; j < DISK_BLOCK / 8; j++)
				wrong += block[j] != (i % 100 << 32 | j);
		}
		wrong += fsync(disk) != 0;
	}
	(void) !write(fd, line, (size_t) snprintf(line, sizeof(line), "%llu\n", block ? (unsigned long long) wrong : ~0ULL));
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts = { 0 };

	(void) clock_gettime(clock, &ts);
	return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}

static void serve_clocks(int fd)
{
	char line[128], boot_id[64] = "";
	int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY);

	(void) read_number(fd);
	(void) !read(file, boot_id, 36);
	(void) !write(fd, line, (size_t) snprintf(line, sizeof(line), "%llu %llu %s\n",
		(unsigned long long) clock_ns(CLOCK_MONOTONIC), (unsigned long long) clock_ns(CLOCK_REALTIME), boot_id));
}

static volatile uint64_t *counter; /* shared by all processes; made before the first */

static void serve_counter(int fd)
{
	char line[32];

	(void) read_number(fd);
	if (counter[1]++ == 0 && fork() == 0) {
		(void) close(fd);
		for (;; counter[0]++)
			(void) usleep(10000);
	}
	(void) !write(fd, line, (size_t) snprintf(line, sizeof(line), "%llu\n", (unsigned long long) counter[0]));
}

#define HELD_PAGES 4096u
#define HELD_WORDS 512u

static uint64_t *held; /* as the counter: shared by all processes */

static uint64_t held_word(uint64_t page, uint64_t version, uint64_t word)
{
	return (page << 40 | version << 16 | word) * 0x9e3779b97f4a7c15;
}

/* 0: looks at every page, and says how many are wrong; n: writes n of them anew. */
static void serve_held(int fd)
{
	static unsigned int dice = 1;
	uint64_t n = read_number(fd), wrong = 0;
	char line[32];

	for (uint64_t i = 0; i < n; i++) {
		uint64_t page = (uint64_t) rand_r(&dice) % HELD_PAGES, *at = held + page * HELD_WORDS, version = at[0] + 1;

		at[0] = version;
		for (uint64_t word = 1; word < HELD_WORDS; word++)
			at[word] = held_word(page, version, word);
	}
	for (uint64_t page = 0; n == 0 && page < HELD_PAGES; page++) {
		const uint64_t *at = held + page * HELD_WORDS;

		for (uint64_t word = 1; at[0] != 0 && word < HELD_WORDS; word++)
			if (at[word] != held_word(page, at[0], word)) {
				wrong++;
				break;
			}
	}
	(void) !write(fd, line, (size_t) snprintf(line, sizeof(line), "%llu\n", (unsigned long long) wrong));
}

/* From now on a byte to the console every 5 ms. */
static void serve_ticks(int fd)
{
	(void) read_number(fd);
	(void) !write(fd, "0\n", 2);
	(void) close(fd);
	fd = open("/dev/console", O_WRONLY);
	while (write(fd, ".", 1) == 1)
		(void) usleep(5000);
}

static void serve_sleep(int fd)
{
	uint64_t ms = read_number(fd), began = clock_ns(CLOCK_MONOTONIC);
	struct timespec ts = { .tv_sec = (time_t) (ms / 1000), .tv_nsec = (long) (ms % 1000 * 1000000) };
	char line[32];

	(void) nanosleep(&ts, NULL);
	(void) !write(fd, line, (size_t) snprintf(line, sizeof(line), "%llu\n",
		(unsigned long long) (clock_ns(CLOCK_MONOTONIC) - began)));
}

static void serve_connects(int fd)
{
	struct sockaddr_vm to = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = 5 };
	struct rlimit limit = { 2000, 2000 };
	uint64_t n = read_number(fd), accepted = 0, refused = 0;
	char line[64];

	(void) setrlimit(RLIMIT_NOFILE, &limit);
	for (uint64_t i = 0; i < n; i++) {
		int one = vsock_socket();

		if (connect(one, (struct sockaddr *) &to, sizeof(to)) < 0)
			refused++;
		else if (++accepted < 1900)
			continue; /* held */
		(void) close(one);
	}
	(void) !write(fd, line, (size_t) snprintf(line, sizeof(line), "%llu %llu\n", (unsigned long long) accepted,
		(unsigned long long) refused));
}

static void serve_console(int fd)
{
	static char block[65536];
	uint64_t n = read_number(fd) * ((1 << 20) / sizeof(block));
	int console = open("/dev/console", O_WRONLY);

	(void) memset(block, 'x', sizeof(block));
	for (uint64_t i = 0; i < n; i++)
		for (size_t done = 0; done < sizeof(block);) {
			ssize_t w = write(console, block + done, sizeof(block) - done);

			if (w <= 0)
				return;
			done += (size_t) w;
		}
	(void) !write(fd, "done\n", 5);
}

static const struct {
	unsigned int port;
	void (*serve)(int fd);
	bool on_tcp;
} services[] = { { 7, serve_echo, true }, { 8, serve_source, true }, { 9, NULL, false }, { 10, serve_sink, true },
	{ 11, serve_touch, false }, { 12, serve_interrupts, false }, { 13, serve_disk, false }, { 14, serve_clocks, false },
	{ 15, serve_sleep, false }, { 16, serve_counter, false },
	{ 17, serve_connects, false }, { 18, serve_console, false }, { 19, serve_held, false },
	{ 20, serve_ticks, false } };
#define N_SERVICES (sizeof(services) / sizeof(services[0]))

static int listen_on(unsigned int port, bool is_tcp)
{
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = port };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t) port) };
	int fd = is_tcp ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : vsock_socket();

	if (bind(fd, is_tcp ? (struct sockaddr *) &in : (struct sockaddr *) &vm, is_tcp ? sizeof(in) : sizeof(vm)) < 0 ||
		listen(fd, 64) < 0)
		say("listen", false, "port %u: %s", port, strerror(errno));
	return fd;
}

static void serve(void)
{
	struct pollfd fds[2 * N_SERVICES];

	counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	held = mmap(NULL, HELD_PAGES * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < N_SERVICES; i++) {
		bool on_tcp = services[i].on_tcp && *option("probe.ip=");

		fds[i] = (struct pollfd) { .fd = listen_on(services[i].port, false), .events = POLLIN };
		fds[N_SERVICES + i] = (struct pollfd) { .fd = on_tcp ? listen_on(services[i].port, true) : -1, .events = POLLIN };
	}
	say("serve", true, "-");
	for (;;) {
		if (poll(fds, 2 * N_SERVICES, -1) < 0)
			continue;
		for (size_t i = 0; i < 2 * N_SERVICES; i++) {
			int fd;

			if (!(fds[i].revents & POLLIN))
				continue;
			fd = accept(fds[i].fd, NULL, NULL);
			if (!services[i % N_SERVICES].serve)
				return;
			if (fork() == 0) {
				services[i % N_SERVICES].serve(fd);
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
		if (*option("probe.ip="))
			check_net(option("probe.ip="));
	}
	if (!strncmp(how, "serve", 5))
		serve();
	sync();
	end(how);
	for (;;)
		(void) pause();
}
