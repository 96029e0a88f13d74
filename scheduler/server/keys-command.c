/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-scheduler keys status|next|rotate: the keys of the link (link-keys.h), and which nodes have not moved. A scheduler
 * that runs goes on; it takes new keys when it is started again.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "server/codec.h"
#include "server/link-keys.h"
#include "server/program.h"
#include "server/server.h"
#include "store/backup.h"

struct arguments {
	struct options options;
	const char *verb, *key, *out;
	bool json, at_once;
};

struct counted {
	const struct link_keys *keys;
	json_t *list;
	size_t n_moved, n_ready;
	struct err err;
};

/* What each node said last: the key that its link was made with, and the next one that it has stored. */
static bool look(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct counted *counted = user;
	const char *newest = link_keys_newest(counted->keys)->public_key, *state = "behind";
	struct node_record record;

	(void)revision;
	if (codec_node_decode(key, value, size, &record, &counted->err) < 0)
		return false;
	if (!strcmp(record.server_key, newest))
		state = !strcmp(record.next_key, counted->keys->next) ? "ready" : "moved";
	else if (*record.next_key && !strcmp(record.next_key, newest))
		state = "knows"; /* the newest, and has not come by it */
	if (!record.revoked) {
		counted->n_moved += !strcmp(record.server_key, newest);
		counted->n_ready += !strcmp(state, "ready");
		(void)json_array_append_new(counted->list, json_pack("{s:s, s:s, s:s, s:s}", "node", record.id, "pool",
			record.pool, "hostname", record.hostname, "state", state));
	}
	node_record_deinit(&record);
	return true;
}

static void print_status(const json_t *all, const json_t *list)
{
	const json_t *item;
	size_t i;

	(void)printf("present key  %s\nnext key     %s\n", json_string_value(json_object_get(all, "key")),
		*json_string_value(json_object_get(all, "next_key")) ? json_string_value(json_object_get(all, "next_key")) :
		"none: make one with `croft-scheduler keys next`");
	if (json_is_string(json_object_get(all, "old_key")))
		(void)printf("old key      %s, served until %s\n", json_string_value(json_object_get(all, "old_key")),
			json_string_value(json_object_get(all, "until")));
	if (json_is_true(json_object_get(all, "next_secret_here")))
		(void)printf("\nThe next key's secret lies here, in link.next.key: keep it on another machine.\n");
	(void)printf("\n%lld of %zu nodes use the present key, %lld of them know the next one.\n",
		(long long)json_integer_value(json_object_get(all, "moved")), json_array_size(list),
		(long long)json_integer_value(json_object_get(all, "ready")));
	json_array_foreach(list, i, item)
		if (strcmp(json_string_value(json_object_get(item, "state")), "ready") != 0)
			(void)printf("%-22s %-12s %-24s %s\n", json_string_value(json_object_get(item, "node")),
				json_string_value(json_object_get(item, "pool")),
				json_string_value(json_object_get(item, "hostname")),
				json_string_value(json_object_get(item, "state")));
}

static int status(const struct arguments *arguments, struct err *reterr)
{
	const struct options *options = &arguments->options;
	struct counted counted = { .list = json_array() };
	char path[PATH_MAX], until[CLOCK_RFC3339_SIZE];
	struct link_keys keys;
	bool overlaps;
	json_t *all;
	int r = link_keys_read(options, 0, &keys, reterr);

	explicit_bzero(keys.served.secret_key, sizeof(keys.served.secret_key));
	explicit_bzero(keys.fresh.secret_key, sizeof(keys.fresh.secret_key));
	counted.keys = &keys;
	if (r == 0)
		r = backup_each(options->state, "node/", look, &counted, reterr);
	if (r == 0 && err_is_set(&counted.err)) {
		*reterr = counted.err;
		r = -EBADMSG;
	}
	if (r < 0) {
		json_decref(counted.list);
		return r;
	}
	overlaps = *keys.fresh.public_key;
	all = json_pack("{s:s, s:s, s:b, s:I, s:I, s:O}", "key", link_keys_newest(&keys)->public_key, "next_key", keys.next,
		"next_secret_here", access(state_path(options, "link.next.key", path, sizeof(path)), F_OK) == 0, "moved",
		(json_int_t)counted.n_moved, "ready", (json_int_t)counted.n_ready, "nodes", counted.list);
	if (overlaps) {
		(void)json_object_set_new(all, "old_key", json_string(keys.served.public_key));
		(void)json_object_set_new(all, "until", json_string(clock_format_rfc3339(keys.until_us, until, sizeof(until))));
	}
	if (arguments->json) {
		(void)json_dumpf(all, stdout, JSON_INDENT(2));
		(void)putchar('\n');
	} else {
		print_status(all, counted.list);
	}
	json_decref(all);
	json_decref(counted.list);
	return 0;
}

static int change(const struct arguments *arguments, struct err *reterr)
{
	const struct options *options = &arguments->options;
	char path[PATH_MAX];
	const char *here = state_path(options, "link.next.key", path, sizeof(path));
	const char *out = arguments->out ? arguments->out : here;
	int r;

	if (!strcmp(arguments->verb, "next"))
		r = link_keys_next(options, out, reterr);
	else
		r = link_keys_rotate(options, arguments->key ? arguments->key : here, out, arguments->at_once,
			clock_realtime_usec(), reterr);
	if (r == 0)
		(void)printf("The next key's pair is in %s: keep it where this machine's thief does not find it, and where you do.\n"
			     "Start the scheduler again (`systemctl restart croft-scheduler`); sandboxes do not notice.\n", out);
	return r;
}

/* "-o json", "--at-once", "--key FILE" and "--out FILE" out of the arguments, then the options. */
static int read_arguments(int argc, char **argv, struct arguments *ret, struct err *reterr)
{
	int kept = 1, r;

	memset(ret, 0, sizeof(*ret));
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--at-once"))
			ret->at_once = true;
		else if (!strcmp(argv[i], "-o") && i + 1 < argc)
			ret->json = !strcmp(argv[++i], "json");
		else if (!strcmp(argv[i], "--key") && i + 1 < argc)
			ret->key = argv[++i];
		else if (!strcmp(argv[i], "--out") && i + 1 < argc)
			ret->out = argv[++i];
		else
			argv[kept++] = argv[i];
	}
	argv[kept] = NULL;
	r = options_load(&ret->options, &kept, argv, reterr);
	ret->verb = kept == 2 ? argv[1] : "";
	if (r == 0 && strcmp(ret->verb, "status") && strcmp(ret->verb, "next") && strcmp(ret->verb, "rotate"))
		r = err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "keys takes status, next or rotate");
	return r;
}

int command_keys(int argc, char **argv)
{
	struct arguments arguments;
	struct err err = ERR_NULL;
	int r = read_arguments(argc, argv, &arguments, &err);

	if (r < 0) {
		log_failure(LOG_LEVEL_ERROR, "keys", &err, NULL);
		options_free(&arguments.options);
		return EXIT_USAGE;
	}
	r = dir_become_owner(arguments.options.state);
	if (r < 0)
		r = err_set(&err, FAIL_STORE_FAILED, -r, "cannot become the owner of %s", arguments.options.state);
	else
		r = !strcmp(arguments.verb, "status") ? status(&arguments, &err) : change(&arguments, &err);
	if (r < 0)
		log_failure(LOG_LEVEL_ERROR, "the keys were not changed or shown", &err, NULL);
	options_free(&arguments.options);
	return r < 0 ? EXIT_FAILED : EXIT_OK;
}
