/* SPDX-License-Identifier: Apache-2.0
 *
 * See boot.h: the sandbox's root is an overlay of the writable disk (/dev/vdb, ext4) over the template's
 * image (/dev/vda, squashfs or erofs, read-only). croft-guest moves it over the initramfs and stays in memory
 * as PID 1; image and disk stay mounted below, where no path leads any more.
 *
 * All names below the new root are the template's: they are resolved inside it (openat2, or after chroot).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "guest/boot.h"
#include "guest/diff.h"

#define IMAGE_DEVICE "/dev/vda"
#define DISK_DEVICE "/dev/vdb"
#define DEVICE_TRIES 200 /* of 10 ms */

static int disk_fd = -1, upper_fd = -1, lower_fd = -1;

int boot_take_disk(void)
{
	return TAKE_FD(disk_fd);
}

pid_t boot_diff(int fd)
{
	return diff_fork(fd, upper_fd, lower_fd);
}

/* The driver has probed when its module is loaded, but the node of the device is made by a kernel thread. */
static int wait_for_device(const char *path)
{
	static const struct timespec pause = { .tv_nsec = 10000000 };

	for (int i = 0; access(path, F_OK) < 0; i++) {
		if (i == DEVICE_TRIES)
			return -ENXIO;
		(void) nanosleep(&pause, NULL);
	}
	return 0;
}

static int mount_image(struct err *reterr)
{
	static const char *const types[] = { "squashfs", "erofs" };
	int r = wait_for_device(IMAGE_DEVICE), worst = EINVAL;

	if (r < 0)
		return err_set(reterr, FAIL_ROOTFS_UNREADABLE, -r, "the guest has no disk with the image");
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (mount(IMAGE_DEVICE, "/lower", types[i], MS_RDONLY | MS_NODEV | MS_NOATIME, NULL) == 0)
			return 0;
		if (errno != ENODEV) /* "no such file system in this kernel" says nothing of the image */
			worst = errno;
	}
	return err_set(reterr, FAIL_ROOTFS_UNREADABLE, worst,
		"the image is neither squashfs nor erofs, or is damaged");
}

static int mount_disk(struct err *reterr)
{
	int r = wait_for_device(DISK_DEVICE);

	if (r == 0 && mount(DISK_DEVICE, "/disk", "ext4", MS_NODEV | MS_NOATIME, NULL) < 0)
		r = -errno;
	if (r == 0 && mkdir("/disk/upper", 0755) < 0 && errno != EEXIST)
		r = -errno;
	if (r == 0 && mkdir("/disk/work", 0755) < 0 && errno != EEXIST)
		r = -errno;
	if (r < 0)
		return err_set(reterr, FAIL_GUEST_DISK_UNREADABLE, -r, "the writable disk cannot be mounted");
	disk_fd = open("/disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

static int mount_overlay(struct err *reterr)
{
	if (mount("overlay", "/root", "overlay", MS_NOATIME,
		    "lowerdir=/lower,upperdir=/disk/upper,workdir=/disk/work") < 0)
		return err_set(reterr, FAIL_GUEST_DISK_UNREADABLE, errno,
			"the writable disk cannot be laid over the image");
	upper_fd = open("/disk/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lower_fd = open("/lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

/* /bin and sh may be links, also absolute ones: they are followed as if /root were the root. */
static int check_shell(struct err *reterr)
{
	CLEANUP_FD int root = open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
	CLEANUP_FD int fd = root < 0 ? -1 : (int) syscall(SYS_openat2, root, "bin/sh", &how, sizeof(how));
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		int r = err_set(reterr, FAIL_ROOTFS_INCOMPLETE, errno, "the image has no /bin/sh");

		err_add(reterr, "missing", "/bin/sh");
		return r;
	}
	if (!S_ISREG(st.st_mode) || !(st.st_mode & 0111)) {
		err_add(reterr, "missing", "/bin/sh");
		return err_set(reterr, FAIL_ROOTFS_INCOMPLETE, EACCES, "/bin/sh of the image cannot be executed");
	}
	return 0;
}

/* From here on "/" is the sandbox's. */
static int enter(struct err *reterr)
{
	if (chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return err_set(reterr, FAIL_ROOTFS_UNREADABLE, errno, "the root cannot be entered");
	return 0;
}

struct system_mount {
	const char *source, *path, *type, *options;
	unsigned long flags;
	mode_t mode; /* of the folder, where it is absent */
};

static void mount_system(void)
{
	static const struct system_mount mounts[] = {
		{ "proc", "/proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555 },
		{ "sysfs", "/sys", "sysfs", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555 },
		{ "cgroup2", "/sys/fs/cgroup", "cgroup2", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555 },
		{ "devtmpfs", "/dev", "devtmpfs", "mode=0755", MS_NOSUID, 0755 },
		{ "devpts", "/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666", MS_NOSUID | MS_NOEXEC, 0755 },
		{ "tmpfs", "/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, 01777 },
		{ "tmpfs", "/run", "tmpfs", "mode=0755,size=20%", MS_NOSUID | MS_NODEV, 0755 },
	};

	for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
		const struct system_mount *m = &mounts[i];

		(void) mkdir(m->path, m->mode); /* most exist; the mount says if this was needed and failed */
		if (mount(m->source, m->path, m->type, m->flags, m->options) < 0)
			log_error("cannot mount", "what", m->path, "errno", strerrorname_np(errno));
	}
	if (mkdir("/tmp", 01777) == 0)
		(void) chmod("/tmp", 01777); /* past the umask */
}

/* What udev would make. */
static void make_links(void)
{
	static const char *const links[][2] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
			log_error("cannot make a link", "what", links[i][1], "errno", strerrorname_np(errno));
}

int boot_root(struct err *reterr)
{
	int r;

	(void) mkdir("/lower", 0755); /* where one of these fails, so does the mount on it */
	(void) mkdir("/disk", 0755);
	(void) mkdir("/root", 0755);
	r = mount_image(reterr);
	if (r == 0)
		r = mount_disk(reterr);
	if (r == 0)
		r = mount_overlay(reterr);
	if (r == 0)
		r = check_shell(reterr);
	if (r == 0)
		r = enter(reterr);
	if (r < 0)
		return r;
	mount_system();
	make_links();
	return 0;
}
