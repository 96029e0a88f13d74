/* SPDX-License-Identifier: Apache-2.0
 *
 * guest/user and guest/env: users from files that the template's maker wrote, also bad ones; which value of an
 * environment variable wins.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "guest/env.h"
#include "guest/user.h"
#include "lib/suite.h"

static const char passwd[] =
	"root:x:0:0:root:/root:/bin/bash\n"
	"# no user\n"
	"broken\n"
	"short:x:5\n"
	"::1:1::/:\n"
	"daemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
	"user:x:1000:1001:An Agent,,,:/home/user:/bin/bash\n"
	"relative:x:1002:1002::home/relative:/bin/sh\n"
	"homeless:x:1003:1003:::\n"
	"user:x:9999:9999:second of that name:/:/bin/sh\n"
	"77:x:1004:1004:a name like a number:/n:/bin/sh\n"
	"last:x:1005:1005::/last:/bin/sh"; /* no newline */
static const char group[] =
	"root:x:0:\n"
	"user:x:1001:user\n"
	"docker:x:990:other,user\n"
	"video:x:44:user,root\n"
	"users:x:100:userx,xuser\n"
	"broken\n"
	"sudo:x:27:user\n";

static char etc[64];

static void write_etc(const char *name, const char *text)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", etc, name);
	ck_assert_int_eq(file_replace(path, text, strlen(text), 0644), 0);
}

static void setup(void)
{
	strcpy(etc, "/tmp/croft-etc-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(etc));
	write_etc("passwd", passwd);
	write_etc("group", group);
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(etc), 0);
}

static const struct {
	const char *asked, *name, *home;
	uid_t uid;
	gid_t gid;
	const char *groups; /* NULL: there is no such user */
} rows[] = {
	{ "", "root", "/root", 0, 0, "0 44" },
	{ "root", "root", "/root", 0, 0, "0 44" },
	{ "user", "user", "/home/user", 1000, 1001, "1001 990 44 27" },
	{ "1000", "user", "/home/user", 1000, 1001, "1001 990 44 27" },
	{ "daemon", "daemon", "/usr/sbin", 1, 1, "1" },
	{ "relative", "relative", "/", 1002, 1002, "1002" },
	{ "homeless", "homeless", "/", 1003, 1003, "1003" },
	{ "last", "last", "/last", 1005, 1005, "1005" },
	{ "77", "77", "/n", 1004, 1004, "1004" },
	{ "4242", "4242", "/", 4242, 4242, "4242" },
	{ "nobody", NULL, NULL, 0, 0, NULL },
	{ "broken", NULL, NULL, 0, 0, NULL },
	{ "# no user", NULL, NULL, 0, 0, NULL },
	{ "-1", NULL, NULL, 0, 0, NULL },
	{ "+5", NULL, NULL, 0, 0, NULL },
	{ " 5", NULL, NULL, 0, 0, NULL },
	{ "0x10", NULL, NULL, 0, 0, NULL },
	{ "4294967295", NULL, NULL, 0, 0, NULL },
	{ "99999999999999999999", NULL, NULL, 0, 0, NULL },
	{ "user:root", NULL, NULL, 0, 0, NULL },
};

START_TEST(test_find)
{
	struct err err = ERR_NULL;
	struct user user;
	char groups[256] = "";

	if (!rows[_i].groups) {
		ck_assert_int_lt(user_find(etc, rows[_i].asked, &user, &err), 0);
		ck_assert_int_eq(err.code, FAIL_USER_NOT_FOUND);
		return;
	}
	ck_assert_msg(user_find(etc, rows[_i].asked, &user, &err) == 0, "%s", err.msg);
	ck_assert_str_eq(user.name, rows[_i].name);
	ck_assert_str_eq(user.home, rows[_i].home);
	ck_assert_uint_eq(user.uid, rows[_i].uid);
	ck_assert_uint_eq(user.gid, rows[_i].gid);
	for (size_t i = 0; i < user.n_groups; i++)
		snprintf(groups + strlen(groups), sizeof(groups) - strlen(groups), "%s%u", i ? " " : "", user.groups[i]);
	ck_assert_str_eq(groups, rows[_i].groups);
}
END_TEST

START_TEST(test_no_files)
{
	struct err err = ERR_NULL;
	struct user user;

	ck_assert_int_eq(user_find("/nowhere", "", &user, &err), 0);
	ck_assert_str_eq(user.home, "/root");
	ck_assert_uint_eq(user.n_groups, 1);
	ck_assert_int_lt(user_find("/nowhere", "user", &user, &err), 0);
	ck_assert_int_eq(err.code, FAIL_USER_NOT_FOUND);
}
END_TEST

/* A line longer than any buffer, and more groups than are taken. */
START_TEST(test_bounds)
{
	CLEANUP_FREE char *text = malloc(400000);
	struct err err = ERR_NULL;
	struct user user;
	size_t n = 0;

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', 200000);
	strcpy(text + 200000, ":x:5:5::/:\nafter:x:6:6::/after:\n");
	write_etc("passwd", text);
	ck_assert_int_eq(user_find(etc, "after", &user, &err), 0);
	ck_assert_uint_eq(user.uid, 6);
	for (int i = 0; i < 1000; i++)
		n += (size_t) sprintf(text + n, "g%d:x:%d:after\n", i, 2000 + i);
	write_etc("group", text);
	ck_assert_int_eq(user_find(etc, "after", &user, &err), 0);
	ck_assert_uint_eq(user.n_groups, USER_GROUPS_MAX);
}
END_TEST

static const char *value_of(char **env, const char *name)
{
	size_t n = strlen(name);
	const char *found = NULL;

	for (; *env; env++) {
		if (strncmp(*env, name, n) || (*env)[n] != '=')
			continue;
		ck_assert_ptr_null(found); /* each name once */
		found = *env + n + 1;
	}
	return found ? found : "(none)";
}

/* What stands in for a file must not hang the guest. */
START_TEST(test_no_regular_file)
{
	struct err err = ERR_NULL;
	struct user user;
	char path[96];

	snprintf(path, sizeof(path), "%s/passwd", etc);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_lt(user_find(etc, "user", &user, &err), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/dev/zero", path), 0);
	ck_assert_int_lt(user_find(etc, "user", &user, &err), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_lt(user_find(etc, "user", &user, &err), 0);
	ck_assert_int_eq(user_find(etc, "root", &user, &err), 0);
}
END_TEST

START_TEST(test_env)
{
	char *configured[] = { (char[]) { "A=configured" }, (char[]) { "B=configured" }, (char[]) { "HOME=/configured" }, NULL };
	char *requested[] = { (char[]) { "B=requested" }, (char[]) { "EMPTY=" }, (char[]) { "E=a=b" },
		(char[]) { "TRACEPARENT=mine" }, (char[]) { "B=again" }, NULL };
	struct err err = ERR_NULL;
	struct user user;
	char **env;

	ck_assert_int_eq(user_find(etc, "user", &user, &err), 0);
	env = env_make(&user, configured, requested, "00-1-2-01");
	ck_assert_str_eq(value_of(env, "USER"), "user");
	ck_assert_str_eq(value_of(env, "LOGNAME"), "user");
	ck_assert_str_eq(value_of(env, "HOME"), "/configured");
	ck_assert_str_eq(value_of(env, "A"), "configured");
	ck_assert_str_eq(value_of(env, "B"), "again");
	ck_assert_str_eq(value_of(env, "EMPTY"), "");
	ck_assert_str_eq(value_of(env, "E"), "a=b");
	ck_assert_str_eq(value_of(env, "TRACEPARENT"), "00-1-2-01");
	ck_assert_ptr_nonnull(strstr(value_of(env, "PATH"), "/usr/bin"));
	env_free(env);
	env = env_make(&user, NULL, NULL, "");
	ck_assert_str_eq(value_of(env, "HOME"), "/home/user");
	ck_assert_str_eq(value_of(env, "TRACEPARENT"), "(none)");
	env_free(env);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-user");
	TCase *t = tcase_create("user");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_find, 0, (int) ARRAY_LEN(rows));
	tcase_add_test(t, test_no_files);
	tcase_add_test(t, test_bounds);
	tcase_add_test(t, test_no_regular_file);
	tcase_add_test(t, test_env);
	suite_add_tcase(suite, t);
	return suite_run(suite);
}
