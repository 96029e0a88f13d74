/* SPDX-License-Identifier: Apache-2.0
 *
 * A start that failed because the host ran out of something is HOST_LIMIT with the `resource` that ran out, not
 * VMM_START_FAILED: another node may have it.
 */
#pragma once

#include "base/err.h"

/* Changes VMM_START_FAILED to HOST_LIMIT where the errno says so, and gives a HOST_LIMIT its `resource`. */
void host_limit_refine(struct err *err);
