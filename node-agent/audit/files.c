/* SPDX-License-Identifier: Apache-2.0
 *
 * See files.h.
 */
#include "audit/files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"

#define NAME_FORMAT "%016" PRIx64 ".log"
#define NAME_LEN 20u

void audit_file_path(const char *directory, uint64_t first, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.4000s/" NAME_FORMAT, directory, first);
}

static int compare(const void *a, const void *b)
{
	const struct audit_file *left = a, *right = b;

	return left->first < right->first ? -1 : left->first > right->first;
}

/* Exactly as audit_file_path() names it. */
static bool read_name(const char *name, uint64_t *ret)
{
	char again[NAME_LEN + 1];

	if (strlen(name) != NAME_LEN || sscanf(name, "%16" SCNx64, ret) != 1)
		return false;
	(void)snprintf(again, sizeof(again), NAME_FORMAT, *ret);
	return !strcmp(name, again);
}

static int add(struct audit_files *files, const char *directory, uint64_t first)
{
	struct audit_file *grown = realloc(files->files, (files->n + 1) * sizeof(*grown));
	char path[PATH_MAX];
	struct stat st;

	if (!grown)
		return -ENOMEM;
	files->files = grown;
	audit_file_path(directory, first, path);
	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return 0; /* it went meanwhile, or is none of ours */
	files->files[files->n++] = (struct audit_file){ .first = first,
		.size = (uint64_t)st.st_size,
		.changed_us = (int64_t)st.st_mtim.tv_sec * USEC_PER_SEC };
	return 0;
}

int audit_files_list(struct audit_files *ret, const char *directory)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	uint64_t first;
	int r = 0;

	*ret = (struct audit_files){ .n = 0 };
	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (entry = readdir(dir)))
		if (read_name(entry->d_name, &first))
			r = add(ret, directory, first);
	(void)closedir(dir);
	if (r < 0)
		audit_files_deinit(ret);
	else if (ret->n > 0)
		qsort(ret->files, ret->n, sizeof(*ret->files), compare);
	return r;
}

void audit_files_deinit(struct audit_files *files)
{
	free(files->files);
	*files = (struct audit_files){ .n = 0 };
}

/* Calls `see` for each whole line until it says that it has seen enough. */
static int each_line(const char *path, bool (*see)(char *line, size_t size, void *user), void *user)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	ssize_t n;

	if (!file)
		return -errno;
	while ((n = getline(&line, &room, file)) > 0 && line[n - 1] == '\n')
		if (!see(line, (size_t)n, user))
			break;
	free(line);
	(void)fclose(file);
	return 0;
}

static bool add_size(char *line, size_t size, void *user)
{
	uint64_t *whole = user;

	(void)line;
	*whole += size;
	return true;
}

int audit_file_whole(const char *path, uint64_t *ret)
{
	*ret = 0;
	return each_line(path, add_size, ret);
}

/* What an entry says of its place: `member` is "prev" or "hash", `less` by how much its number is above that one's. What says
 * nothing leaves *ret as it is. */
static void take_place(const char *line, size_t size, const char *member, uint64_t less, struct chain *ret)
{
	json_t *entry = json_loadb(line, size, 0, NULL);
	const char *hash = json_string_value(json_object_get(entry, member));
	json_int_t seq = json_integer_value(json_object_get(entry, "seq"));

	if (hash && strlen(hash) + 1 == sizeof(ret->hash) && seq > 0) {
		ret->seq = (uint64_t)seq - less;
		memcpy(ret->hash, hash, sizeof(ret->hash));
	}
	json_decref(entry);
}

static bool see_first(char *line, size_t size, void *user)
{
	take_place(line, size, "prev", 1, user);
	return false;
}

int audit_file_base(const char *directory, uint64_t first, struct chain *ret)
{
	char path[PATH_MAX];

	*ret = CHAIN_NEW;
	audit_file_path(directory, first, path);
	return each_line(path, see_first, ret);
}

static bool see_last(char *line, size_t size, void *user)
{
	take_place(line, size, "hash", 0, user);
	return true;
}

void audit_files_head(const char *directory, const struct audit_files *files, struct chain *ret)
{
	char path[PATH_MAX];

	*ret = CHAIN_NEW;
	for (size_t i = files->n; i > 0 && ret->seq == 0; i--) {
		audit_file_path(directory, files->files[i - 1].first, path);
		(void)each_line(path, see_last, ret);
	}
	/* whatever somebody made of its entries, no number of a file comes twice */
	if (files->n > 0) {
		const struct audit_file *last = &files->files[files->n - 1];

		ret->seq = MAX(ret->seq, last->size > 0 || last->first == 0 ? last->first : last->first - 1);
	}
}
