/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Two small hexadecimal digits a byte, and a NUL: 2 * n + 1 bytes of `ret`. */
static inline void hex_put(char *ret, const void *data, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *bytes = data;

	for (size_t i = 0; i < n; i++) {
		*ret++ = digits[bytes[i] >> 4];
		*ret++ = digits[bytes[i] & 15];
	}
	*ret = '\0';
}
