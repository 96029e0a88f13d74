/* SPDX-License-Identifier: Apache-2.0
 *
 * virtio-net over a TAP descriptor: one pair of queues, mergeable buffers, checksum and TCP segmentation offload as far
 * as the driver acknowledged them, a pinned MAC address, rate limits in both directions.
 *
 * Everything is done on the loop thread and nothing waits. What the host does not take, what the guest has no room for
 * and what makes no sense is dropped and counted, as on a wire. The header and the first bytes of a frame from the
 * guest are copied before they are judged, so what is judged is what is sent.
 */
#pragma once

#include "loop.h"
#include "rate.h"
#include "virtio/device.h"

#define NET_QUEUE_RX 0 /* to the guest */
#define NET_QUEUE_TX 1 /* from the guest */
#define NET_MAC_SIZE 6
#define NET_HEADER_SIZE 12u
#define NET_ETHERNET_SIZE 14u
#define NET_FRAME_MAX (65536u + 64) /* the largest segment with its link header */

/* The ioctls of a TAP; a test puts others here. 0 or -errno. */
struct net_io {
	int (*set_header_size)(int fd, int size);
	int (*set_offload)(int fd, unsigned int flags);
};

struct net_config {
	uint8_t mac[NET_MAC_SIZE];
	bool may_forge_mac;             /* frames from the guest may have any source address */
	struct rate_config to_guest, from_guest;
	const struct net_io *io;        /* NULL: those of a TAP */
};

struct net_stats {
	uint64_t rx_frames, rx_bytes;   /* to the guest */
	uint64_t rx_no_room;            /* dropped: no buffers that hold it */
	uint64_t rx_invalid;            /* dropped: too short, or with an offload that the driver did not take */
	uint64_t tx_frames, tx_bytes;   /* from the guest */
	uint64_t tx_refused;            /* dropped: the host did not take it */
	uint64_t tx_invalid;            /* dropped: no frame, or with an offload that the driver did not take */
	uint64_t tx_wrong_mac;          /* dropped: another's source address */
	uint64_t throttled;             /* times that a limit made a direction wait */
};

struct net_device {
	struct device device;
	struct loop *loop;
	int fd;                         /* owned */
	const struct net_io *io;
	uint8_t mac[NET_MAC_SIZE];
	bool may_forge_mac;
	struct loop_source tap, notify[2];
	struct rate to_guest, from_guest;
	struct loop_timer to_guest_timer, from_guest_timer;
	int64_t (*clock)(void);         /* monotonic microseconds; a test puts another here */
	/* under the device's lock */
	bool is_configured;             /* the TAP does what this driver acknowledged */
	bool is_gone;                   /* the TAP failed for good */
	size_t pending;                 /* bytes of a frame that waits for buffers */
	bool has_waited;                /* it was too large for those that there were once */
	struct net_stats stats;
	uint8_t frame[NET_HEADER_SIZE + NET_FRAME_MAX];
};

/* Takes over `fd` on success: a TAP with IFF_VNET_HDR and IFF_NO_PI. 0 or -errno; net_deinit() in both cases. */
int net_init(struct net_device *net, struct loop *loop, const struct memory *memory, int fd,
	const struct net_config *config);
void net_deinit(struct net_device *net);
struct net_stats net_stats(struct net_device *net);
