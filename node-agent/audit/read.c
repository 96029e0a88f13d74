/* SPDX-License-Identifier: Apache-2.0
 *
 * See log.h: reading and verifying.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/files.h"
#include "audit/log.h"
#include "base/id.h"

#define OF_SANDBOX "\"sandbox\":\""

struct audit_reader {
	char directory[PATH_MAX];
	char pattern[sizeof(OF_SANDBOX) + ID_SIZE + 1]; /* "": every line */
	struct audit_files files;
	size_t next;
	FILE *file;
	char *line;
	size_t room;
};

int audit_reader_new(struct audit_reader **ret, const char *directory, const char *sandbox, struct err *reterr)
{
	struct audit_reader *reader = calloc(1, sizeof(*reader));
	int r;

	if (!reader)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to read the audit log");
	(void)snprintf(reader->directory, sizeof(reader->directory), "%s", directory);
	if (*sandbox)
		(void)snprintf(reader->pattern, sizeof(reader->pattern), OF_SANDBOX "%.*s\"", ID_LEN, sandbox);
	r = audit_files_list(&reader->files, directory);
	if (r < 0) {
		audit_reader_free(reader);
		return err_set(reterr, FAIL_IO_FAILED, -r, "the audit log in %.150s cannot be read", directory);
	}
	*ret = reader;
	return 0;
}

void audit_reader_free(struct audit_reader *reader)
{
	if (!reader)
		return;
	if (reader->file)
		(void)fclose(reader->file);
	audit_files_deinit(&reader->files);
	free(reader->line);
	free(reader);
}

static bool open_next(struct audit_reader *reader)
{
	char path[PATH_MAX];

	while (!reader->file && reader->next < reader->files.n) {
		audit_file_path(reader->directory, reader->files.files[reader->next++].first, path);
		reader->file = fopen(path, "re");
	}
	return reader->file != NULL;
}

int audit_reader_next(struct audit_reader *reader, size_t budget, const char **ret, size_t *ret_size, struct err *reterr)
{
	size_t seen = 0;

	*ret = NULL;
	while (open_next(reader)) {
		ssize_t n = getline(&reader->line, &reader->room, reader->file);

		if (n < 0 && ferror(reader->file))
			return err_set(reterr, FAIL_IO_FAILED, errno, "the audit log in %.150s cannot be read", reader->directory);
		if (n <= 0 || reader->line[n - 1] != '\n') { /* the last one may be being written */
			(void)fclose(TAKE(reader->file));
			continue;
		}
		reader->line[n - 1] = '\0';
		if (!*reader->pattern || strstr(reader->line, reader->pattern)) {
			*ret = reader->line;
			*ret_size = (size_t)n - 1;
			return 0;
		}
		seen += (size_t)n;
		if (seen >= budget)
			return -EAGAIN;
	}
	return 0;
}

/* ---- verifying ---- */

struct verifying {
	struct audit_verdict *verdict;
	bool is_vouched; /* that the log begins where it does */
};

static void take_note(struct verifying *verifying, const json_t *entry)
{
	struct audit_verdict *verdict = verifying->verdict;
	const char *kind = json_string_value(json_object_get(entry, "kind"));
	const char *hash = json_string_value(json_object_get(entry, "through_hash"));

	if (kind && !strcmp(kind, "lost"))
		verdict->n_lost += (uint64_t)json_integer_value(json_object_get(entry, "entries"));
	if (kind && !strcmp(kind, "forgotten") && hash && !strcmp(hash, verdict->base.hash) &&
		(uint64_t)json_integer_value(json_object_get(entry, "through")) == verdict->base.seq)
		verifying->is_vouched = true;
}

static int broken(uint64_t seq, const char *what, struct err *reterr)
{
	(void)err_set(reterr, FAIL_NODE_AUDIT_BROKEN, EBADMSG, "the entry behind %llu %s", (unsigned long long)seq, what);
	err_add(reterr, "after", "%llu", (unsigned long long)seq);
	return -EBADMSG;
}

static int verify_lines(struct audit_reader *reader, struct verifying *verifying, struct err *reterr)
{
	struct chain *head = &verifying->verdict->head;
	const char *line;
	size_t size;
	int r;

	while ((r = audit_reader_next(reader, SIZE_MAX, &line, &size, reterr)) == 0 && line) {
		json_t *entry = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
		enum chain_result result = chain_check(head, entry);

		if (result == CHAIN_OK)
			take_note(verifying, entry);
		json_decref(entry);
		if (result != CHAIN_OK)
			return broken(head->seq, chain_result_text(result), reterr);
	}
	return r;
}

int audit_log_verify(const char *directory, struct audit_verdict *ret, struct err *reterr)
{
	struct verifying verifying = { .verdict = ret };
	struct audit_reader *reader;
	int r = audit_reader_new(&reader, directory, "", reterr);

	if (r < 0)
		return r;
	*ret = (struct audit_verdict){ .head = CHAIN_NEW, .base = CHAIN_NEW };
	if (reader->files.n > 0)
		(void)audit_file_base(directory, reader->files.files[0].first, &ret->base);
	ret->head = ret->base;
	verifying.is_vouched = ret->base.seq == 0;
	r = verify_lines(reader, &verifying, reterr);
	if (r == 0 && !verifying.is_vouched)
		r = broken(ret->base.seq, "is the first: those before it went, and nothing says by whom", reterr);
	audit_reader_free(reader);
	return r;
}
