/* SPDX-License-Identifier: Apache-2.0
 *
 * See dashboard.h.
 */
#include "dashboard/dashboard.h"

#include <string.h>

#include "base/util.h"

const struct dashboard_file *dashboard_find(const char *name)
{
	if (!*name)
		name = "index.html";
	for (size_t i = 0; i < dashboard_files_count; i++)
		if (!strcmp(dashboard_files[i].name, name))
			return &dashboard_files[i];
	return NULL;
}

const char *dashboard_content_type(const struct dashboard_file *file)
{
	static const struct {
		const char *ending, *type;
	} types[] = {
		{ ".html", "text/html; charset=utf-8" },
		{ ".js", "text/javascript; charset=utf-8" },
		{ ".css", "text/css; charset=utf-8" },
		{ ".svg", "image/svg+xml" },
	};
	const char *ending = strrchr(file->name, '.');

	for (size_t i = 0; ending && i < ARRAY_LEN(types); i++)
		if (!strcmp(ending, types[i].ending))
			return types[i].type;
	return "text/plain; charset=utf-8";
}
