/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process 1 of the emulated host: takes connections of client.c and runs one command for each.
 *
 * usage: agent PORT TOKEN-FILE SHARED-DIR...
 *
 * Process 1 only forks and reaps. Each connection has its own process, which owns the command's
 * pipes. The command gets a session and a cgroup of its own. A connection that ends before the
 * command does kills that cgroup; a command that ends leaves its background processes running, as
 * it would on any machine. The shared directories are synced before the exit status is sent.
 */
#define _GNU_SOURCE
#include "wire.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct job {
	int sock_fd;
	int in_fd; /* command's stdin, -1 once closed */
	int out_fd, err_fd;
	int pid_fd;
	pid_t pid;
	bool is_tty;
	char cgroup[64];

	/* what came from the client and is not parsed yet */
	char input[CHUNK_MAX + sizeof(struct frame)];
	size_t input_size;

	/* stdin that the command has not taken yet */
	char held[STDIN_WINDOW];
	size_t held_size;
	bool has_stdin_ended;

	/* what the client has not taken yet; pipes are read only while it is empty */
	char output[CHUNK_MAX + 4 * sizeof(struct frame)];
	size_t output_size;
	uint32_t n_taken; /* stdin bytes to acknowledge */
};

static const char *token_path;
static char **shared_dirs;

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void set_nonblock(int fd)
{
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static bool file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool is_written;

	if (fd < 0)
		return false;
	is_written = write_all(fd, text, strlen(text)) == 0;
	close(fd);
	return is_written;
}

static void job_kill(struct job *job)
{
	char path[128];

	(void)kill(-job->pid, SIGKILL);
	(void)snprintf(path, sizeof path, "%s/cgroup.kill", job->cgroup);
	(void)file_write(path, "1");
}

/* Puts a frame behind the others; the caller has made sure that there is room. */
static void job_queue(struct job *job, enum frame_type type, const void *data, size_t size)
{
	struct frame frame = { .type = (uint32_t)type, .size = (uint32_t)size };

	memcpy(job->output + job->output_size, &frame, sizeof frame);
	memcpy(job->output + job->output_size + sizeof frame, data, size);
	job->output_size += sizeof frame + size;
}

/* Moves one chunk of a pipe towards the client. False when the pipe gave nothing. */
static bool job_read(struct job *job, int *fd, enum frame_type type)
{
	static char chunk[CHUNK_MAX];
	ssize_t n = read(*fd, chunk, sizeof chunk);

	if (n > 0) {
		job_queue(job, type, chunk, (size_t)n);
		return true;
	}
	/* a terminal whose last process is gone answers EIO */
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		fd_close(fd);
	return false;
}

static int job_send(struct job *job)
{
	ssize_t n = send(job->sock_fd, job->output, job->output_size, MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	job->output_size -= (size_t)n;
	memmove(job->output, job->output + n, job->output_size);
	return 0;
}

static void job_feed(struct job *job)
{
	if (job->in_fd >= 0 && job->held_size > 0) {
		ssize_t n = write(job->in_fd, job->held, job->held_size);

		if (n > 0) {
			job->held_size -= (size_t)n;
			job->n_taken += (uint32_t)n;
			memmove(job->held, job->held + n, job->held_size);
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			fd_close(&job->in_fd);
		}
	}
	if (job->in_fd < 0) { /* nobody reads it: take it and forget it */
		job->n_taken += (uint32_t)job->held_size;
		job->held_size = 0;
	} else if (job->has_stdin_ended && job->held_size == 0 && !job->is_tty) {
		fd_close(&job->in_fd);
	}
}

static int job_handle(struct job *job, const struct frame *frame, const char *data)
{
	uint32_t number = 0;

	switch (frame->type) {
	case FRAME_STDIN:
		if (frame->size > sizeof job->held - job->held_size)
			return -EPROTO;
		memcpy(job->held + job->held_size, data, frame->size);
		job->held_size += frame->size;
		if (frame->size == 0)
			job->has_stdin_ended = true;
		return 0;
	case FRAME_SIGNAL:
		if (frame->size != sizeof number)
			return -EPROTO;
		memcpy(&number, data, sizeof number);
		(void)kill(-job->pid, (int)number);
		return 0;
	case FRAME_WINDOW:
		if (frame->size != sizeof(struct winsize))
			return -EPROTO;
		if (job->is_tty)
			(void)ioctl(job->out_fd, TIOCSWINSZ, data);
		return 0;
	default:
		return -EPROTO;
	}
}

/* Reads what the client sent. 0, or negative when it is gone or talks nonsense. */
static int job_receive(struct job *job)
{
	ssize_t n = recv(
		job->sock_fd, job->input + job->input_size, sizeof job->input - job->input_size, 0);
	size_t start = 0;

	if (n == 0)
		return -EPIPE;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	job->input_size += (size_t)n;
	while (job->input_size - start >= sizeof(struct frame)) {
		struct frame frame;
		int r;

		memcpy(&frame, job->input + start, sizeof frame);
		if (frame.size > CHUNK_MAX)
			return -EPROTO;
		if (job->input_size - start < sizeof frame + frame.size)
			break;
		r = job_handle(job, &frame, job->input + start + sizeof frame);
		if (r < 0)
			return r;
		start += sizeof frame + frame.size;
	}
	job->input_size -= start;
	memmove(job->input, job->input + start, job->input_size);
	return 0;
}

/* One turn of the loop. 1 when the command has ended, negative when the client is gone. */
static int job_step(struct job *job)
{
	bool may_read = job->output_size == 0;
	struct pollfd fds[] = {
		{ .fd = job->sock_fd, .events = (short)(POLLIN | (may_read ? 0 : POLLOUT)) },
		{ .fd = may_read ? job->pid_fd : -1, .events = POLLIN },
		{ .fd = may_read ? job->out_fd : -1, .events = POLLIN },
		{ .fd = may_read ? job->err_fd : -1, .events = POLLIN },
		/* POLLERR comes unasked when the reader of stdin is gone */
		{ .fd = job->in_fd, .events = (short)(job->held_size > 0 ? POLLOUT : 0) },
	};
	int n = poll(fds, sizeof fds / sizeof *fds, ALIVE_MS), r = 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[0].revents & (POLLIN | POLLERR | POLLHUP))
		r = job_receive(job);
	if (r == 0 && fds[0].revents & POLLOUT)
		r = job_send(job);
	if (r < 0)
		return r;
	if (fds[4].revents & (POLLERR | POLLHUP))
		fd_close(&job->in_fd);
	job_feed(job);
	if (!may_read)
		return 0;
	if (job->n_taken > 0 || n == 0) {
		job_queue(job, FRAME_ACK, &job->n_taken, sizeof job->n_taken);
		job->n_taken = 0;
	}
	if (fds[2].revents && job_read(job, &job->out_fd, FRAME_STDOUT))
		return 0;
	if (fds[3].revents && job_read(job, &job->err_fd, FRAME_STDERR))
		return 0;
	return fds[1].revents && !fds[2].revents && !fds[3].revents ? 1 : 0;
}

/* Sends what a pipe holds now, and no more: background processes may go on writing. */
static void job_flush(struct job *job, int *fd, enum frame_type type)
{
	enum { PIPE_CHUNKS_MAX = 32 }; /* the largest pipe, 1 MiB, twice */

	for (int i = 0; i < PIPE_CHUNKS_MAX && *fd >= 0 && job_read(job, fd, type); i++) {
		(void)write_all(job->sock_fd, job->output, job->output_size);
		job->output_size = 0;
	}
}

/* Sends what is left in the pipes and the exit status, then keeps the pipes open for processes that
 * the command left behind: they shall not die of SIGPIPE. */
static void job_finish(struct job *job)
{
	struct pollfd fds[2];
	uint32_t exit_status;
	int status = 0;

	(void)fcntl(job->sock_fd, F_SETFL, 0);
	job_flush(job, &job->out_fd, FRAME_STDOUT);
	job_flush(job, &job->err_fd, FRAME_STDERR);
	(void)waitpid(job->pid, &status, 0);
	exit_status =
		(uint32_t)(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));

	for (char **dir = shared_dirs; *dir; dir++) {
		int fd = open(*dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0) {
			(void)syncfs(fd);
			close(fd);
		}
	}
	(void)write_all(job->sock_fd, job->output, job->output_size);
	(void)frame_write(job->sock_fd, FRAME_EXIT, &exit_status, sizeof exit_status);
	fd_close(&job->sock_fd);
	fd_close(&job->in_fd);

	while (job->out_fd >= 0 || job->err_fd >= 0) {
		job->output_size = 0;
		fds[0] = (struct pollfd){ .fd = job->out_fd, .events = POLLIN };
		fds[1] = (struct pollfd){ .fd = job->err_fd, .events = POLLIN };
		(void)poll(fds, 2, -1);
		if (fds[0].revents)
			(void)job_read(job, &job->out_fd, FRAME_STDOUT);
		job->output_size = 0;
		if (fds[1].revents)
			(void)job_read(job, &job->err_fd, FRAME_STDERR);
	}
	(void)rmdir(job->cgroup);
}

static void command_exec(const char *cwd, char **args, char **env, const int stdio[3], bool is_tty)
{
	sigset_t none;

	/* process 1 is exempt from the out-of-memory killer, the command is not; and it may open
	 * as many files as systemd would let it */
	(void)file_write("/proc/self/oom_score_adj", "0");
	(void)setrlimit(RLIMIT_NOFILE, &(struct rlimit){ .rlim_cur = 1024, .rlim_max = 524288 });
	(void)setsid();
	if (is_tty)
		(void)ioctl(stdio[0], TIOCSCTTY, 0);
	for (int i = 0; i < 3; i++)
		(void)dup2(stdio[i], i);
	(void)close_range(3, ~0U, 0);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	if (chdir(cwd) < 0) {
		dprintf(2, "run: the emulated host has no folder %s (%s); give it with --share\n",
			cwd, strerror(errno));
		_exit(125);
	}
	environ = env;
	execvp(args[0], args);
	dprintf(2, "run: %s: %s\n", args[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

/* Opens the three ends for the command and ours. 0 or -errno. */
static int job_open_stdio(struct job *job, const struct start *start, int stdio[3])
{
	int pipes[3][2];

	if (start->is_tty) {
		struct winsize size = { .ws_row = start->rows, .ws_col = start->columns };
		int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

		if (fd < 0 || grantpt(fd) < 0 || unlockpt(fd) < 0)
			return -errno;
		(void)ioctl(fd, TIOCSWINSZ, &size);
		stdio[0] = open(ptsname(fd), O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (stdio[0] < 0)
			return -errno;
		stdio[1] = stdio[2] = stdio[0];
		job->out_fd = fd;
		job->in_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		job->err_fd = -1;
	} else {
		for (int i = 0; i < 3; i++)
			if (pipe2(pipes[i], O_CLOEXEC) < 0)
				return -errno;
		stdio[0] = pipes[0][0];
		stdio[1] = pipes[1][1];
		stdio[2] = pipes[2][1];
		job->in_fd = pipes[0][1];
		job->out_fd = pipes[1][0];
		job->err_fd = pipes[2][0];
		set_nonblock(job->err_fd);
	}
	set_nonblock(job->in_fd);
	set_nonblock(job->out_fd);
	return 0;
}

/* Starts the command that data describes. 0 or -errno. */
static int job_start(struct job *job, char *data, size_t size)
{
	struct start start;
	char *p = data + sizeof start, *end = data + size, *cwd = p;
	char **strings;
	int stdio[3], r;

	if (size <= sizeof start || end[-1] != '\0')
		return -EPROTO;
	memcpy(&start, data, sizeof start);
	if (start.n_args == 0 || start.n_args > size || start.n_env > size)
		return -EPROTO;
	strings = calloc((size_t)start.n_args + start.n_env + 2, sizeof *strings);
	if (!strings)
		return -ENOMEM;
	for (uint32_t i = 0; i < start.n_args + start.n_env; i++) {
		p += strlen(p) + 1;
		if (p >= end)
			return -EPROTO;
		strings[i + (i >= start.n_args)] = p;
	}
	job->is_tty = start.is_tty;
	r = job_open_stdio(job, &start, stdio);
	if (r < 0)
		return r;

	(void)snprintf(job->cgroup, sizeof job->cgroup, "/sys/fs/cgroup/job-%d", (int)getpid());
	(void)mkdir(job->cgroup, 0755);
	job->pid = fork();
	if (job->pid < 0)
		return -errno;
	if (job->pid == 0) {
		char path[128];

		(void)snprintf(path, sizeof path, "%s/cgroup.procs", job->cgroup);
		(void)file_write(path, "0");
		command_exec(cwd, strings, strings + start.n_args + 1, stdio, job->is_tty);
	}
	job->pid_fd = pidfd_open(job->pid, 0);
	for (int i = 0; i < (job->is_tty ? 1 : 3); i++)
		close(stdio[i]);
	return job->pid_fd < 0 ? -errno : 0;
}

static bool is_authentic(int sock_fd)
{
	char want[TOKEN_MAX] = { 0 }, got[TOKEN_MAX] = { 0 };
	struct frame frame;
	int fd = open(token_path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, want, sizeof want);

	if (fd >= 0)
		close(fd);
	return n > 0 && read_all(sock_fd, &frame, sizeof frame) == 0 && frame.type == FRAME_AUTH &&
	       frame.size == (size_t)n && read_all(sock_fd, got, frame.size) == 0 &&
	       memcmp(want, got, (size_t)n) == 0;
}

static int connection_serve(int sock_fd)
{
	static struct job job = { .in_fd = -1, .out_fd = -1, .err_fd = -1, .pid_fd = -1 };
	struct frame frame;
	char *data;
	int r;

	job.sock_fd = sock_fd;
	(void)alarm(60); /* a stranger who says nothing does not stay */
	if (!is_authentic(sock_fd) || read_all(sock_fd, &frame, sizeof frame) < 0 ||
		frame.type != FRAME_START || frame.size > START_MAX)
		return 1;
	data = malloc(frame.size);
	if (!data || read_all(sock_fd, data, frame.size) < 0)
		return 1;
	(void)alarm(0);
	r = job_start(&job, data, frame.size);
	if (r < 0) {
		fprintf(stderr, "agent: cannot start a command: %s\n", strerror(-r));
		return 1;
	}
	if (frame_write(sock_fd, FRAME_READY, NULL, 0) < 0) {
		job_kill(&job);
		return 1;
	}
	set_nonblock(sock_fd);
	do
		r = job_step(&job);
	while (r == 0);
	if (r < 0) {
		job_kill(&job);
		(void)waitpid(job.pid, NULL, 0);
		for (int i = 0; i < 50 && rmdir(job.cgroup) < 0 && errno == EBUSY; i++)
			(void)usleep(20 * 1000);
		return 1;
	}
	job_finish(&job);
	return 0;
}

/*
 * Holds two idle VMs for ever, so that KVM's static keys stay as they are: without them the first VM
 * made and the last one gone patch the scheduler's code (preempt_notifier_key in __schedule()) under
 * the other processor, and QEMU 7.2 can keep the int3 of the patching in its translation: that
 * processor then takes int3 for ever. One VM has an in-kernel APIC, the other has not: each has its
 * key.
 */
static void pin_static_keys(void)
{
	int kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	for (int has_apic = 0; has_apic < 2; has_apic++) {
		int vm_fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);

		if (vm_fd < 0 || (has_apic && ioctl(vm_fd, KVM_CREATE_IRQCHIP, 0) < 0) ||
			ioctl(vm_fd, KVM_CREATE_VCPU, 0) < 0)
			fprintf(stderr, "agent: no VM to hold: %s\n", strerror(errno));
	}
}

static int listen_on(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
		listen(fd, 64) < 0)
		return -errno;
	return fd;
}

int main(int argc, char **argv)
{
	int listen_fd;

	if (argc < 3) {
		fprintf(stderr, "usage: agent PORT TOKEN-FILE SHARED-DIR...\n");
		return 2;
	}
	token_path = argv[2];
	shared_dirs = argv + 3;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGCHLD, SIG_DFL);
	(void)file_write("/proc/self/oom_score_adj", "-1000");
	pin_static_keys();
	listen_fd = listen_on((uint16_t)atoi(argv[1]));
	if (listen_fd < 0) {
		fprintf(stderr, "agent: cannot listen: %s\n", strerror(-listen_fd));
		return 1;
	}
	printf("kvm-host ready\n");
	(void)fflush(stdout);
	for (;;) {
		struct pollfd pollfd = { .fd = listen_fd, .events = POLLIN };
		int fd, one = 1;

		/* the bound is for orphans, which end without a connection */
		(void)poll(&pollfd, 1, 500);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (!(pollfd.revents & POLLIN))
			continue;
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (fork() == 0) {
			close(listen_fd);
			_exit(connection_serve(fd));
		}
		close(fd);
	}
}
