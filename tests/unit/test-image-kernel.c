/* SPDX-License-Identifier: Apache-2.0
 *
 * image/kernel: a bzImage made here around a small ELF file, in each compression that kernels use; and a table of images
 * that are cut short, lie or are hostile. Each is refused with its own code, leaves nothing behind, and what it cost in
 * bytes read and written (the system's own count) stays under a bound that does not depend on what it says.
 */
#include <archive.h>
#include <archive_entry.h>
#include <check.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "image/kernel.h"
#include "lib/suite.h"

#define SETUP_SECTORS 2u
#define PAYLOAD_AT 64u /* after the setup sectors */
#define PAYLOAD ((SETUP_SECTORS + 1) * 512 + PAYLOAD_AT)

struct elf {
	Elf64_Ehdr head;
	Elf64_Phdr segments[2];
	char text[3000];
};

static char dir[64], source[96], target[96];

static void setup(void)
{
	strcpy(dir, "/tmp/croft-kernel-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(source, sizeof(source), "%s/vmlinuz", dir);
	snprintf(target, sizeof(target), "%s/vmlinux", dir);
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
}

/* Not file_replace(): there are thousands, and none needs to be on the disk. */
static void put_source(const void *data, size_t size)
{
	CLEANUP_FD int fd = open(source, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || fd_write_all(fd, data, size) < 0)
		ck_abort_msg("cannot write %s", source);
}

static struct elf elf_make(void)
{
	struct elf elf = { 0 };

	memcpy(elf.head.e_ident, ELFMAG, SELFMAG);
	elf.head.e_ident[EI_CLASS] = ELFCLASS64;
	elf.head.e_ident[EI_DATA] = ELFDATA2LSB;
	elf.head.e_type = ET_EXEC;
	elf.head.e_machine = EM_X86_64;
	elf.head.e_entry = 0x1000010;
	elf.head.e_phoff = sizeof(Elf64_Ehdr);
	elf.head.e_phentsize = sizeof(Elf64_Phdr);
	elf.head.e_phnum = 2;
	elf.segments[0] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr),
		.p_paddr = 0x1000000, .p_filesz = 3000, .p_memsz = 4096 };
	elf.segments[1] = (Elf64_Phdr){ .p_type = PT_NOTE };
	for (size_t i = 0; i < sizeof(elf.text); i++)
		elf.text[i] = (char) (i * i % 251);
	return elf;
}

static size_t compress(int filter, const void *data, size_t size, uint8_t *ret, size_t room)
{
	struct archive *archive = archive_write_new();
	struct archive_entry *entry = archive_entry_new();
	size_t used = 0;

	ck_assert_int_eq(archive_write_add_filter(archive, filter), ARCHIVE_OK);
	ck_assert_int_eq(archive_write_set_format_raw(archive), ARCHIVE_OK);
	archive_write_set_bytes_in_last_block(archive, 1);
	ck_assert_int_eq(archive_write_open_memory(archive, ret, room, &used), ARCHIVE_OK);
	archive_entry_set_filetype(entry, AE_IFREG);
	ck_assert_int_eq(archive_write_header(archive, entry), ARCHIVE_OK);
	ck_assert_int_eq(archive_write_data(archive, data, size), (la_ssize_t) size);
	ck_assert_int_eq(archive_write_close(archive), ARCHIVE_OK);
	archive_entry_free(entry);
	archive_write_free(archive);
	return used;
}

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t) (v >> (8 * i));
}

/* lz4 -l with literals only, as far as one length byte more reaches: what a kernel's build makes, without its library. */
static size_t lz4_legacy(const uint8_t *data, size_t size, uint8_t *ret)
{
	size_t n = 4, rest;

	memcpy(ret, "\x02\x21\x4c\x18", 4);
	n += 4; /* the block's size */
	ret[n++] = 0xf0;
	for (rest = size - 15; rest >= 255; rest -= 255)
		ret[n++] = 255;
	ret[n++] = (uint8_t) rest;
	memcpy(ret + n, data, size);
	n += size;
	put32(ret + 4, (uint32_t) (n - 8));
	return n;
}

#define LZ4_LEGACY (-1)

/* An image around `data`, which says that it unpacks to `says` bytes. Returns its size. */
static size_t bzimage_make(int filter, const void *data, size_t size, size_t says, uint8_t *ret, size_t room)
{
	const size_t at = PAYLOAD;
	size_t n = filter == LZ4_LEGACY ? lz4_legacy(data, size, ret + at) :
					  compress(filter, data, size, ret + at, room - at - 64);

	if (filter == ARCHIVE_FILTER_GZIP)
		n -= 4; /* its own size field is overwritten */
	put32(ret + at + n, (uint32_t) says);
	n += 4;
	ret[0x1f1] = SETUP_SECTORS;
	memcpy(ret + 0x202, "HdrS\x0f\x02", 6);
	put32(ret + 0x248, PAYLOAD_AT);
	put32(ret + 0x24c, (uint32_t) n);
	memset(ret + at + n, 0xcc, 32); /* what follows the payload in a real image */
	return at + n + 32;
}

/* ---- good images ---- */

static const int filters[] = { ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD, ARCHIVE_FILTER_LZ4, LZ4_LEGACY,
	ARCHIVE_FILTER_LZMA, ARCHIVE_FILTER_BZIP2 };

static void expect_imported(const struct elf *elf)
{
	CLEANUP_FREE char *data = NULL;
	struct err err = ERR_NULL;
	size_t got;

	ck_assert_msg(kernel_import(source, target, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(file_read(target, 1 << 20, &data, &got), 0);
	ck_assert_uint_eq(got, sizeof(*elf));
	ck_assert_int_eq(memcmp(data, elf, sizeof(*elf)), 0);
}

START_TEST(test_import)
{
	static uint8_t image[65536];
	struct elf elf = elf_make();
	size_t size = bzimage_make(filters[_i], &elf, sizeof(elf), sizeof(elf), image, sizeof(image));

	put_source(image, size);
	expect_imported(&elf);
}
END_TEST

START_TEST(test_import_elf)
{
	struct elf elf = elf_make();

	put_source(&elf, sizeof(elf));
	expect_imported(&elf);
}
END_TEST

/* ---- what a refusal may cost ---- */

struct work {
	uint64_t read, written;
};

static uint64_t number_behind(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : UINT64_MAX;
}

/* What this process read and wrote until now; the reading of this file, about 100 bytes, counts too. Asserts nothing
 * while it works, for check writes a message for each assertion. */
static struct work work_now(void)
{
	CLEANUP_FREE char *text = NULL;

	if (file_read("/proc/self/io", 4096, &text, NULL) < 0)
		ck_abort_msg("no /proc/self/io");
	return (struct work) { number_behind(text, "rchar: "), number_behind(text, "wchar: ") };
}

#define READ_MAX 8192 /* an ELF header and 64 program headers are 3648 */

static void expect_refused(const char *name, enum fail_code code, uint64_t written_max)
{
	struct work before, after;
	struct err err = ERR_NULL;
	struct rusage children;
	int r;

	before = work_now();
	r = kernel_import(source, target, &err);
	after = work_now();
	ck_assert_msg(r < 0, "%s: imported", name);
	ck_assert_msg(err.code == code, "%s: %s, not %s (%s)", name, failure_info(err.code)->name, failure_info(code)->name,
		err.msg);
	ck_assert_msg(code == FAIL_KERNEL_MISSING || err_field(&err, "why"), "%s: does not say why", name);
	ck_assert_msg(after.written - before.written <= written_max, "%s: %llu bytes were written", name,
		(unsigned long long) (after.written - before.written));
	ck_assert_msg(after.read - before.read <= READ_MAX, "%s: %llu bytes were read", name,
		(unsigned long long) (after.read - before.read));
	ck_assert_int_eq(getrusage(RUSAGE_CHILDREN, &children), 0);
	ck_assert_msg(children.ru_minflt == 0, "%s: a program was run", name);
	ck_assert_int_lt(access(target, F_OK), 0);
	(void) unlink(source);
	ck_assert_int_eq(rmdir(dir), 0); /* not even a temporary file */
	ck_assert_int_eq(mkdir(dir, 0700), 0);
}

/* ---- hostile ELF headers: the same list as the file itself and inside a bzImage ---- */

#define ELF(name, statement)                                                                                           \
	static void elf_##name(struct elf *elf)                                                                        \
	{                                                                                                              \
		statement;                                                                                             \
	}

/* A second segment at `physical`, with the bytes of the first. */
static void second(struct elf *elf, uint64_t physical)
{
	elf->segments[1] = elf->segments[0];
	elf->segments[1].p_paddr = physical;
	elf->segments[1].p_flags = PF_R | PF_W;
}

/* clang-format off */
ELF(class32, elf->head.e_ident[EI_CLASS] = ELFCLASS32)
ELF(endian, elf->head.e_ident[EI_DATA] = ELFDATA2MSB)
ELF(machine, elf->head.e_machine = EM_AARCH64)
ELF(type, elf->head.e_type = ET_REL)
ELF(no_segments, elf->head.e_phnum = 0)
ELF(phnum_65, elf->head.e_phnum = 65)
ELF(phnum_65535, elf->head.e_phnum = 0xffff)
ELF(phentsize, elf->head.e_phentsize = 57)
ELF(phoff_outside, elf->head.e_phoff = 1 << 20)
ELF(phoff_wraps, elf->head.e_phoff = UINT64_MAX - 8)
ELF(nothing_loads, elf->segments[0].p_type = PT_NOTE)
ELF(offset_outside, elf->segments[0].p_offset = sizeof(*elf) + 1)
ELF(filesz_outside, elf->segments[0].p_filesz = 3001)
ELF(offset_wraps, elf->segments[0].p_offset = UINT64_MAX - 100)
ELF(filesz_max, elf->segments[0].p_filesz = elf->segments[0].p_memsz = UINT64_MAX)
ELF(memsz_small, elf->segments[0].p_memsz = 10)
ELF(memsz_huge, elf->segments[0].p_memsz = UINT64_C(1) << 40)
ELF(memsz_over, elf->segments[0].p_memsz = (UINT64_C(256) << 20) + 1)
ELF(together, second(elf, 0x20000000); elf->segments[0].p_memsz = elf->segments[1].p_memsz = UINT64_C(129) << 20)
ELF(overlap_all, second(elf, 0x1000000))
ELF(overlap_byte, second(elf, 0x1000fff))
ELF(overlap_below, second(elf, 0xfff001))
ELF(low, elf->segments[0].p_paddr = 0xfffff)
ELF(zero, elf->segments[0].p_paddr = 0)
ELF(high, elf->segments[0].p_paddr = UINT64_C(3) << 30)
ELF(across_the_gap, elf->segments[0].p_paddr = (UINT64_C(3) << 30) - 4095)
ELF(paddr_wraps, elf->segments[0].p_paddr = UINT64_MAX - 100)
ELF(entry_outside, elf->head.e_entry = 0x1001000)
ELF(entry_bss, elf->head.e_entry = 0x1000000 + 3000)
ELF(entry_max, elf->head.e_entry = UINT64_MAX)
ELF(entry_no_code, elf->segments[0].p_flags = PF_R | PF_W)
/* clang-format on */

#define ROW(name, code) { #name, elf_##name, FAIL_KERNEL_##code }

static const struct {
	const char *name;
	void (*spoil)(struct elf *);
	enum fail_code code;
} elf_faults[] = { ROW(class32, INVALID), ROW(endian, INVALID), ROW(machine, INVALID), ROW(type, INVALID),
	ROW(no_segments, INVALID), ROW(phnum_65, INVALID), ROW(phnum_65535, INVALID), ROW(phentsize, INVALID),
	ROW(phoff_outside, TRUNCATED), ROW(phoff_wraps, TRUNCATED), ROW(nothing_loads, INVALID),
	ROW(offset_outside, TRUNCATED), ROW(filesz_outside, TRUNCATED), ROW(offset_wraps, TRUNCATED),
	ROW(filesz_max, TOO_LARGE), ROW(memsz_small, INVALID), ROW(memsz_huge, TOO_LARGE), ROW(memsz_over, TOO_LARGE),
	ROW(together, TOO_LARGE), ROW(overlap_all, INVALID), ROW(overlap_byte, INVALID), ROW(overlap_below, INVALID),
	ROW(low, INVALID), ROW(zero, INVALID), ROW(high, INVALID), ROW(across_the_gap, INVALID), ROW(paddr_wraps, INVALID),
	ROW(entry_outside, INVALID), ROW(entry_bss, INVALID), ROW(entry_max, INVALID), ROW(entry_no_code, INVALID) };

START_TEST(test_bad_elf)
{
	struct elf elf = elf_make();

	elf_faults[_i].spoil(&elf);
	put_source(&elf, sizeof(elf));
	expect_refused(elf_faults[_i].name, elf_faults[_i].code, 0);
}
END_TEST

/* Behind the spoilt header come 2 MiB more, of which no more than the first part is unpacked. */
START_TEST(test_bad_elf_packed)
{
	const size_t size = 2 << 20, room = 1 << 20;
	CLEANUP_FREE uint8_t *data = calloc(1, size), *image = calloc(1, room);
	struct elf elf = elf_make();
	size_t n;

	ck_assert(data && image);
	elf_faults[_i].spoil(&elf);
	memcpy(data, &elf, sizeof(elf));
	/* says the ELF file's size where that is what the fault is about */
	if (elf_faults[_i].code == FAIL_KERNEL_TRUNCATED)
		n = bzimage_make(ARCHIVE_FILTER_ZSTD, &elf, sizeof(elf), sizeof(elf), image, room);
	else
		n = bzimage_make(ARCHIVE_FILTER_ZSTD, data, size, size, image, room);
	put_source(image, n);
	expect_refused(elf_faults[_i].name, elf_faults[_i].code, KERNEL_HEAD_SIZE);
}
END_TEST

/* ---- hostile bzImages ---- */

static size_t packed_size; /* of the payload of the image that is spoilt */

static void image_magic(uint8_t *p) { p[0x202] = 'X'; }
static void image_old(uint8_t *p) { p[0x206] = 7; }
static void image_ancient(uint8_t *p) { p[0x207] = 1; }
static void image_offset(uint8_t *p) { put32(p + 0x248, 0x7fffffff); }
static void image_offset_max(uint8_t *p) { put32(p + 0x248, 0xffffffff); }
static void image_length(uint8_t *p) { put32(p + 0x24c, 0x7fffffff); }
static void image_length_max(uint8_t *p) { put32(p + 0x24c, 0xffffffff); }
static void image_empty(uint8_t *p) { put32(p + 0x24c, 0); }
static void image_four(uint8_t *p) { put32(p + 0x24c, 4); }
static void image_one_byte(uint8_t *p) { put32(p + 0x24c, 5); }
static void image_sects_max(uint8_t *p) { p[0x1f1] = 255; }
static void image_sects_zero(uint8_t *p) { p[0x1f1] = 0; }
static void image_sects_one(uint8_t *p) { p[0x1f1] = 1; }
static void image_lzop(uint8_t *p) { memcpy(p + PAYLOAD, "\x89LZO\x00\x0d\x0a\x1a\x0a", 9); }
static void image_lrzip(uint8_t *p) { memcpy(p + PAYLOAD, "LRZI\x00\x06", 6); }
static void image_uu(uint8_t *p) { memcpy(p + PAYLOAD, "begin 644 x\n", 12); }
static void image_says_4g(uint8_t *p) { put32(p + PAYLOAD + packed_size - 4, 0xffffffff); }
static void image_says_over(uint8_t *p) { put32(p + PAYLOAD + packed_size - 4, (256 << 20) + 1); }
static void image_says_less(uint8_t *p) { put32(p + PAYLOAD + packed_size - 4, sizeof(struct elf) - 1); }
static void image_says_more(uint8_t *p) { put32(p + PAYLOAD + packed_size - 4, sizeof(struct elf) + 1); }
static void image_says_nothing(uint8_t *p) { put32(p + PAYLOAD + packed_size - 4, 0); }
static void image_garbage(uint8_t *p) { memset(p + PAYLOAD + 20, 0xa5, 200); }
static void image_window(uint8_t *p) { memcpy(p + PAYLOAD, "\x28\xb5\x2f\xfd\x00\xf8", 6); /* 2^41 bytes */ }

#undef ROW
#define ROW(name, code, written) { #name, image_##name, FAIL_KERNEL_##code, written }
#define ALL sizeof(struct elf)

static const struct {
	const char *name;
	void (*spoil)(uint8_t *);
	enum fail_code code;
	uint64_t written_max;
} image_faults[] = { ROW(magic, INVALID, 0), ROW(old, INVALID, 0), ROW(ancient, INVALID, 0), ROW(offset, TRUNCATED, 0),
	ROW(offset_max, TRUNCATED, 0), ROW(length, TRUNCATED, 0), ROW(length_max, TRUNCATED, 0), ROW(empty, INVALID, 0),
	ROW(four, INVALID, 0), ROW(one_byte, INVALID, 0), ROW(sects_max, TRUNCATED, 0), ROW(sects_zero, TRUNCATED, 0),
	ROW(sects_one, INVALID, 0), ROW(lzop, INVALID, 0), ROW(lrzip, INVALID, 0), ROW(uu, INVALID, 0),
	ROW(says_4g, TOO_LARGE, 0), ROW(says_over, TOO_LARGE, 0), ROW(says_less, INVALID, 0), ROW(says_more, TRUNCATED, ALL),
	ROW(says_nothing, INVALID, 0), ROW(garbage, INVALID, ALL), ROW(window, INVALID, 0) };

/* The good image that the faults are put into. */
static size_t image_for_faults(uint8_t *image, size_t room)
{
	struct elf elf = elf_make();
	size_t n = bzimage_make(ARCHIVE_FILTER_ZSTD, &elf, sizeof(elf), sizeof(elf), image, room);

	packed_size = n - 32 - PAYLOAD;
	return n;
}

START_TEST(test_bad_image)
{
	static uint8_t image[65536];
	size_t size = image_for_faults(image, sizeof(image));

	image_faults[_i].spoil(image);
	put_source(image, size);
	expect_refused(image_faults[_i].name, image_faults[_i].code, image_faults[_i].written_max);
}
END_TEST

/* ---- bombs: what unpacks to far more than it says, or more than once ---- */

static const int bomb_filters[] = { ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD, ARCHIVE_FILTER_LZ4,
	ARCHIVE_FILTER_BZIP2 };

/* A header that is good, and 4 MiB of nothing behind it that it does not speak of. */
START_TEST(test_bomb)
{
	const size_t size = 4 << 20, room = 1 << 20;
	CLEANUP_FREE uint8_t *data = calloc(1, size), *image = calloc(1, room);
	struct elf elf = elf_make();
	size_t n;

	ck_assert(data && image);
	memcpy(data, &elf, sizeof(elf));
	n = bzimage_make(bomb_filters[_i], data, size, 2 * KERNEL_HEAD_SIZE, image, room);
	put_source(image, n);
	expect_refused("more than it says", FAIL_KERNEL_INVALID, UINT64_C(2) * KERNEL_HEAD_SIZE);

	memset(data, 0, sizeof(elf));
	n = bzimage_make(bomb_filters[_i], data, size, size, image, room);
	put_source(image, n);
	expect_refused("nothing but zeros", FAIL_KERNEL_INVALID, KERNEL_HEAD_SIZE);
}
END_TEST

START_TEST(test_layers)
{
	const size_t size = 4 << 20, room = 1 << 20;
	CLEANUP_FREE uint8_t *data = calloc(1, size), *once = calloc(1, room), *image = calloc(1, room);
	size_t n;

	ck_assert(data && once && image);
	n = compress(bomb_filters[_i], data, size, once, room);
	n = bzimage_make(bomb_filters[_i], once, n, size, image, room);
	put_source(image, n);
	expect_refused("twice", FAIL_KERNEL_INVALID, 0);
}
END_TEST

/* ---- cut short ---- */

static void expect_cut_refused(const void *data, size_t size)
{
	struct err err;

	for (size_t n = 0; n < size; n += n < 80 || size - n < 20 ? 1 : 13) {
		err = (struct err) ERR_NULL;
		put_source(data, n);
		ck_assert_msg(kernel_import(source, target, &err) < 0, "imported when cut to %zu of %zu", n, size);
		ck_assert_msg(err.code == FAIL_KERNEL_TRUNCATED, "cut to %zu of %zu: %s", n, size, err.msg);
		ck_assert_int_lt(access(target, F_OK), 0);
	}
}

/* The file ends anywhere before its last byte of meaning. */
START_TEST(test_cut)
{
	static uint8_t image[65536];
	struct elf elf = elf_make();
	size_t size = bzimage_make(filters[_i], &elf, sizeof(elf), sizeof(elf), image, sizeof(image));

	expect_cut_refused(image, size - 32);
}
END_TEST

START_TEST(test_cut_elf)
{
	struct elf elf = elf_make();

	expect_cut_refused(&elf, offsetof(struct elf, text) + sizeof(elf.text));
}
END_TEST

static int64_t refuse_usec(const void *data, size_t size)
{
	struct timespec from, to;
	int r;

	put_source(data, size);
	(void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	r = kernel_import(source, target, NULL);
	(void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	ck_assert_int_lt(r, 0);
	return (to.tv_sec - from.tv_sec) * USEC_PER_SEC + (to.tv_nsec - from.tv_nsec) / 1000;
}

/* All of the table together: the deadline is 100 ms each, and none is near it. Of the processor's time, for what else a
 * machine has to do says nothing about an image. */
START_TEST(test_deadline)
{
	static uint8_t image[65536];
	int64_t took = 0;
	size_t size;

	for (size_t i = 0; i < ARRAY_LEN(elf_faults); i++) {
		struct elf elf = elf_make();

		elf_faults[i].spoil(&elf);
		size = bzimage_make(ARCHIVE_FILTER_XZ, &elf, sizeof(elf), sizeof(elf), image, sizeof(image));
		took += refuse_usec(image, size);
	}
	for (size_t i = 0; i < ARRAY_LEN(image_faults); i++) {
		size = image_for_faults(image, sizeof(image));
		image_faults[i].spoil(image);
		took += refuse_usec(image, size);
	}
	ck_assert_int_lt(took, (int64_t) (ARRAY_LEN(elf_faults) + ARRAY_LEN(image_faults)) * 3 * USEC_PER_SEC / 10);
}
END_TEST

START_TEST(test_no_image)
{
	expect_refused("absent", FAIL_KERNEL_MISSING, 0);
	put_source("", 0);
	expect_refused("empty", FAIL_KERNEL_TRUNCATED, 0);
	ck_assert_int_eq(mkfifo(source, 0600), 0);
	expect_refused("a FIFO without a writer", FAIL_KERNEL_INVALID, 0);
	put_source("", 0);
	ck_assert_int_eq(truncate(source, (off_t) KERNEL_FILE_MAX + 1), 0);
	expect_refused("over 1 GiB", FAIL_KERNEL_TOO_LARGE, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image-kernel");
	TCase *t = tcase_create("kernel");

	(void) unsetenv("CROFT_ORIGINS_FILE"); /* what is written is counted here (tests/lib/origins.h) */
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_import, 0, (int) ARRAY_LEN(filters));
	tcase_add_test(t, test_import_elf);
	tcase_add_loop_test(t, test_bad_elf, 0, (int) ARRAY_LEN(elf_faults));
	tcase_add_loop_test(t, test_bad_elf_packed, 0, (int) ARRAY_LEN(elf_faults));
	tcase_add_loop_test(t, test_bad_image, 0, (int) ARRAY_LEN(image_faults));
	tcase_add_loop_test(t, test_bomb, 0, (int) ARRAY_LEN(bomb_filters));
	tcase_add_loop_test(t, test_layers, 0, (int) ARRAY_LEN(bomb_filters));
	tcase_add_loop_test(t, test_cut, 0, (int) ARRAY_LEN(filters));
	tcase_add_test(t, test_cut_elf);
	tcase_add_test(t, test_deadline);
	tcase_add_test(t, test_no_image);
	suite_add_tcase(suite, t);
	return suite_run(suite);
}
