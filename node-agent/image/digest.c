/* SPDX-License-Identifier: Apache-2.0
 *
 * See digest.h.
 */
#include "image/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

static void md_freep(EVP_MD_CTX **context)
{
	EVP_MD_CTX_free(*context);
}

static void to_hex(const unsigned char *bytes, unsigned int n, char *ret)
{
	static const char hex[] = "0123456789abcdef";

	for (unsigned int i = 0; i < n; i++) {
		*ret++ = hex[bytes[i] >> 4];
		*ret++ = hex[bytes[i] & 15];
	}
	*ret = '\0';
}

int digest_fd(int fd, char ret[static DIGEST_SIZE], struct err *reterr)
{
	CLEANUP(md_freep) EVP_MD_CTX *context = EVP_MD_CTX_new();
	unsigned char chunk[65536], sum[EVP_MAX_MD_SIZE];
	unsigned int size;
	off_t offset = 0;

	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a digest");
	for (;;) {
		ssize_t n = pread(fd, chunk, sizeof(chunk), offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(reterr, FAIL_IO_FAILED, errno, "cannot read a file for its digest");
		if (n == 0)
			break;
		if (EVP_DigestUpdate(context, chunk, (size_t) n) != 1)
			return err_set(reterr, FAIL_IO_FAILED, EIO, "the digest could not be computed");
		offset += n;
	}
	if (EVP_DigestFinal_ex(context, sum, &size) != 1 || size != 32)
		return err_set(reterr, FAIL_IO_FAILED, EIO, "the digest could not be computed");
	memcpy(ret, "sha256:", 7);
	to_hex(sum, size, ret + 7);
	return 0;
}

int digest_file(const char *path, char ret[static DIGEST_SIZE], struct err *reterr)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set(reterr, FAIL_IO_FAILED, errno, "cannot open %.160s", path);
	return digest_fd(fd, ret, reterr);
}
