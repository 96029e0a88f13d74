/* SPDX-License-Identifier: Apache-2.0
 *
 * Build tool: compiles seccomp.def into BPF and writes it as C. croft-vmm itself does not link libseccomp.
 *
 *   seccomp-compile           what croft-vmm installs: a call outside of the table traps, and the handler of SIGSYS
 *                             ends the process; the trap's data is the kind of thread
 *   seccomp-compile --count   for tests/lib/seccomp-trace: an allowed call stops for a tracer, which gets the kind of
 *                             thread (4 bits) and the row (12 bits)
 *   seccomp-compile --list    the rows, for the same
 *
 * A call in a foreign ABI (x32, i386) kills the process at once in both.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "thread.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONDITIONS_MAX 3
#define REASON_MIN 3
#define INSTRUCTIONS_MAX 4096

enum { S = 1 << THREAD_START, L = 1 << THREAD_LOOP, V = 1 << THREAD_VCPU, D = 1 << THREAD_DISK };
enum seen { SEEN, HOST, ERROR, HOT };

struct row {
	unsigned int threads;
	const char *name;
	enum seen seen;
	const char *reason;
	unsigned int n;
	struct scmp_arg_cmp conditions[CONDITIONS_MAX];
};

#define IS(n, value) { (n), SCMP_CMP_MASKED_EQ, 0xffffffff, (scmp_datum_t) (unsigned int) (value) }
#define LACKS(n, bits) { (n), SCMP_CMP_MASKED_EQ, (scmp_datum_t) (bits), 0 }
#define FLAGS(n, bits) { (n), SCMP_CMP_MASKED_EQ, ~(scmp_datum_t) (bits), 0 }
#define CALL(threads, name, seen, reason) { threads, #name, seen, reason, 0, { { 0 } } },
#define CALL_IF(threads, name, seen, reason, ...)                                                                      \
	{ threads, #name, seen, reason, ARRAY_LEN(((struct scmp_arg_cmp[]) { __VA_ARGS__ })), { __VA_ARGS__ } },

static const struct row rows[] = {
#include "seccomp.def"
};

static const char *const kinds[THREAD_MAX_] = { "start", "loop", "vcpu", "disk" };

static int fail(const char *what, int err_no)
{
	(void) fprintf(stderr, "seccomp-compile: %s: %s\n", what, strerror(err_no));
	return -1;
}

/* The rows of `kind`, or those of other kinds alone. */
static int add_rows(scmp_filter_ctx filter, enum thread_kind kind, bool others, bool is_counting)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *row = &rows[i];
		uint32_t mark = (uint32_t) kind << 12 | ((uint32_t) i + 1);
		int number = seccomp_syscall_resolve_name(row->name), r;

		if (number == __NR_SCMP_ERROR)
			return fail(row->name, ENOSYS);
		if (strlen(row->reason) < REASON_MIN)
			return fail("a row says no reason", EINVAL);
		if (((row->threads & 1u << kind) == 0) != others)
			continue;
		r = seccomp_rule_add_array(filter, is_counting && row->seen != HOT ? SCMP_ACT_TRACE(mark) : SCMP_ACT_ALLOW,
			number, row->n, row->conditions);
		if (r < 0 && r != -EEXIST) /* the same conditions for another kind of thread */
			return fail(row->name, -r);
	}
	return 0;
}

static int fill(scmp_filter_ctx filter, enum thread_kind kind, bool is_counting)
{
	int r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

	if (r == 0)
		r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, not a list */
	/* its flags cannot be looked at; libc goes on with clone() */
	if (r == 0 && kind == THREAD_START)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (r < 0)
		return fail(kinds[kind], -r);
	r = add_rows(filter, kind, false, is_counting);
	/* it lies under the filters of the others, and the kernel takes the stricter answer */
	return r == 0 && kind == THREAD_START ? add_rows(filter, kind, true, is_counting) : r;
}

/* libseccomp knows no data for a trap. */
static void mark_traps(struct sock_filter *code, size_t n, enum thread_kind kind)
{
	for (size_t i = 0; i < n; i++)
		if (code[i].code == (BPF_RET | BPF_K) && (code[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRAP)
			code[i].k = SECCOMP_RET_TRAP | (uint32_t) kind;
}

static int export(scmp_filter_ctx filter, struct sock_filter *code, size_t *ret_n)
{
	int fd = memfd_create("bpf", MFD_CLOEXEC), r = -EIO;
	ssize_t n = -1;

	if (fd < 0)
		return fail("memfd_create", errno);
	r = seccomp_export_bpf(filter, fd);
	if (r == 0)
		n = pread(fd, code, INSTRUCTIONS_MAX * sizeof(*code), 0);
	(void) close(fd);
	if (n <= 0 || (size_t) n == INSTRUCTIONS_MAX * sizeof(*code))
		return fail("seccomp_export_bpf", r < 0 ? -r : EFBIG);
	*ret_n = (size_t) n / sizeof(*code);
	return 0;
}

static int compile(enum thread_kind kind, bool is_counting)
{
	static struct sock_filter code[INSTRUCTIONS_MAX];
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_TRAP);
	size_t n = 0;
	int r;

	if (!filter)
		return fail("seccomp_init", ENOMEM);
	r = fill(filter, kind, is_counting);
	if (r == 0)
		r = export(filter, code, &n);
	seccomp_release(filter);
	if (r < 0)
		return r;
	mark_traps(code, n, kind);
	(void) printf("static const struct sock_filter code_%s[] = {\n", kinds[kind]);
	for (size_t i = 0; i < n; i++)
		(void) printf("\t{ 0x%02x, %u, %u, 0x%08x },\n", code[i].code, code[i].jt, code[i].jf, code[i].k);
	(void) printf("};\n\n");
	return 0;
}

static void print_programs(void)
{
	(void) printf("const struct filter_program filter_programs[THREAD_MAX_] = {\n");
	for (int kind = 0; kind < THREAD_MAX_; kind++)
		(void) printf("\t{ code_%s, sizeof(code_%s) / sizeof(code_%s[0]) },\n", kinds[kind], kinds[kind],
			kinds[kind]);
	(void) printf("};\n");
}

/* One row a line for the tool that counts: number, threads, when it is seen, call, reason. */
static void print_rows(void)
{
	static const char *const seen[] = { "seen", "host", "error", "hot" };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char threads[THREAD_MAX_ + 1];

		for (unsigned int kind = 0; kind < THREAD_MAX_; kind++)
			threads[kind] = rows[i].threads & 1u << kind ? "SLVD"[kind] : '-';
		threads[THREAD_MAX_] = '\0';
		(void) printf("%zu %s %s %s %s\n", i + 1, threads, seen[rows[i].seen], rows[i].name, rows[i].reason);
	}
}

int main(int argc, char **argv)
{
	bool is_counting = argc == 2 && !strcmp(argv[1], "--count");

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		print_rows();
		return 0;
	}
	(void) printf("/* made by seccomp-compile from seccomp.def */\n#include \"filter.h\"\n\n");
	for (int kind = 0; kind < THREAD_MAX_; kind++)
		if (compile((enum thread_kind) kind, is_counting) < 0)
			return EXIT_FAILURE;
	print_programs();
	return ferror(stdout) || fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
