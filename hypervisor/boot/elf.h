/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a 64-bit x86-64 ELF vmlinux into guest memory by its physical addresses. The file is hostile: its headers are
 * checked whole (base/vmlinux.h) before a byte of it is loaded.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "memory.h"

struct elf_image {
	uint64_t entry; /* guest physical */
	uint64_t end;   /* first address behind the highest segment */
};

/* KERNEL_INVALID, KERNEL_TRUNCATED or KERNEL_TOO_LARGE {why}; guest memory may then hold parts of it. `fd` is borrowed and read by pread. */
int elf_load(int fd, const struct memory *memory, struct elf_image *ret, struct err *reterr);
