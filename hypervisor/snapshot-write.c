/* SPDX-License-Identifier: Apache-2.0
 *
 * See snapshot-write.h.
 */
#include "snapshot-write.h"

#include <errno.h>
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

static void on_turn(void *data)
{
	struct snapshot_writer *writer = data;
	struct err err = ERR_NULL;
	int r = memory_copy_out(&writer->vm->memory, &writer->content, writer->memory_fd, &writer->offset, TURN_BYTES);

	if (r == 0 && writer->offset < writer->vm->memory.size) {
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

int snapshot_read_state(struct vm *vm, uint8_t **ret, size_t *ret_size, struct err *reterr)
{
	CLEANUP(vm_state_freep) struct vm_state *state = NULL;
	int r = vm_save(vm, &state, reterr);

	return r < 0 ? r : snapshot_encode(state, ret, ret_size, reterr);
}

int snapshot_write(struct snapshot_writer *writer, struct loop *loop, struct vm *vm, int state_fd, int memory_fd,
	snapshot_done_fn done, void *data, struct err *reterr)
{
	struct pages content = PAGES_NULL;
	uint8_t *state = NULL;
	size_t size = 0;
	int r = check_file(state_fd, "state", reterr);

	if (r == 0)
		r = check_file(memory_fd, "memory", reterr);
	if (r == 0)
		r = snapshot_read_state(vm, &state, &size, reterr);
	if (r < 0)
		return r;
	r = memory_content(&vm->memory, &content);
	if (r == 0 && ftruncate(memory_fd, (off_t) vm->memory.size) < 0)
		r = -errno;
	if (r < 0) {
		pages_deinit(&content);
		free(state);
		return fail_write(reterr, "memory", -r);
	}
	*writer = (struct snapshot_writer) { .loop = loop, .vm = vm, .memory_fd = memory_fd, .state_fd = state_fd, .state = state,
		.state_size = size, .content = content, .done = done, .data = data };
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
