/* SPDX-License-Identifier: Apache-2.0
 *
 * The first vCPU's state at a kernel's 64-bit entry: long mode, flat segments, the first GiB mapped one to
 * one, boot_params in rsi. The other vCPUs wait for their INIT as KVM makes them.
 */
#pragma once

#include <linux/kvm.h>
#include <stdint.h>

#include "memory.h"

/* Page tables and GDT. */
void boot_cpu_write_tables(const struct memory *memory);
/* `sregs` holds what KVM_GET_SREGS gave and is changed in place. */
void boot_cpu_registers(uint64_t entry, struct kvm_sregs *sregs, struct kvm_regs *ret);
