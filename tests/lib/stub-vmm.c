/* SPDX-License-Identifier: Apache-2.0
 *
 * A VMM without KVM, for tests of everything around it with real processes: it speaks vmm.proto on
 * the control socket it inherits, and answers guest.proto on the vsock socket with croft-guest's
 * own service, whose processes run on this host. What it is to do beside being well is the first
 * line of its first disk, "stub:<mode>" (behind "hsqs" where something takes squashfs only), or "stub.mode=<mode>" on the kernel command line:
 *
 *   well                everything works
 *   panic               the guest kernel panics before its first process
 *   never-userspace     the kernel never reaches its first process
 *   never-hello         croft-guest never says hello
 *   rootfs-unreadable   croft-guest says that it cannot mount its root
 *   refuse              the start is refused with KERNEL_INVALID
 *   crash               the VMM itself aborts once the guest runs
 *   stubborn            neither power button nor croft-guest ends it; only force does
 *   mute                the control socket never answers
 *   slow                half a second between the steps of the start
 *   sleeper             its guest can be frozen (in the modes above it cannot)
 *   no-snapshot         likewise, and a snapshot is refused
 *   held-snapshot       likewise, and a snapshot is never answered
 *   forker              likewise, and it can be forked live: its children are forkers
 *   no-fork             likewise, and it cannot
 *   held-fork           likewise, and a fork is never answered
 *   newer               well, and of a later version: events and messages on the control socket and to whoever connects to the
 *                       guest that nobody knows yet (all modes are, where this is built with CROFT_FUTURE)
 *   hungry              its kernel kills for want of memory all the time
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/info.h"
#include "guest/request.h"
#include "guest/server.h"
#include "pb/vmm.pb-c.h"

#define CONTROLS_MAX 8
#define GREETINGS_MAX 32
#define EVENTS_MAX 8
#define PACKET_MAX 65536
#define FDS_MAX 16
#define SLOW_MS 500
#define TURN_MS 50

enum step { STEP_WAITING, STEP_STARTED, STEP_USERSPACE, STEP_HELLO };

struct stub {
	int control_fd, exit_fd, vsock_fd;
	int controls[CONTROLS_MAX];
	unsigned int n_controls;
	int greetings[GREETINGS_MAX]; /* connections that have not said CONNECT */
	size_t greeting_sizes[GREETINGS_MAX];
	unsigned int n_greetings;
	char mode[64], vsock_path[108];
	enum step step;
	int64_t next_step_usec, force_usec; /* 0: none */
	Croft__VmmEventKind events[EVENTS_MAX];
	int64_t event_times[EVENTS_MAX];
	unsigned int n_events;
	struct server server;
};

static bool is_mode(const struct stub *stub, const char *mode)
{
	return !strcmp(stub->mode, mode);
}

static void write_exit(int fd, Croft__VmmExitReason reason, bool reached_userspace)
{
	Croft__VmmExit record;
	uint8_t buf[256];

	croft__vmm_exit__init(&record);
	record.reason = reason;
	record.reached_userspace = reached_userspace;
	record.realtime_us = clock_realtime_usec();
	if (fd >= 0)
		(void)fd_write_all(fd, buf, croft__vmm_exit__pack(&record, buf));
}

static void __attribute__((noreturn)) stub_exit(struct stub *stub, Croft__VmmExitReason reason)
{
	write_exit(stub->exit_fd, reason, stub->step >= STEP_USERSPACE);
	server_deinit(&stub->server); /* kills what the guest runs */
	exit((int)reason);
}

/* croft-guest's power off has no argument to find us by: it raises what the loop looks for. */
static void on_power_off(void)
{
	(void)raise(SIGUSR1);
}

/* ---- control socket ---- */

static void send_message(int fd, const Croft__VmmMessage *message)
{
	uint8_t buf[4096];

	if (croft__vmm_message__get_packed_size(message) <= sizeof(buf))
		(void)send(fd, buf, croft__vmm_message__pack(message, buf), MSG_NOSIGNAL);
}

static void fill_event(const struct stub *stub, unsigned int i, Croft__VmmEvent *event)
{
	croft__vmm_event__init(event);
	event->kind = stub->events[i];
	event->monotonic_us = stub->event_times[i];
}

static bool is_newer(const struct stub *stub)
{
#ifdef CROFT_FUTURE
	(void)stub;
	return true;
#else
	return is_mode(stub, "newer");
#endif
}

/* A message of a kind that is none yet, and an event likewise. */
static void send_newer(int fd)
{
	Croft__VmmMessage message;
	Croft__VmmEvent event;

	(void)send(fd, "\xca\x3e\0", 3, MSG_NOSIGNAL);
	croft__vmm_event__init(&event);
	event.kind = (Croft__VmmEventKind)99;
	croft__vmm_message__init(&message);
	message.body_case = CROFT__VMM_MESSAGE__BODY_EVENT;
	message.event = &event;
	send_message(fd, &message);
}

static void emit(struct stub *stub, Croft__VmmEventKind kind)
{
	Croft__VmmMessage message;
	Croft__VmmEvent event;

	if (stub->n_events == EVENTS_MAX)
		return;
	stub->events[stub->n_events] = kind;
	stub->event_times[stub->n_events++] = clock_monotonic_usec();
	fill_event(stub, stub->n_events - 1, &event);
	croft__vmm_message__init(&message);
	message.body_case = CROFT__VMM_MESSAGE__BODY_EVENT;
	message.event = &event;
	for (unsigned int i = 0; i < stub->n_controls; i++) {
		if (is_newer(stub))
			send_newer(stub->controls[i]);
		send_message(stub->controls[i], &message);
	}
}

static void read_mode(struct stub *stub, const Croft__VmmStart *start, int disk_fd)
{
	const char *option = strstr(start->cmdline, "stub.mode=");
	char line[80] = "";

	(void)snprintf(stub->mode, sizeof(stub->mode), "well");
	if (option)
		(void)sscanf(option, "stub.mode=%63[a-z-]", stub->mode);
	if (disk_fd >= 0 && pread(disk_fd, line, sizeof(line) - 1, 0) > 0)
		(void)sscanf(line + (strncmp(line, "hsqs", 4) ? 0 : 4), "stub:%63[a-z-]", stub->mode);
}

/* Of modes that sleep: their guest freezes. */
static bool can_freeze;

static int on_freeze(struct err *reterr)
{
	return can_freeze ? 0 : err_set(reterr, FAIL_GUEST_FREEZE_FAILED, ETIMEDOUT, "the stub was told to refuse");
}

static void later(struct stub *stub)
{
	stub->next_step_usec =
		clock_monotonic_usec() + (is_mode(stub, "slow") ? SLOW_MS * USEC_PER_MSEC : 1);
}

/* A memfd that nobody changes any more, with one page. */
static int make_frozen(void)
{
	CLEANUP_FD int fd = memfd_create("stub", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || fd_write_all(fd, "frozen", 6) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) < 0)
		return -1;
	return TAKE_FD(fd);
}

/* What send_fork() gave, whatever else was given. */
static bool is_of_fork(const int *fds, size_t layers)
{
	char text[8] = "";
	bool is_right = layers == 1;

	for (size_t i = 1; i < 3 + layers && is_right; i++)
		is_right = pread(fds[i], text, sizeof(text), 0) == 6 && !strcmp(text, "frozen");
	return is_right;
}

static void send_fork(int fd, Croft__VmmMessage *message)
{
	int fds[3] = { make_frozen(), make_frozen(), make_frozen() };
	Croft__VmmForked forked;
	uint8_t buf[4096];

	croft__vmm_forked__init(&forked);
	forked.layers = 1;
	message->response->forked = &forked;
	if (fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0)
		(void)unix_send_fds(fd, buf, croft__vmm_message__pack(message, buf), fds, 3);
	for (size_t i = 0; i < 3; i++)
		(void)fd_close(fds[i]);
	message->response->forked = NULL;
}

/* /dev/kvm, kernel and initramfs or a snapshot's state and memory, disks, vsock, console, TAP: what is not looked at is closed. */
static bool start(struct stub *stub, const Croft__VmmStart *request, int *fds, size_t n_fds)
{
	size_t disk = (request->has_initramfs || request->restore ? 3 : 2) + request->layers, vsock = disk + request->n_disks;
	size_t console = vsock + (request->vsock ? 1 : 0);
	size_t want = console + (request->has_console ? 1 : 0) + (request->net ? 1 : 0);

	if (n_fds != want || stub->step != STEP_WAITING || stub->vsock_fd >= 0 || (request->forked && !is_of_fork(fds, request->layers)))
		return false;
	read_mode(stub, request, request->n_disks > 0 ? fds[disk] : -1);
	can_freeze = is_mode(stub, "sleeper") || is_mode(stub, "no-snapshot") || is_mode(stub, "held-snapshot") ||
		     is_mode(stub, "forker") || is_mode(stub, "no-fork") || is_mode(stub, "held-fork");
	if (request->restore)
		stub->server.is_frozen = true;
	if (request->has_console && !is_mode(stub, "refuse"))
		(void)fd_write_all(fds[console], "stub guest\n", 11);
	if (is_mode(stub, "refuse"))
		return false;
	if (request->vsock) {
		stub->vsock_fd = TAKE_FD(fds[vsock]);
		(void)snprintf(
			stub->vsock_path, sizeof(stub->vsock_path), "%s", request->vsock->path);
	}
	if (!is_mode(stub, "mute"))
		later(stub);
	return true;
}

static void answer_status(
	const struct stub *stub, Croft__VmmResponse *response, int fd, Croft__VmmMessage *message)
{
	char filters[] = "filters", root[] = "root", *applied[] = { root, filters };
	Croft__VmmStatus status;
	Croft__VmmJail jail;
	Croft__VmmEvent events[EVENTS_MAX], *list[EVENTS_MAX + 1], newer;

	croft__vmm_status__init(&status);
	status.state = stub->step == STEP_WAITING ? CROFT__VMM_STATE__VMM_STATE_WAITING
						  : CROFT__VMM_STATE__VMM_STATE_RUNNING;
	for (unsigned int i = 0; i < stub->n_events; i++) {
		fill_event(stub, i, &events[i]);
		list[i] = &events[i];
	}
	if (is_newer(stub)) {
		croft__vmm_event__init(&newer);
		newer.kind = (Croft__VmmEventKind)99;
		list[stub->n_events] = &newer;
	}
	status.unforked = !is_mode(stub, "forker") && !is_mode(stub, "no-fork"); /* may have been: it does not look */
	status.n_events = stub->n_events + (is_newer(stub) ? 1 : 0);
	status.events = list;
	croft__vmm_jail__init(&jail); /* says so: a stub is confined by nothing */
	jail.n_applied = 2;
	jail.applied = applied;
	status.jail = &jail;
	response->status = &status;
	send_message(fd, message);
}

static void stop(struct stub *stub, const Croft__VmmStop *request)
{
	if (request->force)
		stub_exit(stub, CROFT__VMM_EXIT_REASON__VMM_EXIT_STOPPED);
	if (stub->step < STEP_HELLO || is_mode(stub, "stubborn"))
		stub->force_usec = clock_monotonic_usec() + request->grace_ms * USEC_PER_MSEC;
	else
		stub_exit(stub, CROFT__VMM_EXIT_REASON__VMM_EXIT_POWEROFF);
}

static void handle(
	struct stub *stub, int fd, const Croft__VmmRequest *request, int *fds, size_t n_fds)
{
	Croft__VmmMessage message;
	Croft__VmmResponse response;
	Croft__VmmFailure failure;
	char code[] = "KERNEL_INVALID", snapshot_failed[] = "SNAPSHOT_FAILED", fork_unsupported[] = "FORK_UNSUPPORTED", text[] = "the stub was told to refuse";

	if (is_mode(stub, "mute"))
		return;
	croft__vmm_message__init(&message);
	croft__vmm_response__init(&response);
	croft__vmm_failure__init(&failure);
	message.body_case = CROFT__VMM_MESSAGE__BODY_RESPONSE;
	message.response = &response;
	response.id = request->id;
	failure.code = code;
	failure.message = text;
	if (request->body_case == CROFT__VMM_REQUEST__BODY_START) {
		if (!start(stub, request->start, fds, n_fds))
			response.failure = &failure;
		if (is_mode(stub, "mute"))
			return;
		send_message(fd, &message);
		if (response.failure)
			stub_exit(stub, CROFT__VMM_EXIT_REASON__VMM_EXIT_START_FAILED);
	} else if (request->body_case == CROFT__VMM_REQUEST__BODY_STATUS) {
		answer_status(stub, &response, fd, &message);
	} else if (request->body_case == CROFT__VMM_REQUEST__BODY_SNAPSHOT) {
		for (size_t i = 0; i < n_fds; i++)
			(void)fd_write_all(fds[i], "snapshot", 8);
		if (is_mode(stub, "held-snapshot"))
			return; /* it never says that it is done */
		if (is_mode(stub, "no-snapshot")) {
			failure.code = snapshot_failed;
			response.failure = &failure;
		}
		send_message(fd, &message);
	} else if (request->body_case == CROFT__VMM_REQUEST__BODY_FORK && is_mode(stub, "held-fork")) {
		return;
	} else if (request->body_case == CROFT__VMM_REQUEST__BODY_FORK && is_mode(stub, "forker")) {
		send_fork(fd, &message);
	} else if (request->body_case == CROFT__VMM_REQUEST__BODY_FORK && is_mode(stub, "no-fork")) {
		failure.code = fork_unsupported;
		response.failure = &failure;
		send_message(fd, &message);
	} else {
		send_message(fd, &message);
		if (request->body_case == CROFT__VMM_REQUEST__BODY_STOP)
			stop(stub, request->stop);
	}
}

/* false: the connection is over. */
static bool read_control(struct stub *stub, int fd)
{
	static uint8_t packet[PACKET_MAX];
	int fds[FDS_MAX];
	size_t n_fds = 0;
	ssize_t n = unix_recv_fds(fd, packet, sizeof(packet), fds, FDS_MAX, &n_fds);
	Croft__VmmRequest *request;

	if (n == -EAGAIN)
		return true;
	if (n <= 0)
		return false;
	request = croft__vmm_request__unpack(NULL, (size_t)n, packet);
	if (request) {
		handle(stub, fd, request, fds, n_fds);
		croft__vmm_request__free_unpacked(request, NULL);
	}
	for (size_t i = 0; i < n_fds; i++)
		(void)fd_close(fds[i]);
	return true;
}

/* ---- vsock ---- */

/* One byte at a time: what follows the line is the guest's. */
static bool read_greeting(struct stub *stub, unsigned int i)
{
	static const char expected[] = "CONNECT 1024\n", answer[] = "OK 1073741824\n";
	char byte;
	ssize_t n;

	while ((n = read(stub->greetings[i], &byte, 1)) == 1) {
		if (byte != expected[stub->greeting_sizes[i]++])
			return false;
		if (byte != '\n')
			continue;
		if (is_mode(stub, "never-hello") ||
			send(stub->greetings[i], answer, sizeof(answer) - 1, MSG_NOSIGNAL) < 0)
			return false;
		if (is_newer(stub)) /* the guest's first event has no name here */
			(void)send(stub->greetings[i], "\0\0\0\3\xca\x3e\0", 7, MSG_NOSIGNAL);
		(void)server_adopt(&stub->server, TAKE_FD(stub->greetings[i]));
		return false;
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static void drop_greeting(struct stub *stub, unsigned int i)
{
	(void)fd_close(stub->greetings[i]);
	stub->n_greetings--;
	stub->greetings[i] = stub->greetings[stub->n_greetings];
	stub->greeting_sizes[i] = stub->greeting_sizes[stub->n_greetings];
}

static void send_hello(const struct stub *stub, const struct guest_hello *hello)
{
	struct buf frame = BUF_NULL(65536);
	char path[128];
	int fd;

	(void)snprintf(path, sizeof(path), "%s_1", stub->vsock_path);
	fd = unix_connect(path, SOCK_STREAM);
	if (fd >= 0 && hello_encode(&frame, hello) == 0)
		(void)fd_write_all(fd, buf_peek(&frame), buf_size(&frame));
	(void)fd_close(fd);
	buf_deinit(&frame);
}

static void say_hello(struct stub *stub)
{
	struct err unreadable = ERR_NULL;
	struct guest_hello hello;

	if (is_mode(stub, "rootfs-unreadable"))
		(void)err_set(&unreadable, FAIL_ROOTFS_UNREADABLE, EINVAL, "no file system");
	info_hello(&hello, err_is_set(&unreadable) ? &unreadable : NULL);
	send_hello(stub, &hello);
}

/* ---- want of memory ---- */

static struct stub *hungry; /* what the guest's service calls has no argument */
static uint64_t n_killed;

static uint64_t count_oom(void)
{
	return is_mode(hungry, "hungry") ? ++n_killed : 0;
}

static pid_t tell_oom(uint64_t kills)
{
	pid_t pid = fork();
	struct guest_hello hello;

	if (pid != 0)
		return pid;
	info_hello(&hello, NULL);
	hello.oom_kills = kills;
	send_hello(hungry, &hello);
	_exit(0);
}

/* ---- the start, step by step ---- */

static void next_step(struct stub *stub)
{
	stub->next_step_usec = 0;
	switch (stub->step) {
	case STEP_WAITING:
		stub->step = STEP_STARTED;
		emit(stub, CROFT__VMM_EVENT_KIND__VMM_EVENT_STARTED);
		if (is_mode(stub, "panic")) {
			emit(stub, CROFT__VMM_EVENT_KIND__VMM_EVENT_PANICKED);
			stub_exit(stub, CROFT__VMM_EXIT_REASON__VMM_EXIT_PANIC);
		}
		if (!is_mode(stub, "never-userspace"))
			later(stub);
		break;
	case STEP_STARTED:
		stub->step = STEP_USERSPACE;
		emit(stub, CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
		if (is_mode(stub, "crash"))
			abort();
		if (!is_mode(stub, "never-hello"))
			later(stub);
		break;
	case STEP_USERSPACE:
		stub->step = STEP_HELLO;
		say_hello(stub);
		break;
	case STEP_HELLO:
		break;
	}
}

static void run_timers(struct stub *stub)
{
	int64_t now = clock_monotonic_usec();
	sigset_t pending;

	if (stub->next_step_usec && now >= stub->next_step_usec)
		next_step(stub);
	if (stub->step == STEP_HELLO)
		(void)oom_look(&stub->server.oom);
	if (stub->force_usec && now >= stub->force_usec)
		stub_exit(stub, CROFT__VMM_EXIT_REASON__VMM_EXIT_STOPPED);
	(void)sigpending(&pending);
	if (sigismember(&pending, SIGTERM))
		stub_exit(stub, CROFT__VMM_EXIT_REASON__VMM_EXIT_SIGNAL);
	if (sigismember(&pending, SIGUSR1) && !is_mode(stub, "stubborn"))
		stub_exit(stub, CROFT__VMM_EXIT_REASON__VMM_EXIT_POWEROFF);
}

static void accept_all(struct stub *stub)
{
	int fd;

	while (stub->n_controls < CONTROLS_MAX &&
		(fd = accept4(stub->control_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		stub->controls[stub->n_controls++] = fd;
	while (stub->vsock_fd >= 0 && stub->n_greetings < GREETINGS_MAX &&
		(fd = accept4(stub->vsock_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		stub->greeting_sizes[stub->n_greetings] = 0;
		stub->greetings[stub->n_greetings++] = fd;
	}
}

static void turn(struct stub *stub)
{
	struct pollfd fds[3 + CONTROLS_MAX + GREETINGS_MAX];
	nfds_t n = 0;

	fds[n++] = (struct pollfd){ .fd = stub->control_fd, .events = POLLIN };
	fds[n++] = (struct pollfd){ .fd = stub->vsock_fd, .events = POLLIN };
	fds[n++] = (struct pollfd){ .fd = stub->server.loop.epoll_fd, .events = POLLIN };
	for (unsigned int i = 0; i < stub->n_controls; i++)
		fds[n++] = (struct pollfd){ .fd = stub->controls[i], .events = POLLIN };
	for (unsigned int i = 0; i < stub->n_greetings; i++)
		fds[n++] = (struct pollfd){ .fd = stub->greetings[i], .events = POLLIN };
	(void)poll(fds, n, stub->next_step_usec ? 1 : TURN_MS);
	accept_all(stub);
	for (unsigned int i = 0; i < stub->n_controls;) {
		if (read_control(stub, stub->controls[i])) {
			i++;
			continue;
		}
		(void)fd_close(stub->controls[i]);
		stub->controls[i] = stub->controls[--stub->n_controls];
	}
	for (unsigned int i = 0; i < stub->n_greetings;) {
		if (read_greeting(stub, i))
			i++;
		else
			drop_greeting(stub, i);
	}
	(void)server_turn(&stub->server, 0);
	run_timers(stub);
}

static int number_after(int argc, char **argv, const char *flag)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], flag))
			return (int)strtol(argv[i + 1], NULL, 10);
	return -1;
}

int main(int argc, char **argv)
{
	const struct server_host host = { .power_off = on_power_off, .freeze = on_freeze, .count_oom = count_oom,
		.tell_oom = tell_oom };
	static struct stub stub = { .vsock_fd = -1 };
	sigset_t set;

	hungry = &stub;
	stub.control_fd = number_after(argc, argv, "--control-fd");
	stub.exit_fd = number_after(argc, argv, "--exit-fd");
	if (stub.control_fd < 0 || stub.exit_fd < 0)
		return (int)CROFT__VMM_EXIT_REASON__VMM_EXIT_USAGE;
	/* what a guest's processes must not inherit */
	(void)fcntl(stub.control_fd, F_SETFD, FD_CLOEXEC);
	(void)fcntl(stub.exit_fd, F_SETFD, FD_CLOEXEC);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGUSR1);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	if (server_init(&stub.server, "/etc", &host) < 0)
		return (int)CROFT__VMM_EXIT_REASON__VMM_EXIT_BUG;
	for (;;)
		turn(&stub);
}
