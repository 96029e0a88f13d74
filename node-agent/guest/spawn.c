/* SPDX-License-Identifier: Apache-2.0
 *
 * See spawn.h. croft-guest has one thread, so the child may do anything between fork and exec; it still does
 * as little as it can.
 */
#include "guest/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum step { STEP_SETUP, STEP_USER, STEP_CWD, STEP_EXEC, STEP_MAX_ };

/* What a child that could not become the program says. */
struct exec_report {
	int step;
	int err_no;
	int file_exists; /* STEP_EXEC with ENOENT: the interpreter is missing, not the file */
};

/* ---- in the child ---- */

__attribute__((noreturn)) static void child_fail(int report_fd, enum step step, int err_no, bool exists)
{
	struct exec_report report = { .step = (int) step, .err_no = err_no, .file_exists = exists };

	(void) fd_write_all(report_fd, &report, sizeof(report)); /* nobody else could be told */
	/* ends the process: the child that could not become the program */
	_exit(127);
}

static void child_reset_signals(void)
{
	struct sigaction action = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		(void) sigaction(i, &action, NULL); /* fails for KILL, STOP and libc's own */
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_reset_limits(void)
{
	CLEANUP_FD int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	struct rlimit files;

	if (fd >= 0)
		(void) !write(fd, "0", 1); /* an unprivileged test may not lower it; then it is 0 already */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = MIN(files.rlim_max, (rlim_t) 1024); /* select() and old programs */
		(void) setrlimit(RLIMIT_NOFILE, &files);
	}
	(void) umask(022);
}

static int child_become(const struct user *user)
{
	if (geteuid() != 0 && user->uid == geteuid())
		return 0; /* a test as an ordinary user */
	if (setgroups(user->n_groups, user->groups) < 0 || setresgid(user->gid, user->gid, user->gid) < 0 ||
		setresuid(user->uid, user->uid, user->uid) < 0)
		return -errno;
	return 0;
}

static int child_chdir(const struct spawn *spawn)
{
	if (*spawn->cwd)
		return chdir(spawn->cwd) < 0 ? -errno : 0;
	if (chdir(spawn->user->home) == 0)
		return 0;
	return chdir("/") < 0 ? -errno : 0;
}

static const char *env_path(char *const *env)
{
	for (; *env; env++)
		if (!strncmp(*env, "PATH=", 5))
			return *env + 5;
	return DEFAULT_PATH;
}

/* Like execvpe(), but a file without a known format is not handed to a shell: the caller is told. */
static void child_exec(const struct spawn *spawn, int report_fd)
{
	int worst = ENOENT;
	const char *next;

	if (strchr(spawn->cmd, '/')) {
		(void) execve(spawn->cmd, spawn->argv, spawn->env);
		worst = errno;
		child_fail(report_fd, STEP_EXEC, worst, access(spawn->cmd, F_OK) == 0);
	}
	for (const char *part = env_path(spawn->env);; part = next + 1) {
		char path[PATH_MAX];
		struct stat st;

		next = strchrnul(part, ':');
		if (snprintf(path, sizeof(path), "%.*s%s%s", (int) (next - part), part, next > part ? "/" : "",
			    spawn->cmd) < (int) sizeof(path) &&
			stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
			(void) execve(path, spawn->argv, spawn->env);
			/* A file that may not be executed hides no later one, as in a shell. */
			if (errno != EACCES)
				child_fail(report_fd, STEP_EXEC, errno, true);
			worst = EACCES;
		}
		if (!*next)
			break;
	}
	child_fail(report_fd, STEP_EXEC, worst, false);
}

struct child_fds {
	int in, out, err; /* what becomes 0, 1, 2 */
	int report;
};

static int child_stdio(const struct spawn *spawn, const struct child_fds *fds)
{
	if (setsid() < 0)
		return -errno;
	if (spawn->wants_pty && ioctl(fds->in, TIOCSCTTY, 0) < 0)
		return -errno;
	/* All of them lie above 2: croft-guest's own 0, 1 and 2 are open from its first line on. */
	if (dup2(fds->in, 0) < 0 || dup2(fds->out, 1) < 0 || dup2(fds->err, 2) < 0)
		return -errno;
	/* All that is ours closes on exec already; this is for what was inherited. */
	(void) close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
	return 0;
}

__attribute__((noreturn)) static void child_run(const struct spawn *spawn, const struct child_fds *fds)
{
	int r = child_stdio(spawn, fds);

	/* Before it is anybody else. One that cannot is not frozen with the others, which is no reason not to run it. */
	if (spawn->group_fd >= 0)
		(void) !write(spawn->group_fd, "0", 1);
	if (r < 0)
		child_fail(fds->report, STEP_SETUP, -r, false);
	child_reset_limits();
	r = child_become(spawn->user);
	if (r < 0)
		child_fail(fds->report, STEP_USER, -r, false);
	r = child_chdir(spawn);
	if (r < 0)
		child_fail(fds->report, STEP_CWD, -r, false);
	child_reset_signals();
	child_exec(spawn, fds->report);
	/* ends the process: not reached, child_exec() does not come back */
	_exit(127);
}

/* ---- in the parent ---- */

struct pipe_ends {
	int read_fd, write_fd;
};

static void pipe_closep(struct pipe_ends *pipe)
{
	pipe->read_fd = fd_close(pipe->read_fd);
	pipe->write_fd = fd_close(pipe->write_fd);
}
#define PIPE_NULL { -1, -1 }
#define CLEANUP_PIPE CLEANUP(pipe_closep)

static int pipe_open(struct pipe_ends *ret)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*ret = (struct pipe_ends){ fds[0], fds[1] };
	return 0;
}

static int fork_child(const struct spawn *spawn, const struct child_fds *fds, pid_t *ret)
{
	sigset_t all, old;
	pid_t pid;

	/* A signal between fork and exec must not run a handler of ours in the child. */
	(void) sigfillset(&all);
	(void) sigprocmask(SIG_SETMASK, &all, &old);
	pid = fork();
	if (pid == 0)
		child_run(spawn, fds);
	(void) sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return -errno;
	*ret = pid;
	return 0;
}

static int start_with_pipes(const struct spawn *spawn, int report_fd, struct spawned *ret)
{
	CLEANUP_PIPE struct pipe_ends in = PIPE_NULL, out = PIPE_NULL, err = PIPE_NULL;
	struct child_fds fds;
	int r;

	if (spawn->wants_stdin)
		r = pipe_open(&in);
	else
		r = (in.read_fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0 ? -errno : 0;
	if (r == 0)
		r = pipe_open(&out);
	if (r == 0)
		r = pipe_open(&err);
	/* Only our ends: the flag belongs to the open file, and the child expects blocking ones. */
	if (r == 0)
		r = fd_set_nonblock(out.read_fd);
	if (r == 0)
		r = fd_set_nonblock(err.read_fd);
	if (r == 0 && in.write_fd >= 0)
		r = fd_set_nonblock(in.write_fd);
	if (r < 0)
		return r;
	fds = (struct child_fds){ in.read_fd, out.write_fd, err.write_fd, report_fd };
	r = fork_child(spawn, &fds, &ret->pid);
	if (r < 0)
		return r;
	ret->input_fd = TAKE_FD(in.write_fd);
	ret->out_fd[0] = TAKE_FD(out.read_fd);
	ret->out_fd[1] = TAKE_FD(err.read_fd);
	return 0;
}

/* Opens a terminal; the slave through its master, so that no path of the sandbox is trusted. */
static int open_pty(const struct spawn *spawn, int *ret_master, int *ret_slave)
{
	CLEANUP_FD int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	CLEANUP_FD int slave = -1;
	struct winsize size = { .ws_col = spawn->cols, .ws_row = spawn->rows };

	if (master < 0 || unlockpt(master) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || ioctl(master, TIOCSWINSZ, &size) < 0)
		return -errno;
	(void) !fchown(slave, spawn->user->uid, (gid_t) -1); /* refused to an unprivileged test, not needed there */
	*ret_master = TAKE_FD(master);
	*ret_slave = TAKE_FD(slave);
	return 0;
}

static int start_with_pty(const struct spawn *spawn, int report_fd, struct spawned *ret)
{
	CLEANUP_FD int master = -1, slave = -1, input = -1;
	struct child_fds fds;
	int r = open_pty(spawn, &master, &slave);

	if (r == 0)
		r = fd_set_nonblock(master);
	if (r < 0)
		return r;
	/* A second number: one descriptor can be in an epoll set only once. */
	input = fcntl(master, F_DUPFD_CLOEXEC, 3);
	if (input < 0)
		return -errno;
	fds = (struct child_fds){ slave, slave, slave, report_fd };
	r = fork_child(spawn, &fds, &ret->pid);
	if (r < 0)
		return r;
	ret->input_fd = TAKE_FD(input);
	ret->out_fd[0] = TAKE_FD(master);
	return 0;
}

int spawn_start(const struct spawn *spawn, struct spawned *ret, struct err *reterr)
{
	CLEANUP_PIPE struct pipe_ends report = PIPE_NULL;
	struct spawned spawned = SPAWNED_NULL;
	int r = pipe_open(&report);

	if (r == 0)
		r = fd_set_nonblock(report.read_fd);
	if (r == 0)
		r = spawn->wants_pty ? start_with_pty(spawn, report.write_fd, &spawned)
				     : start_with_pipes(spawn, report.write_fd, &spawned);
	if (r < 0)
		return err_set(reterr, FAIL_EXEC_FAILED, -r, "no process could be made for \"%.128s\"", spawn->cmd);
	spawned.exec_fd = TAKE_FD(report.read_fd);
	*ret = spawned;
	return 0;
}

static void describe(const struct exec_report *report, struct err *reterr)
{
	int e = report->err_no;

	switch (report->step) {
	case STEP_CWD:
		(void) err_set(reterr, FAIL_CWD_NOT_FOUND, e, "the working directory cannot be entered");
		return;
	case STEP_USER:
		(void) err_set(reterr, FAIL_EXEC_FAILED, e, "the process could not become its user");
		return;
	case STEP_EXEC:
		break;
	default:
		(void) err_set(reterr, FAIL_EXEC_FAILED, e, "the process could not be set up");
		return;
	}
	if ((e == ENOENT && !report->file_exists) || e == ENOTDIR)
		(void) err_set(reterr, FAIL_COMMAND_NOT_FOUND, e, "the command was not found");
	else if (e == ENOENT)
		(void) err_set(reterr, FAIL_COMMAND_NOT_EXECUTABLE, e, "the command's interpreter was not found");
	else if (e == E2BIG)
		(void) err_set(reterr, FAIL_INVALID_ARGUMENT, e, "arguments and environment are too long");
	else if (e == ENOMEM || e == EAGAIN || e == EMFILE || e == ENFILE || e == EIO)
		(void) err_set(reterr, FAIL_EXEC_FAILED, e, "the command could not be executed");
	else
		(void) err_set(reterr, FAIL_COMMAND_NOT_EXECUTABLE, e, "the command cannot be executed");
}

enum spawn_answer spawn_read_exec(int exec_fd, struct err *reterr)
{
	struct exec_report report;
	ssize_t n;

	do {
		n = read(exec_fd, &report, sizeof(report)); /* a pipe delivers so few bytes whole */
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return SPAWN_PENDING;
	if (n == 0)
		return SPAWN_RUNNING;
	if (n == (ssize_t) sizeof(report))
		describe(&report, reterr);
	else
		(void) err_set(reterr, FAIL_EXEC_FAILED, EIO, "the process gave no account of its start");
	return SPAWN_FAILED;
}
