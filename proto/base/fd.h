/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors and files. A descriptor variable starts at -1; all are O_CLOEXEC from birth.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

/* Closes if >= 0. Returns -1, so that `fd = fd_close(fd)` leaves no stale number. errno is kept. */
int fd_close(int fd);
void fd_closep(int *fd);
#define CLEANUP_FD CLEANUP(fd_closep)
#define TAKE_FD(fd)                                                                                \
	__extension__({                                                                            \
		int take_ = (fd);                                                                  \
		(fd) = -1;                                                                         \
		take_;                                                                             \
	})

int fd_set_nonblock(int fd);
/* Writes or reads all bytes of a blocking descriptor, restarting after signals. 0 or -errno; a read that
 * meets the end early is -EPIPE. */
int fd_write_all(int fd, const void *buf, size_t size);
int fd_read_all(int fd, void *buf, size_t size);
int fd_pwrite_all(int fd, const void *buf, size_t size, off_t offset);
int fd_pread_all(int fd, void *buf, size_t size, off_t offset);

/* Reads a whole file of at most `max` bytes (-EFBIG over it). `*ret` is NUL-terminated and the caller's. */
int file_read(const char *path, size_t max, char **ret, size_t *ret_size);
/* Replaces `path` atomically and durably: write to a temporary beside it, fsync, rename, fsync the
 * directory. 0 or -errno; on failure the old file is as it was. */
int file_replace(const char *path, const void *data, size_t size, mode_t mode);
/* mkdir -p; existing directories are fine. */
int dir_make(const char *path, mode_t mode);
/* Removes a directory and all in it, never following links and never leaving its file system. A path that
 * does not exist is 0. */
int dir_remove(const char *path);
int dir_fsync(const char *path);
/* As root, in front of a directory that belongs to somebody else: becomes its owner for good, with its group alone, so
 * that what is made in it is theirs and no link in it leads root astray. 0 also where nothing is to do. */
int dir_become_owner(const char *path);

/* Unix sockets (CLOEXEC, non-blocking; `type` is SOCK_STREAM or SOCK_SEQPACKET). A path over 107 bytes is
 * -ENAMETOOLONG. unix_listen removes a stale socket file first: -EADDRINUSE when somebody answers there, -EEXIST
 * when it is no socket. */
int unix_listen(const char *path, int type, mode_t mode, int backlog);
/* -EAGAIN when the peer's backlog is full: for a unix socket nothing is under way then. */
int unix_connect(const char *path, int type);
/* Sends bytes with descriptors; receives likewise (CLOEXEC). recv returns bytes, 0 at the end, or -errno;
 * descriptors over `max_fds` are closed and the call is -EMSGSIZE, as it is for a packet that is longer than `size`. */
ssize_t unix_send_fds(int fd, const void *buf, size_t size, const int *fds, size_t n_fds);
ssize_t unix_recv_fds(int fd, void *buf, size_t size, int *ret_fds, size_t max_fds, size_t *ret_n_fds);
