/* SPDX-License-Identifier: Apache-2.0
 *
 * guest-fetch HOST [SECONDS]   what http://HOST/ answers, from inside a guest with a tiny root
 *
 * Static, and its names come from libresolv: glibc's getaddrinfo() loads libraries that a tiny root has not (a static
 * busybox ends with a signal there). Prints the body and exits with 0; 1 with a line on stderr that says which step
 * failed.
 */
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES_MAX 8

static int fail(const char *step, const char *why)
{
	fprintf(stderr, "guest-fetch: %s: %s\n", step, why);
	return 1;
}

static size_t resolve(const char *host, struct in_addr *ret)
{
	unsigned char answer[1024];
	ns_msg message;
	size_t n = 0;
	int size;

	if (inet_pton(AF_INET, host, ret) == 1)
		return 1;
	size = res_query(host, ns_c_in, ns_t_a, answer, sizeof(answer));
	if (size < 0 || ns_initparse(answer, size, &message) < 0)
		return 0;
	for (int i = 0; i < ns_msg_count(message, ns_s_an) && n < ADDRESSES_MAX; i++) {
		ns_rr record;

		if (ns_parserr(&message, ns_s_an, i, &record) == 0 && ns_rr_type(record) == ns_t_a &&
			ns_rr_rdlen(record) == sizeof(*ret))
			memcpy(&ret[n++], ns_rr_rdata(record), sizeof(*ret));
	}
	return n;
}

static int fetch(int fd, const char *host)
{
	char buf[4096], *body;
	size_t done = 0;
	ssize_t n;

	dprintf(fd, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host);
	while (done < sizeof(buf) - 1 && (n = read(fd, buf + done, sizeof(buf) - 1 - done)) > 0)
		done += (size_t) n;
	buf[done] = '\0';
	body = strstr(buf, "\r\n\r\n");
	if (strncmp(buf, "HTTP/1.", 7) != 0 || strncmp(buf + 8, " 200 ", 5) != 0 || !body)
		return fail("answer", done > 0 ? "not 200" : strerror(errno));
	fputs(body + 4, stdout);
	return 0;
}

int main(int argc, char **argv)
{
	struct in_addr addresses[ADDRESSES_MAX];
	struct timeval limit = { .tv_sec = argc > 2 ? atoi(argv[2]) : 10 };
	size_t n;

	if (argc < 2)
		return fail("usage", "guest-fetch HOST [SECONDS]");
	n = resolve(argv[1], addresses);
	if (n == 0)
		return fail(argv[1], hstrerror(h_errno));
	for (size_t i = 0; i < n; i++) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = addresses[i] };
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return fail("socket", strerror(errno));
		(void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* bounds connect() too */
		(void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		if (connect(fd, (struct sockaddr *) &to, sizeof(to)) == 0)
			return fetch(fd, argv[1]);
		(void) fail("connect", strerror(errno));
		(void) close(fd);
	}
	return 1;
}
