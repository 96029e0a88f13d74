/* SPDX-License-Identifier: Apache-2.0
 *
 * See net.h.
 */
#include "virtio/net.h"

#include <assert.h>
#include <errno.h>
#include <linux/if_tun.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define QUEUE_SIZE 256
#define RX_TURN_MAX 64  /* frames before others of the loop have their turn */
#define TX_TURN_MAX 128
#define BIT(n) (UINT64_C(1) << (n))

static_assert(sizeof(struct virtio_net_hdr_v1) == NET_HEADER_SIZE, "the header of VERSION_1");

static int tap_set_header_size(int fd, int size)
{
	return ioctl(fd, TUNSETVNETHDRSZ, &size) < 0 ? -errno : 0;
}

static int tap_set_offload(int fd, unsigned int flags)
{
	return ioctl(fd, TUNSETOFFLOAD, (unsigned long) flags) < 0 ? -errno : 0;
}

static const struct net_io tap_io = { .set_header_size = tap_set_header_size, .set_offload = tap_set_offload };

static bool has(const struct net_device *net, unsigned int feature)
{
	return device_has(&net->device, BIT(feature));
}

static void config_read(struct device *device, uint32_t offset, uint8_t *bytes, uint32_t len)
{
	struct net_device *net = container_of(device, struct net_device, device);

	if (offset < NET_MAC_SIZE) /* no field behind the address has a meaning with what we offer */
		memcpy(bytes, net->mac + offset, MIN(len, NET_MAC_SIZE - offset));
}

/* On a vCPU thread. */
static void on_change(struct device *device)
{
	struct net_device *net = container_of(device, struct net_device, device);

	net->is_configured = false;
	net->pending = 0;
	device_kick(device, NET_QUEUE_RX); /* the loop thread starts or stops to watch the TAP */
}

static const struct device_ops ops = { .config_read = config_read, .activate = on_change, .reset = on_change };

/* ---- to the guest ---- */

/* What the host may leave to the guest: only what its driver acknowledged, and segments only with checksums. */
static unsigned int offload_flags(const struct net_device *net)
{
	unsigned int flags = 0;

	if (!has(net, VIRTIO_NET_F_GUEST_CSUM))
		return 0;
	flags |= TUN_F_CSUM;
	if (has(net, VIRTIO_NET_F_GUEST_TSO4))
		flags |= TUN_F_TSO4;
	if (has(net, VIRTIO_NET_F_GUEST_TSO6))
		flags |= TUN_F_TSO6;
	return flags;
}

static bool is_segment_allowed(const struct net_device *net, uint8_t gso_type, unsigned int tso4, unsigned int tso6)
{
	switch (gso_type) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return true;
	case VIRTIO_NET_HDR_GSO_TCPV4:
		return has(net, tso4);
	case VIRTIO_NET_HDR_GSO_TCPV6:
		return has(net, tso6);
	default:
		return false;
	}
}

/* A frame that was queued in the TAP for another driver, with what that one acknowledged, is none for this. */
static bool accept_from_host(const struct net_device *net, struct virtio_net_hdr_v1 *header)
{
	if (!is_segment_allowed(net, header->gso_type, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6))
		return false;
	if (has(net, VIRTIO_NET_F_GUEST_CSUM)) {
		header->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID;
		return true;
	}
	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		return false;
	header->flags = 0;
	return true;
}

enum read_result { READ_FRAME, READ_DROPPED, READ_NONE };

static enum read_result read_frame(struct net_device *net)
{
	struct virtio_net_hdr_v1 header;
	ssize_t n = read(net->fd, net->frame, sizeof(net->frame));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return READ_NONE;
	if (n <= 0) {
		net->is_gone = true;
		log_warn("the TAP of a VM is gone", "errno", n < 0 ? strerrorname_np(errno) : "EOF");
		return READ_NONE;
	}
	if ((size_t) n < NET_HEADER_SIZE + NET_ETHERNET_SIZE || (size_t) n > sizeof(net->frame)) {
		net->stats.rx_invalid++;
		return READ_DROPPED;
	}
	memcpy(&header, net->frame, sizeof(header));
	if (!accept_from_host(net, &header)) {
		net->stats.rx_invalid++;
		return READ_DROPPED;
	}
	header.num_buffers = 1;
	memcpy(net->frame, &header, sizeof(header));
	net->pending = (size_t) n;
	net->has_waited = false;
	return READ_FRAME;
}

/* DELIVER_FEW: there are buffers, too few; DELIVER_NEVER: more of them would not help. */
enum deliver_result { DELIVERED, DELIVER_EMPTY, DELIVER_FEW, DELIVER_NEVER };

/* The first buffer; those that hold not even the header are given back. */
static bool pop_first(struct net_device *net, struct chain *ret)
{
	struct queue *queue = &net->device.queues[NET_QUEUE_RX];

	for (unsigned int i = 0; i < queue->n; i++) {
		if (!device_pop(&net->device, NET_QUEUE_RX, ret))
			return false;
		if (!ret->is_bad && ret->writable >= NET_HEADER_SIZE)
			return true;
		queue_push(queue, ret->head, 0);
	}
	if (queue->is_ready) /* one that never was has no entries either, and nothing to come back for */
		device_kick(&net->device, NET_QUEUE_RX); /* a driver that adds such without end has its turn like others */
	return false;
}

static enum deliver_result deliver_single(struct net_device *net)
{
	struct queue *queue = &net->device.queues[NET_QUEUE_RX];
	struct chain chain;

	if (!pop_first(net, &chain))
		return DELIVER_EMPTY;
	if (chain.writable < net->pending) {
		queue_unpop(queue, 1);
		return DELIVER_NEVER;
	}
	(void) chain_write(&chain, 0, net->frame, net->pending);
	queue_push(queue, chain.head, (uint32_t) net->pending);
	return DELIVERED;
}

/* Over as many buffers as it takes. They become used at once when all of the frame lies in them, or all go back. */
static enum deliver_result deliver_merged(struct net_device *net)
{
	struct queue *queue = &net->device.queues[NET_QUEUE_RX];
	const size_t count_at = offsetof(struct virtio_net_hdr_v1, num_buffers);
	struct chain first, more, *chain = &first;
	struct queue_used used[QUEUE_SIZE_MAX];
	uint16_t n = 0;
	size_t done = 0;

	if (!pop_first(net, &first))
		return DELIVER_EMPTY;
	for (;;) {
		size_t size = (size_t) MIN(chain->writable, (uint64_t) (net->pending - done));

		used[n].head = chain->head;
		/* a later buffer that is not RAM takes less or nothing; that is how its driver wanted it */
		used[n].written = (uint32_t) chain_write(chain, 0, net->frame + done, size);
		n++;
		done += size;
		if (done == net->pending)
			break;
		chain = &more;
		/* the driver may add buffers all the time: the queue's size is the bound */
		if (n == queue->n || !device_pop(&net->device, NET_QUEUE_RX, chain)) {
			queue_unpop(queue, n);
			return n == queue->n ? DELIVER_NEVER : DELIVER_FEW;
		}
	}
	(void) chain_write(&first, count_at, &n, sizeof(n));
	queue_push_all(queue, used, n);
	return DELIVERED;
}

/* True when the frame is dealt with, false when it waits for buffers. It waits once: the next time that the driver
 * adds some and they are too few again, it is dropped. */
static bool deliver(struct net_device *net)
{
	enum deliver_result result = has(net, VIRTIO_NET_F_MRG_RXBUF) ? deliver_merged(net) : deliver_single(net);

	switch (result) {
	case DELIVERED:
		net->stats.rx_frames++;
		net->stats.rx_bytes += net->pending - NET_HEADER_SIZE;
		rate_charge(&net->to_guest, 1, net->pending - NET_HEADER_SIZE);
		break;
	case DELIVER_EMPTY:
		return false;
	case DELIVER_FEW:
		if (!net->has_waited) {
			net->has_waited = true;
			return false;
		}
		net->stats.rx_no_room++;
		break;
	case DELIVER_NEVER:
		net->stats.rx_no_room++;
		break;
	}
	net->pending = 0;
	return true;
}

static void on_to_guest_timer(void *data);
static void on_from_guest_timer(void *data);

/* Whether the limit lets one more begin; else comes back when it does. */
static bool may_go(struct net_device *net, struct rate *rate, struct loop_timer *timer, loop_timer_fn fn)
{
	int64_t wait;

	if (timer->armed)
		return false;
	wait = rate_wait_usec(rate, net->clock());
	if (wait == 0)
		return true;
	net->stats.throttled++;
	loop_timer_arm(net->loop, timer, wait, fn, net);
	return false;
}

static void receive(struct net_device *net)
{
	for (int turns = 0; turns < RX_TURN_MAX && !net->is_gone; turns++) {
		if (net->pending == 0) {
			enum read_result result;

			if (!may_go(net, &net->to_guest, &net->to_guest_timer, on_to_guest_timer))
				break;
			result = read_frame(net);
			if (result == READ_NONE)
				break;
			if (result == READ_DROPPED)
				continue;
		}
		if (!deliver(net))
			break;
	}
	device_signal(&net->device, NET_QUEUE_RX);
}

/* ---- from the guest ---- */

static bool accept_from_guest(struct net_device *net, struct virtio_net_hdr_v1 *header)
{
	/* a bit that means nothing here is to be ignored */
	header->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
	header->num_buffers = 0;
	if ((header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && !has(net, VIRTIO_NET_F_CSUM))
		return false;
	if (!is_segment_allowed(net, header->gso_type, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6))
		return false;
	return header->gso_type == VIRTIO_NET_HDR_GSO_NONE || (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM);
}

/* What must not change between judging and sending. */
struct frame_head {
	struct virtio_net_hdr_v1 header;
	uint8_t to[NET_MAC_SIZE], from[NET_MAC_SIZE], type[2];
};
static_assert(sizeof(struct frame_head) == NET_HEADER_SIZE + NET_ETHERNET_SIZE, "no padding");

static void send_frame(struct net_device *net, const struct chain *chain)
{
	struct iovec iov[1 + QUEUE_SIZE_MAX];
	struct frame_head head;
	uint64_t rest;
	unsigned int n = 0;

	if (chain->is_bad || chain->readable < sizeof(head) || chain->readable > sizeof(net->frame) ||
		chain_read(chain, 0, &head, sizeof(head)) != sizeof(head) || !accept_from_guest(net, &head.header)) {
		net->stats.tx_invalid++;
		return;
	}
	if (!net->may_forge_mac && memcmp(head.from, net->mac, sizeof(head.from)) != 0) {
		net->stats.tx_wrong_mac++;
		return;
	}
	rest = chain->readable - sizeof(head);
	iov[0] = (struct iovec) { .iov_base = &head, .iov_len = sizeof(head) };
	if (rest > 0)
		n = chain_slice(chain, false, sizeof(head), rest, iov + 1);
	if (writev(net->fd, iov, (int) n + 1) < 0) {
		net->stats.tx_refused++;
		return;
	}
	net->stats.tx_frames++;
	net->stats.tx_bytes += chain->readable - NET_HEADER_SIZE;
}

static void transmit(struct net_device *net)
{
	struct device *device = &net->device;
	struct chain chain;
	int turns = 0;

	while (turns < TX_TURN_MAX && queue_has_work(&device->queues[NET_QUEUE_TX])) {
		if (!may_go(net, &net->from_guest, &net->from_guest_timer, on_from_guest_timer))
			break;
		if (!device_pop(device, NET_QUEUE_TX, &chain))
			break;
		turns++;
		send_frame(net, &chain);
		/* what is dropped costs as well: a guest cannot make us look at rubbish without end */
		rate_charge(&net->from_guest, 1, MIN(chain.readable, (uint64_t) NET_FRAME_MAX));
		queue_push(&device->queues[NET_QUEUE_TX], chain.head, 0);
	}
	device_signal(device, NET_QUEUE_TX);
	if (turns == TX_TURN_MAX)
		device_kick(device, NET_QUEUE_TX);
}

/* ---- turns of the loop ---- */

static void watch(struct net_device *net)
{
	bool wants_frames = device_is_active(&net->device) && net->pending == 0 && !net->to_guest_timer.armed;

	if (net->is_gone) /* or its error would be told for ever */
		loop_remove(net->loop, &net->tap);
	else
		loop_watch(net->loop, &net->tap, wants_frames ? EPOLLIN : 0);
}

static void configure(struct net_device *net)
{
	int r;

	if (net->is_configured || net->is_gone)
		return;
	r = net->io->set_offload(net->fd, offload_flags(net));
	if (r < 0) /* frames with offloads of before are then dropped as invalid */
		log_warn("a TAP does not take offloads", "errno", strerrorname_np(-r));
	net->is_configured = true;
}

static void turn(struct net_device *net, bool to_guest, bool from_guest)
{
	(void) pthread_mutex_lock(&net->device.lock);
	if (device_is_active(&net->device)) {
		configure(net);
		if (to_guest)
			receive(net);
		if (from_guest)
			transmit(net);
	}
	watch(net);
	(void) pthread_mutex_unlock(&net->device.lock);
}

static void on_tap(void *data, uint32_t events)
{
	struct net_device *net = data;

	/* without a driver nobody reads, and an error would be told again and again */
	if (!(events & EPOLLIN) && (events & (EPOLLERR | EPOLLHUP))) {
		(void) pthread_mutex_lock(&net->device.lock);
		net->is_gone = true;
		watch(net);
		(void) pthread_mutex_unlock(&net->device.lock);
		log_warn("the TAP of a VM is gone", "errno", "EPOLLERR");
		return;
	}
	turn(net, true, false);
}

static void on_rx_notify(void *data, uint32_t events)
{
	struct net_device *net = data;
	uint64_t count;

	(void) events;
	(void) !read(net->device.notify_fds[NET_QUEUE_RX], &count, sizeof(count)); /* only clears it */
	turn(net, true, false);
}

static void on_tx_notify(void *data, uint32_t events)
{
	struct net_device *net = data;
	uint64_t count;

	(void) events;
	(void) !read(net->device.notify_fds[NET_QUEUE_TX], &count, sizeof(count)); /* only clears it */
	turn(net, false, true);
}

static void on_to_guest_timer(void *data)
{
	turn(data, true, false);
}

static void on_from_guest_timer(void *data)
{
	turn(data, false, true);
}

int net_init(struct net_device *net, struct loop *loop, const struct memory *memory, int fd,
	const struct net_config *config)
{
	struct device_config device = { .ops = &ops, .id = VIRTIO_ID_NET, .n_queues = 2, .queue_size = QUEUE_SIZE,
		.features = BIT(VIRTIO_NET_F_MAC) | BIT(VIRTIO_NET_F_MRG_RXBUF) | BIT(VIRTIO_NET_F_CSUM) |
			BIT(VIRTIO_NET_F_GUEST_CSUM) | BIT(VIRTIO_NET_F_HOST_TSO4) | BIT(VIRTIO_NET_F_HOST_TSO6) |
			BIT(VIRTIO_NET_F_GUEST_TSO4) | BIT(VIRTIO_NET_F_GUEST_TSO6) };
	int r;

	*net = (struct net_device) { .loop = loop, .fd = -1, .io = config->io ? config->io : &tap_io,
		.may_forge_mac = config->may_forge_mac, .tap = LOOP_SOURCE_NULL,
		.notify = { LOOP_SOURCE_NULL, LOOP_SOURCE_NULL }, .clock = clock_monotonic_usec };
	memcpy(net->mac, config->mac, sizeof(net->mac));
	rate_init(&net->to_guest, &config->to_guest, net->clock());
	rate_init(&net->from_guest, &config->from_guest, net->clock());
	r = device_init(&net->device, memory, &device);
	if (r == 0)
		r = net->io->set_header_size(fd, (int) NET_HEADER_SIZE);
	if (r == 0)
		r = net->io->set_offload(fd, 0);
	if (r == 0)
		r = fd_set_nonblock(fd);
	if (r == 0)
		r = loop_add(loop, &net->notify[0], net->device.notify_fds[0], EPOLLIN, on_rx_notify, net);
	if (r == 0)
		r = loop_add(loop, &net->notify[1], net->device.notify_fds[1], EPOLLIN, on_tx_notify, net);
	if (r == 0)
		r = loop_add(loop, &net->tap, fd, 0, on_tap, net);
	if (r == 0)
		net->fd = fd;
	return r;
}

void net_deinit(struct net_device *net)
{
	if (!net->loop)
		return;
	loop_timer_disarm(net->loop, &net->to_guest_timer);
	loop_timer_disarm(net->loop, &net->from_guest_timer);
	loop_remove(net->loop, &net->tap);
	loop_remove(net->loop, &net->notify[0]);
	loop_remove(net->loop, &net->notify[1]);
	(void) fd_close(net->fd);
	device_deinit(&net->device);
	net->loop = NULL;
}

struct net_stats net_stats(struct net_device *net)
{
	struct net_stats stats;

	(void) pthread_mutex_lock(&net->device.lock);
	stats = net->stats;
	(void) pthread_mutex_unlock(&net->device.lock);
	return stats;
}
