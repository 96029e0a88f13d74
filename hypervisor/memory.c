/* SPDX-License-Identifier: Apache-2.0
 *
 * See memory.h.
 */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/plant.h"
#include "memory-private.h"

#define HUGE_PAGE (UINT64_C(2) << 20)
#define PAGE UINT64_C(4096)

int memory_layout(uint64_t mib, struct memory_region ret[static 2], unsigned int *ret_n, struct err *reterr)
{
	uint64_t size, low;

	/* before the multiplication: 2^44 MiB would wrap to 0 */
	if (mib < MEMORY_MIB_MIN || mib > MEMORY_MIB_MAX) {
		(void) err_set(reterr, FAIL_MEMORY_INVALID, EINVAL, "a VM has %llu to %llu MiB of memory, not %llu",
			(unsigned long long) MEMORY_MIB_MIN, (unsigned long long) MEMORY_MIB_MAX,
			(unsigned long long) mib);
		err_add(reterr, "asked", "%llu", (unsigned long long) mib);
		err_add(reterr, "min", "%llu", (unsigned long long) MEMORY_MIB_MIN);
		err_add(reterr, "max", "%llu", (unsigned long long) MEMORY_MIB_MAX);
		return -EINVAL;
	}
	size = mib << 20;
	low = MIN(size, MEMORY_GAP_START);
	ret[0] = (struct memory_region) { .gpa = 0, .size = low, .offset = 0 };
	ret[1] = (struct memory_region) { .gpa = MEMORY_GAP_END, .size = size - low, .offset = low };
	*ret_n = size > low ? 2 : 1;
	return 0;
}

/* Room for `span` bytes at an address that is 0 modulo 2 MiB. */
static uint8_t *reserve(uint64_t span)
{
	uint8_t *all = mmap(NULL, span + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t head;

	if (all == MAP_FAILED)
		return NULL;
	head = (HUGE_PAGE - ((uintptr_t) all & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
	if (head > 0)
		(void) munmap(all, head);
	(void) munmap(all + head + span, HUGE_PAGE - head);
	return all + head;
}

int memory_map_region(const struct memory *memory, const struct memory_region *region, bool is_private)
{
	void *at = mmap(memory->base + region->gpa, region->size, PROT_READ | PROT_WRITE,
		(is_private ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED) | MAP_FIXED, memory->fd, (off_t) region->offset);

	if (at == MAP_FAILED)
		return -errno;
	/* huge pages only where the host allows them for shmem; a dump never holds a guest's memory */
	(void) madvise(at, region->size, MADV_HUGEPAGE);
	(void) madvise(at, region->size, MADV_DONTDUMP);
	return 0;
}

static int map_regions(struct memory *memory)
{
	int r = 0;

	for (unsigned int i = 0; r == 0 && i < memory->n_regions; i++)
		r = memory_map_region(memory, &memory->regions[i], memory->is_private);
	return r;
}

static int lay_out(struct memory *memory, uint64_t mib, struct err *reterr)
{
	const struct memory_region *last;
	int r;

	*memory = (struct memory) MEMORY_NULL;
	r = memory_layout(mib, memory->regions, &memory->n_regions, reterr);
	if (r < 0)
		return r;
	memory->size = mib << 20;
	last = &memory->regions[memory->n_regions - 1];
	memory->span = last->gpa + last->size;
	return 0;
}

int memory_reserve(struct memory *memory, uint64_t mib, struct err *reterr)
{
	int r = lay_out(memory, mib, reterr);

	if (r < 0)
		return r;
	memory->base = reserve(memory->span);
	if (!memory->base)
		return err_set(reterr, FAIL_HOST_LIMIT, errno, "no address space for %llu MiB of guest memory",
			(unsigned long long) mib);
	return 0;
}

/* Puts memory->fd in its place. */
static int map_all(struct memory *memory, struct err *reterr)
{
	int r = map_regions(memory);

	if (r < 0)
		return err_set(reterr, FAIL_HOST_LIMIT, -r, "cannot map %llu MiB of guest memory",
			(unsigned long long) (memory->size >> 20));
	return 0;
}

int memory_fill(struct memory *memory, struct err *reterr)
{
	memory->fd = memfd_create("croft-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory->fd < 0 || ftruncate(memory->fd, (off_t) memory->size) < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "no memory file for the guest");
	return map_all(memory, reterr);
}

static const char id_magic[16] = "croft memory id";

int memory_write_id(const struct memory *memory, int fd, const uint8_t id[static LAYER_ID])
{
	uint8_t page[PAGE] = { 0 };

	memcpy(page, id_magic, sizeof(id_magic));
	memcpy(page + sizeof(id_magic), id, LAYER_ID);
	return fd_pwrite_all(fd, page, sizeof(page), (off_t) memory->size);
}

static int read_id(struct memory *memory)
{
	uint8_t found[sizeof(id_magic) + LAYER_ID];
	int r = fd_pread_all(memory->fd, found, sizeof(found), (off_t) memory->size);

	if (r < 0)
		return r;
	if (memcmp(found, id_magic, sizeof(id_magic)) != 0)
		return -EINVAL;
	memcpy(memory->id, found + sizeof(id_magic), LAYER_ID);
	memory->has_id = true;
	return 0;
}

int memory_fill_from(struct memory *memory, int fd, struct err *reterr)
{
	struct stat st;
	int r;

	memory->fd = fd;
	memory->is_private = true;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(reterr, FAIL_SNAPSHOT_INVALID, EINVAL, "the snapshot's memory is no regular file");
	if ((uint64_t) st.st_size == memory->size + PAGE) {
		r = read_id(memory);
		if (r < 0)
			return err_set(reterr, FAIL_SNAPSHOT_INVALID, -r, "what lies behind the snapshot's memory is no id");
	} else if ((uint64_t) st.st_size != memory->size) {
		(void) err_set(reterr, FAIL_SNAPSHOT_INVALID, EIO, "the snapshot's memory file has %lld bytes, not %llu",
			(long long) st.st_size, (unsigned long long) memory->size);
		err_add(reterr, "have", "%lld", (long long) st.st_size);
		err_add(reterr, "need", "%llu", (unsigned long long) memory->size);
		return -EIO;
	}
	return map_all(memory, reterr);
}

int memory_init(struct memory *memory, uint64_t mib, struct err *reterr)
{
	int r = memory_reserve(memory, mib, reterr);

	return r < 0 ? r : memory_fill(memory, reterr);
}

int memory_restore(struct memory *memory, uint64_t mib, int fd, struct err *reterr)
{
	int r = memory_reserve(memory, mib, reterr);

	if (r == 0)
		return memory_fill_from(memory, fd, reterr);
	(void) fd_close(fd);
	return r;
}

void memory_deinit(struct memory *memory)
{
	if (memory->base)
		(void) munmap(memory->base, memory->span);
	for (unsigned int i = 0; i < memory->n_layers; i++)
		layer_deinit(&memory->layers[i]);
	(void) fd_close(memory->fd);
	*memory = (struct memory) MEMORY_NULL;
}

/* The region that holds all of the `len` bytes at `gpa`. */
static const struct memory_region *find_region(const struct memory *memory, uint64_t gpa, uint64_t len)
{
	for (unsigned int i = 0; i < memory->n_regions; i++) {
		const struct memory_region *region = &memory->regions[i];

		if (gpa < region->gpa || gpa - region->gpa >= region->size)
			continue;
		return len <= region->size - (gpa - region->gpa) || PLANTED(MAP_LENGTH) ? region : NULL;
	}
	return NULL;
}

void *guest_map(const struct memory *memory, uint64_t gpa, uint64_t len)
{
	return find_region(memory, gpa, len) ? memory->base + gpa : NULL;
}

bool memory_offset(const struct memory *memory, uint64_t gpa, uint64_t len, uint64_t *ret_offset)
{
	const struct memory_region *region = find_region(memory, gpa, len);

	if (!region)
		return false;
	*ret_offset = region->offset + (gpa - region->gpa);
	return true;
}

const struct memory_region *memory_region_at(const struct memory *memory, uint64_t offset)
{
	return &memory->regions[memory->n_regions > 1 && offset >= memory->regions[1].offset];
}

uint8_t *memory_address(const struct memory *memory, uint64_t offset)
{
	const struct memory_region *region = memory_region_at(memory, offset);

	return memory->base + region->gpa + (offset - region->offset);
}

static bool is_zero(const uint8_t *page)
{
	return page[0] == 0 && !memcmp(page, page + 1, PAGE - 1);
}

int memory_copy_out(const struct memory *memory, const struct pages *content, int fd, uint64_t *offset, uint64_t max)
{
	const struct memory_region *region;
	struct page_run run;
	uint64_t at, end;
	int r = 0;

	if (!pages_next(content, *offset / PAGE, &run)) {
		*offset = memory->size;
		return 0;
	}
	at = run.first * PAGE;
	region = memory_region_at(memory, at);
	end = MIN(at + MIN(run.n * PAGE, MAX(max / PAGE, UINT64_C(1)) * PAGE), region->offset + region->size);
	while (r == 0 && at < end) {
		uint64_t from;

		while (at < end && is_zero(memory_address(memory, at)))
			at += PAGE;
		for (from = at; at < end && !is_zero(memory_address(memory, at));)
			at += PAGE;
		if (at > from)
			r = fd_pwrite_all(fd, memory_address(memory, from), at - from, (off_t) from);
	}
	*offset = end;
	return r;
}

/* MADV_DONTNEED would only drop our own mapping of a shared file. */
int memory_discard(const struct memory *memory, uint64_t offset, uint64_t len)
{
	while (memory->is_private && len > 0) { /* a piece in each region */
		const struct memory_region *region = memory_region_at(memory, offset);
		uint64_t n = MIN(len, region->offset + region->size - offset);

		if (madvise(memory_address(memory, offset), n, MADV_DONTNEED) < 0)
			return -errno;
		offset += n;
		len -= n;
	}
	if (memory->is_private)
		return 0;
	if (fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) offset, (off_t) len) < 0)
		return -errno;
	return 0;
}
