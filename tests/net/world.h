/* SPDX-License-Identifier: Apache-2.0
 *
 * A small internet in network namespaces, for tests of node-agent/network. The calling process becomes the host: it
 * gets a network and a mount namespace of its own, so that all of it goes with the process. Root, or root of a user
 * namespace.
 *
 *     guest --(pump)-- TAP [slot] -- host -- wan -- [internet: WORLD_PUBLIC ..., and what must not be reached]
 *
 * The internet echoes on TCP and UDP ports WORLD_PORTS of every address. A guest is a namespace with a TAP of its
 * own; a process carries its frames to the slot's TAP and back, so the guest's side is a whole IP stack and
 * guest_raw() can put any frame on its wire.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "network/host.h"

#define WORLD_PUBLIC "93.184.216.34"
#define WORLD_OTHER "8.8.8.8"
#define WORLD_PRIVATE "10.9.0.1"
#define WORLD_METADATA "169.254.169.254"
#define WORLD_AZURE "168.63.129.16"
#define WORLD_SHARED "100.100.100.200"
#define WORLD_HOST "203.0.113.2" /* the host's own, where it listens on port 80 too */
#define WORLD_POOL "198.18.0.0/24"

struct world {
	char run[64];
	int internet; /* its namespace */
	pid_t server, host_server;
};
/* Ends the test with the reason where it cannot be made. */
void world_make(struct world *world);
void world_free(struct world *world);
/* `sh -c` on the host; the test fails where it does. */
void world_run(const char *fmt, ...) PRINTF_LIKE(1, 2);

struct net_host_config world_config(const struct world *world);
struct net_host *world_host(const struct net_host_config *config);
/* A slot with this policy. */
const struct net_host_slot *world_slot(struct net_host *host, const char *sandbox, const struct net_policy *policy);

struct guest {
	int netns, tap; /* tap: of the slot */
	pid_t pump;
	struct net_slot slot;
};
void guest_make(struct guest *guest, struct net_host *host, const struct net_host_slot *slot);
/* On a TAP that is open: takes it; guest->slot is set. */
void guest_make_on(struct guest *guest, int tap);
void guest_free(struct guest *guest);
/* A connected socket, or -errno; -ETIMEDOUT after `ms`. */
int guest_connect(const struct guest *guest, const char *address, uint16_t port, int ms);
/* The same from any namespace. */
int world_connect(int netns, const char *address, uint16_t port, int ms);
/* Sends a line and waits for it to come back: 0 or -errno. */
int world_echo(int fd, int ms);
/* UDP: 0 when it came back. */
int guest_echo_udp(const struct guest *guest, const char *address, uint16_t port, int ms);
/* An Ethernet frame onto the guest's wire. */
void guest_raw(const struct guest *guest, const void *frame, size_t size);

/* The next `n`th netlink message that this process sends (from 1) fails with this errno; 0: none. Returns how many were
 * sent since the last call. WORLD_EVERY: all of them do. */
#define WORLD_EVERY UINT32_MAX
unsigned int world_fail_netlink(unsigned int n, int err_no);
/* As above for umount2() and unlink(). */
void world_fail_unmount(unsigned int times);
