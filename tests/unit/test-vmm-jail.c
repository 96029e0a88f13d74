/* SPDX-License-Identifier: Apache-2.0
 *
 * What confines croft-vmm, without KVM: every system call that a filter does not hold ends the process with its
 * number; the steps of the jail, seen from outside and by the VMM's own report; unsafe run directories and ids; a
 * host that forbids user namespaces; the lease on a virtual clock. Cases R130 R131.
 *
 * Runs as root or not. As root the jail of an ordinary user is tried as uid 65534.
 */
#include <assert.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "filter.h"
#include "host-limit.h"
#include "jail.h"
#include "last-word.h"
#include "lease.h"
#include "lib/bad-days.h"
#include "lib/suite.h"
#include "pb/vmm.pb-c.h"

#ifndef CROFT_SANITIZED
#define CROFT_SANITIZED 0
#endif

#define NUMBERS 470 /* system calls of Linux 6.18 and some that are none */
#define NOBODY 65534

/* ---- a child behind a filter ---- */

static int record_fd; /* where its last word goes */

static Croft__VmmExit *read_record(void)
{
	uint8_t buf[4096];
	ssize_t n = pread(record_fd, buf, sizeof(buf), 0);

	return n > 0 ? croft__vmm_exit__unpack(NULL, (size_t) n, buf) : NULL;
}

/* Runs `act` behind the filters that a thread of `kind` has. The wait status. */
static int behind(enum thread_kind kind, void (*act)(const void *), const void *argument)
{
	int status;
	pid_t pid;

	ck_assert_int_eq(ftruncate(record_fd, 0), 0);
	ck_assert_int_eq((int) lseek(record_fd, 0, SEEK_SET), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		(void) dup2(null, STDERR_FILENO); /* assertions say so */
		last_word_prepare(record_fd);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_install(THREAD_START) < 0 ||
			(kind != THREAD_START && filter_install(kind) < 0))
			_exit(100);
		act(argument);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

struct call {
	long nr;
	long arguments[6];
};

static void make_call(const void *argument)
{
	const struct call *call = argument;
	const long *a = call->arguments;

	(void) syscall(call->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void expect_violation(enum thread_kind kind, const struct call *call)
{
	int status = behind(kind, make_call, call);
	Croft__VmmExit *record = read_record();

	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 21, "%s: call %ld: wait status 0x%x",
		thread_kind_name(kind), call->nr, (unsigned int) status);
	ck_assert_ptr_nonnull(record);
	ck_assert_int_eq(record->reason, CROFT__VMM_EXIT_REASON__VMM_EXIT_SECCOMP);
	ck_assert_uint_eq(record->syscall, (uint32_t) call->nr);
	ck_assert_uint_eq(record->syscall_argument, (uint32_t) call->arguments[1]);
	ck_assert_uint_eq(record->thread, (uint32_t) kind + 1);
	croft__vmm_exit__free_unpacked(record, NULL);
}

/* ---- the filters ---- */

enum { S = 1 << THREAD_START, L = 1 << THREAD_LOOP, V = 1 << THREAD_VCPU, D = 1 << THREAD_DISK };

#define CALL(threads, name, seen, reason) { threads, SYS_##name },
#define CALL_IF(threads, name, seen, reason, ...) { threads, SYS_##name },
static const struct {
	unsigned int threads;
	long nr;
} table[] = {
#include "seccomp.def"
};

static bool is_in_table(enum thread_kind kind, long nr)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].nr == nr && (kind == THREAD_START || table[i].threads & 1u << kind))
			return true;
	return nr == SYS_clone3 && kind == THREAD_START; /* it gets an errno */
}

/* uretprobe and uprobe: newer kernels answer them with SIGILL, before any filter. */
static bool is_past_filters(long nr)
{
	return nr == 335 || nr == 336;
}

START_TEST(whatever_is_not_in_the_table_ends_the_process_with_its_number)
{
	enum thread_kind kind = (enum thread_kind) _i;
	int n = 0;

	for (long nr = 0; nr < NUMBERS; nr++) {
		struct call call = { .nr = nr, .arguments = { -1, 0x12345, -1, -1, -1, -1 } };

		if (is_in_table(kind, nr) || is_past_filters(nr))
			continue;
		expect_violation(kind, &call);
		n++;
	}
	ck_assert_int_gt(n, 390);
}
END_TEST

/* A row of any of these would undo what the jail is for, whatever its reason says. */
START_TEST(nothing_opens_executes_listens_or_looks_at_another_process)
{
	static const long never[] = { SYS_open, SYS_openat, SYS_openat2, SYS_open_by_handle_at, SYS_creat, SYS_execve, SYS_execveat,
		SYS_fork, SYS_vfork, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount,
		SYS_unlink, SYS_unlinkat, SYS_rename, SYS_renameat2, SYS_link, SYS_symlink, SYS_mkdir, SYS_mknod, SYS_chmod, SYS_fchmod,
		SYS_chown, SYS_fchown, SYS_bind, SYS_listen, SYS_sendmmsg, SYS_kill, SYS_rt_sigqueueinfo, SYS_pidfd_open,
		SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
		SYS_setuid, SYS_setresuid, SYS_capset, SYS_bpf, SYS_io_uring_setup, SYS_io_uring_enter, SYS_userfaultfd, SYS_keyctl,
		SYS_add_key, SYS_perf_event_open, SYS_init_module, SYS_finit_module, SYS_kexec_load, SYS_reboot, SYS_personality,
		SYS_modify_ldt, SYS_arch_prctl, SYS_shmat, SYS_dup2, SYS_dup3 };

	for (size_t i = 0; i < ARRAY_LEN(never); i++)
		ck_assert_msg(!is_in_table(THREAD_START, never[i]), "call %ld is in the table", never[i]);
	/* the loop answers a fork with descriptors; the threads that run the guest give none away */
	ck_assert(is_in_table(THREAD_LOOP, SYS_sendmsg));
	ck_assert(!is_in_table(THREAD_VCPU, SYS_sendmsg) && !is_in_table(THREAD_DISK, SYS_sendmsg));
}
END_TEST

#define WRITE_EXEC (PROT_WRITE | PROT_EXEC)
static const struct {
	enum thread_kind kind;
	struct call call;
} near_misses[] = {
	{ THREAD_LOOP, { SYS_mmap, { 0, 4096, WRITE_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0 } } },
	{ THREAD_LOOP, { SYS_mmap, { 0, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0 } } },
	{ THREAD_LOOP, { SYS_mmap, { 0, 4096, PROT_READ, MAP_PRIVATE, 0, 0 } } },
	{ THREAD_LOOP, { SYS_ioctl, { 0, KVM_RUN } } },
	{ THREAD_LOOP, { SYS_socket, { AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0 } } },
	{ THREAD_LOOP, { SYS_socket, { AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0 } } },
	{ THREAD_LOOP, { SYS_tgkill, { 1, 1, VCPU_SIGNAL } } },   /* another process */
	{ THREAD_LOOP, { SYS_futex, { 0, FUTEX_REQUEUE, 0 } } },
	{ THREAD_LOOP, { SYS_sendto, { 2, 0, 0, MSG_OOB, 0, 0 } } },
	{ THREAD_LOOP, { SYS_sendmsg, { 2, 0, 0 } } },
	{ THREAD_LOOP, { SYS_memfd_create, { 0, MFD_ALLOW_SEALING } } }, /* would be inherited */
	{ THREAD_LOOP, { SYS_fcntl, { 0, F_DUPFD_CLOEXEC, 0 } } },
	{ THREAD_LOOP, { SYS_mmap, { 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 0 } } },
	{ THREAD_LOOP, { SYS_rt_sigaction, { 33, 0, 0, 8 } } },
	{ THREAD_LOOP, { SYS_rt_sigreturn, { 0, 0 } } },
	{ THREAD_LOOP, { SYS_clone3, { 0, 0 } } },
	{ THREAD_VCPU, { SYS_ioctl, { 0, KVM_CREATE_VM } } },
	{ THREAD_VCPU, { SYS_ioctl, { 0, TIOCSTI } } },
	{ THREAD_VCPU, { SYS_ioctl, { 0, KVM_SET_USER_MEMORY_REGION } } },
	{ THREAD_VCPU, { SYS_madvise, { 0, 0, MADV_HUGEPAGE } } },
	{ THREAD_VCPU, { SYS_read, { 0, 0, 0 } } },
	{ THREAD_DISK, { SYS_sendto, { 2, 0, 0, MSG_MORE, 0, 0 } } },
	{ THREAD_DISK, { SYS_ftruncate, { 0, 0 } } },
	{ THREAD_DISK, { SYS_rt_sigreturn, { 0, 0 } } },
	{ THREAD_START, { SYS_clone, { SIGCHLD, 0 } } },                     /* fork() */
	{ THREAD_START, { SYS_clone, { CLONE_NEWUSER | SIGCHLD, 0 } } },
	{ THREAD_START, { SYS_rt_sigaction, { SIGSYS, 0, 0, 8 } } },
	{ THREAD_START, { SYS_prctl, { PR_SET_DUMPABLE, 1 } } },
	{ THREAD_START, { SYS_prlimit64, { 1, RLIMIT_FSIZE, 0, 0 } } },      /* another process */
	{ THREAD_START, { SYS_prlimit64, { 0, RLIMIT_NOFILE, 0, 0 } } },
	{ THREAD_START, { SYS_seccomp, { SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0 } } },
	{ THREAD_START, { SYS_mprotect, { 0, 4096, PROT_READ | PROT_EXEC } } },
	{ THREAD_START, { SYS_fcntl, { 0, F_DUPFD, 0 } } },
	{ THREAD_START, { SYS_fcntl, { 0, F_SETOWN, 1 } } },
	{ THREAD_START, { SYS_newfstatat, { AT_FDCWD, 0x1000, 0, 0 } } },
	{ THREAD_START, { SYS_memfd_create, { 0, 0 } } },
};

START_TEST(allowed_calls_are_allowed_for_their_arguments_only)
{
	expect_violation(near_misses[_i].kind, &near_misses[_i].call);
}
END_TEST

static void block_and_violate(const void *argument)
{
	sigset_t all;

	(void) argument;
	(void) sigfillset(&all);
	(void) sigprocmask(SIG_BLOCK, &all, NULL);
	(void) syscall(SYS_getppid);
}

/* i386's numbers mean other calls: 1 is exit there and write here. */
static void call_as_i386(const void *argument)
{
	long nr = 20; /* getpid there, writev here */

	(void) argument;
	__asm__ volatile("int $0x80" : "+a"(nr) : : "memory", "r8", "r9", "r10", "r11");
}

static void call_as_x32(const void *argument)
{
	(void) argument;
	(void) syscall(0x40000000 | SYS_getpid);
}

START_TEST(there_is_no_way_around_the_handler)
{
	static void (*const acts[])(const void *) = { block_and_violate, call_as_i386, call_as_x32 };
	int status = behind((enum thread_kind) (_i % THREAD_MAX_), acts[_i / THREAD_MAX_], NULL);

	/* a kernel without 32-bit calls answers int 0x80 by itself */
	ck_assert_msg(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS ||
		(acts[_i / THREAD_MAX_] == call_as_i386 && WTERMSIG(status) == SIGSEGV)),
		"wait status 0x%x", (unsigned int) status);
}
END_TEST

/* ---- what libc does on a bad day (lib/bad-days.h) ---- */

START_TEST(abort_assertions_memory_and_the_log_pass_the_filters)
{
	enum thread_kind kind = (enum thread_kind) (_i % THREAD_MAX_);
	const struct bad_day *day = &bad_days[_i / THREAD_MAX_];
	int status;

	ck_assert_int_eq(ftruncate(record_fd, 0), 0);
	ck_assert_int_eq((int) lseek(record_fd, 0, SEEK_SET), 0);
	status = bad_day_run(day, kind, record_fd);
	Croft__VmmExit *record = read_record();

	ck_assert_msg(bad_day_ended(status, day->glibc), "%s, %s: wait status 0x%x, call %u", day->name,
		thread_kind_name(kind), (unsigned int) status, record ? record->syscall : 0);
	ck_assert_int_eq(record != NULL, day->glibc == 20); /* an end says why */
	if (record) {
		ck_assert_int_eq(record->reason, CROFT__VMM_EXIT_REASON__VMM_EXIT_BUG);
		croft__vmm_exit__free_unpacked(record, NULL);
	}
}
END_TEST

static void wait_for_a_condition(const void *argument)
{
	const clockid_t *clock = argument;
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_condattr_t attributes;
	pthread_cond_t changed;
	struct timespec ts;

	(void) pthread_condattr_init(&attributes);
	(void) pthread_condattr_setclock(&attributes, *clock);
	(void) pthread_cond_init(&changed, &attributes);
	(void) clock_gettime(*clock, &ts);
	ts.tv_sec++;
	(void) pthread_mutex_lock(&lock);
	while (pthread_cond_timedwait(&changed, &lock, &ts) == 0)
		;
	_exit(42);
}

/* A reset of a device waits for its requests and a paused vCPU for the end of the pause, without a limit, which libc does on
 * CLOCK_REALTIME; the loop waits for them to park, with one, and not on a clock that somebody may put back. */
START_TEST(vcpus_and_the_loop_may_wait_for_a_condition)
{
	static const struct {
		enum thread_kind kind;
		clockid_t clock;
	} waits[] = { { THREAD_LOOP, CLOCK_MONOTONIC }, { THREAD_VCPU, CLOCK_REALTIME } };
	int status = behind(waits[_i].kind, wait_for_a_condition, &waits[_i].clock);

	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 42, "wait status 0x%x", (unsigned int) status);
}
END_TEST

/* ---- croft-vmm in its jail ---- */

struct jailed {
	char dir[64], run[96], control_path[112], exit_path[112], log_path[112];
	int control;
	pid_t pid;
};

static void jailed_init(struct jailed *vmm)
{
	*vmm = (struct jailed) { .control = -1 };
	(void) snprintf(vmm->dir, sizeof(vmm->dir), "/tmp/test-jail-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(vmm->dir));
	ck_assert_int_eq(chmod(vmm->dir, 0755), 0);
	(void) snprintf(vmm->run, sizeof(vmm->run), "%s/run", vmm->dir);
	(void) snprintf(vmm->control_path, sizeof(vmm->control_path), "%s/control", vmm->run);
	(void) snprintf(vmm->exit_path, sizeof(vmm->exit_path), "%s/exit", vmm->run);
	(void) snprintf(vmm->log_path, sizeof(vmm->log_path), "%s/log", vmm->dir);
	ck_assert_int_eq(mkdir(vmm->run, 0750), 0);
}

static void jailed_deinit(struct jailed *vmm)
{
	(void) fd_close(vmm->control);
	if (vmm->pid > 0) {
		(void) kill(vmm->pid, SIGKILL);
		(void) waitpid(vmm->pid, NULL, 0);
	}
	ck_assert_int_eq(dir_remove(vmm->dir), 0);
}

/* What is different from one start to the next. */
struct how {
	bool as_root;           /* else as an ordinary user, whoever runs the test */
	bool without_user_ns;   /* the host allows none */
	const char *jail;
	const char *more[4];    /* further arguments */
	const char *run;        /* instead of the run directory */
};

static void be_ordinary(const struct jailed *vmm)
{
	if (geteuid() != 0)
		return;
	if (chown(vmm->run, NOBODY, NOBODY) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		_exit(101);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(102);
	(void) close(fd);
}

/* A user namespace in which there can be none: what a host with max_user_namespaces = 0 does. */
static void forbid_user_namespaces(void)
{
	char map[64];
	unsigned int uid = geteuid();

	(void) snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (unshare(CLONE_NEWUSER) < 0)
		return; /* they are forbidden here anyway */
	(void) prctl(PR_SET_DUMPABLE, 1);
	write_text("/proc/self/uid_map", map);
	write_text("/proc/sys/user/max_user_namespaces", "0");
}

static void run_vmm(const struct jailed *vmm, const struct how *how, int control, int exit_fd)
{
	const char *bin = getenv("CROFT_BIN"), *argv[24] = { "croft-vmm", "--control-fd", "60", "--exit-fd", "61", "--run",
		how->run ? how->run : vmm->run, "--jail", how->jail ? how->jail : "available" };
	char program[PATH_MAX];
	int log = open(vmm->log_path, O_WRONLY | O_CREAT | O_APPEND, 0666), file;
	size_t n = 9;

	/* opened now: the ordinary user may not get through to it */
	(void) snprintf(program, sizeof(program), "%s/croft-vmm", bin ? bin : "build/dev/bin");
	file = open(program, O_PATH | O_CLOEXEC);
	(void) dup2(log, STDERR_FILENO);
	(void) dup2(control, 60);
	(void) dup2(exit_fd, 61);
	if (fcntl(log, F_DUPFD, 200) < 0) /* one that it was not given */
		_exit(103);
	for (size_t i = 0; i < ARRAY_LEN(how->more) && how->more[i]; i++)
		argv[n++] = how->more[i];
	if (how->as_root && setgroups(2, (const gid_t[]) { 5, 6 }) < 0)
		_exit(104);
	if (!how->as_root)
		be_ordinary(vmm);
	(void) setenv("CROFT_TEST", "secret", 1);
	if (how->without_user_ns)
		forbid_user_namespaces();
	(void) execveat(file, "", (char *const *) (uintptr_t) argv, environ, AT_EMPTY_PATH);
	_exit(127);
}

static void jailed_start(struct jailed *vmm, const struct how *how)
{
	int control = unix_listen(vmm->control_path, SOCK_SEQPACKET, 0600, 4);
	int exit_fd = open(vmm->exit_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(control, 0);
	ck_assert_int_ge(exit_fd, 0);
	vmm->pid = fork();
	ck_assert_int_ge(vmm->pid, 0);
	if (vmm->pid == 0)
		run_vmm(vmm, how, control, exit_fd);
	vmm->control = unix_connect(vmm->control_path, SOCK_SEQPACKET);
	ck_assert_int_ge(vmm->control, 0);
	(void) fd_close(control);
	(void) fd_close(exit_fd);
}

/* NULL: it ended instead. The message is the caller's. */
static Croft__VmmMessage *ask_status(struct jailed *vmm)
{
	struct pollfd wait = { .fd = vmm->control, .events = POLLIN };
	Croft__VmmStatusRequest status;
	Croft__VmmRequest request;
	uint8_t buf[8192];
	ssize_t n;

	croft__vmm_request__init(&request);
	croft__vmm_status_request__init(&status);
	request.id = 1;
	request.body_case = CROFT__VMM_REQUEST__BODY_STATUS;
	request.status = &status;
	n = (ssize_t) croft__vmm_request__pack(&request, buf);
	(void) send(vmm->control, buf, (size_t) n, MSG_NOSIGNAL);
	ck_assert_int_eq(poll(&wait, 1, 60000), 1);
	n = recv(vmm->control, buf, sizeof(buf), 0);
	return n > 0 ? croft__vmm_message__unpack(NULL, (size_t) n, buf) : NULL;
}

static int wait_end(struct jailed *vmm)
{
	int status;

	ck_assert_int_eq(waitpid(vmm->pid, &status, 0), vmm->pid);
	vmm->pid = 0;
	ck_assert_msg(WIFEXITED(status), "wait status 0x%x", (unsigned int) status);
	return WEXITSTATUS(status);
}

static bool has_step(const Croft__VmmJail *jail, const char *step)
{
	for (size_t i = 0; i < jail->n_applied; i++)
		if (!strcmp(jail->applied[i], step))
			return true;
	return false;
}

static int missing_with(const Croft__VmmJail *jail, const char *step)
{
	for (size_t i = 0; i < jail->n_missing; i++)
		if (!strcmp(jail->missing[i]->step, step))
			return jail->missing[i]->err_no;
	return 0;
}

/* A line of /proc/PID/status; static. */
static const char *status_line(const struct jailed *vmm, const char *key)
{
	static char value[128];
	char path[64], *text = NULL;
	const char *line;

	(void) snprintf(path, sizeof(path), "/proc/%d/status", (int) vmm->pid);
	ck_assert_int_eq(file_read(path, 65536, &text, NULL), 0);
	line = strstr(text, key);
	ck_assert_ptr_nonnull(line);
	line += strlen(key) + 1; /* a tab */
	(void) snprintf(value, sizeof(value), "%.*s", (int) strcspn(line, "\n"), line);
	free(text);
	return value;
}

/* A file of /proc/PID; static. */
static const char *proc_text(const struct jailed *vmm, const char *name)
{
	static char value[128];
	char path[64], *text = NULL;

	(void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) vmm->pid, name);
	ck_assert_int_eq(file_read(path, sizeof(value) - 1, &text, NULL), 0);
	(void) snprintf(value, sizeof(value), "%s", text);
	free(text);
	return value;
}

/* No library that speaks to a network, and none that nobody asked for (docs/decisions/0005). */
static void check_libraries(const struct jailed *vmm)
{
	static const char *const known[] = { "/croft-vmm", "/libc.so", "/ld-linux-x86-64.so.2", "/libprotobuf-c.so.", "/libz.so." };
	char path[64], *text = NULL, *rest;
	int n = 0;

	(void) snprintf(path, sizeof(path), "/proc/%d/maps", (int) vmm->pid);
	ck_assert_int_eq(file_read(path, 1 << 20, &text, NULL), 0);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *file = strrchr(line, '/');
		bool is_known = !file; /* of no file */

		for (size_t i = 0; !is_known && i < ARRAY_LEN(known); i++)
			is_known = !strncmp(file, known[i], strlen(known[i]));
		ck_assert_msg(is_known, "it has mapped %s", line);
		n += file != NULL;
	}
	ck_assert_int_gt(n, 0);
	free(text);
}

/* Needs root: what a process that may not be dumped has in /proc is root's. */
static void check_from_outside(const struct jailed *vmm)
{
	char path[PATH_MAX], link[64];
	struct stat st;
	DIR *dir;
	int n = 0;

	(void) snprintf(path, sizeof(path), "/proc/%d/mem", (int) vmm->pid);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_uid, 0); /* no-dump */
	(void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) vmm->pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		n += *entry->d_name != '.';
	(void) closedir(dir);
	ck_assert_int_le(n, 3 + 2 + 1 + 3 + 1); /* 0-2, given, pagemap, the loop's, our connection */
	(void) snprintf(path, sizeof(path), "/proc/%d/root", (int) vmm->pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	n = 0;
	for (struct dirent *entry; (entry = readdir(dir));)
		n += *entry->d_name != '.';
	(void) closedir(dir);
	ck_assert_int_eq(n, 1); /* the way to the run directory */
	(void) snprintf(path, sizeof(path), "/proc/%d/root%s/exit", (int) vmm->pid, vmm->run);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_lt(open(path, O_WRONLY | O_CLOEXEC), 0);
	ck_assert_int_eq(errno, EROFS);
	for (size_t i = 0; i < 5; i++) {
		static const char *const spaces[] = { "mnt", "net", "ipc", "uts", "cgroup" };
		char ours[64];

		(void) snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int) vmm->pid, spaces[i]);
		memset(link, 0, sizeof(link));
		ck_assert_int_gt((int) readlink(path, link, sizeof(link) - 1), 0);
		(void) snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
		memset(ours, 0, sizeof(ours));
		ck_assert_int_gt((int) readlink(path, ours, sizeof(ours) - 1), 0);
		ck_assert_str_ne(link, ours);
	}
}

/* Soft and hard, so that it cannot be taken back. */
static void check_limits(const struct jailed *vmm)
{
	static const struct {
		const char *name;
		__rlimit_resource_t resource;
		rlim_t max;
	} limits[] = { { "Max core file size", RLIMIT_CORE, 0 }, { "Max open files", RLIMIT_NOFILE, 2048 },
		{ "Max locked memory", RLIMIT_MEMLOCK, 0 }, { "Max msgqueue size", RLIMIT_MSGQUEUE, 0 },
		{ "Max nice priority", RLIMIT_NICE, 0 }, { "Max realtime priority", RLIMIT_RTPRIO, 0 } };
	char path[64], line[80], *text = NULL;

	(void) snprintf(path, sizeof(path), "/proc/%d/limits", (int) vmm->pid);
	ck_assert_int_eq(file_read(path, 65536, &text, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct rlimit ours;
		unsigned long max;

		ck_assert_int_eq(getrlimit(limits[i].resource, &ours), 0);
		max = (unsigned long) MIN(ours.rlim_max, limits[i].max);
		(void) snprintf(line, sizeof(line), "%-25s %-20lu %-20lu ", limits[i].name, max, max);
		ck_assert_msg(strstr(text, line) != NULL, "no line \"%s\" in\n%s", line, text);
	}
	free(text);
}

/* Nothing is left of what it was started with. */
static void check_environment(const struct jailed *vmm)
{
	char path[64], *text = NULL;
	size_t n = 0;

	(void) snprintf(path, sizeof(path), "/proc/%d/environ", (int) vmm->pid);
	ck_assert_int_eq(file_read(path, 1 << 20, &text, &n), 0);
	ck_assert_uint_gt(n, 0);
	for (size_t i = 0; i < n; i++)
		if (text[i] != '\0')
			ck_abort_msg("its environment has \"%s\"", text + i);
	free(text);
}

static void check_confined(const struct jailed *vmm)
{
	check_limits(vmm);
	ck_assert_str_eq(status_line(vmm, "\nNoNewPrivs:"), "1");
	ck_assert_str_eq(status_line(vmm, "\nSeccomp:"), "2");
	ck_assert_str_eq(status_line(vmm, "\nCapPrm:"), "0000000000000000");
	ck_assert_str_eq(status_line(vmm, "\nCapEff:"), "0000000000000000");
	ck_assert_str_eq(status_line(vmm, "\nCapBnd:"), "0000000000000000");
	ck_assert_str_eq(status_line(vmm, "\nCapAmb:"), "0000000000000000");
	if (geteuid() == 0) {
		check_environment(vmm);
		check_libraries(vmm);
		check_from_outside(vmm);
	}
}

static bool has_user_namespaces(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit((geteuid() != 0 || setuid(NOBODY) == 0) && unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
			mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status == 0;
}

/* _i 0: an ordinary user; 1: root. */
START_TEST(every_step_is_applied_and_seen_from_outside)
{
	static const struct how hows[] = { { .jail = "required" },
		{ .as_root = true, .jail = "required", .more = { "--uid=54321", "--gid=54322" } } };
	Croft__VmmMessage *message;
	const Croft__VmmJail *jail;
	struct jailed vmm;

	if (CROFT_SANITIZED || (_i == 1 && geteuid() != 0) || (_i == 0 && !has_user_namespaces()))
		return;
	jailed_init(&vmm);
	jailed_start(&vmm, &hows[_i]);
	message = ask_status(&vmm);
	ck_assert_ptr_nonnull(message);
	jail = message->response->status->jail;
	ck_assert_ptr_nonnull(jail);
	ck_assert_uint_eq(jail->n_missing, 0);
	ck_assert(has_step(jail, "namespaces") && has_step(jail, "root") && has_step(jail, "filters"));
	ck_assert_int_eq(has_step(jail, "user"), _i == 1);
	check_confined(&vmm);
	if (_i == 1) {
		ck_assert_str_eq(status_line(&vmm, "\nUid:"), "54321\t54321\t54321\t54321");
		ck_assert_str_eq(status_line(&vmm, "\nGid:"), "54322\t54322\t54322\t54322");
		ck_assert_str_eq(status_line(&vmm, "\nGroups:"), " ");
	}
	ck_assert_str_eq(proc_text(&vmm, "oom_score_adj"), "500\n");
	croft__vmm_message__free_unpacked(message, NULL);
	ck_assert_int_eq(kill(vmm.pid, SIGTERM), 0);
	ck_assert_int_eq(wait_end(&vmm), 17);
	jailed_deinit(&vmm);
}
END_TEST

START_TEST(a_host_without_user_namespaces_is_told_by_step_and_errno)
{
	static const struct how how = { .without_user_ns = true };
	Croft__VmmMessage *message;
	const Croft__VmmJail *jail;
	struct jailed vmm;

	jailed_init(&vmm);
	jailed_start(&vmm, &how);
	message = ask_status(&vmm);
	ck_assert_ptr_nonnull(message);
	jail = message->response->status->jail;
	ck_assert_int_ne(missing_with(jail, "namespaces"), 0);
	ck_assert_int_eq(missing_with(jail, "root"), EPERM);
	ck_assert(has_step(jail, "no-new-privs") && has_step(jail, "limits"));
	ck_assert(CROFT_SANITIZED || has_step(jail, "filters"));
	croft__vmm_message__free_unpacked(message, NULL);
	jailed_deinit(&vmm);
}
END_TEST

/* Starts that fail with a code. */
static const struct {
	struct how how;
	const char *code;
	const char *field, *value;
} refused[] = {
	{ { .without_user_ns = true, .jail = "required" }, "JAIL_FAILED", "step", "namespaces" },
	{ { .run = "relative" }, "JAIL_UNSAFE_PATH", "path", "relative" },
	{ { .run = "/nonexistent" }, "JAIL_UNSAFE_PATH", "path", "/nonexistent" },
	{ { .more = { "--uid=54321", "--gid=54322" } }, "JAIL_FAILED", NULL, NULL },
	{ { .as_root = true }, "JAIL_FAILED", NULL, NULL },                               /* root without a uid */
	{ { .as_root = true, .more = { "--uid=0", "--gid=1" } }, "JAIL_FAILED", NULL, NULL },
};

START_TEST(a_start_that_cannot_be_confined_is_refused)
{
	const Croft__VmmFailure *failure;
	Croft__VmmExit *record;
	struct jailed vmm;

	if (refused[_i].how.as_root && geteuid() != 0)
		return;
	jailed_init(&vmm);
	record_fd = -1;
	jailed_start(&vmm, &refused[_i].how);
	ck_assert_int_eq(wait_end(&vmm), 18);
	record_fd = open(vmm.exit_path, O_RDONLY | O_CLOEXEC);
	record = read_record();
	ck_assert_ptr_nonnull(record);
	failure = record->failure;
	ck_assert_ptr_nonnull(failure);
	ck_assert_str_eq(failure->code, refused[_i].code);
	if (refused[_i].field) {
		ck_assert_uint_ge(failure->n_fields, 1);
		ck_assert_str_eq(failure->fields[0]->key, refused[_i].field);
		ck_assert_str_eq(failure->fields[0]->value, refused[_i].value);
	}
	croft__vmm_exit__free_unpacked(record, NULL);
	(void) fd_close(record_fd);
	jailed_deinit(&vmm);
}
END_TEST

/* ---- ids and paths ---- */

START_TEST(ids_are_letters_digits_and_hyphens)
{
	char long_id[66];
	static const char *const bad[] = { "", "../x", "a/b", ".", "a b", "a\n", "a_b", "\xc3\xa9" };
	struct err err = ERR_NULL;

	memset(long_id, 'a', 65);
	long_id[65] = '\0';
	ck_assert_int_lt(jail_check_id(long_id, &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_ID);
	long_id[64] = '\0';
	ck_assert_int_eq(jail_check_id(long_id, NULL), 0);
	ck_assert_int_eq(jail_check_id("a-Z0", NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		err = (struct err) ERR_NULL;
		ck_assert_int_lt(jail_check_id(bad[i], &err), 0);
		ck_assert_int_eq(err.code, FAIL_INVALID_ID);
	}
}
END_TEST

static void expect_unsafe(const char *path, bool is_unsafe)
{
	struct err err = ERR_NULL;
	int r = jail_check_run(path, geteuid(), &err);

	ck_assert_msg((r < 0) == is_unsafe, "%s: %s", path, err.msg);
	ck_assert_int_eq(err.code, is_unsafe ? FAIL_JAIL_UNSAFE_PATH : FAIL_NONE);
}

START_TEST(run_directories_that_others_could_swap_are_refused)
{
	char dir[64] = "/tmp/test-jail-XXXXXX", path[256], inner[256];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void) snprintf(path, sizeof(path), "%s/run", dir);
	ck_assert_int_eq(mkdir(path, 0750), 0);
	expect_unsafe(path, false);
	ck_assert_int_eq(chmod(path, 0777), 0);
	expect_unsafe(path, true);
	ck_assert_int_eq(chmod(path, 01777), 0);
	expect_unsafe(path, true);
	ck_assert_int_eq(chmod(path, 0750), 0);
	ck_assert_int_eq(chmod(dir, 0777), 0); /* its parent */
	expect_unsafe(path, true);
	ck_assert_int_eq(chmod(dir, 0770), 0);
	expect_unsafe(path, true);
	ck_assert_int_eq(chmod(dir, 01770), 0);
	expect_unsafe(path, false);
	ck_assert_int_eq(chmod(dir, 01777), 0); /* as /tmp itself is */
	expect_unsafe(path, false);
	(void) snprintf(inner, sizeof(inner), "%s/link", dir);
	ck_assert_int_eq(symlink(path, inner), 0);
	expect_unsafe(inner, true);
	(void) snprintf(inner, sizeof(inner), "%s/link/below", dir);
	ck_assert_int_eq(mkdir(inner, 0700), 0);
	expect_unsafe(inner, true);
	(void) snprintf(inner, sizeof(inner), "%s/run/../run", dir);
	expect_unsafe(inner, true);
	(void) snprintf(inner, sizeof(inner), "%s/run/..", dir);
	expect_unsafe(inner, true);
	(void) snprintf(inner, sizeof(inner), "%s/file", dir);
	ck_assert_int_eq(fd_close(open(inner, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), -1);
	expect_unsafe(inner, true);
	expect_unsafe("", true);
	expect_unsafe("run", true);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(path, 4711, 4711), 0);
		expect_unsafe(path, true); /* another's */
	}
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

/* The file is the VMM's until it ends, and was opened by root: what an entry may say is decided when it is opened. */
START_TEST(pagemap_tells_no_physical_address)
{
	const uint64_t address_bits = (UINT64_C(1) << 55) - 1, present = UINT64_C(1) << 63;
	struct jail_config config = { .mode = JAIL_OFF, .cgroup_fd = -1 };
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct before[2], after[2];
	volatile uint8_t here = 1;
	struct err err = ERR_NULL;
	struct jail jail;
	uint64_t entry;

	ck_assert_int_eq((int) syscall(SYS_capget, &header, before), 0);
	ck_assert_int_eq(jail_enter(&jail, &config, &err), 0);
	ck_assert_int_ge(jail.pagemap_fd, 0);
	ck_assert_int_eq((int) syscall(SYS_capget, &header, after), 0);
	ck_assert_mem_eq(before, after, sizeof(before)); /* the steps that follow need it */
	ck_assert_int_eq(fd_pread_all(jail.pagemap_fd, &entry, sizeof(entry),
				 (off_t) ((uintptr_t) &here / 4096 * sizeof(entry))), 0);
	ck_assert(entry & present);
	ck_assert_uint_eq(entry & address_bits, 0);
	(void) fd_close(jail.pagemap_fd);
}
END_TEST

START_TEST(a_report_names_steps_and_errnos)
{
	struct jail_report report = { .applied = 1u << JAIL_DESCRIPTORS | 1u << JAIL_FILTERS };
	char text[JAIL_TEXT_MAX];

	jail_report_format(&report, text);
	ck_assert_str_eq(text, "descriptors filters");
	report.missing = 1u << JAIL_NAMESPACES | 1u << JAIL_ROOT;
	report.err_no[JAIL_NAMESPACES] = ENOSPC;
	report.err_no[JAIL_ROOT] = EPERM;
	jail_report_format(&report, text);
	ck_assert_str_eq(text, "descriptors filters; not applied: namespaces (ENOSPC), root (EPERM)");
	report.applied = report.missing = (1u << JAIL_STEP_MAX_) - 1; /* the longest there can be */
	for (int step = 0; step < JAIL_STEP_MAX_; step++)
		report.err_no[step] = ENOTSUP;
	jail_report_format(&report, text);
	ck_assert_uint_lt(strlen(text), sizeof(text));
}
END_TEST

START_TEST(what_ran_out_is_a_host_limit_with_its_resource)
{
	static const struct {
		enum fail_code code;
		int err_no;
		const char *resource;
	} rows[] = { { FAIL_VMM_START_FAILED, EMFILE, "descriptors (RLIMIT_NOFILE)" },
		{ FAIL_VMM_START_FAILED, ENFILE, "descriptors (fs.file-max)" },
		{ FAIL_HOST_LIMIT, ENOMEM, "memory" }, { FAIL_HOST_LIMIT, EAGAIN, "threads (RLIMIT_NPROC, pids.max)" },
		{ FAIL_VMM_START_FAILED, EINVAL, NULL }, { FAIL_DISK_INVALID, ENOMEM, NULL } };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err err = ERR_NULL;

		(void) err_set(&err, rows[i].code, rows[i].err_no, "a step");
		host_limit_refine(&err);
		ck_assert_pstr_eq(err_field(&err, "resource"), rows[i].resource);
		ck_assert_int_eq(err.code, rows[i].resource ? FAIL_HOST_LIMIT : rows[i].code);
		ck_assert_str_eq(err.msg, "a step");
	}
}
END_TEST

/* ---- the lease ---- */

START_TEST(a_lease_ends_at_its_deadline_unless_renewed_before)
{
	const int64_t begin = INT64_C(1) << 50; /* 35 years of uptime */
	struct lease lease = LEASE_NULL;

	ck_assert(!lease_is_expired(&lease, begin)); /* none */
	ck_assert(!lease_renew(&lease, 1000, begin));
	ck_assert_uint_eq(lease_left_ms(&lease, begin), 0);
	lease_begin(&lease, 1000, begin);
	ck_assert(!lease_is_expired(&lease, begin + 999999));
	ck_assert_uint_eq(lease_left_ms(&lease, begin + 999999), 1);
	ck_assert(lease_is_expired(&lease, begin + 1000000));
	ck_assert_uint_eq(lease_left_ms(&lease, begin + 1000000), 0);
	ck_assert(!lease_renew(&lease, 1000, begin + 1000000)); /* the other life may have begun */
	ck_assert(lease_is_expired(&lease, begin + 1000001));
	lease_begin(&lease, 1000, begin);
	ck_assert(lease_renew(&lease, 0, begin + 900000)); /* as long as before */
	ck_assert_uint_eq(lease_left_ms(&lease, begin + 900000), 1000);
	ck_assert(lease_renew(&lease, 5000, begin + 1000000));
	ck_assert(lease_renew(&lease, 10, begin + 1000000)); /* shorter */
	ck_assert(lease_is_expired(&lease, begin + 1010000));
	/* a host that slept through it: CLOCK_BOOTTIME went on */
	lease_begin(&lease, 1000, begin);
	ck_assert(lease_is_expired(&lease, begin + INT64_C(86400) * 1000000));
	/* to a time that is named: later only, and not once it is over */
	lease_begin(&lease, 1000, begin);
	ck_assert(lease_extend(&lease, begin + 500000, begin + 1));
	ck_assert_uint_eq(lease_left_ms(&lease, begin), 1000);
	ck_assert(lease_extend(&lease, begin + 3000000, begin + 1));
	ck_assert_uint_eq(lease_left_ms(&lease, begin), 3000);
	ck_assert(!lease_extend(&lease, begin + 9000000, begin + 3000000));
	ck_assert(lease_is_expired(&lease, begin + 3000000));
	lease_begin(&lease, 1000, begin);
	ck_assert(!lease_extend(&lease, INT64_MAX - 1, begin));
	lease_begin(&lease, 0, begin);
	ck_assert(!lease_extend(&lease, begin + 1, begin));
	lease_begin(&lease, LEASE_MS_MAX, begin);
	ck_assert_uint_eq(lease_left_ms(&lease, begin), LEASE_MS_MAX);
}
END_TEST

static void set_up(void)
{
	record_fd = memfd_create("record", MFD_CLOEXEC);
	ck_assert_int_ge(record_fd, 0);
}

static void tear_down(void)
{
	(void) fd_close(record_fd);
}

int main(void)
{
	Suite *suite = suite_create("vmm-jail");
	TCase *filters = tcase_create("filters"), *jail = tcase_create("jail");

	tcase_add_checked_fixture(filters, set_up, tear_down);
	tcase_set_timeout(filters, 300);
	tcase_set_timeout(jail, 300);
	if (!CROFT_SANITIZED) { /* a sanitizer's run-time does what the filters forbid */
		tcase_add_test(filters, nothing_opens_executes_listens_or_looks_at_another_process);
		tcase_add_loop_test(filters, whatever_is_not_in_the_table_ends_the_process_with_its_number, 0, THREAD_MAX_);
		tcase_add_loop_test(filters, allowed_calls_are_allowed_for_their_arguments_only, 0, ARRAY_LEN(near_misses));
		tcase_add_loop_test(filters, there_is_no_way_around_the_handler, 0, 3 * THREAD_MAX_);
		tcase_add_loop_test(filters, abort_assertions_memory_and_the_log_pass_the_filters, 0,
			(int) ARRAY_LEN(bad_days) * THREAD_MAX_);
		tcase_add_loop_test(filters, vcpus_and_the_loop_may_wait_for_a_condition, 0, 2);
	}
	tcase_add_loop_test(jail, every_step_is_applied_and_seen_from_outside, 0, 2);
	tcase_add_test(jail, a_host_without_user_namespaces_is_told_by_step_and_errno);
	tcase_add_loop_test(jail, a_start_that_cannot_be_confined_is_refused, 0, ARRAY_LEN(refused));
	tcase_add_test(jail, ids_are_letters_digits_and_hyphens);
	tcase_add_test(jail, run_directories_that_others_could_swap_are_refused);
	tcase_add_test(jail, pagemap_tells_no_physical_address);
	tcase_add_test(jail, a_report_names_steps_and_errnos);
	tcase_add_test(jail, what_ran_out_is_a_host_limit_with_its_resource);
	tcase_add_test(jail, a_lease_ends_at_its_deadline_unless_renewed_before);
	suite_add_tcase(suite, filters);
	suite_add_tcase(suite, jail);
	return suite_run(suite);
}
