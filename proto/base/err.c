/* SPDX-License-Identifier: Apache-2.0
 *
 * See err.h.
 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef err_set
#undef err_set_at

static int PRINTF_LIKE(5, 0) err_vset(struct err *err, enum fail_stage stage, enum fail_code code, int err_no,
	const char *fmt, va_list args)
{
	int r = err_no > 0 ? -err_no : -EIO;

	if (!err || err_is_set(err))
		return r;
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->stage = stage;
	err->component = failure_info(code)->component;
	err->err_no = err_no > 0 ? err_no : 0;
	(void) vsnprintf(err->msg, sizeof(err->msg), fmt, args); /* a cut message is still a message */
#ifdef CROFT_ORIGINS
	origin_made(err);
#endif
	return r;
}

int err_set(struct err *err, enum fail_code code, int err_no, const char *fmt, ...)
{
	va_list args;
	int r;

	va_start(args, fmt);
	r = err_vset(err, failure_info(code)->stage, code, err_no, fmt, args);
	va_end(args);
	return r;
}

int err_set_at(struct err *err, enum fail_stage stage, enum fail_code code, int err_no, const char *fmt, ...)
{
	va_list args;
	int r;

	va_start(args, fmt);
	r = err_vset(err, stage, code, err_no, fmt, args);
	va_end(args);
	return r;
}

void err_add(struct err *err, const char *key, const char *fmt, ...)
{
	struct err_field *field;
	va_list args;

	if (!err || err->n_fields >= ERR_FIELDS_MAX)
		return;
	field = &err->fields[err->n_fields++];
	(void) snprintf(field->key, sizeof(field->key), "%s", key);
	va_start(args, fmt);
	(void) vsnprintf(field->value, sizeof(field->value), fmt, args);
	va_end(args);
}

int err_prefix(struct err *err, const char *fmt, ...)
{
	char context[ERR_MSG_MAX], old[ERR_MSG_MAX];
	va_list args;

	if (!err)
		return -EIO;
	va_start(args, fmt);
	(void) vsnprintf(context, sizeof(context), fmt, args);
	va_end(args);
	memcpy(old, err->msg, sizeof(old));
	(void) snprintf(err->msg, sizeof(err->msg), "%.120s: %.132s", context, old);
	return err->err_no > 0 ? -err->err_no : -EIO;
}

const char *err_field(const struct err *err, const char *key)
{
	for (unsigned int i = 0; i < err->n_fields; i++)
		if (!strcmp(err->fields[i].key, key))
			return err->fields[i].value;
	return NULL;
}

void err_format(const struct err *err, char *buf, size_t size)
{
	char fields[ERR_FIELDS_MAX * (ERR_KEY_MAX + ERR_VALUE_MAX)] = "";
	size_t used = 0;

	for (unsigned int i = 0; i < err->n_fields; i++) {
		int n = snprintf(fields + used, sizeof(fields) - used, " %s=%s", err->fields[i].key,
			err->fields[i].value);

		if (n < 0 || (size_t) n >= sizeof(fields) - used)
			break;
		used += (size_t) n;
	}
	(void) snprintf(buf, size, "%s %s (%s): %s%s%s%s. %s", stage_name(err->stage), failure_info(err->code)->name,
		component_name(err->component), err->msg, err->err_no ? ": " : "",
		err->err_no ? strerrordesc_np(err->err_no) : "", fields, failure_info(err->code)->remedy);
}
