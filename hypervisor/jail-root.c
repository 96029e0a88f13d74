/* SPDX-License-Identifier: Apache-2.0
 *
 * See jail-root.h. The new root is a file system that no path leads to before it is the root: nothing on the
 * host is used as a mount point, so there is nothing that another process could have put in the way.
 */
#include "jail-root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define SPACES (CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
#define FLAGS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* ---- namespaces ---- */

static int write_file(const char *path, const char *text)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* The same number inside as outside: nothing looks different, and there is no root in it. */
static int map_user(uid_t uid, gid_t gid)
{
	char uid_map[32], gid_map[32];
	int r;

	(void) snprintf(uid_map, sizeof(uid_map), "%u %u 1\n", uid, uid);
	(void) snprintf(gid_map, sizeof(gid_map), "%u %u 1\n", gid, gid);
	r = write_file("/proc/self/setgroups", "deny");
	if (r == 0)
		r = write_file("/proc/self/uid_map", uid_map);
	return r < 0 ? r : write_file("/proc/self/gid_map", gid_map);
}

int jail_make_namespaces(bool has_root)
{
	static const char name[] = "croft-vmm";
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r;

	if (unshare(has_root ? SPACES : SPACES | CLONE_NEWUSER) < 0)
		return -errno;
	r = has_root ? 0 : map_user(uid, gid);
	/* what the host is called is nobody's business in here */
	if (r == 0 && sethostname(name, sizeof(name) - 1) < 0)
		r = -errno;
	return r;
}

/* ---- root ---- */

static int make_tmpfs(void)
{
	CLEANUP_FD int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int mount_fd;

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", "32", 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
		fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount_fd = fsmount(fs, FSMOUNT_CLOEXEC, FLAGS);
	return mount_fd < 0 ? -errno : mount_fd;
}

/* A copy of the mount that the run directory is on, which begins there. */
static int copy_run(const char *run)
{
	struct mount_attr attr = { .attr_set = FLAGS | MOUNT_ATTR_RDONLY };
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	CLEANUP_FD int at = (int) syscall(SYS_openat2, AT_FDCWD, run, &how, sizeof(how));
	CLEANUP_FD int tree = at < 0 ? -1 : open_tree(at, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	return TAKE_FD(tree);
}

/* mkdir -p below a directory; `path` is absolute and has no "..". */
static int make_path(int root_fd, const char *path)
{
	char name[PATH_MAX];

	(void) umask(022); /* another uid is to get through */
	for (size_t i = 1; path[i - 1]; i++) {
		if ((path[i] && path[i] != '/') || path[i - 1] == '/')
			continue;
		(void) snprintf(name, sizeof(name), "%.*s", (int) (i - 1), path + 1);
		if (mkdirat(root_fd, name, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* The old root is under the new one for a moment, and gone. */
static int change_root(int root_fd)
{
	struct mount_attr read_only = { .attr_set = FLAGS | MOUNT_ATTR_RDONLY };

	if (fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
		chdir("/") < 0 || mount_setattr(AT_FDCWD, "/", 0, &read_only, sizeof(read_only)) < 0)
		return -errno;
	return 0;
}

int jail_make_root(const char *run)
{
	CLEANUP_FD int root = -1, tree = -1;
	int r;

	/* nothing that is done in here shows outside */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	root = make_tmpfs();
	if (root < 0)
		return root;
	if (*run) {
		tree = copy_run(run);
		r = tree < 0 ? tree : make_path(root, run);
		if (r < 0)
			return r;
	}
	if (move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	if (tree >= 0 && move_mount(tree, "", root, run + 1, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	return change_root(root);
}
