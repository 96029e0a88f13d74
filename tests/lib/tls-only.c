/* SPDX-License-Identifier: Apache-2.0
 *
 * tls-only ADDRESS PORT TO-ADDRESS TO-PORT NAME
 *
 * A middlebox as firewalls have them: passes only streams that begin with a TLS ClientHello whose server name is NAME, and
 * cuts all others before a byte of them went on. PORT 0: any; prints the port that it listens on, and then a line per stream:
 * "passed NAME", "cut NAME" or "cut -" for what is no hello. One process per stream; ends with its parent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_MAX 16384
#define RECORD_HANDSHAKE 22
#define CLIENT_HELLO 1
#define EXT_SERVER_NAME 0

struct reader {
	const uint8_t *at, *end;
	bool short_;
};

static uint32_t take(struct reader *in, unsigned int bytes)
{
	uint32_t value = 0;

	for (unsigned int i = 0; i < bytes; i++) {
		if (in->at == in->end) {
			in->short_ = true;
			return 0;
		}
		value = value << 8 | *in->at++;
	}
	return value;
}

static struct reader part(struct reader *in, uint32_t size)
{
	struct reader inner = { .at = in->at, .end = in->at };

	if ((size_t) (in->end - in->at) < size) {
		in->short_ = true;
		return inner;
	}
	inner.end = in->at += size;
	return inner;
}

enum verdict { MORE, HELLO, OTHER };

/* [record: type, version, length][handshake: type, length][version, random][session][suites][compression][extensions] */
static enum verdict look(const uint8_t *data, size_t size, char name[static 256])
{
	struct reader in = { .at = data, .end = data + size }, record, extensions;
	const bool is_handshake = size == 0 || data[0] == RECORD_HANDSHAKE;

	(void) take(&in, 3);
	record = part(&in, take(&in, 2));
	if (!is_handshake)
		return OTHER;
	if (in.short_)
		return MORE;
	if (take(&record, 1) != CLIENT_HELLO)
		return OTHER;
	record = part(&record, take(&record, 3));
	(void) part(&record, 2 + 32);
	(void) part(&record, take(&record, 1));
	(void) part(&record, take(&record, 2));
	(void) part(&record, take(&record, 1));
	extensions = part(&record, take(&record, 2));
	while (!record.short_ && extensions.at < extensions.end && !extensions.short_) {
		const uint32_t type = take(&extensions, 2);
		struct reader extension = part(&extensions, take(&extensions, 2)), text;

		if (type != EXT_SERVER_NAME)
			continue;
		(void) take(&extension, 3);
		text = part(&extension, take(&extension, 2));
		(void) snprintf(name, 256, "%.*s", (int) (text.end - text.at), (const char *) text.at);
	}
	return record.short_ || extensions.short_ ? OTHER : HELLO;
}

static int stream_to(const char *address, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t) atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1 ||
		connect(fd, (const struct sockaddr *) &to, sizeof(to)) < 0)
		return -1;
	return fd;
}

static bool pass(int from, int to)
{
	char data[65536];
	ssize_t n = read(from, data, sizeof(data));

	for (ssize_t sent = 0, r; sent < n; sent += r) {
		r = write(to, data + sent, (size_t) (n - sent));
		if (r <= 0)
			return false;
	}
	return n > 0;
}

static void serve(int from, char **argv)
{
	uint8_t data[HELLO_MAX];
	enum verdict verdict = MORE;
	char name[256] = "-";
	size_t size = 0;
	ssize_t n;
	int to;

	while (verdict == MORE && size < sizeof(data) && (n = read(from, data + size, sizeof(data) - size)) > 0) {
		size += (size_t) n;
		verdict = look(data, size, name);
	}
	if (verdict != HELLO || strcmp(name, argv[5])) {
		(void) printf("cut %s\n", name);
		return;
	}
	(void) printf("passed %s\n", name);
	to = stream_to(argv[3], argv[4]);
	if (to < 0 || write(to, data, size) != (ssize_t) size)
		return;
	for (;;) {
		struct pollfd fds[2] = { { .fd = from, .events = POLLIN }, { .fd = to, .events = POLLIN } };

		if (poll(fds, 2, -1) < 0 || (fds[0].revents && !pass(from, to)) || (fds[1].revents && !pass(to, from)))
			return;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (argc != 6)
		return 2;
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void) signal(SIGCHLD, SIG_IGN);
	(void) setvbuf(stdout, NULL, _IOLBF, 0);
	(void) setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	address.sin_port = htons((uint16_t) atoi(argv[2]));
	if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1 ||
		bind(listener, (const struct sockaddr *) &address, sizeof(address)) < 0 || listen(listener, 16) < 0 ||
		getsockname(listener, (struct sockaddr *) &address, &size) < 0)
		return perror("tls-only"), 1;
	(void) printf("%u\n", ntohs(address.sin_port));
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		pid_t child = fd < 0 ? -1 : fork();

		if (child == 0) {
			(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve(fd, argv);
			(void) fflush(stdout);
			_exit(0);
		}
		if (fd >= 0)
			(void) close(fd);
	}
}
