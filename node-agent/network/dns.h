/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire form of the few DNS messages that a sandbox's resolver speaks. Pure. Queries are the guest's and hostile: one
 * question, no compression in it, a host name of bounded length; everything else is answered with a code or not at
 * all. Only addresses are given out: TXT, NULL and the like, which carry data well, are refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "network/policy.h"

#define DNS_MESSAGE_MAX 512
#define DNS_QUESTION_MAX 260
#define DNS_NAME_MAX 128u   /* characters; a longer name is more likely data than a name */
#define DNS_LABELS_MAX 10u
#define DNS_ADDRESSES_MAX 16u

enum dns_code { DNS_OK = 0, DNS_FORMAT = 1, DNS_FAILED = 2, DNS_NO_NAME = 3, DNS_NOT_BUILT = 4, DNS_REFUSED = 5 };

struct dns_query {
	uint16_t id;
	bool recursion;
	uint16_t type;
	char name[NET_NAME_SIZE];            /* lower case */
	uint8_t question[DNS_QUESTION_MAX];  /* as it came: its letters are echoed */
	size_t question_size;                /* 0: there is none to echo */
};

enum dns_verdict {
	DNS_IGNORE,  /* no query: nothing is said */
	DNS_ANSWER,  /* with *ret_code, and no addresses */
	DNS_RESOLVE, /* an A question for a name in order */
};
enum dns_verdict dns_query_parse(const uint8_t *data, size_t size, struct dns_query *ret, enum dns_code *ret_code);

/* The answer in `out`; returns its size. At most DNS_ADDRESSES_MAX addresses. */
size_t dns_answer(const struct dns_query *query, enum dns_code code, const uint32_t *addresses, size_t n,
	uint32_t ttl_sec, uint8_t out[static DNS_MESSAGE_MAX]);

/* Leaves those that are not behind the fence; returns how many. */
size_t dns_strip(uint32_t *addresses, size_t n);

/* A token bucket. */
struct dns_rate {
	int64_t tokens_usec; /* time's worth of tokens */
	int64_t last_usec;
};
#define DNS_RATE_PER_SEC 20
#define DNS_RATE_BURST 100
bool dns_rate_take(struct dns_rate *rate, int64_t now_usec);
