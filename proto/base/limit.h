/* SPDX-License-Identifier: Apache-2.0
 *
 * What a host ran out of, by the errno of the call that wanted it.
 */
#pragma once

#include "base/err.h"

enum limit_act {
	LIMIT_FILE,      /* open, socket, dup: EMFILE, ENFILE; of every other act too */
	LIMIT_PROCESS,   /* fork, spawn: EAGAIN */
	LIMIT_NAMESPACE, /* unshare, clone: ENOSPC */
	LIMIT_GROUP,     /* mkdir of a control group: EAGAIN, ENOSPC */
};

/* HOST_LIMIT at `stage`, with the field "resource", where `err_no` of that act means that a limit was reached: true. Else nothing is
 * set. `what` is what could not be done. */
bool limit_is_reached(struct err *reterr, enum fail_stage stage, enum limit_act act, int err_no, const char *what);
