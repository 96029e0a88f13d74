/* SPDX-License-Identifier: Apache-2.0
 *
 * See log.h.
 */
#include "audit/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/files.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define LOOK_USEC (60 * USEC_PER_SEC) /* between two looks for files that are too old */

struct audit_log {
	char directory[PATH_MAX];
	uint64_t size_max;
	int64_t age_max_us, look_us;
	struct chain head;
	int fd;             /* of the last file; -1: the next entry begins one */
	uint64_t size;      /* of it */
	uint64_t n_lost;    /* in all */
	uint64_t n_untold;  /* of them no entry speaks */
};

static int unwritten(int err_no, const struct audit_log *log, struct err *reterr)
{
	(void)err_set(reterr, FAIL_NODE_AUDIT_UNWRITTEN, err_no, "an entry of the audit log in %.150s cannot be written", log->directory);
	err_add(reterr, "directory", "%.90s", log->directory);
	return -err_no;
}

/* The whole line or nothing: half of one would be taken for the end of the log. */
static int write_line(struct audit_log *log, const char *line, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = write(log->fd, line + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int err_no = n < 0 ? errno : EIO;

			if (ftruncate(log->fd, (off_t)log->size) < 0)
				log->fd = fd_close(log->fd); /* found torn, and mended, when it is opened again */
			return -err_no;
		}
		done += (size_t)n;
	}
	log->size += size;
	return 0;
}

static int begin_file(struct audit_log *log)
{
	char path[PATH_MAX];

	(void)fd_close(log->fd);
	log->size = 0;
	if (mkdir(log->directory, 0750) < 0 && errno != EEXIST) {
		log->fd = -1;
		return -errno;
	}
	audit_file_path(log->directory, log->head.seq + 1, path);
	/* one that is there is empty: of a time without room */
	log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
	return log->fd < 0 ? -errno : 0;
}

/* Chains and writes; the head moves on only when it was written. */
static int put(struct audit_log *log, json_t *entry, int64_t now_us)
{
	char when[CLOCK_RFC3339_SIZE];
	CLEANUP_FREE char *text = NULL, *line = NULL;
	struct chain next = log->head;
	int n, r = 0;

	if (json_object_set_new(entry, "when", json_string(clock_format_rfc3339(now_us, when, sizeof(when)))) < 0 ||
		chain_add(&next, entry, &text) < 0)
		return -ENOMEM;
	text[strlen(text) - 1] = '\0'; /* the brace, behind which the hash goes */
	n = asprintf(&line, "%s,\"hash\":\"%s\"}\n", text, next.hash);
	if (n < 0) {
		line = NULL;
		return -ENOMEM;
	}
	if ((size_t)n > AUDIT_LINE_MAX)
		return -E2BIG;
	if (log->fd < 0 || log->size >= log->size_max / AUDIT_FILES)
		r = begin_file(log);
	if (r == 0)
		r = write_line(log, line, (size_t)n);
	if (r == 0)
		log->head = next;
	return r;
}

static int put_note(struct audit_log *log, json_t *note, int64_t now_us)
{
	int r = note ? put(log, note, now_us) : -ENOMEM;

	json_decref(note);
	return r;
}

/* Drops files of what is over the bounds, the oldest first; never the one that is written. That they go is written before. */
static void forget(struct audit_log *log, int64_t now_us)
{
	struct audit_files files;
	struct chain base;
	uint64_t total = 0;
	size_t n = 0;

	log->look_us = now_us + LOOK_USEC;
	if (audit_files_list(&files, log->directory) < 0)
		return;
	for (size_t i = 0; i < files.n; i++)
		total += files.files[i].size;
	while (n + 1 < files.n && (total > log->size_max || files.files[n].changed_us < now_us - log->age_max_us))
		total -= files.files[n++].size;
	if (n > 0 && audit_file_base(log->directory, files.files[n].first, &base) == 0 && base.seq > 0 &&
		put_note(log, json_pack("{s:s, s:I, s:s}", "kind", "forgotten", "through", (json_int_t)base.seq, "through_hash", base.hash),
			now_us) == 0)
		for (size_t i = 0; i < n; i++) {
			char path[PATH_MAX];

			audit_file_path(log->directory, files.files[i].first, path);
			if (unlink(path) < 0)
				log_warn("a file of the audit log cannot be removed", "path", path, "errno", strerrorname_np(errno));
		}
	audit_files_deinit(&files);
}

int audit_log_append(struct audit_log *log, json_t *entry, int64_t now_us, struct err *reterr)
{
	int r = entry ? 0 : -ENOMEM;

	if (r == 0 && log->n_untold > 0) {
		r = put_note(log, json_pack("{s:s, s:I}", "kind", "lost", "entries", (json_int_t)log->n_untold), now_us);
		log->n_untold = r == 0 ? 0 : log->n_untold;
	}
	if (r == 0)
		r = put(log, entry, now_us);
	json_decref(entry);
	if (r < 0) {
		log->n_lost++;
		log->n_untold++;
		return unwritten(-r, log, reterr);
	}
	if (now_us >= log->look_us || log->size >= log->size_max / AUDIT_FILES)
		forget(log, now_us);
	return 0;
}

/* ---- the start ---- */

/* Cuts off what is behind the last end of a line. */
static uint64_t mend(struct audit_log *log, const struct audit_file *last)
{
	char path[PATH_MAX];
	uint64_t whole;

	audit_file_path(log->directory, last->first, path);
	if (audit_file_whole(path, &whole) < 0 || whole == last->size)
		return 0;
	return truncate(path, (off_t)whole) == 0 ? last->size - whole : 0;
}

static void open_last(struct audit_log *log, const struct audit_files *files, int64_t now_us)
{
	const struct audit_file *last = &files->files[files->n - 1];
	uint64_t torn = mend(log, last);
	char path[PATH_MAX];
	struct stat st;

	audit_files_head(log->directory, files, &log->head);
	audit_file_path(log->directory, last->first, path);
	log->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	if (log->fd >= 0 && fstat(log->fd, &st) == 0)
		log->size = (uint64_t)st.st_size;
	if (torn > 0)
		(void)put_note(log, json_pack("{s:s, s:I}", "kind", "torn", "bytes", (json_int_t)torn), now_us);
}

int audit_log_open(struct audit_log **ret, const struct audit_config *config, int64_t now_us, struct err *reterr)
{
	struct audit_log *log = calloc(1, sizeof(*log));
	struct audit_files files;

	if (!log)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the audit log");
	(void)snprintf(log->directory, sizeof(log->directory), "%s", config->directory);
	log->size_max = config->size_max;
	log->age_max_us = config->age_max_us;
	log->look_us = now_us;
	log->head = CHAIN_NEW;
	log->fd = -1;
	if (audit_files_list(&files, log->directory) == 0) {
		if (files.n > 0)
			open_last(log, &files, now_us);
		audit_files_deinit(&files);
	}
	*ret = log;
	return 0;
}

void audit_log_close(struct audit_log *log)
{
	if (!log)
		return;
	(void)fd_close(log->fd);
	free(log);
}

const struct chain *audit_log_head(const struct audit_log *log)
{
	return &log->head;
}

uint64_t audit_log_lost(const struct audit_log *log)
{
	return log->n_lost;
}
