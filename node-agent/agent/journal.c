/* SPDX-License-Identifier: Apache-2.0
 *
 * See journal.h.
 */
#include "agent/journal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/sandbox.h"
#include "agent/sealed.h"
#include "base/fd.h"
#include "base/log.h"
#include "pb/store.pb-c.h"
#include "wire/check.h"

#define RECORD_MAX (1024 * 1024)
#define MAGIC "CROFTJ1\n"

static void free_record(Croft__JournalRecord *record)
{
	croft__journal_record__free_unpacked(record, NULL);
}
DEFINE_CLEANUP(Croft__JournalRecord, free_record)

int journal_dir(const char *state, const char *sandbox, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/sandboxes/%s", state, sandbox);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int state_path(const char *state, const char *sandbox, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/sandboxes/%s/state", state, sandbox);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int set_text(char **to, const char *text)
{
	if (!*text)
		return 0; /* protobuf-c's own empty string stays */
	*to = strdup(text);
	return *to ? 0 : -ENOMEM;
}

static int encode_texts(const struct sv_journal *journal, Croft__JournalRecord *record)
{
	const struct {
		char **to;
		const char *text;
	} texts[] = { { &record->sandbox, journal->sandbox },
		{ &record->operation, journal->operation }, { &record->updated, journal->updated },
		{ &record->state, sv_state_name(journal->state) },
		{ &record->trace_id, journal->trace.trace_id },
		{ &record->span_id, journal->trace.span_id },
		{ &record->run_dir, journal->vmm.run_dir },
		{ &record->host_boot_id, journal->vmm.host_boot_id },
		{ &record->cgroup, journal->vmm.cgroup },
		{ &record->guest_boot_id, journal->guest_boot_id },
		{ &record->snapshot, journal->snapshot },
		{ &record->snapshot_operation, journal->snapshot_operation },
		{ &record->end_reason, end_reason_name(journal->end_reason) } };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (set_text(texts[i].to, texts[i].text) < 0)
			return -ENOMEM;
	return 0;
}

static int encode_stages(const struct sv_journal *journal, Croft__JournalRecord *record)
{
	record->stages = calloc(journal->n_stages + 1, sizeof(Croft__StageRecord *));
	if (!record->stages)
		return -ENOMEM;
	for (size_t i = 0; i < journal->n_stages; i++) {
		record->stages[i] = stage_record_encode(&journal->stages[i]);
		if (!record->stages[i])
			return -ENOMEM;
		record->n_stages++;
	}
	return 0;
}

static int encode_frozen(const struct sv_journal *journal, Croft__JournalRecord *record)
{
	const struct sv_frozen_list *list = &journal->frozen;

	record->frozen = list->n ? calloc(list->n, sizeof(*record->frozen)) : NULL;
	if (list->n && !record->frozen)
		return -ENOMEM;
	for (uint32_t i = 0; i < list->n; i++) {
		Croft__FrozenMemory *to = record->frozen[i] = malloc(sizeof(*to));

		if (!to)
			return -ENOMEM;
		croft__frozen_memory__init(to);
		to->file = list->items[i].file;
		to->mib = list->items[i].mib;
		record->n_frozen++;
	}
	return 0;
}

int journal_pack(const struct sv_journal *journal, uint8_t **ret, size_t *ret_size)
{
	CLEANUP(free_recordp) Croft__JournalRecord *record = malloc(sizeof(*record));
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size;

	if (!record)
		return -ENOMEM;
	croft__journal_record__init(record);
	record->generation = journal->generation;
	record->report_version = journal->report_version;
	record->acked_version = journal->acked_version;
	record->vmm_pid = journal->vmm.pid;
	record->vmm_start_ticks = journal->vmm.start_ticks;
	record->ready_us = journal->ready_us;
	record->life_left_us = journal->life_left_us;
	record->life_end_mono_us = journal->life_end_mono_us;
	record->attempt = journal->attempt;
	record->update_number = journal->update_number;
	record->waking = journal->is_waking;
	record->snapshotting = journal->is_snapshotting;
	if (encode_texts(journal, record) < 0 || encode_stages(journal, record) < 0 || encode_frozen(journal, record) < 0)
		return -ENOMEM;
	if (journal->spec && !(record->spec = spec_encode(journal->spec)))
		return -ENOMEM;
	if (err_is_set(&journal->failure) && !(record->failure = failure_encode(&journal->failure)))
		return -ENOMEM;
	size = croft__journal_record__get_packed_size(record);
	data = malloc(SEALED_HEAD + size);
	if (!data)
		return -ENOMEM;
	(void)croft__journal_record__pack(record, data + SEALED_HEAD);
	if (sealed_close(MAGIC, data, size) < 0)
		return -ENOMEM;
	*ret = TAKE(data);
	*ret_size = SEALED_HEAD + size;
	return 0;
}

/* A text of the record into an array; what does not fit was not written by us. */
#define COPY(to, from) copy_text((to), sizeof(to), (from))
static int copy_text(char *to, size_t size, const char *from)
{
	int n = snprintf(to, size, "%s", from);

	return n < 0 || (size_t)n >= size ? -EINVAL : 0;
}

/* Of an agent that was rolled back: its sandbox is left alone until the newer one is there again. */
static int unknown_state(const Croft__JournalRecord *record, struct err *reterr)
{
	(void)err_set(reterr, FAIL_STATE_UNREADABLE, EINVAL,
		"the sandbox is in a state that this version does not know: install the newer release again");
	err_add(reterr, "state", "%.40s", record->state);
	return -EINVAL;
}

static int decode(const Croft__JournalRecord *record, struct sv_journal *ret, struct err *reterr)
{
	int r = 0;

	ret->generation = record->generation;
	ret->report_version = record->report_version;
	ret->acked_version = record->acked_version;
	ret->vmm.pid = record->vmm_pid;
	ret->vmm.start_ticks = record->vmm_start_ticks;
	ret->ready_us = record->ready_us;
	ret->life_left_us = record->life_left_us;
	ret->life_end_mono_us = record->life_end_mono_us;
	ret->attempt = record->attempt;
	ret->update_number = record->update_number;
	ret->is_waking = record->waking;
	ret->is_snapshotting = record->snapshotting;
	for (size_t i = 0; i < record->n_frozen && ret->frozen.n < SV_FROZEN_MAX; i++)
		ret->frozen.items[ret->frozen.n++] =
			(struct sv_frozen){ .file = record->frozen[i]->file, .mib = record->frozen[i]->mib };
	ret->state = sv_state_by_name(record->state);
	ret->end_reason = end_reason_by_name(record->end_reason);
	if (ret->state == SV_STATE_MAX_)
		return unknown_state(record, reterr);
	if (!id_is_valid(record->sandbox) ||
		COPY(ret->sandbox, record->sandbox) < 0 ||
		COPY(ret->operation, record->operation) < 0 ||
		COPY(ret->updated, record->updated) < 0 ||
		COPY(ret->trace.trace_id, record->trace_id) < 0 ||
		COPY(ret->trace.span_id, record->span_id) < 0 ||
		COPY(ret->vmm.run_dir, record->run_dir) < 0 ||
		COPY(ret->vmm.host_boot_id, record->host_boot_id) < 0 ||
		COPY(ret->vmm.cgroup, record->cgroup) < 0 ||
		COPY(ret->guest_boot_id, record->guest_boot_id) < 0 ||
		COPY(ret->snapshot, record->snapshot) < 0 ||
		COPY(ret->snapshot_operation, record->snapshot_operation) < 0)
		return err_set(reterr, FAIL_STATE_UNREADABLE, EINVAL,
			"a member of the record is none of ours");
	if (record->failure)
		failure_decode(record->failure, &ret->failure);
	if (record->spec)
		r = spec_decode(record->spec, &ret->spec, reterr);
	if (r < 0)
		return r;
	ret->stages = calloc(record->n_stages + 1, sizeof(*ret->stages));
	if (!ret->stages)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a journal record");
	for (size_t i = 0; i < record->n_stages; i++)
		/* a stage that this version does not know is no reason to lose a sandbox */
		if (stage_record_decode(record->stages[i], &ret->stages[ret->n_stages]) == 0)
			ret->n_stages++;
	return 0;
}

int journal_unpack(const void *data, size_t size, struct sv_journal *ret, struct err *reterr)
{
	CLEANUP(free_recordp) Croft__JournalRecord *record = NULL;
	struct sv_journal journal = { .sandbox = "" };
	int r;

	if (!sealed_is_right(MAGIC, data, size))
		return err_set(reterr, FAIL_STATE_UNREADABLE, EBADMSG,
			"the record is torn: its digest is another");
	record = (Croft__JournalRecord *)(void *)check_unpack(&croft__journal_record__descriptor,
		(const uint8_t *)data + SEALED_HEAD, size - SEALED_HEAD, reterr);
	if (!record)
		return -EINVAL;
	r = decode(record, &journal, reterr);
	if (r < 0) {
		sv_journal_deinit(&journal);
		return r;
	}
	*ret = journal;
	return 0;
}

int journal_write(
	const char *state, const char *sandbox, const void *data, size_t size, struct err *reterr)
{
	char path[PATH_MAX], dir[PATH_MAX];
	int r = journal_dir(state, sandbox, dir);

	if (r == 0)
		r = dir_make(dir, 0700);
	if (r == 0)
		r = state_path(state, sandbox, path);
	if (r == 0)
		r = file_replace(path, data, size, 0600);
	if (r < 0) {
		(void)err_set(reterr, FAIL_STATE_WRITE_FAILED, -r,
			"cannot write the journal of the sandbox");
		err_add(reterr, "path", "%.90s", dir);
	}
	return r;
}

/* A directory that promises nothing: made for a first write that never came. One with a disk had a
 * record. */
static bool is_unused(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%.4000s/disk", dir);
	return lstat(path, &st) < 0 && errno == ENOENT;
}

static bool has_snapshot(const char *dir)
{
	static const char *const names[] = { SNAPSHOT_STATE_NAME, SNAPSHOT_MEMORY_NAME };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(path, sizeof(path), "%.4000s/%s", dir, names[i]);
		if (access(path, F_OK) < 0)
			return false;
	}
	return true;
}

static void load_one(
	const char *state, const char *sandbox, bool mend, journal_each each, void *user)
{
	CLEANUP_FREE char *data = NULL;
	struct sv_journal journal = { .sandbox = "" };
	struct err err = ERR_NULL;
	char path[PATH_MAX], dir[PATH_MAX];
	size_t size = 0;
	int r = state_path(state, sandbox, path);

	if (r == 0)
		r = journal_dir(state, sandbox, dir);
	if (r == 0)
		r = file_read(path, RECORD_MAX, &data, &size);
	if (r == -ENOENT && is_unused(dir)) {
		if (mend && dir_remove(dir) < 0)
			log_warn("cannot remove a directory without a record", "path", dir);
		return;
	}
	if (r < 0)
		(void)err_set(&err, FAIL_STATE_UNREADABLE, -r, "cannot read %.200s", path);
	else if (journal_unpack(data, size, &journal, &err) == 0 &&
		 strcmp(journal.sandbox, sandbox) != 0)
		(void)err_set(&err, FAIL_STATE_UNREADABLE, EINVAL,
			"%.200s is another sandbox's record", path);
	journal.has_no_snapshot = !has_snapshot(dir);
	each(sandbox, err_is_set(&err) ? NULL : &journal, err_is_set(&err) ? &err : NULL, user);
	sv_journal_deinit(&journal);
}

static int walk(const char *path, const char *state, bool mend, journal_each each, void *user,
	struct err *reterr)
{
	struct dirent *entry;
	DIR *dir = opendir(path);
	int r;

	if (!dir)
		return err_set(reterr, FAIL_STATE_UNREADABLE, errno, "cannot open %s", path);
	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (!entry)
			break;
		if (entry->d_name[0] == '.')
			continue;
		if (id_is_valid(entry->d_name))
			load_one(state, entry->d_name, mend, each, user);
		else
			log_warn("a name in the journal is no sandbox, ignoring", "name",
				entry->d_name);
	}
	r = errno ? err_set(reterr, FAIL_STATE_UNREADABLE, errno, "cannot read %s", path) : 0;
	(void)closedir(dir);
	return r;
}

int journal_load(const char *state, journal_each each, void *user, struct err *reterr)
{
	char path[PATH_MAX];
	int r;

	(void)snprintf(path, sizeof(path), "%s/sandboxes", state);
	r = dir_make(path, 0700);
	if (r < 0)
		return err_set(reterr, FAIL_STATE_UNREADABLE, -r, "cannot make %s", path);
	return walk(path, state, true, each, user, reterr);
}

int journal_read(const char *state, journal_each each, void *user, struct err *reterr)
{
	char path[PATH_MAX];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/sandboxes", state);
	if (stat(path, &st) < 0 && errno == ENOENT)
		return 0; /* joined, never run */
	return walk(path, state, false, each, user, reterr);
}

int journal_read_epoch(
	const char *state, uint64_t *ret, struct leader_mark *ret_leader, struct err *reterr)
{
	CLEANUP_FREE char *text = NULL;
	struct leader_mark leader = { .run = "" };
	char path[PATH_MAX];
	int r;

	*ret = 0;
	*ret_leader = leader;
	(void)snprintf(path, sizeof(path), "%s/epoch", state);
	r = file_read(path, 128, &text, NULL);
	if (r == -ENOENT)
		return 0;
	if (r == 0 && sscanf(text, "%" SCNu64 " %20s %20s", ret, leader.lineage, leader.run) < 1)
		r = -EINVAL;
	if (r == 0 && id_is_valid(leader.lineage) && id_is_valid(leader.run))
		*ret_leader = leader;
	if (r < 0)
		return err_set(reterr, FAIL_STATE_UNREADABLE, -r, "cannot read %s", path);
	return 0;
}

int journal_write_epoch(const char *state, uint64_t epoch, const struct leader_mark *leader,
	struct err *reterr)
{
	char path[PATH_MAX], text[96];
	int n = snprintf(text, sizeof(text), "%" PRIu64 " %s %s\n", epoch, leader->lineage, leader->run), r;

	(void)snprintf(path, sizeof(path), "%s/epoch", state);
	r = file_replace(path, text, (size_t)n, 0600);
	if (r < 0)
		return err_set(reterr, FAIL_STATE_WRITE_FAILED, -r, "cannot write %s", path);
	return 0;
}
