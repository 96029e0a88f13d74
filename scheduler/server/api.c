/* SPDX-License-Identifier: Apache-2.0
 *
 * See api.h: routing, keys, answers, waiting.
 */
#include "server/api.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/audit.h"
#include "server/codec.h"
#include "server/events.h"
#include "server/relay.h"
#include "server/shell.h"

#define IDLE_TIMEOUT_S 120

TAILQ_HEAD(watchers, api_request);

struct api {
	struct server *server;
	struct http_server *http;
	struct api_request *waiting; /* for the fleet, by handle_number */
	uint64_t last_number;
	struct watchers watchers;
};

/* ---- answers ---- */
static void count_answer(struct api_request *req, int status)
{
	struct counters *counters = &req->server->counters;
	unsigned int hundreds = (unsigned int)status / 100;

	req->is_answered = true;
	audit_answered(req, status);
	counters->http_requests[hundreds < ARRAY_LEN(counters->http_requests) ? hundreds : 0]++;
}

static void respond(struct api_request *req, int status, const char *content_type,
	const struct http_field *fields, size_t n, const void *body, size_t size)
{
	struct http_field all[12];
	char traceparent[TRACEPARENT_SIZE], numbers[3][24], as_of[CLOCK_RFC3339_SIZE];
	size_t own = 0;

	if (req->is_answered)
		return;
	trace_format(&req->trace, traceparent);
	all[own++] = (struct http_field){ "traceparent", traceparent };
	if (req->rate.is_set) {
		(void)snprintf(numbers[0], 24, "%" PRIu64, req->rate.limit);
		(void)snprintf(numbers[1], 24, "%" PRIu64, req->rate.left);
		(void)snprintf(numbers[2], 24, "%" PRIu64, req->rate.wait_s);
		all[own++] = (struct http_field){ "X-RateLimit-Limit", numbers[0] };
		all[own++] = (struct http_field){ "X-RateLimit-Remaining", numbers[1] };
		all[own++] = (struct http_field){ "X-RateLimit-Reset", numbers[2] };
	}
	if (req->is_list && status == 200)
		all[own++] = (struct http_field){ "X-Croft-As-Of", clock_format_rfc3339(req->as_of_us ? req->as_of_us :
			clock_realtime_usec(), as_of, sizeof(as_of)) };
	n = MIN(n, ARRAY_LEN(all) - own);
	for (size_t i = 0; i < n; i++)
		all[own + i] = fields[i];
	count_answer(req, status);
	if (http_respond(req->http, status, content_type, all, own + n, body, size) < 0)
		log_debug("an answer could not be sent");
}

void api_as_of(struct api_request *req, int64_t heard_us)
{
	if (heard_us > 0 && (req->as_of_us == 0 || heard_us < req->as_of_us))
		req->as_of_us = heard_us;
}

/* What was made, for the audit log; never a secret, which has other members. */
static void note_made(struct api_request *req, const json_t *body)
{
	static const char *const members[] = { "sandboxID", "snapshotID", "id", "name" };

	for (size_t i = 0; i < ARRAY_LEN(members) && !*req->made; i++) {
		const char *text = json_string_value(json_object_get(body, members[i]));

		if (text)
			(void)snprintf(req->made, sizeof(req->made), "%s", text);
	}
}

void api_answer_with(struct api_request *req, int status, json_t *body,
	const struct http_field *fields, size_t n)
{
	char *text = body ? json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	struct err err = ERR_NULL;

	req->is_list = json_is_array(body);
	note_made(req, body);
	json_decref(body);
	if (text) {
		respond(req, status, "application/json", fields, n, text, strlen(text));
		free(text);
		return;
	}
	(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for the answer");
	api_fail(req, &err);
}

void api_answer(struct api_request *req, int status, json_t *body)
{
	api_answer_with(req, status, body, NULL, 0);
}

void api_answer_empty(struct api_request *req, int status)
{
	respond(req, status, NULL, NULL, 0, "", 0);
}

void api_answer_text(struct api_request *req, int status, const char *content_type,
	const char *text, size_t size)
{
	respond(req, status, content_type, NULL, 0, text, size);
}

void api_answer_bytes(struct api_request *req, int status, const char *content_type, const struct http_field *fields, size_t n,
	const void *bytes, size_t size)
{
	respond(req, status, content_type, fields, n, bytes, size);
}

void api_answer_stream(struct api_request *req, const char *content_type, const struct http_field *fields, size_t n, http_want want,
	void *user)
{
	count_answer(req, 200);
	if (http_respond_stream(req->http, 200, content_type, fields, n, -1, want, user) < 0)
		log_debug("an answer could not be sent");
}

void api_fail_with(
	struct api_request *req, const struct err *err, const struct failure_context *context)
{
	json_t *body = json_error_body(err, context);
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	const char *fallback = "{\"code\":500,\"message\":\"no memory\"}";
	char wait[24] = "1";
	const struct http_field retry = { "Retry-After", wait };
	const char *after = err_field(err, "retry_after_s");
	bool says_when = after || err->code == FAIL_RATE_LIMITED;
	int status = failure_info(err->code)->http;

	if (after)
		(void)snprintf(wait, sizeof(wait), "%s", after);
	else if (says_when)
		(void)snprintf(wait, sizeof(wait), "%" PRIu64, MAX(req->rate.wait_s, 1));
	json_decref(body);
	req->failed = err->code;
	respond(req, status, "application/json", &retry, says_when ? 1 : 0,
		text ? text : fallback, strlen(text ? text : fallback));
	free(text);
}

/* Before a pool is known: the table of the customer's first one. */
static const struct responsibility_table *customers_table(const struct api_request *req)
{
	for (const struct pool_entry *p = req->server->registry.pools; p; p = p->hh.next)
		if (*req->customer && !strcmp(p->record.customer, req->customer))
			return &p->record.owners;
	return NULL;
}

void api_fail(struct api_request *req, const struct err *err)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_SELF,
		.table = customers_table(req),
		.trace = &req->trace,
		.tenant = *req->tenant ? req->tenant : NULL,
		.began_us = req->began_us,
		.took_us = clock_monotonic_usec() - req->began_usec };

	api_fail_with(req, err, &context);
}

const struct responsibility_table *api_responsibility(const struct server *server, const char *pool)
{
	const struct pool_entry *entry = registry_pool(&server->registry, pool);

	return entry ? &entry->record.owners : NULL;
}

enum fail_owner api_owner(const struct server *server, const char *pool, enum fail_component component)
{
	const struct responsibility_table *table = api_responsibility(server, pool);

	return table ? table->owner[component] : component_owner(component, RESPONSIBILITY_SELF);
}

const char *api_owner_name(const struct server *server, const char *pool, enum fail_component component)
{
	return owner_name(api_owner(server, pool, component));
}

/* ---- waiting for the fleet ---- */
uint64_t api_await(struct api_request *req,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply))
{
	struct api *api = req->api;

	req->handle_number = ++api->last_number;
	req->on_reply = on_reply;
	HASH_ADD(hh, api->waiting, handle_number, sizeof(req->handle_number), req);
	return req->handle_number;
}

static void stop_waiting(struct api_request *req)
{
	if (req->handle_number == 0)
		return;
	HASH_DEL(req->api->waiting, req);
	req->handle_number = 0;
}

void api_on_reply(struct api *api, struct fleet_reply *reply)
{
	struct api_request *req = NULL;

	HASH_FIND(hh, api->waiting, &reply->request, sizeof(reply->request), req);
	if (!req)
		return;
	stop_waiting(req);
	req->on_reply(req, reply);
}

void api_fail_all(struct api *api, const struct err *err)
{
	struct api_request *req, *next;

	HASH_ITER (hh, api->waiting, req, next) {
		stop_waiting(req);
		api_fail(req, err);
	}
}

/* A request that waits for a batch of the shell's; it may be gone when the batch is durable. */
struct pending {
	struct api *api;
	struct fleet_reply reply;
};

static void on_durable(const struct err *err, void *user)
{
	struct pending *pending = user;

	if (err)
		pending->reply.err = *err;
	api_on_reply(pending->api, &pending->reply);
	free(pending);
}

void api_step(struct api_request *req, const struct fleet_event *event, struct ops *ops,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply))
{
	struct pending *pending = calloc(1, sizeof(*pending));
	struct err err = ERR_NULL;

	if (!pending) {
		ops_deinit(ops);
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a change");
		api_fail(req, &err);
		return;
	}
	pending->api = req->api;
	pending->reply.request = api_await(req, on_reply);
	if (event)
		shell_step(req->server->shell, event, ops, on_durable, pending);
	else
		shell_commit(req->server->shell, ops, on_durable, pending);
}

/* ---- waiting for a sandbox to change ---- */
static void unwatch(struct api_request *req)
{
	if (!req->is_watching)
		return;
	TAILQ_REMOVE(&req->api->watchers, req, in_watchers);
	req->is_watching = false;
	(void)event_del(req->timer);
}

static void on_watch_over(evutil_socket_t fd, short what, void *user)
{
	struct api_request *req = user;

	(void)fd;
	(void)what;
	unwatch(req);
	*req->watched = '\0'; /* no more waiting: the next look answers */
	req->route->handle(req);
}

void api_watch(struct api_request *req, const char *sandbox, int64_t wait_usec)
{
	const struct timeval tv = { .tv_sec = wait_usec / USEC_PER_SEC,
		.tv_usec = wait_usec % USEC_PER_SEC };

	if (!req->timer)
		req->timer = evtimer_new(req->server->base, on_watch_over, req);
	(void)snprintf(req->watched, sizeof(req->watched), "%s", sandbox);
	if (!event_pending(req->timer, EV_TIMEOUT, NULL))
		(void)event_add(req->timer, &tv);
	TAILQ_INSERT_TAIL(&req->api->watchers, req, in_watchers);
	req->is_watching = true;
}

bool api_may_wait(const struct api_request *req)
{
	return !req->timer || event_pending(req->timer, EV_TIMEOUT, NULL);
}

void api_on_sandbox_changed(struct api *api, const char *sandbox)
{
	struct api_request *req, *next;

	for (req = TAILQ_FIRST(&api->watchers); req; req = next) {
		next = TAILQ_NEXT(req, in_watchers);
		if (strcmp(req->watched, sandbox))
			continue;
		TAILQ_REMOVE(
			&api->watchers, req, in_watchers); /* the timer runs on: the wait is one */
		req->is_watching = false;
		req->route->handle(req);
	}
}

/* ---- history ---- */
struct history_read {
	struct api *api;
	uint64_t number; /* of the request, which may be gone when the answer comes */
};

static void on_history_read(
	const void *value, size_t size, uint64_t revision, const struct err *err, void *user)
{
	struct history_read *read = user;
	struct sandbox_record record = { .incarnation = 0 };
	struct api_request *req = NULL;
	struct err broken = ERR_NULL;

	(void)revision;
	HASH_FIND(hh, read->api->waiting, &read->number, sizeof(read->number), req);
	free(read);
	if (!req)
		return;
	stop_waiting(req);
	if (err)
		broken = *err;
	if (!value && !err) {
		req->on_history(req, NULL);
	} else if (!err && codec_sandbox_decode("history", value, size, &record, &broken) == 0) {
		req->on_history(req, &record);
		sandbox_record_deinit(&record);
	} else {
		api_fail(req, &broken);
	}
}

void api_read_history(struct api_request *req, const char *sandbox,
	void (*on_history)(struct api_request *req, struct sandbox_record *record))
{
	struct history_read *read = calloc(1, sizeof(*read));
	struct err err = ERR_NULL;
	char key[64];

	(void)snprintf(key, sizeof(key), "history/%.*s", ID_LEN, sandbox);
	if (!read) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a read");
		api_fail(req, &err);
		return;
	}
	req->on_history = on_history;
	*read = (struct history_read){ req->api, api_await(req, NULL) };
	if (store_read(req->server->store, key, on_history_read, read, &err) < 0) {
		stop_waiting(req);
		free(read);
		api_fail(req, &err);
	}
}

/* ---- requests ---- */
static void request_free(void *data)
{
	struct api_request *req = data;

	unwatch(req);
	if (!req->is_answered)
		audit_answered(req, 0);
	if (req->handle_number) {
		const struct fleet_event event = { .type = FLEET_FORGET,
			.request = req->handle_number };

		stop_waiting(req);
		if (req->on_reply && shell_fleet(req->server->shell))
			shell_step(req->server->shell, &event, NULL, NULL, NULL);
	}
	if (req->timer)
		event_free(req->timer);
	if (req->extra_free)
		req->extra_free(req->extra);
	free(req);
}

/* Matches one path against one pattern and takes its parameters. */
static bool match(const char *pattern, const char *path, char params[][API_PARAM_SIZE])
{
	unsigned int n = 0;

	while (*pattern) {
		size_t len;

		if (*pattern != '{') {
			if (*pattern++ != *path++)
				return false;
			continue;
		}
		len = strcspn(path, "/");
		if (len == 0 || len >= API_PARAM_SIZE || n == API_PARAMS_MAX)
			return false;
		memcpy(params[n], path, len);
		params[n++][len] = '\0';
		path += len;
		pattern = strchr(pattern, '}') + 1;
	}
	return *path == '\0';
}

/* NULL: none, and `reterr` says whether the path or the method is wrong. */
static const struct api_route *find_route(
	struct api_request *req, char *allow, size_t size, struct err *reterr)
{
	const char *method = http_method(req->http), *path = http_path(req->http);
	size_t used = 0;

	for (size_t i = 0; i < api_routes_count; i++) {
		int n;

		if (!match(api_routes[i].pattern, path, req->params))
			continue;
		if (!strcmp(api_routes[i].method, method))
			return &api_routes[i];
		n = snprintf(
			allow + used, size - used, "%s%s", used ? ", " : "", api_routes[i].method);
		used = MIN(size - 1, used + (n > 0 ? (size_t)n : 0));
	}
	if (used)
		(void)err_set(
			reterr, FAIL_METHOD_NOT_ALLOWED, EINVAL, "this path knows %s only", allow);
	else
		(void)err_set(reterr, FAIL_NO_SUCH_PATH, ENOENT, "there is nothing at this path");
	return NULL;
}

/* The key as X-API-Key or as a bearer token. */
static const char *presented_key(const struct api_request *req)
{
	const char *key = http_header(req->http, "x-api-key");
	const char *bearer = http_header(req->http, "authorization");

	if (key)
		return key;
	if (bearer && !strncasecmp(bearer, "Bearer ", 7))
		return bearer + 7 + strspn(bearer + 7, " ");
	return NULL;
}

/* One token of the key's bucket. */
static int take_rate(struct api_request *req, struct key_entry *key, struct err *reterr)
{
	const struct options *options = req->server->options;

	if (options->rate_per_second == 0)
		return 0;
	req->rate.is_set = true;
	req->rate.limit = options->rate_burst;
	if (rate_take(&key->rate, req->began_usec, options->rate_per_second, options->rate_burst,
		    &req->rate.left, &req->rate.wait_s))
		return 0;
	req->server->counters.rate_limited++;
	(void)err_set(reterr, FAIL_RATE_LIMITED, EBUSY, "this key sends more than %llu requests a second",
		(unsigned long long)options->rate_per_second);
	err_add(reterr, "limit", "%llu", (unsigned long long)options->rate_burst);
	return -EBUSY;
}

static int authorise(struct api_request *req, struct err *reterr)
{
	const char *secret = presented_key(req);
	const struct api_route *route = req->route;
	struct key_entry *key = secret ? registry_key(&req->server->registry, secret) : NULL;

	if (route->roles == BY_ANYBODY)
		return 0;
	if (!key) {
		req->server->counters.unauthenticated++;
		return err_set(reterr, FAIL_UNAUTHENTICATED, EACCES,
			secret ? "the key is not valid" : "no key was sent");
	}
	req->role = key->role;
	(void)snprintf(req->tenant, sizeof(req->tenant), "%s", key->tenant);
	(void)snprintf(req->customer, sizeof(req->customer), "%s", key->customer);
	(void)snprintf(req->key_id, sizeof(req->key_id), "%.*s", KEY_ID_LEN, key->hex);
	if (take_rate(req, key, reterr) < 0)
		return -EBUSY;
	if (!(route->roles & (1u << req->role)) || (route->scope == SCOPE_TENANT && !*req->tenant)) {
		req->server->counters.forbidden++;
		return err_set(reterr, FAIL_FORBIDDEN, EPERM, "a key of role %s%s may not do this",
			role_name(req->role), *req->tenant ? "" : " without a tenant");
	}
	return 0;
}

/* A full disk: nothing is made or set up. What ends something, or changes what is there already, goes on. */
static int check_room(const struct api_request *req, struct err *reterr)
{
	const struct api_route *route = req->route;
	const bool is_new = (!strcmp(route->method, "POST") && !strchr(route->pattern, '{') &&
				    route->handle != api_explain) ||
			    route->handle == api_snapshot_create || route->handle == api_sandbox_fork;

	if (!shell_is_tight(req->server->shell) || (!is_new && strcmp(route->method, "PUT") != 0))
		return 0;
	return err_set(reterr, FAIL_STORE_FULL, ENOSPC,
		"the scheduler's disk is full: nothing new is taken, deletes go on");
}

static void on_body(struct http_request *http, const char *body, size_t size, void *user)
{
	struct api_request *req = user;

	(void)http;
	req->body = body;
	req->body_size = size;
	req->route->handle(req);
	req->body = NULL;
	req->body_size = 0;
}

static void start_trace(struct api_request *req)
{
	const char *given = http_header(req->http, "traceparent");
	struct trace parent;

	if (given && trace_parse(given, &parent) == 0)
		trace_child(&req->server->rng, &parent, &req->trace);
	else
		trace_new(&req->server->rng, &req->trace);
}

static void on_request(struct http_request *http, void *user)
{
	struct api *api = user;
	struct api_request *req = calloc(1, sizeof(*req));
	struct err err = ERR_NULL;
	char allow[64] = "";

	if (!req) {
		(void)http_respond_json(http, 503, "{\"code\":503,\"message\":\"no memory\"}");
		return;
	}
	*req = (struct api_request){ .api = api, .server = api->server, .http = http };
	req->began_usec = clock_monotonic_usec();
	req->began_us = clock_realtime_usec();
	start_trace(req);
	http_set_data(http, req, request_free);
	if (relay_takes(api->server->relay, req))
		return;
	if (api->server->stopping) {
		(void)err_set(&err, FAIL_SHUTTING_DOWN, ESHUTDOWN, "the scheduler is stopping");
		api_fail(req, &err);
		return;
	}
	req->route = find_route(req, allow, sizeof(allow), &err);
	if (!req->route && err.code == FAIL_METHOD_NOT_ALLOWED) {
		const struct http_field field = { "Allow", allow };
		const struct failure_context context = { .trace = &req->trace };

		api_answer_with(req, 405, json_error_body(&err, &context), &field, 1);
	} else if (!req->route || authorise(req, &err) < 0 || check_room(req, &err) < 0) {
		api_fail(req, &err);
	} else if (audit_asked(req), req->route->body == API_JSON) {
		http_read_body(http, API_BODY_MAX, on_body, req);
	} else {
		req->route->handle(req);
	}
}

static void on_closed(struct http_request *http, void *user)
{
	(void)http;
	(void)user; /* request_free() does it */
}

/* ---- life ---- */
int api_new(struct api **ret, struct server *server, struct err *reterr)
{
	static const struct http_handler handler = { .on_request = on_request,
		.on_closed = on_closed };
	const struct options *options = server->options;
	const struct http_server_config config = { .address = options->api_address,
		.port = (uint16_t)options->api_port,
		.max_connections = (unsigned int)options->api_connections,
		.idle_timeout_s = IDLE_TIMEOUT_S,
		.tls_cert = options->tls_cert,
		.tls_key = options->tls_key };
	struct api *api = calloc(1, sizeof(*api));
	int r;

	if (!api)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the API");
	api->server = server;
	TAILQ_INIT(&api->watchers);
	r = http_server_new(&api->http, server->base, &config, &handler, api, reterr);
	if (r < 0) {
		free(api);
		return r;
	}
	*ret = api;
	return 0;
}

void api_free(struct api *api)
{
	if (!api)
		return;
	http_server_free(api->http);
	free(api);
}

uint16_t api_port(const struct api *api)
{
	return http_server_port(api->http);
}

/* Relayed calls and watches may last as long as their clients like: a stop does not wait for them. */
unsigned int api_active(const struct api *api)
{
	unsigned int active = http_server_active(api->http),
		     patient = (unsigned int)relay_count(api->server->relay) + events_clients(api->server->events);
	const struct api_request *req;

	TAILQ_FOREACH (req, &api->watchers, in_watchers)
		patient++;
	return active > patient ? active - patient : 0;
}
