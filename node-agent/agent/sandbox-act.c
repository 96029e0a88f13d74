/* SPDX-License-Identifier: Apache-2.0
 *
 * The actions of a sandbox that touch its image, its disk and its files. Each ends in one
 * posted result; none feeds the supervisor from inside a step.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/evidence.h"
#include "agent/forks.h"
#include "agent/guest.h"
#include "agent/hello.h"
#include "agent/images.h"
#include "agent/journal.h"
#include "agent/routes.h"
#include "agent/sandbox.h"
#include "agent/snapshots.h"
#include "agent/vmm.h"
#include "agent/worker.h"
#include "base/fd.h"
#include "base/log.h"
#include "image/disk.h"

#define STOP_MARGIN_MS                                                                             \
	200 /* the VMM forces the end before the supervisor kills it: it leaves a better record */

/* ---- image ---- */

static void on_image(const struct err *err, void *user)
{
	struct sandbox *sandbox = user;

	sandbox->image = NULL;
	sandbox_post(sandbox, SV_EV_IMAGE_DONE, err);
}

static void fetch_image(struct sandbox *sandbox, const struct sandbox_spec *spec)
{
	struct err err = ERR_NULL;

	image_wait_free(TAKE(sandbox->image));
	if (images_want(sandbox->agent->images, spec->image_digest, spec->image_size, on_image,
		    sandbox, &sandbox->image) == 0)
		return;
	(void)err_set_at(&err, STAGE_IMAGE, FAIL_NO_MEMORY, ENOMEM, "no memory to bring an image");
	sandbox_post(sandbox, SV_EV_IMAGE_DONE, &err);
}

/* ---- file work ---- */

#define BIG_BLOCKS (64u << 11) /* of 512 bytes: whose blocks are given back by the bulk thread */
#define BIG_FILES 4

struct file_job {
	struct sandbox *sandbox;
	enum sv_event_type result;
	uint64_t generation;
	char id[ID_SIZE];
	bool has_failed, keeps_disk, keeps_snapshot;
	void (*act)(struct file_job *job);
	char dir[PATH_MAX];     /* the sandbox's own in the state directory */
	char run_dir[PATH_MAX]; /* "": none */
	const char *state;
	const char *cache; /* of disk templates */
	uint64_t disk_mib;
	char snapshot[ID_SIZE]; /* of which the disk is made, */
	bool is_of_fork;        /* and which is never finished, for it is a fork's own */
	int big[BIG_FILES]; /* removed, and held open until the bulk thread has time for their blocks */
	size_t n_big;
	struct err err;
};

static void run_file_job(void *arg, const atomic_bool *stop)
{
	struct file_job *job = arg;

	(void)stop;
	job->act(job);
}

static void run_close(void *arg, const atomic_bool *stop)
{
	int *fd = arg;

	(void)stop;
	*fd = fd_close(*fd);
}

static void done_close(void *arg, bool ran)
{
	int *fd = arg;

	(void)ran;
	(void)fd_close(*fd);
	free(fd);
}

/* The last close of a removed file gives its blocks back, which takes as long as the file is big. */
static void close_later(struct agent *agent, int fd)
{
	int *job = malloc(sizeof(*job));

	if (job) {
		*job = fd;
		if (worker_submit(agent->bulk, 0, run_close, done_close, job) == 0)
			return;
	}
	free(job);
	(void)fd_close(fd);
}

static void done_file_job(void *arg, bool ran)
{
	struct file_job *job = arg;
	struct sandbox *sandbox = job->sandbox;
	struct post post = { .type = job->result, .generation = job->generation, .err = job->err };

	sandbox->n_jobs--;
	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	while (job->n_big > 0)
		close_later(sandbox->agent, job->big[--job->n_big]);
	free(job);
	if (ran)
		agent_post(sandbox->agent, &post);
}

/* `spec`: of the disk to be made; NULL: files are removed. A copy of a disk is bulk work, and may come after the removal of a
 * sandbox that did not wait for it: then the sandbox's directory, which is removed last, takes it along. */
static void start_file_job(struct sandbox *sandbox, enum sv_event_type result, void (*act)(struct file_job *),
	const struct sandbox_spec *spec)
{
	bool is_bulk = spec && *spec->snapshot;
	struct file_job *job = calloc(1, sizeof(*job));
	struct err err = ERR_NULL;
	int r = job ? journal_dir(sandbox->agent->options->state, sandbox->id, job->dir) : -ENOMEM;

	if (r == 0) {
		job->sandbox = sandbox;
		job->result = result;
		job->generation = sandbox->generation;
		job->act = act;
		if (spec) {
			job->disk_mib = spec->disk_mib;
			memcpy(job->snapshot, spec->snapshot, sizeof(job->snapshot));
			job->is_of_fork = forks_find(sandbox->agent->forks, spec->snapshot) != NULL;
		}
		job->cache = sandbox->agent->options->cache;
		job->state = sandbox->agent->options->state;
		job->has_failed = sandbox->has_failed;
		job->keeps_disk = sandbox->keeps_disk;
		job->keeps_snapshot = sandbox->keeps_snapshot;
		(void)snprintf(job->id, sizeof(job->id), "%s", sandbox->id);
		(void)snprintf(job->run_dir, sizeof(job->run_dir), "%s", sandbox->run_dir);
		/* the same key as the journal's: a removal never overtakes the disk that it removes
		 * */
		r = is_bulk ? worker_submit(sandbox->agent->bulk, 0, run_file_job, done_file_job, job)
			    : worker_submit(sandbox->agent->worker, (uint64_t)(uintptr_t)sandbox, run_file_job,
				      done_file_job, job);
	}
	if (r == 0) {
		sandbox->n_jobs++;
		return;
	}
	free(job);
	(void)err_set_at(&err, STAGE_DISK, FAIL_NO_MEMORY, ENOMEM, "no memory for file work");
	sandbox_post(sandbox, result, &err);
}

static void act_make_disk(struct file_job *job)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%.4000s/" DISK_NAME, job->dir);
	if (unlink(path) < 0 && errno != ENOENT)
		(void)err_set(&job->err, FAIL_DISK_MAKE_FAILED, errno,
			"cannot remove the disk of an interrupted start");
	else
		(void)disk_make(job->cache, job->disk_mib, path, &job->err);
}

static bool is_kept(const struct file_job *job, const char *name)
{
	if (!strcmp(name, ".") || !strcmp(name, "..") || !strncmp(name, "state", strlen("state")))
		return true;
	if (!strcmp(name, DISK_NAME))
		return job->keeps_disk;
	return job->keeps_snapshot && (!strcmp(name, SNAPSHOT_STATE_NAME) || !strcmp(name, SNAPSHOT_MEMORY_NAME));
}

static void act_copy_disk(struct file_job *job)
{
	CLEANUP_FD int from = -1, to = -1;
	char path[PATH_MAX], dir[PATH_MAX];
	int r = snapshot_dir(job->state, job->snapshot, job->is_of_fork, dir);

	(void)snprintf(path, sizeof(path), "%.4000s/" DISK_NAME, dir);
	from = r < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0) {
		(void)err_set_at(&job->err, STAGE_DISK, FAIL_SNAPSHOT_LOST, errno, "the snapshot has no disk here");
		return;
	}
	(void)snprintf(path, sizeof(path), "%.4000s/" DISK_NAME, job->dir);
	if (unlink(path) < 0 && errno != ENOENT)
		r = -errno;
	if (r == 0)
		to = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r == 0)
		r = to < 0 ? -errno : disk_copy(from, to);
	if (r < 0)
		(void)err_set(&job->err, r == -ENOSPC || r == -EDQUOT ? FAIL_DISK_FULL : FAIL_DISK_MAKE_FAILED, -r,
			"the snapshot's disk cannot be copied");
}

static void make_disk(struct sandbox *sandbox, const struct sandbox_spec *spec)
{
	start_file_job(sandbox, SV_EV_DISK_DONE, *spec->snapshot ? act_copy_disk : act_make_disk, spec);
}

static int remove_one(struct file_job *job, int dir_fd, const char *name)
{
	CLEANUP_FD int fd = -1;
	struct stat st;

	if (job->n_big < BIG_FILES && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
		st.st_blocks > BIG_BLOCKS)
		fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (unlinkat(dir_fd, name, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fd >= 0)
		job->big[job->n_big++] = TAKE_FD(fd);
	return 0;
}

/* All of the sandbox's directory but its journal, and its disk and snapshot where these are kept, then the run directory: can
 * be repeated at any point. */
static void act_remove(struct file_job *job)
{
	DIR *dir = opendir(job->dir);
	struct dirent *entry;
	int r = 0, one;

	while (dir && (entry = readdir(dir))) {
		if (is_kept(job, entry->d_name))
			continue;
		one = remove_one(job, dirfd(dir), entry->d_name);
		r = r ? r : one;
	}
	if (dir)
		(void)closedir(dir);
	if (*job->run_dir) {
		if (job->has_failed)
			evidence_keep(job->state, job->run_dir, job->id);
		one = dir_remove(job->run_dir);
		r = r ? r : one;
	}
	if (r < 0)
		(void)err_set_at(&job->err, STAGE_STOP, FAIL_IO_FAILED, -r,
			"files of the sandbox cannot be removed");
}

void sandbox_remove_files(struct sandbox *sandbox)
{
	start_file_job(sandbox, SV_EV_REMOVED, act_remove, NULL);
}

/* ---- VMM ---- */

void sandbox_post_exit(struct sandbox *sandbox, enum sv_exit reason)
{
	struct post post = {
		.type = SV_EV_VMM_EXITED, .generation = sandbox->generation, .exit_reason = reason
	};

	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	agent_post(sandbox->agent, &post);
}

void sandbox_reap(struct sandbox *sandbox)
{
	if (!sandbox->vmm_is_gone)
		return;
	sandbox->vmm_is_gone = false;
	sandbox->is_adopting = false;
	vmm_free(TAKE(sandbox->vmm));
	sandbox_stop_hello(sandbox);
}

static void start_vmm(struct sandbox *sandbox, const struct sv_action *action)
{
	const struct sandbox_spec *spec = action->spec;
	const struct agent_options *options = sandbox->agent->options;
	char image[PATH_MAX] = "", disk[PATH_MAX] = "", dir[PATH_MAX], state[PATH_MAX] = "", memory[PATH_MAX] = "";
	struct vmm_start start = { .kvm = options->kvm_device,
		.kernel = options->kernel,
		.initramfs = options->initramfs,
		.cmdline = options->cmdline,
		.snapshot_state = state,
		.snapshot_memory = memory,
		.fork = action->restore && !action->restore_own ? forks_find(sandbox->agent->forks, spec->snapshot) : NULL,
		.image = image,
		.disk = disk,
		.vcpus = spec->vcpus,
		.memory_mib = spec->memory_mib,
		.tap = sandbox->tap,
		.mac = sandbox->slot.mac,
		.lease = action->lease };

	if (!sandbox->vmm) {
		sandbox_post_exit(sandbox, SV_EXIT_VANISHED);
		return;
	}
	if (action->restore && action->restore_own)
		sandbox_snapshot_paths(sandbox, state, memory);
	else if (action->restore)
		snapshot_paths(options->state, spec->snapshot, false, state, memory);
	(void)images_path(sandbox->agent->images, spec->image_digest, image); /* a canary has none */
	if (spec->disk_mib > 0 && journal_dir(options->state, sandbox->id, dir) == 0)
		(void)snprintf(disk, sizeof(disk), "%.4000s/" DISK_NAME, dir);
	sandbox->kills.is_heard = action->restore; /* it says no other hello */
	vmm_start(sandbox->vmm, &start);
	sandbox->tap = fd_close(sandbox->tap); /* the VMM's now */
}

/* One that cannot be told lives until the lease that it has is over. */
static void renew_vmm(struct sandbox *sandbox, const struct sv_lease *lease)
{
	int r = sandbox->vmm ? vmm_renew(sandbox->vmm, lease) : -ESRCH;

	if (r < 0)
		log_warn("a VM does not take its lease", "sandbox", sandbox->id, "error", strerror(-r));
}

static void stop_vmm(struct sandbox *sandbox)
{
	uint64_t grace = sandbox->agent->options->stop_grace_ms;

	if (!sandbox->vmm) {
		sandbox_post_exit(sandbox, SV_EXIT_VANISHED);
		return;
	}
	grace = grace > STOP_MARGIN_MS ? grace - STOP_MARGIN_MS : 0;
	/* asked both ways: a guest without ACPI hears croft-guest's word, one whose croft-guest
	 * hangs the button */
	sandbox_power_off(sandbox);
	if (vmm_stop(sandbox->vmm, (uint32_t)grace) < 0)
		(void)vmm_kill(sandbox->vmm);
}

void sandbox_route(struct sandbox *sandbox, const struct sandbox_spec *spec, bool ready)
{
	char path[PATH_MAX];

	/* it said hello: from now on it has little to say */
	if (ready)
		hello_slow(sandbox->hello);
	(void)snprintf(path, sizeof(path), "%.4000s/vsock.sock", sandbox->run_dir);
	if (routes_set(sandbox->agent->routes, sandbox->id, path,
		    spec->secure ? spec->access_token : "", ready) < 0)
		log_error("no memory for a route, the gateway does not know the sandbox", "sandbox",
			sandbox->id);
}

void sandbox_cancel(struct sandbox *sandbox)
{
	image_wait_free(TAKE(sandbox->image));
	guest_call_free(TAKE(sandbox->call));
	sandbox->spec = spec_unref(sandbox->spec);
	(void)evtimer_del(sandbox->retry);
	sandbox->is_adopting = false;
	sandbox_sleep_cancel(sandbox);
}

void sandbox_perform(struct sandbox *sandbox, struct sv_action *action)
{
	switch (action->type) {
	case SV_DO_FETCH_IMAGE:
		fetch_image(sandbox, action->spec);
		break;
	case SV_DO_MAKE_DISK:
		if (action->spec->disk_mib > 0)
			make_disk(sandbox, action->spec);
		else
			sandbox_post(sandbox, SV_EV_DISK_DONE, NULL);
		break;
	case SV_DO_MAKE_NETWORK:
		sandbox_make_network(sandbox, action->spec);
		break;
	case SV_DO_SET_NETWORK:
		sandbox_set_network(sandbox, action->spec);
		break;
	case SV_DO_SPAWN_VMM:
		sandbox_spawn_vmm(sandbox, &action->vmm, action->spec, action->frozen_mib);
		break;
	case SV_DO_START_VMM:
		start_vmm(sandbox, action);
		break;
	case SV_DO_RENEW_VMM:
		renew_vmm(sandbox, &action->lease);
		break;
	case SV_DO_ADOPT_VMM:
		sandbox_adopt(sandbox, &action->vmm);
		break;
	case SV_DO_CONFIGURE_GUEST:
		sandbox->tries = 0;
		sandbox_configure(sandbox, action->spec);
		break;
	case SV_DO_RUN_SETUP:
		sandbox_setup(sandbox, action->spec, &action->trace, action->timeout_usec);
		break;
	case SV_DO_ROUTE:
		sandbox_route(sandbox, action->spec, action->ready);
		break;
	case SV_DO_UNROUTE:
		routes_unset(sandbox->agent->routes, sandbox->id);
		break;
	case SV_DO_STOP_VMM:
		stop_vmm(sandbox);
		break;
	case SV_DO_KILL_VMM:
		sandbox_kill_vmm(sandbox, &action->vmm);
		break;
	case SV_DO_SNAPSHOT:
		sandbox_snapshot(sandbox, action->spec);
		break;
	case SV_DO_WAKE_GUEST:
		sandbox_wake_guest(sandbox, action->is_new ? action->spec : NULL);
		break;
	case SV_DO_THAW:
		sandbox_thaw(sandbox);
		break;
	case SV_DO_DROP_SNAPSHOT:
		sandbox_drop_snapshot(sandbox);
		break;
	case SV_DO_TAKE_SNAPSHOT:
		sandbox_take_snapshot(sandbox, action);
		break;
	case SV_DO_KEEP_SNAPSHOT:
		snapshot_keep(sandbox->agent, action->sandbox, action->generation, action->snapshot);
		break;
	case SV_DO_CANCEL:
		sandbox_cancel(sandbox);
		break;
	case SV_DO_REMOVE_FILES:
		sandbox->keeps_disk = action->keep_disk;
		sandbox->keeps_snapshot = action->keep_snapshot;
		sandbox->has_failed |= action->keep_evidence;
		sandbox_give_back_network(sandbox);
		break;
	default:
		perform_shared(sandbox->agent, action);
		break;
	}
}
