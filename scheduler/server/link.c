/* SPDX-License-Identifier: Apache-2.0
 *
 * See link.h. Sending stands in link-send.c.
 */
#include "server/link-private.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "server/books.h"
#include "server/images.h"
#include "server/lead.h"
#include "server/relay.h"
#include "server/shell.h"
#include "server/telemetry.h"
#include "server/upgrades.h"
#include "wire/dispatch.h"
#include "wire/tunnel.h"

#define SESSIONS_PER_KEY 2
#define SWEEP_SEC 3600
/* That a node may claim: numbers of changes have the epoch in their upper half. */
#define EPOCH_MAX (UINT64_C(1) << 31)

/* ---- sessions ---- */
struct session *link_session(const struct link *link, uint64_t number)
{
	struct session *session = NULL;

	HASH_FIND(by_number, link->by_number, &number, sizeof(number), session);
	return session;
}

static struct session *newest_of(const struct link *link, const char *user_id)
{
	struct session *newest = NULL;

	HASH_FIND(by_user, link->by_user, user_id, (unsigned int)strlen(user_id), newest);
	return newest;
}

/* The newest session of each key stands in the table, with the older ones behind it. */
static void session_add(struct link *link, struct session *session)
{
	struct session *before = newest_of(link, session->user_id);

	if (before)
		HASH_DELETE(by_user, link->by_user, before);
	session->older = before;
	HASH_ADD_KEYPTR(by_user, link->by_user, session->user_id, (unsigned int)strlen(session->user_id), session);
	HASH_ADD_KEYPTR(by_route, link->by_route, session->route.id, (unsigned int)session->route.size, session);
	HASH_ADD(by_number, link->by_number, number, sizeof(session->number), session);
}

static void session_remove(struct link *link, struct session *session)
{
	struct session *at = newest_of(link, session->user_id);

	if (at == session) {
		HASH_DELETE(by_user, link->by_user, session);
		at = session->older;
		if (at)
			HASH_ADD_KEYPTR(by_user, link->by_user, at->user_id, (unsigned int)strlen(at->user_id), at);
	} else {
		while (at->older != session)
			at = at->older;
		at->older = session->older;
	}
	HASH_DELETE(by_route, link->by_route, session);
	HASH_DELETE(by_number, link->by_number, session);
	link->n_removed++;
	free(session);
}

void link_session_gone(struct link *link, struct session *session)
{
	struct fleet_event event = { .type = FLEET_NODE_DISCONNECTED, .session = session->number };
	const bool is_node = session->role == SENDER_NODE;

	memcpy(event.node, session->id, strnlen(session->id, ID_LEN));
	session_remove(link, session);
	if (is_node)
		shell_step(link->server->shell, &event, NULL, NULL, NULL);
}

/* A key has few routes at a time: the oldest ones are those of connections that are long gone. */
static void limit_sessions(struct link *link, struct session *fresh)
{
	struct session *oldest = fresh;
	unsigned int n = 1;

	for (; oldest->older; n++)
		oldest = oldest->older;
	if (n > SESSIONS_PER_KEY)
		link_session_gone(link, oldest);
}

static struct session *session_for(struct link *link, const struct route *route, const char *user_id)
{
	struct session *session = NULL;
	const char *colon = strchr(user_id, ':');

	HASH_FIND(by_route, link->by_route, route->id, (unsigned int)route->size, session);
	if (session && !strcmp(session->user_id, user_id))
		return session;
	if (session) /* the router made this id for another connection before */
		link_session_gone(link, session);
	if (!colon || strlen(user_id) >= sizeof(session->user_id))
		return NULL;
	session = calloc(1, sizeof(*session));
	if (!session)
		return NULL;
	session->number = ++link->last_session;
	session->route = *route;
	session->role = !strncmp(user_id, "node:", 5) ? SENDER_NODE : SENDER_TOKEN;
	(void)snprintf(session->user_id, sizeof(session->user_id), "%s", user_id);
	session->id = session->user_id + (colon + 1 - user_id);
	session_add(link, session);
	limit_sessions(link, session);
	return session;
}

/* A peer that keeps on saying what it should not is told and logged once a second. */
static bool may_tell(struct session *session)
{
	int64_t now = clock_monotonic_usec();

	if (session->told_usec && now - session->told_usec < USEC_PER_SEC)
		return false;
	session->told_usec = now;
	return true;
}

bool link_is_current(struct link *link, const struct link_message *message)
{
	struct fleet_node_view view;
	struct session *session;
	struct err err = ERR_NULL;

	if (fleet_node_get(shell_fleet(link->server->shell), message->id, &view) == 0 &&
		view.session == message->session)
		return true;
	session = link_session(link, message->session);
	if (session && may_tell(session)) {
		(void)err_set(&err, FAIL_HELLO_NEEDED, ESTALE, "this session has not introduced itself");
		link_refuse(link, message->session, &err, 0);
	}
	return false;
}

void link_refuse_node(struct link *link, const char *node, const struct err *err)
{
	struct fleet_node_view view;
	struct session *session = NULL;

	if (link && fleet_node_get(shell_fleet(link->server->shell), node, &view) == 0)
		session = link_session(link, view.session);
	if (session && may_tell(session))
		link_refuse(link, session->number, err, 0);
}

/* ---- handlers: node -> scheduler ---- */

static void address(const struct call *call, struct fleet_event *event)
{
	memcpy(event->node, call->message.id, strnlen(call->message.id, ID_LEN));
	event->session = call->message.session;
	event->at = call->message.at;
}

static int step(struct call *call, struct fleet_event *event, struct ops *extra)
{
	address(call, event);
	shell_step(call->link->server->shell, event, extra, NULL, NULL);
	return 0;
}

/* A node that has seen a higher epoch than ours followed a scheduler that this store does not know of: ours is raised
 * above it, durably, before anything more is commanded. Each raise makes all other nodes greet again, so that one node may
 * cause one in a run, and no more of them than a restore leaves. */
static int raise_epoch(struct call *call, uint64_t highest, struct ops *ops, struct lead_raise **ret, struct err *reterr)
{
	struct server *server = call->link->server;

	if (highest <= MAX(server->epoch, server->raising))
		return 0; /* the hello is behind what is on its way to the store, and so is its welcome */
	if (highest >= EPOCH_MAX)
		return err_set(reterr, FAIL_FRAME_INVALID, ERANGE, "highest_epoch is no epoch that a scheduler made");
	return lead_raise(server, call->message.id, highest + 1, ops, ret, reterr);
}

#define HANDLER(name)                                                                              \
	static int name(void *user, const struct envelope_head *head,                              \
		const Croft__Envelope *envelope, struct err *reterr)

HANDLER(on_hello)
{
	struct call *call = user;
	struct hello hello = { .highest_epoch = 0 };
	struct fleet_event event = { .type = FLEET_NODE_HELLO, .hello = &hello };
	struct lead_raise *raise = NULL;
	struct ops ops = { .n = 0 };
	int r = hello_decode(envelope->hello, &hello, reterr);

	(void)head;
	if (r == 0 && !fleet_hello_is_split(shell_fleet(call->link->server->shell), &hello)) {
		r = raise_epoch(call, hello.highest_epoch, &ops, &raise, reterr);
		/* judged, both of them: the fleet was made with the epoch of the start */
		hello.highest_epoch = 0;
		*hello.leader.run = '\0';
	}
	if (r == 0) {
		link_clock_greeted(call->link, call->message.session, hello.realtime_us);
		address(call, &event);
		shell_step(call->link->server->shell, &event, &ops, raise ? lead_raised : NULL, raise);
	}
	ops_deinit(&ops);
	hello_deinit(&hello);
	return r;
}

HANDLER(on_heartbeat)
{
	struct call *call = user;
	struct heartbeat heartbeat;
	struct fleet_event event = { .type = FLEET_NODE_HEARTBEAT, .heartbeat = &heartbeat };

	(void)head;
	(void)reterr;
	heartbeat_decode(envelope->heartbeat, &heartbeat);
	router_is_lazy(call->link->router);
	(void)step(call, &event, NULL);
	link_clock_ask(call->link, call->message.session, heartbeat.realtime_us);
	return 0;
}

HANDLER(on_inventory)
{
	struct inventory inventory = { .n = 0 };
	struct fleet_event event = { .type = FLEET_NODE_INVENTORY, .inventory = &inventory };
	int r = inventory_decode(envelope->inventory, &inventory, reterr);

	(void)head;
	if (r == 0)
		r = step(user, &event, NULL);
	inventory_deinit(&inventory);
	return r;
}

HANDLER(on_report)
{
	struct call *call = user;
	struct sandbox_report report = { .version = 0 };
	struct fleet_event event = { .type = FLEET_NODE_REPORT, .report = &report };
	int r = sandbox_report_decode(envelope->report, &report, reterr);

	(void)head;
	if (r == 0) {
		link_clock_correct_report(call->link, call->message.session, &report);
		r = step(call, &event, NULL);
	}
	sandbox_report_deinit(&report);
	return r;
}

HANDLER(on_snapshot_dropped)
{
	struct fleet_event event = { .type = FLEET_NODE_SNAPSHOT_DROPPED };
	char id[ID_SIZE];
	int r = snapshot_dropped_decode(envelope->snapshot_dropped, id, reterr);

	(void)head;
	event.dropped_snapshot = id;
	return r == 0 ? step(user, &event, NULL) : r;
}

HANDLER(on_capacity)
{
	struct capacity_report report = { .memory_used_mib = 0 };
	struct fleet_event event = { .type = FLEET_NODE_CAPACITY, .capacity = &report };
	int r = capacity_report_decode(envelope->capacity, &report, reterr);

	(void)head;
	if (r == 0)
		r = step(user, &event, NULL);
	capacity_report_deinit(&report);
	return r;
}

/* The rest is for the current session of the node alone: what an old connection still says about streams and
 * images is about what is gone. */
HANDLER(on_telemetry)
{
	struct call *call = user;

	(void)head;
	(void)reterr;
	if (!link_is_current(call->link, &call->message))
		return 0;
	link_clock_correct_batch(call->link, call->message.session, envelope->telemetry);
	telemetry_on_batch(call->link->server->telemetry, &call->message, envelope->telemetry);
	return 0;
}

HANDLER(on_usage)
{
	struct call *call = user;
	struct usage_report report = { .n = 0 };
	int r = 0;

	(void)head;
	if (!link_is_current(call->link, &call->message))
		return 0;
	r = usage_report_decode(envelope->usage, &report, reterr);
	if (r == 0)
		books_on_report(call->link->server->books, &call->message, &report);
	usage_report_deinit(&report);
	return r;
}

HANDLER(on_image_request)
{
	struct call *call = user;

	(void)head;
	(void)reterr;
	if (link_is_current(call->link, &call->message))
		images_on_request(call->link->server->images, &call->message, envelope->image_request);
	return 0;
}

HANDLER(on_upgrade_result)
{
	struct call *call = user;

	(void)head;
	(void)reterr;
	if (link_is_current(call->link, &call->message))
		upgrades_on_result(call->link->server, &call->message, envelope->upgrade_result);
	return 0;
}

HANDLER(on_stream)
{
	struct call *call = user;

	(void)head;
	(void)reterr;
	if (link_is_current(call->link, &call->message))
		relay_on_message(call->link->server->relay, call->message.session, envelope);
	return 0;
}

HANDLER(on_refused)
{
	const struct call *call = user;
	struct err err = ERR_NULL;

	(void)head;
	(void)reterr;
	if (envelope->refused->failure)
		failure_decode(envelope->refused->failure, &err);
	log_failure(LOG_LEVEL_WARN, "a node refused a message", &err, "node", call->message.id, "seq",
		LOG_NUM(envelope->refused->seq), NULL);
	return 0;
}

HANDLER(on_enroll)
{
	struct call *call = user;

	(void)head;
	(void)reterr;
	enroll_on_message(call->link, call->link->server, &call->message, envelope->enroll);
	return 0;
}

/* ---- the table ---- */
#define KIB 1024u
#define BODY(name) CROFT__ENVELOPE__BODY_##name
#define NODE DISPATCH_IN(SENDER_NODE)
#define TOKEN DISPATCH_IN(SENDER_TOKEN)
/* clang-format off */
static const struct dispatch_row rows[] = {
	{ BODY(ENROLL),         TOKEN, DISPATCH_ANY,    4 * KIB, on_enroll },
	{ BODY(HELLO),          NODE,  DISPATCH_ANY,  512 * KIB, on_hello },
	{ BODY(HEARTBEAT),      NODE,  DISPATCH_ANY,    1 * KIB, on_heartbeat },
	{ BODY(INVENTORY),      NODE,  DISPATCH_ANY, 1024 * KIB, on_inventory },
	{ BODY(REPORT),         NODE,  DISPATCH_ANY,  256 * KIB, on_report },
	{ BODY(CAPACITY),       NODE,  DISPATCH_ANY,  512 * KIB, on_capacity },
	{ BODY(TELEMETRY),      NODE,  DISPATCH_ANY,  128 * KIB, on_telemetry },
	{ BODY(CLOCK_PONG),     NODE,  DISPATCH_ANY,    1 * KIB, link_clock_on_pong },
	{ BODY(USAGE),          NODE,  DISPATCH_ANY,  128 * KIB, on_usage },
	{ BODY(IMAGE_REQUEST),  NODE,  DISPATCH_ANY,    1 * KIB, on_image_request },
	{ BODY(SNAPSHOT_DROPPED), NODE, DISPATCH_ANY,  1 * KIB, on_snapshot_dropped },
	{ BODY(UPGRADE_RESULT), NODE,  DISPATCH_ANY,    8 * KIB, on_upgrade_result },
	{ BODY(STREAM_DATA),    NODE,  DISPATCH_ANY,   66 * KIB, on_stream },
	{ BODY(STREAM_CREDIT),  NODE,  DISPATCH_ANY,    1 * KIB, on_stream },
	{ BODY(STREAM_CLOSE),   NODE,  DISPATCH_ANY,    8 * KIB, on_stream },
	{ BODY(REFUSED),        NODE,  DISPATCH_ANY,    8 * KIB, on_refused },
};
/* clang-format on */

static void count_result(struct counters *counters, enum dispatch_result result)
{
	switch (result) {
	case DISPATCH_UNSUPPORTED:
		counters->link_unsupported++;
		break;
	case DISPATCH_FORBIDDEN:
		counters->link_wrong_role++;
		break;
	case DISPATCH_OK:
	case DISPATCH_MAX_:
		break;
	case DISPATCH_MALFORMED:
	case DISPATCH_VERSION:
	case DISPATCH_STATE:
	case DISPATCH_TOO_LARGE:
	case DISPATCH_FAILED:
		counters->link_invalid++;
		break;
	}
}

/* A revoked node hears that it was revoked, whatever it says. */
static bool is_revoked(const struct link *link, struct session *session)
{
	const uint64_t changes = shell_node_changes(link->server->shell);
	struct fleet_node_view view;

	if (session->role != SENDER_NODE || session->known_at == changes)
		return false;
	if (fleet_node_get(shell_fleet(link->server->shell), session->id, &view) < 0 || view.record->revoked)
		return true;
	session->at = shell_node_handle(link->server->shell, session->id);
	session->known_at = changes;
	return false;
}

static void refuse_revoked(struct link *link, struct session *session)
{
	struct err err = ERR_NULL;

	link->server->counters.link_revoked++;
	if (!may_tell(session))
		return;
	(void)err_set(&err, FAIL_NODE_REVOKED, EACCES, "the key of node %s was revoked", session->id);
	link_refuse(link, session->number, &err, 0);
}

static void on_message(const struct route *from, const char *user_id, const void *data, size_t size, void *user)
{
	struct link *link = user;
	struct session *session = session_for(link, from, user_id);
	struct call call = { .link = link };
	struct envelope_head head;
	struct err err = ERR_NULL;
	enum dispatch_result result;
	uint64_t number, n_removed;

	link->server->counters.link_messages++;
	if (!session)
		return;
	if (is_revoked(link, session)) {
		refuse_revoked(link, session);
		return;
	}
	number = session->number;
	n_removed = link->n_removed;
	call.message = (struct link_message){ .session = number, .id = session->id, .at = session->at };
	result = dispatch(&link->dispatch, data, size, session->role, 0, &call, &head, &err);
	if (link->n_removed != n_removed)
		session = link_session(link, number); /* a handler may have found its route gone */
	if (session)
		session->seq_in = MAX(session->seq_in, head.seq);
	if (result == DISPATCH_OK)
		return;
	count_result(&link->server->counters, result);
	if (session && may_tell(session))
		log_failure(LOG_LEVEL_WARN, "a message was refused", &err, "from", user_id, NULL);
	if (dispatch_is_answerable(result, &head))
		link_refuse(link, number, &err, head.seq);
}

/* ---- who is admitted ---- */
static void admit(struct link *link, const char *public_key, const char *kind, const char *id)
{
	char user_id[SESSION_USER_SIZE];

	(void)snprintf(user_id, sizeof(user_id), "%s:%s", kind, id);
	if (zap_allow(link->zap, public_key, user_id) < 0)
		log_warn("a key could not be admitted", "user", user_id);
}

void link_admit_node(struct link *link, const char *public_key, const char *node)
{
	admit(link, public_key, "node", node);
}

void link_admit_token(struct link *link, const char *public_key, const char *token)
{
	admit(link, public_key, "token", token);
}

void link_admit_all(struct link *link)
{
	const struct fleet *fleet = shell_fleet(link->server->shell);
	char after[ID_SIZE] = "", ids[64][ID_SIZE];
	size_t n;

	while ((n = fleet_node_list(fleet, NULL, after, ids, ARRAY_LEN(ids))) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct fleet_node_view view;

			if (fleet_node_get(fleet, ids[i], &view) == 0 && !view.record->revoked)
				link_admit_node(link, view.record->public_key, ids[i]);
		}
		memcpy(after, ids[n - 1], sizeof(after));
	}
	for (const struct revoked_entry *entry = link->server->registry.revoked; entry; entry = entry->hh.next)
		link_admit_node(link, entry->public_key, entry->node);
	for (const struct token_entry *token = link->server->registry.tokens; token; token = token->hh.next)
		link_admit_token(link, token->public_key, token->id);
}

/* Tokens and revoked keys whose time is over leave ZAP and the store: from then on they are unknown. */
static void on_sweep(evutil_socket_t fd, short what, void *user)
{
	struct link *link = user;
	struct registry *registry = &link->server->registry;
	int64_t before = clock_realtime_usec() - LINK_REMEMBER_USEC;
	struct ops ops = { .n = 0 };
	struct token_entry *token, *next_token;
	struct revoked_entry *revoked, *next_revoked;

	(void)fd;
	(void)what;
	if (shell_failure(link->server->shell))
		return;
	HASH_ITER (hh, registry->tokens, token, next_token) {
		if (token->expires_us >= before)
			continue;
		zap_deny(link->zap, token->public_key);
		registry_remove_token(registry, &ops, token);
	}
	HASH_ITER (hh, registry->revoked, revoked, next_revoked) {
		if (revoked->revoked_us >= before)
			continue;
		zap_deny(link->zap, revoked->public_key);
		registry_remove_revoked(registry, &ops, revoked->node);
	}
	if (ops.n)
		shell_commit(link->server->shell, &ops, NULL, NULL);
	ops_deinit(&ops);
}

/* Where an overlap is over the other key is served: by the next process, since nobody else notices. */
static bool overlap_is_over(const struct link *link)
{
	const struct link_keys *keys = &link->server->keys;

	return *keys->fresh.public_key && clock_realtime_usec() >= keys->until_us;
}

/* Whoever shakes hands waits for the handler; a thread cannot be ended from outside, so this process is. */
static void on_watch(evutil_socket_t fd, short what, void *user)
{
	struct link *link = user;
	struct server *server = link->server;

	(void)fd;
	(void)what;
	if (overlap_is_over(link)) {
		log_info("the overlap of the link's keys is over: started again, it is served with the new one alone");
		(void)event_base_loopbreak(server->base);
		return;
	}
	if (zap_look(link->zap, clock_monotonic_usec()) || err_is_set(&server->fatal))
		return;
	(void)err_set(&server->fatal, FAIL_ZAP_DISABLED, ETIMEDOUT, "the handler that admits nodes does not answer");
	(void)event_base_loopbreak(server->base);
}

static int listen_for_tls(struct link *link, const char *local, struct err *reterr)
{
	const struct options *options = link->server->options;
	const struct tunnel_server_config config = {
		.address = *options->link_tls_address ? options->link_tls_address : options->link_address,
		.port = (uint16_t)options->link_tls_port,
		.cert = options->link_tls_cert,
		.key = options->link_tls_key,
		.local = local,
		.max = (unsigned int)options->link_tls_connections,
	};

	return tunnel_server_new(&link->tls, link->server->base, &config, reterr);
}

/* ---- life ---- */
int link_new(struct link **ret, struct server *server, struct err *reterr)
{
	const struct options *options = server->options;
	const struct timeval every = { .tv_sec = SWEEP_SEC }, second = { .tv_sec = 1 };
	char address[256];
	struct router_config config = { .address = address, .zap_domain = "croft", .keys = server->keys.served };
	struct link *link = calloc(1, sizeof(*link));
	char local[TUNNEL_LOCAL_SIZE], next[256];
	int r;

	if (!link)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	if (*server->keys.fresh.public_key && options->link_next_port) {
		(void)snprintf(next, sizeof(next), "tcp://%s:%u", options->link_address, (unsigned int)options->link_next_port);
		config.next_address = next;
		config.next_keys = server->keys.fresh;
	}
	if (options->link_tls_port) {
		tunnel_local_name(local, "router");
		config.local = local;
	}
	link->server = server;
	link->dispatch = (struct dispatch){ .rows = rows, .n_rows = ARRAY_LEN(rows) };
	(void)snprintf(address, sizeof(address), "tcp://%s:%u", options->link_address, (unsigned int)options->link_port);
	r = zap_new(&link->zap, server->zmq, reterr);
	if (r == 0) {
		link_admit_all(link); /* before the first connection */
		r = router_new(&link->router, server->base, server->zmq, &config, on_message, link, reterr);
	}
	if (r == 0 && options->link_tls_port)
		r = listen_for_tls(link, local, reterr);
	if (r == 0)
		link_set_fill(link);
	if (r == 0) {
		link->sweep = event_new(server->base, -1, EV_PERSIST, on_sweep, link);
		link->watch = event_new(server->base, -1, EV_PERSIST, on_watch, link);
		r = link->sweep && link->watch && event_add(link->sweep, &every) == 0 && event_add(link->watch, &second) == 0
			    ? 0
			    : err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	}
	if (r < 0) {
		link_free(link);
		return r;
	}
	*ret = link;
	return 0;
}

void link_free(struct link *link)
{
	struct session *session, *next;

	if (!link)
		return;
	if (link->sweep)
		event_free(link->sweep);
	if (link->watch)
		event_free(link->watch);
	tunnel_server_free(link->tls);
	router_free(link->router);
	zap_free(link->zap);
	HASH_ITER (by_number, link->by_number, session, next) {
		session_remove(link, session);
	}
	free(link);
}

uint16_t link_tls_port(const struct link *link)
{
	return link->tls ? tunnel_server_port(link->tls) : 0;
}

struct zap *link_zap(const struct link *link)
{
	return link->zap;
}

const char *link_address(const struct link *link)
{
	return router_address(link->router);
}

uint64_t link_denied(const struct link *link)
{
	return zap_denied(link->zap);
}
