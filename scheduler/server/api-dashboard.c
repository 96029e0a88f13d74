/* SPDX-License-Identifier: Apache-2.0
 *
 * The dashboard's files (dashboard/dashboard.h). The policy that goes with them lets the page speak with this scheduler and
 * nobody else, run no script but these, send no form anywhere and stand in no frame.
 */
#include <errno.h>
#include <string.h>

#include "dashboard/dashboard.h"
#include "server/api.h"

#define POLICY                                                                                                     \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "            \
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "        \
	"trusted-types 'none'"

void api_dashboard(struct api_request *req)
{
	const struct dashboard_file *file = dashboard_find(req->params[0]);
	const char *known = http_header(req->http, "if-none-match");
	struct err err = ERR_NULL;

	if (!file) {
		(void)err_set(&err, FAIL_NO_SUCH_PATH, ENOENT, "there is nothing at this path");
		api_fail(req, &err);
		return;
	}
	const struct http_field fields[] = { { "Content-Security-Policy", POLICY }, { "X-Content-Type-Options", "nosniff" },
		{ "Referrer-Policy", "no-referrer" }, { "Cross-Origin-Opener-Policy", "same-origin" },
		{ "Cross-Origin-Resource-Policy", "same-origin" }, { "Cache-Control", "no-cache" }, { "ETag", file->etag } };
	const bool is_known = known && !strcmp(known, file->etag);

	api_answer_bytes(req, is_known ? 304 : 200, is_known ? NULL : dashboard_content_type(file), fields, ARRAY_LEN(fields),
		file->bytes, is_known ? 0 : file->size);
}

/* What the page loads is named beside it, so its own address ends with a slash. */
void api_dashboard_enter(struct api_request *req)
{
	const struct http_field to = { "Location", "/dashboard/" };

	api_answer_bytes(req, 303, NULL, &to, 1, "", 0);
}
