/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-vmm's command line.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"

struct options {
	char *control_fd, *exit_fd; /* decimal; empty: none */
	char *control;              /* path, for use by hand */
	char *id, *run;             /* say whose VM this is, for ps and logs; nothing is done with them */
	char *log_level_name;
	int control_fd_number, exit_fd_number; /* -1: none */
	enum log_level log_level;
};

/* CONFIG_INVALID. Free with options_free() in any case. */
int options_load(struct options *options, int *argc, char **argv, struct err *reterr);
void options_free(struct options *options);
void options_print_help(FILE *out);
