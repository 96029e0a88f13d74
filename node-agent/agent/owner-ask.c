/* SPDX-License-Identifier: Apache-2.0
 *
 * See owner-ask.h.
 */
#include "agent/owner-ask.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "agent/options.h"
#include "agent/owner.h"
#include "base/fd.h"

#define ANSWER_SEC 30

/* Its one line, of an agent that answers. *ret is the caller's. */
static int read_answer(int fd, json_t **ret)
{
	char line[OWNER_LINE_MAX];
	size_t size = 0;

	while (size < sizeof(line) && !memchr(line, '\n', size)) {
		ssize_t n = recv(fd, line + size, sizeof(line) - size, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ECONNRESET; /* it does not serve us */
		size += (size_t)n;
	}
	*ret = json_loadb(line, size, JSON_DISABLE_EOF_CHECK, NULL);
	return *ret ? 0 : -EBADMSG;
}

static int converse(const char *path, const json_t *asked, json_t **ret)
{
	const struct timeval wait = { .tv_sec = ANSWER_SEC };
	CLEANUP_FD int fd = unix_connect(path, SOCK_STREAM);
	char *line;
	int r;

	if (fd < 0)
		return fd;
	if (fcntl(fd, F_SETFL, 0) < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0)
		return -errno;
	line = json_dumps(asked, JSON_COMPACT);
	r = line ? fd_write_all(fd, line, strlen(line)) : -ENOMEM;
	free(line);
	if (r == 0)
		r = fd_write_all(fd, "\n", 1);
	return r == 0 ? read_answer(fd, ret) : r;
}

bool owner_is_nobody(int status)
{
	return status == -ENOENT || status == -ECONNREFUSED;
}

int owner_ask(const struct agent_options *options, json_t *asked, json_int_t *ret_left)
{
	char path[PATH_MAX];
	json_t *answer = NULL;
	int r, status = 1;

	(void)snprintf(path, sizeof(path), "%.4000s/" OWNER_SOCKET, options->run);
	r = converse(path, asked, &answer);
	json_decref(asked);
	if (owner_is_nobody(r))
		return r;
	if (r < 0)
		(void)fprintf(stderr, "croft-node: the agent does not answer on %s: %s\n", path, strerror(-r));
	else if (json_is_string(json_object_get(answer, "failure")))
		(void)fprintf(stderr, "croft-node: %s\n", json_string_value(json_object_get(answer, "failure")));
	else
		status = 0;
	if (ret_left)
		*ret_left = json_integer_value(json_object_get(answer, "left"));
	json_decref(answer);
	return status;
}
