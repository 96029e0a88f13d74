/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gateway tells of calls into sandboxes (node.proto), into the telemetry spool. The gateway stands before hostile
 * clients and guests: of what it says only ids, known names, numbers and times go on, whatever else it sent.
 */
#pragma once

#include "pb/node.pb-c.h"

struct spool;

/* A record that is none of a call is left out. */
void calls_keep(struct spool *spool, const Croft__GatewayCalls *calls);
