/* SPDX-License-Identifier: Apache-2.0
 *
 * What the agent does for a sandbox that goes to sleep or wakes (core/sleep.c decides):
 *
 *   SNAPSHOT    make room -> the guest freezes -> the VMM pauses -> it writes -> all is synced -> SNAPSHOT_DONE
 *   TAKE        the same elsewhere (agent/snapshots.h), with a copy of the disk; synced later -> SNAPSHOT_TAKEN
 *   TAKE, live  its control group may hold more -> make room -> freeze -> pause -> the VMM gives descriptors (agent/forks.h)
 *               -> the disk is cloned -> SNAPSHOT_TAKEN. A VMM that gives none writes, where there is room
 *   WAKE_GUEST  the guest takes time, entropy and network                     -> GUEST_CONFIGURED
 *   THAW        the VMM resumes -> the guest thaws                            -> THAWED
 *
 * One of them at a time; sandbox_cancel() ends it. An answer that comes late, of a request or a job of one that was ended,
 * is known by the act's number and changes nothing. The two files of a snapshot to sleep in lie beside the disk.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/forks.h"
#include "agent/guest.h"
#include "agent/journal.h"
#include "agent/sandbox.h"
#include "agent/snapshots.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/rng.h"
#include "image/disk.h"

#define FREEZE_USEC (30 * USEC_PER_SEC) /* the guest syncs its disk in it */
#define WAKE_USEC (5 * USEC_PER_SEC)
#define WAKE_RETRY_MS 200 /* its vsock driver has to hear of the restore first */
#define THAW_USEC (5 * USEC_PER_SEC)
#define THAW_RETRY_MS 1000
#define THAW_TRIES 30
#define SLACK_MIB 64 /* of the snapshot besides the guest's memory */

static void path_in(const char *dir, const char *name, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.4000s/%s", dir, name);
}

/* That its disk takes, which is what a copy takes where the file system cannot share blocks. */
static uint64_t blocks_mib(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	path_in(dir, DISK_NAME, path);
	return stat(path, &st) < 0 ? 0 : (uint64_t)st.st_blocks >> 11;
}

/* What the VMM froze is told in every case; where a fork came of it, others may begin as it. */
static void give_fork(struct sandbox *sandbox, struct post *post)
{
	char dir[PATH_MAX];

	if (sandbox->fork.n == 0)
		return;
	forks_measure(&sandbox->fork, sandbox->taken_spec->memory_mib, &post->frozen);
	if (!err_is_set(&post->err) && forks_keep(&sandbox->agent->forks, sandbox->snapshot_id, &sandbox->fork) < 0)
		(void)err_set(&post->err, FAIL_NO_MEMORY, ENOMEM, "no memory for a fork");
	vmm_fork_close(&sandbox->fork);
	if (snapshot_dir(sandbox->agent->options->state, sandbox->snapshot_id, true, dir) == 0)
		post->snapshot.size_mib = blocks_mib(dir);
}

static void begin(struct sandbox *sandbox, enum sleep_step step)
{
	guest_call_free(TAKE(sandbox->call));
	(void)evtimer_del(sandbox->retry);
	sandbox->sleep_acts++;
	sandbox->tries = 0;
	sandbox->sleep_step = step;
}

static void end(struct sandbox *sandbox, enum sv_event_type result, const struct err *err)
{
	struct post post = { .type = result, .generation = sandbox->generation };

	sandbox->sleep_step = SLEEP_NONE;
	sandbox->snapshot_mib = 0;
	(void)evtimer_del(sandbox->retry);
	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	if (err)
		post.err = *err;
	if (result == SV_EV_SNAPSHOT_TAKEN)
		give_fork(sandbox, &post);
	agent_post(sandbox->agent, &post);
}

void sandbox_sleep_cancel(struct sandbox *sandbox)
{
	sandbox->sleep_step = SLEEP_NONE;
	sandbox->snapshot_mib = 0;
	sandbox->sleep_acts++;
}

static void again_in(struct sandbox *sandbox, long ms)
{
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	(void)evtimer_add(sandbox->retry, &tv);
}

/* ---- file work ---- */

/* Bulk work in its order, before all that waits, or beside it: what takes no time and is in nobody's way. */
enum turn { IN_TURN, AHEAD, BESIDE };

struct sleep_job {
	struct sandbox *sandbox;
	uint64_t act;
	enum turn turn;
	void (*run)(struct sleep_job *job);
	void (*done)(struct sandbox *sandbox, const struct err *err); /* NULL: nobody waits */
	char dir[PATH_MAX];
	const char *state;          /* directory */
	char snapshot[ID_SIZE];     /* as sandbox->snapshot_id */
	uint64_t need_mib;
	unsigned int floor_percent;
	struct err err;
};

static void run_job(void *arg, const atomic_bool *stop)
{
	struct sleep_job *job = arg;

	(void)stop;
	job->run(job);
}

static void done_job(void *arg, bool ran)
{
	struct sleep_job *job = arg;
	struct sandbox *sandbox = job->sandbox;

	sandbox->n_jobs--;
	if (ran && job->turn == BESIDE && job->act != sandbox->sleep_acts) /* a drop may have been done before it made this */
		snapshot_drop(sandbox->agent, job->snapshot, false);
	if (ran && job->done && job->act == sandbox->sleep_acts)
		job->done(sandbox, err_is_set(&job->err) ? &job->err : NULL);
	else if (ran)
		sandbox_settle(sandbox);
	free(job);
}

/* 0 or -errno. */
static int submit(struct sandbox *sandbox, void (*run)(struct sleep_job *),
	void (*done)(struct sandbox *, const struct err *), uint64_t need_mib, enum turn turn)
{
	struct sleep_job *job = calloc(1, sizeof(*job));
	int r = job ? journal_dir(sandbox->agent->options->state, sandbox->id, job->dir) : -ENOMEM;

	if (r == 0) {
		job->sandbox = sandbox;
		job->act = sandbox->sleep_acts;
		job->run = run;
		job->done = done;
		job->need_mib = need_mib;
		job->state = sandbox->agent->options->state;
		memcpy(job->snapshot, sandbox->snapshot_id, sizeof(job->snapshot));
		job->floor_percent = (unsigned int)sandbox->agent->options->disk_floor_percent;
		job->turn = turn;
		if (turn == AHEAD)
			r = worker_submit_ahead(sandbox->agent->bulk, run_job, done_job, job);
		else
			r = worker_submit(turn == BESIDE ? sandbox->agent->worker : sandbox->agent->bulk, 0, run_job, done_job, job);
	}
	if (r < 0)
		free(job);
	else
		sandbox->n_jobs++;
	return r;
}

static void remove_files(struct sleep_job *job)
{
	static const char *const names[] = { SNAPSHOT_STATE_NAME, SNAPSHOT_MEMORY_NAME };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		path_in(job->dir, names[i], path);
		if (unlink(path) < 0 && errno != ENOENT && !err_is_set(&job->err))
			(void)err_set(&job->err, FAIL_SNAPSHOT_FAILED, errno, "cannot remove an older snapshot");
	}
}

/* What an older one left goes, and what is left of the disk is above the owner's floor when all of memory is written. */
static void run_check_room(struct sleep_job *job)
{
	uint64_t free_mib, floor_mib;
	struct statvfs fs;

	if (statvfs(job->dir, &fs) < 0) {
		(void)err_set(&job->err, FAIL_SNAPSHOT_FAILED, errno, "cannot see how much space is left");
		return;
	}
	free_mib = (uint64_t)fs.f_bavail * fs.f_frsize >> 20;
	floor_mib = ((uint64_t)fs.f_blocks * fs.f_frsize >> 20) * job->floor_percent / 100;
	if (free_mib >= floor_mib + job->need_mib)
		return;
	(void)err_set(&job->err, FAIL_SNAPSHOT_FAILED, ENOSPC,
		"the node's disk has no space for the memory of what is being kept: %llu MiB, and a floor of %u percent",
		(unsigned long long)job->need_mib, job->floor_percent);
	err_add(&job->err, "asked_mib", "%llu", (unsigned long long)job->need_mib);
	err_add(&job->err, "free_mib", "%llu", (unsigned long long)free_mib);
}

static void run_make_room(struct sleep_job *job)
{
	if (*job->snapshot)
		(void)snapshot_begin(job->state, job->snapshot, &job->err);
	else
		remove_files(job);
	if (!err_is_set(&job->err))
		run_check_room(job);
}

static int sync_path(const char *dir, const char *name, int flags)
{
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];

	path_in(dir, name, path);
	fd = open(path, flags | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT && !strcmp(name, DISK_NAME) ? 0 : -errno; /* not each sandbox has a disk */
	return fsync(fd) < 0 ? -errno : 0;
}

/* Not each sandbox has a disk. What cannot be copied leaves no file, so that another way may be tried. */
static void copy_by(struct sleep_job *job, int (*copy)(int from, int to))
{
	CLEANUP_FD int from = -1, to = -1;
	char path[PATH_MAX], dir[PATH_MAX];
	int r = snapshot_dir(job->state, job->snapshot, true, dir);

	path_in(job->dir, DISK_NAME, path);
	from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (r == 0 && from < 0) {
		if (errno == ENOENT)
			return;
		r = -errno;
	}
	path_in(dir, DISK_NAME, path);
	if (r == 0)
		to = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r == 0)
		r = to < 0 ? -errno : copy(from, to);
	if (r < 0 && to >= 0)
		(void)unlink(path);
	if (r < 0)
		(void)err_set(&job->err, FAIL_SNAPSHOT_FAILED, -r, "the sandbox's disk cannot be copied");
}

static void run_clone(struct sleep_job *job)
{
	copy_by(job, disk_share);
}

static void run_copy(struct sleep_job *job)
{
	copy_by(job, disk_copy);
}

static void run_sync(struct sleep_job *job)
{
	int r = sync_path(job->dir, SNAPSHOT_MEMORY_NAME, 0);

	if (r == 0)
		r = sync_path(job->dir, SNAPSHOT_STATE_NAME, 0);
	if (r == 0)
		r = sync_path(job->dir, DISK_NAME, 0);
	if (r == 0)
		r = sync_path(job->dir, ".", O_DIRECTORY);
	if (r < 0)
		(void)err_set(&job->err, FAIL_SNAPSHOT_FAILED, -r, "the snapshot's files cannot be synced");
}

void sandbox_drop_snapshot(struct sandbox *sandbox)
{
	if (submit(sandbox, remove_files, NULL, 0, IN_TURN) < 0)
		log_warn("the files of a snapshot stay until the next", "sandbox", sandbox->id);
}

/* ---- to sleep ---- */

static enum sv_event_type result_of(const struct sandbox *sandbox)
{
	return *sandbox->snapshot_id ? SV_EV_SNAPSHOT_TAKEN : SV_EV_SNAPSHOT_DONE;
}

static void on_written(struct sandbox *sandbox, const struct err *err)
{
	end(sandbox, result_of(sandbox), err);
}

static void no_answer(struct sandbox *sandbox, enum sv_event_type result, int r)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, result == SV_EV_SNAPSHOT_DONE ? STAGE_PAUSE : STAGE_RESUME, FAIL_VMM_UNRESPONSIVE, -r,
		"the VMM's control socket does not take a request");
	end(sandbox, result, &err);
}

static void on_frozen(const struct guest_result *result, void *user)
{
	struct sandbox *sandbox = user;
	struct err err = ERR_NULL;
	int r;

	sandbox->call = NULL;
	if (err_is_set(&result->failure)) {
		(void)err_set(&err, FAIL_GUEST_FREEZE_FAILED, result->failure.err_no, "the sandbox's guest did not freeze: %s",
			result->failure.msg);
		err_add(&err, "cause", "%s", failure_info(result->failure.code)->name);
		end(sandbox, result_of(sandbox), &err);
		return;
	}
	sandbox->sleep_step = SLEEP_PAUSE_VM;
	r = sandbox->vmm ? vmm_pause(sandbox->vmm) : -ESRCH;
	if (r < 0)
		no_answer(sandbox, result_of(sandbox), r);
}

static void on_room(struct sandbox *sandbox, const struct err *err)
{
	char path[PATH_MAX];

	if (err) {
		end(sandbox, result_of(sandbox), err);
		return;
	}
	sandbox->sleep_step = SLEEP_FREEZE;
	sandbox_route(sandbox, sandbox->taken_spec, false); /* not before: a refusal costs no connection */
	sandbox_vsock_path(sandbox, path);
	if (guest_freeze(&sandbox->call, sandbox->agent->base, path, FREEZE_USEC, on_frozen, sandbox) < 0)
		no_answer(sandbox, result_of(sandbox), -ENOMEM);
}

/* What all snapshots under way may yet write: each sees the same free space until then. */
static uint64_t pending_mib(const struct agent *agent)
{
	uint64_t sum = 0;

	for (const struct sandbox *sandbox = agent->sandboxes; sandbox; sandbox = sandbox->hh.next)
		sum += sandbox->snapshot_mib;
	return sum;
}

static void make_room(struct sandbox *sandbox, uint64_t mib)
{
	begin(sandbox, SLEEP_MAKE_ROOM);
	sandbox->snapshot_mib = mib + SLACK_MIB;
	/* A snapshot that is kept has a directory of its own; one to sleep in comes behind the removal of the one before. */
	if (submit(sandbox, run_make_room, on_room, pending_mib(sandbox->agent), *sandbox->snapshot_id ? BESIDE : IN_TURN) < 0)
		no_answer(sandbox, result_of(sandbox), -ENOMEM);
}

void sandbox_snapshot(struct sandbox *sandbox, struct sandbox_spec *spec)
{
	sandbox->is_live = false;
	spec_unref(sandbox->taken_spec);
	sandbox->taken_spec = spec_ref(spec);
	memset(sandbox->snapshot_id, 0, sizeof(sandbox->snapshot_id));
	make_room(sandbox, spec->memory_mib);
}

static uint64_t disk_mib(const struct sandbox *sandbox)
{
	char dir[PATH_MAX];

	return journal_dir(sandbox->agent->options->state, sandbox->id, dir) < 0 ? 0 : blocks_mib(dir);
}

static void take_in_files(struct sandbox *sandbox)
{
	sandbox->is_live = false;
	make_room(sandbox, sandbox->taken_spec->memory_mib + disk_mib(sandbox));
}

/* Why a fork goes by a snapshot's files, like those of a node that knows no other way. */
static void tell_files(const struct sandbox *sandbox, const struct err *err)
{
	struct err why = *err;

	why.stage = STAGE_FORK;
	agent_node_event(sandbox->agent, "fork-by-snapshot", sandbox->id, sandbox->snapshot_id, &why);
}

static void on_limit(struct sandbox *sandbox, const struct err *err)
{
	if (sandbox->sleep_step != SLEEP_LIMIT)
		return;
	if (!err) {
		make_room(sandbox, disk_mib(sandbox));
		return;
	}
	tell_files(sandbox, err);
	take_in_files(sandbox);
}

void sandbox_take_snapshot(struct sandbox *sandbox, const struct sv_action *action)
{
	struct err err = ERR_NULL;
	int r;

	memcpy(sandbox->snapshot_id, action->snapshot->id, sizeof(sandbox->snapshot_id));
	spec_unref(sandbox->taken_spec);
	sandbox->taken_spec = spec_ref(action->spec);
	vmm_fork_close(&sandbox->fork);
	sandbox->is_live = action->snapshot->is_live;
	if (!sandbox->is_live) {
		take_in_files(sandbox);
		return;
	}
	begin(sandbox, SLEEP_LIMIT);
	r = sandbox_limit_memory(sandbox, action->spec, action->frozen_mib, on_limit, &err);
	if (r != 0)
		on_limit(sandbox, r < 0 ? &err : NULL);
}

void sandbox_snapshot_paths(const struct sandbox *sandbox, char state[static PATH_MAX], char memory[static PATH_MAX])
{
	char dir[PATH_MAX];

	*state = *memory = '\0';
	if (journal_dir(sandbox->agent->options->state, sandbox->id, dir) < 0)
		return;
	path_in(dir, SNAPSHOT_STATE_NAME, state);
	path_in(dir, SNAPSHOT_MEMORY_NAME, memory);
}

static void write_snapshot(struct sandbox *sandbox)
{
	char state[PATH_MAX], memory[PATH_MAX];
	struct err err = ERR_NULL;

	sandbox->sleep_step = SLEEP_WRITE;
	if (*sandbox->snapshot_id)
		snapshot_paths(sandbox->agent->options->state, sandbox->snapshot_id, true, state, memory);
	else
		sandbox_snapshot_paths(sandbox, state, memory);
	if (vmm_snapshot(sandbox->vmm, state, memory, &err) < 0)
		end(sandbox, result_of(sandbox), &err);
}

/* ---- to take one while it stands still ---- */

static void next_job(struct sandbox *sandbox, enum sleep_step step, void (*run)(struct sleep_job *),
	void (*done)(struct sandbox *, const struct err *err), enum turn turn)
{
	sandbox->sleep_step = step;
	if (submit(sandbox, run, done, pending_mib(sandbox->agent), turn) < 0)
		no_answer(sandbox, result_of(sandbox), -ENOMEM);
}

static void on_cloned(struct sandbox *sandbox, const struct err *err)
{
	if (err) /* another file system: a copy goes first, its VM is to run on */
		next_job(sandbox, SLEEP_COPY, run_copy, on_written, AHEAD);
	else
		on_written(sandbox, NULL);
}

static void clone_disk(struct sandbox *sandbox)
{
	next_job(sandbox, SLEEP_COPY, run_clone, on_cloned, BESIDE);
}

static void ask_fork(struct sandbox *sandbox)
{
	int r = sandbox->vmm ? vmm_fork(sandbox->vmm) : -ESRCH;

	sandbox->sleep_step = SLEEP_FORK;
	if (r < 0)
		no_answer(sandbox, result_of(sandbox), r);
}

static void on_room_for_files(struct sandbox *sandbox, const struct err *err)
{
	if (err)
		end(sandbox, result_of(sandbox), err);
	else
		write_snapshot(sandbox);
}

/* A VM that is as it was is kept in files, of the same moment. */
static void on_forked(struct sandbox *sandbox, const struct err *err)
{
	if (!err) {
		vmm_take_fork(sandbox->vmm, &sandbox->fork);
		clone_disk(sandbox);
	} else if (err->code == FAIL_HOST_MEMORY_FAULT) {
		end(sandbox, result_of(sandbox), err);
	} else {
		tell_files(sandbox, err);
		sandbox->is_live = false;
		sandbox->snapshot_mib += sandbox->taken_spec->memory_mib;
		next_job(sandbox, SLEEP_MAKE_ROOM, run_check_room, on_room_for_files, BESIDE);
	}
}

/* ---- to wake ---- */

static void on_woken(const struct guest_result *result, void *user)
{
	struct sandbox *sandbox = user;

	sandbox->call = NULL;
	if (result->failure.code == FAIL_GUEST_UNREACHABLE) {
		again_in(sandbox, WAKE_RETRY_MS); /* until the supervisor's deadline */
		return;
	}
	sandbox->spec = spec_unref(sandbox->spec);
	end(sandbox, SV_EV_GUEST_CONFIGURED, &result->failure);
}

static void ask_wake(struct sandbox *sandbox)
{
	uint8_t entropy[GUEST_ENTROPY_SIZE];
	struct rng rng = rng_system();
	char path[PATH_MAX];
	int r;

	rng_bytes(&rng, entropy, sizeof(entropy));
	sandbox_vsock_path(sandbox, path);
	r = guest_wake(&sandbox->call, sandbox->agent->base, path, WAKE_USEC, entropy,
		*sandbox->slot.name ? &sandbox->slot : NULL, sandbox->spec ? sandbox->id : NULL, sandbox->spec, on_woken, sandbox);
	explicit_bzero(entropy, sizeof(entropy));
	if (r < 0)
		again_in(sandbox, WAKE_RETRY_MS);
}

void sandbox_wake_guest(struct sandbox *sandbox, struct sandbox_spec *spec)
{
	begin(sandbox, SLEEP_WAKE);
	sandbox->spec = spec_unref(sandbox->spec);
	sandbox->spec = spec_ref(spec);
	ask_wake(sandbox);
}

static void on_thawed(const struct guest_result *result, void *user)
{
	struct sandbox *sandbox = user;

	sandbox->call = NULL;
	/* also one whose disk or processes did not go on at once: frozen it is of no use to anybody */
	if ((result->failure.code == FAIL_GUEST_UNREACHABLE || result->failure.code == FAIL_GUEST_FREEZE_FAILED) &&
		++sandbox->tries < THAW_TRIES)
		again_in(sandbox, THAW_RETRY_MS);
	else
		end(sandbox, SV_EV_THAWED, &result->failure);
}

static void thaw_guest(struct sandbox *sandbox)
{
	char path[PATH_MAX];

	sandbox->sleep_step = SLEEP_THAW_GUEST;
	sandbox_vsock_path(sandbox, path);
	if (guest_thaw(&sandbox->call, sandbox->agent->base, path, THAW_USEC, on_thawed, sandbox) < 0)
		again_in(sandbox, THAW_RETRY_MS);
}

static void resume_vm(struct sandbox *sandbox)
{
	int r = sandbox->vmm ? vmm_resume(sandbox->vmm) : -ESRCH;

	if (r < 0)
		no_answer(sandbox, SV_EV_THAWED, r);
}

void sandbox_thaw(struct sandbox *sandbox)
{
	begin(sandbox, SLEEP_RESUME_VM);
	resume_vm(sandbox);
}

/* ---- what comes back ---- */

/* A VMM that still writes a snapshot, which nobody wants any more, refuses to resume: asked until the supervisor's deadline. */
static void on_resumed(struct sandbox *sandbox, const struct err *err)
{
	if (!err) {
		thaw_guest(sandbox);
		return;
	}
	log_failure(LOG_LEVEL_WARN, "a VM does not resume yet", err, "sandbox", sandbox->id, NULL);
	again_in(sandbox, THAW_RETRY_MS);
}

void sandbox_on_slept(const struct err *err, void *user)
{
	struct sandbox *sandbox = user;

	if (sandbox->sleep_step == SLEEP_RESUME_VM) {
		on_resumed(sandbox, err);
		return;
	}
	if (sandbox->sleep_step != SLEEP_PAUSE_VM && sandbox->sleep_step != SLEEP_FORK && sandbox->sleep_step != SLEEP_WRITE)
		return; /* of an act that was ended */
	if (sandbox->sleep_step == SLEEP_FORK)
		on_forked(sandbox, err);
	else if (err)
		end(sandbox, result_of(sandbox), err);
	else if (sandbox->sleep_step == SLEEP_PAUSE_VM && sandbox->is_live)
		ask_fork(sandbox);
	else if (sandbox->sleep_step == SLEEP_PAUSE_VM)
		write_snapshot(sandbox);
	else if (*sandbox->snapshot_id)
		clone_disk(sandbox);
	else
		next_job(sandbox, SLEEP_SYNC, run_sync, on_written, IN_TURN);
}

void sandbox_sleep_retry(struct sandbox *sandbox)
{
	if (sandbox->sleep_step == SLEEP_WAKE)
		ask_wake(sandbox);
	else if (sandbox->sleep_step == SLEEP_RESUME_VM)
		resume_vm(sandbox);
	else if (sandbox->sleep_step == SLEEP_THAW_GUEST)
		thaw_guest(sandbox);
}
