/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of guest memory as a VMM that its guest took over might write them: up to four, over a file of memory, with tables out
 * of the input and each number of the header right or not, or with bytes of the input alone. What is accepted lies where the
 * table says, the last one uppermost; what lies is refused.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <zlib.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "memory.h"

#define MIB 64u
#define PAGES (MIB << 8)
#define LAYERS_MAX 4u
#define RUNS_MAX 16u

/* As layer.h has it, written once more on purpose. */
struct header {
	char magic[8];
	uint32_t format, sum;
	uint64_t memory_size, n_runs, n_pages;
	uint8_t id[16], base[16];
};

enum lie {
	LIE_SUM = 1 << 0,
	LIE_SIZE = 1 << 1,
	LIE_PAGES = 1 << 2,
	LIE_MEMORY = 1 << 3,
	LIE_FORMAT = 1 << 4,
	LIE_MAGIC = 1 << 5,
	LIE_RUNS = 1 << 6,
	ALL_BYTES = 1 << 7 /* no header of ours */
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

/* Ascending runs inside of memory mostly, any 64 bits else. Returns how many pages they name. */
static uint64_t take_runs(struct script *script, struct page_run *runs, unsigned int n)
{
	uint64_t end = 0, n_pages = 0;

	for (unsigned int i = 0; i < n; i++) {
		uint8_t how = take8(script);

		if (how >= 0xf0) {
			runs[i].first = take(script, 8);
			runs[i].n = take(script, 8);
		} else {
			runs[i].first = how & 2 ? PAGES - (take8(script) & 0x1fu) : end + take(script, how & 1 ? 2 : 1);
			runs[i].n = take8(script) & 0x1f;
		}
		end = runs[i].first + runs[i].n;
		n_pages += runs[i].n;
	}
	return n_pages;
}

/* Some pages each, ascending, apart, inside of memory. */
static bool is_table(const struct page_run *runs, unsigned int n)
{
	uint64_t end = 0;

	for (unsigned int i = 0; i < n; end = runs[i].first + runs[i].n, i++)
		if (runs[i].n == 0 || runs[i].first < end || runs[i].n > PAGES || runs[i].first > PAGES - runs[i].n)
			return false;
	return true;
}

/* The first byte of each page: of which layer, and which of its pages. */
static uint8_t stamp(unsigned int layer, uint64_t page)
{
	return (uint8_t) (0x80u | layer << 5 | (page & 0x1fu));
}

static int write_layer(struct script *script, uint8_t lies, unsigned int layer, struct page_run *runs, unsigned int *ret_n)
{
	unsigned int n = *ret_n = take8(script) % (RUNS_MAX + 1);
	struct header header = { .magic = "croftly", .format = 1, .memory_size = (uint64_t) MIB << 20, .n_runs = n };
	int fd = memfd_create("fuzz-layer", MFD_CLOEXEC);
	uint64_t pages;

	CLAIM(fd >= 0);
	header.n_pages = take_runs(script, runs, n);
	pages = MIN(header.n_pages, UINT64_C(RUNS_MAX * 32)); /* more is refused: what is not there needs no bytes */
	header.format += lies & LIE_FORMAT ? 1 + take8(script) : 0;
	header.memory_size += lies & LIE_MEMORY ? 1 + take(script, 8) % UINT32_MAX : 0;
	header.n_pages += lies & LIE_PAGES ? 1 + take(script, 8) % UINT32_MAX : 0;
	header.n_runs += lies & LIE_RUNS ? 1 + take(script, 8) % UINT32_MAX : 0;
	if (lies & LIE_MAGIC)
		header.magic[take8(script) % 8] ^= 1;
	header.sum = (uint32_t) crc32_z(crc32_z(0, (const uint8_t *) &header.memory_size, 56), (const uint8_t *) runs, n * sizeof(runs[0]));
	header.sum ^= lies & LIE_SUM ? 1 + (uint32_t) take8(script) : 0;
	for (uint64_t page = 0; page < pages; page++) {
		uint8_t byte = stamp(layer, page);

		CLAIM(pwrite(fd, &byte, 1, (off_t) ((1 + page) * PAGES_SIZE)) == 1);
	}
	CLAIM(pwrite(fd, &header, sizeof(header), 0) == sizeof(header));
	CLAIM(ftruncate(fd, (off_t) ((1 + pages) * PAGES_SIZE)) == 0);
	CLAIM(pwrite(fd, runs, n * sizeof(runs[0]), (off_t) ((1 + pages) * PAGES_SIZE)) == (ssize_t) (n * sizeof(runs[0])));
	if (lies & LIE_SIZE)
		CLAIM(ftruncate(fd, (off_t) ((1 + pages) * PAGES_SIZE + n * sizeof(runs[0])) + 1 + take8(script)) == 0);
	return fd;
}

/* What memory holds with this layer over it. */
static void want(uint8_t *wanted, unsigned int layer, const struct page_run *runs, unsigned int n)
{
	uint64_t nth = 0;

	for (unsigned int i = 0; i < n && is_table(runs, n); i++)
		for (uint64_t page = 0; page < runs[i].n; page++)
			wanted[runs[i].first + page] = stamp(layer, nth++);
}

static void check(const struct memory *memory, const uint8_t *wanted)
{
	for (uint64_t page = 0; page < PAGES; page++)
		if (wanted[page])
			CLAIM(*(const uint8_t *) memory_page(memory, page) == wanted[page]);
	CLAIM(*(const uint8_t *) memory_page(memory, 0) == wanted[0]);
	CLAIM(*(const uint8_t *) memory_page(memory, PAGES - 1) == wanted[PAGES - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t wanted[PAGES];
	struct script script = { data, size };
	unsigned int n = take8(&script) % (LAYERS_MAX + 1);
	int fds[LAYERS_MAX], full = memfd_create("fuzz-memory", MFD_CLOEXEC), r;
	bool lied = false, is_any = false;
	struct memory memory;
	struct err err = ERR_NULL;

	CLAIM(full >= 0 && ftruncate(full, (off_t) MIB << 20) == 0);
	memset(wanted, 0, sizeof(wanted));
	for (unsigned int i = 0; i < n; i++) {
		uint8_t lies = take8(&script);
		struct page_run runs[RUNS_MAX];
		unsigned int n_runs;

		if (lies & ALL_BYTES) {
			fds[i] = file_of(script.at, script.left);
			is_any = true;
			continue;
		}
		fds[i] = write_layer(&script, lies, i, runs, &n_runs);
		lied |= lies != 0 || !is_table(runs, n_runs);
		want(wanted, i, runs, n_runs);
	}
	CLAIM(memory_restore(&memory, MIB, full, &err) == 0);
	r = memory_add_layers(&memory, fds, n, false, &err);
	CLAIM(is_any || (r == 0) == !lied);
	if (r == 0) {
		CLAIM(!lied);
		if (!is_any)
			check(&memory, wanted);
	} else {
		CLAIM(err.code == FAIL_SNAPSHOT_INVALID || err.code == FAIL_SNAPSHOT_VERSION);
		for (unsigned int i = 0; i < n; i++)
			(void) fd_close(fds[i]); /* behind the one that was refused */
	}
	memory_deinit(&memory);
	return 0;
}
