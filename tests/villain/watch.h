/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches a process in which cases run, over its control socket and through the kernel. The control socket is asked all
 * the time; a question that is not answered in time ends the watch.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum outcome_kind { OUTCOME_PASS, OUTCOME_REJECT, OUTCOME_SKIP, OUTCOME_FAIL, OUTCOME_WEDGED };

struct watch_result {
	enum outcome_kind outcome;
	char text[256];
	/* the VMM is well, its guest is not: it says nothing any more, or its CPU shut down */
	bool is_guests;
};

struct watch {
	pid_t pid;
	int control;       /* -1: none */
	int results;       /* borrowed: lines come here */
	uint64_t asked, answered, answers;
	int64_t asked_usec;
	char line[1024];   /* what came and was not taken */
	size_t n;
};

/* False: the control socket cannot be connected. */
bool watch_init(struct watch *watch, pid_t pid, const char *control_path, int results);
/* The next line, within `msec`. False: *ret says why not; the process is to be ended. */
bool watch_line(struct watch *watch, int64_t msec, char line[static 256], struct watch_result *ret);
/* One more question must be answered, and the memory be under its bound. */
bool watch_check(struct watch *watch, struct watch_result *ret);
/* "<verdict> <number> <why>" */
struct watch_result watch_judge(const char *line);
/* Ends the process by SIGTERM: within its time and with its status, else *ret says so. Whatever happens, it is gone. */
void watch_end(struct watch *watch, struct watch_result *ret);
