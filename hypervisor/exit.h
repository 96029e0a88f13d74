/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a VMM ended. The values are those of VmmExitReason in vmm.proto and the process's exit status;
 * control.c asserts that they are equal.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum exit_reason {
	EXIT_NONE = 0,
	EXIT_POWEROFF = 10,
	EXIT_RESET = 11,
	EXIT_PANIC = 12,
	EXIT_TRIPLE_FAULT = 13,
	EXIT_KVM_INTERNAL = 14,
	EXIT_HOST_MEMORY = 15,
	EXIT_STOPPED = 16,
	EXIT_SIGNAL = 17,
	EXIT_START_FAILED = 18,
	EXIT_USAGE = 19,
	EXIT_BUG = 20,
	EXIT_SECCOMP = 21,
	EXIT_LEASE = 22,
};

#define EXIT_DETAIL_MAX 160

struct exit_record {
	enum exit_reason reason;
	bool reached_userspace;
	int64_t realtime_usec;
	struct err failure;  /* for START_FAILED, KVM_INTERNAL, HOST_MEMORY, LEASE */
	char detail[EXIT_DETAIL_MAX];
	uint32_t syscall, syscall_argument, thread; /* SECCOMP: as in vmm.proto */
};
