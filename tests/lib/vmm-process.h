/* SPDX-License-Identifier: Apache-2.0
 *
 * For test programs: one croft-vmm as a process, with a guest of a few instructions, and its control socket. The
 * binary is CROFT_VMM, else croft-vmm in CROFT_BIN, else beside the program. Under root it gets a uid of its own.
 */
#pragma once

#include <check.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "pb/vmm.pb-c.h"

#define PACKET_MAX (64 * 1024)
#define KERNEL_AT 0x1000000
#define WAIT_MSEC 60000

/* ---- guests ---- */

#define OUT(port, value) 0x66, 0xba, (port) & 0xff, (port) >> 8, 0xb0, value, 0xee
#define HALT 0xf4, 0xeb, 0xfd

static inline int kernel_of(const void *code, size_t size)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr segment;
	} image = { .head = { .e_type = ET_EXEC, .e_machine = EM_X86_64, .e_version = 1, .e_entry = KERNEL_AT,
			    .e_phoff = sizeof(Elf64_Ehdr), .e_ehsize = sizeof(Elf64_Ehdr),
			    .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1 },
		.segment = { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = 4096, .p_paddr = KERNEL_AT,
			.p_filesz = size, .p_memsz = size } };
	int fd = memfd_create("kernel", MFD_CLOEXEC);

	memcpy(image.head.e_ident, ELFMAG, SELFMAG);
	image.head.e_ident[EI_CLASS] = ELFCLASS64;
	image.head.e_ident[EI_DATA] = ELFDATA2LSB;
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_pwrite_all(fd, &image, sizeof(image), 0), 0);
	ck_assert_int_eq(fd_pwrite_all(fd, code, size, 4096), 0);
	return fd;
}
#define KERNEL(code) kernel_of(code, sizeof(code))

/* ---- the process ---- */

static char directory[64], control_path[96], exit_path[96];
static pid_t vmm_pid;
static int control;
static uint64_t next_id;
static unsigned int events; /* bit per VmmEventKind */
static const char *spawn_prefix[8]; /* what runs the VMM; NULL: nothing */
static rlim_t spawn_descriptors; /* RLIMIT_NOFILE of the next one; 0: as it is */
static int spawn_cgroup = -1; /* the directory of the next one's cgroup, for root; -1: it stays where it is. Not closed */

/* A program of the test's own folder; static. */
static inline const char *beside(const char *name)
{
	static char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	ck_assert_int_gt((int) n, 0);
	path[n] = '\0';
	(void) strcpy(strrchr(path, '/') + 1, name);
	return path;
}

static inline const char *program(void)
{
	static char path[PATH_MAX];
	const char *bin = getenv("CROFT_BIN"), *vmm = getenv("CROFT_VMM");

	if (vmm)
		return vmm;
	if (bin)
		(void) snprintf(path, sizeof(path), "%s/croft-vmm", bin);
	else
		(void) snprintf(path, sizeof(path), "%s", beside("croft-vmm"));
	return path;
}

static inline int control_connect(void)
{
	int fd = unix_connect(control_path, SOCK_SEQPACKET);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Does not return. CROFT_COUNT names a file: every start is counted into it (tests/lib/seccomp-trace.c). */
static inline void exec_prefixed(const char *const *arguments)
{
	const char *count = getenv("CROFT_COUNT"), *argv[32];
	size_t n = 0;

	for (size_t i = 0; spawn_prefix[i]; i++)
		argv[n++] = spawn_prefix[i];
	if (count && n == 0) {
		argv[n++] = beside("seccomp-trace");
		argv[n++] = "--count";
		argv[n++] = count;
		argv[n++] = "--";
	}
	for (size_t i = 0; n < ARRAY_LEN(argv) - 1 && arguments[i]; i++)
		argv[n++] = arguments[i];
	argv[n] = NULL;
	(void) execv(argv[0], (char *const *) (uintptr_t) argv);
	_exit(127);
}

static inline void spawn(void)
{
	int listen_fd = unix_listen(control_path, SOCK_SEQPACKET, 0600, 8);
	int exit_fd = open(exit_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(listen_fd, 0);
	ck_assert_int_ge(exit_fd, 0);
	vmm_pid = fork();
	ck_assert_int_ge(vmm_pid, 0);
	if (vmm_pid == 0) {
		(void) dup2(listen_fd, 60);
		(void) dup2(exit_fd, 61);
		if (spawn_cgroup >= 0)
			(void) dup2(spawn_cgroup, 62);
		if (spawn_descriptors) {
			struct rlimit limit = { spawn_descriptors, spawn_descriptors };

			(void) setrlimit(RLIMIT_NOFILE, &limit);
		}
		/* root gives it a uid of its own, else it keeps this one */
		exec_prefixed((const char *const[]) { program(), "--control-fd", "60", "--exit-fd", "61", "--log-level", "error", "--id",
			"abc", "--run", directory, geteuid() == 0 ? "--uid=65534" : NULL, "--gid=65534",
			spawn_cgroup >= 0 ? "--cgroup-fd=62" : NULL, NULL });
		_exit(127);
	}
	(void) fd_close(listen_fd);
	(void) fd_close(exit_fd);
	control = control_connect();
}

static inline void set_up(void)
{
	(void) snprintf(directory, sizeof(directory), "/tmp/test-vmm-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	(void) snprintf(control_path, sizeof(control_path), "%s/control", directory);
	(void) snprintf(exit_path, sizeof(exit_path), "%s/exit", directory);
	(void) signal(SIGPIPE, SIG_IGN);
	next_id = 1;
	events = 0;
	spawn();
}

static inline void tear_down(void)
{
	(void) fd_close(control);
	if (vmm_pid > 0) {
		(void) kill(vmm_pid, SIGKILL);
		(void) waitpid(vmm_pid, NULL, 0);
	}
	ck_assert_int_eq(dir_remove(directory), 0);
}

static inline void send_request(int fd, Croft__VmmRequest *request, const int *fds, size_t n_fds)
{
	uint8_t buf[PACKET_MAX];
	size_t n;

	request->id = next_id;
	n = croft__vmm_request__pack(request, buf);
	ck_assert_int_eq((int) unix_send_fds(fd, buf, n, fds, n_fds), (int) n);
}

/* The next message, NULL at the end of the connection. */
static inline Croft__VmmMessage *receive(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	uint8_t buf[PACKET_MAX];
	Croft__VmmMessage *message;
	ssize_t n;

	ck_assert_int_eq(poll(&wait, 1, WAIT_MSEC), 1);
	n = recv(fd, buf, sizeof(buf), 0);
	if (n <= 0)
		return NULL;
	message = croft__vmm_message__unpack(NULL, (size_t) n, buf);
	ck_assert_ptr_nonnull(message);
	return message;
}

/* The answer to the request sent last; events on the way are noted. NULL: the VMM ended first. */
static inline Croft__VmmMessage *answer(int fd)
{
	for (;;) {
		Croft__VmmMessage *message = receive(fd);

		if (!message)
			return NULL;
		if (message->body_case == CROFT__VMM_MESSAGE__BODY_EVENT) {
			events |= 1u << message->event->kind;
		} else if (message->response->id == next_id) {
			next_id++;
			return message;
		}
		croft__vmm_message__free_unpacked(message, NULL);
	}
}

static inline void wait_event(Croft__VmmEventKind kind)
{
	while (!(events & 1u << kind)) {
		Croft__VmmMessage *message = receive(control);

		ck_assert_msg(message, "the VMM ended before event %d", (int) kind);
		if (message->body_case == CROFT__VMM_MESSAGE__BODY_EVENT)
			events |= 1u << message->event->kind;
		croft__vmm_message__free_unpacked(message, NULL);
	}
}

/* What the exit record says, for the message of a test that fails; static. */
static inline const char *last_word(void)
{
	static char text[256];
	Croft__VmmExit *record;
	char *data = NULL;
	size_t n = 0;

	if (file_read(exit_path, PACKET_MAX, &data, &n) < 0)
		return "no exit record";
	record = croft__vmm_exit__unpack(NULL, n, (const uint8_t *) data);
	free(data);
	if (!record)
		return "no exit record";
	(void) snprintf(text, sizeof(text), "reason %d \"%s\", system call %u (0x%x), thread %u", (int) record->reason,
		record->detail, record->syscall, record->syscall_argument, record->thread);
	croft__vmm_exit__free_unpacked(record, NULL);
	return text;
}

/* The answer, which has statistics, is the caller's. */
static inline Croft__VmmMessage *ask_stats(void)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStatsRequest message = CROFT__VMM_STATS_REQUEST__INIT;
	Croft__VmmMessage *got;

	request.body_case = CROFT__VMM_REQUEST__BODY_STATS;
	request.stats = &message;
	send_request(control, &request, NULL, 0);
	got = answer(control);
	ck_assert_msg(got, "no answer to stats: %s", last_word());
	ck_assert_ptr_nonnull(got->response->stats);
	return got;
}

#define FDS_MAX 12

struct start {
	Croft__VmmStart message;
	Croft__VmmVsock vsock;
	Croft__VmmDisk disk, *disks[10];
	int fds[FDS_MAX + 10];
	size_t n_fds;
};

static inline void start_init(struct start *start, int kernel_fd)
{
	memset(start, 0, sizeof(*start));
	croft__vmm_start__init(&start->message);
	croft__vmm_vsock__init(&start->vsock);
	croft__vmm_disk__init(&start->disk);
	for (size_t i = 0; i < 10; i++)
		start->disks[i] = &start->disk;
	start->message.disks = start->disks;
	start->message.vcpus = 1;
	start->message.memory_mib = 64;
	start->fds[0] = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	start->fds[1] = kernel_fd;
	start->n_fds = 2;
}

static inline void add_fd(struct start *start, int fd)
{
	ck_assert_int_ge(fd, 0);
	start->fds[start->n_fds++] = fd;
}

/* Sends it and closes our descriptors. The failure's code, "" when there was none; static. */
static inline const char *start_send(struct start *start)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	static char code[64];
	Croft__VmmMessage *message;

	request.body_case = CROFT__VMM_REQUEST__BODY_START;
	request.start = &start->message;
	send_request(control, &request, start->fds, start->n_fds);
	for (size_t i = 0; i < start->n_fds; i++)
		(void) fd_close(start->fds[i]);
	message = answer(control);
	ck_assert_msg(message, "no answer to start: %s", last_word());
	(void) snprintf(code, sizeof(code), "%s", message->response->failure ? message->response->failure->code : "");
	croft__vmm_message__free_unpacked(message, NULL);
	return code;
}

static inline void start_guest(int kernel_fd)
{
	struct start start;

	start_init(&start, kernel_fd);
	ck_assert_str_eq(start_send(&start), "");
}

static inline void stop(bool force, uint32_t grace_ms)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStop message = CROFT__VMM_STOP__INIT;

	message.force = force;
	message.grace_ms = grace_ms;
	request.body_case = CROFT__VMM_REQUEST__BODY_STOP;
	request.stop = &message;
	send_request(control, &request, NULL, 0);
	croft__vmm_message__free_unpacked(answer(control), NULL);
}

/* Waits for the end: status and record must both say `status`. The record is the caller's. */
static inline Croft__VmmExit *expect_exit(int status)
{
	Croft__VmmExit *record;
	int got, pid_fd = pidfd_open(vmm_pid, 0);
	struct pollfd wait = { .fd = pid_fd, .events = POLLIN };
	char *data;
	size_t n;

	ck_assert_int_ge(pid_fd, 0);
	ck_assert_msg(poll(&wait, 1, WAIT_MSEC) == 1, "the VMM does not end");
	ck_assert_int_eq(waitpid(vmm_pid, &got, 0), vmm_pid);
	vmm_pid = 0;
	(void) fd_close(pid_fd);
	ck_assert_msg(WIFEXITED(got) && WEXITSTATUS(got) == status, "wait status 0x%x, not exit %d: %s", (unsigned int) got,
		status, last_word());
	ck_assert_int_eq(file_read(exit_path, PACKET_MAX, &data, &n), 0);
	record = croft__vmm_exit__unpack(NULL, n, (uint8_t *) data);
	free(data);
	ck_assert_ptr_nonnull(record);
	ck_assert_int_eq((int) record->reason, status);
	ck_assert_int_gt(record->realtime_us, 0);
	return record;
}

static inline void expect_end(int status, bool reached_userspace)
{
	Croft__VmmExit *record = expect_exit(status);

	ck_assert_int_eq(record->reached_userspace, reached_userspace);
	croft__vmm_exit__free_unpacked(record, NULL);
}
