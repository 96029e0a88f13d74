/* SPDX-License-Identifier: Apache-2.0
 *
 * Users of the sandbox, read from its own passwd and group files. The files are the template's and so
 * untrusted: what is too long or malformed is passed over. Neither NSS nor a cache stands between, because
 * croft-guest is static and the files change while it runs.
 */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define USER_GROUPS_MAX 64
#define USER_NAME_MAX 256

struct user {
	char name[USER_NAME_MAX];
	char home[PATH_MAX];
	uid_t uid;
	gid_t gid;
	size_t n_groups;
	gid_t groups[USER_GROUPS_MAX]; /* supplementary, with gid first */
};

/* Looks `name` up (a name, or a number: the user with that uid, else one of that uid and gid whose name is
 * the number) in `etc`/passwd. "" is root. Root exists without a passwd file. USER_NOT_FOUND. */
int user_find(const char *etc, const char *name, struct user *ret, struct err *reterr);
