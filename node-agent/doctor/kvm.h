/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this host can boot a microVM at all: the device opens, its KVM speaks version 12 and
 * makes a VM. Asked at the start and again every few seconds, so that a node whose /dev/kvm went
 * away says so before a sandbox is placed on it.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* 0, or KVM_UNAVAILABLE with errno, a hint and the step. Without `probe` the device need only open.
 * */
int kvm_check(const char *device, bool probe, struct err *reterr);

/* What to do about an errno of it; a static text, the `hint` of the failure. */
const char *kvm_hint(int err_no);
