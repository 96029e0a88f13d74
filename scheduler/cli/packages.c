/* SPDX-License-Identifier: Apache-2.0
 *
 * See packages.h.
 */
#include "cli/packages.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define DPKG_INFO "/var/lib/dpkg/info/"
#define NODE_MODULES "/node_modules/"

static bool ends_with(const char *text, size_t size, const char *end)
{
	const size_t n = strlen(end);

	return size > n && !memcmp(text + size - n, end, n);
}

static bool put_name(struct package_change *ret, const char *manager, const char *name, size_t size)
{
	ret->manager = manager;
	*ret->version = '\0';
	if (size == 0 || size >= sizeof(ret->name))
		return false;
	memcpy(ret->name, name, size);
	ret->name[size] = '\0';
	return true;
}

/* /var/lib/dpkg/info/libc6:amd64.list: written anew with each version. */
static bool of_dpkg(const char *path, struct package_change *ret)
{
	const char *name = path + sizeof(DPKG_INFO) - 1;
	const size_t size = strlen(path);

	return !strncmp(path, DPKG_INFO, sizeof(DPKG_INFO) - 1) && !strchr(name, '/') && ends_with(path, size, ".list") &&
	       put_name(ret, "dpkg", name, MIN(strcspn(name, ":"), strlen(name) - 5));
}

/* .../site-packages/requests-2.31.0.dist-info: a directory for each version; pip's names have no dash, versions begin behind it. */
static bool of_pip(const char *path, struct package_change *ret)
{
	const char *last = strrchr(path, '/'), *dash;
	size_t size = last ? strlen(last + 1) : 0, at = last ? (size_t)(last - path) : 0;

	if (!last || (!ends_with(path, at, "/site-packages") && !ends_with(path, at, "/dist-packages")))
		return false;
	if (!ends_with(last + 1, size, ".dist-info") && !ends_with(last + 1, size, ".egg-info"))
		return false;
	size -= strlen(last + 1) - (size_t)(strrchr(last, '.') - last - 1);
	dash = memchr(last + 1, '-', size);
	if (!put_name(ret, "pip", last + 1, dash ? (size_t)(dash - last - 1) : size))
		return false;
	if (dash)
		(void)snprintf(ret->version, sizeof(ret->version), "%.*s", (int)(size - (size_t)(dash - last)), dash + 1);
	return true;
}

/* .../node_modules/[@scope/]name: its package.json where it is there, itself where it went. */
static bool of_npm(const char *path, bool is_deleted, struct package_change *ret)
{
	const char *name = NULL, *end;

	for (const char *at = strstr(path, NODE_MODULES); at; at = strstr(at + 1, NODE_MODULES))
		name = at + sizeof(NODE_MODULES) - 1;
	if (!name || *name == '.')
		return false;
	end = strchr(name, '/');
	if (*name == '@')
		end = end ? strchr(end + 1, '/') : NULL;
	if (*name == '@' && !strchr(name, '/'))
		return false; /* a scope alone */
	if (end ? strcmp(end, "/package.json") != 0 : !is_deleted)
		return false;
	return put_name(ret, "npm", name, end ? (size_t)(end - name) : strlen(name));
}

bool package_of(const char *change, const char *path, struct package_change *ret)
{
	return of_dpkg(path, ret) || of_pip(path, ret) || of_npm(path, !strcmp(change, "deleted"), ret);
}
