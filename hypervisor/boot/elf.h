/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a 64-bit x86-64 ELF vmlinux into guest memory by its physical addresses. The file is hostile: every
 * number is checked before it is used, nothing is read beyond what its headers promise and the file holds.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "memory.h"

#define ELF_KERNEL_BASE (UINT64_C(1) << 20)  /* lower memory is ours */
#define ELF_KERNEL_MAX (UINT64_C(256) << 20) /* of all segments together */

struct elf_image {
	uint64_t entry; /* guest physical */
	uint64_t end;   /* first address behind the highest segment */
};

/* KERNEL_INVALID {why}; guest memory may then hold parts of it. `fd` is borrowed and read by pread. */
int elf_load(int fd, const struct memory *memory, struct elf_image *ret, struct err *reterr);
