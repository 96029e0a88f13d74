/* SPDX-License-Identifier: Apache-2.0
 *
 * An initialised message as a value: protobuf-c's own ..._INIT macros cast away const, which is an
 * error here.
 */
#pragma once

#define MESSAGE(type, name)                                                                        \
	__extension__({                                                                            \
		type message_;                                                                     \
		name##__init(&message_);                                                           \
		message_;                                                                          \
	})
