/* SPDX-License-Identifier: Apache-2.0
 *
 * See filter.h.
 */
#include "filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

int filter_install(enum thread_kind kind)
{
	const struct filter_program *program = &filter_programs[kind];
	struct sock_fprog arguments = { .len = (unsigned short) program->n,
		/* the kernel only reads it, but its type has no const */
		.filter = (struct sock_filter *) (uintptr_t) program->code };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &arguments) < 0 ? -errno : 0;
}

const char *thread_kind_name(enum thread_kind kind)
{
	static const char *const names[THREAD_MAX_] = { [THREAD_START] = "start-up", [THREAD_LOOP] = "loop",
		[THREAD_VCPU] = "vcpu", [THREAD_DISK] = "disk" };

	return kind < THREAD_MAX_ ? names[kind] : "unknown";
}
