/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What client.c (outside) and agent.c (inside the emulated host) say to each other over one TCP
 * connection per command. Both run on the same machine, so numbers are in its byte order.
 *
 * client: AUTH, START, then STDIN frames (an empty one is end of file), SIGNAL, WINDOW
 * agent:  READY after START, then STDOUT and STDERR frames, ACK, and EXIT as the last frame
 *
 * The client may have at most STDIN_WINDOW bytes of stdin that the agent has not acknowledged, so
 * the agent can always read its socket and never misses a signal or the end of the client.
 */
#ifndef KVM_HOST_WIRE_H
#define KVM_HOST_WIRE_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum frame_type {
	FRAME_AUTH = 1, /* the token of this host */
	FRAME_START,    /* struct start, then cwd, arguments and environment, each ended by NUL */
	FRAME_READY,    /* nothing */
	FRAME_STDIN,    /* bytes; none: end of file */
	FRAME_ACK,      /* uint32_t: bytes of stdin the command took; 0 shows that the host lives */
	FRAME_STDOUT,
	FRAME_STDERR,
	FRAME_SIGNAL, /* uint32_t: signal for the command's process group */
	FRAME_WINDOW, /* struct winsize */
	FRAME_EXIT,   /* uint32_t: exit status, 128 + n for signal n */
};

enum {
	CHUNK_MAX = 64 * 1024,
	STDIN_WINDOW = 256 * 1024,
	ALIVE_MS = 10 * 1000, /* the agent says something at least so often */
	SILENCE_MAX_S = 180,  /* after so long the client gives the host up */
	START_MAX = 4 * 1024 * 1024,
	TOKEN_MAX = 128,
};

struct frame {
	uint32_t type;
	uint32_t size; /* of the payload behind it */
};

struct start {
	uint32_t n_args;
	uint32_t n_env;
	uint32_t is_tty;
	uint16_t rows, columns;
};

/* Writes all of it, waiting where the descriptor does not block. 0 or -errno. */
static inline int write_all(int fd, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n >= 0) {
			p += n;
			size -= (size_t)n;
		} else if (errno == EAGAIN) {
			struct pollfd pollfd = { .fd = fd, .events = POLLOUT };

			(void)poll(&pollfd, 1, -1);
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

/* Reads exactly size bytes from a blocking descriptor. 0, -errno, or -EPIPE at end of file. */
static inline int read_all(int fd, void *data, size_t size)
{
	char *p = data;

	while (size > 0) {
		ssize_t n = read(fd, p, size);

		if (n > 0) {
			p += n;
			size -= (size_t)n;
		} else if (n == 0) {
			return -EPIPE;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static inline int frame_write(int fd, enum frame_type type, const void *data, size_t size)
{
	struct frame frame = { .type = (uint32_t)type, .size = (uint32_t)size };
	int r = write_all(fd, &frame, sizeof frame);

	return r < 0 ? r : write_all(fd, data, size);
}

#endif
