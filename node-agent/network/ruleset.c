/* SPDX-License-Identifier: Apache-2.0
 *
 * See ruleset.h. The order within a text: declare (nothing that is there is touched), flush rules and the sets that
 * are ours to fill, fill, add rules. nft applies all of it or nothing.
 */
#include "network/ruleset.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static void put(struct buf *out, int *r, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void put(struct buf *out, int *r, const char *fmt, ...)
{
	char line[512];
	va_list args;
	int n;

	if (*r < 0)
		return;
	va_start(args, fmt);
	n = vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	*r = n < 0 || (size_t)n >= sizeof(line) ? -ENOBUFS : buf_append(out, line, (size_t)n);
}

static void put_addr(struct buf *out, int *r, uint32_t value)
{
	struct net_addr addr = net_addr_v4(value);
	char text[NET_ADDR_TEXT];

	net_addr_format(&addr, text);
	put(out, r, "%s", text);
}

/* The IPv4 part of a set; nothing where it has none (an empty element list is an error to nft). */
static void put_set(struct buf *out, int *r, const char *name, const struct net_set *set)
{
	bool any = false;

	for (size_t i = 0; i < set->n && set->items[i].first.family == NET_V4; i++) {
		const struct net_range *range = &set->items[i];

		put(out, r, any ? ", " : "add element inet croft %s { ", name);
		put_addr(out, r, (uint32_t)range->first.lo);
		if (range->first.lo != range->last.lo) {
			put(out, r, "-");
			put_addr(out, r, (uint32_t)range->last.lo);
		}
		any = true;
	}
	if (any)
		put(out, r, " }\n");
}

static void put_openings(
	struct buf *out, int *r, const char *chain, const struct net_owner *owner, bool is_reply, const char *then)
{
	for (size_t i = 0; i < owner->n; i++) {
		const struct net_opening *opening = &owner->items[i];
		char cidr[NET_CIDR_TEXT];

		if (opening->cidr.addr.family != NET_V4)
			continue;
		net_cidr_format(&opening->cidr, cidr);
		put(out, r, "add rule inet croft %s ip %s %s %s %s %u %s\n", chain, is_reply ? "saddr" : "daddr",
			cidr, opening->protocol == NET_PROTOCOL_TCP ? "tcp" : "udp",
			is_reply ? "sport" : "dport", opening->port, then);
	}
}

/* 64 bits of FNV-1a: against a text that was applied by half or is another, not against an enemy. */
static uint64_t stamp_of(const struct buf *out, size_t from)
{
	const uint8_t *text = buf_peek(out);

	return text && from < buf_size(out) ? fnv1a(FNV1A_BASIS, text + from, buf_size(out) - from) : FNV1A_BASIS;
}

static void put_stamp(struct buf *out, int *r, uint64_t stamp, char ret_stamp[static NET_STAMP_SIZE])
{
	(void)snprintf(ret_stamp, NET_STAMP_SIZE, "%016llx", (unsigned long long)stamp);
	put(out, r, "add rule inet croft stamp return comment \"%s\"\n", ret_stamp);
}

/* ---- a slot ---- */

static void declare_slot(struct buf *out, int *r)
{
	put(out, r,
		"table inet croft {\n"
		"	counter sent { }\n	counter received { }\n	counter denied { }\n"
		"	counter over_connections { }\n	counter over_rate { }\n"
		"	set fence { type ipv4_addr\n flags interval\n }\n"
		"	set allow { type ipv4_addr\n flags interval\n }\n"
		"	set deny { type ipv4_addr\n flags interval\n }\n"
		"	set pinned { type ipv4_addr\n flags timeout\n size %u\n }\n",
		2 * NET_PINS_MAX);
	put(out, r,
		"	set refused { type ipv4_addr . inet_proto . inet_service\n flags dynamic,timeout\n"
		" timeout 1h\n size %u\n }\n"
		"	chain stamp { }\n	chain judge_out { }\n	chain judge_in { }\n"
		"	chain deny_out { }\n	chain deny_in { }\n",
		NET_DENIED_MAX);
	put(out, r,
		"	chain forward { type filter hook forward priority 0\n policy drop\n }\n"
		"	chain input { type filter hook input priority 0\n policy drop\n }\n"
		"}\n"
		"table netdev croft {\n"
		"	counter strayed { }\n	counter over_rate { }\n"
		"	chain guard { type filter hook ingress device \"" NET_TAP "\" priority 0\n policy drop\n }\n"
		"}\n"
		"flush table inet croft\nflush table netdev croft\n"
		"flush set inet croft fence\nflush set inet croft allow\nflush set inet croft deny\n"
		"flush set inet croft pinned\n");
}

/* What the guest may put on its wire: its own MAC and address, ARP for the gateway, IPv4 to the gateway. */
static void put_guard(struct buf *out, int *r, const struct net_slot_rules *rules)
{
	const char *rule = "add rule netdev croft guard";
	char guest[NET_MAC_TEXT], gateway[NET_MAC_TEXT], address[NET_ADDR_TEXT], gateway_address[NET_ADDR_TEXT];
	struct net_addr addr = net_addr_v4(rules->slot->guest), gw = net_addr_v4(rules->slot->gateway);

	net_mac_format(rules->slot->guest_mac, guest);
	net_mac_format(net_gateway_mac, gateway);
	net_addr_format(&addr, address);
	net_addr_format(&gw, gateway_address);
	put(out, r, "%s limit rate over %u/second burst %u packets counter name over_rate drop\n", rule,
		rules->limits.packets_per_sec, MAX(rules->limits.packets_per_sec / 4, 5u));
	put(out, r, "%s ether saddr != %s counter name strayed drop\n", rule, guest);
	put(out, r, "%s arp saddr ether %s arp saddr ip %s arp daddr ip %s arp operation request accept\n", rule,
		guest, address, gateway_address);
	/* the answer to a question of the gateway's; gratuitous ones go with the rest */
	put(out, r, "%s arp saddr ether %s arp saddr ip %s arp daddr ip %s arp operation reply accept\n", rule,
		guest, address, gateway_address);
	/* udp 67: a guest that plays DHCP server is told off by name, though nobody would hear it */
	put(out, r, "%s ether daddr %s ip saddr %s udp sport != 67 accept\n", rule, gateway, address);
	put(out, r, "%s ether daddr %s ip saddr %s meta l4proto != udp accept\n", rule, gateway, address);
	put(out, r, "%s counter name strayed\n", rule);
}

static void put_judge(struct buf *out, int *r, const struct net_slot_rules *rules, bool is_reply, uint32_t mark)
{
	const char *chain = is_reply ? "judge_in" : "judge_out", *deny = is_reply ? "deny_in" : "deny_out",
		   *addr = is_reply ? "saddr" : "daddr", *port = is_reply ? "sport" : "dport";
	char then[48];

	(void)snprintf(then, sizeof(then), "ct mark set 0x%08x accept", mark);
	put_openings(out, r, chain, &rules->judge->owner, is_reply, then);
	/* names are asked of our resolver alone */
	put(out, r, "add rule inet croft %s meta l4proto { tcp, udp } th %s { 53, 853 } goto %s\n", chain, port,
		deny);
	put(out, r, "add rule inet croft %s ip %s @fence goto %s\n", chain, addr, deny);
	put(out, r, "add rule inet croft %s ip %s @allow %s\n", chain, addr, then);
	put(out, r, "add rule inet croft %s ip %s @pinned %s\n", chain, addr, then);
	put(out, r, "add rule inet croft %s ip %s @deny goto %s\n", chain, addr, deny);
	if (rules->judge->internet)
		put(out, r, "add rule inet croft %s %s\n", chain, then);
	else
		put(out, r, "add rule inet croft %s goto %s\n", chain, deny);
}

static void put_forward(struct buf *out, int *r, const struct net_slot_rules *rules, uint32_t mark)
{
	const struct net_limits *limits = &rules->limits;
	const char *rule = "add rule inet croft forward";

	put(out, r, "%s meta nfproto != ipv4 drop\n", rule);
	put(out, r, "%s ct state invalid drop\n", rule);
	put(out, r, "%s iifname " NET_TAP " limit rate over %u kbytes/second burst %u kbytes counter name over_rate drop\n",
		rule, limits->kib_per_sec, MAX(limits->kib_per_sec / 4, 64u));
	put(out, r, "%s iifname " NET_UPLINK " limit rate over %u kbytes/second burst %u kbytes counter name over_rate drop\n",
		rule, limits->kib_per_sec, MAX(limits->kib_per_sec / 4, 64u));
	put(out, r, "%s iifname " NET_UPLINK " limit rate over %u/second burst %u packets counter name over_rate drop\n",
		rule, limits->packets_per_sec, MAX(limits->packets_per_sec / 4, 5u));
	put(out, r, "%s iifname " NET_TAP " ct state new ct count over %u counter name over_connections drop\n", rule,
		limits->connections);
	put(out, r, "%s iifname " NET_TAP " counter name sent\n", rule);
	put(out, r, "%s iifname " NET_UPLINK " ct state established,related counter name received\n", rule);
	put(out, r, "%s ct state established,related ct mark 0x%08x accept\n", rule, mark);
	put(out, r, "%s iifname " NET_TAP " oifname " NET_UPLINK " goto judge_out\n", rule);
	/* nobody outside begins a connection */
	put(out, r, "%s iifname " NET_UPLINK " oifname " NET_TAP " ct direction reply ct state established goto judge_in\n",
		rule);
}

static void put_denials(struct buf *out, int *r)
{
	/* the remote end of a connection that was closed is the same whoever spoke last */
	put(out, r,
		"add rule inet croft deny_out counter name denied\n"
		"add rule inet croft deny_out update @refused { ip daddr . meta l4proto . th dport counter }\n"
		"add rule inet croft deny_out meta l4proto tcp reject with tcp reset\n"
		"add rule inet croft deny_out limit rate 20/second reject with icmp admin-prohibited\n"
		"add rule inet croft deny_out drop\n"
		"add rule inet croft deny_in counter name denied\n"
		"add rule inet croft deny_in meta l4proto tcp reject with tcp reset\n"
		"add rule inet croft deny_in drop\n");
}

/* The gateway's own address: the resolver, and an answer to ping. */
static void put_input(struct buf *out, int *r, const struct net_slot_rules *rules)
{
	const char *rule = "add rule inet croft input iifname " NET_TAP " ip daddr";
	char gateway[NET_ADDR_TEXT];
	struct net_addr addr = net_addr_v4(rules->slot->gateway);

	net_addr_format(&addr, gateway);
	put(out, r, "%s %s udp dport 53 limit rate 100/second burst 100 packets accept\n", rule, gateway);
	/* no new connections beyond the limit; what is open may speak */
	put(out, r, "%s %s tcp dport 53 ct state established accept\n", rule, gateway);
	put(out, r, "%s %s tcp dport 53 ct count over 16 drop\n", rule, gateway);
	put(out, r, "%s %s tcp dport 53 accept\n", rule, gateway);
	put(out, r, "%s %s icmp type echo-request limit rate 10/second accept\n", rule, gateway);
	put(out, r, "add rule inet croft input iifname " NET_UPLINK " icmp type { destination-unreachable, time-exceeded } ct state related accept\n");
}

int net_ruleset_slot(struct buf *out, const struct net_slot_rules *rules, char ret_stamp[static NET_STAMP_SIZE])
{
	size_t from = buf_size(out);
	uint32_t mark;
	int r = 0;

	declare_slot(out, &r);
	put_set(out, &r, "fence", &rules->judge->fence);
	put_set(out, &r, "allow", &rules->judge->allow);
	put_set(out, &r, "deny", &rules->judge->deny);
	put_guard(out, &r, rules);
	put_input(out, &r, rules);
	put_denials(out, &r);
	/* The mark is of the policy, not of the text: the same policy with other limits or pins disturbs no
	 * connection. A pin that ran out is judged with the next change, not before. */
	mark = (uint32_t)(rules->judge->hash ^ rules->judge->hash >> 32) | 1;
	put_judge(out, &r, rules, false, mark);
	put_judge(out, &r, rules, true, mark);
	put_forward(out, &r, rules, mark);
	if (r < 0)
		return r;
	put_stamp(out, &r, stamp_of(out, from), ret_stamp);
	return r < 0 ? r : net_ruleset_pins(out, rules->pins, rules->n_pins);
}

int net_ruleset_pins(struct buf *out, const struct net_pin *pins, size_t n_pins)
{
	int r = 0;

	for (size_t i = 0; i < n_pins; i++) {
		/* added, removed, added: an element that is there keeps its old timeout otherwise */
		put(out, &r, "add element inet croft pinned { ");
		put_addr(out, &r, pins[i].address);
		put(out, &r, " }\ndelete element inet croft pinned { ");
		put_addr(out, &r, pins[i].address);
		put(out, &r, " }\nadd element inet croft pinned { ");
		put_addr(out, &r, pins[i].address);
		put(out, &r, " timeout %us }\n", pins[i].ttl_sec);
	}
	return r;
}

/* ---- the host ---- */

static void declare_host(struct buf *out, int *r)
{
	/* before the usual priority: what is dropped here is seen by nobody's rules */
	put(out, r,
		"table inet croft {\n"
		"	counter strayed { }\n"
		"	set fence { type ipv4_addr\n flags interval\n }\n"
		"	chain stamp { }\n	chain from_slot { }\n	chain to_slot { }\n"
		"	chain forward { type filter hook forward priority -10\n policy accept\n }\n"
		"	chain input { type filter hook input priority -10\n policy accept\n }\n"
		"	chain output { type filter hook output priority -10\n policy accept\n }\n"
		"	chain nat { type nat hook postrouting priority srcnat\n policy accept\n }\n"
		"}\n"
		"flush table inet croft\nflush set inet croft fence\n");
}

int net_ruleset_host(struct buf *out, const struct net_host_rules *rules, char ret_stamp[static NET_STAMP_SIZE])
{
	size_t n_fence, from = buf_size(out);
	const struct net_cidr *fence = net_fence(&n_fence);
	struct net_set set;
	char pool[NET_CIDR_TEXT];
	int r = net_set_make(fence, n_fence, &set);

	if (r < 0)
		return r;
	net_cidr_format(rules->pool, pool);
	declare_host(out, &r);
	put_set(out, &r, "fence", &set);
	net_set_deinit(&set);
	put(out, &r, "add rule inet croft forward meta iifgroup %u goto from_slot\n", NET_LINK_GROUP);
	put(out, &r, "add rule inet croft forward meta oifgroup %u goto to_slot\n", NET_LINK_GROUP);
	if (rules->forward_nothing_else)
		put(out, &r, "add rule inet croft forward drop\n");
	put(out, &r, "add rule inet croft from_slot meta nfproto != ipv4 counter name strayed drop\n");
	put(out, &r, "add rule inet croft from_slot meta oifgroup %u counter name strayed drop\n", NET_LINK_GROUP);
	put(out, &r, "add rule inet croft from_slot ip saddr != %s counter name strayed drop\n", pool);
	put_openings(out, &r, "from_slot", rules->owner, false, "accept");
	put(out, &r, "add rule inet croft from_slot ip daddr @fence counter name strayed drop\n");
	put(out, &r, "add rule inet croft from_slot accept\n");
	put(out, &r, "add rule inet croft to_slot ct state established,related accept\n");
	put(out, &r, "add rule inet croft to_slot drop\n");
	/* no path to the host itself, whatever address it has */
	put(out, &r, "add rule inet croft input meta iifgroup %u counter name strayed drop\n", NET_LINK_GROUP);
	put(out, &r,
		"add rule inet croft output meta oifgroup %u icmp type { destination-unreachable, time-exceeded } accept\n",
		NET_LINK_GROUP);
	put(out, &r, "add rule inet croft output meta oifgroup %u drop\n", NET_LINK_GROUP);
	put(out, &r, "add rule inet croft nat ip saddr %s meta oifgroup != %u masquerade\n", pool, NET_LINK_GROUP);
	if (r < 0)
		return r;
	put_stamp(out, &r, stamp_of(out, from), ret_stamp);
	return r;
}
