/* SPDX-License-Identifier: Apache-2.0
 *
 * Between message.c and reply.c: the generated types of node.proto, which nobody else sees.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "pb/node.pb-c.h"

/* -EMSGSIZE over HELPER_PACKET_MAX. */
int helper_pack(const ProtobufCMessage *message, uint8_t **ret_data, size_t *ret_size);
