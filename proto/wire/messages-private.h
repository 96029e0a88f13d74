/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of messages.h share. Nobody else includes this.
 */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/messages.h"

/* NEW(create_sandbox, CreateSandbox) gives an initialised message or NULL. */
#define NEW(lower, Camel)                                                                          \
	__extension__({                                                                            \
		Croft__##Camel *new_ = malloc(sizeof(*new_));                                      \
		if (new_)                                                                          \
			croft__##lower##__init(new_);                                              \
		new_;                                                                              \
	})
#define DROP(message) (protobuf_c_message_free_unpacked(&(message)->base, NULL), NULL)

#define CAPACITY_MIB_MAX (UINT64_C(1) << 34)

bool space_put(Croft__TenantSpace ***to, size_t *n_to, const struct space_list *list);
int space_take(struct space_list *to, Croft__TenantSpace *const *from, size_t n); /* 0, -EINVAL, -ENOMEM */

static inline bool put_text(char **to, const char *text)
{
	if (!text || !*text)
		return true;
	*to = strdup(text);
	return *to != NULL;
}

static inline int refuse(struct err *reterr, const char *member)
{
	(void)err_set(reterr, FAIL_FRAME_INVALID, EPROTO,
		"The member %s of a message is missing or invalid.", member);
	if (reterr)
		err_add(reterr, "member", "%s", member);
	return -EPROTO;
}

/* Copies a text that must fit, of printable ASCII; empty is allowed. */
static inline bool take_text(char *to, size_t size, const char *from)
{
	size_t n = strlen(from);

	if (n >= size)
		return false;
	for (size_t i = 0; i < n; i++)
		if (from[i] < 0x20 || from[i] > 0x7e)
			return false;
	memcpy(to, from, n + 1);
	return true;
}

static inline bool take_id(char to[static ID_SIZE], const char *from)
{
	return id_is_valid(from) && take_text(to, ID_SIZE, from);
}

/* Generations begin at 1. */
static inline bool take_target(char sandbox[static ID_SIZE], uint64_t *generation, const char *from,
	uint64_t from_generation)
{
	*generation = from_generation;
	return from_generation >= 1 && take_id(sandbox, from);
}
