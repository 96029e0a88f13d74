/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes and join tokens over HTTP, for operators. A customer's operator sees the customer's own pools; the
 * provider's operator sees all. What a join token's file holds is answered once, when it is made: its secret is
 * kept nowhere.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/api.h"
#include "server/codec.h"
#include "server/link.h"
#include "server/shell.h"
#include "server/telemetry.h"
#include "server/view.h"

#define LABELS_MAX 32
#define LABEL_MAX 128
#define ENDPOINTS_MAX 8
#define ENDPOINT_MAX 255

/* ---- nodes ---- */
static int find_node(struct api_request *req, struct fleet_node_view *ret)
{
	struct err err = ERR_NULL;

	if (fleet_node_get(shell_fleet(req->server->shell), req->params[0], ret) == 0 &&
		api_may_see_pool(req, ret->record->pool))
		return 0;
	(void)err_set(&err, FAIL_NODE_NOT_FOUND, ENOENT, "there is no such node");
	api_fail(req, &err);
	return -ENOENT;
}

void api_node_list(struct api_request *req)
{
	const struct fleet *fleet = shell_fleet(req->server->shell);
	char after[ID_SIZE] = "", ids[64][ID_SIZE];
	json_t *list = json_array();
	size_t n, n_ready = 0;
	char ready[24];

	while ((n = fleet_node_list(fleet, NULL, after, ids, ARRAY_LEN(ids))) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct fleet_node_view view;

			if (fleet_node_get(fleet, ids[i], &view) < 0 ||
				!api_may_see_pool(req, view.record->pool))
				continue;
			api_as_of(req, view.heard_us);
			n_ready += view.link == NODE_READY;
			(void)json_array_append_new(list, view_node(req->server, &view));
		}
		memcpy(after, ids[n - 1], sizeof(after));
	}
	(void)snprintf(ready, sizeof(ready), "%zu", n_ready);
	api_answer_with(req, 200, list, &(struct http_field){ "X-Croft-Nodes-Ready", ready }, 1);
}

void api_node_get(struct api_request *req)
{
	struct fleet_node_view view;

	if (find_node(req, &view) == 0)
		api_answer(req, 200, view_node(req->server, &view));
}

void api_node_telemetry(struct api_request *req)
{
	struct fleet_node_view view;
	struct err err = ERR_NULL;
	uint64_t after = 0;

	if (api_query_u64(req, "after", 0, INT64_MAX, &after, &err) < 0) {
		api_fail(req, &err);
		return;
	}
	if (find_node(req, &view) == 0)
		api_answer(req, 200,
			json_pack("{s:o, s:o}", "counts",
				telemetry_node_json(req->server->telemetry, view.record->id),
				"records",
				telemetry_recent_json(
					req->server->telemetry, view.record->id, after)));
}

static void on_no_content(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err))
		api_fail(req, &reply->err);
	else
		api_answer_empty(req, 204);
}

void api_node_revoke(struct api_request *req)
{
	struct fleet_event event = { .type = FLEET_NODE_REVOKED };
	struct fleet_node_view view;
	struct ops ops = { .n = 0 };

	if (find_node(req, &view) < 0)
		return;
	if (view.record->revoked) {
		api_answer_empty(req, 204);
		return;
	}
	/* the key stays admitted for a while: it hears that it was revoked, and nothing else */
	if (registry_add_revoked(&req->server->registry, &ops, view.record->id,
		    view.record->public_key, clock_realtime_usec()) < 0)
		ops.no_memory = true;
	log_info("a node is revoked", "node", view.record->id);
	memcpy(event.node, view.record->id, sizeof(event.node));
	api_step(req, &event, &ops, on_no_content);
}

/* ---- tokens ---- */
struct token_request {
	struct token_entry token;
	char endpoints[ENDPOINTS_MAX][ENDPOINT_MAX + 1];
	unsigned int n_endpoints;
};

static int invalid(const char *field, const char *why, struct err *reterr)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s", field, why);
	err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

static int add_endpoint(struct token_request *request, const char *text, struct err *reterr)
{
	if ((strncmp(text, "tcp://", 6) != 0 && strncmp(text, "tls://", 6) != 0) || strlen(text) > ENDPOINT_MAX ||
		strpbrk(text, " \t\r\n,=#"))
		return invalid("endpoints", "must be tcp:// or tls:// addresses", reterr);
	if (request->n_endpoints == ENDPOINTS_MAX)
		return invalid("endpoints", "are more than 8", reterr);
	(void)snprintf(request->endpoints[request->n_endpoints++], ENDPOINT_MAX + 1, "%s", text);
	return 0;
}

/* Where we listen. */
static int add_own(const struct server *server, struct token_request *request, struct err *reterr)
{
	const struct options *options = server->options;
	const char *colon = strrchr(link_address(server->link), ':'), *address = options->link_address;
	char own[ENDPOINT_MAX + 1];
	int r = add_endpoint(request, link_own_endpoint("tcp", address, (unsigned int)atoi(colon ? colon + 1 : "0"), own,
		sizeof(own)), reterr);

	if (*options->link_tls_address)
		address = options->link_tls_address;
	if (r == 0 && link_tls_port(server->link))
		r = add_endpoint(request, link_own_endpoint("tls", address, link_tls_port(server->link), own, sizeof(own)), reterr);
	if (r == 0 && *server->keys.fresh.public_key && options->link_next_port)
		r = add_endpoint(request, link_own_endpoint("tcp", options->link_address, (unsigned int)options->link_next_port, own,
			sizeof(own)), reterr);
	return r;
}

/* As asked, else as the options say, else where we listen. */
static int read_endpoints(const json_t *body, const struct server *server,
	struct token_request *request, struct err *reterr)
{
	const json_t *list = json_object_get(body, "endpoints");
	CLEANUP_FREE char *copy = strdup(server->options->link_advertise);
	char *rest, *one;
	int r = 0;

	if (list && !json_is_array(list))
		return invalid("endpoints", "must be a list of tcp:// or tls:// addresses", reterr);
	for (size_t i = 0; list && i < json_array_size(list) && r == 0; i++) {
		const char *text = json_string_value(json_array_get(list, i));

		r = text ? add_endpoint(request, text, reterr)
			 : invalid("endpoints", "must be a list of tcp:// or tls:// addresses", reterr);
	}
	if (r < 0 || request->n_endpoints)
		return r;
	for (one = copy ? strtok_r(copy, ", ", &rest) : NULL; one && r == 0;
		one = strtok_r(NULL, ", ", &rest))
		r = add_endpoint(request, one, reterr);
	if (r == 0 && request->n_endpoints == 0)
		r = add_own(server, request, reterr);
	return r;
}

static int read_labels(const json_t *body, struct token_entry *token, struct err *reterr)
{
	json_t *labels = json_object_get(body, "labels"), *value;
	const char *name;

	if (!labels)
		return 0;
	if (!json_is_object(labels) || json_object_size(labels) > LABELS_MAX)
		return invalid("labels", "must be an object of at most 32 strings", reterr);
	token->labels = calloc(json_object_size(labels) + 1, sizeof(*token->labels));
	if (!token->labels)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for labels");
	json_object_foreach(labels, name, value)
	{
		struct sandbox_field *field = &token->labels[token->n_labels];

		if (!json_is_string(value) || strlen(name) > LABEL_MAX ||
			json_string_length(value) > LABEL_MAX)
			return invalid("labels", "must be strings of at most 128 bytes", reterr);
		token->n_labels++;
		field->key = strdup(name);
		field->value = strdup(json_string_value(value));
		if (!field->key || !field->value)
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for labels");
	}
	return 0;
}

/* The host that joins was this node: its pool and labels are the new one's, where the request names none. */
static int read_replaces(struct api_request *req, const json_t *body, struct token_entry *token, const char **pool, struct err *reterr)
{
	const char *node = "";
	struct fleet_node_view view;
	int r = json_get_string(body, "replaces", ID_SIZE - 1, &node, reterr);

	if (r < 0 || !*node)
		return r;
	if (!id_is_valid(node) || fleet_node_get(shell_fleet(req->server->shell), node, &view) < 0 ||
		!api_may_see_pool(req, view.record->pool))
		return err_set(reterr, FAIL_NODE_NOT_FOUND, ENOENT, "there is no such node");
	memcpy(token->replaces, view.record->id, sizeof(token->replaces));
	if (!**pool)
		*pool = view.record->pool;
	if (!json_object_get(body, "labels") && registry_copy_labels(view.record->labels, view.record->n_labels, token) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for labels");
	return 0;
}

/* Whose become the sandboxes that the node brings along: a tenant's that may use the pool. */
static int read_adopt(struct api_request *req, const json_t *body, struct token_entry *token, struct err *reterr)
{
	const struct tenant_entry *tenant;
	const char *name = "";
	int r = json_get_string(body, "adopt_tenant", ID_NAME_MAX, &name, reterr);

	if (r < 0 || !*name)
		return r;
	tenant = registry_tenant_of_pool(&req->server->registry, token->pool, name);
	if (!tenant)
		return err_set(reterr, FAIL_TENANT_NOT_FOUND, ENOENT, "the pool's customer has no such tenant");
	memcpy(token->adopt_tenant, tenant->name, sizeof(token->adopt_tenant));
	return 0;
}

static int read_token_request(struct api_request *req, const json_t *body,
	struct token_request *request, struct err *reterr)
{
	struct token_entry *token = &request->token;
	uint64_t ttl_s = (uint64_t)(req->server->options->token_ttl / USEC_PER_SEC);
	const char *pool = "";
	int r = json_get_u64(body, "ttl_s", 1, ttl_s, &ttl_s, reterr);

	if (r == 0)
		r = json_get_string(body, "pool", ID_NAME_MAX, &pool, reterr);
	if (r == 0)
		r = read_labels(body, token, reterr);
	if (r == 0)
		r = read_endpoints(body, req->server, request, reterr);
	if (r == 0)
		r = read_replaces(req, body, token, &pool, reterr);
	if (r < 0)
		return r;
	for (const struct pool_entry *p = req->server->registry.pools; p && !*token->pool;
		p = p->hh.next)
		if (!p->revoked_us && api_may_see_pool(req, p->record.name) && (!*pool || !strcmp(pool, p->record.name)))
			(void)snprintf(token->pool, sizeof(token->pool), "%s", p->record.name);
	if (!*token->pool)
		return err_set(reterr, FAIL_POOL_NOT_FOUND, ENOENT, "there is no such pool");
	if (read_adopt(req, body, token, reterr) < 0)
		return -EINVAL;
	id_new(&req->server->rng, token->id);
	token->created_us = clock_realtime_usec();
	token->expires_us = token->created_us + (int64_t)ttl_s * USEC_PER_SEC;
	return 0;
}

/* The file that `croft-node join` reads (node-agent/agent/identity.h). */
static char *token_file(const struct server *server, const struct token_request *request,
	const struct curve_keys *keys)
{
	char text[ENDPOINTS_MAX * (ENDPOINT_MAX + 16) + 1024], expires[CLOCK_RFC3339_SIZE];
	size_t used = (size_t)snprintf(text, sizeof(text), "# croft join token\n");

	for (unsigned int i = 0; i < request->n_endpoints; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "scheduler%s = %s\n",
			strncmp(request->endpoints[i], "tls", 3) ? "" : "_tls", request->endpoints[i]);
	(void)snprintf(text + used, sizeof(text) - used,
		"scheduler_key = %s\nscheduler_next_key = %s\nscheduler_old_key = %s\ntoken_id = %s\ntoken_public = %s\ntoken_secret = %s\npool = %s\nexpires = %s\n",
		link_keys_newest(&server->keys)->public_key, server->keys.next,
		*server->keys.fresh.public_key ? server->keys.served.public_key : "", request->token.id, keys->public_key, keys->secret_key,
		request->token.pool,
		clock_format_rfc3339(request->token.expires_us, expires, sizeof(expires)));
	return strdup(text);
}

static const char *token_state(const struct token_entry *token)
{
	if (token->revoked)
		return "revoked";
	if (token->used)
		return "used";
	return token->expires_us <= clock_realtime_usec() ? "expired" : "unused";
}

static json_t *view_token(const struct token_entry *token)
{
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s?, s:s?, s:s?}", "id", token->id, "pool",
		token->pool, "state", token_state(token), "labels",
		view_fields(token->labels, token->n_labels), "created",
		view_time(token->created_us), "expires", view_time(token->expires_us), "used_by",
		*token->used_by ? token->used_by : NULL, "adopt_tenant", *token->adopt_tenant ? token->adopt_tenant : NULL,
		"replaces", *token->replaces ? token->replaces : NULL);
}

struct made_token {
	char id[ID_SIZE];
	char *file;
};

static void made_token_free(void *extra)
{
	struct made_token *made = extra;

	if (made->file)
		explicit_bzero(made->file, strlen(made->file));
	free(made->file);
	free(made);
}

static void on_token_made(struct api_request *req, const struct fleet_reply *reply)
{
	const struct made_token *made = req->extra;
	const struct token_entry *token = registry_token(&req->server->registry, made->id);
	json_t *object;

	if (err_is_set(&reply->err) || !token) {
		api_fail(req, &reply->err);
		return;
	}
	link_admit_token(req->server->link, token->public_key, token->id);
	object = view_token(token);
	(void)json_object_set_new(object, "file", json_string(made->file));
	api_answer(req, 201, object);
}

static void make_token(struct api_request *req, struct token_request *request,
	const struct api_idempotency *idempotency)
{
	struct made_token *made = calloc(1, sizeof(*made));
	struct curve_keys keys;
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (!made)
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a token");
	if (!made || curve_keys_new(&keys, &err) < 0) {
		free(made);
		api_fail(req, &err);
		return;
	}
	memcpy(request->token.public_key, keys.public_key, sizeof(request->token.public_key));
	memcpy(made->id, request->token.id, sizeof(made->id));
	made->file = token_file(req->server, request, &keys);
	explicit_bzero(&keys, sizeof(keys));
	req->extra = made;
	req->extra_free = made_token_free;
	if (!made->file || registry_add_token(&req->server->registry, &ops, &request->token) < 0)
		ops.no_memory = true;
	api_idempotency_keep(req, idempotency, &ops, made->id);
	api_step(req, NULL, &ops, on_token_made);
}

/* The token that the same request made before; its file is nowhere any more. */
static void on_token_shown(struct api_request *req, const struct fleet_reply *reply)
{
	const struct made_token *made = req->extra;
	const struct token_entry *token = registry_token(&req->server->registry, made->id);
	struct err err = reply->err;

	if (!err_is_set(&err) && !token)
		(void)err_set(&err, FAIL_TOKEN_NOT_FOUND, ENOENT, "the token was removed meanwhile");
	if (err_is_set(&err))
		api_fail(req, &err);
	else
		api_answer(req, 201, view_token(token));
}

static void show_token(struct api_request *req, const char *id)
{
	struct made_token *made = calloc(1, sizeof(*made));
	struct ops none = { .n = 0, .no_memory = !made };

	if (made) {
		(void)snprintf(made->id, sizeof(made->id), "%.*s", ID_LEN, id);
		req->extra = made;
		req->extra_free = made_token_free;
	}
	api_step(req, NULL, &none, on_token_shown);
}

void api_token_create(struct api_request *req)
{
	struct token_request request = { .n_endpoints = 0 };
	json_t *body = api_json(req);
	struct api_idempotency idempotency;
	const char *before = NULL;
	struct err err = ERR_NULL;

	if (!body)
		return;
	switch (api_idempotency(req, "token", body, &idempotency, &before)) {
	case IDEMPOTENCY_NEW:
		if (read_token_request(req, body, &request, &err) < 0)
			api_fail(req, &err);
		else
			make_token(req, &request, &idempotency);
		break;
	case IDEMPOTENCY_REPEATED:
		show_token(req, before);
		break;
	case IDEMPOTENCY_REFUSED:
		break;
	}
	json_decref(body);
	codec_fields_free(request.token.labels, request.token.n_labels);
}

void api_token_list(struct api_request *req)
{
	json_t *list = json_array();

	for (const struct token_entry *token = req->server->registry.tokens; token;
		token = token->hh.next)
		if (api_may_see_pool(req, token->pool))
			(void)json_array_append_new(list, view_token(token));
	api_answer(req, 200, list);
}

/* It stays in ZAP's table, so that who comes with it hears JOIN_TOKEN_REVOKED. */
void api_token_delete(struct api_request *req)
{
	struct token_entry *token = registry_token(&req->server->registry, req->params[0]);
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (!token || !api_may_see_pool(req, token->pool)) {
		(void)err_set(&err, FAIL_TOKEN_NOT_FOUND, ENOENT, "there is no such token");
		api_fail(req, &err);
		return;
	}
	token->revoked = true;
	registry_put_token(&ops, token);
	api_step(req, NULL, &ops, on_no_content);
}
