/* SPDX-License-Identifier: Apache-2.0
 *
 * See snapshot-write.h.
 */
#include "snapshot-write.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot.h"

#define TURN_BYTES (UINT64_C(4) << 20) /* before others of the loop have their turn */

static void end(struct snapshot_writer *writer, const struct err *failure)
{
	snapshot_cancel(writer);
	writer->done(writer->data, failure);
}

static int fail_write(struct err *reterr, const char *what, int err_no)
{
	return err_set(reterr, FAIL_SNAPSHOT_FAILED, err_no, "the snapshot's %s cannot be written", what);
}

/* 1: there is more; 0: memory is written; -errno. */
static int write_some(struct snapshot_writer *writer)
{
	struct memory *memory = &writer->vm->memory;
	int r;

	if (writer->is_differential)
		return layer_write(&writer->layer, TURN_BYTES);
	r = memory_copy_out(memory, &writer->content, writer->memory_fd, &writer->offset, TURN_BYTES);
	if (r < 0 || writer->offset < memory->size)
		return r < 0 ? r : 1;
	return memory_write_id(memory, writer->memory_fd, writer->id);
}

static void on_turn(void *data)
{
	struct snapshot_writer *writer = data;
	struct err err = ERR_NULL;
	int r = write_some(writer);

	if (r > 0) {
		loop_timer_arm(writer->loop, &writer->turn, 0, on_turn, writer);
		return;
	}
	if (r < 0) {
		(void) fail_write(&err, "memory", -r);
	} else {
		r = fd_pwrite_all(writer->state_fd, writer->state, writer->state_size, 0);
		if (r < 0)
			(void) fail_write(&err, "state", -r);
	}
	end(writer, r < 0 ? &err : NULL);
}

static int check_file(int fd, const char *what, struct err *reterr)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != 0)
		return err_set(reterr, FAIL_VMM_CONTROL_INVALID, EINVAL, "the file for the snapshot's %s is not regular and empty",
			what);
	return 0;
}

int snapshot_read_state(struct vm *vm, const uint8_t *id, uint8_t **ret, size_t *ret_size, struct err *reterr)
{
	CLEANUP(vm_state_freep) struct vm_state *state = NULL;
	int r = vm_save(vm, &state, reterr);

	if (r < 0)
		return r;
	state->has_memory_id = id;
	if (id)
		memcpy(state->memory_id, id, LAYER_ID);
	return snapshot_encode(state, ret, ret_size, reterr);
}

/* Which pages are to be written, and the file's size for it. */
static int prepare_memory(struct snapshot_writer *writer, struct err *reterr)
{
	struct memory *memory = &writer->vm->memory;
	int r;

	if (getrandom(writer->id, LAYER_ID, GRND_NONBLOCK) != LAYER_ID)
		return fail_write(reterr, "id", errno);
	r = writer->is_differential ? memory_changes(memory, &writer->content) : memory_content(memory, &writer->content);
	if (r == -ENOENT)
		return err_set(reterr, FAIL_VMM_CONTROL_INVALID, ENOENT,
			"there is nothing for this VM's snapshot to differ from, or too many layers already");
	if (r == 0 && !writer->is_differential && ftruncate(writer->memory_fd, (off_t) memory->size) < 0)
		r = -errno;
	return r < 0 ? fail_write(reterr, "memory", -r) : 0;
}

int snapshot_write(struct snapshot_writer *writer, struct loop *loop, struct vm *vm, int state_fd, int memory_fd,
	bool is_differential, snapshot_done_fn done, void *data, struct err *reterr)
{
	struct snapshot_writer new = { .loop = loop, .vm = vm, .memory_fd = memory_fd, .state_fd = state_fd, .done = done,
		.data = data, .is_differential = is_differential };
	int r = check_file(state_fd, "state", reterr);

	if (r == 0)
		r = check_file(memory_fd, "memory", reterr);
	if (r == 0)
		r = prepare_memory(&new, reterr);
	if (r == 0)
		r = snapshot_read_state(vm, new.id, &new.state, &new.state_size, reterr);
	if (r < 0) {
		pages_deinit(&new.content);
		return r;
	}
	*writer = new;
	writer->layer = (struct layer_writer) { .fd = memory_fd, .pages = &writer->content, .page_at = memory_page,
		.data = &vm->memory };
	memcpy(writer->layer.id, new.id, LAYER_ID);
	memcpy(writer->layer.base, vm->memory.id, LAYER_ID);
	loop_timer_arm(loop, &writer->turn, 0, on_turn, writer);
	return 0;
}

void snapshot_abort(struct snapshot_writer *writer, const struct err *why)
{
	if (snapshot_is_writing(writer))
		end(writer, why);
}

void snapshot_cancel(struct snapshot_writer *writer)
{
	if (!snapshot_is_writing(writer))
		return;
	loop_timer_disarm(writer->loop, &writer->turn);
	writer->memory_fd = fd_close(writer->memory_fd);
	writer->state_fd = fd_close(writer->state_fd);
	pages_deinit(&writer->content);
	free(writer->state);
	writer->state = NULL;
}
