/* SPDX-License-Identifier: Apache-2.0
 *
 * See elf.h.
 */
#include "boot/elf.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/vmlinux.h"

static int refuse(struct err *reterr, int err_no, const char *why)
{
	return vmlinux_refuse(reterr, FAIL_KERNEL_INVALID, err_no, why);
}

static int load_segment(int fd, const struct memory *memory, const struct vmlinux_segment *segment, struct err *reterr)
{
	/* what the file does not fill is zero: the memory is fresh */
	int r = fd_pread_all(fd, guest_map(memory, segment->physical, segment->memory_size), segment->file_size,
		(off_t) segment->offset);

	return r < 0 ? refuse(reterr, -r, "a segment cannot be read") : 0;
}

int elf_load(int fd, const struct memory *memory, struct elf_image *ret, struct err *reterr)
{
	struct vmlinux vmlinux;
	uint64_t end = 0;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return refuse(reterr, errno, "it cannot be examined");
	if (!S_ISREG(st.st_mode))
		return refuse(reterr, EINVAL, "it is no regular file");
	r = vmlinux_read(fd, (uint64_t) st.st_size, &vmlinux, reterr);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < vmlinux.n; i++)
		if (!guest_map(memory, vmlinux.segments[i].physical, vmlinux.segments[i].memory_size))
			return refuse(reterr, ENOEXEC, "a segment does not fit the guest's memory");
	for (unsigned int i = 0; i < vmlinux.n; i++) {
		r = load_segment(fd, memory, &vmlinux.segments[i], reterr);
		if (r < 0)
			return r;
		end = MAX(end, vmlinux.segments[i].physical + vmlinux.segments[i].memory_size);
	}
	*ret = (struct elf_image) { .entry = vmlinux.entry, .end = end };
	return 0;
}
