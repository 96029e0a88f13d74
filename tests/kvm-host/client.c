/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one command in an emulated host through agent.c, as if it ran here.
 *
 * usage: client [-t] [-s SECONDS] [-l PROGRAM] [-o OWNER,ANSWER] PORT TOKEN-FILE COMMAND [ARGUMENT...]
 *
 *   -t               give the command a terminal
 *   -s SECONDS       leave with 124 after so long; the agent then kills the command
 *   -l PROGRAM       run when the host is lost, with the folder of TOKEN-FILE as argument: says why
 *   -o OWNER,ANSWER  descriptors of pipes to and from the script `host`: it ends the emulated host
 *                    when OWNER is closed, however we end, and closes ANSWER when all is gone
 *
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT go to the command's process group; the second one ends the
 * client. Exit status: the command's, 128 + n for signal n, 125 when the host is lost.
 */
#define _GNU_SOURCE
#include "wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libgen.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

enum { EXIT_TIMEOUT = 124, EXIT_LOST = 125, HOST_END_MS = 15 * 1000 };

extern char **environ;

static const char *const env_names[] = { "HOME", "PATH", "LANG", "CI", "TERM" };
static const char *const env_prefixes[] = { "CROFT_", "CK_", "ASAN_", "UBSAN_", "TSAN_" };

static volatile sig_atomic_t pending_signal;
static volatile sig_atomic_t has_resized;
static int owner_fd = -1, answer_fd = -1;
static const char *lost_program, *token_path;
static bool is_tty;
static struct termios saved_termios;

static void terminal_restore(void)
{
	if (is_tty)
		(void)tcsetattr(0, TCSADRAIN, &saved_termios);
}

/* Ends the process and, if it is ours, the host. Safe in a signal handler. */
static _Noreturn void leave(int status)
{
	struct pollfd pollfd = { .fd = answer_fd, .events = POLLIN };
	char byte;

	terminal_restore();
	if (owner_fd >= 0) {
		close(owner_fd);
		while (poll(&pollfd, 1, HOST_END_MS) > 0 && read(answer_fd, &byte, 1) > 0)
			;
	}
	_exit(status);
}

static void on_signal(int number)
{
	if (number == SIGWINCH) {
		has_resized = 1;
	} else if (number == SIGALRM) {
		static const char text[] = "run: the command took too long\n";

		terminal_restore();
		(void)!write(2, text, sizeof text - 1);
		leave(EXIT_TIMEOUT);
	} else if (pending_signal) {
		leave(128 + number);
	} else {
		pending_signal = number;
	}
}

static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGWINCH };
	struct sigaction action = { .sa_handler = on_signal };

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		(void)sigaction(numbers[i], &action, NULL);
}

/* Before the host's folder goes with it. */
static void lost_explain(void)
{
	char *path = strdup(token_path);
	pid_t pid = path ? fork() : -1;

	if (pid == 0) {
		(void)execl(lost_program, lost_program, dirname(path), (char *)NULL);
		_exit(EXIT_LOST);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(path);
}

static _Noreturn void fail(const char *what, int error)
{
	terminal_restore();
	fprintf(stderr, "run: the emulated host is lost: %s%s%s\n", what, error ? ": " : "",
		error ? strerror(error) : "");
	if (lost_program)
		lost_explain();
	leave(EXIT_LOST);
}

static bool is_passed(const char *variable)
{
	size_t length = strcspn(variable, "=");

	for (size_t i = 0; i < sizeof env_names / sizeof *env_names; i++)
		if (strlen(env_names[i]) == length && memcmp(variable, env_names[i], length) == 0)
			return true;
	for (size_t i = 0; i < sizeof env_prefixes / sizeof *env_prefixes; i++)
		if (strncmp(variable, env_prefixes[i], strlen(env_prefixes[i])) == 0)
			return true;
	return false;
}

static int host_connect(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		fail("connect", errno);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

static void host_send(int fd, enum frame_type type, const void *data, size_t size)
{
	int r = frame_write(fd, type, data, size);

	if (r < 0)
		fail("send", -r);
}

static void host_auth(int fd, const char *path)
{
	char token[TOKEN_MAX];
	int token_fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = token_fd < 0 ? -1 : read(token_fd, token, sizeof token);

	if (n <= 0)
		fail(path, errno);
	close(token_fd);
	host_send(fd, FRAME_AUTH, token, (size_t)n);
}

static void host_start(int fd, char **args)
{
	struct start start = { .is_tty = is_tty };
	struct winsize size = { 0 };
	char *data = NULL, *cwd = getcwd(NULL, 0);
	size_t data_size = 0;
	FILE *stream = open_memstream(&data, &data_size);

	if (!stream || !cwd)
		fail("working directory", errno);
	if (is_tty && ioctl(0, TIOCGWINSZ, &size) == 0) {
		start.rows = size.ws_row;
		start.columns = size.ws_col;
	}
	(void)fwrite(&start, sizeof start, 1, stream);
	(void)fwrite(cwd, strlen(cwd) + 1, 1, stream);
	for (; args[start.n_args]; start.n_args++)
		(void)fwrite(args[start.n_args], strlen(args[start.n_args]) + 1, 1, stream);
	for (char **variable = environ; *variable; variable++) {
		if (!is_passed(*variable))
			continue;
		start.n_env++;
		(void)fwrite(*variable, strlen(*variable) + 1, 1, stream);
	}
	if (fclose(stream) != 0 || data_size > START_MAX)
		fail("arguments and environment are too large", 0);
	memcpy(data, &start, sizeof start);
	host_send(fd, FRAME_START, data, data_size);
	free(data);
	free(cwd);
}

/* Reads one frame and acts on it. */
static void host_receive(int fd, size_t *in_flight)
{
	static char data[CHUNK_MAX];
	struct frame frame;
	uint32_t number = 0;
	int r = read_all(fd, &frame, sizeof frame);

	if (r < 0)
		fail("connection ended", r == -EPIPE ? 0 : -r);
	if (frame.size > sizeof data)
		fail("frame too large", 0);
	r = read_all(fd, data, frame.size);
	if (r < 0)
		fail("connection ended", r == -EPIPE ? 0 : -r);
	if (frame.size >= sizeof number)
		memcpy(&number, data, sizeof number);
	switch (frame.type) {
	case FRAME_STDOUT:
	case FRAME_STDERR:
		/* ours may be closed: what the command says then goes nowhere, as it would here */
		(void)write_all(frame.type == FRAME_STDOUT ? 1 : 2, data, frame.size);
		break;
	case FRAME_ACK:
		*in_flight -= number;
		break;
	case FRAME_EXIT:
		leave((int)number);
	default:
		break;
	}
}

static void forward_stdin(int fd, bool *is_open, size_t *in_flight)
{
	static char chunk[CHUNK_MAX];
	ssize_t n = read(0, chunk, sizeof chunk);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		*is_open = false;
		n = 0;
	}
	*in_flight += (size_t)n;
	host_send(fd, FRAME_STDIN, chunk, (size_t)n);
}

static time_t seconds_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static _Noreturn void host_loop(int fd)
{
	bool is_stdin_open = true;
	size_t in_flight = 0;
	int sent_signal = 0;
	time_t heard = seconds_now();

	for (;;) {
		bool may_read = is_stdin_open && in_flight + CHUNK_MAX <= STDIN_WINDOW;
		struct pollfd fds[] = {
			{ .fd = fd, .events = POLLIN },
			{ .fd = may_read ? 0 : -1, .events = POLLIN },
		};
		/* the bound is for a signal that comes just before the wait */
		int n = poll(fds, 2, 500);

		if (pending_signal && pending_signal != sent_signal) {
			uint32_t number = (uint32_t)pending_signal;

			sent_signal = pending_signal;
			host_send(fd, FRAME_SIGNAL, &number, sizeof number);
		}
		if (has_resized && is_tty) {
			struct winsize size;

			has_resized = 0;
			if (ioctl(0, TIOCGWINSZ, &size) == 0)
				host_send(fd, FRAME_WINDOW, &size, sizeof size);
		}
		if (n == 0 && seconds_now() - heard > SILENCE_MAX_S)
			fail("it hangs", 0);
		if (n <= 0)
			continue;
		if (fds[0].revents) {
			host_receive(fd, &in_flight);
			heard = seconds_now();
		}
		if (fds[1].revents)
			forward_stdin(fd, &is_stdin_open, &in_flight);
	}
}

static void terminal_raw(void)
{
	struct termios raw;

	if (tcgetattr(0, &saved_termios) < 0) {
		fprintf(stderr, "run: stdin is not a terminal\n");
		leave(EXIT_LOST);
	}
	raw = saved_termios;
	cfmakeraw(&raw);
	is_tty = true;
	(void)tcsetattr(0, TCSADRAIN, &raw);
}

int main(int argc, char **argv)
{
	bool wants_tty = false;
	unsigned int seconds = 0;
	int option, fd;

	/* a missing one would become the socket */
	for (int i = 0; i < 3; i++)
		if (fcntl(i, F_GETFD) < 0)
			(void)open("/dev/null", O_RDWR);
	while ((option = getopt(argc, argv, "+ts:l:o:")) != -1) {
		if (option == 't')
			wants_tty = true;
		else if (option == 's')
			seconds = (unsigned int)strtoul(optarg, NULL, 10);
		else if (option == 'l')
			lost_program = optarg;
		else if (option == 'o' && sscanf(optarg, "%d,%d", &owner_fd, &answer_fd) == 2)
			continue;
		else
			return EXIT_LOST;
	}
	if (argc - optind < 3) {
		fprintf(stderr, "usage: client [-t] [-s SECONDS] [-l PROGRAM] "
				"[-o OWNER,ANSWER] PORT TOKEN-FILE COMMAND...\n");
		return EXIT_LOST;
	}
	token_path = argv[optind + 1];
	catch_signals();
	if (wants_tty)
		terminal_raw();
	(void)alarm(seconds);
	fd = host_connect((uint16_t)atoi(argv[optind]));
	host_auth(fd, argv[optind + 1]);
	host_start(fd, argv + optind + 2);
	host_loop(fd);
}
