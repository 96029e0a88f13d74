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
	int r = memory_copy_out(&writer->vm->memory, writer->memory_fd, &writer->offset, TURN_BYTES);

	if (r < 0) {
		(void) fail_write(&err, "memory", -r);
		end(writer, &err);
	} else if (writer->offset >= writer->vm->memory.size) {
		end(writer, NULL);
	} else {
		loop_timer_arm(writer->loop, &writer->turn, 0, on_turn, writer);
	}
}

static int check_file(int fd, const char *what, struct err *reterr)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != 0)
		return err_set(reterr, FAIL_VMM_CONTROL_INVALID, EINVAL, "the file for the snapshot's %s is not regular and empty",
			what);
	return 0;
}

static int write_state(struct vm *vm, int fd, struct err *reterr)
{
	CLEANUP(vm_state_freep) struct vm_state *state = NULL;
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t size = 0;
	int r = vm_save(vm, &state, reterr);

	if (r == 0)
		r = snapshot_encode(state, &bytes, &size, reterr);
	if (r < 0)
		return r;
	r = fd_pwrite_all(fd, bytes, size, 0);
	return r < 0 ? fail_write(reterr, "state", -r) : 0;
}

int snapshot_write(struct snapshot_writer *writer, struct loop *loop, struct vm *vm, int state_fd, int memory_fd,
	snapshot_done_fn done, void *data, struct err *reterr)
{
	int r = check_file(state_fd, "state", reterr);

	if (r == 0)
		r = check_file(memory_fd, "memory", reterr);
	if (r == 0)
		r = write_state(vm, state_fd, reterr);
	if (r == 0 && ftruncate(memory_fd, (off_t) vm->memory.size) < 0)
		r = fail_write(reterr, "memory", errno);
	if (r < 0)
		return r;
	*writer = (struct snapshot_writer) { .loop = loop, .vm = vm, .memory_fd = memory_fd, .done = done, .data = data };
	loop_timer_arm(loop, &writer->turn, 0, on_turn, writer);
	return 0;
}

void snapshot_cancel(struct snapshot_writer *writer)
{
	if (!snapshot_is_writing(writer))
		return;
	loop_timer_disarm(writer->loop, &writer->turn);
	writer->memory_fd = fd_close(writer->memory_fd);
}
