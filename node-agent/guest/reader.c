/* SPDX-License-Identifier: Apache-2.0
 *
 * See process.h: from the pipes of a process into its ring, and from the ring to its readers. The pace is
 * set by the slowest reader that is not stalled; when all stall, by the one that got furthest.
 */
#include "guest/reader.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define READ_SIZE 32768u

static bool reader_is_stalled(const struct reader *reader, int64_t now)
{
	return reader->position < reader->process->output.head && now - reader->progress_usec >= STALL_USEC;
}

/* The position from which on nothing may be dropped. */
static uint64_t keep_from(const struct process *process, int64_t now)
{
	const struct reader *reader;
	uint64_t slowest = UINT64_MAX, furthest = 0;

	TAILQ_FOREACH(reader, &process->readers, link) {
		furthest = MAX(furthest, reader->position);
		if (!reader_is_stalled(reader, now))
			slowest = MIN(slowest, reader->position);
	}
	return slowest != UINT64_MAX ? slowest : furthest;
}

static size_t process_room(const struct process *process)
{
	if (process->n_readers == 0 || process->state == PROCESS_ENDED)
		return READ_SIZE;
	return output_room(&process->output, keep_from(process, clock_monotonic_usec()));
}

void process_update(struct process *process)
{
	/* STARTING: the child's stderr before exec is nobody's; it writes nothing. */
	uint32_t events = process->state != PROCESS_STARTING && process_room(process) > 0 ? EPOLLIN : 0;

	for (size_t i = 0; i < ARRAY_LEN(process->pipes); i++) {
		struct process_pipe *pipe = &process->pipes[i];

		if (pipe->fd < 0)
			continue;
		if (loop_watch(process->all->loop, &pipe->source, pipe->fd, events) < 0) {
			loop_forget(process->all->loop, &pipe->source);
			pipe->fd = fd_close(pipe->fd); /* no memory in the kernel: its output is cut off */
		}
	}
}

void readers_wake(struct process *process)
{
	struct reader *reader, *next;

	/* A woken reader may detach itself. */
	for (reader = TAILQ_FIRST(&process->readers); reader; reader = next) {
		next = TAILQ_NEXT(reader, link);
		reader->wake(reader);
	}
}

/* A reader that was up to date starts its stall clock with the first byte that it does not take. */
static void readers_note(struct process *process, int64_t now)
{
	struct reader *reader;

	TAILQ_FOREACH(reader, &process->readers, link)
		if (reader->position == process->output.head)
			reader->progress_usec = now;
}

static void pipe_ended(struct process_pipe *pipe)
{
	loop_forget(pipe->process->all->loop, &pipe->source);
	pipe->fd = fd_close(pipe->fd);
	process_try_end(pipe->process);
}

void process_on_output(struct source *source, uint32_t events)
{
	struct process_pipe *pipe = container_of(source, struct process_pipe, source);
	struct process *process = pipe->process;
	uint8_t data[READ_SIZE];
	size_t room = MIN(process_room(process), sizeof(data));
	ssize_t n;

	(void) events;
	if (room == 0) {
		process_update(process);
		return;
	}
	do {
		n = read(pipe->fd, data, room);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) { /* EIO is how a terminal says that its other side is gone */
		pipe_ended(pipe);
		return;
	}
	if (process->state == PROCESS_ENDED)
		return; /* a daemon's; see process.h */
	readers_note(process, clock_monotonic_usec());
	if (output_write(&process->output, pipe->stream, data, (size_t) n) < 0) {
		pipe_ended(pipe);
		return;
	}
	pipe->must_read -= MIN(pipe->must_read, (size_t) n);
	readers_wake(process);
	process_update(process);
	process_try_end(process);
}

int64_t readers_tick(struct process *process, int64_t now)
{
	const struct reader *reader;
	int64_t next = 0;

	if (process->n_readers < 2 || process_room(process) > 0) {
		process_update(process);
		return 0;
	}
	TAILQ_FOREACH(reader, &process->readers, link)
		if (!reader_is_stalled(reader, now) && (next == 0 || reader->progress_usec + STALL_USEC < next))
			next = reader->progress_usec + STALL_USEC;
	return next;
}

/* ---- a reader ---- */

int reader_attach(struct reader *reader, struct process *process, struct err *reterr)
{
	if (process->n_readers >= READERS_MAX)
		return err_set(reterr, FAIL_TOO_MANY_STREAMS, EAGAIN, "%u streams read this process already",
			process->n_readers);
	reader->process = process;
	reader->position = process->read_upto;
	reader->progress_usec = clock_monotonic_usec();
	reader->was_told_start = false;
	TAILQ_INSERT_TAIL(&process->readers, reader, link);
	process->n_readers++;
	return 0;
}

void reader_detach(struct reader *reader)
{
	struct process *process = reader->process;

	if (!process)
		return;
	reader->process = NULL;
	TAILQ_REMOVE(&process->readers, reader, link);
	process->n_readers--;
	process_update(process);
}

enum reader_event reader_next(struct reader *reader, struct reader_chunk *ret)
{
	struct process *process = reader->process;
	uint64_t position = MAX(reader->position, process->output.tail);

	if (process->state == PROCESS_FAILED)
		return READER_FAILED;
	if (process->state == PROCESS_STARTING)
		return READER_NONE;
	if (!reader->was_told_start)
		return READER_STARTED;
	ret->size = output_peek(&process->output, position, &ret->data, &ret->stream);
	ret->size = MIN(ret->size, READ_SIZE);
	ret->end = position + ret->size;
	ret->lost = position - reader->position;
	if (ret->size > 0)
		return READER_DATA;
	return process->state == PROCESS_ENDED ? READER_ENDED : READER_NONE;
}

void reader_done(struct reader *reader, enum reader_event event, uint64_t end)
{
	struct process *process = reader->process;

	switch (event) {
	case READER_STARTED:
		reader->was_told_start = true;
		return;
	case READER_DATA:
		break;
	case READER_ENDED:
		process->end_was_read = true;
		return;
	case READER_NONE:
	case READER_FAILED:
		return;
	}
	reader->progress_usec = clock_monotonic_usec();
	reader->position = end;
	process->read_upto = MAX(process->read_upto, reader->position);
	process_update(process);
}
