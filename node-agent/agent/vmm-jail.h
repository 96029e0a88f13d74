/* SPDX-License-Identifier: Apache-2.0
 *
 * What a VMM says of its jail, as the outcome of the stage `jail`: ok only where every step that was due
 * was applied; else skipped, and the text says which steps the host forbade.
 */
#pragma once

#include <stdbool.h>

#include "pb/vmm.pb-c.h"

#define VMM_JAIL_TEXT_MAX 64

/* `jail` may be NULL: the VMM has none. Returns whether it is whole. */
bool vmm_jail_describe(const Croft__VmmJail *jail, char ret[static VMM_JAIL_TEXT_MAX]);
