/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands before every protobuf unpack: protobuf-c has no limit on recursion or on the number of elements
 * that a small message may ask it to allocate. The scan walks the wire format by the message's descriptor
 * without allocating.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CHECK_DEPTH_MAX 32
#define CHECK_ELEMENTS_MAX 65536 /* of all repeated fields of one message together */

/* 0, or FRAME_INVALID: malformed, deeper than CHECK_DEPTH_MAX, more than CHECK_ELEMENTS_MAX elements, a
 * string with NUL or invalid UTF-8. */
int check_message(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t size, struct err *reterr);

/* check_message() and protobuf_c_message_unpack(); NULL on failure. Free with
 * protobuf_c_message_free_unpacked(msg, NULL). */
ProtobufCMessage *check_unpack(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t size,
	struct err *reterr);
