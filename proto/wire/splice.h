/* SPDX-License-Identifier: Apache-2.0
 *
 * Two streams joined: what one says the other hears. Neither side can make this process hold more than SPLICE_ROOM bytes in
 * each direction (and one TLS record): whoever is slow is waited for by not reading the other. When one side ends, what it
 * said before is still delivered, for at most SPLICE_FLUSH_SEC, and then both end; so do they when one takes too little for
 * `stall_usec`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SPLICE_ROOM (64 * 1024)
#define SPLICE_FLUSH_SEC 3

struct bufferevent;
struct event_base;
struct splice;

/* Takes `a` and `b` over, also on failure. `on_end` is called once and may free the splice. NULL: no memory. */
struct splice *splice_new(struct event_base *base, struct bufferevent *a, struct bufferevent *b, int64_t stall_usec,
	void (*on_end)(void *user), void *user);
void splice_free(struct splice *splice);

/* A TCP peer that is gone without a word is found out by the kernel, whether something was sent to it or not. */
void stream_keepalive(int fd);

/* A unix socket in the abstract name space, so that no file is left behind. -errno */
int local_listen(const char *name);
int local_connect(const char *name); /* not blocking */
/* Whether the other end of a unix socket is this process. */
bool local_is_own(int fd);
