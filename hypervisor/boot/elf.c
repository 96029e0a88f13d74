/* SPDX-License-Identifier: Apache-2.0
 *
 * See elf.h.
 */
#include "boot/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"

#define SEGMENTS_MAX 64

struct loader {
	int fd;
	uint64_t file_size;
	const struct memory *memory;
	Elf64_Ehdr head;
	unsigned int n;
	Elf64_Phdr segments[SEGMENTS_MAX];
};

static int refuse(struct err *reterr, int err_no, const char *why)
{
	(void) err_set(reterr, FAIL_KERNEL_INVALID, err_no, "the guest kernel cannot be loaded: %s", why);
	err_add(reterr, "why", "%s", why);
	return -(err_no ? err_no : ENOEXEC);
}

static int read_head(struct loader *loader, struct err *reterr)
{
	Elf64_Ehdr *head = &loader->head;
	struct stat st;
	int r;

	if (fstat(loader->fd, &st) < 0)
		return refuse(reterr, errno, "it cannot be examined");
	if (!S_ISREG(st.st_mode))
		return refuse(reterr, EINVAL, "it is no regular file");
	loader->file_size = (uint64_t) st.st_size;
	if (loader->file_size < sizeof(*head))
		return refuse(reterr, ENOEXEC, "it is shorter than an ELF header");
	r = fd_pread_all(loader->fd, head, sizeof(*head), 0);
	if (r < 0)
		return refuse(reterr, -r, "its header cannot be read");
	if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0)
		return refuse(reterr, ENOEXEC, "it is no ELF file (a bzImage is unpacked to its vmlinux at import)");
	if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB ||
		head->e_machine != EM_X86_64 || (head->e_type != ET_EXEC && head->e_type != ET_DYN))
		return refuse(reterr, ENOEXEC, "it is no executable for 64-bit x86");
	if (head->e_phentsize != sizeof(Elf64_Phdr) || head->e_phnum == 0 || head->e_phnum > SEGMENTS_MAX)
		return refuse(reterr, ENOEXEC, "its program headers have an odd size or number");
	return 0;
}

static int read_segments(struct loader *loader, struct err *reterr)
{
	uint64_t size = (uint64_t) loader->head.e_phnum * sizeof(Elf64_Phdr), at = loader->head.e_phoff;
	Elf64_Phdr all[SEGMENTS_MAX];
	int r;

	if (at > loader->file_size || size > loader->file_size - at)
		return refuse(reterr, ENOEXEC, "its program headers lie beyond its end");
	r = fd_pread_all(loader->fd, all, size, (off_t) at);
	if (r < 0)
		return refuse(reterr, -r, "its program headers cannot be read");
	for (unsigned int i = 0; i < loader->head.e_phnum; i++)
		if (all[i].p_type == PT_LOAD && all[i].p_memsz > 0)
			loader->segments[loader->n++] = all[i];
	if (loader->n == 0)
		return refuse(reterr, ENOEXEC, "it has nothing to load");
	return 0;
}

static int check_segment(const struct loader *loader, const Elf64_Phdr *segment, struct err *reterr)
{
	if (segment->p_filesz > segment->p_memsz)
		return refuse(reterr, ENOEXEC, "a segment has more bytes in the file than in memory");
	if (segment->p_offset > loader->file_size || segment->p_filesz > loader->file_size - segment->p_offset)
		return refuse(reterr, ENOEXEC, "it is truncated: a segment lies beyond its end");
	if (segment->p_memsz > ELF_KERNEL_MAX)
		return refuse(reterr, EFBIG, "a segment is over 256 MiB");
	if (segment->p_paddr < ELF_KERNEL_BASE)
		return refuse(reterr, ENOEXEC, "a segment lies under 1 MiB");
	if (segment->p_paddr >= MEMORY_GAP_START || !guest_map(loader->memory, segment->p_paddr, segment->p_memsz))
		return refuse(reterr, ENOEXEC, "a segment does not fit the guest's memory");
	return 0;
}

/* All segments lie in RAM now, so no sum can overflow. */
static int check_segments(const struct loader *loader, struct err *reterr)
{
	uint64_t total = 0;
	int r;

	for (unsigned int i = 0; i < loader->n; i++) {
		const Elf64_Phdr *a = &loader->segments[i];

		r = check_segment(loader, a, reterr);
		if (r < 0)
			return r;
		total += a->p_memsz;
		for (unsigned int j = 0; j < i; j++) {
			const Elf64_Phdr *b = &loader->segments[j];

			if (a->p_paddr < b->p_paddr + b->p_memsz && b->p_paddr < a->p_paddr + a->p_memsz)
				return refuse(reterr, ENOEXEC, "two segments overlap");
		}
	}
	return total > ELF_KERNEL_MAX ? refuse(reterr, EFBIG, "its segments are over 256 MiB together") : 0;
}

static bool is_entry(const struct loader *loader, uint64_t entry)
{
	for (unsigned int i = 0; i < loader->n; i++) {
		const Elf64_Phdr *segment = &loader->segments[i];

		if ((segment->p_flags & PF_X) && entry >= segment->p_paddr &&
			entry - segment->p_paddr < segment->p_filesz)
			return true;
	}
	return false;
}

int elf_load(int fd, const struct memory *memory, struct elf_image *ret, struct err *reterr)
{
	struct loader loader = { .fd = fd, .memory = memory };
	uint64_t end = 0;
	int r;

	r = read_head(&loader, reterr);
	if (r == 0)
		r = read_segments(&loader, reterr);
	if (r == 0)
		r = check_segments(&loader, reterr);
	if (r < 0)
		return r;
	if (!is_entry(&loader, loader.head.e_entry))
		return refuse(reterr, ENOEXEC, "its entry lies in no executable segment");
	for (unsigned int i = 0; i < loader.n; i++) {
		const Elf64_Phdr *segment = &loader.segments[i];

		/* what the file does not fill is zero: the memory is fresh */
		r = fd_pread_all(fd, guest_map(memory, segment->p_paddr, segment->p_memsz), segment->p_filesz,
			(off_t) segment->p_offset);
		if (r < 0)
			return refuse(reterr, -r, "a segment cannot be read");
		end = MAX(end, segment->p_paddr + segment->p_memsz);
	}
	*ret = (struct elf_image) { .entry = loader.head.e_entry, .end = end };
	return 0;
}
