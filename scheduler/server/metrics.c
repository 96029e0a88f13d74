/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /metrics: Prometheus text. The number of series is bounded by tables of this program: no id of a tenant, a
 * node or a sandbox is ever a label.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/audit.h"
#include "server/feed.h"
#include "server/link.h"
#include "server/otlp.h"
#include "server/relay.h"
#include "server/shell.h"
#include "server/telemetry.h"

struct counter_row {
	const char *name;
	const char *help;
	size_t offset;
};

/* clang-format off */
#define ROW(name, member, help) { name, help, offsetof(struct counters, member) }
static const struct counter_row counter_rows[] = {
	ROW("croft_api_unauthenticated_total", unauthenticated, "Requests without a valid key."),
	ROW("croft_api_rate_limited_total", rate_limited, "Requests over their key's rate."),
	ROW("croft_api_quota_exceeded_total", quota_exceeded, "Creates over their tenant's quota."),
	ROW("croft_api_idempotent_total", idempotent, "Requests answered for what the same Idempotency-Key made before."),
	ROW("croft_api_forbidden_total", forbidden, "Requests whose key may not do what they asked."),
	ROW("croft_link_messages_total", link_messages, "Messages from nodes and join tokens."),
	ROW("croft_link_invalid_total", link_invalid, "Malformed messages."),
	ROW("croft_link_unsupported_total", link_unsupported, "Messages unknown to this version."),
	ROW("croft_link_wrong_sender_total", link_wrong_role, "Messages that their sender may not send."),
	ROW("croft_link_revoked_total", link_revoked, "Messages of revoked keys."),
	ROW("croft_link_send_full_total", link_send_full, "Frames not sent because a peer's queue was full."),
	ROW("croft_enrolled_total", enrolled, "Nodes that joined."),
	ROW("croft_enroll_refused_total", enroll_refused, "Joins refused."),
	ROW("croft_store_commits_total", commits, "Batches committed."),
	ROW("croft_store_failures_total", commit_failures, "Times the store could not be written."),
	ROW("croft_stalls_total", stalls, "Times this process did not run for half a second."),
	ROW("croft_relay_streams_total", relay_streams, "Calls relayed to sandboxes."),
	ROW("croft_relay_refused_total", relay_refused, "Calls to sandboxes refused here."),
	ROW("croft_relay_received_bytes_total", relay_bytes_in, "Bytes relayed from sandboxes."),
	ROW("croft_relay_sent_bytes_total", relay_bytes_out, "Bytes relayed to sandboxes."),
	ROW("croft_image_sent_bytes_total", image_bytes, "Image bytes sent to nodes."),
	ROW("croft_telemetry_records_total", telemetry_records, "Telemetry records taken."),
	ROW("croft_telemetry_repeated_total", telemetry_repeated, "Telemetry records that came again."),
	ROW("croft_telemetry_lost_total", telemetry_gaps, "Telemetry records that nodes had no room for."),
};
/* clang-format on */

static void head(FILE *out, const char *name, const char *type, const char *help)
{
	(void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(FILE *out, const char *name, const char *help, uint64_t value)
{
	head(out, name, "gauge", help);
	(void)fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_counters(FILE *out, const struct server *server)
{
	const char *base = (const char *)&server->counters;

	for (size_t i = 0; i < ARRAY_LEN(counter_rows); i++) {
		uint64_t value;

		memcpy(&value, base + counter_rows[i].offset, sizeof(value));
		head(out, counter_rows[i].name, "counter", counter_rows[i].help);
		(void)fprintf(out, "%s %" PRIu64 "\n", counter_rows[i].name, value);
	}
	head(out, "croft_api_requests_total", "counter", "Answers, by hundreds of their status.");
	for (unsigned int i = 2; i < ARRAY_LEN(server->counters.http_requests); i++)
		(void)fprintf(out, "croft_api_requests_total{status=\"%uxx\"} %" PRIu64 "\n", i,
			server->counters.http_requests[i]);
}

/* 48 bits: as many as every reader of numbers keeps. */
static uint64_t head_number(const struct chain *head)
{
	char digits[13];

	(void)snprintf(digits, sizeof(digits), "%.12s", head->hash);
	return strtoull(digits, NULL, 16);
}

static void write_otlp(FILE *out, const struct server *server)
{
	const struct otlp_counts counts = otlp_count(server->otlp);

	head(out, "croft_otlp_sent_total", "counter", "Spans that the collector took.");
	(void)fprintf(out, "croft_otlp_sent_total %" PRIu64 "\n", counts.sent);
	head(out, "croft_otlp_dropped_total", "counter", "Spans that the collector will never have, by why.");
	for (enum otlp_drop i = 0; i < OTLP_DROP_MAX_; i++)
		(void)fprintf(out, "croft_otlp_dropped_total{reason=\"%s\"} %" PRIu64 "\n", otlp_drop_name(i), counts.dropped[i]);
	head(out, "croft_otlp_retries_total", "counter", "Requests to the collector that are sent again.");
	(void)fprintf(out, "croft_otlp_retries_total %" PRIu64 "\n", counts.retries);
	gauge(out, "croft_otlp_waiting", "Spans that wait for the collector.", otlp_waiting(server->otlp));
}

static void write_fleet(FILE *out, const struct server *server)
{
	struct fleet_counts counts;
	struct audit_state audit;

	fleet_count(shell_fleet(server->shell), &counts);
	head(out, "croft_nodes", "gauge", "Nodes by link state.");
	for (enum node_link i = 0; i < NODE_LINK_MAX_; i++)
		(void)fprintf(
			out, "croft_nodes{state=\"%s\"} %zu\n", node_link_name(i), counts.nodes[i]);
	head(out, "croft_sandboxes", "gauge", "Sandboxes by internal state.");
	for (enum sandbox_state i = 0; i < SANDBOX_STATE_MAX_; i++)
		(void)fprintf(out, "croft_sandboxes{state=\"%s\"} %zu\n", sandbox_state_name(i),
			counts.sandboxes[i]);
	gauge(out, "croft_queued", "Requests that wait for room.", counts.queued);
	gauge(out, "croft_store_waiting", "Batches not yet durable.", store_waiting(server->store));
	gauge(out, "croft_store_wal_bytes", "The store's write-ahead log; over 64 MiB somebody reads the file for long.",
		store_log_bytes(server->store));
	gauge(out, "croft_store_failed", "1 while the store cannot be written.",
		shell_failure(server->shell) ? 1 : 0);
	gauge(out, "croft_relay_open_streams", "Calls under way to sandboxes.",
		relay_count(server->relay));
	gauge(out, "croft_link_denied", "Connections refused for their key.",
		link_denied(server->link));
	audit_state(server->audit, &audit);
	head(out, "croft_audit_entries_total", "counter", "Entries that the audit log has had: the number of its head.");
	(void)fprintf(out, "croft_audit_entries_total %" PRIu64 "\n", audit.head.seq);
	gauge(out, "croft_audit_head", "The first 12 digits of the hash of the audit log's head, as a number.",
		head_number(&audit.head));
	head(out, "croft_audit_dropped_total", "counter", "Entries that found no room while the store could not be written.");
	(void)fprintf(out, "croft_audit_dropped_total %" PRIu64 "\n", audit.n_dropped);
	gauge(out, "croft_epoch", "Epoch of this scheduler.", server->epoch);
	head(out, "croft_feed_messages_total", "counter", "Messages of the feed that somebody subscribed to.");
	(void)fprintf(out, "croft_feed_messages_total %" PRIu64 "\n", feed_count(server->feed).sent);
	head(out, "croft_feed_full_total", "counter", "Times that the queue of a subscriber to the feed was found full.");
	(void)fprintf(out, "croft_feed_full_total %" PRIu64 "\n", feed_count(server->feed).full);
	write_otlp(out, server);
	head(out, "croft_fleet_events_total", "counter", "What the fleet counted.");
	(void)fprintf(out,
		"croft_fleet_events_total{event=\"wrong-node\"} %" PRIu64
		"\ncroft_fleet_events_total{event=\"stale-session\"} %" PRIu64
		"\ncroft_fleet_events_total{event=\"key-in-use\"} %" PRIu64
		"\ncroft_fleet_events_total{event=\"resend\"} %" PRIu64
		"\ncroft_fleet_events_total{event=\"unknown-sandbox\"} %" PRIu64 "\n",
		counts.wrong_node, counts.stale_session, counts.key_in_use, counts.resends,
		counts.unknown);
}

static void write_stages(FILE *out, const struct server *server)
{
	struct stage_totals totals[STAGE_MAX_];

	for (unsigned int i = 1; i < STAGE_MAX_; i++)
		telemetry_totals(server->telemetry, (enum fail_stage)i, &totals[i]);
	head(out, "croft_stage_total", "counter", "Stages by outcome.");
	for (unsigned int i = 1; i < STAGE_MAX_; i++) {
		const char *name = stage_name((enum fail_stage)i);

		(void)fprintf(out,
			"croft_stage_total{stage=\"%s\",outcome=\"ok\"} %" PRIu64
			"\ncroft_stage_total{stage=\"%s\",outcome=\"failed\"} %" PRIu64
			"\ncroft_stage_total{stage=\"%s\",outcome=\"skipped\"} %" PRIu64 "\n",
			name, totals[i].ok, name, totals[i].failed, name, totals[i].skipped);
	}
	head(out, "croft_stage_seconds", "summary", "How long stages took since the scheduler's start.");
	for (unsigned int i = 1; i < STAGE_MAX_; i++) {
		const char *name = stage_name((enum fail_stage)i);

		if (totals[i].timed)
			(void)fprintf(out,
				"croft_stage_seconds{stage=\"%s\",quantile=\"0.5\"} %.6f\n"
				"croft_stage_seconds{stage=\"%s\",quantile=\"0.99\"} %.6f\n"
				"croft_stage_seconds_sum{stage=\"%s\"} %.6f\n"
				"croft_stage_seconds_count{stage=\"%s\"} %" PRIu64 "\n",
				name, totals[i].p50_ms / 1000.0, name, totals[i].p99_ms / 1000.0, name, totals[i].took_s, name,
				totals[i].timed);
	}
}

void api_metrics(struct api_request *req)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (out) {
		write_counters(out, req->server);
		write_fleet(out, req->server);
		write_stages(out, req->server);
		(void)fclose(out);
	}
	api_answer_text(req, text ? 200 : 503, "text/plain; version=0.0.4", text ? text : "", size);
	free(text);
}
