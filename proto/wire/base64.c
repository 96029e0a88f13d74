/* SPDX-License-Identifier: Apache-2.0
 *
 * See base64.h. EVP_DecodeBlock() wants whole groups of four in the standard alphabet, counts padding as data
 * and skips white space in places; so the text is normalised and checked before it is handed over.
 */
#include "wire/base64.h"

#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

size_t base64_encode(const void *data, size_t size, char *ret)
{
	if (size == 0) {
		*ret = '\0';
		return 0;
	}
	return (size_t) EVP_EncodeBlock((unsigned char *) ret, data, (int) size);
}

static bool is_standard(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

/* Copies the digits of `text` in the standard alphabet. False when there is anything else than digits, line
 * ends and padding at the end. */
static bool normalise(const char *text, size_t size, char *ret, size_t *ret_digits, size_t *ret_padding)
{
	size_t digits = 0, padding = 0;

	for (size_t i = 0; i < size; i++) {
		char c = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];

		if (c == '\n' || c == '\r')
			continue;
		if (c == '=') {
			padding++;
			continue;
		}
		if (padding || !is_standard(c))
			return false;
		ret[digits++] = c;
	}
	*ret_digits = digits;
	*ret_padding = padding;
	return true;
}

int base64_decode(const char *text, size_t size, uint8_t **ret, size_t *ret_size)
{
	CLEANUP_FREE char *clean = NULL;
	CLEANUP_FREE uint8_t *data = NULL;
	size_t digits, padding, missing;
	int n = 0;

	if (size > INT_MAX / 2)
		return -EINVAL;
	clean = malloc(size + 4);
	data = malloc(size + 4);
	if (!clean || !data)
		return -ENOMEM;
	if (!normalise(text, size, clean, &digits, &padding))
		return -EINVAL;
	missing = (4 - digits % 4) % 4;
	if (missing == 3 || (padding && padding != missing))
		return -EINVAL;
	memset(clean + digits, '=', missing);
	if (digits)
		n = EVP_DecodeBlock(data, (unsigned char *) clean, (int) (digits + missing));
	if (n < 0)
		return -EINVAL;
	n -= (int) missing;
	data[n] = '\0';
	*ret = TAKE(data);
	*ret_size = (size_t) n;
	return 0;
}
