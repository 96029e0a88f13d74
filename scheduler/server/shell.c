/* SPDX-License-Identifier: Apache-2.0
 *
 * See shell.h; making the fleet from the store stands in shell-load.c. `held` is the queue of steps in the order
 * of their batches. A step is released when it is at the front and all its store batches are answered. Callbacks
 * may step again; the nested step is queued behind and the outermost loop releases it.
 */
#include "server/shell-private.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>

#include "server/api.h"
#include "server/audit.h"
#include "server/codec.h"
#include "server/link.h"
#include "server/telemetry.h"

#define TICK_USEC (10 * USEC_PER_MSEC)
#define ALIVE_USEC (100 * USEC_PER_MSEC)
#define STALL_USEC (500 * USEC_PER_MSEC)
#define RECOVER_USEC (1 * USEC_PER_SEC)
#define TEND_TURNS 10 /* of `alive`: a second */
#define FORGET_SEC 10
#define FORGET_MAX 4096 /* Idempotency-Keys at once */

static void arm(struct event *event, int64_t usec)
{
	struct timeval tv;

	usec = MAX(usec, 0);
	tv.tv_sec = usec / USEC_PER_SEC;
	tv.tv_usec = usec % USEC_PER_SEC;
	(void)event_add(event, &tv);
}

/* Each node has a timer of its own: those that are due within TICK_USEC are one turn of the loop. */
static void arm_tick(struct shell *shell, int64_t next_usec)
{
	if (next_usec != INT64_MAX)
		next_usec = MAX(next_usec, shell->ticked_usec + TICK_USEC);
	if (next_usec == shell->tick_usec)
		return; /* a heartbeat moves no timer */
	shell->tick_usec = next_usec;
	if (next_usec == INT64_MAX)
		(void)event_del(shell->tick);
	else
		arm(shell->tick, next_usec - clock_monotonic_usec());
}

void shell_log_notices(struct shell *shell, const struct fleet_actions *actions)
{
	for (size_t i = 0; i < actions->n_notices; i++) {
		const struct fleet_notice *notice = &actions->notices[i];
		const char *node = *notice->node ? notice->node : NULL;
		const char *sandbox = *notice->sandbox ? notice->sandbox : NULL;

		log_failure(LOG_LEVEL_WARN, "fleet", &notice->err, "node", node, "sandbox", sandbox,
			NULL);
		if (notice->err.code == FAIL_AUTH_WRONG_NODE && node)
			link_refuse_node(shell->server->link, node, &notice->err);
	}
}

static void encode_puts(const struct fleet_actions *actions, struct ops *ops)
{
	for (size_t i = 0; i < actions->n_puts; i++) {
		const struct fleet_put *put = &actions->puts[i];
		Croft__SandboxRecord *sandbox;
		Croft__NodeRecord *node;
		Croft__ClaimRecord *claim;
		Croft__SnapshotRecord *snapshot;

		switch (put->type) {
		case FLEET_PUT_NODE:
			node = codec_node_encode(put->node);
			ops_put(ops, node ? &node->base : NULL, STORE_ANY, "node/%s", put->id);
			break;
		case FLEET_PUT_SANDBOX:
		case FLEET_PUT_HISTORY:
			sandbox = codec_sandbox_encode(put->sandbox);
			ops_put(ops, sandbox ? &sandbox->base : NULL, STORE_ANY, "%s/%s",
				put->type == FLEET_PUT_HISTORY ? "history" : "sandbox", put->id);
			break;
		case FLEET_DELETE_SANDBOX:
			ops_delete(ops, "sandbox/%s", put->id);
			break;
		case FLEET_PUT_SNAPSHOT:
			snapshot = codec_snapshot_encode(put->snapshot);
			ops_put(ops, snapshot ? &snapshot->base : NULL, STORE_ANY, "snapshot/%s", put->id);
			break;
		case FLEET_DELETE_SNAPSHOT:
			ops_delete(ops, "snapshot/%s", put->id);
			break;
		case FLEET_PUT_CLAIM: /* of two that claim one VM, one gets it */
			claim = CODEC_NEW(Croft__ClaimRecord, croft__claim_record__init);
			ops_put(ops,
				claim ? codec_whole(&claim->base, codec_set(&claim->sandbox, put->id))
				      : NULL,
				STORE_ABSENT, "claim/%s", put->id);
			break;
		case FLEET_DELETE_CLAIM:
			ops_delete(ops, "claim/%s", put->id);
			break;
		}
	}
}

static void held_free(struct held *held)
{
	fleet_actions_clear(&held->actions);
	free(held);
}

void shell_count_sandbox(struct shell *shell, const struct sandbox_record *record, bool is_over)
{
	telemetry_count_sandbox(shell->server->telemetry, record, is_over);
	asked_add(shell->asked, record, is_over);
	if (is_over)
		(void)history_add(&shell->history, record->id,
			record->ended_us); /* else it is never forgotten */
}

/* What a durable step said goes out. */
static void perform(struct held *held)
{
	struct shell *shell = held->shell;
	struct server *server = shell->server;
	struct fleet_actions *actions = &held->actions;

	if (held->done)
		held->done(NULL, held->user); /* an epoch that is durable now is what it says with it */
	for (size_t i = 0; i < actions->n_sends; i++)
		link_send_action(server->link, &actions->sends[i]);
	for (size_t i = 0; i < actions->n_puts; i++)
		if (actions->puts[i].type == FLEET_PUT_SANDBOX ||
			actions->puts[i].type == FLEET_PUT_HISTORY)
			shell_count_sandbox(shell, actions->puts[i].sandbox,
				actions->puts[i].type == FLEET_PUT_HISTORY);
	for (size_t i = 0; i < actions->n_replies; i++)
		api_on_reply(server->api, &actions->replies[i]);
	for (size_t i = 0; i < actions->n_puts; i++)
		if (actions->puts[i].type != FLEET_PUT_NODE)
			api_on_sandbox_changed(server->api, actions->puts[i].id);
	if (held->tell) {
		const struct fleet_event event = { .type = FLEET_COMMITTED,
			.commit = { .batch = actions->batch } };

		shell_step(shell, &event, NULL, NULL, NULL);
	}
}

static void release(struct shell *shell)
{
	struct held *held;

	if (shell->is_releasing)
		return;
	shell->is_releasing = true;
	while ((held = TAILQ_FIRST(&shell->held)) && held->n_parts == 0) {
		TAILQ_REMOVE(&shell->held, held, link);
		shell->n_held--;
		perform(held);
		held_free(held);
	}
	shell->is_releasing = false;
}

/* Answers a held step with the failure; its sends and stages are dropped. */
static void refuse(struct held *held, const struct err *err)
{
	struct fleet_actions *actions = &held->actions;

	for (size_t i = 0; i < actions->n_replies; i++) {
		if (!err_is_set(&actions->replies[i].err))
			actions->replies[i].err = *err;
		api_on_reply(held->shell->server->api, &actions->replies[i]);
	}
	if (held->done)
		held->done(err, held->user);
	fleet_actions_clear(actions);
	held->done = NULL;
	held->is_dead = true;
}

/* Everything held is answered with `err`. Returns the batch of the first of it, 0 when nothing was. */
static uint64_t refuse_all(struct shell *shell, const struct err *err)
{
	struct held_list held;
	struct held *step;
	uint64_t batch = 0;

	TAILQ_INIT(&held);
	TAILQ_CONCAT(&held, &shell->held, link);
	shell->n_held = 0;
	while ((step = TAILQ_FIRST(&held))) {
		if (batch == 0)
			batch = step->actions.batch;
		TAILQ_REMOVE(&held, step, link);
		refuse(step, err);
		if (step->n_parts)
			TAILQ_INSERT_TAIL(&shell->dead, step, link);
		else
			held_free(step);
	}
	return batch;
}

static void fail(struct shell *shell, const struct err *err)
{
	struct fleet_event event = { .type = FLEET_COMMIT_FAILED,
		.commit = { .err = &shell->failure } };
	struct fleet_actions actions = { .batch = 0 };

	if (err_is_set(&shell->failure))
		return;
	shell->failure = *err;
	shell->server->counters.commit_failures++;
	log_failure(LOG_LEVEL_ERROR,
		"the store cannot be written: changes are refused until it can", err, NULL);
	event.commit.batch = refuse_all(shell, &shell->failure);
	fleet_step(shell->fleet, moment_now(), &shell->server->rng, &event, &actions);
	for (size_t i = 0; i < actions.n_replies; i++)
		api_on_reply(shell->server->api, &actions.replies[i]);
	fleet_actions_clear(&actions);
	arm(shell->recover, RECOVER_USEC);
}

void shell_abort(struct shell *shell, const struct err *err)
{
	if (!err_is_set(&shell->failure))
		shell->failure = *err;
	(void)event_del(shell->recover);
	(void)refuse_all(shell, err);
}

static void on_part(
	enum store_outcome outcome, uint64_t revision, const struct err *err, void *user)
{
	struct held *held = user;
	struct shell *shell = held->shell;
	struct err conflict = ERR_NULL;

	(void)revision;
	held->n_parts--;
	if (held->is_dead) {
		if (held->n_parts == 0) {
			TAILQ_REMOVE(&shell->dead, held, link);
			held_free(held);
		}
		return;
	}
	switch (outcome) {
	case STORE_COMMITTED:
		shell->server->counters.commits++;
		release(shell);
		return;
	case STORE_CONFLICT:
		/* this process is the only writer: somebody else's hand was in the file */
		(void)err_set(&conflict, FAIL_STORE_FAILED, ESTALE,
			"a record was changed behind the scheduler's back");
		fail(shell, &conflict);
		return;
	case STORE_BROKEN:
		fail(shell, err);
		return;
	}
}

/* Hands the operations over in store batches of STORE_OPS_MAX, in order; the step is durable when the last one is. The
 * fleet names history before it deletes the live record, so that a crash between two batches loses neither. */
static int hand_over(
	struct shell *shell, struct held *held, const struct ops *ops, struct err *reterr)
{
	if (ops->no_memory || held->actions.no_memory)
		return err_set(
			reterr, FAIL_STORE_FAILED, ENOMEM, "no memory for the records of a change");
	for (size_t i = 0; i < ops->n; i += STORE_OPS_MAX) {
		int r = store_commit(shell->server->store, ops->list + i,
			MIN(ops->n - i, (size_t)STORE_OPS_MAX), on_part, held, reterr);

		if (r < 0)
			return r;
		held->n_parts++;
	}
	return 0;
}

/* Takes the operations of `extra` out of it. */
static void append(struct ops *ops, struct ops *extra)
{
	for (size_t i = 0; i < extra->n && !ops->no_memory; i++) {
		struct store_op *list = reallocarray(ops->list, ops->n + 1, sizeof(*list));

		if (!list) {
			ops->no_memory = true;
			break;
		}
		ops->list = list;
		ops->list[ops->n++] = extra->list[i];
		extra->list[i].key = NULL;
		extra->list[i].value = NULL;
	}
	ops->room = ops->n;
	ops->no_memory |= extra->no_memory;
	ops_deinit(extra);
}

static void enqueue(struct shell *shell, struct held *held, struct ops *ops)
{
	struct err err = ERR_NULL;
	struct ops all = { .n = 0 };

	TAILQ_INSERT_TAIL(&shell->held, held, link);
	shell->n_held++;
	held->shell = shell;
	audit_take(shell->server->audit, &all); /* first: that a change was asked for is written before it, or with it */
	append(&all, ops);
	if (hand_over(shell, held, &all, &err) < 0)
		fail(shell, &err);
	else
		release(shell);
	ops_deinit(&all);
}

static bool has_nothing_to_say(const struct held *held, const struct ops *ops)
{
	const struct fleet_actions *a = &held->actions;

	return a->n_puts == 0 && a->n_sends == 0 && a->n_replies == 0 && a->n_stages == 0 &&
	       ops->n == 0 && !ops->no_memory && !a->no_memory && !held->done;
}

void shell_step(struct shell *shell, const struct fleet_event *event, struct ops *extra,
	shell_done done, void *user)
{
	struct held *held = shell->spare ? shell->spare : calloc(1, sizeof(*held));
	struct ops ops = { .n = 0 };

	shell->spare = NULL;
	if (!held) {
		struct err err = ERR_NULL;

		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a change");
		if (done)
			done(&err, user);
		return;
	}
	held->done = done;
	held->user = user;
	shell->node_changes += event->type == FLEET_NODE_REVOKED;
	fleet_step(shell->fleet, moment_now(), &shell->server->rng, event, &held->actions);
	shell_log_notices(shell, &held->actions);
	arm_tick(shell, held->actions.next_usec);
	encode_puts(&held->actions, &ops);
	held->tell = held->actions.n_puts > 0;
	if (extra)
		append(&ops, extra);
	if (err_is_set(&shell->failure)) { /* the fleet refused by itself; nothing may be written */
		for (size_t i = 0; i < held->actions.n_replies; i++)
			api_on_reply(shell->server->api, &held->actions.replies[i]);
		if (done)
			done(&shell->failure, user);
		held_free(held);
	} else if (has_nothing_to_say(held, &ops)) {
		if (!shell->spare) { /* as most: the next one takes it */
			fleet_actions_clear(&held->actions);
			memset(held, 0, sizeof(*held));
			shell->spare = held;
		} else {
			held_free(held);
		}
	} else {
		enqueue(shell, held, &ops);
	}
	ops_deinit(&ops);
}

void shell_commit(struct shell *shell, struct ops *ops, shell_done done, void *user)
{
	struct held *held = calloc(1, sizeof(*held));
	struct err err = shell->failure;

	if (!held && !err_is_set(&err))
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a change");
	if (err_is_set(&err)) {
		free(held);
		if (done)
			done(&err, user);
	} else {
		held->done = done;
		held->user = user;
		enqueue(shell, held, ops);
	}
	ops_deinit(ops);
}

/* ---- time ---- */

/* If this process did not run (stopped, blocked, a slow disk), nobody else was silent meanwhile. */
static void discount_stall(struct shell *shell)
{
	int64_t now = clock_monotonic_usec(), late = now - shell->alive_usec - ALIVE_USEC;
	struct fleet_event event = { .type = FLEET_STALL };

	if (late < STALL_USEC)
		return;
	shell->alive_usec = now;
	shell->server->counters.stalls++;
	event.stall_usec = late;
	shell_step(shell, &event, NULL, NULL, NULL);
}

/* A full disk: the fleet is told, and the store looks each second whether there is room again. */
static void watch_room(struct shell *shell)
{
	struct fleet_event event = { .type = FLEET_STORE_TIGHT };

	if (err_is_set(&shell->failure) || !shell->fleet)
		return;
	event.is_tight = store_is_tight(shell->server->store);
	if (event.is_tight != shell->is_tight) {
		shell->is_tight = event.is_tight;
		shell_step(shell, &event, NULL, NULL, NULL);
	}
	if (shell->is_tight && ++shell->tends % TEND_TURNS == 0)
		store_tend(shell->server->store);
}

static void on_alive(evutil_socket_t fd, short what, void *user)
{
	struct shell *shell = user;

	(void)fd;
	(void)what;
	discount_stall(shell);
	shell->alive_usec = clock_monotonic_usec();
	watch_room(shell);
}

static void on_tick(evutil_socket_t fd, short what, void *user)
{
	const struct fleet_event event = { .type = FLEET_TICK };
	struct shell *shell = user;

	(void)fd;
	(void)what;
	discount_stall(shell);
	shell->ticked_usec = clock_monotonic_usec();
	shell->tick_usec = INT64_MAX; /* it is armed no more */
	shell_step(shell, &event, NULL, NULL, NULL);
}

/* ---- over time, and after a failure ---- */

/* Ended sandboxes leave the store by age and by number, some at a time. */
static void on_forget(evutil_socket_t fd, short what, void *user)
{
	struct shell *shell = user;
	const struct options *options = shell->server->options;
	int64_t before = clock_realtime_usec() - options->history_age;
	const struct history_entry *entry;
	struct ops ops = { .n = 0 };

	(void)fd;
	(void)what;
	if (err_is_set(&shell->failure))
		return;
	while (ops.n < STORE_OPS_MAX &&
		(entry = history_overdue(&shell->history, before, options->history_count))) {
		ops_delete(&ops, "history/%s", entry->id);
		history_drop(&shell->history);
	}
	asked_trim(shell->asked, before, options->history_count);
	registry_forget_idempotency(&shell->server->registry, &ops,
		clock_realtime_usec() - IDEMPOTENCY_USEC, FORGET_MAX);
	if (ops.n)
		shell_commit(shell, &ops, NULL, NULL);
	ops_deinit(&ops);
}

static void on_recover(evutil_socket_t fd, short what, void *user)
{
	struct shell *shell = user;
	struct server *server = shell->server;
	struct registry registry;
	struct err err = ERR_NULL;

	(void)fd;
	(void)what;
	arm(shell->recover, RECOVER_USEC);
	if (store_waiting(server->store) || store_recover(server->store, &err) < 0)
		return;
	if (registry_load(&registry, server->store, &err) < 0) {
		log_failure(
			LOG_LEVEL_ERROR, "the store writes again but cannot be read", &err, NULL);
		return;
	}
	api_fail_all(server->api,
		&shell->failure); /* what waits for the old fleet would wait for ever */
	registry_deinit(&server->registry);
	server->registry = registry;
	memset(&shell->failure, 0, sizeof(shell->failure));
	if (audit_load(server->audit, &err) < 0 || shell_load(shell, &err) < 0 || telemetry_load(server->telemetry, &err) < 0) {
		shell->failure = err;
		log_failure(
			LOG_LEVEL_ERROR, "the store writes again but cannot be read", &err, NULL);
		return;
	}
	link_admit_all(server->link);
	(void)event_del(shell->recover);
	log_info("the store is written again; everything was loaded anew");
}

int shell_new(struct shell **ret, struct server *server, struct err *reterr)
{
	struct shell *shell = calloc(1, sizeof(*shell));
	const struct timeval every = { .tv_usec = ALIVE_USEC }, seldom = { .tv_sec = FORGET_SEC };

	if (!shell)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the shell");
	shell->server = server;
	shell->node_changes = 1;
	shell->tick_usec = INT64_MAX;
	TAILQ_INIT(&shell->held);
	TAILQ_INIT(&shell->dead);
	shell->tick = event_new(server->base, -1, 0, on_tick, shell);
	shell->alive = event_new(server->base, -1, EV_PERSIST, on_alive, shell);
	shell->recover = event_new(server->base, -1, 0, on_recover, shell);
	shell->forget = event_new(server->base, -1, EV_PERSIST, on_forget, shell);
	if (!shell->tick || !shell->alive || !shell->recover || !shell->forget) {
		shell_free(shell);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the shell");
	}
	(void)event_priority_set(shell->tick, LOOP_TICK);
	(void)event_priority_set(shell->alive, LOOP_TICK);
	shell->alive_usec = clock_monotonic_usec();
	(void)event_add(shell->alive, &every);
	(void)event_add(shell->forget, &seldom);
	*ret = shell;
	return 0;
}

static void free_list(struct held_list *list)
{
	for (struct held *held = TAILQ_FIRST(list); held; held = TAILQ_FIRST(list)) {
		TAILQ_REMOVE(list, held, link);
		held_free(held);
	}
}

void shell_free(struct shell *shell)
{
	if (!shell)
		return;
	free_list(&shell->held);
	free_list(&shell->dead);
	free(shell->spare);
	(void)fleet_free(shell->fleet);
	if (shell->tick)
		event_free(shell->tick);
	if (shell->alive)
		event_free(shell->alive);
	if (shell->recover)
		event_free(shell->recover);
	if (shell->forget)
		event_free(shell->forget);
	history_deinit(&shell->history);
	asked_free(shell->asked);
	free(shell);
}

const struct fleet *shell_fleet(const struct shell *shell)
{
	return shell->fleet;
}

const struct asked *shell_asked(const struct shell *shell)
{
	return shell->asked;
}

const struct err *shell_failure(const struct shell *shell)
{
	return err_is_set(&shell->failure) ? &shell->failure : NULL;
}

bool shell_is_tight(const struct shell *shell)
{
	return store_is_tight(shell->server->store);
}

uint64_t shell_node_changes(const struct shell *shell)
{
	return shell->node_changes;
}

struct node *shell_node_handle(const struct shell *shell, const char *id)
{
	return fleet_node_handle(shell->fleet, id);
}

size_t shell_held(const struct shell *shell)
{
	return shell->n_held;
}
