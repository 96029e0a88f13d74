/* SPDX-License-Identifier: Apache-2.0
 *
 * See newfile.h.
 */
#include "image/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* Mutable, of the process: threads make files of one name at once, and each must have a temporary of its own. */
static atomic_uint serial;

int newfile_open(struct newfile *file, const char *path, mode_t mode, enum fail_code code, struct err *reterr)
{
	if (snprintf(file->path, sizeof(file->path), "%s", path) >= (int) sizeof(file->path) ||
		snprintf(file->temporary, sizeof(file->temporary), "%s.new-%d-%u", path, (int) getpid(),
			atomic_fetch_add(&serial, 1)) >= (int) sizeof(file->temporary))
		return err_set(reterr, code, ENAMETOOLONG, "the path %.64s... is too long", path);
	(void) unlink(file->temporary); /* of an earlier process with our pid */
	file->fd = open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	if (file->fd < 0)
		return err_set(reterr, code, errno, "cannot make %.160s", file->temporary);
	return 0;
}

int newfile_commit(struct newfile *file, enum fail_code code, struct err *reterr)
{
	char dir[PATH_MAX];
	int r;

	if (fsync(file->fd) < 0)
		return err_set(reterr, code, errno, "cannot write %.160s", file->temporary);
	if (rename(file->temporary, file->path) < 0)
		return err_set(reterr, code, errno, "cannot put %.160s in its place", file->path);
	file->fd = fd_close(file->fd);
	memcpy(dir, file->path, sizeof(dir));
	r = dir_fsync(dirname(dir));
	return r < 0 ? err_set(reterr, code, -r, "cannot sync the folder of %.160s", file->path) : 0;
}

void newfile_deinit(struct newfile *file)
{
	if (file->fd < 0)
		return;
	file->fd = fd_close(file->fd);
	(void) unlink(file->temporary); /* it may be gone */
}
