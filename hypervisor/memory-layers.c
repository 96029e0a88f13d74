/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory as files under pages of its own: see memory.h. Putting a layer over pages that hold the same bytes changes nothing
 * for the guest, so that it may be done in part; which pages are the VM's own says the kernel (pagemap), which knows of
 * writes by vCPUs and by devices alike.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "memory-private.h"

#define PAGEMAP_CHUNK 4096 /* entries */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_SWAPPED (UINT64_C(1) << 62)
#define PAGEMAP_FILE (UINT64_C(1) << 61) /* or shared: of a page that is private it is clear */

/* ---- which pages ---- */

static int add_private_of(const struct memory *memory, const struct memory_region *region, uint64_t *entries,
	struct pages *pages)
{
	uint64_t first = ((uintptr_t) memory->base + region->gpa) / PAGES_SIZE, all = region->size / PAGES_SIZE;

	for (uint64_t at = 0, n; at < all; at += n) {
		int r;

		n = MIN(all - at, (uint64_t) PAGEMAP_CHUNK);
		r = fd_pread_all(memory->pagemap_fd, entries, n * sizeof(*entries), (off_t) ((first + at) * sizeof(*entries)));
		if (r < 0)
			return r;
		for (uint64_t i = 0; i < n; i++)
			if ((entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) && !(entries[i] & PAGEMAP_FILE))
				pages_add(pages, (struct page_run) { .first = region->offset / PAGES_SIZE + at + i, .n = 1 });
	}
	return 0;
}

/* Adds those that this VM wrote since the last layer. */
static int add_private(const struct memory *memory, struct pages *pages)
{
	CLEANUP_FREE uint64_t *entries = malloc(PAGEMAP_CHUNK * sizeof(*entries));
	int r = entries ? 0 : -ENOMEM;

	for (unsigned int i = 0; r == 0 && i < memory->n_regions; i++)
		r = add_private_of(memory, &memory->regions[i], entries, pages);
	return r;
}

/* Adds those of the layers from `first` on. */
static void add_layers(const struct memory *memory, unsigned int first, struct pages *pages)
{
	for (unsigned int i = first; i < memory->n_layers; i++)
		for (uint32_t run = 0; run < memory->layers[i].n_runs; run++)
			pages_add(pages, memory->layers[i].runs[run]);
}

/* Where the file has no holes. */
static int add_file(const struct memory *memory, struct pages *pages)
{
	uint64_t at = 0;

	while (at < memory->size) {
		off_t data = lseek(memory->fd, (off_t) at, SEEK_DATA), hole;

		if (data < 0)
			return errno == ENXIO ? 0 : -errno; /* nothing more */
		hole = lseek(memory->fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		at = (uint64_t) hole;
		pages_add(pages, (struct page_run) { .first = (uint64_t) data / PAGES_SIZE,
			.n = (at + PAGES_SIZE - 1) / PAGES_SIZE - (uint64_t) data / PAGES_SIZE });
	}
	return 0;
}

int memory_content(const struct memory *memory, struct pages *ret)
{
	const struct page_run all = { .n = memory->size / PAGES_SIZE };
	int r = pages_init(ret, all.n);

	if (r < 0)
		return r;
	if (add_file(memory, ret) < 0) {
		pages_add(ret, all); /* a file system that knows no holes */
		return 0;
	}
	add_layers(memory, 0, ret);
	if (memory->is_private && add_private(memory, ret) < 0)
		pages_add(ret, all); /* nobody says which pages are ours */
	return 0;
}

static uint64_t count_runs(const struct memory *memory, unsigned int n_layers)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < n_layers; i++)
		n += memory->layers[i].n_runs;
	return n;
}

/* Of the layers that forks made: they are memory. */
static uint64_t count_layer_pages(const struct memory *memory)
{
	uint64_t n = 0;

	for (unsigned int i = memory->n_base; i < memory->n_layers; i++)
		for (uint32_t run = 0; run < memory->layers[i].n_runs; run++)
			n += memory->layers[i].runs[run].n;
	return n;
}

int memory_changes(const struct memory *memory, struct pages *ret)
{
	uint64_t below = count_runs(memory, memory->n_base), n;
	int r;

	if (!memory->has_id || memory->n_base == MEMORY_LAYERS_MAX || below > LAYER_RUNS_MAX / 2)
		return -ENOENT;
	r = pages_init(ret, memory->size / PAGES_SIZE);
	if (r < 0)
		return r;
	r = memory->pagemap_fd < 0 ? -ENOENT : add_private(memory, ret);
	if (r < 0) {
		pages_deinit(ret);
		return r;
	}
	add_layers(memory, memory->n_base, ret);
	if (pages_count(ret, &n) > LAYER_RUNS_MAX - below)
		pages_merge(ret, LAYER_RUNS_MAX - below);
	return 0;
}

/* ---- mapping ---- */

/* Pages of the run that lie one behind the other in the address space. */
static uint64_t pages_together(const struct memory *memory, struct page_run run)
{
	const struct memory_region *region = memory_region_at(memory, run.first * PAGES_SIZE);

	return MIN(run.n, (region->offset + region->size) / PAGES_SIZE - run.first);
}

static int map_layer(const struct memory *memory, const struct layer *layer)
{
	uint64_t offset = PAGES_SIZE;

	for (uint32_t i = 0; i < layer->n_runs; i++) {
		struct page_run left = layer->runs[i];

		while (left.n > 0) {
			uint64_t n = pages_together(memory, left);
			void *at = mmap(memory_address(memory, left.first * PAGES_SIZE), n * PAGES_SIZE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, layer->fd, (off_t) offset);

			if (at == MAP_FAILED)
				return -errno;
			left.first += n;
			left.n -= n;
			offset += n * PAGES_SIZE;
		}
	}
	return 0;
}

/* False: some of it is mapped nowhere. The kernel says so, and means nothing else by ENOMEM. */
static bool keep_out_of_dumps(const struct memory *memory)
{
	bool is_whole = true;

	for (unsigned int i = 0; i < memory->n_regions; i++)
		if (madvise(memory->base + memory->regions[i].gpa, memory->regions[i].size, MADV_DONTDUMP) < 0 && errno == ENOMEM)
			is_whole = false;
	return is_whole;
}

/* A differential snapshot lies over what it was made over, and nothing else. */
static int check_base(struct memory *memory, const struct layer *layer, struct err *reterr)
{
	if (!memory->has_id || memcmp(layer->base, memory->id, LAYER_ID) != 0)
		return err_set(reterr, FAIL_SNAPSHOT_INVALID, ESTALE,
			"the differential snapshot was made over another snapshot than what it is given with");
	memcpy(memory->id, layer->id, LAYER_ID);
	memory->n_base++;
	return 0;
}

int memory_add_layers(struct memory *memory, int *fds, unsigned int n, bool is_chain, struct err *reterr)
{
	uint64_t runs = 0;
	int r;

	if (!is_chain)
		memory->has_id = false; /* what a fork makes stands on no disk */
	for (unsigned int i = 0; i < n; i++) {
		struct layer *layer = &memory->layers[memory->n_layers];

		r = layer_read(layer, TAKE_FD(fds[i]), memory->size, reterr);
		if (r < 0)
			return r;
		memory->n_layers++;
		runs += layer->n_runs;
		if (runs > LAYER_RUNS_MAX)
			return err_set(reterr, FAIL_SNAPSHOT_INVALID, E2BIG, "the layers of the memory have more than %u runs",
				LAYER_RUNS_MAX);
		r = is_chain ? check_base(memory, layer, reterr) : 0;
		if (r < 0)
			return r;
		r = map_layer(memory, layer);
		if (r < 0)
			return err_set(reterr, FAIL_HOST_LIMIT, -r, "cannot map a layer of the guest's memory");
	}
	if (n > 0)
		(void) keep_out_of_dumps(memory);
	return 0;
}

/* ---- freezing ---- */

static int fail(struct err *reterr, const char *what, int r)
{
	(void) err_set(reterr, r == -ENOTRECOVERABLE ? FAIL_HOST_MEMORY_FAULT : FAIL_FORK_FAILED, -r, "%s", what);
	return r;
}

/* The first regions back as they were: no vCPU ran meanwhile, so nothing is lost. */
static int map_shared_again(struct memory *memory, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (memory_map_region(memory, &memory->regions[i], false) < 0)
			return -ENOTRECOVERABLE;
	return 0;
}

static int seal_file(struct memory *memory, struct err *reterr)
{
	int r = 0, back;

	for (unsigned int i = 0; i < memory->n_regions; i++) {
		r = memory_map_region(memory, &memory->regions[i], true);
		if (r < 0) {
			back = map_shared_again(memory, i + 1); /* a mapping that fails may leave nothing in its place */
			return fail(reterr, "the guest's memory cannot be mapped anew", back < 0 ? back : r);
		}
	}
	r = memfd_seal(memory->fd);
	if (r < 0) {
		back = map_shared_again(memory, memory->n_regions);
		return fail(reterr, "the guest's memory cannot be sealed", back < 0 ? back : r);
	}
	memory->is_private = true;
	return 0;
}

/* What it is mapped over has the same bytes: where the kernel refuses and leaves that, the pages stay the VM's own and are in the
 * next layer too. Where it leaves nothing, it is asked once more. */
static int map_frozen(const struct memory *memory, const struct layer *layer)
{
	for (int tries = 0; tries < 2; tries++) {
		(void) map_layer(memory, layer);
		if (keep_out_of_dumps(memory))
			return 0;
	}
	return -ENOTRECOVERABLE;
}

const void *memory_page(const void *memory, uint64_t page)
{
	return memory_address(memory, page * PAGES_SIZE);
}

int memory_freeze(struct memory *memory, struct err *reterr)
{
	CLEANUP(pages_deinit) struct pages pages = PAGES_NULL;
	struct layer layer;
	uint64_t runs, n;
	bool is_last;
	int r;

	memory->copied_pages = 0;
	if (!memory->is_private)
		return seal_file(memory, reterr);
	if (memory->pagemap_fd < 0)
		return err_set(reterr, FAIL_FORK_UNSUPPORTED, ENOTSUP,
			"nothing says which pages the guest wrote: the jail could not open pagemap");
	r = pages_init(&pages, memory->size / PAGES_SIZE);
	if (r == 0)
		r = add_private(memory, &pages);
	if (r < 0)
		return fail(reterr, "the pages that the guest wrote cannot be found", r);
	runs = pages_count(&pages, &n);
	if (runs == 0)
		return 0;
	is_last = memory->n_layers == MEMORY_LAYERS_MAX || count_runs(memory, memory->n_layers) + runs > MEMORY_RUNS_MAX ||
		count_layer_pages(memory) + n > MEMORY_LAYERS_TIMES * (memory->size / PAGES_SIZE);
	if (is_last) {
		add_layers(memory, 0, &pages);
		pages_merge(&pages, MEMORY_RUNS_MAX / 2); /* room for the forks that follow */
	}
	r = layer_make(&layer, &pages, memory_page, memory);
	if (r < 0)
		return fail(reterr, "the pages that the guest wrote cannot be copied", r);
	r = map_frozen(memory, &layer);
	(void) pages_count(&pages, &memory->copied_pages);
	for (; is_last && memory->n_layers > 0; memory->n_layers--)
		layer_deinit(&memory->layers[memory->n_layers - 1]);
	if (is_last && memory->n_base > 0)
		memory->has_id = false; /* the base's layers are in it: what changed since cannot be told apart */
	memory->layers[memory->n_layers++] = layer;
	return r < 0 ? fail(reterr, "a part of the guest's memory is mapped no more", r) : 0;
}
