/* SPDX-License-Identifier: Apache-2.0
 *
 * network/dns: which queries are taken (R136), what answers look like, private answers are stripped (R134), the rate,
 * and bytes at random.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "lib/suite.h"
#include "network/dns.h"

struct packet {
	uint8_t bytes[600];
	size_t size;
};

/* "www.example.com" -> a query for it. */
static struct packet query_of(const char *name, uint16_t type)
{
	static const uint8_t head[] = { 0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0 };
	struct packet packet = { .size = sizeof(head) };

	memcpy(packet.bytes, head, sizeof(head));
	while (*name) {
		size_t n = strcspn(name, ".");

		packet.bytes[packet.size++] = (uint8_t)n;
		memcpy(packet.bytes + packet.size, name, n);
		packet.size += n;
		name += n + (name[n] == '.');
	}
	packet.bytes[packet.size++] = 0;
	packet.bytes[packet.size++] = (uint8_t)(type >> 8);
	packet.bytes[packet.size++] = (uint8_t)type;
	packet.bytes[packet.size++] = 0;
	packet.bytes[packet.size++] = 1;
	return packet;
}

static enum dns_verdict parse(const struct packet *packet, struct dns_query *query, enum dns_code *code)
{
	*code = DNS_OK;
	return dns_query_parse(packet->bytes, packet->size, query, code);
}

START_TEST(an_address_question_is_taken)
{
	struct packet packet = query_of("WwW.Example.com", 1);
	struct dns_query query;
	enum dns_code code;
	uint32_t addresses[] = { 0x08080808, 0x01020304 };
	uint8_t out[DNS_MESSAGE_MAX];
	size_t n;

	ck_assert_int_eq(parse(&packet, &query, &code), DNS_RESOLVE);
	ck_assert_str_eq(query.name, "www.example.com");
	n = dns_answer(&query, DNS_OK, addresses, 2, 60, out);
	ck_assert_uint_eq(n, packet.size + 32);
	ck_assert(out[0] == 0x12 && out[1] == 0x34 && out[2] == 0x81 && out[3] == 0x80);
	ck_assert(out[5] == 1 && out[7] == 2);
	ck_assert_mem_eq(out + 12, packet.bytes + 12, packet.size - 12); /* letters as they came */
	ck_assert_mem_eq(out + packet.size, "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x08\x08\x08\x08", 16);
	n = dns_answer(&query, DNS_REFUSED, addresses, 2, 60, out);
	ck_assert_uint_eq(n, packet.size);
	ck_assert_uint_eq(out[3] & 15, DNS_REFUSED);
	ck_assert_uint_eq(out[7], 0);
}
END_TEST

START_TEST(other_types_carry_nothing)
{
	static const struct {
		uint16_t type;
		enum dns_code code;
	} types[] = { { 28, DNS_OK }, { 65, DNS_OK }, { 64, DNS_OK }, { 16, DNS_REFUSED }, { 10, DNS_REFUSED },
		{ 15, DNS_REFUSED }, { 5, DNS_REFUSED }, { 255, DNS_REFUSED }, { 252, DNS_REFUSED }, { 12, DNS_REFUSED } };

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct packet packet = query_of("example.com", types[i].type);
		struct dns_query query;
		enum dns_code code;

		ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
		ck_assert_int_eq(code, types[i].code);
	}
}
END_TEST

START_TEST(long_and_odd_names_are_refused)
{
	char text[300];
	struct packet packet;
	struct dns_query query;
	enum dns_code code;

	/* what a tunnel's questions look like */
	memset(text, 'a', sizeof(text));
	for (size_t i = 50; i < sizeof(text); i += 51)
		text[i] = '.';
	text[140] = '\0';
	packet = query_of(text, 1);
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	ck_assert_int_eq(code, DNS_REFUSED);
	packet = query_of("a.a.a.a.a.a.a.a.a.a.a", 1);
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	ck_assert_int_eq(code, DNS_REFUSED);
	packet = query_of("a_b.exa mple.com", 1);
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	packet = query_of("example.com", 1);
	packet.bytes[15] = 0; /* "ex\0mple": its text would be another name */
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	ck_assert_int_eq(code, DNS_REFUSED);
	packet = query_of("", 1);
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	packet = query_of("169.254.169.254", 1);
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	ck_assert_int_eq(code, DNS_REFUSED);
}
END_TEST

START_TEST(what_is_no_query_is_not_answered)
{
	struct packet packet = query_of("example.com", 1);
	struct dns_query query;
	enum dns_code code;

	packet.bytes[2] |= 0x80; /* an answer */
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_IGNORE);
	packet = query_of("example.com", 1);
	packet.size = 11;
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_IGNORE);
	packet = query_of("example.com", 1);
	packet.bytes[2] |= 0x28; /* an update */
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	ck_assert_int_eq(code, DNS_NOT_BUILT);
	packet = query_of("example.com", 1);
	packet.bytes[5] = 2; /* two questions */
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	ck_assert_int_eq(code, DNS_FORMAT);
	packet = query_of("example.com", 1);
	packet.bytes[12] = 0xc0; /* a pointer to itself */
	packet.bytes[13] = 12;
	ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
	ck_assert_int_eq(code, DNS_FORMAT);
	for (size_t cut = 12; cut < query_of("example.com", 1).size; cut++) {
		packet = query_of("example.com", 1);
		packet.size = cut;
		ck_assert_int_eq(parse(&packet, &query, &code), DNS_ANSWER);
		ck_assert_int_eq(code, DNS_FORMAT);
	}
}
END_TEST

START_TEST(private_answers_are_stripped)
{
	uint32_t addresses[] = { 0xa9fea9fe, 0x08080808, 0x0a000001, 0x7f000001, 0x01010101, 0xc0a80001, 0xa83f8110 };

	ck_assert_uint_eq(dns_strip(addresses, ARRAY_LEN(addresses)), 2);
	ck_assert(addresses[0] == 0x08080808 && addresses[1] == 0x01010101);
	ck_assert_uint_eq(dns_strip(addresses + 2, 1), 0);
}
END_TEST

START_TEST(an_answer_never_overflows)
{
	uint32_t addresses[100] = { 0 };
	uint8_t out[DNS_MESSAGE_MAX];
	struct dns_query query = { .question_size = DNS_QUESTION_MAX };

	ck_assert_uint_le(dns_answer(&query, DNS_OK, addresses, 100, 1, out), DNS_MESSAGE_MAX);
	query.question_size = 20;
	ck_assert_uint_eq(dns_answer(&query, DNS_OK, addresses, 100, 1, out), 12 + 20 + 16 * DNS_ADDRESSES_MAX);
}
END_TEST

START_TEST(questions_have_a_rate)
{
	struct dns_rate rate = { 0, 0 };
	int64_t now = 1000 * USEC_PER_SEC;
	int taken = 0;

	for (int i = 0; i < 1000; i++)
		taken += dns_rate_take(&rate, now);
	ck_assert_int_eq(taken, DNS_RATE_BURST);
	for (int i = 0; i < 1000; i++)
		taken += dns_rate_take(&rate, now + USEC_PER_SEC);
	ck_assert_int_eq(taken, DNS_RATE_BURST + DNS_RATE_PER_SEC);
	for (int i = 0; i < 1000; i++)
		taken += dns_rate_take(&rate, now); /* a clock that goes back gives nothing */
	ck_assert_int_eq(taken, DNS_RATE_BURST + DNS_RATE_PER_SEC);
}
END_TEST

START_TEST(random_bytes_do_no_harm)
{
	struct packet good = query_of("www.example.com", 1);
	struct rng rng = rng_seeded(53);
	uint8_t out[DNS_MESSAGE_MAX];
	uint32_t addresses[4] = { 1, 2, 3, 4 };

	for (int i = 0; i < 100000; i++) {
		struct packet packet = good;
		struct dns_query query;
		enum dns_code code = DNS_OK;

		if (i % 2) {
			packet.size = rng_below(&rng, sizeof(packet.bytes));
			rng_bytes(&rng, packet.bytes, packet.size);
			packet.bytes[2] &= 0x7f;
		}
		for (int k = 0; k < 4 && packet.size > 0; k++)
			packet.bytes[rng_below(&rng, packet.size)] = (uint8_t)rng_u64(&rng);
		if (dns_query_parse(packet.bytes, packet.size, &query, &code) != DNS_IGNORE)
			(void)dns_answer(&query, code, addresses, 4, 1, out);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("dns");
	TCase *t = tcase_create("dns");

	tcase_add_test(t, an_address_question_is_taken);
	tcase_add_test(t, other_types_carry_nothing);
	tcase_add_test(t, long_and_odd_names_are_refused);
	tcase_add_test(t, what_is_no_query_is_not_answered);
	tcase_add_test(t, private_answers_are_stripped);
	tcase_add_test(t, an_answer_never_overflows);
	tcase_add_test(t, questions_have_a_rate);
	tcase_add_test(t, random_bytes_do_no_harm);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
