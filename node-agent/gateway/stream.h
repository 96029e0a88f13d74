/* SPDX-License-Identifier: Apache-2.0
 *
 * The streams of process.Process: Start and Connect. Events of one process become frames of a Connect stream,
 * with back-pressure from the client's socket through to the process's pipe.
 */
#pragma once

#include "gateway/call.h"

struct stream;

void stream_start(struct call *call, const char *body, size_t size);
void stream_connect(struct call *call, const char *body, size_t size);
/* Ends the stream with `err` behind what is buffered; nothing when it has ended already. */
void stream_end(struct stream *stream, const struct err *err);
/* For gateway_drain(). */
struct stream *stream_next(const struct stream *stream);
