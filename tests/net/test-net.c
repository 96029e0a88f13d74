/* SPDX-License-Identifier: Apache-2.0
 *
 * node-agent/network against a real kernel: what a guest can reach and what it cannot, changes while it runs, limits,
 * faults of netlink, restarts, leftovers. Cases R134, R137, R140, R142, R143, R145, R146, R053 of the catalogue.
 */
#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/suite.h"
#include "network/link.h"
#include "network/netns.h"
#include "world.h"

#define ID_A "aaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbb"
#define SHORT_MS 700
#define LONG_MS 8000

static struct world world;
static struct net_host *host;
static struct net_policy policy;
static struct guest guest;
static const struct net_host_slot *slot;

static void setup(void)
{
	world_make(&world);
	policy = (struct net_policy){ .internet = true };
}

static void teardown(void)
{
	net_policy_deinit(&policy);
	host = net_host_free(host);
	world_free(&world);
}

static void start(const char *owner)
{
	struct net_host_config config = world_config(&world);

	ck_assert_int_eq(net_owner_parse(owner, &config.owner, NULL), 0);
	host = world_host(&config);
	slot = world_slot(host, ID_A, &policy);
	guest_make(&guest, host, slot);
}

static void expect_reaches(const char *address, uint16_t port)
{
	int fd = guest_connect(&guest, address, port, LONG_MS);

	ck_assert_msg(fd >= 0, "%s:%u: %s", address, port, strerrorname_np(-fd));
	ck_assert_int_eq(world_echo(fd, LONG_MS), 0);
	(void)close(fd);
}

static void expect_refused(const char *address, uint16_t port)
{
	int fd = guest_connect(&guest, address, port, SHORT_MS);

	ck_assert_msg(fd < 0, "%s:%u was reached", address, port);
}

static void set_policy(const struct net_pin *pins, size_t n)
{
	struct err err = ERR_NULL;

	ck_assert_msg(net_host_set_policy(host, slot, &policy, pins, n, &err) == 0, "%s", err.msg);
}

static struct net_counters counters(void)
{
	struct net_counters ret;
	struct err err = ERR_NULL;

	ck_assert_msg(net_slot_read(net_host_netns_dir(host), slot->slot.name, &ret, &err) == 0, "%s", err.msg);
	return ret;
}

static uint32_t v4(const char *text)
{
	struct net_addr addr;

	ck_assert_int_eq(net_addr_parse(text, &addr), 0);
	return (uint32_t)addr.lo;
}

/* ---- what is reached ---- */

START_TEST(internet_is_reached_and_counted)
{
	struct net_counters seen;

	start("");
	expect_reaches(WORLD_PUBLIC, 80);
	expect_reaches(WORLD_OTHER, 443);
	ck_assert_int_eq(guest_echo_udp(&guest, WORLD_PUBLIC, 5000, LONG_MS), 0);
	seen = counters();
	ck_assert_uint_gt(seen.sent.packets, 8);
	ck_assert_uint_gt(seen.received.packets, 5);
	ck_assert_uint_eq(seen.denied.packets, 0);
	ck_assert_uint_eq(seen.n_refused, 0);
}
END_TEST

START_TEST(fence_holds)
{
	static const char *const closed[] = { WORLD_PRIVATE, WORLD_METADATA, WORLD_AZURE, WORLD_SHARED, WORLD_HOST,
		"203.0.113.1" };
	char gateway[NET_ADDR_TEXT], link[NET_ADDR_TEXT];
	struct net_addr addr;
	struct net_counters seen;

	/* the tenant may ask for anything */
	ck_assert_int_eq(net_policy_allow(&policy, "0.0.0.0/0", NULL), 0);
	ck_assert_int_eq(net_policy_allow(&policy, WORLD_METADATA, NULL), 0);
	start("");
	expect_reaches(WORLD_PUBLIC, 80);
	for (size_t i = 0; i < ARRAY_LEN(closed); i++) {
		/* the host itself gets there: it is the rules that do not let the guest */
		int fd = world_connect(-1, closed[i], 80, LONG_MS);

		ck_assert_msg(fd >= 0, "%s from the host", closed[i]);
		(void)close(fd);
		expect_refused(closed[i], 80);
		ck_assert_int_lt(guest_echo_udp(&guest, closed[i], 5000, SHORT_MS), 0);
	}
	addr = net_addr_v4(slot->slot.gateway);
	net_addr_format(&addr, gateway);
	addr = net_addr_v4(slot->slot.link_host);
	net_addr_format(&addr, link);
	expect_refused(gateway, 80);
	expect_refused(link, 80);
	seen = counters();
	ck_assert_uint_ge(seen.n_refused, ARRAY_LEN(closed));
	ck_assert_uint_ge(seen.denied.packets, ARRAY_LEN(closed));
	for (size_t i = 0; i < seen.n_refused; i++)
		ck_assert(seen.refused[i].packets > 0 && (seen.refused[i].port == 80 || seen.refused[i].port == 5000));
}
END_TEST

/* The second fence alone: a slot whose own rules are gone is no way in. */
START_TEST(host_holds_without_the_slots_rules)
{
	start("");
	world_run("nsenter --net=%s/%s nft flush ruleset", net_host_netns_dir(host), slot->slot.name);
	expect_reaches(WORLD_PUBLIC, 80);
	expect_refused(WORLD_PRIVATE, 80);
	expect_refused(WORLD_METADATA, 80);
	expect_refused(WORLD_AZURE, 80);
	expect_refused(WORLD_HOST, 80);
}
END_TEST

START_TEST(no_path_between_sandboxes)
{
	struct guest other;
	const struct net_host_slot *second;
	char address[NET_ADDR_TEXT];
	struct net_addr addr;
	int fd;

	start("");
	second = world_slot(host, ID_B, &policy);
	slot = net_host_find(host, ID_A);
	guest_make(&other, host, second);
	world_run("nsenter --net=/proc/%d/fd/%d true", getpid(), other.netns);
	addr = net_addr_v4(other.slot.guest);
	net_addr_format(&addr, address);
	/* nobody listens there; a reset would show that the packet came */
	fd = guest_connect(&guest, address, 80, SHORT_MS);
	ck_assert_int_lt(fd, 0);
	ck_assert_uint_ge(counters().denied.packets, 1);
	world_run("nsenter --net=%s/%s nft flush ruleset", net_host_netns_dir(host), slot->slot.name);
	ck_assert_int_eq(guest_connect(&guest, address, 80, SHORT_MS), -ETIMEDOUT); /* the host drops it */
	ck_assert_int_eq(world_connect(-1, address, 80, SHORT_MS), -ETIMEDOUT); /* nor does the host begin */
	guest_free(&other);
}
END_TEST

START_TEST(names_are_asked_of_our_resolver_alone)
{
	int udp = -1, tcp = -1, fd;
	char gateway[NET_ADDR_TEXT], packet[16];
	struct net_addr addr;
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	struct err err = ERR_NULL;

	start("");
	expect_refused(WORLD_PUBLIC, 53);
	expect_refused(WORLD_PUBLIC, 853);
	ck_assert_int_lt(guest_echo_udp(&guest, WORLD_OTHER, 53, SHORT_MS), 0);
	ck_assert_int_lt(guest_echo_udp(&guest, WORLD_OTHER, 853, SHORT_MS), 0);
	ck_assert_int_eq(net_slot_open_dns(net_host_netns_dir(host), &slot->slot, &udp, &tcp, &err), 0);
	addr = net_addr_v4(slot->slot.gateway);
	net_addr_format(&addr, gateway);
	fd = guest_connect(&guest, gateway, 53, LONG_MS);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	(void)guest_echo_udp(&guest, gateway, 53, 100); /* nobody answers, but it comes */
	(void)fcntl(udp, F_SETFL, 0);
	ck_assert_int_eq(recvfrom(udp, packet, sizeof(packet), 0, (struct sockaddr *)&from, &size), 6);
	ck_assert_uint_eq(ntohl(from.sin_addr.s_addr), slot->slot.guest);
	(void)close(udp);
	(void)close(tcp);
}
END_TEST

START_TEST(owner_opens_exactly_that)
{
	ck_assert_int_eq(net_policy_deny(&policy, "0.0.0.0/0", NULL), 0);
	start(WORLD_PRIVATE ":5000 " WORLD_METADATA ":443");
	expect_reaches(WORLD_PRIVATE, 5000);
	expect_reaches(WORLD_METADATA, 443);
	expect_refused(WORLD_PRIVATE, 80);
	expect_refused(WORLD_METADATA, 80);
	ck_assert_int_lt(guest_echo_udp(&guest, WORLD_PRIVATE, 5000, SHORT_MS), 0);
	expect_refused(WORLD_PUBLIC, 80);
}
END_TEST

/* ---- changes ---- */

START_TEST(a_change_closes_what_it_forbids)
{
	int kept, closed;
	struct net_counters before, after;

	start("");
	kept = guest_connect(&guest, WORLD_PUBLIC, 80, LONG_MS);
	closed = guest_connect(&guest, WORLD_OTHER, 80, LONG_MS);
	ck_assert_int_eq(world_echo(kept, LONG_MS), 0);
	ck_assert_int_eq(world_echo(closed, LONG_MS), 0);
	before = counters();
	ck_assert_int_eq(net_policy_deny(&policy, WORLD_OTHER, NULL), 0);
	set_policy(NULL, 0);
	ck_assert_int_eq(world_echo(kept, LONG_MS), 0);
	ck_assert_int_eq(world_echo(closed, LONG_MS), -ECONNRESET);
	expect_refused(WORLD_OTHER, 80);
	expect_reaches(WORLD_PUBLIC, 80);
	after = counters();
	ck_assert_uint_gt(after.sent.packets, before.sent.packets); /* counted on, not from zero */
	ck_assert_uint_ge(after.denied.packets, 2);
	/* and back */
	net_policy_deinit(&policy);
	policy.internet = true;
	set_policy(NULL, 0);
	expect_reaches(WORLD_OTHER, 80);
	ck_assert_int_eq(world_echo(kept, LONG_MS), 0);
	(void)close(kept);
	(void)close(closed);
}
END_TEST

START_TEST(nothing_is_allowed_where_the_internet_is_closed)
{
	policy.internet = false;
	start("");
	expect_refused(WORLD_PUBLIC, 80);
	ck_assert_int_eq(guest_connect(&guest, WORLD_PUBLIC, 80, LONG_MS), -ECONNREFUSED); /* told at once */
	ck_assert_int_eq(net_policy_allow(&policy, "93.184.216.0/24", NULL), 0);
	set_policy(NULL, 0);
	expect_reaches(WORLD_PUBLIC, 80);
	expect_refused(WORLD_OTHER, 80);
}
END_TEST

/* R134, R137: an address is reachable because it was answered for an allowed name, whatever the guest then says. */
START_TEST(names_are_judged_by_the_address)
{
	struct net_pin pins[] = { { v4(WORLD_PUBLIC), 60 }, { v4(WORLD_METADATA), 60 }, { v4(WORLD_PRIVATE), 60 } };
	struct net_pin brief = { v4(WORLD_OTHER), 1 };
	struct timespec pause = { .tv_sec = 2 };
	int fd;

	policy.internet = false;
	ck_assert_int_eq(net_policy_allow(&policy, "example.com", NULL), 0);
	start("");
	expect_refused(WORLD_PUBLIC, 443);
	ck_assert_int_eq(net_host_pin(host, slot, pins, ARRAY_LEN(pins), NULL), 0);
	expect_reaches(WORLD_PUBLIC, 443);
	expect_refused(WORLD_METADATA, 443);
	expect_refused(WORLD_PRIVATE, 443);
	expect_refused(WORLD_OTHER, 443);
	ck_assert_int_eq(net_host_pin(host, slot, &brief, 1, NULL), 0);
	fd = guest_connect(&guest, WORLD_OTHER, 443, LONG_MS);
	ck_assert_int_ge(fd, 0);
	(void)nanosleep(&pause, NULL); /* the pin's own time, which is 1 s */
	expect_refused(WORLD_OTHER, 443);
	ck_assert_int_eq(world_echo(fd, LONG_MS), 0); /* what is open stays */
	/* a pin again lives for the new time */
	ck_assert_int_eq(net_host_pin(host, slot, pins, 1, NULL), 0);
	/* other names: the old ones' addresses are no good any more, unless they are given again */
	ck_assert_int_eq(net_policy_allow(&policy, "example.org", NULL), 0);
	set_policy(pins, 1);
	expect_reaches(WORLD_PUBLIC, 443);
	ck_assert_int_eq(world_echo(fd, SHORT_MS), -ECONNRESET);
	/* the same rules again, by an agent that started anew and knows of no answer: nothing is taken away */
	set_policy(NULL, 0);
	expect_reaches(WORLD_PUBLIC, 443);
	ck_assert_int_eq(net_policy_allow(&policy, "example.net", NULL), 0);
	set_policy(NULL, 0);
	expect_refused(WORLD_PUBLIC, 443);
	(void)close(fd);
}
END_TEST

/* Edges of blocks as the kernel sees them, against the judge. */
START_TEST(kernel_judges_as_the_judge)
{
	static const char *const allow[] = { "8.8.8.8", "93.184.216.32/30" };
	static const char *const addresses[] = { "8.8.8.7", "8.8.8.8", "8.8.8.9", "93.184.216.31", "93.184.216.32",
		"93.184.216.34", "93.184.216.35", "93.184.216.36", "127.255.255.255", "128.0.0.0", "223.255.255.255",
		"255.255.255.255", "0.0.0.1" };
	struct net_owner none = { .n = 0 };
	struct net_judge judge;

	policy.internet = false;
	for (size_t i = 0; i < ARRAY_LEN(allow); i++)
		ck_assert_int_eq(net_policy_allow(&policy, allow[i], NULL), 0);
	ck_assert_int_eq(net_policy_deny(&policy, "0.0.0.0/0", NULL), 0);
	start("");
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++)
		world_run("ip route replace %s/32 via 203.0.113.1 2>/dev/null || true", addresses[i]);
	ck_assert_int_eq(net_judge_init(&judge, &none, &policy), 0);
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct net_addr addr;
		uint64_t before = counters().denied.packets;
		int fd;

		ck_assert_int_eq(net_addr_parse(addresses[i], &addr), 0);
		fd = guest_connect(&guest, addresses[i], 80, 200);
		if (fd == -ENETUNREACH || fd == -EACCES || fd == -EINVAL || fd == -ENETDOWN)
			continue; /* the guest's own kernel does not send that */
		ck_assert_msg(net_verdict_is_allowed(net_judge(&judge, &addr, 6, 80, false)) ==
				      (counters().denied.packets == before),
			"%s", addresses[i]);
		if (fd >= 0)
			(void)close(fd);
	}
	net_judge_deinit(&judge);
}
END_TEST

/* ---- what a guest puts on its wire (R142) ---- */

struct frame {
	uint8_t bytes[128];
	size_t size;
};

static struct frame frame_of(const uint8_t to[6], const uint8_t from[6], uint16_t type)
{
	struct frame frame = { .size = 14 };

	memcpy(frame.bytes, to, 6);
	memcpy(frame.bytes + 6, from, 6);
	frame.bytes[12] = (uint8_t)(type >> 8);
	frame.bytes[13] = (uint8_t)type;
	return frame;
}

static void put32(struct frame *frame, uint32_t value)
{
	for (int i = 24; i >= 0; i -= 8)
		frame->bytes[frame->size++] = (uint8_t)(value >> i);
}

static void add_arp(struct frame *frame, uint8_t operation, const uint8_t mac[6], uint32_t from, uint32_t to)
{
	static const uint8_t head[] = { 0, 1, 8, 0, 6, 4, 0 };

	memcpy(frame->bytes + frame->size, head, sizeof(head));
	frame->size += sizeof(head);
	frame->bytes[frame->size++] = operation;
	memcpy(frame->bytes + frame->size, mac, 6);
	frame->size += 6;
	put32(frame, from);
	frame->size += 6;
	put32(frame, to);
	frame->size = 60;
}

static void add_udp(struct frame *frame, uint32_t from, uint32_t to, uint16_t sport, uint16_t dport)
{
	static const uint8_t head[] = { 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17 };
	uint8_t *ip = frame->bytes + frame->size;
	uint32_t sum = 0;

	memcpy(ip, head, sizeof(head));
	frame->size += 12;
	put32(frame, from);
	put32(frame, to);
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	ip[10] = (uint8_t)(sum >> 8);
	ip[11] = (uint8_t)sum;
	put32(frame, (uint32_t)sport << 16 | dport);
	put32(frame, 12 << 16);
	frame->size = 60;
}

START_TEST(wire_is_pinned)
{
	static const uint8_t all[6] = { 255, 255, 255, 255, 255, 255 }, other[6] = { 2, 9, 9, 9, 9, 9 },
			     multicast6[6] = { 0x33, 0x33, 0, 0, 0, 1 };
	struct frame bad[12];
	uint32_t public = v4(WORLD_PUBLIC), me, gateway;
	const uint8_t *mac, *gw = net_gateway_mac;
	struct net_counters before, after;
	size_t n = 0;

	start("");
	expect_reaches(WORLD_PUBLIC, 80);
	mac = slot->slot.guest_mac;
	me = slot->slot.guest;
	gateway = slot->slot.gateway;
	bad[n] = frame_of(gw, other, 0x0800); /* another's MAC */
	add_udp(&bad[n++], me, public, 1000, 5000);
	bad[n] = frame_of(gw, mac, 0x0800); /* another's address */
	add_udp(&bad[n++], me + 8, public, 1000, 5000);
	bad[n] = frame_of(gw, mac, 0x0800); /* the gateway's own */
	add_udp(&bad[n++], gateway, public, 1000, 5000);
	bad[n] = frame_of(all, mac, 0x0800); /* broadcast: a DHCP offer */
	add_udp(&bad[n++], me, 0xffffffff, 67, 68);
	bad[n] = frame_of(gw, mac, 0x0800); /* the same to the gateway's MAC */
	add_udp(&bad[n++], me, gateway, 67, 68);
	bad[n] = frame_of(all, mac, 0x0806); /* gratuitous ARP of its own */
	add_arp(&bad[n++], 1, mac, me, me);
	bad[n] = frame_of(all, mac, 0x0806); /* ARP for the gateway's address */
	add_arp(&bad[n++], 2, mac, gateway, gateway);
	bad[n] = frame_of(all, mac, 0x0806); /* ARP with another MAC inside */
	add_arp(&bad[n++], 1, other, me, gateway);
	bad[n] = frame_of(multicast6, mac, 0x86dd); /* IPv6: a router advertisement or anything */
	bad[n].bytes[14] = 0x60;
	bad[n++].size = 70;
	bad[n] = frame_of(gw, mac, 0x8100); /* a VLAN tag before it all */
	bad[n++].size = 60;
	bad[n] = frame_of(gw, mac, 0x88cc);
	bad[n++].size = 60;
	before = counters();
	for (size_t i = 0; i < n; i++)
		guest_raw(&guest, bad[i].bytes, bad[i].size);
	after = counters();
	ck_assert_uint_ge(after.strayed.packets - before.strayed.packets, n);
	ck_assert_uint_eq(after.sent.packets, before.sent.packets); /* none came to be forwarded */
	world_run("test $(nsenter --net=%s/%s ip neigh show dev " NET_TAP " | wc -l) = 1", net_host_netns_dir(host),
		slot->slot.name);
	world_run("nsenter --net=%s/%s ip neigh show dev " NET_TAP " | grep -q PERMANENT", net_host_netns_dir(host),
		slot->slot.name);
	expect_reaches(WORLD_PUBLIC, 80);
}
END_TEST

static void add_udp6(struct frame *frame, const char *from, const char *to)
{
	static const uint8_t head[] = { 0x60, 0, 0, 0, 0, 16, 17, 64 };
	struct net_addr addrs[2];

	ck_assert(net_addr_parse(from, &addrs[0]) == 0 && net_addr_parse(to, &addrs[1]) == 0);
	memcpy(frame->bytes + frame->size, head, sizeof(head));
	frame->size += sizeof(head);
	for (int i = 0; i < 2; i++) {
		put32(frame, (uint32_t)(addrs[i].hi >> 32));
		put32(frame, (uint32_t)addrs[i].hi);
		put32(frame, (uint32_t)(addrs[i].lo >> 32));
		put32(frame, (uint32_t)addrs[i].lo);
	}
	put32(frame, 0x03e80050); /* ports 1000, 80 */
	put32(frame, 0x00100000);
	put32(frame, 0);
	put32(frame, 0);
}

/* IPv6 is not spoken at all: no frame of it passes the TAP, wherever it goes and whatever the tenant allows, and neither
 * the slot nor the host's end of its link has an address or a route of that family. */
START_TEST(ipv6_leads_nowhere)
{
	static const char *const to[] = { "fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42",
		"fe80::a9fe:a9fe", "2606:4700::1111", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "ff02::2", "fe80::1" };
	struct net_counters before, after;

	ck_assert_int_eq(net_policy_allow(&policy, "::/0", NULL), 0);
	start("");
	before = counters();
	for (size_t i = 0; i < ARRAY_LEN(to); i++) {
		struct frame frame = frame_of(net_gateway_mac, slot->slot.guest_mac, 0x86dd);

		add_udp6(&frame, "fe80::2", to[i]);
		guest_raw(&guest, frame.bytes, frame.size);
	}
	after = counters();
	ck_assert_uint_ge(after.strayed.packets - before.strayed.packets, ARRAY_LEN(to));
	ck_assert_uint_eq(after.sent.packets, before.sent.packets);
	world_run("test -z \"$(nsenter --net=%s/%s sh -c 'ip -6 addr; ip -6 route')\"", net_host_netns_dir(host),
		slot->slot.name);
	world_run("test -z \"$(ip -6 addr show dev %s; ip -6 route show dev %s)\"", slot->slot.name, slot->slot.name);
}
END_TEST

/* ---- limits (R143) ---- */

static unsigned int read_number(const char *path)
{
	CLEANUP_FREE char *text = NULL;

	ck_assert_int_eq(file_read(path, 64, &text, NULL), 0);
	return (unsigned int)strtoul(text, NULL, 10);
}

START_TEST(connections_are_limited)
{
	struct net_host_config config = world_config(&world);
	unsigned int open_now = 0;
	int fds[120], fd;

	config.limits.connections = 50;
	host = world_host(&config);
	slot = world_slot(host, ID_A, &policy);
	guest_make(&guest, host, slot);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = guest_connect(&guest, WORLD_PUBLIC, 80, i < 50 ? LONG_MS : 20);
		open_now += fds[i] >= 0;
	}
	ck_assert_uint_eq(open_now, 50);
	ck_assert_uint_ge(counters().over_connections.packets, 70);
	/* a scan: a packet each to many places */
	fd = -1;
	for (int i = 0; i < 5000; i++) {
		struct frame probe = frame_of(net_gateway_mac, slot->slot.guest_mac, 0x0800);

		add_udp(&probe, slot->slot.guest, v4("93.0.0.0") + (uint32_t)i * 77, 1234, (uint16_t)(1 + i));
		guest_raw(&guest, probe.bytes, probe.size);
	}
	ck_assert_uint_ge(counters().over_connections.packets, 5000);
	ck_assert_uint_le(read_number("/proc/sys/net/netfilter/nf_conntrack_count"), 60);
	/* neither did the host learn neighbours, nor is it hindered */
	world_run("test $(nsenter --net=%s/%s ip neigh | wc -l) -le 2", net_host_netns_dir(host), slot->slot.name);
	world_run("test $(ip neigh show dev %s | wc -l) = 1", slot->slot.name);
	fd = world_connect(-1, WORLD_PUBLIC, 80, LONG_MS);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0) {
			ck_assert_int_eq(world_echo(fds[i], LONG_MS), 0); /* those that were open go on */
			(void)close(fds[i]);
		}
}
END_TEST

START_TEST(packets_are_limited)
{
	struct net_host_config config = world_config(&world);
	struct net_counters before, after;

	config.limits.packets_per_sec = 100;
	host = world_host(&config);
	slot = world_slot(host, ID_A, &policy);
	guest_make(&guest, host, slot);
	before = counters();
	for (int i = 0; i < 3000; i++) {
		struct frame probe = frame_of(net_gateway_mac, slot->slot.guest_mac, 0x0800);

		add_udp(&probe, slot->slot.guest, v4(WORLD_PUBLIC), 1234, 5000);
		guest_raw(&guest, probe.bytes, probe.size);
	}
	after = counters();
	/* of 3000 sent in well under 20 s most were dropped, whatever else there was */
	ck_assert_uint_ge(after.over_rate.packets - before.over_rate.packets, 500);
	ck_assert_uint_le(after.sent.packets - before.sent.packets, 2500);
}
END_TEST

START_TEST(half_closed_streams_arrive_whole) /* R146 */
{
	static char block[65536];
	size_t size = 0;
	ssize_t n;
	int fd;

	start("");
	fd = guest_connect(&guest, WORLD_PUBLIC, 80, LONG_MS);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(send(fd, "S", 1, 0), 1);
	ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = 30 }, sizeof(struct timeval));
	while ((n = recv(fd, block, sizeof(block), 0)) > 0)
		size += (size_t)n;
	ck_assert_int_eq(n, 0);
	ck_assert_uint_eq(size, 10 << 20);
	(void)close(fd);
}
END_TEST

/* ---- faults ---- */

static size_t count_files(const char *folder)
{
	char path[96];
	DIR *dir;
	size_t n = 0;

	(void)snprintf(path, sizeof(path), "%s/%s", world.run, folder);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		n += entry->d_name[0] != '.';
	(void)closedir(dir);
	return n;
}

static bool count_link(const char *name, uint32_t address, void *user)
{
	(void)name, (void)address;
	++*(size_t *)user;
	return true;
}

static void expect_links(size_t want)
{
	size_t links = 0;

	ck_assert_int_eq(net_link_list(count_link, &links), 0);
	ck_assert_uint_eq(links, want);
}

static void expect_left(size_t want)
{
	expect_links(want);
	ck_assert_uint_eq(count_files("netns"), want);
	ck_assert_uint_eq(count_files("slots"), want);
}

static void give_back(const char *sandbox)
{
	(void)net_host_give_back(host, sandbox, NULL);
	for (int i = 0; i < 50 && net_host_tick(host); i++)
		;
}

/* R140: every netlink message in turn is lost. Either the slot is there and its rules hold, or there is none; and
 * then nothing is left. */
static void every_message_fails(int err_no)
{
	struct net_host_config config = world_config(&world);
	unsigned int n = 0, failed = 0, sent, total;

	host = world_host(&config);
	(void)world_fail_netlink(0, 0);
	slot = world_slot(host, ID_A, &policy);
	total = world_fail_netlink(0, 0);
	give_back(ID_A);
	ck_assert_uint_gt(total, 20);
	for (n = 1; n <= total + 5; n++) {
		struct err err = ERR_NULL;
		char stamp[NET_STAMP_SIZE];
		int r, home = -1, netns;

		(void)world_fail_netlink(n, err_no);
		r = net_host_take(host, ID_A, 1, &policy, &slot, &err);
		sent = world_fail_netlink(0, 0);
		if (r < 0) {
			failed++;
			ck_assert(err.code == FAIL_NETWORK_SLOT_FAILED || err.code == FAIL_NETWORK_RULES_FAILED ||
				  err.code == FAIL_NETWORK_UNSUPPORTED);
			ck_assert_ptr_null(net_host_find(host, ID_A));
		} else {
			netns = netns_open(net_host_netns_dir(host), slot->slot.name);
			ck_assert_int_eq(netns_enter(netns, &home), 0);
			ck_assert(net_rules_stamp(stamp));
			netns_leave(&home);
			(void)fd_close(netns);
		}
		ck_assert_uint_gt(sent, 0);
		give_back(ID_A);
		expect_left(0);
	}
	/* messages about rules are tried again; those about links are not */
	ck_assert_msg(failed > 0 && failed < total, "%u of %u", failed, total);
}

START_TEST(a_lost_message_leaves_no_half_slot)
{
	every_message_fails(_i ? EINVAL : ENOBUFS);
}
END_TEST

START_TEST(rules_that_never_hold_mean_no_slot)
{
	struct net_host_config config = world_config(&world);
	struct err err = ERR_NULL;

	host = world_host(&config);
	slot = world_slot(host, ID_A, &policy);
	guest_make(&guest, host, slot);
	ck_assert_int_eq(net_policy_deny(&policy, WORLD_OTHER, NULL), 0);
	(void)world_fail_netlink(WORLD_EVERY, ENOBUFS);
	ck_assert_int_lt(net_host_set_policy(host, slot, &policy, NULL, 0, &err), 0);
	ck_assert_int_eq(err.code, FAIL_NETWORK_RULES_FAILED);
	ck_assert_int_lt(net_host_take(host, ID_B, 1, &policy, &slot, NULL), 0);
	(void)world_fail_netlink(0, 0);
	/* the old policy holds as a whole */
	slot = net_host_find(host, ID_A);
	expect_reaches(WORLD_OTHER, 80);
	expect_refused(WORLD_PRIVATE, 80);
	set_policy(NULL, 0);
	expect_refused(WORLD_OTHER, 80);
	while (net_host_tick(host))
		;
	expect_left(1);
}
END_TEST

/* R053 */
START_TEST(a_teardown_that_fails_is_swept)
{
	struct net_host_config config = world_config(&world);
	struct net_host_counts counts;
	struct err err = ERR_NULL;
	unsigned int total;

	host = world_host(&config);
	(void)world_slot(host, ID_A, &policy);
	(void)world_fail_netlink(0, 0);
	ck_assert_int_eq(net_host_give_back(host, ID_A, NULL), 0);
	total = world_fail_netlink(0, 0);
	expect_left(0);
	for (unsigned int n = 1; n <= total + 1; n++) {
		slot = world_slot(host, ID_A, &policy);
		(void)world_fail_netlink(n, ENOBUFS);
		world_fail_unmount(n > total ? 1 : 0);
		ck_assert_int_lt(net_host_give_back(host, ID_A, &err), 0);
		(void)world_fail_netlink(0, 0);
		ck_assert_ptr_null(net_host_find(host, ID_A)); /* nobody's, but not free either */
		net_host_count(host, &counts);
		ck_assert_uint_eq(counts.stale, 1);
		ck_assert(!net_host_tick(host));
		expect_left(0);
	}
	ck_assert_int_eq(net_host_give_back(host, "cccccccccccccccccccc", NULL), 0); /* there is none: done */
}
END_TEST

/* ---- for good ---- */

#define CLEARED "/tmp/cleared" /* the world has its own in world.run */

START_TEST(clearing_leaves_nothing)
{
	struct net_host_config config = world_config(&world);
	struct err err = ERR_NULL;

	config.run = CLEARED;
	world_run("echo 0 >/proc/sys/net/ipv4/ip_forward");
	host = world_host(&config);
	(void)world_slot(host, ID_A, &policy);
	(void)world_slot(host, ID_B, &policy);
	expect_links(2);
	world_run("nft list table inet croft >/dev/null && grep -q 1 /proc/sys/net/ipv4/ip_forward");
	host = net_host_free(host);
	ck_assert_msg(net_host_clear(&config, &err) == 0, "%s", err.msg);
	world_run("! nft list table inet croft 2>/dev/null && grep -q 0 /proc/sys/net/ipv4/ip_forward");
	world_run("! grep " CLEARED " /proc/mounts && test ! -e " CLEARED);
	expect_links(0);
	/* where there is nothing */
	ck_assert_int_eq(net_host_clear(&config, &err), 0);
	world_run("test ! -e " CLEARED);
	/* a host that forwarded before us goes on */
	world_run("echo 1 >/proc/sys/net/ipv4/ip_forward");
	host = net_host_free(world_host(&config));
	ck_assert_int_eq(net_host_clear(&config, &err), 0);
	world_run("grep -q 1 /proc/sys/net/ipv4/ip_forward");
}
END_TEST

/* What fails is said, the rest goes, and the next call finds what is left. */
START_TEST(clearing_goes_on_past_a_failure)
{
	struct net_host_config config = world_config(&world);
	struct err err = ERR_NULL;

	config.run = CLEARED;
	host = world_host(&config);
	(void)world_slot(host, ID_A, &policy);
	(void)world_slot(host, ID_B, &policy);
	host = net_host_free(host);
	world_fail_unmount(1);
	ck_assert_int_lt(net_host_clear(&config, &err), 0);
	ck_assert(err_is_set(&err));
	world_fail_unmount(0);
	world_run("test $(ls " CLEARED "/netns | wc -l) = 1 && test $(ls " CLEARED "/slots | wc -l) = 1");
	world_run("! nft list table inet croft 2>/dev/null");
	ck_assert_int_eq(net_host_clear(&config, NULL), 0);
	world_run("test ! -e " CLEARED);
	expect_links(0);
}
END_TEST

/* ---- restarts ---- */

START_TEST(slots_outlive_their_manager)
{
	struct net_host_config config = world_config(&world);
	struct net_host_counts counts;
	char name[NET_SLOT_NAME_SIZE];
	int fd;

	config.spares = 2;
	host = world_host(&config);
	slot = world_slot(host, ID_A, &policy);
	memcpy(name, slot->slot.name, sizeof(name));
	for (int i = 0; i < 10 && net_host_tick(host); i++)
		;
	slot = net_host_find(host, ID_A);
	guest_make(&guest, host, slot);
	fd = guest_connect(&guest, WORLD_PUBLIC, 80, LONG_MS);
	ck_assert_int_eq(world_echo(fd, LONG_MS), 0);
	host = net_host_free(host);
	ck_assert_int_eq(world_echo(fd, LONG_MS), 0);
	host = world_host(&config);
	slot = net_host_find(host, ID_A);
	ck_assert_ptr_nonnull(slot);
	ck_assert_str_eq(slot->slot.name, name);
	ck_assert_uint_eq(slot->generation, 1);
	ck_assert_mem_eq(slot->slot.guest_mac, guest.slot.guest_mac, NET_MAC_SIZE);
	ck_assert_int_eq(world_echo(fd, LONG_MS), 0);
	/* the spares of before are nobody's; they are made anew */
	net_host_count(host, &counts);
	ck_assert_uint_eq(counts.taken, 1);
	ck_assert_uint_eq(counts.stale, 2);
	for (int i = 0; i < 20 && net_host_tick(host); i++)
		;
	net_host_count(host, &counts);
	ck_assert_uint_eq(counts.stale, 0);
	ck_assert_uint_eq(counts.spare, 2);
	ck_assert_int_eq(world_echo(fd, LONG_MS), 0);
	/* the same request again is the same slot, another generation's is refused */
	ck_assert_str_eq(world_slot(host, ID_A, &policy)->slot.name, name);
	ck_assert_int_eq(net_host_take(host, ID_A, 2, &policy, &slot, NULL), -EEXIST);
	(void)close(fd);
}
END_TEST

/* R052, a tenth of it: the whole is in tests/net/stale. */
START_TEST(leftovers_are_reclaimed_behind)
{
	struct net_host_config config = world_config(&world);
	struct net_host_counts counts;
	int ticks = 0;

	host = world_host(&config);
	for (int i = 0; i < 12; i++) {
		char id[ID_SIZE];

		(void)snprintf(id, sizeof(id), "aaaaaaaaaaaaaaaaaa%c%c", 'a' + i / 26, 'a' + i % 26);
		(void)world_slot(host, id, &policy);
	}
	host = net_host_free(host);
	/* of three the record is torn, of three it is gone, of three the link is, of three the namespace */
	world_run("cd %s/slots && set -- * && : >$1 && echo x >$2 && echo '1 - 2' >$3 && rm $4 $5 $6 &&"
		  " ip link del $7 && ip link del $8 && ip link del $9 && shift 9 && cd ../netns && umount $1 $2 $3 && rm $1",
		world.run);
	host = world_host(&config);
	net_host_count(host, &counts);
	ck_assert_uint_eq(counts.taken, 0);
	ck_assert_uint_eq(counts.stale, 12);
	slot = world_slot(host, ID_B, &policy); /* served at once, with an address that is nobody's */
	while (net_host_tick(host))
		ck_assert_int_lt(++ticks, 20);
	ck_assert_int_ge(ticks, 2); /* a few at a time */
	expect_left(1);
	guest_make(&guest, host, net_host_find(host, ID_B));
	expect_reaches(WORLD_PUBLIC, 80);
}
END_TEST

START_TEST(pool_refuses_the_hosts_routes) /* R145 */
{
	static const char *const commands[] = { "ip route add 198.18.0.128/25 via 203.0.113.1",
		"ip route add 198.0.0.0/8 via 203.0.113.1", "ip addr add 198.18.0.77/32 dev wan" };
	struct net_host_config config = world_config(&world);

	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		struct err err = ERR_NULL;

		world_run("%s", commands[i]);
		ck_assert_int_lt(net_host_new(&host, &config, &err), 0);
		ck_assert_int_eq(err.code, FAIL_POOL_OVERLAPS_ROUTE);
		ck_assert_str_eq(err_field(&err, "dev"), "wan");
		ck_assert_ptr_nonnull(err_field(&err, "route"));
		world_run("ip route del 198.18.0.128/25 2>/dev/null; ip route del 198.0.0.0/8 2>/dev/null;"
			  " ip addr del 198.18.0.77/32 dev wan 2>/dev/null; true");
	}
	host = world_host(&config);
	(void)world_slot(host, ID_A, &policy);
	host = net_host_free(host);
	host = world_host(&config); /* our own routes are none of that */
}
END_TEST

START_TEST(host_forwards_for_slots_alone)
{
	struct net_host_config config = world_config(&world);

	ck_assert_uint_eq(read_number("/proc/sys/net/ipv4/ip_forward"), 0);
	host = world_host(&config);
	ck_assert_uint_eq(read_number("/proc/sys/net/ipv4/ip_forward"), 1);
	/* a machine beside it that takes the host for a router gets nowhere, before and after a restart */
	for (int i = 0; i < 2; i++) {
		world_run("nft list chain inet croft forward | tail -n 3 | grep -qx '\t\tdrop'");
		host = net_host_free(host);
		host = world_host(&config);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("net");
	TCase *t = tcase_create("net");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, internet_is_reached_and_counted);
	tcase_add_test(t, fence_holds);
	tcase_add_test(t, host_holds_without_the_slots_rules);
	tcase_add_test(t, no_path_between_sandboxes);
	tcase_add_test(t, names_are_asked_of_our_resolver_alone);
	tcase_add_test(t, owner_opens_exactly_that);
	tcase_add_test(t, a_change_closes_what_it_forbids);
	tcase_add_test(t, nothing_is_allowed_where_the_internet_is_closed);
	tcase_add_test(t, names_are_judged_by_the_address);
	tcase_add_test(t, kernel_judges_as_the_judge);
	tcase_add_test(t, wire_is_pinned);
	tcase_add_test(t, ipv6_leads_nowhere);
	tcase_add_test(t, connections_are_limited);
	tcase_add_test(t, packets_are_limited);
	tcase_add_test(t, half_closed_streams_arrive_whole);
	tcase_add_loop_test(t, a_lost_message_leaves_no_half_slot, 0, 2);
	tcase_add_test(t, rules_that_never_hold_mean_no_slot);
	tcase_add_test(t, a_teardown_that_fails_is_swept);
	tcase_add_test(t, clearing_leaves_nothing);
	tcase_add_test(t, clearing_goes_on_past_a_failure);
	tcase_add_test(t, slots_outlive_their_manager);
	tcase_add_test(t, leftovers_are_reclaimed_behind);
	tcase_add_test(t, pool_refuses_the_hosts_routes);
	tcase_add_test(t, host_forwards_for_slots_alone);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
