/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-vmm as a process with guests of a few instructions: every exit status, every refusal of `start` by its
 * code, and a control socket that gets garbage. Exits 77 where there is no /dev/kvm. Cases R100 R110 R121 R128.
 *
 * The binary is croft-vmm beside this program, or in CROFT_BIN.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "lib/suite.h"
#include "lib/vmm-process.h"
#include "thread.h"

/* ---- guests ---- */

static const uint8_t guest_poweroff[] = { OUT(0x600, 0x34), HALT };
static const uint8_t guest_marker_poweroff[] = { OUT(0x680, 0x55), OUT(0x600, 0x34), HALT };
static const uint8_t guest_near_misses[] = { OUT(0x680, 0x54), OUT(0x600, 0x14), OUT(0x600, 0x20), OUT(0x604, 0x06),
	OUT(0x505, 0x02), OUT(0x601, 0x34), OUT(0x606, 0x01), OUT(0x600, 0x34), HALT };
static const uint8_t guest_reset[] = { OUT(0x604, 0x01), HALT };
static const uint8_t guest_panic_reset[] = { OUT(0x505, 0x01), OUT(0x604, 0x01), HALT };
static const uint8_t guest_panic_halt[] = { OUT(0x680, 0x55), OUT(0x505, 0x01), HALT };
static const uint8_t guest_triple_fault[] = { 0x0f, 0x0b };                    /* ud2, and there is no IDT */
static const uint8_t guest_runs_nowhere[] = { 0xb8, 0, 0, 0, 0x20, 0xff, 0xe0 }; /* jmp to 512 MiB: no RAM there */
static const uint8_t guest_halt[] = { OUT(0x680, 0x55), HALT };
static const uint8_t guest_spin[] = { OUT(0x680, 0x55), 0xeb, 0xfe };
/* 80 KiB of 'x' (each byte is an exit; the ring's own bound is for the unit test), then "end", then off */
static const uint8_t guest_chatter[] = { 0xb9, 0x00, 0x40, 0x01, 0x00, 0x66, 0xba, 0xf8, 0x03, 0xb0, 'x', 0xee, 0xe2, 0xfd,
	OUT(0x3f8, 'e'), OUT(0x3f8, 'n'), OUT(0x3f8, 'd'), OUT(0x600, 0x34), HALT };
/* never stops to print: an exit for each byte */
static const uint8_t guest_prints[] = { OUT(0x680, 0x55), 0x66, 0xba, 0xf8, 0x03, 0xb0, 'x', 0xee, 0xeb, 0xfd };
/* reads every port that we have and then some */
static const uint8_t guest_port_reader[] = { 0x31, 0xd2, 0xec, 0x66, 0xff, 0xc2, 0x66, 0x81, 0xfa, 0x00, 0x08, 0x75, 0xf6,
	OUT(0x600, 0x34), HALT };


/* ---- how guests end ---- */

#define GUEST(code) { code, sizeof(code) }

static const struct {
	struct {
		const uint8_t *bytes;
		size_t size;
	} code;
	int status;
	bool userspace;
} ends[] = {
	{ GUEST(guest_poweroff), 10, false },
	{ GUEST(guest_marker_poweroff), 10, true },
	{ GUEST(guest_near_misses), 10, false },
	{ GUEST(guest_port_reader), 10, false },
	{ GUEST(guest_reset), 11, false },
	{ GUEST(guest_panic_reset), 12, false },
	{ GUEST(guest_panic_halt), 12, true },
	{ GUEST(guest_triple_fault), 13, false },
	{ GUEST(guest_runs_nowhere), 14, false },
};

START_TEST(guest_ends)
{
	Croft__VmmExit *record;
	bool exiting = false;

	start_guest(kernel_of(ends[_i].code.bytes, ends[_i].code.size));
	record = expect_exit(ends[_i].status);
	ck_assert_int_eq(record->reached_userspace, ends[_i].userspace);
	ck_assert_int_eq(record->failure != NULL, ends[_i].status == 14);
	if (record->failure)
		ck_assert_str_eq(record->failure->code, "KVM_INTERNAL_ERROR");
	croft__vmm_exit__free_unpacked(record, NULL);
	for (Croft__VmmMessage *message; (message = receive(control));) {
		if (message->body_case == CROFT__VMM_MESSAGE__BODY_EVENT) {
			events |= 1u << message->event->kind;
			exiting = message->event->kind == CROFT__VMM_EVENT_KIND__VMM_EVENT_EXITING;
			ck_assert(!exiting || (int) message->event->exit->reason == ends[_i].status);
		}
		croft__vmm_message__free_unpacked(message, NULL);
	}
	ck_assert(exiting); /* the last word */
	ck_assert(events & 1u << CROFT__VMM_EVENT_KIND__VMM_EVENT_STARTED);
	ck_assert_int_eq((events & 1u << CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE) != 0, ends[_i].userspace);
	ck_assert_int_eq((events & 1u << CROFT__VMM_EVENT_KIND__VMM_EVENT_PANICKED) != 0, ends[_i].status == 12);
}
END_TEST

START_TEST(forced_stop)
{
	start_guest(_i ? KERNEL(guest_spin) : KERNEL(guest_halt));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

START_TEST(graceful_stop)
{
	start_guest(KERNEL(guest_spin));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	stop(false, 100);
	expect_end(16, true);
}
END_TEST

START_TEST(stop_before_start)
{
	stop(false, 100000);
	expect_end(16, false);
}
END_TEST

START_TEST(signals)
{
	static const int numbers[] = { SIGTERM, SIGINT };

	start_guest(KERNEL(guest_spin));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	ck_assert_int_eq(kill(vmm_pid, SIGHUP), 0); /* ignored: a terminal that closes is not its business */
	ck_assert_int_eq(kill(vmm_pid, SIGPIPE), 0);
	ck_assert_int_eq(kill(vmm_pid, numbers[_i]), 0);
	expect_end(17, true);
}
END_TEST

/* R128, R122 in small: a storm of the signal that takes vCPUs out of the guest changes nothing. */
START_TEST(signal_storm)
{
	start_guest(KERNEL(guest_spin));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	for (int i = 0; i < 2000; i++)
		(void) kill(vmm_pid, VCPU_SIGNAL);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* R128: SIGTERM again and again, while it logs its end too: one end, with its record. */
START_TEST(sigterm_storm)
{
	pid_t storm;

	start_guest(KERNEL(guest_spin));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	storm = fork();
	ck_assert_int_ge(storm, 0);
	if (storm == 0) {
		while (kill(vmm_pid, SIGTERM) == 0) /* until it has been reaped */
			(void) usleep(100);
		_exit(0);
	}
	expect_end(17, true);
	ck_assert_int_eq(waitpid(storm, NULL, 0), storm);
}
END_TEST

START_TEST(two_vcpus)
{
	struct start start;

	start_init(&start, KERNEL(guest_halt));
	start.message.vcpus = 2 + 30 * (uint32_t) _i;
	ck_assert_str_eq(start_send(&start), "");
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* ---- the console ---- */

/* R100, R110: more than a pipe holds and nobody reads it: the guest goes on. */
START_TEST(console_without_reader)
{
	struct start start;
	int pipes[2];

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	start_init(&start, KERNEL(guest_chatter));
	start.message.has_console = true;
	add_fd(&start, pipes[1]);
	ck_assert_str_eq(start_send(&start), "");
	if (_i == 1) /* and one whose reader is gone */
		pipes[0] = fd_close(pipes[0]);
	expect_end(10, false);
	(void) fd_close(pipes[0]);
}
END_TEST

/* R110: a guest that prints without end and a reader that stands still. What ring and pipe do not hold is dropped and counted
 * (CROFT_FULL=1: that is some million exits), the guest prints on, and in that storm of exits the control socket answers and
 * SIGTERM is the end. */
START_TEST(console_that_never_ends)
{
	const char *full = getenv("CROFT_FULL");
	const uint64_t enough = full && *full == '1' ? 3 << 19 : 5 << 14, held = (1 << 20) + (1 << 17);
	uint64_t bytes = 0, dropped = 0, before = 0;
	int64_t last = clock_monotonic_usec();
	struct start start;
	int pipes[2];

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	start_init(&start, KERNEL(guest_prints));
	start.message.has_console = true;
	add_fd(&start, pipes[1]);
	ck_assert_str_eq(start_send(&start), "");
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	while (bytes < enough) {
		Croft__VmmMessage *message = ask_stats();

		bytes = message->response->stats->console_bytes;
		dropped = message->response->stats->console_dropped;
		croft__vmm_message__free_unpacked(message, NULL);
		if (bytes > before)
			last = clock_monotonic_usec();
		before = bytes;
		ck_assert_int_lt(clock_monotonic_usec() - last, 30 * USEC_PER_SEC); /* it prints on */
		(void) usleep(100000);
	}
	ck_assert_uint_ge(dropped, bytes > held ? bytes - held : 0);
	ck_assert_uint_lt(dropped, bytes);
	ck_assert_int_eq(kill(vmm_pid, SIGTERM), 0);
	expect_end(17, true);
	(void) fd_close(pipes[0]);
}
END_TEST

START_TEST(console_file)
{
	struct start start;
	char path[96], *text;
	size_t n;

	(void) snprintf(path, sizeof(path), "%s/console", directory);
	start_init(&start, KERNEL(guest_chatter));
	start.message.has_console = true;
	add_fd(&start, open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	ck_assert_str_eq(start_send(&start), "");
	expect_end(10, false);
	ck_assert_int_eq(file_read(path, 8 << 20, &text, &n), 0);
	ck_assert_uint_ge(n, 65536);
	ck_assert_mem_eq(text + n - 4, "xend", 4);
	free(text);
}
END_TEST

/* ---- refusals ---- */

static void refuse_vcpus_0(struct start *s)
{
	s->message.vcpus = 0;
}
static void refuse_vcpus_33(struct start *s)
{
	s->message.vcpus = 33;
}
static void refuse_memory_0(struct start *s)
{
	s->message.memory_mib = 0;
}
static void refuse_memory_wrap(struct start *s)
{
	s->message.memory_mib = UINT64_C(1) << 44;
}
static void refuse_cmdline_long(struct start *s)
{
	static char text[3000];

	memset(text, 'x', sizeof(text) - 1);
	s->message.cmdline = text;
}
static void refuse_cmdline_key(struct start *s)
{
	static char text[] = "virtio_mmio.device=4K@0xd0000000:5";

	s->message.cmdline = text;
}
static void refuse_kernel(struct start *s)
{
	ck_assert_int_eq(ftruncate(s->fds[1], 100), 0);
}
static void refuse_kernel_fifo(struct start *s)
{
	int pipes[2];

	ck_assert_int_eq(pipe(pipes), 0);
	(void) fd_close(s->fds[1]);
	s->fds[1] = pipes[0];
}
static void add_disk(struct start *s, off_t size)
{
	int fd = memfd_create("disk", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, size), 0);
	s->message.n_disks++;
	add_fd(s, fd);
}
static void refuse_disk_empty(struct start *s)
{
	add_disk(s, 0);
}
static void refuse_disk_odd(struct start *s)
{
	add_disk(s, 4096);
	add_disk(s, 1000);
}
static void refuse_kvm_file(struct start *s)
{
	(void) fd_close(s->fds[0]);
	s->fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
}
static void refuse_kvm_read_only_file(struct start *s)
{
	(void) fd_close(s->fds[0]);
	s->fds[0] = memfd_create("kvm", MFD_CLOEXEC);
}
static void refuse_initramfs(struct start *s)
{
	int fd = memfd_create("initramfs", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, 100 << 20), 0);
	s->message.has_initramfs = true;
	add_fd(s, fd);
}
static void refuse_cid(struct start *s)
{
	static char path[] = "/tmp/x";

	s->vsock.path = path;
	s->vsock.guest_cid = 2;
	s->message.vsock = &s->vsock;
	add_fd(s, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}
static void refuse_path(struct start *s)
{
	static char path[100];

	memset(path, 'x', sizeof(path) - 1);
	s->vsock.path = path;
	s->vsock.guest_cid = 3;
	s->message.vsock = &s->vsock;
	add_fd(s, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static const struct {
	void (*spoil)(struct start *);
	const char *code;
} refusals[] = {
	{ refuse_vcpus_0, "VCPUS_INVALID" },
	{ refuse_vcpus_33, "VCPUS_INVALID" },
	{ refuse_memory_0, "MEMORY_INVALID" },
	{ refuse_memory_wrap, "MEMORY_INVALID" },
	{ refuse_cmdline_long, "CMDLINE_TOO_LONG" },
	{ refuse_cmdline_key, "CMDLINE_BAD_CHAR" },
	{ refuse_kernel, "KERNEL_TRUNCATED" },
	{ refuse_kernel_fifo, "KERNEL_INVALID" },
	{ refuse_disk_empty, "DISK_INVALID" },
	{ refuse_disk_odd, "DISK_INVALID" },
	{ refuse_kvm_file, "KVM_UNAVAILABLE" },
	{ refuse_kvm_read_only_file, "KVM_UNAVAILABLE" },
	{ refuse_initramfs, "MEMORY_INVALID" },
	{ refuse_cid, "INVALID_ARGUMENT" },
	{ refuse_path, "SOCKET_PATH_TOO_LONG" },
};

/* Each has its own code, is answered, and ends the VMM with 18 and the same code in the record. */
START_TEST(start_refused)
{
	struct start start;
	Croft__VmmExit *record;

	start_init(&start, KERNEL(guest_poweroff));
	refusals[_i].spoil(&start);
	ck_assert_str_eq(start_send(&start), refusals[_i].code);
	record = expect_exit(18);
	ck_assert_ptr_nonnull(record->failure);
	ck_assert_str_eq(record->failure->code, refusals[_i].code);
	croft__vmm_exit__free_unpacked(record, NULL);
}
END_TEST

/* ---- the control socket ---- */

static uint32_t ask_state(int fd)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStatusRequest status = CROFT__VMM_STATUS_REQUEST__INIT;
	Croft__VmmMessage *message;
	uint32_t state;

	request.body_case = CROFT__VMM_REQUEST__BODY_STATUS;
	request.status = &status;
	send_request(fd, &request, NULL, 0);
	message = answer(fd);
	ck_assert_ptr_nonnull(message);
	ck_assert_ptr_nonnull(message->response->status);
	ck_assert_uint_eq(message->response->status->version_major, 1);
	state = (uint32_t) message->response->status->state;
	croft__vmm_message__free_unpacked(message, NULL);
	return state;
}

static void expect_invalid(int fd)
{
	Croft__VmmMessage *message = receive(fd);

	ck_assert_ptr_nonnull(message);
	ck_assert_int_eq((int) message->body_case, CROFT__VMM_MESSAGE__BODY_RESPONSE);
	ck_assert_ptr_nonnull(message->response->failure);
	ck_assert_str_eq(message->response->failure->code, "VMM_CONTROL_INVALID");
	croft__vmm_message__free_unpacked(message, NULL);
}

/* Noise, and requests with one byte changed: an answer each time, and the VMM is as it was. */
START_TEST(control_garbage)
{
	struct rng rng = rng_seeded(42);
	static uint8_t noise[PACKET_MAX];

	for (int i = 0; i < 300; i++) {
		size_t n = 1 + (size_t) rng_below(&rng, i % 10 ? 64 : sizeof(noise));
		Croft__VmmMessage *message;

		rng_bytes(&rng, noise, n);
		ck_assert_int_eq((int) send(control, noise, n, 0), (int) n);
		message = receive(control);
		ck_assert_ptr_nonnull(message);
		croft__vmm_message__free_unpacked(message, NULL);
	}
	ck_assert_uint_eq(ask_state(control), CROFT__VMM_STATE__VMM_STATE_WAITING);
	ck_assert_int_eq((int) send(control, noise, 0, 0), 0); /* an empty packet is the end, as recv() has it */
	(void) fd_close(control);
	control = control_connect();
	ck_assert_uint_eq(ask_state(control), CROFT__VMM_STATE__VMM_STATE_WAITING);
	stop(true, 0);
	expect_end(16, false);
}
END_TEST

/* More or fewer descriptors than the request says, or with a request that has none: an error, no end. */
START_TEST(control_descriptors)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStatusRequest status = CROFT__VMM_STATUS_REQUEST__INIT;
	struct start start;

	for (size_t n = 0; n < 16; n++) {
		if (n == 2)
			continue;
		start_init(&start, KERNEL(guest_poweroff));
		while (start.n_fds < n)
			add_fd(&start, open("/dev/null", O_RDONLY | O_CLOEXEC));
		if (n < 2) {
			for (size_t i = n; i < 2; i++)
				(void) fd_close(start.fds[i]);
			start.n_fds = n;
		}
		if (n > 14) { /* over the limit of any request: the id is not known then */
			request.body_case = CROFT__VMM_REQUEST__BODY_START;
			request.start = &start.message;
			send_request(control, &request, start.fds, start.n_fds);
			expect_invalid(control);
			for (size_t i = 0; i < start.n_fds; i++)
				(void) fd_close(start.fds[i]);
			continue;
		}
		ck_assert_str_eq(start_send(&start), "VMM_CONTROL_INVALID");
	}
	request.body_case = CROFT__VMM_REQUEST__BODY_STATUS;
	request.status = &status;
	send_request(control, &request, &control, 1);
	expect_invalid(control);
	next_id++;
	start_guest(KERNEL(guest_poweroff)); /* and it still works */
	expect_end(10, false);
}
END_TEST

START_TEST(control_second_start)
{
	struct start start;

	start_guest(KERNEL(guest_halt));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	start_init(&start, KERNEL(guest_poweroff));
	ck_assert_str_eq(start_send(&start), "VMM_CONTROL_INVALID");
	ck_assert_uint_eq(ask_state(control), CROFT__VMM_STATE__VMM_STATE_RUNNING);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* An agent that went away and comes back finds what happened; four connections, a fifth is closed. */
START_TEST(control_connections)
{
	int more[4];
	char byte;

	start_guest(KERNEL(guest_halt));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	(void) fd_close(control);
	for (int i = 0; i < 4; i++)
		more[i] = control_connect();
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(ask_state(more[i]), CROFT__VMM_STATE__VMM_STATE_RUNNING);
	control = control_connect();
	struct pollfd wait = { .fd = control, .events = POLLIN };

	ck_assert_int_eq(poll(&wait, 1, WAIT_MSEC), 1);
	ck_assert_int_le((int) recv(control, &byte, 1, 0), 0);
	(void) fd_close(control);
	for (int i = 1; i < 4; i++)
		(void) fd_close(more[i]);
	control = more[0];
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* A peer that asks and never reads is dropped; others do not notice. */
START_TEST(control_slow_peer)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStatsRequest stats = CROFT__VMM_STATS_REQUEST__INIT;
	uint8_t buf[64];
	int slow = control_connect();
	size_t n;

	request.body_case = CROFT__VMM_REQUEST__BODY_STATS;
	request.stats = &stats;
	n = croft__vmm_request__pack(&request, buf);
	for (int i = 0; i < 20000; i++) {
		struct pollfd wait = { .fd = slow, .events = POLLOUT };

		if (send(slow, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
			if (errno != EAGAIN)
				break;
			ck_assert_int_eq(poll(&wait, 1, WAIT_MSEC), 1);
			if (wait.revents & (POLLHUP | POLLERR))
				break;
		}
		if (i % 1000 == 0)
			ck_assert_uint_eq(ask_state(control), CROFT__VMM_STATE__VMM_STATE_WAITING);
		ck_assert_int_lt(i, 19999);
	}
	ck_assert_uint_eq(ask_state(control), CROFT__VMM_STATE__VMM_STATE_WAITING);
	(void) fd_close(slow);
	stop(true, 0);
	expect_end(16, false);
}
END_TEST

/* ---- the process's own rules ---- */

static int run_program(const char *const *argv)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		(void) dup2(null, 1);
		(void) dup2(null, 2);
		(void) execv(program(), (char *const *) (uintptr_t) argv);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(usage)
{
	static const char *const bad[][6] = { { "croft-vmm", NULL }, { "croft-vmm", "--control-fd", "x", NULL },
		{ "croft-vmm", "--control-fd", NULL }, { "croft-vmm", "--nonsense", NULL },
		{ "croft-vmm", "--control-fd", "3", "--control", "/tmp/x", NULL }, { "croft-vmm", "extra", NULL },
		{ "croft-vmm", "--control", "/tmp/x", "--log-level", "loud", NULL } };
	static const char *const help[] = { "croft-vmm", "--help", NULL }, *const version[] = { "croft-vmm", "--version", NULL };
	static const char *const no_socket[] = { "croft-vmm", "--control-fd", "0", NULL };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_int_eq(run_program(bad[i]), 19);
	ck_assert_int_eq(run_program(help), 0);
	ck_assert_int_eq(run_program(version), 0);
	ck_assert_int_eq(run_program(no_socket), 18);
	stop(true, 0);
	expect_end(16, false);
}
END_TEST

START_TEST(outlives_its_parent)
{
	char path[64];
	struct stat st;

	start_guest(KERNEL(guest_halt));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	/* not dumpable: what /proc has of it belongs to root, whoever runs this; sanitizers want ptrace */
	(void) snprintf(path, sizeof(path), "/proc/%d/mem", (int) vmm_pid);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_uid, 0);
	(void) fd_close(control); /* the agent dies */
	control = control_connect();
	ck_assert_uint_eq(ask_state(control), CROFT__VMM_STATE__VMM_STATE_RUNNING);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-kvm");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, guest_ends, 0, ARRAY_LEN(ends));
	tcase_add_loop_test(tcase, forced_stop, 0, 2);
	tcase_add_test(tcase, graceful_stop);
	tcase_add_test(tcase, stop_before_start);
	tcase_add_loop_test(tcase, signals, 0, 2);
	tcase_add_test(tcase, signal_storm);
	tcase_add_test(tcase, sigterm_storm);
	tcase_add_loop_test(tcase, two_vcpus, 0, 2);
	tcase_add_loop_test(tcase, console_without_reader, 0, 2);
	tcase_add_test(tcase, console_file);
	tcase_add_loop_test(tcase, start_refused, 0, ARRAY_LEN(refusals));
	tcase_add_test(tcase, control_garbage);
	tcase_add_test(tcase, control_descriptors);
	tcase_add_test(tcase, control_second_start);
	tcase_add_test(tcase, control_connections);
	tcase_add_test(tcase, control_slow_peer);
	tcase_add_test(tcase, usage);
	tcase_add_test(tcase, outlives_its_parent);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("console");
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 3000);
	tcase_add_test(tcase, console_that_never_ends);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run_kvm(make_suite());
}
