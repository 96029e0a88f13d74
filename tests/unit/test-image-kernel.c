/* SPDX-License-Identifier: Apache-2.0
 *
 * image/kernel: a bzImage made here around a small ELF file, in each compression that kernels use; and each way
 * in which an image can be wrong. A refused image leaves nothing behind.
 */
#include <archive.h>
#include <archive_entry.h>
#include <check.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "image/kernel.h"

#define SETUP_SECTORS 2u
#define PAYLOAD_AT 64u /* after the setup sectors */

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
	elf.segments[0] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_offset = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr),
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

/* The image's size. */
static size_t bzimage_make(int filter, const struct elf *elf, uint8_t *ret, size_t room)
{
	const size_t at = (SETUP_SECTORS + 1) * 512 + PAYLOAD_AT;
	size_t n = compress(filter, elf, sizeof(*elf), ret + at, room - at - 64);

	if (filter != ARCHIVE_FILTER_GZIP) {
		put32(ret + at + n, sizeof(*elf));
		n += 4;
	}
	ret[0x1f1] = SETUP_SECTORS;
	memcpy(ret + 0x202, "HdrS\x0f\x02", 6);
	put32(ret + 0x248, PAYLOAD_AT);
	put32(ret + 0x24c, (uint32_t) n);
	memset(ret + at + n, 0xcc, 32); /* what follows the payload in a real image */
	return at + n + 32;
}

static void expect_refused(enum fail_code code)
{
	struct err err = ERR_NULL;

	ck_assert_int_lt(kernel_import(source, target, &err), 0);
	ck_assert_str_eq(failure_info(err.code)->name, failure_info(code)->name);
	ck_assert_int_lt(access(target, F_OK), 0);
	(void) unlink(source);
	ck_assert_int_eq(rmdir(dir), 0); /* not even a temporary file */
	ck_assert_int_eq(mkdir(dir, 0700), 0);
}

static const int filters[] = { ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD, ARCHIVE_FILTER_LZ4,
	ARCHIVE_FILTER_LZMA, ARCHIVE_FILTER_BZIP2 };

START_TEST(test_import)
{
	static uint8_t image[65536];
	struct elf elf = elf_make();
	size_t size = bzimage_make(filters[_i], &elf, image, sizeof(image)), got;
	CLEANUP_FREE char *data = NULL;
	struct err err = ERR_NULL;

	ck_assert_int_eq(file_replace(source, image, size, 0600), 0);
	ck_assert_msg(kernel_import(source, target, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(file_read(target, 1 << 20, &data, &got), 0);
	ck_assert_uint_eq(got, sizeof(elf));
	ck_assert_int_eq(memcmp(data, &elf, sizeof(elf)), 0);
}
END_TEST

START_TEST(test_import_elf)
{
	struct elf elf = elf_make();
	CLEANUP_FREE char *data = NULL;
	struct err err = ERR_NULL;
	size_t got;

	ck_assert_int_eq(file_replace(source, &elf, sizeof(elf), 0600), 0);
	ck_assert_msg(kernel_import(source, target, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(file_read(target, 1 << 20, &data, &got), 0);
	ck_assert_uint_eq(got, sizeof(elf));
}
END_TEST

static void elf_class(struct elf *elf) { elf->head.e_ident[EI_CLASS] = ELFCLASS32; }
static void elf_machine(struct elf *elf) { elf->head.e_machine = EM_AARCH64; }
static void elf_type(struct elf *elf) { elf->head.e_type = ET_DYN; }
static void elf_no_segments(struct elf *elf) { elf->head.e_phnum = 0; }
static void elf_many_segments(struct elf *elf) { elf->head.e_phnum = 0xffff; }
static void elf_segments_outside(struct elf *elf) { elf->head.e_phoff = 1 << 20; }
static void elf_segments_wrap(struct elf *elf) { elf->head.e_phoff = UINT64_MAX - 8; }
static void elf_segment_outside(struct elf *elf) { elf->segments[0].p_filesz = 3001; }
static void elf_offset_wraps(struct elf *elf) { elf->segments[0].p_offset = UINT64_MAX - 100; }
static void elf_memory_smaller(struct elf *elf) { elf->segments[0].p_memsz = 10; }
static void elf_entry_outside(struct elf *elf) { elf->head.e_entry = 0x1001000; }
static void elf_nothing_loads(struct elf *elf) { elf->segments[0].p_type = PT_NOTE; }

static void (*const elf_faults[])(struct elf *) = { elf_class, elf_machine, elf_type, elf_no_segments,
	elf_many_segments, elf_segments_outside, elf_segments_wrap, elf_segment_outside, elf_offset_wraps,
	elf_memory_smaller, elf_entry_outside, elf_nothing_loads };

START_TEST(test_bad_elf)
{
	static uint8_t image[65536];
	struct elf elf = elf_make();
	size_t size;

	elf_faults[_i](&elf);
	size = bzimage_make(ARCHIVE_FILTER_GZIP, &elf, image, sizeof(image));
	ck_assert_int_eq(file_replace(source, image, size, 0600), 0);
	expect_refused(FAIL_KERNEL_INVALID);
}
END_TEST

static void image_magic(uint8_t *p) { p[0x202] = 'X'; }
static void image_old(uint8_t *p) { p[0x206] = 7; }
static void image_ancient(uint8_t *p) { p[0x207] = 1; }
static void image_offset(uint8_t *p) { put32(p + 0x248, 0x7fffffff); }
static void image_offset_max(uint8_t *p) { put32(p + 0x248, 0xffffffff); }
static void image_length(uint8_t *p) { put32(p + 0x24c, 0xffffffff); }
static void image_empty(uint8_t *p) { put32(p + 0x24c, 0); }
static void image_four(uint8_t *p) { put32(p + 0x24c, 4); }
static void image_short(uint8_t *p) { put32(p + 0x24c, 200); }
static void image_garbage(uint8_t *p) { memset(p + 3 * 512 + PAYLOAD_AT, 0xa5, 200); }

static void (*const image_faults[])(uint8_t *) = { image_magic, image_old, image_ancient, image_offset,
	image_offset_max, image_length, image_empty, image_four, image_short, image_garbage };

START_TEST(test_bad_image)
{
	static uint8_t image[65536];
	struct elf elf = elf_make();
	size_t size = bzimage_make(ARCHIVE_FILTER_XZ, &elf, image, sizeof(image));

	image_faults[_i](image);
	ck_assert_int_eq(file_replace(source, image, size, 0600), 0);
	expect_refused(FAIL_KERNEL_INVALID);
}
END_TEST

START_TEST(test_no_image)
{
	struct err err = ERR_NULL;

	expect_refused(FAIL_KERNEL_MISSING);
	ck_assert_int_eq(file_replace(source, "", 0, 0600), 0);
	expect_refused(FAIL_KERNEL_INVALID);
	ck_assert_int_lt(kernel_import("/tmp", target, &err), 0);
	ck_assert_int_eq(err.code, FAIL_KERNEL_INVALID);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image-kernel");
	TCase *t = tcase_create("kernel");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_import, 0, (int) ARRAY_LEN(filters));
	tcase_add_test(t, test_import_elf);
	tcase_add_loop_test(t, test_bad_elf, 0, (int) ARRAY_LEN(elf_faults));
	tcase_add_loop_test(t, test_bad_image, 0, (int) ARRAY_LEN(image_faults));
	tcase_add_test(t, test_no_image);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
