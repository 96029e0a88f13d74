/* SPDX-License-Identifier: Apache-2.0
 *
 * Relayed byte streams: one end is a socket of this process, the other is the gateway of a node, and between them
 * StreamData within credit windows in both directions. Nothing is stored but what the peer was granted: bytes for
 * the node stay in the socket until the link took them.
 */
#pragma once

#include "pb/link.pb-c.h"
#include "server/server.h"

struct streams;
struct stream;

#define STREAMS_MAX 4096
#define STREAMS_PER_SANDBOX 512

int streams_new(struct streams **ret, struct server *server, struct err *reterr);
void streams_free(struct streams *streams);
size_t streams_count(const struct streams *streams);

/* *ret_fd is the caller's end. TOO_MANY_STREAMS, NODE_UNREACHABLE. */
int stream_open(struct streams *streams, const char *node, uint64_t session, const char *sandbox,
	struct stream **ret, int *ret_fd, struct err *reterr);
/* The caller is through with it; the node is told. Returns NULL. */
struct stream *stream_close(struct stream *stream);
/* Why it broke; NULL: it did not. The caller's end is at its end of file then. */
const struct err *stream_failure(const struct stream *stream);

/* StreamData, StreamCredit, StreamClose of a session that is its node's current one. */
void streams_on_message(struct streams *streams, uint64_t session, const Croft__Envelope *envelope);
