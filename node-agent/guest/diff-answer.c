/* SPDX-License-Identifier: Apache-2.0
 *
 * See diff.h: the child that walks and tells. It has the connection and the two layers, and nothing else of PID 1's; it
 * writes as fast as the host reads, and PID 1 serves on meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/diff.h"
#include "guest/request.h"

#define ENTRIES_MAX UINT64_C(1000000)
#define VISITS_MAX UINT64_C(8000000)
#define DEPTH_MAX 256u
#define WALK_USEC (120 * USEC_PER_SEC)
#define BATCH_MAX 128u
#define TEXT_MAX 24576u

enum { FD_CONN, FD_UPPER, FD_LOWER, N_FDS };

struct batch {
	struct diff_entry entries[BATCH_MAX];
	size_t n, used;
	char text[TEXT_MAX];
	struct buf out;
};

static int send_out(struct batch *batch)
{
	int r = fd_write_all(FD_CONN, buf_peek(&batch->out), buf_size(&batch->out));

	buf_consume(&batch->out, buf_size(&batch->out));
	return r;
}

static int send_batch(struct batch *batch, bool is_last, bool is_cut)
{
	int r = answer_changes(&batch->out, batch->entries, batch->n, is_last, is_cut);

	batch->n = batch->used = 0;
	return r < 0 ? r : send_out(batch);
}

static int on_entry(const struct diff_entry *entry, void *user)
{
	struct batch *batch = user;
	size_t size = strlen(entry->path) + 1;
	int r = batch->n == BATCH_MAX || batch->used + size > sizeof(batch->text) ? send_batch(batch, false, false) : 0;

	if (r < 0)
		return r;
	memcpy(batch->text + batch->used, entry->path, size);
	batch->entries[batch->n] = *entry;
	batch->entries[batch->n++].path = batch->text + batch->used;
	batch->used += size;
	return 0;
}

static int run(struct batch *batch)
{
	struct diff_walker walker = { .upper = FD_UPPER,
		.lower = FD_LOWER,
		.limits = { ENTRIES_MAX, VISITS_MAX, DEPTH_MAX, clock_monotonic_usec() + WALK_USEC },
		.tell = on_entry,
		.user = batch };
	struct err err = ERR_NULL;
	int r = send_batch(batch, false, false); /* at once: it is under way, however long the first change is in coming */

	if (r < 0)
		return r;
	r = diff_walk(&walker);

	if (r == 0)
		return send_batch(batch, true, walker.is_cut);
	if (r == -ENOMEM)
		(void) err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory to look through the disk");
	else
		(void) err_set(&err, FAIL_GUEST_DISK_UNREADABLE, -r, "the writable disk cannot be looked through");
	r = answer_failure(&batch->out, &err);
	return r < 0 ? r : send_out(batch);
}

/* Its exit status. */
static int child(const int fds[static N_FDS])
{
	struct batch *batch = calloc(1, sizeof(*batch));
	int flags;

	for (int i = 0; i < N_FDS; i++)
		if (!batch || dup2(fds[i], i) < 0)
			return 1;
	/* A descriptor of another connection would keep it open after PID 1 closed it. */
	if (close_range(N_FDS, ~0u, 0) < 0)
		return 1;
	batch->out = (struct buf) BUF_NULL(REQUEST_FRAME_MAX);
	flags = fcntl(FD_CONN, F_GETFL);
	if (flags < 0 || fcntl(FD_CONN, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return 1;
	(void) signal(SIGALRM, SIG_DFL);
	(void) alarm(DIFF_SECONDS);
	return run(batch) < 0;
}

pid_t diff_fork(int fd, int upper, int lower)
{
	const int fds[N_FDS] = { fd, upper, lower };
	pid_t pid;

	for (int i = 0; i < N_FDS; i++)
		if (fds[i] < N_FDS) /* the child puts them there, one by one */
			return -EBADF;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		/* ends the process: the child that was forked for this */
		_exit(child(fds));
	}
	return pid;
}
