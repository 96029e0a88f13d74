/* SPDX-License-Identifier: Apache-2.0
 *
 * What the writable disk holds against the image below it: the overlay's upper layer, walked inside the guest, because
 * nobody else may mount a disk that a guest wrote. What comes of it is the guest's word, no more.
 *
 * A name of the upper layer is deleted (a whiteout over something of the image, or something of the image below a folder
 * that was replaced), changed (the image has it too) or added. A folder that merely leads to changes is no change itself.
 * Whoever opened a file of the image for writing changed it: the kernel copied it then.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum diff_kind { DIFF_ADDED, DIFF_CHANGED, DIFF_DELETED, DIFF_KIND_MAX_ };
enum diff_type { DIFF_FILE, DIFF_DIRECTORY, DIFF_SYMLINK, DIFF_OTHER, DIFF_TYPE_MAX_ };

struct diff_entry {
	enum diff_kind kind;
	enum diff_type type; /* of what was deleted, too */
	const char *path;    /* from the root, "/etc/hosts"; any bytes but NUL */
	uint64_t size;       /* of a file; of a deleted one in the image */
	uint32_t mode;       /* permissions */
};

struct diff_limits {
	uint64_t entries;      /* that are told */
	uint64_t visits;       /* names that are looked at */
	unsigned int depth;    /* of folders; each costs three descriptors */
	int64_t deadline_usec; /* 0: none */
};

struct diff_walker {
	int upper, lower; /* roots of the two layers; borrowed */
	struct diff_limits limits;
	/* Negative: stop, and say so. The entry ends with the call. */
	int (*tell)(const struct diff_entry *entry, void *user);
	void *user;
	bool is_cut; /* a limit was met, or a name is too long for a path: there is more */
};

/* 0, -errno where a root cannot be read, or what tell() said. What goes away meanwhile is passed over. */
int diff_walk(struct diff_walker *walker);

/* Answers a GuestDiff on `fd`, a connection that the caller closes then: a child process does it, which is the caller's to
 * reap. Its pid, or -errno. It ends when the peer takes nothing any more, and after DIFF_SECONDS in any case. */
#define DIFF_SECONDS 300
pid_t diff_fork(int fd, int upper, int lower);
