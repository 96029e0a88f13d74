/* SPDX-License-Identifier: Apache-2.0
 *
 * The link through what stands between a node and its scheduler: a proxy (HTTP CONNECT, or SOCKS5 with a password), TLS
 * because only TLS may leave, or both. libzmq speaks to a unix socket of its own process on either side; what it says is
 * carried here as it is.
 *
 *   DEALER - unix socket - tunnel_client ==[proxy]==TLS== tunnel_server - unix socket - ROUTER
 *
 * TLS is an envelope for firewalls and proves nothing: no certificate is looked at, and a proxy that opens the envelope and
 * closes another finds CURVE in it, which is who both sides are. A failure is said by name: PROXY_..., TLS_...,
 * LINK_UNREACHABLE.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

struct event_base;

#define TUNNEL_LOCAL_SIZE 64      /* of a unix socket's name and its "ipc://@" */
#define TUNNEL_PATIENCE_SEC 10    /* for connecting, for the proxy's answer, for each TLS handshake */
#define TUNNEL_STALL_USEC (30 * USEC_PER_SEC) /* one who takes nothing is gone */

/* ---- the node's side ---- */
struct tunnel_client;
struct tunnel_client_config {
	bool tls;
	const char *tls_name;       /* server name in the hello; NULL or "": the host's, where it has one */
	const char *proxy;          /* "http://host:port", "socks5://host:port"; NULL or "": none */
	const char *proxy_user, *proxy_password; /* NULL or "": none */
	int64_t patience_usec;      /* 0: TUNNEL_PATIENCE_SEC */
	void (*on_failure)(const struct err *err, void *user); /* of one attempt; the dealer hears that it was cut; frees nothing */
	void *user;
};
int tunnel_client_new(struct tunnel_client **ret, struct event_base *base, const struct tunnel_client_config *config,
	struct err *reterr);
void tunnel_client_free(struct tunnel_client *client);
/* Where connections lead from now on: "tcp://host:port" or "tls://host:port". Returns what the dealer connects to. */
const char *tunnel_client_target(struct tunnel_client *client, const char *address);

/* ---- the scheduler's side ---- */
struct tunnel_server;
struct tunnel_server_config {
	const char *address;        /* numeric; "*": all */
	uint16_t port;              /* 0: any, see tunnel_server_port() */
	const char *cert, *key;     /* PEM files; NULL or "": made for this life of the process */
	const char *local;          /* name of the router's unix socket, without "ipc://@" */
	unsigned int max;           /* connections at once; more wait in the listener's backlog */
	int64_t patience_usec;      /* 0: TUNNEL_PATIENCE_SEC */
};
int tunnel_server_new(struct tunnel_server **ret, struct event_base *base, const struct tunnel_server_config *config,
	struct err *reterr);
void tunnel_server_free(struct tunnel_server *server);
uint16_t tunnel_server_port(const struct tunnel_server *server);
unsigned int tunnel_server_open(const struct tunnel_server *server);    /* connections at present */
uint64_t tunnel_server_refused(const struct tunnel_server *server);     /* that ended in the TLS handshake */

/* A name that no process has: "croft-<what>-<random>". */
void tunnel_local_name(char ret[static TUNNEL_LOCAL_SIZE], const char *what);
