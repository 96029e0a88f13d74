/* SPDX-License-Identifier: Apache-2.0
 *
 * The ZAP handler, see endpoint.h: libzmq asks on inproc://zeromq.zap.01 for every handshake, this thread
 * answers from a table that the loop changes under a lock.
 *
 * A key is admitted (200, with its user id) or refused (400). Never 300: the client would hang. A key may
 * shake hands HANDSHAKE_BURST times at once and then once a second, so that a peer cannot walk the router's
 * counter of routing ids by reconnecting. The thread touches nothing but its sockets and the table.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/table.h"
#include "wire/endpoint.h"

#define ZAP_FRAMES 7
#define KEY_SIZE 32
#define USER_ID_MAX 128
#define HANDSHAKE_BURST 4 /* a refusal says no reason: who tries a join token twice must still be told why */

struct zap_row {
	UT_hash_handle hh;
	char key[KEY_Z85_SIZE];
	char user_id[USER_ID_MAX];
	bool is_feed; /* it may go to that domain, and to no other */
	int64_t tokens_usec; /* token bucket, in time: a handshake costs a second of it */
	int64_t filled_usec;
};

struct zap {
	pthread_t thread;
	pthread_mutex_t lock;
	struct zap_row *rows;  /* under lock */
	void *handler;         /* the thread's */
	void *stop_in;         /* the thread's */
	void *stop_out;        /* the loop's */
	bool started;
	atomic_uint_least64_t admitted, denied, answered; /* answered: questions of zap_look() */
	uint64_t asked;
	int64_t asked_usec;
};

/* Under the lock. */
static bool take_token(struct zap_row *row, int64_t now)
{
	row->tokens_usec = MIN(row->tokens_usec + (now - row->filled_usec), HANDSHAKE_BURST * USEC_PER_SEC);
	row->filled_usec = now;
	if (row->tokens_usec < USEC_PER_SEC)
		return false;
	row->tokens_usec -= USEC_PER_SEC;
	return true;
}

static bool admit(struct zap *zap, const uint8_t *key, bool is_feed, char ret_user_id[static USER_ID_MAX])
{
	char z85[KEY_Z85_SIZE];
	struct zap_row *row;
	bool ok = false;

	if (!zmq_z85_encode(z85, key, KEY_SIZE))
		return false;
	(void) pthread_mutex_lock(&zap->lock);
	HASH_FIND_STR(zap->rows, z85, row);
	if (row && row->is_feed == is_feed && take_token(row, clock_monotonic_usec())) {
		memcpy(ret_user_id, row->user_id, USER_ID_MAX);
		ok = true;
	}
	(void) pthread_mutex_unlock(&zap->lock);
	return ok;
}

static bool frame_is(zmq_msg_t *frame, const char *text)
{
	return zmq_msg_size(frame) == strlen(text) && !memcmp(zmq_msg_data(frame), text, strlen(text));
}

static void reply(struct zap *zap, zmq_msg_t *request_id, const char *user_id)
{
	const char *code = user_id ? "200" : "400";

	/* inproc without a limit: these do not block; where the context ends they fail, and the loop sees it */
	(void) zmq_send(zap->handler, "1.0", 3, ZMQ_SNDMORE);
	(void) zmq_send(zap->handler, zmq_msg_data(request_id), zmq_msg_size(request_id), ZMQ_SNDMORE);
	(void) zmq_send(zap->handler, code, 3, ZMQ_SNDMORE);
	(void) zmq_send(zap->handler, "", 0, ZMQ_SNDMORE);
	(void) zmq_send(zap->handler, user_id ? user_id : "", user_id ? strlen(user_id) : 0, ZMQ_SNDMORE);
	(void) zmq_send(zap->handler, "", 0, 0);
}

/* version, request id, domain, address, identity, mechanism, credentials */
static bool is_admissible(struct zap *zap, zmq_msg_t *frames, char ret_user_id[static USER_ID_MAX])
{
	return frame_is(&frames[0], "1.0") && zmq_msg_size(&frames[2]) > 0 && frame_is(&frames[5], "CURVE") &&
		zmq_msg_size(&frames[6]) == KEY_SIZE && admit(zap, zmq_msg_data(&frames[6]), frame_is(&frames[2], ZAP_FEED_DOMAIN), ret_user_id);
}

/* False when the socket is of no use any more. */
static bool answer_one(struct zap *zap)
{
	zmq_msg_t frames[ZAP_FRAMES], extra;
	char user_id[USER_ID_MAX];
	size_t n = 0, n_extra = 0;
	int more = 1;
	bool ok = true;

	for (size_t i = 0; i < ZAP_FRAMES; i++)
		(void) zmq_msg_init(&frames[i]);
	(void) zmq_msg_init(&extra);
	while (more) {
		zmq_msg_t *to = n < ZAP_FRAMES ? &frames[n++] : (n_extra++, &extra);

		if (zmq_msg_recv(to, zap->handler, 0) < 0) {
			ok = errno == EINTR || errno == EAGAIN;
			break;
		}
		more = zmq_msg_more(to);
	}
	if (!more && n == ZAP_FRAMES && n_extra == 0 && is_admissible(zap, frames, user_id)) {
		atomic_fetch_add(&zap->admitted, 1);
		reply(zap, &frames[1], user_id);
	} else if (!more) {
		atomic_fetch_add(&zap->denied, 1);
		reply(zap, &frames[1], NULL);
	}
	for (size_t i = 0; i < ZAP_FRAMES; i++)
		(void) zmq_msg_close(&frames[i]);
	(void) zmq_msg_close(&extra);
	return ok;
}

/* One byte asks whether this thread turns; nothing at all ends it. */
static bool answer_loop(struct zap *zap)
{
	char question;

	if (zmq_recv(zap->stop_in, &question, sizeof(question), 0) <= 0)
		return false;
	atomic_fetch_add(&zap->answered, 1);
	return true;
}

static void *run(void *user)
{
	struct zap *zap = user;
	bool go_on = true;

	while (go_on) {
		zmq_pollitem_t items[] = {
			{ .socket = zap->handler, .events = ZMQ_POLLIN },
			{ .socket = zap->stop_in, .events = ZMQ_POLLIN },
		};

		if (zmq_poll(items, ARRAY_LEN(items), -1) < 0)
			go_on = errno == EINTR;
		else if (items[1].revents)
			go_on = answer_loop(zap);
		else if (items[0].revents)
			go_on = answer_one(zap);
	}
	(void) zmq_close(zap->handler);
	(void) zmq_close(zap->stop_in);
	return NULL;
}

static void *open_socket(void *context, int type)
{
	void *socket = zmq_socket(context, type);
	int linger = 0;

	if (socket)
		(void) zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
	return socket;
}

static int open_sockets(struct zap *zap, void *context)
{
	char name[64];

	(void) snprintf(name, sizeof(name), "inproc://croft-zap-stop-%p", (void *) zap);
	zap->handler = open_socket(context, ZMQ_REP);
	zap->stop_in = open_socket(context, ZMQ_PAIR);
	zap->stop_out = open_socket(context, ZMQ_PAIR);
	if (!zap->handler || !zap->stop_in || !zap->stop_out ||
		zmq_bind(zap->handler, "inproc://zeromq.zap.01") < 0 || zmq_bind(zap->stop_in, name) < 0 ||
		zmq_connect(zap->stop_out, name) < 0)
		return -errno;
	return 0;
}

/* With all signals blocked: they are the loop thread's. */
static int start_thread(struct zap *zap)
{
	sigset_t all, old;
	int r;

	(void) sigfillset(&all);
	(void) pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&zap->thread, NULL, run, zap);
	(void) pthread_sigmask(SIG_SETMASK, &old, NULL);
	zap->started = r == 0;
	return -r;
}

int zap_new(struct zap **ret, void *zmq_context, struct err *reterr)
{
	struct zap *zap = calloc(1, sizeof(*zap));
	int r;

	if (!zap)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the ZAP handler");
	(void) pthread_mutex_init(&zap->lock, NULL);
	r = open_sockets(zap, zmq_context);
	if (r == 0)
		r = start_thread(zap);
	if (r < 0) {
		zap_free(zap);
		return err_set(reterr, FAIL_ZAP_DISABLED, -r, "the ZAP handler does not start");
	}
	*ret = zap;
	return 0;
}

void zap_free(struct zap *zap)
{
	struct zap_row *row, *next;

	if (!zap)
		return;
	if (zap->started) {
		(void) zmq_send(zap->stop_out, "", 0, 0);
		(void) pthread_join(zap->thread, NULL); /* it closes its two sockets */
	} else {
		if (zap->handler)
			(void) zmq_close(zap->handler);
		if (zap->stop_in)
			(void) zmq_close(zap->stop_in);
	}
	if (zap->stop_out)
		(void) zmq_close(zap->stop_out);
	HASH_ITER(hh, zap->rows, row, next) {
		HASH_DEL(zap->rows, row);
		free(row);
	}
	(void) pthread_mutex_destroy(&zap->lock);
	free(zap);
}

static int allow(struct zap *zap, const char *public_key, const char *user_id, bool is_feed)
{
	struct zap_row *row;
	int r = 0;

	if (curve_key_check(public_key, NULL) < 0 || !*user_id || strlen(user_id) >= USER_ID_MAX)
		return -EINVAL;
	(void) pthread_mutex_lock(&zap->lock);
	HASH_FIND_STR(zap->rows, public_key, row);
	if (row && is_feed && !row->is_feed) {
		(void) pthread_mutex_unlock(&zap->lock);
		return -EEXIST;
	}
	if (!row) {
		row = calloc(1, sizeof(*row));
		if (row) {
			memcpy(row->key, public_key, sizeof(row->key));
			row->tokens_usec = HANDSHAKE_BURST * USEC_PER_SEC;
			row->filled_usec = clock_monotonic_usec();
			HASH_ADD_STR(zap->rows, key, row);
			if (!row->hh.tbl) { /* no memory for the table */
				free(row);
				row = NULL;
			}
		}
	}
	if (row) {
		(void) snprintf(row->user_id, sizeof(row->user_id), "%s", user_id);
		row->is_feed = is_feed;
	} else {
		r = -ENOMEM;
	}
	(void) pthread_mutex_unlock(&zap->lock);
	return r;
}

int zap_allow(struct zap *zap, const char *public_key, const char *user_id)
{
	return allow(zap, public_key, user_id, false);
}

int zap_allow_feed(struct zap *zap, const char *public_key)
{
	return allow(zap, public_key, "feed", true);
}

void zap_deny(struct zap *zap, const char *public_key)
{
	struct zap_row *row;

	(void) pthread_mutex_lock(&zap->lock);
	HASH_FIND_STR(zap->rows, public_key, row);
	if (row) {
		HASH_DEL(zap->rows, row);
		free(row);
	}
	(void) pthread_mutex_unlock(&zap->lock);
}

bool zap_look(struct zap *zap, int64_t now_usec)
{
	if (atomic_load(&zap->answered) != zap->asked)
		return now_usec - zap->asked_usec < ZAP_HANGS_USEC;
	if (zmq_send(zap->stop_out, "?", 1, ZMQ_DONTWAIT) < 0)
		return false;
	zap->asked++;
	zap->asked_usec = now_usec;
	return true;
}

uint64_t zap_denied(const struct zap *zap)
{
	return atomic_load(&zap->denied);
}

uint64_t zap_admitted(const struct zap *zap)
{
	return atomic_load(&zap->admitted);
}
