/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/bad-days.h with musl: each day behind the filters of each kind of thread. Ends with `days N, passed N`.
 */
#include <sys/mman.h>

#include "base/util.h"
#include "lib/bad-days.h"

int main(void)
{
	int n = 0, passed = 0, record = memfd_create("record", MFD_CLOEXEC);

	for (size_t i = 0; i < ARRAY_LEN(bad_days); i++)
		for (int kind = 0; kind < THREAD_MAX_; kind++, n++) {
			int status = bad_day_run(&bad_days[i], (enum thread_kind) kind, record);

			if (bad_day_ended(status, bad_days[i].musl))
				passed++;
			else
				(void) printf("not ok: %s, %s: wait status 0x%x\n", bad_days[i].name,
					thread_kind_name((enum thread_kind) kind), (unsigned int) status);
		}
	(void) printf("days %d, passed %d\n", n, passed);
	return n > 0 && n == passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
