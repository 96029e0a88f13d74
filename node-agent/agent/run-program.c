/* SPDX-License-Identifier: Apache-2.0
 *
 * See run-program.h.
 */
#include "agent/run-program.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

extern char **environ;

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int run_program(const char *program, char *const argv[])
{
	pid_t pid;

	return posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0 ? wait_for(pid) : -1;
}

static bool read_line(int fd, char *ret, size_t size)
{
	size_t n = 0;
	ssize_t got;

	while (n < size && (got = read(fd, ret + n, size - n)) != 0) {
		if (got < 0 && errno != EINTR)
			return false;
		n += got > 0 ? (size_t)got : 0;
	}
	if (n == size)
		return false;
	ret[n] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	return true;
}

int run_program_read(const char *program, char *const argv[], char *ret, size_t size)
{
	posix_spawn_file_actions_t actions;
	int ends[2], status, r;
	bool is_read;
	pid_t pid = -1;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	r = posix_spawn_file_actions_init(&actions);
	if (r == 0) {
		r = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
		if (r == 0)
			r = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
		if (r == 0)
			r = posix_spawn(&pid, program, &actions, NULL, argv, environ);
		(void)posix_spawn_file_actions_destroy(&actions);
	}
	(void)fd_close(ends[1]);
	is_read = r == 0 && read_line(ends[0], ret, size);
	(void)fd_close(ends[0]);
	status = r == 0 ? wait_for(pid) : -1;
	return is_read ? status : -1;
}
