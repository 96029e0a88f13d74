/* SPDX-License-Identifier: Apache-2.0
 *
 * See otlp.h. One timer: for the next batch, and for what the log is to be told. Headers and URL may be secrets: neither is logged.
 */
#include "server/otlp.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "server/api.h"
#include "wire/http-client.h"

#define LINGER_US USEC_PER_SEC
#define BACKOFF_MIN_US USEC_PER_SEC
#define BACKOFF_MAX_US (60 * USEC_PER_SEC)
#define RETRY_AFTER_MAX_US (3600 * USEC_PER_SEC)
#define HEADERS_FILE_MAX 16384
#define HEADERS_MAX 16
#define ANSWER_MAX 4096 /* of its body; the rest is not looked at */
#define RUN_NAME "sandbox" /* no stage is called so */

struct otlp {
	struct server *server;
	struct otlp_queue *queue;
	struct event *timer;
	struct http_call *call; /* under way; NULL: none */
	char *headers;          /* the file; fields point into it */
	size_t headers_size;
	struct http_field fields[HEADERS_MAX + 1];
	size_t n_fields;
	char answer[ANSWER_MAX];
	size_t answer_size;
	int status;      /* of the last answer that was not a success; 0: none came */
	char why[128];   /* none came */
};

/* ---- the loop ---- */

static void arm(struct otlp *otlp)
{
	const int64_t now_us = clock_monotonic_usec(), say_us = otlp_queue_say_us(otlp->queue), send_us = otlp_queue_next_us(otlp->queue);
	const int64_t next_us = MIN(say_us, send_us), wait_us = MAX(next_us - now_us, 0);
	const struct timeval wait = { .tv_sec = wait_us / USEC_PER_SEC, .tv_usec = wait_us % USEC_PER_SEC };

	if (next_us == OTLP_NEVER)
		(void)evtimer_del(otlp->timer);
	else
		(void)evtimer_add(otlp->timer, &wait);
}

static void say(struct otlp *otlp)
{
	struct otlp_counts since;

	if (!otlp_queue_say(otlp->queue, clock_monotonic_usec(), &since))
		return;
	log_warn("spans do not reach the collector", "retries", LOG_NUM((long long)since.retries), "full",
		LOG_NUM((long long)since.dropped[OTLP_DROP_FULL]), "untraced", LOG_NUM((long long)since.dropped[OTLP_DROP_UNTRACED]),
		"refused", LOG_NUM((long long)since.dropped[OTLP_DROP_REFUSED]), "rejected",
		LOG_NUM((long long)since.dropped[OTLP_DROP_REJECTED]), "unsent", LOG_NUM((long long)since.dropped[OTLP_DROP_UNSENT]),
		"status", LOG_NUM(otlp->status), "why", *otlp->why ? otlp->why : NULL);
}

/* ---- a request ---- */

static bool on_body(struct http_call *call, const void *data, size_t size, void *user)
{
	struct otlp *otlp = user;
	const size_t more = MIN(size, sizeof(otlp->answer) - otlp->answer_size);

	(void)call;
	memcpy(otlp->answer + otlp->answer_size, data, more);
	otlp->answer_size += more;
	return true;
}

static void on_done(struct http_call *call, const struct err *err, void *user)
{
	struct otlp *otlp = user;
	struct otlp_answer answer = { .status = err ? 0 : http_call_status(call) };
	const char *after = err ? NULL : http_call_header(call, "Retry-After");

	otlp->call = NULL;
	if (after)
		answer.retry_after_us = otlp_retry_after(after, clock_realtime_usec());
	if (answer.status >= 200 && answer.status < 300)
		answer.rejected = otlp_rejected(otlp->answer, otlp->answer_size);
	else
		otlp->status = answer.status;
	(void)snprintf(otlp->why, sizeof(otlp->why), "%s", err ? failure_info(err->code)->name : "");
	otlp_queue_answered(otlp->queue, &answer, clock_monotonic_usec(), &otlp->server->rng);
	say(otlp);
	arm(otlp);
}

static int post(struct otlp *otlp, const char *body)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct err err = ERR_NULL;

	otlp->answer_size = 0;
	config.method = "POST";
	config.url = otlp->server->options->otlp_endpoint;
	config.fields = otlp->fields;
	config.n_fields = otlp->n_fields;
	config.body = body;
	config.body_size = strlen(body);
	config.total_timeout_ms = (int64_t)(otlp->server->options->otlp_timeout / USEC_PER_MSEC);
	config.on_body = on_body;
	config.on_done = on_done;
	config.user = otlp;
	return http_call_start(otlp->server->client, &config, &otlp->call, &err);
}

static void send_batch(struct otlp *otlp, size_t n)
{
	json_t *request = otlp_request(otlp->queue, n, CROFT_VERSION, otlp->server->run);
	char *body = request ? json_dumps(request, JSON_COMPACT) : NULL;

	json_decref(request);
	if (!body || post(otlp, body) < 0)
		otlp_queue_unsent(otlp->queue);
	free(body);
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
	struct otlp *otlp = user;
	const size_t n = otlp_queue_due(otlp->queue, clock_monotonic_usec());

	(void)fd;
	(void)what;
	if (n > 0)
		send_batch(otlp, n);
	say(otlp);
	arm(otlp);
}

/* ---- what comes in ---- */

static void add(struct otlp *otlp, const struct otlp_span *span)
{
	otlp_queue_add(otlp->queue, span, clock_monotonic_usec());
	arm(otlp);
}

static const char *owner_of(const struct otlp *otlp, const char *pool, enum fail_code code)
{
	return code == FAIL_NONE ? NULL : api_owner_name(otlp->server, pool ? pool : "", failure_info(code)->component);
}

void otlp_stage(struct otlp *otlp, const struct stage_fact *fact, const char *span, const struct trace *root)
{
	struct otlp_span ret;

	if (!otlp)
		return;
	otlp_span_of(fact, span, root, fact->outcome == RESULT_FAILED ? owner_of(otlp, fact->pool, fact->code) : NULL, &ret);
	add(otlp, &ret);
}

static struct stage_fact fact_of(const struct sandbox_record *record)
{
	const bool has_failed = record->failure.code != FAIL_NONE && (record->started_us == 0 || record->end_reason == END_FAILED);
	const int64_t ended_us = record->ended_us > 0 ? record->ended_us : clock_realtime_usec();

	return (struct stage_fact){ .when_us = record->created_us,
		.took_us = ended_us - record->created_us,
		.outcome = has_failed ? RESULT_FAILED : RESULT_OK,
		.code = has_failed ? record->failure.code : FAIL_NONE,
		.attempt = record->attempts,
		.vcpus = record->spec->vcpus,
		.memory_mib = record->spec->memory_mib,
		.sandbox = record->id,
		.trace = record->trace.trace_id,
		.tenant = record->tenant,
		.pool = record->pool,
		.node = record->node,
		.template_name = record->spec->template_name,
		.region = record->wish.region };
}

void otlp_run(struct otlp *otlp, const struct sandbox_record *record)
{
	struct stage_fact fact;
	struct otlp_span span;

	if (!otlp)
		return;
	fact = fact_of(record);
	otlp_span_of(&fact, record->trace.span_id, NULL, owner_of(otlp, record->pool, fact.code), &span);
	(void)snprintf(span.name, sizeof(span.name), RUN_NAME);
	add(otlp, &span);
}

/* ---- life ---- */

/* "Name: value"; "#" begins a remark. The text of what is wrong is not said: it may be a secret. */
static int take_header(struct otlp *otlp, char *line, unsigned int number, struct err *reterr)
{
	const char *path = otlp->server->options->otlp_headers_file;
	char *name = line + strspn(line, " \t"), *colon = strchr(name, ':'), *value;

	name[strcspn(name, "\r")] = '\0';
	if (!*name || *name == '#')
		return 0;
	if (!colon || colon == name || strcspn(name, " \t") < (size_t)(colon - name))
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s:%u is not \"Name: value\"", path, number);
	if (otlp->n_fields == ARRAY_LEN(otlp->fields))
		return err_set(reterr, FAIL_CONFIG_INVALID, E2BIG, "%s has more than %d headers", path, HEADERS_MAX);
	*colon = '\0';
	value = colon + 1 + strspn(colon + 1, " \t");
	otlp->fields[otlp->n_fields++] = (struct http_field){ name, value };
	return 0;
}

static int read_headers(struct otlp *otlp, struct err *reterr)
{
	const char *path = otlp->server->options->otlp_headers_file;
	char *line, *rest;
	struct stat st;
	int r;

	otlp->fields[otlp->n_fields++] = (struct http_field){ "Content-Type", "application/json" };
	if (!*path)
		return 0;
	if (stat(path, &st) == 0 && (st.st_mode & S_IRWXO))
		return err_set(reterr, FAIL_CONFIG_INVALID, EPERM, "otlp.headers_file %s is open to others: chmod o= it", path);
	r = file_read(path, HEADERS_FILE_MAX, &otlp->headers, &otlp->headers_size);
	if (r < 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, -r, "otlp.headers_file %s cannot be read", path);
	rest = otlp->headers;
	for (unsigned int n = 1; r == 0 && (line = strsep(&rest, "\n")); n++)
		r = take_header(otlp, line, n, reterr);
	return r;
}

static int open_parts(struct otlp *otlp, struct err *reterr)
{
	const struct options *options = otlp->server->options;
	const struct otlp_config config = { .queue = options->otlp_queue,
		.batch = options->otlp_batch,
		.linger_us = LINGER_US,
		.backoff_min_us = BACKOFF_MIN_US,
		.backoff_max_us = BACKOFF_MAX_US,
		.retry_after_max_us = RETRY_AFTER_MAX_US };
	int r = read_headers(otlp, reterr);

	if (r < 0)
		return r;
	otlp->timer = evtimer_new(otlp->server->base, on_timer, otlp);
	if (otlp_queue_new(&otlp->queue, &config) < 0 || !otlp->timer || event_priority_set(otlp->timer, LOOP_BULK) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the export of spans");
	return 0;
}

int otlp_new(struct otlp **ret, struct server *server, struct err *reterr)
{
	struct otlp *otlp;
	int r;

	*ret = NULL;
	if (!*server->options->otlp_endpoint)
		return 0;
	otlp = calloc(1, sizeof(*otlp));
	if (!otlp)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the export of spans");
	otlp->server = server;
	r = open_parts(otlp, reterr);
	if (r < 0) {
		otlp_free(otlp);
		return r;
	}
	*ret = otlp;
	return 0;
}

void otlp_free(struct otlp *otlp)
{
	if (!otlp)
		return;
	http_call_cancel(otlp->call);
	if (otlp_waiting(otlp) > 0)
		log_warn("spans that waited for the collector are lost with this process", "n", LOG_NUM((long long)otlp_waiting(otlp)));
	(void)otlp_queue_free(otlp->queue);
	if (otlp->timer)
		event_free(otlp->timer);
	if (otlp->headers)
		explicit_bzero(otlp->headers, otlp->headers_size);
	free(otlp->headers);
	free(otlp);
}

struct otlp_counts otlp_count(const struct otlp *otlp)
{
	return otlp ? *otlp_queue_counts(otlp->queue) : (struct otlp_counts){ .sent = 0 };
}

size_t otlp_waiting(const struct otlp *otlp)
{
	return otlp && otlp->queue ? otlp_queue_waiting(otlp->queue) : 0;
}
