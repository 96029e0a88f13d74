/* SPDX-License-Identifier: Apache-2.0
 *
 * See child.h.
 */
#include "image/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

extern char **environ;

static int find_program(const char *name, char ret[static PATH_MAX])
{
	const char *path = getenv("PATH");
	char places[4096];
	char *rest, *dir;

	(void) snprintf(places, sizeof(places), "%s:/usr/sbin:/usr/bin:/sbin:/bin", path ? path : "");
	for (dir = strtok_r(places, ":", &rest); dir; dir = strtok_r(NULL, ":", &rest))
		if (snprintf(ret, PATH_MAX, "%s/%s", dir, name) < PATH_MAX && access(ret, X_OK) == 0)
			return 0;
	return -ENOENT;
}

static int spawn_with(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, const char *path,
	char *const *argv, char *const *env, const int fds[3], pid_t *ret)
{
	sigset_t none, usual;
	int r = 0;

	for (int i = 0; i < 3 && r == 0; i++)
		r = posix_spawn_file_actions_adddup2(actions, fds[i], i);
	/* What we ignore or block for ourselves is not the tool's business. */
	(void) sigemptyset(&none);
	(void) sigemptyset(&usual);
	(void) sigaddset(&usual, SIGPIPE);
	if (r == 0)
		r = posix_spawnattr_setsigmask(attributes, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attributes, &usual);
	if (r == 0)
		r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (r == 0)
		r = posix_spawn(ret, path, actions, attributes, argv, env);
	return -r;
}

int child_start(struct child *child, char *const *argv, char *const *env, int stdin_fd)
{
	CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	CLEANUP_FD int said = memfd_create("stderr", MFD_CLOEXEC);
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char path[PATH_MAX];
	pid_t pid = -1;
	int r = find_program(argv[0], path);

	if (r < 0)
		return r;
	if (null < 0 || said < 0)
		return -errno;
	r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return -r;
	r = posix_spawnattr_init(&attributes);
	if (r == 0) {
		const int fds[3] = { stdin_fd >= 0 ? stdin_fd : null, null, said };

		r = spawn_with(&actions, &attributes, path, argv, env ? env : environ, fds, &pid);
		(void) posix_spawnattr_destroy(&attributes);
	}
	(void) posix_spawn_file_actions_destroy(&actions);
	if (r < 0)
		return r;
	child->pid = pid;
	child->stderr_fd = TAKE_FD(said);
	return 0;
}

/* The end of what it said, which names the cause more often than the beginning. */
static void read_said(int fd, char said[static CHILD_SAID_MAX])
{
	off_t size = lseek(fd, 0, SEEK_END);
	ssize_t n;

	n = pread(fd, said, CHILD_SAID_MAX - 1, MAX(size - (CHILD_SAID_MAX - 1), 0));
	said[MAX(n, 0)] = '\0';
	for (char *p = said; *p; p++)
		if ((unsigned char) *p < 0x20)
			*p = ' ';
	for (size_t i = strlen(said); i > 0 && said[i - 1] == ' '; i--)
		said[i - 1] = '\0';
}

int child_wait(struct child *child, int *ret_status, char said[static CHILD_SAID_MAX])
{
	int status;
	pid_t pid;

	do {
		pid = waitpid(child->pid, &status, 0);
	} while (pid < 0 && errno == EINTR);
	if (pid < 0)
		return -errno;
	child->pid = -1;
	read_said(child->stderr_fd, said);
	*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return 0;
}

void child_deinit(struct child *child)
{
	if (child->pid > 0) {
		(void) kill(child->pid, SIGKILL);        /* ours, not reaped: the pid is its own */
		(void) waitpid(child->pid, NULL, 0);
	}
	child->pid = -1;
	child->stderr_fd = fd_close(child->stderr_fd);
}
