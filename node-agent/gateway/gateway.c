/* SPDX-License-Identifier: Apache-2.0
 *
 * See gateway.h. on_request() is the whole way of a request to its handler, in this order: path and verb, which
 * sandbox, does it exist, may the caller use it, is it ready, does the body fit. The order matters: nothing of a
 * sandbox shows without its token, and no body is read before the caller is known.
 */
#include "gateway/gateway.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/admin.h"
#include "gateway/audit.h"
#include "gateway/call.h"
#include "gateway/calls.h"
#include "gateway/methods.h"
#include "gateway/stream.h"
#include "gateway/target.h"
#include "wire/http-server.h"

struct gateway {
	struct event_base *base;               /* borrowed */
	const struct gateway_options *options; /* borrowed */
	struct http_server *tcp, *unix_server;
	struct admin *admin;
	struct route_table routes;
	struct calls *calls;
	struct audit *audit;
	struct stream_list streams;
	struct rng rng;
	unsigned int n_streams;
	uint64_t body_bytes; /* charged to the requests under way */
	bool draining;
};

struct calls *gateway_calls(const struct gateway *gateway)
{
	return gateway->calls;
}

struct audit *gateway_audit(const struct gateway *gateway)
{
	return gateway->audit;
}

struct event_base *gateway_base(const struct gateway *gateway)
{
	return gateway->base;
}

const struct gateway_options *gateway_options(const struct gateway *gateway)
{
	return gateway->options;
}

struct route_table *gateway_routes(struct gateway *gateway)
{
	return &gateway->routes;
}

struct stream_list *gateway_streams(struct gateway *gateway)
{
	return &gateway->streams;
}

/* ---- limits ---- */

int gateway_stream_begin(struct gateway *gateway, struct route *route, struct err *reterr)
{
	const struct gateway_options *options = gateway->options;
	bool here = route->n_streams >= options->max_streams_per_sandbox;

	if (here || gateway->n_streams >= options->max_streams) {
		uint64_t limit = here ? options->max_streams_per_sandbox : options->max_streams;

		err_set(reterr, FAIL_TOO_MANY_STREAMS, EAGAIN, "%s has %llu streams open already.",
			here ? "The sandbox" : "The node", (unsigned long long) limit);
		err_add(reterr, "limit", "%llu", (unsigned long long) limit);
		return -EAGAIN;
	}
	route->n_streams++;
	gateway->n_streams++;
	return 0;
}

void gateway_stream_end(struct gateway *gateway, struct route *route)
{
	route->n_streams--;
	gateway->n_streams--;
}

/* What the body may take at most is charged before it is read. */
static int charge_body(struct call *call, struct err *reterr)
{
	struct gateway *gateway = call->gateway;
	const char *length = http_header(call->req, "content-length");
	uint64_t size = length ? strtoull(length, NULL, 10) : call->method->body_max;

	size = MIN(size, (uint64_t) call->method->body_max);
	if (size > gateway->options->max_body_bytes - gateway->body_bytes) {
		err_set(reterr, FAIL_RATE_LIMITED, EAGAIN, "The gateway holds %llu bytes of requests already.",
			(unsigned long long) gateway->body_bytes);
		err_add(reterr, "limit", "%llu", (unsigned long long) gateway->options->max_body_bytes);
		return -EAGAIN;
	}
	call->body_charge = size;
	gateway->body_bytes += size;
	return 0;
}

/* ---- a request ---- */

static void call_free(void *data)
{
	struct call *call = data;

	if (call->method_free)
		call->method_free(call->method_data);
	call_note(call, RESULT_SKIPPED, NULL);
	call->gateway->body_bytes -= call->body_charge;
	route_unref(call->route);
	free(call);
}

static struct call *call_new(struct gateway *gateway, struct http_request *req)
{
	struct call *call = calloc(1, sizeof(*call));
	const char *traceparent = http_header(req, "traceparent");
	struct trace parent;

	if (!call)
		return NULL;
	call->gateway = gateway;
	call->req = req;
	call->method = method_find(http_path(req));
	call->shape = call->method ? call->method->shape : method_shape_of(http_path(req));
	call->began_us = clock_realtime_usec();
	call->began_mono_us = clock_monotonic_usec();
	if (traceparent && trace_parse(traceparent, &parent) == 0)
		trace_child(&gateway->rng, &parent, &call->trace);
	else
		trace_new(&gateway->rng, &call->trace);
	http_set_data(req, call, call_free);
	return call;
}

static int check_method(const struct call *call, struct err *reterr)
{
	const char *path = http_path(call->req), *verb = http_method(call->req);

	if (!call->method)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_SUCH_PATH, ENOENT, "The sandbox's API has no such path.");
	if (call->method->verb && strcmp(call->method->verb, verb) != 0)
		return err_set_at(reterr, call->method->stage, FAIL_METHOD_NOT_ALLOWED, EPERM, "%s takes %s only.", path,
			call->method->verb);
	if (!call->method->run)
		return err_set_at(reterr, call->method->stage, FAIL_UNSUPPORTED, ENOSYS, "%s is not built yet.", path);
	return 0;
}

static int find_route(struct call *call, struct err *reterr)
{
	struct http_request *req = call->req;
	struct target target;
	struct route *route;
	int r = target_parse(http_header(req, "e2b-sandbox-id"), http_header(req, "e2b-sandbox-port"),
		http_header(req, "host"), &target, reterr);

	if (r < 0)
		return r;
	if (!target.is_named)
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL, "The request names no sandbox: send "
			"e2b-sandbox-id and e2b-sandbox-port, or the host name <port>-<id>.<domain>.");
	memcpy(call->sandbox, target.sandbox, sizeof(call->sandbox));
	route = route_find(&call->gateway->routes, target.sandbox);
	if (!route)
		return err_set(reterr, FAIL_SANDBOX_GONE, ENOENT, "There is no such sandbox on this node.");
	if (!route_token_is_valid(route, http_header(req, "x-access-token")))
		return err_set(reterr, FAIL_ACCESS_TOKEN_INVALID, EACCES,
			"X-Access-Token is missing or is not the token of this sandbox.");
	call->route = route_ref(route); /* from here on what becomes of the call is counted with its sandbox */
	if (!route->ready)
		return err_set(reterr, FAIL_SANDBOX_NOT_READY, EAGAIN, "The sandbox starts, sleeps, or a snapshot of it is taken.");
	if (target.port != GATEWAY_ENVD_PORT)
		return err_set_at(reterr, STAGE_PORT, FAIL_UNSUPPORTED, ENOSYS, "Ports of a sandbox are not built yet.");
	return 0;
}

static bool is_type(const char *value, const char *type)
{
	size_t n = strlen(type);

	return value && !strncasecmp(value, type, n) && (value[n] == '\0' || value[n] == ';' || value[n] == ' ');
}

/* Other encodings of the protocol exist; a client that speaks one learns it from the status. */
static bool has_right_type(const struct call *call)
{
	const char *type = http_header(call->req, "content-type");

	switch (call->shape) {
	case CALL_REST:
		return true;
	case CALL_UNARY:
		return is_type(type, "application/json");
	case CALL_STREAM:
		return is_type(type, "application/connect+json");
	}
	return false;
}

static void on_body(struct http_request *req, const char *body, size_t size, void *user)
{
	struct call *call = user;

	(void) req;
	/* The agent may have removed the sandbox while the body came. */
	if (call->route->gone)
		call_fail_code(call, FAIL_SANDBOX_GONE, "The sandbox has ended.");
	else
		call->method->run(call, body, size);
}

/* The gateway's own health: asked without naming a sandbox. */
static bool is_own_health(const struct call *call)
{
	struct err ignored = ERR_NULL;
	struct target target;

	return method_is_health(call->method) &&
		target_parse(http_header(call->req, "e2b-sandbox-id"), http_header(call->req, "e2b-sandbox-port"),
			http_header(call->req, "host"), &target, &ignored) == 0 &&
		!target.is_named;
}

static void on_request(struct http_request *req, void *user)
{
	struct gateway *gateway = user;
	struct call *call = call_new(gateway, req);
	struct err err = ERR_NULL;

	if (!call) {
		(void) http_respond_json(req, 503, "{\"code\":503,\"message\":\"no memory\"}");
		return;
	}
	if (gateway->draining)
		call_fail_code(call, FAIL_SHUTTING_DOWN, "The gateway is stopping.");
	else if (is_own_health(call))
		call_respond_empty(call, 204);
	else if (find_route(call, &err) < 0 || check_method(call, &err) < 0)
		call_fail(call, &err);
	else if (!has_right_type(call))
		call_respond_empty(call, 415);
	else if (charge_body(call, &err) < 0)
		call_fail(call, &err);
	else
		http_read_body(req, call->method->body_max, on_body, call);
}

/* ---- life ---- */

static bool is_loopback(const char *address)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (inet_pton(AF_INET, address, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static int listen_unix(struct gateway *gateway, const struct http_handler *handler, struct err *reterr)
{
	char path[256];
	struct http_server_config config = { .unix_path = path,
		.max_connections = (unsigned int) gateway->options->max_connections,
		.idle_timeout_s = (unsigned int) (gateway->options->idle_us / USEC_PER_SEC) };
	int n = snprintf(path, sizeof(path), "%s/%s", gateway->options->run, GATEWAY_SOCKET);

	if (n >= (int) sizeof(path))
		return err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG, "%s is too long.", gateway->options->run);
	return http_server_new(&gateway->unix_server, gateway->base, &config, handler, gateway, reterr);
}

static int listen_tcp(struct gateway *gateway, const struct http_handler *handler, struct err *reterr)
{
	const struct gateway_options *options = gateway->options;
	struct http_server_config config = { .address = options->listen, .port = (uint16_t) options->port,
		.max_connections = (unsigned int) options->max_connections,
		.idle_timeout_s = (unsigned int) (options->idle_us / USEC_PER_SEC),
		.tls_cert = options->tls_cert,
		.tls_key = options->tls_key };

	if (!*options->listen)
		return 0;
	if (!is_loopback(options->listen) && !*options->tls_cert && !options->insecure)
		return err_set(reterr, FAIL_CONFIG_INVALID, EPERM,
			"gateway.listen is %s: set gateway.tls_cert and gateway.tls_key, or gateway.insecure for plain HTTP.",
			options->listen);
	return http_server_new(&gateway->tcp, gateway->base, &config, handler, gateway, reterr);
}

static int listen_admin(struct gateway *gateway, struct err *reterr)
{
	char path[256];
	int n = snprintf(path, sizeof(path), "%s/%s", gateway->options->run, GATEWAY_ADMIN_SOCKET);

	if (n >= (int) sizeof(path))
		return err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG, "%s is too long.", gateway->options->run);
	return admin_new(&gateway->admin, gateway->base, path, &gateway->routes, gateway->calls, gateway->audit, reterr);
}

int gateway_new(struct gateway **ret, struct event_base *base, const struct gateway_options *options,
	struct err *reterr)
{
	static const struct http_handler handler = { .on_request = on_request };
	struct gateway *gateway = calloc(1, sizeof(*gateway));
	int r;

	if (!gateway)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the gateway.");
	gateway->base = base;
	gateway->options = options;
	gateway->rng = rng_system();
	LIST_INIT(&gateway->streams);
	r = calls_new(&gateway->calls, gateway->rng);
	if (r < 0)
		err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the gateway.");
	if (r == 0)
		r = audit_new(&gateway->audit, options, reterr);
	if (r == 0)
		r = listen_admin(gateway, reterr);
	if (r == 0)
		r = listen_unix(gateway, &handler, reterr);
	if (r == 0)
		r = listen_tcp(gateway, &handler, reterr);
	if (r < 0) {
		gateway_free(gateway);
		return r;
	}
	*ret = gateway;
	return 0;
}

void gateway_free(struct gateway *gateway)
{
	if (!gateway)
		return;
	http_server_free(gateway->tcp);
	http_server_free(gateway->unix_server);
	admin_free(gateway->admin);
	route_table_deinit(&gateway->routes);
	calls_free(gateway->calls);
	audit_free(gateway->audit);
	free(gateway);
}

void gateway_drain(struct gateway *gateway)
{
	struct err err = ERR_NULL;

	gateway->draining = true;
	err_set_at(&err, STAGE_EXEC, FAIL_SHUTTING_DOWN, 0, "The gateway is stopping; the process goes on.");
	for (struct stream *stream = LIST_FIRST(&gateway->streams); stream; stream = stream_next(stream))
		stream_end(stream, &err);
}

unsigned int gateway_active(const struct gateway *gateway)
{
	return (gateway->tcp ? http_server_active(gateway->tcp) : 0) + http_server_active(gateway->unix_server);
}

uint16_t gateway_port(const struct gateway *gateway)
{
	return gateway->tcp ? http_server_port(gateway->tcp) : 0;
}
