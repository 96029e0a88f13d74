/* SPDX-License-Identifier: Apache-2.0
 *
 * See space.h.
 */
#include "agent/space.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/util.h"

#define BLOCK 512u

void space_deinit(struct space *space)
{
	free(space->items);
	*space = (struct space){ 0 };
}

static int add(struct space *space, const char *name, uint64_t bytes)
{
	struct sv_space *item;

	if ((space->n & (space->n - 1)) == 0) { /* room is the next power of two */
		size_t room = space->n ? 2 * space->n : 1;
		struct sv_space *grown = realloc(space->items, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		space->items = grown;
	}
	item = &space->items[space->n++];
	*item = (struct sv_space){ .bytes = bytes };
	memcpy(item->id, name, ID_LEN);
	return 0;
}

/* Neither sandboxes nor snapshots have directories below theirs. */
static uint64_t bytes_in(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	if (!dir) {
		(void)fd_close(fd);
		return 0;
	}
	while ((entry = readdir(dir)))
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * BLOCK;
	(void)closedir(dir);
	return bytes;
}

/* Names are ids, with an end where what they name is not finished. */
static bool has_id(const char *name, char id[static ID_SIZE])
{
	(void)snprintf(id, ID_SIZE, "%.*s", ID_LEN, name);
	return id_is_valid(id);
}

static int look_below(const char *state, const char *name, struct space *space)
{
	char path[PATH_MAX], id[ID_SIZE];
	const struct dirent *entry;
	DIR *dir;
	int r = snprintf(path, sizeof(path), "%s/%s", state, name);

	if (r < 0 || r >= (int)sizeof(path))
		return -ENAMETOOLONG;
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	r = 0;
	while (r == 0 && (entry = readdir(dir)))
		if (has_id(entry->d_name, id))
			r = add(space, id, bytes_in(dirfd(dir), entry->d_name));
	(void)closedir(dir);
	return r;
}

int space_look(const char *state, struct space *ret)
{
	int r;

	*ret = (struct space){ 0 };
	r = look_below(state, "sandboxes", ret);
	return r < 0 ? r : look_below(state, "snapshots", ret);
}
