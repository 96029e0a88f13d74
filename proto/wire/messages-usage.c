/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages.h: what sandboxes have used.
 */
#include "wire/messages-private.h"

#include "base/util.h"

/* No counter of a sandbox comes near: in microseconds it is 285 years. What is above is no count, and sums of many do not overflow. */
#define COUNT_MAX (UINT64_C(1) << 53)

static bool put_losses(Croft__SandboxUsage *to, const struct usage_record *record)
{
	to->lost = calloc(COMPONENT_MAX_, sizeof(Croft__UsageLoss *));
	if (!to->lost)
		return false;
	for (unsigned int i = 0; i < COMPONENT_MAX_; i++) {
		Croft__UsageLoss *loss;

		if (record->lost_us[i] == 0)
			continue;
		loss = NEW(usage_loss, UsageLoss);
		if (!loss)
			return false;
		to->lost[to->n_lost++] = loss;
		loss->lost_us = record->lost_us[i];
		if (!put_text(&loss->component, component_name((enum fail_component)i)))
			return false;
	}
	return true;
}

Croft__SandboxUsage *usage_record_encode(const struct usage_record *record)
{
	Croft__SandboxUsage *to = NEW(sandbox_usage, SandboxUsage);

	if (!to)
		return NULL;
	to->generation = record->generation;
	to->version = record->version;
	to->began_us = record->began_us;
	to->until_us = record->until_us;
	to->vcpus = record->vcpus;
	to->memory_mib = record->memory_mib;
	to->disk_mib = record->disk_mib;
	to->running_us = record->running_us;
	to->paused_us = record->paused_us;
	to->disk_us = record->disk_us;
	to->cpu_us = record->cpu_us;
	to->egress_bytes = record->egress_bytes;
	to->uncounted_us = record->uncounted_us;
	to->over = record->is_over;
	if (!put_text(&to->sandbox, record->sandbox) || !put_text(&to->tenant, record->tenant) || !put_losses(to, record))
		return DROP(to);
	return to;
}

static bool take_losses(struct usage_record *record, const Croft__SandboxUsage *message)
{
	for (size_t i = 0; i < message->n_lost; i++) {
		enum fail_component component = component_by_name(message->lost[i]->component);

		if (message->lost[i]->lost_us > COUNT_MAX - record->lost_us[component])
			return false;
		record->lost_us[component] += message->lost[i]->lost_us;
	}
	return true;
}

int usage_record_decode(const Croft__SandboxUsage *message, struct usage_record *ret, struct err *reterr)
{
	const uint64_t counts[] = { message->running_us, message->paused_us, message->disk_us, message->cpu_us,
		message->egress_bytes, message->uncounted_us };
	struct usage_record record = { .version = message->version,
		.began_us = message->began_us,
		.until_us = message->until_us,
		.vcpus = message->vcpus,
		.memory_mib = message->memory_mib,
		.disk_mib = message->disk_mib,
		.running_us = message->running_us,
		.paused_us = message->paused_us,
		.disk_us = message->disk_us,
		.cpu_us = message->cpu_us,
		.egress_bytes = message->egress_bytes,
		.uncounted_us = message->uncounted_us,
		.is_over = message->over };

	if (!take_target(record.sandbox, &record.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_text(record.tenant, sizeof(record.tenant), message->tenant))
		return refuse(reterr, "tenant");
	if (record.version == 0 || record.version > COUNT_MAX || record.generation > COUNT_MAX)
		return refuse(reterr, "version");
	if (record.began_us <= 0 || record.until_us < record.began_us || record.until_us > (int64_t)COUNT_MAX)
		return refuse(reterr, "until_us");
	if (record.vcpus > SPEC_VCPUS_MAX || record.memory_mib > SPEC_MEMORY_MIB_MAX || record.disk_mib > SPEC_DISK_MIB_MAX)
		return refuse(reterr, "memory_mib");
	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		if (counts[i] > COUNT_MAX)
			return refuse(reterr, "running_us");
	if (!take_losses(&record, message))
		return refuse(reterr, "lost");
	*ret = record;
	return 0;
}

void usage_report_deinit(struct usage_report *report)
{
	free(report->records);
	report->records = NULL;
	report->n = 0;
}

Croft__UsageReport *usage_report_encode(const struct usage_report *report)
{
	Croft__UsageReport *to = NEW(usage_report, UsageReport);

	if (!to)
		return NULL;
	to->number = report->number;
	to->dropped = report->n_dropped;
	to->records = calloc(report->n + 1, sizeof(Croft__SandboxUsage *));
	if (!to->records)
		return DROP(to);
	for (size_t i = 0; i < report->n; i++) {
		to->records[i] = usage_record_encode(&report->records[i]);
		if (!to->records[i])
			return DROP(to);
		to->n_records++;
	}
	return to;
}

int usage_report_decode(const Croft__UsageReport *message, struct usage_report *ret, struct err *reterr)
{
	struct usage_report report = { .number = message->number, .n_dropped = message->dropped };
	int r = 0;

	if (message->n_records > USAGE_RECORDS_MAX)
		return refuse(reterr, "records");
	report.records = calloc(message->n_records + 1, sizeof(*report.records));
	if (!report.records)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for a report of usage.");
	for (; report.n < message->n_records && r == 0; report.n += r == 0)
		r = usage_record_decode(message->records[report.n], &report.records[report.n], reterr);
	if (r < 0) {
		usage_report_deinit(&report);
		return r;
	}
	*ret = report;
	return 0;
}
