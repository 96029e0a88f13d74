/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet made from the store: at start, and again after the store failed. See shell.h.
 */
#include <errno.h>
#include <string.h>

#include "server/codec.h"
#include "server/shell-private.h"
#include "server/telemetry.h"

struct loader {
	struct shell *shell;
	struct err *err;
};

static void step_load(struct shell *shell, const struct fleet_event *event)
{
	struct fleet_actions actions = { .batch = 0 };

	fleet_step(shell->fleet, moment_now(), &shell->server->rng, event, &actions);
	shell_log_notices(shell, &actions);
	fleet_actions_clear(&actions);
}

static bool load_node(
	const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	const struct loader *loader = user;
	struct node_record record = { .joined_us = 0 };
	const struct fleet_event event = { .type = FLEET_LOAD_NODE, .node_record = &record };

	(void)revision;
	if (codec_node_decode(key, value, size, &record, loader->err) < 0)
		return false;
	step_load(loader->shell, &event);
	node_record_deinit(&record);
	return true;
}

static bool load_sandbox(
	const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	const struct loader *loader = user;
	struct sandbox_record record = { .incarnation = 0 };
	const struct fleet_event event = { .type = FLEET_LOAD_SANDBOX, .sandbox_record = &record };

	(void)revision;
	if (codec_sandbox_decode(key, value, size, &record, loader->err) < 0)
		return false;
	shell_count_sandbox(loader->shell, &record, false);
	step_load(loader->shell, &event);
	sandbox_record_deinit(&record);
	return true;
}

static bool load_snapshot(
	const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	const struct loader *loader = user;
	struct snapshot_record record = { .is_fork = false };
	struct fleet_event event = { .type = FLEET_LOAD_SNAPSHOT, .load_snapshot = { .record = &record } };
	const struct tenant_entry *tenant;

	(void)revision;
	if (codec_snapshot_decode(key, value, size, &record, loader->err) < 0)
		return false;
	tenant = registry_tenant(&loader->shell->server->registry, record.tenant);
	if (tenant)
		event.load_snapshot.quota = tenant->quota;
	step_load(loader->shell, &event);
	snapshot_record_deinit(&record);
	return true;
}

/* History is only counted: the table of stages survives a restart. */
static bool load_history(
	const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	const struct loader *loader = user;
	struct sandbox_record record = { .incarnation = 0 };

	(void)revision;
	if (codec_sandbox_decode(key, value, size, &record, loader->err) < 0)
		return false;
	shell_count_sandbox(loader->shell, &record, true);
	sandbox_record_deinit(&record);
	return true;
}

static void fill_config(const struct server *server, struct fleet_config *config)
{
	const struct options *options = server->options;

	fleet_config_default(config);
	memcpy(config->lineage, server->lineage, sizeof(config->lineage));
	config->epoch = server->epoch;
	memcpy(config->run, server->run, sizeof(config->run));
	config->runs = &server->runs;
	config->heartbeat_ms = (uint32_t)options->heartbeat_ms;
	config->suspect_usec = options->suspect_after;
	config->lost_after_usec = options->lost_after;
	config->grace_usec = options->grace;
	config->place_timeout_usec = options->place_timeout;
	config->dispatch_timeout_usec = options->dispatch_timeout;
	config->start_timeout_usec = options->start_timeout;
	config->max_attempts = (uint32_t)options->max_attempts;
}

int shell_load(struct shell *shell, struct err *reterr)
{
	struct server *server = shell->server;
	struct err err = ERR_NULL;
	struct loader loader = { shell, &err };
	const struct fleet_event loaded = { .type = FLEET_LOADED };
	struct fleet_config config;

	shell->fleet = fleet_free(shell->fleet);
	shell->is_tight = false; /* the new one is told anew */
	shell->node_changes++;
	shell->tick_usec = 0; /* whatever is armed is armed anew */
	fill_config(server, &config);
	shell->asked = asked_free(shell->asked);
	if (asked_new(&shell->asked) < 0 || fleet_new(&shell->fleet, &config) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the fleet");
	for (const struct pool_entry *pool = server->registry.pools; pool; pool = pool->hh.next) {
		const struct fleet_event event = { .type = FLEET_LOAD_POOL, .pool = &pool->record };

		step_load(shell, &event);
	}
	for (const struct warm_entry *warm = server->registry.warms; warm; warm = warm->hh.next) {
		const struct fleet_event event = { .type = FLEET_WARM, .warm = &warm->record };

		step_load(shell, &event);
	}
	for (const struct tenant_entry *t = server->registry.tenants; t; t = t->hh.next) {
		const struct fleet_event event = { .type = FLEET_TENANT_WEIGHT,
			.weight = { t->name, t->weight } };

		step_load(shell, &event);
	}
	telemetry_reset_stages(server->telemetry);
	history_deinit(&shell->history);
	(void)store_load(server->store, "node/", load_node, &loader, &err);
	if (!err_is_set(&err))
		(void)store_load(server->store, "snapshot/", load_snapshot, &loader, &err);
	if (!err_is_set(&err))
		(void)store_load(server->store, "sandbox/", load_sandbox, &loader, &err);
	if (!err_is_set(&err))
		(void)store_load(server->store, "history/", load_history, &loader, &err);
	if (err_is_set(&err)) {
		if (reterr && !err_is_set(reterr))
			*reterr = err;
		return -EIO;
	}
	history_sort(&shell->history);
	asked_sort(shell->asked);
	asked_trim(shell->asked, clock_realtime_usec() - server->options->history_age, server->options->history_count);
	telemetry_stages_loaded(server->telemetry);
	shell_step(shell, &loaded, NULL, NULL, NULL);
	return 0;
}
