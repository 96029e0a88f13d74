/* SPDX-License-Identifier: Apache-2.0
 *
 * What a VM is made of: the content of `start` as a plain struct, and the check that stands before anything
 * is built. Every refusal has its own code.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "boot/cmdline.h"
#include "memory.h"
#include "virtio/net.h"

#define CONFIG_VCPUS_MAX 32
#define CONFIG_DISKS_MAX 8
#define CONFIG_SERIAL_MAX 20
#define CONFIG_PATH_MAX 108

struct disk_config {
	int fd;
	bool is_read_only;
	char serial[CONFIG_SERIAL_MAX + 1];
	struct rate_config limit;
};

/* Owns its descriptors. */
struct vm_config {
	uint32_t vcpus;
	uint64_t memory_mib;
	int kvm_fd, kernel_fd, initramfs_fd, console_fd; /* the last two: -1 where there is none */
	bool has_net, has_balloon;
	int tap_fd;                      /* -1 without net */
	struct net_config net;
	unsigned int n_disks;
	struct disk_config disks[CONFIG_DISKS_MAX];
	bool has_vsock;
	int vsock_fd;                    /* listening unix stream socket */
	uint32_t guest_cid;
	char vsock_path[CONFIG_PATH_MAX];
	const char *run;                 /* the directory that vsock_path must be in; borrowed; NULL: anywhere */
	uint64_t lease_ms;               /* 0: none */
	int64_t lease_until_usec;        /* CLOCK_BOOTTIME; 0: lease_ms from the start */
	bool is_shell;                   /* all but memory, state and disks, which is_prepared brings */
	bool is_prepared;
	bool is_restore;                 /* memory and state come from a snapshot: no kernel, initramfs, command line */
	int state_fd, memory_fd;         /* -1 otherwise */
	bool is_forked;                  /* they are another VM's, which runs on: sealed */
	unsigned int n_layers;           /* over memory_fd */
	int layer_fds[MEMORY_LAYERS_MAX];
	int pagemap_fd;                  /* borrowed; -1: none */
	char *cmdline;                   /* the caller's part; owned */
};

void config_init(struct vm_config *config);
void config_deinit(struct vm_config *config);

/* VCPUS_INVALID, MEMORY_INVALID, DISK_INVALID, SOCKET_PATH_TOO_LONG, INVALID_ARGUMENT (cid, vsock's path), NET_INVALID,
 * CMDLINE_..., in this order. `ret_cmdline` is the whole command line. */
int config_check(const struct vm_config *config, char ret_cmdline[static CMDLINE_SIZE], struct err *reterr);
