/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes: the link state is moved by what is heard and not heard, and by nothing else; the facts (cordoned,
 * draining, quarantined) by people and evidence, and never by the link. A node is placed on when it is ready,
 * has none of the facts, and says itself that it is able.
 */
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"
#include "fleet/runs.h"

#define BUSY_MAX_USEC (60 * USEC_PER_SEC)

struct node *fleet_node_find(const struct fleet *fleet, const char *id)
{
	struct node *node;

	HASH_FIND_STR(fleet->nodes, id, node);
	return node;
}

void fleet_node_dirty(struct fleet *fleet, struct node *node)
{
	if (node->dirty)
		return;
	node->dirty = true;
	TAILQ_INSERT_TAIL(&fleet->dirty_nodes, node, in_dirty);
}

static bool has_fact(const struct node *node)
{
	for (unsigned int i = 0; i < NODE_FACT_MAX_; i++)
		if (node->record.facts[i].is_set)
			return true;
	return false;
}

/* By its owner, on the node itself: for placement the same as a drain of ours. */
static bool is_drained_there(const struct node *node)
{
	return node->unschedulable.code == FAIL_NODE_DRAINING;
}

static enum place_absence absence_of(const struct node *node)
{
	if (node->record.revoked)
		return PLACE_REMOVED;
	if (node->link != NODE_READY || node->session == 0 || !node->is_known)
		return PLACE_NOT_CONNECTED;
	if (node->record.facts[NODE_CORDONED].is_set)
		return PLACE_CORDONED;
	return node->record.facts[NODE_DRAINING].is_set || is_drained_there(node) ? PLACE_DRAINING : PLACE_QUARANTINED;
}

void fleet_node_update_place(struct fleet *fleet, struct node *node)
{
	uint32_t max_starts = fleet_learn_max_starts(node);
	/* It takes seconds: who asks waits for them, as for a place. */
	bool is_pending = node->unschedulable.code == FAIL_CANARY_PENDING;
	struct place_node_facts facts = {
		.connected = node->link == NODE_READY && node->session != 0 &&
			     (node->is_known || PLANTED(INVENTORY_NOT_AWAITED)),
		.allowed = !has_fact(node) && !is_drained_there(node),
		.absence = absence_of(node),
		.unable = is_pending || is_drained_there(node) ? FAIL_NONE : node->unschedulable.code,
		.ill_permille = fleet_learn_ill_permille(node),
		.busy = is_pending || fleet->now.mono_usec < node->busy_until_usec,
		.capacity = node->record.capacity,
		.foreign_memory_mib = node->foreign_memory_mib + node->record.capacity.frozen_mib + node->freezing_mib + node->settling_mib,
		.foreign_disk_mib = node->foreign_disk_mib + node->snapshots_mib,
		.foreign_vcpus = node->foreign_vcpus,
		.foreign_sandboxes = node->foreign_sandboxes,
	};

	if (max_starts)
		facts.capacity.max_starts = MIN(facts.capacity.max_starts, max_starts);
	if (place_node_set(fleet->place, node->place, &facts) < 0)
		fleet->out->no_memory = true;
	fleet->kicked = true;
}

/* The only writer of node->session. Room is taken on a node by what has ended for the scheduler and not for the node,
 * and its last starts may have failed: who has not said what is there in this session is not placed on. */
static void set_session(struct fleet *fleet, struct node *node, uint64_t session)
{
	if (node->session && !node->is_known)
		fleet->n_unknown--;
	node->session = session;
	node->is_known = false;
	if (session)
		fleet->n_unknown++;
}

void fleet_node_known(struct fleet *fleet, struct node *node)
{
	if (!node->is_known)
		fleet->n_unknown--;
	node->is_known = true;
	fleet_node_update_place(fleet, node);
}

static void arm_live(struct fleet *fleet, struct node *node)
{
	const struct fleet_config *config = &fleet->config;
	int64_t lost = MAX(node->heard_usec + fleet_node_lost_after(fleet, node),
		fleet->started_usec + config->grace_usec);
	int r = 0;

	switch (node->link) {
	case NODE_READY:
		r = fleet_timer_arm(
			&fleet->timers, &node->live, node->heard_usec + config->suspect_usec);
		break;
	case NODE_JOINING:
	case NODE_SUSPECT:
		r = fleet_timer_arm(&fleet->timers, &node->live, lost);
		break;
	case NODE_LOST:
	case NODE_REMOVED:
	case NODE_LINK_MAX_:
		fleet_timer_stop(&fleet->timers, &node->live);
		break;
	}
	if (r < 0)
		fleet->out->no_memory = true;
}

/* The only writer of node->link. */
static void move(struct fleet *fleet, struct node *node, enum node_link link)
{
	fleet->counts.nodes[node->link]--;
	fleet->counts.nodes[link]++;
	node->link = link;
	arm_live(fleet, node);
	fleet_node_update_place(fleet, node);
}

int fleet_node_add(struct fleet *fleet, const struct node_record *record)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node || node_record_copy(record, &node->record) < 0) {
		free(node);
		return -1;
	}
	if (place_node_add(fleet->place, record->pool, record->id, &node->place) == 0 &&
		place_node_set_profile(fleet->place, node->place, record->cpu_class, record->labels,
			record->n_labels) == 0)
		HASH_ADD_STR(fleet->nodes, record.id, node);
	if (!node->place || !node->hh.tbl) {
		place_node_remove(fleet->place, node->place);
		node_record_deinit(&node->record);
		free(node);
		return -1;
	}
	TAILQ_INIT(&node->sandboxes);
	TAILQ_INIT(&node->snapshots);
	TAILQ_INSERT_TAIL(&fleet->all_nodes, node, in_all);
	node->live = (struct timer)TIMER_NULL(TIMER_LIVE, node);
	node->busy = (struct timer)TIMER_NULL(TIMER_BUSY, node);
	node->drain = (struct timer)TIMER_NULL(TIMER_DRAIN, node);
	node->policy = fleet_pool_find(fleet, record->pool);
	fleet_learn_node_init(node);
	node->busy_usec = fleet->config.node_busy_usec;
	node->heard_usec = fleet->now.mono_usec;
	node->link = NODE_JOINING;
	fleet->counts.nodes[NODE_JOINING]++;
	move(fleet, node, record->revoked ? NODE_REMOVED : NODE_JOINING);
	return 0;
}

void fleet_node_free_all(struct fleet *fleet)
{
	struct node *node;

	while ((node = TAILQ_FIRST(&fleet->all_nodes))) {
		TAILQ_REMOVE(&fleet->all_nodes, node, in_all);
		HASH_DEL(fleet->nodes, node);
		fleet_inventory_forget(node);
		space_list_deinit(&node->space);
		node_record_deinit(&node->record);
		free(node); /* its place went with struct place */
	}
}

/* ---- hello ---- */

static void refuse_hello(
	struct fleet *fleet, const struct fleet_event *event, enum fail_code code, const char *why)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, code, 0, "%s", why);
	err_add(&err, "node", "%s", event->node);
	err_add(&err, "hostname", "%s", event->hello->hostname);
	fleet_emit_refused(fleet, event->node, event->session, &err);
	fleet_emit_notice(fleet, &err, event->node, NULL);
}

/* While the first is heard, a second of the same key is refused, unless it is the first one's agent started
 * anew: the same state directory on the same boot of the same host, or a new connection of the same instance. */
static bool is_second_host(
	const struct fleet *fleet, const struct node *node, const struct hello *hello)
{
	bool first_is_alive = node->session != 0 && node->link == NODE_READY &&
			      fleet->now.mono_usec - node->heard_usec < fleet->config.suspect_usec;

	if (!first_is_alive || strcmp(node->instance, hello->instance) == 0)
		return false;
	return strcmp(node->record.machine, hello->machine) != 0 ||
	       strcmp(node->boot_id, hello->boot_id) != 0;
}

static void take_cpu_class(struct fleet *fleet, struct node *node, const struct hello *hello)
{
	struct node_record *record = &node->record;

	if (strcmp(record->cpu_class, hello->cpu_class) == 0)
		return;
	if (place_node_set_profile(fleet->place, node->place, hello->cpu_class, record->labels, record->n_labels) < 0) {
		fleet->out->no_memory = true; /* the next hello brings it again */
		return;
	}
	memcpy(record->cpu_class, hello->cpu_class, sizeof(record->cpu_class));
	fleet_node_dirty(fleet, node);
}

static void take_record(struct fleet *fleet, struct node *node, const struct hello *hello)
{
	struct node_record *record = &node->record;
	bool same = capacity_is_equal(&record->capacity, &hello->capacity) &&
		    strcmp(record->machine, hello->machine) == 0 &&
		    strcmp(record->hostname, hello->hostname) == 0 &&
		    strcmp(record->version, hello->version) == 0 &&
		    strcmp(record->server_key, hello->server_key) == 0 &&
		    strcmp(record->next_key, hello->next_key) == 0;

	node->settling_mib = 0;
	if (same)
		return;
	record->capacity = hello->capacity;
	memcpy(record->machine, hello->machine, sizeof(record->machine));
	memcpy(record->hostname, hello->hostname, sizeof(record->hostname));
	memcpy(record->version, hello->version, sizeof(record->version));
	memcpy(record->server_key, hello->server_key, sizeof(record->server_key));
	memcpy(record->next_key, hello->next_key, sizeof(record->next_key));
	fleet_node_dirty(fleet, node);
}

static void welcome(struct fleet *fleet, struct node *node)
{
	struct fleet_send *send = fleet_emit_send(fleet, node, SEND_WELCOME);

	if (!send)
		return;
	send->welcome = (struct welcome){
		.takes_usage = true,
		.heartbeat_ms = fleet->config.heartbeat_ms,
		.telemetry_acked = node->record.telemetry_acked,
		.lease_ms = fleet_node_lease_ms(node),
		.realtime_us = fleet->now.real_usec,
		.greeting = node->greeting,
	};
	if (send->welcome.lease_ms == 0 && node->record.lease_ms > 0) {
		node->record.lease_ms = 0; /* it takes them off now, and may not be heard again */
		fleet_node_dirty(fleet, node);
	}
	memcpy(send->welcome.node, node->record.id, sizeof(send->welcome.node));
	memcpy(send->welcome.pool, node->record.pool, sizeof(send->welcome.pool));
	memcpy(send->welcome.lineage, fleet->config.lineage, sizeof(send->welcome.lineage));
	memcpy(send->welcome.run, fleet->config.run, sizeof(send->welcome.run));
}

static void set_images(struct fleet *fleet, struct node *node, const struct image_list *images)
{
	if (place_node_set_images(fleet->place, node->place, images) < 0)
		fleet->out->no_memory = true;
	node->n_images = images->n;
}

static void take_hello(struct fleet *fleet, struct node *node, const struct fleet_event *event)
{
	const struct hello *hello = event->hello;
	bool again =
		node->session == event->session && strcmp(node->instance, hello->instance) == 0;

	take_record(fleet, node, hello);
	take_cpu_class(fleet, node, hello);
	memcpy(node->instance, hello->instance, sizeof(node->instance));
	memcpy(node->boot_id, hello->boot_id, sizeof(node->boot_id));
	node->unschedulable = hello->unschedulable;
	node->pauses = hello->pauses;
	node->snapshots_are_known = hello->snapshots;
	set_images(fleet, node, &hello->images);
	if (!again) {
		struct sandbox *sandbox;

		set_session(fleet, node, event->session);
		node->greeting = rng_u64(fleet->rng) | 1;
		fleet_inventory_forget(node);
		fleet_snapshots_disconnected(fleet, node);
		/* What was sent on the old route is lost; the inventory of this session sends again. */
		TAILQ_FOREACH (sandbox, &node->sandboxes, in_node) {
			fleet_timer_stop(&fleet->timers, &sandbox->resend);
			/* What it says now is newer than all before, whatever a full disk made its agent forget to count. */
			sandbox->record.report_version = 0;
		}
	}
	node->heard_usec = fleet->now.mono_usec;
	node->heard_real_us = fleet->now.real_usec;
	move(fleet, node, NODE_READY);
	welcome(fleet, node);
}

/* Every start of ours has a higher epoch than those before, all of them in our store. */
bool fleet_hello_is_split(const struct fleet *fleet, const struct hello *hello)
{
	const struct fleet_config *config = &fleet->config;

	if (!*hello->leader.run || strcmp(hello->leader.lineage, config->lineage) != 0 ||
		strcmp(hello->leader.run, config->run) == 0)
		return false;
	return hello->highest_epoch >= config->epoch ||
	       (config->runs && !PLANTED(COPY_FOLLOWED) && !runs_follow(config->runs, hello->highest_epoch, hello->leader.run));
}

static void refuse_split(struct fleet *fleet, const struct fleet_event *event)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SCHEDULER_SPLIT, 0,
		"The node obeys another scheduler with this one's store and keys.");
	err_add(&err, "instance", "%s", fleet->config.run);
	err_add(&err, "first", "%s", event->hello->leader.run);
	fleet_emit_notice(fleet, &err, event->node, NULL);
	fleet_emit_refused(fleet, event->node, event->session, &err);
}

void fleet_node_hello(struct fleet *fleet, const struct fleet_event *event)
{
	struct node *node = fleet_node_find(fleet, event->node);
	const struct hello *hello = event->hello;

	if (!node) {
		refuse_hello(fleet, event, FAIL_NODE_KEY_UNKNOWN,
			"The node's record is not in the store.");
		return;
	}
	if (node->link == NODE_REMOVED) {
		refuse_hello(fleet, event, FAIL_NODE_REVOKED, "This node's key was revoked.");
		return;
	}
	if (fleet_hello_is_split(fleet, hello)) {
		refuse_split(fleet, event);
		return;
	}
	if (hello->highest_epoch > fleet->config.epoch) {
		refuse_hello(fleet, event, FAIL_STALE_EPOCH,
			"The node has obeyed a newer scheduler than this one.");
		return;
	}
	if (is_second_host(fleet, node, hello)) {
		fleet->counts.key_in_use++;
		refuse_hello(fleet, event, FAIL_NODE_ID_IN_USE,
			"Another host is connected with this node's key.");
		return;
	}
	take_hello(fleet, node, event);
}

struct node *fleet_node_handle(struct fleet *fleet, const char *id)
{
	return fleet_node_find(fleet, id);
}

struct node *fleet_node_of_session(struct fleet *fleet, const struct fleet_event *event)
{
	struct node *node = event->at ? event->at : fleet_node_find(fleet, event->node);
	struct err err = ERR_NULL;

	if (node && node->session == event->session && node->link != NODE_REMOVED)
		return node;
	fleet->counts.stale_session++;
	if (event->type == FLEET_NODE_HEARTBEAT || event->type == FLEET_NODE_INVENTORY) {
		(void)err_set(&err, FAIL_HELLO_NEEDED, 0, "This session is not known.");
		fleet_emit_refused(fleet, event->node, event->session, &err);
	}
	return NULL;
}

/* ---- liveness ---- */

void fleet_node_heard(struct fleet *fleet, struct node *node)
{
	node->heard_usec = fleet->now.mono_usec;
	node->heard_real_us = fleet->now.real_usec;
	if (node->link == NODE_SUSPECT || node->link == NODE_LOST)
		move(fleet, node, NODE_READY);
}

/* The timer was armed when something was last heard or earlier: look again at when that was. */
void fleet_node_on_live(struct fleet *fleet, struct node *node)
{
	int64_t silent = fleet->now.mono_usec - node->heard_usec;
	struct err err = ERR_NULL;

	if (node->link == NODE_READY && silent >= fleet->config.suspect_usec) {
		move(fleet, node, NODE_SUSPECT);
		return;
	}
	if ((node->link == NODE_SUSPECT || node->link == NODE_JOINING) &&
		silent >= fleet_node_lost_after(fleet, node) &&
		fleet->now.mono_usec >= fleet->started_usec + fleet->config.grace_usec) {
		move(fleet, node, NODE_LOST);
		(void)err_set(&err, FAIL_NODE_LOST, 0, "Nothing was heard of the node for %lld s.",
			(long long)(silent / USEC_PER_SEC));
		fleet_emit_notice(fleet, &err, node->record.id, NULL);
		fleet_warm_give_up(fleet, node);
		fleet_snapshots_node_lost(fleet, node);
		fleet_replace_run(fleet);
		return;
	}
	arm_live(fleet, node);
}

void fleet_node_disconnected(struct fleet *fleet, struct node *node)
{
	struct sandbox *sandbox;

	set_session(fleet, node, 0);
	fleet_inventory_forget(node);
	fleet_snapshots_disconnected(fleet, node);
	TAILQ_FOREACH (sandbox, &node->sandboxes, in_node)
		fleet_timer_stop(&fleet->timers, &sandbox->resend);
	if (node->link == NODE_READY)
		move(fleet, node, NODE_SUSPECT);
	else
		fleet_node_update_place(fleet, node);
}

void fleet_node_stall(struct fleet *fleet, int64_t stall_usec)
{
	struct node *node;

	if (PLANTED(STALL_COUNTED))
		return;
	TAILQ_FOREACH (node, &fleet->all_nodes, in_all) {
		node->heard_usec = MIN(node->heard_usec + stall_usec, fleet->now.mono_usec);
		arm_live(fleet, node);
	}
}

/* ---- capacity, facts, revocation ---- */

static void set_space(struct fleet *fleet, struct node *node, const struct space_list *space)
{
	struct space_list copy;

	if (space_list_copy(space, &copy) < 0) {
		fleet->out->no_memory = true;
		return;
	}
	space_list_deinit(&node->space);
	node->space = copy;
}

void fleet_node_capacity_report(
	struct fleet *fleet, struct node *node, const struct capacity_report *report)
{
	if (!capacity_is_equal(&node->record.capacity, &report->capacity)) {
		node->record.capacity = report->capacity;
		fleet_node_dirty(fleet, node);
	}
	node->unschedulable = report->unschedulable;
	node->settling_mib = 0;
	set_images(fleet, node, &report->images);
	set_space(fleet, node, &report->space);
	fleet_node_update_place(fleet, node);
}

void fleet_node_set_fact(struct fleet *fleet, struct node *node, const struct fleet_event *event)
{
	struct node_fact_entry *entry = &node->record.facts[event->fact.fact];

	if (entry->is_set == event->fact.set &&
		(!event->fact.set || entry->until_us == event->fact.until_us))
		return; /* a drain may get another deadline; who, why and since are then the later ones */
	*entry = (struct node_fact_entry){ .is_set = event->fact.set,
		.since_us = fleet->now.real_usec,
		.until_us = event->fact.set ? event->fact.until_us : 0 };
	(void)snprintf(
		entry->who, sizeof(entry->who), "%s", event->fact.who ? event->fact.who : "");
	(void)snprintf(
		entry->why, sizeof(entry->why), "%s", event->fact.why ? event->fact.why : "");
	fleet_node_dirty(fleet, node);
	fleet_node_update_place(fleet, node);
	if (event->fact.set)
		fleet_warm_give_up(fleet, node);
	if (event->fact.fact == NODE_DRAINING && event->fact.set)
		fleet_drain_begin(fleet, node);
	else if (event->fact.fact == NODE_DRAINING)
		fleet_drain_arm(fleet, node);
}

/* Nothing will ever be heard of it again: what is there has ended for everybody. */
void fleet_node_revoke(struct fleet *fleet, struct node *node, bool is_reimaged)
{
	struct sandbox *sandbox, *next;
	struct err err = ERR_NULL;

	if (is_reimaged)
		(void)err_set_at(&err, STAGE_RUN, FAIL_HOST_REIMAGED, 0, "The sandbox's host was set up anew.");
	else
		(void)err_set_at(&err, STAGE_RUN, FAIL_NODE_REVOKED, 0, "The sandbox's node was removed.");
	err_add(&err, "node", "%s", node->record.id);
	node->record.revoked = true;
	set_session(fleet, node, 0);
	fleet_node_dirty(fleet, node);
	move(fleet, node, NODE_REMOVED);
	for (sandbox = TAILQ_FIRST(&node->sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_node);
		fleet_sandbox_end(fleet, sandbox, END_FAILED, &err);
	}
	fleet_snapshots_node_removed(fleet, node);
}

/* ---- back-off after a refusal for want of room ---- */

void fleet_node_refused(struct fleet *fleet, struct node *node)
{
	node->busy_until_usec = fleet->now.mono_usec + node->busy_usec;
	if (fleet_timer_arm(&fleet->timers, &node->busy, node->busy_until_usec) < 0)
		fleet->out->no_memory = true;
	node->busy_usec = MIN(2 * node->busy_usec, BUSY_MAX_USEC);
	fleet_node_update_place(fleet, node);
}

void fleet_node_started(struct fleet *fleet, struct node *node)
{
	node->busy_usec = fleet->config.node_busy_usec;
}

void fleet_node_on_busy(struct fleet *fleet, struct node *node)
{
	fleet_node_update_place(fleet, node);
}
