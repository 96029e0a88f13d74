/* SPDX-License-Identifier: Apache-2.0
 *
 * PUT /v1/sandboxes/{id}/mark: whether a sandbox's result was of use, said by its tenant, while it lives or afterwards. The books
 * (books.h) have it, beside what it cost.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/books.h"

/* A mark that the books write; its request may be gone meanwhile. */
struct waiting {
	struct api_request *req; /* NULL: gone */
};

static void on_marked(const struct err *err, void *user)
{
	struct waiting *waiting = user;
	struct api_request *req = waiting->req;

	free(waiting);
	if (!req)
		return;
	req->extra = NULL;
	req->extra_free = NULL;
	if (err)
		api_fail(req, err);
	else
		api_answer_empty(req, 204);
}

static void forget(void *extra)
{
	struct waiting *waiting = extra;

	waiting->req = NULL;
}

static void mark(struct api_request *req)
{
	struct waiting *waiting = calloc(1, sizeof(*waiting));
	struct err err = ERR_NULL;
	int r = waiting ? books_mark(req->server->books, req->tenant, req->params[0], req->is_accepted, on_marked, waiting, &err)
			: err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a mark");

	if (r < 0) {
		free(waiting);
		api_fail(req, &err);
		return;
	}
	waiting->req = req;
	req->extra = waiting;
	req->extra_free = forget;
}

static void on_history(struct api_request *req, struct sandbox_record *record)
{
	if (record && !strcmp(record->tenant, req->tenant))
		mark(req);
	else
		api_sandbox_not_found(req);
}

static int read_mark(struct api_request *req, const json_t *body, struct err *reterr)
{
	const char *text = "";
	int r = json_get_string(body, "mark", ID_NAME_MAX, &text, reterr);

	if (r < 0)
		return r;
	req->is_accepted = !strcmp(text, "accepted");
	if (req->is_accepted || !strcmp(text, "rejected"))
		return 0;
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "mark is accepted or rejected");
	err_add(reterr, "field", "mark");
	return -EINVAL;
}

void api_sandbox_mark(struct api_request *req)
{
	json_t *body = api_json(req);
	struct err err = ERR_NULL;

	if (!body)
		return;
	(void)read_mark(req, body, &err);
	json_decref(body);
	if (err_is_set(&err))
		api_fail(req, &err);
	else if (api_sandbox_is_own(req, req->params[0]))
		mark(req);
	else
		api_read_history(req, req->params[0], on_history);
}
