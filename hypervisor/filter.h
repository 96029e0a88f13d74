/* SPDX-License-Identifier: Apache-2.0
 *
 * seccomp: one filter per kind of thread, compiled at build time from seccomp.def. A call that is not in the
 * table is not made; the process ends with status 21 and the call's number in its exit record (last-word.h).
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>

#include "thread.h"

struct filter_program {
	const struct sock_filter *code;
	size_t n;
};

/* Generated; a second set that counts instead exists for tests. */
extern const struct filter_program filter_programs[THREAD_MAX_];

/* Puts the filter on the calling thread, for good; threads that it makes inherit it. no_new_privs is set
 * already. 0 or -errno. */
int filter_install(enum thread_kind kind);
const char *thread_kind_name(enum thread_kind kind);
