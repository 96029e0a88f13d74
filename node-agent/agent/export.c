/* SPDX-License-Identifier: Apache-2.0
 *
 * See export.h: the archive is written.
 */
#include "agent/export.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/export-private.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/rng.h"
#include "wire/json.h"

#define BLOCK ((size_t)1 << 20)

struct writer {
	struct archive *archive;
	json_t *parts;
	int64_t now_us;
	uint8_t *block;
};

static int broken(struct writer *writer, struct err *reterr)
{
	int number = archive_errno(writer->archive);

	return err_set(reterr, FAIL_EXPORT_FAILED, number > 0 ? number : EIO, "cannot write the archive: %.120s",
		archive_error_string(writer->archive) ? archive_error_string(writer->archive) : "");
}

static int begin(struct writer *writer, const char *name, uint64_t size, struct err *reterr)
{
	struct archive_entry *entry = archive_entry_new();
	int r;

	if (!entry)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an archive");
	archive_entry_set_pathname(entry, name);
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0600);
	archive_entry_set_size(entry, (la_int64_t)size);
	archive_entry_set_mtime(entry, writer->now_us / USEC_PER_SEC, 0);
	r = archive_write_header(writer->archive, entry);
	archive_entry_free(entry);
	return r == ARCHIVE_OK ? 0 : broken(writer, reterr);
}

static int end(struct writer *writer, const char *name, uint64_t size, EVP_MD_CTX *sum, struct err *reterr)
{
	char hex[EXPORT_HEX_SIZE];

	if (export_digest(sum, hex) < 0 ||
		json_array_append_new(writer->parts, json_pack("{s:s, s:I, s:s}", "name", name, "size", (json_int_t)size, "sha256",
							     hex)) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the manifest");
	return 0;
}

/* What grows meanwhile is as long as it was. */
static int put_fd(struct writer *writer, const char *name, int fd, uint64_t size, EVP_MD_CTX *sum, struct err *reterr)
{
	int r = begin(writer, name, size, reterr);

	for (uint64_t at = 0; at < size && r == 0; at += BLOCK) {
		size_t n = (size_t)MIN(size - at, (uint64_t)BLOCK);

		r = fd_pread_all(fd, writer->block, n, (off_t)at);
		if (r < 0)
			return err_set(reterr, FAIL_EXPORT_FAILED, -r, "cannot read the sandbox's %s", name);
		if (EVP_DigestUpdate(sum, writer->block, n) != 1)
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a digest");
		if (archive_write_data(writer->archive, writer->block, n) != (la_ssize_t)n)
			r = broken(writer, reterr);
	}
	return r < 0 ? r : end(writer, name, size, sum, reterr);
}

static int put_file(struct writer *writer, const char *name, const char *path, bool may_lack, struct err *reterr)
{
	CLEANUP_FD int fd = *path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
	EVP_MD_CTX *sum;
	struct stat st;
	int r;

	if (fd < 0 && may_lack && (!*path || errno == ENOENT))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(reterr, FAIL_EXPORT_FAILED, errno, "cannot open the sandbox's %s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(reterr, FAIL_EXPORT_FAILED, EINVAL, "the sandbox's %s is no plain file", name);
	sum = export_sum_new();
	r = sum ? put_fd(writer, name, fd, (uint64_t)st.st_size, sum, reterr)
		: err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a digest");
	EVP_MD_CTX_free(sum);
	return r;
}

/* Takes the object. The manifest itself is no part. */
static int put_json(struct writer *writer, const char *name, json_t *object, struct err *reterr)
{
	char *text = json_dumps(object, JSON_INDENT(2));
	size_t size = text ? strlen(text) : 0;
	EVP_MD_CTX *sum = export_sum_new();
	int r = 0;

	json_decref(object);
	if (!text || !sum || EVP_DigestUpdate(sum, text, size) != 1)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for %s", name);
	if (r == 0)
		r = begin(writer, name, size, reterr);
	if (r == 0 && archive_write_data(writer->archive, text, size) != (la_ssize_t)size)
		r = broken(writer, reterr);
	if (r == 0 && strcmp(name, EXPORT_MANIFEST) != 0)
		r = end(writer, name, size, sum, reterr);
	EVP_MD_CTX_free(sum);
	free(text);
	return r;
}

/* ---- what is told of it ---- */

static json_t *recipe(const struct sandbox_spec *spec)
{
	json_t *env = json_object();

	for (size_t i = 0; i < spec->n_env; i++)
		(void)json_object_set_new(env, spec->env[i].key, json_string(spec->env[i].value));
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s?, s:o, s:s}", "template", spec->template_name, "image",
		spec->image_digest, "vcpus", (json_int_t)spec->vcpus, "memory_mib", (json_int_t)spec->memory_mib, "disk_mib",
		(json_int_t)spec->disk_mib, "timeout_s", (json_int_t)spec->timeout_s, "setup", spec->setup_command, "env", env,
		"tenant", spec->tenant);
}

static json_t *results(const struct sv_journal *journal)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_MANAGED, .sandbox = journal->sandbox };
	json_t *stages = json_array();

	for (size_t i = 0; i < journal->n_stages; i++)
		(void)json_array_append_new(stages, json_stage(&journal->stages[i], &context));
	return json_pack("{s:s, s:I, s:s, s:o, s:o}", "state", sv_state_name(journal->state), "generation",
		(json_int_t)journal->generation, "trace", journal->trace.trace_id, "stages", stages, "failure",
		err_is_set(&journal->failure) ? json_failure(&journal->failure, &context) : json_null());
}

static json_t *manifest(const struct writer *writer, const struct export_source *source)
{
	const struct sandbox_spec *spec = source->journal->spec;
	char made[CLOCK_RFC3339_SIZE];

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:I, s:I, s:I, s:I}, s:O}", "format", EXPORT_FORMAT, "croft",
		CROFT_VERSION, "sandbox", source->journal->sandbox, "node", source->node, "pool", source->pool, "made",
		clock_format_rfc3339(writer->now_us, made, sizeof(made)), "snapshot", "template", spec->template_name, "image",
		spec->image_digest, "image_size", (json_int_t)spec->image_size, "vcpus", (json_int_t)spec->vcpus, "memory_mib",
		(json_int_t)spec->memory_mib, "disk_mib", (json_int_t)spec->disk_mib, "parts", writer->parts);
}

static int put_all(struct writer *writer, const struct export_source *source, struct err *reterr)
{
	const struct sv_journal *journal = source->journal;
	char console[PATH_MAX] = "", log[PATH_MAX] = "";
	int r = put_json(writer, "recipe.json", recipe(journal->spec), reterr);

	if (*journal->vmm.run_dir) {
		(void)snprintf(console, sizeof(console), "%s/console", journal->vmm.run_dir);
		(void)snprintf(log, sizeof(log), "%s/vmm.log", journal->vmm.run_dir);
	}
	if (r == 0)
		r = put_json(writer, "results.json", results(journal), reterr);
	if (r == 0)
		r = put_json(writer, "usage.json", json_incref(source->usage), reterr);
	if (r == 0)
		r = put_file(writer, "console", console, true, reterr);
	if (r == 0)
		r = put_file(writer, "vmm.log", log, true, reterr);
	if (r == 0)
		r = put_file(writer, "state", source->state_path, false, reterr);
	if (r == 0)
		r = put_file(writer, "memory", source->memory_path, false, reterr);
	if (r == 0)
		r = put_file(writer, "disk", source->disk_path, journal->spec->disk_mib == 0, reterr);
	if (r == 0)
		r = put_file(writer, "image", source->image_path, false, reterr);
	return r < 0 ? r : put_json(writer, EXPORT_MANIFEST, manifest(writer, source), reterr);
}

int export_write(const struct export_source *source, const char *file, struct err *reterr)
{
	struct writer writer = { .now_us = clock_realtime_usec() };
	CLEANUP_FD int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = 0;

	if (fd < 0)
		return err_set(reterr, FAIL_EXPORT_FAILED, errno, "cannot make %.200s", file);
	writer.archive = archive_write_new();
	writer.parts = json_array();
	writer.block = malloc(BLOCK);
	if (!writer.archive || !writer.parts || !writer.block)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an archive");
	else if (archive_write_set_format_pax_restricted(writer.archive) != ARCHIVE_OK ||
		 archive_write_add_filter_zstd(writer.archive) != ARCHIVE_OK ||
		 archive_write_open_fd(writer.archive, fd) != ARCHIVE_OK)
		r = broken(&writer, reterr);
	if (r == 0)
		r = put_all(&writer, source, reterr);
	if (r == 0 && archive_write_close(writer.archive) != ARCHIVE_OK)
		r = broken(&writer, reterr);
	if (r == 0 && fsync(fd) < 0)
		r = err_set(reterr, FAIL_EXPORT_FAILED, errno, "cannot sync %.200s", file);
	archive_write_free(writer.archive);
	json_decref(writer.parts);
	free(writer.block);
	if (r < 0)
		(void)unlink(file);
	return r;
}

/* ---- digests ---- */

EVP_MD_CTX *export_sum_new(void)
{
	EVP_MD_CTX *sum = EVP_MD_CTX_new();

	if (sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1)
		return sum;
	EVP_MD_CTX_free(sum);
	return NULL;
}

int export_digest(EVP_MD_CTX *sum, char ret[static EXPORT_HEX_SIZE])
{
	uint8_t bytes[EVP_MAX_MD_SIZE];
	unsigned int n = 0;

	if (EVP_DigestFinal_ex(sum, bytes, &n) != 1 || 2 * n + 1 != EXPORT_HEX_SIZE)
		return -ENOMEM;
	hex_put(ret, bytes, n);
	return 0;
}
