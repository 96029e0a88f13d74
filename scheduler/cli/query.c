/* SPDX-License-Identifier: Apache-2.0
 *
 * See query.h.
 */
#include "cli/query.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

static void put(FILE *to, const char *name, const char *value)
{
	char *escaped = value ? curl_easy_escape(NULL, value, 0) : NULL;

	if (escaped)
		(void)fprintf(to, "&%s=%s", name, escaped);
	curl_free(escaped);
}

static void put_number(FILE *to, const char *name, uint64_t value, const char *unit)
{
	if (value)
		(void)fprintf(to, "&%s=%llu%s", name, (unsigned long long)value, unit);
}

char *query_new(const char *first, const struct query_item *items, size_t n)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return NULL;
	(void)fputs(first, to);
	for (size_t i = 0; i < n; i++) {
		put(to, items[i].name, items[i].text);
		put_number(to, items[i].name, items[i].number, items[i].unit ? items[i].unit : "");
	}
	if (fclose(to) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
