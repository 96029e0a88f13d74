/* SPDX-License-Identifier: Apache-2.0
 *
 * See kernel.h. The boot protocol (Documentation/x86/boot.rst, 2.08 and newer) says where in a bzImage the
 * compressed kernel lies; libarchive knows the compression by its magic.
 */
#include "image/kernel.h"

#include <archive.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/newfile.h"

#define SECTOR 512u
#define SETUP_SECTS 0x1f1u
#define HEADER_MAGIC 0x202u
#define HEADER_VERSION 0x206u
#define PAYLOAD_OFFSET 0x248u
#define PAYLOAD_LENGTH 0x24cu
#define SETUP_MIN 0x250u
#define PHDRS_MAX 64
/* Every compressor but gzip has the size of the kernel appended, which is no part of its format. */
#define SIZE_APPENDED 4u

struct bytes {
	const uint8_t *data;
	size_t size;
};

static void bytes_unmapp(struct bytes *bytes)
{
	if (bytes->data)
		(void) munmap((void *) (uintptr_t) bytes->data, bytes->size);
}

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t) p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 | (uint32_t) p[3] << 24;
}

static int map_file(const char *path, struct bytes *ret, struct err *reterr)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *data;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(reterr, FAIL_KERNEL_MISSING, errno, "cannot read %.160s", path);
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t) SETUP_MIN || st.st_size > (off_t) KERNEL_SIZE_MAX)
		return err_set(reterr, FAIL_KERNEL_INVALID, EINVAL, "%.160s is no kernel image", path);
	data = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return err_set(reterr, FAIL_KERNEL_MISSING, errno, "cannot map %.160s", path);
	*ret = (struct bytes){ data, (size_t) st.st_size };
	return 0;
}

static int invalid(struct err *reterr, const char *what)
{
	return err_set(reterr, FAIL_KERNEL_INVALID, EINVAL, "%s", what);
}

/* Finds the compressed kernel in a bzImage. */
static int find_payload(const struct bytes *image, struct bytes *ret, struct err *reterr)
{
	const uint8_t *p = image->data;
	uint64_t start, length;

	if (memcmp(p + HEADER_MAGIC, "HdrS", 4) != 0)
		return invalid(reterr, "the file is neither an ELF file nor a bzImage");
	if (p[HEADER_VERSION + 1] < 2 || (p[HEADER_VERSION + 1] == 2 && p[HEADER_VERSION] < 8))
		return invalid(reterr, "the bzImage is older than boot protocol 2.08");
	start = ((uint64_t) (p[SETUP_SECTS] ? p[SETUP_SECTS] : 4) + 1) * SECTOR + le32(p + PAYLOAD_OFFSET);
	length = le32(p + PAYLOAD_LENGTH);
	if (length <= SIZE_APPENDED || start >= image->size || length > image->size - start)
		return invalid(reterr, "the bzImage is cut short");
	*ret = (struct bytes){ p + start, (size_t) length };
	if (memcmp(ret->data, "\x1f\x8b", 2) != 0)
		ret->size -= SIZE_APPENDED;
	return 0;
}

static void archive_freep(struct archive **archive)
{
	if (*archive)
		(void) archive_read_free(*archive); /* it was only read */
}

static int unpack_failed(struct archive *archive, struct err *reterr)
{
	const char *text = archive_error_string(archive);

	return err_set(reterr, FAIL_KERNEL_INVALID, EINVAL, "the kernel in the bzImage cannot be unpacked: %.120s",
		text ? text : "unknown");
}

static int unpack(const struct bytes *payload, int fd, struct err *reterr)
{
	CLEANUP(archive_freep) struct archive *archive = archive_read_new();
	struct archive_entry *entry;
	uint64_t total = 0;
	ssize_t n;
	int r;

	if (!archive)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to unpack a kernel");
	if (archive_read_support_filter_all(archive) < ARCHIVE_WARN || archive_read_support_format_raw(archive) ||
		archive_read_open_memory(archive, payload->data, payload->size) ||
		archive_read_next_header(archive, &entry))
		return unpack_failed(archive, reterr);
	for (;;) {
		char chunk[65536];

		n = archive_read_data(archive, chunk, sizeof(chunk));
		if (n < 0)
			return unpack_failed(archive, reterr);
		if (n == 0)
			return 0;
		total += (uint64_t) n;
		if (total > KERNEL_SIZE_MAX)
			return invalid(reterr, "the kernel is larger than 1 GiB");
		r = fd_write_all(fd, chunk, (size_t) n);
		if (r < 0)
			return err_set(reterr, FAIL_IO_FAILED, -r, "cannot write the kernel");
	}
}

static bool segment_is_inside(const Elf64_Phdr *segment, uint64_t size)
{
	return segment->p_offset <= size && segment->p_filesz <= size - segment->p_offset &&
		segment->p_filesz <= segment->p_memsz && segment->p_memsz <= UINT64_MAX - segment->p_paddr;
}

int kernel_check_elf(int fd, struct err *reterr)
{
	Elf64_Ehdr head;
	Elf64_Phdr segments[PHDRS_MAX];
	bool has_entry = false;
	struct stat st;

	if (fstat(fd, &st) < 0 || fd_pread_all(fd, &head, sizeof(head), 0) < 0 ||
		memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
		return invalid(reterr, "the kernel is no ELF file");
	if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
		head.e_machine != EM_X86_64 || head.e_type != ET_EXEC)
		return invalid(reterr, "the kernel is no 64-bit executable for x86-64");
	if (head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phnum == 0 || head.e_phnum > PHDRS_MAX ||
		head.e_phoff > (uint64_t) st.st_size ||
		fd_pread_all(fd, segments, head.e_phnum * sizeof(Elf64_Phdr), (off_t) head.e_phoff) < 0)
		return invalid(reterr, "the kernel's program headers are damaged");
	for (unsigned int i = 0; i < head.e_phnum; i++) {
		const Elf64_Phdr *segment = &segments[i];

		if (segment->p_type != PT_LOAD)
			continue;
		if (!segment_is_inside(segment, (uint64_t) st.st_size))
			return invalid(reterr, "a part of the kernel lies outside its file");
		has_entry = has_entry || (head.e_entry >= segment->p_paddr &&
				head.e_entry - segment->p_paddr < segment->p_memsz);
	}
	return has_entry ? 0 : invalid(reterr, "the kernel's entry point is in none of its parts");
}

int kernel_import(const char *bzimage, const char *vmlinux, struct err *reterr)
{
	CLEANUP(bytes_unmapp) struct bytes image = { 0 };
	CLEANUP(newfile_deinit) struct newfile file = NEWFILE_NULL;
	struct bytes payload = { 0 };
	int r = map_file(bzimage, &image, reterr);

	if (r < 0)
		return r;
	r = newfile_open(&file, vmlinux, 0644, FAIL_IO_FAILED, reterr);
	if (r < 0)
		return r;
	if (!memcmp(image.data, ELFMAG, SELFMAG)) {
		r = fd_write_all(file.fd, image.data, image.size);
		if (r < 0)
			return err_set(reterr, FAIL_IO_FAILED, -r, "cannot write %.160s", vmlinux);
	} else {
		r = find_payload(&image, &payload, reterr);
		if (r == 0)
			r = unpack(&payload, file.fd, reterr);
		if (r < 0)
			return r;
	}
	r = kernel_check_elf(file.fd, reterr);
	if (r < 0)
		return r;
	return newfile_commit(&file, FAIL_IO_FAILED, reterr);
}
