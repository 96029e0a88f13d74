/* SPDX-License-Identifier: Apache-2.0
 *
 * See diff.h. Names are looked up from descriptor to descriptor, never by path: what a process of the sandbox renames
 * meanwhile leads nowhere else, and links are not followed.
 */
#include "guest/diff.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define CLOCK_EVERY 256u

struct walk {
	struct diff_walker *walker;
	uint64_t told, visited;
	char path[PATH_MAX];
};

static enum diff_type type_of(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return DIFF_FILE;
	if (S_ISDIR(st->st_mode))
		return DIFF_DIRECTORY;
	return S_ISLNK(st->st_mode) ? DIFF_SYMLINK : DIFF_OTHER;
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* The image's content below this folder does not show any more. */
static bool is_opaque(int fd)
{
	char value = 0;

	return fgetxattr(fd, "trusted.overlay.opaque", &value, sizeof(value)) == 1 && value == 'y';
}

/* False: enough. */
static bool may_go_on(struct walk *walk)
{
	struct diff_walker *walker = walk->walker;
	const struct diff_limits *limits = &walker->limits;
	bool is_late = limits->deadline_usec && walk->visited % CLOCK_EVERY == 0 &&
		clock_monotonic_usec() >= limits->deadline_usec;

	if (walk->visited < limits->visits && walk->told < limits->entries && !is_late) {
		walk->visited++;
		return true;
	}
	walker->is_cut = true;
	return false;
}

static int tell(struct walk *walk, enum diff_kind kind, const struct stat *st)
{
	const struct diff_entry entry = { .kind = kind,
		.type = type_of(st),
		.path = walk->path,
		.size = S_ISREG(st->st_mode) ? (uint64_t) st->st_size : 0,
		.mode = st->st_mode & 07777u };

	walk->told++;
	return walk->walker->tell(&entry, walk->walker->user);
}

/* Appends "/name" to the path; the length before, or -ENAMETOOLONG. */
static ssize_t push(struct walk *walk, const char *name)
{
	size_t before = strlen(walk->path), n = strlen(name);

	if (before + 1 + n >= sizeof(walk->path)) {
		walk->walker->is_cut = true;
		return -ENAMETOOLONG;
	}
	walk->path[before] = '/';
	memcpy(walk->path + before + 1, name, n + 1);
	return (ssize_t) before;
}

static DIR *open_folder(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir)
		(void) fd_close(fd);
	return dir;
}

/* The next name that is neither "." nor ".."; NULL: no more. */
static const char *next_name(DIR *dir)
{
	struct dirent *entry;

	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			return entry->d_name;
	return NULL;
}

static int walk_folder(struct walk *walk, DIR *upper, int lower, unsigned int depth);

/* What the image has below a folder that was replaced, and the folder has not. */
static int tell_hidden(struct walk *walk, int upper, int lower)
{
	DIR *dir = open_folder(lower, ".");
	const char *name;
	int r = 0;

	while (dir && r == 0 && (name = next_name(dir))) {
		struct stat st;
		ssize_t before;

		if (fstatat(upper, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || fstatat(lower, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!may_go_on(walk))
			break;
		before = push(walk, name);
		if (before < 0)
			continue;
		r = tell(walk, DIFF_DELETED, &st);
		walk->path[before] = '\0';
	}
	if (dir)
		(void) closedir(dir);
	return r;
}

static int walk_below(struct walk *walk, int at, int lower_at, const char *name, bool in_lower, bool *ret_opaque, unsigned int depth)
{
	CLEANUP_FD int lower = in_lower ? openat(lower_at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	DIR *dir = NULL;
	int r;

	if (depth >= walk->walker->limits.depth || !(dir = open_folder(at, name))) {
		walk->walker->is_cut = true; /* where it went away meanwhile, too: it cannot be told */
		return 0;
	}
	*ret_opaque = lower >= 0 && is_opaque(dirfd(dir));
	r = walk_folder(walk, dir, lower, depth + 1);
	if (r == 0 && *ret_opaque)
		r = tell_hidden(walk, dirfd(dir), lower);
	(void) closedir(dir);
	return r;
}

static bool is_same_folder(const struct stat *a, const struct stat *b)
{
	return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

/* One name of the upper layer; `lower` -1: the image has no such folder. */
static int walk_name(struct walk *walk, int upper, int lower, const char *name, unsigned int depth)
{
	struct stat st, old;
	bool in_lower, is_replaced = false;
	int r = 0;

	if (fstatat(upper, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	in_lower = lower >= 0 && fstatat(lower, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
	if (is_whiteout(&st))
		return in_lower ? tell(walk, DIFF_DELETED, &old) : 0;
	if (!S_ISDIR(st.st_mode))
		return tell(walk, in_lower ? DIFF_CHANGED : DIFF_ADDED, &st);
	if (!in_lower)
		r = tell(walk, DIFF_ADDED, &st);
	if (r == 0)
		r = walk_below(walk, upper, lower, name, in_lower && S_ISDIR(old.st_mode), &is_replaced, depth);
	if (r == 0 && in_lower && (is_replaced || !is_same_folder(&st, &old)))
		r = tell(walk, DIFF_CHANGED, &st);
	return r;
}

static int walk_folder(struct walk *walk, DIR *upper, int lower, unsigned int depth)
{
	const char *name;
	int r = 0;

	while (r == 0 && (name = next_name(upper)) && may_go_on(walk)) {
		ssize_t before = push(walk, name);

		if (before < 0)
			continue;
		r = walk_name(walk, dirfd(upper), lower, name, depth);
		walk->path[before] = '\0';
	}
	return r;
}

int diff_walk(struct diff_walker *walker)
{
	struct walk *walk = calloc(1, sizeof(*walk));
	DIR *dir;
	int r;

	if (!walk)
		return -ENOMEM;
	walk->walker = walker;
	dir = open_folder(walker->upper, ".");
	r = dir ? walk_folder(walk, dir, walker->lower, 0) : -errno;
	if (dir)
		(void) closedir(dir);
	free(walk);
	return r;
}
