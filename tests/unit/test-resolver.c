/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/resolver on the loopback, in front of a name server that the test plays: what is asked on, what is stripped
 * (R134), what is refused (R136), how much is borne. No helper: pins are what the network tests are for.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/resolver.h"
#include "base/fd.h"
#include "lib/suite.h"
#include "network/dns.h"

#define ID "abcdefghijklmnopqrst"

static struct event_base *base;
static struct resolver *resolver;
static struct event *upstream_event;
static int guest, upstream;
static unsigned int asked; /* questions that came to the name server */
static bool is_silent;

static int udp(struct sockaddr_in *ret)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof(*ret);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	ck_assert_int_eq(bind(fd, (struct sockaddr *)ret, sizeof(*ret)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)ret, &size), 0);
	return fd;
}

/* public.test: one address; mixed.test: that and private ones; private.test: those alone; anything else: no such name */
static void on_upstream(evutil_socket_t fd, short what, void *user)
{
	static const uint32_t mixed[] = { 0x0a000001, 0x5db8d822, 0xa9fea9fe, 0x7f000001 };
	uint8_t data[DNS_MESSAGE_MAX], out[DNS_MESSAGE_MAX];
	struct sockaddr_in from;
	socklen_t from_size = sizeof(from);
	struct dns_query query;
	enum dns_code code = DNS_OK;
	ssize_t n = recvfrom(fd, data, sizeof(data), 0, (struct sockaddr *)&from, &from_size);
	const uint32_t *addresses = mixed;
	size_t count = 0, size;

	(void)what, (void)user;
	if (n <= 0 || dns_query_parse(data, (size_t)n, &query, &code) == DNS_IGNORE)
		return;
	asked++;
	if (is_silent)
		return;
	if (!strcmp(query.name, "public.test"))
		addresses = mixed + 1, count = 1;
	else if (!strcmp(query.name, "mixed.test"))
		count = 4;
	else if (!strcmp(query.name, "private.test"))
		addresses = mixed + 2, count = 2;
	else
		code = DNS_NO_NAME;
	size = dns_answer(&query, code, addresses, count, 0, out);
	(void)sendto(fd, out, size, 0, (struct sockaddr *)&from, from_size);
}

static void setup(void)
{
	struct sockaddr_in name_server, slot;
	struct net_policy policy = { .internet = true };
	char text[32];
	int fd;

	base = event_base_new();
	ck_assert_int_eq(resolver_new(&resolver, base, NULL, NULL), 0);
	upstream = udp(&name_server);
	upstream_event = event_new(base, upstream, EV_READ | EV_PERSIST, on_upstream, NULL);
	ck_assert_int_eq(event_add(upstream_event, NULL), 0);
	(void)snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(name_server.sin_port));
	ck_assert_int_eq(resolver_set_upstream(resolver, text), 0);
	ck_assert_int_eq(net_policy_deny(&policy, "*.denied.test", NULL), 0);
	ck_assert_int_eq(net_policy_allow(&policy, "mixed.test", NULL), 0);
	fd = udp(&slot);
	ck_assert_int_eq(resolver_add(resolver, ID, fd, &policy), 0);
	net_policy_deinit(&policy);
	guest = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(connect(guest, (struct sockaddr *)&slot, sizeof(slot)), 0);
}

static void teardown(void)
{
	resolver_free(resolver);
	event_free(upstream_event);
	(void)event_base_loop(base, EVLOOP_NONBLOCK); /* what was asked and has no answer ends */
	event_base_free(base);
	(void)close(guest);
	(void)close(upstream);
}

static void ask(const char *name, uint8_t type)
{
	uint8_t packet[512] = { 0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0 };
	size_t size = 12;

	while (*name) {
		size_t n = strcspn(name, ".");

		packet[size++] = (uint8_t)n;
		memcpy(packet + size, name, n);
		size += n;
		name += n + (name[n] == '.');
	}
	size++;
	packet[size + 1] = type;
	packet[size + 3] = 1;
	ck_assert_int_eq(send(guest, packet, size + 4, 0), (ssize_t)(size + 4));
}

/* The code of the answer, -1 without one; the last address and how many there were. */
static int answer(uint32_t *ret_address, unsigned int *ret_n)
{
	uint8_t data[DNS_MESSAGE_MAX];
	ssize_t n = -1;

	for (int i = 0; i < 300 && n < 0; i++) {
		struct timeval tv = { .tv_usec = 10000 };

		(void)event_base_loopexit(base, &tv);
		ck_assert_int_ge(event_base_loop(base, EVLOOP_ONCE), 0);
		n = recv(guest, data, sizeof(data), 0);
	}
	if (n < 12)
		return -1;
	*ret_n = data[7];
	if (*ret_n > 0) {
		uint32_t wire;

		memcpy(&wire, data + n - 4, 4);
		*ret_address = ntohl(wire);
	}
	return data[3] & 15;
}

START_TEST(names_are_resolved)
{
	uint32_t address = 0;
	unsigned int n;

	ask("PUBLIC.test", 1);
	ck_assert_int_eq(answer(&address, &n), DNS_OK);
	ck_assert(n == 1 && address == 0x5db8d822);
	ask("nothing.test", 1);
	ck_assert_int_eq(answer(&address, &n), DNS_NO_NAME);
	ask("public.test", 28);
	ck_assert_int_eq(answer(&address, &n), DNS_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(asked, 2);
}
END_TEST

START_TEST(private_answers_are_stripped)
{
	struct resolver_counts counts;
	uint32_t address = 0;
	unsigned int n;

	ask("mixed.test", 1); /* an allowed name at that */
	ck_assert_int_eq(answer(&address, &n), DNS_OK);
	ck_assert(n == 1 && address == 0x5db8d822);
	ask("private.test", 1);
	ck_assert_int_eq(answer(&address, &n), DNS_OK);
	ck_assert_uint_eq(n, 0);
	resolver_count(resolver, &counts);
	ck_assert_uint_eq(counts.stripped, 5);
}
END_TEST

START_TEST(refused_questions_go_nowhere)
{
	uint32_t address;
	unsigned int n;

	ask("x.denied.test", 1);
	ck_assert_int_eq(answer(&address, &n), DNS_REFUSED);
	ask("public.test", 16); /* TXT */
	ck_assert_int_eq(answer(&address, &n), DNS_REFUSED);
	ask("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
	    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb."
	    "ccccccccccccccccc.tunnel.test",
		1);
	ck_assert_int_eq(answer(&address, &n), DNS_REFUSED);
	ck_assert_uint_eq(asked, 0);
}
END_TEST

START_TEST(a_flood_is_borne)
{
	struct resolver_counts counts;

	is_silent = true;
	for (int i = 0; i < 1000; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "n%d.test", i);
		ask(name, 1);
		(void)event_base_loop(base, EVLOOP_NONBLOCK);
	}
	resolver_count(resolver, &counts);
	ck_assert_uint_gt(counts.too_many, 800);
	ck_assert_uint_le(asked, 32); /* of one sandbox under way */
}
END_TEST

START_TEST(a_sandbox_that_goes_takes_its_questions)
{
	uint32_t address;
	unsigned int n;

	is_silent = true;
	ask("public.test", 1);
	for (int i = 0; i < 200 && asked == 0; i++) {
		struct timeval tv = { .tv_usec = 10000 };

		(void)event_base_loopexit(base, &tv);
		(void)event_base_loop(base, EVLOOP_ONCE);
	}
	ck_assert_uint_eq(asked, 1);
	resolver_remove(resolver, ID);
	resolver_remove(resolver, ID);
	(void)address, (void)n;
}
END_TEST

static size_t pins_of(const char *allowed, struct net_pin *ret, size_t max)
{
	struct net_policy policy = { .internet = false };
	size_t n;

	ck_assert_int_eq(net_policy_allow(&policy, allowed, NULL), 0);
	n = resolver_pins(resolver, ID, &policy, ret, max);
	net_policy_deinit(&policy);
	return n;
}

/* A policy that comes later may allow a name that was answered before. */
START_TEST(answers_are_remembered_for_another_policy)
{
	struct net_pin pins[4];
	uint32_t address;
	unsigned int n;

	ask("public.test", 1);
	ck_assert_int_eq(answer(&address, &n), DNS_OK);
	ck_assert_uint_eq(pins_of("other.test", pins, 4), 0);
	ck_assert_uint_eq(pins_of("*.test", pins, 4), 1);
	ck_assert(pins[0].address == 0x5db8d822 && pins[0].ttl_sec > 0 && pins[0].ttl_sec <= 60);
	ask("public.test", 1); /* the same name: the same place */
	ck_assert_int_eq(answer(&address, &n), DNS_OK);
	ck_assert_uint_eq(pins_of("public.test", pins, 4), 1);
	for (int i = 0; i < 60; i++) { /* within the rate */
		char name[32];

		(void)snprintf(name, sizeof(name), "n%d.test", i);
		ask(name, 1);
		ck_assert_int_eq(answer(&address, &n), DNS_NO_NAME); /* nothing to remember */
	}
	ck_assert_uint_eq(pins_of("*.test", pins, 4), 1);
	/* a socket that is opened again, after a restart of the helper, knows them too */
	ck_assert_int_eq(resolver_add(resolver, ID, dup(upstream), &(struct net_policy){ .internet = true }), 0);
	ck_assert_uint_eq(pins_of("public.test", pins, 4), 1);
}
END_TEST

START_TEST(another_policy_holds_for_what_is_under_way)
{
	struct net_policy policy = { .internet = false };
	uint32_t address;
	unsigned int n;

	ck_assert_int_eq(resolver_set_policy(resolver, "zzzzzzzzzzzzzzzzzzzz", &policy), -ENOENT);
	ask("public.test", 1);
	for (int i = 0; i < 200 && asked == 0; i++)
		(void)event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	ck_assert_int_eq(resolver_set_policy(resolver, ID, &policy), 0);
	ck_assert_int_eq(answer(&address, &n), DNS_REFUSED);
	ck_assert_uint_eq(n, 0);
	asked = 0;
	ask("public.test", 1);
	ck_assert_int_eq(answer(&address, &n), DNS_REFUSED);
	ck_assert_uint_eq(asked, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("resolver");
	TCase *t = tcase_create("resolver");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, names_are_resolved);
	tcase_add_test(t, private_answers_are_stripped);
	tcase_add_test(t, refused_questions_go_nowhere);
	tcase_add_test(t, a_flood_is_borne);
	tcase_add_test(t, a_sandbox_that_goes_takes_its_questions);
	tcase_add_test(t, answers_are_remembered_for_another_policy);
	tcase_add_test(t, another_policy_holds_for_what_is_under_way);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
