/* SPDX-License-Identifier: Apache-2.0
 *
 * See print.h.
 */
#include "cli/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "wire/json.h"

#define TABLE_COLUMNS_MAX 10

char *clean(char *text)
{
	for (unsigned char *p = (unsigned char *) text; *p; p++) {
		/* C0, DEL, and C1 as UTF-8 has it */
		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
		else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
			p[0] = p[1] = '?';
	}
	return text;
}

const char *text_of(const json_t *object, const char *name, char *buf, size_t size)
{
	const json_t *value = json_object_get(object, name);

	if (json_is_string(value))
		(void) snprintf(buf, size, "%s", json_string_value(value));
	else if (json_is_integer(value))
		(void) snprintf(buf, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_real(value))
		(void) snprintf(buf, size, "%.4g", json_real_value(value));
	else if (json_is_boolean(value))
		(void) snprintf(buf, size, "%s", json_is_true(value) ? "yes" : "no");
	else
		return NULL;
	return clean(buf);
}

const char *text_of_us(int64_t us, char *buf, size_t size)
{
	if (us < USEC_PER_MSEC)
		(void) snprintf(buf, size, "%" PRId64 " us", us);
	else if (us < 10 * USEC_PER_SEC)
		(void) snprintf(buf, size, "%" PRId64 " ms", us / USEC_PER_MSEC);
	else
		(void) snprintf(buf, size, "%" PRId64 ".%" PRId64 " s", us / USEC_PER_SEC, us % USEC_PER_SEC / 100000);
	return buf;
}

/* ---- failures ---- */

enum cli_exit exit_of(const struct err *err)
{
	switch (failure_info(err->code)->http) {
	case 404:
		return EXIT_NOT_FOUND;
	case 408:
	case 504:
		return EXIT_TIMEOUT;
	default:
		return EXIT_ERROR;
	}
}

static void print_line(const char *name, const char *text)
{
	if (text && *text)
		(void) fprintf(stderr, "  %-9s %s\n", name, text);
}

static void print_member(const json_t *record, const char *name, const char *label)
{
	char text[1024];

	print_line(label, text_of(record, name, text, sizeof(text)));
}

/* The block of one record (wire/json.h). */
static void print_block(const char *what, const json_t *record)
{
	char message[512] = "", code[128] = "", error[64] = "", owner[64] = "", component[64] = "", line[256];
	const char *key;
	json_t *value;

	(void) text_of(record, "message", message, sizeof(message));
	(void) text_of(record, "code", code, sizeof(code));
	(void) text_of(record, "errno", error, sizeof(error));
	(void) text_of(record, "owner", owner, sizeof(owner));
	(void) text_of(record, "component", component, sizeof(component));
	(void) fprintf(stderr, "croft: %s: %s\n", what, *message ? message : code);
	print_member(record, "stage", "stage");
	(void) snprintf(line, sizeof(line), "%s%s%s%s", code, *error ? " (" : "", error, *error ? ")" : "");
	print_line("code", line);
	(void) snprintf(line, sizeof(line), "%s (%s)", owner, component);
	print_line("owner", line);
	json_object_foreach(json_object_get(record, "detail"), key, value) {
		char name[64], text[256];

		(void) snprintf(name, sizeof(name), "%s", key);
		if (text_of(json_object_get(record, "detail"), key, text, sizeof(text))) {
			(void) snprintf(line, sizeof(line), "%.60s = %.180s", clean(name), text);
			print_line("detail", line);
		}
	}
	(void) value;
	print_member(record, "sandbox", "sandbox");
	print_member(record, "node", "node");
	print_member(record, "remedy", "remedy");
	print_line("retry", json_is_true(json_object_get(record, "retryable")) ? "may help" : "does not help");
	print_member(record, "trace", "trace");
}

/* As the API would have said it: {"code", "message", "failure"}. */
static json_t *own_body(const struct err *err)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_SELF };

	return json_error_body(err, &context);
}

static void print_stderr_json(const json_t *json)
{
	(void) json_dumpf(json, stderr, JSON_COMPACT);
	(void) fputc('\n', stderr);
}

int print_failure(const struct cli *cli, const char *what, struct failure *failure)
{
	json_t *body = failure->body ? json_incref(failure->body) : own_body(&failure->err);
	enum cli_exit status = exit_of(&failure->err);

	if (cli->json)
		print_stderr_json(body);
	else
		print_block(what, json_object_get(body, "failure"));
	json_decref(body);
	failure_deinit(failure);
	return (int) status;
}

int print_record(const struct cli *cli, const char *what, const json_t *record)
{
	json_t *body = json_pack("{s:O}", "failure", record);
	struct err err = ERR_NULL;

	if (json_parse_error(body, &err) < 0)
		err.code = FAIL_API_PROTOCOL;
	if (cli->json)
		print_stderr_json(body);
	else
		print_block(what, record);
	json_decref(body);
	return (int) exit_of(&err);
}

/* ---- results ---- */

int print_finish(void)
{
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : -EIO;
}

int print_json(json_t *json)
{
	(void) json_dumpf(json, stdout, JSON_INDENT(2));
	(void) fputc('\n', stdout);
	json_decref(json);
	return print_finish() < 0 ? EXIT_ERROR : EXIT_OK;
}

struct table {
	size_t n_columns;
	json_t *rows; /* arrays of strings; the first is the heads */
};

struct table *table_new(size_t n_columns, const char *const *heads)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	table->n_columns = MIN(n_columns, (size_t) TABLE_COLUMNS_MAX);
	table->rows = json_array();
	table_add(table, heads);
	return table;
}

void table_add(struct table *table, const char *const *cells)
{
	json_t *row = table ? json_array() : NULL;

	for (size_t i = 0; row && i < table->n_columns; i++)
		(void) json_array_append_new(row, json_string(cells[i] ? cells[i] : "-"));
	if (row)
		(void) json_array_append_new(table->rows, row);
}

/* Characters, not bytes: what does not continue one. */
static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char) *text & 0xc0u) != 0x80u;
	return n;
}

static const char *cell(const json_t *row, size_t i)
{
	const char *text = json_string_value(json_array_get(row, i));

	return text ? text : "-";
}

int table_print(struct table *table)
{
	size_t widths[TABLE_COLUMNS_MAX] = { 0 }, k;
	json_t *row;

	if (!table)
		return EXIT_ERROR;
	json_array_foreach(table->rows, k, row)
		for (size_t i = 0; i < table->n_columns; i++)
			widths[i] = MAX(widths[i], width_of(cell(row, i)));
	json_array_foreach(table->rows, k, row) {
		for (size_t i = 0; i < table->n_columns; i++) {
			bool is_last = i + 1 == table->n_columns;
			int pad = is_last ? 0 : (int) (widths[i] - width_of(cell(row, i)) + 2);

			(void) printf("%s%*s", cell(row, i), pad, "");
		}
		(void) putchar('\n');
	}
	json_decref(table->rows);
	free(table);
	return print_finish() < 0 ? EXIT_ERROR : EXIT_OK;
}
