/* SPDX-License-Identifier: Apache-2.0
 *
 * See meter.h.
 */
#include "core/meter.h"

#include <string.h>

#include "base/util.h"

void meter_begin(struct meter *meter, const char *sandbox, uint64_t generation, const struct sandbox_spec *spec,
	const struct moment *now)
{
	struct usage_record *used = &meter->used;

	memset(meter, 0, sizeof(*meter));
	memcpy(used->sandbox, sandbox, sizeof(used->sandbox));
	memcpy(used->tenant, spec->tenant, sizeof(used->tenant));
	used->generation = generation;
	used->vcpus = spec->vcpus;
	used->memory_mib = spec->memory_mib;
	used->disk_mib = spec->disk_mib;
	used->version = 1;
	used->began_us = used->until_us = now->real_usec;
	meter->since_usec = meter->begun_usec = now->mono_usec;
}

static void add(struct meter *meter, uint64_t usec)
{
	struct usage_record *used = &meter->used;

	if (meter->mode != METER_OFF)
		used->disk_us += usec;
	if (meter->mode == METER_RUNNING)
		used->running_us += usec;
	else if (meter->mode == METER_PAUSED)
		used->paused_us += usec;
}

/* The wall clock may be set back; until_us never goes. */
static void stamp(struct meter *meter, const struct moment *now)
{
	meter->since_usec = MAX(meter->since_usec, now->mono_usec);
	meter->used.until_us = MAX(meter->used.until_us, now->real_usec);
	meter->used.version++;
}

static uint64_t elapsed(const struct meter *meter, const struct moment *now)
{
	return now->mono_usec > meter->since_usec ? (uint64_t)(now->mono_usec - meter->since_usec) : 0;
}

void meter_sync(struct meter *meter, const struct moment *now)
{
	if (meter->used.is_over || meter->is_unsure)
		return;
	add(meter, elapsed(meter, now));
	stamp(meter, now);
}

/* What it does now is known again. Its disk was there in any case. */
static void settle(struct meter *meter, enum meter_mode mode, const struct moment *now)
{
	const uint64_t usec = elapsed(meter, now);

	meter->is_unsure = false;
	if (mode == meter->mode) {
		add(meter, usec);
	} else if (meter->mode != METER_OFF) {
		meter->used.disk_us += usec;
		meter->used.uncounted_us += meter->mode == METER_DISK && mode == METER_OFF ? 0 : usec;
	}
	stamp(meter, now);
}

void meter_move(struct meter *meter, enum meter_mode mode, const struct moment *now)
{
	if (meter->used.is_over)
		return;
	if (meter->is_unsure)
		settle(meter, mode, now);
	else
		meter_sync(meter, now);
	if (mode == METER_RUNNING && meter->mode != METER_RUNNING) {
		meter->has_run = true;
		meter->ran_from_us = meter->used.running_us;
	}
	meter->mode = mode;
}

void meter_new_vm(struct meter *meter)
{
	meter->cpu_seen_us = meter->egress_seen = 0;
	meter->has_run = false;
}

/* How much was added since the last reading. */
static uint64_t grown(uint64_t *seen, uint64_t now)
{
	const uint64_t more = now >= *seen ? now - *seen : now;

	*seen = now;
	return more;
}

void meter_read_cpu(struct meter *meter, uint64_t cpu_us)
{
	if (meter->has_run && !meter->used.is_over)
		meter->used.cpu_us += grown(&meter->cpu_seen_us, cpu_us);
}

void meter_read_egress(struct meter *meter, uint64_t bytes)
{
	if (meter->has_run && !meter->used.is_over)
		meter->used.egress_bytes += grown(&meter->egress_seen, bytes);
}

void meter_lose(struct meter *meter, enum fail_component component, int64_t usec)
{
	if ((unsigned int)component < COMPONENT_MAX_ && usec > 0)
		meter->used.lost_us[component] += (uint64_t)usec;
}

void meter_end(struct meter *meter, const struct moment *now)
{
	if (meter->used.is_over)
		return;
	meter_move(meter, METER_OFF, now);
	meter->used.is_over = true;
}

void meter_load(struct meter *meter, bool is_same_boot, const struct moment *now)
{
	if (!is_same_boot) { /* its clock began anew; the wall clock says how long ago that was */
		meter->since_usec = now->mono_usec - MAX(now->real_usec - meter->used.until_us, INT64_C(0));
		meter_new_vm(meter);
	}
	meter->begun_usec = now->mono_usec - MAX(now->real_usec - meter->used.began_us, INT64_C(0));
	meter->is_unsure = !meter->used.is_over;
}
