/* SPDX-License-Identifier: Apache-2.0
 *
 * Guest kernels: croft-vmm loads an ELF vmlinux, distributions ship a bzImage with a compressed vmlinux in it.
 */
#pragma once

#include "base/err.h"

#define KERNEL_SIZE_MAX (1u << 30) /* of the vmlinux */

/* Writes the vmlinux in `bzimage` (or `bzimage` itself where it is one) to `vmlinux`, whole or not at all.
 * KERNEL_MISSING: it cannot be read. KERNEL_INVALID: it is no kernel for x86-64. IO_FAILED. Blocking, seconds. */
int kernel_import(const char *bzimage, const char *vmlinux, struct err *reterr);
/* KERNEL_INVALID where `fd` is no ELF executable for x86-64 whose loadable parts lie inside the file. */
int kernel_check_elf(int fd, struct err *reterr);
