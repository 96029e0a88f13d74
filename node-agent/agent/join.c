/* SPDX-License-Identifier: Apache-2.0
 *
 * See join.h.
 */
#include "agent/join.h"
#include "agent/message.h"
#include "agent/transport.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/dispatch.h"
#include "wire/records.h"

#define TRY_SEC 6 /* for one address, where there are several */
#define SMALL (16u * 1024u)
#define HOSTNAME_MAX_SIZE 65

enum { ROLE_SCHEDULER };
enum { STATE_ENROLLING };

struct joining {
	const struct agent_options *options;
	struct scheduler_address to; /* of link.transport's kind */
	struct transport *transport;
	const struct join_token *token;
	const struct curve_keys *keys;
	const char *machine;
	struct event_base *base;
	void *zmq;
	struct dealer *dealer;
	struct event *next, *deadline;
	unsigned int target;
	struct dispatch dispatch;
	char node[ID_SIZE], pool[ID_NAME_MAX + 1];
	struct err err;
};

static void finish(struct joining *joining)
{
	(void)event_base_loopbreak(joining->base);
}

static void send_enroll(struct joining *joining)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__Enroll enroll = MESSAGE(Croft__Enroll, croft__enroll);
	struct envelope_head head = { .seq = 1 };
	char hostname[HOSTNAME_MAX_SIZE] = "unknown", key[KEY_Z85_SIZE], machine[ID_SIZE];
	uint8_t *frame;
	size_t size;

	(void)gethostname(hostname, sizeof(hostname) - 1);
	(void)snprintf(key, sizeof(key), "%s", joining->keys->public_key);
	(void)snprintf(machine, sizeof(machine), "%s", joining->machine);
	enroll.node_key = key;
	enroll.hostname = hostname;
	enroll.machine = machine;
	envelope.body_case = CROFT__ENVELOPE__BODY_ENROLL;
	envelope.enroll = &enroll;
	frame = envelope_pack(&head, &envelope, &size);
	if (!frame || !dealer_send(joining->dealer, frame, size))
		log_debug("the enrolment waits for the link");
	free(frame);
}

static int on_result(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	const Croft__EnrollResult *result = envelope->enroll_result;
	struct joining *joining = call;

	(void)head;
	if (result->failure) {
		failure_decode(result->failure, &joining->err);
		if (!err_is_set(&joining->err))
			(void)err_set(&joining->err, FAIL_JOIN_TOKEN_INVALID, 0,
				"the scheduler refused the token");
	} else if (!id_is_valid(result->node_id) || !id_name_is_valid(result->pool)) {
		return err_set(
			reterr, FAIL_FRAME_INVALID, EPROTO, "the scheduler's answer names no node");
	} else {
		(void)snprintf(joining->node, sizeof(joining->node), "%s", result->node_id);
		(void)snprintf(joining->pool, sizeof(joining->pool), "%s", result->pool);
	}
	finish(joining);
	return 0;
}

static int on_refused(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct joining *joining = call;

	(void)head, (void)reterr;
	if (envelope->refused->failure)
		failure_decode(envelope->refused->failure, &joining->err);
	if (!err_is_set(&joining->err))
		(void)err_set(&joining->err, FAIL_JOIN_TOKEN_INVALID, 0,
			"the scheduler refused the enrolment");
	finish(joining);
	return 0;
}

static const struct dispatch_row rows[] = {
	{ CROFT__ENVELOPE__BODY_ENROLL_RESULT, DISPATCH_IN(ROLE_SCHEDULER),
		DISPATCH_IN(STATE_ENROLLING), SMALL, on_result },
	{ CROFT__ENVELOPE__BODY_REFUSED, DISPATCH_IN(ROLE_SCHEDULER), DISPATCH_IN(STATE_ENROLLING),
		SMALL, on_refused },
};

static void on_message(const void *data, size_t size, void *user)
{
	struct joining *joining = user;
	struct envelope_head head;
	struct err err = ERR_NULL;

	if (dispatch(&joining->dispatch, data, size, ROLE_SCHEDULER, STATE_ENROLLING, joining,
		    &head, &err) != DISPATCH_OK)
		log_failure(LOG_LEVEL_WARN, "a message of the scheduler was dropped", &err, NULL);
}

static void on_state(enum dealer_state state, void *user)
{
	struct joining *joining = user;

	if (state == DEALER_UP) {
		send_enroll(joining);
	} else if (state == DEALER_REFUSED) {
		const struct join_token *token = joining->token;
		bool is_late = token->expires_us != 0 && token->expires_us <= clock_realtime_usec();

		(void)err_set(&joining->err, is_late ? FAIL_JOIN_TOKEN_EXPIRED : FAIL_NODE_KEY_UNKNOWN, EACCES,
			"the scheduler does not know this token: it %s, or is another scheduler's",
			is_late ? "expired" : "was removed");
		err_add(&joining->err, "token", "%s", joining->token->id);
		finish(joining);
	} else if (state == DEALER_DOWN && transport_failure(joining->transport) && joining->to.n_addresses == 1 &&
		   !class_is_retryable(failure_info(transport_failure(joining->transport)->code)->class)) {
		joining->err = *transport_failure(joining->transport);
		finish(joining);
	}
}

static int dial(struct joining *joining, struct err *reterr)
{
	const struct dealer_handler handler = { .on_message = on_message, .on_state = on_state };
	struct dealer_config config = { .keys = joining->token->keys, .backoff_max_usec = 2 * USEC_PER_SEC };
	const char *key, *address = scheduler_target(&joining->to, joining->target, &key);

	(void)snprintf(config.server_key, sizeof(config.server_key), "%s", key);
	transport_point(joining->transport, address, &config);
	return dealer_new(
		&joining->dealer, joining->base, joining->zmq, &config, &handler, joining, reterr);
}

static void on_next(evutil_socket_t fd, short what, void *user)
{
	struct timeval tv = { .tv_sec = TRY_SEC };
	struct joining *joining = user;

	(void)fd, (void)what;
	(void)evtimer_add(joining->next, &tv);
	if (dealer_state(joining->dealer) == DEALER_UP) {
		send_enroll(joining); /* the first may be lost; the second is the same enrolment */
		return;
	}
	if (scheduler_n_targets(&joining->to) == 1)
		return;
	dealer_free(TAKE(joining->dealer));
	joining->target++;
	if (dial(joining, &joining->err) < 0)
		finish(joining);
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
	struct joining *joining = user;
	const struct scheduler_address *to = &joining->to;

	(void)fd, (void)what;
	if (transport_failure(joining->transport)) { /* it knows more than that nobody answers */
		joining->err = *transport_failure(joining->transport);
		finish(joining);
		return;
	}
	(void)err_set(&joining->err, FAIL_LINK_UNREACHABLE, ETIMEDOUT,
		"no answer from the scheduler within %d s", JOIN_TIMEOUT_SEC);
	err_add(&joining->err, "address", "%.90s",
		to->addresses[joining->target % to->n_addresses]);
	finish(joining);
}

static int enroll(struct joining *joining, struct err *reterr)
{
	struct timeval next = { .tv_sec = TRY_SEC }, deadline = { .tv_sec = JOIN_TIMEOUT_SEC };
	int r;

	joining->dispatch.rows = rows;
	joining->dispatch.n_rows = ARRAY_LEN(rows);
	joining->base = event_base_new();
	joining->zmq = zmq_ctx_new();
	if (joining->base) {
		joining->next = evtimer_new(joining->base, on_next, joining);
		joining->deadline = evtimer_new(joining->base, on_deadline, joining);
	}
	if (!joining->zmq || !joining->next || !joining->deadline ||
		evtimer_add(joining->next, &next) < 0 ||
		evtimer_add(joining->deadline, &deadline) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to join");
	joining->to = joining->token->scheduler;
	r = transport_choose(joining->options, &joining->to, reterr);
	if (r == 0)
		r = transport_new(&joining->transport, joining->base, joining->options, reterr);
	if (r == 0)
		r = dial(joining, reterr);
	if (r < 0)
		return r;
	if (event_base_dispatch(joining->base) < 0)
		return err_set(reterr, FAIL_IO_FAILED, 0, "the event loop failed");
	if (err_is_set(&joining->err)) {
		*reterr = joining->err;
		return -EACCES;
	}
	return *joining->node
		       ? 0
		       : err_set(reterr, FAIL_LINK_UNREACHABLE, 0, "the scheduler gave no answer");
}

static void joining_deinit(struct joining *joining)
{
	dealer_free(joining->dealer);
	transport_free(joining->transport);
	if (joining->next)
		event_free(joining->next);
	if (joining->deadline)
		event_free(joining->deadline);
	if (joining->zmq)
		(void)zmq_ctx_term(joining->zmq);
	if (joining->base)
		event_base_free(joining->base);
}

static int own_keys(const char *path, struct curve_keys *ret, struct err *reterr)
{
	int r;

	if (access(path, F_OK) == 0)
		return curve_keys_read(path, ret, reterr);
	r = curve_keys_new(ret, reterr);
	return r < 0 ? r : curve_keys_write(path, ret, reterr);
}

static int prepare(const struct agent_options *options, struct identity *old,
	struct join_token *token, struct err *reterr)
{
	int r;

	if (!*options->token_file)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "join needs --token-file FILE");
	r = join_token_read(options->token_file, 0, token, reterr); /* its time is judged by the scheduler's clock, not by ours */
	if (r < 0)
		return r;
	r = dir_make(options->state, 0700);
	if (r < 0)
		return err_set_at(reterr, STAGE_HOST, FAIL_STATE_WRITE_FAILED, -r, "cannot make %s",
			options->state);
	/* the token may be root's; what is made from here on is the agent's */
	r = dir_become_owner(options->state);
	if (r < 0)
		return err_set_at(reterr, STAGE_HOST, FAIL_STATE_WRITE_FAILED, -r, "cannot become the owner of %s",
			options->state);
	if (identity_read(options->state, old, NULL) == 0 && !options->replace && !options->adopt) {
		(void)err_set(reterr, FAIL_ALREADY_JOINED, EEXIST, "%s is node %s", options->state,
			old->node);
		err_add(reterr, "node", "%s", old->node);
		return -EEXIST;
	}
	return 0;
}

int join(const struct agent_options *options, struct identity *ret, struct err *reterr)
{
	struct identity old = { .node = "" }, mine = { .node = "" };
	struct join_token token;
	struct curve_keys keys;
	char machine[ID_SIZE], path[PATH_MAX];
	struct joining joining = { .options = options, .token = &token, .keys = &keys, .machine = machine };
	CLEANUP_FD int lock = -1;
	int r = prepare(options, &old, &token, reterr);

	if (r < 0)
		return r;
	lock = state_lock(options->state, reterr);
	if (lock < 0)
		return lock;
	(void)snprintf(mine.key_file, sizeof(mine.key_file), "node-%.48s.key", token.id);
	(void)snprintf(path, sizeof(path), "%.4000s/%s", options->state, mine.key_file);
	r = machine_id(options->state, machine, reterr);
	if (r == 0)
		r = own_keys(path, &keys, reterr);
	if (r == 0) {
		r = enroll(&joining, reterr);
		joining_deinit(&joining);
	}
	if (r == 0) {
		memcpy(mine.node, joining.node, sizeof(mine.node));
		memcpy(mine.pool, joining.pool, sizeof(mine.pool));
		mine.scheduler = token.scheduler;
		r = identity_write(options->state, &mine, reterr);
	}
	if (r == 0 && options->adopt) {
		/* whom it obeyed so far is not this one; the scheduler raises its epoch where this is lost in a crash */
		(void)snprintf(path, sizeof(path), "%.4000s/epoch", options->state);
		(void)unlink(path);
	}
	if (r == 0 && *old.key_file && strcmp(old.key_file, mine.key_file) != 0) {
		(void)snprintf(path, sizeof(path), "%.4000s/%s", options->state, old.key_file);
		(void)unlink(path); /* the old node is given up; its key is of no use to anybody */
	}
	if (r == 0)
		*ret = mine;
	explicit_bzero(&keys, sizeof(keys));
	explicit_bzero(&token, sizeof(token));
	return r;
}
