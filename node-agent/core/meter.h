/* SPDX-License-Identifier: Apache-2.0
 *
 * What one generation of a sandbox uses: time by what it does, and what is read of its VM, as cumulative counters. Pure
 * arithmetic; core/usage.c has one for each sandbox and knows when they change.
 *
 * Time runs on CLOCK_MONOTONIC, also while no agent runs: one that comes back goes on from where the file says it was counted
 * up to, where the sandbox still does what it did then. Where it does not, when it stopped is known to nobody: that time is
 * `uncounted`, so that nothing is counted that may not have been, and what may be missing is said.
 *
 * Readings are of the VM's control group and network slot, which begin at 0 with each VM. A VM that never ran the sandbox (a
 * start or a wake that failed) is not charged.
 */
#pragma once

#include "wire/messages.h"

/* What time is counted as. */
enum meter_mode {
	METER_OFF,     /* nothing yet, or nothing any more */
	METER_DISK,    /* starts or ends: only its disk is taken */
	METER_RUNNING, /* and memory, CPU */
	METER_PAUSED,  /* its disk; and it sleeps */
	METER_MODE_MAX_
};

struct meter {
	struct usage_record used;
	enum meter_mode mode;
	bool is_unsure;     /* it comes from a file, and whether it is still in that mode is not known yet */
	int64_t since_usec; /* monotonic: counted up to here */
	int64_t begun_usec; /* monotonic: when it was accepted */
	uint64_t cpu_seen_us, egress_seen; /* of its VM, as last read */
	bool has_run;       /* that VM ran the sandbox: its readings count */
	uint64_t ran_from_us; /* of used.running_us: since it last began to run */
};

void meter_begin(struct meter *meter, const char *sandbox, uint64_t generation, const struct sandbox_spec *spec,
	const struct moment *now);
/* Counts up to now in the mode that was. */
void meter_move(struct meter *meter, enum meter_mode mode, const struct moment *now);
/* Counts up to now. */
void meter_sync(struct meter *meter, const struct moment *now);
/* Its next VM, whose readings begin at 0. */
void meter_new_vm(struct meter *meter);
/* Readings of its VM; a lower one than before is of counters that began anew. */
void meter_read_cpu(struct meter *meter, uint64_t cpu_us);
void meter_read_egress(struct meter *meter, uint64_t bytes);
/* A failure took so long of it. */
void meter_lose(struct meter *meter, enum fail_component component, int64_t usec);
void meter_end(struct meter *meter, const struct moment *now);
/* As it was saved, of the same boot of the host or another: `used`, `mode`, the readings and `since_usec` are set. */
void meter_load(struct meter *meter, bool is_same_boot, const struct moment *now);
