/* SPDX-License-Identifier: Apache-2.0
 *
 * See world.h.
 */
#include "world.h"

#include <arpa/inet.h>
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "network/link.h"
#include "network/netns.h"

#define FRAME_MAX 70000
#define CLIENTS_MAX 1500

static const uint16_t ports[] = { 53, 80, 443, 853, 5000 };

/* ---- faults: these stand before libc's for libnl, libmnl and libnftables too ---- */

/* Mutable file-scope state: a function that replaces libc's has nowhere else to keep it. */
static unsigned int netlink_sent, netlink_fail_at, unmount_fails;
static int netlink_errno;

static bool fails_now(int fd)
{
	int domain = 0;
	socklen_t size = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_NETLINK)
		return false;
	return ++netlink_sent == netlink_fail_at || netlink_fail_at == WORLD_EVERY;
}

/* What the libraries call instead of libc's: seen by them in a build that hides its symbols too. */
#define OURS __attribute__((visibility("default")))

OURS ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int);

	if (fails_now(fd)) {
		errno = netlink_errno;
		return -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "sendmsg");
	return next(fd, message, flags);
}

OURS ssize_t sendto(int fd, const void *data, size_t size, int flags, __CONST_SOCKADDR_ARG to, socklen_t to_size)
{
	ssize_t (*next)(int, const void *, size_t, int, __CONST_SOCKADDR_ARG, socklen_t);

	if (fails_now(fd)) {
		errno = netlink_errno;
		return -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "sendto");
	return next(fd, data, size, flags, to, to_size);
}

OURS int umount2(const char *path, int flags)
{
	int (*next)(const char *, int);

	if (unmount_fails > 0) {
		unmount_fails--;
		errno = EBUSY;
		return -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "umount2");
	return next(path, flags);
}

unsigned int world_fail_netlink(unsigned int n, int err_no)
{
	unsigned int sent = netlink_sent;

	netlink_sent = 0;
	netlink_fail_at = n;
	netlink_errno = err_no;
	return sent;
}

void world_fail_unmount(unsigned int times)
{
	unmount_fails = times;
}

/* ---- the internet ---- */

void world_run(const char *fmt, ...)
{
	char command[512];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	ck_assert_msg(system(command) == 0, "%s", command);
}

static int listen_any(int type, uint16_t port)
{
	int one = 1, fd = socket(AF_INET, type, 0);
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* a UDP answer comes from the address that was asked */
	if (bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0 || (type == SOCK_STREAM && listen(fd, 4096) < 0))
		_exit(1); /* ends the process: the server's child */
	return fd;
}

static void answer_udp(int fd)
{
	char data[2048], control[256];
	struct sockaddr_in from;
	struct iovec vector = { data, sizeof(data) };
	struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &vector, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &message, 0);

	if (n < 0)
		return;
	vector.iov_len = (size_t)n;
	/* IP_PKTINFO as it came: the same source */
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
			((struct in_pktinfo *)(void *)CMSG_DATA(c))->ipi_ifindex = 0;
	(void)sendmsg(fd, &message, 0);
}

/* false: it is over. A half-closed client still gets 10 MB when it asked with 'S'. */
static bool answer_tcp(int fd)
{
	static char block[65536];
	ssize_t n = recv(fd, block, sizeof(block), 0);

	if (n <= 0)
		return false;
	if (block[0] != 'S')
		return send(fd, block, (size_t)n, MSG_NOSIGNAL) == n;
	while (recv(fd, block, sizeof(block), 0) > 0) /* until the client has shut its side */
		;
	for (size_t sent = 0; sent < 10 << 20; sent += (size_t)n) {
		n = send(fd, block, sizeof(block), MSG_NOSIGNAL);
		if (n <= 0)
			return false;
	}
	return false;
}

static void serve(void)
{
	static struct pollfd fds[CLIENTS_MAX];
	nfds_t n = 0, fixed;
	int one = 1;

	for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
		fds[n++] = (struct pollfd){ listen_any(SOCK_STREAM, ports[i]), POLLIN, 0 };
		fds[n] = (struct pollfd){ listen_any(SOCK_DGRAM, ports[i]), POLLIN, 0 };
		(void)setsockopt(fds[n++].fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one));
	}
	fixed = n;
	for (;;) {
		if (poll(fds, n, -1) < 0)
			continue;
		for (nfds_t i = n; i-- > fixed;)
			if (fds[i].revents && !answer_tcp(fds[i].fd)) {
				(void)close(fds[i].fd);
				fds[i] = fds[--n];
			}
		for (nfds_t i = 0; i < fixed; i++) {
			if (!fds[i].revents)
				continue;
			if (i % 2)
				answer_udp(fds[i].fd);
			else if (n < CLIENTS_MAX)
				fds[n++] = (struct pollfd){ accept(fds[i].fd, NULL, NULL), POLLIN, 0 };
		}
	}
}

static pid_t start_server(int netns)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (netns >= 0 && setns(netns, CLONE_NEWNET) < 0)
		_exit(1); /* ends the process: the server's child */
	serve();
	_exit(0); /* ends the process: the server's child */
}

static void make_internet(struct world *world)
{
	char dir[80];
	static const char *const addresses[] = { WORLD_PUBLIC, WORLD_OTHER, WORLD_PRIVATE, WORLD_METADATA, WORLD_AZURE,
		WORLD_SHARED };

	(void)snprintf(dir, sizeof(dir), "%s/outside", world->run);
	ck_assert_int_eq(netns_dir_make(dir), 0);
	ck_assert_int_eq(netns_make(dir, "internet"), 0);
	world->internet = netns_open(dir, "internet");
	ck_assert_int_ge(world->internet, 0);
	world_run("ip link set lo up && ip link add wan type veth peer name net0 &&"
		  " ip addr add " WORLD_HOST "/24 dev wan");
	world_run("ip link set net0 netns /proc/%d/fd/%d 2>/dev/null || ip link set net0 netns %s/internet", getpid(),
		world->internet, dir);
	world_run("ip link set wan up && ip route add default via 203.0.113.1");
	world_run("nsenter --net=%s/internet sh -c 'ip link set lo up; ip addr add 203.0.113.1/24 dev net0; ip link set net0 up'",
		dir);
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++)
		world_run("nsenter --net=%s/internet ip addr add %s/32 dev lo", dir, addresses[i]);
}

void world_make(struct world *world)
{
	ck_assert_msg(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0, "no namespaces: %s", strerror(errno));
	ck_assert_int_eq(mount("", "/", "none", MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("none", "/tmp", "tmpfs", 0, NULL), 0);
	(void)snprintf(world->run, sizeof(world->run), "/tmp/net");
	ck_assert_int_eq(mkdir(world->run, 0755), 0);
	make_internet(world);
	world->server = start_server(world->internet);
	world->host_server = start_server(-1);
	for (int i = 0; i < 100; i++) {
		int fd = world_connect(-1, WORLD_PUBLIC, 80, 1000);
		struct timespec pause = { .tv_nsec = 20000000 };

		if (fd >= 0) {
			(void)close(fd);
			fd = world_connect(-1, WORLD_HOST, 80, 1000);
		}
		if (fd >= 0) {
			(void)close(fd);
			return;
		}
		(void)nanosleep(&pause, NULL);
	}
	ck_abort_msg("the test's internet does not answer");
}

static void end(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

void world_free(struct world *world)
{
	end(world->server);
	end(world->host_server);
	(void)fd_close(world->internet);
}

struct net_host_config world_config(const struct world *world)
{
	struct net_host_config config = { .run = world->run,
		.limits = { .connections = 200, .packets_per_sec = 200000, .kib_per_sec = 1000000 } };

	ck_assert_int_eq(net_cidr_parse(WORLD_POOL, &config.pool, NULL), 0);
	return config;
}

struct net_host *world_host(const struct net_host_config *config)
{
	struct net_host *host = NULL;
	struct err err = ERR_NULL;

	ck_assert_msg(net_host_new(&host, config, &err) == 0, "%s %s", err.msg,
		err_field(&err, "nft") ? err_field(&err, "nft") : "");
	return host;
}

const struct net_host_slot *world_slot(struct net_host *host, const char *sandbox, const struct net_policy *policy)
{
	const struct net_host_slot *slot = NULL;
	struct err err = ERR_NULL;

	ck_assert_msg(net_host_take(host, sandbox, 1, policy, &slot, &err) == 0, "%s %s", err.msg,
		err_field(&err, "nft") ? err_field(&err, "nft") : "");
	return slot;
}

/* ---- a guest ---- */

static void pump(int a, int b)
{
	static uint8_t frame[FRAME_MAX];
	struct pollfd fds[2] = { { a, POLLIN, 0 }, { b, POLLIN, 0 } };

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		for (int i = 0; i < 2; i++) {
			ssize_t n = read(fds[i].fd, frame, sizeof(frame));

			if (n > 0)
				(void)!write(fds[!i].fd, frame, (size_t)n);
		}
	}
}

/* What croft-guest does inside: its address, its route. */
static int make_inside(const struct guest *guest)
{
	char mac[NET_MAC_TEXT], gateway[NET_ADDR_TEXT], address[NET_ADDR_TEXT];
	struct net_addr g = net_addr_v4(guest->slot.gateway), a = net_addr_v4(guest->slot.guest);
	int tap = net_tap_open("eth0", true);

	net_mac_format(guest->slot.guest_mac, mac);
	net_addr_format(&g, gateway);
	net_addr_format(&a, address);
	world_run("ip link set lo up; ip link set eth0 address %s up && ip addr add %s/30 dev eth0 &&"
		  " ip route add default via %s",
		mac, address, gateway);
	return tap;
}

void guest_make(struct guest *guest, struct net_host *host, const struct net_host_slot *slot)
{
	struct err err = ERR_NULL;
	int tap = net_slot_open_tap(net_host_netns_dir(host), slot->slot.name, &err);

	ck_assert_msg(tap >= 0, "%s", err.msg);
	guest->slot = slot->slot;
	guest_make_on(guest, tap);
}

void guest_make_on(struct guest *guest, int slot_tap)
{
	int home, tap;

	guest->tap = slot_tap;
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
	guest->netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	tap = make_inside(guest);
	netns_leave(&home);
	ck_assert_int_ge(tap, 0);
	guest->pump = fork();
	ck_assert_int_ge(guest->pump, 0);
	if (guest->pump == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		pump(guest->tap, tap);
	}
	(void)close(tap);
}

void guest_free(struct guest *guest)
{
	end(guest->pump);
	(void)fd_close(guest->tap);
	(void)fd_close(guest->netns);
}

static int in_netns(int netns, int type)
{
	CLEANUP_NETNS int home = -1;

	if (netns >= 0)
		ck_assert_int_eq(netns_enter(netns, &home), 0);
	return socket(AF_INET, type | SOCK_CLOEXEC, 0);
}

static struct sockaddr_in sockaddr_of(const char *address, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

	ck_assert_int_eq(inet_pton(AF_INET, address, &to.sin_addr), 1);
	return to;
}

static void set_timeout(int fd, int ms)
{
	struct timeval limit = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

int world_connect(int netns, const char *address, uint16_t port, int ms)
{
	struct sockaddr_in to = sockaddr_of(address, port);
	int fd = in_netns(netns, SOCK_STREAM), r;

	set_timeout(fd, ms);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return fd;
	r = errno == EINPROGRESS ? -ETIMEDOUT : -errno;
	(void)close(fd);
	return r;
}

int guest_connect(const struct guest *guest, const char *address, uint16_t port, int ms)
{
	return world_connect(guest->netns, address, port, ms);
}

int world_echo(int fd, int ms)
{
	char answer[8];

	set_timeout(fd, ms);
	if (send(fd, "hello\n", 6, MSG_NOSIGNAL) != 6)
		return -errno;
	if (recv(fd, answer, 6, MSG_WAITALL) != 6)
		return errno ? -errno : -EPIPE;
	return memcmp(answer, "hello\n", 6) ? -EBADMSG : 0;
}

int guest_echo_udp(const struct guest *guest, const char *address, uint16_t port, int ms)
{
	struct sockaddr_in to = sockaddr_of(address, port);
	int fd = in_netns(guest->netns, SOCK_DGRAM), r = 0;

	set_timeout(fd, ms);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		r = -errno;
	if (r == 0)
		r = world_echo(fd, ms);
	(void)close(fd);
	return r;
}

void guest_raw(const struct guest *guest, const void *frame, size_t size)
{
	uint8_t whole[2048] = { 0 }; /* behind a virtio_net_hdr that says nothing */

	ck_assert_uint_le(size + 10, sizeof(whole));
	memcpy(whole + 10, frame, size);
	ck_assert_int_eq(write(guest->tap, whole, size + 10), (ssize_t)(size + 10));
}
