/* SPDX-License-Identifier: Apache-2.0
 *
 * See reconcile.h.
 */
#include "core/reconcile.h"

#include <errno.h>
#include <string.h>

#include "base/plant.h"
#include "base/table.h"

struct wanted {
	char sandbox[ID_SIZE];
	uint64_t generation;
	UT_hash_handle hh;
};

struct kept {
	char snapshot[ID_SIZE];
	UT_hash_handle hh;
};

struct drift {
	char id[ID_SIZE];
	int64_t since_usec;
	UT_hash_handle hh;
};

/* What no set names, and when the last corrections were. */
struct drifting {
	struct drift *drifts;
	int64_t corrected_usec[RECONCILE_BUDGET]; /* 0: free */
};

struct reconcile {
	struct wanted *wanted; /* parts so far, or the last complete set */
	size_t n_wanted;
	struct kept *kept; /* likewise */
	bool knows_snapshots; /* likewise: each part says so */
	uint64_t number;
	uint32_t next_part;
	bool collecting;
	struct drifting sandboxes, snapshots;
};

int reconcile_new(struct reconcile **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static void drop_wanted(struct reconcile *reconcile)
{
	struct wanted *item, *next;
	struct kept *kept, *other;

	HASH_ITER (hh, reconcile->wanted, item, next) {
		HASH_DEL(reconcile->wanted, item);
		free(item);
	}
	HASH_ITER (hh, reconcile->kept, kept, other) {
		HASH_DEL(reconcile->kept, kept);
		free(kept);
	}
	reconcile->n_wanted = 0;
	reconcile->knows_snapshots = false;
	reconcile->collecting = false;
}

static void drop_drifts(struct drifting *of)
{
	struct drift *drift, *next;

	HASH_ITER (hh, of->drifts, drift, next) {
		HASH_DEL(of->drifts, drift);
		free(drift);
	}
}

struct reconcile *reconcile_free(struct reconcile *reconcile)
{
	if (!reconcile)
		return NULL;
	drop_wanted(reconcile);
	drop_drifts(&reconcile->sandboxes);
	drop_drifts(&reconcile->snapshots);
	free(reconcile);
	return NULL;
}

static bool add_wanted(struct reconcile *reconcile, const struct desired_sandbox *from)
{
	struct wanted *item;

	HASH_FIND_STR(reconcile->wanted, from->sandbox, item);
	if (!item) {
		item = calloc(1, sizeof(*item));
		if (!item)
			return false;
		memcpy(item->sandbox, from->sandbox, sizeof(item->sandbox));
		HASH_ADD_STR(reconcile->wanted, sandbox, item);
		if (!item->hh.tbl) {
			free(item);
			return false;
		}
		reconcile->n_wanted++;
	}
	item->generation = from->generation;
	return true;
}

static bool is_kept(const struct reconcile *reconcile, const char *snapshot)
{
	struct kept *kept;

	HASH_FIND_STR(reconcile->kept, snapshot, kept);
	return kept != NULL;
}

static bool add_kept(struct reconcile *reconcile, const char *snapshot)
{
	struct kept *kept;

	if (is_kept(reconcile, snapshot))
		return true;
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		return false;
	memcpy(kept->snapshot, snapshot, sizeof(kept->snapshot));
	HASH_ADD_STR(reconcile->kept, snapshot, kept);
	if (kept->hh.tbl)
		return true;
	free(kept);
	return false;
}

static bool add_part(struct reconcile *reconcile, const struct desired_set *part)
{
	reconcile->knows_snapshots = reconcile->knows_snapshots && part->knows_snapshots;
	for (size_t i = 0; i < part->n; i++)
		if (!add_wanted(reconcile, &part->sandboxes[i]))
			return false;
	for (size_t i = 0; i < part->n_snapshots; i++)
		if (!add_kept(reconcile, part->snapshots[i]))
			return false;
	return true;
}

/* What could not be put together is thrown away: then nothing is judged, which is always safe. */
bool reconcile_add_part(
	struct reconcile *reconcile, const struct desired_set *part, uint64_t number)
{
	if (PLANTED(EMPTY_SET_DESTROYS)) {
		drop_wanted(reconcile);
		for (size_t i = 0; i < part->n; i++)
			(void)add_wanted(reconcile, &part->sandboxes[i]);
		return true;
	}
	if (part->inventory != number)
		return false;
	if (part->part == 0) {
		drop_wanted(reconcile);
		reconcile->collecting = true;
		reconcile->number = number;
		reconcile->next_part = 0;
		reconcile->knows_snapshots = true;
	}
	if (!reconcile->collecting || reconcile->number != number ||
		part->part != reconcile->next_part) {
		drop_wanted(reconcile);
		return false;
	}
	reconcile->next_part++;
	if (!add_part(reconcile, part)) {
		drop_wanted(reconcile);
		return false;
	}
	if (!part->complete)
		return false;
	reconcile->collecting = false;
	return true;
}

static struct drift *drift_find(const struct drifting *of, const char *id)
{
	struct drift *drift;

	HASH_FIND_STR(of->drifts, id, drift);
	return drift;
}

static void forget(struct drifting *of, const char *id)
{
	struct drift *drift = drift_find(of, id);

	if (!drift)
		return;
	HASH_DEL(of->drifts, drift);
	free(drift);
}

void reconcile_forget(struct reconcile *reconcile, const char *sandbox)
{
	forget(&reconcile->sandboxes, sandbox);
}

void reconcile_forget_snapshot(struct reconcile *reconcile, const char *snapshot)
{
	forget(&reconcile->snapshots, snapshot);
}

size_t reconcile_drifting(const struct reconcile *reconcile)
{
	return HASH_COUNT(reconcile->sandboxes.drifts) + HASH_COUNT(reconcile->snapshots.drifts);
}

static bool within_budget(struct drifting *of, int64_t now_usec)
{
	for (size_t i = 0; i < RECONCILE_BUDGET; i++) {
		int64_t *slot = &of->corrected_usec[i];

		if (*slot == 0 || now_usec - *slot >= RECONCILE_WINDOW_USEC) {
			*slot = MAX(now_usec, 1);
			return true;
		}
	}
	return false;
}

/* The first look starts the clock; a later one, of another complete set, may act. */
static enum reconcile_verdict judge_unknown(struct drifting *of, int64_t now_usec, const char *id)
{
	struct drift *drift = drift_find(of, id);

	if (!drift) {
		drift = calloc(1, sizeof(*drift));
		if (!drift)
			return RECONCILE_DRIFTING;
		drift->since_usec = now_usec;
		memcpy(drift->id, id, sizeof(drift->id));
		HASH_ADD_STR(of->drifts, id, drift);
		if (!drift->hh.tbl)
			free(drift);
		return RECONCILE_DRIFTING;
	}
	if (now_usec - drift->since_usec < RECONCILE_DRIFT_USEC || !within_budget(of, now_usec))
		return RECONCILE_DRIFTING;
	forget(of, id);
	return RECONCILE_DESTROY;
}

enum reconcile_verdict reconcile_judge(struct reconcile *reconcile, int64_t now_usec,
	const struct reconcile_actual *actual, bool had)
{
	struct wanted *item;

	if (actual->is_ending)
		return RECONCILE_KEEP;
	HASH_FIND_STR(reconcile->wanted, actual->sandbox, item);
	if (item) {
		reconcile_forget(reconcile, actual->sandbox);
		return item->generation > actual->generation ? RECONCILE_FENCE : RECONCILE_KEEP;
	}
	if (PLANTED(EMPTY_SET_DESTROYS))
		return RECONCILE_DESTROY;
	if (!had || reconcile->n_wanted == 0)
		return RECONCILE_KEEP;
	return judge_unknown(&reconcile->sandboxes, now_usec, actual->sandbox);
}

enum reconcile_verdict reconcile_judge_snapshot(
	struct reconcile *reconcile, int64_t now_usec, const char *snapshot, bool had)
{
	if (had && reconcile->knows_snapshots && !is_kept(reconcile, snapshot))
		return judge_unknown(&reconcile->snapshots, now_usec, snapshot);
	forget(&reconcile->snapshots, snapshot);
	return RECONCILE_KEEP;
}
