/* SPDX-License-Identifier: Apache-2.0
 *
 * See layer.h.
 */
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
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
	uint8_t id[LAYER_ID], base[LAYER_ID];
};

/* Of what follows the sum, and the table. */
static uint32_t sum_of(const struct header *header, const struct page_run *runs)
{
	const uint8_t *from = (const uint8_t *) &header->memory_size;
	uint32_t sum = (uint32_t) crc32_z(0, from, sizeof(*header) - offsetof(struct header, memory_size));

	return (uint32_t) crc32_z(sum, (const uint8_t *) runs, header->n_runs * sizeof(runs[0]));
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

/* The runs of `pages`, which the caller frees; NULL without memory. */
static struct page_run *list_runs(const struct pages *pages, uint64_t n)
{
	struct page_run *runs = calloc(n + 1, sizeof(*runs)), run = { 0 };

	for (uint64_t i = 0; runs && i < n && pages_next(pages, run.first + run.n, &run); i++)
		runs[i] = run;
	return runs;
}

static int write_ends(const struct layer_writer *writer)
{
	struct header header = { .format = FORMAT, .memory_size = writer->pages->n * PAGES_SIZE };
	CLEANUP_FREE struct page_run *runs = NULL;
	uint8_t page[PAGES_SIZE] = { 0 };
	int r;

	header.n_runs = pages_count(writer->pages, &header.n_pages);
	if (header.n_runs > LAYER_RUNS_MAX)
		return -E2BIG;
	runs = list_runs(writer->pages, header.n_runs);
	if (!runs)
		return -ENOMEM;
	memcpy(header.magic, magic, sizeof(magic));
	memcpy(header.id, writer->id, LAYER_ID);
	memcpy(header.base, writer->base, LAYER_ID);
	header.sum = sum_of(&header, runs);
	r = fd_pwrite_all(writer->fd, runs, header.n_runs * sizeof(runs[0]),
		(off_t) (PAGES_SIZE + header.n_pages * PAGES_SIZE));
	/* last: a file that was broken off has none. All of its page, so that one without runs has its size */
	memcpy(page, &header, sizeof(header));
	return r < 0 ? r : fd_pwrite_all(writer->fd, page, sizeof(page), 0);
}

int layer_write(struct layer_writer *writer, uint64_t max)
{
	struct page_run run;
	const uint8_t *from;
	uint64_t n = 1;
	int r;

	if (!pages_next(writer->pages, writer->next, &run))
		return write_ends(writer);
	run.n = MIN(run.n, MAX(max / PAGES_SIZE, UINT64_C(1)));
	from = writer->page_at(writer->data, run.first);
	/* neighbours in the file are not always some in the address space */
	while (n < run.n && (const uint8_t *) writer->page_at(writer->data, run.first + n) == from + n * PAGES_SIZE)
		n++;
	r = fd_pwrite_all(writer->fd, from, n * PAGES_SIZE, (off_t) (PAGES_SIZE + writer->n_written * PAGES_SIZE));
	writer->n_written += n;
	writer->next = run.first + n;
	return r < 0 ? r : 1;
}

static int write_all(struct layer *layer, const struct pages *pages, const void *(*page_at)(const void *, uint64_t),
	const void *data)
{
	struct layer_writer writer = { .pages = pages, .page_at = page_at, .data = data };
	uint64_t n_runs, n;
	int r;

	n_runs = pages_count(pages, &n);
	if (n_runs > LAYER_RUNS_MAX)
		return -E2BIG;
	layer->runs = list_runs(pages, n_runs);
	if (!layer->runs)
		return -ENOMEM;
	layer->n_runs = (uint32_t) n_runs;
	writer.fd = layer->fd = memfd_create("croft-layer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (layer->fd < 0)
		return -errno;
	do {
		r = layer_write(&writer, UINT64_MAX);
	} while (r > 0);
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
	else if (sum_of(&header, layer->runs) != header.sum)
		r = invalid(reterr, "does not have its checksum");
	else if (!is_valid(layer, &header))
		r = invalid(reterr, "has a table that makes no sense");
	memcpy(layer->id, header.id, LAYER_ID);
	memcpy(layer->base, header.base, LAYER_ID);
out:
	if (r < 0)
		layer_deinit(layer);
	return r;
}
