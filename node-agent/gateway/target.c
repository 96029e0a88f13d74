/* SPDX-License-Identifier: Apache-2.0
 *
 * See target.h.
 */
#include "gateway/target.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Digits at the front of `text`, 1 to 65535, at most five. Returns what follows, NULL when there is no port. */
static const char *take_port(const char *text, uint16_t *ret)
{
	unsigned int port = 0;
	size_t n = 0;

	for (; n < 6 && isdigit((unsigned char) text[n]); n++)
		port = port * 10 + (unsigned int) (text[n] - '0');
	if (n == 0 || n > 5 || port == 0 || port > UINT16_MAX)
		return NULL;
	*ret = (uint16_t) port;
	return text + n;
}

/* Host names come in any case; ids are lower case. */
static bool target_of_host(const char *host, struct target *ret)
{
	struct target target;
	const char *id = take_port(host, &target.port);

	if (!id || *id != '-' || strnlen(id + 1, ID_LEN) < ID_LEN || id[1 + ID_LEN] != '.')
		return false;
	for (size_t i = 0; i < ID_LEN; i++)
		target.sandbox[i] = (char) tolower((unsigned char) id[1 + i]);
	target.sandbox[ID_LEN] = '\0';
	target.is_named = true;
	if (!id_is_valid(target.sandbox))
		return false;
	*ret = target;
	return true;
}

int target_parse(const char *id, const char *port, const char *host, struct target *ret, struct err *reterr)
{
	struct target target = { .sandbox = "" };
	const char *rest;

	if (!id && !port) {
		if (host)
			(void) target_of_host(host, &target);
		*ret = target;
		return 0;
	}
	if (!id || !port)
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL,
			"e2b-sandbox-id and e2b-sandbox-port must both be there.");
	rest = take_port(port, &target.port);
	if (!rest || *rest)
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL, "e2b-sandbox-port is no port.");
	target.is_named = true;
	if (id_is_valid(id))
		memcpy(target.sandbox, id, ID_SIZE);
	*ret = target;
	return 0;
}
