/* SPDX-License-Identifier: Apache-2.0
 *
 * See owner.h.
 */
#include "agent/owner.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define CONNECTIONS_MAX 8
#define QUIET_SEC 5
#define FILE_MAX 4096u

struct owner_conn {
	TAILQ_ENTRY(owner_conn) link;
	struct owner *owner;
	struct bufferevent *bev;
	struct ucred peer;
	bool is_answered;
};

struct owner {
	struct agent *agent;
	struct evconnlistener *socket;
	char path[PATH_MAX];
	TAILQ_HEAD(, owner_conn) conns;
	unsigned int n_conns;
};

/* ---- the file ---- */

static int drain_path(const char *state, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/drain", state);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static bool parse_drain(const char *text, size_t size, struct owner_drain *ret)
{
	json_t *object = json_loadb(text, size, 0, NULL);
	json_int_t since, deadline;
	const char *why;
	bool ok = json_unpack(object, "{s:s, s:I, s:I}", "why", &why, "since_us", &since, "deadline_us", &deadline) == 0 &&
		  strlen(why) < OWNER_WHY_SIZE && deadline >= 0;

	if (ok) {
		*ret = (struct owner_drain){ .drained = true, .since_us = since, .deadline_us = deadline };
		(void)snprintf(ret->why, sizeof(ret->why), "%s", why);
	}
	json_decref(object);
	return ok;
}

int owner_drain_read(const char *state, struct owner_drain *ret, struct err *reterr)
{
	CLEANUP_FREE char *text = NULL;
	char path[PATH_MAX];
	size_t size = 0;
	int r = drain_path(state, path);

	*ret = (struct owner_drain){ .drained = false };
	if (r == 0)
		r = file_read(path, FILE_MAX, &text, &size);
	if (r == -ENOENT)
		return 0;
	if (r == 0 && !parse_drain(text, size, ret))
		r = -EBADMSG;
	return r < 0 ? err_set(reterr, FAIL_STATE_UNREADABLE, -r, "cannot read %.200s/drain", state) : 0;
}

int owner_drain_write(const char *state, const struct owner_drain *drain, struct err *reterr)
{
	char path[PATH_MAX], *text = NULL;
	json_t *object = NULL;
	int r = drain_path(state, path);

	if (r == 0 && !drain->drained) {
		r = unlink(path) < 0 && errno != ENOENT ? -errno : dir_fsync(state);
	} else if (r == 0) {
		object = json_pack("{s:s, s:I, s:I}", "why", drain->why, "since_us", (json_int_t)drain->since_us, "deadline_us",
			(json_int_t)drain->deadline_us);
		text = json_dumps(object, JSON_INDENT(2));
		r = text ? file_replace(path, text, strlen(text), 0600) : -ENOMEM;
	}
	free(text);
	json_decref(object);
	return r < 0 ? err_set(reterr, FAIL_STATE_WRITE_FAILED, -r, "cannot write %.200s/drain", state) : 0;
}

/* ---- what is asked ---- */

static void feed_drain(struct agent *agent, const struct owner_drain *drain)
{
	struct sv_event event = { .type = SV_EV_OWNER_DRAIN };

	event.owner.drained = drain->drained;
	event.owner.why = drain->why;
	if (drain->deadline_us) /* one that is past is now */
		event.owner.deadline_usec = clock_monotonic_usec() + MAX(drain->deadline_us - clock_realtime_usec(), INT64_C(0));
	agent_feed(agent, &event);
}

/* One that cannot be read is as good as one: nothing new begins before a person looked. */
void owner_load(struct agent *agent)
{
	struct owner_drain drain;
	struct err err = ERR_NULL;

	if (owner_drain_read(agent->options->state, &drain, &err) < 0) {
		log_failure(LOG_LEVEL_ERROR, "the owner's drain cannot be read: the node stays drained", &err, NULL);
		drain = (struct owner_drain){ .drained = true, .why = "its record cannot be read" };
	}
	if (drain.drained)
		feed_drain(agent, &drain);
}

static int set_drain(struct agent *agent, bool drained, const json_t *asked, struct err *reterr)
{
	struct owner_drain drain = { .drained = drained, .since_us = clock_realtime_usec() };
	json_int_t deadline = 0;
	const char *why = "";
	int r;

	if (json_unpack((json_t *)(uintptr_t)asked, "{s?s, s?I}", "why", &why, "deadline_us", &deadline) < 0 || deadline < 0 ||
		strlen(why) >= sizeof(drain.why))
		return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "why has at most %u bytes, and the deadline is a time",
			OWNER_WHY_SIZE - 1);
	drain.deadline_us = deadline;
	(void)snprintf(drain.why, sizeof(drain.why), "%s", why);
	r = owner_drain_write(agent->options->state, &drain, reterr);
	if (r == 0)
		feed_drain(agent, &drain);
	return r;
}

static int stop(struct agent *agent, const json_t *asked, struct err *reterr)
{
	const char *id = json_string_value(json_object_get(asked, "sandbox"));
	struct sv_event event = { .type = SV_EV_OWNER_STOP };
	struct sv_view view;

	if (!id || (*id && !id_is_valid(id)))
		return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "no sandbox is named");
	if (*id && (supervisor_get(agent->supervisor, id, &view) < 0 || view.state == SV_ENDED))
		return err_set(reterr, FAIL_SANDBOX_NOT_FOUND, ENOENT, "%s is not on this node", id);
	(void)snprintf(event.sandbox, sizeof(event.sandbox), "%s", id);
	agent_feed(agent, &event);
	return 0;
}

/* What is asked for by its own id, so that whoever asked finds it. */
static int take(struct agent *agent, const json_t *asked, struct err *reterr)
{
	const char *sandbox = json_string_value(json_object_get(asked, "sandbox"));
	const char *snapshot = json_string_value(json_object_get(asked, "snapshot"));
	struct snapshot_command command = { .number = 0 };
	struct sv_event event = { .type = SV_EV_OWNER_SNAPSHOT, .take = &command };
	struct sv_view view;

	if (!sandbox || !snapshot || !id_is_valid(sandbox) || !id_is_valid(snapshot))
		return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "no sandbox and no snapshot are named");
	if (supervisor_get(agent->supervisor, sandbox, &view) < 0)
		return err_set(reterr, FAIL_SANDBOX_NOT_FOUND, ENOENT, "%s is not on this node", sandbox);
	if (view.state != SV_RUNNING)
		return err_set(reterr, FAIL_EXPORT_FAILED, EBUSY, "the sandbox is %s", sv_state_name(view.state));
	command.generation = view.generation;
	(void)snprintf(command.sandbox, sizeof(command.sandbox), "%s", sandbox);
	(void)snprintf(command.operation, sizeof(command.operation), "%s", snapshot);
	(void)snprintf(command.snapshot, sizeof(command.snapshot), "%s", snapshot);
	agent_feed(agent, &event);
	return 0;
}

static int drop(struct agent *agent, const json_t *asked, struct err *reterr)
{
	const char *snapshot = json_string_value(json_object_get(asked, "snapshot"));
	const struct sv_event event = { .type = SV_EV_OWNER_DROP, .drop = snapshot };

	if (!snapshot || !id_is_valid(snapshot))
		return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "no snapshot is named");
	agent_feed(agent, &event);
	return 0;
}

static int perform(struct agent *agent, const json_t *asked, struct err *reterr)
{
	const char *verb = json_string_value(json_object_get(asked, "do"));

	if (verb && !strcmp(verb, "drain"))
		return set_drain(agent, true, asked, reterr);
	if (verb && !strcmp(verb, "undrain"))
		return set_drain(agent, false, asked, reterr);
	if (verb && !strcmp(verb, "stop"))
		return stop(agent, asked, reterr);
	if (verb && !strcmp(verb, "snapshot"))
		return take(agent, asked, reterr);
	if (verb && !strcmp(verb, "drop"))
		return drop(agent, asked, reterr);
	return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "this agent does not know what is asked");
}

/* ---- the socket ---- */

static void conn_free(struct owner_conn *conn)
{
	TAILQ_REMOVE(&conn->owner->conns, conn, link);
	conn->owner->n_conns--;
	bufferevent_free(conn->bev);
	free(conn);
}

static void answer(struct owner_conn *conn, const struct err *err)
{
	struct sv_counts counts;
	char text[1024], *line;
	json_t *object;

	supervisor_count(conn->owner->agent->supervisor, &counts);
	err_format(err, text, sizeof(text));
	object = err_is_set(err) ? json_pack("{s:s}", "failure", text)
				 : json_pack("{s:b, s:I}", "ok", true, "left", (json_int_t)counts.starting + counts.running);
	line = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	conn->is_answered = true;
	if (!line || evbuffer_add_printf(bufferevent_get_output(conn->bev), "%s\n", line) < 0)
		conn_free(conn);
	free(line);
}

static void on_read(struct bufferevent *bev, void *user)
{
	struct owner_conn *conn = user;
	struct evbuffer *in = bufferevent_get_input(bev);
	struct err err = ERR_NULL;
	char *line = evbuffer_readln(in, NULL, EVBUFFER_EOL_LF);
	json_t *asked;

	if (!line && evbuffer_get_length(in) < OWNER_LINE_MAX)
		return;
	if (conn->is_answered || !line) {
		free(line);
		conn_free(conn);
		return;
	}
	asked = json_loads(line, 0, NULL);
	if (perform(conn->owner->agent, asked, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "the node's owner asked in vain", &err, "uid", LOG_NUM(conn->peer.uid), "asked", line,
			NULL);
	else
		log_info("the node's owner asked", "uid", LOG_NUM(conn->peer.uid), "pid", LOG_NUM(conn->peer.pid), "asked", line);
	json_decref(asked);
	free(line);
	answer(conn, &err);
}

static void on_written(struct bufferevent *bev, void *user)
{
	struct owner_conn *conn = user;

	(void)bev;
	if (conn->is_answered)
		conn_free(conn);
}

static void on_end(struct bufferevent *bev, short what, void *user)
{
	(void)bev, (void)what;
	conn_free(user);
}

/* The socket's mode says the same; this holds whatever became of it. */
static bool may_ask(int fd, struct ucred *ret)
{
	socklen_t size = sizeof(*ret);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &size) == 0 && (ret->uid == 0 || ret->uid == geteuid());
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *from, int from_size, void *user)
{
	const struct timeval quiet = { .tv_sec = QUIET_SEC };
	struct owner *owner = user;
	struct owner_conn *conn = NULL;
	struct ucred peer = { .uid = 0 };

	(void)socket, (void)from, (void)from_size;
	if (owner->n_conns < CONNECTIONS_MAX && may_ask(fd, &peer))
		conn = calloc(1, sizeof(*conn));
	if (conn)
		conn->bev = bufferevent_socket_new(owner->agent->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!conn || !conn->bev) {
		free(conn);
		(void)fd_close(fd);
		return;
	}
	conn->owner = owner;
	conn->peer = peer;
	TAILQ_INSERT_TAIL(&owner->conns, conn, link);
	owner->n_conns++;
	bufferevent_setcb(conn->bev, on_read, on_written, on_end, conn);
	bufferevent_setwatermark(conn->bev, EV_READ, 0, OWNER_LINE_MAX);
	bufferevent_set_timeouts(conn->bev, &quiet, &quiet);
	if (bufferevent_enable(conn->bev, EV_READ | EV_WRITE) < 0)
		conn_free(conn);
}

int owner_new(struct owner **ret, struct agent *agent, struct err *reterr)
{
	struct owner *owner = calloc(1, sizeof(*owner));
	int fd;

	if (!owner)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the owner's socket");
	owner->agent = agent;
	TAILQ_INIT(&owner->conns);
	(void)snprintf(owner->path, sizeof(owner->path), "%.4000s/" OWNER_SOCKET, agent->options->run);
	fd = unix_listen(owner->path, SOCK_STREAM, 0600, CONNECTIONS_MAX);
	if (fd < 0) {
		(void)err_set(reterr, FAIL_IO_FAILED, -fd, "cannot listen on %.200s", owner->path);
		free(owner);
		return fd;
	}
	owner->socket = evconnlistener_new(agent->base, on_accept, owner, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
		0 /* it listens already */, fd);
	if (!owner->socket) {
		(void)fd_close(fd);
		free(owner);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the owner's socket");
	}
	*ret = owner;
	return 0;
}

void owner_free(struct owner *owner)
{
	struct owner_conn *conn;

	if (!owner)
		return;
	while ((conn = TAILQ_FIRST(&owner->conns)))
		conn_free(conn);
	evconnlistener_free(owner->socket);
	(void)unlink(owner->path);
	free(owner);
}
