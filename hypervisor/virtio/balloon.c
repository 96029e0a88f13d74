/* SPDX-License-Identifier: Apache-2.0
 *
 * See balloon.h.
 */
#include "virtio/balloon.h"

#include <errno.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_ids.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define QUEUE_SIZE 64
#define TURN_MAX 4 /* requests before others of the loop have their turn: each can be a thousand holes */
#define STATS_MAX 64 /* entries that are looked at */
#define STATS_FRESH_USEC USEC_PER_SEC
#define BIT(n) (UINT64_C(1) << (n))

/* ---- the configuration space ---- */

static void config_read(struct device *device, uint32_t offset, uint8_t *bytes, uint32_t len)
{
	struct balloon_device *balloon = container_of(device, struct balloon_device, device);
	uint32_t config[2] = { balloon->target, balloon->claimed };

	if (offset < sizeof(config))
		memcpy(bytes, (const uint8_t *) config + offset, MIN(len, (uint32_t) sizeof(config) - offset));
}

static void config_write(struct device *device, uint32_t offset, const uint8_t *bytes, uint32_t len)
{
	struct balloon_device *balloon = container_of(device, struct balloon_device, device);

	if (offset == offsetof(struct virtio_balloon_config, actual) && len == sizeof(balloon->claimed))
		memcpy(&balloon->claimed, bytes, len);
}

static void on_reset(struct device *device)
{
	struct balloon_device *balloon = container_of(device, struct balloon_device, device);

	/* the pages stay away until the guest touches them; a new driver begins with an empty balloon */
	memset(balloon->held, 0, (size_t) ((balloon->memory->size / BALLOON_PAGE + 63) / 64 * 8));
	balloon->stats.pages = 0;
	balloon->claimed = 0;
	balloon->has_stats_buffer = false;
}

static const struct device_ops ops = { .config_read = config_read, .config_write = config_write, .reset = on_reset };

/* ---- pages ---- */

/* Takes the page into the balloon or out of it. False when it is no RAM or was so already. */
static bool move_page(struct balloon_device *balloon, uint32_t pfn, bool is_inflating, uint64_t *ret_offset)
{
	uint64_t page, mask;

	if (!memory_offset(balloon->memory, (uint64_t) pfn * BALLOON_PAGE, BALLOON_PAGE, ret_offset))
		return false;
	page = *ret_offset / BALLOON_PAGE;
	mask = BIT(page % 64);
	if (((balloon->held[page / 64] & mask) != 0) == is_inflating)
		return false;
	balloon->held[page / 64] ^= mask;
	return true;
}

/* Neighbours go in one call, upwards or downwards as guests inflate. Not sorted first: qsort() of libc asks the
 * system how much memory there is, which the filter of this thread ends the process for. */
static void punch(struct balloon_device *balloon, size_t n)
{
	const uint64_t *offsets = balloon->offsets;

	for (size_t i = 0, end; i < n; i = end) {
		uint64_t from = offsets[i], to = from + BALLOON_PAGE;

		for (end = i + 1; end < n; end++) {
			if (offsets[end] == to)
				to += BALLOON_PAGE;
			else if (offsets[end] + BALLOON_PAGE == from)
				from = offsets[end];
			else
				break;
		}
		if (memory_discard(balloon->memory, from, to - from) < 0)
			balloon->stats.failed += end - i;
	}
}

static void handle_pages(struct balloon_device *balloon, const struct chain *chain, bool is_inflating)
{
	struct balloon_stats *stats = &balloon->stats;
	uint64_t asked = chain->readable / sizeof(uint32_t);
	uint32_t pfns[BALLOON_REQUEST_MAX];
	size_t n = (size_t) MIN(asked, (uint64_t) BALLOON_REQUEST_MAX), moved = 0;

	n = chain->is_bad ? 0 : chain_read(chain, 0, pfns, n * sizeof(uint32_t)) / sizeof(uint32_t);
	for (size_t i = 0; i < n; i++)
		moved += move_page(balloon, pfns[i], is_inflating, &balloon->offsets[moved]);
	stats->refused += asked - moved;
	if (is_inflating) {
		stats->inflated += moved;
		stats->pages += moved;
		punch(balloon, moved);
	} else {
		stats->deflated += moved;
		stats->pages -= moved;
	}
}

static void serve_pages(struct balloon_device *balloon, unsigned int index)
{
	struct device *device = &balloon->device;
	struct chain chain;
	int turns = 0;

	while (turns++ < TURN_MAX && device_pop(device, index, &chain)) {
		handle_pages(balloon, &chain, index == BALLOON_QUEUE_INFLATE);
		queue_push(&device->queues[index], chain.head, 0);
	}
	device_signal(device, index);
	if (device_is_active(device) && queue_has_work(&device->queues[index]))
		device_kick(device, index);
}

/* ---- statistics ---- */

static void take_stats(struct balloon_device *balloon, const struct chain *chain)
{
	struct balloon_stats *stats = &balloon->stats;
	struct virtio_balloon_stat entries[STATS_MAX];
	size_t n = chain->is_bad ? 0 : chain_read(chain, 0, entries, sizeof(entries)) / sizeof(entries[0]);

	if (n == 0)
		return;
	stats->has_guest = true;
	stats->guest_usec = clock_monotonic_usec();
	stats->guest_has = 0;
	for (size_t i = 0; i < n; i++) {
		if (entries[i].tag >= BALLOON_TAG_MAX_)
			continue; /* newer than this list */
		stats->guest[entries[i].tag] = entries[i].val;
		stats->guest_has |= 1u << entries[i].tag;
	}
}

static void give_back_stats(struct balloon_device *balloon)
{
	if (!balloon->has_stats_buffer)
		return;
	balloon->has_stats_buffer = false;
	queue_push(&balloon->device.queues[BALLOON_QUEUE_STATS], balloon->stats_buffer, 0);
	device_signal(&balloon->device, BALLOON_QUEUE_STATS);
}

/* The driver has one buffer, filled, which we keep until we want newer ones. A second makes us give back the first. */
static void serve_stats(struct balloon_device *balloon)
{
	struct device *device = &balloon->device;
	struct chain chain;
	int turns = 0;

	while (turns++ < TURN_MAX && device_pop(device, BALLOON_QUEUE_STATS, &chain)) {
		give_back_stats(balloon);
		take_stats(balloon, &chain);
		balloon->stats_buffer = chain.head;
		balloon->has_stats_buffer = true;
	}
	if (device_is_active(device) && queue_has_work(&device->queues[BALLOON_QUEUE_STATS]))
		device_kick(device, BALLOON_QUEUE_STATS);
}

/* ---- turns of the loop ---- */

static void on_notify(void *data, uint32_t events)
{
	struct balloon_device *balloon = data;
	uint64_t count;

	(void) events;
	for (int i = 0; i < 3; i++) /* only clears them: all queues are looked at in any case */
		(void) !read(balloon->device.notify_fds[i], &count, sizeof(count));
	(void) pthread_mutex_lock(&balloon->device.lock);
	serve_pages(balloon, BALLOON_QUEUE_DEFLATE);
	serve_pages(balloon, BALLOON_QUEUE_INFLATE);
	if (device_has(&balloon->device, BIT(VIRTIO_BALLOON_F_STATS_VQ)))
		serve_stats(balloon);
	(void) pthread_mutex_unlock(&balloon->device.lock);
}

static size_t held_size(const struct balloon_device *balloon)
{
	return (size_t) ((balloon->memory->size / BALLOON_PAGE + 63) / 64) * sizeof(uint64_t);
}

int balloon_init(struct balloon_device *balloon, struct loop *loop, const struct memory *memory)
{
	struct device_config config = { .ops = &ops, .id = VIRTIO_ID_BALLOON, .n_queues = 3, .queue_size = QUEUE_SIZE,
		.features = BIT(VIRTIO_BALLOON_F_STATS_VQ) | BIT(VIRTIO_BALLOON_F_DEFLATE_ON_OOM) };
	int r;

	*balloon = (struct balloon_device) { .loop = loop, .memory = memory,
		.notify = { LOOP_SOURCE_NULL, LOOP_SOURCE_NULL, LOOP_SOURCE_NULL } };
	r = device_init(&balloon->device, memory, &config);
	if (r < 0)
		return r;
	balloon->held = calloc(1, held_size(balloon));
	if (!balloon->held)
		return -ENOMEM;
	for (int i = 0; r == 0 && i < 3; i++)
		r = loop_add(loop, &balloon->notify[i], balloon->device.notify_fds[i], EPOLLIN, on_notify, balloon);
	return r;
}

int balloon_save(struct balloon_device *balloon, struct balloon_state *ret)
{
	*ret = (struct balloon_state) { .target = balloon->target, .claimed = balloon->claimed,
		.has_stats_buffer = balloon->has_stats_buffer, .stats_buffer = balloon->stats_buffer,
		.held = malloc(held_size(balloon)), .held_size = held_size(balloon) };
	if (!ret->held)
		return -ENOMEM;
	memcpy(ret->held, balloon->held, ret->held_size);
	return 0;
}

int balloon_load(struct balloon_device *balloon, const struct balloon_state *state)
{
	if (state->held_size != held_size(balloon) || state->stats_buffer >= QUEUE_SIZE)
		return -EINVAL;
	balloon->target = state->target;
	balloon->claimed = state->claimed;
	balloon->has_stats_buffer = state->has_stats_buffer;
	balloon->stats_buffer = state->stats_buffer;
	memcpy(balloon->held, state->held, state->held_size);
	balloon->stats.pages = 0;
	for (size_t i = 0; i < state->held_size / sizeof(uint64_t); i++)
		balloon->stats.pages += (uint64_t) __builtin_popcountll(state->held[i]);
	return 0;
}

void balloon_deinit(struct balloon_device *balloon)
{
	if (!balloon->loop)
		return;
	for (int i = 0; i < 3; i++)
		loop_remove(balloon->loop, &balloon->notify[i]);
	free(balloon->held);
	device_deinit(&balloon->device);
	balloon->loop = NULL;
}

void balloon_set_target(struct balloon_device *balloon, uint64_t pages)
{
	(void) pthread_mutex_lock(&balloon->device.lock);
	/* 32 bits of pages are 16 TiB, which no VM has */
	balloon->target = (uint32_t) MIN(pages, balloon->memory->size / BALLOON_PAGE);
	device_config_changed(&balloon->device);
	(void) pthread_mutex_unlock(&balloon->device.lock);
}

struct balloon_stats balloon_stats(struct balloon_device *balloon)
{
	struct balloon_stats stats;

	(void) pthread_mutex_lock(&balloon->device.lock);
	stats = balloon->stats;
	stats.target_pages = balloon->target;
	if (!balloon->loop->rests && device_is_active(&balloon->device) && /* a paused VM's memory stays as it is */
		clock_monotonic_usec() - stats.guest_usec >= STATS_FRESH_USEC)
		give_back_stats(balloon);
	(void) pthread_mutex_unlock(&balloon->device.lock);
	return stats;
}
