/* SPDX-License-Identifier: Apache-2.0
 *
 * The data path of a node: HTTP from clients and from the agent's relay in front, guests behind. Holds no state
 * of its own but the routes that the agent tells it; may be killed and started at any time.
 *
 * Everything that a client or a guest can make it keep is bounded: connections, streams (in all and per sandbox),
 * bytes of request bodies, and the buffers of each stream.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "base/rng.h"
#include "gateway/route.h"

struct audit;
struct calls;
struct event_base;
struct gateway;
struct http_server;
struct stream;

struct gateway_options {
	char *run;             /* directory of the sockets */
	char *listen;          /* "" : no TCP */
	uint64_t port;
	char *tls_cert, *tls_key; /* files in PEM; "": plain HTTP */
	bool insecure;         /* plain HTTP on other than loopback addresses */
	uint64_t max_connections;
	uint64_t max_streams;  /* of all sandboxes */
	uint64_t max_streams_per_sandbox;
	uint64_t max_body_bytes; /* of request bodies that are held at once */
	int64_t keepalive_us;
	int64_t guest_timeout_us; /* until the guest's first answer */
	char *audit;           /* digests, full: what of the audit log may leave by itself */
	char *audit_directory; /* of the audit log */
	uint64_t audit_size, audit_output; /* bytes: of the log, of each output that it has */
	int64_t audit_age_us;
	int64_t idle_us;       /* of a client's connection between requests */
};

#define GATEWAY_SOCKET "gateway.sock"        /* HTTP, for the agent's relay */
#define GATEWAY_ADMIN_SOCKET "gateway-admin.sock" /* node.proto */
#define GATEWAY_ENVD_PORT 49983u

/* Listens on <run>/gateway.sock, <run>/gateway-admin.sock and the TCP address. `options` is borrowed and
 * outlives the gateway. LISTEN_FAILED, SOCKET_PATH_TOO_LONG, CONFIG_INVALID, NO_MEMORY. */
int gateway_new(struct gateway **ret, struct event_base *base, const struct gateway_options *options,
	struct err *reterr);
void gateway_free(struct gateway *gateway);
/* Streams end with SHUTTING_DOWN; new requests are refused with it. */
void gateway_drain(struct gateway *gateway);
/* Requests under way. */
unsigned int gateway_active(const struct gateway *gateway);
uint16_t gateway_port(const struct gateway *gateway);
struct route_table *gateway_routes(struct gateway *gateway);

/* ---- for the calls ---- */

struct audit *gateway_audit(const struct gateway *gateway);
struct calls *gateway_calls(const struct gateway *gateway);
struct event_base *gateway_base(const struct gateway *gateway);
const struct gateway_options *gateway_options(const struct gateway *gateway);

/* A stream counts from its start to its end; TOO_MANY_STREAMS with the limit. */
LIST_HEAD(stream_list, stream);
struct stream_list *gateway_streams(struct gateway *gateway);
int gateway_stream_begin(struct gateway *gateway, struct route *route, struct err *reterr);
void gateway_stream_end(struct gateway *gateway, struct route *route);
