/* SPDX-License-Identifier: Apache-2.0
 *
 * See tap.h.
 */
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define NAME "villain"
#define NO_IPV6 "/proc/sys/net/ipv6/conf/default/disable_ipv6"
#define FRAME_MAX 65536

/* As root, or as an ordinary user who is root in a namespace of users. */
static bool own_network(void)
{
	return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

static int make(void)
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int quiet = open(NO_IPV6, O_WRONLY | O_CLOEXEC), fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	/* nobody but us is to send on it: no IPv6 means no frame of the kernel's own */
	if (quiet >= 0)
		(void) !write(quiet, "1", 1);
	(void) fd_close(quiet);
	(void) snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", NAME);
	if (fd >= 0 && ioctl(fd, TUNSETIFF, &ifr) < 0)
		fd = fd_close(fd);
	return fd;
}

/* A socket that sees the frames of the interface, which is up from here on. */
static int watch(void)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct ifreq ifr = { .ifr_flags = IFF_UP | IFF_NOARP | IFF_PROMISC };
	int s = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));

	(void) snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", NAME);
	address.sll_ifindex = (int) if_nametoindex(NAME);
	if (s >= 0 && (bind(s, (const struct sockaddr *) &address, sizeof(address)) < 0 || ioctl(s, SIOCSIFFLAGS, &ifr) < 0))
		s = fd_close(s);
	return s;
}

static void echo(int s)
{
	static uint8_t frame[FRAME_MAX];

	for (;;) {
		struct sockaddr_ll from = { .sll_family = AF_PACKET };
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(s, frame, sizeof(frame), 0, (struct sockaddr *) &from, &size);

		if (n < 0 && errno != EINTR && errno != ENETDOWN)
			return;
		if (n > 0 && from.sll_pkttype != PACKET_OUTGOING)
			(void) !send(s, frame, (size_t) n, 0); /* lost, as on a wire */
	}
}

static void serve(int to_parent)
{
	int fd = own_network() ? make() : -1, s = fd < 0 ? -1 : watch();

	if (s < 0 || unix_send_fds(to_parent, "", 1, &fd, 1) != 1)
		return;
	(void) fd_close(to_parent);
	echo(s);
}

int tap_make(pid_t *ret_pid)
{
	int pair[2], fd = -1;
	size_t n_fds = 0;
	char byte;

	*ret_pid = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	*ret_pid = fork();
	if (*ret_pid == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void) fd_close(pair[0]);
		serve(pair[1]);
		_exit(1);
	}
	(void) fd_close(pair[1]);
	if (*ret_pid < 0 || unix_recv_fds(pair[0], &byte, 1, &fd, 1, &n_fds) != 1 || n_fds != 1)
		fd = -1;
	(void) fd_close(pair[0]);
	if (fd >= 0 && fd_set_nonblock(fd) < 0)
		fd = fd_close(fd);
	return fd;
}

void tap_drain(int fd)
{
	static uint8_t frame[FRAME_MAX + 64];

	while (fd >= 0 && read(fd, frame, sizeof(frame)) > 0)
		;
}
