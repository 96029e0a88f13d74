/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of a process: what its user brings (PATH HOME USER LOGNAME), over it what the sandbox was
 * configured with, over that what the request says, and the trace last.
 */
#pragma once

#include "guest/user.h"

/* `configured` and `requested` are arrays of "NAME=value", NULL: none. NULL without memory. */
char **env_make(const struct user *user, char *const *configured, char *const *requested, const char *traceparent);
void env_free(char **env);
static inline void env_freep(char ***env)
{
	env_free(*env);
}
