/* SPDX-License-Identifier: Apache-2.0
 *
 * See admin.h. The socket's mode says who may connect; a peer that sends nonsense loses its connection and
 * changes nothing. The newest connection is the agent: an agent that was killed may leave the old one behind for
 * a moment, so a new one takes its place instead of waiting.
 */
#include "gateway/admin.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/log.h"
#include "gateway/audit.h"
#include "gateway/calls.h"
#include "pb/node.pb-c.h"
#include "wire/check.h"

#define ADMIN_FRAME_MAX (2u * 1024u * 1024u) /* ROUTES_MAX routes */
#define ADMIN_READ_MAX 65536u
#define ADMIN_OUT_MAX 65536u

struct admin {
	struct event_base *base;
	struct route_table *routes;
	struct calls *calls;
	struct audit *audit;
	char *path;
	int listen_fd, fd;
	bool takes_calls; /* the agent said so */
	struct event *accept, *read, *write, *tell;
	struct buf in, out;
};

static void drop_peer(struct admin *admin)
{
	if (admin->read)
		event_free(TAKE(admin->read));
	if (admin->write)
		event_free(TAKE(admin->write));
	if (admin->tell)
		(void) event_del(admin->tell);
	admin->takes_calls = false;
	admin->fd = fd_close(admin->fd);
	buf_deinit(&admin->in);
	buf_deinit(&admin->out);
}

/* False when the peer is lost. */
static bool flush(struct admin *admin)
{
	while (buf_size(&admin->out) > 0) {
		ssize_t n = send(admin->fd, buf_peek(&admin->out), buf_size(&admin->out), MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return event_add(admin->write, NULL) == 0;
		if (n < 0)
			return false;
		buf_consume(&admin->out, (size_t) n);
	}
	return true;
}

static void on_write(evutil_socket_t fd, short what, void *user)
{
	struct admin *admin = user;

	(void) fd;
	(void) what;
	if (!flush(admin))
		drop_peer(admin);
}

static int put(struct admin *admin, const Croft__GatewayAck *ack)
{
	uint8_t *to;
	int r = frame_reserve(&admin->out, croft__gateway_ack__get_packed_size(ack), &to);

	if (r == 0)
		croft__gateway_ack__pack(ack, to);
	return r;
}

static int acknowledge(struct admin *admin, uint64_t seq)
{
	Croft__GatewayAck ack;

	croft__gateway_ack__init(&ack);
	ack.seq = seq;
	return put(admin, &ack);
}

/* ---- calls ---- */

/* Told once, and not again where that was in vain: the node's own log has them, and their numbers show that some are missing. */
#define AUDITED_BATCH 16u

struct told {
	struct audit_told from;
	Croft__NodeEvent event;
	Croft__Field fields[AUDIT_TOLD_FIELDS], *list[AUDIT_TOLD_FIELDS];
	char name[8];
};

static Croft__NodeEvent *told_encode(struct told *told)
{
	croft__node_event__init(&told->event);
	(void) snprintf(told->name, sizeof(told->name), "audit");
	told->event.name = told->name;
	told->event.sandbox = told->from.sandbox;
	told->event.fields = told->list;
	told->event.n_fields = told->from.n_fields;
	for (size_t i = 0; i < told->from.n_fields; i++) {
		croft__field__init(&told->fields[i]);
		told->fields[i].key = told->from.fields[i].key;
		told->fields[i].value = told->from.fields[i].value;
		told->list[i] = &told->fields[i];
	}
	return &told->event;
}

static int put_calls(struct admin *admin, const struct calls_batch *batch)
{
	Croft__StageRecord *records[CALLS_BATCH];
	Croft__NodeEvent *audited[AUDITED_BATCH];
	struct told told[AUDITED_BATCH];
	Croft__GatewayCalls calls;
	Croft__GatewayAck ack;
	int r = 0;

	croft__gateway_calls__init(&calls);
	croft__gateway_ack__init(&ack);
	ack.calls = &calls;
	calls.seq = batch->seq;
	calls.lost = batch->lost;
	calls.records = records;
	for (size_t i = 0; i < batch->n_records && r == 0; i++) {
		records[i] = stage_record_encode(&batch->records[i]);
		if (records[i])
			calls.n_records++;
		else
			r = -ENOMEM;
	}
	calls.audited = audited;
	while (calls.n_audited < AUDITED_BATCH && audit_take_told(admin->audit, &told[calls.n_audited].from)) {
		audited[calls.n_audited] = told_encode(&told[calls.n_audited]);
		calls.n_audited++;
	}
	if (r == 0)
		r = put(admin, &ack);
	for (size_t i = 0; i < calls.n_records; i++)
		protobuf_c_message_free_unpacked(&records[i]->base, NULL);
	return r;
}

/* What finds no room is told at the next turn of the clock. */
static void on_tell(evutil_socket_t fd, short what, void *user)
{
	struct admin *admin = user;
	struct calls_batch batch;

	(void) fd;
	(void) what;
	if (!admin->takes_calls || !calls_next(admin->calls, clock_monotonic_usec(), &batch))
		return;
	if (put_calls(admin, &batch) < 0)
		calls_again(admin->calls);
	else if (!flush(admin))
		drop_peer(admin);
}

static void hear_of_calls(struct admin *admin, const Croft__GatewayUpdate *update)
{
	const struct timeval every = { .tv_sec = CALLS_EVERY_US / USEC_PER_SEC };

	if (update->takes_calls && !admin->takes_calls) {
		admin->takes_calls = true;
		calls_again(admin->calls);
		(void) event_add(admin->tell, &every);
	}
	if (update->calls_taken > 0)
		calls_taken(admin->calls, update->calls_taken);
}

/* Generated types end here. */
static int update_routes(struct route_table *routes, const Croft__GatewayUpdate *message, struct err *reterr)
{
	CLEANUP_FREE struct route_row *rows = calloc(message->n_routes + 1, sizeof(*rows));
	const struct route_update update = { .complete = message->complete, .rows = rows, .n_rows = message->n_routes,
		.removed = message->removed, .n_removed = message->n_removed };

	if (!rows)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the table of sandboxes.");
	for (size_t i = 0; i < message->n_routes; i++)
		rows[i] = (struct route_row){ .sandbox = message->routes[i]->sandbox,
			.vsock_path = message->routes[i]->vsock_path,
			.token = message->routes[i]->access_token_sha256.data,
			.token_size = message->routes[i]->access_token_sha256.len,
			.ready = message->routes[i]->ready };
	return route_table_update(routes, &update, reterr);
}

static int apply(struct admin *admin, const uint8_t *data, size_t size, struct err *reterr)
{
	ProtobufCMessage *message = check_unpack(&croft__gateway_update__descriptor, data, size, reterr);
	const Croft__GatewayUpdate *update = (const Croft__GatewayUpdate *) message;
	int r;

	if (!message)
		return -EINVAL;
	r = update_routes(admin->routes, update, reterr);
	if (r == 0) {
		hear_of_calls(admin, update);
		for (size_t i = 0; i < update->n_audit; i++)
			if (!audit_of_agent(admin->audit, update->audit[i]))
				log_warn("the agent told of something for the audit log that is no entry");
		r = acknowledge(admin, update->seq);
	}
	if (r == 0)
		log_debug("routes updated", "routes", LOG_NUM(admin->routes->n_routes), "complete",
			update->complete ? "yes" : "no");
	else
		err_set(reterr, FAIL_FRAME_INVALID, -r, "The agent does not read its acknowledgements.");
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

static int take_frames(struct admin *admin, struct err *reterr)
{
	const uint8_t *data;
	size_t size;

	while (buf_size(&admin->in) > 0) {
		int r;

		switch (frame_peek(&admin->in, ADMIN_FRAME_MAX, &data, &size)) {
		case FRAME_PARTIAL:
			return 0;
		case FRAME_TOO_LARGE:
			return err_set(reterr, FAIL_FRAME_INVALID, EMSGSIZE, "A frame of the agent is over the limit.");
		case FRAME_WHOLE:
			r = apply(admin, data, size, reterr);
			if (r < 0)
				return r;
			frame_consume(&admin->in, size);
			break;
		}
	}
	return 0;
}

static void on_read(evutil_socket_t fd, short what, void *user)
{
	struct admin *admin = user;
	struct err err = ERR_NULL;
	uint8_t *to;
	ssize_t n;

	(void) what;
	if (buf_reserve(&admin->in, MIN((size_t) ADMIN_READ_MAX, admin->in.max - buf_size(&admin->in)), &to) < 0) {
		drop_peer(admin);
		return;
	}
	n = read(fd, to, MIN((size_t) ADMIN_READ_MAX, admin->in.max - buf_size(&admin->in)));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		log_info("the agent disconnected; its routes stay");
		drop_peer(admin);
		return;
	}
	buf_commit(&admin->in, (size_t) n);
	if (take_frames(admin, &err) < 0) {
		log_failure(LOG_LEVEL_ERROR, "dropping the agent's connection", &err, NULL);
		drop_peer(admin);
	} else if (!flush(admin)) {
		drop_peer(admin);
	}
}

static void on_accept(evutil_socket_t fd, short what, void *user)
{
	struct admin *admin = user;
	int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void) what;
	if (peer < 0)
		return;
	drop_peer(admin);
	admin->fd = peer;
	admin->in = (struct buf) BUF_NULL(ADMIN_FRAME_MAX + FRAME_HEAD);
	admin->out = (struct buf) BUF_NULL(ADMIN_OUT_MAX);
	admin->read = event_new(admin->base, peer, EV_READ | EV_PERSIST, on_read, admin);
	admin->write = event_new(admin->base, peer, EV_WRITE, on_write, admin);
	if (!admin->read || !admin->write || event_add(admin->read, NULL) < 0)
		drop_peer(admin);
	else
		log_info("the agent connected");
}

int admin_new(struct admin **ret, struct event_base *base, const char *path, struct route_table *routes,
	struct calls *calls, struct audit *audit, struct err *reterr)
{
	struct admin *admin = calloc(1, sizeof(*admin));
	int fd;

	if (!admin)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the admin socket.");
	admin->base = base;
	admin->routes = routes;
	admin->calls = calls;
	admin->audit = audit;
	admin->fd = -1;
	fd = admin->listen_fd = unix_listen(path, SOCK_STREAM, 0660, 8);
	if (fd < 0) {
		admin->listen_fd = -1;
		admin_free(admin);
		if (fd == -EADDRINUSE)
			return err_set(reterr, FAIL_RUN_LOCKED, EADDRINUSE, "Another croft-gateway listens on %s.", path);
		return err_set(reterr, fd == -ENAMETOOLONG ? FAIL_SOCKET_PATH_TOO_LONG : FAIL_LISTEN_FAILED, -fd,
			"Cannot listen on %s.", path);
	}
	admin->path = strdup(path);
	admin->accept = event_new(base, fd, EV_READ | EV_PERSIST, on_accept, admin);
	admin->tell = event_new(base, -1, EV_PERSIST, on_tell, admin);
	if (!admin->path || !admin->accept || !admin->tell || event_add(admin->accept, NULL) < 0) {
		admin_free(admin);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the admin socket.");
	}
	*ret = admin;
	return 0;
}

void admin_free(struct admin *admin)
{
	if (!admin)
		return;
	drop_peer(admin);
	if (admin->accept)
		event_free(admin->accept);
	if (admin->tell)
		event_free(TAKE(admin->tell));
	fd_close(admin->listen_fd);
	if (admin->path)
		(void) unlink(admin->path);
	free(admin->path);
	free(admin);
}
