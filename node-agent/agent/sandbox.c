/* SPDX-License-Identifier: Apache-2.0
 *
 * See sandbox.h. The order rule of core/supervisor.h lives here: a journal write is with the worker
 * until it is durable, and the sandbox's queue stands until then; when it failed, what the same
 * step wanted after it is dropped (except where the write was only wished for).
 */
#include "agent/sandbox.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "agent/guest.h"
#include "agent/helper-link.h"
#include "agent/images.h"
#include "agent/journal.h"
#include "agent/routes.h"
#include "agent/vmm.h"
#include "agent/worker.h"
#include "base/fd.h"
#include "base/log.h"

struct journal_job {
	struct sandbox *sandbox;
	struct todo *todo;
	uint8_t *data; /* NULL: the directory is removed */
	size_t size;
	struct err err;
};

struct sandbox *sandbox_find(struct agent *agent, const char *id)
{
	struct sandbox *sandbox;

	HASH_FIND_STR(agent->sandboxes, id, sandbox);
	return sandbox;
}

static void on_retry(evutil_socket_t fd, short what, void *user);

static struct sandbox *sandbox_get(struct agent *agent, const char *id)
{
	struct sandbox *sandbox = sandbox_find(agent, id);
	struct err err = ERR_NULL;

	if (sandbox)
		return sandbox;
	sandbox = calloc(1, sizeof(*sandbox));
	if (sandbox) {
		(void)snprintf(sandbox->id, sizeof(sandbox->id), "%s", id);
		HASH_ADD_STR(agent->sandboxes, id, sandbox);
		sandbox->retry =
			sandbox->hh.tbl ? evtimer_new(agent->base, on_retry, sandbox) : NULL;
	}
	if (!sandbox || !sandbox->retry) {
		if (sandbox && sandbox->hh.tbl)
			HASH_DEL(agent->sandboxes, sandbox);
		free(sandbox);
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a sandbox");
		agent_fail(agent, &err);
		return NULL;
	}
	sandbox->agent = agent;
	sandbox->tap = -1;
	sandbox->files = (struct vmm_files)VMM_FILES_NULL;
	STAILQ_INIT(&sandbox->queue);
	return sandbox;
}

/* Takes the entry out of what inventories wait for. */
static void todo_free(struct agent *agent, struct todo *todo)
{
	if (todo->ticket != 0)
		TAILQ_REMOVE(&agent->writes, todo, write_link);
	sv_action_deinit(&todo->action);
	free(todo);
}

static void sandbox_free(struct sandbox *sandbox)
{
	struct todo *todo;

	while ((todo = STAILQ_FIRST(&sandbox->queue))) {
		STAILQ_REMOVE_HEAD(&sandbox->queue, link);
		todo_free(sandbox->agent, todo);
	}
	sandbox_cancel(sandbox);
	sandbox_stop_hello(sandbox);
	if (sandbox->agent->helper)
		helper_link_forget(sandbox->agent->helper, sandbox);
	(void)fd_close(sandbox->tap);
	vmm_files_close(&sandbox->files);
	vmm_fork_close(&sandbox->fork);
	spec_unref(sandbox->taken_spec);
	guest_call_free(sandbox->power_off);
	vmm_free(sandbox->vmm);
	event_free(sandbox->retry);
	spec_unref(sandbox->net_spec);
	spec_unref(sandbox->net_former);
	free(sandbox->counters);
	HASH_DEL(sandbox->agent->sandboxes, sandbox);
	free(sandbox);
}

void sandbox_settle(struct sandbox *sandbox)
{
	if (STAILQ_EMPTY(&sandbox->queue) && !sandbox->is_busy && sandbox->n_jobs == 0 &&
		sandbox->n_asks == 0 && sandbox->tap < 0 && !sandbox->vmm && !sandbox->call && !sandbox->image && !*sandbox->run_dir)
		sandbox_free(sandbox);
}

void sandbox_free_all(struct agent *agent)
{
	struct sandbox *sandbox, *next;

	HASH_ITER (hh, agent->sandboxes, sandbox, next)
		sandbox_free(sandbox);
}

void sandbox_set_run_dir(struct sandbox *sandbox, const char *path)
{
	if (*path == '/')
		(void)snprintf(sandbox->run_dir, sizeof(sandbox->run_dir), "%s", path);
}

/* The gateway is told of all that there is before anything is adopted: what runs is not gone, and calls into it go on. Whether it
 * still does is found out next. */
static void route_again(const struct sandbox *sandbox, const struct sv_journal *journal)
{
	char path[PATH_MAX];

	if ((journal->state != SV_RUNNING && journal->state != SV_ADOPTING) || !*journal->vmm.run_dir)
		return;
	(void)snprintf(path, sizeof(path), "%.4000s/vsock.sock", sandbox->run_dir);
	(void)routes_set(sandbox->agent->routes, sandbox->id, path, journal->spec->secure ? journal->spec->access_token : "",
		!journal->is_snapshotting); /* without memory: once it is adopted */
}

int sandbox_load(struct agent *agent, const struct sv_journal *journal)
{
	struct sandbox *sandbox = sandbox_get(agent, journal->sandbox);

	if (!sandbox)
		return -ENOMEM;
	sandbox->generation = journal->generation;
	sandbox_set_run_dir(sandbox, journal->vmm.run_dir);
	sandbox->has_failed = err_is_set(&journal->failure);
	(void)snprintf(sandbox->guest_boot_id, sizeof(sandbox->guest_boot_id), "%s",
		journal->guest_boot_id);
	route_again(sandbox, journal);
	return 0;
}

void sandbox_post(struct sandbox *sandbox, enum sv_event_type type, const struct err *err)
{
	struct post post = { .type = type, .generation = sandbox->generation };

	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	if (err)
		post.err = *err;
	agent_post(sandbox->agent, &post);
}

void sandbox_trim_all(struct agent *agent)
{
	struct sandbox *sandbox, *next;

	HASH_ITER (hh, agent->sandboxes, sandbox, next)
		if (sandbox->vmm && *sandbox->run_dir) {
			vmm_trim_files(sandbox->run_dir);
			sandbox_tell_kills(sandbox);
		}
}

/* ---- the journal ---- */

static void run_queue(struct sandbox *sandbox);

static void run_journal(void *arg, const atomic_bool *stop)
{
	struct journal_job *job = arg;
	struct sandbox *sandbox = job->sandbox;
	char dir[PATH_MAX];
	int r;

	(void)stop;
	if (job->data) {
		(void)journal_write(sandbox->agent->options->state, sandbox->id, job->data,
			job->size, &job->err);
		return;
	}
	r = journal_dir(sandbox->agent->options->state, sandbox->id, dir);
	if (r == 0)
		r = dir_remove(dir);
	if (r < 0)
		(void)err_set(&job->err, FAIL_STATE_WRITE_FAILED, -r,
			"cannot remove the sandbox's directory");
}

/* What the step of `failed` wanted behind it is not done. */
static void drop_step(struct sandbox *sandbox, const struct todo *failed)
{
	STAILQ_HEAD(, todo) kept = STAILQ_HEAD_INITIALIZER(kept);
	struct todo *todo;

	while ((todo = STAILQ_FIRST(&sandbox->queue))) {
		STAILQ_REMOVE_HEAD(&sandbox->queue, link);
		if (todo->step == failed->step)
			todo_free(sandbox->agent, todo);
		else
			STAILQ_INSERT_TAIL(&kept, todo, link);
	}
	STAILQ_CONCAT(&sandbox->queue, &kept);
}

static void done_journal(void *arg, bool ran)
{
	struct journal_job *job = arg;
	struct sandbox *sandbox = job->sandbox;
	struct agent *agent = sandbox->agent;
	struct todo *todo = job->todo;
	bool is_write = job->data != NULL;

	sandbox->is_busy = false;
	sandbox->n_jobs--;
	if (ran && err_is_set(&job->err)) {
		log_failure(LOG_LEVEL_ERROR, "the journal failed", &job->err, "sandbox",
			sandbox->id, NULL);
		if (is_write && !todo->action.journal.best_effort) {
			drop_step(sandbox, todo);
			sandbox_post(sandbox, SV_EV_JOURNAL_FAILED, &job->err);
		}
	}
	if (ran && is_write && todo->action.journal.answer && !err_is_set(&job->err))
		sandbox_post(sandbox, SV_EV_JOURNALLED, NULL);
	if (ran && !is_write)
		sandbox->run_dir[0] = '\0';
	todo_free(agent, todo);
	free(job->data);
	free(job);
	if (!ran)
		return; /* the agent ends */
	perform_held(agent);
	run_queue(sandbox);
}

/* Gives the write or removal to the worker; the queue stands until it is done. */
static int start_journal(struct sandbox *sandbox, struct todo *todo)
{
	struct journal_job *job = calloc(1, sizeof(*job));
	struct sv_action *action = &todo->action;
	int r = job ? 0 : -ENOMEM;

	if (r == 0 && action->type == SV_DO_JOURNAL_WRITE)
		r = journal_pack(action->journal.record, &job->data, &job->size);
	if (r == 0) {
		job->sandbox = sandbox;
		job->todo = todo;
		r = worker_submit(sandbox->agent->worker, (uint64_t)(uintptr_t)sandbox, run_journal,
			done_journal, job);
	}
	if (r < 0) {
		if (job)
			free(job->data);
		free(job);
		return r;
	}
	if (action->type == SV_DO_JOURNAL_WRITE) {
		sandbox_set_run_dir(sandbox, action->journal.record->vmm.run_dir);
		sandbox->has_failed = err_is_set(&action->journal.record->failure);
	}
	sandbox->is_busy = true;
	sandbox->n_jobs++;
	return 0;
}

/* ---- the queue ---- */

void sandbox_queue(struct agent *agent, struct sv_action *action)
{
	struct sandbox *sandbox = sandbox_get(agent, action->sandbox);
	struct todo *todo = sandbox ? calloc(1, sizeof(*todo)) : NULL;
	struct err err = ERR_NULL;

	if (!todo) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for an action");
		agent_fail(agent, &err);
		sv_action_deinit(action);
		return;
	}
	todo->action = *action;
	todo->step = agent->step;
	memset(action, 0, sizeof(*action));
	if (todo->action.type == SV_DO_JOURNAL_WRITE) {
		todo->ticket = ++agent->last_ticket;
		TAILQ_INSERT_TAIL(&agent->writes, todo, write_link);
	}
	STAILQ_INSERT_TAIL(&sandbox->queue, todo, link);
}

static void run_queue(struct sandbox *sandbox)
{
	struct agent *agent = sandbox->agent;
	struct todo *todo;

	while (!sandbox->is_busy && (todo = STAILQ_FIRST(&sandbox->queue))) {
		enum sv_action_type type = todo->action.type;

		STAILQ_REMOVE_HEAD(&sandbox->queue, link);
		sandbox->generation = todo->action.generation;
		if (type == SV_DO_JOURNAL_WRITE || type == SV_DO_JOURNAL_REMOVE) {
			struct err err = ERR_NULL;

			if (start_journal(sandbox, todo) == 0)
				break;
			(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for the journal");
			agent_fail(agent, &err);
		} else {
			sandbox_perform(sandbox, &todo->action);
		}
		todo_free(agent, todo);
	}
	sandbox_settle(sandbox);
}

void sandbox_run_queues(struct agent *agent)
{
	struct sandbox *sandbox, *next;

	HASH_ITER (hh, agent->sandboxes, sandbox, next)
		if (!STAILQ_EMPTY(&sandbox->queue))
			run_queue(sandbox);
}

static void on_retry(evutil_socket_t fd, short what, void *user)
{
	struct sandbox *sandbox = user;

	(void)fd, (void)what;
	if (sandbox->sleep_step != SLEEP_NONE)
		sandbox_sleep_retry(sandbox);
	else if (sandbox->is_adopting)
		sandbox_ask_status(sandbox);
	else if (sandbox->spec)
		sandbox_configure(sandbox, sandbox->spec);
}
