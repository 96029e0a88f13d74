/* SPDX-License-Identifier: Apache-2.0
 *
 * CURVE keys: make, check, write, read; see endpoint.h. A key that anybody can read in libzmq's manual, and
 * the all-zero key, are no keys; a key file that others can read is no secret.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/fd.h"
#include "wire/endpoint.h"

#define KEY_SIZE 32
#define KEY_FILE_MAX 4096

/* zmq_curve(7), "TEST KEY VALUES": client and server, public and secret; and the key of the z85 and tutorial
 * pages. */
static const char *const published[] = {
	"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",
	"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs",
	"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
	"JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
};

int curve_keys_new(struct curve_keys *ret, struct err *reterr)
{
	if (zmq_curve_keypair(ret->public_key, ret->secret_key) < 0)
		return err_set(reterr, FAIL_IO_FAILED, errno, "libzmq makes no CURVE keys here");
	return 0;
}

int curve_key_check(const char *z85, struct err *reterr)
{
	static const uint8_t zero[KEY_SIZE];
	uint8_t key[KEY_SIZE];
	bool weak;

	if (strlen(z85) != KEY_Z85_SIZE - 1 || !zmq_z85_decode(key, z85))
		return err_set(reterr, FAIL_CURVE_BAD_KEY, EINVAL, "a CURVE key is 40 characters of Z85");
	weak = CRYPTO_memcmp(key, zero, sizeof(key)) == 0;
	OPENSSL_cleanse(key, sizeof(key));
	for (size_t i = 0; i < ARRAY_LEN(published); i++)
		weak = weak || !strcmp(z85, published[i]);
	return weak ? err_set(reterr, FAIL_CURVE_WEAK_KEY, EINVAL, "the CURVE key is a published or an all-zero one") :
		      0;
}

int curve_keys_write(const char *path, const struct curve_keys *keys, struct err *reterr)
{
	char text[2 * KEY_Z85_SIZE + 32];
	int n = snprintf(text, sizeof(text), "public = %s\nsecret = %s\n", keys->public_key, keys->secret_key), r;

	r = file_replace(path, text, (size_t) n, 0600);
	OPENSSL_cleanse(text, sizeof(text));
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "cannot write the key file %s", path);
	return 0;
}

/* The value of "name = value" on a line of its own; exactly one key's length. */
static bool take_value(const char *text, const char *name, char ret[static KEY_Z85_SIZE])
{
	size_t n = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
		const char *value = line + n;
		size_t size;

		if (strncmp(line, name, n))
			continue;
		value += strspn(value, " ");
		if (*value != '=')
			continue;
		value++;
		value += strspn(value, " ");
		size = strcspn(value, " \r\n");
		if (size != KEY_Z85_SIZE - 1)
			return false;
		memcpy(ret, value, size);
		ret[size] = '\0';
		return true;
	}
	return false;
}

static int check_pair(const char *path, const struct curve_keys *keys, struct err *reterr)
{
	char derived[KEY_Z85_SIZE];
	int r = curve_key_check(keys->public_key, reterr);

	if (r == 0)
		r = curve_key_check(keys->secret_key, reterr);
	if (r < 0)
		return err_prefix(reterr, "%s", path);
	if (zmq_curve_public(derived, keys->secret_key) < 0 || strcmp(derived, keys->public_key))
		return err_set(reterr, FAIL_CURVE_BAD_KEY, EINVAL, "%s: the two keys are no pair", path);
	return 0;
}

int curve_keys_read(const char *path, struct curve_keys *ret, struct err *reterr)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct curve_keys keys = { 0 };
	char text[KEY_FILE_MAX + 1];
	struct stat st;
	ssize_t n;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(reterr, FAIL_IO_FAILED, errno, "cannot open the key file %s", path);
	if (!S_ISREG(st.st_mode) || (st.st_mode & 077))
		return err_set(reterr, FAIL_CURVE_WEAK_KEY, EPERM, "%s must be a file of mode 0600", path);
	n = read(fd, text, KEY_FILE_MAX);
	if (n < 0)
		return err_set(reterr, FAIL_IO_FAILED, errno, "cannot read the key file %s", path);
	text[n] = '\0';
	r = 0;
	if (!take_value(text, "public", keys.public_key) || !take_value(text, "secret", keys.secret_key))
		r = err_set(reterr, FAIL_CURVE_BAD_KEY, EINVAL, "%s holds no public and secret CURVE key", path);
	OPENSSL_cleanse(text, sizeof(text));
	if (r == 0)
		r = check_pair(path, &keys, reterr);
	if (r == 0)
		*ret = keys;
	OPENSSL_cleanse(&keys, sizeof(keys));
	return r;
}
