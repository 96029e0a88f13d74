/* SPDX-License-Identifier: Apache-2.0
 *
 * What croft-vmm keeps from its guest and itself, with /dev/kvm: the CPU policy as a guest finds it, threads behind
 * their filters, memory that no dump holds, the lease, limits of the host, signals while it boots, KVM's counters.
 * Exits 77 where there is no /dev/kvm. Cases R122 R127 R133.
 */
#include <dirent.h>

#include "base/clock.h"
#include "lib/suite.h"
#include "lib/vmm-process.h"
#include "thread.h"

#define BOOTS 10 /* of the signal storm; CROFT_FULL=1: 1000 */

/* ---- the CPU that a guest finds ---- */

#define LE32(n) (uint8_t) (n), (uint8_t) ((n) >> 8), (uint8_t) ((n) >> 16), (uint8_t) ((n) >> 24)
enum reg { EAX, EBX, ECX, EDX };

/* Powers off when the bits of a leaf are as expected; else it has no IDT to take its invalid instruction. */
static int cpuid_guest(uint32_t leaf, uint32_t subleaf, enum reg reg, uint32_t bits, bool is_set)
{
	static const uint8_t modrm[] = { [EAX] = 0xc0, [EBX] = 0xc3, [ECX] = 0xc1, [EDX] = 0xc2 };
	const uint8_t code[] = { 0xb8, LE32(leaf), 0xb9, LE32(subleaf), 0x0f, 0xa2, 0xf7, modrm[reg], LE32(bits),
		is_set ? 0x75 : 0x74, 2, 0x0f, 0x0b, OUT(0x600, 0x34), HALT };

	return KERNEL(code);
}

#define B(n) (UINT32_C(1) << (n))
static const struct {
	const char *what;
	uint32_t leaf, subleaf;
	enum reg reg;
	uint32_t bits;
	bool is_set;
} cpuid_rows[] = {
	{ "VMX", 1, 0, ECX, B(5), false },
	{ "SVM, SKINIT", 0x80000001, 0, ECX, B(2) | B(12), false },
	{ "SVM's leaf", 0x8000000a, 0, EDX, UINT32_MAX, false },
	{ "MONITOR", 1, 0, ECX, B(3), false },
	{ "WAITPKG", 7, 0, ECX, B(5), false },
	{ "PMU of Intel", 0xa, 0, EAX, UINT32_MAX, false },
	{ "PMU of AMD, IBS", 0x80000001, 0, ECX, B(10) | B(23) | B(24) | B(28), false },
	{ "PMU of AMD, version 2", 0x80000022, 0, EAX, UINT32_MAX, false },
	{ "PDCM, DTES64", 1, 0, ECX, B(2) | B(15), false },
	{ "SGX, PT", 7, 0, EBX, B(2) | B(25), false },
	{ "AMX", 7, 0, EDX, B(22) | B(24) | B(25), false },
	{ "AMX's state", 0xd, 0, EAX, B(17) | B(18), false },
	{ "asynchronous page faults", 0x40000001, 0, EAX, B(4) | B(10) | B(14), false },
	{ "hypervisor", 1, 0, ECX, B(31), true },
	{ "x2APIC", 1, 0, ECX, B(21), true },
	{ "TSC deadline timer", 1, 0, ECX, B(24), true },
	{ "kvmclock", 0x40000001, 0, EAX, B(3), true },
	{ "a stable kvmclock", 0x40000001, 0, EAX, B(24), true },
};

START_TEST(cpuid_hides_what_guests_do_not_get)
{
	start_guest(cpuid_guest(cpuid_rows[_i].leaf, cpuid_rows[_i].subleaf, cpuid_rows[_i].reg, cpuid_rows[_i].bits,
		cpuid_rows[_i].is_set));
	expect_end(10, false);
}
END_TEST

#define RDMSR(n) { 0xb9, LE32(n), 0x0f, 0x32, OUT(0x600, 0x34), HALT }
#define WRMSR(n) { 0xb9, LE32(n), 0x31, 0xc0, 0x31, 0xd2, 0x0f, 0x30, OUT(0x600, 0x34), HALT }
static const struct {
	const char *what;
	uint8_t code[32];
	bool faults;
} instruction_rows[] = {
	{ "IA32_MISC_ENABLE", RDMSR(0x1a0), false },
	{ "TSC", RDMSR(0x10), false },
	{ "PerfEvtSel0 of AMD", RDMSR(0xc0010000), true },
	{ "PerfCtr0 of AMD", WRMSR(0xc0010004), true },
	{ "PerfCtr0 of family 15h", RDMSR(0xc0010201), true },
	{ "IA32_PERFEVTSEL0", WRMSR(0x186), true },
	{ "IA32_PMC0", RDMSR(0xc1), true },
	{ "IA32_PERF_GLOBAL_CTRL", WRMSR(0x38f), true },
	{ "VM_HSAVE_PA", WRMSR(0xc0010117), true },
	{ "IA32_VMX_BASIC", RDMSR(0x480), true },
	{ "IA32_SGXLEPUBKEYHASH0", RDMSR(0x8c), true },
	{ "IA32_RTIT_CTL", WRMSR(0x570), true },
	{ "IA32_XFD", RDMSR(0x1c4), true },
	{ "asynchronous page faults", WRMSR(0x4b564d02), true },
	/* KVM of 6.1 lets it pass and gives 0 */
	{ "rdpmc", { 0x31, 0xc9, 0x0f, 0x33, 0x85, 0xc0, 0x74, 2, 0x0f, 0x0b, OUT(0x600, 0x34), HALT }, false },
	{ "vmrun", { 0x31, 0xc0, 0x0f, 0x01, 0xd8, OUT(0x600, 0x34), HALT }, true },
	{ "EFER.SVME", { 0xb9, LE32(0xc0000080), 0x0f, 0x32, 0x0d, LE32(B(12)), 0x0f, 0x30, OUT(0x600, 0x34), HALT }, true },
};

START_TEST(instructions_and_msrs_that_guests_do_not_get_fault)
{
	start_guest(KERNEL(instruction_rows[_i].code));
	expect_end(instruction_rows[_i].faults ? 13 : 10, false);
}
END_TEST

/* ---- the process ---- */

static const uint8_t guest_spin[] = { OUT(0x680, 0x55), 0xeb, 0xfe };
static const uint8_t guest_halt[] = { OUT(0x680, 0x55), HALT };
static const uint8_t guest_marker_poweroff[] = { OUT(0x680, 0x55), OUT(0x600, 0x34), HALT };

static int disk(void)
{
	int fd = memfd_create("disk", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
	return fd;
}

/* A value of a /proc file, 0 when it is not there. */
static unsigned long value_in(const char *path, const char *key)
{
	char *text = NULL;
	const char *at;
	unsigned long value;

	ck_assert_int_eq(file_read(path, 1 << 20, &text, NULL), 0);
	at = strstr(text, key);
	value = at ? strtoul(at + strlen(key), NULL, 10) : 0;
	free(text);
	return value;
}

START_TEST(every_thread_is_behind_two_filters)
{
	Croft__VmmDisk disk_message, *disks[] = { &disk_message };
	int n = 0, n_vcpus = 0, n_disks = 0;
	struct start start;
	char path[320];
	DIR *dir;

	croft__vmm_disk__init(&disk_message);
	start_init(&start, KERNEL(guest_spin));
	start.message.vcpus = 2;
	start.message.n_disks = 1;
	start.message.disks = disks;
	add_fd(&start, disk());
	ck_assert_str_eq(start_send(&start), "");
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	(void) snprintf(path, sizeof(path), "/proc/%d/task", (int) vmm_pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		char *name = NULL;

		if (*entry->d_name == '.')
			continue;
		(void) snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int) vmm_pid, entry->d_name);
		ck_assert_uint_eq(value_in(path, "\nSeccomp:"), 2);
		/* a thread that has not run yet has the first one only */
		for (int wait = 0; wait < 300 && value_in(path, "\nSeccomp_filters:") < 2; wait++)
			(void) usleep(100000);
		ck_assert_uint_eq(value_in(path, "\nSeccomp_filters:"), 2);
		(void) snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int) vmm_pid, entry->d_name);
		ck_assert_int_eq(file_read(path, 64, &name, NULL), 0);
		n++;
		n_vcpus += !strncmp(name, "vcpu ", 5);
		n_disks += !strcmp(name, "disk\n");
		free(name);
	}
	(void) closedir(dir);
	ck_assert_int_eq(n, 4);
	ck_assert_int_eq(n_vcpus, 2);
	ck_assert_int_eq(n_disks, 1);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* A thread that was taken over: its next system call becomes another one. */
static const struct {
	const char *thread; /* its name */
	const char *nr;
	uint32_t kind;      /* in the record */
} taken_over[] = { { "croft-vmm", "257", 2 }, { "vcpu 0", "257", 3 }, { "disk", "257", 4 }, { "vcpu 0", "59", 3 } };

START_TEST(a_forbidden_call_of_any_thread_ends_the_vm_with_its_number)
{
	Croft__VmmDisk disk_message, *disks[] = { &disk_message };
	Croft__VmmExit *record;
	struct start start;
	char trace[PATH_MAX];

	tear_down();
	(void) snprintf(trace, sizeof(trace), "%s", beside("seccomp-trace"));
	spawn_prefix[0] = trace;
	spawn_prefix[1] = "--force";
	spawn_prefix[2] = taken_over[_i].nr;
	spawn_prefix[3] = "--thread";
	spawn_prefix[4] = taken_over[_i].thread;
	spawn_prefix[5] = "--";
	set_up();
	croft__vmm_disk__init(&disk_message);
	start_init(&start, KERNEL(guest_spin));
	start.message.n_disks = 1;
	start.message.disks = disks;
	add_fd(&start, disk());
	ck_assert_str_eq(start_send(&start), "");
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	(void) usleep(300000); /* the disk's thread may not have begun */
	ck_assert_int_eq(kill(vmm_pid, SIGUSR1), 0);
	record = expect_exit(21);
	ck_assert_uint_eq(record->syscall, (uint32_t) strtoul(taken_over[_i].nr, NULL, 10));
	ck_assert_uint_eq(record->thread, taken_over[_i].kind);
	croft__vmm_exit__free_unpacked(record, NULL);
}
END_TEST

/* smaps is root's: the process may not be dumped, which test-vmm-kvm sees. */
START_TEST(guest_memory_is_in_no_dump)
{
	char path[64], *text = NULL, *at, *flags;
	int n = 0;

	start_guest(KERNEL(guest_spin));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	(void) snprintf(path, sizeof(path), "/proc/%d/smaps", (int) vmm_pid);
	if (geteuid() == 0) {
		ck_assert_int_eq(file_read(path, 4 << 20, &text, NULL), 0);
		for (at = text; (at = strstr(at, "memfd:croft-guest")); at = flags) {
			flags = strstr(at, "VmFlags:");
			ck_assert_ptr_nonnull(flags);
			*strchr(flags, '\n') = ' ';
			ck_assert_ptr_nonnull(strstr(flags, " dd "));
			n++;
		}
		free(text);
		ck_assert_int_ge(n, 1);
	} else {
		ck_assert_int_lt(file_read(path, 4 << 20, &text, NULL), 0);
	}
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* ---- the lease ---- */

static const char *renew_as(uint64_t lease_ms, int64_t until_usec, bool end)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmRenew message = CROFT__VMM_RENEW__INIT;
	Croft__VmmMessage *got;
	static char code[64];

	message.lease_ms = lease_ms;
	message.until_us = (uint64_t) until_usec;
	message.end = end;
	request.body_case = CROFT__VMM_REQUEST__BODY_RENEW;
	request.renew = &message;
	send_request(control, &request, NULL, 0);
	got = answer(control);
	ck_assert_ptr_nonnull(got);
	(void) snprintf(code, sizeof(code), "%s", got->response->failure ? got->response->failure->code : "");
	croft__vmm_message__free_unpacked(got, NULL);
	return code;
}

static const char *renew(uint64_t lease_ms)
{
	return renew_as(lease_ms, 0, false);
}

static void expect_lease_end(int64_t began, int64_t lease_usec)
{
	Croft__VmmExit *record = expect_exit(22);

	ck_assert_ptr_nonnull(record->failure);
	ck_assert_str_eq(record->failure->code, "LEASE_EXPIRED");
	ck_assert(record->reached_userspace);
	croft__vmm_exit__free_unpacked(record, NULL);
	ck_assert_int_ge(clock_boottime_usec() - began, lease_usec);
	ck_assert_int_le(clock_boottime_usec() - began, 3 * lease_usec + 10 * USEC_PER_SEC); /* it stops vCPUs, too */
}

START_TEST(a_vm_whose_lease_nobody_renews_ends_itself)
{
	int64_t began = clock_boottime_usec();
	struct start start;

	start_init(&start, KERNEL(guest_spin));
	start.message.lease_ms = 4000;
	ck_assert_str_eq(start_send(&start), "");
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	for (int i = 0; i < 3; i++) {
		began = clock_boottime_usec();
		ck_assert_str_eq(renew(0), "");
	}
	control = fd_close(control); /* its agent dies */
	expect_lease_end(began, 4 * USEC_PER_SEC);
}
END_TEST

/* However late the VMM reads of it. */
START_TEST(a_lease_ends_at_the_time_that_was_named)
{
	int64_t began = clock_boottime_usec(), until = began + 8 * USEC_PER_SEC;
	struct start start;

	start_init(&start, KERNEL(guest_spin));
	start.message.lease_ms = 600000;
	start.message.lease_until_us = (uint64_t) until;
	ck_assert_str_eq(start_send(&start), "");
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	ck_assert_str_eq(renew_as(0, until - USEC_PER_SEC, false), ""); /* an older word */
	ck_assert_str_eq(renew_as(0, -1, false), "VMM_CONTROL_INVALID");
	until += 2 * USEC_PER_SEC;
	ck_assert_str_eq(renew_as(0, until, false), "");
	expect_lease_end(began, until - began);
}
END_TEST

START_TEST(a_vm_without_a_lease_refuses_to_renew_and_lives)
{
	start_guest(KERNEL(guest_spin));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	ck_assert_str_eq(renew(1000), "VMM_CONTROL_INVALID");
	ck_assert_str_eq(renew(UINT64_MAX), "VMM_CONTROL_INVALID");
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

START_TEST(a_lease_that_was_ended_ends_nothing)
{
	struct start start;

	start_init(&start, KERNEL(guest_spin));
	start.message.lease_ms = 4000;
	ck_assert_str_eq(start_send(&start), "");
	ck_assert_str_eq(renew_as(0, 0, true), "");
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	(void) sleep(5);
	ck_assert_str_eq(renew(1000), "VMM_CONTROL_INVALID"); /* it lives, and has none */
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* ---- the host ---- */

/* R133: what ran out is named, and the VMM ends cleanly. */
START_TEST(too_few_descriptors_are_a_host_limit)
{
	Croft__VmmExit *record;
	struct start start;
	bool is_named = false;

	tear_down();
	spawn_descriptors = 64;
	set_up();
	start_init(&start, KERNEL(guest_spin));
	start.message.vcpus = 32;
	ck_assert_str_eq(start_send(&start), "HOST_LIMIT");
	record = expect_exit(18);
	for (size_t i = 0; i < record->failure->n_fields; i++)
		is_named = is_named || (!strcmp(record->failure->fields[i]->key, "resource") &&
			!strcmp(record->failure->fields[i]->value, "descriptors (RLIMIT_NOFILE)"));
	ck_assert(is_named);
	croft__vmm_exit__free_unpacked(record, NULL);
	spawn_descriptors = 0;
}
END_TEST

/* R122: signals, and stops, every 100 microseconds while it starts. */
static pid_t start_storm(pid_t target)
{
	const int numbers[] = { VCPU_SIGNAL, SIGHUP, SIGPIPE, SIGSTOP, SIGCONT };
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	for (unsigned int i = 0; kill(target, numbers[i % ARRAY_LEN(numbers)]) == 0; i++)
		(void) usleep(100);
	_exit(0);
}

/* It answers: its handlers are there. */
static void wait_up(void)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStatusRequest message = CROFT__VMM_STATUS_REQUEST__INIT;
	Croft__VmmMessage *got;

	request.body_case = CROFT__VMM_REQUEST__BODY_STATUS;
	request.status = &message;
	send_request(control, &request, NULL, 0);
	got = answer(control);
	ck_assert_ptr_nonnull(got);
	croft__vmm_message__free_unpacked(got, NULL);
}

START_TEST(signals_while_it_boots_change_nothing)
{
	const char *full = getenv("CROFT_FULL");

	for (int i = 0, n = full && *full == '1' ? 1000 : BOOTS; i < n; i++) {
		pid_t storm;

		wait_up();
		storm = start_storm(vmm_pid);
		ck_assert_int_gt(storm, 0);
		start_guest(KERNEL(guest_marker_poweroff));
		expect_end(10, true); /* reaps it: the storm meets nobody and ends */
		(void) kill(storm, SIGKILL);
		(void) waitpid(storm, NULL, 0);
		(void) fd_close(control);
		spawn();
	}
	stop(true, 0);
	expect_end(16, false);
}
END_TEST

/* R127 for the VMM; Debian's driver with the same ids is in tests/e2e/vmm-boot. */
START_TEST(every_class_of_cid_starts)
{
	static const uint32_t cids[] = { 3, 4, 0x7fffffff, UINT32_C(0x80000000), 0xfffffffe };
	Croft__VmmVsock vsock;
	char path[128];
	struct start start;

	(void) snprintf(path, sizeof(path), "%s/vsock", directory);
	start_init(&start, KERNEL(guest_marker_poweroff));
	croft__vmm_vsock__init(&vsock);
	vsock.guest_cid = cids[_i];
	vsock.path = path;
	start.message.vsock = &vsock;
	add_fd(&start, unix_listen(path, SOCK_STREAM, 0600, 8));
	ck_assert_str_eq(start_send(&start), "");
	expect_end(10, true);
}
END_TEST

START_TEST(kvm_counts)
{
	Croft__VmmMessage *got;
	const Croft__VmmKvmStats *kvm;

	start_guest(KERNEL(guest_halt));
	wait_event(CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE);
	got = ask_stats();
	kvm = got->response->stats->kvm;
	ck_assert_ptr_nonnull(kvm);
	ck_assert_uint_ge(kvm->io_exits, 1);
	ck_assert_uint_ge(kvm->exits, kvm->io_exits);
	ck_assert_uint_ge(kvm->pf_fixed, 1);
	ck_assert_uint_ge(kvm->pages_4k + kvm->pages_2m + kvm->pages_1g, 1);
	ck_assert_uint_lt(kvm->pf_fixed, 1000); /* a number, not a pointer */
	croft__vmm_message__free_unpacked(got, NULL);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-jail-kvm");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 2400);
	tcase_add_loop_test(tcase, cpuid_hides_what_guests_do_not_get, 0, ARRAY_LEN(cpuid_rows));
	tcase_add_loop_test(tcase, instructions_and_msrs_that_guests_do_not_get_fault, 0, ARRAY_LEN(instruction_rows));
	tcase_add_test(tcase, every_thread_is_behind_two_filters);
	tcase_add_loop_test(tcase, a_forbidden_call_of_any_thread_ends_the_vm_with_its_number, 0, ARRAY_LEN(taken_over));
	tcase_add_test(tcase, guest_memory_is_in_no_dump);
	tcase_add_test(tcase, a_vm_whose_lease_nobody_renews_ends_itself);
	tcase_add_test(tcase, a_lease_ends_at_the_time_that_was_named);
	tcase_add_test(tcase, a_vm_without_a_lease_refuses_to_renew_and_lives);
	tcase_add_test(tcase, a_lease_that_was_ended_ends_nothing);
	tcase_add_test(tcase, too_few_descriptors_are_a_host_limit);
	tcase_add_test(tcase, signals_while_it_boots_change_nothing);
	tcase_add_loop_test(tcase, every_class_of_cid_starts, 0, 5);
	tcase_add_test(tcase, kvm_counts);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run_kvm(make_suite());
}
