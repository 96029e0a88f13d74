/* SPDX-License-Identifier: Apache-2.0
 *
 * One failed attempt as people see it: in the list of failures, and as it happens.
 */
#pragma once

#include <jansson.h>

#include "server/server.h"
#include "telemetry/facts.h"

/* {when stage code component owner remedy tenant pool node sandbox trace attempt saved n} */
json_t *view_failed(const struct server *server, const struct stage_fact *fact, bool is_saved);
