/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of the system that a command of the operator's runs and waits for; never of the agent, whose loop waits for nobody.
 */
#pragma once

#include <stddef.h>

/* Its exit status; -1: it did not run, was killed, or said more than `size`. */
int run_program(const char *program, char *const argv[]);
/* The same, with its first line; what it says on standard error nobody hears. */
int run_program_read(const char *program, char *const argv[], char *ret, size_t size);
