/* SPDX-License-Identifier: Apache-2.0
 *
 * PUT /v1/sandboxes/{id}/budget: what a sandbox may use, changed while it lives.
 */
#include "server/api.h"
#include "server/request.h"
#include "server/shell.h"

void api_sandbox_budget(struct api_request *req)
{
	struct fleet_event event = { .type = FLEET_SET_BUDGET };
	struct budget budget = { .cpu_us = 0 };
	json_t *body = api_json(req);
	struct err err = ERR_NULL;

	if (!body)
		return;
	(void)request_budget(body, "", &budget, &err);
	json_decref(body);
	event.change.budget = &budget;
	api_sandbox_change(req, &event, &err);
}
