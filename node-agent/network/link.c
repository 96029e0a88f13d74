/* SPDX-License-Identifier: Apache-2.0
 *
 * See link.h.
 */
#include "network/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netlink/addr.h>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/veth.h>
#include <netlink/route/neighbour.h>
#include <netlink/route/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "network/ruleset.h"

static void sock_freep(struct nl_sock **sock)
{
	nl_socket_free(*sock);
}
static void link_freep(struct rtnl_link **link)
{
	rtnl_link_put(*link);
}
static void cache_freep(struct nl_cache **cache)
{
	nl_cache_free(*cache);
}
static void nl_addr_freep(struct nl_addr **addr)
{
	nl_addr_put(*addr);
}
static void addr_freep(struct rtnl_addr **addr)
{
	rtnl_addr_put(*addr);
}
static void neigh_freep(struct rtnl_neigh **neigh)
{
	rtnl_neigh_put(*neigh);
}
static void route_freep(struct rtnl_route **route)
{
	rtnl_route_put(*route);
}
#define CLEANUP_SOCK CLEANUP(sock_freep)
#define CLEANUP_NL_ADDR CLEANUP(nl_addr_freep)

/* libnl's errors have numbers of their own, some of several errno. */
static int from_nl(int r)
{
	switch (r < 0 ? -r : 0) {
	case 0:
		return 0;
	case NLE_EXIST:
		return -EEXIST;
	case NLE_OBJ_NOTFOUND:
	case NLE_NODEV:
		return -ENODEV;
	case NLE_NOMEM:
		return -ENOBUFS;
	case NLE_PERM:
	case NLE_NOACCESS:
		return -EPERM;
	case NLE_INVAL:
		return -EINVAL;
	case NLE_BUSY:
		return -EBUSY;
	case NLE_OPNOTSUPP:
		return -EOPNOTSUPP;
	case NLE_NOADDR:
		return -EADDRNOTAVAIL;
	default:
		return -EIO;
	}
}

static struct nl_sock *sock_new(int *r)
{
	struct nl_sock *sock = nl_socket_alloc();

	*r = sock ? from_nl(nl_connect(sock, NETLINK_ROUTE)) : -ENOMEM;
	if (*r == 0 || !sock)
		return sock;
	nl_socket_free(sock);
	return NULL;
}

static struct nl_addr *ipv4(uint32_t address, unsigned int prefix)
{
	uint32_t wire = htonl(address);
	struct nl_addr *addr = nl_addr_build(AF_INET, &wire, sizeof(wire));

	if (addr)
		nl_addr_set_prefixlen(addr, (int)prefix);
	return addr;
}

static struct nl_addr *ethernet(const uint8_t mac[static NET_MAC_SIZE])
{
	return nl_addr_build(AF_LLC, mac, NET_MAC_SIZE);
}

static int index_of(const char *name)
{
	unsigned int index = if_nametoindex(name);

	return index ? (int)index : -ENODEV;
}

/* ---- links ---- */

int net_link_make(const char *name, int netns)
{
	int r;
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);
	CLEANUP(link_freep) struct rtnl_link *link = rtnl_link_veth_alloc();
	CLEANUP_NL_ADDR struct nl_addr *here = ethernet(net_link_host_mac), *there = ethernet(net_link_slot_mac);
	struct rtnl_link *peer;

	if (!sock)
		return r;
	if (!link || !here || !there)
		return -ENOMEM;
	rtnl_link_set_name(link, name);
	rtnl_link_set_group(link, NET_LINK_GROUP);
	rtnl_link_set_addr(link, here);
	peer = rtnl_link_veth_get_peer(link);
	rtnl_link_set_name(peer, NET_UPLINK);
	rtnl_link_set_addr(peer, there);
	rtnl_link_set_ns_fd(peer, netns);
	r = from_nl(rtnl_link_add(sock, link, NLM_F_CREATE | NLM_F_EXCL));
	rtnl_link_put(peer);
	return r;
}

int net_link_remove(const char *name)
{
	int r;
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);
	CLEANUP(link_freep) struct rtnl_link *link = rtnl_link_alloc();

	if (!sock)
		return r;
	if (!link)
		return -ENOMEM;
	rtnl_link_set_name(link, name);
	r = from_nl(rtnl_link_delete(sock, link));
	return r == -ENODEV ? 0 : r;
}

static int change(const char *name, struct rtnl_link *to)
{
	int r;
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);
	CLEANUP(link_freep) struct rtnl_link *link = rtnl_link_alloc();
	int index = index_of(name);

	if (!sock || index < 0)
		return sock ? index : r;
	if (!link)
		return -ENOMEM;
	rtnl_link_set_ifindex(link, index);
	return from_nl(rtnl_link_change(sock, link, to, 0));
}

int net_link_set_mac(const char *name, const uint8_t mac[static NET_MAC_SIZE])
{
	CLEANUP(link_freep) struct rtnl_link *to = rtnl_link_alloc();
	CLEANUP_NL_ADDR struct nl_addr *addr = ethernet(mac);

	if (!to || !addr)
		return -ENOMEM;
	rtnl_link_set_addr(to, addr);
	return change(name, to);
}

int net_link_set_up(const char *name)
{
	CLEANUP(link_freep) struct rtnl_link *to = rtnl_link_alloc();

	if (!to)
		return -ENOMEM;
	rtnl_link_set_flags(to, IFF_UP);
	return change(name, to);
}

/* ---- addresses, neighbours, routes ---- */

int net_link_add_address(const char *name, uint32_t address, unsigned int prefix)
{
	int r, index = index_of(name);
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);
	CLEANUP(addr_freep) struct rtnl_addr *addr = rtnl_addr_alloc();
	CLEANUP_NL_ADDR struct nl_addr *local = ipv4(address, prefix);

	if (!sock || index < 0)
		return sock ? index : r;
	if (!addr || !local)
		return -ENOMEM;
	rtnl_addr_set_ifindex(addr, index);
	r = rtnl_addr_set_local(addr, local);
	return from_nl(r < 0 ? r : rtnl_addr_add(sock, addr, 0));
}

int net_link_add_neighbour(const char *name, uint32_t address, const uint8_t mac[static NET_MAC_SIZE])
{
	int r, index = index_of(name);
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);
	CLEANUP(neigh_freep) struct rtnl_neigh *neigh = rtnl_neigh_alloc();
	CLEANUP_NL_ADDR struct nl_addr *dst = ipv4(address, 32), *lladdr = ethernet(mac);

	if (!sock || index < 0)
		return sock ? index : r;
	if (!neigh || !dst || !lladdr)
		return -ENOMEM;
	rtnl_neigh_set_ifindex(neigh, index);
	rtnl_neigh_set_family(neigh, AF_INET);
	rtnl_neigh_set_state(neigh, NUD_PERMANENT);
	rtnl_neigh_set_lladdr(neigh, lladdr);
	r = rtnl_neigh_set_dst(neigh, dst);
	return from_nl(r < 0 ? r : rtnl_neigh_add(sock, neigh, NLM_F_CREATE | NLM_F_REPLACE));
}

int net_link_add_route(const char *name, uint32_t address, unsigned int prefix, uint32_t via)
{
	int r, index = index_of(name);
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);
	CLEANUP(route_freep) struct rtnl_route *route = rtnl_route_alloc();
	CLEANUP_NL_ADDR struct nl_addr *dst = ipv4(address, prefix), *gateway = ipv4(via, 32);
	struct rtnl_nexthop *hop = rtnl_route_nh_alloc();

	if (!sock || index < 0 || !route || !dst || !gateway || !hop) {
		if (hop)
			rtnl_route_nh_free(hop);
		return !sock ? r : index < 0 ? index : -ENOMEM;
	}
	rtnl_route_nh_set_ifindex(hop, index);
	rtnl_route_nh_set_gateway(hop, gateway);
	rtnl_route_add_nexthop(route, hop); /* owned by the route now */
	rtnl_route_set_family(route, AF_INET);
	rtnl_route_set_table(route, RT_TABLE_MAIN);
	rtnl_route_set_scope(route, RT_SCOPE_UNIVERSE);
	r = rtnl_route_set_dst(route, dst);
	return from_nl(r < 0 ? r : rtnl_route_add(sock, route, NLM_F_CREATE | NLM_F_EXCL));
}

/* ---- the TAP ---- */

int net_tap_open(const char *name, bool keep)
{
	CLEANUP_FD int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };

	if (fd < 0)
		return -errno;
	(void)snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &request) < 0 || (keep && ioctl(fd, TUNSETPERSIST, 1) < 0))
		return -errno;
	return TAKE_FD(fd);
}

/* ---- what is there ---- */

static uint32_t address_of(struct nl_cache *addresses, int index)
{
	for (struct nl_object *at = nl_cache_get_first(addresses); at; at = nl_cache_get_next(at)) {
		struct rtnl_addr *addr = (struct rtnl_addr *)(void *)at;
		struct nl_addr *local = rtnl_addr_get_local(addr);
		uint32_t wire;

		if (rtnl_addr_get_ifindex(addr) != index || !local || nl_addr_get_family(local) != AF_INET)
			continue;
		memcpy(&wire, nl_addr_get_binary_addr(local), sizeof(wire));
		return ntohl(wire);
	}
	return 0;
}

int net_link_list(net_link_seen seen, void *user)
{
	CLEANUP(cache_freep) struct nl_cache *links = NULL, *addresses = NULL;
	int r;
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);

	if (!sock)
		return r;
	r = rtnl_link_alloc_cache(sock, AF_UNSPEC, &links);
	if (r == 0)
		r = rtnl_addr_alloc_cache(sock, &addresses);
	if (r < 0)
		return from_nl(r);
	for (struct nl_object *at = nl_cache_get_first(links); at; at = nl_cache_get_next(at)) {
		struct rtnl_link *link = (struct rtnl_link *)(void *)at;
		const char *name = rtnl_link_get_name(link);

		if (rtnl_link_get_group(link) != NET_LINK_GROUP || !name)
			continue;
		if (!seen(name, address_of(addresses, rtnl_link_get_ifindex(link)), user))
			break;
	}
	return 0;
}

static bool to_cidr(const struct nl_addr *addr, struct net_cidr *ret)
{
	const uint8_t *bytes = nl_addr_get_binary_addr(addr);
	uint32_t value = 0;

	if (nl_addr_get_family(addr) != AF_INET)
		return false;
	/* an address of fewer bytes: the rest is zero */
	for (unsigned int i = 0; i < sizeof(value); i++)
		value = value << 8 | (i < nl_addr_get_len(addr) ? bytes[i] : 0);
	ret->addr = net_addr_v4(value);
	ret->prefix = nl_addr_get_prefixlen(addr);
	return true;
}

static bool is_ours(struct nl_cache *links, int index)
{
	struct rtnl_link *link = rtnl_link_get(links, index);
	bool ours = link && rtnl_link_get_group(link) == NET_LINK_GROUP;

	rtnl_link_put(link);
	return ours;
}

static int overlap(struct nl_cache *links, int index, const struct net_cidr *cidr, const struct net_cidr *pool,
	struct err *reterr)
{
	char dev[IF_NAMESIZE] = "none", route[NET_CIDR_TEXT], text[NET_CIDR_TEXT];

	(void)rtnl_link_i2name(links, index, dev, sizeof(dev));
	net_cidr_format(cidr, route);
	net_cidr_format(pool, text);
	(void)err_set(reterr, FAIL_POOL_OVERLAPS_ROUTE, EADDRINUSE,
		"the network pool %s overlaps the route %s over %s", text, route, dev);
	err_add(reterr, "dev", "%s", dev);
	err_add(reterr, "route", "%s", route);
	err_add(reterr, "pool", "%s", text);
	return -EADDRINUSE;
}

int net_route_check(const struct net_cidr *pool, struct err *reterr)
{
	CLEANUP(cache_freep) struct nl_cache *links = NULL, *routes = NULL;
	int r;
	CLEANUP_SOCK struct nl_sock *sock = sock_new(&r);

	if (r == 0)
		r = from_nl(rtnl_link_alloc_cache(sock, AF_UNSPEC, &links));
	if (r == 0)
		r = from_nl(rtnl_route_alloc_cache(sock, AF_INET, 0, &routes));
	if (r < 0)
		return err_set(reterr, FAIL_NETWORK_UNSUPPORTED, -r, "the host's routes cannot be read");
	for (struct nl_object *at = nl_cache_get_first(routes); at; at = nl_cache_get_next(at)) {
		struct rtnl_route *route = (struct rtnl_route *)(void *)at;
		struct rtnl_nexthop *hop = rtnl_route_nexthop_n(route, 0);
		int index = hop ? rtnl_route_nh_get_ifindex(hop) : 0;
		struct net_cidr cidr;

		if (!to_cidr(rtnl_route_get_dst(route), &cidr) || cidr.prefix == 0 || is_ours(links, index) ||
			!net_cidr_overlaps(pool, &cidr))
			continue;
		return overlap(links, index, &cidr, pool, reterr);
	}
	return 0;
}
