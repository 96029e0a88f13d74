/* SPDX-License-Identifier: Apache-2.0
 *
 * The digest that names an image: "sha256:" and 64 lower-case hex digits. Blocking; about 1 s per GB.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/id.h"


/* Of the whole file behind `fd`, from its beginning; the position is not used. 0 or IO_FAILED. */
int digest_fd(int fd, char ret[static DIGEST_SIZE], struct err *reterr);
int digest_file(const char *path, char ret[static DIGEST_SIZE], struct err *reterr);
