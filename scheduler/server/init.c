/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-scheduler init: makes the state directory (0700), the link's key and the next one (0600), the store with a new lineage, the
 * first customer, pool and tenant, all named "default", and two keys, which are printed once and kept nowhere: the
 * provider operator's (which may also act as the tenant) and the tenant's.
 *
 * A directory that was initialised is left alone; --force throws its state away and begins a new lineage.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "server/codec.h"
#include "server/link-keys.h"
#include "server/ops.h"
#include "server/program.h"
#include "server/registry.h"
#include "server/server.h"

#define FIRST "default"

/* Everything in one batch: a store is initialised or it is not. */
static int fill_store(struct store *store, struct first_keys *keys, struct err *reterr)
{
	const struct pool_record pool = { .name = FIRST,
		.customer = FIRST,
		.cpu_overcommit_percent = 400,
		.responsibility = RESPONSIBILITY_SELF };
	struct server server = { .rng = rng_system() };
	struct registry *registry = &server.registry;
	int64_t now = clock_realtime_usec();
	struct ops ops = { .n = 0 };
	int r;

	id_new(&server.rng, server.lineage);
	id_new(&server.rng, server.instance);
	api_key_new(&server.rng, keys->provider);
	api_key_new(&server.rng, keys->tenant);
	server_put_meta(&server, &ops);
	if (registry_add_customer(registry, &ops, FIRST, now) < 0 ||
		registry_add_pool(registry, &ops, &pool, now) < 0 ||
		registry_add_tenant(registry, &ops, FIRST, FIRST, NULL, 1, now) < 0 ||
		registry_add_key(registry, &ops, keys->provider, ROLE_PROVIDER, FIRST, FIRST, "init",
			now) < 0 ||
		registry_add_key(
			registry, &ops, keys->tenant, ROLE_TENANT, FIRST, FIRST, "init", now) < 0 ||
		ops.no_memory)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the first records");
	else
		r = store_commit_wait(store, ops.list, ops.n, reterr);
	registry_deinit(registry);
	ops_deinit(&ops);
	return r;
}

static int remove_old(const struct options *options, struct err *reterr)
{
	static const char *const files[] = { "store.db", "store.db-wal", "store.db-shm",
		"link.key", "link.keys", "link.fresh.key", "link.next.key" };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (unlink(state_path(options, files[i], path, sizeof(path))) < 0 &&
			errno != ENOENT)
			return err_set(reterr, FAIL_STORE_FAILED, errno, "%s cannot be removed", path);
	return 0;
}

static int make_dirs(const struct options *options, struct err *reterr)
{
	char path[PATH_MAX];
	int r = dir_make(options->state, 0700);

	if (r == 0 && chmod(options->state, 0700) < 0)
		r = -errno;
	if (r == 0)
		r = dir_make(state_path(options, "blobs", path, sizeof(path)), 0700);
	return r < 0 ? err_set(reterr, FAIL_STORE_FAILED, -r,
			       "the state directory %s cannot be made or written", options->state)
		     : 0;
}

int init_state(
	const struct options *options, bool force, struct first_keys *keys, struct err *reterr)
{
	const struct store_config config = {
		.dir = options->state, .max_bytes = options->store_max_bytes, .may_create = true
	};
	CLEANUP(store_closep) struct store *store = NULL;
	struct curve_keys link;
	char path[PATH_MAX];
	int r = make_dirs(options, reterr);

	if (r < 0)
		return r;
	if (access(state_path(options, "store.db", path, sizeof(path)), F_OK) == 0) {
		/* open it first: a scheduler that runs there holds the lock */
		r = store_open(&store, NULL, &config, reterr);
		if (r < 0)
			return r;
		store_close(TAKE(store));
		if (!force)
			return err_set(reterr, FAIL_CONFLICT, EEXIST,
				"%s is initialised already; --force throws its state away",
				options->state);
	}
	r = remove_old(options, reterr); /* also what an init that was killed left: it is of no store */
	if (r == 0)
		r = curve_keys_new(&link, reterr);
	if (r == 0)
		r = curve_keys_write(
			state_path(options, "link.key", path, sizeof(path)), &link, reterr);
	explicit_bzero(&link, sizeof(link));
	/* From the first: nodes follow the next key that they were told of, and whoever stole the present one could tell of his own
	 * as long as there is none. */
	if (r == 0)
		r = link_keys_next(options, state_path(options, "link.next.key", path, sizeof(path)), reterr);
	if (r == 0)
		r = store_open(&store, NULL, &config, reterr);
	if (r == 0)
		r = fill_store(store, keys, reterr);
	return r;
}

/* They are shown this once: that they got there is part of the work. 0 or -EIO. */
static int print_keys(const struct options *options, const struct first_keys *keys, bool json)
{
	json_t *object;

	if (!json) {
		(void)printf(
			"Initialised %s.\n\n"
			"Provider operator's key: %s\nTenant key:              %s\n\n"
			"They are shown this once. Start the scheduler with: croft-scheduler run --state %s\n\n"
			"%s/link.next.key has the link's next key: move it to another machine, for the day on which this one's is lost or stolen.\n",
			options->state, keys->provider, keys->tenant, options->state, options->state);
		return fflush(stdout) == 0 ? 0 : -EIO;
	}
	object = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "state", options->state,
		"provider_key", keys->provider, "tenant_key", keys->tenant, "customer", FIRST,
		"pool", FIRST, "tenant", FIRST);
	(void)json_dumpf(object, stdout, JSON_INDENT(2));
	(void)putchar('\n');
	json_decref(object);
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : -EIO;
}

/* Takes "-o json" and "--force" out of the arguments. false: they are wrong. */
static bool take_arguments(int *argc, char **argv, bool *ret_json, bool *ret_force)
{
	int kept = 1;

	for (int i = 1; i < *argc; i++) {
		if (!strcmp(argv[i], "--force")) {
			*ret_force = true;
		} else if (!strcmp(argv[i], "-o")) {
			if (i + 1 >= *argc || (strcmp(argv[i + 1], "json") != 0 &&
						      strcmp(argv[i + 1], "text") != 0))
				return false;
			*ret_json = !strcmp(argv[++i], "json");
		} else {
			argv[kept++] = argv[i];
		}
	}
	argv[kept] = NULL;
	*argc = kept;
	return true;
}

int command_init(int argc, char **argv)
{
	struct options options = { .state = NULL };
	struct first_keys keys = { .provider = "" };
	struct err err = ERR_NULL;
	bool json = false, force = false;
	int r;

	if (!take_arguments(&argc, argv, &json, &force)) {
		log_error("-o takes json or text");
		return EXIT_USAGE;
	}
	r = options_load(&options, &argc, argv, &err);
	if (r == 0 && argc > 1)
		r = err_set(&err, FAIL_CONFIG_INVALID, EINVAL, "what is \"%s\"?", argv[1]);
	if (r < 0) {
		log_failure(LOG_LEVEL_ERROR, "init", &err, NULL);
		options_free(&options);
		return EXIT_USAGE;
	}
	if (access(options.state, F_OK) == 0)
		r = dir_become_owner(options.state);
	r = r < 0 ? err_set(&err, FAIL_STORE_FAILED, -r, "cannot become the owner of %s", options.state)
		  : init_state(&options, force, &keys, &err);
	if (r < 0) {
		log_failure(LOG_LEVEL_ERROR, "the state directory was not initialised", &err, NULL);
	} else {
		r = print_keys(&options, &keys, json);
		if (r < 0)
			log_error("the keys could not be printed and are lost; init --force makes others", "state",
				options.state);
	}
	explicit_bzero(&keys, sizeof(keys));
	options_free(&options);
	return r < 0 ? EXIT_FAILED : EXIT_OK;
}
