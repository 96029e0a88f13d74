/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sandbox and port one request is for. Pure. Judged per request: clients keep one connection for many
 * sandboxes. The headers e2b-sandbox-id and e2b-sandbox-port go together and weigh more than the host name
 * `<port>-<id>.<domain>`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

struct target {
	bool is_named;         /* false: the request names no sandbox */
	char sandbox[ID_SIZE]; /* "": what it names cannot be an id, so there is no such sandbox */
	uint16_t port;
};

/* Header values, NULL where absent. INVALID_ARGUMENT when one of the two headers is missing or the port is
 * none. */
int target_parse(const char *id, const char *port, const char *host, struct target *ret, struct err *reterr);
