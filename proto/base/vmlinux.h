/* SPDX-License-Identifier: Apache-2.0
 *
 * The headers of a guest kernel, an ELF executable for x86-64: read by the importer before it keeps a kernel and by
 * croft-vmm before it loads one. The file is hostile: whatever it says, 64 bytes and at most VMLINUX_SEGMENTS_MAX program
 * headers are read, and what is returned needs no check of its arithmetic any more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define VMLINUX_SEGMENTS_MAX 64
#define VMLINUX_MEMORY_MAX (UINT64_C(256) << 20) /* of all segments together */
#define VMLINUX_BASE (UINT64_C(1) << 20)         /* lower memory is the VMM's */
#define VMLINUX_END (UINT64_C(3) << 30)          /* where the devices begin */

/* file_size <= memory_size; [physical, physical + memory_size) lies in [VMLINUX_BASE, VMLINUX_END). */
struct vmlinux_segment {
	uint64_t offset, file_size;
	uint64_t physical, memory_size;
	bool is_executable;
};

/* No two segments overlap in memory; each lies inside the file; the entry lies in bytes of the file that may be run. */
struct vmlinux {
	uint64_t entry;
	unsigned int n;
	struct vmlinux_segment segments[VMLINUX_SEGMENTS_MAX];
};

/* `size` is the file's, or what it will be when the rest of it is written. KERNEL_INVALID, KERNEL_TRUNCATED or
 * KERNEL_TOO_LARGE, each with `why`. */
int vmlinux_read(int fd, uint64_t size, struct vmlinux *ret, struct err *reterr);
/* Sets `code` (one of the three) with `why`; -ENOEXEC, or -err_no where that is not 0. */
int vmlinux_refuse(struct err *reterr, enum fail_code code, int err_no, const char *why);
