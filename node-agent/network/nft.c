/* SPDX-License-Identifier: Apache-2.0
 *
 * See nft.h. A context of libnftables holds a netlink socket of the namespace in which it was made, so each try has
 * one of its own.
 */
#include "network/nft.h"

#include <errno.h>
#include <jansson.h>
#include <nftables/libnftables.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define WORDS_MAX 160


static void ctx_freep(struct nft_ctx **ctx)
{
	if (*ctx)
		nft_ctx_free(*ctx);
}
#define CLEANUP_CTX CLEANUP(ctx_freep)

static struct nft_ctx *ctx_new(bool is_json)
{
	struct nft_ctx *ctx = nft_ctx_new(NFT_CTX_DEFAULT);

	if (!ctx)
		return NULL;
	/* nothing of it reaches our own standard output and error */
	if (nft_ctx_buffer_output(ctx) != 0 || nft_ctx_buffer_error(ctx) != 0) {
		nft_ctx_free(ctx);
		return NULL;
	}
	if (is_json)
		nft_ctx_output_set_flags(ctx, NFT_CTX_OUTPUT_JSON | NFT_CTX_OUTPUT_NUMERIC_ALL);
	return ctx;
}

/* 0 or -errno; the first line of what the library has to say goes to `words`. */
static int run(const char *text, char words[static WORDS_MAX])
{
	CLEANUP_CTX struct nft_ctx *ctx = ctx_new(false);
	const char *said;

	if (!ctx)
		return -ENOMEM;
	errno = 0;
	if (nft_run_cmd_from_buffer(ctx, text) == 0)
		return 0;
	said = nft_ctx_get_error_buffer(ctx);
	(void)snprintf(words, WORDS_MAX, "%.*s", (int)strcspn(said ? said : "", "\n"), said ? said : "");
	return errno > 0 ? -errno : -EIO;
}

static json_t *query(const char *command)
{
	CLEANUP_CTX struct nft_ctx *ctx = ctx_new(true);

	if (!ctx || nft_run_cmd_from_buffer(ctx, command) != 0)
		return NULL;
	return json_loads(nft_ctx_get_output_buffer(ctx), 0, NULL);
}

static void json_freep(json_t **json)
{
	json_decref(*json);
}
#define CLEANUP_JSON CLEANUP(json_freep)

bool net_rules_stamp(char ret[static NET_STAMP_SIZE])
{
	CLEANUP_JSON json_t *json = query("list chain inet croft stamp");
	const json_t *item, *list = json_object_get(json, "nftables");
	size_t i;

	json_array_foreach(list, i, item) {
		const char *comment = json_string_value(
			json_object_get(json_object_get(item, "rule"), "comment"));

		if (comment && strlen(comment) == NET_STAMP_SIZE - 1) {
			(void)snprintf(ret, NET_STAMP_SIZE, "%s", comment);
			return true;
		}
	}
	return false;
}

static int terminate(struct buf *text, struct err *reterr)
{
	int r = buf_append(text, "", 1);

	return r < 0 ? err_set(reterr, FAIL_NO_MEMORY, -r, "no memory for a ruleset") : 0;
}

static int rules_failed(struct err *reterr, int r, const char *words)
{
	(void)err_set(reterr, FAIL_NETWORK_RULES_FAILED, -r, "the kernel does not take the network rules");
	if (*words)
		err_add(reterr, "nft", "%.90s", words);
	return r;
}

int net_rules_apply(struct buf *text, const char *stamp, struct err *reterr)
{
	char words[WORDS_MAX] = "", there[NET_STAMP_SIZE];
	int r = terminate(text, reterr);

	if (r < 0)
		return r;
	for (int i = 0; i < NET_APPLY_TRIES; i++) {
		r = run((const char *)buf_peek(text), words);
		if (net_rules_stamp(there) && !strcmp(there, stamp))
			return 0;
		log_debug("network rules are applied again", "cause", words);
		r = r < 0 ? r : -EIO;
	}
	return rules_failed(reterr, r, words);
}

int net_rules_add(struct buf *text, struct err *reterr)
{
	char words[WORDS_MAX] = "";
	int r = terminate(text, reterr);

	if (r < 0)
		return r;
	for (int i = 0; i < NET_APPLY_TRIES; i++) {
		r = run((const char *)buf_peek(text), words);
		if (r == 0)
			return 0;
	}
	return rules_failed(reterr, r, words);
}

/* ---- counters ---- */

static uint64_t number(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

static void take_counter(struct net_counters *ret, const json_t *counter)
{
	const struct {
		const char *name;
		struct net_counter *to;
	} names[] = { { "sent", &ret->sent }, { "received", &ret->received }, { "denied", &ret->denied },
		{ "over_connections", &ret->over_connections }, { "over_rate", &ret->over_rate },
		{ "strayed", &ret->strayed } };
	const char *name = json_string_value(json_object_get(counter, "name"));

	for (size_t i = 0; name && i < ARRAY_LEN(names); i++) {
		if (strcmp(names[i].name, name) != 0)
			continue;
		/* over_rate is counted in both tables */
		names[i].to->packets += number(counter, "packets");
		names[i].to->bytes += number(counter, "bytes");
	}
}

/* {"elem": {"val": {"concat": ["1.2.3.4", 6, 443]}, "counter": {...}}} */
static void take_refused(struct net_counters *ret, const json_t *element)
{
	const json_t *elem = json_object_get(element, "elem");
	const json_t *parts = json_object_get(json_object_get(elem, "val"), "concat");
	const char *address = json_string_value(json_array_get(parts, 0));
	struct net_denied *denied = &ret->refused[ret->n_refused];
	struct net_addr addr;

	if (ret->n_refused >= NET_DENIED_MAX || !address || net_addr_parse(address, &addr) < 0 ||
		addr.family != NET_V4)
		return;
	denied->address = (uint32_t)addr.lo;
	denied->protocol = (uint8_t)json_integer_value(json_array_get(parts, 1));
	denied->port = (uint16_t)json_integer_value(json_array_get(parts, 2));
	denied->packets = number(json_object_get(elem, "counter"), "packets");
	ret->n_refused++;
}

int net_rules_read(struct net_counters *ret, struct err *reterr)
{
	CLEANUP_JSON json_t *counters = query("list counters");
	CLEANUP_JSON json_t *refused = query("list set inet croft refused");
	const json_t *item, *list;
	size_t i, k;

	memset(ret, 0, sizeof(*ret));
	if (!counters || !refused)
		return rules_failed(reterr, -EIO, "the counters cannot be read");
	list = json_object_get(counters, "nftables");
	json_array_foreach(list, i, item) {
		const json_t *counter = json_object_get(item, "counter");

		if (counter)
			take_counter(ret, counter);
	}
	list = json_object_get(refused, "nftables");
	json_array_foreach(list, i, item) {
		const json_t *element, *elements = json_object_get(json_object_get(item, "set"), "elem");

		json_array_foreach(elements, k, element)
			take_refused(ret, element);
	}
	return 0;
}
