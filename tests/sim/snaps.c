/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots in the simulator: what the store has of them.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* ---- the store ---- */

void snaps_put(struct sim *sim, const struct snapshot_record *record)
{
	struct stored_snapshot *stored;

	HASH_FIND_STR(sim->scheduler.snapshots, record->id, stored);
	if (stored) {
		snapshot_record_deinit(&stored->record);
	} else {
		stored = calloc(1, sizeof(*stored));
		if (!stored)
			exit(3);
		memcpy(stored->id, record->id, sizeof(stored->id));
		HASH_ADD_STR(sim->scheduler.snapshots, id, stored);
	}
	if (snapshot_record_copy(record, &stored->record) < 0)
		exit(3);
}

void snaps_delete(struct sim *sim, const char *id)
{
	struct stored_snapshot *stored;

	HASH_FIND_STR(sim->scheduler.snapshots, id, stored);
	if (!stored)
		return;
	HASH_DEL(sim->scheduler.snapshots, stored);
	snapshot_record_deinit(&stored->record);
	free(stored);
}

void snaps_load(struct sim *sim)
{
	struct stored_snapshot *stored;

	for (stored = sim->scheduler.snapshots; stored; stored = stored->hh.next) {
		const struct fleet_event event = { .type = FLEET_LOAD_SNAPSHOT, .snapshot_record = &stored->record };

		scheduler_step(sim, &event);
	}
}

void snaps_free(struct sim *sim)
{
	while (sim->scheduler.snapshots)
		snaps_delete(sim, sim->scheduler.snapshots->id);
}
