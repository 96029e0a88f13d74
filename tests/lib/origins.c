/* SPDX-License-Identifier: Apache-2.0
 *
 * See origins.h. System calls are made as such: a test that counts the product's must not count these.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h" /* which includes origins.h after what that gives another meaning to */

static _Thread_local const char *noted_file;
static _Thread_local int noted_line;

void origin_note(const char *file, int line)
{
	noted_file = file;
	noted_line = line;
}

/* One write to a file that is opened to append: lines of several processes stay whole. */
void origin_made(const struct err *err)
{
	const char *path = getenv("CROFT_ORIGINS_FILE");
	int saved = errno, fd, n;
	char line[256];

	if (!path || !noted_file)
		return;
	n = snprintf(line, sizeof(line), "%s %s %s %.100s:%d\n", failure_info(err->code)->name, stage_name(err->stage),
		component_name(err->component), noted_file, noted_line);
	noted_file = NULL;
	fd = (int) syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd >= 0) {
		(void) syscall(SYS_write, fd, line, (size_t) n);
		(void) syscall(SYS_close, fd);
	}
	errno = saved;
}
