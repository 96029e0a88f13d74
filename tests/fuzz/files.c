/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that people and peers hand over: FUZZ_TOKEN a join token, FUZZ_CONFIG a configuration, FUZZ_TAR the archive of a
 * template's root.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#if defined(FUZZ_TOKEN)
#include "agent/identity.h"
#elif defined(FUZZ_CONFIG)
#include "base/config.h"
#else
#include <archive_entry.h>
#include <locale.h>

#include "image/pack-source.h"
#endif

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
#ifdef FUZZ_TAR
	(void) setlocale(LC_CTYPE, "C.UTF-8");
#endif
	return 0;
}

#if defined(FUZZ_TOKEN)
static void take_file(const char *path, int fd)
{
	struct join_token token;
	struct err err = ERR_NULL;

	CLAIM(fchmod(fd, 0600) == 0);
	if (join_token_read(path, 0, &token, &err) < 0) {
		CLAIM(err.code != FAIL_NONE);
		return;
	}
	CLAIM(token.scheduler.n_addresses >= 1 && token.scheduler.n_addresses <= SCHEDULERS_MAX);
	CLAIM(strlen(token.keys.public_key) == 40 && strlen(token.scheduler.key) == 40);
}
#elif defined(FUZZ_CONFIG)
struct target {
	char *text;
	bool flag;
	uint64_t number, size;
	int64_t duration;
};

static const struct config_option options[] = {
	{ "", "state", CONFIG_STRING, offsetof(struct target, text), "/x", 0, 0, false, "a path" },
	{ "guest", "flag", CONFIG_BOOL, offsetof(struct target, flag), "yes", 0, 0, false, "a flag" },
	{ "guest", "number", CONFIG_U64, offsetof(struct target, number), "3", 1, 100, false, "a number" },
	{ "guest", "size", CONFIG_SIZE, offsetof(struct target, size), "1M", 1, UINT64_C(1) << 40, false, "a size" },
	{ "link", "time", CONFIG_DURATION, offsetof(struct target, duration), "1s", 1, INT64_MAX, false, "a time" },
};
#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

static void take_file(const char *path, int fd)
{
	char name[] = "fuzz", *argv[] = { name, NULL };
	struct target target;
	struct err err = ERR_NULL;
	int argc = 1;

	(void) fd;
	memset(&target, 0, sizeof(target));
	if (config_load(options, N_OPTIONS, &target, path, &argc, argv, &err) < 0)
		CLAIM(err.code != FAIL_NONE);
	else
		CLAIM(target.number >= 1 && target.number <= 100 && target.size >= 1 && target.duration >= 1);
	config_free(options, N_OPTIONS, &target);
}
#else
static void take_file(const char *path, int fd)
{
	struct archive *out = archive_write_new();
	struct pack pack = { .entries = 0 };
	struct err err = ERR_NULL;

	(void) fd;
	CLAIM(out && archive_write_set_format_pax_restricted(out) == ARCHIVE_OK);
	CLAIM(archive_write_open_filename(out, "/dev/null") == ARCHIVE_OK);
	(void) !pack_tar(&pack, path, out, &err);
	CLAIM(pack.entries <= PACK_ENTRIES_MAX + 1);
	(void) archive_write_free(out);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = file_of(data, size);
	char path[64];

	(void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	take_file(path, fd);
	(void) fd_close(fd);
	return 0;
}
