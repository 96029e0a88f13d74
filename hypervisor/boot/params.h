/* SPDX-License-Identifier: Apache-2.0
 *
 * What the Linux 64-bit boot protocol wants to find in memory: the zero page with its memory map, the
 * command line, the initramfs, a random seed, and the code at the reset vector.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "memory.h"

struct boot_input {
	const char *cmdline;
	uint64_t kernel_end;
	int initramfs_fd;    /* -1: none; borrowed */
	uint64_t acpi_rsdp;
	uint8_t seed[32];    /* becomes SETUP_RNG_SEED */
};

/* KERNEL_INVALID or MEMORY_INVALID when the initramfs cannot be read or does not fit. */
int boot_params_write(const struct memory *memory, const struct boot_input *input, struct err *reterr);
