/* SPDX-License-Identifier: Apache-2.0
 *
 * See env.h.
 */
#include "guest/env.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define OWN_MAX 5 /* PATH HOME USER LOGNAME TRACEPARENT */

void env_free(char **env)
{
	for (char **p = env; p && *p; p++)
		free(*p);
	free(env);
}

static size_t env_length(char *const *env)
{
	size_t n = 0;

	while (env && env[n])
		n++;
	return n;
}

static bool is_same_name(const char *a, const char *b)
{
	size_t n = (size_t) (strchrnul(a, '=') - a);

	return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* `entry` may be NULL: no memory. */
static bool env_put(char **env, char *entry)
{
	if (!entry)
		return false;
	for (; *env; env++) {
		if (is_same_name(entry, *env)) {
			free(*env);
			break;
		}
	}
	*env = entry;
	return true;
}

static bool env_set(char **env, const char *name, const char *value)
{
	char *entry;

	return env_put(env, asprintf(&entry, "%s=%s", name, value) < 0 ? NULL : entry);
}

static bool env_put_all(char **env, char *const *entries)
{
	for (; entries && *entries; entries++)
		if (!env_put(env, strdup(*entries)))
			return false;
	return true;
}

char **env_make(const struct user *user, char *const *configured, char *const *requested, const char *traceparent)
{
	CLEANUP(env_freep) char **env =
		calloc(OWN_MAX + env_length(configured) + env_length(requested) + 1, sizeof(*env));

	if (!env || !env_set(env, "PATH", DEFAULT_PATH) || !env_set(env, "HOME", user->home) ||
		!env_set(env, "USER", user->name) || !env_set(env, "LOGNAME", user->name) ||
		!env_put_all(env, configured) || !env_put_all(env, requested))
		return NULL;
	if (*traceparent && !env_set(env, "TRACEPARENT", traceparent))
		return NULL;
	return TAKE(env);
}
