/* SPDX-License-Identifier: Apache-2.0
 *
 * See telemetry.h.
 */
#include "server/telemetry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "server/codec.h"
#include "server/ended.h"
#include "server/events.h"
#include "server/feed.h"
#include "server/message.h"
#include "server/ops.h"
#include "server/otlp.h"
#include "server/rollups.h"
#include "server/shell.h"
#include "telemetry/histogram.h"

#define DETAIL_SIZE 120
#define AHEAD_US (60 * USEC_PER_SEC) /* that a node's clock may be of this one */

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

struct stage_count {
	uint64_t ok, failed, skipped;
	struct histogram took; /* of those that ran */
	double took_s;         /* of them together */
};

/* One record as it is shown to people. */
struct recent {
	uint64_t seq;
	int64_t when_us;
	char what[40]; /* stage or event */
	enum outcome outcome;
	int64_t took_us;
	char sandbox[ID_SIZE];
	enum fail_code code;
	uint64_t n;               /* calls that it stands for */
	char span[SPAN_ID_SIZE];  /* of a call */
	char detail[DETAIL_SIZE]; /* of a failure what it says, of an event its fields */
};

struct node_telemetry {
	char node[ID_SIZE];
	uint64_t session; /* that sent last */
	uint64_t taken;   /* highest seq taken */
	uint64_t repeated;
	uint64_t dropped;              /* the spool said so */
	uint64_t missing;              /* the spool lost them without a word */
	uint64_t kept[TELEMETRY_KEEP]; /* first seqs of the batches in the store, a ring */
	unsigned int n_kept, first_kept;
	struct recent recent[TELEMETRY_RECENT]; /* a ring */
	unsigned int n_recent, first_recent;
	UT_hash_handle hh;
};

/* The stage of a live sandbox that was counted last. A record keeps its latest stages alone, so that a position in it says nothing. */
struct counted {
	struct rollup_mark last; /* stage STAGE_NONE: none was */
	UT_hash_handle hh;
};

struct telemetry {
	struct server *server;
	struct counted *counted;
	struct facts *facts;
	struct stage_count totals[STAGE_MAX_]; /* of everything since the start, for the metrics */
	struct node_telemetry *nodes;
	struct ended ended;
	bool is_loading; /* what nodes said is read after all that ended */
	bool is_summing; /* what is counted now is not in the sums yet */
};

static void on_saved(const struct stage_fact *fact, void *user)
{
	const struct telemetry *telemetry = user;

	if (telemetry->is_summing)
		rollups_save(telemetry->server->rollups, fact);
}

int telemetry_new(struct telemetry **ret, struct server *server, struct err *reterr)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for telemetry");
	if (facts_new(&(*ret)->facts, FACTS_MAX, CALLS_MAX) < 0) {
		free(TAKE(*ret));
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for telemetry");
	}
	(*ret)->server = server;
	facts_tell_saved((*ret)->facts, on_saved, *ret);
	ended_init(&(*ret)->ended);
	return 0;
}

static void free_nodes(struct telemetry *telemetry)
{
	struct node_telemetry *node, *next;

	HASH_ITER (hh, telemetry->nodes, node, next) {
		HASH_DEL(telemetry->nodes, node);
		free(node);
	}
}

void telemetry_free(struct telemetry *telemetry)
{
	if (!telemetry)
		return;
	telemetry_reset_stages(telemetry);
	ended_deinit(&telemetry->ended);
	(void)facts_free(telemetry->facts);
	free_nodes(telemetry);
	free(telemetry);
}

/* ---- the table of stages ---- */
void telemetry_reset_stages(struct telemetry *telemetry)
{
	struct counted *counted, *next_counted;

	facts_load_begin(telemetry->facts);
	ended_deinit(&telemetry->ended);
	telemetry->is_loading = true;
	memset(telemetry->totals, 0, sizeof(telemetry->totals));
	HASH_ITER (hh, telemetry->counted, counted, next_counted) {
		HASH_DEL(telemetry->counted, counted);
		free(counted);
	}
}

void telemetry_stages_loaded(struct telemetry *telemetry)
{
	facts_load_end(telemetry->facts);
}

/* How many a record stands for: of calls alone there is one for many. */
static uint64_t count_of(const struct stage_record *record)
{
	return fact_is_call(record->stage) ? MAX(record->n_alike, 1) : 1;
}

static void add_total(struct telemetry *telemetry, const struct stage_record *record)
{
	struct stage_count *count = &telemetry->totals[record->stage];
	const uint64_t n = count_of(record);

	count->ok += record->outcome == RESULT_OK ? n : 0;
	count->failed += record->outcome == RESULT_FAILED ? n : 0;
	count->skipped += record->outcome == RESULT_SKIPPED ? n : 0;
	if ((record->outcome == RESULT_OK || record->outcome == RESULT_FAILED) && n == 1) {
		histogram_add(&count->took, record->took_us);
		count->took_s += (double)record->took_us / 1e6;
	}
}

static const char *region_of(const struct node_record *node)
{
	for (size_t i = 0; i < node->n_labels; i++)
		if (!strcmp(node->labels[i].key, "region"))
			return node->labels[i].value;
	return "";
}

/* `about`: what is known besides; the rest of it comes from the record. `root`: the span of the run; NULL: not known. */
static void count_stage(struct telemetry *telemetry, const struct stage_record *record, const struct trace *root, struct stage_fact about,
	bool is_summing)
{
	struct fleet_node_view view;

	if ((unsigned int)record->stage >= STAGE_MAX_)
		return;
	about.when_us = MIN(record->began_us, clock_realtime_usec() + AHEAD_US); /* what is kept is not a node's to say */
	about.took_us = record->took_us;
	about.stage = record->stage;
	about.outcome = record->outcome;
	about.code = record->failure.code;
	about.attempt = record->attempt;
	about.n = count_of(record);
	about.trace = record->trace.trace_id;
	about.node = about.node ? about.node : record->node; /* whose link it came over, where it came over one */
	if (about.node && fleet_node_get(shell_fleet(telemetry->server->shell), about.node, &view) == 0) {
		about.version = view.record->version;
		about.region = region_of(view.record);
		about.pool = about.pool ? about.pool : view.record->pool;
	}
	add_total(telemetry, record);
	telemetry->is_summing = is_summing;
	if (is_summing)
		rollups_add(telemetry->server->rollups, &about);
	facts_add(telemetry->facts, &about);
	if (!telemetry->is_loading) {
		events_stage(telemetry->server->events, &about);
		feed_stage(telemetry->server->feed, &about);
		otlp_stage(telemetry->server->otlp, &about, record->trace.span_id, root);
	}
}

/* Stages that no report carries, or that reports carry the last of: those of a sandbox's life. They come with the batches. */
static bool is_of_life(enum fail_stage stage)
{
	return stage > STAGE_READY && stage != STAGE_STOP && stage != STAGE_RUN;
}

/* The place in a record behind what was counted last; 0 where the record does not have that any more. */
static size_t place_behind(const struct rollup_mark *last, const struct sandbox_record *record)
{
	for (size_t i = record->n_stages; last && i > 0; i--) {
		const struct stage_record *stage = &record->stages[i - 1];

		if (stage->stage == last->stage && stage->attempt == last->attempt && stage->generation == last->generation &&
			stage->began_us == last->began_us)
			return i;
	}
	return 0;
}

/* The place from which on stages are not in the sums. */
static size_t unsummed_from(const struct telemetry *telemetry, const struct sandbox_record *record, bool is_over)
{
	const struct rollups *rollups = telemetry->server->rollups;
	const struct rollup_mark *mark = rollups_mark_of(rollups, record->id);

	if (!mark && is_over && telemetry->is_loading && rollups_has_ended(rollups, record->ended_us))
		return record->n_stages;
	return place_behind(mark, record);
}

/* *last is the stage that was counted last. */
static void count_stages(struct telemetry *telemetry, const struct sandbox_record *record, bool is_over, struct rollup_mark *last)
{
	const struct stage_fact about = { .sandbox = record->id,
		.tenant = record->tenant,
		.pool = record->pool,
		.template_name = record->spec->template_name,
		.region = record->wish.region,
		.vcpus = record->spec->vcpus,
		.memory_mib = record->spec->memory_mib };
	const size_t unsummed = unsummed_from(telemetry, record, is_over);
	size_t n = record->n_stages;

	/* how long placing took is known when this very record is durable: the next one has it */
	if (record->state == SANDBOX_DISPATCHED && n > 0 && record->stages[n - 1].stage == STAGE_PLACE)
		n--;
	for (size_t i = place_behind(last, record); i < n; i++) {
		const struct stage_record *stage = &record->stages[i];

		if (is_of_life(stage->stage))
			continue;
		count_stage(telemetry, stage, &record->trace, about, i >= unsummed);
		last->stage = stage->stage;
		last->attempt = stage->attempt;
		last->generation = stage->generation;
		last->began_us = stage->began_us;
	}
}

static void mark(const struct telemetry *telemetry, const struct sandbox_record *record, bool is_over, struct rollup_mark last)
{
	struct rollups *rollups = telemetry->server->rollups;
	const struct rollup_mark *before = rollups_mark_of(rollups, record->id);

	if (!before && is_over && telemetry->is_loading && rollups_has_ended(rollups, record->ended_us))
		return;
	if (is_over)
		last.over_us = record->ended_us > 0 ? record->ended_us : clock_realtime_usec();
	if (!before || last.over_us > 0 || before->stage != last.stage || before->began_us != last.began_us ||
		before->generation != last.generation || before->attempt != last.attempt)
		rollups_mark(rollups, &last);
}

void telemetry_count_sandbox(
	struct telemetry *telemetry, const struct sandbox_record *record, bool is_over)
{
	struct counted *counted = NULL;
	struct rollup_mark last = { .stage = STAGE_NONE };

	HASH_FIND_STR(telemetry->counted, record->id, counted);
	if (!counted && !is_over) {
		counted = calloc(1, sizeof(*counted));
		if (counted) { /* else some stages are counted twice, nothing else */
			COPY(counted->last.sandbox, record->id);
			HASH_ADD_STR(telemetry->counted, last.sandbox, counted);
		}
	}
	if (counted)
		last = counted->last;
	COPY(last.sandbox, record->id);
	count_stages(telemetry, record, is_over, &last);
	mark(telemetry, record, is_over, last);
	if (is_over && !telemetry->is_loading)
		otlp_run(telemetry->server->otlp, record);
	if (is_over && (!telemetry->is_loading || telemetry->ended.n < ENDED_LOAD_MAX))
		ended_add(&telemetry->ended, record);
	if (!telemetry->is_loading)
		ended_trim(&telemetry->ended, clock_realtime_usec() - ENDED_USEC);
	if (counted && is_over) {
		HASH_DEL(telemetry->counted, counted);
		free(counted);
	} else if (counted) {
		counted->last = last;
	}
}

void telemetry_totals(
	const struct telemetry *telemetry, enum fail_stage stage, struct stage_totals *ret)
{
	const struct stage_count *count = &telemetry->totals[stage];

	ret->ok = count->ok;
	ret->failed = count->failed;
	ret->skipped = count->skipped;
	ret->timed = count->took.n;
	ret->took_s = count->took_s;
	ret->p50_ms = histogram_quantile(&count->took, 0.50) / 1000.0;
	ret->p99_ms = histogram_quantile(&count->took, 0.99) / 1000.0;
}

const struct ended_sandbox *telemetry_ended(const struct telemetry *telemetry, const char *sandbox)
{
	return ended_find(&telemetry->ended, sandbox);
}

const struct facts *telemetry_facts(const struct telemetry *telemetry)
{
	return telemetry->facts;
}

/* ---- records of nodes ---- */
static struct node_telemetry *find_node(const struct telemetry *telemetry, const char *id)
{
	struct node_telemetry *node = NULL;

	HASH_FIND_STR(telemetry->nodes, id, node);
	return node;
}

static struct node_telemetry *node_for(struct telemetry *telemetry, const char *id)
{
	struct node_telemetry *node = find_node(telemetry, id);
	struct fleet_node_view view;

	if (node)
		return node;
	node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	COPY(node->node, id);
	if (fleet_node_get(shell_fleet(telemetry->server->shell), id, &view) == 0)
		node->taken = view.record->telemetry_acked;
	HASH_ADD_STR(telemetry->nodes, node, node);
	return node;
}

static void remember(struct node_telemetry *node, const struct recent *recent)
{
	unsigned int at = (node->first_recent + node->n_recent) % TELEMETRY_RECENT;

	node->recent[at] = *recent;
	if (node->n_recent < TELEMETRY_RECENT)
		node->n_recent++;
	else
		node->first_recent = (node->first_recent + 1) % TELEMETRY_RECENT;
}

/* "key=value key=value", as many as find room. */
static void put_fields(char ret[static DETAIL_SIZE], const Croft__NodeEvent *event)
{
	size_t n = 0;

	for (size_t i = 0; i < event->n_fields; i++) {
		const Croft__Field *field = event->fields[i];
		int more = snprintf(ret + n, DETAIL_SIZE - n, "%s%s=%s", n ? " " : "", field->key, field->value);

		if (more < 0 || (size_t)more >= DETAIL_SIZE - n) {
			ret[n] = '\0';
			return;
		}
		n += (size_t)more;
	}
}

/* A stage of a sandbox's life. A node speaks of its own sandboxes only: of others, and of those that ended long ago, no more is
 * known than their id. */
static void count_life(struct telemetry *telemetry, const struct node_telemetry *node, const struct stage_record *stage,
	bool is_summing)
{
	const struct fleet *fleet = shell_fleet(telemetry->server->shell);
	struct stage_fact about = { .sandbox = stage->sandbox, .node = node->node };
	uint64_t session;
	const char *owner = fleet_sandbox_node(fleet, stage->sandbox, &session);
	const struct ended_sandbox *ended = ended_find(&telemetry->ended, stage->sandbox);
	const struct sandbox_spec *spec;

	if (owner && !strcmp(owner, node->node)) {
		spec = fleet_sandbox_spec(fleet, stage->sandbox);
		about.tenant = fleet_sandbox_tenant(fleet, stage->sandbox);
		about.template_name = spec->template_name;
		about.vcpus = spec->vcpus;
		about.memory_mib = spec->memory_mib;
	} else if (!owner && ended && !strcmp(ended->node, node->node)) {
		about.tenant = ended->tenant;
		about.template_name = ended->template_name;
		about.vcpus = ended->vcpus;
		about.memory_mib = ended->memory_mib;
	}
	count_stage(telemetry, stage, fleet_sandbox_trace(fleet, stage->sandbox), about, is_summing);
}

/* A gateway whose agent ended before it said that it has a call tells the next one again. That lies close behind. */
static bool is_told_again(const struct node_telemetry *node, const struct stage_record *stage)
{
	for (unsigned int i = 0; *stage->trace.span_id && fact_is_call(stage->stage) && i < node->n_recent; i++)
		if (!strcmp(node->recent[(node->first_recent + i) % TELEMETRY_RECENT].span, stage->trace.span_id))
			return true;
	return false;
}

static void take_record(struct telemetry *telemetry, struct node_telemetry *node,
	const Croft__TelemetryRecord *record)
{
	const bool is_new = record->seq > rollups_heard(telemetry->server->rollups, node->node);
	struct recent recent = { .seq = record->seq, .when_us = record->when_us };
	struct stage_record stage;

	switch (record->body_case) {
	case CROFT__TELEMETRY_RECORD__BODY_STAGE:
		if (stage_record_decode(record->stage, &stage) < 0 || stage.n_alike > STAGE_ALIKE_MAX)
			break; /* of a later version, or false: its number counts, its content is unknown here */
		COPY(recent.what, stage_name(stage.stage));
		COPY(recent.sandbox, stage.sandbox);
		recent.outcome = stage.outcome;
		recent.took_us = stage.took_us;
		recent.code = stage.failure.code;
		if (err_is_set(&stage.failure))
			(void)snprintf(recent.detail, sizeof(recent.detail), "%.*s", DETAIL_SIZE - 1, stage.failure.msg);
		recent.n = count_of(&stage);
		if (is_told_again(node, &stage)) {
			node->repeated++;
			telemetry->server->counters.telemetry_repeated++;
		} else if (is_of_life(stage.stage)) {
			count_life(telemetry, node, &stage, is_new);
		}
		COPY(recent.span, stage.trace.span_id);
		break;
	case CROFT__TELEMETRY_RECORD__BODY_GAP:
		COPY(recent.what, "gap");
		node->dropped += record->gap->dropped;
		telemetry->server->counters.telemetry_gaps += record->gap->dropped;
		break;
	case CROFT__TELEMETRY_RECORD__BODY_EVENT:
		COPY(recent.what, record->event->name);
		COPY(recent.sandbox, record->event->sandbox);
		put_fields(recent.detail, record->event);
		break;
	case CROFT__TELEMETRY_RECORD__BODY__NOT_SET:
	default:
		COPY(recent.what, "unknown");
		break;
	}
	if (is_new)
		rollups_hear(telemetry->server->rollups, node->node, record->seq);
	telemetry->server->counters.telemetry_records++;
	node->taken = record->seq;
	remember(node, &recent);
}

static void keep(struct node_telemetry *node, uint64_t first_seq, struct ops *ops)
{
	unsigned int at = (node->first_kept + node->n_kept) % TELEMETRY_KEEP;

	if (node->n_kept == TELEMETRY_KEEP) {
		if (ops)
			ops_delete(ops, "telemetry/%s/%020llu", node->node,
				(unsigned long long)node->kept[at]);
		node->first_kept = (node->first_kept + 1) % TELEMETRY_KEEP;
		node->n_kept--;
	}
	node->kept[at] = first_seq;
	node->n_kept++;
}

struct acking {
	struct telemetry *telemetry;
	uint64_t session;
	uint64_t seq;
};

static void send_ack(struct server *server, uint64_t session, uint64_t seq)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__TelemetryAck ack = MESSAGE(Croft__TelemetryAck, croft__telemetry_ack__init);

	ack.seq = seq;
	envelope.body_case = CROFT__ENVELOPE__BODY_TELEMETRY_ACK;
	envelope.telemetry_ack = &ack;
	(void)link_send(server->link, session, &envelope);
}

static void on_durable(const struct err *err, void *user)
{
	struct acking *acking = user;

	if (!err)
		send_ack(acking->telemetry->server, acking->session, acking->seq);
	free(acking);
}

/* The range [*ret_from, n) of a batch that is to be taken now. A node sends in order and, on each new session, from the
 * oldest record that it still has: what is missing there is lost; what is missing later is still to come again. */
static size_t fresh_from(struct telemetry *telemetry, struct node_telemetry *node, uint64_t session,
	const Croft__TelemetryBatch *batch)
{
	size_t from = 0;

	while (from < batch->n_records && batch->records[from]->seq <= node->taken) {
		node->repeated++;
		telemetry->server->counters.telemetry_repeated++;
		from++;
	}
	if (from < batch->n_records && node->session != session &&
		batch->records[from]->seq > node->taken + 1) {
		node->missing += batch->records[from]->seq - node->taken - 1;
		telemetry->server->counters.telemetry_gaps +=
			batch->records[from]->seq - node->taken - 1;
		node->taken = batch->records[from]->seq - 1;
	}
	node->session = session;
	return from;
}

/* The records that were taken, as one record of the store. */
static void put_batch(struct node_telemetry *node, const Croft__TelemetryBatch *batch, size_t from,
	size_t to, struct ops *ops)
{
	Croft__TelemetryBatch part = MESSAGE(Croft__TelemetryBatch, croft__telemetry_batch__init);
	ProtobufCMessage *copy;
	uint8_t *data;
	size_t size;

	part.records = batch->records + from;
	part.n_records = to - from;
	size = croft__telemetry_batch__get_packed_size(&part);
	data = malloc(size + 1);
	if (data)
		(void)croft__telemetry_batch__pack(&part, data);
	copy = data ? protobuf_c_message_unpack(
			      &croft__telemetry_batch__descriptor, NULL, size, data)
		    : NULL;
	free(data);
	ops_put(ops, copy, STORE_ANY, "telemetry/%s/%020llu", node->node,
		(unsigned long long)batch->records[from]->seq);
	keep(node, batch->records[from]->seq, ops);
}

void telemetry_on_batch(struct telemetry *telemetry, const struct link_message *message,
	const Croft__TelemetryBatch *batch)
{
	struct node_telemetry *node = node_for(telemetry, message->id);
	struct fleet_event event = { .type = FLEET_NODE_TELEMETRY, .session = message->session };
	struct ops ops = { .n = 0 };
	struct acking *acking;
	size_t from, to;

	if (!node || batch->n_records == 0)
		return;
	from = fresh_from(telemetry, node, message->session, batch);
	for (to = from; to < batch->n_records && batch->records[to]->seq == node->taken + 1; to++)
		take_record(telemetry, node, batch->records[to]);
	acking = calloc(1, sizeof(*acking));
	if (!acking)
		return; /* the node sends it again */
	*acking = (struct acking){ telemetry, message->session, node->taken };
	if (to > from)
		put_batch(node, batch, from, to, &ops);
	COPY(event.node, message->id);
	event.telemetry_seq = node->taken;
	shell_step(telemetry->server->shell, &event, &ops, on_durable, acking);
	ops_deinit(&ops);
}

/* ---- start ---- */
struct loading {
	struct telemetry *telemetry;
	struct err *err;
};

static bool load_batch(
	const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	const struct loading *loading = user;
	Croft__TelemetryBatch *batch;
	struct node_telemetry *node;
	char id[ID_SIZE];

	(void)revision;
	if (sscanf(key, "telemetry/%20[a-z0-9]/", id) != 1)
		return true;
	node = node_for(loading->telemetry, id);
	batch = (Croft__TelemetryBatch *)codec_unpack(
		&croft__telemetry_batch__descriptor, key, value, size, loading->err);
	if (!batch)
		return false;
	for (size_t i = 0; node && i < batch->n_records; i++)
		take_record(loading->telemetry, node, batch->records[i]);
	if (node && batch->n_records)
		keep(node, batch->records[0]->seq, NULL);
	croft__telemetry_batch__free_unpacked(batch, NULL);
	return true;
}

int telemetry_load(struct telemetry *telemetry, struct err *reterr)
{
	struct err err = ERR_NULL;
	const struct loading loading = { telemetry, &err };

	free_nodes(telemetry);
	(void)store_load(telemetry->server->store, "telemetry/", load_batch,
		(void *)(uintptr_t)&loading, &err);
	telemetry->is_loading = false;
	ended_trim_all(&telemetry->ended, clock_realtime_usec() - ENDED_USEC);
	if (!err_is_set(&err))
		return 0;
	if (reterr && !err_is_set(reterr))
		*reterr = err;
	return -EIO;
}

/* ---- what people see ---- */
json_t *telemetry_node_json(const struct telemetry *telemetry, const char *id)
{
	const struct node_telemetry *node = find_node(telemetry, id);
	struct fleet_node_view view;
	uint64_t acked = 0;

	if (fleet_node_get(shell_fleet(telemetry->server->shell), id, &view) == 0)
		acked = view.record->telemetry_acked;
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "received",
		(json_int_t)(node ? node->taken : acked), "acked", (json_int_t)acked, "repeated",
		(json_int_t)(node ? node->repeated : 0), "gaps",
		(json_int_t)(node ? node->dropped : 0), "lost",
		(json_int_t)(node ? node->missing : 0));
}

json_t *telemetry_recent_json(const struct telemetry *telemetry, const char *id, uint64_t after)
{
	const struct node_telemetry *node = find_node(telemetry, id);
	json_t *list = json_array();

	for (unsigned int i = 0; node && i < node->n_recent; i++) {
		const struct recent *recent =
			&node->recent[(node->first_recent + i) % TELEMETRY_RECENT];
		char when[CLOCK_RFC3339_SIZE];

		if (recent->seq <= after)
			continue;
		(void)json_array_append_new(list,
			json_pack("{s:I, s:s, s:s, s:s*, s:s*, s:f, s:s*, s:s*, s:I}", "seq",
				(json_int_t)recent->seq, "when",
				clock_format_rfc3339(recent->when_us, when, sizeof(when)), "what",
				recent->what, "outcome",
				recent->outcome == RESULT_NONE ? NULL
							       : outcome_name(recent->outcome),
				"sandbox", *recent->sandbox ? recent->sandbox : NULL, "took_ms",
				(double)recent->took_us / 1000.0, "code",
				recent->code == FAIL_NONE ? NULL
							  : failure_info(recent->code)->name,
				"detail", *recent->detail ? recent->detail : NULL, "count",
				(json_int_t)MAX(recent->n, 1)));
	}
	return list;
}
