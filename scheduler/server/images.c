/* SPDX-License-Identifier: Apache-2.0
 *
 * See images.h. Reads hit the page cache or are read ahead; each is at most 64 KiB.
 */
#include "server/images.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "server/message.h"
#include "server/shell.h"
#include "server/upgrades.h"
#include "wire/credit.h"

#define TRANSFERS_PER_SESSION 8
#define TRANSFERS_MAX 4096
#define AHEAD (1024 * 1024)
#define FULL_RETRY_USEC 10000
#define IDLE_USEC (120 * USEC_PER_SEC) /* a transfer that nobody gives credit to any more */
#define DONE_USEC                                                                                  \
	(30 * USEC_PER_SEC) /* late credit for a transfer that is over must not begin it again */
#define SWEEP_SEC 10

struct transfer {
	TAILQ_ENTRY(transfer) link;
	uint64_t session;
	uint64_t request;
	char digest[DIGEST_SIZE];
	int fd; /* -1: all was sent */
	uint64_t offset, size;
	struct credit_out credit;
	int64_t active_usec;
};
TAILQ_HEAD(transfer_list, transfer);

struct images {
	struct server *server;
	struct transfer_list transfers;
	unsigned int n_transfers;
	struct event *pump, *sweep;
	uint8_t frame[CREDIT_FRAME_MAX];
};

const char *image_path(const struct options *options, const char *digest, char buf[static PATH_MAX])
{
	(void)snprintf(
		buf, PATH_MAX, "%s/blobs/sha256-%s", options->state, digest + strlen("sha256:"));
	return buf;
}

static void transfer_end(struct images *images, struct transfer *transfer)
{
	TAILQ_REMOVE(&images->transfers, transfer, link);
	images->n_transfers--;
	(void)fd_close(transfer->fd);
	free(transfer);
}

static void arm(struct images *images, long usec)
{
	const struct timeval tv = { .tv_usec = usec };

	(void)event_add(images->pump, &tv);
}

static enum link_result send_chunk(struct images *images, uint64_t session, uint64_t request,
	uint64_t offset, uint64_t size, const void *data, size_t n, const struct err *err)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__ImageChunk chunk = MESSAGE(Croft__ImageChunk, croft__image_chunk__init);
	enum link_result result;

	chunk.request = request;
	chunk.offset = offset;
	chunk.size = size;
	chunk.data.data = (uint8_t *)(uintptr_t)data;
	chunk.data.len = n;
	chunk.failure = err ? failure_encode(err) : NULL;
	envelope.body_case = CROFT__ENVELOPE__BODY_IMAGE_CHUNK;
	envelope.image_chunk = &chunk;
	result = link_send(images->server->link, session, &envelope);
	if (chunk.failure)
		croft__failure_record__free_unpacked(chunk.failure, NULL);
	return result;
}

static void refuse(struct images *images, const struct link_message *message,
	const Croft__ImageRequest *request, const struct err *err)
{
	log_failure(LOG_LEVEL_WARN, "an image cannot be sent", err, "node", message->id, NULL);
	(void)send_chunk(
		images, message->session, request->request, request->offset, 0, NULL, 0, err);
}

/* One frame of one transfer. FULL: the peer's queue is full, nothing was sent. */
static enum link_result pump_one(struct images *images, struct transfer *transfer)
{
	uint64_t left = transfer->size - transfer->offset;
	struct credit_out credit = transfer->credit;
	uint32_t want = credit_out_take(&credit, left);
	enum link_result result;
	struct err err = ERR_NULL;
	ssize_t n;

	if (want == 0)
		return LINK_SENT;
	n = pread(transfer->fd, images->frame, want, (off_t)transfer->offset);
	if (n <= 0) {
		(void)err_set(&err, FAIL_IMAGE_NOT_FOUND, n < 0 ? errno : EIO,
			"the image's bytes cannot be read");
		(void)send_chunk(images, transfer->session, transfer->request, transfer->offset, 0,
			NULL, 0, &err);
		transfer->offset = transfer->size; /* it ends here */
		return LINK_SENT;
	}
	result = send_chunk(images, transfer->session, transfer->request, transfer->offset,
		transfer->size, images->frame, (size_t)n, NULL);
	if (result != LINK_SENT)
		return result;
	transfer->credit.left -= (uint64_t)n;
	transfer->offset += (uint64_t)n;
	transfer->active_usec = clock_monotonic_usec();
	images->server->counters.image_bytes += (uint64_t)n;
	(void)posix_fadvise(
		transfer->fd, (off_t)transfer->offset, AHEAD, POSIX_FADV_WILLNEED); /* a hint */
	return LINK_SENT;
}

/* One turn: a frame of each transfer that may send, then back to the loop. */
static void on_pump(evutil_socket_t fd, short what, void *user)
{
	struct images *images = user;
	struct transfer *next;
	bool more = false, full = false;

	(void)fd;
	(void)what;
	for (struct transfer *t = TAILQ_FIRST(&images->transfers); t; t = next) {
		enum link_result result = t->fd >= 0 ? pump_one(images, t) : LINK_SENT;

		next = TAILQ_NEXT(t, link);
		if (result == LINK_GONE)
			transfer_end(images, t);
		else if (t->offset == t->size)
			t->fd = fd_close(t->fd);
		else if (result == LINK_FULL)
			full = true;
		else if (t->credit.left)
			more = true;
	}
	if (more)
		arm(images, 0);
	else if (full)
		arm(images, FULL_RETRY_USEC);
}

static void on_sweep(evutil_socket_t fd, short what, void *user)
{
	struct images *images = user;
	int64_t now = clock_monotonic_usec();
	struct transfer *next;

	(void)fd;
	(void)what;
	for (struct transfer *t = TAILQ_FIRST(&images->transfers); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (now - t->active_usec > (t->fd < 0 ? DONE_USEC : IDLE_USEC))
			transfer_end(images, t);
	}
}

/* A node asks anew for what it gave up: the old transfer would send what nobody takes. */
static void end_same(struct images *images, uint64_t session, const char *digest)
{
	struct transfer *next;

	for (struct transfer *t = TAILQ_FIRST(&images->transfers); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->session == session && !strcmp(t->digest, digest))
			t->fd = fd_close(t->fd);
	}
}

static struct transfer *find(
	const struct images *images, uint64_t session, uint64_t request, unsigned int *ret_n)
{
	struct transfer *found = NULL, *t;

	*ret_n = 0;
	TAILQ_FOREACH (t, &images->transfers, link) {
		if (t->session != session)
			continue;
		*ret_n += t->fd >= 0;
		if (t->request == request)
			found = t;
	}
	return found;
}

static int check_request(const struct images *images, const struct link_message *message,
	const Croft__ImageRequest *request, unsigned int n_of_session, struct err *reterr)
{
	struct fleet_node_view view;
	uint64_t size;

	if (!digest_is_valid(request->digest))
		return err_set_at(reterr, STAGE_IMAGE, FAIL_FRAME_INVALID, EINVAL,
			"an image is asked for without its digest");
	if (n_of_session >= TRANSFERS_PER_SESSION || images->n_transfers >= TRANSFERS_MAX)
		return err_set_at(reterr, STAGE_IMAGE, FAIL_SCHEDULER_BUSY, EAGAIN,
			"%u images are on their way", n_of_session);
	if (upgrades_path(images->server, message->id, request->digest))
		return 0;
	if (fleet_node_get(shell_fleet(images->server->shell), message->id, &view) < 0 ||
		!registry_pool_may_hold(
			&images->server->registry, view.record->pool, request->digest, &size))
		return err_set(reterr, FAIL_IMAGE_NOT_FOUND, ENOENT,
			"no template of this pool's customer has this image");
	return 0;
}

static int transfer_open(struct images *images, const struct link_message *message,
	const Croft__ImageRequest *request, struct transfer **ret, struct err *reterr)
{
	const char *package = upgrades_path(images->server, message->id, request->digest);
	struct transfer *transfer = calloc(1, sizeof(*transfer));
	char path[PATH_MAX];
	struct stat st;

	if (!transfer)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a transfer");
	transfer->fd = open(package ? package : image_path(images->server->options, request->digest, path), O_RDONLY | O_CLOEXEC);
	if (transfer->fd < 0 || fstat(transfer->fd, &st) < 0) {
		(void)err_set(reterr, FAIL_IMAGE_NOT_FOUND, errno,
			"the image's bytes are not in the blob directory");
		(void)fd_close(transfer->fd);
		free(transfer);
		return -ENOENT;
	}
	end_same(images, message->session, request->digest);
	transfer->session = message->session;
	transfer->request = request->request;
	transfer->size = (uint64_t)st.st_size;
	transfer->offset = MIN(request->offset, transfer->size);
	memcpy(transfer->digest, request->digest, DIGEST_SIZE);
	TAILQ_INSERT_TAIL(&images->transfers, transfer, link);
	images->n_transfers++;
	*ret = transfer;
	return 0;
}

void images_on_request(struct images *images, const struct link_message *message,
	const Croft__ImageRequest *request)
{
	unsigned int n_of_session;
	struct transfer *transfer = find(images, message->session, request->request, &n_of_session);
	struct err err = ERR_NULL;

	if (transfer && (strcmp(transfer->digest, request->digest) != 0 && *request->digest)) {
		transfer_end(images, transfer); /* the number is used for another image */
		transfer = NULL;
	}
	if (!transfer && (check_request(images, message, request, n_of_session, &err) < 0 ||
				 transfer_open(images, message, request, &transfer, &err) < 0)) {
		refuse(images, message, request, &err);
		return;
	}
	if (!transfer || transfer->fd < 0)
		return;
	transfer->active_usec = clock_monotonic_usec();
	if (transfer->offset == transfer->size) { /* an empty rest is answered too */
		(void)send_chunk(images, message->session, request->request, transfer->offset,
			transfer->size, NULL, 0, NULL);
		transfer->fd = fd_close(transfer->fd);
		return;
	}
	(void)credit_out_grant(
		&transfer->credit, request->credit); /* refused: it keeps what it has */
	arm(images, 0);
}

int images_new(struct images **ret, struct server *server, struct err *reterr)
{
	struct images *images = calloc(1, sizeof(*images));
	const struct timeval every = { .tv_sec = SWEEP_SEC };

	if (!images)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for images");
	images->server = server;
	TAILQ_INIT(&images->transfers);
	images->pump = event_new(server->base, -1, 0, on_pump, images);
	images->sweep = event_new(server->base, -1, EV_PERSIST, on_sweep, images);
	if (!images->pump || !images->sweep || event_add(images->sweep, &every) < 0) {
		images_free(images);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for images");
	}
	(void)event_priority_set(images->pump, LOOP_BULK);
	*ret = images;
	return 0;
}

void images_free(struct images *images)
{
	struct transfer *transfer;

	if (!images)
		return;
	while ((transfer = TAILQ_FIRST(&images->transfers)))
		transfer_end(images, transfer);
	if (images->pump)
		event_free(images->pump);
	if (images->sweep)
		event_free(images->sweep);
	free(images);
}
