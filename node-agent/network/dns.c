/* SPDX-License-Identifier: Apache-2.0
 *
 * See dns.h.
 */
#include "network/dns.h"

#include <string.h>

#include "base/clock.h"

#define HEAD 12u
#define TYPE_A 1u
#define TYPE_AAAA 28u
#define TYPE_SVCB 64u
#define TYPE_HTTPS 65u
#define CLASS_IN 1u
#define FLAG_ANSWER 0x8000u
#define FLAG_RECURSION_DESIRED 0x0100u
#define FLAG_RECURSION_AVAILABLE 0x0080u
#define OPCODE_MASK 0x7800u
#define LABEL_MAX 63u
#define RECORD 16u /* of an A answer */
#define POINTER_TO_QUESTION 0xc00cu

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static uint8_t *put16(uint8_t *at, unsigned int value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
	return at + 2;
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
	return put16(put16(at, value >> 16), value & 0xffff);
}

/* The name at the head of the question. Returns the bytes it takes, 0: it is none. */
static size_t take_name(const uint8_t *data, size_t size, char ret[static NET_NAME_SIZE])
{
	size_t at = 0, out = 0;

	while (at < size && data[at] != 0) {
		size_t n = data[at++];

		if (n > LABEL_MAX || at + n >= size || out + n + 1 >= NET_NAME_SIZE)
			return 0; /* also a pointer: in a first name it leads nowhere good */
		if (out > 0)
			ret[out++] = '.';
		for (size_t i = 0; i < n; i++) {
			uint8_t c = data[at + i];

			ret[out++] = (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
		}
		at += n;
	}
	ret[out] = '\0';
	return at < size ? at + 1 : 0;
}

static bool is_in_bounds(const char *name)
{
	size_t labels = 1;

	for (const char *at = name; *at; at++)
		labels += *at == '.';
	/* a NUL inside a label ends the text early, and then it is none that is valid or another's: see the caller */
	return strlen(name) <= DNS_NAME_MAX && labels <= DNS_LABELS_MAX && net_name_is_valid(name, false);
}

static enum dns_verdict answer(enum dns_code *ret_code, enum dns_code code)
{
	*ret_code = code;
	return DNS_ANSWER;
}

enum dns_verdict dns_query_parse(const uint8_t *data, size_t size, struct dns_query *ret, enum dns_code *ret_code)
{
	uint16_t flags;
	size_t n;

	memset(ret, 0, sizeof(*ret));
	if (size < HEAD || size > DNS_MESSAGE_MAX)
		return DNS_IGNORE;
	flags = get16(data + 2);
	if (flags & FLAG_ANSWER)
		return DNS_IGNORE; /* two that answer each other's answers would never end */
	ret->id = get16(data);
	ret->recursion = flags & FLAG_RECURSION_DESIRED;
	if (flags & OPCODE_MASK)
		return answer(ret_code, DNS_NOT_BUILT);
	/* one question, no answers; a record behind it is EDNS, of which we need nothing */
	if (get16(data + 4) != 1 || get16(data + 6) != 0 || get16(data + 8) != 0 || get16(data + 10) > 1)
		return answer(ret_code, DNS_FORMAT);
	n = take_name(data + HEAD, size - HEAD, ret->name);
	if (n == 0 || HEAD + n + 4 > size || n + 4 > sizeof(ret->question))
		return answer(ret_code, DNS_FORMAT);
	memcpy(ret->question, data + HEAD, n + 4);
	ret->question_size = n + 4;
	ret->type = get16(data + HEAD + n);
	/* n counts a length and the root's: a name that is shorter as text has a NUL in it */
	if (get16(data + HEAD + n + 2) != CLASS_IN || strlen(ret->name) + 2 != n || !is_in_bounds(ret->name))
		return answer(ret_code, DNS_REFUSED);
	if (ret->type == TYPE_A)
		return DNS_RESOLVE;
	/* "the name has none of these": a client then asks for, or is content with, A */
	if (ret->type == TYPE_AAAA || ret->type == TYPE_SVCB || ret->type == TYPE_HTTPS)
		return answer(ret_code, DNS_OK);
	return answer(ret_code, DNS_REFUSED);
}

size_t dns_answer(const struct dns_query *query, enum dns_code code, const uint32_t *addresses, size_t n,
	uint32_t ttl_sec, uint8_t out[static DNS_MESSAGE_MAX])
{
	uint8_t *at = out;

	n = code == DNS_OK ? MIN(n, (size_t)DNS_ADDRESSES_MAX) : 0;
	n = MIN(n, (DNS_MESSAGE_MAX - HEAD - query->question_size) / RECORD);
	at = put16(at, query->id);
	at = put16(at, FLAG_ANSWER | FLAG_RECURSION_AVAILABLE | (query->recursion ? FLAG_RECURSION_DESIRED : 0) |
			       (unsigned int)code);
	at = put16(at, query->question_size ? 1 : 0);
	at = put16(at, (unsigned int)n);
	at = put32(at, 0);
	memcpy(at, query->question, query->question_size);
	at += query->question_size;
	for (size_t i = 0; i < n; i++) {
		at = put16(at, POINTER_TO_QUESTION);
		at = put16(at, TYPE_A);
		at = put16(at, CLASS_IN);
		at = put32(at, ttl_sec);
		at = put16(at, 4);
		at = put32(at, addresses[i]);
	}
	return (size_t)(at - out);
}

size_t dns_strip(uint32_t *addresses, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct net_addr addr = net_addr_v4(addresses[i]);

		if (!net_is_fenced(&addr))
			addresses[kept++] = addresses[i];
	}
	return kept;
}

bool dns_rate_take(struct dns_rate *rate, int64_t now_usec)
{
	const int64_t cost = USEC_PER_SEC / DNS_RATE_PER_SEC, most = cost * DNS_RATE_BURST;

	if (rate->last_usec == 0)
		rate->tokens_usec = most;
	else if (now_usec > rate->last_usec)
		rate->tokens_usec = MIN(rate->tokens_usec + (now_usec - rate->last_usec), most);
	rate->last_usec = now_usec;
	if (rate->tokens_usec < cost)
		return false;
	rate->tokens_usec -= cost;
	return true;
}
