/* SPDX-License-Identifier: Apache-2.0
 *
 * See blk.h.
 */
#include "virtio/blk.h"

#include <errno.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/plant.h"

#define QUEUE_SIZE 256
#define SEGMENTS_MAX (QUEUE_SIZE - 2) /* a header and a status take one each */
#define HEADER_SIZE 16u

/* What a request asks for, copied from its chain once. */
struct request {
	uint32_t type;
	uint64_t sector;
	uint64_t data_size;      /* without header and status */
	struct iovec data[QUEUE_SIZE_MAX];
	unsigned int n_data;
};

static void config_read(struct device *device, uint32_t offset, uint8_t *bytes, uint32_t len)
{
	struct blk_device *blk = container_of(device, struct blk_device, device);
	struct virtio_blk_config config = { .capacity = blk->sectors, .seg_max = SEGMENTS_MAX, .blk_size = BLK_SECTOR };

	if (offset < sizeof(config))
		memcpy(bytes, (const uint8_t *) &config + offset, MIN(len, (uint32_t) sizeof(config) - offset));
}

static const struct device_ops ops = { .config_read = config_read };

/* The whole of the data lies on the disk. No sum: sector * 512 can wrap. */
static bool is_on_disk(const struct blk_device *blk, const struct request *request)
{
	if (PLANTED(DISK_END))
		return (request->sector + request->data_size / BLK_SECTOR) * BLK_SECTOR <= blk->sectors * BLK_SECTOR;
	return request->data_size % BLK_SECTOR == 0 && request->data_size <= BLK_REQUEST_MAX &&
		request->sector <= blk->sectors && request->data_size / BLK_SECTOR <= blk->sectors - request->sector;
}

/* All bytes, or -errno; changes request->data. */
static int transfer(const struct blk_device *blk, struct request *request, bool is_write)
{
	struct iovec *iov = request->data;
	unsigned int n = request->n_data;
	off_t at = (off_t) (request->sector * BLK_SECTOR);

	while (n > 0) {
		ssize_t done = is_write ? pwritev(blk->fd, iov, (int) n, at) : preadv(blk->fd, iov, (int) n, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		if (done == 0)
			return -EIO; /* the file became shorter */
		at += done;
		while (n > 0 && (size_t) done >= iov->iov_len) {
			done -= (ssize_t) iov->iov_len;
			iov++;
			n--;
		}
		if (n > 0) {
			iov->iov_base = (uint8_t *) iov->iov_base + done;
			iov->iov_len -= (size_t) done;
		}
	}
	return 0;
}

static uint8_t do_transfer(const struct blk_device *blk, struct request *request, bool is_write, bool write_through)
{
	if (!is_on_disk(blk, request) || (request->data_size > 0 && request->n_data == 0))
		return VIRTIO_BLK_S_IOERR;
	if (is_write && blk->is_read_only && !PLANTED(READ_ONLY_WRITTEN))
		return VIRTIO_BLK_S_IOERR;
	if (transfer(blk, request, is_write) < 0)
		return VIRTIO_BLK_S_IOERR;
	/* a driver that did not take FLUSH has no other way to make its writes durable */
	if (is_write && write_through && fdatasync(blk->fd) < 0)
		return VIRTIO_BLK_S_IOERR;
	return VIRTIO_BLK_S_OK;
}

static uint8_t get_id(const struct blk_device *blk, const struct request *request, const struct chain *chain)
{
	size_t n = (size_t) MIN(request->data_size, (uint64_t) BLK_SERIAL_SIZE);

	return chain_write(chain, 0, blk->serial, n) == n ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
}

/* Fills `request`; false when the chain has no whole header. The status byte is the last writable one. */
static bool parse(const struct chain *chain, struct request *ret)
{
	struct virtio_blk_outhdr header;
	bool is_write;

	if (chain_read(chain, 0, &header, sizeof(header)) != sizeof(header))
		return false;
	ret->type = header.type;
	ret->sector = header.sector;
	is_write = header.type == VIRTIO_BLK_T_OUT;
	ret->data_size = is_write ? chain->readable - HEADER_SIZE : chain->writable - 1;
	ret->n_data = 0;
	if (ret->data_size > 0 && ret->data_size <= BLK_REQUEST_MAX)
		ret->n_data = chain_slice(chain, !is_write, is_write ? HEADER_SIZE : 0, ret->data_size, ret->data);
	return true;
}

static uint8_t execute(const struct blk_device *blk, struct request *request, const struct chain *chain,
	bool write_through)
{
	switch (request->type) {
	case VIRTIO_BLK_T_IN:
		return do_transfer(blk, request, false, write_through);
	case VIRTIO_BLK_T_OUT:
		return do_transfer(blk, request, true, write_through);
	case VIRTIO_BLK_T_FLUSH:
		return fdatasync(blk->fd) == 0 ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
	case VIRTIO_BLK_T_GET_ID:
		return get_id(blk, request, chain);
	default:
		return VIRTIO_BLK_S_UNSUPP;
	}
}

static void count(struct blk_device *blk, const struct request *request, uint8_t status)
{
	struct blk_stats *stats = &blk->stats;

	if (status != VIRTIO_BLK_S_OK) {
		stats->errors++;
		return;
	}
	switch (request->type) {
	case VIRTIO_BLK_T_IN:
		stats->reads++;
		stats->read_bytes += request->data_size;
		break;
	case VIRTIO_BLK_T_OUT:
		stats->writes++;
		stats->written_bytes += request->data_size;
		break;
	case VIRTIO_BLK_T_FLUSH:
		stats->flushes++;
		break;
	default:
		break;
	}
}

/* The bytes of the used entry: those of the data that were filled, and the status. A failed read says
 * nothing about its data. */
static uint32_t used_bytes(const struct request *request, const struct chain *chain, uint8_t status)
{
	if (status != VIRTIO_BLK_S_OK || request->type == VIRTIO_BLK_T_OUT)
		return 1;
	return (uint32_t) MIN(chain->writable, (uint64_t) UINT32_MAX);
}

/* One request, with the lock held at both ends. */
static void serve_one(struct blk_device *blk, struct chain *chain)
{
	struct device *device = &blk->device;
	bool write_through = !device_has(device, UINT64_C(1) << VIRTIO_BLK_F_FLUSH);
	struct request request = { .type = UINT32_MAX };
	uint8_t status = VIRTIO_BLK_S_IOERR;
	bool is_whole;

	if (chain->writable == 0) {
		blk->stats.errors++;
		if (chain->readable >= HEADER_SIZE)
			queue_push(&device->queues[0], chain->head, 0);
		else
			device_set_needs_reset(device, "a block request has neither header nor status");
		return;
	}
	device_work_begin(device);
	is_whole = parse(chain, &request);
	if (is_whole && !chain->is_bad)
		status = execute(blk, &request, chain, write_through);
	device_work_end(device);
	count(blk, &request, status);
	if (chain_write(chain, chain->writable - 1, &status, 1) == 1)
		queue_push(&device->queues[0], chain->head, used_bytes(&request, chain, status));
	else /* the status byte itself is not RAM */
		queue_push(&device->queues[0], chain->head, 0);
}

void blk_serve(struct blk_device *blk)
{
	struct device *device = &blk->device;
	struct chain chain;

	(void) pthread_mutex_lock(&device->lock);
	/* a guest that fills the ring for ever keeps only its own worker busy; blk_deinit() breaks it off */
	while (!blk->is_stopping && device_pop(device, 0, &chain)) {
		serve_one(blk, &chain);
		device_signal(device, 0);
	}
	(void) pthread_mutex_unlock(&device->lock);
}

static void *work(void *data)
{
	struct blk_device *blk = data;
	struct pollfd fds[] = { { .fd = blk->device.notify_fds[0], .events = POLLIN },
		{ .fd = blk->stop_fd, .events = POLLIN } };

	if (blk->begin && !blk->begin(blk->begin_data, THREAD_DISK, 0))
		return NULL;
	for (;;) {
		uint64_t n;

		if (poll(fds, ARRAY_LEN(fds), -1) < 0)
			continue; /* EINTR */
		if (fds[1].revents)
			return NULL;
		(void) !read(fds[0].fd, &n, sizeof(n)); /* only clears it */
		blk_serve(blk);
	}
}

int blk_init(struct blk_device *blk, const struct memory *memory, int fd, bool is_read_only, const char *serial)
{
	struct device_config config = { .ops = &ops, .id = VIRTIO_ID_BLOCK, .n_queues = 1, .queue_size = QUEUE_SIZE,
		.features = UINT64_C(1) << VIRTIO_BLK_F_SEG_MAX | UINT64_C(1) << VIRTIO_BLK_F_FLUSH |
			UINT64_C(1) << VIRTIO_BLK_F_BLK_SIZE };
	struct stat st;
	int r;

	*blk = (struct blk_device) { .fd = -1, .stop_fd = -1, .is_read_only = is_read_only };
	if (is_read_only)
		config.features |= UINT64_C(1) << VIRTIO_BLK_F_RO;
	if (fstat(fd, &st) < 0)
		return -errno;
	blk->sectors = (uint64_t) st.st_size / BLK_SECTOR;
	memcpy(blk->serial, serial, strnlen(serial, BLK_SERIAL_SIZE));
	r = device_init(&blk->device, memory, &config);
	if (r < 0)
		return r;
	blk->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (blk->stop_fd < 0)
		return -errno;
	blk->fd = fd;
	return 0;
}

int blk_start(struct blk_device *blk, thread_begin_fn begin, void *begin_data)
{
	int r;

	blk->begin = begin;
	blk->begin_data = begin_data;
	r = pthread_create(&blk->worker, NULL, work, blk);

	blk->has_worker = r == 0;
	return -r;
}

int blk_stop(struct blk_device *blk, int64_t deadline_usec)
{
	int64_t wait = MIN(MAX(deadline_usec - clock_monotonic_usec(), 0), 3600 * USEC_PER_SEC);
	int64_t until = clock_realtime_usec() + wait; /* the clock of pthread_timedjoin_np() */
	struct timespec ts = { .tv_sec = until / USEC_PER_SEC, .tv_nsec = until % USEC_PER_SEC * 1000 };
	uint64_t one = 1;

	if (!blk->has_worker)
		return 0;
	(void) pthread_mutex_lock(&blk->device.lock);
	blk->is_stopping = true;
	(void) pthread_mutex_unlock(&blk->device.lock);
	(void) !write(blk->stop_fd, &one, sizeof(one)); /* cannot fail: it is small */
	if (pthread_timedjoin_np(blk->worker, NULL, &ts) != 0)
		return -ETIMEDOUT;
	blk->has_worker = false;
	return 0;
}

void blk_deinit(struct blk_device *blk)
{
	if (!blk->device.memory)
		return;
	(void) blk_stop(blk, INT64_MAX); /* has ended, or the caller would not be here */
	(void) fd_close(blk->stop_fd);
	(void) fd_close(blk->fd);
	device_deinit(&blk->device);
}

struct blk_stats blk_stats(struct blk_device *blk)
{
	struct blk_stats stats;

	(void) pthread_mutex_lock(&blk->device.lock);
	stats = blk->stats;
	(void) pthread_mutex_unlock(&blk->device.lock);
	return stats;
}
