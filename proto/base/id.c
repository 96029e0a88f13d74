/* SPDX-License-Identifier: Apache-2.0
 *
 * See id.h.
 */
#include "base/id.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";

static void random_base32(struct rng *rng, char *ret, size_t n)
{
	unsigned char bytes[64];

	rng_bytes(rng, bytes, MIN(n, sizeof(bytes)));
	for (size_t i = 0; i < n; i++)
		ret[i] = base32[bytes[i] & 31];
	ret[n] = '\0';
}

static void random_hex(struct rng *rng, char *ret, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char bytes[32];

	rng_bytes(rng, bytes, MIN(n, sizeof(bytes)));
	for (size_t i = 0; i < n; i++)
		ret[i] = hex[bytes[i] & 15];
	ret[0] = ret[0] == '0' ? '1' : ret[0]; /* an all-zero trace or span id is invalid */
	ret[n] = '\0';
}

void id_new(struct rng *rng, char ret[static ID_SIZE])
{
	random_base32(rng, ret, ID_LEN);
}

bool id_is_valid(const char *id)
{
	return strlen(id) == ID_LEN && strspn(id, base32) == ID_LEN;
}

bool id_name_is_valid(const char *name)
{
	size_t n = strlen(name);

	return n >= 1 && n <= ID_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

bool digest_is_valid(const char *digest)
{
	return strlen(digest) == DIGEST_SIZE - 1 && strncmp(digest, "sha256:", 7) == 0 &&
	       strspn(digest + 7, "0123456789abcdef") == 64;
}

void api_key_new(struct rng *rng, char ret[static API_KEY_SIZE])
{
	memcpy(ret, "croft_", 6);
	random_base32(rng, ret + 6, 32);
}

void trace_new(struct rng *rng, struct trace *ret)
{
	random_hex(rng, ret->trace_id, TRACE_ID_SIZE - 1);
	random_hex(rng, ret->span_id, SPAN_ID_SIZE - 1);
}

void trace_child(struct rng *rng, const struct trace *parent, struct trace *ret)
{
	if (ret != parent)
		memcpy(ret->trace_id, parent->trace_id, sizeof(ret->trace_id));
	random_hex(rng, ret->span_id, SPAN_ID_SIZE - 1);
}

static bool is_hex_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* n digits that are not all zero */
static bool is_id(const char *text, size_t n)
{
	bool zero = true;

	for (size_t i = 0; i < n; i++) {
		if (!is_hex_digit(text[i]))
			return false;
		zero = zero && text[i] == '0';
	}
	return !zero;
}

/* A version over 00 may go on behind the flags; ff is none. */
static bool is_version(const char *traceparent, size_t size)
{
	if (!is_hex_digit(traceparent[0]) || !is_hex_digit(traceparent[1]) || !memcmp(traceparent, "ff", 2))
		return false;
	if (!memcmp(traceparent, "00", 2))
		return size == TRACEPARENT_SIZE - 1;
	return size == TRACEPARENT_SIZE - 1 || traceparent[TRACEPARENT_SIZE - 1] == '-';
}

int trace_parse(const char *traceparent, struct trace *ret)
{
	size_t size = strlen(traceparent);

	if (size < TRACEPARENT_SIZE - 1 || !is_version(traceparent, size) || traceparent[2] != '-' ||
		traceparent[35] != '-' || traceparent[52] != '-' || !is_id(traceparent + 3, 32) ||
		!is_id(traceparent + 36, 16) || !is_hex_digit(traceparent[53]) || !is_hex_digit(traceparent[54]))
		return -EINVAL;
	memcpy(ret->trace_id, traceparent + 3, 32);
	ret->trace_id[32] = '\0';
	memcpy(ret->span_id, traceparent + 36, 16);
	ret->span_id[16] = '\0';
	return 0;
}

void trace_format(const struct trace *trace, char ret[static TRACEPARENT_SIZE])
{
	(void) snprintf(ret, TRACEPARENT_SIZE, "00-%.32s-%.16s-01", trace->trace_id, trace->span_id);
}
