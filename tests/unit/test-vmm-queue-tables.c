/* SPDX-License-Identifier: Apache-2.0
 *
 * Every descriptor table of up to four entries over a reduced set of values, against the model of
 * tests/lib/queue-model.h (cases R080 R082 R083 R097, and issue 3 part 5).
 *
 * "Every" is exhaustive in this sense: a table is made along the walk. Each entry that the walk can reach takes
 * every combination of values; entries that it cannot reach hold 0xff, and if the queue looked at one of them its
 * answer would differ from the model's, which never sees them. Tables of one and two entries are in addition made
 * in full, reachable or not. The counts are printed and asserted, so that a test that runs nothing fails.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "lib/queue-model.h"
#include "lib/suite.h"
#include "memory.h"
#include "virtio/queue.h"

#define MIB 64
#define END ((uint64_t) MIB << 20)
#define DESC_AT UINT64_C(0x100000)
#define AVAIL_AT UINT64_C(0x104000)
#define USED_AT UINT64_C(0x108000)
#define DATA UINT64_C(0x200000)
#define HUGE UINT32_C(0xffffffff)

static const uint64_t addresses[] = { DATA, END - 4096, END - 1, END };
static const uint32_t lens[] = { 0, 1, 4096, HUGE };

static struct memory memory;
static struct queue queue;
static struct model_memory model_memory;
static struct model_table table, inner; /* the queue's own, and one that an indirect entry names */
static struct model_table *target;      /* which of them is being made, and where it lies */
static uint64_t target_at;
static bool is_whole; /* CROFT_EXHAUSTIVE=1: six hundred million tables, a minute */
static uint64_t n_tables, n_ok, n_broken, n_bad;

static void set_up(void)
{
	ck_assert_int_eq(memory_init(&memory, MIB, NULL), 0);
	queue = (struct queue) { .size_max = 4 };
	model_memory = (struct model_memory) { .size = END };
	is_whole = getenv("CROFT_EXHAUSTIVE") != NULL;
	n_tables = n_ok = n_broken = n_bad = 0;
}

static void tear_down(void)
{
	memory_deinit(&memory);
}

static void latch(uint16_t n)
{
	target = &table;
	target_at = DESC_AT;
	queue_reset(&queue);
	queue.size = n;
	queue.desc = DESC_AT;
	queue.avail = AVAIL_AT;
	queue.used = USED_AT;
	ck_assert_int_eq((int) queue_latch(&queue, &memory, (struct queue_features) {
		.has_indirect = model_memory.indirect != NULL }), QUEUE_LATCHED);
	table.n = n;
	memset(table.at, 0xff, sizeof(table.at));
	memset(memory.base + DESC_AT, 0xff, (size_t) n * 16);
	memset(memory.base + AVAIL_AT, 0, 64);
	memset(memory.base + USED_AT, 0, 64);
}

static void put(unsigned int index, const struct model_desc *desc)
{
	uint8_t *at = memory.base + target_at + (size_t) index * 16;

	target->at[index] = *desc;
	memcpy(at, &desc->addr, 8);
	memcpy(at + 8, &desc->len, 4);
	memcpy(at + 12, &desc->flags, 2);
	memcpy(at + 14, &desc->next, 2);
}

/* ---- one table ---- */

static void fail_with(const char *what, unsigned int head)
{
	char text[512];
	int at = 0;

	for (unsigned int i = 0; i < table.n && at < 400; i++)
		at += snprintf(text + at, sizeof(text) - (size_t) at, " {%#llx %#x f%u n%u}",
			(unsigned long long) table.at[i].addr, table.at[i].len, table.at[i].flags, table.at[i].next);
	ck_abort_msg("%s: head %u,%s", what, head, text);
}

/* Zero-length buffers are left out by the queue; the rest must be the same ones in the same order. */
static const char *compare(const struct chain *chain, const struct model_chain *model)
{
	unsigned int at = 0;

	if (chain->is_bad != model->is_bad)
		return "is_bad";
	if (chain->readable != model->readable || chain->writable != model->writable)
		return "number of bytes";
	for (unsigned int i = 0; i < model->n_parts; i++) {
		const struct model_part *part = &model->parts[i];
		const struct iovec *iov = &chain->iov[at];

		if (part->len == 0)
			continue;
		if (at >= chain->n_readable + chain->n_writable || part->is_writable != (at >= chain->n_readable))
			return "number of buffers";
		if (iov->iov_len != part->len || iov->iov_base != (part->is_ram ? memory.base + part->addr : NULL))
			return "a buffer";
		at++;
	}
	return at == chain->n_readable + chain->n_writable ? NULL : "too many buffers";
}

static void check_table(unsigned int head)
{
	static struct chain chain;
	struct model_chain model;
	uint64_t bad_before = queue.bad_gpa;
	uint16_t index = (uint16_t) (queue.next_avail + 1);
	enum chain_result result;
	const char *why;

	*(uint16_t *) (void *) (memory.base + AVAIL_AT + 4 + (size_t) (queue.next_avail % queue.n) * 2) = (uint16_t) head;
	memcpy(memory.base + AVAIL_AT + 2, &index, sizeof(index));
	model_walk(&model_memory, &table, head, table.n, &model);
	result = queue_pop(&queue, &memory, &chain);
	n_tables++;
	if (model.is_broken) {
		n_broken++;
		if (result != CHAIN_BROKEN || !queue.is_broken)
			fail_with("taken, and should not be", head);
		if (queue_pop(&queue, &memory, &chain) != CHAIN_NONE || queue_has_work(&queue))
			fail_with("a broken queue goes on", head);
		queue.is_broken = false; /* the next table; only next_avail of the old life is kept, as if nothing came */
		memcpy(memory.base + AVAIL_AT + 2, &queue.next_avail, 2);
		return;
	}
	if (result != CHAIN_OK || chain.head != head)
		fail_with("not taken, and should be", head);
	why = compare(&chain, &model);
	if (why)
		fail_with(why, head);
	if (model.is_bad && queue.bad_gpa == bad_before)
		fail_with("a bad address is not counted", head);
	n_bad += model.is_bad;
	n_ok++;
}

/* ---- making tables ---- */

/* In range, itself, back to the head, out; with is_whole every entry there is, in any order. */
static unsigned int next_values(unsigned int index, unsigned int head, uint16_t ret[static 6])
{
	unsigned int n = target->n, k = 0;

	if (!is_whole) {
		ret[k++] = (uint16_t) ((index + 1) % n);
		ret[k++] = (uint16_t) index;
		ret[k++] = (uint16_t) head;
		ret[k++] = (uint16_t) n;
		return k;
	}
	for (unsigned int i = 0; i < n; i++)
		ret[k++] = (uint16_t) ((index + i) % n);
	ret[k++] = (uint16_t) n;
	ret[k++] = UINT16_MAX;
	return k;
}

static void along(unsigned int index, unsigned int visited, unsigned int head);

static void choose(unsigned int index, unsigned int visited, unsigned int head, const struct model_desc *partial)
{
	uint16_t nexts[6];
	unsigned int n_nexts = next_values(index, head % target->n, nexts);
	struct model_desc desc = *partial;
	/* where the walk can go on: elsewhere it ends here, and what stands behind it is out of reach */
	bool goes_on = (desc.flags & 5) == 1;

	for (unsigned int i = 0; i < n_nexts; i++) {
		desc.next = nexts[i];
		put(index, &desc);
		if (goes_on && desc.next < target->n && !(visited & 1u << desc.next))
			along(desc.next, visited | 1u << desc.next, head);
		else
			check_table(head);
	}
}

static void along(unsigned int index, unsigned int visited, unsigned int head)
{
	static const struct model_desc untouched = { UINT64_MAX, UINT32_MAX, UINT16_MAX, UINT16_MAX };
	struct model_desc desc = untouched;

	for (unsigned int a = 0; a < ARRAY_LEN(addresses); a++)
		for (unsigned int l = 0; l < ARRAY_LEN(lens); l++)
			for (unsigned int f = 0; f < 8; f++) {
				desc = (struct model_desc) { addresses[a], lens[l], (uint16_t) f, 0 };
				choose(index, visited, head, &desc);
			}
	put(index, &untouched);
}

START_TEST(reachable)
{
	static const uint64_t expected[] = { 380, 10000, 3000000 };
	uint16_t n = (uint16_t) (1u << _i);
	/* entries have no names: a table of four that begins at 1 is one that begins at 0 */
	unsigned int n_heads = n < 4 || is_whole ? n : 1;

	latch(n);
	for (unsigned int head = 0; head < n_heads; head++)
		along(head, 1u << head, head);
	(void) printf("queue of %u: %llu tables, %llu taken (%llu with bad addresses), %llu broken\n", n,
		(unsigned long long) n_tables, (unsigned long long) n_ok, (unsigned long long) n_bad,
		(unsigned long long) n_broken);
	ck_assert_uint_gt(n_tables, is_whole && n == 4 ? 600000000 : expected[_i]);
	ck_assert_uint_gt(n_ok, n_tables / 100);
	ck_assert_uint_gt(n_bad, n_tables / 100);
	ck_assert_uint_gt(n_broken, n_tables / 100);
}
END_TEST

/* Two entries, all of both, whether the chain comes by or not; and every head, in range or not. */
START_TEST(in_full)
{
	static const uint16_t heads[] = { 0, 1, 2, UINT16_MAX };
	struct model_desc desc[2];
	const unsigned int n_values = ARRAY_LEN(addresses) * ARRAY_LEN(lens) * 8 * 3;

	latch(2);
	for (unsigned int i = 0; i < n_values * n_values; i++) {
		for (unsigned int k = 0; k < 2; k++) {
			unsigned int value = k == 0 ? i % n_values : i / n_values;

			desc[k] = (struct model_desc) { .addr = addresses[value % 4], .len = lens[value / 4 % 4],
				.flags = value / 16 % 8, .next = (uint16_t) (value / 128) };
			put(k, &desc[k]);
		}
		check_table(heads[(i + i / n_values) % ARRAY_LEN(heads)]);
	}
	(void) printf("queue of 2 in full: %llu tables\n", (unsigned long long) n_tables);
	ck_assert_uint_eq(n_tables, 384 * 384);
}
END_TEST

/* ---- indirect tables ---- */

#define TABLE_AT UINT64_C(0x180000)

/* What stands at TABLE_AT; any other RAM holds zeros, which is an empty buffer that ends a chain. */
static bool find_table(uint64_t addr, uint32_t len, struct model_table *ret)
{
	if (len == 0 || len % 16 != 0 || len / 16 > table.n || !model_is_ram(&model_memory, addr, len))
		return false;
	memset(ret, 0, sizeof(*ret));
	if (addr == TABLE_AT)
		memcpy(ret->at, inner.at, sizeof(ret->at));
	ret->n = len / 16;
	return true;
}

/* A table of up to three entries along the walk, behind nothing, a readable and a writable buffer, with WRITE at the
 * entry that names it (to be ignored) or not. */
START_TEST(inside)
{
	unsigned int before = (unsigned int) _i % 3;
	uint16_t n = (uint16_t) (1 + _i / 3 % 3), flags = _i / 9 ? 6 : 4;
	struct model_desc names = { .addr = TABLE_AT, .len = n * 16u, .flags = flags, .next = 1 };
	struct model_desc first = { .addr = DATA, .len = 8, .flags = before == 1 ? 1 : 3, .next = 1 };

	model_memory.indirect = find_table;
	latch(4);
	put(0, before ? &first : &names);
	put(1, &names);
	target = &inner;
	target_at = TABLE_AT;
	inner.n = n;
	memset(inner.at, 0xff, sizeof(inner.at));
	along(0, 1, 0);
	(void) printf("indirect tables of %u behind %u: %llu, %llu taken, %llu broken\n", n, before > 0,
		(unsigned long long) n_tables, (unsigned long long) n_ok, (unsigned long long) n_broken);
	ck_assert_uint_gt(n_tables, n == 3 ? 100000 : n == 2 ? 10000 : 300);
	ck_assert_uint_gt(n_ok, 20);
	ck_assert_uint_gt(n_broken, 100);
}
END_TEST

/* Where an indirect table is, how long, and what else its entry says. */
START_TEST(named)
{
	static const uint64_t where[] = { TABLE_AT, TABLE_AT + 0x1000, TABLE_AT + 0x1004, END - 64, END - 16, END,
		UINT64_MAX - 15, UINT64_C(3) << 30 };
	static const uint32_t sizes[] = { 0, 1, 15, 16, 17, 48, 64, 80, 4096, 0xfffffff0u, HUGE };
	struct model_desc buffer = { .addr = DATA, .len = 1, .flags = 0 };

	model_memory.indirect = find_table;
	latch(4);
	memset(memory.base + END - 64, 0, 64);
	target = &inner;
	target_at = TABLE_AT;
	inner.n = 1;
	memset(inner.at, 0, sizeof(inner.at));
	put(0, &buffer);
	target = &table;
	target_at = DESC_AT;
	for (unsigned int before = 0; before < 4; before++) /* a queue of four: with three before it there is room for one */
		for (size_t w = 0; w < ARRAY_LEN(where); w++)
			for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
				for (uint16_t flags = 4; flags < 8; flags++) {
					for (uint16_t i = 0; i < before; i++)
						put(i, &(struct model_desc) { .addr = DATA, .len = 1, .flags = 1,
							.next = (uint16_t) (i + 1) });
					put(before, &(struct model_desc) { .addr = where[w], .len = sizes[s], .flags = flags });
					check_table(0);
				}
	ck_assert_uint_eq(n_tables, 4 * ARRAY_LEN(where) * ARRAY_LEN(sizes) * 4);
	ck_assert_uint_gt(n_ok, 20);
}
END_TEST

/* avail.idx against what was taken: none, one, a full ring, more than it holds. */
START_TEST(indices)
{
	static struct chain chain;
	uint64_t n = 0;

	for (unsigned int taken = 0; taken < 0x10000; taken += 0x333)
		for (unsigned int ahead = 0; ahead < 0x10000; ahead += ahead < 16 ? 1 : 0x111) {
			uint16_t index = (uint16_t) (taken + ahead);
			enum chain_result result;

			latch(4);
			for (unsigned int i = 0; i < 4; i++)
				put(i, &(struct model_desc) { .addr = DATA, .len = 1 });
			queue.next_avail = (uint16_t) taken;
			memcpy(memory.base + AVAIL_AT + 2, &index, sizeof(index));
			result = queue_pop(&queue, &memory, &chain);
			ck_assert_int_eq((int) result, ahead == 0 ? CHAIN_NONE : ahead <= 4 ? CHAIN_OK : CHAIN_BROKEN);
			n++;
		}
	ck_assert_uint_gt(n, 20000);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-queue-tables");
	TCase *tables = tcase_create("tables");

	tcase_add_checked_fixture(tables, set_up, tear_down);
	tcase_set_timeout(tables, 300);
	tcase_add_loop_test(tables, reachable, 0, 3);
	tcase_add_test(tables, in_full);
	tcase_add_loop_test(tables, inside, 0, 18);
	tcase_add_test(tables, named);
	tcase_add_test(tables, indices);
	suite_add_tcase(suite, tables);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
