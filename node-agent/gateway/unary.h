/* SPDX-License-Identifier: Apache-2.0
 *
 * The unary calls of process.Process: one request, one connection to the guest (SendInput: one per piece), one
 * answer.
 */
#pragma once

#include "gateway/call.h"

void unary_list(struct call *call, const char *body, size_t size);
void unary_send_input(struct call *call, const char *body, size_t size);
void unary_send_signal(struct call *call, const char *body, size_t size);
void unary_close_stdin(struct call *call, const char *body, size_t size);
void unary_update(struct call *call, const char *body, size_t size);
