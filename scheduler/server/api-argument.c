/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request says besides its path: its query and its JSON body.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "wire/json.h"

const char *api_query(const struct api_request *req, const char *name)
{
	return http_query(req->http, name);
}

int api_query_u64(const struct api_request *req, const char *name, uint64_t min, uint64_t max,
	uint64_t *ret, struct err *reterr)
{
	const char *text = api_query(req, name);
	unsigned long long value = 0;
	int used = 0;

	if (!text)
		return 0;
	if (strlen(text) > 19 || strspn(text, "0123456789") != strlen(text) ||
		sscanf(text, "%llu%n", &value, &used) != 1 || value < min || value > max) {
		(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL,
			"%s must be a number from %llu to %llu", name, (unsigned long long)min,
			(unsigned long long)max);
		err_add(reterr, "field", "%s", name);
		return -EINVAL;
	}
	*ret = value;
	return 0;
}

#define PAGE_DIGITS 16

int api_page_read(const struct api_request *req, struct api_page *ret, struct err *reterr)
{
	const char *token = api_query(req, "nextToken"), *digits = token + (token ? strnlen(token, ID_LEN) : 0);

	*ret = (struct api_page){ .after = "" };
	if (!token || !*token)
		return 0;
	(void)snprintf(ret->after, sizeof(ret->after), "%s", token);
	if (id_is_valid(ret->after) && strlen(digits) == PAGE_DIGITS && strspn(digits, "0123456789abcdef") == PAGE_DIGITS &&
		*digits < '8') {
		ret->after_us = (int64_t)strtoull(digits, NULL, 16);
		return 0;
	}
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "nextToken is none of ours");
	err_add(reterr, "field", "nextToken");
	return -EINVAL;
}

void api_page_token(const struct api_page *page, char ret[static API_PAGE_TOKEN_SIZE])
{
	*ret = '\0';
	if (*page->after)
		(void)snprintf(ret, API_PAGE_TOKEN_SIZE, "%s%0*" PRIx64, page->after, PAGE_DIGITS, (uint64_t)page->after_us);
}

/* A number of 2^63 or more ends jansson's parser; the caller is told which member it is, as for any other number. */
static void no_json(const char *body, const json_error_t *where, struct err *ret)
{
	char name[ID_NAME_MAX + 1] = "";

	if (json_error_code(where) == json_error_numeric_overflow && where->position > 0)
		json_name_before(body, (size_t)where->position, name, sizeof(name));
	if (*name)
		(void)err_set(ret, FAIL_INVALID_ARGUMENT, ERANGE, "%s is a number over the limit", name);
	else
		(void)err_set(ret, FAIL_INVALID_ARGUMENT, EINVAL, "the body is no JSON: %s at byte %d",
			where->text, where->position);
	err_add(ret, "field", "%s", *name ? name : "body");
}

json_t *api_json(struct api_request *req)
{
	struct err err = ERR_NULL;
	json_error_t where;
	json_t *body;

	if (req->body_size == 0)
		return json_object();
	body = json_loadb(req->body, req->body_size, JSON_REJECT_DUPLICATES, &where);
	if (body && json_is_object(body))
		return body;
	if (body) {
		(void)err_set(
			&err, FAIL_INVALID_ARGUMENT, EINVAL, "the body must be a JSON object");
		err_add(&err, "field", "body");
	} else {
		no_json(req->body, &where, &err);
	}
	json_decref(body);
	api_fail(req, &err);
	return NULL;
}
