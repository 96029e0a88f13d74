/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest's own account of a failure. It is hostile: it may name only what croft-guest can know
 * about, so that a sandbox cannot blame its host; its text is not passed on.
 */
#pragma once

#include "base/err.h"
#include "pb/guest.pb-c.h"

void guest_failure_decode(const Croft__GuestFailure *failure, struct err *ret);
