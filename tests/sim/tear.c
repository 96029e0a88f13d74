/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of a journal that a power cut tore. What is torn are the real bytes of the real record: cut short, or a part of
 * the new and nothing behind it, and whatever is left is read as no record at all.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/journal.h"
#include "sim.h"

#define SECTOR 512

void tear(struct sim *sim, const struct sv_journal *record)
{
	struct sv_journal back = { .sandbox = "" };
	struct err err = ERR_NULL;
	uint8_t *data;
	size_t size, at;

	if (journal_pack(record, &data, &size) < 0)
		exit(3);
	at = rng_below(&sim->rng, size);
	if (rng_below(&sim->rng, 2) == 0) {
		size = at;
	} else {
		at -= at % SECTOR; /* the whole of it, if it is short */
		memset(data + at, 0, MIN(size - at, (size_t)SECTOR));
	}
	if (journal_unpack(data, size, &back, &err) == 0) {
		sim_violation(sim, "a torn record of %s was read", record->sandbox);
		sv_journal_deinit(&back);
	}
	free(data);
}

void tear_removed(struct sim *sim, struct sim_node *node)
{
	struct sim_journal *journal, *next;

	sim_log(sim, "node %d is freed of what cannot be read", node->number);
	node_crash(sim, node);
	HASH_ITER (hh, node->journals, journal, next) {
		char id[ID_SIZE];

		if (!journal->is_torn)
			continue;
		memcpy(id, journal->sandbox, sizeof(id));
		node_journal_remove(node, id);
		node_disk_removed(sim, node, id);
		sleep_forget(sim_truth(sim, id), node);
	}
	node->has_torn = false;
}
