/* SPDX-License-Identifier: Apache-2.0
 *
 * See chain.h.
 */
#include "wire/chain.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text_of(const json_t *object)
{
	return json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
}

static int hash_text(const char *text, char ret[static CHAIN_HASH_SIZE])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int size = 0;

	if (EVP_Digest(text, strlen(text), digest, &size, EVP_sha256(), NULL) != 1 || 2 * size + 1 != CHAIN_HASH_SIZE)
		return -ENOMEM;
	for (unsigned int i = 0; i < size; i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", digest[i]);
	return 0;
}

int chain_hash(const json_t *object, char ret[static CHAIN_HASH_SIZE])
{
	char *text = text_of(object);
	int r = text ? hash_text(text, ret) : -ENOMEM;

	free(text);
	return r;
}

int chain_add(struct chain *head, json_t *entry, char **ret_text)
{
	struct chain next = { .seq = head->seq + 1 };
	char *text = NULL;

	if (json_object_set_new(entry, "seq", json_integer((json_int_t)next.seq)) == 0 &&
		json_object_set_new(entry, "prev", json_string(head->hash)) == 0)
		text = text_of(entry);
	if (!text || hash_text(text, next.hash) < 0) {
		free(text);
		return -ENOMEM;
	}
	*head = next;
	*ret_text = text;
	return 0;
}

/* Without what stands beside it. */
static bool hashes_to(const json_t *entry, const char *hash)
{
	char computed[CHAIN_HASH_SIZE] = "";
	json_t *bare = json_copy((json_t *)(uintptr_t)entry);

	(void)json_object_del(bare, "hash");
	(void)json_object_del(bare, "personal");
	if (!bare || chain_hash(bare, computed) < 0)
		*computed = '\0';
	json_decref(bare);
	return !strcmp(computed, hash);
}

static bool is_personal_whole(const json_t *entry)
{
	const json_t *personal = json_object_get(entry, "personal");
	const char *who = json_string_value(json_object_get(entry, "who"));
	char computed[CHAIN_HASH_SIZE];

	if (!personal || json_is_null(personal))
		return true; /* there are none, or none any more */
	return who && chain_hash(personal, computed) == 0 && !strcmp(computed, who);
}

enum chain_result chain_check(struct chain *head, const json_t *entry)
{
	const char *prev = json_string_value(json_object_get(entry, "prev"));
	const char *hash = json_string_value(json_object_get(entry, "hash"));
	const json_t *number = json_object_get(entry, "seq");
	const uint64_t seq = (uint64_t)json_integer_value(number);

	if (!json_is_integer(number) || !prev || !hash || strlen(hash) + 1 != CHAIN_HASH_SIZE)
		return CHAIN_NO_ENTRY;
	if (seq != head->seq + 1)
		return seq > head->seq ? CHAIN_MISSING : CHAIN_ORDER;
	if (!hashes_to(entry, hash))
		return CHAIN_CHANGED;
	if (strcmp(prev, head->hash) != 0)
		return CHAIN_PREV;
	if (!is_personal_whole(entry))
		return CHAIN_PERSONAL;
	head->seq = seq;
	memcpy(head->hash, hash, sizeof(head->hash));
	return CHAIN_OK;
}

const char *chain_result_text(enum chain_result result)
{
	static const char *const texts[CHAIN_RESULT_MAX_] = {
		[CHAIN_OK] = "is as it was written",
		[CHAIN_NO_ENTRY] = "is no entry",
		[CHAIN_MISSING] = "follows entries that are missing",
		[CHAIN_ORDER] = "is not at its place",
		[CHAIN_PREV] = "follows an entry that was another one when it was written",
		[CHAIN_CHANGED] = "was changed after it was written",
		[CHAIN_PERSONAL] = "has personal fields that were changed after it was written",
	};

	return texts[result];
}
