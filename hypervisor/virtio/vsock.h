/* SPDX-License-Identifier: Apache-2.0
 *
 * virtio-vsock bridged to unix sockets (vmm.proto, VmmVsock).
 *
 * Bounds: VSOCK_CONNECTIONS_MAX connections, VSOCK_WINDOW bytes held per connection on their way to the host,
 * none on their way to the guest (they are read from the socket into the guest's buffers, and only as much as
 * its credit allows), VSOCK_REPLIES_MAX resets for packets of no connection; when those wait for room, no
 * further packet of the guest is looked at. Nothing blocks: a connect() that would is a reset.
 *
 * All of it runs on the loop thread under the device's lock. A reset by the driver comes on a vCPU thread and
 * only leaves a mark; the loop thread closes the old life's connections before it does anything else.
 */
#pragma once

#include "virtio/device.h"
#include "virtio/vsock-connection.h"

#define VSOCK_CONNECTIONS_MAX 1024
#define VSOCK_REPLIES_MAX 256
#define VSOCK_BUCKETS 256
#define VSOCK_PATH_MAX 108

#define VSOCK_QUEUE_RX 0 /* to the guest */
#define VSOCK_QUEUE_TX 1 /* from the guest */
#define VSOCK_QUEUE_EVENT 2

struct vsock_stats {
	uint64_t connections, refused;
};

/* The three calls that touch the host's sockets; a test puts others here. */
struct vsock_io {
	ssize_t (*read)(int fd, const struct iovec *iov, int n);
	ssize_t (*write)(int fd, const struct iovec *iov, int n);
	int (*connect)(const char *path); /* a connected socket, or -errno; never waits */
};

struct vsock_reply {
	uint64_t host_cid;
	uint32_t guest_port, host_port;
	uint16_t type;
};

struct vsock_device {
	struct device device;
	struct loop *loop;
	struct vsock_io io;
	uint32_t guest_cid;
	char path[VSOCK_PATH_MAX];
	int listen_fd;                     /* owned */
	struct loop_source listener, notify[2];
	struct loop_timer sweep;           /* deadlines of connections; also brings the listener back */
	struct loop_timer told;            /* see vsock_tell_reset() */
	bool is_telling;
	uint16_t told_at;
	int64_t told_until_usec;
	bool was_reset;                    /* set by the vCPU thread */

	unsigned int n_connections;
	TAILQ_HEAD(, vsock_connection) all;
	TAILQ_HEAD(, vsock_connection) queue; /* those with a packet due */
	LIST_HEAD(, vsock_connection) buckets[VSOCK_BUCKETS];
	uint32_t next_host_port;
	unsigned int first_reply, n_replies;
	struct vsock_reply replies[VSOCK_REPLIES_MAX];
	uint64_t refused;
	uint32_t denied_port;              /* the last that was refused for permission, and how many lines that made */
	unsigned int n_denied;
};

/* Takes over `listen_fd` on success. 0 or -errno; vsock_deinit() in both cases. */
int vsock_init(struct vsock_device *vsock, struct loop *loop, const struct memory *memory, uint32_t guest_cid,
	const char *path, int listen_fd);
void vsock_deinit(struct vsock_device *vsock);
/* After a restore: the connections stayed behind, and the guest is told so (an event of its own, 5.10.6.7). What it does
 * then ends all that it has, new ones too, so the host's are let in once it gave the event's buffer back, 5 s later at the
 * latest. False where there was no buffer for the event: its connections then end by their own time-outs. */
bool vsock_tell_reset(struct vsock_device *vsock);
/* Where ports of the host's side go on, so that a packet of before meets nobody. Others than such ports are left out. */
void vsock_set_next_port(struct vsock_device *vsock, uint32_t port);
struct vsock_stats vsock_stats(struct vsock_device *vsock);

/* ---- between vsock.c and vsock-host.c; lock held, loop thread ---- */

/* Begins and ends every turn on the loop thread. enter() returns false when the device serves nobody now or its
 * driver began anew: all connections are gone then, also the one that the caller came for. */
bool vsock_enter(struct vsock_device *vsock);
void vsock_leave(struct vsock_device *vsock);
/* All that packets call for, in both directions; at the end of each turn. */
void vsock_serve(struct vsock_device *vsock);
/* Sees to it that deadlines are looked at within a second. */
void vsock_arm_sweep(struct vsock_device *vsock);
/* NULL at the limit or without memory. */
struct vsock_connection *vsock_add(struct vsock_device *vsock, enum vsock_state state, int fd);
/* Makes it findable by its ports. */
void vsock_list(struct vsock_connection *connection);
struct vsock_connection *vsock_find(struct vsock_device *vsock, uint32_t guest_port, uint32_t host_port);
void vsock_free(struct vsock_connection *connection);
/* Adds packets that are due. */
void vsock_queue(struct vsock_connection *connection, unsigned int due);
/* Closes the host's side and tells the guest by RST; a connection that the guest does not know just goes. */
void vsock_reset_connection(struct vsock_connection *connection);

/* vsock-host.c */
int vsock_host_connect(struct vsock_device *vsock, uint32_t guest_port, uint32_t host_port);
void vsock_host_opened(struct vsock_connection *connection); /* the guest accepted */
/* Hands payload of a packet to the host. */
void vsock_host_send(struct vsock_connection *connection, const struct iovec *iov, unsigned int n, uint32_t size);
/* Reads for the guest. Bytes, 0 when there is nothing now (what is due has changed). */
uint32_t vsock_host_receive(struct vsock_connection *connection, const struct iovec *iov, unsigned int n);
/* The guest shut halves down. */
void vsock_host_shutdown(struct vsock_connection *connection);
/* Watches what there is to wait for now. */
/* The guest is done with it; what it sent before is the host's for a while. */
void vsock_host_drain(struct vsock_connection *connection);
void vsock_host_watch(struct vsock_connection *connection);
void vsock_host_close(struct vsock_connection *connection);
void vsock_on_listener(void *data, uint32_t events);
void vsock_on_socket(void *data, uint32_t events);
ssize_t vsock_real_read(int fd, const struct iovec *iov, int n);
ssize_t vsock_real_write(int fd, const struct iovec *iov, int n);
int vsock_real_connect(const char *path);
