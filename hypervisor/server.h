/* SPDX-License-Identifier: Apache-2.0
 *
 * The control socket itself: up to 4 connections on a listening SOCK_SEQPACKET socket, one message per
 * packet. It answers every packet, malformed ones with an error; a peer that does not read is dropped rather
 * than waited for (it can ask `status` when it comes back).
 */
#pragma once

#include "control.h"
#include "loop.h"

#define SERVER_CONNECTIONS_MAX 4
#define SERVER_QUEUE_MAX 32 /* packets that wait for a slow peer */

struct server;
struct server_connection;

struct server_packet {
	STAILQ_ENTRY(server_packet) link;
	size_t size;
	uint8_t data[];
};

struct server_connection {
	struct server *server;
	struct loop_source source;
	int fd;                                /* -1: free */
	uint64_t number;                       /* no other connection had it */
	unsigned int n_queued;
	STAILQ_HEAD(, server_packet) queue;
};

struct server {
	struct loop *loop;
	int listen_fd;                         /* owned */
	struct loop_source source;
	struct loop_timer retry;
	struct server_connection connections[SERVER_CONNECTIONS_MAX];
	uint64_t last_number;
	/* Handles a request, which it may take apart but not keep, and answers it by server_send(). */
	void (*handle)(void *data, struct server_connection *connection, struct control_request *request);
	void *data;
	uint8_t in[CONTROL_PACKET_MAX + 1], out[CONTROL_PACKET_MAX];
};

/* Takes over `listen_fd` on success. */
int server_init(struct server *server, struct loop *loop, int listen_fd,
	void (*handle)(void *, struct server_connection *, struct control_request *), void *data);
void server_deinit(struct server *server);
/* Sends server->out[0..size) to one or to all. */
void server_send(struct server *server, struct server_connection *connection, size_t size);
/* The same with descriptors, which stay the caller's and do not queue. 0, or -errno where the peer cannot take them at once
 * or the kernel lets no more be on the way: it is the caller's to answer something else then. */
int server_send_fds(struct server *server, struct server_connection *connection, size_t size, const int *fds, size_t n_fds);
void server_broadcast(struct server *server, size_t size);
/* The connection of that number, NULL once it is gone. */
struct server_connection *server_find(struct server *server, uint64_t number);
/* Whether some peer has not yet taken all that was sent to it. */
bool server_has_unsent(const struct server *server);
