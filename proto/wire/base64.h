/* SPDX-License-Identifier: Apache-2.0
 *
 * Base64 as proto3 JSON has it: written in the standard alphabet with padding, read in the standard or the URL
 * alphabet, with or without padding. OpenSSL does the work; this module only brings the input into the one form
 * that OpenSSL reads and refuses everything else.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define BASE64_ENCODED_SIZE(n) (((n) + 2) / 3 * 4 + 1) /* with the NUL */

/* Writes the NUL-terminated text of `size` bytes (at most INT_MAX / 2) to `ret`, which has room for
 * BASE64_ENCODED_SIZE(size). Returns its length. */
size_t base64_encode(const void *data, size_t size, char *ret);

/* `*ret` is the caller's; NUL-terminated behind the end. Line ends are skipped. 0, -EINVAL, -ENOMEM. */
int base64_decode(const char *text, size_t size, uint8_t **ret, size_t *ret_size);
