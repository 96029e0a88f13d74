/* SPDX-License-Identifier: Apache-2.0
 *
 * Events and answers of process.Process as JSON objects. Pure; new references, NULL when memory is short.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "gateway/guest-wire.h"
#include "wire/json.h"

json_t *process_event_start(uint32_t pid);
/* `lost` bytes that nobody read were dropped before these: an extra member that the SDKs ignore. */
json_t *process_event_data(const struct guest_data *data);
json_t *process_event_keepalive(void);
/* exitCode, exited, status, error as E2B has them, and `signal`, a number, where one ended the process. Where the guest's
 * kernel killed for want of memory the error says so, and `failure` has the record. */
json_t *process_event_end(const struct guest_ended *ended, const struct failure_context *context);
json_t *process_list(const struct guest_process *processes, size_t n);
