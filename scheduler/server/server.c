/* SPDX-License-Identifier: Apache-2.0
 *
 * The root object: made in the written order, taken down in the reverse.
 */
#include "server/server.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/fd.h"
#include "pb/store.pb-c.h"
#include "server/api.h"
#include "server/audit.h"
#include "server/books.h"
#include "server/codec.h"
#include "server/events.h"
#include "server/feed.h"
#include "server/forecast.h"
#include "server/images.h"
#include "server/lead.h"
#include "server/link.h"
#include "server/ops.h"
#include "server/otlp.h"
#include "server/relay.h"
#include "server/rollups.h"
#include "server/shell.h"
#include "server/telemetry.h"
#include "server/upgrades.h"
#include "server/worker.h"
#include "wire/http-client.h"

const char *state_path(const struct options *options, const char *name, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s/%s", options->state, name);
	return buf;
}

void server_put_meta(const struct server *server, struct ops *ops)
{
	Croft__MetaRecord *meta = malloc(sizeof(*meta));

	if (meta) {
		croft__meta_record__init(meta);
		meta->schema = STORE_SCHEMA;
		meta->epoch = server->epoch;
		meta->restored_us = server->restored_us;
		if (!codec_set(&meta->lineage, server->lineage) ||
			!codec_set(&meta->instance, server->instance)) {
			croft__meta_record__free_unpacked(meta, NULL);
			meta = NULL;
		}
	}
	ops_put(ops, meta ? &meta->base : NULL, STORE_ANY, "meta");
}

struct meta_reading {
	struct server *server;
	struct err *err;
	bool found;
};

static bool read_meta(
	const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct meta_reading *reading = user;
	Croft__MetaRecord *meta = (Croft__MetaRecord *)codec_unpack(
		&croft__meta_record__descriptor, key, value, size, reading->err);

	(void)revision;
	if (!meta)
		return false;
	reading->found = id_is_valid(meta->lineage);
	(void)snprintf(
		reading->server->lineage, sizeof(reading->server->lineage), "%s", meta->lineage);
	(void)snprintf(reading->server->instance, sizeof(reading->server->instance), "%s",
		meta->instance);
	reading->server->epoch = meta->epoch;
	reading->server->restored_us = meta->restored_us;
	croft__meta_record__free_unpacked(meta, NULL);
	return true;
}

int server_read_meta(struct server *server, struct store *store, struct err *reterr)
{
	struct err err = ERR_NULL;
	struct meta_reading reading = { .server = server, .err = &err };

	(void)store_load(store, "meta", read_meta, &reading, &err);
	if (err_is_set(&err)) {
		*reterr = err;
		return -EIO;
	}
	if (!reading.found)
		return err_set(reterr, FAIL_NOT_INITIALISED, ENOENT, "the store has no lineage");
	return 0;
}

/* Uploads that a crash left without a name. */
static void remove_leftovers(const struct options *options)
{
	char path[PATH_MAX];
	DIR *dir = opendir(state_path(options, "blobs", path, sizeof(path)));
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, "upload-", 7))
			(void)unlinkat(
				dirfd(dir), entry->d_name, 0); /* tried again at the next start */
	if (dir)
		(void)closedir(dir);
}

/* Some thousand ends of sandboxes, with the log that carries them. */
#define STORE_RESERVE (UINT64_C(16) << 20)

static int open_state(struct server *server, struct err *reterr)
{
	const struct options *options = server->options;
	const struct store_config config = { .dir = options->state,
		.max_bytes = options->store_max_bytes,
		.reserve_bytes = STORE_RESERVE };
	char path[PATH_MAX];
	int r;

	r = store_open(&server->store, server->base, &config, reterr);
	if (r == 0)
		r = link_keys_read(options, clock_realtime_usec(), &server->keys, reterr);
	if (r == 0)
		r = lead_begin(server, reterr);
	if (r == 0)
		r = registry_load(&server->registry, server->store, reterr);
	if (r < 0)
		return r;
	r = dir_make(state_path(options, "blobs", path, sizeof(path)), 0700);
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "%s cannot be made", path);
	remove_leftovers(options);
	return 0;
}

static int open_parts(struct server *server, struct err *reterr)
{
	int r;

	r = worker_new(&server->worker, server->base, reterr);
	if (r == 0)
		r = worker_new(&server->planner, server->base, reterr);
	if (r == 0)
		r = rollups_new(&server->rollups, server, reterr);
	if (r == 0)
		r = events_new(&server->events, server, reterr);
	if (r == 0)
		r = books_new(&server->books, server, reterr);
	if (r == 0)
		r = telemetry_new(&server->telemetry, server, reterr);
	if (r == 0)
		r = audit_new(&server->audit, server, reterr);
	if (r == 0)
		r = shell_new(&server->shell, server, reterr);
	if (r == 0)
		r = shell_load(server->shell, reterr);
	if (r == 0)
		r = telemetry_load(server->telemetry, reterr);
	if (r == 0)
		r = forecast_new(&server->forecast, server, reterr);
	if (r == 0)
		r = images_new(&server->images, server, reterr);
	if (r == 0)
		r = relay_new(&server->relay, server, reterr);
	if (r == 0)
		r = http_client_new(&server->client, server->base, reterr);
	if (r == 0)
		r = otlp_new(&server->otlp, server, reterr);
	if (r == 0)
		r = link_new(&server->link, server, reterr);
	if (r == 0)
		r = feed_new(&server->feed, server, link_zap(server->link), reterr);
	if (r == 0)
		r = api_new(&server->api, server, reterr);
	return r;
}

int server_new(struct server **ret, const struct options *options, struct event_base *base,
	struct err *reterr)
{
	CLEANUP(server_freep) struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the scheduler");
	server->options = options;
	server->base = base;
	server->rng = rng_system();
	id_new(&server->rng, server->run);
	server->started_us = clock_realtime_usec();
	server->zmq = zmq_ctx_new();
	if (!server->zmq)
		return err_set(reterr, FAIL_NO_MEMORY, errno, "no ZeroMQ context");
	r = open_state(server, reterr);
	if (r == 0)
		r = open_parts(server, reterr);
	if (r < 0)
		return r;
	if (*options->api_domain)
		(void)snprintf(server->domain, sizeof(server->domain), "%s", options->api_domain);
	else
		(void)snprintf(server->domain, sizeof(server->domain), "localhost:%u",
			api_port(server->api));
	*ret = TAKE(server);
	return 0;
}

void server_stop(struct server *server)
{
	server->stopping = true;
}

void server_refuse_rest(struct server *server)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SHUTTING_DOWN, ESHUTDOWN, "the scheduler is stopping; what was recorded of this goes on with its next start");
	api_fail_all(server->api, &err);
}

bool server_is_idle(const struct server *server)
{
	return api_active(server->api) == 0 && shell_held(server->shell) == 0;
}

void server_free(struct server *server)
{
	struct err stopping = ERR_NULL;

	if (!server)
		return;
	(void)err_set(&stopping, FAIL_SHUTTING_DOWN, ESHUTDOWN, "the scheduler is stopping");
	if (server->shell)
		audit_flush(server->audit);
	if (server->shell && server->api)
		shell_abort(server->shell, &stopping);
	lead_end(server); /* answers of the store still find whom they are for */
	api_free(server->api);
	feed_free(TAKE(server->feed));
	link_free(server->link);
	otlp_free(TAKE(server->otlp));
	http_client_free(server->client);
	relay_free(server->relay);
	images_free(server->images);
	upgrades_free(server);
	store_close(server->store); /* what was handed over is durable from here on */
	shell_free(server->shell);
	audit_free(server->audit);
	forecast_free(server->forecast);
	telemetry_free(server->telemetry);
	events_free(server->events);
	rollups_free(server->rollups);
	books_free(server->books);
	worker_free(server->worker);
	worker_free(server->planner);
	registry_deinit(&server->registry);
	runs_deinit(&server->runs);
	explicit_bzero(&server->keys, sizeof(server->keys));
	if (server->zmq)
		(void)zmq_ctx_term(server->zmq); /* all sockets are closed: it does not wait */
	free(server);
}
