/* SPDX-License-Identifier: Apache-2.0
 *
 * See blk.h.
 */
#include "virtio/blk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/plant.h"

#define QUEUE_SIZE 256
#define SEGMENTS_MAX (QUEUE_SIZE - 2) /* a header and a status take one each */
#define HEADER_SIZE 16u
#define ZERO_SIZE (UINT64_C(64) * 1024)
#define ZERO_PIECES 16 /* of ZERO_SIZE, written at once where the file system cannot zero a range */
#define SAID_USEC (60 * USEC_PER_SEC)
#define BIT(n) (UINT64_C(1) << (n))

/* What a request asks for, copied from its chain once. */
struct request {
	uint32_t type;
	uint64_t sector;
	uint64_t data_size;      /* without header and status */
	/* what the driver acknowledged */
	bool write_through;      /* not FLUSH: it has no other way to make its writes durable */
	bool may_discard, may_zero;
	struct iovec data[QUEUE_SIZE_MAX];
	unsigned int n_data;
};

static void config_read(struct device *device, uint32_t offset, uint8_t *bytes, uint32_t len)
{
	struct blk_device *blk = container_of(device, struct blk_device, device);
	struct virtio_blk_config config = { .capacity = blk->sectors, .seg_max = SEGMENTS_MAX, .blk_size = BLK_SECTOR };

	if (!blk->is_read_only) {
		config.max_discard_sectors = BLK_DISCARD_MAX / BLK_SECTOR;
		config.max_discard_seg = config.max_write_zeroes_seg = BLK_RANGES_MAX;
		config.discard_sector_alignment = 8; /* the page of most file systems */
		config.max_write_zeroes_sectors = BLK_REQUEST_MAX / BLK_SECTOR;
		config.write_zeroes_may_unmap = 1;
	}
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

/* The request's status. What the host answered is the operator's to know: the guest sees an error like any other. A line a
 * minute at most: a guest that goes on writing to a full disk does not fill the log. */
static uint8_t judge(struct blk_device *blk, int r)
{
	int64_t now = r < 0 ? blk->clock() : 0;
	char serial[BLK_SERIAL_SIZE + 1];

	if (r >= 0)
		return VIRTIO_BLK_S_OK;
	if (r == -ECANCELED || now < blk->silent_until_usec)
		return VIRTIO_BLK_S_IOERR;
	blk->silent_until_usec = now + SAID_USEC;
	(void) snprintf(serial, sizeof(serial), "%.*s", BLK_SERIAL_SIZE, blk->serial);
	log_warn("the host cannot read or write a VM's disk: its guest sees an I/O error", "disk", serial, "errno",
		strerrorname_np(-r));
	return VIRTIO_BLK_S_IOERR;
}

static int sync_disk(const struct blk_device *blk)
{
	return fdatasync(blk->fd) < 0 ? -errno : 0;
}

static uint8_t do_transfer(struct blk_device *blk, struct request *request, bool is_write)
{
	int r;

	if (!is_on_disk(blk, request) || (request->data_size > 0 && request->n_data == 0))
		return VIRTIO_BLK_S_IOERR;
	if (is_write && blk->is_read_only && !PLANTED(READ_ONLY_WRITTEN))
		return VIRTIO_BLK_S_IOERR;
	r = transfer(blk, request, is_write);
	if (r == 0 && is_write && request->write_through)
		r = sync_disk(blk);
	return judge(blk, r);
}

/* ---- ranges of DISCARD and WRITE_ZEROES ---- */

/* The total, or 0 when one is empty, over `max` or beyond the end. */
static uint64_t check_ranges(const struct blk_device *blk, const struct virtio_blk_discard_write_zeroes *ranges, size_t n,
	uint64_t max)
{
	uint64_t total = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t n_sectors = ranges[i].num_sectors;

		if (n_sectors == 0 || n_sectors > max / BLK_SECTOR || ranges[i].sector > blk->sectors ||
			n_sectors > blk->sectors - ranges[i].sector)
			return 0;
		total += n_sectors * BLK_SECTOR;
	}
	return total;
}

/* By hand, in pieces: the end of the VM does not wait for more than one. */
static int write_zeroes(const struct blk_device *blk, uint64_t at, uint64_t size)
{
	/* no memory from the heap: a thread's first would want calls that the filter of this one does not have */
	static const uint8_t zeros[ZERO_SIZE];
	struct iovec iov[ZERO_PIECES];

	while (size > 0) {
		unsigned int n = 0;
		ssize_t done;

		for (uint64_t left = size; n < ZERO_PIECES && left > 0; n++) {
			iov[n].iov_base = (void *) (uintptr_t) zeros; /* only read */
			iov[n].iov_len = (size_t) MIN(left, ZERO_SIZE);
			left -= iov[n].iov_len;
		}
		if (atomic_load(&blk->is_stopping))
			return -ECANCELED;
		done = pwritev(blk->fd, iov, (int) n, (off_t) at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		at += (uint64_t) done;
		size -= (uint64_t) done;
	}
	return 0;
}

static int do_range(const struct blk_device *blk, const struct virtio_blk_discard_write_zeroes *range, bool is_discard)
{
	uint64_t at = range->sector * BLK_SECTOR, size = (uint64_t) range->num_sectors * BLK_SECTOR;
	bool may_unmap = is_discard || (range->flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP);
	int mode = (may_unmap ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) | FALLOC_FL_KEEP_SIZE;

	if (fallocate(blk->fd, mode, (off_t) at, (off_t) size) == 0)
		return 0;
	if (errno != EOPNOTSUPP)
		return -errno;
	return is_discard ? 0 : write_zeroes(blk, at, size); /* a discard is a hint */
}

/* All are checked before the first is done. */
static uint8_t do_ranges(struct blk_device *blk, struct request *request, const struct chain *chain,
	bool is_discard)
{
	const uint32_t known = is_discard ? 0 : VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
	struct virtio_blk_discard_write_zeroes ranges[BLK_RANGES_MAX];
	uint64_t size = chain->readable - HEADER_SIZE;
	size_t n = (size_t) (size / sizeof(ranges[0]));
	int r = 0;

	request->data_size = 0;
	if (!blk->is_read_only && !(is_discard ? request->may_discard : request->may_zero))
		return VIRTIO_BLK_S_UNSUPP;
	if (blk->is_read_only || size == 0 || size % sizeof(ranges[0]) != 0 || n > BLK_RANGES_MAX ||
		chain_read(chain, HEADER_SIZE, ranges, (size_t) size) != size)
		return VIRTIO_BLK_S_IOERR;
	for (size_t i = 0; i < n; i++)
		if (ranges[i].flags & ~known)
			return VIRTIO_BLK_S_UNSUPP;
	request->data_size = check_ranges(blk, ranges, n, is_discard ? BLK_DISCARD_MAX : BLK_REQUEST_MAX);
	if (request->data_size == 0)
		return VIRTIO_BLK_S_IOERR;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = do_range(blk, &ranges[i], is_discard);
	if (r == 0 && !is_discard && request->write_through)
		r = sync_disk(blk);
	return judge(blk, r);
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

static uint8_t execute(struct blk_device *blk, struct request *request, const struct chain *chain)
{
	switch (request->type) {
	case VIRTIO_BLK_T_IN:
		return do_transfer(blk, request, false);
	case VIRTIO_BLK_T_OUT:
		return do_transfer(blk, request, true);
	case VIRTIO_BLK_T_FLUSH:
		return judge(blk, sync_disk(blk));
	case VIRTIO_BLK_T_GET_ID:
		return get_id(blk, request, chain);
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		return do_ranges(blk, request, chain, request->type == VIRTIO_BLK_T_DISCARD);
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
	case VIRTIO_BLK_T_DISCARD:
		stats->discards++;
		stats->discarded_bytes += request->data_size;
		break;
	case VIRTIO_BLK_T_WRITE_ZEROES:
		stats->zeroes++;
		stats->zeroed_bytes += request->data_size;
		break;
	default:
		break;
	}
}

/* What a request costs in bytes: those that moved or may have been written. */
static uint64_t cost(const struct request *request)
{
	bool moves = request->type == VIRTIO_BLK_T_IN || request->type == VIRTIO_BLK_T_OUT ||
		request->type == VIRTIO_BLK_T_WRITE_ZEROES;

	return moves ? MIN(request->data_size, BLK_RANGES_MAX * BLK_REQUEST_MAX) : 0;
}

/* The bytes of the used entry: those that were surely written from the first writable one on. The status is the last one: it
 * counts only where all before it were filled. */
static uint32_t used_bytes(const struct request *request, const struct chain *chain, uint8_t status)
{
	uint64_t filled = 0;

	if (status == VIRTIO_BLK_S_OK && request->type == VIRTIO_BLK_T_IN)
		filled = request->data_size;
	else if (status == VIRTIO_BLK_S_OK && request->type == VIRTIO_BLK_T_GET_ID)
		filled = MIN(request->data_size, (uint64_t) BLK_SERIAL_SIZE);
	if (filled == chain->writable - 1 || PLANTED(USED_UNWRITTEN))
		filled = chain->writable;
	return (uint32_t) MIN(filled, (uint64_t) UINT32_MAX);
}

/* One request, with the lock held at both ends. */
static void serve_one(struct blk_device *blk, struct chain *chain)
{
	struct device *device = &blk->device;
	struct request request = { .type = UINT32_MAX, .write_through = !device_has(device, BIT(VIRTIO_BLK_F_FLUSH)),
		.may_discard = device_has(device, BIT(VIRTIO_BLK_F_DISCARD)),
		.may_zero = device_has(device, BIT(VIRTIO_BLK_F_WRITE_ZEROES)) };
	uint8_t status = VIRTIO_BLK_S_IOERR;
	bool is_whole;

	if (chain->writable == 0) {
		blk->stats.errors++;
		rate_charge(&blk->rate, 1, 0);
		if (chain->readable >= HEADER_SIZE)
			queue_push(&device->queues[0], chain->head, 0);
		else
			device_set_needs_reset(device, "a block request has neither header nor status");
		device_work_begin(device); /* the loop thread may want the lock, and a guest can send such without end */
		device_work_end(device);
		return;
	}
	device_work_begin(device);
	is_whole = parse(chain, &request);
	if (is_whole && !chain->is_bad)
		status = execute(blk, &request, chain);
	device_work_end(device);
	count(blk, &request, status);
	rate_charge(&blk->rate, 1, cost(&request));
	if (chain_write(chain, chain->writable - 1, &status, 1) == 1)
		queue_push(&device->queues[0], chain->head, used_bytes(&request, chain, status));
	else /* the status byte itself is not RAM */
		queue_push(&device->queues[0], chain->head, 0);
}

/* Takes the next request, unless the limit says when: *ret_wait. */
static bool take(struct blk_device *blk, struct chain *chain, int64_t *ret_wait)
{
	struct device *device = &blk->device;
	int64_t wait;

	*ret_wait = -1;
	if (blk->is_paused || !device_is_active(device) || !queue_has_work(&device->queues[0]))
		return false;
	wait = rate_wait_usec(&blk->rate, blk->clock());
	if (wait == 0)
		return device_pop(device, 0, chain);
	blk->stats.throttled++;
	*ret_wait = wait;
	return false;
}

int64_t blk_serve(struct blk_device *blk)
{
	struct device *device = &blk->device;
	struct chain chain;
	int64_t wait = -1;

	(void) pthread_mutex_lock(&device->lock);
	/* a guest that fills the ring for ever keeps only its own worker busy; blk_deinit() breaks it off */
	while (!atomic_load(&blk->is_stopping) && take(blk, &chain, &wait)) {
		serve_one(blk, &chain);
		device_signal(device, 0);
	}
	(void) pthread_mutex_unlock(&device->lock);
	return wait;
}

static void *work(void *data)
{
	struct blk_device *blk = data;
	struct pollfd fds[] = { { .fd = blk->device.notify_fds[0], .events = POLLIN },
		{ .fd = blk->stop_fd, .events = POLLIN } };
	int64_t until = -1;

	if (blk->begin && !blk->begin(blk->begin_data, THREAD_DISK, 0))
		return NULL;
	for (;;) {
		int64_t left = until < 0 ? -1 : MAX(until - clock_monotonic_usec(), 0);
		/* a limit that makes it wait is not to be asked again at each notification; up to the next whole ms */
		int wait_msec = left < 0 ? -1 : (int) MIN((left + USEC_PER_MSEC - 1) / USEC_PER_MSEC, INT64_C(3600000));
		uint64_t n;

		fds[0].events = until < 0 ? POLLIN : 0;
		if (poll(fds, ARRAY_LEN(fds), wait_msec) < 0)
			continue; /* EINTR */
		if (fds[1].revents)
			return NULL;
		(void) !read(fds[0].fd, &n, sizeof(n)); /* only clears it */
		left = blk_serve(blk);
		until = left < 0 ? -1 : clock_monotonic_usec() + left;
	}
}

static void describe(struct blk_device *blk, const char *serial, const struct rate_config *limit)
{
	static const struct rate_config no_limit;

	rate_init(&blk->rate, limit ? limit : &no_limit, blk->clock());
	memset(blk->serial, 0, sizeof(blk->serial));
	memcpy(blk->serial, serial, strnlen(serial, BLK_SERIAL_SIZE));
}

static int use_file(struct blk_device *blk, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	blk->sectors = (uint64_t) st.st_size / BLK_SECTOR;
	blk->fd = fd;
	return 0;
}

int blk_init(struct blk_device *blk, const struct memory *memory, int fd, bool is_read_only, const char *serial,
	const struct rate_config *limit)
{
	struct device_config config = { .ops = &ops, .id = VIRTIO_ID_BLOCK, .n_queues = 1, .queue_size = QUEUE_SIZE,
		.features = BIT(VIRTIO_BLK_F_SEG_MAX) | BIT(VIRTIO_BLK_F_FLUSH) | BIT(VIRTIO_BLK_F_BLK_SIZE) };
	int r;

	*blk = (struct blk_device) { .fd = -1, .stop_fd = -1, .is_read_only = is_read_only,
		.clock = clock_monotonic_usec };
	describe(blk, serial, limit);
	if (is_read_only)
		config.features |= BIT(VIRTIO_BLK_F_RO);
	else
		config.features |= BIT(VIRTIO_BLK_F_DISCARD) | BIT(VIRTIO_BLK_F_WRITE_ZEROES);
	r = device_init(&blk->device, memory, &config);
	if (r < 0)
		return r;
	blk->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (blk->stop_fd < 0)
		return -errno;
	return fd < 0 ? 0 : use_file(blk, fd);
}

int blk_open(struct blk_device *blk, int fd, const char *serial, const struct rate_config *limit)
{
	int r;

	(void) pthread_mutex_lock(&blk->device.lock); /* its worker is there, and rests */
	describe(blk, serial, limit);
	r = use_file(blk, fd);
	(void) pthread_mutex_unlock(&blk->device.lock);
	return r;
}

int blk_start(struct blk_device *blk, thread_begin_fn begin, void *begin_data)
{
	int r;

	blk->begin = begin;
	blk->begin_data = begin_data;
	r = thread_create(&blk->worker, work, blk);

	blk->has_worker = r == 0;
	return -r;
}

int blk_pause(struct blk_device *blk, int64_t deadline_usec)
{
	struct device *device = &blk->device;
	int r;

	(void) pthread_mutex_lock(&device->lock);
	blk->is_paused = true;
	r = device_wait_idle_until(device, deadline_usec);
	(void) pthread_mutex_unlock(&device->lock);
	return r;
}

void blk_resume(struct blk_device *blk)
{
	(void) pthread_mutex_lock(&blk->device.lock);
	blk->is_paused = false;
	(void) pthread_mutex_unlock(&blk->device.lock);
	device_kick(&blk->device, 0);
}

void blk_cancel(struct blk_device *blk)
{
	uint64_t one = 1;

	atomic_store(&blk->is_stopping, true);
	(void) !write(blk->stop_fd, &one, sizeof(one)); /* cannot fail: it is small */
}

int blk_stop(struct blk_device *blk, int64_t deadline_usec)
{
	int64_t wait = MIN(MAX(deadline_usec - clock_monotonic_usec(), 0), 3600 * USEC_PER_SEC);
	int64_t until = clock_monotonic_usec() + wait;
	struct timespec ts = { .tv_sec = until / USEC_PER_SEC, .tv_nsec = until % USEC_PER_SEC * 1000 };

	if (!blk->has_worker)
		return 0;
	blk_cancel(blk);
	if (pthread_clockjoin_np(blk->worker, NULL, CLOCK_MONOTONIC, &ts) != 0)
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
