/* SPDX-License-Identifier: Apache-2.0
 *
 * What PID 1 does before it serves, in the order of main.c: say that user space was reached, mount what the
 * kernel offers, load the modules, make the sandbox's root and enter it. Each step logs what fails and the
 * next is tried all the same, because only a guest that goes on can tell the host what is wrong. Only
 * boot_root() can make the sandbox unusable.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Writes the boot marker to the port that croft-vmm watches. Needs nothing. */
void boot_mark(void);
/* /proc, /sys and /dev of the initramfs; standard descriptors: nothing in, the kernel's log out. */
void boot_early(void);
/* Limits and protection of PID 1 itself. */
void boot_protect(void);
/* Loads the files that /modules.order names, one path a line, and removes them. */
void boot_modules(void);
/* Mounts image, disk and overlay, and makes the result the root. ROOTFS_UNREADABLE, ROOTFS_INCOMPLETE,
 * GUEST_DISK_UNREADABLE; then the root is still the initramfs. */
int boot_root(struct err *reterr);
/* After that: a descriptor of the writable disk, which no path leads to any more; the caller's, once. -1: there is none. */
int boot_take_disk(void);
/* For server_host.diff: compares the two layers of the root. */
pid_t boot_diff(int fd);
/* In the new root: loopback, and the files of /etc that programs expect where they are absent. */
void boot_identity(void);
/* Gives the sandbox its name: kernel, /etc/hostname, /etc/hosts. */
void boot_set_hostname(const char *hostname);
void boot_set_clock(int64_t realtime_usec);
