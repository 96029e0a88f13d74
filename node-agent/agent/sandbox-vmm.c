/* SPDX-License-Identifier: Apache-2.0
 *
 * The VMM of a sandbox: started by the agent itself, or by croft-node-helper where that can, which gives it a uid and a
 * control group of its own; what it says; how it ended; its kill. A VMM of another uid takes no signal of ours: its
 * group is killed by the helper, and it is asked to stop besides, in case the helper is away.
 *
 * A start that the helper was asked for ends in its answer, whatever was wanted meanwhile: a kill before that waits
 * for it (wants_kill).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/helper-link.h"
#include "agent/sandbox.h"
#include "agent/vmm.h"
#include "base/fd.h"
#include "base/log.h"

/* Besides guest memory and the VMM's share: page tables, pages of its disk on their way. */
#define GROUP_SLACK_MIB 64u
#define GROUP_TASKS 64u
#define GROUP_CPU_SPARE 50u /* percent of one, for loop and disks */

static int ask(struct sandbox *sandbox, struct helper_request *request, const int *fds, size_t n_fds, helper_done done,
	struct err *reterr)
{
	int r;

	memcpy(request->sandbox, sandbox->id, sizeof(request->sandbox));
	request->generation = sandbox->generation;
	if (!sandbox->agent->helper)
		return err_set(reterr, FAIL_HELPER_UNAVAILABLE, ENOTCONN, "there is no croft-node-helper");
	r = helper_link_ask(sandbox->agent->helper, request, fds, n_fds, done, sandbox, reterr);
	sandbox->n_asks += r == 0;
	return r;
}

/* ---- what it says ---- */

static void on_jailed(bool is_whole, const char *text, void *user)
{
	struct sandbox *sandbox = user;
	struct post post = { .type = SV_EV_VMM_JAILED,
		.generation = sandbox->generation,
		.is_whole = is_whole };

	if (!is_whole)
		log_warn("the VMM is not wholly jailed", "sandbox", sandbox->id, "jail", text);
	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	(void)snprintf(post.text, sizeof(post.text), "%s", text);
	agent_post(sandbox->agent, &post);
}

static void on_started(void *user)
{
	sandbox_post(user, SV_EV_VMM_STARTED, NULL);
}

static void on_userspace(void *user)
{
	sandbox_post(user, SV_EV_VMM_USERSPACE, NULL);
}

static void on_status(uint64_t lease_left_ms, bool is_unforked, void *user)
{
	struct sandbox *sandbox = user;

	sandbox->lease_left_ms = lease_left_ms;
	sandbox->is_unforked = is_unforked;
	if (sandbox->is_adopting)
		sandbox_adopt_status(sandbox);
}

static const char *const exit_names[SV_EXIT_MAX_] = {
	[SV_EXIT_POWEROFF] = "power-off",
	[SV_EXIT_RESET] = "reset",
	[SV_EXIT_PANIC] = "panic",
	[SV_EXIT_TRIPLE_FAULT] = "triple-fault",
	[SV_EXIT_KVM_INTERNAL] = "kvm-internal",
	[SV_EXIT_HOST_MEMORY] = "host-memory",
	[SV_EXIT_STOPPED] = "stopped",
	[SV_EXIT_SIGNAL] = "signal",
	[SV_EXIT_START_FAILED] = "start-failed",
	[SV_EXIT_BUG] = "bug",
	[SV_EXIT_KILLED] = "killed",
	[SV_EXIT_CRASHED] = "crashed",
	[SV_EXIT_SECCOMP] = "seccomp",
	[SV_EXIT_LEASE] = "lease",
	[SV_EXIT_VANISHED] = "vanished",
};

static void post_end(struct sandbox *sandbox, const struct vmm_exit *end)
{
	struct post post = { .type = SV_EV_VMM_EXITED,
		.generation = sandbox->generation,
		.exit_reason = end->reason,
		.exit_signal = end->signal,
		.reached_userspace = end->reached_userspace,
		.err = end->failure };

	log_info("the VMM ended", "sandbox", sandbox->id, "reason", exit_names[end->reason],
		"signal", end->signal ? LOG_NUM(end->signal) : NULL);
	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	sandbox->vmm_is_gone = true; /* freed when the post is fed: this may be its own callback */
	agent_post(sandbox->agent, &post);
}

/* ---- its end ---- */

/* What its parent and its control group know of a VMM that left no word. */
static void complete(struct vmm_exit *end, const struct helper_group_use *group)
{
	if (group->has_status && WIFSIGNALED(group->status)) {
		end->signal = WTERMSIG(group->status);
		if (end->signal == SIGKILL)
			end->reason = SV_EXIT_KILLED;
		else if (end->signal == SIGSYS) /* its handler had no chance */
			end->reason = SV_EXIT_SECCOMP;
	}
	if (group->oom_kills == 0)
		return;
	end->reason = SV_EXIT_KILLED;
	(void)err_set(&end->failure, FAIL_HOST_OOM, ENOMEM, "the kernel killed the VM for want of memory");
	err_add(&end->failure, "oom_kills", "%llu", (unsigned long long)group->oom_kills);
}

static void on_end_known(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (!err_is_set(&reply->failure) && reply->has_counters)
		complete(&sandbox->end, &reply->group);
	post_end(sandbox, &sandbox->end);
}

static void on_exit_of_vmm(const struct vmm_exit *end, void *user)
{
	struct helper_request request = { .type = HELPER_COUNTERS };
	struct sandbox *sandbox = user;

	sandbox->end = *end;
	if (end->reason != SV_EXIT_CRASHED || end->signal != 0 || !sandbox->agent->helper_starts_vmms ||
		ask(sandbox, &request, NULL, 0, on_end_known, NULL) < 0)
		post_end(sandbox, end);
}

static void on_group_killed(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (err_is_set(&reply->failure))
		log_failure(LOG_LEVEL_WARN, "a control group is not killed", &reply->failure, "sandbox", sandbox->id, NULL);
	sandbox_settle(sandbox);
}

static void on_kill_forbidden(void *user)
{
	struct helper_request request = { .type = HELPER_GROUP_KILL };
	struct sandbox *sandbox = user;
	struct err err = ERR_NULL;

	(void)vmm_stop(sandbox->vmm, 0);
	if (ask(sandbox, &request, NULL, 0, on_group_killed, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "a VMM is asked to stop, and not killed", &err, "sandbox", sandbox->id, NULL);
}

const struct vmm_handler sandbox_vmm_handler = { .on_jailed = on_jailed,
	.on_started = on_started,
	.on_userspace = on_userspace,
	.on_status = on_status,
	.on_slept = sandbox_on_slept,
	.on_exit = on_exit_of_vmm,
	.on_kill_forbidden = on_kill_forbidden };

/* The VMM of this sandbox, found again where this agent did not start it. */
static bool have_vmm(struct sandbox *sandbox, const struct sv_vmm_id *id)
{
	struct sv_vmm_id found;

	if (sandbox->vmm)
		return true;
	sandbox_set_run_dir(sandbox, id->run_dir);
	return *sandbox->run_dir && vmm_find(&sandbox->vmm, sandbox->agent->base, sandbox->run_dir,
					    id, &sandbox_vmm_handler, sandbox, &found, NULL) == 0;
}

void sandbox_kill_vmm(struct sandbox *sandbox, const struct sv_vmm_id *id)
{
	struct vmm_exit end;

	sandbox->wants_kill = sandbox->is_spawning;
	if (sandbox->is_spawning)
		return; /* the helper's answer is on its way */
	if (have_vmm(sandbox, id)) {
		(void)vmm_kill(sandbox->vmm); /* -ESRCH: its end is on the way already */
		return;
	}
	if (*sandbox->run_dir && vmm_last_word(sandbox->run_dir, &end))
		post_end(sandbox, &end);
	else
		sandbox_post_exit(sandbox, SV_EXIT_VANISHED);
}

/* ---- its start ---- */

static void post_spawned(struct sandbox *sandbox, const struct sv_vmm_id *vmm, const struct err *err)
{
	struct post post = { .type = SV_EV_VMM_SPAWNED, .generation = sandbox->generation, .vmm = *vmm };

	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	if (err)
		post.err = *err;
	if (err)
		sandbox_stop_hello(sandbox);
	agent_post(sandbox->agent, &post);
}

/* The helper's part is over. Who was to be killed meanwhile is looked for even so: the helper may have died between
 * the start and its answer. */
static void spawn_ended(struct sandbox *sandbox, const struct sv_vmm_id *vmm, const struct err *err)
{
	bool wants_kill = sandbox->wants_kill;

	sandbox->is_spawning = sandbox->wants_kill = false;
	vmm_files_close(&sandbox->files);
	if (wants_kill)
		sandbox_kill_vmm(sandbox, vmm);
	else
		post_spawned(sandbox, vmm, err);
}

static void on_vmm(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;
	struct sv_vmm_id vmm = sandbox->intent;
	struct err err = reply->failure;
	struct vmm_process process = { .pid = (pid_t)reply->pid, .start_ticks = reply->start_ticks };

	sandbox->n_asks--;
	if (!err_is_set(&err) && n_fds != 1)
		(void)err_set(&err, FAIL_HELPER_UNAVAILABLE, EBADMSG, "croft-node-helper answers without a descriptor");
	if (!err_is_set(&err)) {
		process.pid_fd = TAKE_FD(fds[0]);
		(void)vmm_attach(&sandbox->vmm, sandbox->agent->base, sandbox->run_dir, &process, &sandbox_vmm_handler,
			sandbox, &vmm, &err);
	}
	spawn_ended(sandbox, &vmm, err_is_set(&err) ? &err : NULL);
}

static void on_group(const struct helper_reply *reply, int *fds, size_t n_fds, void *user);

static int make_group(struct sandbox *sandbox, bool with_limits, struct err *reterr)
{
	struct helper_request request = { .type = HELPER_GROUP_MAKE };

	sandbox->group_has_limits = with_limits;
	if (with_limits)
		request.limits = sandbox->limits;
	return ask(sandbox, &request, NULL, 0, on_group, reterr);
}

static int start_in_group(struct sandbox *sandbox, struct err *reterr)
{
	struct helper_request request = { .type = HELPER_VMM_START,
		.jail_required = !strcmp(sandbox->agent->options->vmm_jail, "required") };
	int fds[] = { sandbox->files.control, sandbox->files.exit, sandbox->files.log };
	const char *name = strrchr(sandbox->run_dir, '/');

	if (!sandbox->group_has_limits)
		log_warn("the VM has no limits: this host's control groups take none", "sandbox", sandbox->id);
	(void)snprintf(request.run, sizeof(request.run), "%.8s", name ? name + 1 : "");
	return ask(sandbox, &request, fds, ARRAY_LEN(fds), on_vmm, reterr);
}

static void on_group(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;
	struct err err = reply->failure;
	bool may_lack = strcmp(sandbox->agent->options->vmm_jail, "required") != 0;
	int r = -EIO;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (sandbox->wants_kill)
		(void)err_set(&err, FAIL_VMM_START_FAILED, ECANCELED, "the start was given up");
	else if (!err_is_set(&err))
		r = start_in_group(sandbox, &err);
	else if (err.code == FAIL_CGROUP_FAILED && sandbox->group_has_limits && may_lack)
		r = make_group(sandbox, false, &err);
	if (r < 0)
		spawn_ended(sandbox, &sandbox->intent, &err);
}

static uint64_t memory_limit(const struct sandbox_spec *spec, uint64_t frozen_mib)
{
	return (spec_memory_cost(spec) + GROUP_SLACK_MIB + frozen_mib) << 20;
}

static void on_limited(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	const struct err *err = err_is_set(&reply->failure) ? &reply->failure : NULL;
	struct sandbox *sandbox = user;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (err && err->code == FAIL_CGROUP_FAILED) { /* then nothing limits it that could be in its way */
		log_failure(LOG_LEVEL_WARN, "a control group takes no other limit", err, "sandbox", sandbox->id, NULL);
		err = NULL;
	}
	if (sandbox->limit_act == sandbox->sleep_acts && sandbox->limited)
		sandbox->limited(sandbox, err);
	else
		sandbox_settle(sandbox);
}

int sandbox_limit_memory(struct sandbox *sandbox, const struct sandbox_spec *spec, uint64_t frozen_mib,
	void (*done)(struct sandbox *sandbox, const struct err *err), struct err *reterr)
{
	struct helper_request request = { .type = HELPER_GROUP_MAKE };

	if (!sandbox->agent->helper_starts_vmms)
		return 1;
	request.limits.memory_bytes = memory_limit(spec, frozen_mib);
	sandbox->limited = done;
	sandbox->limit_act = sandbox->sleep_acts;
	return ask(sandbox, &request, NULL, 0, on_limited, reterr);
}

static void limits_of(const struct sandbox_spec *spec, uint64_t frozen_mib, struct helper_group_limits *ret)
{
	ret->memory_bytes = memory_limit(spec, frozen_mib);
	ret->cpu_percent = 100 * spec->vcpus + GROUP_CPU_SPARE;
	ret->tasks = GROUP_TASKS + 2 * spec->vcpus;
}

/* 0: the answer comes later. */
static int ask_for_vmm(struct sandbox *sandbox, const struct sandbox_spec *spec, uint64_t frozen_mib, struct err *reterr)
{
	int r = vmm_files_open(sandbox->run_dir, &sandbox->files, reterr);

	limits_of(spec, frozen_mib, &sandbox->limits);
	if (r == 0)
		r = make_group(sandbox, true, reterr);
	if (r < 0)
		vmm_files_close(&sandbox->files);
	else
		sandbox->is_spawning = true;
	return r;
}

void sandbox_spawn_vmm(struct sandbox *sandbox, const struct sv_vmm_id *intent, const struct sandbox_spec *spec,
	uint64_t frozen_mib)
{
	const struct agent_options *options = sandbox->agent->options;
	struct sv_vmm_id vmm = *intent;
	struct err err = ERR_NULL;
	int r = 0;

	sandbox->intent = *intent;
	kills_restart(&sandbox->kills, false);
	sandbox_set_run_dir(sandbox, intent->run_dir);
	if (!*sandbox->run_dir)
		r = err_set(&err, FAIL_VMM_START_FAILED, EINVAL, "the sandbox has no run directory");
	else if (sandbox->vmm || sandbox->is_spawning)
		r = err_set(&err, FAIL_VMM_START_FAILED, EEXIST, "the sandbox has a VMM already");
	if (r == 0) {
		r = dir_make(sandbox->run_dir, 0750);
		if (r < 0)
			(void)err_set(&err, FAIL_VMM_START_FAILED, -r, "cannot make the run directory");
	}
	if (r == 0)
		r = sandbox_listen_hello(sandbox, &err);
	if (r == 0 && sandbox->agent->helper_starts_vmms) {
		r = ask_for_vmm(sandbox, spec, frozen_mib, &err);
		if (r == 0)
			return;
	} else if (r == 0) {
		r = vmm_spawn(&sandbox->vmm, sandbox->agent->base, options->vmm_path, options->vmm_jail,
			sandbox->run_dir, sandbox->id, &sandbox_vmm_handler, sandbox, &vmm, &err);
	}
	post_spawned(sandbox, &vmm, r < 0 ? &err : NULL);
}
