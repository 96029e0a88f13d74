/* SPDX-License-Identifier: Apache-2.0
 *
 * What a driver may acknowledge of the ring itself: indirect tables and event indices, used well and badly. The
 * entropy device stands for all: the queue module is one.
 */
#include <check.h>
#include <signal.h>
#include <sys/mman.h>

#include "lib/suite.h"
#include "lib/vmm-driver.h"
#include "virtio/rng.h"

static struct driver driver;
static struct rng_device rng;
static struct loop loop;

#define TABLE_AT (DRIVER_DATA + 0x1000)
#define BUFFER_AT (DRIVER_DATA + 0x10000)

static void set_up(void)
{
	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	ck_assert_int_eq(rng_init(&rng, &loop, &driver.memory), 0);
	driver.device = &rng.device;
}

static void tear_down(void)
{
	rng_deinit(&rng);
	memory_deinit(&driver.memory);
	loop_deinit(&loop);
}

/* An entry of an indirect table at `table`. */
static void set_entry(uint64_t table, unsigned int index, uint64_t addr, uint32_t len, unsigned int flags, unsigned int next)
{
	uint8_t *at = (uint8_t *) driver_at(&driver, table) + (size_t) index * 16;
	uint64_t high = len | (uint64_t) (uint16_t) flags << 32 | (uint64_t) (uint16_t) next << 48;

	memcpy(at, &addr, 8);
	memcpy(at + 8, &high, 8);
}

/* `n` entries of `len` bytes each in a chain. */
static void fill_table(uint64_t table, unsigned int n, uint32_t len)
{
	for (unsigned int i = 0; i < n; i++)
		set_entry(table, i, BUFFER_AT + (uint64_t) i * len, len, D_WRITE | (i + 1 < n ? D_NEXT : 0), i + 1);
}

/* Bytes that the chain at `head` got, -1 for none. */
static int64_t serve(unsigned int head)
{
	driver_push(&driver, 0, head);
	rng_serve(&rng);
	return driver_pop(&driver, 0, NULL);
}

/* ---- indirect tables ---- */

/* Tables of every allowed length, at addresses of every alignment; the flag WRITE of what refers to them has no
 * meaning. */
START_TEST(indirect_good)
{
	driver_start(&driver, FEATURE_INDIRECT_DESC);
	for (unsigned int n = 1; n <= DRIVER_N; n++)
		for (unsigned int shift = 0; shift < 16; shift++) {
			uint64_t table = TABLE_AT + shift;

			fill_table(table, n, 8);
			driver_set_desc(&driver, 0, 3, table, n * 16, D_INDIRECT | (shift % 2 ? D_WRITE : 0), 0);
			ck_assert_int_eq(serve(3), n * 8);
		}
	/* entries in any order, an unused one among them */
	set_entry(TABLE_AT, 0, BUFFER_AT, 8, D_WRITE | D_NEXT, 3);
	set_entry(TABLE_AT, 1, UINT64_MAX, 8, 0xffff, 0xffff);
	set_entry(TABLE_AT, 2, BUFFER_AT + 64, 8, D_WRITE, 0);
	set_entry(TABLE_AT, 3, BUFFER_AT + 32, 8, D_WRITE | D_NEXT, 2);
	driver_set_desc(&driver, 0, 0, TABLE_AT, 4 * 16, D_INDIRECT, 0);
	ck_assert_int_eq(serve(0), 24);
	ck_assert(!driver_needs_reset(&driver));
	ck_assert_uint_eq(rng.device.queues[0].bad_gpa, 0);
}
END_TEST

/* Direct descriptors first, a table at the end. */
START_TEST(indirect_behind_direct)
{
	driver_start(&driver, FEATURE_INDIRECT_DESC);
	fill_table(TABLE_AT, 3, 8);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE | D_NEXT, 5);
	driver_set_desc(&driver, 0, 5, BUFFER_AT, 8, D_WRITE | D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, TABLE_AT, 3 * 16, D_INDIRECT, 0);
	ck_assert_int_eq(serve(0), 40);
	/* as many buffers as the queue has entries, and one more */
	for (unsigned int more = 0; more < 2; more++) {
		fill_table(TABLE_AT, DRIVER_N - 2 + more, 8);
		driver_set_desc(&driver, 0, 1, TABLE_AT, (DRIVER_N - 2 + more) * 16, D_INDIRECT, 0);
		ck_assert_int_eq(serve(0), more ? -1 : DRIVER_N * 8);
		ck_assert_int_eq(driver_needs_reset(&driver), more);
	}
}
END_TEST

static void bad_length(uint32_t len)
{
	driver_set_desc(&driver, 0, 0, TABLE_AT, len, D_INDIRECT, 0);
}
static void bad_empty(void)
{
	bad_length(0);
}
static void bad_part(void)
{
	bad_length(15);
}
static void bad_odd(void)
{
	bad_length(24);
}
static void bad_too_long(void)
{
	bad_length((DRIVER_N + 1) * 16);
}
static void bad_longest(void)
{
	bad_length(UINT32_MAX & ~15u);
}
static void bad_with_next(void)
{
	driver_set_desc(&driver, 0, 0, TABLE_AT, 16, D_INDIRECT | D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, BUFFER_AT, 8, D_WRITE, 0);
}
static void bad_nested(void)
{
	set_entry(TABLE_AT, 0, TABLE_AT + 64, 16, D_INDIRECT, 0);
	bad_length(16);
}
static void bad_self(void)
{
	set_entry(TABLE_AT, 0, TABLE_AT, 16, D_INDIRECT | D_NEXT, 0);
	bad_length(16);
}
static void bad_next(void)
{
	set_entry(TABLE_AT, 1, BUFFER_AT, 8, D_WRITE | D_NEXT, 2); /* behind the table, within the queue's size */
	bad_length(32);
}
static void bad_loop(void)
{
	set_entry(TABLE_AT, 1, BUFFER_AT, 8, D_WRITE | D_NEXT, 0);
	bad_length(32);
}
static void bad_order(void)
{
	set_entry(TABLE_AT, 1, BUFFER_AT, 8, 0, 0);
	bad_length(32);
}
static void bad_flags(void)
{
	set_entry(TABLE_AT, 1, BUFFER_AT, 8, D_WRITE | 8, 0);
	bad_length(32);
}
static void bad_order_across(void)
{
	set_entry(TABLE_AT, 0, BUFFER_AT, 8, 0, 0);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE | D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, TABLE_AT, 16, D_INDIRECT, 0);
}
static void bad_end_of_memory(void)
{
	driver_set_desc(&driver, 0, 0, DRIVER_END - 16, 32, D_INDIRECT, 0);
}
static void bad_gap(void)
{
	driver_set_desc(&driver, 0, 0, UINT64_C(0xd0000000), 32, D_INDIRECT, 0);
}
static void bad_wrap(void)
{
	driver_set_desc(&driver, 0, 0, UINT64_MAX - 15, 32, D_INDIRECT, 0);
}

static const struct {
	void (*spoil)(void);
	bool is_bad_gpa;
} bad_tables[] = { { bad_empty, false }, { bad_part, false }, { bad_odd, false }, { bad_too_long, false },
	{ bad_longest, false }, { bad_with_next, false }, { bad_nested, false }, { bad_self, false }, { bad_next, false },
	{ bad_loop, false }, { bad_order, false }, { bad_flags, false }, { bad_order_across, false },
	{ bad_end_of_memory, true }, { bad_gap, true }, { bad_wrap, true } };

/* The device gives up on the driver, once, until it is reset. */
START_TEST(indirect_bad)
{
	driver_start(&driver, FEATURE_INDIRECT_DESC);
	fill_table(TABLE_AT, 2, 8);
	bad_tables[_i].spoil();
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(serve(0), -1);
	ck_assert(driver_needs_reset(&driver));
	ck_assert_uint_eq(rng.device.queues[0].broken, 1);
	ck_assert_uint_eq(rng.device.needs_reset, 1);
	ck_assert_uint_eq(rng.device.queues[0].bad_gpa, bad_tables[_i].is_bad_gpa);
	driver_start(&driver, 0);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE, 0);
	ck_assert_int_eq(serve(0), 8);
}
END_TEST

/* A table that is good, for a driver that did not acknowledge the feature. */
START_TEST(indirect_not_acknowledged)
{
	driver_start(&driver, FEATURE_EVENT_IDX);
	fill_table(TABLE_AT, 2, 8);
	bad_length(32);
	ck_assert_int_eq(serve(0), -1);
	ck_assert(driver_needs_reset(&driver));
}
END_TEST

/* An entry that is not RAM fails the request, not the device. */
START_TEST(indirect_entry_outside)
{
	driver_start(&driver, FEATURE_INDIRECT_DESC);
	set_entry(TABLE_AT, 0, DRIVER_END - 4, 8, D_WRITE, 0);
	bad_length(16);
	ck_assert_int_eq(serve(0), 0);
	ck_assert(!driver_needs_reset(&driver));
	ck_assert_uint_eq(rng.device.queues[0].bad_gpa, 1);
}
END_TEST

/* ---- event indices ---- */

static uint16_t avail_event(void)
{
	return *driver_u16(&driver, driver_used(0) + 4 + DRIVER_N * 8);
}

static void want_interrupt_at(uint16_t index)
{
	*driver_u16(&driver, driver_avail(0) + 4 + DRIVER_N * 2) = index;
}

static void use(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		driver_push(&driver, 0, 0);
	rng_serve(&rng);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_int_eq(driver_pop(&driver, 0, NULL), 8);
}

/* The device asks to be told of the next chain whenever it has found none, across the wrap of the index. */
START_TEST(event_notify)
{
	driver_start(&driver, FEATURE_EVENT_IDX);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE, 0);
	for (unsigned int i = 0; i < 70000; i += 7) {
		use(7);
		ck_assert_uint_eq(avail_event(), driver.avail[0]);
	}
	/* as many as one turn takes: nothing is popped behind them, and yet it must ask */
	for (unsigned int n = 1; n <= DRIVER_N; n++) {
		use(n);
		ck_assert_uint_eq(avail_event(), driver.avail[0]);
	}
}
END_TEST

/* The driver adds a chain in the moment between a look that finds none and the request to be told: the device writes that
 * request to a page that faults, and the fault is that moment. */
static void add_meanwhile(int number)
{
	(void) number;
	if (mprotect(driver_at(&driver, driver_used(0)), 4096, PROT_READ | PROT_WRITE) < 0)
		_exit(1);
	driver_push(&driver, 0, 0);
}

START_TEST(event_race)
{
	struct sigaction fault = { .sa_handler = add_meanwhile }, before;

	driver_start(&driver, FEATURE_EVENT_IDX);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE, 0);
	use(3);
	ck_assert(!queue_has_work(&rng.device.queues[0]));
	ck_assert_int_eq(sigaction(SIGSEGV, &fault, &before), 0);
	ck_assert_int_eq(mprotect(driver_at(&driver, driver_used(0)), 4096, PROT_READ), 0);
	ck_assert(queue_has_work(&rng.device.queues[0])); /* nobody will tell it */
	ck_assert_int_eq(sigaction(SIGSEGV, &before, NULL), 0);
	ck_assert_uint_eq(driver.avail[0], 4);
	rng_serve(&rng);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), 8);
}
END_TEST

/* Without the feature the field is the driver's own business. */
START_TEST(event_not_acknowledged)
{
	driver_start(&driver, 0);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE, 0);
	want_interrupt_at(0x7fff);
	use(5);
	ck_assert_uint_eq(avail_event(), 0);
	ck_assert(driver_interrupted(&driver));
	*driver_u16(&driver, driver_avail(0)) = 1; /* NO_INTERRUPT */
	use(5);
	ck_assert(!driver_interrupted(&driver));
}
END_TEST

/* One interrupt, when the entry that the driver named has been used; its flag has no meaning then. */
START_TEST(event_interrupt)
{
	uint16_t start;

	driver_start(&driver, FEATURE_EVENT_IDX);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE, 0);
	*driver_u16(&driver, driver_avail(0)) = 1;
	for (unsigned int round = 0; round < 10000; round++) { /* wraps several times */
		start = driver.used[0];
		want_interrupt_at((uint16_t) (start + 20));
		use(13);
		ck_assert_msg(!driver_interrupted(&driver), "round %u: too early", round);
		use(7);
		ck_assert_msg(!driver_interrupted(&driver), "round %u: entries start..start+19 only", round);
		use(3);
		ck_assert_msg(driver_interrupted(&driver), "round %u: entry start+20 was used", round);
		use(10);
		ck_assert_msg(!driver_interrupted(&driver), "round %u: once", round);
	}
}
END_TEST

/* Every distance between what the driver names and what is used, against the rule said in words. */
START_TEST(event_interrupt_exhaustive)
{
	driver_start(&driver, FEATURE_EVENT_IDX);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE, 0);
	for (int distance = -300; distance <= 300; distance++)
		for (unsigned int n = 1; n <= DRIVER_N; n += 5) {
			int is_among = distance >= 0 && distance < (int) n;

			want_interrupt_at((uint16_t) (driver.used[0] + distance));
			use(n);
			ck_assert_int_eq(driver_interrupted(&driver), is_among);
		}
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-queue");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, indirect_good);
	tcase_add_test(tcase, indirect_behind_direct);
	tcase_add_loop_test(tcase, indirect_bad, 0, ARRAY_LEN(bad_tables));
	tcase_add_test(tcase, indirect_not_acknowledged);
	tcase_add_test(tcase, indirect_entry_outside);
	tcase_add_test(tcase, event_notify);
	tcase_add_test(tcase, event_race);
	tcase_add_test(tcase, event_not_acknowledged);
	tcase_add_test(tcase, event_interrupt);
	tcase_add_test(tcase, event_interrupt_exhaustive);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
