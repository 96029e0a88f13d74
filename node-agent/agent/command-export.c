/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node export ID FILE, croft-node import FILE (export.h), with no scheduler asked. A sandbox that runs is frozen for as long as a
 * snapshot of it takes, and goes on; one that is paused is copied as it lies there, which needs no agent.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/commands.h"
#include "agent/export.h"
#include "agent/identity.h"
#include "agent/journal.h"
#include "agent/owner-ask.h"
#include "agent/sandbox.h"
#include "agent/snapshots.h"
#include "agent/usage-file.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "wire/json.h"

#define TAKEN_WITHIN (600 * USEC_PER_SEC)
#define LOOK_EVERY (100 * USEC_PER_MSEC)

struct wanted {
	const char *id;
	struct sv_journal journal;
	bool is_there, no_memory;
};

static void look(const char *id, const struct sv_journal *journal, const struct err *err, void *user)
{
	struct wanted *wanted = user;

	(void)err;
	if (!journal || strcmp(id, wanted->id) != 0)
		return;
	wanted->is_there = true;
	wanted->no_memory = sv_journal_copy(journal, &wanted->journal) < 0;
}

static int read_journal(const struct agent_options *options, struct wanted *wanted, struct err *reterr)
{
	int r;

	sv_journal_deinit(&wanted->journal);
	memset(&wanted->journal, 0, sizeof(wanted->journal));
	wanted->is_there = false;
	r = journal_read(options->state, look, wanted, reterr);
	if (r == 0 && wanted->no_memory)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a record");
	if (r == 0 && !wanted->is_there)
		r = err_set(reterr, FAIL_SANDBOX_NOT_FOUND, ENOENT, "%.40s is not on this node", wanted->id);
	return r;
}

/* The unit's cache lies one below that of root's command. */
static void images_dir(const struct agent_options *options, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.3900s/node/images", options->cache);
	if (access(ret, F_OK) < 0)
		(void)snprintf(ret, PATH_MAX, "%.3900s/images", options->cache);
}

static json_t *usage_of(const struct agent_options *options, const char *sandbox)
{
	struct usage_list list = { .n = 0 };
	json_t *all = json_array();

	for (enum usage_file i = 0; i < USAGE_FILES; i++)
		(void)usage_read(options->state, i, &list, NULL); /* what cannot be read is not known here */
	for (size_t i = 0; i < list.n; i++)
		if (!strcmp(list.items[i].meter.used.sandbox, sandbox))
			(void)json_array_append_new(all, json_usage(&list.items[i].meter.used));
	usage_list_deinit(&list);
	return all;
}

static int write_out(const struct agent_options *options, const struct wanted *wanted, const char *state, const char *memory,
	const char *disk, const char *file, struct err *reterr)
{
	char images[PATH_MAX], image[PATH_MAX];
	struct identity identity;
	struct export_source source = { .journal = &wanted->journal, .state_path = state, .memory_path = memory, .disk_path = disk,
		.image_path = image };
	int r = identity_read(options->state, &identity, reterr);

	if (r < 0)
		return r;
	images_dir(options, images);
	(void)snprintf(image, sizeof(image), "%.3900s/%s", images, wanted->journal.spec->image_digest);
	source.node = identity.node;
	source.pool = identity.pool;
	source.usage = usage_of(options, wanted->id);
	r = export_write(&source, file, reterr);
	json_decref(source.usage);
	return r;
}

/* Until it has its last name, or its sandbox's record says that it is none. */
static int wait_taken(const struct agent_options *options, struct wanted *wanted, const char *snapshot, struct err *reterr)
{
	const int64_t until = clock_monotonic_usec() + TAKEN_WITHIN;
	char dir[PATH_MAX];
	int r = snapshot_dir(options->state, snapshot, false, dir);

	while (r == 0 && access(dir, F_OK) < 0) {
		bool was_asked;

		r = read_journal(options, wanted, reterr);
		if (r < 0)
			return r;
		was_asked = !strcmp(wanted->journal.snapshot, snapshot);
		if (access(dir, F_OK) == 0)
			return 0;
		if ((was_asked && !wanted->journal.is_snapshotting) || clock_monotonic_usec() > until)
			return err_set(reterr, FAIL_EXPORT_FAILED, 0, "the sandbox could not be frozen and copied: the agent's log says why");
		(void)usleep(LOOK_EVERY);
	}
	return r < 0 ? err_set(reterr, FAIL_EXPORT_FAILED, -r, "the state directory's name is too long") : 0;
}

/* 0, 1: why not was said already, or -1. */
static int export_running(const struct agent_options *options, struct wanted *wanted, const char *file, struct err *reterr)
{
	char id[ID_SIZE], dir[PATH_MAX], state[PATH_MAX], memory[PATH_MAX], disk[PATH_MAX + 8];
	struct rng rng = rng_system();
	int r;

	id_new(&rng, id);
	r = owner_ask(options, json_pack("{s:s, s:s, s:s}", "do", "snapshot", "sandbox", wanted->id, "snapshot", id), NULL);
	if (owner_is_nobody(r))
		return err_set(reterr, FAIL_EXPORT_FAILED, -r, "the agent does not run, and the sandbox does: start it");
	if (r != 0)
		return r;
	r = wait_taken(options, wanted, id, reterr);
	if (r == 0) {
		snapshot_paths(options->state, id, false, state, memory);
		(void)snapshot_dir(options->state, id, false, dir);
		(void)snprintf(disk, sizeof(disk), "%s/" DISK_NAME, dir);
		r = write_out(options, wanted, state, memory, disk, file, reterr);
	}
	(void)owner_ask(options, json_pack("{s:s, s:s}", "do", "drop", "snapshot", id), NULL); /* its next agent's drift, else */
	return r;
}

static int export_paused(const struct agent_options *options, struct wanted *wanted, const char *file, struct err *reterr)
{
	char dir[PATH_MAX], state[PATH_MAX + 32], memory[PATH_MAX + 32], disk[PATH_MAX + 32];

	if (journal_dir(options->state, wanted->id, dir) < 0)
		return err_set(reterr, FAIL_EXPORT_FAILED, ENAMETOOLONG, "the state directory's name is too long");
	(void)snprintf(state, sizeof(state), "%s/" SNAPSHOT_STATE_NAME, dir);
	(void)snprintf(memory, sizeof(memory), "%s/" SNAPSHOT_MEMORY_NAME, dir);
	(void)snprintf(disk, sizeof(disk), "%s/" DISK_NAME, dir);
	return write_out(options, wanted, state, memory, disk, file, reterr);
}

int command_export(const struct agent_options *options, int argc, char **argv)
{
	struct wanted wanted = { .id = argc > 2 ? argv[2] : "" };
	struct err err = ERR_NULL;
	int r;

	if (argc != 4 || !id_is_valid(wanted.id))
		return (void)fprintf(stderr, "usage: croft-node export ID FILE\n"), 2;
	r = read_journal(options, &wanted, &err);
	if (r == 0 && wanted.journal.state == SV_RUNNING)
		r = export_running(options, &wanted, argv[3], &err);
	else if (r == 0 && wanted.journal.state == SV_PAUSED)
		r = export_paused(options, &wanted, argv[3], &err);
	else if (r == 0)
		r = err_set(&err, FAIL_EXPORT_FAILED, EBUSY, "the sandbox is %s; one that runs or is paused can be exported",
			sv_state_name(wanted.journal.state));
	sv_journal_deinit(&wanted.journal);
	if (r < 0)
		return command_failed(&err);
	if (r == 0)
		(void)printf("%s\n", argv[3]);
	return r;
}

int command_import(const struct agent_options *options, int argc, char **argv)
{
	CLEANUP_FD int fd = -1;
	char images[PATH_MAX];
	struct snapshot_info info;
	struct identity identity;
	struct err err = ERR_NULL;
	int r;

	if (argc != 3)
		return (void)fprintf(stderr, "usage: croft-node import FILE\n"), 2;
	fd = open(argv[2], O_RDONLY | O_CLOEXEC); /* it may be root's; what is made of it is the agent's */
	if (fd < 0)
		return (void)fprintf(stderr, "croft-node: %s: %s\n", argv[2], strerror(errno)), 1;
	images_dir(options, images);
	r = identity_read(options->state, &identity, &err);
	if (r == 0 && dir_become_owner(options->state) < 0)
		r = err_set(&err, FAIL_STATE_WRITE_FAILED, EPERM, "cannot become the owner of %.200s", options->state);
	if (r == 0)
		r = export_read(fd, options->state, images, &info, &err);
	if (r < 0)
		return command_failed(&err);
	(void)printf("%s\n", info.id);
	if (state_is_locked(options->state))
		(void)fprintf(stderr, "The agent finds it when it is started again. A scheduler takes it only if it was told for whom before: "
				      "`croft node take --for TENANT NODE`, or a join with a token of `croft token create --adopt TENANT`.\n");
	return 0;
}
