/* SPDX-License-Identifier: Apache-2.0
 *
 * What each tenant uses, counted in the step that changes it, and its quota. A sandbox counts from its create until
 * it ended for everybody: a node that cannot be asked (FENCED) holds room of its own, but none of the tenant's. One that
 * sleeps counts by itself and by its disk and memory's file, as snapshots do; a node that pauses one at the end of its life asks nobody.
 * Starts per minute are a bucket that refills evenly; it is full again after a restart.
 */
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"

#define MINUTE_USEC (60 * USEC_PER_SEC)

static struct tenant_use *use_find(const struct fleet *fleet, const char *tenant)
{
	struct tenant_use *use;

	HASH_FIND_STR(fleet->uses, tenant, use);
	return use;
}

static struct tenant_use *use_get(struct fleet *fleet, const char *tenant)
{
	struct tenant_use *use = use_find(fleet, tenant);

	if (use)
		return use;
	use = calloc(1, sizeof(*use));
	if (use) {
		(void)snprintf(use->tenant, sizeof(use->tenant), "%s", tenant);
		HASH_ADD_STR(fleet->uses, tenant, use);
	}
	if (!use || !use->hh.tbl) {
		free(use);
		fleet->out->no_memory = true;
		return NULL;
	}
	return use;
}

void fleet_quota_free(struct fleet *fleet)
{
	struct tenant_use *use, *next;

	HASH_ITER (hh, fleet->uses, use, next) {
		HASH_DEL(fleet->uses, use);
		free(use);
	}
}

/* Of what sleeps, or what a snapshot may take: its memory is a file too. */
uint64_t fleet_quota_kept_mib(const struct sandbox_spec *spec)
{
	return spec->memory_mib + spec->disk_mib;
}

static void uncount(struct tenant_use *use, struct sandbox *sandbox)
{
	const struct sandbox_spec *spec = sandbox->record.spec;

	sandbox->is_counted = false;
	if (sandbox->is_counted_paused) {
		sandbox->is_counted_paused = false;
		use->used.paused--;
		use->used.kept_disk_mib -= fleet_quota_kept_mib(spec);
		return;
	}
	use->used.sandboxes--;
	use->used.vcpus -= spec->vcpus;
	use->used.memory_mib -= spec->memory_mib;
}

void fleet_quota_leave(struct fleet *fleet, struct sandbox *sandbox)
{
	if (sandbox->is_counted)
		uncount(use_find(fleet, sandbox->record.tenant), sandbox);
}

/* Counts or uncounts it, as its state says. Idempotent. */
void fleet_quota_count(struct fleet *fleet, struct sandbox *sandbox)
{
	const struct sandbox_spec *spec = sandbox->record.spec;
	bool counts = sandbox->record.state != SANDBOX_FENCED && sandbox->record.state != SANDBOX_ENDED;
	bool is_paused = sandbox->record.state == SANDBOX_PAUSED;
	struct tenant_use *use;

	if (counts == sandbox->is_counted && is_paused == sandbox->is_counted_paused)
		return;
	use = use_get(fleet, sandbox->record.tenant);
	if (!use)
		return;
	if (sandbox->is_counted)
		uncount(use, sandbox);
	if (!counts)
		return;
	sandbox->is_counted = true;
	sandbox->is_counted_paused = is_paused;
	if (is_paused) {
		use->used.paused++;
		use->used.kept_disk_mib += fleet_quota_kept_mib(spec);
		return;
	}
	use->used.sandboxes++;
	use->used.vcpus += spec->vcpus;
	use->used.memory_mib += spec->memory_mib;
}

void fleet_quota_count_snapshot(struct fleet *fleet, struct snapshot *snapshot)
{
	const struct snapshot_record *record = &snapshot->record;
	bool counts = !record->is_fork && !record->is_unwanted && (record->state == SNAPSHOT_MAKING || record->state == SNAPSHOT_READY);
	uint64_t takes = !counts	   ? 0
			 : record->size_mib ? record->size_mib
					    : fleet_quota_kept_mib(record->spec);
	struct tenant_use *use;

	if (counts == snapshot->is_counted && takes == snapshot->counted_mib)
		return;
	use = use_get(fleet, record->tenant);
	if (!use)
		return;
	use->used.snapshots = use->used.snapshots + counts - snapshot->is_counted;
	use->used.kept_disk_mib = use->used.kept_disk_mib + takes - snapshot->counted_mib;
	snapshot->is_counted = counts;
	snapshot->counted_mib = takes;
}

/* Starts that have been made and not yet refilled, in microseconds of refill. */
static int64_t owed(const struct tenant_use *use, int64_t now_usec)
{
	return use ? MAX(use->owed_usec - (now_usec - use->owed_at_usec), 0) : 0;
}

void fleet_quota_start(struct fleet *fleet, const char *tenant, const struct fleet_quota *quota)
{
	struct tenant_use *use = quota->starts_per_minute ? use_get(fleet, tenant) : NULL;

	if (!use)
		return;
	use->owed_usec =
		owed(use, fleet->now.mono_usec) + MINUTE_USEC / (int64_t)quota->starts_per_minute;
	use->owed_at_usec = fleet->now.mono_usec;
}

static int exceeded(const char *resource, uint64_t asked, uint64_t used, uint64_t limit,
	struct err *reterr)
{
	(void)err_set(reterr, FAIL_QUOTA_EXCEEDED, 0,
		"The tenant's quota of %s is %llu: %llu are used and %llu more were asked for.",
		resource, (unsigned long long)limit, (unsigned long long)used,
		(unsigned long long)asked);
	err_add(reterr, "resource", "%s", resource);
	err_add(reterr, "asked", "%llu", (unsigned long long)asked);
	err_add(reterr, "used", "%llu", (unsigned long long)used);
	err_add(reterr, "limit", "%llu", (unsigned long long)limit);
	return -1;
}

static bool is_over(uint64_t limit, uint64_t used, uint64_t asked)
{
	return limit && (used >= limit || asked > limit - used);
}

int fleet_quota_check(const struct fleet *fleet, int64_t now_usec, const char *tenant,
	const struct fleet_quota *quota, const struct sandbox_spec *spec, struct err *reterr)
{
	const struct tenant_use *use = use_find(fleet, tenant);
	const struct fleet_quota none = { .sandboxes = 0 }, *used = use ? &use->used : &none;
	int64_t each = quota->starts_per_minute ? MINUTE_USEC / (int64_t)quota->starts_per_minute : 0;
	int64_t wait;

	if (is_over(quota->sandboxes, used->sandboxes, 1))
		return exceeded("sandboxes", 1, used->sandboxes, quota->sandboxes, reterr);
	if (is_over(quota->vcpus, used->vcpus, spec->vcpus))
		return exceeded("vcpus", spec->vcpus, used->vcpus, quota->vcpus, reterr);
	if (is_over(quota->memory_mib, used->memory_mib, spec->memory_mib))
		return exceeded("memory_mib", spec->memory_mib, used->memory_mib, quota->memory_mib,
			reterr);
	wait = each ? owed(use, now_usec) + each - MINUTE_USEC : 0;
	if (wait <= 0)
		return 0;
	(void)exceeded("starts_per_minute", 1,
		(uint64_t)((owed(use, now_usec) + each - 1) / each), quota->starts_per_minute,
		reterr);
	err_add(reterr, "retry_after_s", "%lld",
		(long long)((wait + USEC_PER_SEC - 1) / USEC_PER_SEC));
	return -1;
}

int fleet_quota_check_pause(const struct fleet *fleet, const char *tenant, const struct fleet_quota *quota, uint64_t disk_mib,
	struct err *reterr)
{
	const struct tenant_use *use = use_find(fleet, tenant);
	const struct fleet_quota none = { .sandboxes = 0 }, *used = use ? &use->used : &none;

	if (is_over(quota->paused, used->paused, 1))
		return exceeded("paused", 1, used->paused, quota->paused, reterr);
	if (is_over(quota->kept_disk_mib, used->kept_disk_mib, disk_mib))
		return exceeded("kept_disk_mib", disk_mib, used->kept_disk_mib, quota->kept_disk_mib, reterr);
	return 0;
}

int fleet_quota_check_snapshot(const struct fleet *fleet, const char *tenant, const struct fleet_quota *quota,
	uint64_t disk_mib, struct err *reterr)
{
	const struct tenant_use *use = use_find(fleet, tenant);
	const struct fleet_quota none = { .sandboxes = 0 }, *used = use ? &use->used : &none;

	if (is_over(quota->snapshots, used->snapshots, 1))
		return exceeded("snapshots", 1, used->snapshots, quota->snapshots, reterr);
	if (is_over(quota->kept_disk_mib, used->kept_disk_mib, disk_mib))
		return exceeded("kept_disk_mib", disk_mib, used->kept_disk_mib, quota->kept_disk_mib, reterr);
	return 0;
}

void fleet_quota_used(const struct fleet *fleet, const char *tenant, struct fleet_quota *ret)
{
	const struct tenant_use *use = use_find(fleet, tenant);

	*ret = use ? use->used : (struct fleet_quota){ .sandboxes = 0 };
}
