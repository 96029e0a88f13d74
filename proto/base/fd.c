/* SPDX-License-Identifier: Apache-2.0
 *
 * See fd.h.
 */
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX 64
#define DEPTH_MAX 200 /* of directories; each holds two descriptors while it is emptied */

int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		(void) close(fd); /* Linux frees the number even when it reports an error */
	errno = saved;
	return -1;
}

void fd_closep(int *fd)
{
	*fd = fd_close(*fd);
}

int fd_set_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int fd_write_all(int fd, const void *buf, size_t size)
{
	const char *p = buf;

	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		size -= (size_t) n;
	}
	return 0;
}

int fd_read_all(int fd, void *buf, size_t size)
{
	char *p = buf;

	while (size > 0) {
		ssize_t n = read(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EPIPE;
		p += n;
		size -= (size_t) n;
	}
	return 0;
}

int fd_pwrite_all(int fd, const void *buf, size_t size, off_t offset)
{
	const char *p = buf;

	while (size > 0) {
		ssize_t n = pwrite(fd, p, size, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		offset += n;
		size -= (size_t) n;
	}
	return 0;
}

int fd_pread_all(int fd, void *buf, size_t size, off_t offset)
{
	char *p = buf;

	while (size > 0) {
		ssize_t n = pread(fd, p, size, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EPIPE;
		p += n;
		offset += n;
		size -= (size_t) n;
	}
	return 0;
}

int file_read(const char *path, size_t max, char **ret, size_t *ret_size)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	CLEANUP_FREE char *data = NULL;
	size_t size = 0, room = 4096;

	if (fd < 0)
		return -errno;
	data = malloc(room + 1);
	if (!data)
		return -ENOMEM;
	for (;;) { /* no trust in st_size: it is 0 in /proc */
		ssize_t n = read(fd, data + size, room - size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		size += (size_t) n;
		if (size > max)
			return -EFBIG;
		if (size == room) {
			char *more = realloc(data, room * 2 + 1);

			if (!more)
				return -ENOMEM;
			data = more;
			room *= 2;
		}
	}
	data[size] = '\0';
	*ret = TAKE(data);
	if (ret_size)
		*ret_size = size;
	return 0;
}

static int parent_of(const char *path, char *ret, size_t size)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t) (slash - path) : 1;

	if (n >= size)
		return -ENAMETOOLONG;
	if (slash)
		memcpy(ret, path, n ? n : (n = 1));
	else
		ret[0] = '.';
	ret[n] = '\0';
	return 0;
}

int file_replace(const char *path, const void *data, size_t size, mode_t mode)
{
	char tmp[PATH_MAX], dir[PATH_MAX];
	CLEANUP_FD int fd = -1;
	int r;

	if (snprintf(tmp, sizeof(tmp), "%s.new-%d", path, (int) getpid()) >= (int) sizeof(tmp))
		return -ENAMETOOLONG;
	r = parent_of(path, dir, sizeof(dir));
	if (r < 0)
		return r;
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, size);
	if (r == 0 && fchmod(fd, mode) < 0) /* whatever the umask is */
		r = -errno;
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r < 0) {
		(void) unlink(tmp); /* the cause is what the caller wants to know */
		return r;
	}
	return dir_fsync(dir);
}

int dir_become_owner(const char *path)
{
	struct stat st;

	if (geteuid() != 0)
		return 0;
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (st.st_uid == 0)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
		setresuid(st.st_uid, st.st_uid, st.st_uid) < 0)
		return -errno;
	return 0;
}

int dir_fsync(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

int dir_make(const char *path, mode_t mode)
{
	char part[PATH_MAX];
	size_t n = strlen(path);
	struct stat st;

	if (n == 0 || n >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, n + 1);
	for (char *p = part + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return -errno;
		*p = c;
		if (c == '\0')
			break;
	}
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int dir_empty(int dir_fd, dev_t dev, unsigned int depth);

static int remove_at(int dir_fd, const char *name, dev_t dev, unsigned int depth)
{
	CLEANUP_FD int fd = -1;
	struct stat st;
	int r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != dev)
		return -EXDEV;
	r = dir_empty(fd, dev, depth + 1);
	if (r < 0)
		return r;
	return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

static int dir_empty(int dir_fd, dev_t dev, unsigned int depth)
{
	int copy = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0), r = 0, one;
	struct dirent *entry;
	DIR *dir;

	if (copy < 0)
		return -errno;
	if (depth > DEPTH_MAX) {
		(void) fd_close(copy);
		return -ELOOP;
	}
	dir = fdopendir(copy);
	if (!dir) {
		r = -errno;
		(void) fd_close(copy);
		return r;
	}
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		one = remove_at(dir_fd, entry->d_name, dev, depth);
		if (one < 0 && r == 0)
			r = one; /* the rest is removed all the same */
	}
	(void) closedir(dir);
	return r;
}

int dir_remove(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	r = dir_empty(fd, st.st_dev, 0);
	if (r < 0)
		return r;
	return rmdir(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int unix_address(const char *path, struct sockaddr_un *ret)
{
	size_t n = strlen(path);

	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	if (n >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	memcpy(ret->sun_path, path, n + 1);
	return 0;
}

/* A socket is bound there: the file is not stale. Asked with another type, which the kernel answers with EPROTOTYPE: its
 * owner must not see a connection that somebody only asked with. */
static bool is_alive(const char *path, int type)
{
	int fd = unix_connect(path, type == SOCK_DGRAM ? SOCK_STREAM : SOCK_DGRAM);

	if (fd >= 0)
		(void) fd_close(fd);
	return fd >= 0 || fd == -EAGAIN || fd == -EPROTOTYPE;
}

static int remove_stale_socket(const char *path, int type)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (is_alive(path, type))
		return -EADDRINUSE;
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

int unix_listen(const char *path, int type, mode_t mode, int backlog)
{
	CLEANUP_FD int fd = -1;
	struct sockaddr_un addr;
	int r = unix_address(path, &addr);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	r = remove_stale_socket(path, type);
	if (r < 0)
		return r;
	/* the mode first on the descriptor: bind() takes it over, so that there is no moment of a wider one */
	if (fchmod(fd, mode) < 0 || bind(fd, (struct sockaddr *) &addr, sizeof(addr)) < 0 ||
		chmod(path, mode) < 0 || listen(fd, backlog) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int unix_connect(const char *path, int type)
{
	CLEANUP_FD int fd = -1;
	struct sockaddr_un addr;
	int r = unix_address(path, &addr);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *) &addr, sizeof(addr)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

ssize_t unix_send_fds(int fd, const void *buf, size_t size, const int *fds, size_t n_fds)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = (void *) (uintptr_t) buf, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (n_fds > FDS_MAX)
		return -EINVAL;
	if (n_fds > 0) {
		struct cmsghdr *cmsg;

		memset(&control, 0, sizeof(control));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * n_fds);
	}
	do {
		n = sendmsg(fd, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t unix_recv_fds(int fd, void *buf, size_t size, int *ret_fds, size_t max_fds, size_t *ret_n_fds)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes) };
	size_t n_fds = 0, extra = 0;
	ssize_t n;

	do {
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg)) {
		size_t count;

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int one;

			memcpy(&one, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(one));
			if (n_fds < max_fds) {
				ret_fds[n_fds++] = one;
			} else {
				(void) fd_close(one);
				extra++;
			}
		}
	}
	if (extra > 0 || (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
		while (n_fds > 0)
			(void) fd_close(ret_fds[--n_fds]);
		*ret_n_fds = 0;
		return -EMSGSIZE;
	}
	*ret_n_fds = n_fds;
	return n;
}
