/* SPDX-License-Identifier: Apache-2.0
 *
 * What both halves of the suite share: main.c runs cases in one process with the devices, real.c in real guests.
 */
#pragma once

#include "villain.h"
#include "watch.h"

#define CASE_MSEC (120 * 1000)

struct suite {
	char directory[32], control_path[64], vsock_path[64];
	int disk_fd;
	int tap_fd; /* real.c; -1: none */
	unsigned int glitches; /* real.c: guests whose case was made again */
	bool is_verbose, stop_at_first;
	struct {
		unsigned int cases, pass, reject, skip, fail, wedged;
	} totals;
};

void suite_name(const struct villain_instance *instance, char *ret, size_t size);
bool suite_wants(const struct villain_instance *instance, char **patterns, int n);
/* Notes a result and prints it where it is worth it. */
void suite_count(struct suite *suite, const struct villain_instance *instance, const struct watch_result *result);
/* NULL, or what happened to the disk; it is made anew then. */
const char *suite_check_disk(struct suite *suite);

/* real.c: all cases that are wanted, up to `batch` of them in one guest (croft-vmm and villain-guest beside this program),
 * each `stride`-th. 0; 77: there is no /dev/kvm; 1: no guest comes up. */
int real_run(struct suite *suite, char **patterns, int n, unsigned int batch, unsigned int stride);
