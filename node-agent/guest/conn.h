/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the service only. conn.c moves frames, service.c answers requests, server.c accepts and keeps time.
 */
#pragma once

#include "guest/server.h"

struct conn *conn_new(struct server *server, int fd);
void conn_free(struct conn *conn);
/* The peer may be read and written as its state demands; frees the connection where it is over. */
void conn_run(struct conn *conn);
/* It waited and need no longer: takes the frames that came meanwhile, then conn_run(). */
void conn_resume(struct conn *conn);
/* Answers with a failure and closes. */
void conn_fail(struct conn *conn, const struct err *err);
/* The last frame was put into `out`: send it and close. */
void conn_finish(struct conn *conn);

/* Answers a request of a connection, or of its stream. True: it waits for room, the request is kept. */
bool service_handle(struct conn *conn, struct request *request);
/* An input that waited; true: it still does. */
bool service_retry(struct conn *conn);
