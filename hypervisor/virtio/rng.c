/* SPDX-License-Identifier: Apache-2.0
 *
 * See rng.h.
 */
#include "virtio/rng.h"

#include <errno.h>
#include <linux/virtio_ids.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/plant.h"

#define QUEUE_SIZE 64
#define TURN_MAX 16 /* requests of one turn of the loop: a megabyte */

static const struct device_ops ops = { .config_read = NULL };

/* The bytes that were filled, 0 for a request without room or with addresses that are not RAM. */
static uint32_t fill(const struct chain *chain)
{
	uint32_t done = 0;
	struct iovec iov[QUEUE_SIZE_MAX];
	unsigned int n;

	if (chain->is_bad)
		return 0;
	if (PLANTED(MEMORY_KEPT)) {
		static int kept; /* two are more than a VMM may have, four do not exhaust the machine */

		if (kept++ < 4)
			(void) mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	}
	while (PLANTED(LOOP_STUCK))
		(void) usleep(1000);
	n = chain_slice(chain, true, 0, MIN(chain->writable, (uint64_t) RNG_REQUEST_MAX), iov);
	for (unsigned int i = 0; i < n; i++) {
		ssize_t got = getrandom(iov[i].iov_base, iov[i].iov_len, GRND_NONBLOCK);

		if (got < 0)
			break; /* the host's pool is not ready or the page is gone: the guest asks again */
		done += (uint32_t) got;
		if ((size_t) got < iov[i].iov_len)
			break;
	}
	return done;
}

void rng_serve(struct rng_device *rng)
{
	struct device *device = &rng->device;
	struct chain chain;
	int turns = 0;

	(void) pthread_mutex_lock(&device->lock);
	while (turns++ < TURN_MAX && device_pop(device, 0, &chain)) {
		uint32_t n = fill(&chain);

		rng->bytes += n;
		queue_push(&device->queues[0], chain.head, n);
	}
	device_signal(device, 0);
	if (device_is_active(device) && queue_has_work(&device->queues[0]))
		device_kick(device, 0);
	(void) pthread_mutex_unlock(&device->lock);
}

static void on_notify(void *data, uint32_t events)
{
	struct rng_device *rng = data;
	uint64_t count;

	(void) events;
	(void) !read(rng->device.notify_fds[0], &count, sizeof(count)); /* only clears it */
	rng_serve(rng);
}

int rng_init(struct rng_device *rng, struct loop *loop, const struct memory *memory)
{
	struct device_config config = { .ops = &ops, .id = VIRTIO_ID_RNG, .n_queues = 1, .queue_size = QUEUE_SIZE };
	int r;

	*rng = (struct rng_device) { .loop = loop, .notify = LOOP_SOURCE_NULL };
	r = device_init(&rng->device, memory, &config);
	if (r < 0)
		return r;
	return loop_add(loop, &rng->notify, rng->device.notify_fds[0], EPOLLIN, on_notify, rng);
}

void rng_deinit(struct rng_device *rng)
{
	if (!rng->loop)
		return;
	loop_remove(rng->loop, &rng->notify);
	device_deinit(&rng->device);
	rng->loop = NULL;
}
