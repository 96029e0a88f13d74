/* SPDX-License-Identifier: Apache-2.0
 *
 * See vsock-connection.h.
 */
#include "virtio/vsock-connection.h"

#include <assert.h>

static_assert(sizeof(struct virtio_vsock_hdr) == VSOCK_HEADER_SIZE, "the header as virtio has it");

uint32_t vsock_credit(const struct vsock_connection *connection)
{
	uint32_t in_flight = connection->sent - connection->peer_fwd_cnt;

	/* a guest that counts wrongly (or shrinks its buffer) has no room, whatever the difference says */
	return in_flight >= connection->peer_buf_alloc ? 0 : connection->peer_buf_alloc - in_flight;
}

void vsock_note_credit(struct vsock_connection *connection, const struct virtio_vsock_hdr *header)
{
	connection->peer_buf_alloc = header->buf_alloc;
	connection->peer_fwd_cnt = header->fwd_cnt;
}

bool vsock_accept_data(struct vsock_connection *connection, uint32_t size)
{
	uint32_t held = connection->received - connection->advertised;

	if (held > VSOCK_WINDOW || size > VSOCK_WINDOW - held)
		return false;
	connection->received += size;
	return true;
}

void vsock_note_forwarded(struct vsock_connection *connection, uint32_t size)
{
	connection->forwarded += size;
	if (connection->forwarded - connection->advertised >= VSOCK_WINDOW / 4)
		connection->due |= VSOCK_DUE_CREDIT_UPDATE;
}

bool vsock_may_send(const struct vsock_connection *connection)
{
	return connection->state == VSOCK_OPEN && !connection->host_eof &&
		!(connection->guest_shut & VSOCK_SHUT_RECEIVE);
}

unsigned int vsock_shut_wanted(const struct vsock_connection *connection)
{
	return (connection->host_eof ? VSOCK_SHUT_SEND : 0) | (connection->host_deaf ? VSOCK_SHUT_RECEIVE : 0);
}

unsigned int vsock_next_due(struct vsock_connection *connection)
{
	unsigned int first = connection->due & (~connection->due + 1);

	if (first != VSOCK_DUE_DATA)
		connection->due &= ~first;
	return first;
}

static uint16_t operation(unsigned int due)
{
	switch (due) {
	case VSOCK_DUE_REQUEST:
		return VIRTIO_VSOCK_OP_REQUEST;
	case VSOCK_DUE_RESPONSE:
		return VIRTIO_VSOCK_OP_RESPONSE;
	case VSOCK_DUE_CREDIT_UPDATE:
		return VIRTIO_VSOCK_OP_CREDIT_UPDATE;
	case VSOCK_DUE_CREDIT_REQUEST:
		return VIRTIO_VSOCK_OP_CREDIT_REQUEST;
	case VSOCK_DUE_DATA:
		return VIRTIO_VSOCK_OP_RW;
	case VSOCK_DUE_SHUTDOWN:
		return VIRTIO_VSOCK_OP_SHUTDOWN;
	default:
		return VIRTIO_VSOCK_OP_RST;
	}
}

void vsock_fill_header(struct vsock_connection *connection, uint32_t guest_cid, unsigned int due, uint32_t size,
	struct virtio_vsock_hdr *ret)
{
	*ret = (struct virtio_vsock_hdr) { .src_cid = 2, .dst_cid = guest_cid, .src_port = connection->host_port,
		.dst_port = connection->guest_port, .len = size, .type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = operation(due), .buf_alloc = VSOCK_WINDOW, .fwd_cnt = connection->forwarded };
	if (due == VSOCK_DUE_SHUTDOWN) {
		connection->told_shut |= vsock_shut_wanted(connection);
		ret->flags = connection->told_shut;
	}
	connection->sent += size;
	/* every packet carries our credit */
	connection->advertised = connection->forwarded;
	connection->due &= ~VSOCK_DUE_CREDIT_UPDATE;
}
