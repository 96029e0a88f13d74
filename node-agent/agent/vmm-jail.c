/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm-jail.h. The text goes into the stage record and from there to people; the VMM's log has every
 * step by name.
 */
#include "agent/vmm-jail.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

struct text {
	char *out;
	size_t used;
};

static void put(struct text *text, const char *word)
{
	for (; *word && text->used + 1 < VMM_JAIL_TEXT_MAX; word++) {
		unsigned char c = (unsigned char)*word;

		text->out[text->used++] = isprint(c) ? (char)c : '?';
	}
	text->out[text->used] = '\0';
}

static bool has(const Croft__VmmJail *jail, const char *step)
{
	for (size_t i = 0; i < jail->n_applied; i++)
		if (!strcmp(jail->applied[i], step))
			return true;
	return false;
}

/* Those that a reader asks for; what is always there needs no word. */
static void describe_whole(const Croft__VmmJail *jail, struct text *text)
{
	put(text, has(jail, "user") ? "uid of its own" : "user namespace");
	put(text, has(jail, "root") ? ", empty root" : "");
	put(text, has(jail, "filters") ? ", filters" : "");
	put(text, has(jail, "cgroup") ? ", cgroup" : "");
}

bool vmm_jail_describe(const Croft__VmmJail *jail, char ret[static VMM_JAIL_TEXT_MAX])
{
	struct text text = { .out = ret };

	*ret = '\0';
	if (!jail || (jail->n_applied == 0 && jail->n_missing == 0)) {
		put(&text, "this VMM has no jail");
		return false;
	}
	if (jail->n_missing == 0) {
		describe_whole(jail, &text);
		return true;
	}
	put(&text, "not applied:");
	for (size_t i = 0; i < jail->n_missing; i++) {
		const char *name = strerrorname_np(jail->missing[i]->err_no);
		bool is_last = i + 1 == jail->n_missing ||
			       jail->missing[i + 1]->err_no != jail->missing[i]->err_no;

		put(&text, " ");
		put(&text, jail->missing[i]->step);
		if (!is_last)
			continue;
		put(&text, " (");
		put(&text, name ? name : "?");
		put(&text, ")");
	}
	return false;
}
