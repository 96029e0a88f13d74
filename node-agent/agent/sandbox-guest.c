/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent's talk with a sandbox's guest: the listener for its hello (a guest's connect to port 1
 * of the host becomes a connection to <run>/vsock.sock_1), configuration, setup command, and the
 * proof of an adopted VM that it is the one we left. The guest is hostile: a handful of
 * connections, a few seconds and 64 KiB each.
 */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/guest.h"
#include "agent/hello.h"
#include "agent/routes.h"
#include "agent/sandbox.h"
#include "agent/vmm.h"
#include "base/clock.h"
#include "base/log.h"

#define CONFIGURE_USEC (5 * USEC_PER_SEC)
#define CONFIGURE_TRIES 5
#define RETRY_MS 200
#define SETUP_MARGIN                                                                               \
	(5 * USEC_PER_SEC) /* the guest keeps the time limit itself; this is for one that does not */
#define INFO_USEC (5 * USEC_PER_SEC)
#define STATUS_SEC 1

void sandbox_vsock_path(const struct sandbox *sandbox, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.4000s/vsock.sock", sandbox->run_dir);
}

static void call_failed_to_start(
	struct sandbox *sandbox, enum sv_event_type type, enum fail_stage stage)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, stage, FAIL_NO_MEMORY, ENOMEM, "no memory for a call to the guest");
	sandbox_post(sandbox, type, &err);
}

/* ---- hello ---- */

/* Of the life of the sandbox, which goes on: a process of it did not. */
void sandbox_tell_kills(struct sandbox *sandbox)
{
	uint64_t kills = kills_tell(&sandbox->kills, clock_monotonic_usec());
	struct stage_record record = { .stage = STAGE_EXEC,
		.outcome = RESULT_FAILED,
		.began_us = clock_realtime_usec(),
		.generation = sandbox->generation };

	if (kills == 0)
		return;
	memcpy(record.sandbox, sandbox->id, sizeof(record.sandbox));
	(void)err_set_at(&record.failure, STAGE_EXEC, FAIL_GUEST_OOM, 0,
		"the sandbox's kernel has killed %llu times since its start for want of memory", (unsigned long long)kills);
	err_add(&record.failure, "kills", "%llu", (unsigned long long)kills);
	log_failure(LOG_LEVEL_INFO, "a sandbox is out of memory", &record.failure, "sandbox", sandbox->id, NULL);
	perform_stage(sandbox->agent, &record);
}

static void on_hello(const struct hello_result *hello, void *user)
{
	struct sandbox *sandbox = user;
	struct post post = {
		.type = SV_EV_GUEST_HELLO, .generation = sandbox->generation, .err = hello->failure
	};

	if (hello->oom_kills > 0) {
		kills_said(&sandbox->kills, hello->oom_kills);
		sandbox_tell_kills(sandbox);
		return;
	}
	sandbox->kills.is_heard = true;
	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	(void)snprintf(post.boot_id, sizeof(post.boot_id), "%s", hello->boot_id);
	agent_post(sandbox->agent, &post);
}

int sandbox_listen_hello(struct sandbox *sandbox, struct err *reterr)
{
	char path[PATH_MAX];

	if (sandbox->hello)
		return 0;
	(void)snprintf(path, sizeof(path), "%.4000s/vsock.sock_%d", sandbox->run_dir, HELLO_PORT);
	return hello_listen(&sandbox->hello, sandbox->agent->base, path, on_hello, sandbox, reterr);
}

void sandbox_stop_hello(struct sandbox *sandbox)
{
	hello_free(TAKE(sandbox->hello));
}

/* ---- configuration ---- */

static void on_configured(const struct guest_result *result, void *user)
{
	struct sandbox *sandbox = user;

	sandbox->call = NULL;
	if (result->failure.code == FAIL_GUEST_UNREACHABLE && ++sandbox->tries < CONFIGURE_TRIES) {
		struct timeval tv = { .tv_usec = RETRY_MS * 1000 };

		/* it may say hello a moment before it listens */
		(void)evtimer_add(sandbox->retry, &tv);
		return;
	}
	sandbox->spec = spec_unref(sandbox->spec);
	sandbox_post(sandbox, SV_EV_GUEST_CONFIGURED,
		err_is_set(&result->failure) ? &result->failure : NULL);
}

void sandbox_configure(struct sandbox *sandbox, const struct sandbox_spec *spec)
{
	char path[PATH_MAX];

	guest_call_free(TAKE(sandbox->call));
	if (sandbox->spec != spec) {
		sandbox->spec = spec_unref(sandbox->spec);
		sandbox->spec = spec_ref(
			(struct sandbox_spec *)(uintptr_t)spec); /* the count is all that changes */
	}
	sandbox_vsock_path(sandbox, path);
	if (guest_configure(&sandbox->call, sandbox->agent->base, path, CONFIGURE_USEC, sandbox->id,
		    spec, *sandbox->slot.name ? &sandbox->slot : NULL, on_configured, sandbox) < 0)
		call_failed_to_start(sandbox, SV_EV_GUEST_CONFIGURED, STAGE_GUEST);
}

/* ---- setup ---- */

static void setup_failure(const struct guest_result *result, struct err *ret)
{
	if (err_is_set(&result->failure)) {
		*ret = result->failure;
		ret->stage = STAGE_SETUP;
	} else if (result->timed_out) {
		(void)err_set(ret, FAIL_SETUP_TIMEOUT, ETIMEDOUT,
			"the setup command ran into its time limit");
	} else if (result->out_of_memory) {
		(void)err_set_at(ret, STAGE_SETUP, FAIL_GUEST_OOM, 0,
			"the sandbox's kernel killed a process of the setup command for want of memory");
	} else if (!result->exited) {
		(void)err_set(ret, FAIL_SETUP_FAILED, 0, "the setup command was ended by signal %u",
			result->signal);
		err_add(ret, "signal", "%u", result->signal);
	} else if (result->exit_code != 0) {
		(void)err_set(ret, FAIL_SETUP_FAILED, 0, "the setup command exited with status %d",
			result->exit_code);
		err_add(ret, "exit", "%d", result->exit_code);
	}
}

/* What it printed may be no text; the node's log has it all the same, as good as it can. */
static void audit_setup(const struct sandbox *sandbox, const struct guest_result *result)
{
	json_t *entry = json_pack("{s:s, s:s}", "kind", "setup-ended", "sandbox", sandbox->id);
	json_t *tail = json_string(result->tail);

	if (err_is_set(&result->failure))
		(void)json_object_set_new(entry, "code", json_string(failure_info(result->failure.code)->name));
	else if (result->exited)
		(void)json_object_set_new(entry, "exit", json_integer(result->exit_code));
	else
		(void)json_object_set_new(entry, "signal", json_integer(result->signal));
	if (tail)
		(void)json_object_set_new(entry, "tail", tail);
	routes_audit(sandbox->agent->routes, entry);
}

static void on_setup(const struct guest_result *result, void *user)
{
	struct sandbox *sandbox = user;
	struct err err = ERR_NULL;

	sandbox->call = NULL;
	setup_failure(result, &err);
	audit_setup(sandbox, result);
	if (err_is_set(&err))
		/* what it printed stays on this node */
		log_failure(LOG_LEVEL_INFO, "setup failed", &err, "sandbox", sandbox->id, "output",
			result->tail, NULL);
	sandbox_post(sandbox, SV_EV_SETUP_DONE, err_is_set(&err) ? &err : NULL);
}

void sandbox_setup(struct sandbox *sandbox, const struct sandbox_spec *spec,
	const struct trace *trace, int64_t timeout_usec)
{
	char path[PATH_MAX];

	guest_call_free(TAKE(sandbox->call));
	sandbox_vsock_path(sandbox, path);
	routes_audit(sandbox->agent->routes, json_pack("{s:s, s:s, s:s, s:s*}", "kind", "setup", "sandbox", sandbox->id, "trace",
		trace->trace_id, "command", spec->setup_command));
	if (guest_run(&sandbox->call, sandbox->agent->base, path, timeout_usec + SETUP_MARGIN,
		    spec->setup_command ? spec->setup_command : "",
		    (uint64_t)(timeout_usec / USEC_PER_MSEC), trace, on_setup, sandbox) < 0)
		call_failed_to_start(sandbox, SV_EV_SETUP_DONE, STAGE_SETUP);
}

/* ---- the end ---- */

static void on_powered_off(const struct guest_result *result, void *user)
{
	struct sandbox *sandbox = user;

	(void)result; /* the VMM's end is the answer */
	sandbox->power_off = NULL;
}

void sandbox_power_off(struct sandbox *sandbox)
{
	char path[PATH_MAX];

	if (sandbox->power_off)
		return;
	sandbox_vsock_path(sandbox, path);
	if (guest_power_off(&sandbox->power_off, sandbox->agent->base, path, INFO_USEC,
		    on_powered_off, sandbox) < 0)
		log_debug("the guest is not asked to power off", "sandbox", sandbox->id);
}

/* ---- adoption ---- */

static void adopted(struct sandbox *sandbox, const char *boot_id, const struct err *err)
{
	struct post post = { .type = SV_EV_ADOPTED,
		.generation = sandbox->generation,
		.lease_left_ms = sandbox->lease_left_ms,
		.is_unforked = sandbox->is_unforked };

	sandbox->is_adopting = false;
	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	(void)snprintf(post.boot_id, sizeof(post.boot_id), "%s", boot_id);
	if (err)
		post.err = *err;
	agent_post(sandbox->agent, &post);
}

static void on_info(const struct guest_result *result, void *user)
{
	struct sandbox *sandbox = user;
	struct err err = ERR_NULL;

	sandbox->call = NULL;
	if (!sandbox->is_adopting)
		return;
	if (err_is_set(&result->failure)) {
		/* The process is the one we left and its VMM answers: a guest that is busy or hangs
		 * is no reason to end it only because the agent was restarted. */
		log_failure(LOG_LEVEL_WARN, "an adopted guest does not answer", &result->failure,
			"sandbox", sandbox->id, NULL);
		adopted(sandbox, sandbox->guest_boot_id, NULL);
		return;
	}
	if (*sandbox->guest_boot_id && strcmp(sandbox->guest_boot_id, result->boot_id) != 0) {
		(void)err_set_at(
			&err, STAGE_RUN, FAIL_GUEST_PROTOCOL, 0, "the guest was booted anew");
		adopted(sandbox, result->boot_id, &err);
		return;
	}
	adopted(sandbox, result->boot_id, NULL);
}

void sandbox_adopt_status(struct sandbox *sandbox)
{
	char path[PATH_MAX];

	(void)evtimer_del(sandbox->retry);
	sandbox_vsock_path(sandbox, path);
	guest_call_free(TAKE(sandbox->call));
	if (guest_info(&sandbox->call, sandbox->agent->base, path, INFO_USEC, on_info, sandbox) < 0)
		call_failed_to_start(sandbox, SV_EV_ADOPTED, STAGE_HOST);
}

/* Again and again until it answers; the supervisor's deadline ends it. */
void sandbox_ask_status(struct sandbox *sandbox)
{
	struct timeval tv = { .tv_sec = STATUS_SEC };

	if (sandbox->vmm && vmm_ask_status(sandbox->vmm) < 0)
		log_debug("an adopted VMM does not take a request yet", "sandbox", sandbox->id);
	(void)evtimer_add(sandbox->retry, &tv);
}

void sandbox_adopt(struct sandbox *sandbox, const struct sv_vmm_id *id)
{
	struct sv_vmm_id found;
	struct vmm_exit end;
	struct err err = ERR_NULL;

	sandbox_set_run_dir(sandbox, id->run_dir);
	if (!sandbox->vmm && vmm_find(&sandbox->vmm, sandbox->agent->base, sandbox->run_dir, id,
				     &sandbox_vmm_handler, sandbox, &found, &err) < 0) {
		if (*sandbox->run_dir && vmm_last_word(sandbox->run_dir, &end))
			/* it ended while nobody looked, and said why */
			sandbox_vmm_handler.on_exit(&end, sandbox);
		else
			adopted(sandbox, "", &err);
		return;
	}
	if (sandbox_listen_hello(sandbox, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "a guest is not heard any more", &err, "sandbox", sandbox->id, NULL);
	hello_slow(sandbox->hello);
	sandbox->kills.is_heard = true;
	sandbox->is_adopting = true;
	sandbox_ask_status(sandbox);
}
