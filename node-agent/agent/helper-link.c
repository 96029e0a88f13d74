/* SPDX-License-Identifier: Apache-2.0
 *
 * See helper-link.h.
 */
#include "agent/helper-link.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define RETRY_SEC 1
#define ANSWERS_PER_TURN 32
#define PATH_SIZE 108

struct question {
	TAILQ_ENTRY(question) link;
	uint64_t id;
	enum helper_type type;
	helper_done done; /* NULL: forgotten */
	void *user;
};

struct helper_link {
	struct event_base *base;
	char path[PATH_SIZE];
	helper_up up;
	void *user;
	int fd;
	struct event *event, *retry;
	uint64_t last_id;
	TAILQ_HEAD(, question) questions; /* in the order in which they are answered */
	uint8_t *packet;
	bool is_greeted, was_told;
};

static void connect_to(struct helper_link *link);

static void unavailable(struct err *reterr, int err_no, const char *path)
{
	(void)err_set(reterr, FAIL_HELPER_UNAVAILABLE, err_no, "croft-node-helper does not answer");
	err_add(reterr, "path", "%.90s", path);
}

/* All that was asked gets an answer, from the first on; a callback may ask again. */
static void drop(struct helper_link *link, int err_no)
{
	static const struct timeval later = { .tv_sec = RETRY_SEC };
	TAILQ_HEAD(, question) lost = TAILQ_HEAD_INITIALIZER(lost);
	CLEANUP_FREE struct helper_reply *reply = calloc(1, sizeof(*reply));
	struct question *question;

	if (link->event)
		event_free(link->event);
	link->event = NULL;
	link->fd = fd_close(link->fd);
	if (link->is_greeted || !link->was_told)
		log_warn("croft-node-helper does not answer; trying again", "path", link->path, "errno",
			strerrorname_np(err_no));
	link->is_greeted = false;
	link->was_told = true;
	(void)evtimer_add(link->retry, &later);
	TAILQ_CONCAT(&lost, &link->questions, link);
	while ((question = TAILQ_FIRST(&lost))) {
		TAILQ_REMOVE(&lost, question, link);
		if (question->done && reply) {
			unavailable(&reply->failure, err_no, link->path);
			question->done(reply, NULL, 0, question->user);
		}
		free(question);
	}
}

static void take_hello(struct helper_link *link, const struct helper_reply *reply)
{
	if (err_is_set(&reply->failure) || !reply->has_facts) {
		log_failure(LOG_LEVEL_ERROR, "croft-node-helper refuses this agent", &reply->failure, NULL);
		drop(link, EPROTO);
		return;
	}
	link->is_greeted = true;
	log_info("croft-node-helper is there", "network",
		err_is_set(&reply->facts.network) ? failure_info(reply->facts.network.code)->name : "ok", "groups",
		err_is_set(&reply->facts.groups) ? failure_info(reply->facts.groups.code)->name : "ok");
	link->up(reply, link->user);
}

/* false: the connection is gone. */
static bool take(struct helper_link *link, const struct helper_reply *reply, int *fds, size_t n_fds)
{
	struct question *question = TAILQ_FIRST(&link->questions);
	int fd = link->fd;

	if (!question || question->id != reply->id) {
		drop(link, EBADMSG);
		return false;
	}
	TAILQ_REMOVE(&link->questions, question, link);
	if (question->type == HELPER_HELLO)
		take_hello(link, reply);
	else if (question->done)
		question->done(reply, fds, n_fds, question->user);
	free(question);
	return link->fd == fd;
}

static void on_answer(evutil_socket_t fd, short what, void *user)
{
	struct helper_link *link = user;
	CLEANUP_FREE struct helper_reply *reply = calloc(1, sizeof(*reply));

	(void)what;
	for (int i = 0; reply && i < ANSWERS_PER_TURN; i++) {
		int fds[HELPER_FDS_MAX];
		size_t n_fds = 0;
		ssize_t n = unix_recv_fds(fd, link->packet, HELPER_PACKET_MAX, fds, HELPER_FDS_MAX, &n_fds);
		bool goes_on;

		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0) {
			drop(link, n < 0 ? (int)-n : EPIPE);
			return;
		}
		if (helper_reply_decode(link->packet, (size_t)n, reply, NULL) == 0) {
			goes_on = take(link, reply, fds, n_fds);
		} else {
			drop(link, EBADMSG);
			goes_on = false;
		}
		for (size_t k = 0; k < n_fds; k++)
			(void)fd_close(fds[k]);
		if (!goes_on)
			return;
	}
}

static int ask(struct helper_link *link, struct helper_request *request, const int *fds, size_t n_fds,
	helper_done done, void *user)
{
	struct question *question = calloc(1, sizeof(*question));
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size = 0;
	ssize_t n = -ENOMEM;

	if (!question)
		return -ENOMEM;
	request->id = ++link->last_id;
	if (helper_request_encode(request, &data, &size) == 0)
		n = unix_send_fds(link->fd, data, size, fds, n_fds);
	if (n < 0) {
		free(question);
		return (int)n;
	}
	question->id = request->id;
	question->type = request->type;
	question->done = done;
	question->user = user;
	TAILQ_INSERT_TAIL(&link->questions, question, link);
	return 0;
}

static void connect_to(struct helper_link *link)
{
	struct helper_request hello = { .type = HELPER_HELLO, .version = HELPER_VERSION };
	int r, size = 2 * (int)HELPER_PACKET_MAX;

	link->fd = unix_connect(link->path, SOCK_SEQPACKET);
	r = link->fd < 0 ? link->fd : 0;
	if (r == 0) {
		(void)setsockopt(link->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		link->event = event_new(link->base, link->fd, EV_READ | EV_PERSIST, on_answer, link);
		r = link->event && event_add(link->event, NULL) == 0 ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = ask(link, &hello, NULL, 0, NULL, NULL);
	if (r < 0)
		drop(link, -r);
}

static void on_retry(evutil_socket_t fd, short what, void *user)
{
	(void)fd, (void)what;
	connect_to(user);
}

int helper_link_new(struct helper_link **ret, struct event_base *base, const char *path, helper_up up, void *user,
	struct err *reterr)
{
	struct helper_link *link = calloc(1, sizeof(*link));

	if (link) {
		TAILQ_INIT(&link->questions);
		link->base = base;
		link->up = up;
		link->user = user;
		link->fd = -1;
		link->packet = malloc(HELPER_PACKET_MAX);
		link->retry = evtimer_new(base, on_retry, link);
	}
	if (!link || !link->packet || !link->retry) {
		helper_link_free(link);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link to the helper");
	}
	if (strlen(path) >= sizeof(link->path)) {
		helper_link_free(link);
		return err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG, "helper.socket: %.100s", path);
	}
	(void)snprintf(link->path, sizeof(link->path), "%s", path);
	connect_to(link);
	*ret = link;
	return 0;
}

void helper_link_free(struct helper_link *link)
{
	struct question *question;

	if (!link)
		return;
	while ((question = TAILQ_FIRST(&link->questions))) {
		TAILQ_REMOVE(&link->questions, question, link);
		free(question);
	}
	if (link->event)
		event_free(link->event);
	if (link->retry)
		event_free(link->retry);
	(void)fd_close(link->fd);
	free(link->packet);
	free(link);
}

int helper_link_ask(struct helper_link *link, struct helper_request *request, const int *fds, size_t n_fds,
	helper_done done, void *user, struct err *reterr)
{
	int r = link->fd < 0 ? -ENOTCONN : ask(link, request, fds, n_fds, done, user);

	if (r < 0)
		unavailable(reterr, -r, link->path);
	return r;
}

void helper_link_forget(struct helper_link *link, const void *user)
{
	struct question *question;

	TAILQ_FOREACH (question, &link->questions, link)
		if (question->user == user)
			question->done = NULL;
}
