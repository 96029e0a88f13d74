/* SPDX-License-Identifier: Apache-2.0
 *
 * See filter.h.
 */
#include "filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"

#define CODE_MAX 1024
#define THREAD_STACK (512u << 10)

int filter_install(enum thread_kind kind)
{
	const struct filter_program *program = &filter_programs[kind];
	struct sock_filter code[CODE_MAX];
	struct sock_fprog arguments = { .len = (unsigned short) program->n, .filter = code };

	if (program->n > ARRAY_LEN(code))
		return -E2BIG;
	memcpy(code, program->code, program->n * sizeof(code[0]));
	for (size_t i = 0; i < program->n; i++)
		if (code[i].code == (BPF_JMP | BPF_JEQ | BPF_K) && code[i].k == FILTER_OWN_PID)
			code[i].k = (uint32_t) getpid();
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &arguments) < 0 ? -errno : 0;
}

int thread_create(pthread_t *ret, void *(*run)(void *data), void *data)
{
	pthread_attr_t attributes;
	int r = pthread_attr_init(&attributes);

	if (r != 0)
		return r;
	r = pthread_attr_setstacksize(&attributes, THREAD_STACK);
	if (r == 0)
		r = pthread_create(ret, &attributes, run, data);
	(void) pthread_attr_destroy(&attributes);
	return r;
}

const char *thread_kind_name(enum thread_kind kind)
{
	static const char *const names[THREAD_MAX_] = { [THREAD_START] = "start-up", [THREAD_LOOP] = "loop",
		[THREAD_VCPU] = "vcpu", [THREAD_DISK] = "disk" };

	return kind < THREAD_MAX_ ? names[kind] : "unknown";
}
