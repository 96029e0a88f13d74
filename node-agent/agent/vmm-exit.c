/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a VMM ended. Its own record weighs most; the exit status says the same in a number; a process
 * that left neither was killed or crashed. Which of the two is known only of our own children.
 */
#include "agent/vmm-exit.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "wire/check.h"

#define RECORD_MAX (64 * 1024)

static enum sv_exit reason_of(unsigned int reason)
{
	switch (reason) {
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_POWEROFF:
		return SV_EXIT_POWEROFF;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_RESET:
		return SV_EXIT_RESET;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_PANIC:
		return SV_EXIT_PANIC;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_TRIPLE_FAULT:
		return SV_EXIT_TRIPLE_FAULT;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_KVM_INTERNAL:
		return SV_EXIT_KVM_INTERNAL;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_HOST_MEMORY:
		return SV_EXIT_HOST_MEMORY;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_STOPPED:
		return SV_EXIT_STOPPED;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_SIGNAL:
		return SV_EXIT_SIGNAL;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_START_FAILED:
		return SV_EXIT_START_FAILED;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_SECCOMP:
		return SV_EXIT_SECCOMP;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_LEASE:
		return SV_EXIT_LEASE;
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_USAGE:
	case CROFT__VMM_EXIT_REASON__VMM_EXIT_BUG:
		return SV_EXIT_BUG;
	default:
		return SV_EXIT_MAX_;
	}
}

void vmm_failure_decode(const Croft__VmmFailure *failure, struct err *ret)
{
	enum fail_code code = failure_by_name(failure->code);
	int err_no = failure->err_no > 0 && failure->err_no < 4096 ? failure->err_no : 0;

	(void)err_set(ret, code == FAIL_NONE ? FAIL_VMM_START_FAILED : code, err_no, "%.200s",
		*failure->message ? failure->message : "the VMM gave no message");
	if (code == FAIL_NONE && *failure->code) /* of a newer VMM */
		err_add(ret, "peer_code", "%.60s", failure->code);
	for (size_t i = 0; i < failure->n_fields; i++)
		err_add(ret, failure->fields[i]->key, "%s", failure->fields[i]->value);
}

/* The VMM's handler could fill in numbers only. */
static void describe_violation(const Croft__VmmExit *record, struct err *ret)
{
	static const char *const threads[] = { "unknown", "start-up", "loop", "vCPU", "disk" };
	const char *thread = threads[record->thread < ARRAY_LEN(threads) ? record->thread : 0];

	(void)err_set(ret, FAIL_SECCOMP_VIOLATION, 0,
		"the VMM's %s thread tried system call %u, which its filter forbids", thread,
		record->syscall);
	err_add(ret, "nr", "%u", record->syscall);
	err_add(ret, "argument", "0x%x", record->syscall_argument);
	err_add(ret, "thread", "%s", thread);
}

/* A VMM that is newer than its agent says why it ended in a way that has no name here. */
static void describe_unknown(const Croft__VmmExit *record, struct err *ret)
{
	(void)err_set(ret, FAIL_PEER_FAILURE, 0, "a newer VMM ended for a reason that this version does not know");
	err_add(ret, "peer_code", "exit reason %u", (unsigned int)record->reason);
}

bool vmm_last_word(const char *run_dir, struct vmm_exit *ret)
{
	CLEANUP_FREE char *data = NULL;
	char path[PATH_MAX];
	Croft__VmmExit *record;
	enum sv_exit reason;
	size_t size;

	(void)snprintf(path, sizeof(path), "%s/exit", run_dir);
	if (file_read(path, RECORD_MAX, &data, &size) < 0 || size == 0)
		return false;
	record = (Croft__VmmExit *)(void *)check_unpack(
		&croft__vmm_exit__descriptor, data, size, NULL);
	if (!record)
		return false;
	if (record->reason == CROFT__VMM_EXIT_REASON__VMM_EXIT_UNSPECIFIED) {
		croft__vmm_exit__free_unpacked(record, NULL);
		return false;
	}
	reason = reason_of((unsigned int)record->reason);
	memset(ret, 0, sizeof(*ret));
	ret->reason = reason != SV_EXIT_MAX_ ? reason : SV_EXIT_BUG;
	ret->reached_userspace = record->reached_userspace;
	if (record->failure)
		vmm_failure_decode(record->failure, &ret->failure);
	else if (reason == SV_EXIT_SECCOMP)
		describe_violation(record, &ret->failure);
	else if (reason == SV_EXIT_MAX_)
		describe_unknown(record, &ret->failure);
	croft__vmm_exit__free_unpacked(record, NULL);
	return true;
}

void vmm_exit_read(const char *run_dir, const siginfo_t *info, struct vmm_exit *ret)
{
	if (vmm_last_word(run_dir, ret))
		return;
	memset(ret, 0, sizeof(*ret));
	ret->reason = SV_EXIT_CRASHED;
	if (!info)
		return;
	if (info->si_code == CLD_EXITED) {
		enum sv_exit reason = reason_of((unsigned int)info->si_status);

		ret->reason = reason != SV_EXIT_MAX_ ? reason : SV_EXIT_BUG;
		return;
	}
	ret->signal = info->si_status;
	if (info->si_status == SIGKILL)
		ret->reason = SV_EXIT_KILLED;
	else if (info->si_status == SIGSYS) /* its handler had no chance */
		ret->reason = SV_EXIT_SECCOMP;
}
