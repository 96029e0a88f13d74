/* SPDX-License-Identifier: Apache-2.0
 *
 * Which packages follow from the files that a sandbox changed.
 */
#include <check.h>
#include <string.h>

#include "cli/packages.h"
#include "lib/suite.h"

#define PY "/usr/local/lib/python3.12/"

static const struct {
	const char *change, *path, *manager, *name, *version; /* manager NULL: it says nothing of a package */
} rows[] = {
	{ "added", "/var/lib/dpkg/info/jq.list", "dpkg", "jq", "" },
	{ "changed", "/var/lib/dpkg/info/libc6:amd64.list", "dpkg", "libc6", "" },
	{ "deleted", "/var/lib/dpkg/info/python3.12-minimal.list", "dpkg", "python3.12-minimal", "" },
	{ "added", "/var/lib/dpkg/info/jq.md5sums", NULL, NULL, NULL },
	{ "added", "/var/lib/dpkg/info/.list", NULL, NULL, NULL },
	{ "added", "/var/lib/dpkg/info/a/b.list", NULL, NULL, NULL },
	{ "changed", "/var/lib/dpkg/status", NULL, NULL, NULL },
	{ "added", "/tmp/var/lib/dpkg/info/jq.list", NULL, NULL, NULL },
	{ "added", PY "site-packages/requests-2.31.0.dist-info", "pip", "requests", "2.31.0" },
	{ "deleted", PY "dist-packages/ruamel.yaml-0.18.6.dist-info", "pip", "ruamel.yaml", "0.18.6" },
	{ "added", PY "site-packages/old-1.0-py3.12.egg-info", "pip", "old", "1.0-py3.12" },
	{ "added", PY "site-packages/bare.egg-info", "pip", "bare", "" },
	{ "added", PY "site-packages/requests-2.31.0.dist-info/METADATA", NULL, NULL, NULL },
	{ "added", PY "site-packages/requests", NULL, NULL, NULL },
	{ "added", "/home/requests-2.31.0.dist-info", NULL, NULL, NULL },
	{ "added", "/app/node_modules/left-pad/package.json", "npm", "left-pad", "" },
	{ "changed", "/app/node_modules/@types/node/package.json", "npm", "@types/node", "" },
	{ "added", "/app/node_modules/a/node_modules/b/package.json", "npm", "b", "" },
	{ "deleted", "/app/node_modules/left-pad", "npm", "left-pad", "" },
	{ "deleted", "/app/node_modules/@types/node", "npm", "@types/node", "" },
	{ "deleted", "/app/node_modules/@types", NULL, NULL, NULL },
	{ "added", "/app/node_modules/left-pad", NULL, NULL, NULL },
	{ "added", "/app/node_modules/left-pad/lib/package.json", NULL, NULL, NULL },
	{ "added", "/app/node_modules/.package-lock.json", NULL, NULL, NULL },
	{ "added", "/app/package.json", NULL, NULL, NULL },
	{ "added", "/", NULL, NULL, NULL },
	{ "added", "", NULL, NULL, NULL },
};

START_TEST(packages)
{
	struct package_change found;
	const bool is_one = package_of(rows[_i].change, rows[_i].path, &found);

	ck_assert_msg(is_one == (rows[_i].manager != NULL), "%s", rows[_i].path);
	if (!is_one)
		return;
	ck_assert_str_eq(found.manager, rows[_i].manager);
	ck_assert_str_eq(found.name, rows[_i].name);
	ck_assert_str_eq(found.version, rows[_i].version);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli-packages");
	TCase *tc = tcase_create("packages");

	tcase_add_loop_test(tc, packages, 0, sizeof(rows) / sizeof(*rows));
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
