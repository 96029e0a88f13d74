/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a program: SIGKILL in place of the call that is number CROFT_DIE_AT among those that change something
 * outside of the process (files, sockets), so that a test can end it between any two of them. Calls inside libc are not seen.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NEXT(name) __extension__({ __typeof__(&(name)) next_; *(void **)&next_ = dlsym(RTLD_NEXT, #name); next_; })
#define CREATES (O_CREAT | O_TMPFILE)

static _Atomic long calls;

static void step(void)
{
	static _Atomic long at = -1;
	const char *text;

	if (at < 0) {
		text = getenv("CROFT_DIE_AT");
		at = text ? strtol(text, NULL, 10) : 0;
	}
	if (++calls == at)
		(void)kill(getpid(), SIGKILL);
}

/* Of all opened files those that are made are of interest; the mode is passed on as it came. */
#define OPENS(name, before, args, ...)                                                             \
	EXPORT int name before                                                                     \
	{                                                                                          \
		mode_t mode;                                                                       \
		va_list list;                                                                      \
                                                                                                   \
		va_start(list, flags);                                                             \
		mode = flags & CREATES ? va_arg(list, mode_t) : 0;                                 \
		va_end(list);                                                                      \
		if (flags & O_CREAT)                                                               \
			step();                                                                    \
		return NEXT(name) args;                                                            \
	}
OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPENS(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))

#define CALL(type, name, params, args)                                                             \
	EXPORT type name params                                                                    \
	{                                                                                          \
		step();                                                                            \
		return NEXT(name) args;                                                            \
	}
CALL(int, rename, (const char *from, const char *to), (from, to))
CALL(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
CALL(int, unlink, (const char *path), (path))
CALL(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode))
CALL(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
CALL(int, rmdir, (const char *path), (path))
CALL(int, fsync, (int fd), (fd))
CALL(int, fdatasync, (int fd), (fd))
CALL(int, bind, (int fd, __CONST_SOCKADDR_ARG to, socklen_t size), (fd, to, size))
CALL(int, connect, (int fd, __CONST_SOCKADDR_ARG to, socklen_t size), (fd, to, size))
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
CALL(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
CALL(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
CALL(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
