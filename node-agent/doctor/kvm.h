/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this host can boot a microVM at all: the device opens, its KVM speaks version 12 and
 * makes a VM. Asked at the start and again every few seconds, so that a node whose /dev/kvm went
 * away says so before a sandbox is placed on it. A KVM with no VT-x or AMD-V below it (kvm_pvm) does all of that as
 * well, but kernels as they are do not come up in it (docs/decisions/0024): such a host counts as one without.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* 0, or KVM_UNAVAILABLE with errno, a hint and the step. Without `probe` the device need only open.
 * */
int kvm_check(const char *device, bool probe, struct err *reterr);

/* What to do about an errno of it; a static text, the `hint` of the failure. */
const char *kvm_hint(int err_no);

/* Whether a CPU with these words has VT-x or AMD-V: ECX of CPUID leaf 1 and of leaf 0x80000001. */
bool kvm_is_hardware(uint32_t leaf_1_ecx, uint32_t leaf_80000001_ecx);

/* The same of this host. */
bool kvm_host_is_hardware(void);
