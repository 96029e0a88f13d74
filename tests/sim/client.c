/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients of the simulated scheduler: they create, wait or do not wait, change time limits, and delete what they
 * find in whatever state it is.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct client *client_new(struct sim *sim)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		exit(3);
	client->request = ++sim->next_request;
	HASH_ADD(hh, sim->clients, request, sizeof(client->request), client);
	return client;
}

static struct sandbox_spec *random_spec(struct sim *sim)
{
	struct sandbox_spec *spec = sim_spec();

	spec->vcpus = (uint32_t)sim_between(sim, 1, 3);
	spec->memory_mib = (uint64_t)sim_between(sim, 256, 2500);
	spec->disk_mib = (uint64_t)sim_between(sim, 100, 2000);
	if (rng_below(&sim->rng, 4) == 0 && !sim->is_heal) /* there nothing ends in a week */
		spec->timeout_s = (uint32_t)sim_between(sim, 5, 90);
	spec->auto_pause = spec->timeout_s && rng_below(&sim->rng, 2);
	if (rng_below(&sim->rng, 3) == 0 &&
		(spec_set_setup(spec, "true") < 0 || spec_add_env(spec, "A", "b") < 0))
		exit(3);
	return spec;
}

/* The warm sandbox that this client saw, just now or a while ago; NULL: none. */
static const char *see_warm(struct sim *sim, const struct sandbox_spec *spec, char seen[ID_SIZE])
{
	const struct sandbox_wish any = { .labels = NULL };
	const char *id = sim->scheduler.fleet
				 ? fleet_warm_pick(sim->scheduler.fleet, POOL, spec, &any)
				 : NULL;

	memcpy(seen, sim->seen_warm, ID_SIZE);
	if (id && rng_below(&sim->rng, 2) == 0) { /* this one only looks; another comes with what it saw */
		memcpy(sim->seen_warm, id, ID_SIZE);
		return NULL;
	}
	return *seen && rng_below(&sim->rng, 2) ? seen : id;
}

static void create(struct sim *sim)
{
	bool warm = !sim->is_heal && rng_below(&sim->rng, 3) == 0;
	struct sandbox_spec *spec = warm ? sim_warm_spec() : random_spec(sim);
	char seen[ID_SIZE];
	struct client *client = client_new(sim);
	struct fleet_create create = {
		.request = client->request,
		.tenant = TENANT,
		.pool = POOL,
		.spec = spec,
		.began_us = REAL_BASE + sim->now_usec,
		.queue_usec = rng_below(&sim->rng, 2) ? 30 * USEC_PER_SEC : 0,
		.no_wait = rng_below(&sim->rng, 3) == 0,
	};
	struct fleet_event event = { .type = FLEET_CREATE };

	if (warm && rng_below(&sim->rng, 2) && spec_add_env(spec, "A", "b") < 0)
		exit(3);
	create.claim = warm ? see_warm(sim, spec, seen) : NULL;
	client->is_claim = create.claim;
	create.tenant[sizeof(TENANT) - 2] = (char)('a' + sim_between(sim, 0, TENANTS - 1));
	trace_new(&sim->rng, &create.trace);
	event.create = &create;
	sim->creates++;
	if (sim->scheduler.fleet && sim->now_usec >= sim->scheduler.stalled_until_usec)
		scheduler_step(sim, &event);
	else
		client->is_lost = true; /* connection refused, or the client gave up */
	spec_unref(spec);
}

#define PICKED_OF 256

/* What there is; 0 too when the scheduler does not answer. */
static size_t list(struct sim *sim, char ret[PICKED_OF][ID_SIZE])
{
	if (!sim->scheduler.fleet || sim->now_usec < sim->scheduler.stalled_until_usec)
		return 0;
	return fleet_sandbox_list(sim->scheduler.fleet, NULL, "", 0, ret, PICKED_OF);
}

/* One whose time is nearly over, if there is one. */
static bool pick_dying(struct sim *sim, char ret[ID_SIZE])
{
	int64_t now = REAL_BASE + sim->now_usec + sim->scheduler.real_offset;
	char ids[PICKED_OF][ID_SIZE];
	size_t n = list(sim, ids);

	for (size_t i = 0; i < n; i++) {
		struct sandbox_record record;
		int64_t left;

		if (fleet_sandbox_get(sim->scheduler.fleet, ids[i], &record, NULL) < 0)
			continue;
		left = record.ends_us ? record.ends_us - now : INT64_MAX;
		sandbox_record_deinit(&record);
		if (left > 2 * USEC_PER_SEC || left < 0)
			continue;
		memcpy(ret, ids[i], ID_SIZE);
		return true;
	}
	return false;
}

/* Now and then one that sleeps, if there is one: most are put to sleep once and never woken. */
static bool pick_asleep(struct sim *sim, char ret[ID_SIZE])
{
	char ids[PICKED_OF][ID_SIZE];
	size_t n = rng_below(&sim->rng, 2) ? list(sim, ids) : 0;

	for (size_t i = 0; i < n; i++) {
		struct fleet_sandbox_view view;

		if (fleet_sandbox_get(sim->scheduler.fleet, ids[i], NULL, &view) < 0 || view.state != PUBLIC_PAUSED)
			continue;
		memcpy(ret, ids[i], ID_SIZE);
		return true;
	}
	return false;
}

static bool pick(struct sim *sim, char ret[ID_SIZE])
{
	char ids[PICKED_OF][ID_SIZE];
	size_t n = list(sim, ids);

	if (n == 0)
		return false;
	memcpy(ret, ids[rng_below(&sim->rng, n)], ID_SIZE);
	return true;
}

void client_delete(struct sim *sim, const char *id)
{
	struct client *client = client_new(sim);
	struct fleet_event event = { .type = FLEET_DESTROY };
	struct fleet_sandbox_view view;

	client->is_delete = true;
	memcpy(client->id, id, sizeof(client->id));
	if (fleet_sandbox_get(sim->scheduler.fleet, id, NULL, &view) == 0)
		sim->deletes_in[view.internal]++;
	event.destroy.request = client->request;
	event.destroy.sandbox = id;
	event.destroy.reason = END_REQUEST;
	sim_truth(sim, id)->is_deleted = true;
	sim->deletes++;
	scheduler_step(sim, &event);
}

static void set_timeout(struct sim *sim, const char *id)
{
	const char *tenant = fleet_sandbox_tenant(sim->scheduler.fleet, id);
	struct fleet_event event = { .type = FLEET_SET_TIMEOUT };
	struct client *client;

	if (!tenant || strchr(tenant, ':'))
		return; /* the scheduler's own */
	client = client_new(sim);

	memcpy(client->id, id, sizeof(client->id));
	event.set_timeout.request = client->request;
	event.set_timeout.sandbox = id;
	event.set_timeout.timeout_s = (uint32_t)sim_between(sim, 20, 120);
	client->extends_usec = sim->now_usec + event.set_timeout.timeout_s * USEC_PER_SEC;
	sim_truth(sim, id)->has_life_time = true;
	sim_truth(sim, id)->extending = client->request;
	sim_truth(sim, id)->promised_usec = 0; /* this one may shorten it */
	scheduler_step(sim, &event);
}

static void delete_all(struct sim *sim)
{
	char ids[256][ID_SIZE];
	size_t n;

	if (!sim->scheduler.fleet)
		return;
	n = fleet_sandbox_list(sim->scheduler.fleet, NULL, "", 0, ids, ARRAY_LEN(ids));
	for (size_t i = 0; i < n && sim->scheduler.fleet; i++)
		client_delete(sim, ids[i]);
	snaps_delete_all(sim);
}

void client_create_many(struct sim *sim, int n)
{
	for (int i = 0; i < n; i++)
		create(sim);
}

void client_act(struct sim *sim)
{
	char id[ID_SIZE];

	if (sim->is_heal)
		return;
	if (sim->now_usec > SETTLE_USEC) {
		delete_all(sim);
		(void)sim_plan(sim, SIM_CLIENT, 5 * USEC_PER_SEC, 0);
		return;
	}
	if (sim->now_usec >
		SETTLE_USEC - 120 * USEC_PER_SEC) { /* what was asked comes to its end */
		(void)sim_plan(sim, SIM_CLIENT, 5 * USEC_PER_SEC, 0);
		return;
	}
	switch (rng_below(&sim->rng, 14)) {
	case 0:
	case 1:
	case 2:
		if (pick(sim, id))
			client_delete(sim, id);
		break;
	case 3:
		if (pick_dying(sim, id) || pick(sim, id))
			set_timeout(sim, id);
		break;
	case 10:
	case 11:
		if (pick_asleep(sim, id) || pick(sim, id))
			sleep_client(sim, id);
		break;
	case 9:
		if (pick(sim, id))
			snaps_client(sim, id);
		break;
	case 12:
	case 13:
		if (pick(sim, id))
			policy_client(sim, id);
		break;
	case 4: /* all at once: they want the same best node */
		for (int i = 0; i < 6 && sim_is_chaos(sim); i++)
			create(sim);
		break;
	default:
		if (sim->now_usec < CHAOS_USEC + 60 * USEC_PER_SEC)
			create(sim);
		break;
	}
	(void)sim_plan(sim, SIM_CLIENT,
		sim_between(sim, 20 * USEC_PER_MSEC, sim_is_chaos(sim) ? 1500000 : 6000000), 0);
}

/* ---- answers ---- */

static void acked(struct sim *sim, struct client *client, const struct fleet_reply *reply)
{
	struct truth *truth = sim_truth(sim, reply->sandbox->id);
	struct stored *live, *history;

	client->is_acked = true;
	memcpy(client->id, reply->sandbox->id, sizeof(client->id));
	sim->acks++;
	if (reply->sandbox->spec->timeout_s)
		truth->has_life_time = true;
	HASH_FIND_STR(sim->scheduler.live, client->id, live);
	HASH_FIND_STR(sim->scheduler.history, client->id, history);
	if (!live && !history)
		sim_violation(sim, "%s was acknowledged before it was durable", client->id);
	else if (live && live->record.state != reply->sandbox->state)
		sim_violation(sim, "%s was answered as %s while the store said %s", client->id,
			sandbox_state_name(reply->sandbox->state),
			sandbox_state_name(live->record.state));
	if (reply->sandbox->state == SANDBOX_RUNNING)
		truth->is_acked = true;
}

/* R046: told that it lives on, it does. */
static void extended(struct sim *sim, const struct client *client)
{
	struct truth *truth = sim_truth(sim, client->id);

	if (truth->extending == client->request)
		truth->promised_usec = client->extends_usec;
}

static void deleted(struct sim *sim, const struct client *client, const struct fleet_reply *reply)
{
	struct stored *live;

	if (err_is_set(&reply->err)) {
		if (reply->err.code != FAIL_SANDBOX_NOT_FOUND &&
			reply->err.code != FAIL_STORE_FAILED)
			sim_violation(sim, "DELETE of %s was answered %s", client->id,
				failure_info(reply->err.code)->name);
		return;
	}
	sim_truth(sim, client->id)->is_delete_acked = true;
	HASH_FIND_STR(sim->scheduler.live, client->id, live);
	if (live && live->record.state != SANDBOX_STOPPING && live->record.state != SANDBOX_FENCED)
		sim_violation(sim, "DELETE of %s was acknowledged and the store says %s",
			client->id, sandbox_state_name(live->record.state));
}

static void claim_reply(struct sim *sim, const struct fleet_reply *reply)
{
	if (!err_is_set(&reply->err)) {
		sim->claims++;
		sim->claims_restored += reply->sandbox && *reply->sandbox->spec->snapshot;
	} else if (reply->err.code == FAIL_WARM_TAKEN || reply->err.code == FAIL_NODE_DRAINING) {
		sim->claims_refused++;
	}
}

void client_reply(struct sim *sim, const struct fleet_reply *reply)
{
	struct client *client;

	HASH_FIND(hh, sim->clients, &reply->request, sizeof(reply->request), client);
	if (!client || client->is_answered) {
		sim_violation(
			sim, "request %llu was answered twice", (unsigned long long)reply->request);
		return;
	}
	client->is_answered = true;
	sim_log(sim, "reply %llu %s %s", (unsigned long long)reply->request,
		err_is_set(&reply->err) ? failure_info(reply->err.code)->name : "ok",
		reply->sandbox ? reply->sandbox->id : "");
	if (client->is_claim)
		claim_reply(sim, reply);
	if (client->extends_usec && !err_is_set(&reply->err))
		extended(sim, client);
	if ((client->policy || client->budget) && !err_is_set(&reply->err))
		policy_reply(sim, client);
	if (snaps_reply(sim, client, reply))
		return;
	if (client->is_sleep)
		sleep_reply(sim, client, reply);
	else if (client->is_delete)
		deleted(sim, client, reply);
	else if (!err_is_set(&reply->err) && !*client->id)
		acked(sim, client, reply);
	else if (reply->err.code == FAIL_NONE && !reply->sandbox)
		sim_violation(sim, "request %llu succeeded with nothing",
			(unsigned long long)reply->request);
}

void client_scheduler_died(struct sim *sim)
{
	struct client *client;

	for (client = sim->clients; client; client = client->hh.next)
		if (!client->is_answered)
			client->is_lost = true;
}
