/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-scheduler backup, restore and check.
 *
 * A backup is the store and the link's keys in one file; images are not in it (import them again; nodes go on with
 * what they hold). A restore makes a new lineage: the store is then older than the nodes, so what only they know is
 * adopted and nothing of theirs is destroyed (fleet/adopt.c). What a restore replaces is set aside, not deleted.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "server/audit.h"
#include "server/codec.h"
#include "server/ops.h"
#include "server/program.h"
#include "server/server.h"
#include "store/backup.h"

#define KEY_FILE "link.key"

/* The first must be there. The next key's secret is not among them: it is kept elsewhere. */
static const char *const key_files[] = { KEY_FILE, "link.keys", "link.fresh.key" };

/* ---- backup ---- */
int backup_state(const struct options *options, const char *path, struct err *reterr)
{
	struct backup_file files[ARRAY_LEN(key_files)];
	char key_path[PATH_MAX];
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(key_files) && r == 0; i++) {
		char *text = NULL;

		files[n].name = key_files[i];
		r = file_read(state_path(options, key_files[i], key_path, sizeof(key_path)), 4096, &text, &files[n].size);
		files[n].data = text;
		if (r == 0)
			n++;
		else if (r == -ENOENT && i > 0)
			r = 0;
	}
	if (r < 0)
		(void)err_set(reterr, r == -ENOENT ? FAIL_NOT_INITIALISED : FAIL_IO_FAILED, -r,
			"%s cannot be read", key_path);
	else
		r = backup_write(options->state, path, files, n, reterr);
	while (n-- > 0) {
		explicit_bzero(files[n].data, files[n].size);
		free(files[n].data);
	}
	return r;
}

/* ---- restore ---- */

/* What is there is set aside: FILE.before-restore; one that was set aside before gives way. */
static int set_aside(const struct options *options, struct err *reterr)
{
	static const char *const files[] = { "store.db", "store.db-wal", "store.db-shm", KEY_FILE, "link.keys",
		"link.fresh.key" };
	char from[PATH_MAX], to[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		(void)state_path(options, files[i], from, sizeof(from));
		if (snprintf(to, sizeof(to), "%s.before-restore", from) >= (int)sizeof(to))
			return err_set(reterr, FAIL_IO_FAILED, ENAMETOOLONG, "the path is too long");
		if (rename(from, to) < 0 && errno != ENOENT)
			return err_set(reterr, FAIL_IO_FAILED, errno, "%s cannot be set aside", from);
	}
	return 0;
}

/* Nobody runs there, and what is there may go. */
static int check_target(const struct options *options, bool force, struct err *reterr)
{
	const struct store_config config = { .dir = options->state };
	struct store *store = NULL;
	char path[PATH_MAX];
	struct err err = ERR_NULL;
	int r = dir_make(options->state, 0700);

	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "%s cannot be made", options->state);
	if (access(state_path(options, "store.db", path, sizeof(path)), F_OK) < 0)
		return 0;
	if (!force)
		return err_set(reterr, FAIL_CONFLICT, EEXIST,
			"%s holds a store: --force sets it aside and restores", options->state);
	r = store_open(&store, NULL, &config, &err);
	store_close(store);
	if (r < 0 && err.code == FAIL_STORE_LOCKED) { /* a corrupt one is what one restores over */
		*reterr = err;
		return r;
	}
	return set_aside(options, reterr);
}

static int restore_key(const struct options *options, const char *path, const char *name, struct err *reterr)
{
	char key_path[PATH_MAX];
	size_t size = 0;
	void *data = NULL;
	int r = backup_read_file(path, name, &data, &size, reterr);

	if (r == 0 && !data)
		return !strcmp(name, KEY_FILE) ? err_set(reterr, FAIL_STORE_CORRUPT, ENOENT, "%s has no " KEY_FILE, path) : 0;
	if (r == 0) {
		r = file_replace(state_path(options, name, key_path, sizeof(key_path)), data, size,
			0600);
		if (r < 0)
			(void)err_set(reterr, FAIL_IO_FAILED, -r, "%s cannot be written", key_path);
	}
	if (data)
		explicit_bzero(data, size);
	free(data);
	return r;
}

struct relining {
	struct ops ops;
	const char *lineage; /* the one that ends */
	struct err err;
	size_t n;
};

/* Nodes that never had one named had the lineage that ends. */
static bool reline(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct relining *relining = user;
	Croft__NodeRecord *node = (Croft__NodeRecord *)codec_unpack(
		&croft__node_record__descriptor, key, value, size, &relining->err);

	(void)revision;
	if (!node)
		return false;
	relining->n++;
	if (*node->lineage) {
		croft__node_record__free_unpacked(node, NULL);
		return true;
	}
	ops_put(&relining->ops,
		codec_whole(&node->base, codec_set(&node->lineage, relining->lineage)), STORE_ANY,
		"%s", key);
	return !relining->ops.no_memory;
}

#define RESTORE_EPOCHS (UINT64_C(1) << 16)

static int new_lineage(struct store *store, struct restored *ret, struct err *reterr)
{
	struct server server = { .rng = rng_system() };
	struct relining relining = { .lineage = ret->old_lineage, .err = ERR_NULL };
	int r = server_read_meta(&server, store, reterr);

	if (r < 0)
		return r;
	memcpy(ret->old_lineage, server.lineage, sizeof(ret->old_lineage));
	(void)store_load(store, "node/", reline, &relining, &relining.err);
	ret->n_nodes = relining.n;
	for (size_t i = 0; i < relining.ops.n && !err_is_set(&relining.err); i += STORE_OPS_MAX)
		(void)store_commit_wait(store, relining.ops.list + i,
			MIN(relining.ops.n - i, (size_t)STORE_OPS_MAX), &relining.err);
	ops_deinit(&relining.ops);
	if (err_is_set(&relining.err)) {
		*reterr = relining.err;
		return -EIO;
	}
	/* the lineage last: cut off before it, the restore is begun again and finds the old one */
	id_new(&server.rng, server.lineage);
	id_new(&server.rng, server.instance);
	/* above all that led meanwhile: a node does not take a change whose number is below what it knows */
	server.epoch += RESTORE_EPOCHS;
	server.restored_us = clock_realtime_usec();
	memcpy(ret->lineage, server.lineage, sizeof(ret->lineage));
	memset(&relining.ops, 0, sizeof(relining.ops));
	server_put_meta(&server, &relining.ops);
	r = audit_append(store, &relining.ops, "restore", server.lineage, reterr);
	if (r < 0) {
		ops_deinit(&relining.ops);
		return r;
	}
	r = relining.ops.no_memory
		    ? err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the lineage")
		    : store_commit_wait(store, relining.ops.list, relining.ops.n, reterr);
	ops_deinit(&relining.ops);
	return r;
}

int restore_state(const struct options *options, const char *path, bool force,
	struct restored *ret, struct err *reterr)
{
	const struct store_config config = { .dir = options->state };
	struct store *store = NULL;
	int r = backup_check(NULL, path, reterr);

	if (r == 0)
		r = check_target(options, force, reterr);
	for (size_t i = 0; i < ARRAY_LEN(key_files) && r == 0; i++)
		r = restore_key(options, path, key_files[i], reterr);
	if (r == 0)
		r = backup_restore(path, options->state, reterr);
	if (r == 0)
		r = store_open(&store, NULL, &config, reterr);
	if (r == 0)
		r = new_lineage(store, ret, reterr);
	store_close(store);
	return r;
}

/* ---- check ---- */
struct counting {
	struct checked *checked;
	struct err *err;
};

static bool count_record(
	const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct counting *counting = user;
	struct err err = ERR_NULL;

	(void)revision;
	counting->checked->records++;
	if (!strncmp(key, "sandbox/", 8) || !strncmp(key, "history/", 8)) {
		struct sandbox_record record = { .incarnation = 0 };

		if (codec_sandbox_decode(key, value, size, &record, &err) == 0)
			sandbox_record_deinit(&record);
		counting->checked->sandboxes += *key == 's';
	} else if (!strncmp(key, "node/", 5)) {
		struct node_record record = { .joined_us = 0 };

		if (codec_node_decode(key, value, size, &record, &err) == 0)
			node_record_deinit(&record);
		counting->checked->nodes++;
	}
	if (err_is_set(&err)) {
		counting->checked->bad++;
		if (!err_is_set(counting->err))
			*counting->err = err;
	}
	return true;
}

int check_state(const struct options *options, struct checked *ret, struct err *reterr)
{
	const struct store_config config = { .dir = options->state };
	struct registry registry = { .keys = NULL };
	struct counting counting = { ret, reterr };
	struct store *store = NULL;
	struct err bad = ERR_NULL;
	int r;

	memset(ret, 0, sizeof(*ret));
	r = backup_check(options->state, NULL, reterr);
	if (r == 0)
		r = store_open(&store, NULL, &config, reterr);
	if (r == 0)
		r = store_load(store, "", count_record, &counting, reterr);
	if (r == 0 && registry_load(&registry, store, &bad) < 0) {
		ret->bad++;
		if (!err_is_set(reterr))
			*reterr = bad;
	}
	registry_deinit(&registry);
	store_close(store);
	return r == 0 && err_is_set(reterr) ? -EBADMSG : r;
}

/* ---- the commands ---- */
struct arguments {
	struct options options;
	const char *path;
	bool json, force;
};

/* Options, -o, --force, and one path where `wants_path`. EXIT_OK or the exit status. */
static int read_arguments(int argc, char **argv, bool wants_path, struct arguments *ret)
{
	struct err err = ERR_NULL;
	int kept = 1, r;

	memset(ret, 0, sizeof(*ret));
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--force"))
			ret->force = true;
		else if (!strcmp(argv[i], "-o") && i + 1 < argc)
			ret->json = !strcmp(argv[++i], "json");
		else
			argv[kept++] = argv[i];
	}
	argv[kept] = NULL;
	r = options_load(&ret->options, &kept, argv, &err);
	if (r == 0 && kept != (wants_path ? 2 : 1))
		r = err_set(&err, FAIL_CONFIG_INVALID, EINVAL,
			wants_path ? "one file is needed" : "no arguments are taken");
	if (r < 0) {
		log_failure(LOG_LEVEL_ERROR, argv[0], &err, NULL);
		options_free(&ret->options);
		return EXIT_USAGE;
	}
	ret->path = wants_path ? argv[1] : NULL;
	return EXIT_OK;
}

static int finish(struct arguments *arguments, const char *what, int r, const struct err *err, json_t *json)
{
	if (r < 0)
		log_failure(LOG_LEVEL_ERROR, what, err, NULL);
	else if (arguments->json)
		r = json_dumpf(json, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF ? 0 : -EIO;
	json_decref(json);
	options_free(&arguments->options);
	return r < 0 ? EXIT_FAILED : EXIT_OK;
}

/* Of the store in a backup. */
static int read_head(const char *path, struct chain *ret, struct err *reterr)
{
	size_t size = 0;
	void *value = NULL;
	int r = backup_read_record(path, "audit-head", &value, &size, reterr);

	*ret = CHAIN_NEW;
	if (r == 0 && value)
		r = audit_read_mark("audit-head", value, size, ret, reterr);
	free(value);
	return r;
}

int command_backup(int argc, char **argv)
{
	struct arguments arguments;
	struct chain head = CHAIN_NEW;
	struct err err = ERR_NULL;
	int r = read_arguments(argc, argv, true, &arguments);

	if (r != EXIT_OK)
		return r;
	r = backup_state(&arguments.options, arguments.path, &err);
	if (r == 0)
		r = read_head(arguments.path, &head, &err);
	if (r == 0 && !arguments.json)
		(void)printf("%s holds the store and the link's keys. Keep it as secret as the state directory; "
			     "images are not in it.\nHead of its audit log: %llu:%s\n",
			arguments.path, (unsigned long long)head.seq, head.hash);
	return finish(&arguments, "no backup was made", r, &err,
		r == 0 ? json_pack("{s:s, s:s, s:{s:I, s:s}}", "backup", arguments.path, "state",
				 arguments.options.state, "audit_head", "seq", (json_int_t)head.seq, "hash", head.hash)
		       : NULL);
}

int command_restore(int argc, char **argv)
{
	struct arguments arguments;
	struct restored restored = { .n_nodes = 0 };
	struct err err = ERR_NULL;
	int r = read_arguments(argc, argv, true, &arguments);

	if (r != EXIT_OK)
		return r;
	/* as the directory's owner, whose the files are to be, and who may write there only as itself */
	if (access(arguments.options.state, F_OK) == 0)
		r = dir_become_owner(arguments.options.state);
	if (r < 0)
		(void)err_set(&err, FAIL_STORE_FAILED, -r, "cannot become the owner of %s", arguments.options.state);
	else if (access(arguments.path, R_OK) < 0 && errno == EACCES)
		r = err_set(&err, FAIL_STORE_FAILED, EACCES, "the owner of %s cannot read %s", arguments.options.state,
			arguments.path);
	else
		r = restore_state(&arguments.options, arguments.path, arguments.force, &restored, &err);
	if (r == 0 && !arguments.json)
		(void)printf(
			"Restored %s; lineage %s follows %s. Start the scheduler: what the %zu nodes hold and the backup did "
			"not know is adopted as they call, nothing of theirs is destroyed. Import images again.\n",
			arguments.options.state, restored.lineage, restored.old_lineage,
			restored.n_nodes);
	return finish(&arguments, "nothing was restored", r, &err,
		r == 0 ? json_pack("{s:s, s:s, s:s, s:I}", "state", arguments.options.state, "lineage",
				 restored.lineage, "old_lineage", restored.old_lineage, "nodes",
				 (json_int_t)restored.n_nodes)
		       : NULL);
}

int command_check(int argc, char **argv)
{
	struct arguments arguments;
	struct checked checked;
	struct err err = ERR_NULL;
	int r = read_arguments(argc, argv, false, &arguments);

	if (r != EXIT_OK)
		return r;
	r = check_state(&arguments.options, &checked, &err);
	if (r == 0 && !arguments.json)
		(void)printf("%s is whole: %zu records, %zu nodes, %zu live sandboxes.\n",
			arguments.options.state, checked.records, checked.nodes, checked.sandboxes);
	return finish(&arguments, "the store is not whole", r, &err,
		r == 0 ? json_pack("{s:I, s:I, s:I}", "records", (json_int_t)checked.records, "nodes",
				 (json_int_t)checked.nodes, "sandboxes",
				 (json_int_t)checked.sandboxes)
		       : NULL);
}
