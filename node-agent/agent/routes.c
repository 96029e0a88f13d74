/* SPDX-License-Identifier: Apache-2.0
 *
 * See routes.h.
 */
#include "agent/routes.h"
#include "agent/message.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/log.h"
#include "wire/check.h"

#define HEAD 4u
#define ANSWER_MAX (64u * 1024u)
#define UNSENT_MAX                                                                                 \
	(4u * 1024u * 1024u) /* a gateway that does not read is dropped and gets everything anew */
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define TOKEN_DIGEST_SIZE 32
#define VSOCK_PATH_SIZE 108

struct route {
	TAILQ_ENTRY(route) link;
	char sandbox[ID_SIZE];
	char vsock_path[VSOCK_PATH_SIZE];
	uint8_t token[TOKEN_DIGEST_SIZE];
	size_t token_size;
	bool ready;
};

struct entry {
	STAILQ_ENTRY(entry) link;
	char *text;
};

struct routes {
	struct event_base *base;
	char path[VSOCK_PATH_SIZE];
	struct bufferevent *bev; /* NULL: not connected */
	struct event *timer;
	unsigned int backoff_ms;
	uint64_t seq, calls_taken;
	routes_on_calls on_calls;
	void *user;
	TAILQ_HEAD(, route) routes;
	size_t n_routes;
	STAILQ_HEAD(, entry) entries; /* of the audit log, that wait for a gateway */
	unsigned int n_entries;
};

static void retry_later(struct routes *routes)
{
	struct timeval tv = { .tv_sec = routes->backoff_ms / 1000,
		.tv_usec = routes->backoff_ms % 1000 * 1000 };

	if (routes->bev)
		bufferevent_free(routes->bev);
	routes->bev = NULL;
	routes->backoff_ms = MIN(routes->backoff_ms * 2, (unsigned int)BACKOFF_MAX_MS);
	(void)evtimer_add(routes->timer, &tv);
}

static void send_update(struct routes *routes, Croft__GatewayUpdate *update)
{
	CLEANUP_FREE uint8_t *frame = NULL;
	size_t size;

	if (!routes->bev)
		return; /* everything goes with the next connection */
	update->seq = ++routes->seq;
	update->takes_calls = true;
	size = croft__gateway_update__get_packed_size(update);
	frame = malloc(HEAD + size);
	if (frame) {
		for (unsigned int i = 0; i < HEAD; i++)
			frame[i] = (uint8_t)(size >> (8 * (HEAD - 1 - i)));
		(void)croft__gateway_update__pack(update, frame + HEAD);
	}
	if (!frame ||
		evbuffer_get_length(bufferevent_get_output(routes->bev)) + size > UNSENT_MAX ||
		bufferevent_write(routes->bev, frame, HEAD + size) < 0) {
		log_warn("the gateway does not take routes, connecting again");
		retry_later(routes);
	}
}

static void fill(Croft__GatewayRoute *message, struct route *route)
{
	croft__gateway_route__init(message);
	message->sandbox = route->sandbox;
	message->vsock_path = route->vsock_path;
	message->access_token_sha256.data = route->token;
	message->access_token_sha256.len = route->token_size;
	message->ready = route->ready;
}

/* ---- the audit log ---- */

static void drop_entry(struct routes *routes)
{
	struct entry *entry = STAILQ_FIRST(&routes->entries);

	STAILQ_REMOVE_HEAD(&routes->entries, link);
	routes->n_entries--;
	free(entry->text);
	free(entry);
}

static void send_entries(struct routes *routes)
{
	while (routes->bev && !STAILQ_EMPTY(&routes->entries)) {
		Croft__GatewayUpdate update = MESSAGE(Croft__GatewayUpdate, croft__gateway_update);
		char *list[1] = { STAILQ_FIRST(&routes->entries)->text };

		update.n_audit = 1;
		update.audit = list;
		send_update(routes, &update);
		drop_entry(routes);
	}
}

void routes_audit(struct routes *routes, json_t *json)
{
	struct entry *entry = json ? calloc(1, sizeof(*entry)) : NULL;

	if (entry)
		entry->text = json_dumps(json, JSON_COMPACT);
	json_decref(json);
	if (!entry || !entry->text) {
		free(entry);
		log_warn("no memory for an entry of the audit log");
		return;
	}
	if (routes->n_entries == ROUTES_AUDIT_MAX) {
		log_warn("the gateway is away: an entry of the audit log is lost");
		drop_entry(routes);
	}
	STAILQ_INSERT_TAIL(&routes->entries, entry, link);
	routes->n_entries++;
	send_entries(routes);
}

/* ---- routes ---- */

static void send_all(struct routes *routes)
{
	Croft__GatewayUpdate update = MESSAGE(Croft__GatewayUpdate, croft__gateway_update);
	CLEANUP_FREE Croft__GatewayRoute *messages =
		calloc(routes->n_routes + 1, sizeof(*messages));
	CLEANUP_FREE Croft__GatewayRoute **list =
		calloc(routes->n_routes + 1, sizeof(Croft__GatewayRoute *));
	struct route *route;
	size_t n = 0;

	if (!messages || !list) {
		retry_later(routes);
		return;
	}
	TAILQ_FOREACH (route, &routes->routes, link) {
		fill(&messages[n], route);
		list[n] = &messages[n];
		n++;
	}
	update.complete = true;
	update.n_routes = n;
	update.routes = list;
	send_update(routes, &update);
	send_entries(routes);
}

static void take_calls(struct routes *routes, const Croft__GatewayCalls *calls)
{
	Croft__GatewayUpdate update = MESSAGE(Croft__GatewayUpdate, croft__gateway_update);

	if (calls->seq != routes->calls_taken)
		routes->on_calls(calls, routes->user);
	routes->calls_taken = calls->seq;
	update.calls_taken = calls->seq;
	send_update(routes, &update);
}

/* Acknowledgements only tell that the gateway lives: the back-off begins anew. False: it is no answer. */
static bool take_answer(struct routes *routes, const uint8_t *data, size_t size)
{
	struct err err = ERR_NULL;
	ProtobufCMessage *message = check_unpack(&croft__gateway_ack__descriptor, data, size, &err);

	if (!message)
		return false;
	routes->backoff_ms = BACKOFF_MIN_MS;
	if (((const Croft__GatewayAck *)message)->calls)
		take_calls(routes, ((const Croft__GatewayAck *)message)->calls);
	protobuf_c_message_free_unpacked(message, NULL);
	return true;
}

static void on_read(struct bufferevent *bev, void *user)
{
	struct routes *routes = user;
	struct evbuffer *in = bufferevent_get_input(bev);
	uint8_t head[HEAD];

	while (evbuffer_copyout(in, head, HEAD) == (ssize_t)HEAD) {
		size_t size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 |
			      head[3];
		const uint8_t *frame;

		if (size <= ANSWER_MAX && evbuffer_get_length(in) < HEAD + size)
			return;
		frame = size <= ANSWER_MAX ? evbuffer_pullup(in, (ev_ssize_t)(HEAD + size)) : NULL;
		if (!frame || !take_answer(routes, frame + HEAD, size)) {
			log_warn("the gateway's answer is none, connecting again");
			retry_later(routes);
			return;
		}
		if (routes->bev != bev) /* it does not take updates */
			return;
		(void)evbuffer_drain(in, HEAD + size);
	}
}

static void on_end(struct bufferevent *bev, short what, void *user)
{
	(void)bev, (void)what;
	log_info("the gateway is gone");
	retry_later(user);
}

static void on_connect_time(evutil_socket_t fd, short what, void *user)
{
	struct routes *routes = user;
	int socket_fd = unix_connect(routes->path, SOCK_STREAM);

	(void)fd, (void)what;
	if (socket_fd < 0) {
		retry_later(routes);
		return;
	}
	routes->bev = bufferevent_socket_new(routes->base, socket_fd, BEV_OPT_CLOSE_ON_FREE);
	if (!routes->bev) {
		(void)fd_close(socket_fd);
		retry_later(routes);
		return;
	}
	bufferevent_setcb(routes->bev, on_read, NULL, on_end, routes);
	bufferevent_setwatermark(routes->bev, EV_READ, 0, HEAD + ANSWER_MAX);
	if (bufferevent_enable(routes->bev, EV_READ | EV_WRITE) < 0) {
		retry_later(routes);
		return;
	}
	log_info("connected to the gateway", "routes", LOG_NUM(routes->n_routes));
	send_all(routes);
}

int routes_new(struct routes **ret, struct event_base *base, const char *admin_path, routes_on_calls on_calls,
	void *user, struct err *reterr)
{
	struct routes *routes = calloc(1, sizeof(*routes));
	struct timeval now = { .tv_sec = 0 };

	if (!routes)
		return err_set(
			reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the gateway's client");
	routes->base = base;
	routes->on_calls = on_calls;
	routes->user = user;
	routes->backoff_ms = BACKOFF_MIN_MS;
	TAILQ_INIT(&routes->routes);
	STAILQ_INIT(&routes->entries);
	(void)snprintf(routes->path, sizeof(routes->path), "%s", admin_path);
	routes->timer = evtimer_new(base, on_connect_time, routes);
	if (!routes->timer || evtimer_add(routes->timer, &now) < 0) {
		routes_free(routes);
		return err_set(
			reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the gateway's client");
	}
	*ret = routes;
	return 0;
}

void routes_free(struct routes *routes)
{
	struct route *route;

	if (!routes)
		return;
	while ((route = TAILQ_FIRST(&routes->routes))) {
		TAILQ_REMOVE(&routes->routes, route, link);
		free(route);
	}
	while (!STAILQ_EMPTY(&routes->entries))
		drop_entry(routes);
	if (routes->bev)
		bufferevent_free(routes->bev);
	if (routes->timer)
		event_free(routes->timer);
	free(routes);
}

static struct route *find(const struct routes *routes, const char *sandbox)
{
	struct route *route;

	TAILQ_FOREACH (route, &routes->routes, link)
		if (!strcmp(route->sandbox, sandbox))
			return route;
	return NULL;
}

int routes_set(struct routes *routes, const char *sandbox, const char *vsock_path,
	const char *access_token, bool ready)
{
	Croft__GatewayUpdate update = MESSAGE(Croft__GatewayUpdate, croft__gateway_update);
	Croft__GatewayRoute message, *list[1] = { &message };
	struct route *route = find(routes, sandbox);

	if (!route) {
		route = calloc(1, sizeof(*route));
		if (!route)
			return -ENOMEM;
		TAILQ_INSERT_TAIL(&routes->routes, route, link);
		routes->n_routes++;
	}
	(void)snprintf(route->sandbox, sizeof(route->sandbox), "%s", sandbox);
	(void)snprintf(route->vsock_path, sizeof(route->vsock_path), "%s", vsock_path);
	route->ready = ready;
	route->token_size = 0;
	if (*access_token) {
		if (EVP_Digest(access_token, strlen(access_token), route->token, NULL, EVP_sha256(),
			    NULL) != 1)
			return -ENOMEM; /* kept without a route rather than opened without a token: `ready` is not told */
		route->token_size = sizeof(route->token);
	}
	fill(&message, route);
	update.n_routes = 1;
	update.routes = list;
	send_update(routes, &update);
	return 0;
}

void routes_unset(struct routes *routes, const char *sandbox)
{
	Croft__GatewayUpdate update = MESSAGE(Croft__GatewayUpdate, croft__gateway_update);
	struct route *route = find(routes, sandbox);
	char *list[1];

	if (!route)
		return;
	list[0] = route->sandbox;
	update.n_removed = 1;
	update.removed = list;
	send_update(routes, &update);
	TAILQ_REMOVE(&routes->routes, route, link);
	routes->n_routes--;
	free(route);
}
