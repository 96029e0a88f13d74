/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm.h. The control socket is a SOCK_SEQPACKET connection that the VMM accepts from a listener
 * which it inherited; a later agent connects to the same path.
 */
#include "agent/vmm.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/message.h"
#include "agent/pidref.h"
#include "agent/vmm-exit.h"
#include "agent/vmm-jail.h"
#include "agent/vmm-private.h"
#include "agent/vmm-spawn.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/check.h"

#define PACKET_MAX (64 * 1024)
#define PACKETS_PER_TURN 32
#define REFUSED_GRACE_SEC 2 /* a VMM that refused its start ends by itself; else it is ended */
#define GROUPS_TEXT_MAX (16 * 1024)

static void on_kill_timer(evutil_socket_t fd, short what, void *user)
{
	struct vmm *vmm = user;

	(void)fd, (void)what;
	(void)vmm_kill(vmm);
}

static void on_process_end(evutil_socket_t fd, short what, void *user)
{
	struct vmm *vmm = user;
	siginfo_t info = { .si_pid = 0 };
	struct vmm_exit end;
	bool is_child;

	(void)what;
	is_child = waitid(P_PIDFD, (id_t)fd, &info, WEXITED | WNOHANG) == 0;
	if (is_child && info.si_pid == 0)
		return; /* not yet: the pidfd stays readable once it is */
	(void)event_del(vmm->pid_event);
	vmm_exit_read(vmm->run_dir, is_child ? &info : NULL, &end);
	if (err_is_set(&vmm->start_failure)) {
		end.reason = SV_EXIT_START_FAILED;
		end.failure = vmm->start_failure;
	}
	if (vmm->handler.on_exit)
		vmm->handler.on_exit(&end, vmm->user);
}

void vmm_start_failed(struct vmm *vmm, const struct err *err, bool at_once)
{
	struct timeval grace = { .tv_sec = at_once ? 0 : REFUSED_GRACE_SEC };

	if (!err_is_set(&vmm->start_failure))
		vmm->start_failure = *err;
	if (!vmm->kill_timer || evtimer_add(vmm->kill_timer, &grace) < 0)
		(void)vmm_kill(vmm);
}

/* ---- control socket ---- */

static void close_control(struct vmm *vmm)
{
	if (vmm->control_event)
		event_free(vmm->control_event);
	vmm->control_event = NULL;
	vmm->control_fd = fd_close(vmm->control_fd);
}

static void take_event(struct vmm *vmm, const Croft__VmmEvent *event)
{
	switch (event->kind) {
	case CROFT__VMM_EVENT_KIND__VMM_EVENT_STARTED:
		if (vmm->handler.on_started)
			vmm->handler.on_started(vmm->user);
		break;
	case CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE:
		if (vmm->handler.on_userspace)
			vmm->handler.on_userspace(vmm->user);
		break;
	default:
		break; /* what ends a VM is told by its exit record */
	}
}

static void take_jail(struct vmm *vmm, const Croft__VmmStatus *status)
{
	char text[VMM_JAIL_TEXT_MAX];
	bool is_whole = vmm_jail_describe(status->jail, text);

	vmm->jail_id = 0;
	if (vmm->handler.on_jailed)
		vmm->handler.on_jailed(is_whole, text, vmm->user);
}

/* Who may begin as it the descriptors say themselves: the VMM that gets them looks whether anybody can change them yet. */
static void take_fork(struct vmm *vmm, const Croft__VmmResponse *response, struct vmm_fork *fds, struct err *reterr)
{
	if (response->forked && fds->n == VMM_FORK_MEMORY + 1 + response->forked->layers) {
		vmm->fork = *fds;
		fds->n = 0;
		return;
	}
	(void)err_set(reterr, FAIL_FORK_FAILED, EBADMSG, "the VMM's answer to a fork has not the descriptors that it speaks of");
}

static void take_sleep(struct vmm *vmm, const Croft__VmmResponse *response, struct vmm_fork *fds)
{
	struct err err = ERR_NULL;

	vmm->sleep_id = 0;
	if (response->failure)
		vmm_failure_decode(response->failure, &err);
	else if (vmm->wants_fork)
		take_fork(vmm, response, fds, &err);
	if (vmm->handler.on_slept)
		vmm->handler.on_slept(err_is_set(&err) ? &err : NULL, vmm->user);
}

static void take_response(struct vmm *vmm, const Croft__VmmResponse *response, struct vmm_fork *fds)
{
	if (vmm->sleep_id && response->id == vmm->sleep_id) {
		take_sleep(vmm, response, fds);
	} else if (response->id == vmm->start_id && response->failure) {
		struct err err = ERR_NULL;

		vmm_failure_decode(response->failure, &err);
		vmm_start_failed(vmm, &err, false);
	} else if (vmm->jail_id && response->id == vmm->jail_id && response->status) {
		take_jail(vmm, response->status);
	} else if (response->id == vmm->status_id && response->status) {
		/* what was missed, in the order in which it happened */
		for (size_t i = 0; i < response->status->n_events; i++)
			take_event(vmm, response->status->events[i]);
		if (vmm->handler.on_status)
			vmm->handler.on_status(response->status->lease_left_ms, response->status->unforked, vmm->user);
	} else if (response->failure) {
		log_warn("the VMM refused a request", "run", vmm->run_dir, "code",
			response->failure->code);
	}
}

static void take_packet(struct vmm *vmm, const void *data, size_t size, struct vmm_fork *fds)
{
	Croft__VmmMessage *message;

	message = (Croft__VmmMessage *)(void *)check_unpack(
		&croft__vmm_message__descriptor, data, size, NULL);
	if (!message) {
		log_warn("the VMM sent what is no message", "run", vmm->run_dir);
		return;
	}
	if (message->body_case == CROFT__VMM_MESSAGE__BODY_EVENT)
		take_event(vmm, message->event);
	else if (message->body_case == CROFT__VMM_MESSAGE__BODY_RESPONSE)
		take_response(vmm, message->response, fds);
	croft__vmm_message__free_unpacked(message, NULL);
}

static void on_control(evutil_socket_t fd, short what, void *user)
{
	struct vmm *vmm = user;
	CLEANUP_FREE uint8_t *packet = malloc(PACKET_MAX);

	(void)what;
	for (int i = 0; packet && i < PACKETS_PER_TURN; i++) {
		struct vmm_fork fds = { .n = 0 };
		ssize_t n = unix_recv_fds(fd, packet, PACKET_MAX, fds.fds, VMM_FORK_FDS_MAX, &fds.n);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			/* it ends, or another agent took over; the pidfd tells which */
			close_control(vmm);
			return;
		}
		take_packet(vmm, packet, (size_t)n, &fds);
		vmm_fork_close(&fds); /* what was not asked for */
		if (vmm->control_fd != fd)
			return;
	}
}

static int connect_control(struct vmm *vmm)
{
	char path[PATH_MAX];

	if (vmm->control_fd >= 0)
		return 0;
	(void)snprintf(path, sizeof(path), "%.4000s/control.sock", vmm->run_dir);
	vmm->control_fd = unix_connect(path, SOCK_SEQPACKET);
	if (vmm->control_fd < 0) {
		int r = vmm->control_fd;

		vmm->control_fd = -1;
		return r;
	}
	vmm->control_event =
		event_new(vmm->base, vmm->control_fd, EV_READ | EV_PERSIST, on_control, vmm);
	if (!vmm->control_event || event_add(vmm->control_event, NULL) < 0) {
		close_control(vmm);
		return -ENOMEM;
	}
	return 0;
}

int vmm_send_request(struct vmm *vmm, Croft__VmmRequest *request, const int *fds, size_t n_fds)
{
	CLEANUP_FREE uint8_t *packet = NULL;
	size_t size;
	ssize_t n;
	int r = connect_control(vmm);

	if (r < 0)
		return r;
	request->id = ++vmm->last_id;
	size = croft__vmm_request__get_packed_size(request);
	if (size > PACKET_MAX)
		return -EMSGSIZE;
	packet = malloc(size);
	if (!packet)
		return -ENOMEM;
	(void)croft__vmm_request__pack(request, packet);
	n = unix_send_fds(vmm->control_fd, packet, size, fds, n_fds);
	return n < 0 ? (int)n : 0;
}

/* ---- the object ---- */

static int vmm_new(struct vmm **ret, struct event_base *base, const char *run_dir,
	const struct vmm_handler *handler, void *user)
{
	struct vmm *vmm = calloc(1, sizeof(*vmm));

	if (!vmm)
		return -ENOMEM;
	vmm->base = base;
	vmm->handler = *handler;
	vmm->user = user;
	vmm->pid_fd = vmm->control_fd = -1;
	(void)snprintf(vmm->run_dir, sizeof(vmm->run_dir), "%s", run_dir);
	vmm->kill_timer = evtimer_new(base, on_kill_timer, vmm);
	if (!vmm->kill_timer) {
		vmm_free(vmm);
		return -ENOMEM;
	}
	*ret = vmm;
	return 0;
}

static int watch(struct vmm *vmm, int pid_fd)
{
	vmm->pid_fd = pid_fd;
	vmm->pid_event = event_new(vmm->base, pid_fd, EV_READ | EV_PERSIST, on_process_end, vmm);
	return vmm->pid_event && event_add(vmm->pid_event, NULL) == 0 ? 0 : -ENOMEM;
}

void vmm_group_of(pid_t pid, char *ret, size_t size)
{
	CLEANUP_FREE char *text = NULL;
	const char *at;
	char path[64];

	*ret = '\0';
	(void)snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	if (file_read(path, GROUPS_TEXT_MAX, &text, NULL) < 0)
		return;
	at = strstr(text, "0::");
	if (at && (at == text || at[-1] == '\n') && strcspn(at + 3, "\n") < size)
		(void)snprintf(ret, size, "%.*s", (int)strcspn(at + 3, "\n"), at + 3);
}

static void identify(struct sv_vmm_id *id, pid_t pid, uint64_t ticks, const char *run_dir)
{
	id->pid = pid;
	id->start_ticks = ticks;
	pidref_boot_id(id->host_boot_id);
	if (!*id->run_dir)
		(void)snprintf(id->run_dir, sizeof(id->run_dir), "%s", run_dir);
}

/* It answers once it is confined; where it cannot be asked, it ends and on_exit says so. */
static void ask_jail(struct vmm *vmm)
{
	struct err err = ERR_NULL;
	int r = vmm_ask_status(vmm);

	if (r < 0) {
		(void)err_set(&err, FAIL_VMM_UNRESPONSIVE, -r, "the control socket does not take a request");
		vmm_start_failed(vmm, &err, false);
	}
	vmm->jail_id = vmm->status_id;
	vmm->status_id = 0;
}

int vmm_spawn(struct vmm **ret, struct event_base *base, const char *program, const char *jail,
	const char *run_dir, const char *sandbox, const struct vmm_handler *handler, void *user,
	struct sv_vmm_id *ret_id, struct err *reterr)
{
	struct vmm *vmm = NULL;
	uint64_t ticks = 0;
	int pid_fd = -1, r;
	pid_t pid;

	r = vmm_new(&vmm, base, run_dir, handler, user);
	if (r < 0)
		return err_set_at(
			reterr, STAGE_VMM, FAIL_NO_MEMORY, ENOMEM, "no memory for the VMM");
	r = vmm_spawn_process(program, jail, run_dir, sandbox, &pid, reterr);
	if (r < 0)
		goto fail;
	/* our own child: the number cannot be another's before we have waited for it */
	r = pidref_start_ticks(pid, &ticks);
	if (r == 0 || r == -ESRCH)
		pid_fd = pidref_open_child(pid);
	if (pid_fd < 0 || watch(vmm, pid_fd) < 0) {
		r = err_set(reterr, FAIL_VMM_START_FAILED, errno, "cannot watch the VMM's process");
		(void)kill(pid, SIGKILL);
		goto fail;
	}
	ask_jail(vmm);
	identify(ret_id, pid, ticks, run_dir);
	*ret = vmm;
	return 0;
fail:
	vmm_free(vmm);
	return r;
}

int vmm_attach(struct vmm **ret, struct event_base *base, const char *run_dir, const struct vmm_process *process,
	const struct vmm_handler *handler, void *user, struct sv_vmm_id *ret_id, struct err *reterr)
{
	struct vmm *vmm = NULL;
	int r = vmm_new(&vmm, base, run_dir, handler, user);

	if (r == 0)
		r = watch(vmm, process->pid_fd);
	else
		(void)fd_close(process->pid_fd);
	if (r < 0) {
		vmm_free(vmm);
		return err_set_at(reterr, STAGE_VMM, FAIL_NO_MEMORY, ENOMEM, "no memory for the VMM");
	}
	ask_jail(vmm);
	identify(ret_id, process->pid, process->start_ticks, run_dir);
	vmm_group_of(process->pid, ret_id->cgroup, sizeof(ret_id->cgroup));
	*ret = vmm;
	return 0;
}

/* Where it was put when it was started, if that was written down. */
static bool is_in_its_group(const struct sv_vmm_id *id, pid_t pid)
{
	char now[sizeof(id->cgroup)];

	if (!*id->cgroup)
		return true;
	vmm_group_of(pid, now, sizeof(now));
	return !strcmp(now, id->cgroup);
}

int vmm_find(struct vmm **ret, struct event_base *base, const char *run_dir,
	const struct sv_vmm_id *id, const struct vmm_handler *handler, void *user,
	struct sv_vmm_id *ret_id, struct err *reterr)
{
	char boot_id[HOST_BOOT_ID_SIZE];
	uint64_t ticks = id->start_ticks;
	pid_t pid = (pid_t)id->pid;
	struct vmm *vmm = NULL;
	int pid_fd, r;

	pidref_boot_id(boot_id);
	if (*id->host_boot_id && strcmp(id->host_boot_id, boot_id) != 0)
		return err_set(reterr, FAIL_HOST_REBOOT, ESRCH, "the host was rebooted");
	if (pid == 0)
		/* the agent died between the spawn and the record of it */
		pid = vmm_search_process(run_dir, &ticks);
	pid_fd = pid > 0 ? pidref_open(pid, ticks) : -ESRCH;
	if (pid_fd >= 0 && !is_in_its_group(id, pid)) {
		(void)fd_close(pid_fd);
		pid_fd = -ESRCH;
	}
	if (pid_fd < 0)
		return err_set(reterr, FAIL_VM_VANISHED, -pid_fd, "the VMM's process is gone");
	r = vmm_new(&vmm, base, run_dir, handler, user);
	if (r == 0)
		r = watch(vmm, pid_fd);
	else
		(void)fd_close(pid_fd);
	if (r < 0) {
		vmm_free(vmm);
		return err_set_at(
			reterr, STAGE_RUN, FAIL_NO_MEMORY, ENOMEM, "no memory for the VMM");
	}
	*ret_id = *id;
	identify(ret_id, pid, ticks, run_dir);
	*ret = vmm;
	return 0;
}

void vmm_free(struct vmm *vmm)
{
	if (!vmm)
		return;
	close_control(vmm);
	vmm_fork_close(&vmm->fork);
	if (vmm->pid_event)
		event_free(vmm->pid_event);
	if (vmm->kill_timer)
		event_free(vmm->kill_timer);
	(void)fd_close(vmm->pid_fd);
	free(vmm);
}

/* ---- requests ---- */

int vmm_kill(struct vmm *vmm)
{
	int r = pidref_signal(vmm->pid_fd, SIGKILL);

	if (r != -EPERM || !vmm->handler.on_kill_forbidden)
		return r;
	vmm->handler.on_kill_forbidden(vmm->user); /* of another uid: its group is killed */
	return 0;
}

int vmm_stop(struct vmm *vmm, uint32_t grace_ms)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmStop stop = MESSAGE(Croft__VmmStop, croft__vmm_stop);

	stop.force = grace_ms == 0;
	stop.grace_ms = grace_ms;
	request.body_case = CROFT__VMM_REQUEST__BODY_STOP;
	request.stop = &stop;
	return vmm_send_request(vmm, &request, NULL, 0);
}

int vmm_renew(struct vmm *vmm, const struct sv_lease *lease)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmRenew renew = MESSAGE(Croft__VmmRenew, croft__vmm_renew);

	renew.lease_ms = lease->length_ms;
	renew.until_us = (uint64_t)lease->until_usec;
	renew.end = lease->length_ms == 0;
	request.body_case = CROFT__VMM_REQUEST__BODY_RENEW;
	request.renew = &renew;
	return vmm_send_request(vmm, &request, NULL, 0);
}

int vmm_ask_status(struct vmm *vmm)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmStatusRequest status =
		MESSAGE(Croft__VmmStatusRequest, croft__vmm_status_request);
	int r;

	request.body_case = CROFT__VMM_REQUEST__BODY_STATUS;
	request.status = &status;
	r = vmm_send_request(vmm, &request, NULL, 0);
	if (r == 0)
		vmm->status_id = vmm->last_id;
	return r;
}

void vmm_trim_files(const char *run_dir)
{
	static const char *const names[] = { "vmm.log", "console" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char path[PATH_MAX];
		struct stat st;

		(void)snprintf(path, sizeof(path), "%s/%s", run_dir, names[i]);
		if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
			st.st_size > (off_t)VMM_LOG_MAX && truncate(path, 0) < 0)
			log_warn("cannot cut a log", "path", path, "errno", strerrorname_np(errno));
	}
}
