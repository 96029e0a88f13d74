/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's side of the link, see endpoint.h. A message is [routing id][body] and nothing more. The
 * body carries the User-Id that ZAP gave to the peer's key; a body without one is dropped and counted, and so
 * is whatever has another shape.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#include "wire/endpoint.h"
#include "wire/socket.h"

/* Debian's header keeps it for drafts, the library obeys it. */
#define OPTION_ZERO_COPY_RECV 10 /* of the context */
#define ADDRESS_MAX 256

/* Connections that wait to be accepted. When a fleet dials at once, those in here already count their handshake's time: at some
 * hundred handshakes a second these are done before it runs out, and the others dial again by TCP's own clock. With
 * thousands in here each is given up before its turn comes. */
#define BACKLOG 256

struct router {
	struct socket socket;
	router_on_message on_message;
	void *user;
	uint64_t dropped;
	char address[ADDRESS_MAX];
};

static void drop_rest(struct router *router, zmq_msg_t *msg)
{
	while (zmq_msg_more(msg))
		if (zmq_msg_recv(msg, router->socket.zmq, ZMQ_DONTWAIT) < 0)
			return;
}

static bool on_input(void *user)
{
	struct router *router = user;
	struct route route = { .size = 0 };
	const char *user_id = NULL;
	zmq_msg_t id, body;
	bool ok;

	(void) zmq_msg_init(&id);
	(void) zmq_msg_init(&body);
	if (zmq_msg_recv(&id, router->socket.zmq, ZMQ_DONTWAIT) < 0) {
		(void) zmq_msg_close(&id);
		return false;
	}
	ok = zmq_msg_more(&id) && zmq_msg_recv(&body, router->socket.zmq, ZMQ_DONTWAIT) >= 0;
	if (ok && zmq_msg_more(&body)) {
		drop_rest(router, &body);
		ok = false;
	}
	route.size = zmq_msg_size(&id);
	ok = ok && route.size > 0 && route.size <= sizeof(route.id) && zmq_msg_size(&body) <= ENDPOINT_FRAME_MAX;
	if (ok)
		user_id = zmq_msg_gets(&body, "User-Id"); /* NULL on the routing id's frame, so asked here */
	if (ok && user_id && *user_id) {
		memcpy(route.id, zmq_msg_data(&id), route.size);
		/* may free the router: nothing of it is touched behind this */
		router->on_message(&route, user_id, zmq_msg_data(&body), zmq_msg_size(&body), router->user);
	} else {
		router->dropped++;
	}
	(void) zmq_msg_close(&id);
	(void) zmq_msg_close(&body);
	return true;
}

/* libzmq numbers its peers from rand(), which it never seeds: a peer that guessed the number could make its
 * assertion fail. */
static int seed(void)
{
	unsigned int value;

	if (getrandom(&value, sizeof(value), 0) != sizeof(value))
		return -EIO;
	srand(value);
	return 0;
}

static bool has_zap_handler(void *context)
{
	void *probe = zmq_socket(context, ZMQ_REP);
	bool has;

	if (!probe)
		return false;
	has = zmq_bind(probe, "inproc://zeromq.zap.01") < 0 && errno == EADDRINUSE;
	(void) zmq_close(probe);
	return has;
}

static int set_options(struct router *router, const struct router_config *config, struct err *reterr)
{
	struct socket *socket = &router->socket;
	int r = socket_set_limits(socket);

	if (r == 0)
		r = socket_set_int(socket, ZMQ_BACKLOG, BACKLOG); /* a whole fleet may dial at once */
	if (r == 0)
		r = socket_set_int(socket, ZMQ_ROUTER_MANDATORY, 1);
	if (r == 0)
		r = socket_set_int(socket, ZMQ_CURVE_SERVER, 1);
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "libzmq refuses an option of the link");
	if (zmq_setsockopt(socket->zmq, ZMQ_CURVE_SECRETKEY, config->keys.secret_key, KEY_Z85_SIZE) < 0)
		return err_set(reterr, FAIL_CURVE_BAD_KEY, errno, "libzmq refuses the link's secret key");
	if (zmq_setsockopt(socket->zmq, ZMQ_ZAP_DOMAIN, config->zap_domain, strlen(config->zap_domain)) < 0 ||
		socket_set_int(socket, OPTION_ZAP_ENFORCE_DOMAIN, 1) < 0)
		return err_set(reterr, FAIL_ZAP_DISABLED, errno, "libzmq does not enforce the ZAP domain");
	return 0;
}

static int router_bind(struct router *router, struct event_base *base, const struct router_config *config,
	struct err *reterr)
{
	size_t size = sizeof(router->address);
	char local[ADDRESS_MAX];
	int r;

	r = curve_key_check(config->keys.secret_key, reterr);
	if (r == 0)
		r = set_options(router, config, reterr);
	if (r < 0)
		return r;
	if (zmq_bind(router->socket.zmq, config->address) < 0)
		return err_set(reterr, FAIL_LISTEN_FAILED, errno, "cannot listen on %s", config->address);
	if (zmq_getsockopt(router->socket.zmq, ZMQ_LAST_ENDPOINT, router->address, &size) < 0)
		return err_set(reterr, FAIL_IO_FAILED, errno, "no address of the link");
	/* a listener keeps the key that the socket had when it was bound */
	if (config->next_address) {
		if (zmq_setsockopt(router->socket.zmq, ZMQ_CURVE_SECRETKEY, config->next_keys.secret_key, KEY_Z85_SIZE) < 0)
			return err_set(reterr, FAIL_CURVE_BAD_KEY, errno, "libzmq refuses the link's next secret key");
		if (zmq_bind(router->socket.zmq, config->next_address) < 0)
			return err_set(reterr, FAIL_LISTEN_FAILED, errno, "cannot listen on %s", config->next_address);
		if (zmq_setsockopt(router->socket.zmq, ZMQ_CURVE_SECRETKEY, config->keys.secret_key, KEY_Z85_SIZE) < 0)
			return err_set(reterr, FAIL_CURVE_BAD_KEY, errno, "libzmq refuses the link's secret key");
	}
	if (config->local) {
		(void) snprintf(local, sizeof(local), "ipc://@%s", config->local);
		if (zmq_bind(router->socket.zmq, local) < 0)
			return err_set(reterr, FAIL_LISTEN_FAILED, errno, "cannot listen on %s", local);
	}
	r = socket_watch(&router->socket, base, on_input, router);
	return r < 0 ? err_set(reterr, FAIL_NO_MEMORY, -r, "cannot watch the link") : 0;
}

int router_new(struct router **ret, struct event_base *base, void *zmq_context, const struct router_config *config,
	router_on_message on_message, void *user, struct err *reterr)
{
	struct router *router;
	int r;

	if (!config->zap_domain || !*config->zap_domain)
		return err_set(reterr, FAIL_ZAP_DISABLED, EINVAL, "the link has no ZAP domain");
	if (!has_zap_handler(zmq_context))
		return err_set(reterr, FAIL_ZAP_DISABLED, EINVAL, "the link has no ZAP handler");
	r = seed();
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "no entropy for the link");
	router = calloc(1, sizeof(*router));
	if (!router)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	router->on_message = on_message;
	router->user = user;
	/* Else a small message borrows the buffer that it came in, which costs more than its copy. */
	(void) zmq_ctx_set(zmq_context, OPTION_ZERO_COPY_RECV, 0);
	r = socket_open(&router->socket, zmq_context, ZMQ_ROUTER);
	if (r < 0)
		(void) err_set(reterr, FAIL_IO_FAILED, -r, "no socket for the link");
	else
		r = router_bind(router, base, config, reterr);
	if (r < 0) {
		router_free(router);
		return r;
	}
	*ret = router;
	return 0;
}

void router_free(struct router *router)
{
	if (!router)
		return;
	socket_close(&router->socket);
	free(router);
}

const char *router_address(const struct router *router)
{
	return router->address;
}

enum router_send_result router_send(struct router *router, const struct route *to, const void *data, size_t size)
{
	enum router_send_result result = ROUTER_SENT;

	assert(size <= ENDPOINT_FRAME_MAX);
	/* The route's frame decides: after it the body cannot block. */
	if (zmq_send(router->socket.zmq, to->id, to->size, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
		result = errno == EHOSTUNREACH ? ROUTER_GONE : ROUTER_NO_CREDIT;
	else if (zmq_send(router->socket.zmq, data, size, ZMQ_DONTWAIT) < 0)
		result = ROUTER_NO_CREDIT;
	socket_touch(&router->socket);
	return result;
}

void router_is_lazy(struct router *router)
{
	socket_is_lazy(&router->socket);
}

uint64_t router_dropped(const struct router *router)
{
	return router->dropped;
}
