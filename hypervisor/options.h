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
#include "jail.h"

struct options {
	char *control_fd, *exit_fd; /* decimal; empty: none */
	char *control;              /* path, for use by hand */
	char *id;                   /* says whose VM this is, for ps and logs */
	char *run;                  /* directory; empty: none */
	char *jail, *uid_text, *gid_text, *run_owner_text, *cgroup_fd;
	enum jail_mode jail_mode;
	bool has_user, has_run_owner;
	unsigned int uid, gid, run_owner;
	int cgroup_fd_number;       /* -1: none */
	char *log_level_name;
	int control_fd_number, exit_fd_number; /* -1: none */
	enum log_level log_level;
};

/* CONFIG_INVALID. Free with options_free() in any case. */
int options_load(struct options *options, int *argc, char **argv, struct err *reterr);
void options_free(struct options *options);
void options_print_help(FILE *out);
