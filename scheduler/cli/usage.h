/* SPDX-License-Identifier: Apache-2.0
 *
 * Two books of the same accounts compared: the node's own (`croft-node usage -o json`) and the scheduler's (`GET /v1/usage?by=account`).
 */
#pragma once

#include <jansson.h>

/* Every difference of the two lists of records, with its cause: [{"sandbox", "generation", "cause", "explained", "what", "node",
 * "scheduler"}]. `explained`: it goes away by itself. A new reference; NULL when memory is short. */
json_t *usage_differences(const json_t *node, const json_t *scheduler);
