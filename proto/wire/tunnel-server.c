/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's end of tunnels, see tunnel.h. Whoever comes may speak TLS for TUNNEL_PATIENCE_SEC; then it is libzmq's
 * peer on a unix socket, with libzmq's own limits, and admitted by ZAP or not. So many may be in their handshake
 * at once, so many may be there at all; the others wait to be accepted.
 */
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/rng.h"
#include "wire/splice.h"
#include "wire/tunnel.h"

#define HANDSHAKES_MAX 256
#define BACKLOG 256
#define OWN_CERT_SECONDS (10 * 365 * 24 * 3600L)

struct pipe {
	LIST_ENTRY(pipe) link;
	struct tunnel_server *server;
	struct bufferevent *remote; /* until it is spliced */
	struct event *deadline;     /* of the handshake; who drips bytes has no more time than who is silent */
	struct splice *splice;
};

struct tunnel_server {
	struct event_base *base; /* borrowed */
	struct evconnlistener *listener;
	struct event *again; /* after an accept that failed */
	SSL_CTX *tls;
	char local[TUNNEL_LOCAL_SIZE];
	unsigned int max, n, n_handshakes;
	struct timeval patience;
	uint64_t refused;
	uint16_t port;
	LIST_HEAD(, pipe) pipes;
};

void tunnel_local_name(char ret[static TUNNEL_LOCAL_SIZE], const char *what)
{
	struct rng rng = rng_system();

	(void) snprintf(ret, TUNNEL_LOCAL_SIZE, "croft-%.20s-%016llx", what, (unsigned long long) rng_u64(&rng));
}

static void balance(struct tunnel_server *server)
{
	if (server->n < server->max && server->n_handshakes < HANDSHAKES_MAX)
		(void) evconnlistener_enable(server->listener);
	else
		(void) evconnlistener_disable(server->listener);
}

static void pipe_free(struct pipe *pipe)
{
	struct tunnel_server *server = pipe->server;

	if (pipe->remote) {
		bufferevent_free(pipe->remote);
		server->n_handshakes--;
	}
	splice_free(pipe->splice);
	event_free(pipe->deadline);
	LIST_REMOVE(pipe, link);
	free(pipe);
	server->n--;
	balance(server);
}

static void on_end(void *user)
{
	pipe_free(user);
}

static void join(struct pipe *pipe)
{
	struct tunnel_server *server = pipe->server;
	struct bufferevent *local;
	int fd = local_connect(server->local);

	local = fd >= 0 ? bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
	if (!local) {
		(void) fd_close(fd);
		log_warn("a tunnel has no way to the link", "errno", LOG_NUM(fd < 0 ? -fd : ENOMEM));
		pipe_free(pipe);
		return;
	}
	(void) evtimer_del(pipe->deadline);
	pipe->splice = splice_new(server->base, TAKE(pipe->remote), local, TUNNEL_STALL_USEC, on_end, pipe);
	server->n_handshakes--;
	if (!pipe->splice)
		pipe_free(pipe);
	else
		balance(server);
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
	struct pipe *pipe = user;

	(void) fd, (void) what;
	pipe->server->refused++;
	pipe_free(pipe);
}

static void on_handshake(struct bufferevent *remote, short what, void *user)
{
	struct pipe *pipe = user;

	(void) remote;
	if (what & BEV_EVENT_CONNECTED) {
		join(pipe);
		return;
	}
	pipe->server->refused++;
	pipe_free(pipe);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int size, void *user)
{
	struct tunnel_server *server = user;
	struct pipe *pipe = calloc(1, sizeof(*pipe));
	SSL *ssl = pipe ? SSL_new(server->tls) : NULL;

	(void) listener, (void) from, (void) size;
	if (ssl) /* owns both from here on, also where it fails */
		pipe->remote = bufferevent_openssl_socket_new(server->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
			BEV_OPT_CLOSE_ON_FREE);
	if (pipe)
		pipe->deadline = evtimer_new(server->base, on_deadline, pipe);
	if (!ssl || !pipe->remote || !pipe->deadline) {
		if (!ssl)
			(void) evutil_closesocket(fd);
		if (pipe && pipe->remote)
			bufferevent_free(pipe->remote);
		if (pipe && pipe->deadline)
			event_free(pipe->deadline);
		free(pipe);
		return;
	}
	stream_keepalive(fd);
	pipe->server = server;
	LIST_INSERT_HEAD(&server->pipes, pipe, link);
	server->n++;
	server->n_handshakes++;
	bufferevent_openssl_set_allow_dirty_shutdown(pipe->remote, 1);
	bufferevent_setcb(pipe->remote, NULL, NULL, on_handshake, pipe);
	(void) evtimer_add(pipe->deadline, &server->patience);
	(void) bufferevent_enable(pipe->remote, EV_READ | EV_WRITE);
	balance(server);
}

/* No descriptor is left, say: the listener would be ready for ever. */
static void on_accept_error(struct evconnlistener *listener, void *user)
{
	const struct timeval second = { .tv_sec = 1 };
	struct tunnel_server *server = user;

	if (evtimer_add(server->again, &second) == 0)
		(void) evconnlistener_disable(listener);
}

static void on_again(evutil_socket_t fd, short what, void *user)
{
	(void) fd, (void) what;
	balance(user);
}

/* ---- certificate and listener ---- */

static int own_cert(SSL_CTX *tls)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();
	X509_NAME *name = cert ? X509_get_subject_name(cert) : NULL;
	bool ok = key && name && X509_set_version(cert, 2) && ASN1_INTEGER_set(X509_get_serialNumber(cert), 1) &&
		X509_gmtime_adj(X509_getm_notBefore(cert), 0) && X509_gmtime_adj(X509_getm_notAfter(cert), OWN_CERT_SECONDS) &&
		X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *) "croft", -1, -1, 0) &&
		X509_set_issuer_name(cert, name) && X509_set_pubkey(cert, key) && X509_sign(cert, key, EVP_sha256()) > 0 &&
		SSL_CTX_use_certificate(tls, cert) == 1 && SSL_CTX_use_PrivateKey(tls, key) == 1;

	X509_free(cert);
	EVP_PKEY_free(key);
	return ok ? 0 : -EIO;
}

static int load_cert(struct tunnel_server *server, const struct tunnel_server_config *config, struct err *reterr)
{
	const bool given = config->cert && *config->cert;

	server->tls = SSL_CTX_new(TLS_server_method());
	if (!server->tls || !SSL_CTX_set_min_proto_version(server->tls, TLS1_2_VERSION))
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "OpenSSL makes no TLS context");
	(void) SSL_CTX_set_session_cache_mode(server->tls, SSL_SESS_CACHE_OFF);
	if (!given)
		return own_cert(server->tls) < 0 ? err_set(reterr, FAIL_IO_FAILED, EIO, "OpenSSL makes no certificate") : 0;
	if (SSL_CTX_use_certificate_chain_file(server->tls, config->cert) != 1)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%.120s holds no certificate chain in PEM", config->cert);
	if (SSL_CTX_use_PrivateKey_file(server->tls, config->key ? config->key : "", SSL_FILETYPE_PEM) != 1)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%.120s holds no key of that certificate in PEM",
			config->key ? config->key : "");
	return 0;
}

static struct evconnlistener *listen_on(struct tunnel_server *server, const char *address, uint16_t port)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE };
	struct evconnlistener *listener;
	struct addrinfo *found = NULL;
	char text[8];

	(void) snprintf(text, sizeof(text), "%u", port);
	if (getaddrinfo(!strcmp(address, "localhost") ? "127.0.0.1" : address, text, &hints, &found) != 0) {
		errno = EADDRNOTAVAIL;
		return NULL;
	}
	listener = evconnlistener_new_bind(server->base, on_accept, server,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, BACKLOG, found->ai_addr,
		(int) found->ai_addrlen);
	freeaddrinfo(found);
	return listener;
}

static int begin(struct tunnel_server *server, const struct tunnel_server_config *config, struct err *reterr)
{
	const bool any = !strcmp(config->address, "*");
	struct sockaddr_storage bound = { .ss_family = AF_UNSPEC };
	socklen_t size = sizeof(bound);
	int r = load_cert(server, config, reterr);

	if (r < 0)
		return r;
	server->again = evtimer_new(server->base, on_again, server);
	if (!server->again)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the TLS listener");
	server->listener = listen_on(server, any ? "::" : config->address, config->port);
	if (!server->listener && any) /* a kernel without IPv6 */
		server->listener = listen_on(server, "0.0.0.0", config->port);
	if (!server->listener)
		return err_set(reterr, FAIL_LISTEN_FAILED, errno, "cannot listen for TLS on %.100s port %u", config->address,
			config->port);
	evconnlistener_set_error_cb(server->listener, on_accept_error);
	if (getsockname(evconnlistener_get_fd(server->listener), (struct sockaddr *) &bound, &size) < 0)
		return err_set(reterr, FAIL_IO_FAILED, errno, "no address of the TLS listener");
	/* sin_port and sin6_port are at the same place */
	server->port = ntohs(((const struct sockaddr_in *) (const void *) &bound)->sin_port);
	return 0;
}

int tunnel_server_new(struct tunnel_server **ret, struct event_base *base, const struct tunnel_server_config *config,
	struct err *reterr)
{
	const int64_t patience = config->patience_usec ? config->patience_usec : TUNNEL_PATIENCE_SEC * USEC_PER_SEC;
	struct tunnel_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the TLS listener");
	server->base = base;
	server->max = config->max;
	server->patience = (struct timeval) { patience / USEC_PER_SEC, patience % USEC_PER_SEC };
	LIST_INIT(&server->pipes);
	(void) snprintf(server->local, sizeof(server->local), "%s", config->local);
	r = begin(server, config, reterr);
	if (r < 0) {
		tunnel_server_free(server);
		return r;
	}
	*ret = server;
	return 0;
}

void tunnel_server_free(struct tunnel_server *server)
{
	struct pipe *pipe;

	if (!server)
		return;
	while ((pipe = LIST_FIRST(&server->pipes)))
		pipe_free(pipe);
	if (server->listener)
		evconnlistener_free(server->listener);
	if (server->again)
		event_free(server->again);
	SSL_CTX_free(server->tls);
	free(server);
}

uint16_t tunnel_server_port(const struct tunnel_server *server)
{
	return server->port;
}

unsigned int tunnel_server_open(const struct tunnel_server *server)
{
	return server->n;
}

uint64_t tunnel_server_refused(const struct tunnel_server *server)
{
	return server->refused;
}
