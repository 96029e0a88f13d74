/* SPDX-License-Identifier: Apache-2.0
 *
 * See fault.h. The linker sends the calls of our own objects to __wrap_X; __real_X is what they would have called.
 */
#include "lib/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_uint armed; /* kinds; 0: nothing fails */
static atomic_ulong left; /* calls of those kinds until the one that fails */
static atomic_bool came;
static _Thread_local bool is_held;

void fault_arm(unsigned int kinds, unsigned long k)
{
	atomic_store(&came, false);
	atomic_store(&left, k);
	atomic_store(&armed, kinds);
}

bool fault_disarm(void)
{
	atomic_store(&armed, 0);
	return atomic_load(&came);
}

void fault_hold(void)
{
	is_held = true;
}

void fault_go_on(void)
{
	is_held = false;
}

static bool fails(unsigned int kind)
{
	if (is_held || !(atomic_load(&armed) & kind) || atomic_load(&came) || atomic_fetch_sub(&left, 1) != 1)
		return false;
	atomic_store(&came, true);
	return true;
}

static bool fails_with(unsigned int kind, int err_no)
{
	if (!fails(kind))
		return false;
	errno = err_no;
	return true;
}

/* WRAP(result, name, parameters, arguments, kind, errno, what a failure returns) */
#define WRAP(type, name, parameters, arguments, kind, err_no, failure)                             \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		return fails_with(kind, err_no) ? (failure) : __real_##name arguments;             \
	}

/* clang-format off */
WRAP(void *, malloc, (size_t size), (size), FAULT_MEMORY, ENOMEM, NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), FAULT_MEMORY, ENOMEM, NULL)
WRAP(void *, realloc, (void *old, size_t size), (old, size), FAULT_MEMORY, ENOMEM, NULL)
WRAP(void *, reallocarray, (void *old, size_t n, size_t size), (old, n, size), FAULT_MEMORY, ENOMEM, NULL)
WRAP(char *, strdup, (const char *text), (text), FAULT_MEMORY, ENOMEM, NULL)
WRAP(char *, strndup, (const char *text, size_t n), (text, n), FAULT_MEMORY, ENOMEM, NULL)
WRAP(DIR *, opendir, (const char *path), (path), FAULT_FILE, EMFILE, NULL)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), FAULT_FILE, EMFILE, NULL)
WRAP(int, mkostemp, (char *path, int flags), (path, flags), FAULT_FILE, ENOSPC, -1)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), FAULT_FILE, ENOSPC, -1)
WRAP(int, rename, (const char *from, const char *to), (from, to), FAULT_FILE, ENOSPC, -1)
WRAP(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), FAULT_FILE, ENOSPC, -1)
WRAP(int, ftruncate, (int fd, off_t size), (fd, size), FAULT_FILE, EIO, -1)
WRAP(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), FAULT_FILE, ENOSPC, -1)
WRAP(int, fsync, (int fd), (fd), FAULT_FILE, EIO, -1)
WRAP(int, fdatasync, (int fd), (fd), FAULT_FILE, EIO, -1)
/* clang-format on */

/* A wake-up through an eventfd or a pipe cannot fail as a disk does, and nobody could go on without it. */
static bool is_of_file(int fd)
{
	struct stat st;

	return atomic_load(&armed) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* WRAP_IO: as WRAP for regular files, and FAULT_SHORT does half of it. */
#define WRAP_IO(name, parameters, whole, half, err_no)                                             \
	ssize_t __real_##name parameters;                                                          \
	ssize_t __wrap_##name parameters;                                                          \
	ssize_t __wrap_##name parameters                                                           \
	{                                                                                          \
		if (!is_of_file(fd))                                                               \
			return __real_##name whole;                                                \
		if (fails_with(FAULT_FILE, err_no))                                                \
			return -1;                                                                 \
		return size > 1 && fails(FAULT_SHORT) ? __real_##name half : __real_##name whole;  \
	}

/* clang-format off */
WRAP_IO(write, (int fd, const void *data, size_t size), (fd, data, size), (fd, data, size / 2), ENOSPC)
WRAP_IO(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), (fd, data, size / 2, at), ENOSPC)
WRAP_IO(read, (int fd, void *data, size_t size), (fd, data, size), (fd, data, size / 2), EIO)
WRAP_IO(pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at), (fd, data, size / 2, at), EIO)
/* clang-format on */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = (mode_t)va_arg(args, unsigned int);
		va_end(args);
	}
	return fails_with(FAULT_FILE, EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __wrap_openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = (mode_t)va_arg(args, unsigned int);
		va_end(args);
	}
	return fails_with(FAULT_FILE, EMFILE) ? -1 : __real_openat(dir, path, flags, mode);
}
