/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists for programs: CSV (RFC 4180) and JSON lines.
 */
#include <stdio.h>
#include <string.h>

#include "cli/list.h"

static void put_cell(const char *text)
{
	if (!text)
		return;
	if (!text[strcspn(text, ",\"\r\n")]) {
		(void) fputs(text, stdout);
		return;
	}
	(void) putchar('"');
	for (; *text; text++)
		(void) printf(*text == '"' ? "\"%c" : "%c", *text);
	(void) putchar('"');
}

/* As list_member(), but with every digit that the API gave: tables are for people, this is for sums. */
static const char *exact_member(const json_t *object, const char *path, char *buf, size_t size)
{
	const char *name = path;
	const json_t *holder = list_holder(object, &name), *value = json_object_get(holder, name);

	if (!json_is_real(value))
		return list_member(object, path, buf, size);
	(void) snprintf(buf, size, "%.9g", json_real_value(value));
	return buf;
}

static void put_csv(const json_t *list, const char *const *members, size_t n)
{
	json_t *element;
	size_t k;

	for (size_t i = 0; i < n; i++)
		(void) printf("%s%s", i ? "," : "", members[i]);
	(void) printf("\r\n");
	json_array_foreach(list, k, element) {
		for (size_t i = 0; i < n; i++) {
			char text[LIST_TEXT_MAX];

			if (i)
				(void) putchar(',');
			put_cell(exact_member(element, members[i], text, sizeof(text)));
		}
		(void) printf("\r\n");
	}
}

int list_rows(const json_t *list, const char *const *members, size_t n, enum output form)
{
	json_t *element;
	size_t k;

	if (form == OUTPUT_CSV) {
		put_csv(list, members, n);
		return EXIT_OK;
	}
	json_array_foreach(list, k, element) {
		(void) json_dumpf(element, stdout, JSON_COMPACT);
		(void) putchar('\n');
	}
	return EXIT_OK;
}
