/* SPDX-License-Identifier: Apache-2.0
 *
 * See query.h.
 */
#include "cli/query.h"

#include <curl/curl.h>

void query_put(FILE *to, const char *name, const char *value)
{
	char *escaped = value ? curl_easy_escape(NULL, value, 0) : NULL;

	if (escaped)
		(void) fprintf(to, "&%s=%s", name, escaped);
	curl_free(escaped);
}

void query_put_number(FILE *to, const char *name, uint64_t value, const char *unit)
{
	if (value)
		(void) fprintf(to, "&%s=%llu%s", name, (unsigned long long) value, unit);
}
