/* SPDX-License-Identifier: Apache-2.0
 *
 * See user.h. The files are split here rather than by fgetpwent_r(), which stays for ever at a line that is longer
 * than its buffer.
 */
#include "guest/user.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "guest/etc.h"

#define FILE_MAX (4u << 20)

enum passwd_field { PASSWD_NAME, PASSWD_PASSWORD, PASSWD_UID, PASSWD_GID, PASSWD_GECOS, PASSWD_HOME, PASSWD_FIELDS };
enum group_field { GROUP_NAME, GROUP_PASSWORD, GROUP_GID, GROUP_MEMBERS, GROUP_FIELDS };

/* Empty where there is no such file; the caller's. */
static char *read_etc(const char *etc, const char *name)
{
	char path[PATH_MAX];
	char *text;

	if (snprintf(path, sizeof(path), "%s/%s", etc, name) < (int) sizeof(path) &&
		etc_read(path, FILE_MAX, &text) == 0)
		return text;
	return calloc(1, 1);
}

/* The next line without its end; NULL after the last. */
static char *next_line(char **rest)
{
	char *line = *rest;

	if (!*line)
		return NULL;
	*rest = strchrnul(line, '\n');
	if (**rest)
		*(*rest)++ = '\0';
	return line;
}

/* Splits at ':' into exactly n fields, the last of which keeps what follows. False: there are fewer. */
static bool split(char *line, char **fields, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		fields[i] = line;
		if (i + 1 == n)
			break;
		line = strchr(line, ':');
		if (!line)
			return false;
		*line++ = '\0';
	}
	return true;
}

static bool parse_number(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long value;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || value >= UINT32_MAX) /* (uid_t) -1 means "leave it" to the kernel */
		return false;
	*ret = (uint32_t) value;
	return true;
}

static bool fill(struct user *user, const char *name, const char *home, uid_t uid, gid_t gid)
{
	if (strlen(name) >= sizeof(user->name) || strlen(home) >= sizeof(user->home))
		return false;
	memset(user, 0, sizeof(*user));
	(void) strcpy(user->name, name);
	(void) strcpy(user->home, *home == '/' ? home : "/");
	user->uid = uid;
	user->gid = gid;
	return true;
}

/* A name goes before a number that is some other user's name. */
static bool find_passwd(const char *etc, const char *asked, bool by_number, struct user *ret)
{
	CLEANUP_FREE char *text = read_etc(etc, "passwd");
	char *rest = text, *line;
	uint32_t number = 0, uid, gid;

	if (!text || (by_number && !parse_number(asked, &number)))
		return false;
	while ((line = next_line(&rest))) {
		char *fields[PASSWD_FIELDS];

		if (!split(line, fields, PASSWD_FIELDS) || !*fields[PASSWD_NAME] ||
			!parse_number(fields[PASSWD_UID], &uid) || !parse_number(fields[PASSWD_GID], &gid))
			continue;
		if (by_number ? uid != number : strcmp(fields[PASSWD_NAME], asked) != 0)
			continue;
		*strchrnul(fields[PASSWD_HOME], ':') = '\0'; /* before the shell */
		if (fill(ret, fields[PASSWD_NAME], fields[PASSWD_HOME], uid, gid))
			return true;
	}
	return false;
}

static bool is_member(char *members, const char *name)
{
	char *rest, *member;

	for (member = strtok_r(members, ",", &rest); member; member = strtok_r(NULL, ",", &rest))
		if (!strcmp(member, name))
			return true;
	return false;
}

static void find_groups(const char *etc, struct user *user)
{
	CLEANUP_FREE char *text = read_etc(etc, "group");
	char *rest = text, *line;
	uint32_t gid;

	user->groups[user->n_groups++] = user->gid;
	if (!text || !*user->name)
		return;
	while (user->n_groups < USER_GROUPS_MAX && (line = next_line(&rest))) {
		char *fields[GROUP_FIELDS];

		if (split(line, fields, GROUP_FIELDS) && parse_number(fields[GROUP_GID], &gid) &&
			gid != user->gid && is_member(fields[GROUP_MEMBERS], user->name))
			user->groups[user->n_groups++] = gid;
	}
}

int user_find(const char *etc, const char *name, struct user *ret, struct err *reterr)
{
	uint32_t number;

	if (!*name)
		name = "root";
	if (find_passwd(etc, name, false, ret) || find_passwd(etc, name, true, ret)) {
		find_groups(etc, ret);
		return 0;
	}
	if (!strcmp(name, "root") || !strcmp(name, "0"))
		(void) fill(ret, "root", "/root", 0, 0);
	else if (parse_number(name, &number))
		(void) fill(ret, name, "/", number, (gid_t) number);
	else
		return err_set(reterr, FAIL_USER_NOT_FOUND, ENOENT,
			"there is no user \"%.64s\" in /etc/passwd", name);
	find_groups(etc, ret);
	return 0;
}
