/* SPDX-License-Identifier: Apache-2.0
 *
 * One table of options yields the parser of the file, the environment variables, the flags, --help and the
 * sample file. Order of weight: flag, environment, file, default. Unknown sections and keys are errors that
 * name file and line. The target struct is filled once and then left alone.
 *
 *   file         [guest]                environment   CROFT_GUEST_KERNEL
 *                kernel = /path         flag          --guest-kernel /path
 *
 * The section "" has no prefix: key `state` is CROFT_STATE and --state.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum config_type {
	CONFIG_STRING,   /* char *; the config owns it; default "" is the empty string */
	CONFIG_BOOL,     /* bool: yes/no, true/false, 1/0, on/off */
	CONFIG_U64,      /* uint64_t within [min, max] */
	CONFIG_DURATION, /* int64_t microseconds within [min, max] usec; text as clock_parse_duration() */
	CONFIG_SIZE,     /* uint64_t bytes within [min, max]; suffixes K M G T are powers of 1024 */
};

struct config_option {
	const char *section;
	const char *key;
	enum config_type type;
	size_t offset;          /* in the target struct */
	const char *fallback;   /* text of the default */
	uint64_t min, max;      /* ignored for strings and bools; max 0: no limit */
	bool reloadable;
	const char *help;       /* one sentence */
};

/* Fills `target` from defaults, then `file` (NULL: none; a file that does not exist is an error), then the
 * environment, then the flags in argv[1..]. Flags are taken out of argv; what is left (arguments that do not
 * begin with --, and everything after "--") is moved to argv[1..*ret_argc). "--config FILE" names the file.
 * CONFIG_INVALID with the place on failure. Free with config_free(). */
int config_load(const struct config_option *options, size_t n_options, void *target, const char *file, int *argc,
	char **argv, struct err *reterr);
void config_free(const struct config_option *options, size_t n_options, void *target);

void config_print_help(const struct config_option *options, size_t n_options, FILE *out);
void config_print_sample(const struct config_option *options, size_t n_options, FILE *out);
