/* SPDX-License-Identifier: Apache-2.0
 *
 * See release.h.
 */
#include "agent/release.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/run-program.h"
#include "base/fd.h"
#include "base/hex.h"

#define PACKAGE_MAX ((size_t)256 << 20)
#define SMALL_MAX 4096u
#define SHA256_HEX 64
#define SIGNATURE_BYTES 64
#define SIGNATURE_BASE64 88 /* of 64 bytes */
#define DPKG "/usr/bin/dpkg"
#define DPKG_DEB "/usr/bin/dpkg-deb"
#define DPKG_QUERY "/usr/bin/dpkg-query"

static const char *const ours[] = { "croft-node", "croft-kernel" };

static EVP_PKEY *read_key(const char *path)
{
	FILE *file = fopen(path, "re");
	EVP_PKEY *key = file ? PEM_read_PUBKEY(file, NULL, NULL, NULL) : NULL;

	if (file)
		(void)fclose(file);
	if (key && EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519)
		return key;
	EVP_PKEY_free(key);
	return NULL;
}

/* What was signed, by whomever. */
static bool parse_signature(const char *text, char sha256[static SHA256_HEX + 1], uint8_t signature[static SIGNATURE_BYTES + 2])
{
	char base64[SIGNATURE_BASE64 + 1];
	int end = 0;

	return sscanf(text, "sha256 = %64[0-9a-f]\nsignature = %88[A-Za-z0-9+/=]\n%n", sha256, base64, &end) == 2 && end > 0 &&
	       !text[end] && strlen(sha256) == SHA256_HEX && strlen(base64) == SIGNATURE_BASE64 &&
	       EVP_DecodeBlock(signature, (const unsigned char *)base64, SIGNATURE_BASE64) == SIGNATURE_BYTES + 2;
}

static bool is_signed(EVP_PKEY *key, const char *sha256, const uint8_t *signature)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	char text[128];
	int n = snprintf(text, sizeof(text), "croft-package-1\n%s\n", sha256);
	bool is = context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
		  EVP_DigestVerify(context, signature, SIGNATURE_BYTES, (const unsigned char *)text, (size_t)n) == 1;

	EVP_MD_CTX_free(context);
	return is;
}

static int check_signature(const char *file, const char *key_file, char sha256[static SHA256_HEX + 1], struct err *reterr)
{
	uint8_t signature[SIGNATURE_BYTES + 2];
	CLEANUP_FREE char *text = NULL;
	EVP_PKEY *key = read_key(key_file);
	char path[PATH_MAX];
	size_t size;
	int r = 0;

	if (!key)
		return err_set(reterr, FAIL_PACKAGE_UNSIGNED, ENOKEY, "no release key is pinned in %.200s", key_file);
	(void)snprintf(path, sizeof(path), "%.4000s.sig", file);
	if (file_read(path, SMALL_MAX, &text, &size) < 0 || strlen(text) != size || !parse_signature(text, sha256, signature))
		r = err_set(reterr, FAIL_PACKAGE_UNSIGNED, ENODATA, "%.200s is no signature", path);
	else if (!is_signed(key, sha256, signature))
		r = err_set(reterr, FAIL_PACKAGE_UNSIGNED, EKEYREJECTED, "%.200s is of another key", path);
	EVP_PKEY_free(key);
	return r;
}

static int check_digest(const uint8_t *data, size_t size, const char *sha256, struct err *reterr)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	char hex[SHA256_HEX + 1];
	unsigned int n = 0;

	if (EVP_Digest(data, size, digest, &n, EVP_sha256(), NULL) != 1 || 2 * n != SHA256_HEX)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a digest");
	hex_put(hex, digest, n);
	return strcmp(hex, sha256) ? err_set(reterr, FAIL_PACKAGE_ALTERED, EBADMSG, "its digest is %s, and %s was signed", hex, sha256) : 0;
}

static int write_copy(const char *path, const uint8_t *data, size_t size, struct err *reterr)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = fd < 0 ? -errno : fd_write_all(fd, data, size);

	return r < 0 ? err_set(reterr, FAIL_IO_FAILED, -r, "cannot write %.200s", path) : 0;
}

/* What is installed; where nothing is by package, what this program says of itself. */
static void installed_version(struct release *release)
{
	char query[] = "dpkg-query", format[] = "--showformat=${Version}", show[] = "--show";
	char *const argv[] = { query, show, format, release->package, NULL };

	if (run_program_read(DPKG_QUERY, argv, release->installed, sizeof(release->installed)) != 0 || !*release->installed)
		(void)snprintf(release->installed, sizeof(release->installed), "%s", CROFT_VERSION);
}

static int check_version(struct release *release, struct err *reterr)
{
	char deb[] = "dpkg-deb", field[] = "--field", package[] = "Package", version[] = "Version";
	char dpkg[] = "dpkg", compare[] = "--compare-versions", ge[] = "ge", nothing[8];
	char *const package_argv[] = { deb, field, release->path, package, NULL }, *const version_argv[] = { deb, field, release->path, version, NULL };
	char *const compare_argv[] = { dpkg, compare, release->version, ge, release->installed, NULL };
	bool is_ours = false;

	if (run_program_read(DPKG_DEB, package_argv, release->package, sizeof(release->package)) != 0 ||
		run_program_read(DPKG_DEB, version_argv, release->version, sizeof(release->version)) != 0)
		return err_set(reterr, FAIL_PACKAGE_OLDER, EINVAL, "it was signed, and is no Debian package");
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		is_ours = is_ours || !strcmp(release->package, ours[i]);
	if (!is_ours)
		return err_set(reterr, FAIL_PACKAGE_OLDER, EINVAL, "it was signed, and is the package %.60s, which is none of a node",
			release->package);
	installed_version(release);
	if (run_program_read(DPKG, compare_argv, nothing, sizeof(nothing)) != 0)
		return err_set(reterr, FAIL_PACKAGE_OLDER, EINVAL, "it is %.60s, and %.60s is installed", release->version,
			release->installed);
	return 0;
}

int release_check(const char *file, const char *key, const char *dir, struct release *ret, struct err *reterr)
{
	char sha256[SHA256_HEX + 1], *data = NULL;
	size_t size;
	int r = check_signature(file, key, sha256, reterr);

	memset(ret, 0, sizeof(*ret));
	if (r < 0)
		return r;
	r = file_read(file, PACKAGE_MAX, &data, &size);
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "cannot read %.200s", file);
	r = check_digest((const uint8_t *)data, size, sha256, reterr);
	if (r == 0 && snprintf(ret->path, sizeof(ret->path), "%s/package.deb", dir) >= (int)sizeof(ret->path))
		r = err_set(reterr, FAIL_IO_FAILED, ENAMETOOLONG, "the name of a directory is too long");
	if (r == 0) {
		r = write_copy(ret->path, (const uint8_t *)data, size, reterr);
		if (r == 0)
			r = check_version(ret, reterr);
		if (r < 0)
			(void)unlink(ret->path);
	}
	free(data);
	return r;
}
