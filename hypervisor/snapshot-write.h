/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the two files of a snapshot while the loop goes on: memory in pieces, then the state, which was read at once. A
 * snapshot whose writer was killed has no state, and no restore takes it.
 */
#pragma once

#include "loop.h"
#include "vm.h"

/* Called once, on the loop thread: NULL, or what went wrong. */
typedef void (*snapshot_done_fn)(void *data, const struct err *failure);

struct snapshot_writer {
	struct loop *loop;
	struct vm *vm;
	int memory_fd;         /* owned; -1: nothing is being written */
	int state_fd;          /* owned */
	uint8_t *state;
	size_t state_size;
	uint64_t offset;
	bool is_differential;
	struct pages content;
	struct layer_writer layer;
	uint8_t id[LAYER_ID];
	struct loop_timer turn;
	snapshot_done_fn done;
	void *data;
};

#define SNAPSHOT_WRITER_NULL { .memory_fd = -1, .state_fd = -1 }

static inline bool snapshot_is_writing(const struct snapshot_writer *writer)
{
	return writer->memory_fd >= 0;
}

/* The state of a paused VM as a file has it; *ret is for free(). `id`: of the memory that will belong to it; NULL: none. */
int snapshot_read_state(struct vm *vm, const uint8_t *id, uint8_t **ret, size_t *ret_size, struct err *reterr);
/* Of a paused VM, to two empty regular files; takes over both descriptors on success, and then calls `done` later. On failure
 * (SNAPSHOT_FAILED, VMM_CONTROL_INVALID for files that are none and where nothing is there to differ from) it does not. */
int snapshot_write(struct snapshot_writer *writer, struct loop *loop, struct vm *vm, int state_fd, int memory_fd, bool is_differential,
	snapshot_done_fn done, void *data, struct err *reterr);
/* Breaks it off: `done` is called with `why`. Harmless when nothing is being written. */
void snapshot_abort(struct snapshot_writer *writer, const struct err *why);
/* The same without a word, when there is nobody left to hear it. */
void snapshot_cancel(struct snapshot_writer *writer);
