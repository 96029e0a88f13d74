/* SPDX-License-Identifier: Apache-2.0
 *
 * The byte-wide ports that say something about the guest as a whole: pvpanic (QEMU0001), ACPI's sleep and
 * reset registers, and the boot marker that the guest's first process writes.
 */
#pragma once

#include "bus.h"

struct vm;

/* Adds the ranges to `ports`. 0 or -errno. */
int pvpanic_init(struct vm *vm, struct bus *ports);
