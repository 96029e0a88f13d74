/* SPDX-License-Identifier: Apache-2.0
 *
 * A packed message on disk: 8 bytes that name the format, the SHA-256 of what follows, and the message. Protobuf alone would
 * take a cut record for a shorter one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEALED_HEAD 40u

/* The head in front of `size` bytes that lie SEALED_HEAD behind `data`. 0 or -ENOMEM. `magic` has 8 characters. */
int sealed_close(const char *magic, uint8_t *data, size_t size);
/* Of all of it, head included: its format and digest are right. */
bool sealed_is_right(const char *magic, const uint8_t *data, size_t size);
