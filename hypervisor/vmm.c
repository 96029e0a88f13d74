/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm.h.
 */
#include "vmm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "filter.h"
#include "host-limit.h"

#define LAST_WORDS_USEC (200 * USEC_PER_MSEC)

/* The first cause wins. */
static void end(struct vmm *vmm, const struct exit_record *record)
{
	if (vmm->exit.reason != EXIT_NONE)
		return;
	vmm->exit = *record;
	vmm->exit.realtime_usec = clock_realtime_usec();
	vmm->exit.reached_userspace = vmm->vm && vm_has_event(vmm->vm, VM_EVENT_USERSPACE);
	vmm->state = CONTROL_STOPPING;
	vmm->loop.stop = true;
}

static void end_with(struct vmm *vmm, enum exit_reason reason, const char *detail)
{
	struct exit_record record = { .reason = reason };

	(void) snprintf(record.detail, sizeof(record.detail), "%s", detail);
	end(vmm, &record);
}

/* ---- the VM's word ---- */

static void on_event(void *data, enum vm_event event, int64_t monotonic_usec)
{
	struct vmm *vmm = data;

	server_broadcast(&vmm->server, control_encode_event(event, monotonic_usec, vmm->server.out));
}

static void on_ended(void *data)
{
	struct vmm *vmm = data;
	struct exit_record record = vm_exit_record(vmm->vm);

	end(vmm, &record);
}

static const struct vm_hooks hooks = { .event = on_event, .ended = on_ended };

/* ---- the lease ---- */

static void arm_lease(struct vmm *vmm)
{
	int64_t until = vmm->lease.length_ms ? vmm->lease.deadline_usec : 0; /* 0: not armed */
	struct itimerspec at = { .it_value = { .tv_sec = until / USEC_PER_SEC, .tv_nsec = until % USEC_PER_SEC * 1000 } };

	(void) timerfd_settime(vmm->lease_fd, TFD_TIMER_ABSTIME, &at, NULL); /* all arguments are ours */
}

static void on_lease(void *data, uint32_t events)
{
	struct vmm *vmm = data;
	struct exit_record record = { .reason = EXIT_LEASE };
	uint64_t count;

	(void) events;
	(void) !read(vmm->lease_fd, &count, sizeof(count)); /* only clears it */
	if (!lease_is_expired(&vmm->lease, clock_boottime_usec()))
		return; /* was renewed meanwhile */
	(void) err_set(&record.failure, FAIL_LEASE_EXPIRED, ETIMEDOUT, "the lease of %llu ms was not renewed",
		(unsigned long long) vmm->lease.length_ms);
	err_add(&record.failure, "lease_ms", "%llu", (unsigned long long) vmm->lease.length_ms);
	(void) snprintf(record.detail, sizeof(record.detail), "the lease was not renewed in time");
	log_warn("the lease was not renewed: the VM ends itself", "lease_ms", LOG_NUM(vmm->lease.length_ms));
	end(vmm, &record);
}

static int make_lease(struct vmm *vmm)
{
	vmm->lease_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (vmm->lease_fd < 0)
		return -errno;
	return loop_add(&vmm->loop, &vmm->lease_source, vmm->lease_fd, EPOLLIN, on_lease, vmm);
}

/* ---- requests ---- */

/* From here on the loop thread has its own filter, and no file grows over what it is meant to be. */
static int narrow(struct vmm *vmm, struct err *reterr)
{
	struct rlimit limit;
	int r;

	if (!vmm->is_filtered)
		return 0;
	limit.rlim_cur = limit.rlim_max = vm_largest_file(vmm->vm);
	if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return err_set(reterr, FAIL_JAIL_FAILED, errno, "the limit of file sizes");
	r = filter_install(THREAD_LOOP);
	return r < 0 ? err_set(reterr, FAIL_JAIL_FAILED, -r, "the filter of the loop thread") : 0;
}

static int start(struct vmm *vmm, struct vm_config *config, struct err *reterr)
{
	char cmdline[CMDLINE_SIZE];
	int r;

	config->run = vmm->run;
	config->pagemap_fd = vmm->pagemap_fd;
	r = config_check(config, cmdline, reterr);
	if (r == 0 && config->is_prepared)
		r = vm_fill(vmm->vm, config, reterr);
	else if (r == 0)
		r = vm_build(&vmm->vm, &vmm->loop, config, cmdline, &hooks, vmm, reterr);
	if (r < 0)
		return r;
	vmm->memory_mib = config->memory_mib;
	vmm->vcpus = config->vcpus;
	vmm->vm->is_filtered = vmm->is_filtered;
	if (config->is_shell)
		return vm_make_threads(vmm->vm, reterr);
	/* kernel and initramfs are in memory: their descriptors go when the request goes */
	r = vm_start(vmm->vm, reterr);
	if (r == 0)
		r = narrow(vmm, reterr);
	if (r == 0 && config->lease_ms > 0) {
		lease_begin(&vmm->lease, config->lease_ms, clock_boottime_usec());
		if (config->lease_until_usec > 0 && config->lease_until_usec < vmm->lease.deadline_usec)
			vmm->lease.deadline_usec = config->lease_until_usec;
		arm_lease(vmm);
	}
	return r;
}

static void handle_start(struct vmm *vmm, struct server_connection *connection, struct control_request *request)
{
	struct exit_record record = { .reason = EXIT_START_FAILED };
	enum control_state from = request->start.is_prepared ? CONTROL_PREPARED : CONTROL_WAITING;
	bool is_shell = request->start.is_shell;
	struct err err = ERR_NULL;

	if (vmm->state != from) {
		(void) err_set(&err, FAIL_VMM_CONTROL_INVALID, EALREADY, "this VMM was %s",
			from == CONTROL_PREPARED ? "not prepared, or started already" : "started or prepared already");
		server_send(&vmm->server, connection, control_encode_failure(request->id, &err, vmm->server.out));
		return;
	}
	if (start(vmm, &request->start, &err) == 0) {
		vmm->state = is_shell ? CONTROL_PREPARED : CONTROL_RUNNING;
		log_info(is_shell ? "prepared" : "started", "vcpus", LOG_NUM(vmm->vcpus), "memory_mib", LOG_NUM(vmm->memory_mib));
		server_send(&vmm->server, connection, control_encode_done(request->id, vmm->server.out));
		return;
	}
	host_limit_refine(&err);
	log_failure(LOG_LEVEL_ERROR, is_shell ? "nothing can be prepared" : "start failed", &err, NULL);
	server_send(&vmm->server, connection, control_encode_failure(request->id, &err, vmm->server.out));
	record.failure = err;
	(void) snprintf(record.detail, sizeof(record.detail), "%.*s", EXIT_DETAIL_MAX - 1, err.msg);
	end(vmm, &record);
}

static void on_grace(void *data)
{
	end_with(data, EXIT_STOPPED, "the guest did not power itself off in time");
}

static bool is_started(const struct vmm *vmm)
{
	return vmm->state != CONTROL_WAITING && vmm->state != CONTROL_PREPARED;
}

static void handle_stop(struct vmm *vmm, struct server_connection *connection, const struct control_request *request)
{
	struct err err = ERR_NULL, stopped = ERR_NULL;

	server_send(&vmm->server, connection, control_encode_done(request->id, vmm->server.out));
	if (request->force || !is_started(vmm)) {
		end_with(vmm, EXIT_STOPPED, "the control socket asked for it");
		return;
	}
	(void) err_set(&stopped, FAIL_SNAPSHOT_FAILED, ECANCELED, "the VM was told to stop while its snapshot was written");
	snapshot_abort(&vmm->snapshot, &stopped);
	/* a guest that cannot run cannot power itself off */
	if (vm_resume(vmm->vm, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "a paused VM is to power itself off", &err, NULL);
	vmm->state = CONTROL_STOPPING;
	loop_timer_arm(&vmm->loop, &vmm->grace, (int64_t) request->grace_ms * USEC_PER_MSEC, on_grace, vmm);
}

static void handle_status(struct vmm *vmm, struct server_connection *connection, uint64_t id)
{
	struct control_status status = { .state = vmm->state, .jail = vmm->jail,
		.lease_left_ms = lease_left_ms(&vmm->lease, clock_boottime_usec()), .is_unforked = !vmm->has_forked };

	for (int i = 0; vmm->vm && i < VM_EVENT_MAX_; i++)
		status.event_usec[i] = atomic_load(&vmm->vm->event_usec[i]);
	server_send(&vmm->server, connection, control_encode_status(id, &status, vmm->server.out));
}

static void handle_renew(struct vmm *vmm, struct server_connection *connection, const struct control_request *request)
{
	int64_t now = clock_boottime_usec();
	struct err err = ERR_NULL;
	size_t size;
	bool done;

	if (request->lease_until_usec > 0)
		done = lease_extend(&vmm->lease, request->lease_until_usec, now);
	else
		done = lease_renew(&vmm->lease, request->lease_ms, now);
	if (done && request->ends_lease)
		lease_begin(&vmm->lease, 0, now);
	if (done) {
		arm_lease(vmm);
		size = control_encode_done(request->id, vmm->server.out);
	} else {
		(void) err_set(&err, FAIL_VMM_CONTROL_INVALID, EINVAL, "this VM has no lease, or it has expired");
		size = control_encode_failure(request->id, &err, vmm->server.out);
	}
	server_send(&vmm->server, connection, size);
}

static void handle_stats(struct vmm *vmm, struct server_connection *connection, uint64_t id)
{
	struct control_stats stats = { .memory_mib = vmm->memory_mib, .vcpus = vmm->vcpus };

	if (vmm->vm)
		vm_stats(vmm->vm, &stats.vm);
	server_send(&vmm->server, connection, control_encode_stats(id, &stats, vmm->server.out));
}

/* To requests that mean nothing before start. */
static int check_started(const struct vmm *vmm, struct err *reterr)
{
	return is_started(vmm) ? 0 : err_set(reterr, FAIL_VMM_CONTROL_INVALID, ESRCH, "this VMM was not started");
}

static void answer(struct vmm *vmm, struct server_connection *connection, uint64_t id, int r, const struct err *err)
{
	server_send(&vmm->server, connection,
		r < 0 ? control_encode_failure(id, err, vmm->server.out) : control_encode_done(id, vmm->server.out));
}

static void handle_balloon(struct vmm *vmm, struct server_connection *connection, const struct control_request *request)
{
	struct err err = ERR_NULL;
	int r = check_started(vmm, &err);

	if (r == 0)
		r = vm_set_balloon(vmm->vm, request->balloon_mib, &err);
	answer(vmm, connection, request->id, r, &err);
}

static void handle_generation(struct vmm *vmm, struct server_connection *connection, uint64_t id)
{
	struct err err = ERR_NULL;
	int r = check_started(vmm, &err);

	if (r == 0)
		r = generation_renew(&vmm->vm->generation);
	if (r < 0 && !err_is_set(&err))
		(void) err_set_at(&err, STAGE_RUN, FAIL_VMM_START_FAILED, -r, "cannot renew the generation id");
	answer(vmm, connection, id, r, &err);
}

static void handle_pause(struct vmm *vmm, struct server_connection *connection, const struct control_request *request)
{
	bool pauses = request->kind == CONTROL_PAUSE;
	struct err err = ERR_NULL;
	int r = check_started(vmm, &err);

	if (r == 0 && vmm->state == CONTROL_STOPPING)
		r = err_set(&err, FAIL_VMM_CONTROL_INVALID, ESHUTDOWN, "this VM is being stopped");
	if (r == 0 && !pauses && snapshot_is_writing(&vmm->snapshot))
		r = err_set(&err, FAIL_VMM_CONTROL_INVALID, EBUSY, "a snapshot of this VM is being written");
	if (r == 0)
		r = pauses ? vm_pause(vmm->vm, &err) : vm_resume(vmm->vm, &err);
	if (r == 0)
		vmm->state = pauses ? CONTROL_PAUSED : CONTROL_RUNNING;
	answer(vmm, connection, request->id, r, &err);
}

static void on_snapshot(void *data, const struct err *failure)
{
	struct vmm *vmm = data;
	struct server_connection *connection = server_find(&vmm->server, vmm->snapshot_connection);

	if (failure)
		log_failure(LOG_LEVEL_ERROR, "the snapshot was not written", failure, NULL);
	if (connection)
		answer(vmm, connection, vmm->snapshot_id, failure ? -1 : 0, failure);
}

static void handle_snapshot(struct vmm *vmm, struct server_connection *connection, struct control_request *request)
{
	struct err err = ERR_NULL;
	int r = check_started(vmm, &err);

	if (r == 0 && vmm->state != CONTROL_PAUSED)
		r = err_set(&err, FAIL_VMM_CONTROL_INVALID, EINVAL, "a snapshot is of a paused VM");
	if (r == 0 && snapshot_is_writing(&vmm->snapshot))
		r = err_set(&err, FAIL_VMM_CONTROL_INVALID, EBUSY, "a snapshot of this VM is being written");
	vmm->snapshot_id = r == 0 ? request->id : vmm->snapshot_id;
	vmm->snapshot_connection = r == 0 ? connection->number : vmm->snapshot_connection;
	if (r == 0)
		r = snapshot_write(&vmm->snapshot, &vmm->loop, vmm->vm, request->state_fd, request->memory_fd,
			request->is_differential, on_snapshot, vmm,
			&err);
	if (r == 0)
		request->memory_fd = request->state_fd = -1; /* the writer's */
	else
		answer(vmm, connection, request->id, r, &err);
}

/* Memory that is in no known state: nothing of it may run on. */
static void end_lost(struct vmm *vmm, const struct err *failure)
{
	struct exit_record record = { .reason = EXIT_HOST_MEMORY, .failure = *failure };

	(void) snprintf(record.detail, sizeof(record.detail), "%.*s", EXIT_DETAIL_MAX - 1, failure->msg);
	end(vmm, &record);
}

static void handle_fork(struct vmm *vmm, struct server_connection *connection, uint64_t id)
{
	int fds[MEMORY_LAYERS_MAX + 2] = { -1 }, r;
	struct err err = ERR_NULL;
	struct memory *memory;

	r = check_started(vmm, &err);
	if (r == 0 && vmm->state != CONTROL_PAUSED)
		r = err_set(&err, FAIL_VMM_CONTROL_INVALID, EINVAL, "a fork is of a paused VM");
	if (r == 0 && snapshot_is_writing(&vmm->snapshot))
		r = err_set(&err, FAIL_VMM_CONTROL_INVALID, EBUSY, "a snapshot of this VM is being written");
	if (r == 0) {
		vmm->has_forked = true;
		r = vm_fork(vmm->vm, &fds[0], &err);
	}
	if (r < 0) {
		answer(vmm, connection, id, r, &err);
		if (r == -ENOTRECOVERABLE)
			end_lost(vmm, &err);
		return;
	}
	memory = &vmm->vm->memory;
	fds[1] = memory->fd;
	for (unsigned int i = 0; i < memory->n_layers; i++)
		fds[2 + i] = memory->layers[i].fd;
	r = server_send_fds(&vmm->server, connection,
		control_encode_forked(id, memory->n_layers, memory->copied_pages, vmm->server.out), fds, 2 + memory->n_layers);
	(void) fd_close(fds[0]);
	if (r < 0) {
		(void) err_set(&err, FAIL_FORK_FAILED, -r, "the descriptors of memory and state cannot be sent");
		answer(vmm, connection, id, r, &err);
	}
}

static void handle(void *data, struct server_connection *connection, struct control_request *request)
{
	struct vmm *vmm = data;

	switch (request->kind) {
	case CONTROL_START:
	case CONTROL_PREPARE:
		handle_start(vmm, connection, request);
		break;
	case CONTROL_STOP:
		handle_stop(vmm, connection, request);
		break;
	case CONTROL_STATUS:
		handle_status(vmm, connection, request->id);
		break;
	case CONTROL_STATS:
		handle_stats(vmm, connection, request->id);
		break;
	case CONTROL_RENEW:
		handle_renew(vmm, connection, request);
		break;
	case CONTROL_BALLOON:
		handle_balloon(vmm, connection, request);
		break;
	case CONTROL_GENERATION:
		handle_generation(vmm, connection, request->id);
		break;
	case CONTROL_SNAPSHOT:
		handle_snapshot(vmm, connection, request);
		break;
	case CONTROL_FORK:
		handle_fork(vmm, connection, request->id);
		break;
	case CONTROL_PAUSE:
	case CONTROL_RESUME:
		handle_pause(vmm, connection, request);
		break;
	}
}

/* ---- the process ---- */

static void on_signal(void *data, uint32_t events)
{
	struct vmm *vmm = data;
	struct signalfd_siginfo info;
	char detail[64];

	(void) events;
	if (read(vmm->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	(void) snprintf(detail, sizeof(detail), "SIG%s", sigabbrev_np((int) info.ssi_signo));
	end_with(vmm, EXIT_SIGNAL, detail);
}

static int watch_signals(struct vmm *vmm)
{
	sigset_t set;

	(void) sigemptyset(&set);
	(void) sigaddset(&set, SIGTERM);
	(void) sigaddset(&set, SIGINT);
	vmm->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (vmm->signal_fd < 0)
		return -errno;
	return loop_add(&vmm->loop, &vmm->signals, vmm->signal_fd, EPOLLIN, on_signal, vmm);
}

int vmm_init(struct vmm *vmm, int listen_fd, struct err *reterr)
{
	int r;

	vmm->pagemap_fd = vmm->signal_fd = vmm->signals.fd = vmm->lease_fd = vmm->lease_source.fd = vmm->snapshot.memory_fd = vmm->snapshot.state_fd = -1;
	r = loop_init(&vmm->loop);
	if (r == 0)
		r = watch_signals(vmm);
	if (r == 0)
		r = make_lease(vmm);
	if (r == 0)
		r = vcpu_prepare_signal();
	if (r == 0)
		r = server_init(&vmm->server, &vmm->loop, listen_fd, handle, vmm);
	return r < 0 ? err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot watch the control socket") : 0;
}

/* Gives peers that are slow a moment to take what was sent, the last event above all. */
static void say_goodbye(struct vmm *vmm)
{
	int64_t until = clock_monotonic_usec() + LAST_WORDS_USEC;

	server_broadcast(&vmm->server,
		control_encode_exiting(&vmm->exit, clock_monotonic_usec(), vmm->server.out));
	vmm->loop.stop = false;
	while (server_has_unsent(&vmm->server) && clock_monotonic_usec() < until)
		if (loop_step(&vmm->loop, LAST_WORDS_USEC / 10) < 0)
			break;
}

int vmm_run(struct vmm *vmm)
{
	int r = loop_run(&vmm->loop), stopped = 0;

	if (r < 0)
		end_with(vmm, EXIT_BUG, "the event loop failed");
	snapshot_cancel(&vmm->snapshot);
	if (vmm->vm)
		stopped = vm_stop(vmm->vm);
	say_goodbye(vmm);
	return stopped;
}

void vmm_deinit(struct vmm *vmm)
{
	if (vmm->vm)
		vm_free(vmm->vm);
	loop_timer_disarm(&vmm->loop, &vmm->grace);
	server_deinit(&vmm->server);
	loop_remove(&vmm->loop, &vmm->lease_source);
	(void) fd_close(vmm->lease_fd);
	loop_remove(&vmm->loop, &vmm->signals);
	(void) fd_close(vmm->signal_fd);
	loop_deinit(&vmm->loop);
}
