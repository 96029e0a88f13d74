/* SPDX-License-Identifier: Apache-2.0
 *
 * A generated message as an initialiser. The generated ..._INIT macros cast constness away, which this project's
 * warnings refuse; the generated init functions do not.
 */
#pragma once

#define MESSAGE(type, init)                                                                        \
	__extension__({                                                                            \
		type message_;                                                                     \
		init(&message_);                                                                   \
		message_;                                                                          \
	})
