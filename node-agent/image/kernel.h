/* SPDX-License-Identifier: Apache-2.0
 *
 * Guest kernels: croft-vmm loads an ELF vmlinux, distributions ship a bzImage with a compressed vmlinux in it. The image is
 * hostile: what is not an acceptable kernel by its headers is refused after at most KERNEL_HEAD_SIZE unpacked bytes.
 */
#pragma once

#include "base/err.h"

#define KERNEL_FILE_MAX (UINT64_C(1) << 30)       /* of what is imported: debugging sections make a vmlinux large */
#define KERNEL_UNPACKED_MAX (UINT64_C(256) << 20) /* of the vmlinux in a bzImage, which has none */
#define KERNEL_HEAD_SIZE 65536                    /* its program headers must lie in the first part */

/* Writes the vmlinux in `bzimage` (or `bzimage` itself where it is one) to `vmlinux`, whole or not at all.
 * KERNEL_MISSING: it cannot be read. KERNEL_INVALID, KERNEL_TRUNCATED, KERNEL_TOO_LARGE: base/vmlinux.h would refuse it,
 * or it is no bzImage, unpacks to more or less than it says, or is compressed in an unknown way. IO_FAILED. Blocking, seconds. */
int kernel_import(const char *bzimage, const char *vmlinux, struct err *reterr);
