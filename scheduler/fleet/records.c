/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of the plain records and of an actions object; name tables of the enums.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/fleet.h"

void fleet_config_default(struct fleet_config *ret)
{
	*ret = (struct fleet_config){
		.heartbeat_ms = 1000,
		.suspect_usec = 2800 * USEC_PER_MSEC,
		.lost_after_usec = 60 * USEC_PER_SEC,
		.grace_usec = 300 * USEC_PER_SEC,
		.resend_usec = 2 * USEC_PER_SEC,
		.place_timeout_usec = 60 * USEC_PER_SEC,
		.dispatch_timeout_usec = 20 * USEC_PER_SEC,
		.start_timeout_usec = 120 * USEC_PER_SEC,
		.recall_timeout_usec = 30 * USEC_PER_SEC,
		.sleep_timeout_usec = 50 * USEC_PER_SEC,
		.snapshot_timeout_usec = 360 * USEC_PER_SEC,
		.stop_timeout_usec = 60 * USEC_PER_SEC,
		.fence_usec = INT64_C(30) * 24 * 3600 * USEC_PER_SEC,
		.backoff_min_usec = 1 * USEC_PER_SEC,
		.backoff_max_usec = 10 * USEC_PER_SEC,
		.node_busy_usec = 2 * USEC_PER_SEC,
		.max_attempts = 3,
		.max_refusals = 3,
		.max_queued = 10000,
		.part_size = PART_MAX,
	};
}

/* ---- names ---- */

static const char *const public_names[PUBLIC_MAX_] = {
	[PUBLIC_STARTING] = "starting",
	[PUBLIC_RUNNING] = "running",
	[PUBLIC_PAUSED] = "paused",
	[PUBLIC_STOPPING] = "stopping",
	[PUBLIC_ENDED] = "ended",
};

const char *public_state_name(enum public_state state)
{
	return (unsigned int)state < PUBLIC_MAX_ ? public_names[state] : "unknown";
}

static const char *const link_names[NODE_LINK_MAX_] = {
	[NODE_JOINING] = "joining",
	[NODE_READY] = "ready",
	[NODE_SUSPECT] = "suspect",
	[NODE_LOST] = "lost",
	[NODE_REMOVED] = "removed",
};

const char *node_link_name(enum node_link link)
{
	return (unsigned int)link < NODE_LINK_MAX_ ? link_names[link] : "unknown";
}

static const char *const fact_names[NODE_FACT_MAX_] = {
	[NODE_CORDONED] = "cordoned",
	[NODE_DRAINING] = "draining",
	[NODE_QUARANTINED] = "quarantined",
};

const char *node_fact_name(enum node_fact fact)
{
	return (unsigned int)fact < NODE_FACT_MAX_ ? fact_names[fact] : "unknown";
}

/* ---- records ---- */

void sandbox_fields_free(struct sandbox_field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(fields[i].key);
		free(fields[i].value);
	}
	free(fields);
}

int sandbox_fields_copy(const struct sandbox_field *fields, size_t n, struct sandbox_field **ret)
{
	struct sandbox_field *copy = NULL;

	if (n) {
		copy = calloc(n, sizeof(*copy));
		if (!copy)
			return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		copy[i].key = strdup(fields[i].key);
		copy[i].value = strdup(fields[i].value);
		if (!copy[i].key || !copy[i].value) {
			sandbox_fields_free(copy, n);
			return -ENOMEM;
		}
	}
	*ret = copy;
	return 0;
}

static int array_copy(const void *from, size_t n, size_t size, void **ret)
{
	void *copy = NULL;

	if (n) {
		copy = calloc(n, size);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, from, n * size);
	}
	*ret = copy;
	return 0;
}

void sandbox_record_deinit(struct sandbox_record *record)
{
	record->spec = spec_unref(record->spec);
	sandbox_fields_free(record->metadata, record->n_metadata);
	sandbox_fields_free(record->wish.labels, record->wish.n_labels);
	record->wish.labels = NULL;
	record->wish.n_labels = 0;
	free(record->stages);
	free(record->excluded);
	free(record->events);
	record->events = NULL;
	record->n_events = 0;
	record->metadata = NULL;
	record->stages = NULL;
	record->excluded = NULL;
	record->n_metadata = record->n_stages = record->n_excluded = 0;
}

int sandbox_record_copy(const struct sandbox_record *record, struct sandbox_record *ret)
{
	struct sandbox_record copy = *record;
	void *stages = NULL, *excluded = NULL, *events = NULL;

	copy.spec = NULL;
	copy.metadata = NULL;
	copy.wish.labels = NULL;
	copy.stages = NULL;
	copy.excluded = NULL;
	copy.events = NULL;
	if (sandbox_fields_copy(record->metadata, record->n_metadata, &copy.metadata) < 0 ||
		sandbox_fields_copy(
			record->wish.labels, record->wish.n_labels, &copy.wish.labels) < 0 ||
		array_copy(record->stages, record->n_stages, sizeof(*record->stages), &stages) <
			0 ||
		array_copy(record->excluded, record->n_excluded, sizeof(*record->excluded),
			&excluded) < 0 ||
		array_copy(record->events, record->n_events, sizeof(*record->events), &events) <
			0) {
		sandbox_fields_free(copy.metadata, copy.metadata ? copy.n_metadata : 0);
		sandbox_fields_free(copy.wish.labels, copy.wish.labels ? copy.wish.n_labels : 0);
		free(stages);
		free(excluded);
		return -ENOMEM;
	}
	copy.stages = stages;
	copy.excluded = excluded;
	copy.events = events;
	copy.spec = spec_ref(record->spec);
	*ret = copy;
	return 0;
}

void node_record_deinit(struct node_record *record)
{
	sandbox_fields_free(record->labels, record->n_labels);
	free(record->images);
	record->labels = NULL;
	record->images = NULL;
	record->n_labels = record->n_images = 0;
}

int node_record_copy(const struct node_record *record, struct node_record *ret)
{
	struct node_record copy = *record;

	void *images = NULL;

	if (array_copy(record->images, record->n_images, sizeof(*record->images), &images) < 0)
		return -ENOMEM;
	copy.images = images;
	if (sandbox_fields_copy(record->labels, record->n_labels, &copy.labels) < 0) {
		free(images);
		return -ENOMEM;
	}
	*ret = copy;
	return 0;
}

void snapshot_record_deinit(struct snapshot_record *record)
{
	record->spec = spec_unref(record->spec);
	sandbox_fields_free(record->metadata, record->n_metadata);
	free(record->forks);
	record->metadata = NULL;
	record->forks = NULL;
	record->n_metadata = record->n_forks = 0;
}

int snapshot_record_copy(const struct snapshot_record *record, struct snapshot_record *ret)
{
	struct snapshot_record copy = *record;
	void *forks = NULL;

	if (array_copy(record->forks, record->n_forks, sizeof(*record->forks), &forks) < 0)
		return -ENOMEM;
	copy.forks = forks;
	if (sandbox_fields_copy(record->metadata, record->n_metadata, &copy.metadata) < 0) {
		free(forks);
		return -ENOMEM;
	}
	copy.spec = spec_ref(record->spec);
	*ret = copy;
	return 0;
}

/* ---- actions ---- */

static void put_deinit(struct fleet_put *put)
{
	if (put->snapshot)
		snapshot_record_deinit(put->snapshot);
	free(put->snapshot);
	if (put->sandbox)
		sandbox_record_deinit(put->sandbox);
	if (put->node)
		node_record_deinit(put->node);
	free(put->sandbox);
	free(put->node);
}

static void send_deinit(struct fleet_send *send)
{
	switch (send->type) {
	case SEND_DESIRED:
		desired_set_deinit(&send->desired);
		break;
	case SEND_CREATE:
		create_command_deinit(&send->create);
		break;
	case SEND_NETWORK:
		network_command_deinit(&send->network);
		break;
	case SEND_REFUSED:
		free(send->refused);
		break;
	case SEND_WELCOME:
	case SEND_DESTROY:
	case SEND_BUDGET:
	case SEND_UPDATE:
	case SEND_PAUSE:
	case SEND_RESUME:
	case SEND_SNAPSHOT:
	case SEND_DROP_SNAPSHOT:
	case SEND_REPORT_ACK:
	case SEND_LEASE:
		break;
	}
}

static void reply_deinit(struct fleet_reply *reply)
{
	if (reply->sandbox)
		sandbox_record_deinit(reply->sandbox);
	if (reply->snapshot)
		snapshot_record_deinit(reply->snapshot);
	free(reply->sandbox);
	free(reply->snapshot);
	free(reply->forks);
}

void fleet_actions_clear(struct fleet_actions *actions)
{
	for (size_t i = 0; i < actions->n_puts; i++)
		put_deinit(&actions->puts[i]);
	for (size_t i = 0; i < actions->n_sends; i++)
		send_deinit(&actions->sends[i]);
	for (size_t i = 0; i < actions->n_replies; i++)
		reply_deinit(&actions->replies[i]);
	free(actions->puts);
	free(actions->sends);
	free(actions->replies);
	free(actions->stages);
	free(actions->notices);
	*actions = (struct fleet_actions){ .next_usec = INT64_MAX };
}
