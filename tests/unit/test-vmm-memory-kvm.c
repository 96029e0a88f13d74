/* SPDX-License-Identifier: Apache-2.0
 *
 * Guest memory from inside: a guest that writes a pattern over it, on both sides of the 3 GiB gap, and reads it back, and
 * what the host backs it with; the control group that it is charged to, which comes as a descriptor. Exits 77 where there is
 * no /dev/kvm. Cases R119 (CROFT_FULL=1: every page of it), R133 (a cgroup with little memory).
 */
#include "lib/suite.h"
#include "lib/vmm-process.h"

#define GIB UINT64_C(0x40000000)
#define PAGE UINT64_C(4096)
#define HUGE_PAGE (UINT64_C(2) << 20)
#define FIRST UINT64_C(0x2100000) /* where the pattern begins: behind the guest's code and page tables */
#define LONG_MSEC (20 * 60 * 1000)
#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* ---- the guest ---- */

/* Maps 66 GiB one to one, then twice goes over [FIRST, low_end) and [4 GiB, high_end) from the end, a step at a time, always
 * with the first and the last page of each: writes the address into a page's first word, inverted, and into its last; compares.
 * Between the two it spoils one word where it was told to. Behind each end nothing answers. Writes the boot marker and
 * halts when all was well; else it has no IDT to take its invalid instruction. */
__asm__(".pushsection .rodata\n"
	"memory_guest:\n"
	"	jmp 1f\n"
	"	.balign 8\n"
	"memory_guest_parameters:\n"
	"	.quad 0, 0, 0, 0\n" /* step, low_end, high_end, spoil */
	"1:	lea memory_guest_parameters(%rip), %rbp\n"
	"	cld\n"
	"	mov $0x2000000, %edi\n" /* PML4, PDPT, 66 page directories */
	"	xor %eax, %eax\n"
	"	mov $1024, %ecx\n"
	"	rep stosq\n"
	"	movq $0x2001003, 0x2000000\n"
	"	mov $0x2001000, %ebx\n"
	"	mov $0x2002003, %eax\n"
	"	mov $66, %ecx\n"
	"2:	mov %rax, (%rbx)\n"
	"	add $8, %rbx\n"
	"	add $4096, %rax\n"
	"	dec %ecx\n"
	"	jnz 2b\n"
	"	mov $0x83, %eax\n" /* present, writable, 2 MiB */
	"	mov $66 * 512, %ecx\n"
	"3:	mov %rax, (%rdi)\n"
	"	add $8, %rdi\n"
	"	add $0x200000, %rax\n"
	"	dec %ecx\n"
	"	jnz 3b\n"
	"	mov $0x2000000, %eax\n"
	"	mov %rax, %cr3\n"
	"	xor %r8d, %r8d\n" /* 0: writes, 1: compares */
	"pass:	mov $0x2100000, %ebx\n"
	"	mov 8(%rbp), %rsi\n"
	"	xor %r9d, %r9d\n" /* 0: below the gap, 1: above */
	"range:	cmp %rsi, %rbx\n"
	"	jae 7f\n"
	"	lea -4096(%rsi), %rdi\n"
	"4:	mov %rdi, %rax\n"
	"	not %rax\n"
	"	test %r8d, %r8d\n"
	"	jnz 5f\n"
	"	mov %rax, (%rdi)\n"
	"	mov %rdi, 4088(%rdi)\n"
	"5:	cmp %rax, (%rdi)\n"
	"	jne bad\n"
	"	cmp %rdi, 4088(%rdi)\n"
	"	jne bad\n"
	"	cmp %rbx, %rdi\n"
	"	je 7f\n"
	"	sub (%rbp), %rdi\n"
	"	cmp %rbx, %rdi\n"
	"	cmovb %rbx, %rdi\n"
	"	jmp 4b\n"
	"7:	cmpl $-1, (%rsi)\n" /* the bus answers, not memory */
	"	jne bad\n"
	"	test %r9d, %r9d\n"
	"	jnz 8f\n"
	"	inc %r9d\n"
	"	mov $0x100000000, %rbx\n"
	"	mov 16(%rbp), %rsi\n"
	"	jmp range\n"
	"8:	test %r8d, %r8d\n"
	"	jnz good\n"
	"	inc %r8d\n"
	"	mov 24(%rbp), %rdi\n"
	"	test %rdi, %rdi\n"
	"	jz pass\n"
	"	notq (%rdi)\n"
	"	jmp pass\n"
	"bad:	ud2\n"
	"good:	mov $0x680, %edx\n"
	"	mov $0x55, %al\n"
	"	out %al, %dx\n"
	"9:	hlt\n"
	"	jmp 9b\n"
	"memory_guest_end:\n"
	".popsection\n");
extern const uint8_t memory_guest[], memory_guest_parameters[], memory_guest_end[];

static void start_memory_guest(uint64_t mib, uint64_t step, uint64_t spoil)
{
	uint64_t size = mib << 20, low = MIN(size, 3 * GIB);
	uint64_t parameters[] = { step, low, 4 * GIB + size - low, spoil };
	size_t n = (size_t) (memory_guest_end - memory_guest);
	uint8_t code[512];
	struct start start;

	ck_assert_uint_le(n, sizeof(code));
	memcpy(code, memory_guest, n);
	memcpy(code + (memory_guest_parameters - memory_guest), parameters, sizeof(parameters));
	start_init(&start, kernel_of(code, n));
	start.message.memory_mib = mib;
	ck_assert_str_eq(start_send(&start), "");
}

/* Until the guest has compared everything. */
static void wait_compared(void)
{
	struct pollfd wait = { .fd = control, .events = POLLIN };

	while (!(events & 1u << CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE)) {
		Croft__VmmMessage *message;

		ck_assert_int_eq(poll(&wait, 1, LONG_MSEC), 1);
		message = receive(control);
		ck_assert_msg(message, "the VMM ended first: %s", last_word());
		if (message->body_case == CROFT__VMM_MESSAGE__BODY_EVENT) {
			events |= 1u << message->event->kind;
			ck_assert_msg(message->event->kind != CROFT__VMM_EVENT_KIND__VMM_EVENT_EXITING,
				"the guest found another pattern: %s", last_word());
		}
		croft__vmm_message__free_unpacked(message, NULL);
	}
}

/* ---- what the host backs it with ---- */

/* The word in brackets of a file of alternatives; "" when there is no such file. Static. */
static const char *chosen(const char *path)
{
	static char word[32];
	char *text = NULL, *at, *end;

	*word = '\0';
	if (file_read(path, 4096, &text, NULL) == 0 && (at = strchr(text, '[')) && (end = strchr(at, ']')))
		(void) snprintf(word, sizeof(word), "%.*s", (int) (end - at - 1), at + 1);
	free(text);
	return word;
}

/* Whether the host's choice is now `word`; only root can make it so. */
static bool choose(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void) fd_write_all(fd, word, strlen(word));
	(void) fd_close(fd);
	return !strcmp(chosen(path), word);
}

static char shmem_before[32];

static void set_up_host(void)
{
	(void) snprintf(shmem_before, sizeof(shmem_before), "%s", chosen(SHMEM_ENABLED));
	set_up();
}

static void tear_down_host(void)
{
	tear_down();
	(void) choose(SHMEM_ENABLED, shmem_before);
}

/* MiB of guest memory that the host maps with huge pages. */
static unsigned long huge_mib(void)
{
	char path[64], *text = NULL, *line;
	unsigned long kib = 0;

	(void) snprintf(path, sizeof(path), "/proc/%d/smaps", (int) vmm_pid);
	ck_assert_int_eq(file_read(path, 4 << 20, &text, NULL), 0);
	for (const char *at = text; (at = strstr(at, "memfd:croft-guest")); at = line) {
		line = strstr(at, "ShmemPmdMapped:");
		ck_assert_ptr_nonnull(line);
		kib += strtoul(line + strlen("ShmemPmdMapped:"), NULL, 10);
	}
	free(text);
	return kib / 1024;
}

/* ---- tests ---- */

static uint64_t step_of_this_run(void)
{
	const char *full = getenv("CROFT_FULL");

	return full && *full == '1' ? PAGE : 16 * PAGE;
}

static const uint64_t sizes[] = { 64, 3071, 3072, 3073, 3200 };

START_TEST(memory_holds_what_was_written_on_both_sides_of_the_gap)
{
	start_memory_guest(sizes[_i], step_of_this_run(), 0);
	wait_compared();
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* Whether the host could hold all of it. */
static bool has_room(unsigned long gib)
{
	char *text = NULL, *at;
	bool has;

	ck_assert_int_eq(file_read("/proc/meminfo", 65536, &text, NULL), 0);
	at = strstr(text, "MemAvailable:");
	has = at && strtoul(at + strlen("MemAvailable:"), NULL, 10) >> 20 >= gib;
	free(text);
	return has;
}

/* A page of each 2 MiB, which is what a host with less can hold; it must not back them with huge pages. CROFT_FULL=1: each page
 * on a host that has them. */
START_TEST(sixty_four_gib)
{
	uint64_t step = step_of_this_run() == PAGE && has_room(66) ? PAGE : HUGE_PAGE;

	if (!choose(SHMEM_ENABLED, "never")) {
		(void) printf("not run: %s is not \"never\"\n", SHMEM_ENABLED);
		return;
	}
	(void) printf("# 64 GiB: a page of each %llu KiB\n", (unsigned long long) step / 1024);
	start_memory_guest(64 * 1024, step, 0);
	wait_compared();
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* The guest can fail: in the first and the last page of both ranges, and beside one that is looked at. */
static const struct {
	uint64_t spoil;
	bool fails;
} spoils[] = { { FIRST, true }, { 3 * GIB - PAGE, true }, { 4 * GIB, true }, { 4 * GIB + 64 * HUGE_PAGE - PAGE, true },
	{ 3 * GIB - 8, true }, { 3 * GIB - PAGE + 8, false } };

START_TEST(a_word_that_changed_is_seen)
{
	start_memory_guest(3200, HUGE_PAGE, spoils[_i].spoil);
	if (spoils[_i].fails) {
		expect_end(13, false);
		return;
	}
	wait_compared();
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* Host addresses are those of the guest modulo 2 MiB, and huge pages are asked for: where the host allows them for shmem, a
 * fault maps 512 pages. Measured by the kernel's own count of what it mapped. */
START_TEST(huge_pages_where_the_host_allows_them)
{
	const char *words[] = { "never", "advise" };
	unsigned long huge;
	Croft__VmmMessage *message;
	const Croft__VmmKvmStats *kvm;

	if (geteuid() != 0 || !choose(SHMEM_ENABLED, words[_i])) {
		(void) printf("not run: only root can set %s and read smaps\n", SHMEM_ENABLED);
		return;
	}
	start_memory_guest(256, PAGE, 0);
	wait_compared();
	message = ask_stats();
	kvm = message->response->stats->kvm;
	ck_assert_ptr_nonnull(kvm);
	huge = huge_mib();
	(void) printf("# shmem_enabled=%s: %lu of 256 MiB in huge pages; %llu faults, %llu pages of 4 KiB, %llu of 2 MiB\n", words[_i],
		huge, (unsigned long long) kvm->pf_fixed, (unsigned long long) kvm->pages_4k,
		(unsigned long long) kvm->pages_2m);
	if (_i == 0) {
		ck_assert_uint_eq(huge, 0);
		ck_assert_uint_eq(kvm->pages_2m, 0);
		ck_assert_uint_ge(kvm->pf_fixed, (256 * 1024 * 1024 - FIRST) / PAGE);
	} else {
		ck_assert_uint_ge(huge, 200); /* a host may be short of them */
		ck_assert_uint_ge(kvm->pages_2m, 100);
		ck_assert_uint_le(kvm->pf_fixed, 8192);
	}
	croft__vmm_message__free_unpacked(message, NULL);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* ---- control groups ---- */

#define CGROUP_ROOT "/sys/fs/cgroup"
static char cgroup[64]; /* "": none can be made here */
static int cgroup_fd = -1;

static void cgroup_write(const char *file, const char *text)
{
	int fd = openat(cgroup_fd, file, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
	(void) fd_close(fd);
}

/* The number behind `key` in a file of the group. */
static unsigned long cgroup_read(const char *file, const char *key)
{
	char path[128], *text = NULL, *at;
	unsigned long value;

	(void) snprintf(path, sizeof(path), "%s/%s", cgroup, file);
	ck_assert_int_eq(file_read(path, 4096, &text, NULL), 0);
	at = strstr(text, key);
	ck_assert_ptr_nonnull(at);
	value = strtoul(at + strlen(key), NULL, 10);
	free(text);
	return value;
}

/* A VMM that is in no group of ours, and a group. */
static void set_up_cgroup(void)
{
	(void) snprintf(cgroup, sizeof(cgroup), "%s/test-vmm-XXXXXX", CGROUP_ROOT);
	if (geteuid() != 0 || access(CGROUP_ROOT "/cgroup.subtree_control", W_OK) < 0 || !mkdtemp(cgroup)) {
		(void) printf("not run: no cgroup can be made in %s\n", CGROUP_ROOT);
		*cgroup = '\0';
	} else {
		cgroup_fd = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ck_assert_int_ge(cgroup_fd, 0);
		cgroup_write("../cgroup.subtree_control", "+memory");
	}
	set_up();
}

static void tear_down_cgroup(void)
{
	tear_down();
	cgroup_fd = fd_close(cgroup_fd);
	if (*cgroup)
		ck_assert_int_eq(rmdir(cgroup), 0);
}

/* It moves itself there, before the guest's memory is touched. */
START_TEST(a_cgroup_comes_as_a_descriptor)
{
	char path[64], expected[96], *text = NULL;

	if (!*cgroup)
		return;
	tear_down();
	spawn_cgroup = cgroup_fd;
	set_up();
	start_memory_guest(256, PAGE, 0);
	wait_compared();
	(void) snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) vmm_pid);
	ck_assert_int_eq(file_read(path, 4096, &text, NULL), 0);
	(void) snprintf(expected, sizeof(expected), "0::%s\n", cgroup + strlen(CGROUP_ROOT));
	ck_assert_msg(strstr(text, expected), "%s", text);
	free(text);
	ck_assert_uint_ge(cgroup_read("memory.current", ""), 200ul << 20);
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

/* One that is none is refused: a VM that is charged to nobody does not start. */
START_TEST(a_descriptor_that_is_no_cgroup_is_refused)
{
	Croft__VmmExit *record;

	if (geteuid() != 0)
		return;
	tear_down();
	spawn_cgroup = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	set_up();
	record = expect_exit(18);
	ck_assert_ptr_nonnull(record->failure);
	ck_assert_str_eq(record->failure->code, "JAIL_FAILED");
	ck_assert_ptr_nonnull(strstr(record->failure->message, "cgroup"));
	croft__vmm_exit__free_unpacked(record, NULL);
	(void) fd_close(spawn_cgroup);
}
END_TEST

/* R133: the kernel ends the VMM whose group has too little, and no other. */
START_TEST(a_cgroup_with_little_memory_ends_one_vm_alone)
{
	char other_directory[sizeof(directory)], other_exit_path[sizeof(exit_path)];
	pid_t other = vmm_pid;
	int other_control = control, status;
	unsigned int other_events;

	if (!*cgroup)
		return;
	start_memory_guest(64, PAGE, 0);
	wait_compared();
	(void) strcpy(other_directory, directory);
	(void) strcpy(other_exit_path, exit_path);
	other_events = events;
	cgroup_write("memory.max", "67108864");
	spawn_cgroup = cgroup_fd;
	set_up();
	start_memory_guest(256, PAGE, 0);
	ck_assert_int_eq(waitpid(vmm_pid, &status, 0), vmm_pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "wait status 0x%x: %s", (unsigned int) status,
		last_word());
	ck_assert_uint_ge(cgroup_read("memory.events", "oom_kill "), 1);
	(void) fd_close(control);
	ck_assert_int_eq(dir_remove(directory), 0);
	/* the other answers, and ends as it is told */
	control = other_control;
	vmm_pid = other;
	events = other_events;
	(void) strcpy(directory, other_directory);
	(void) strcpy(exit_path, other_exit_path);
	next_id = 2;
	stop(true, 0);
	expect_end(16, true);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-memory-kvm");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up_host, tear_down_host);
	tcase_set_timeout(tcase, 2400);
	tcase_add_loop_test(tcase, memory_holds_what_was_written_on_both_sides_of_the_gap, 0, ARRAY_LEN(sizes));
	tcase_add_test(tcase, sixty_four_gib);
	tcase_add_loop_test(tcase, a_word_that_changed_is_seen, 0, ARRAY_LEN(spoils));
	tcase_add_loop_test(tcase, huge_pages_where_the_host_allows_them, 0, 2);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("cgroup");
	tcase_add_checked_fixture(tcase, set_up_cgroup, tear_down_cgroup);
	tcase_set_timeout(tcase, 600);
	tcase_add_test(tcase, a_cgroup_comes_as_a_descriptor);
	tcase_add_test(tcase, a_descriptor_that_is_no_cgroup_is_refused);
	tcase_add_test(tcase, a_cgroup_with_little_memory_ends_one_vm_alone);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run_kvm(make_suite());
}
