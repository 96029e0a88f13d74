/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest whose other vCPU changes a field right after the device has read it, at each access in turn: rings, descriptors and the
 * header of a block request. The memory is a double of the real one that faults: pages that stand for it may not be touched, so
 * each instruction that does is seen, made alone, and followed by the change. Nothing hangs on how threads are scheduled. What is
 * judged must be what is used: a request is done as it was, or as it is now, or refused. Case R092.
 */
#include <check.h>
#include <linux/virtio_blk.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/fd.h"
#include "lib/suite.h"
#include "lib/vmm-driver.h"
#include "virtio/blk.h"

#define SECTORS 64u
#define SECTOR 3u /* that the request is about */
#define HEAD_AT DRIVER_DATA
#define BUFFER_AT (DRIVER_DATA + 0x1000)
#define STATUS_AT (DRIVER_DATA + 0x800) /* among what is watched: its write is an access too */
#define PAGE 4096u
#define TRAP_FLAG 0x100
#define ACCESSES_MAX 1000u

static struct driver driver;
static struct blk_device blk;
static int disk_fd;

/* ---- memory that faults ---- */

struct change {
	uint64_t gpa;
	unsigned int size;
	uint64_t value;
};

static uint8_t *pages[3];              /* descriptors, available ring, header and status */
static volatile unsigned int n_accesses, change_after;
static const struct change *volatile change;
static const uint8_t *volatile seen[ACCESSES_MAX]; /* where they were */

static void protect(int prot)
{
	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		if (mprotect(pages[i], PAGE, prot) < 0)
			_exit(99);
}

static void on_access(int number, siginfo_t *info, void *data)
{
	ucontext_t *context = data;
	const uint8_t *at = info->si_addr;
	bool is_ours = false;

	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		is_ours = is_ours || (at >= pages[i] && at < pages[i] + PAGE);
	if (!is_ours) { /* the wild access that we look for: again, and then it kills */
		(void) signal(number, SIG_DFL);
		return;
	}
	seen[n_accesses % ACCESSES_MAX] = at;
	protect(PROT_READ | PROT_WRITE);
	context->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_step(int number, siginfo_t *info, void *data)
{
	ucontext_t *context = data;

	(void) number, (void) info;
	context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	if (++n_accesses == change_after) {
		uint64_t value = change->value;

		memcpy(driver_at(&driver, change->gpa), &value, change->size);
	}
	protect(PROT_NONE);
}

static void watch_memory(void)
{
	struct sigaction access = { .sa_sigaction = on_access, .sa_flags = SA_SIGINFO };
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };

	pages[0] = driver_at(&driver, driver_desc(0));
	pages[1] = driver_at(&driver, driver_avail(0));
	pages[2] = driver_at(&driver, HEAD_AT);
	ck_assert_int_eq(sigaction(SIGSEGV, &access, NULL), 0);
	ck_assert_int_eq(sigaction(SIGTRAP, &step, NULL), 0);
}

/* ---- the host's calls, in the place of libc's ---- */

static unsigned int n_wild;

static ssize_t move(int fd, const struct iovec *iov, int n, off_t at, bool is_write)
{
	const uint8_t *start = driver.memory.base, *end = start + DRIVER_END;
	size_t total = 0;

	for (int i = 0; i < n; i++) {
		const uint8_t *from = iov[i].iov_base;

		if (from < start || from >= end || iov[i].iov_len > (size_t) (end - from))
			n_wild++;
		total += iov[i].iov_len;
	}
	if (at < 0 || total % 512 != 0 || (uint64_t) at + total > SECTORS * 512u)
		n_wild++;
	/* the pieces lie in pages that nobody watches, or the change has put them there: then there is nothing to be moved */
	return is_write ? pwrite(fd, iov[0].iov_base, iov[0].iov_len, at) : pread(fd, iov[0].iov_base, iov[0].iov_len, at);
}

ssize_t preadv(int fd, const struct iovec *iov, int n, off_t at)
{
	return move(fd, iov, n, at, false);
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	return move(fd, iov, n, at, true);
}

/* ---- requests ---- */

#define DESC(i) (DRIVER_RINGS + 16u * (i))
#define AVAIL (DRIVER_RINGS + 0x4000u)
#define OUTSIDE (DRIVER_END - 8)

/* Each field that a device reads, and what it had better not be. */
static const struct change changes[] = {
	{ DESC(0), 8, OUTSIDE }, { DESC(0) + 8, 4, UINT32_MAX }, { DESC(0) + 8, 4, 8 }, { DESC(0) + 12, 2, 0 },
	{ DESC(0) + 12, 2, D_INDIRECT }, { DESC(0) + 12, 2, 0xffff }, { DESC(0) + 14, 2, 0xffff }, { DESC(0) + 14, 2, 0 },
	{ DESC(1), 8, OUTSIDE }, { DESC(1), 8, UINT64_MAX - 100 }, { DESC(1) + 8, 4, 0x7ffffe00 }, { DESC(1) + 8, 4, 0 },
	{ DESC(1) + 8, 4, 100 }, { DESC(1) + 8, 4, SECTORS * 512 }, { DESC(1) + 12, 2, D_NEXT }, { DESC(1) + 12, 2, D_NEXT | D_WRITE },
	{ DESC(1) + 14, 2, 0x7fff }, { DESC(1) + 14, 2, 1 },
	{ DESC(2), 8, DRIVER_END }, { DESC(2), 8, UINT64_MAX }, { DESC(2) + 8, 4, 0 }, { DESC(2) + 8, 4, UINT32_MAX },
	{ DESC(2) + 12, 2, 0 }, { DESC(2) + 12, 2, D_NEXT | D_WRITE },
	{ AVAIL + 2, 2, 1000 }, { AVAIL + 2, 2, 0 }, { AVAIL + 4, 2, 0xffff }, { AVAIL + 4, 2, DRIVER_N }, { AVAIL + 4, 2, 2 },
	{ HEAD_AT, 4, VIRTIO_BLK_T_OUT }, { HEAD_AT, 4, VIRTIO_BLK_T_IN }, { HEAD_AT, 4, VIRTIO_BLK_T_GET_ID }, { HEAD_AT, 4, 99 },
	{ HEAD_AT + 8, 8, SECTORS }, { HEAD_AT + 8, 8, UINT64_MAX / 512 }, { HEAD_AT + 8, 8, UINT64_C(1) << 55 },
};

static void set_up(void)
{
	uint8_t sector[512];

	disk_fd = memfd_create("disk", MFD_CLOEXEC);
	for (unsigned int i = 0; i < SECTORS; i++) {
		memset(sector, (int) i + 1, sizeof(sector));
		ck_assert_int_eq(fd_pwrite_all(disk_fd, sector, sizeof(sector), (off_t) i * 512), 0);
	}
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	ck_assert_int_eq(blk_init(&blk, &driver.memory, dup(disk_fd), false, "s", NULL), 0);
	driver.device = &blk.device;
	watch_memory();
}

static void tear_down(void)
{
	blk_deinit(&blk);
	memory_deinit(&driver.memory);
	disk_fd = fd_close(disk_fd);
}

/* The disk as it was, but for the one sector that a write is about. */
static void check_disk(bool is_write)
{
	uint8_t sector[512];

	ck_assert_int_eq(lseek(disk_fd, 0, SEEK_END), SECTORS * 512);
	for (unsigned int i = 0; i < SECTORS; i++) {
		ck_assert_int_eq(fd_pread_all(disk_fd, sector, sizeof(sector), (off_t) i * 512), 0);
		if (sector[0] == i + 1 && !memcmp(sector, sector + 1, sizeof(sector) - 1))
			continue;
		ck_assert(is_write && i == SECTOR && sector[0] == 0xbb && !memcmp(sector, sector + 1, sizeof(sector) - 1));
	}
}

/* One request, with `what` changed after the access number `after`. The accesses that there were. */
static unsigned int run_changed(bool is_write, const struct change *what, unsigned int after)
{
	struct virtio_blk_outhdr head = { .type = is_write ? VIRTIO_BLK_T_OUT : VIRTIO_BLK_T_IN, .sector = SECTOR };
	uint8_t status;

	driver_start(&driver, FEATURE_INDIRECT_DESC);
	memcpy(driver_at(&driver, HEAD_AT), &head, sizeof(head));
	*(uint8_t *) driver_at(&driver, STATUS_AT) = 0xee;
	memset(driver_at(&driver, BUFFER_AT), 0xbb, 512);
	driver_set_desc(&driver, 0, 0, HEAD_AT, sizeof(head), D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, BUFFER_AT, 512, D_NEXT | (is_write ? 0 : D_WRITE), 2);
	driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	driver_push(&driver, 0, 0);
	n_accesses = n_wild = 0;
	change = what;
	change_after = after;
	protect(PROT_NONE);
	(void) blk_serve(&blk);
	protect(PROT_READ | PROT_WRITE);
	ck_assert_uint_eq(n_wild, 0);
	status = *(uint8_t *) driver_at(&driver, STATUS_AT);
	ck_assert(status == VIRTIO_BLK_S_OK || status == VIRTIO_BLK_S_IOERR || status == VIRTIO_BLK_S_UNSUPP || status == 0xee);
	return n_accesses;
}

static unsigned int count_seen(uint64_t gpa, unsigned int size)
{
	const uint8_t *from = driver_at(&driver, gpa);
	unsigned int n = 0;

	for (unsigned int i = 0; i < n_accesses; i++)
		n += seen[i] >= from && seen[i] < from + size;
	return n;
}

/* One load for each word of a descriptor and for the ring's entry. The index is looked at more often: it says that there is more. */
START_TEST(each_word_is_read_once)
{
	ck_assert_uint_lt(run_changed(_i, NULL, 0), ACCESSES_MAX);
	ck_assert_uint_eq(*(uint8_t *) driver_at(&driver, STATUS_AT), VIRTIO_BLK_S_OK);
	for (unsigned int word = 0; word < 6; word++)
		ck_assert_uint_eq(count_seen(DRIVER_RINGS + 8 * word, 8), 1);
	ck_assert_uint_eq(count_seen(AVAIL + 4, 2), 1);
	ck_assert_uint_ge(count_seen(AVAIL + 2, 2), 1);
	ck_assert_uint_eq(count_seen(STATUS_AT, 1), 1);
}
END_TEST

START_TEST(each_field_after_each_access)
{
	bool is_write = _i;
	unsigned int most = run_changed(is_write, NULL, 0);

	for (size_t i = 0; i < ARRAY_LEN(changes); i++)
		for (unsigned int after = 1; after <= most + 1; after++) {
			ck_assert_uint_lt(run_changed(is_write, &changes[i], after), ACCESSES_MAX);
			check_disk(is_write);
		}
}
END_TEST

/* That the double finds what it is for: who reads twice gets two answers. */
START_TEST(who_reads_twice_is_seen)
{
	static const struct change what = { HEAD_AT, 4, 7 };
	const volatile uint32_t *at = driver_at(&driver, HEAD_AT);
	uint32_t first, second;

	*(uint32_t *) driver_at(&driver, HEAD_AT) = 5;
	n_accesses = 0;
	change = &what;
	change_after = 1;
	protect(PROT_NONE);
	first = *at;
	second = *at;
	protect(PROT_READ | PROT_WRITE);
	ck_assert_uint_eq(n_accesses, 2);
	ck_assert_uint_eq(first, 5);
	ck_assert_uint_eq(second, 7);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-double-fetch");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, who_reads_twice_is_seen);
	tcase_add_loop_test(tcase, each_word_is_read_once, 0, 2);
	tcase_add_loop_test(tcase, each_field_after_each_access, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
