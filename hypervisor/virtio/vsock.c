/* SPDX-License-Identifier: Apache-2.0
 *
 * See vsock.h. Packets and the table of connections.
 */
#include "virtio/vsock.h"

#include <errno.h>
#include <linux/virtio_ids.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/plant.h"

#define QUEUE_SIZE 256
#define TURN_MAX 256 /* packets in each direction before others of the loop have their turn */
#define HOST_CID 2u
#define HOST_PORT_FIRST (UINT32_C(1) << 30)
#define SWEEP_USEC USEC_PER_SEC
#define TOLD_USEC (30 * USEC_PER_SEC) /* a guest that gets little CPU may take seconds; one that never deals with it waits so long */
#define TOLD_LOOK_USEC (2 * USEC_PER_MSEC)

/* ---- the device ---- */

static void config_read(struct device *device, uint32_t offset, uint8_t *bytes, uint32_t len)
{
	struct vsock_device *vsock = container_of(device, struct vsock_device, device);
	struct virtio_vsock_config config = { .guest_cid = vsock->guest_cid };

	if (offset < sizeof(config))
		memcpy(bytes, (const uint8_t *) &config + offset, MIN(len, (uint32_t) sizeof(config) - offset));
}

/* On a vCPU thread. */
static void on_reset(struct device *device)
{
	struct vsock_device *vsock = container_of(device, struct vsock_device, device);

	vsock->was_reset = true;
	device_kick(device, VSOCK_QUEUE_TX);
}

static const struct device_ops ops = { .config_read = config_read, .reset = on_reset };

/* ---- the table ---- */

static unsigned int bucket_of(uint32_t guest_port, uint32_t host_port)
{
	uint64_t key = (uint64_t) guest_port << 32 | host_port;

	return (unsigned int) ((key * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

struct vsock_connection *vsock_find(struct vsock_device *vsock, uint32_t guest_port, uint32_t host_port)
{
	struct vsock_connection *connection;

	LIST_FOREACH(connection, &vsock->buckets[bucket_of(guest_port, host_port)], bucket)
		if (connection->guest_port == guest_port && connection->host_port == host_port)
			return connection;
	return NULL;
}

struct vsock_connection *vsock_add(struct vsock_device *vsock, enum vsock_state state, int fd)
{
	struct vsock_connection *connection;

	if (vsock->n_connections == VSOCK_CONNECTIONS_MAX)
		return NULL;
	connection = calloc(1, sizeof(*connection));
	if (!connection)
		return NULL;
	connection->vsock = vsock;
	connection->state = state;
	connection->fd = fd;
	connection->source.fd = -1;
	connection->out.max = VSOCK_WINDOW;
	TAILQ_INSERT_TAIL(&vsock->all, connection, all);
	vsock->n_connections++;
	return connection;
}

void vsock_list(struct vsock_connection *connection)
{
	struct vsock_device *vsock = connection->vsock;

	LIST_INSERT_HEAD(&vsock->buckets[bucket_of(connection->guest_port, connection->host_port)], connection, bucket);
	connection->is_listed = true;
}

static void unlist(struct vsock_connection *connection)
{
	if (connection->is_listed)
		LIST_REMOVE(connection, bucket);
	connection->is_listed = false;
}

static void unqueue(struct vsock_connection *connection)
{
	if (connection->is_queued)
		TAILQ_REMOVE(&connection->vsock->queue, connection, queue);
	connection->is_queued = false;
}

void vsock_free(struct vsock_connection *connection)
{
	struct vsock_device *vsock = connection->vsock;

	vsock_host_close(connection);
	unqueue(connection);
	unlist(connection);
	TAILQ_REMOVE(&vsock->all, connection, all);
	vsock->n_connections--;
	free(connection);
}

void vsock_queue(struct vsock_connection *connection, unsigned int due)
{
	connection->due |= due;
	if (connection->due == 0 || connection->is_queued)
		return;
	TAILQ_INSERT_TAIL(&connection->vsock->queue, connection, queue);
	connection->is_queued = true;
}

void vsock_reset_connection(struct vsock_connection *connection)
{
	if (connection->state == VSOCK_GREETING || connection->state == VSOCK_DRAINING) {
		vsock_free(connection);
		return;
	}
	vsock_host_close(connection);
	connection->state = VSOCK_RESETTING;
	connection->deadline_usec = 0;
	connection->due = 0;
	vsock_queue(connection, VSOCK_DUE_RST);
}

static void free_all(struct vsock_device *vsock)
{
	struct vsock_connection *connection;

	while ((connection = TAILQ_FIRST(&vsock->all)))
		vsock_free(connection);
	vsock->n_replies = 0;
}

/* ---- packets to the guest ---- */

static bool add_reply(struct vsock_device *vsock, const struct virtio_vsock_hdr *header)
{
	struct vsock_reply *reply;

	if (vsock->n_replies == VSOCK_REPLIES_MAX)
		return false;
	reply = &vsock->replies[(vsock->first_reply + vsock->n_replies++) % VSOCK_REPLIES_MAX];
	*reply = (struct vsock_reply) { .host_cid = header->dst_cid, .guest_port = header->src_port,
		.host_port = header->dst_port, .type = header->type };
	return true;
}

static void fill_reply(struct vsock_device *vsock, struct virtio_vsock_hdr *ret)
{
	struct vsock_reply reply = vsock->replies[vsock->first_reply];

	vsock->first_reply = (vsock->first_reply + 1) % VSOCK_REPLIES_MAX;
	vsock->n_replies--;
	*ret = (struct virtio_vsock_hdr) { .src_cid = reply.host_cid, .dst_cid = vsock->guest_cid,
		.src_port = reply.host_port, .dst_port = reply.guest_port, .type = reply.type,
		.op = VIRTIO_VSOCK_OP_RST };
}

/* Fills the chain with data of the connection. 0: there is none now, or no credit for it. */
static uint32_t fill_data(struct vsock_connection *connection, const struct chain *chain)
{
	struct iovec iov[QUEUE_SIZE_MAX];
	uint32_t room = (uint32_t) MIN(chain->writable - VSOCK_HEADER_SIZE, (uint64_t) VSOCK_PACKET_MAX);
	uint32_t size = MIN(vsock_credit(connection), room);
	unsigned int n;

	connection->due &= ~VSOCK_DUE_DATA;
	if (!vsock_may_send(connection))
		return 0;
	if (size == 0) {
		connection->due |= VSOCK_DUE_CREDIT_REQUEST;
		return 0;
	}
	n = chain_slice(chain, true, VSOCK_HEADER_SIZE, size, iov);
	size = n > 0 ? vsock_host_receive(connection, iov, n) : 0;
	if (size > 0) /* probably more: it stays due until the socket is empty */
		connection->due |= VSOCK_DUE_DATA;
	return size;
}

/* Fills the chain with the next packet of the connection. The bytes, 0: nothing was to be sent. */
static uint32_t fill_packet(struct vsock_connection *connection, const struct chain *chain,
	struct virtio_vsock_hdr *header)
{
	unsigned int due;

	while ((due = vsock_next_due(connection)) != 0) {
		uint32_t size = 0;

		if (due == VSOCK_DUE_DATA) {
			size = fill_data(connection, chain);
			if (size == 0)
				continue;
		}
		vsock_fill_header(connection, connection->vsock->guest_cid, due, size, header);
		return VSOCK_HEADER_SIZE + size;
	}
	return 0;
}

/* One packet of whoever is next. 0: nobody had anything to send after all. */
static uint32_t fill_next(struct vsock_device *vsock, const struct chain *chain)
{
	struct virtio_vsock_hdr header;
	struct vsock_connection *connection;
	uint32_t size = 0;

	if (vsock->n_replies > 0) {
		fill_reply(vsock, &header);
		(void) chain_write(chain, 0, &header, sizeof(header));
		return VSOCK_HEADER_SIZE;
	}
	while (size == 0 && (connection = TAILQ_FIRST(&vsock->queue))) {
		unqueue(connection);
		size = fill_packet(connection, chain, &header);
		if (size > 0)
			(void) chain_write(chain, 0, &header, sizeof(header));
		if (connection->state == VSOCK_RESETTING && connection->due == 0) {
			vsock_free(connection);
			continue;
		}
		vsock_queue(connection, 0); /* at the tail, when more is due: everybody in turn */
		vsock_host_watch(connection);
	}
	return size;
}

/* Sends what is due as long as the guest has buffers. True when there may be more of both. */
static bool pump(struct vsock_device *vsock)
{
	struct device *device = &vsock->device;
	struct queue *queue = &device->queues[VSOCK_QUEUE_RX];
	struct chain chain;
	int turns = 0;

	while (vsock->n_replies > 0 || !TAILQ_EMPTY(&vsock->queue)) {
		uint32_t size;

		if (turns++ == TURN_MAX)
			return true;
		if (!device_pop(device, VSOCK_QUEUE_RX, &chain))
			break;
		/* a buffer that holds no packet, or none with data */
		if (chain.is_bad || chain.writable <= VSOCK_HEADER_SIZE) {
			queue_push(queue, chain.head, 0);
			continue;
		}
		size = fill_next(vsock, &chain);
		if (size == 0)
			queue_unpop(queue, 1);
		else
			queue_push(queue, chain.head, size);
	}
	device_signal(device, VSOCK_QUEUE_RX);
	return false;
}

/* ---- packets from the guest ---- */

static void handle_request(struct vsock_device *vsock, const struct virtio_vsock_hdr *header)
{
	struct vsock_connection *connection;
	int fd = vsock->n_connections == VSOCK_CONNECTIONS_MAX ? -EAGAIN :
		vsock_host_connect(vsock, header->src_port, header->dst_port);

	connection = fd < 0 ? NULL : vsock_add(vsock, VSOCK_OPEN, fd);
	if (!connection) {
		vsock->refused++;
		(void) (fd < 0 ? fd : fd_close(fd));
		(void) add_reply(vsock, header); /* there is room: handle_tx() saw to it */
		return;
	}
	connection->guest_port = header->src_port;
	connection->host_port = header->dst_port;
	vsock_note_credit(connection, header);
	vsock_list(connection);
	vsock_queue(connection, VSOCK_DUE_RESPONSE);
	vsock_host_watch(connection);
}

static void handle_data(struct vsock_connection *connection, const struct chain *chain, uint32_t size)
{
	struct iovec iov[QUEUE_SIZE_MAX];
	unsigned int n = size == 0 ? 0 : chain_slice(chain, false, VSOCK_HEADER_SIZE, size, iov);

	if (connection->state != VSOCK_OPEN || (connection->guest_shut & VSOCK_SHUT_SEND) ||
		(size > 0 && n == 0) || !vsock_accept_data(connection, size)) {
		vsock_reset_connection(connection);
		return;
	}
	if (size > 0)
		vsock_host_send(connection, iov, n, size);
}

static void handle_reset(struct vsock_connection *connection)
{
	if (connection->state != VSOCK_OPEN || buf_size(&connection->out) == 0) {
		vsock_free(connection);
		return;
	}
	/* the guest gave up waiting for our RST; what it sent before still belongs to the host */
	unlist(connection);
	unqueue(connection);
	connection->due = 0;
	connection->state = VSOCK_DRAINING;
	connection->guest_shut = VSOCK_SHUT_BOTH;
	vsock_host_drain(connection);
	vsock_host_watch(connection);
}

static void handle_known(struct vsock_connection *connection, const struct virtio_vsock_hdr *header,
	const struct chain *chain)
{
	if (connection->state == VSOCK_RESETTING && header->op != VIRTIO_VSOCK_OP_RST)
		return; /* crossed our RST */
	vsock_note_credit(connection, header);
	switch (header->op) {
	case VIRTIO_VSOCK_OP_RST:
		handle_reset(connection);
		return;
	case VIRTIO_VSOCK_OP_RESPONSE:
		if (connection->state == VSOCK_REQUESTED)
			vsock_host_opened(connection);
		else
			vsock_reset_connection(connection);
		return;
	case VIRTIO_VSOCK_OP_RW:
		handle_data(connection, chain, header->len);
		return;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		if (connection->state != VSOCK_OPEN) {
			vsock_reset_connection(connection);
			return;
		}
		connection->guest_shut |= header->flags & VSOCK_SHUT_BOTH;
		vsock_host_shutdown(connection);
		return;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		vsock_queue(connection, VSOCK_DUE_CREDIT_UPDATE);
		vsock_host_watch(connection);
		return;
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		vsock_host_watch(connection);
		return;
	default:
		vsock_reset_connection(connection);
		return;
	}
}

/* Every field comes from the one copy of the header. */
static void handle_packet(struct vsock_device *vsock, const struct chain *chain)
{
	struct vsock_connection *connection;
	struct virtio_vsock_hdr header;

	if (chain->is_bad || chain_read(chain, 0, &header, sizeof(header)) != sizeof(header))
		return; /* there is nobody to tell */
	if (header.src_cid != vsock->guest_cid && !PLANTED(VSOCK_CID))
		return; /* not the guest's name: not answered either */
	if (header.dst_cid != HOST_CID || header.type != VIRTIO_VSOCK_TYPE_STREAM) {
		if (header.op != VIRTIO_VSOCK_OP_RST)
			(void) add_reply(vsock, &header);
		return;
	}
	connection = vsock_find(vsock, header.src_port, header.dst_port);
	if (connection && header.op == VIRTIO_VSOCK_OP_RW && header.len > chain->readable - VSOCK_HEADER_SIZE)
		vsock_reset_connection(connection);
	else if (connection)
		handle_known(connection, &header, chain);
	else if (header.op == VIRTIO_VSOCK_OP_REQUEST)
		handle_request(vsock, &header);
	else if (header.op != VIRTIO_VSOCK_OP_RST)
		(void) add_reply(vsock, &header);
}

/* True when the guest may have sent more than one turn takes. */
static bool handle_tx(struct vsock_device *vsock)
{
	struct device *device = &vsock->device;
	struct chain chain;
	int turns = 0;

	/* with no room for an answer the guest has to take some first */
	while (vsock->n_replies < VSOCK_REPLIES_MAX) {
		if (turns++ == TURN_MAX)
			return true;
		if (!device_pop(device, VSOCK_QUEUE_TX, &chain))
			break;
		handle_packet(vsock, &chain);
		queue_push(&device->queues[VSOCK_QUEUE_TX], chain.head, 0);
	}
	device_signal(device, VSOCK_QUEUE_TX);
	return false;
}

/* ---- turns of the loop ---- */

bool vsock_enter(struct vsock_device *vsock)
{
	bool is_active;

	(void) pthread_mutex_lock(&vsock->device.lock);
	is_active = device_is_active(&vsock->device);
	if (!vsock->was_reset && is_active)
		return true;
	free_all(vsock);
	if (vsock->was_reset && is_active) /* a new life began meanwhile: it has the next turn */
		device_kick(&vsock->device, VSOCK_QUEUE_TX);
	vsock->was_reset = false;
	return false;
}

static void on_sweep(void *data);

void vsock_arm_sweep(struct vsock_device *vsock)
{
	if (!vsock->sweep.armed)
		loop_timer_arm(vsock->loop, &vsock->sweep, SWEEP_USEC, on_sweep, vsock);
}

void vsock_leave(struct vsock_device *vsock)
{
	if (!device_is_active(&vsock->device)) /* the driver broke a ring: hosts are not to wait for it */
		free_all(vsock);
	if (vsock->n_connections > 0)
		vsock_arm_sweep(vsock);
	(void) pthread_mutex_unlock(&vsock->device.lock);
}

void vsock_serve(struct vsock_device *vsock)
{
	bool more_tx = handle_tx(vsock), more_rx = pump(vsock);

	device_signal(&vsock->device, VSOCK_QUEUE_TX);
	device_signal(&vsock->device, VSOCK_QUEUE_RX);
	/* room for answers has come back, or the turn was over: the next one goes on */
	if (more_tx || (vsock->n_replies < VSOCK_REPLIES_MAX && queue_has_work(&vsock->device.queues[VSOCK_QUEUE_TX])))
		device_kick(&vsock->device, VSOCK_QUEUE_TX);
	if (more_rx)
		device_kick(&vsock->device, VSOCK_QUEUE_RX);
}

static void on_sweep(void *data)
{
	struct vsock_device *vsock = data;
	struct vsock_connection *connection, *next;
	int64_t now = clock_monotonic_usec();

	if (vsock_enter(vsock)) {
		for (connection = TAILQ_FIRST(&vsock->all); connection; connection = next) {
			next = TAILQ_NEXT(connection, all);
			if (connection->deadline_usec != 0 && connection->deadline_usec < now)
				vsock_reset_connection(connection);
		}
		vsock_serve(vsock);
	}
	if (!vsock->is_telling)
		loop_watch(vsock->loop, &vsock->listener, EPOLLIN); /* it rests when descriptors run out */
	vsock_leave(vsock);
}

static void on_notify(void *data, uint32_t events)
{
	struct vsock_device *vsock = data;
	uint64_t count;

	(void) events;
	/* only clears them: both queues are looked at in any case */
	(void) !read(vsock->device.notify_fds[VSOCK_QUEUE_RX], &count, sizeof(count));
	(void) !read(vsock->device.notify_fds[VSOCK_QUEUE_TX], &count, sizeof(count));
	if (vsock_enter(vsock))
		vsock_serve(vsock);
	vsock_leave(vsock);
}

int vsock_init(struct vsock_device *vsock, struct loop *loop, const struct memory *memory, uint32_t guest_cid,
	const char *path, int listen_fd)
{
	struct device_config config = { .ops = &ops, .id = VIRTIO_ID_VSOCK, .n_queues = 3, .queue_size = QUEUE_SIZE };
	int r;

	*vsock = (struct vsock_device) { .loop = loop, .guest_cid = guest_cid, .listen_fd = -1,
		.listener = LOOP_SOURCE_NULL, .notify = { LOOP_SOURCE_NULL, LOOP_SOURCE_NULL },
		.next_host_port = HOST_PORT_FIRST,
		.io = { .read = vsock_real_read, .write = vsock_real_write, .connect = vsock_real_connect } };
	TAILQ_INIT(&vsock->all);
	TAILQ_INIT(&vsock->queue);
	if (strlen(path) >= sizeof(vsock->path))
		return -ENAMETOOLONG;
	memcpy(vsock->path, path, strlen(path) + 1);
	r = device_init(&vsock->device, memory, &config);
	for (int i = 0; r == 0 && i < 2; i++)
		r = loop_add(loop, &vsock->notify[i], vsock->device.notify_fds[i], EPOLLIN, on_notify, vsock);
	if (r == 0)
		r = fd_set_nonblock(listen_fd);
	if (r == 0)
		r = loop_add(loop, &vsock->listener, listen_fd, EPOLLIN, vsock_on_listener, vsock);
	if (r < 0)
		return r;
	vsock->listen_fd = listen_fd;
	return 0;
}

void vsock_deinit(struct vsock_device *vsock)
{
	if (!vsock->loop)
		return;
	free_all(vsock);
	loop_timer_disarm(vsock->loop, &vsock->sweep);
	loop_timer_disarm(vsock->loop, &vsock->told);
	loop_remove(vsock->loop, &vsock->listener);
	loop_remove(vsock->loop, &vsock->notify[0]);
	loop_remove(vsock->loop, &vsock->notify[1]);
	(void) fd_close(vsock->listen_fd);
	device_deinit(&vsock->device);
	vsock->loop = NULL;
}

/* Linux's driver handles an event, then adds its buffer again. */
static void on_told(void *data)
{
	struct vsock_device *vsock = data;
	struct device *device = &vsock->device;

	(void) pthread_mutex_lock(&device->lock);
	vsock->is_telling = device_is_active(device) && device->queues[VSOCK_QUEUE_EVENT].is_ready &&
		queue_added(&device->queues[VSOCK_QUEUE_EVENT]) == vsock->told_at &&
		clock_monotonic_usec() < vsock->told_until_usec;
	(void) pthread_mutex_unlock(&device->lock);
	if (vsock->is_telling)
		loop_timer_arm(vsock->loop, &vsock->told, TOLD_LOOK_USEC, on_told, vsock);
	else
		loop_watch(vsock->loop, &vsock->listener, EPOLLIN);
}

bool vsock_tell_reset(struct vsock_device *vsock)
{
	const struct virtio_vsock_event event = { .id = VIRTIO_VSOCK_EVENT_TRANSPORT_RESET };
	struct device *device = &vsock->device;
	struct chain chain;
	bool told = false;

	(void) pthread_mutex_lock(&device->lock);
	if (device_pop(device, VSOCK_QUEUE_EVENT, &chain)) {
		size_t n = chain.is_bad ? 0 : chain_write(&chain, 0, &event, sizeof(event));

		queue_push(&device->queues[VSOCK_QUEUE_EVENT], chain.head, (uint32_t) n);
		device_signal(device, VSOCK_QUEUE_EVENT);
		told = n == sizeof(event);
	}
	if (told)
		vsock->told_at = queue_added(&device->queues[VSOCK_QUEUE_EVENT]);
	(void) pthread_mutex_unlock(&device->lock);
	if (!told)
		return false;
	vsock->is_telling = true;
	vsock->told_until_usec = clock_monotonic_usec() + TOLD_USEC;
	loop_watch(vsock->loop, &vsock->listener, 0);
	loop_timer_arm(vsock->loop, &vsock->told, TOLD_LOOK_USEC, on_told, vsock);
	return true;
}

struct vsock_stats vsock_stats(struct vsock_device *vsock)
{
	struct vsock_stats stats;

	(void) pthread_mutex_lock(&vsock->device.lock);
	stats = (struct vsock_stats) { .connections = vsock->n_connections, .refused = vsock->refused };
	(void) pthread_mutex_unlock(&vsock->device.lock);
	return stats;
}
