/* SPDX-License-Identifier: Apache-2.0
 *
 * Pause, resume and connect over HTTP, in E2B's shape: connect is how its SDK wakes a sandbox.
 */
#include <errno.h>
#include <string.h>

#include "server/api.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/view.h"

/* What the body asks; 0, or the request was answered. `memory` false would keep the disk alone, which is not built. */
static int read_body(struct api_request *req, uint64_t *timeout_s)
{
	json_t *body = api_json(req);
	struct err err = ERR_NULL;
	int r;

	if (!body)
		return -EINVAL;
	r = timeout_s ? request_timeout(body, timeout_s, &err) : 0;
	if (r == 0)
		r = request_keeps_memory(body, "memory", &err);
	json_decref(body);
	if (r < 0)
		api_fail(req, &err);
	return r;
}

void api_sandbox_pause(struct api_request *req)
{
	const struct tenant_entry *tenant = registry_tenant(&req->server->registry, req->tenant);
	struct fleet_event event = { .type = FLEET_PAUSE };

	if (read_body(req, NULL) < 0)
		return;
	if (!api_sandbox_is_own(req, req->params[0])) {
		api_sandbox_not_found(req);
		return;
	}
	event.pause.request = api_await(req, api_sandbox_on_changed);
	event.pause.sandbox = req->params[0];
	if (tenant)
		event.pause.quota = tenant->quota;
	shell_step(req->server->shell, &event, NULL, NULL, NULL);
}

static void answer(struct api_request *req, const struct fleet_reply *reply, int status)
{
	if (err_is_set(&reply->err) || !reply->sandbox)
		api_sandbox_fail(req, reply);
	else
		api_answer(req, status, view_sandbox_e2b(req->server, reply->sandbox));
}

static void on_connected(struct api_request *req, const struct fleet_reply *reply)
{
	answer(req, reply, 200);
}

static void on_resumed(struct api_request *req, const struct fleet_reply *reply)
{
	answer(req, reply, 201);
}

static void resume(struct api_request *req, const char *tenant_name,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply))
{
	const struct tenant_entry *tenant = registry_tenant(&req->server->registry, tenant_name);
	struct fleet_resume resume = { .sandbox = req->wake.sandbox, .timeout_s = (uint32_t)req->wake.timeout_s };
	const struct fleet_event event = { .type = FLEET_RESUME, .resume = &resume };

	if (tenant)
		resume.quota = tenant->quota;
	resume.request = api_await(req, on_reply);
	shell_step(req->server->shell, &event, NULL, NULL, NULL);
}

/* Woken; or it was put to sleep once more meanwhile. */
static void on_woken(struct api_request *req, const struct fleet_reply *reply)
{
	struct fleet_reply asleep = *reply;

	if (!err_is_set(&reply->err) && reply->sandbox && reply->sandbox->state != SANDBOX_RUNNING)
		(void)err_set_at(&asleep.err, STAGE_RESUME, FAIL_SANDBOX_NOT_READY, EAGAIN,
			"The sandbox was paused again meanwhile.");
	req->wake.on_reply(req, &asleep);
}

/* It sleeps, or it was not to be: asked once more, each is told what it should be. */
static void on_pause_over(struct api_request *req, const struct fleet_reply *reply)
{
	if (!reply->sandbox || reply->sandbox->state == SANDBOX_PAUSING)
		req->wake.on_reply(req, reply);
	else
		resume(req, reply->sandbox->tenant, on_woken);
}

bool api_sandbox_sleeps(const struct fleet_sandbox_view *view)
{
	return view->internal == SANDBOX_PAUSED || view->internal == SANDBOX_PAUSING || view->internal == SANDBOX_RESUMING;
}

void api_sandbox_wake(struct api_request *req, const struct sandbox_record *record, const struct fleet_sandbox_view *view,
	uint64_t timeout_s, void (*on_reply)(struct api_request *req, const struct fleet_reply *reply))
{
	memcpy(req->wake.sandbox, record->id, sizeof(req->wake.sandbox));
	req->wake.timeout_s = timeout_s;
	req->wake.on_reply = on_reply;
	resume(req, record->tenant, view->internal == SANDBOX_PAUSING ? on_pause_over : on_woken);
}

/* Of one that runs: its access token, and a new life time when one is named. */
void api_sandbox_connect(struct api_request *req)
{
	struct sandbox_record record;
	struct fleet_sandbox_view view;
	uint64_t timeout_s = 0;

	if (read_body(req, &timeout_s) < 0 || api_sandbox_find(req, req->params[0], &record, &view) < 0)
		return;
	if (view.state == PUBLIC_STOPPING || view.state == PUBLIC_ENDED)
		api_sandbox_not_found(req);
	else if (api_sandbox_sleeps(&view))
		api_sandbox_wake(req, &record, &view, timeout_s, on_resumed);
	else if (timeout_s)
		api_sandbox_set_timeout(req, timeout_s, on_connected);
	else
		api_answer(req, 200, view_sandbox_e2b(req->server, &record));
	sandbox_record_deinit(&record);
}

/* As connect, but one that runs is a conflict. */
void api_sandbox_resume(struct api_request *req)
{
	struct fleet_sandbox_view view;
	struct sandbox_record record;
	struct err err = ERR_NULL;
	uint64_t timeout_s = 0;

	if (read_body(req, &timeout_s) < 0 || api_sandbox_find(req, req->params[0], &record, &view) < 0)
		return;
	if (view.state == PUBLIC_STOPPING || view.state == PUBLIC_ENDED) {
		api_sandbox_not_found(req);
	} else if (!api_sandbox_sleeps(&view)) {
		(void)err_set_at(&err, STAGE_RESUME, FAIL_CONFLICT, EALREADY, "The sandbox is not paused.");
		api_fail(req, &err);
	} else {
		api_sandbox_wake(req, &record, &view, timeout_s, on_resumed);
	}
	sandbox_record_deinit(&record);
}
