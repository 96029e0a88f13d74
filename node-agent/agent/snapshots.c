/* SPDX-License-Identifier: Apache-2.0
 *
 * See snapshots.h.
 */
#include "agent/snapshots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/sandbox.h"
#include "agent/sealed.h"
#include "base/fd.h"
#include "base/log.h"
#include "pb/link.pb-c.h"
#include "wire/check.h"

#define MAGIC "CROFTS1\n"
#define RECORD_MAX (64 * 1024)
#define STATE_NAME "state"
#define MEMORY_NAME "memory"
#define RECORD_NAME "record"
#define UNFINISHED ".new"
#define BLOCKS_PER_MIB 2048u

static void free_snapshot(Croft__Snapshot *snapshot)
{
	croft__snapshot__free_unpacked(snapshot, NULL);
}
DEFINE_CLEANUP(Croft__Snapshot, free_snapshot)

static int base_dir(const char *state, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/snapshots", state);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int snapshot_dir(const char *state, const char *id, bool unfinished, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/snapshots/%s%s", state, id, unfinished ? UNFINISHED : "");

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int path_in(const char *dir, const char *name, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/%s", dir, name);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

void snapshot_paths(const char *state, const char *id, bool unfinished, char ret_state[static PATH_MAX],
	char ret_memory[static PATH_MAX])
{
	char dir[PATH_MAX];

	*ret_state = *ret_memory = '\0';
	if (snapshot_dir(state, id, unfinished, dir) < 0 || path_in(dir, STATE_NAME, ret_state) < 0 ||
		path_in(dir, MEMORY_NAME, ret_memory) < 0)
		*ret_state = *ret_memory = '\0';
}

/* ---- one is made ---- */

int snapshot_begin(const char *state, const char *id, struct err *reterr)
{
	char base[PATH_MAX], dir[PATH_MAX];
	int r = base_dir(state, base);

	if (r == 0)
		r = snapshot_dir(state, id, true, dir);
	if (r == 0)
		r = dir_make(base, 0700);
	if (r == 0)
		r = dir_remove(dir);
	if (r == 0 && mkdir(dir, 0700) < 0)
		r = -errno;
	return r < 0 ? err_set(reterr, FAIL_SNAPSHOT_FAILED, -r, "cannot make a directory for the snapshot") : 0;
}

static int sync_file(const char *dir, const char *name, uint64_t *blocks)
{
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];
	struct stat st;
	int r = path_in(dir, name, path);

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT && !strcmp(name, DISK_NAME) ? 0 : -errno; /* not each sandbox has a disk */
	if (fsync(fd) < 0 || fstat(fd, &st) < 0)
		return -errno;
	*blocks += (uint64_t)st.st_blocks;
	return 0;
}

static int write_record(const char *dir, const struct snapshot_info *info)
{
	CLEANUP(free_snapshotp) Croft__Snapshot *message = snapshot_info_encode(info);
	size_t size = message ? croft__snapshot__get_packed_size(message) : 0;
	CLEANUP_FREE uint8_t *data = malloc(SEALED_HEAD + size);
	char path[PATH_MAX];
	int r = path_in(dir, RECORD_NAME, path);

	if (!message || !data)
		return -ENOMEM;
	(void)croft__snapshot__pack(message, data + SEALED_HEAD);
	if (r == 0)
		r = sealed_close(MAGIC, data, size);
	return r < 0 ? r : file_replace(path, data, SEALED_HEAD + size, 0600);
}

static int finish(const char *state, struct snapshot_info *info)
{
	static const char *const names[] = { MEMORY_NAME, STATE_NAME, DISK_NAME };
	char base[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
	uint64_t blocks = 0;
	int r = base_dir(state, base);

	if (r == 0)
		r = snapshot_dir(state, info->id, true, from);
	if (r == 0)
		r = snapshot_dir(state, info->id, false, to);
	for (size_t i = 0; i < ARRAY_LEN(names) && r == 0; i++)
		r = sync_file(from, names[i], &blocks);
	info->size_mib = MIN((blocks + BLOCKS_PER_MIB - 1) / BLOCKS_PER_MIB, SPEC_MEMORY_MIB_MAX + SPEC_DISK_MIB_MAX);
	if (r == 0)
		r = write_record(from, info); /* and its directory */
	if (r == 0 && rename(from, to) < 0)
		r = -errno;
	return r == 0 ? dir_fsync(base) : r;
}

int snapshot_finish(const char *state, struct snapshot_info *info, struct err *reterr)
{
	int r = finish(state, info);

	return r < 0 ? err_set(reterr, FAIL_SNAPSHOT_FAILED, -r, "the snapshot's files cannot be made durable") : 0;
}

/* ---- one goes ---- */

/* Under the other name first, so that a crash leaves none that is half there. */
int snapshot_remove(const char *state, const char *id, struct err *reterr)
{
	char base[PATH_MAX], whole[PATH_MAX], half[PATH_MAX];
	int r = base_dir(state, base);

	if (r == 0)
		r = snapshot_dir(state, id, false, whole);
	if (r == 0)
		r = snapshot_dir(state, id, true, half);
	if (r == 0)
		r = dir_remove(half);
	if (r == 0 && rename(whole, half) == 0)
		r = dir_fsync(base);
	else if (r == 0 && errno != ENOENT)
		r = -errno;
	if (r == 0)
		r = dir_remove(half);
	return r < 0 ? err_set(reterr, FAIL_IO_FAILED, -r, "the snapshot %.20s cannot be removed", id) : 0;
}

/* ---- at the start ---- */

static int read_record(const char *dir, const char *id, struct snapshot_info *ret, struct err *reterr)
{
	CLEANUP(free_snapshotp) Croft__Snapshot *message = NULL;
	CLEANUP_FREE char *data = NULL;
	char path[PATH_MAX];
	size_t size = 0;
	int r = path_in(dir, RECORD_NAME, path);

	if (r == 0)
		r = file_read(path, RECORD_MAX, &data, &size);
	if (r < 0)
		return err_set(reterr, FAIL_STATE_UNREADABLE, -r, "cannot read the snapshot's record");
	if (!sealed_is_right(MAGIC, (const uint8_t *)data, size))
		return err_set(reterr, FAIL_STATE_UNREADABLE, EBADMSG, "the snapshot's record is torn: its digest is another");
	message = (Croft__Snapshot *)(void *)check_unpack(
		&croft__snapshot__descriptor, (const uint8_t *)data + SEALED_HEAD, size - SEALED_HEAD, reterr);
	if (!message)
		return -EINVAL;
	r = snapshot_info_decode(message, ret, reterr);
	if (r == 0 && strcmp(ret->id, id) != 0)
		r = err_set(reterr, FAIL_STATE_UNREADABLE, EINVAL, "the record is another snapshot's");
	return r;
}

static int check_files(const char *dir, const struct snapshot_info *info, struct err *reterr)
{
	const char *const names[] = { MEMORY_NAME, STATE_NAME, info->disk_mib ? DISK_NAME : STATE_NAME };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (path_in(dir, names[i], path) < 0 || access(path, R_OK) < 0)
			return err_set(reterr, FAIL_SNAPSHOT_INVALID, errno, "a file of the snapshot is not there: %s", names[i]);
	return 0;
}

static void load_one(const char *state, const char *id, snapshots_each each, void *user)
{
	struct snapshot_info info;
	struct err err = ERR_NULL;
	char dir[PATH_MAX];
	int r = snapshot_dir(state, id, false, dir);

	if (r == 0)
		r = read_record(dir, id, &info, &err);
	if (r == 0)
		r = check_files(dir, &info, &err);
	if (r == 0)
		each(&info, user);
	else
		log_failure(LOG_LEVEL_ERROR, "a snapshot cannot be read; it is left alone and not offered", &err, "snapshot", id,
			NULL);
}

static bool is_unfinished(const char *name)
{
	size_t n = strlen(name), end = strlen(UNFINISHED);

	return n > end && !strcmp(name + n - end, UNFINISHED);
}

static void load_entry(const char *state, const char *base, const char *name, snapshots_each each, void *user)
{
	char path[PATH_MAX];

	if (id_is_valid(name)) {
		load_one(state, name, each, user);
		return;
	}
	if (!is_unfinished(name)) {
		log_warn("a name among the snapshots is none, ignoring", "name", name);
		return;
	}
	if (path_in(base, name, path) < 0 || dir_remove(path) < 0)
		log_warn("cannot remove an unfinished snapshot", "name", name);
}

int snapshots_load(const char *state, snapshots_each each, void *user, struct err *reterr)
{
	struct dirent *entry;
	char base[PATH_MAX];
	DIR *dir;
	int r = base_dir(state, base);

	if (r == 0)
		r = dir_make(base, 0700);
	if (r < 0)
		return err_set(reterr, FAIL_STATE_UNREADABLE, -r, "cannot make the directory of snapshots");
	r = dir_fsync(base); /* an agent that was killed may not have come so far behind the last rename */
	if (r < 0)
		return err_set(reterr, FAIL_STATE_UNREADABLE, -r, "cannot sync the directory of snapshots");
	dir = opendir(base);
	if (!dir)
		return err_set(reterr, FAIL_STATE_UNREADABLE, errno, "cannot open %.200s", base);
	while ((void)(errno = 0), (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			load_entry(state, base, entry->d_name, each, user);
	r = errno ? err_set(reterr, FAIL_STATE_UNREADABLE, errno, "cannot read %.200s", base) : 0;
	(void)closedir(dir);
	return r;
}
