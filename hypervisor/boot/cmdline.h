/* SPDX-License-Identifier: Apache-2.0
 *
 * The guest kernel's command line: croft's own part, without which the machine does not work, and what the
 * caller appends. The caller's text may be printable ASCII only and may not name a key on which the machine
 * depends. Nothing on it is a secret and no security rests on it.
 */
#pragma once

#include "base/err.h"

#define CMDLINE_SIZE 2048 /* the kernel's COMMAND_LINE_SIZE, with its NUL */

/* CMDLINE_TOO_LONG {have, max} or CMDLINE_BAD_CHAR {offset} or {key}. `append` may be NULL. */
int cmdline_build(const char *append, char ret[static CMDLINE_SIZE], struct err *reterr);
