/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches a process in which a case runs, over its control socket and through the kernel.
 */
#pragma once

#include <sys/types.h>

enum outcome_kind { OUTCOME_PASS, OUTCOME_REJECT, OUTCOME_SKIP, OUTCOME_FAIL, OUTCOME_WEDGED };

struct watch_result {
	enum outcome_kind outcome;
	char text[256];
};

/* Until the case says how it went on `results` (the writing end, ours too, is closed first), then ends the process with
 * SIGTERM. Whatever happens, it is gone afterwards. */
struct watch_result watch_case(pid_t pid, const char *control_path, int results, int *writing_end);
