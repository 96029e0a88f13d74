/* SPDX-License-Identifier: Apache-2.0
 *
 * See make.h.
 */
#include "network/make.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limit.h"
#include "base/log.h"
#include "network/link.h"
#include "network/netns.h"

#define DNS_BACKLOG 16
#define DNS_PORT 53

static int step_failed(struct err *reterr, int r, const char *step)
{
	/* what the kernel was built without, or no module of it is here */
	bool unknown = r == -EOPNOTSUPP || r == -ENODEV || r == -EPROTONOSUPPORT || r == -ENOENT;

	if (limit_is_reached(reterr, STAGE_NETWORK, LIMIT_NAMESPACE, -r, "cannot make a network slot"))
		return r;
	(void)err_set(reterr, unknown ? FAIL_NETWORK_UNSUPPORTED : FAIL_NETWORK_SLOT_FAILED, -r,
		"cannot make a network slot: %s: %s", step, strerrordesc_np(-r));
	err_add(reterr, "step", "%s", step);
	return r;
}

/* /proc/sys/net is that of the thread's own namespace. */
static int set_sysctl(const char *name, const char *value)
{
	char path[128];
	CLEANUP_FD int fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/sys/net/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fd_write_all(fd, value, strlen(value));
}

struct sysctl {
	const char *name, *value;
};

static int set_sysctls(const struct sysctl *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int r = set_sysctl(items[i].name, items[i].value);

		/* a kernel without IPv6 has none of its switches */
		if (r < 0 && !(r == -ENOENT && !strncmp(items[i].name, "ipv6/", 5)))
			return r;
	}
	return 0;
}

static const struct sysctl before_devices[] = {
	{ "ipv6/conf/all/disable_ipv6", "1" },
	{ "ipv6/conf/default/disable_ipv6", "1" },
	{ "ipv4/ip_forward", "1" },
	{ "ipv4/conf/all/send_redirects", "0" },
	{ "ipv4/conf/default/send_redirects", "0" },
	{ "ipv4/conf/all/accept_redirects", "0" },
	{ "ipv4/conf/default/accept_redirects", "0" },
	{ "ipv4/conf/default/rp_filter", "1" },
	/* nobody answers for an address that is not on the link that asks */
	{ "ipv4/conf/default/arp_ignore", "1" },
};

/* Exist once the rules made the kernel track connections. A connection that is silent for an hour is over. */
static const struct sysctl after_rules[] = {
	{ "netfilter/nf_conntrack_tcp_timeout_established", "3600" },
	{ "netfilter/nf_conntrack_tcp_timeout_syn_sent", "30" },
	{ "netfilter/nf_conntrack_tcp_timeout_time_wait", "30" },
	{ "netfilter/nf_conntrack_tcp_timeout_fin_wait", "60" },
	{ "netfilter/nf_conntrack_udp_timeout_stream", "60" },
	{ "netfilter/nf_conntrack_generic_timeout", "60" },
};

/* ---- the steps; all but the host's end run inside the namespace ---- */

static int apply(const struct net_slot_rules *rules, struct err *reterr)
{
	struct buf text = BUF_NULL(NET_RULESET_MAX);
	char stamp[NET_STAMP_SIZE];
	int r = net_ruleset_slot(&text, rules, stamp);

	if (r < 0)
		(void)err_set(reterr, FAIL_NETWORK_RULES_FAILED, -r, "the network rules are too many");
	else
		r = net_rules_apply(&text, stamp, reterr);
	buf_deinit(&text);
	return r;
}

static int make_devices(const struct net_slot *slot, const char **step)
{
	int fd, r;

	*step = "settings";
	r = set_sysctls(before_devices, ARRAY_LEN(before_devices));
	if (r < 0)
		return r;
	*step = "TAP";
	fd = net_tap_open(NET_TAP, true);
	if (fd < 0)
		return fd;
	(void)fd_close(fd);
	r = net_link_set_mac(NET_TAP, net_gateway_mac);
	if (r == 0)
		r = net_link_add_address(NET_TAP, slot->gateway, NET_GUEST_PREFIX);
	if (r == 0)
		r = net_link_add_address(NET_UPLINK, slot->link_slot, NET_LINK_PREFIX);
	return r;
}

static int raise_inside(const struct net_slot *slot, const char **step)
{
	int r;

	*step = "settings of connection tracking";
	r = set_sysctls(after_rules, ARRAY_LEN(after_rules));
	*step = "links up";
	if (r == 0)
		r = net_link_set_up(NET_UPLINK);
	if (r == 0)
		r = net_link_add_neighbour(NET_UPLINK, slot->link_host, net_link_host_mac);
	if (r == 0)
		r = net_link_add_route(NET_UPLINK, 0, 0, slot->link_host);
	if (r == 0)
		r = net_link_set_up(NET_TAP);
	if (r == 0)
		r = net_link_add_neighbour(NET_TAP, slot->guest, slot->guest_mac);
	return r;
}

static int make_inside(int netns, const struct net_slot_rules *rules, struct err *reterr)
{
	CLEANUP_NETNS int home = -1;
	const char *step = "entering it";
	int r = netns_enter(netns, &home);

	if (r == 0)
		r = make_devices(rules->slot, &step);
	if (r < 0)
		return step_failed(reterr, r, step);
	r = apply(rules, reterr);
	if (r < 0)
		return r;
	r = raise_inside(rules->slot, &step);
	return r < 0 ? step_failed(reterr, r, step) : 0;
}

static int raise_on_host(const struct net_slot *slot)
{
	char names[4][64];
	const struct sysctl items[] = { { names[0], "1" }, { names[1], "0" }, { names[2], "1" }, { names[3], "1" } };
	int r;

	(void)snprintf(names[0], sizeof(names[0]), "ipv4/conf/%s/rp_filter", slot->name);
	(void)snprintf(names[1], sizeof(names[1]), "ipv4/conf/%s/send_redirects", slot->name);
	(void)snprintf(names[2], sizeof(names[2]), "ipv6/conf/%s/disable_ipv6", slot->name);
	(void)snprintf(names[3], sizeof(names[3]), "ipv4/conf/%s/forwarding", slot->name);
	r = set_sysctls(items, ARRAY_LEN(items));
	if (r == 0)
		r = net_link_add_address(slot->name, slot->link_host, NET_LINK_PREFIX);
	if (r == 0)
		r = net_link_set_up(slot->name);
	if (r == 0)
		r = net_link_add_neighbour(slot->name, slot->link_slot, net_link_slot_mac);
	if (r == 0)
		r = net_link_add_route(slot->name, slot->guest, 32, slot->link_slot);
	return r;
}

int net_slot_make(const char *netns_dir, const struct net_slot_rules *rules, struct err *reterr)
{
	const struct net_slot *slot = rules->slot;
	CLEANUP_FD int netns = -1;
	const char *step = "namespace";
	int r = netns_make(netns_dir, slot->name);

	if (r < 0)
		return step_failed(reterr, r, step);
	netns = netns_open(netns_dir, slot->name);
	r = netns < 0 ? netns : 0;
	if (r == 0) {
		step = "link";
		r = net_link_make(slot->name, netns);
	}
	if (r < 0) {
		r = step_failed(reterr, r, step);
		goto undo;
	}
	r = make_inside(netns, rules, reterr);
	if (r < 0)
		goto undo;
	r = raise_on_host(slot);
	if (r == 0)
		return 0;
	r = step_failed(reterr, r, "the host's end");
undo:
	netns = fd_close(netns);
	(void)net_slot_remove(netns_dir, slot->name, NULL); /* tried again by the sweep */
	return r;
}

/* ---- a slot that is there ---- */

static int enter(const char *netns_dir, const char *name, int *home, struct err *reterr)
{
	CLEANUP_FD int netns = netns_open(netns_dir, name);
	int r = netns < 0 ? netns : netns_enter(netns, home);

	if (r < 0 && !limit_is_reached(reterr, STAGE_NETWORK, LIMIT_FILE, -r, "cannot enter a network slot"))
		(void)err_set(reterr, FAIL_NETWORK_SLOT_FAILED, -r, "the network slot %s is not there", name);
	return r;
}

/* Inside: whether the kernel has these rules, whatever is pinned. */
static bool holds(const struct net_slot_rules *rules)
{
	struct buf text = BUF_NULL(NET_RULESET_MAX);
	char stamp[NET_STAMP_SIZE], there[NET_STAMP_SIZE];
	bool same = net_ruleset_slot(&text, rules, stamp) == 0 && net_rules_stamp(there) && !strcmp(there, stamp);

	buf_deinit(&text);
	return same;
}

static int add_pins(const struct net_pin *pins, size_t n, struct err *reterr)
{
	struct buf text = BUF_NULL(NET_RULESET_MAX);
	int r = net_ruleset_pins(&text, pins, n);

	if (r < 0)
		(void)err_set(reterr, FAIL_NETWORK_RULES_FAILED, -r, "too many addresses at once");
	else if (n > 0)
		r = net_rules_add(&text, reterr);
	buf_deinit(&text);
	return r;
}

int net_slot_apply(const char *netns_dir, const struct net_slot_rules *rules, struct err *reterr)
{
	CLEANUP_NETNS int home = -1;
	int r = enter(netns_dir, rules->slot->name, &home, reterr);

	if (r < 0)
		return r;
	return holds(rules) ? add_pins(rules->pins, rules->n_pins, reterr) : apply(rules, reterr);
}

int net_slot_pin(const char *netns_dir, const char *name, const struct net_pin *pins, size_t n_pins,
	struct err *reterr)
{
	CLEANUP_NETNS int home = -1;
	int r = enter(netns_dir, name, &home, reterr);

	return r < 0 ? r : add_pins(pins, n_pins, reterr);
}

int net_slot_read(const char *netns_dir, const char *name, struct net_counters *ret, struct err *reterr)
{
	CLEANUP_NETNS int home = -1;
	int r = enter(netns_dir, name, &home, reterr);

	return r < 0 ? r : net_rules_read(ret, reterr);
}

int net_slot_remove(const char *netns_dir, const char *name, struct err *reterr)
{
	int r = net_link_remove(name);

	if (r == 0)
		r = netns_remove(netns_dir, name);
	if (r < 0)
		return err_set_at(reterr, STAGE_STOP, FAIL_NETWORK_SLOT_FAILED, -r,
			"the network slot %s cannot be removed", name);
	return 0;
}

int net_slot_open_tap(const char *netns_dir, const char *name, struct err *reterr)
{
	CLEANUP_NETNS int home = -1;
	int r = enter(netns_dir, name, &home, reterr), fd;

	if (r < 0)
		return r;
	fd = net_tap_open(NET_TAP, true);
	if (fd == -EBUSY) /* one VMM has it */
		return err_set(reterr, FAIL_NETWORK_SLOT_FAILED, EBUSY, "the TAP of %s is in use", name);
	return fd < 0 ? step_failed(reterr, fd, "TAP") : fd;
}

static int bind_dns(int type, uint32_t address)
{
	CLEANUP_FD int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(DNS_PORT),
		.sin_addr.s_addr = htonl(address) };
	int one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
		bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0 ||
		(type == SOCK_STREAM && listen(fd, DNS_BACKLOG) < 0))
		return -errno;
	return TAKE_FD(fd);
}

int net_slot_open_dns(
	const char *netns_dir, const struct net_slot *slot, int *ret_udp, int *ret_tcp, struct err *reterr)
{
	CLEANUP_NETNS int home = -1;
	CLEANUP_FD int udp = -1, tcp = -1;
	int r = enter(netns_dir, slot->name, &home, reterr);

	if (r < 0)
		return r;
	udp = bind_dns(SOCK_DGRAM, slot->gateway);
	tcp = udp < 0 ? udp : bind_dns(SOCK_STREAM, slot->gateway);
	if (tcp < 0)
		return step_failed(reterr, tcp, "the resolver's sockets");
	*ret_udp = TAKE_FD(udp);
	*ret_tcp = TAKE_FD(tcp);
	return 0;
}
