/* SPDX-License-Identifier: Apache-2.0
 *
 * See sealed.h.
 */
#include "agent/sealed.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#define MAGIC_SIZE 8u
#define DIGEST_BYTES (SEALED_HEAD - MAGIC_SIZE)

static int digest_of(const uint8_t *data, size_t size, uint8_t ret[EVP_MAX_MD_SIZE])
{
	return EVP_Digest(data, size, ret, NULL, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

int sealed_close(const char *magic, uint8_t *data, size_t size)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	int r = digest_of(data + SEALED_HEAD, size, digest);

	memcpy(data, magic, MAGIC_SIZE);
	memcpy(data + MAGIC_SIZE, digest, DIGEST_BYTES);
	return r;
}

bool sealed_is_right(const char *magic, const uint8_t *data, size_t size)
{
	uint8_t digest[EVP_MAX_MD_SIZE];

	return size > SEALED_HEAD && !memcmp(data, magic, MAGIC_SIZE) &&
	       digest_of(data + SEALED_HEAD, size - SEALED_HEAD, digest) == 0 &&
	       !memcmp(data + MAGIC_SIZE, digest, DIGEST_BYTES);
}
