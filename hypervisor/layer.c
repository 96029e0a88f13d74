/* SPDX-License-Identifier: Apache-2.0
 *
 * See layer.h.
 */
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fd.h"

#define FORMAT 1u
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static const char magic[8] = "croftly";

struct header {
	char magic[8];
	uint32_t format, sum;
	uint64_t memory_size, n_runs, n_pages;
};

static uint32_t sum_of(const struct page_run *runs, uint64_t n)
{
	return (uint32_t) crc32_z(0, (const uint8_t *) runs, n * sizeof(runs[0]));
}

uint64_t layer_offset(const struct layer *layer, uint32_t i)
{
	uint64_t offset = PAGES_SIZE;

	for (uint32_t run = 0; run < i; run++)
		offset += layer->runs[run].n * PAGES_SIZE;
	return offset;
}

void layer_deinit(struct layer *layer)
{
	layer->fd = fd_close(layer->fd);
	free(layer->runs);
	*layer = (struct layer) LAYER_NULL;
}

int memfd_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}

int layer_check_frozen(int fd, const char *what, struct err *reterr)
{
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);

	if ((seals >= 0 && (seals & SEALS) == SEALS) || (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY))
		return 0;
	return err_set(reterr, FAIL_SNAPSHOT_INVALID, EPERM, "%s of the VM that was forked could still be changed", what);
}

/* ---- out ---- */

static int write_pages(struct layer *layer, const void *(*page_at)(const void *, uint64_t), const void *data)
{
	uint64_t offset = PAGES_SIZE;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < layer->n_runs; i++) {
		struct page_run run = layer->runs[i];

		/* page by page where neighbours in the file are none in the address space */
		for (uint64_t page = run.first, n; r == 0 && page < run.first + run.n; page += n, offset += n * PAGES_SIZE) {
			const uint8_t *from = page_at(data, page);

			for (n = 1; page + n < run.first + run.n && page_at(data, page + n) == from + n * PAGES_SIZE;)
				n++;
			r = fd_pwrite_all(layer->fd, from, n * PAGES_SIZE, (off_t) offset);
		}
	}
	return r < 0 ? r : fd_pwrite_all(layer->fd, layer->runs, layer->n_runs * sizeof(layer->runs[0]), (off_t) offset);
}

static int write_all(struct layer *layer, const struct pages *pages, const void *(*page_at)(const void *, uint64_t),
	const void *data)
{
	struct header header = { .format = FORMAT, .memory_size = pages->n * PAGES_SIZE };
	struct page_run run = { 0 };
	int r;

	header.n_runs = pages_count(pages, &header.n_pages);
	if (header.n_runs > LAYER_RUNS_MAX)
		return -E2BIG;
	layer->runs = calloc(header.n_runs + 1, sizeof(layer->runs[0]));
	if (!layer->runs)
		return -ENOMEM;
	while (pages_next(pages, run.first + run.n, &run))
		layer->runs[layer->n_runs++] = run;
	memcpy(header.magic, magic, sizeof(magic));
	header.sum = sum_of(layer->runs, layer->n_runs);
	layer->fd = memfd_create("croft-layer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (layer->fd < 0)
		return -errno;
	r = fd_pwrite_all(layer->fd, &header, sizeof(header), 0);
	if (r == 0)
		r = write_pages(layer, page_at, data);
	return r < 0 ? r : memfd_seal(layer->fd);
}

int layer_make(struct layer *layer, const struct pages *pages, const void *(*page_at)(const void *data, uint64_t page),
	const void *data)
{
	int r;

	*layer = (struct layer) LAYER_NULL;
	r = write_all(layer, pages, page_at, data);
	if (r < 0)
		layer_deinit(layer);
	return r;
}

/* ---- in ---- */

static int invalid(struct err *reterr, const char *why)
{
	return err_set(reterr, FAIL_SNAPSHOT_INVALID, EIO, "a layer of the memory %s", why);
}

/* Ascending, apart, inside of memory, and as many pages as the header says. */
static bool is_valid(const struct layer *layer, const struct header *header)
{
	uint64_t end = 0, n = 0, all = header->memory_size / PAGES_SIZE;

	for (uint32_t i = 0; i < layer->n_runs; i++) {
		struct page_run run = layer->runs[i];

		if (run.n == 0 || run.first < end || run.first >= all || run.n > all - run.first)
			return false;
		end = run.first + run.n;
		n += run.n;
	}
	return n == header->n_pages;
}

static int check_header(int fd, uint64_t memory_size, struct header *ret, struct err *reterr)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return invalid(reterr, "is no regular file");
	if (fd_pread_all(fd, ret, sizeof(*ret), 0) < 0)
		return invalid(reterr, "ends in its header");
	if (memcmp(ret->magic, magic, sizeof(magic)) != 0)
		return invalid(reterr, "is none of croft-vmm");
	if (ret->format != FORMAT) {
		(void) err_set(reterr, FAIL_SNAPSHOT_VERSION, EPROTONOSUPPORT, "a layer of the memory has format %u, not %u",
			ret->format, FORMAT);
		err_add(reterr, "have", "%u", ret->format);
		err_add(reterr, "need", "%u", FORMAT);
		return -EPROTONOSUPPORT;
	}
	if (ret->memory_size != memory_size)
		return invalid(reterr, "is of a VM with other memory");
	if (ret->n_runs > LAYER_RUNS_MAX || ret->n_pages > memory_size / PAGES_SIZE)
		return invalid(reterr, "has more than any can have");
	if ((uint64_t) st.st_size != PAGES_SIZE + ret->n_pages * PAGES_SIZE + ret->n_runs * sizeof(struct page_run))
		return invalid(reterr, "does not have the size that it says");
	return 0;
}

int layer_read(struct layer *layer, int fd, uint64_t memory_size, struct err *reterr)
{
	struct header header;
	int r;

	*layer = (struct layer) { .fd = fd };
	r = check_header(fd, memory_size, &header, reterr);
	if (r < 0)
		goto out;
	layer->n_runs = (uint32_t) header.n_runs;
	layer->runs = calloc(header.n_runs + 1, sizeof(layer->runs[0]));
	if (!layer->runs) {
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a layer's table");
		goto out;
	}
	if (fd_pread_all(fd, layer->runs, header.n_runs * sizeof(layer->runs[0]),
		    (off_t) (PAGES_SIZE + header.n_pages * PAGES_SIZE)) < 0)
		r = invalid(reterr, "cannot be read");
	else if (sum_of(layer->runs, layer->n_runs) != header.sum)
		r = invalid(reterr, "does not have its checksum");
	else if (!is_valid(layer, &header))
		r = invalid(reterr, "has a table that makes no sense");
out:
	if (r < 0)
		layer_deinit(layer);
	return r;
}
