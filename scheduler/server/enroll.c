/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining: the one message that a join token may send. A token makes one node. The same node may ask again (its
 * answer may have been lost): it gets the same answer. Everybody else is refused by name: JOIN_TOKEN_USED,
 * JOIN_TOKEN_EXPIRED, JOIN_TOKEN_REVOKED. The node's key is admitted when its record is durable, not before.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/audit.h"
#include "server/link.h"
#include "server/message.h"
#include "server/ops.h"
#include "server/shell.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

struct enrolling {
	struct server *server;
	struct link *link;
	uint64_t session;
	char token[ID_SIZE];
	char node[ID_SIZE];
	char pool[ID_NAME_MAX + 1];
	char public_key[KEY_Z85_SIZE];
};

static void answer(struct link *link, uint64_t session, const char *node, const char *pool,
	const struct err *err)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__EnrollResult result = MESSAGE(Croft__EnrollResult, croft__enroll_result__init);
	char node_text[ID_SIZE], pool_text[ID_NAME_MAX + 1];

	COPY(node_text, node);
	COPY(pool_text, pool);
	result.node_id = node_text;
	result.pool = pool_text;
	result.failure = err ? failure_encode(err) : NULL;
	envelope.body_case = CROFT__ENVELOPE__BODY_ENROLL_RESULT;
	envelope.enroll_result = &result;
	(void)link_send(link, session, &envelope);
	if (result.failure)
		croft__failure_record__free_unpacked(result.failure, NULL);
}

static void refuse(struct link *link, struct server *server, const struct link_message *message,
	const struct err *err)
{
	server->counters.enroll_refused++;
	log_failure(LOG_LEVEL_WARN, "a join was refused", err, "token", message->id, NULL);
	answer(link, message->session, "", "", err);
}

static void on_durable(const struct err *err, void *user)
{
	struct enrolling *enrolling = user;

	if (err) {
		answer(enrolling->link, enrolling->session, "", "", err);
	} else {
		enrolling->server->counters.enrolled++;
		log_info("a node joined", "node", enrolling->node, "pool", enrolling->pool, "token",
			enrolling->token);
		link_admit_node(enrolling->link, enrolling->public_key, enrolling->node);
		answer(enrolling->link, enrolling->session, enrolling->node, enrolling->pool, NULL);
	}
	free(enrolling);
}

/* The token's own state, most final first. */
static int check_token(const struct token_entry *token, int64_t now_us, struct err *reterr)
{
	char expired[CLOCK_RFC3339_SIZE];

	if (token->revoked)
		return err_set(reterr, FAIL_JOIN_TOKEN_REVOKED, EACCES, "join token %s was revoked",
			token->id);
	if (token->used)
		return err_set(reterr, FAIL_JOIN_TOKEN_USED, EACCES, "join token %s made node %s",
			token->id, token->used_by);
	if (token->expires_us <= now_us)
		return err_set(reterr, FAIL_JOIN_TOKEN_EXPIRED, ETIME,
			"join token %s expired at %s", token->id,
			clock_format_rfc3339(token->expires_us, expired, sizeof(expired)));
	return 0;
}

static bool key_is_taken(const struct server *server, const char *public_key)
{
	const struct fleet *fleet = shell_fleet(server->shell);
	char after[ID_SIZE] = "", ids[64][ID_SIZE];
	size_t n;

	for (const struct token_entry *token = server->registry.tokens; token;
		token = token->hh.next)
		if (!strcmp(token->public_key, public_key))
			return true;
	while ((n = fleet_node_list(fleet, NULL, after, ids, ARRAY_LEN(ids))) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct fleet_node_view view;

			if (fleet_node_get(fleet, ids[i], &view) == 0 &&
				!strcmp(view.record->public_key, public_key))
				return true;
		}
		memcpy(after, ids[n - 1], sizeof(after));
	}
	return false;
}

static int check_enroll(
	const struct server *server, const Croft__Enroll *enroll, struct err *reterr)
{
	int r = curve_key_check(enroll->node_key, reterr);

	if (r < 0)
		return r;
	if (!id_is_valid(enroll->machine))
		return err_set(reterr, FAIL_FRAME_INVALID, EINVAL, "the join names no machine");
	if (key_is_taken(server, enroll->node_key))
		return err_set(reterr, FAIL_ALREADY_JOINED, EEXIST,
			"this key belongs to a node or a token already");
	return 0;
}

/* The same node asks again: the same answer, without a second node. */
static bool answer_again(struct link *link, struct server *server,
	const struct link_message *message, const struct token_entry *token,
	const Croft__Enroll *enroll)
{
	struct fleet_node_view view;

	if (!token->used || token->revoked ||
		fleet_node_get(shell_fleet(server->shell), token->used_by, &view) < 0 ||
		view.record->revoked || strcmp(view.record->public_key, enroll->node_key) ||
		strcmp(view.record->machine, enroll->machine))
		return false;
	if (shell_held(server->shell) == 0) /* else the first answer is still to come */
		answer(link, message->session, view.record->id, view.record->pool, NULL);
	return true;
}

/* Before the new node, in the same turn: a crash in between leaves a token that works and a host whose former self is gone,
 * which it is anyhow. */
static void revoke_former(struct server *server, const struct token_entry *token)
{
	struct fleet_event event = { .type = FLEET_NODE_REVOKED, .is_reimaged = true };
	struct fleet_node_view view;
	struct ops ops = { .n = 0 };

	if (!*token->replaces || fleet_node_get(shell_fleet(server->shell), token->replaces, &view) < 0 || view.record->revoked)
		return;
	if (registry_add_revoked(&server->registry, &ops, view.record->id, view.record->public_key, clock_realtime_usec()) < 0)
		ops.no_memory = true;
	log_info("a node's host was set up anew", "node", view.record->id, "token", token->id);
	memcpy(event.node, view.record->id, sizeof(event.node));
	shell_step(server->shell, &event, &ops, NULL, NULL);
	ops_deinit(&ops);
}

static void make_node(struct link *link, struct server *server, const struct link_message *message,
	struct token_entry *token, const Croft__Enroll *enroll)
{
	struct enrolling *enrolling = calloc(1, sizeof(*enrolling));
	struct node_record record = { .joined_us = clock_realtime_usec() };
	const struct fleet_event event = { .type = FLEET_NODE_ENROLLED, .node_record = &record };
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (!enrolling) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a join");
		refuse(link, server, message, &err);
		return;
	}
	id_new(&server->rng, record.id);
	COPY(record.public_key, enroll->node_key);
	COPY(record.pool, token->pool);
	COPY(record.hostname, enroll->hostname);
	COPY(record.machine, enroll->machine);
	record.labels = token->labels; /* borrowed: the fleet copies */
	record.n_labels = token->n_labels;
	if (*token->adopt_tenant) { /* until its inventory was seen it is as after a restore (fleet/adopt.c) */
		COPY(record.adopt_tenant, token->adopt_tenant);
		COPY(record.lineage, token->id);
	}
	*enrolling =
		(struct enrolling){ .server = server, .link = link, .session = message->session };
	COPY(enrolling->token, token->id);
	COPY(enrolling->node, record.id);
	COPY(enrolling->pool, record.pool);
	COPY(enrolling->public_key, record.public_key);
	revoke_former(server, token);
	token->used = true;
	COPY(token->used_by, record.id);
	registry_put_token(&ops, token);
	audit_note(server->audit, "token", token->id, "node join", record.id);
	shell_step(server->shell, &event, &ops, on_durable, enrolling);
	ops_deinit(&ops);
}

void enroll_on_message(struct link *link, struct server *server, const struct link_message *message,
	const Croft__Enroll *enroll)
{
	struct token_entry *token = registry_token(&server->registry, message->id);
	struct err err = ERR_NULL;

	if (!token)
		(void)err_set(&err, FAIL_JOIN_TOKEN_EXPIRED, ETIME, "join token %s is long gone",
			message->id);
	else if (answer_again(link, server, message, token, enroll))
		return;
	else if (check_token(token, clock_realtime_usec(), &err) == 0)
		(void)check_enroll(server, enroll, &err);
	if (err_is_set(&err) || !token)
		refuse(link, server, message, &err);
	else
		make_node(link, server, message, token, enroll);
}
