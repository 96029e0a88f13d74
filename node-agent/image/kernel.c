/* SPDX-License-Identifier: Apache-2.0
 *
 * See kernel.h. The boot protocol (Documentation/x86/boot.rst, 2.08 and newer) says where in a bzImage the
 * compressed kernel lies. libarchive unpacks it, with the one filter that the magic asks for: those that it would find
 * by itself include some that run programs, and it would unpack layer after layer.
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
#include "base/vmlinux.h"
#include "image/newfile.h"

#define SECTOR 512u
#define SETUP_SECTS 0x1f1u
#define HEADER_MAGIC 0x202u
#define HEADER_VERSION 0x206u
#define PAYLOAD_OFFSET 0x248u
#define PAYLOAD_LENGTH 0x24cu
#define SETUP_MIN 0x250u
/* The payload's last four bytes are the kernel's size: gzip's own trailer, and appended by the build for the others. */
#define SIZE_FIELD 4u
#define FILTERS_EXPECTED 2 /* the compression, and libarchive's reader of plain bytes */

struct bytes {
	const uint8_t *data;
	size_t size;
};

struct compression {
	const char *magic;
	size_t magic_size;
	int (*add)(struct archive *archive);
	bool has_own_size; /* as part of its format */
};

static const struct compression compressions[] = {
	{ "\x1f\x8b", 2, archive_read_support_filter_gzip, true },
	{ "\xfd" "7zXZ", 5, archive_read_support_filter_xz, false },
	{ "\x28\xb5\x2f\xfd", 4, archive_read_support_filter_zstd, false },
	{ "\x02\x21\x4c\x18", 4, archive_read_support_filter_lz4, false }, /* lz4 -l, what kernels use */
	{ "\x04\x22\x4d\x18", 4, archive_read_support_filter_lz4, false },
	{ "\x5d\x00\x00", 3, archive_read_support_filter_lzma, false },
	{ "BZh", 3, archive_read_support_filter_bzip2, false },
};

struct payload {
	struct bytes packed;
	uint64_t size; /* unpacked, as it says itself */
	const struct compression *compression;
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

static int invalid(struct err *reterr, const char *why)
{
	return vmlinux_refuse(reterr, FAIL_KERNEL_INVALID, EINVAL, why);
}

static int truncated(struct err *reterr, const char *why)
{
	return vmlinux_refuse(reterr, FAIL_KERNEL_TRUNCATED, EINVAL, why);
}

static int too_large(struct err *reterr, const char *why)
{
	return vmlinux_refuse(reterr, FAIL_KERNEL_TOO_LARGE, EFBIG, why);
}

static int map_file(int fd, struct bytes *ret, struct err *reterr)
{
	struct stat st;
	void *data;

	if (fstat(fd, &st) < 0)
		return err_set(reterr, FAIL_KERNEL_MISSING, errno, "the kernel cannot be examined");
	if (!S_ISREG(st.st_mode))
		return invalid(reterr, "it is no regular file");
	if (st.st_size < (off_t) SETUP_MIN)
		return truncated(reterr, "it is shorter than the header of a kernel");
	if (st.st_size > (off_t) KERNEL_FILE_MAX)
		return too_large(reterr, "its file is over 1 GiB");
	data = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return err_set(reterr, FAIL_KERNEL_MISSING, errno, "the kernel cannot be mapped");
	*ret = (struct bytes){ data, (size_t) st.st_size };
	return 0;
}

/* ---- a bzImage ---- */

static const struct compression *find_compression(const struct bytes *packed)
{
	for (size_t i = 0; i < ARRAY_LEN(compressions); i++)
		if (packed->size >= compressions[i].magic_size &&
			!memcmp(packed->data, compressions[i].magic, compressions[i].magic_size))
			return &compressions[i];
	return NULL;
}

static int find_payload(const struct bytes *image, struct payload *ret, struct err *reterr)
{
	const uint8_t *p = image->data;
	uint64_t start, length;

	if (memcmp(p + HEADER_MAGIC, "HdrS", 4) != 0)
		return invalid(reterr, "it is neither an ELF file nor a bzImage");
	if (p[HEADER_VERSION + 1] < 2 || (p[HEADER_VERSION + 1] == 2 && p[HEADER_VERSION] < 8))
		return invalid(reterr, "its boot protocol is older than 2.08");
	start = ((uint64_t) (p[SETUP_SECTS] ? p[SETUP_SECTS] : 4) + 1) * SECTOR + le32(p + PAYLOAD_OFFSET);
	length = le32(p + PAYLOAD_LENGTH);
	if (length <= SIZE_FIELD)
		return invalid(reterr, "it has no kernel in it");
	if (start >= image->size || length > image->size - start)
		return truncated(reterr, "the compressed kernel lies beyond its end");
	ret->packed = (struct bytes){ p + start, (size_t) length };
	ret->size = le32(p + start + length - SIZE_FIELD);
	ret->compression = find_compression(&ret->packed);
	if (!ret->compression)
		return invalid(reterr, "its kernel is compressed in an unknown way");
	if (!ret->compression->has_own_size)
		ret->packed.size -= SIZE_FIELD;
	if (ret->size > KERNEL_UNPACKED_MAX)
		return too_large(reterr, "the kernel in it is over 256 MiB");
	return 0;
}

/* ---- unpacking ---- */

static void archive_freep(struct archive **archive)
{
	if (*archive)
		(void) archive_read_free(*archive); /* it was only read */
}

static int unpack_failed(struct archive *archive, struct err *reterr)
{
	const char *text = archive_error_string(archive);

	(void) err_set(reterr, FAIL_KERNEL_INVALID, EINVAL, "the kernel in the bzImage cannot be unpacked: %.120s",
		text ? text : "unknown");
	err_add(reterr, "why", "its kernel cannot be unpacked");
	return -EINVAL;
}

static int open_payload(struct archive *archive, const struct payload *payload, struct err *reterr)
{
	struct archive_entry *entry;

	if (payload->compression->add(archive) != ARCHIVE_OK || archive_read_support_format_raw(archive) ||
		archive_read_open_memory(archive, payload->packed.data, payload->packed.size) ||
		archive_read_next_header(archive, &entry))
		return unpack_failed(archive, reterr);
	if (archive_filter_count(archive) != FILTERS_EXPECTED)
		return invalid(reterr, "its kernel is compressed more than once");
	return 0;
}

/* Fills `ret` as far as there is something; *ret_n is less than `room` at the end only. */
static int read_part(struct archive *archive, uint8_t *ret, size_t room, size_t *ret_n, struct err *reterr)
{
	for (*ret_n = 0; *ret_n < room;) {
		ssize_t n = archive_read_data(archive, ret + *ret_n, room - *ret_n);

		if (n < 0)
			return unpack_failed(archive, reterr);
		if (n == 0)
			break;
		*ret_n += (size_t) n;
	}
	return 0;
}

/* The headers are judged when the first part is there: what has none, or hostile ones, is not unpacked to its end. */
static int unpack(const struct payload *payload, int fd, struct err *reterr)
{
	CLEANUP(archive_freep) struct archive *archive = archive_read_new();
	uint8_t part[KERNEL_HEAD_SIZE];
	struct vmlinux vmlinux;
	uint64_t total = 0;
	size_t n;
	int r;

	if (!archive)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to unpack a kernel");
	r = open_payload(archive, payload, reterr);
	if (r < 0)
		return r;
	do {
		r = read_part(archive, part, sizeof(part), &n, reterr);
		if (r < 0)
			return r;
		if (n > payload->size - total)
			return invalid(reterr, "its kernel unpacks to more than it says");
		r = fd_write_all(fd, part, n);
		if (r < 0)
			return err_set(reterr, FAIL_IO_FAILED, -r, "cannot write the kernel");
		if (total == 0)
			r = vmlinux_read(fd, payload->size, &vmlinux, reterr);
		if (r < 0)
			return r;
		total += n;
	} while (n == sizeof(part));
	return total == payload->size ? 0 : truncated(reterr, "its kernel unpacks to less than it says");
}

static int copy_elf(const struct bytes *image, int source, int fd, struct err *reterr)
{
	struct vmlinux vmlinux;
	int r = vmlinux_read(source, image->size, &vmlinux, reterr);

	if (r < 0)
		return r;
	r = fd_write_all(fd, image->data, image->size);
	return r < 0 ? err_set(reterr, FAIL_IO_FAILED, -r, "cannot write the kernel") : 0;
}

static int write_vmlinux(const struct bytes *image, int source, int fd, struct err *reterr)
{
	struct payload payload = { 0 };
	int r;

	if (!memcmp(image->data, ELFMAG, SELFMAG))
		return copy_elf(image, source, fd, reterr);
	r = find_payload(image, &payload, reterr);
	return r < 0 ? r : unpack(&payload, fd, reterr);
}

int kernel_import(const char *bzimage, const char *vmlinux, struct err *reterr)
{
	CLEANUP_FD int source = open(bzimage, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	CLEANUP(newfile_deinit) struct newfile file = NEWFILE_NULL;
	CLEANUP(bytes_unmapp) struct bytes image = { 0 };
	int r;

	if (source < 0)
		return err_set(reterr, FAIL_KERNEL_MISSING, errno, "cannot read %.160s", bzimage);
	r = map_file(source, &image, reterr);
	if (r < 0)
		return r;
	r = newfile_open(&file, vmlinux, 0644, FAIL_IO_FAILED, reterr);
	if (r == 0)
		r = write_vmlinux(&image, source, file.fd, reterr);
	return r < 0 ? r : newfile_commit(&file, FAIL_IO_FAILED, reterr);
}
