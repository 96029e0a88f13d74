/* SPDX-License-Identifier: Apache-2.0
 *
 * What the network of a sandbox was used for, into telemetry: the counters of its slot, and the destinations that
 * were denied it, as records of the stage egress-policy. The kernel counts (network/ruleset.c); here it is only read, a few
 * sandboxes at a time, and once more before a slot goes. What a guest can make of it is bounded: the kernel remembers
 * NET_DENIED_MAX destinations for an hour, and DENIED_PER_READ of them are said at each reading, the others with the
 * next. After a restart of the agent what the kernel still remembers is said again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/helper-link.h"
#include "agent/message.h"
#include "agent/meters.h"
#include "agent/routes.h"
#include "agent/sandbox.h"
#include "agent/spool.h"
#include "base/clock.h"
#include "wire/records.h"

#define READ_USEC (60 * USEC_PER_SEC)
#define READS_PER_TURN 50u
#define DENIED_PER_READ 8u
#define VALUE_SIZE 24

static void say_denied(struct sandbox *sandbox, const struct net_denied *denied, uint64_t packets)
{
	struct stage_record record = { .stage = STAGE_EGRESS_POLICY,
		.outcome = RESULT_FAILED,
		.began_us = clock_realtime_usec(),
		.generation = sandbox->generation };
	const char *protocol = denied->protocol == NET_PROTOCOL_TCP   ? "tcp"
			       : denied->protocol == NET_PROTOCOL_UDP ? "udp"
								      : "other";
	struct net_addr addr = net_addr_v4(denied->address);
	char address[NET_ADDR_TEXT];

	net_addr_format(&addr, address);
	memcpy(record.sandbox, sandbox->id, sizeof(record.sandbox));
	(void)err_set(&record.failure, FAIL_EGRESS_DENIED, 0, "%llu packets to %s, %s port %u, were not let out",
		(unsigned long long)packets, address, protocol, denied->port);
	err_add(&record.failure, "address", "%s", address);
	err_add(&record.failure, "protocol", "%u", denied->protocol);
	err_add(&record.failure, "port", "%u", denied->port);
	err_add(&record.failure, "packets", "%llu", (unsigned long long)packets);
	perform_stage(sandbox->agent, &record);
	routes_audit(sandbox->agent->routes, json_pack("{s:s, s:s, s:s, s:s, s:i, s:I}", "kind", "denied", "sandbox", sandbox->id,
		"address", address, "protocol", protocol, "port", (int)denied->port, "packets", (json_int_t)packets));
}

static void say_counters(struct sandbox *sandbox, const struct net_counters *counters)
{
	const struct {
		const char *key;
		uint64_t value;
	} rows[] = { { "sent_packets", counters->sent.packets }, { "sent_bytes", counters->sent.bytes },
		{ "received_packets", counters->received.packets }, { "received_bytes", counters->received.bytes },
		{ "denied_packets", counters->denied.packets },
		{ "over_connections_packets", counters->over_connections.packets },
		{ "over_rate_packets", counters->over_rate.packets }, { "strayed_packets", counters->strayed.packets } };
	Croft__TelemetryRecord record = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record);
	Croft__NodeEvent event = MESSAGE(Croft__NodeEvent, croft__node_event);
	Croft__Field fields[ARRAY_LEN(rows) + 1], *list[ARRAY_LEN(rows) + 1];
	char keys[ARRAY_LEN(rows) + 1][32], values[ARRAY_LEN(rows) + 1][VALUE_SIZE], name[] = "egress-counters";
	char id[ID_SIZE];
	json_t *entry;
	size_t n = 0;

	(void)snprintf(keys[n], sizeof(keys[n]), "stage");
	(void)snprintf(values[n++], VALUE_SIZE, "%s", stage_name(STAGE_EGRESS_POLICY));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].value == 0)
			continue;
		(void)snprintf(keys[n], sizeof(keys[n]), "%s", rows[i].key);
		(void)snprintf(values[n++], VALUE_SIZE, "%llu", (unsigned long long)rows[i].value);
	}
	for (size_t i = 0; i < n; i++) {
		croft__field__init(&fields[i]);
		fields[i].key = keys[i];
		fields[i].value = values[i];
		list[i] = &fields[i];
	}
	memcpy(id, sandbox->id, sizeof(id));
	event.name = name;
	event.sandbox = id;
	event.fields = list;
	event.n_fields = n;
	record.when_us = clock_realtime_usec();
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_EVENT;
	record.event = &event;
	spool_append(sandbox->agent->spool, &record);
	entry = json_pack("{s:s, s:s}", "kind", "connections", "sandbox", sandbox->id);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		(void)json_object_set_new(entry, rows[i].key, json_integer((json_int_t)rows[i].value));
	routes_audit(sandbox->agent->routes, entry);
}

static bool is_another(const struct net_counters *a, const struct net_counters *b)
{
	return a->sent.packets != b->sent.packets || a->received.packets != b->received.packets ||
	       a->denied.packets != b->denied.packets || a->over_connections.packets != b->over_connections.packets ||
	       a->over_rate.packets != b->over_rate.packets || a->strayed.packets != b->strayed.packets;
}

static void take(struct sandbox *sandbox, const struct net_counters *now)
{
	struct net_counters *before = sandbox->counters;
	size_t which[NET_DENIED_MAX], n = net_denied_since(before, now, which);
	struct net_counters *kept = malloc(sizeof(*kept));

	if (!kept)
		return; /* with the next reading */
	*kept = *now;
	for (size_t i = 0; i < n; i++) {
		uint64_t packets = net_denied_packets(before, &now->refused[which[i]]);

		if (i < DENIED_PER_READ)
			say_denied(sandbox, &now->refused[which[i]], packets);
		else /* not said yet */
			kept->refused[which[i]].packets -= packets;
	}
	if (is_another(before, now))
		say_counters(sandbox, now);
	free(before);
	sandbox->counters = kept;
}

static void on_counters(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	sandbox->is_counting = false;
	/* one that cannot be read now is read with the next turn */
	if (!err_is_set(&reply->failure) && reply->has_counters) {
		meters_read_egress(sandbox, reply->counters.sent.bytes);
		if (!sandbox->counters && !sandbox->is_quick)
			sandbox->counters = calloc(1, sizeof(*sandbox->counters));
		if (sandbox->counters && !sandbox->is_quick)
			take(sandbox, &reply->counters);
	}
	sandbox_settle(sandbox);
}

static bool count(struct sandbox *sandbox)
{
	struct helper_request request = { .type = HELPER_COUNTERS };

	if (!sandbox->agent->helper || !sandbox->has_slot || sandbox->is_counting || !strcmp(sandbox->id, SV_CANARY))
		return false; /* a canary is no sandbox to anybody but this node */
	memcpy(request.sandbox, sandbox->id, sizeof(request.sandbox));
	if (helper_link_ask(sandbox->agent->helper, &request, NULL, 0, on_counters, sandbox, NULL) < 0)
		return false;
	sandbox->is_counting = true;
	sandbox->is_quick = false;
	sandbox->n_asks++;
	return true;
}

void sandbox_count_sent(struct sandbox *sandbox)
{
	if (count(sandbox))
		sandbox->is_quick = true;
}

void sandbox_count_all(struct agent *agent)
{
	int64_t now = clock_monotonic_usec();
	struct sandbox *sandbox, *next;
	unsigned int n = 0;

	HASH_ITER (hh, agent->sandboxes, sandbox, next) {
		if (n >= READS_PER_TURN)
			return;
		if (now < sandbox->counters_due_usec || !count(sandbox))
			continue;
		sandbox->counters_due_usec = now + READ_USEC;
		n++;
	}
}

void sandbox_count_last(struct sandbox *sandbox)
{
	(void)count(sandbox);
	sandbox->has_slot = false;
}
