/* SPDX-License-Identifier: Apache-2.0
 *
 * See link-keys.h. Each step replaces one file, in an order in which every state between two is a good one: a secret is on
 * the disk before its public half is told to anybody.
 */
#include "server/link-keys.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "server/server.h"

#define FILE_MAX 4096

static int fail(struct err *reterr, const char *path, int r)
{
	return err_set(reterr, FAIL_IO_FAILED, -r, "%s cannot be read or written", path);
}

/* `next = `, `until = `: a line each. */
static int read_notes(const struct options *options, struct link_keys *keys, struct err *reterr)
{
	char path[PATH_MAX], until[64] = "";
	CLEANUP_FREE char *text = NULL;
	int r = file_read(state_path(options, "link.keys", path, sizeof(path)), FILE_MAX, &text, NULL);

	if (r == -ENOENT) /* of a version before there was a next key */
		return 0;
	if (r < 0)
		return fail(reterr, path, r);
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		(void)sscanf(line, "next = %40s", keys->next);
		(void)sscanf(line, "until = %63s", until);
	}
	if (*keys->next && curve_key_check(keys->next, reterr) < 0)
		return err_prefix(reterr, "%s", path);
	if (*until && clock_parse_rfc3339(until, &keys->until_us) < 0)
		return err_set(reterr, FAIL_STORE_CORRUPT, EINVAL, "%s: until is no time", path);
	return 0;
}

static int write_notes(const struct options *options, const char *next, int64_t until_us, struct err *reterr)
{
	char path[PATH_MAX], text[256], until[CLOCK_RFC3339_SIZE] = "";
	int n = snprintf(text, sizeof(text), "next = %s\n", next), r;

	if (until_us)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "until = %s\n",
			clock_format_rfc3339(until_us, until, sizeof(until)));
	r = file_replace(state_path(options, "link.keys", path, sizeof(path)), text, (size_t)n, 0600);
	return r < 0 ? fail(reterr, path, r) : 0;
}

/* The fresh pair is the only one from here on. */
static int end_overlap(const struct options *options, struct link_keys *keys, struct err *reterr)
{
	char path[PATH_MAX];
	int r = curve_keys_write(state_path(options, "link.key", path, sizeof(path)), &keys->fresh, reterr);

	if (r == 0)
		r = write_notes(options, keys->next, 0, reterr);
	if (r < 0)
		return r;
	(void)unlink(state_path(options, "link.fresh.key", path, sizeof(path))); /* equal to link.key by now */
	keys->served = keys->fresh;
	keys->fresh = (struct curve_keys){ .public_key = "" };
	keys->until_us = 0;
	return 0;
}

int link_keys_read(const struct options *options, int64_t now_us, struct link_keys *ret, struct err *reterr)
{
	struct link_keys keys = { .until_us = 0 };
	char path[PATH_MAX];
	int r = curve_keys_read(state_path(options, "link.key", path, sizeof(path)), &keys.served, reterr);

	if (r == 0)
		r = read_notes(options, &keys, reterr);
	if (r == 0 && access(state_path(options, "link.fresh.key", path, sizeof(path)), F_OK) == 0)
		r = curve_keys_read(path, &keys.fresh, reterr);
	if (r == 0 && *keys.fresh.public_key && keys.until_us <= now_us)
		r = end_overlap(options, &keys, reterr);
	if (r == 0 && !strcmp(keys.next, link_keys_newest(&keys)->public_key))
		keys.next[0] = '\0'; /* a rotation was cut off behind its first step */
	if (r == 0)
		*ret = keys;
	explicit_bzero(&keys, sizeof(keys));
	return r;
}

static int make_next(const char *out, char ret_public[static KEY_Z85_SIZE], struct err *reterr)
{
	struct curve_keys next;
	int r = curve_keys_new(&next, reterr);

	if (r == 0)
		r = curve_keys_write(out, &next, reterr);
	if (r == 0)
		memcpy(ret_public, next.public_key, KEY_Z85_SIZE);
	explicit_bzero(&next, sizeof(next));
	return r;
}

int link_keys_next(const struct options *options, const char *out, struct err *reterr)
{
	struct link_keys keys;
	char next[KEY_Z85_SIZE];
	int r = link_keys_read(options, 0, &keys, reterr);

	if (r < 0)
		return r;
	explicit_bzero(&keys.served, sizeof(keys.served));
	if (*keys.next)
		return err_set(reterr, FAIL_CONFLICT, EEXIST,
			"nodes were told of a next key already, and follow that one: `keys rotate` uses it");
	r = make_next(out, next, reterr);
	return r < 0 ? r : write_notes(options, next, keys.until_us, reterr);
}

int link_keys_rotate(const struct options *options, const char *next, const char *out, bool at_once, int64_t now_us,
	struct err *reterr)
{
	struct curve_keys fresh = { .public_key = "" };
	char path[PATH_MAX], after[KEY_Z85_SIZE];
	struct link_keys keys = { .until_us = 0 };
	int r = read_notes(options, &keys, reterr);

	if (r < 0)
		return r;
	if (!*keys.next)
		return err_set(reterr, FAIL_CONFLICT, ENOENT,
			"no next key was announced: `keys next` makes one; nodes hear of it as they connect");
	if (!at_once && access(state_path(options, "link.fresh.key", path, sizeof(path)), F_OK) == 0)
		return err_set(reterr, FAIL_CONFLICT, EBUSY, "the last rotation is not over; --at-once ends it and does the next");
	r = curve_keys_read(next, &fresh, reterr);
	if (r == 0 && strcmp(fresh.public_key, keys.next) != 0)
		r = err_set(reterr, FAIL_CONFLICT, EINVAL, "%s is another pair than the one that nodes were told of", next);
	if (r == 0) /* first: `out` may be the file that it was read from */
		r = curve_keys_write(state_path(options, at_once ? "link.key" : "link.fresh.key", path, sizeof(path)), &fresh,
			reterr);
	if (r == 0)
		r = make_next(out, after, reterr);
	if (r == 0)
		r = write_notes(options, after, at_once ? 0 : now_us + LINK_OVERLAP_USEC, reterr);
	if (r == 0 && at_once)
		(void)unlink(state_path(options, "link.fresh.key", path, sizeof(path))); /* none, or its overlap ends */
	explicit_bzero(&fresh, sizeof(fresh));
	return r;
}
