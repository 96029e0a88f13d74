/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP API: requests come in through one table of routes (api-route.c), are authenticated and judged by it,
 * and reach a handler with their body and path parameters. A handler answers once, at once or later; an answer
 * always carries the request's traceparent.
 *
 * What belongs to another tenant does not exist: its lookups fail like those of a random id, with the same words.
 */
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "fleet/fleet.h"
#include "server/server.h"
#include "wire/http-server.h"
#include "wire/json.h"

#define API_BODY_MAX (1024 * 1024)
#define API_PARAMS_MAX 2
#define API_PARAM_SIZE 128

/* envdVersion of e2b-wire.md 9: what it unlocks in the SDK is what the gateway can do. */
#define API_ENVD_VERSION "0.5.2"

struct api;
struct api_request;

enum api_body {
	API_NO_BODY, /* ignored */
	API_JSON,    /* collected; may be empty */
	API_STREAM,  /* the handler takes it piece by piece */
};

/* Who may call: a set of roles, each (1u << ROLE_x); none: no key is needed. */
#define API_AS(role) (1u << ROLE_##role)
#define BY_ANYBODY 0u
#define BY_USERS (API_AS(TENANT) | API_AS(CUSTOMER) | API_AS(PROVIDER))
#define BY_PLANNERS (API_AS(CUSTOMER_PLANNER) | API_AS(PROVIDER_PLANNER))
#define BY_ALL (BY_USERS | BY_PLANNERS)
#define BY_OPERATORS (API_AS(CUSTOMER) | API_AS(PROVIDER))
#define BY_WATCHERS (BY_OPERATORS | BY_PLANNERS)
#define BY_PROVIDER API_AS(PROVIDER)
#define BY_PROVIDER_WATCHERS (API_AS(PROVIDER) | API_AS(PROVIDER_PLANNER))

/* What a call can see and touch; the handlers ask api_may_see_...(). */
enum api_scope {
	SCOPE_NONE,     /* nobody's data */
	SCOPE_TENANT,   /* the key's tenant; a key without one may not call */
	SCOPE_REACH,    /* the key's tenant; for operators and planners their customer's, the provider's: all */
	SCOPE_CUSTOMER, /* the key's customer; the provider's: all */
	SCOPE_PROVIDER, /* the whole installation */
	SCOPE_MAX_
};

struct api_route {
	const char *method;
	const char *pattern; /* "/v1/nodes/{id}": {x} is one segment */
	unsigned int roles;  /* BY_... */
	enum api_scope scope;
	enum api_body body;
	void (*handle)(struct api_request *req);
	/* for docs/api.md */
	const char *summary;
	const char *request; /* body and query; "": none */
	const char *response;
};
extern const struct api_route api_routes[];
extern const size_t api_routes_count;
/* Writes docs/api.md. */
void api_write_doc(FILE *out);

/* One request; freed when its client is gone or answered. */
struct api_request {
	struct api *api;
	struct server *server;
	struct http_request *http;
	const struct api_route *route;
	enum role role;
	char tenant[ID_NAME_MAX + 1]; /* "": none */
	char customer[ID_NAME_MAX + 1];
	char key_id[KEY_ID_LEN + 1]; /* "": none was needed */
	struct {
		bool is_set;
		uint64_t limit, left, wait_s;
	} rate; /* what the X-RateLimit-* fields say */
	char params[API_PARAMS_MAX][API_PARAM_SIZE];
	struct trace trace;
	int64_t began_usec, began_us; /* monotonic and wall */
	const char *body;             /* of API_JSON, during handle() */
	size_t body_size;
	struct {
		char sandbox[ID_SIZE];
		uint64_t timeout_s;
		void (*on_reply)(struct api_request *req, const struct fleet_reply *reply);
	} wake; /* of api_sandbox_wake() */
	bool is_answered;
	bool is_accepted;             /* what api-mark.c was told */
	bool is_audited;              /* the audit log has that it was asked for, or will */
	enum fail_code failed;        /* with what it was answered */
	char made[ID_NAME_MAX + 1];   /* id or name of what its answer is about; "": not known */
	bool is_list;     /* the answer is an array: it says how old it is */
	int64_t as_of_us; /* wall clock of the oldest word that the answer rests on; 0: the scheduler's own of now */

	/* waiting for the fleet, for the store, or for a sandbox to change */
	uint64_t handle_number; /* 0: none; a key of api->waiting */
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply);
	void (*on_history)(struct api_request *req, struct sandbox_record *record); /* NULL: none */
	char watched[ID_SIZE];
	uint64_t watched_version;
	struct event *timer;
	TAILQ_ENTRY(api_request) in_watchers;
	bool is_watching;
	UT_hash_handle hh;
	void *extra; /* the handler's own, freed with extra_free */
	void (*extra_free)(void *extra);
};

int api_new(struct api **ret, struct server *server, struct err *reterr);
void api_free(struct api *api);
uint16_t api_port(const struct api *api);
unsigned int api_active(const struct api *api);

/* From the shell. */
void api_on_reply(struct api *api, struct fleet_reply *reply);
void api_on_sandbox_changed(struct api *api, const char *sandbox);
void api_fail_all(struct api *api, const struct err *err);

/* ---- for handlers ---- */
void api_answer(struct api_request *req, int status,
	json_t *body); /* takes the reference; NULL is NO_MEMORY */
void api_answer_with(struct api_request *req, int status, json_t *body,
	const struct http_field *fields, size_t n);
/* The answer rests on what a node said then (wall clock; 0: it never spoke). Lists say the oldest in X-Croft-As-Of. */
void api_as_of(struct api_request *req, int64_t heard_us);
void api_answer_empty(struct api_request *req, int status);
void api_answer_text(struct api_request *req, int status, const char *content_type,
	const char *text, size_t size);
void api_answer_bytes(struct api_request *req, int status, const char *content_type, const struct http_field *fields, size_t n,
	const void *bytes, size_t size);
/* One that goes on until its client leaves: `want` as of http_respond_stream(). */
void api_answer_stream(struct api_request *req, const char *content_type, const struct http_field *fields, size_t n, http_want want,
	void *user);
void api_fail(struct api_request *req, const struct err *err);
/* With what else is known about the failure. */
void api_fail_with(
	struct api_request *req, const struct err *err, const struct failure_context *context);
/* The body as an object (an empty one when there is none); NULL: the request was answered. */
json_t *api_json(struct api_request *req);
/* A number for a fleet event; its reply comes to on_reply(), also before this stack unwinds. */
uint64_t api_await(struct api_request *req,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply));
/* An event (NULL: none) and records as one batch; on_reply() comes when it is durable, or with the failure. The
 * operations are taken out. */
void api_step(struct api_request *req, const struct fleet_event *event, struct ops *ops,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply));
/* Reads an ended sandbox; on_history() comes later. */
void api_read_history(struct api_request *req, const char *sandbox,
	void (*on_history)(struct api_request *req, struct sandbox_record *record));
/* Watches a sandbox: `again` (the route's handler) runs when it changed or the time is over. */
void api_watch(struct api_request *req, const char *sandbox, int64_t wait_usec);
/* false once the time of api_watch() is over. */
bool api_may_wait(const struct api_request *req);
/* Whose a failure in `pool` is; NULL: the default table of self-hosting. */
const struct responsibility_table *api_responsibility(const struct server *server, const char *pool);
/* Whose a component is in `pool`, by the table above. */
enum fail_owner api_owner(const struct server *server, const char *pool, enum fail_component component);
const char *api_owner_name(const struct server *server, const char *pool, enum fail_component component);
const char *api_query(const struct api_request *req, const char *name);
/* Where the page of a list begins (`nextToken`): behind this one, or, where it is gone since, behind when it was made. */
struct api_page {
	char after[ID_SIZE]; /* "": at the start */
	int64_t after_us;
};
#define API_PAGE_TOKEN_SIZE (ID_LEN + 17)
int api_page_read(const struct api_request *req, struct api_page *ret, struct err *reterr); /* INVALID_ARGUMENT */
void api_page_token(const struct api_page *page, char ret[static API_PAGE_TOKEN_SIZE]);
/* 0 and *ret unchanged when absent; INVALID_ARGUMENT naming it. */
int api_query_u64(const struct api_request *req, const char *name, uint64_t min, uint64_t max,
	uint64_t *ret, struct err *reterr);

/* ---- api-scope.c: what a key reaches; what it does not reach does not exist for it ---- */
bool api_may_see_customer(const struct api_request *req, const char *customer);
bool api_may_see_pool(const struct api_request *req, const char *pool);
bool api_may_see_tenant(const struct api_request *req, const char *tenant);
/* Whether a list is of all that the key reaches, not of its tenant alone: asked for (scope=all), or it has none. */
bool api_wants_all(const struct api_request *req);

/* ---- api-sandbox.c, for api-create.c and api-sleep.c ---- */
void api_sandbox_not_found(struct api_request *req);
void api_sandbox_fail(struct api_request *req, const struct fleet_reply *reply);
/* Whether this tenant has a live sandbox of this id. */
bool api_sandbox_is_own(const struct api_request *req, const char *id);
/* 0, or the request was answered. */
int api_sandbox_find(struct api_request *req, const char *id, struct sandbox_record *ret, struct fleet_sandbox_view *view);
void api_sandbox_set_timeout(struct api_request *req, uint64_t timeout_s,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply));
/* Wakes a sandbox that sleeps, or that is on its way there, once it does. `timeout_s`: its new life time; 0: as it was made.
 * on_reply() gets a record that runs, or the failure. */
void api_sandbox_wake(struct api_request *req, const struct sandbox_record *record, const struct fleet_sandbox_view *view,
	uint64_t timeout_s, void (*on_reply)(struct api_request *req, const struct fleet_reply *reply));
bool api_sandbox_sleeps(const struct fleet_sandbox_view *view); /* or is on its way there, or back */
/* Steps with `event`, a change of the sandbox in the path, and answers; or fails with `err`, if that is set, or as it is not theirs. */
void api_sandbox_change(struct api_request *req, struct fleet_event *event, const struct err *err);
void api_sandbox_on_changed(struct api_request *req, const struct fleet_reply *reply); /* 204, or the failure */

/* ---- api-idempotency.c ---- */
struct api_idempotency {
	char hex[KEY_HEX_SIZE]; /* "": no Idempotency-Key was sent */
	char fingerprint[KEY_HEX_SIZE];
};
enum api_idempotency_is { IDEMPOTENCY_NEW, IDEMPOTENCY_REPEATED, IDEMPOTENCY_REFUSED };
/* Looks at the header. `kind` names what is made ("sandbox"). REPEATED: *ret_object is what it made then (valid until
 * the registry changes). REFUSED: the request was answered. */
enum api_idempotency_is api_idempotency(struct api_request *req, const char *kind,
	const json_t *body, struct api_idempotency *ret, const char **ret_object);
/* What it made, in the same batch; nothing without a key. */
void api_idempotency_keep(struct api_request *req, const struct api_idempotency *idempotency,
	struct ops *ops, const char *object);

/* ---- handlers ---- */
void api_health(struct api_request *req);
void api_metrics(struct api_request *req);
void api_sandbox_create(struct api_request *req);       /* waits until it is ready */
void api_sandbox_create_async(struct api_request *req); /* answers when it is placed */
void api_sandbox_list(struct api_request *req);
void api_sandbox_list_v1(struct api_request *req);
void api_sandbox_get(struct api_request *req);
void api_sandbox_get_v1(struct api_request *req);
void api_sandbox_audit(struct api_request *req);
void api_sandbox_diff(struct api_request *req);
void api_sandbox_delete(struct api_request *req);
void api_sandbox_delete_v1(struct api_request *req);
void api_sandbox_timeout(struct api_request *req);
void api_sandbox_budget(struct api_request *req);
void api_sandbox_mark(struct api_request *req);
void api_sandbox_network(struct api_request *req);
void api_sandbox_pause(struct api_request *req);
void api_sandbox_resume(struct api_request *req);
void api_sandbox_connect(struct api_request *req);
void api_snapshot_create(struct api_request *req);
void api_snapshot_list(struct api_request *req);
void api_snapshot_delete(struct api_request *req);
void api_sandbox_fork(struct api_request *req);
void api_explain(struct api_request *req);
void api_capacity(struct api_request *req);
void api_node_list(struct api_request *req);
void api_node_get(struct api_request *req);
void api_node_revoke(struct api_request *req);
void api_node_telemetry(struct api_request *req);
void api_node_cordon(struct api_request *req);
void api_node_uncordon(struct api_request *req);
void api_node_drain(struct api_request *req);
void api_node_take(struct api_request *req);
void api_node_remove(struct api_request *req);
void api_customer_create(struct api_request *req);
void api_customer_list(struct api_request *req);
void api_customer_get(struct api_request *req);
void api_customer_revoke(struct api_request *req);
void api_pool_create(struct api_request *req);
void api_pool_list(struct api_request *req);
void api_pool_get(struct api_request *req);
void api_pool_change(struct api_request *req);
void api_pool_revoke(struct api_request *req);
void api_warm_list(struct api_request *req);
void api_warm_set(struct api_request *req);
/* A template has another version: the warm pools of it follow. */
void api_warm_follow(struct server *server, struct ops *ops, const char *tenant, const char *name,
	const struct template_version *version);
void api_tenant_create(struct api_request *req);
void api_tenant_list(struct api_request *req);
void api_tenant_get(struct api_request *req);
void api_tenant_change(struct api_request *req);
void api_tenant_revoke(struct api_request *req);
void api_key_create(struct api_request *req);
void api_key_list(struct api_request *req);
void api_key_get(struct api_request *req);
void api_key_revoke(struct api_request *req);
void api_token_create(struct api_request *req);
void api_token_list(struct api_request *req);
void api_token_delete(struct api_request *req);
void api_stages(struct api_request *req);
void api_stage_rates(struct api_request *req);
void api_stage_history(struct api_request *req);
void api_trace(struct api_request *req);
void api_usage(struct api_request *req);
void api_audit(struct api_request *req);
void api_template_put(struct api_request *req);
void api_node_upgrade(struct api_request *req);
void api_node_upgrade_get(struct api_request *req);
void api_template_list(struct api_request *req);
void api_whoami(struct api_request *req);
void api_dashboard(struct api_request *req);
void api_dashboard_enter(struct api_request *req);
void api_events(struct api_request *req);
void api_failures(struct api_request *req);
void api_fleet(struct api_request *req);

