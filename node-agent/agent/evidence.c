/* SPDX-License-Identifier: Apache-2.0
 *
 * See evidence.h.
 */
#include "agent/evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define FILES_MAX (2 * EVIDENCE_MAX)

/* The last EVIDENCE_TAIL bytes of `from`; of an empty file nothing is made, unless that it is empty says something. */
static int copy_tail(const char *from, const char *to, bool is_empty_kept)
{
	CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	CLEANUP_FD int out = -1;
	CLEANUP_FREE char *data = NULL;
	struct stat st;
	off_t start;
	size_t size;
	int r;

	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (st.st_size == 0 && !is_empty_kept))
		return 0;
	start = st.st_size > (off_t)EVIDENCE_TAIL ? st.st_size - (off_t)EVIDENCE_TAIL : 0;
	size = (size_t)(st.st_size - start);
	data = malloc(size + 1); /* never of 0 bytes, which may be NULL */
	if (!data)
		return -ENOMEM;
	r = fd_pread_all(in, data, size, start);
	if (r < 0)
		return r;
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return out < 0 ? -errno : fd_write_all(out, data, size);
}

/* Removes the oldest until FILES_MAX are left. */
static void prune(const char *dir_path)
{
	for (;;) {
		DIR *dir = opendir(dir_path);
		struct dirent *entry;
		struct timespec oldest_time = { .tv_sec = INT64_MAX };
		char oldest[NAME_MAX + 1] = "";
		unsigned int n = 0;
		int r = 0;

		if (!dir)
			return;
		while ((entry = readdir(dir))) {
			struct stat st;

			if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
				!S_ISREG(st.st_mode))
				continue;
			n++;
			if (st.st_mtim.tv_sec > oldest_time.tv_sec ||
				(st.st_mtim.tv_sec == oldest_time.tv_sec &&
					st.st_mtim.tv_nsec >= oldest_time.tv_nsec))
				continue;
			oldest_time = st.st_mtim;
			(void)snprintf(oldest, sizeof(oldest), "%s", entry->d_name);
		}
		if (n > FILES_MAX && *oldest)
			r = unlinkat(dirfd(dir), oldest, 0);
		(void)closedir(dir);
		if (n <= FILES_MAX || !*oldest || r < 0)
			return;
	}
}

void evidence_keep(const char *state, const char *run_dir, const char *sandbox)
{
	/* remedies send people to the console: that a guest printed nothing is what they find there */
	static const struct {
		const char *name;
		bool is_empty_kept;
	} files[] = { { "console", true }, { "vmm.log", false } };
	char dir[PATH_MAX];
	int r;

	(void)snprintf(dir, sizeof(dir), "%.3900s/failed", state);
	r = dir_make(dir, 0700);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(files); i++) {
		char from[PATH_MAX], to[PATH_MAX];
		int one;

		(void)snprintf(from, sizeof(from), "%.4000s/%s", run_dir, files[i].name);
		(void)snprintf(to, sizeof(to), "%.4000s/%s.%s", dir, sandbox, files[i].name);
		one = copy_tail(from, to, files[i].is_empty_kept);
		if (one < 0 && one != -ENOENT)
			log_warn("cannot keep what a failed sandbox left", "path", to, "errno",
				strerrorname_np(-one));
	}
	if (r == 0)
		prune(dir);
}
