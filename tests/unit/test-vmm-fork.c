/* SPDX-License-Identifier: Apache-2.0
 *
 * A fork's memory without KVM: sets of pages against a model, frozen files and layers, forks of forks, calls that fail in the
 * middle (their functions are wrapped), layers that a stranger wrote.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fd.h"
#include "lib/suite.h"
#include "memory.h"

#define PAGE 4096u
#define MIB 64u
#define N_PAGES (MIB * 256)

static unsigned int seed;
static int pagemap = -1;

/* ---- calls that fail ---- */

enum call { CALL_MMAP, CALL_FCNTL, CALL_MEMFD, CALL_PWRITE, CALL_MAX_ };

static bool is_armed;
static unsigned long n_calls, fails_at; /* the fails_at-th call of any kind, from 1; 0: none */
static bool fails_for_good; /* and each one after it */
static bool leaves_nothing; /* a mapping that fails has taken away what was there, as that of a kernel without memory for it */
static enum call failed_call;

static bool fails(enum call call)
{
	if (!is_armed || (++n_calls != fails_at && !(fails_for_good && n_calls > fails_at)))
		return false;
	failed_call = call;
	errno = ENOMEM;
	return true;
}

void *__real_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	if (!(flags & MAP_FIXED) || !fails(CALL_MMAP))
		return __real_mmap(at, size, prot, flags, fd, offset);
	if (leaves_nothing)
		(void) munmap(at, size);
	errno = ENOMEM;
	return MAP_FAILED;
}

int __real_memfd_create(const char *name, unsigned int flags);
int __wrap_memfd_create(const char *name, unsigned int flags);
int __wrap_memfd_create(const char *name, unsigned int flags)
{
	return fails(CALL_MEMFD) ? -1 : __real_memfd_create(name, flags);
}

ssize_t __real_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset)
{
	return fails(CALL_PWRITE) ? -1 : __real_pwrite(fd, data, size, offset);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	va_list arguments;
	int argument;

	va_start(arguments, command);
	argument = va_arg(arguments, int);
	va_end(arguments);
	return fails(CALL_FCNTL) ? -1 : __real_fcntl(fd, command, argument);
}

/* ---- sets of pages ---- */

START_TEST(pages_are_those_of_a_model)
{
	const uint64_t n = 1 + (uint64_t) rand_r(&seed) % 700;
	struct pages pages;
	struct page_run run = { 0 };
	bool model[700] = { false };
	uint64_t in_model = 0, runs = 0, counted, at = 0;

	ck_assert_int_eq(pages_init(&pages, n), 0);
	for (int i = rand_r(&seed) % 40; i > 0; i--) {
		struct page_run more = { .first = (uint64_t) rand_r(&seed) % 800, .n = (uint64_t) rand_r(&seed) % 150 };

		pages_add(&pages, more);
		for (uint64_t page = more.first; page < MIN(more.first + more.n, n); page++)
			model[page] = true;
	}
	for (uint64_t page = 0; page < n; page++) {
		in_model += model[page];
		runs += model[page] && (page == 0 || !model[page - 1]);
		ck_assert(pages_has(&pages, page) == model[page]);
	}
	ck_assert(!pages_has(&pages, n));
	ck_assert_uint_eq(pages_count(&pages, &counted), runs);
	ck_assert_uint_eq(counted, in_model);
	while (pages_next(&pages, run.first + run.n, &run)) {
		for (; at < run.first; at++)
			ck_assert(!model[at]);
		for (; at < run.first + run.n; at++)
			ck_assert(model[at]);
	}
	for (; at < n; at++)
		ck_assert(!model[at]);
	pages_merge(&pages, 3);
	ck_assert_uint_le(pages_count(&pages, &counted), 3);
	for (uint64_t page = 0; page < n; page++)
		ck_assert(!model[page] || pages_has(&pages, page));
	pages_deinit(&pages);
}
END_TEST

/* ---- a VM's memory and what should be in it ---- */

struct vm {
	struct memory memory;
	uint8_t *wanted; /* all of it */
};

static void write_page(struct vm *vm, uint64_t page)
{
	uint8_t *at = guest_map(&vm->memory, page * PAGE, PAGE);

	for (unsigned int i = 0; i < PAGE; i += 64) {
		at[i] = (uint8_t) rand_r(&seed);
		vm->wanted[page * PAGE + i] = at[i];
	}
}

/* Each time one page at least. */
static void write_some(struct vm *vm, int n)
{
	while (n-- > 0) {
		uint64_t page = (uint64_t) rand_r(&seed) % N_PAGES;

		for (uint64_t more = 1 + (uint64_t) rand_r(&seed) % 4; more > 0 && page < N_PAGES; more--)
			write_page(vm, page++);
	}
}

/* What a balloon gives back reads as it was when the VM was frozen or began. */
static void discard_some(struct vm *vm, const uint8_t *frozen, int n)
{
	while (n-- > 0) {
		uint64_t page = (uint64_t) rand_r(&seed) % N_PAGES, more = (uint64_t) rand_r(&seed) % 300;

		more = MIN(more, N_PAGES - page);
		ck_assert_int_eq(memory_discard(&vm->memory, page * PAGE, more * PAGE), 0);
		memcpy(vm->wanted + page * PAGE, frozen + page * PAGE, more * PAGE);
	}
}

static void check(struct vm *vm, const char *what, unsigned long round)
{
	const uint8_t *base = guest_map(&vm->memory, 0, (uint64_t) MIB << 20);

	for (uint64_t page = 0; page < N_PAGES; page++)
		if (memcmp(base + page * PAGE, vm->wanted + page * PAGE, PAGE) != 0)
			ck_abort_msg("page %llu of %s, round %lu", (unsigned long long) page, what, round);
}

/* It is of the process that opens it. */
static void set_up(void)
{
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(pagemap, 0);
}

static void tear_down(void)
{
	pagemap = fd_close(pagemap);
}

static void begin(struct vm *vm)
{
	struct err err = ERR_NULL;

	ck_assert_int_eq(memory_init(&vm->memory, MIB, &err), 0);
	vm->memory.pagemap_fd = pagemap;
	vm->wanted = calloc(1, (size_t) MIB << 20);
	ck_assert_ptr_nonnull(vm->wanted);
}

static void end(struct vm *vm)
{
	memory_deinit(&vm->memory);
	free(vm->wanted);
}

/* From copies of a frozen VM's descriptors, as another process gets them. */
static void make_child(const struct vm *parent, struct vm *child)
{
	int fds[MEMORY_LAYERS_MAX];
	struct err err = ERR_NULL;

	for (unsigned int i = 0; i < parent->memory.n_layers; i++) {
		fds[i] = fcntl(parent->memory.layers[i].fd, F_DUPFD_CLOEXEC, 0);
		ck_assert_int_eq(layer_check_frozen(fds[i], "a layer", &err), 0);
	}
	ck_assert_int_eq(layer_check_frozen(parent->memory.fd, "the memory", &err), 0);
	ck_assert_int_eq(memory_restore(&child->memory, MIB, fcntl(parent->memory.fd, F_DUPFD_CLOEXEC, 0), &err), 0);
	ck_assert_msg(memory_add_layers(&child->memory, fds, parent->memory.n_layers, false, &err) == 0, "%s", err.msg);
	child->memory.pagemap_fd = pagemap;
	child->wanted = malloc((size_t) MIB << 20);
	ck_assert_ptr_nonnull(child->wanted);
	memcpy(child->wanted, parent->wanted, (size_t) MIB << 20);
}

static void freeze(struct vm *vm)
{
	struct err err = ERR_NULL;

	ck_assert_msg(memory_freeze(&vm->memory, &err) == 0, "%s", err.msg);
}

static unsigned long anonymous_kib(void)
{
	char *text = NULL;
	unsigned long kib;

	ck_assert_int_eq(file_read("/proc/self/status", 1 << 20, &text, NULL), 0);
	kib = strtoul(strstr(text, "RssAnon:") + 8, NULL, 10);
	free(text);
	return kib;
}

/* The first fork copies nothing, and from then on nobody can change what was frozen. */
START_TEST(the_first_fork_copies_nothing)
{
	struct vm parent, child;
	unsigned long before;
	struct stat st, after;

	begin(&parent);
	for (uint64_t page = 0; page < N_PAGES; page += 2)
		write_page(&parent, page);
	ck_assert_int_eq(fstat(parent.memory.fd, &st), 0);
	before = anonymous_kib();
	freeze(&parent);
	ck_assert_uint_eq(parent.memory.copied_pages, 0);
	ck_assert_uint_eq(parent.memory.n_layers, 0);
	check(&parent, "the parent", 0);
	ck_assert_uint_lt(anonymous_kib(), before + 1024); /* of 32 MiB that are there */
	ck_assert_int_eq(fstat(parent.memory.fd, &after), 0);
	ck_assert_int_lt(ftruncate(parent.memory.fd, 0), 0);
	ck_assert_int_eq((int) pwrite(parent.memory.fd, "x", 1, 0), -1);
	ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, parent.memory.fd, 0), MAP_FAILED);
	make_child(&parent, &child);
	write_some(&parent, 100);
	write_some(&child, 100);
	check(&parent, "the parent", 1);
	check(&child, "the child", 1);
	end(&parent); /* a child does without */
	check(&child, "the child alone", 1);
	end(&child);
}
END_TEST

/* Each later one copies what was written since, and a second at once nothing. */
START_TEST(a_later_fork_copies_what_was_written)
{
	struct vm parent, child;

	begin(&parent);
	write_some(&parent, 1000);
	freeze(&parent);
	for (uint64_t page = 100; page < 110; page++)
		write_page(&parent, page);
	write_page(&parent, 7);
	freeze(&parent);
	ck_assert_uint_eq(parent.memory.copied_pages, 11);
	ck_assert_uint_eq(parent.memory.n_layers, 1);
	ck_assert_uint_eq(parent.memory.layers[0].n_runs, 2);
	freeze(&parent);
	ck_assert_uint_eq(parent.memory.copied_pages, 0);
	ck_assert_uint_eq(parent.memory.n_layers, 1);
	make_child(&parent, &child);
	check(&child, "the child", 0);
	end(&parent);
	end(&child);
}
END_TEST

/* A line of descendants, each with a parent that goes on beside it, until layers were put together more than once. */
START_TEST(forks_of_forks)
{
	struct vm vm, child;
	uint8_t *frozen = malloc((size_t) MIB << 20);
	bool was_flat = false;
	unsigned int before = 0;

	ck_assert_ptr_nonnull(frozen);
	begin(&vm);
	write_some(&vm, 300);
	for (unsigned long round = 0; round < 24; round++) {
		freeze(&vm);
		was_flat = was_flat || vm.memory.n_layers < before;
		before = vm.memory.n_layers;
		make_child(&vm, &child);
		memcpy(frozen, vm.wanted, (size_t) MIB << 20);
		for (int turn = 0; turn < 2; turn++) {
			write_some(&vm, 60);
			write_some(&child, 60);
			discard_some(&vm, frozen, 5);
			discard_some(&child, frozen, 5);
		}
		check(&vm, "the parent", round);
		check(&child, "the child", round);
		if (round % 3 == 2) { /* on with the child */
			end(&vm);
			vm = child;
		} else {
			end(&child);
		}
	}
	ck_assert(was_flat);
	free(frozen);
	end(&vm);
}
END_TEST

/* More runs than one layer may have: neighbours are taken in. */
START_TEST(a_page_here_and_a_page_there)
{
	struct vm parent, child;

	begin(&parent);
	write_some(&parent, 300);
	freeze(&parent);
	for (int again = 0; again < 2; again++) {
		for (uint64_t page = 0; page < N_PAGES; page += 2) /* 8,192 runs */
			write_page(&parent, page);
		freeze(&parent);
		ck_assert_uint_eq(parent.memory.n_layers, 1);
		ck_assert_uint_le(parent.memory.layers[0].n_runs, MEMORY_RUNS_MAX / 2);
		make_child(&parent, &child);
		check(&parent, "the parent", (unsigned long) again);
		check(&child, "the child", (unsigned long) again);
		end(&child);
	}
	end(&parent);
}
END_TEST

/* All of it, again and again: what nobody sees any more does not stay. */
START_TEST(layers_hold_no_more_than_memory_twice)
{
	struct vm vm, child;

	begin(&vm);
	freeze(&vm);
	for (unsigned long round = 0; round < 6; round++) {
		uint64_t held = 0;

		for (uint64_t page = 0; page < N_PAGES; page++)
			write_page(&vm, page);
		freeze(&vm);
		for (unsigned int i = 0; i < vm.memory.n_layers; i++)
			for (uint32_t run = 0; run < vm.memory.layers[i].n_runs; run++)
				held += vm.memory.layers[i].runs[run].n;
		ck_assert_uint_le(held, UINT64_C(2) * N_PAGES);
		make_child(&vm, &child);
		check(&child, "the child", round);
		end(&child);
	}
	check(&vm, "the parent", 0);
	end(&vm);
}
END_TEST

/* Both sides of the gap, and a run that lies on both. */
START_TEST(the_gap)
{
	struct memory parent = MEMORY_NULL, child = MEMORY_NULL;
	struct err err = ERR_NULL;
	uint8_t *low, *high;
	int fds[MEMORY_LAYERS_MAX];

	ck_assert_int_eq(memory_init(&parent, 3 * 1024 + 64, &err), 0);
	parent.pagemap_fd = pagemap;
	low = guest_map(&parent, MEMORY_GAP_START - PAGE, PAGE);
	high = guest_map(&parent, MEMORY_GAP_END, PAGE);
	memset(low, 1, PAGE);
	memset(high, 2, PAGE);
	ck_assert_int_eq(memory_freeze(&parent, &err), 0);
	memset(low, 3, PAGE);
	memset(high, 4, PAGE);
	ck_assert_int_eq(memory_freeze(&parent, &err), 0);
	ck_assert_uint_eq(parent.layers[0].n_runs, 1);
	fds[0] = fcntl(parent.layers[0].fd, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_eq(memory_restore(&child, 3 * 1024 + 64, fcntl(parent.fd, F_DUPFD_CLOEXEC, 0), &err), 0);
	ck_assert_int_eq(memory_add_layers(&child, fds, 1, false, &err), 0);
	ck_assert_uint_eq(*(uint8_t *) guest_map(&child, MEMORY_GAP_START - PAGE, PAGE), 3);
	ck_assert_uint_eq(*(uint8_t *) guest_map(&child, MEMORY_GAP_END, PAGE), 4);
	ck_assert_uint_eq(*low, 3);
	ck_assert_uint_eq(*high, 4);
	memory_deinit(&parent);
	memory_deinit(&child);
}
END_TEST

/* What a full snapshot of a forked VM writes: file, layers and own pages, and no page that is only a hole. */
START_TEST(content_of_all_layers)
{
	struct pages content;
	struct vm vm;
	uint64_t n;

	begin(&vm);
	write_page(&vm, 10);
	freeze(&vm);
	write_page(&vm, 2010);
	freeze(&vm);
	write_page(&vm, 4010);
	ck_assert_int_eq(memory_content(&vm.memory, &content), 0);
	ck_assert_uint_eq(pages_count(&content, &n), 3);
	ck_assert_uint_le(n, 3 * 512); /* the host may back the file with huge pages */
	for (uint64_t page = 10; page <= 4010; page += 2000)
		ck_assert(pages_has(&content, page));
	pages_deinit(&content);
	vm.memory.pagemap_fd = -1; /* then nobody knows */
	ck_assert_int_eq(memory_content(&vm.memory, &content), 0);
	ck_assert_uint_eq(pages_count(&content, &n), 1);
	ck_assert_uint_eq(n, N_PAGES);
	pages_deinit(&content);
	end(&vm);
}
END_TEST

/* ---- failures in the middle ---- */

/* Each call of the first fork fails once: memory is as it was and shared, and the next try works. */
START_TEST(a_first_fork_that_fails_changes_nothing)
{
	unsigned int seen = 0, before = seed;

	leaves_nothing = _i;
	for (unsigned long k = 1;; k++) {
		struct vm vm, child;
		struct err err = ERR_NULL;
		int r;

		seed = before; /* the same calls each time */
		begin(&vm);
		write_some(&vm, 50);
		n_calls = 0;
		fails_at = k;
		is_armed = true;
		r = memory_freeze(&vm.memory, &err);
		is_armed = false;
		if (n_calls < k) {
			ck_assert_int_eq(r, 0);
			end(&vm);
			break;
		}
		seen |= 1u << failed_call;
		ck_assert_msg(r < 0 && err.code == FAIL_FORK_FAILED, "call %lu", k);
		ck_assert(!vm.memory.is_private);
		write_some(&vm, 50);
		check(&vm, "the VM", k);
		freeze(&vm);
		make_child(&vm, &child);
		check(&child, "its child", k);
		end(&vm);
		end(&child);
	}
	ck_assert_uint_eq(seen, 1u << CALL_MMAP | 1u << CALL_FCNTL);
}
END_TEST

/* The same of a later fork. A layer that could not be mapped in the parent is no failure. */
START_TEST(a_later_fork_that_fails_changes_nothing)
{
	unsigned int seen = 0, before = seed;

	leaves_nothing = _i;
	for (unsigned long k = 1;; k++) {
		struct vm vm, child;
		struct err err = ERR_NULL;
		int r;

		seed = before; /* the same calls each time */
		begin(&vm);
		write_some(&vm, 50);
		freeze(&vm);
		write_some(&vm, 4);
		freeze(&vm);
		write_some(&vm, 4);
		n_calls = 0;
		fails_at = k;
		is_armed = true;
		r = memory_freeze(&vm.memory, &err);
		is_armed = false;
		if (n_calls < k) {
			ck_assert_int_eq(r, 0);
			end(&vm);
			break;
		}
		seen |= 1u << failed_call;
		ck_assert_msg((r == 0) == (failed_call == CALL_MMAP), "call %lu: %s", k, err.msg);
		ck_assert_msg(r == 0 || err.code == FAIL_FORK_FAILED, "call %lu", k);
		write_some(&vm, 10);
		check(&vm, "the VM", k);
		freeze(&vm);
		make_child(&vm, &child);
		check(&child, "its child", k);
		end(&vm);
		end(&child);
	}
	ck_assert_uint_eq(seen, (1u << CALL_MAX_) - 1);
}
END_TEST

/* Nothing can be mapped any more, from one of the calls on: either memory is whole all the same, or the VM is told to be lost, which
 * is no failure that leaves it as it was. */
START_TEST(memory_that_is_mapped_nowhere_is_told)
{
	const bool is_first = _i;
	unsigned int whole = 0, lost = 0, before = seed;
	unsigned long k = 0;

	leaves_nothing = fails_for_good = true;
	do {
		struct err err = ERR_NULL;
		struct vm vm;
		int r;

		seed = before;
		begin(&vm);
		write_some(&vm, 20);
		if (!is_first) {
			freeze(&vm);
			write_page(&vm, 7);
			write_page(&vm, 70);
		}
		n_calls = 0;
		fails_at = ++k;
		is_armed = true;
		r = memory_freeze(&vm.memory, &err);
		is_armed = false;
		if (r == -ENOTRECOVERABLE) {
			ck_assert_int_eq(err.code, FAIL_HOST_MEMORY_FAULT);
			lost++;
		} else {
			ck_assert(r == 0 || err.code == FAIL_FORK_FAILED);
			check(&vm, "the VM", k);
			whole++;
		}
		end(&vm);
	} while (n_calls >= k);
	leaves_nothing = fails_for_good = false;
	ck_assert_uint_gt(lost, 0);
	ck_assert_uint_gt(whole, 0);
}
END_TEST

START_TEST(without_pagemap_only_the_first)
{
	struct err err = ERR_NULL;
	struct vm vm;

	begin(&vm);
	vm.memory.pagemap_fd = -1;
	write_some(&vm, 10);
	freeze(&vm);
	write_some(&vm, 10);
	ck_assert_int_lt(memory_freeze(&vm.memory, &err), 0);
	ck_assert_int_eq(err.code, FAIL_FORK_UNSUPPORTED); /* tried again it is the same */
	ck_assert_ptr_nonnull(strstr(err.msg, "pagemap"));
	check(&vm, "the VM", 0);
	end(&vm);
}
END_TEST

/* ---- layers that strangers wrote ---- */

#define HEADER_SIZE 72u
#define LAYER_PAGES 6u /* in two runs */
#define LAYER_SIZE (PAGE + LAYER_PAGES * PAGE + 2 * sizeof(struct page_run))

static const void *some_page(const void *data, uint64_t page)
{
	(void) page;
	return data;
}

static void make_layer(uint8_t bytes[static LAYER_SIZE])
{
	static const uint8_t page[PAGE] = { 1 };
	struct pages pages;
	struct layer layer;

	ck_assert_int_eq(pages_init(&pages, N_PAGES), 0);
	pages_add(&pages, (struct page_run) { .first = 5, .n = 2 });
	pages_add(&pages, (struct page_run) { .first = N_PAGES - 4, .n = 4 });
	ck_assert_int_eq(layer_make(&layer, &pages, some_page, page), 0);
	ck_assert_int_eq(fd_pread_all(layer.fd, bytes, LAYER_SIZE, 0), 0);
	ck_assert_uint_eq(layer_offset(&layer, 1), PAGE + 2 * PAGE);
	layer_deinit(&layer);
	pages_deinit(&pages);
}

static enum fail_code read_layer(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("layer", MFD_CLOEXEC);
	struct err err = ERR_NULL;
	struct layer layer;

	ck_assert_int_eq(fd_pwrite_all(fd, bytes, size, 0), 0);
	if (layer_read(&layer, fd, (uint64_t) MIB << 20, &err) == 0) {
		layer_deinit(&layer);
		return FAIL_NONE;
	}
	ck_assert_int_eq(layer.fd, -1);
	return err.code;
}

START_TEST(a_damaged_layer_is_refused)
{
	static uint8_t good[LAYER_SIZE], bad[LAYER_SIZE + 1];
	const size_t table = LAYER_SIZE - 2 * sizeof(struct page_run);

	make_layer(good);
	ck_assert_int_eq(read_layer(good, LAYER_SIZE), FAIL_NONE);
	memcpy(bad, good, LAYER_SIZE);
	for (size_t cut = 0; cut < LAYER_SIZE; cut += cut < 50 || cut >= table ? 1 : 512)
		ck_assert_msg(read_layer(good, cut) == FAIL_SNAPSHOT_INVALID, "cut at %zu", cut);
	ck_assert_int_eq(read_layer(bad, LAYER_SIZE + 1), FAIL_SNAPSHOT_INVALID);
	for (size_t at = 0; at < LAYER_SIZE; at = at == HEADER_SIZE - 1 ? table : at + 1) { /* header, table */
		for (int bit = 0; bit < 8; bit++) {
			enum fail_code wanted = at >= 8 && at < 12 ? FAIL_SNAPSHOT_VERSION : FAIL_SNAPSHOT_INVALID;

			bad[at] ^= (uint8_t) (1u << bit);
			ck_assert_msg(read_layer(bad, LAYER_SIZE) == wanted, "bit %d of byte %zu", bit, at);
			bad[at] = good[at];
		}
	}
}
END_TEST

static const struct page_run tables[][2] = {
	{ { 5, 2 }, { 6, 4 } },                     /* one over the other */
	{ { 5, 2 }, { 4, 4 } },                     /* backwards */
	{ { 5, 2 }, { 5, 4 } },
	{ { 5, 0 }, { 10, 6 } },                    /* none */
	{ { 5, 2 }, { N_PAGES - 3, 4 } },           /* behind the end */
	{ { 5, 2 }, { N_PAGES, 4 } },
	{ { 5, 2 }, { UINT64_MAX, 4 } },
	{ { 5, 2 }, { 10, UINT64_MAX - 1 } },       /* with a sum that wraps */
	{ { 5, UINT64_MAX }, { 10, 7 } },
	{ { UINT64_MAX - 1, 4 }, { 10, 2 } },
	{ { 5, 2 }, { 10, 3 } },                    /* fewer than the header says */
};

/* With their sums. */
START_TEST(a_table_that_makes_no_sense_is_refused)
{
	static uint8_t bytes[LAYER_SIZE];
	uint32_t sum;

	make_layer(bytes);
	memcpy(bytes + LAYER_SIZE - sizeof(tables[0]), tables[_i], sizeof(tables[0]));
	sum = (uint32_t) crc32_z(0, bytes + 16, HEADER_SIZE - 16);
	sum = (uint32_t) crc32_z(sum, bytes + LAYER_SIZE - sizeof(tables[0]), sizeof(tables[0]));
	memcpy(bytes + 12, &sum, sizeof(sum));
	ck_assert_int_eq(read_layer(bytes, LAYER_SIZE), FAIL_SNAPSHOT_INVALID);
}
END_TEST

/* A VM that was taken over must not change what its children began from. */
static int copy_of(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	ck_assert_int_ge(copy, 0);
	return copy;
}

static int full_snapshot(const struct vm *vm, uint8_t id)
{
	const uint8_t ids[LAYER_ID] = { id };
	struct pages content;
	int fd = memfd_create("full", MFD_CLOEXEC);
	uint64_t at = 0;

	ck_assert_int_eq(memory_content(&vm->memory, &content), 0);
	ck_assert_int_eq(ftruncate(fd, (off_t) vm->memory.size), 0);
	while (at < vm->memory.size)
		ck_assert_int_eq(memory_copy_out(&vm->memory, &content, fd, &at, 5 * PAGE), 0);
	ck_assert_int_eq(memory_write_id(&vm->memory, fd, ids), 0);
	pages_deinit(&content);
	return fd;
}

static int diff_snapshot(const struct vm *vm, uint8_t id, uint64_t *ret_pages)
{
	struct pages changes;
	struct layer_writer writer = { .fd = memfd_create("diff", MFD_CLOEXEC), .pages = &changes, .page_at = memory_page,
		.data = &vm->memory, .id = { id } };
	int r;

	ck_assert_int_eq(memory_changes(&vm->memory, &changes), 0);
	(void) pages_count(&changes, ret_pages);
	memcpy(writer.base, vm->memory.id, LAYER_ID);
	while ((r = layer_write(&writer, 3 * PAGE)) > 0)
		continue;
	ck_assert_int_eq(r, 0);
	pages_deinit(&changes);
	return writer.fd;
}

/* As what `of` holds: the full one and n over it. -1: refused. */
static int restore(struct vm *vm, const struct vm *of, int full, const int *diffs, unsigned int n, struct err *reterr)
{
	int fds[MEMORY_LAYERS_MAX];

	for (unsigned int i = 0; i < n; i++)
		fds[i] = copy_of(diffs[i]);
	ck_assert_int_eq(memory_restore(&vm->memory, MIB, copy_of(full), reterr), 0);
	vm->memory.pagemap_fd = pagemap;
	vm->wanted = malloc((size_t) MIB << 20);
	ck_assert_ptr_nonnull(vm->wanted);
	memcpy(vm->wanted, of->wanted, (size_t) MIB << 20);
	return memory_add_layers(&vm->memory, fds, n, true, reterr);
}

/* Each holds what was written since the one before, in at most 1.05 times the bytes; a chain of eight is put together again, with
 * forks in between; one that is missing, of another chain or in another place is refused. */
START_TEST(differential_snapshots)
{
	struct vm vm, next;
	struct err err = ERR_NULL;
	int full, other, diffs[MEMORY_LAYERS_MAX];
	struct pages changes;
	struct stat st;
	uint64_t n;

	begin(&vm);
	write_some(&vm, 500);
	ck_assert_int_eq(memory_changes(&vm.memory, &changes), -ENOENT); /* from nothing */
	full = full_snapshot(&vm, 1);
	other = full_snapshot(&vm, 100);
	for (unsigned int i = 0; i < MEMORY_LAYERS_MAX; i++) {
		ck_assert_msg(restore(&next, &vm, full, diffs, i, &err) == 0, "%s", err.msg);
		check(&next, "the restored VM", i);
		end(&vm);
		vm = next;
		write_some(&vm, 100);
		if (i % 2 == 1) { /* what changed lies in a layer already */
			freeze(&vm);
			write_some(&vm, 20);
		}
		diffs[i] = diff_snapshot(&vm, (uint8_t) (i + 2), &n);
		ck_assert_uint_gt(n, 50);
		ck_assert_uint_lt(n, 500);
		ck_assert_int_eq(fstat(diffs[i], &st), 0);
		ck_assert_uint_le((uint64_t) st.st_size, n * PAGE * 105 / 100);
	}
	ck_assert_int_eq(restore(&next, &vm, full, diffs, MEMORY_LAYERS_MAX, &err), 0);
	check(&next, "the last", 0);
	ck_assert_int_eq(memory_changes(&next.memory, &changes), -ENOENT); /* no room for a ninth */
	end(&next);
	ck_assert_int_lt(restore(&next, &vm, other, diffs, 1, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_INVALID);
	end(&next);
	ck_assert_int_lt(restore(&next, &vm, full, diffs + 1, 1, &err), 0);
	end(&next);
	ck_assert_int_lt(restore(&next, &vm, full, (const int[]) { diffs[1], diffs[0] }, 2, &err), 0);
	end(&next);
	ck_assert_int_eq(ftruncate(full, (off_t) MIB << 20), 0); /* one without an id */
	ck_assert_int_lt(restore(&next, &vm, full, diffs, 1, &err), 0);
	end(&next);
	end(&vm);
	for (int i = 0; i < MEMORY_LAYERS_MAX; i++)
		(void) close(diffs[i]);
	(void) close(full);
	(void) close(other);
}
END_TEST

/* One of a VM that wrote nothing, and one that was broken off. */
START_TEST(differential_snapshots_without_pages)
{
	struct vm vm, next;
	struct err err = ERR_NULL;
	struct pages changes;
	struct layer_writer writer = { .page_at = memory_page };
	uint64_t n;
	int full, diff;

	begin(&vm);
	write_some(&vm, 50);
	full = full_snapshot(&vm, 1);
	ck_assert_int_eq(restore(&next, &vm, full, NULL, 0, &err), 0);
	diff = diff_snapshot(&next, 2, &n);
	ck_assert_uint_eq(n, 0);
	end(&next);
	ck_assert_msg(restore(&next, &vm, full, &diff, 1, &err) == 0, "%s", err.msg);
	write_some(&next, 20);
	ck_assert_int_eq(memory_changes(&next.memory, &changes), 0);
	writer.fd = memfd_create("broken off", MFD_CLOEXEC);
	writer.pages = &changes;
	writer.data = &next.memory;
	ck_assert_int_eq(layer_write(&writer, PAGE), 1);
	pages_deinit(&changes);
	end(&next);
	ck_assert_int_lt(restore(&next, &vm, full, &writer.fd, 1, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_INVALID);
	end(&next);
	end(&vm);
	(void) close(full);
	(void) close(diff);
	(void) close(writer.fd);
}
END_TEST

START_TEST(what_could_still_be_changed_is_refused)
{
	char path[] = "/dev/shm/croft-test-fork.XXXXXX";
	int plain = memfd_create("x", MFD_CLOEXEC), partly = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING),
	    file = mkstemp(path), read_only;
	struct err err = ERR_NULL;

	ck_assert_int_eq(fcntl(partly, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE), 0);
	ck_assert_int_lt(layer_check_frozen(plain, "x", &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_INVALID);
	ck_assert_int_lt(layer_check_frozen(partly, "x", &err), 0);
	ck_assert_int_lt(layer_check_frozen(file, "x", &err), 0);
	read_only = open(path, O_RDONLY | O_CLOEXEC); /* as of a snapshot that it was restored from */
	ck_assert_int_eq(layer_check_frozen(read_only, "x", &err), 0);
	(void) close(read_only);
	ck_assert_int_eq(memfd_seal(partly), 0);
	ck_assert_int_eq(layer_check_frozen(partly, "x", &err), 0);
	(void) close(plain);
	(void) close(partly);
	(void) close(file);
	(void) unlink(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vmm-fork");
	TCase *tcase = tcase_create("all");

	seed = getenv("CROFT_SEED") ? (unsigned int) strtoul(getenv("CROFT_SEED"), NULL, 10) : (unsigned int) getpid();
	(void) printf("seed %u\n", seed);
	tcase_set_timeout(tcase, 300);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_loop_test(tcase, pages_are_those_of_a_model, 0, 50);
	tcase_add_test(tcase, the_first_fork_copies_nothing);
	tcase_add_test(tcase, a_later_fork_copies_what_was_written);
	tcase_add_test(tcase, forks_of_forks);
	tcase_add_test(tcase, a_page_here_and_a_page_there);
	tcase_add_test(tcase, layers_hold_no_more_than_memory_twice);
	tcase_add_test(tcase, the_gap);
	tcase_add_test(tcase, content_of_all_layers);
	tcase_add_loop_test(tcase, a_first_fork_that_fails_changes_nothing, 0, 2);
	tcase_add_loop_test(tcase, a_later_fork_that_fails_changes_nothing, 0, 2);
	tcase_add_loop_test(tcase, memory_that_is_mapped_nowhere_is_told, 0, 2);
	tcase_add_test(tcase, without_pagemap_only_the_first);
	tcase_add_test(tcase, a_damaged_layer_is_refused);
	tcase_add_loop_test(tcase, a_table_that_makes_no_sense_is_refused, 0, ARRAY_LEN(tables));
	tcase_add_test(tcase, differential_snapshots);
	tcase_add_test(tcase, differential_snapshots_without_pages);
	tcase_add_test(tcase, what_could_still_be_changed_is_refused);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
