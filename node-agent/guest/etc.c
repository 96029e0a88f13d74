/* SPDX-License-Identifier: Apache-2.0
 *
 * See etc.h.
 */
#include "guest/etc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int etc_read(const char *path, size_t max, char **ret)
{
	/* O_NONBLOCK: opening a FIFO would wait for its writer. */
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	size_t size;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size < 0 || (size_t) st.st_size > max)
		return -EFBIG;
	size = (size_t) st.st_size;
	text = malloc(size + 1);
	if (!text)
		return -ENOMEM;
	r = fd_pread_all(fd, text, size, 0);
	if (r < 0)
		return r;
	text[size] = '\0';
	*ret = TAKE(text);
	return 0;
}
