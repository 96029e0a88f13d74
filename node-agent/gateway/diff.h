/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /croft/diff: what a sandbox made of its image, as its guest says it (guest.proto's GuestDiff). A line of JSON for each
 * change, and a last one: {"end": ...} when the guest told all that it would, {"failure": ...} when it did not. An answer without a last
 * line is cut off.
 */
#pragma once

#include "gateway/call.h"

void diff_run(struct call *call, const char *body, size_t size);
