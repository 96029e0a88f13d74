/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal record and the actions object as plain data; defaults.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "core/supervisor.h"

void sv_config_default(struct sv_config *ret)
{
	*ret = (struct sv_config){
		.hello_usec = 1 * USEC_PER_SEC,
		.inventory_usec = 5 * USEC_PER_SEC,
		.resync_usec = 600 * USEC_PER_SEC,
		.capacity_usec = 5 * USEC_PER_SEC,
		.usage_usec = 60 * USEC_PER_SEC,
		.report_usec = 2 * USEC_PER_SEC,
		.image_timeout_usec = 600 * USEC_PER_SEC,
		.disk_timeout_usec = 60 * USEC_PER_SEC,
		.network_timeout_usec = 30 * USEC_PER_SEC,
		.vmm_timeout_usec = 20 * USEC_PER_SEC,
		.kernel_timeout_usec = 60 * USEC_PER_SEC,
		.guest_timeout_usec = 60 * USEC_PER_SEC,
		.setup_timeout_usec = 300 * USEC_PER_SEC,
		.adopt_timeout_usec = 10 * USEC_PER_SEC,
		.stop_grace_usec = 0,
		.kill_timeout_usec = 10 * USEC_PER_SEC,
		.remove_retry_usec = 5 * USEC_PER_SEC,
		.pause_timeout_usec = 300 * USEC_PER_SEC,
		.keep_usec = 60 * USEC_PER_SEC,
		.part_size = PART_MAX,
		.graves_max = 4096,
	};
}

void sv_journal_deinit(struct sv_journal *journal)
{
	journal->spec = spec_unref(journal->spec);
	free(journal->stages);
	journal->stages = NULL;
	journal->n_stages = 0;
}

int sv_journal_copy(const struct sv_journal *journal, struct sv_journal *ret)
{
	struct stage_record *stages = NULL;

	if (journal->n_stages) {
		stages = calloc(journal->n_stages, sizeof(*stages));
		if (!stages)
			return -ENOMEM;
		memcpy(stages, journal->stages, journal->n_stages * sizeof(*stages));
	}
	*ret = *journal;
	ret->stages = stages;
	ret->spec = spec_ref(journal->spec);
	return 0;
}

void sv_action_deinit(struct sv_action *action)
{
	action->spec = spec_unref(action->spec);
	free(action->snapshot);
	switch (action->type) {
	case SV_DO_JOURNAL_WRITE:
		if (action->journal.record)
			sv_journal_deinit(action->journal.record);
		free(action->journal.record);
		break;
	case SV_DO_SEND_HELLO:
		if (action->hello)
			hello_deinit(action->hello);
		free(action->hello);
		break;
	case SV_DO_SEND_INVENTORY:
		if (action->inventory)
			inventory_deinit(action->inventory);
		free(action->inventory);
		break;
	case SV_DO_SEND_REPORT:
		if (action->report)
			sandbox_report_deinit(action->report);
		free(action->report);
		break;
	case SV_DO_SEND_CAPACITY:
		if (action->capacity)
			capacity_report_deinit(action->capacity);
		free(action->capacity);
		break;
	case SV_DO_SEND_USAGE:
		if (action->usage)
			usage_report_deinit(action->usage);
		free(action->usage);
		break;
	case SV_DO_STAGE:
		free(action->stage);
		break;
	case SV_DO_NODE_EVENT:
		free(action->event.err);
		break;
	case SV_DO_SEND_REFUSED:
		free(action->err);
		break;
	default: /* nothing owned */
		break;
	}
	memset(action, 0, sizeof(*action));
}

void sv_actions_clear(struct sv_actions *actions)
{
	for (size_t i = 0; i < actions->n; i++)
		sv_action_deinit(&actions->items[i]);
	free(actions->items);
	*actions = (struct sv_actions){ .next_usec = INT64_MAX };
}
