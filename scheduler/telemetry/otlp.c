/* SPDX-License-Identifier: Apache-2.0
 *
 * See otlp.h.
 */
#include "telemetry/otlp.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/util.h"

#define TOOK_MAX_US (400 * 24 * 3600 * USEC_PER_SEC) /* what a node says of a time is bounded, so that its end can be written */
#define SHIFT_MAX 20

struct otlp_queue {
	struct otlp_config config;
	struct otlp_span *list; /* a ring of config.queue */
	size_t first, n;
	size_t n_batch; /* of the front, since it was sent first; 0: none was */
	bool is_under_way;
	unsigned int n_failed;   /* attempts at this batch */
	int64_t since_us;        /* the front waits, or may have */
	int64_t not_before_us;   /* of a batch that is sent again */
	struct otlp_counts counts, said;
	int64_t said_us; /* may be said again from then on */
};

const char *otlp_drop_name(enum otlp_drop drop)
{
	static const char *const names[OTLP_DROP_MAX_] = {
		[OTLP_DROP_FULL] = "full",
		[OTLP_DROP_UNTRACED] = "untraced",
		[OTLP_DROP_REFUSED] = "refused",
		[OTLP_DROP_REJECTED] = "rejected",
		[OTLP_DROP_UNSENT] = "unsent",
	};

	return names[drop];
}

/* ---- a span ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
	return fnv1a(hash, text, strlen(text) + 1); /* the end of each text too */
}

static void derive_span(const struct stage_fact *fact, char ret[static SPAN_ID_SIZE])
{
	uint64_t hash = FNV1A_BASIS;
	char numbers[64];

	(void)snprintf(numbers, sizeof(numbers), "%" PRId64 " %" PRIu32, fact->when_us, fact->attempt);
	hash = hash_text(hash, fact->trace ? fact->trace : "");
	hash = hash_text(hash, fact->sandbox ? fact->sandbox : "");
	hash = hash_text(hash, stage_name(fact->stage));
	hash = hash_text(hash, numbers);
	(void)snprintf(ret, SPAN_ID_SIZE, "%016" PRIx64, hash ? hash : 1);
}

static const char *or_empty(const char *text)
{
	return text ? text : "";
}

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", or_empty(from)))

void otlp_span_of(const struct stage_fact *fact, const char *span, const struct trace *root, const char *owner, struct otlp_span *ret)
{
	*ret = (struct otlp_span){ .began_us = MAX(fact->when_us, 0),
		.took_us = MIN(MAX(fact->took_us, 0), TOOK_MAX_US),
		.outcome = fact->outcome,
		.code = fact->outcome == RESULT_FAILED ? fact->code : FAIL_NONE,
		.n = MAX(fact->n, 1),
		.attempt = fact->attempt,
		.vcpus = fact->vcpus,
		.memory_mib = fact->memory_mib };
	COPY(ret->trace, fact->trace);
	if (span && *span)
		COPY(ret->span, span);
	else
		derive_span(fact, ret->span);
	if (root && !strcmp(root->trace_id, ret->trace) && strcmp(root->span_id, ret->span) != 0)
		COPY(ret->parent, root->span_id);
	COPY(ret->name, stage_name(fact->stage));
	COPY(ret->sandbox, fact->sandbox);
	COPY(ret->node, fact->node);
	COPY(ret->owner, owner);
	COPY(ret->tenant, fact->tenant);
	COPY(ret->pool, fact->pool);
	COPY(ret->template_name, fact->template_name);
	COPY(ret->version, fact->version);
	COPY(ret->region, fact->region);
}

/* By W3C's rules: a node's word is taken for no more than what it may be. */
static bool is_traced(const struct otlp_span *span)
{
	struct trace trace = { .trace_id = "" }, parsed;
	char text[TRACEPARENT_SIZE];

	COPY(trace.trace_id, span->trace);
	COPY(trace.span_id, span->span);
	trace_format(&trace, text);
	if (trace_parse(text, &parsed) < 0)
		return false;
	COPY(trace.span_id, span->parent);
	trace_format(&trace, text);
	return !*span->parent || trace_parse(text, &parsed) == 0;
}

/* ---- the queue ---- */

int otlp_queue_new(struct otlp_queue **ret, const struct otlp_config *config)
{
	struct otlp_queue *queue = calloc(1, sizeof(*queue));

	*ret = NULL;
	if (!queue)
		return -ENOMEM;
	queue->config = *config;
	queue->list = calloc(config->queue, sizeof(*queue->list)); /* touched as it fills */
	if (!queue->list) {
		(void)otlp_queue_free(queue);
		return -ENOMEM;
	}
	*ret = queue;
	return 0;
}

struct otlp_queue *otlp_queue_free(struct otlp_queue *queue)
{
	if (queue)
		free(queue->list);
	free(queue);
	return NULL;
}

void otlp_queue_add(struct otlp_queue *queue, const struct otlp_span *span, int64_t now_us)
{
	if (!is_traced(span)) {
		queue->counts.dropped[OTLP_DROP_UNTRACED]++;
		return;
	}
	if (queue->n == queue->config.queue) {
		queue->counts.dropped[OTLP_DROP_FULL]++;
		return;
	}
	if (queue->n == queue->n_batch) /* nothing waits behind what is under way */
		queue->since_us = now_us;
	queue->list[(queue->first + queue->n++) % queue->config.queue] = *span;
}

int64_t otlp_queue_next_us(const struct otlp_queue *queue)
{
	if (queue->is_under_way || queue->n == 0)
		return OTLP_NEVER;
	if (queue->n_batch > 0)
		return queue->not_before_us;
	return queue->n >= queue->config.batch ? queue->since_us : queue->since_us + queue->config.linger_us;
}

size_t otlp_queue_due(struct otlp_queue *queue, int64_t now_us)
{
	if (otlp_queue_next_us(queue) > now_us)
		return 0;
	if (queue->n_batch == 0) {
		queue->n_batch = MIN(queue->n, queue->config.batch);
		queue->since_us = now_us; /* of those behind: they wait for this one in any case */
	}
	queue->is_under_way = true;
	return queue->n_batch;
}

const struct otlp_span *otlp_queue_at(const struct otlp_queue *queue, size_t i)
{
	return &queue->list[(queue->first + i) % queue->config.queue];
}

size_t otlp_queue_waiting(const struct otlp_queue *queue)
{
	return queue->n;
}

const struct otlp_counts *otlp_queue_counts(const struct otlp_queue *queue)
{
	return &queue->counts;
}

/* ---- answers ---- */

/* What OTLP calls retryable, and no answer at all. */
static bool is_for_later(int status)
{
	return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

/* Half of it is drawn, so that schedulers that lost one collector do not come back as one. */
static int64_t backoff(const struct otlp_queue *queue, struct rng *rng)
{
	const struct otlp_config *config = &queue->config;
	const int64_t whole = MIN(config->backoff_min_us << MIN(queue->n_failed - 1, SHIFT_MAX), config->backoff_max_us);

	return whole / 2 + (int64_t)rng_below(rng, (uint64_t)(whole - whole / 2) + 1);
}

static void forget_batch(struct otlp_queue *queue)
{
	queue->first = (queue->first + queue->n_batch) % queue->config.queue;
	queue->n -= queue->n_batch;
	queue->n_batch = 0;
	queue->n_failed = 0;
	queue->is_under_way = false;
}

void otlp_queue_answered(struct otlp_queue *queue, const struct otlp_answer *answer, int64_t now_us, struct rng *rng)
{
	const uint64_t rejected = MIN(answer->rejected, queue->n_batch);

	if (!queue->is_under_way)
		return;
	if (is_for_later(answer->status)) {
		queue->is_under_way = false;
		queue->n_failed++;
		queue->counts.retries++;
		/* the pause that is drawn comes on top: who were told the same time do not come back at once */
		queue->not_before_us = now_us + backoff(queue, rng) + MIN(answer->retry_after_us, queue->config.retry_after_max_us);
		return;
	}
	if (answer->status >= 200 && answer->status < 300) {
		queue->counts.sent += queue->n_batch - rejected;
		queue->counts.dropped[OTLP_DROP_REJECTED] += rejected;
	} else {
		queue->counts.dropped[OTLP_DROP_REFUSED] += queue->n_batch;
	}
	forget_batch(queue);
}

void otlp_queue_unsent(struct otlp_queue *queue)
{
	queue->counts.dropped[OTLP_DROP_UNSENT] += queue->n_batch;
	forget_batch(queue);
}

/* ---- what the log is told ---- */

static bool has_news(const struct otlp_queue *queue)
{
	return queue->counts.retries != queue->said.retries ||
	       memcmp(queue->counts.dropped, queue->said.dropped, sizeof(queue->said.dropped)) != 0;
}

int64_t otlp_queue_say_us(const struct otlp_queue *queue)
{
	return has_news(queue) ? queue->said_us : OTLP_NEVER;
}

bool otlp_queue_say(struct otlp_queue *queue, int64_t now_us, struct otlp_counts *ret_since)
{
	if (otlp_queue_say_us(queue) > now_us)
		return false;
	ret_since->sent = queue->counts.sent - queue->said.sent;
	ret_since->retries = queue->counts.retries - queue->said.retries;
	for (size_t i = 0; i < OTLP_DROP_MAX_; i++)
		ret_since->dropped[i] = queue->counts.dropped[i] - queue->said.dropped[i];
	queue->said = queue->counts;
	queue->said_us = now_us + OTLP_SAY_US;
	return true;
}

int64_t otlp_retry_after(const char *text, int64_t real_us)
{
	struct tm tm = { .tm_isdst = 0 };
	const char *end;
	int64_t when_us;

	if (strspn(text, "0123456789") == strlen(text))
		return strlen(text) > 9 ? 999999999 * USEC_PER_SEC : strtoll(text, NULL, 10) * USEC_PER_SEC;
	end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
	if (!end || *end)
		return 0;
	when_us = (int64_t)timegm(&tm) * USEC_PER_SEC;
	return MAX(when_us - real_us, 0);
}
