/* SPDX-License-Identifier: Apache-2.0
 *
 * Idempotency-Key: what a create made is recorded in the same batch as what it made, and answered again for 24
 * hours. The key belongs to a tenant (for what is made as one), else to a customer's or the provider's operators,
 * so that a client may rotate its API key between two tries. Texts are stored hashed.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"

#define HEADER_MAX 255

static bool is_printable(const char *text)
{
	size_t n = strlen(text);

	if (n == 0 || n > HEADER_MAX)
		return false;
	for (; *text; text++)
		if (!isprint((unsigned char)*text))
			return false;
	return true;
}

/* SHA-256 of the parts; lengths are in front, so that no two lists of parts are one text. false: no memory. */
static bool hash_parts(const char *const *parts, size_t n, char ret[static KEY_HEX_SIZE])
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return false;
	for (size_t i = 0; i < n; i++)
		(void)fprintf(out, "%zu:%s;", strlen(parts[i]), parts[i]);
	if (fclose(out) != 0) {
		free(text);
		return false;
	}
	registry_hash(text, ret);
	free(text);
	return *ret != '\0';
}

static bool make(const struct api_request *req, const char *kind, const json_t *body,
	const char *header, struct api_idempotency *ret)
{
	bool is_tenants = req->route->scope == SCOPE_TENANT;
	const char *whose = is_tenants ? req->tenant
			    : role_is_provider(req->role) ? "" : req->customer;
	const char *owner[] = { is_tenants ? "tenant" : "operator", whose, header };
	char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
	const char *request[] = { kind, text ? text : "" };
	bool done = text && hash_parts(owner, ARRAY_LEN(owner), ret->hex) &&
		    hash_parts(request, ARRAY_LEN(request), ret->fingerprint);

	free(text);
	return done;
}

enum api_idempotency_is api_idempotency(struct api_request *req, const char *kind,
	const json_t *body, struct api_idempotency *ret, const char **ret_object)
{
	const char *header = http_header(req->http, "idempotency-key");
	const struct idempotency_entry *entry;
	struct err err = ERR_NULL;

	*ret->hex = '\0';
	if (!header)
		return IDEMPOTENCY_NEW;
	if (!is_printable(header)) {
		(void)err_set(&err, FAIL_INVALID_ARGUMENT, EINVAL,
			"Idempotency-Key must be 1 to %d printable ASCII characters", HEADER_MAX);
		err_add(&err, "field", "Idempotency-Key");
		api_fail(req, &err);
		return IDEMPOTENCY_REFUSED;
	}
	if (!make(req, kind, body, header, ret)) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for an Idempotency-Key");
		api_fail(req, &err);
		return IDEMPOTENCY_REFUSED;
	}
	entry = registry_idempotency(&req->server->registry, ret->hex);
	if (!entry || entry->created_us < req->began_us - IDEMPOTENCY_USEC)
		return IDEMPOTENCY_NEW;
	if (strcmp(entry->fingerprint, ret->fingerprint) != 0) {
		(void)err_set(&err, FAIL_IDEMPOTENCY_CONFLICT, EEXIST,
			"this Idempotency-Key was used with another request");
		api_fail(req, &err);
		return IDEMPOTENCY_REFUSED;
	}
	*ret_object = entry->object;
	return IDEMPOTENCY_REPEATED;
}

void api_idempotency_keep(struct api_request *req, const struct api_idempotency *idempotency,
	struct ops *ops, const char *object)
{
	if (*idempotency->hex &&
		registry_add_idempotency(&req->server->registry, ops, idempotency->hex,
			idempotency->fingerprint, object, req->began_us) < 0)
		ops->no_memory = true;
}
