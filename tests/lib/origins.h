/* SPDX-License-Identifier: Apache-2.0
 *
 * Where failures are made. With CROFT_ORIGINS (the asan preset) each err_set() of the product appends a line to the
 * file that the environment's CROFT_ORIGINS_FILE names: "CODE stage component folder/file.c:line". tests/origins/check compares them
 * with a table of what each code's stage and component must be. Included by base/err.h alone.
 */
#pragma once

struct err;

/* Where the failure is made that err_made() will be told of. Of the calling thread. */
void origin_note(const char *file, int line);
void origin_made(const struct err *err);

#define err_set(...) (origin_note(__FILE__, __LINE__), (err_set)(__VA_ARGS__))
#define err_set_at(...) (origin_note(__FILE__, __LINE__), (err_set_at)(__VA_ARGS__))
