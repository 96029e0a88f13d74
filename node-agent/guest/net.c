/* SPDX-License-Identifier: Apache-2.0
 *
 * See net.h. By ioctl: a dozen calls for one interface need no netlink library in a static program.
 */
#include "guest/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define TRIES 50 /* of 20 ms: the driver probes a moment after its module is loaded */
#define RESOLV "/etc/resolv.conf"

static bool has_mac(int fd, const char *name, const uint8_t mac[6])
{
	struct ifreq request = { .ifr_ifindex = 0 };

	(void) snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	return ioctl(fd, SIOCGIFHWADDR, &request) == 0 && memcmp(request.ifr_hwaddr.sa_data, mac, 6) == 0;
}

static bool find_once(int fd, const uint8_t mac[6], char ret[static IF_NAMESIZE])
{
	struct if_nameindex *all = if_nameindex();
	bool found = false;

	for (struct if_nameindex *at = all; at && at->if_index != 0 && !found; at++) {
		found = has_mac(fd, at->if_name, mac);
		if (found)
			(void) snprintf(ret, IF_NAMESIZE, "%s", at->if_name);
	}
	if (all)
		if_freenameindex(all);
	return found;
}

static int find(int fd, const uint8_t mac[6], char ret[static IF_NAMESIZE])
{
	static const struct timespec pause = { .tv_nsec = 20000000 };

	for (int i = 0; i < TRIES; i++) {
		if (find_once(fd, mac, ret))
			return 0;
		(void) nanosleep(&pause, NULL);
	}
	return -ENODEV;
}

static void put_address(struct sockaddr *to, uint32_t address)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(address) };

	memcpy(to, &in, sizeof(in));
}

static struct ifreq request_of(const char *name)
{
	struct ifreq request = { .ifr_ifindex = 0 };

	(void) snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	return request;
}

static int set_address(int fd, const char *name, const struct guest_network *network)
{
	struct ifreq request = request_of(name);
	uint32_t mask = network->prefix == 0 ? 0 : UINT32_MAX << (32 - network->prefix);

	/* the first address of an interface is replaced, and with it go its routes */
	put_address(&request.ifr_addr, network->address);
	if (ioctl(fd, SIOCSIFADDR, &request) < 0)
		return -errno;
	put_address(&request.ifr_netmask, mask);
	return ioctl(fd, SIOCSIFNETMASK, &request) < 0 ? -errno : 0;
}

static int set_up(int fd, const char *name, const struct guest_network *network)
{
	struct ifreq request = request_of(name);

	if (network->mtu > 0) {
		request.ifr_mtu = (int) network->mtu;
		if (ioctl(fd, SIOCSIFMTU, &request) < 0)
			return -errno;
	}
	request = request_of(name);
	if (ioctl(fd, SIOCGIFFLAGS, &request) < 0)
		return -errno;
	request.ifr_flags = (short) (request.ifr_flags | IFF_UP);
	return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

static int set_route(int fd, char *name, const struct guest_network *network)
{
	struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY, .rt_dev = name };

	put_address(&route.rt_dst, 0);
	put_address(&route.rt_genmask, 0);
	put_address(&route.rt_gateway, network->gateway);
	return ioctl(fd, SIOCADDRT, &route) < 0 && errno != EEXIST ? -errno : 0;
}

/* Whatever the image brought: its resolvers cannot be reached from here. A link is replaced, not followed. */
void net_set_resolver(const struct guest_network *network)
{
	struct in_addr address = { .s_addr = htonl(network->gateway) };
	char text[64], number[INET_ADDRSTRLEN];
	CLEANUP_FD int fd = -1;

	(void) snprintf(text, sizeof(text), "nameserver %s\n",
		inet_ntop(AF_INET, &address, number, sizeof(number)));
	(void) unlink(RESOLV);
	fd = open(RESOLV, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		log_error("cannot write", "path", RESOLV, "errno", strerrorname_np(errno));
}

static int failed(struct err *reterr, int r, const char *step)
{
	(void) err_set(reterr, FAIL_GUEST_NETWORK_FAILED, -r, "the guest cannot set up its network: %s", step);
	err_add(reterr, "step", "%s", step);
	return r;
}

/* With its hardware address already. */
static int set_all(int fd, char *name, const struct guest_network *network, struct err *reterr)
{
	int r = set_address(fd, name, network);

	if (r < 0)
		return failed(reterr, r, "address");
	r = set_up(fd, name, network);
	if (r < 0)
		return failed(reterr, r, "up");
	r = set_route(fd, name, network);
	return r < 0 ? failed(reterr, r, "route") : 0;
}

int net_configure(const struct guest_network *network, struct err *reterr)
{
	CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char name[IF_NAMESIZE];
	int r;

	if (fd < 0)
		return failed(reterr, -errno, "no IPv4 in this kernel");
	r = find(fd, network->mac, name);
	if (r < 0)
		return failed(reterr, r, "no interface has its hardware address");
	r = set_all(fd, name, network, reterr);
	if (r == 0)
		net_set_resolver(network);
	return r;
}

/* A VM has one; what a sandbox made besides it (bridges, tunnels) is not on a bus. */
static bool is_device(const char *name)
{
	char path[64];

	(void) snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
	return access(path, F_OK) == 0;
}

static bool find_device(char ret[static IF_NAMESIZE])
{
	struct if_nameindex *all = if_nameindex();
	bool found = false;

	for (struct if_nameindex *at = all; at && at->if_index != 0 && !found; at++) {
		found = is_device(at->if_name);
		if (found)
			(void) snprintf(ret, IF_NAMESIZE, "%s", at->if_name);
	}
	if (all)
		if_freenameindex(all);
	return found;
}

static int set_mac(int fd, const char *name, const uint8_t mac[6])
{
	struct ifreq request = request_of(name);

	request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(request.ifr_hwaddr.sa_data, mac, 6);
	return ioctl(fd, SIOCSIFHWADDR, &request) < 0 ? -errno : 0;
}

int net_replace(const struct guest_network *network, struct err *reterr)
{
	CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char name[IF_NAMESIZE];
	int r = 0;

	if (fd < 0)
		return failed(reterr, -errno, "no IPv4 in this kernel");
	if (!find_once(fd, network->mac, name)) {
		r = find_device(name) ? set_mac(fd, name, network->mac) : -ENODEV;
		if (r < 0)
			return failed(reterr, r, "hardware address");
	}
	return set_all(fd, name, network, reterr);
}
