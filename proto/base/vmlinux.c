/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmlinux.h.
 */
#include "base/vmlinux.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/fd.h"

int vmlinux_refuse(struct err *reterr, enum fail_code code, int err_no, const char *why)
{
	(void) err_set(reterr, code, err_no, "the guest kernel cannot be used: %s", why);
	err_add(reterr, "why", "%s", why);
	return err_no ? -err_no : -ENOEXEC;
}

static int invalid(struct err *reterr, const char *why)
{
	return vmlinux_refuse(reterr, FAIL_KERNEL_INVALID, ENOEXEC, why);
}

static int truncated(struct err *reterr, const char *why)
{
	return vmlinux_refuse(reterr, FAIL_KERNEL_TRUNCATED, ENOEXEC, why);
}

static int read_head(int fd, uint64_t size, Elf64_Ehdr *ret, struct err *reterr)
{
	int r;

	if (size < sizeof(*ret))
		return truncated(reterr, "it is shorter than an ELF header");
	r = fd_pread_all(fd, ret, sizeof(*ret), 0);
	if (r < 0)
		return vmlinux_refuse(reterr, FAIL_KERNEL_INVALID, -r, "its header cannot be read");
	if (memcmp(ret->e_ident, ELFMAG, SELFMAG) != 0)
		return invalid(reterr, "it is no ELF file (a bzImage is unpacked to its vmlinux at import)");
	if (ret->e_ident[EI_CLASS] != ELFCLASS64 || ret->e_ident[EI_DATA] != ELFDATA2LSB ||
		ret->e_machine != EM_X86_64 || (ret->e_type != ET_EXEC && ret->e_type != ET_DYN))
		return invalid(reterr, "it is no executable for 64-bit x86");
	if (ret->e_phentsize != sizeof(Elf64_Phdr) || ret->e_phnum == 0 || ret->e_phnum > VMLINUX_SEGMENTS_MAX)
		return invalid(reterr, "its program headers have an odd size or number");
	return 0;
}

static int check_segment(const Elf64_Phdr *segment, uint64_t size, struct err *reterr)
{
	if (segment->p_filesz > segment->p_memsz)
		return invalid(reterr, "a segment has more bytes in the file than in memory");
	if (segment->p_memsz > VMLINUX_MEMORY_MAX)
		return vmlinux_refuse(reterr, FAIL_KERNEL_TOO_LARGE, EFBIG, "a segment is over 256 MiB");
	if (segment->p_offset > size || segment->p_filesz > size - segment->p_offset)
		return truncated(reterr, "a segment lies beyond its end");
	if (segment->p_paddr < VMLINUX_BASE)
		return invalid(reterr, "a segment lies under 1 MiB");
	if (segment->p_paddr >= VMLINUX_END || segment->p_memsz > VMLINUX_END - segment->p_paddr)
		return invalid(reterr, "a segment lies over 3 GiB");
	return 0;
}

/* Each is checked on its own before it is compared, so no sum can overflow. */
static int add_segment(struct vmlinux *vmlinux, const Elf64_Phdr *segment, struct err *reterr)
{
	for (unsigned int i = 0; i < vmlinux->n; i++) {
		const struct vmlinux_segment *other = &vmlinux->segments[i];

		if (segment->p_paddr < other->physical + other->memory_size &&
			other->physical < segment->p_paddr + segment->p_memsz)
			return invalid(reterr, "two segments overlap");
	}
	vmlinux->segments[vmlinux->n++] = (struct vmlinux_segment) { .offset = segment->p_offset,
		.file_size = segment->p_filesz, .physical = segment->p_paddr, .memory_size = segment->p_memsz,
		.is_executable = segment->p_flags & PF_X };
	return 0;
}

static bool is_entry(const struct vmlinux *vmlinux)
{
	for (unsigned int i = 0; i < vmlinux->n; i++) {
		const struct vmlinux_segment *segment = &vmlinux->segments[i];

		if (segment->is_executable && vmlinux->entry >= segment->physical &&
			vmlinux->entry - segment->physical < segment->file_size)
			return true;
	}
	return false;
}

int vmlinux_read(int fd, uint64_t size, struct vmlinux *ret, struct err *reterr)
{
	Elf64_Phdr all[VMLINUX_SEGMENTS_MAX];
	uint64_t total = 0, all_size;
	Elf64_Ehdr head;
	int r = read_head(fd, size, &head, reterr);

	if (r < 0)
		return r;
	all_size = (uint64_t) head.e_phnum * sizeof(Elf64_Phdr);
	if (head.e_phoff > size || all_size > size - head.e_phoff)
		return truncated(reterr, "its program headers lie beyond its end");
	r = fd_pread_all(fd, all, all_size, (off_t) head.e_phoff);
	if (r < 0)
		return vmlinux_refuse(reterr, FAIL_KERNEL_INVALID, -r, "its program headers cannot be read");
	*ret = (struct vmlinux) { .entry = head.e_entry };
	for (unsigned int i = 0; i < head.e_phnum; i++) {
		if (all[i].p_type != PT_LOAD || all[i].p_memsz == 0)
			continue;
		r = check_segment(&all[i], size, reterr);
		if (r == 0)
			r = add_segment(ret, &all[i], reterr);
		if (r < 0)
			return r;
		total += all[i].p_memsz;
	}
	if (ret->n == 0)
		return invalid(reterr, "it has nothing to load");
	if (total > VMLINUX_MEMORY_MAX)
		return vmlinux_refuse(reterr, FAIL_KERNEL_TOO_LARGE, EFBIG, "its segments are over 256 MiB together");
	return is_entry(ret) ? 0 : invalid(reterr, "its entry lies in no executable segment");
}
