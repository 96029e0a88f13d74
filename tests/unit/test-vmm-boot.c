/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands in guest memory before the first instruction: layout, command line, kernel image, ACPI tables,
 * zero page, registers; and the check of a start request. Cases R115 R116 R118 R124.
 */
#include <asm/bootparam.h>
#include <check.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "acpi.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/vmlinux.h"
#include "boot/cmdline.h"
#include "boot/cpu.h"
#include "boot/elf.h"
#include "boot/layout.h"
#include "boot/params.h"
#include "config.h"
#include "cpuid.h"
#include "generation.h"
#include "lib/suite.h"
#include "memory.h"

/* ---- memory ---- */

static const struct {
	uint64_t mib;
	bool is_good;
} memory_sizes[] = { { 0, false }, { 1, false }, { 63, false }, { 64, true }, { 3071, true }, { 3072, true },
	{ 3073, true }, { MEMORY_MIB_MAX, true }, { MEMORY_MIB_MAX + 1, false }, { UINT64_C(1) << 32, false },
	{ UINT64_C(1) << 44, false }, { UINT64_C(1) << 63, false }, { UINT64_MAX, false } };

START_TEST(memory_size)
{
	struct memory_region regions[2];
	struct err err = ERR_NULL;
	unsigned int n = 0;
	int r = memory_layout(memory_sizes[_i].mib, regions, &n, &err);

	if (!memory_sizes[_i].is_good) {
		ck_assert_int_lt(r, 0);
		ck_assert_int_eq((int) err.code, FAIL_MEMORY_INVALID);
		ck_assert_ptr_nonnull(err_field(&err, "max"));
		return;
	}
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(n, memory_sizes[_i].mib > 3072 ? 2 : 1);
	ck_assert_uint_eq(regions[0].gpa, 0);
	ck_assert_uint_le(regions[0].size, MEMORY_GAP_START);
	if (n == 2) {
		ck_assert_uint_eq(regions[0].size, MEMORY_GAP_START);
		ck_assert_uint_eq(regions[1].gpa, MEMORY_GAP_END);
		ck_assert_uint_eq(regions[1].offset, MEMORY_GAP_START);
	}
	ck_assert_uint_eq(regions[0].size + (n == 2 ? regions[1].size : 0), memory_sizes[_i].mib << 20);
}
END_TEST

#define GIB (UINT64_C(1) << 30)

static const struct {
	uint64_t gpa, len;
	bool is_ram;
} maps[] = {
	{ 0, 1, true },
	{ 0, 3 * GIB, true },
	{ 0, 3 * GIB + 1, false },
	{ 3 * GIB - 4096, 4096, true },
	{ 3 * GIB - 4096, 4097, false },
	{ 3 * GIB - 1, 2, false },
	{ 3 * GIB, 1, false },
	{ 3 * GIB, 0, false },
	{ 3 * GIB + 4096, 1, false },
	{ 4 * GIB - 4096, 4096, false },
	{ 4 * GIB - 1, 2, false },
	{ 4 * GIB, 4096, true },
	{ 4 * GIB + (1 << 20) - 1, 1, true },
	{ 4 * GIB + (1 << 20) - 1, 2, false },
	{ 4 * GIB + (1 << 20), 1, false },
	{ UINT64_MAX, 1, false },
	{ UINT64_MAX, UINT64_MAX, false },
	{ 4096, UINT64_MAX, false },
	{ 4096, UINT64_MAX - 4095, false },
	{ 1, UINT64_MAX, false },
};

/* R118: 3 GiB and 1 MiB, so that both sides of the gap have an end. */
START_TEST(memory_map)
{
	uint64_t offset = 0;
	struct memory memory;
	uint8_t byte = 0;
	void *at;

	ck_assert_int_eq(memory_init(&memory, 3073, NULL), 0);
	ck_assert_uint_eq((uintptr_t) memory.base % (2 << 20), 0);
	at = guest_map(&memory, maps[_i].gpa, maps[_i].len);
	ck_assert(maps[_i].is_ram ? at == memory.base + maps[_i].gpa : at == NULL);
	ck_assert(memory_offset(&memory, maps[_i].gpa, maps[_i].len, &offset) == maps[_i].is_ram);
	if (at && maps[_i].len > 0) {
		((volatile uint8_t *) at)[0] = 1;
		((volatile uint8_t *) at)[maps[_i].len - 1] = 2;
		/* where the memory's file has it: that is what a balloon gives back and a snapshot keeps */
		ck_assert_int_eq(fd_pread_all(memory.fd, &byte, 1, (off_t) (offset + maps[_i].len - 1)), 0);
		ck_assert_uint_eq(byte, 2);
	}
	memory_deinit(&memory);
}
END_TEST

/* ---- command line ---- */

static size_t own_length(void)
{
	char line[CMDLINE_SIZE];

	ck_assert_int_eq(cmdline_build("", line, NULL), 0);
	return strlen(line);
}

static const size_t cmdline_lengths[] = { 2046, 2047, 2048, 2049, 4096 };

START_TEST(cmdline_length)
{
	size_t want = cmdline_lengths[_i];
	char line[CMDLINE_SIZE], append[8192], number[24];
	struct err err = ERR_NULL;
	size_t n = want - own_length() - 1;

	memset(append, 'x', n);
	append[n] = '\0';
	if (want <= CMDLINE_SIZE - 1) {
		ck_assert_int_eq(cmdline_build(append, line, &err), 0);
		ck_assert_uint_eq(strlen(line), want);
		return;
	}
	ck_assert_int_lt(cmdline_build(append, line, &err), 0);
	ck_assert_int_eq((int) err.code, FAIL_CMDLINE_TOO_LONG);
	(void) snprintf(number, sizeof(number), "%zu", want);
	ck_assert_str_eq(err_field(&err, "have"), number);
	ck_assert_str_eq(err_field(&err, "max"), "2047");
}
END_TEST

static const char *const bad_cmdlines[] = { "a\nb", "a\tb", "\x1f", "caf\xc3\xa9", "x\x7f",
	"virtio_mmio.device=4K@0xd0000000:5", "quiet virtio_mmio.device=1", "virtio-mmio.device=1",
	"\"virtio_mmio.device=1\"", "x=\"a virtio_mmio.device=1\"", "acpi=off", "acpi_enforce_resources=lax", "acpi.x=1",
	"reboot=k", "panic=0", "pci=on", "initrd=0x1000,0x10", "initrdmem=1,2", "rdinit=/bin/sh", "mem=16M",
	"memmap=4G$1M", "i8042.nopnp", "  reboot=t  ", "\"acpi=off", "a\"cpi\"=off x acpi=\"off\"" };

START_TEST(cmdline_refused)
{
	char line[CMDLINE_SIZE];
	struct err err = ERR_NULL;

	ck_assert_int_lt(cmdline_build(bad_cmdlines[_i], line, &err), 0);
	ck_assert_int_eq((int) err.code, FAIL_CMDLINE_BAD_CHAR);
	ck_assert(err_field(&err, "key") || err_field(&err, "offset"));
}
END_TEST

static const char *const good_cmdlines[] = { "", "quiet", "croft.debug=!~", "init=/sbin/x", "panic_on_warn=1",
	"console=tty0", "membrane=1", "x.reboot=1", "a=\"b c\"", "  ", "-- acpica" };

START_TEST(cmdline_accepted)
{
	char line[CMDLINE_SIZE];
	size_t n = strlen(good_cmdlines[_i]);

	/* the last one begins with a reserved prefix and shows that what stands behind "--" is looked at too */
	if (strstr(good_cmdlines[_i], "acpi")) {
		ck_assert_int_lt(cmdline_build(good_cmdlines[_i], line, NULL), 0);
		return;
	}
	ck_assert_int_eq(cmdline_build(good_cmdlines[_i], line, NULL), 0);
	ck_assert_str_eq(line + strlen(line) - n, good_cmdlines[_i]);
	ck_assert_int_eq(strncmp(line, "console=ttyS0 ", 14), 0);
}
END_TEST

/* ---- kernel image ---- */

struct image {
	Elf64_Ehdr head;
	Elf64_Phdr segments[3];
	uint8_t code[64];
};

#define SEGMENT_AT 0x1000000

static struct image good_image(void)
{
	struct image image = { .head = { .e_type = ET_EXEC, .e_machine = EM_X86_64, .e_version = 1,
		.e_entry = SEGMENT_AT + 8, .e_phoff = offsetof(struct image, segments),
		.e_ehsize = sizeof(Elf64_Ehdr), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 3 } };

	memcpy(image.head.e_ident, ELFMAG, SELFMAG);
	image.head.e_ident[EI_CLASS] = ELFCLASS64;
	image.head.e_ident[EI_DATA] = ELFDATA2LSB;
	image.segments[0] = (Elf64_Phdr) { .p_type = PT_LOAD, .p_flags = PF_R | PF_X,
		.p_offset = offsetof(struct image, code), .p_paddr = SEGMENT_AT, .p_filesz = 32, .p_memsz = 4096 };
	image.segments[1] = (Elf64_Phdr) { .p_type = PT_LOAD, .p_flags = PF_R | PF_W,
		.p_offset = offsetof(struct image, code) + 32, .p_paddr = SEGMENT_AT + 0x10000, .p_filesz = 32,
		.p_memsz = 0x2000 };
	image.segments[2] = (Elf64_Phdr) { .p_type = PT_NOTE, .p_offset = UINT64_MAX, .p_filesz = UINT64_MAX };
	for (size_t i = 0; i < sizeof(image.code); i++)
		image.code[i] = (uint8_t) (i + 1);
	return image;
}

static int image_file(const struct image *image, size_t size)
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, image, MIN(size, sizeof(*image))), 0);
	ck_assert_int_eq(ftruncate(fd, (off_t) size), 0);
	return fd;
}

START_TEST(elf_good)
{
	struct image image = good_image();
	struct elf_image out;
	struct memory memory;
	uint8_t *at;
	int fd = image_file(&image, sizeof(image));

	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	ck_assert_int_eq(elf_load(fd, &memory, &out, NULL), 0);
	ck_assert_uint_eq(out.entry, SEGMENT_AT + 8);
	ck_assert_uint_eq(out.end, SEGMENT_AT + 0x12000);
	at = guest_map(&memory, SEGMENT_AT, 4096);
	ck_assert_mem_eq(at, image.code, 32);
	ck_assert_uint_eq(at[32], 0); /* nothing of the next segment's bytes */
	at = guest_map(&memory, SEGMENT_AT + 0x10000, 4096);
	ck_assert_mem_eq(at, image.code + 32, 32);
	memory_deinit(&memory);
	(void) fd_close(fd);
}
END_TEST

#define HEAD(name, statement)                                                                                          \
	static void spoil_##name(struct image *i)                                                                      \
	{                                                                                                              \
		statement;                                                                                             \
	}

/* clang-format off */
HEAD(magic, i->head.e_ident[0] = 'M')
HEAD(class32, i->head.e_ident[EI_CLASS] = ELFCLASS32)
HEAD(endian, i->head.e_ident[EI_DATA] = ELFDATA2MSB)
HEAD(machine, i->head.e_machine = EM_AARCH64)
HEAD(type, i->head.e_type = ET_REL)
HEAD(phentsize, i->head.e_phentsize = 8)
HEAD(phnum_0, i->head.e_phnum = 0)
HEAD(phnum_max, i->head.e_phnum = UINT16_MAX)
HEAD(phoff_max, i->head.e_phoff = UINT64_MAX)
HEAD(phoff_wraps, i->head.e_phoff = UINT64_MAX - 100)
HEAD(phoff_end, i->head.e_phoff = sizeof(*i) - 8)
HEAD(nothing, i->head.e_phoff = offsetof(struct image, segments[2]); i->head.e_phnum = 1)
HEAD(entry_outside, i->head.e_entry = 0x2000000)
HEAD(entry_data, i->head.e_entry = SEGMENT_AT + 0x10000)
HEAD(entry_bss, i->head.e_entry = SEGMENT_AT + 32)
HEAD(entry_max, i->head.e_entry = UINT64_MAX)
HEAD(low, i->segments[1].p_paddr = 0xff000)
HEAD(a_byte_low, i->segments[1].p_paddr = 0xfffff)
HEAD(zero_page, i->segments[1].p_paddr = LAYOUT_BOOT_PARAMS)
HEAD(beyond, i->segments[1].p_paddr = (64 << 20) - 0x1000)
HEAD(beyond_empty, i->segments[1].p_paddr = (64 << 20) - 0x1000; i->segments[1].p_filesz = 0)
HEAD(far_beyond, i->segments[1].p_paddr = UINT64_C(1) << 40)
HEAD(wraps, i->segments[1].p_paddr = UINT64_MAX - 0x100)
HEAD(overlap, i->segments[1].p_paddr = SEGMENT_AT + 0xfff)
HEAD(same, i->segments[1].p_paddr = SEGMENT_AT)
HEAD(file_over_memory, i->segments[1].p_memsz = 8)
HEAD(file_size_max, i->segments[1].p_filesz = UINT64_MAX)
HEAD(both_max, i->segments[1].p_filesz = UINT64_MAX; i->segments[1].p_memsz = UINT64_MAX)
HEAD(memory_max, i->segments[1].p_memsz = UINT64_MAX)
HEAD(huge, i->segments[1].p_memsz = VMLINUX_MEMORY_MAX + 1)
HEAD(offset_max, i->segments[1].p_offset = UINT64_MAX)
HEAD(offset_end, i->segments[1].p_offset = sizeof(*i) - 31)
HEAD(offset_wraps, i->segments[1].p_offset = UINT64_MAX - 8)
/* clang-format on */

#define ROW(name, code) { spoil_##name, FAIL_KERNEL_##code }

static const struct {
	void (*spoil)(struct image *);
	enum fail_code code;
} spoilers[] = { ROW(magic, INVALID), ROW(class32, INVALID), ROW(endian, INVALID), ROW(machine, INVALID), ROW(type, INVALID),
	ROW(phentsize, INVALID), ROW(phnum_0, INVALID), ROW(phnum_max, INVALID), ROW(phoff_max, TRUNCATED),
	ROW(phoff_wraps, TRUNCATED), ROW(phoff_end, TRUNCATED), ROW(nothing, INVALID), ROW(entry_outside, INVALID),
	ROW(entry_data, INVALID), ROW(entry_bss, INVALID), ROW(entry_max, INVALID), ROW(low, INVALID), ROW(a_byte_low, INVALID),
	ROW(zero_page, INVALID), ROW(beyond, INVALID), ROW(beyond_empty, INVALID),
	ROW(far_beyond, INVALID), ROW(wraps, INVALID),
	ROW(overlap, INVALID), ROW(same, INVALID), ROW(file_over_memory, INVALID), ROW(file_size_max, INVALID),
	ROW(both_max, TOO_LARGE), ROW(memory_max, TOO_LARGE), ROW(huge, TOO_LARGE), ROW(offset_max, TRUNCATED),
	ROW(offset_end, TRUNCATED), ROW(offset_wraps, TRUNCATED) };

/* Side by side, and as much together as there may be. */
START_TEST(elf_at_the_bounds)
{
	struct image image = good_image();
	struct elf_image out;
	struct memory memory;
	int fd;

	image.segments[1].p_paddr = SEGMENT_AT + 4096;
	image.segments[1].p_memsz = VMLINUX_MEMORY_MAX - 4096 + (_i == 0 ? 0 : 1);
	fd = image_file(&image, sizeof(image));
	ck_assert_int_eq(memory_init(&memory, 512, NULL), 0);
	ck_assert_int_eq(elf_load(fd, &memory, &out, NULL) == 0, _i == 0);
	memory_deinit(&memory);
	(void) fd_close(fd);
}
END_TEST

static void expect_refusal(int fd, const struct memory *memory, enum fail_code code)
{
	int64_t began = clock_monotonic_usec();
	struct err err = ERR_NULL;
	struct elf_image out;

	ck_assert_int_lt(elf_load(fd, memory, &out, &err), 0);
	ck_assert_str_eq(failure_info(err.code)->name, failure_info(code)->name);
	ck_assert_ptr_nonnull(err_field(&err, "why"));
	ck_assert_int_lt(clock_monotonic_usec() - began, 2 * USEC_PER_SEC); /* generous: nothing is read or walked */
}

START_TEST(elf_hostile)
{
	struct image image = good_image();
	struct memory memory;
	int fd;

	spoilers[_i].spoil(&image);
	fd = image_file(&image, sizeof(image));
	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	expect_refusal(fd, &memory, spoilers[_i].code);
	memory_deinit(&memory);
	(void) fd_close(fd);
}
END_TEST

/* Cut at every byte: whatever is missing, it is refused. */
START_TEST(elf_truncated)
{
	struct image image = good_image();
	struct memory memory;

	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	for (size_t n = 0; n < sizeof(image); n++) {
		int fd = image_file(&image, n);

		expect_refusal(fd, &memory, FAIL_KERNEL_TRUNCATED);
		(void) fd_close(fd);
	}
	memory_deinit(&memory);
}
END_TEST

START_TEST(elf_no_file)
{
	struct memory memory;
	int pipes[2];

	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	ck_assert_int_eq(pipe(pipes), 0);
	expect_refusal(pipes[0], &memory, FAIL_KERNEL_INVALID); /* would block for ever if it were read */
	expect_refusal(-1, &memory, FAIL_KERNEL_INVALID);
	(void) fd_close(pipes[0]);
	(void) fd_close(pipes[1]);
	memory_deinit(&memory);
}
END_TEST

/* ---- ACPI ---- */

static uint8_t sum(const uint8_t *bytes, size_t n)
{
	uint8_t total = 0;

	for (size_t i = 0; i < n; i++)
		total = (uint8_t) (total + bytes[i]);
	return total;
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static const uint8_t *table_at(const uint8_t *buf, uint64_t gpa, const char *signature, size_t used)
{
	const uint8_t *at = buf + (gpa - LAYOUT_ACPI);

	ck_assert_uint_ge(gpa, LAYOUT_ACPI);
	ck_assert_uint_le(gpa - LAYOUT_ACPI + get32(at + 4), used);
	ck_assert_mem_eq(at, signature, 4);
	ck_assert_uint_eq(sum(at, get32(at + 4)), 0);
	return at;
}

static unsigned int count_text(const uint8_t *at, size_t size, const char *text)
{
	unsigned int n = 0;

	for (size_t i = 0; i + strlen(text) <= size; i++)
		n += !memcmp(at + i, text, strlen(text));
	return n;
}

/* Follows AML packages down to `depth` zero and checks that every length ends where its parent's does. */
static const uint8_t *walk_aml(const uint8_t *at, const uint8_t *end)
{
	while (at < end) {
		bool is_device = at[0] == 0x5b && at[1] == 0x82;

		if (at[0] == 0x10 || is_device) { /* Scope, Device */
			const uint8_t *len = at + (is_device ? 2 : 1), *inner_end;

			ck_assert_uint_eq(len[0] & 0xf0, 0x80);
			inner_end = len + ((len[0] & 0x0f) | (size_t) len[1] << 4 | (size_t) len[2] << 12);
			ck_assert(inner_end <= end);
			ck_assert_ptr_eq(walk_aml(len + 3 + (is_device ? 4 : 5), inner_end), inner_end);
			at = inner_end;
		} else if (at[0] == 0x14) { /* Method; its terms are checked elsewhere */
			at += 1 + ((at[1] & 0x0f) | (size_t) at[2] << 4 | (size_t) at[3] << 12);
			ck_assert(at <= end);
		} else { /* Name: string, byte, buffer or package */
			ck_assert_uint_eq(at[0], 0x08);
			at += 5;
			if (at[0] == 0x0d) {
				at += 2 + strlen((const char *) at + 1);
			} else if (at[0] == 0x0a) {
				at += 2;
			} else if (at[0] == 0x0c) {
				at += 5;
			} else {
				ck_assert(at[0] == 0x11 || at[0] == 0x12);
				at += 1 + ((at[1] & 0x0f) | (size_t) at[2] << 4 | (size_t) at[3] << 12);
			}
		}
	}
	return at;
}

static const struct acpi_input acpi_inputs[] = { { LAYOUT_ACPI, 1, 1 }, { LAYOUT_ACPI, 2, 4 },
	{ LAYOUT_ACPI, 32, LAYOUT_VIRTIO_MAX } };

START_TEST(acpi_tables)
{
	const struct acpi_input *input = &acpi_inputs[_i];
	static uint8_t buf[LAYOUT_ACPI_END - LAYOUT_ACPI];
	const uint8_t *xsdt, *fadt, *madt, *dsdt;
	int used = acpi_build(input, buf, sizeof(buf));
	size_t n;

	ck_assert_int_gt(used, 0);
	n = (size_t) used;
	ck_assert_mem_eq(buf, "RSD PTR ", 8);
	ck_assert_uint_eq(buf[15], 2);
	ck_assert_uint_eq(sum(buf, 20), 0);
	ck_assert_uint_eq(sum(buf, 36), 0);
	xsdt = table_at(buf, get64(buf + 24), "XSDT", n);
	ck_assert_uint_eq(get32(xsdt + 4), 36 + 16);
	fadt = table_at(buf, get64(xsdt + 36), "FACP", n);
	madt = table_at(buf, get64(xsdt + 44), "APIC", n);
	ck_assert_uint_eq(get32(fadt + 4), 276);
	ck_assert_uint_eq(fadt[8], 6);
	ck_assert_msg(fadt[109] == 0x24 && fadt[110] == 0, "no 8042, or the kernel looks for one");
	ck_assert_uint_eq(get32(fadt + 112), 1u << 20 | 1u << 10 | 1u << 5 | 1u << 4);
	ck_assert_uint_eq(get64(fadt + 120), LAYOUT_PORT_RESET);
	ck_assert_uint_eq(fadt[116], 1);
	ck_assert_uint_eq(get64(fadt + 248), LAYOUT_PORT_SLEEP_CONTROL);
	ck_assert_uint_eq(get64(fadt + 260), LAYOUT_PORT_SLEEP_STATUS);
	ck_assert_uint_eq(get32(fadt + 36), 0); /* no FACS */
	ck_assert_uint_eq(get32(madt + 40), 0); /* no 8259 */
	ck_assert_uint_eq(get32(madt + 4), 44 + 8 * input->n_vcpus + 12);
	dsdt = table_at(buf, get64(fadt + 140), "DSDT", n);
	ck_assert_uint_eq(count_text(dsdt, get32(dsdt + 4), "LNRO0005"), input->n_virtio);
	ck_assert_uint_eq(count_text(dsdt, get32(dsdt + 4), "PNP0501"), 1);
	ck_assert_uint_eq(count_text(dsdt, get32(dsdt + 4), "QEMU0001"), 1);
	ck_assert_uint_eq(count_text(dsdt, get32(dsdt + 4), "_S5_"), 1);
	ck_assert_ptr_eq(walk_aml(dsdt + 36, dsdt + get32(dsdt + 4)), dsdt + get32(dsdt + 4));
}
END_TEST

static const uint8_t *find_bytes(const uint8_t *at, size_t size, const char *bytes, size_t n)
{
	return memmem(at, size, bytes, n);
}

/* The counter's address, and the event device with its interrupt and what it notifies. */
START_TEST(acpi_generation)
{
	static const char address[] = "\x08" "ADDR\x12\x8b\x00\x00\x02\x0c\x00\xf0\x0e\x00\x0a\x00";
	static const char interrupt[] = "\x89\x06\x00\x03\x01\x17\x00\x00\x00";
	static const char method[] = "\x14\x8f\x00\x00_EVT\x09\x86VGEN\x0a\x80";
	static uint8_t buf[LAYOUT_ACPI_END - LAYOUT_ACPI];
	int used = acpi_build(&acpi_inputs[0], buf, sizeof(buf));

	ck_assert_uint_eq(LAYOUT_GENERATION, 0xef000);
	ck_assert_int_gt(used, 0);
	ck_assert_ptr_nonnull(find_bytes(buf, (size_t) used, "VM_Gen_Counter", 15));
	ck_assert_ptr_nonnull(find_bytes(buf, (size_t) used, "ACPI0013", 9));
	ck_assert_ptr_nonnull(find_bytes(buf, (size_t) used, address, sizeof(address) - 1));
	ck_assert_ptr_nonnull(find_bytes(buf, (size_t) used, interrupt, sizeof(interrupt) - 1));
	ck_assert_ptr_nonnull(find_bytes(buf, (size_t) used, method, sizeof(method) - 1));
}
END_TEST

/* Random from the first moment, another one with an interrupt after. */
START_TEST(generation_renews)
{
	static const uint8_t none[GENERATION_SIZE];
	struct memory memory;
	struct generation generation = GENERATION_NULL;
	uint8_t first[GENERATION_SIZE], last = 0;
	uint64_t n;

	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	ck_assert_int_eq(generation_init(&generation), 0);
	ck_assert_int_eq(generation_place(&generation, &memory), 0);
	ck_assert_ptr_eq(generation.id, memory.base + LAYOUT_GENERATION);
	memcpy(first, generation.id, sizeof(first));
	ck_assert_mem_ne(first, none, sizeof(first));
	ck_assert_int_lt((int) read(generation.irq_fd, &n, sizeof(n)), 0);
	for (int i = 0; i < 64; i++) {
		ck_assert_int_eq(generation_renew(&generation), 0);
		ck_assert_int_eq((int) read(generation.irq_fd, &n, sizeof(n)), 8);
		ck_assert_mem_ne(generation.id, first, sizeof(first));
		last |= generation.id[GENERATION_SIZE - 1] ^ first[GENERATION_SIZE - 1];
		memcpy(first, generation.id, sizeof(first));
	}
	ck_assert_uint_ne(last, 0); /* all 16 bytes are new */
	/* a guest that takes no interrupt: the one that waits is enough */
	n = UINT64_MAX - 1;
	ck_assert_int_eq((int) write(generation.irq_fd, &n, sizeof(n)), 8);
	ck_assert_int_eq(generation_renew(&generation), 0);
	ck_assert_mem_ne(generation.id, first, sizeof(first));
	generation_deinit(&generation);
	memory_deinit(&memory);
}
END_TEST

START_TEST(acpi_no_room)
{
	uint8_t buf[4096];

	for (size_t n = 0; n < 700; n++)
		ck_assert_int_lt(acpi_build(&acpi_inputs[1], buf, n), 0);
}
END_TEST

/* ---- zero page and registers ---- */

static int file_of(size_t size)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_pwrite_all(fd, "initramfs", 9, 0), 0);
	ck_assert_int_eq(ftruncate(fd, (off_t) size), 0);
	return fd;
}

START_TEST(params_written)
{
	static const uint8_t reset_code[] = { 0xba, 0x04, 0x06, 0xb0, 0x01, 0xee, 0xf4, 0xeb, 0xfd };
	struct boot_input input = { .cmdline = "quiet", .kernel_end = 0x2000000, .initramfs_fd = file_of(12345),
		.acpi_rsdp = LAYOUT_ACPI, .seed = { 7, 7, 7 } };
	const struct boot_params *params;
	struct memory memory;

	ck_assert_int_eq(memory_init(&memory, 3073, NULL), 0);
	ck_assert_int_eq(boot_params_write(&memory, &input, NULL), 0);
	params = guest_map(&memory, LAYOUT_BOOT_PARAMS, sizeof(*params));
	ck_assert_uint_eq(params->hdr.boot_flag, 0xaa55);
	ck_assert_uint_eq(params->hdr.ramdisk_size, 12345);
	ck_assert_uint_eq(params->hdr.ramdisk_image % 4096, 0);
	ck_assert_uint_le(params->hdr.ramdisk_image + 12345, MEMORY_GAP_START);
	ck_assert_mem_eq(guest_map(&memory, params->hdr.ramdisk_image, 9), "initramfs", 9);
	ck_assert_str_eq((char *) guest_map(&memory, params->hdr.cmd_line_ptr, 6), "quiet");
	ck_assert_uint_eq(params->acpi_rsdp_addr, LAYOUT_ACPI);
	ck_assert_uint_eq(params->e820_entries, 4);
	for (int i = 1; i < params->e820_entries; i++) /* in order and apart */
		ck_assert_uint_ge(params->e820_table[i].addr,
			params->e820_table[i - 1].addr + params->e820_table[i - 1].size);
	ck_assert_uint_eq(params->e820_table[0].size, LAYOUT_LOW_END);
	ck_assert_uint_eq(params->e820_table[1].addr, LAYOUT_ACPI); /* reserved: tables, generation id, reset code */
	ck_assert_uint_eq(params->e820_table[1].addr + params->e820_table[1].size, 1 << 20);
	ck_assert_uint_eq(params->e820_table[1].type, 2);
	ck_assert_uint_eq(params->e820_table[2].addr, 1 << 20);
	ck_assert_uint_eq(params->e820_table[2].addr + params->e820_table[2].size, MEMORY_GAP_START);
	ck_assert_uint_eq(params->e820_table[3].addr, MEMORY_GAP_END);
	ck_assert_uint_eq(params->e820_table[3].size, 1 << 20);
	ck_assert_uint_eq(((const struct setup_data *) guest_map(&memory, params->hdr.setup_data, 64))->type, 9);
	ck_assert_uint_eq(((const struct setup_data *) guest_map(&memory, params->hdr.setup_data, 64))->len, 32);
	ck_assert_mem_eq(guest_map(&memory, LAYOUT_RESET_VECTOR, 9), reset_code, sizeof(reset_code));
	(void) fd_close(input.initramfs_fd);
	memory_deinit(&memory);
}
END_TEST

/* The first GiB one to one and no more; the segments and registers that the kernel's 64-bit entry asks for. */
START_TEST(cpu_as_the_kernel_wants_it)
{
	struct kvm_sregs sregs = { .cr0 = 0 };
	struct memory memory;
	struct kvm_regs regs;
	const uint64_t *pml4, *pdpt, *pd;

	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	memset(guest_map(&memory, LAYOUT_PML4, 3 * 4096), 0xff, 3 * 4096);
	boot_cpu_write_tables(&memory);
	boot_cpu_registers(0x1000200, &sregs, &regs);
	pml4 = guest_map(&memory, sregs.cr3, 4096);
	pdpt = guest_map(&memory, pml4[0] & ~UINT64_C(4095), 4096);
	pd = guest_map(&memory, pdpt[0] & ~UINT64_C(4095), 4096);
	for (uint64_t i = 0; i < 512; i++) {
		ck_assert_uint_eq(pd[i], i << 21 | 0x83); /* present, writable, 2 MiB */
		ck_assert(i == 0 ? (pml4[i] & 3) == 3 && (pdpt[i] & 3) == 3 : pml4[i] == 0 && pdpt[i] == 0);
	}
	ck_assert_uint_eq(sregs.gdt.limit, 4 * 8 - 1);
	ck_assert_uint_eq(((const uint64_t *) guest_map(&memory, sregs.gdt.base, 32))[2], UINT64_C(0x00af9b000000ffff));
	ck_assert_uint_eq(((const uint64_t *) guest_map(&memory, sregs.gdt.base, 32))[3], UINT64_C(0x00cf93000000ffff));
	ck_assert(sregs.cs.selector == 0x10 && sregs.cs.l == 1 && sregs.ss.selector == 0x18 && sregs.idt.limit == 0);
	ck_assert_uint_eq(regs.rip, 0x1000200);
	ck_assert_uint_eq(regs.rsi, LAYOUT_BOOT_PARAMS);
	ck_assert_uint_eq(regs.rflags, 2); /* no interrupts */
	memory_deinit(&memory);
}
END_TEST

/* Two thirds of what the kernel leaves, to the byte. */
START_TEST(params_initramfs_at_the_bound)
{
	const uint64_t top = UINT64_C(64) << 20, most = (top - 0x2000000) / 3 * 2;
	struct boot_input input = { .cmdline = "", .kernel_end = 0x2000000, .initramfs_fd = file_of(most + (_i == 0 ? 0 : 1)) };
	struct memory memory;

	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	ck_assert_int_eq(boot_params_write(&memory, &input, NULL), _i == 0 ? 0 : -ENOMEM);
	(void) fd_close(input.initramfs_fd);
	memory_deinit(&memory);
}
END_TEST

START_TEST(params_initramfs_too_large)
{
	struct boot_input input = { .cmdline = "", .kernel_end = 0x2000000, .initramfs_fd = file_of(60 << 20) };
	struct err err = ERR_NULL;
	struct memory memory;
	int pipes[2];

	ck_assert_int_eq(memory_init(&memory, 64, NULL), 0);
	ck_assert_int_lt(boot_params_write(&memory, &input, &err), 0);
	ck_assert_int_eq((int) err.code, FAIL_MEMORY_INVALID);
	(void) fd_close(input.initramfs_fd);
	ck_assert_int_eq(pipe(pipes), 0);
	err.code = FAIL_NONE;
	input.initramfs_fd = pipes[0];
	ck_assert_int_lt(boot_params_write(&memory, &input, &err), 0);
	ck_assert_int_eq((int) err.code, FAIL_KERNEL_INVALID);
	(void) fd_close(pipes[0]);
	(void) fd_close(pipes[1]);
	memory_deinit(&memory);
}
END_TEST

/* What becomes of a CPU that has everything, for vCPU 3 of 5, bit by bit: the policy once more, written down apart from it. */
static const struct {
	uint32_t leaf, subleaf, eax, ebx, ecx, edx;
} cpu_bits[] = {
	{ 0x0, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
	/* without DTES64, MONITOR, VMX, SMX, EST, TM2, PDCM; DS, thermal; APIC id and cores */
	{ 0x1, 0, 0xffffffff, 0x0305ffff, 0xffff7e13, 0xdf9fffff },
	{ 0x4, 0, 0x1c013fff, 0xffffffff, 0xffffffff, 0xffffffff },
	{ 0x5, 0, 0, 0, 0, 0 },                                     /* MWAIT */
	{ 0x6, 0, 0x00000004, 0, 0, 0 },                            /* the timer never stops, and nothing else */
	/* without SGX, RDT, PT; WAITPKG, ENQCMD, launch control; PCONFIG, LBR, AMX */
	{ 0x7, 0, 0xffffffff, 0xfdff6ffb, 0x9fffffdf, 0xfcb3ffff },
	{ 0x7, 1, 0xffdfffff, 0xffffffff, 0xffffffff, 0xfffffeff }, /* AMX */
	{ 0xa, 0, 0, 0, 0, 0 },                                     /* PMU */
	{ 0xb, 0, 0, 0x00000001, 0x00000100, 3 },
	{ 0xb, 1, 3, 0x00000005, 0x00000201, 3 },
	{ 0xd, 0, 0xfff9ffff, 0xffffffff, 0xffffffff, 0xffffffff }, /* AMX */
	{ 0xd, 1, 0xffffffef, 0xffffffff, 0xffff7eff, 0xffffffff }, /* XFD, state of PT and LBR */
	{ 0xd, 2, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
	{ 0xd, 17, 0, 0, 0, 0 },
	{ 0xd, 18, 0, 0, 0, 0 },
	{ 0x12, 0, 0, 0, 0, 0 },                                    /* SGX */
	{ 0x14, 0, 0, 0, 0, 0xffffffff },                           /* PT */
	{ 0x1b, 0, 0, 0, 0, 0 },                                    /* PCONFIG */
	{ 0x1d, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff },         /* tiles */
	{ 0x1e, 0, 0xffffffff, 0, 0xffffffff, 0xffffffff },
	{ 0x1f, 0, 0, 0, 0, 0 },                                    /* a topology that is not ours */
	{ 0x40000001, 0, 0xffffbbef, 0xffffffff, 0xffffffff, 0xffffffff }, /* async page faults */
	/* without SVM, SKINIT, IBS, LWP, PMU, MONITORX */
	{ 0x80000001, 0, 0xffffffff, 0xffffffff, 0xc67f6bfb, 0xffffffff },
	{ 0x80000007, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0xfffffeff }, /* invariant TSC: it would not stand still in a pause */
	{ 0x80000008, 0, 0xffffffff, 0xffffffff, 0x00003004, 0xffffffff },
	{ 0x8000000a, 0, 0, 0, 0, 0 },                              /* SVM */
	{ 0x8000001b, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff },   /* IBS */
	{ 0x8000001d, 0, 0xfc013fff, 0xffffffff, 0xffffffff, 0xffffffff },
	{ 0x8000001e, 0, 3, 3, 0, 0xffffffff },
	{ 0x8000001f, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff },   /* SEV */
	{ 0x80000022, 0, 0, 0, 0xffffffff, 0xffffffff },            /* PMU */
	{ 0x80000026, 0, 0, 0, 0, 0 },
};

START_TEST(cpuid_policy)
{
	static struct cpuid cpuid;

	for (size_t i = 0; i < ARRAY_LEN(cpu_bits); i++)
		cpuid.entries[i] = (struct kvm_cpuid_entry2) { .function = cpu_bits[i].leaf, .index = cpu_bits[i].subleaf,
			.eax = UINT32_MAX, .ebx = UINT32_MAX, .ecx = UINT32_MAX, .edx = UINT32_MAX };
	cpuid.n = ARRAY_LEN(cpu_bits);
	cpuid_apply(&cpuid, 3, 5, true);
	for (size_t i = 0; i < ARRAY_LEN(cpu_bits); i++) {
		const struct kvm_cpuid_entry2 *at = &cpuid.entries[i];

		ck_assert_msg(at->eax == cpu_bits[i].eax && at->ebx == cpu_bits[i].ebx && at->ecx == cpu_bits[i].ecx &&
				at->edx == cpu_bits[i].edx, "leaf 0x%x.%u: 0x%08x 0x%08x 0x%08x 0x%08x", at->function,
			at->index, at->eax, at->ebx, at->ecx, at->edx);
	}
	/* what is forced on one that has nothing: hypervisor, TSC deadline where KVM has it, x2APIC; no threads for one vCPU */
	cpuid.entries[0] = (struct kvm_cpuid_entry2) { .function = 1, .edx = 1u << 28 };
	cpuid.entries[1] = (struct kvm_cpuid_entry2) { .function = 1 };
	cpuid.n = 2;
	cpuid_apply(&cpuid, 0, 1, false);
	ck_assert_uint_eq(cpuid.entries[0].ecx, 1u << 31 | 1u << 21);
	ck_assert_uint_eq(cpuid.entries[0].edx, 0);
	cpuid.entries[1].ecx = 0;
	cpuid_apply(&cpuid, 0, 2, true);
	ck_assert_uint_eq(cpuid.entries[1].ecx, 1u << 31 | 1u << 24 | 1u << 21);
	ck_assert_uint_eq(cpuid.entries[1].edx, 1u << 28);
}
END_TEST

/* Registers that guests do not get, from and to, and that the ones beside them are let alone. */
static const struct {
	uint32_t from, to;
} denied_registers[] = {
	{ 0x8c, 0x8f }, { 0xc1, 0xc8 }, { 0x186, 0x18d }, { 0x1c4, 0x1c5 }, { 0x309, 0x30c }, { 0x345, 0x345 }, { 0x38d, 0x3f7 },
	{ 0x480, 0x491 }, { 0x560, 0x571 }, { 0x600, 0x600 }, { 0x4b564d02, 0x4b564d02 }, { 0x4b564d06, 0x4b564d07 },
	{ 0xc0000300, 0xc0000303 }, { 0xc0010000, 0xc0010007 }, { 0xc0010114, 0xc0010117 }, { 0xc0010200, 0xc001020b },
};

START_TEST(msr_policy)
{
	static const uint32_t needed[] = { 0x10, 0x1b, 0x3a, 0x3b, 0x48, 0x49, 0x174, 0x175, 0x176, 0x1a0, 0x277, 0x2ff, 0x6e0,
		0x4b564d00, 0x4b564d01, 0x4b564d03, 0x4b564d04, 0x4b564d05, 0xc0000080, 0xc0000081, 0xc0000100, 0xc0000102,
		0xc0000103 };

	for (size_t i = 0; i < ARRAY_LEN(denied_registers); i++) {
		ck_assert(!cpuid_is_denied_msr(denied_registers[i].from - 1));
		for (uint32_t index = denied_registers[i].from; index <= denied_registers[i].to; index++)
			ck_assert_msg(cpuid_is_denied_msr(index), "register 0x%x", index);
		ck_assert(!cpuid_is_denied_msr(denied_registers[i].to + 1));
	}
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		ck_assert_msg(!cpuid_is_denied_msr(needed[i]), "register 0x%x", needed[i]);
}
END_TEST

/* ---- the check of a start request ---- */

static void good_config(struct vm_config *config)
{
	config_init(config);
	config->vcpus = 1;
	config->memory_mib = 128;
	config->cmdline = strdup("quiet");
	config->n_disks = 1;
	config->disks[0].fd = memfd_create("disk", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(config->disks[0].fd, 4096), 0);
	config->has_vsock = true;
	config->guest_cid = 3;
	(void) snprintf(config->vsock_path, sizeof(config->vsock_path), "/run/x/vsock");
}

static void config_bad(void (*spoil)(struct vm_config *), enum fail_code code, int err_no)
{
	char cmdline[CMDLINE_SIZE];
	struct vm_config config;
	struct err err = ERR_NULL;

	good_config(&config);
	ck_assert_int_eq(config_check(&config, cmdline, NULL), 0);
	spoil(&config);
	ck_assert_int_lt(config_check(&config, cmdline, &err), 0);
	ck_assert_str_eq(failure_info(err.code)->name, failure_info(code)->name);
	ck_assert_int_eq((int) err.stage, code == FAIL_SOCKET_PATH_TOO_LONG ? STAGE_HOST : STAGE_VMM);
	ck_assert(err_no == 0 || err.err_no == err_no);
	config_deinit(&config);
}

/* clang-format off */
#define CONFIG(name, statement) static void config_##name(struct vm_config *c) { statement; }
CONFIG(vcpus_0, c->vcpus = 0)
CONFIG(vcpus_33, c->vcpus = 33)
CONFIG(vcpus_max, c->vcpus = UINT32_MAX)
CONFIG(memory_0, c->memory_mib = 0)
CONFIG(memory_max, c->memory_mib = UINT64_MAX)
CONFIG(disk_empty, ck_assert_int_eq(ftruncate(c->disks[0].fd, 0), 0))
CONFIG(disk_odd, ck_assert_int_eq(ftruncate(c->disks[0].fd, 4097), 0))
CONFIG(disk_256_more, ck_assert_int_eq(ftruncate(c->disks[0].fd, 4096 + 256), 0))
CONFIG(disk_256_alone, ck_assert_int_eq(ftruncate(c->disks[0].fd, 256), 0))
CONFIG(disk_pipe, int p[2]; ck_assert_int_eq(pipe(p), 0); (void) fd_close(p[1]); (void) fd_close(c->disks[0].fd); c->disks[0].fd = p[0])
CONFIG(disk_directory, (void) fd_close(c->disks[0].fd); c->disks[0].fd = open("/", O_RDONLY | O_DIRECTORY))
CONFIG(disk_none, (void) fd_close(c->disks[0].fd); c->disks[0].fd = -1)
CONFIG(disk_device, (void) fd_close(c->disks[0].fd); c->disks[0].fd = open("/dev/null", O_RDWR))
/* Opened anew, in another way. */
static void reopen_disk(struct vm_config *c, int flags)
{
	char path[64];

	(void) snprintf(path, sizeof(path), "/proc/self/fd/%d", c->disks[0].fd);
	int fd = open(path, flags | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	(void) fd_close(c->disks[0].fd);
	c->disks[0].fd = fd;
}

/* With a TAP that is none: what is wrong besides is found before. */
static void add_net(struct vm_config *c)
{
	c->has_net = true;
	c->net.mac[0] = 2;
	c->tap_fd = memfd_create("tap", MFD_CLOEXEC);
}

CONFIG(disk_not_writable, reopen_disk(c, O_RDONLY))
CONFIG(disk_append, reopen_disk(c, O_RDWR | O_APPEND))
CONFIG(disk_write_only, c->disks[0].is_read_only = true; reopen_disk(c, O_WRONLY))
CONFIG(disk_rate, c->disks[0].limit.bytes_burst = RATE_MAX + 1)
CONFIG(net_no_tap, add_net(c))
CONFIG(net_group, add_net(c); c->net.mac[0] = 3)
CONFIG(net_no_mac, add_net(c); c->net.mac[0] = 0)
CONFIG(net_rate_in, add_net(c); c->net.to_guest.ops = RATE_MAX + 1)
CONFIG(net_rate_out, add_net(c); c->net.from_guest.ops_burst = UINT64_MAX)
CONFIG(cid_2, c->guest_cid = 2)
CONFIG(cid_0, c->guest_cid = 0)
CONFIG(cid_any, c->guest_cid = UINT32_MAX)
CONFIG(path_empty, c->vsock_path[0] = '\0')
CONFIG(path_97, memset(c->vsock_path, 'x', 97); c->vsock_path[97] = '\0')
CONFIG(path_107, memset(c->vsock_path, 'x', 107); c->vsock_path[107] = '\0')
CONFIG(path_beside, c->run = "/run/xy")
CONFIG(path_beside_2, c->run = "/run/x/vs")
CONFIG(path_itself, c->run = "/run/x/vsock")
CONFIG(path_up, c->run = "/run/x"; (void) snprintf(c->vsock_path, sizeof(c->vsock_path), "/run/x/../vsock"))
CONFIG(path_up_last, c->run = "/run/x"; (void) snprintf(c->vsock_path, sizeof(c->vsock_path), "/run/x/a/.."))
CONFIG(path_directory, c->run = "/run/x"; (void) snprintf(c->vsock_path, sizeof(c->vsock_path), "/run/x/"))
CONFIG(path_relative, c->run = "/run/x"; (void) snprintf(c->vsock_path, sizeof(c->vsock_path), "run/x/vsock"))
CONFIG(path_no_run, c->run = "")
CONFIG(cmdline_long, free(c->cmdline); c->cmdline = calloc(1, 4097); memset(c->cmdline, 'x', 4096))
CONFIG(cmdline_key, free(c->cmdline); c->cmdline = strdup("acpi=off"))
/* clang-format on */

static const struct {
	void (*spoil)(struct vm_config *);
	enum fail_code code;
	int err_no; /* where others have the code too */
} bad_configs[] = {
	{ config_vcpus_0, FAIL_VCPUS_INVALID, 0 },
	{ config_vcpus_33, FAIL_VCPUS_INVALID, 0 },
	{ config_vcpus_max, FAIL_VCPUS_INVALID, 0 },
	{ config_memory_0, FAIL_MEMORY_INVALID, 0 },
	{ config_memory_max, FAIL_MEMORY_INVALID, 0 },
	{ config_disk_empty, FAIL_DISK_INVALID, 0 },
	{ config_disk_odd, FAIL_DISK_INVALID, 0 },
	{ config_disk_256_more, FAIL_DISK_INVALID, 0 },
	{ config_disk_256_alone, FAIL_DISK_INVALID, 0 },
	{ config_disk_pipe, FAIL_DISK_INVALID, 0 },
	{ config_disk_directory, FAIL_DISK_INVALID, 0 },
	{ config_disk_none, FAIL_DISK_INVALID, 0 },
	{ config_disk_device, FAIL_DISK_INVALID, 0 },
	{ config_disk_not_writable, FAIL_DISK_INVALID, 0 },
	{ config_disk_append, FAIL_DISK_INVALID, EBADF },
	{ config_disk_write_only, FAIL_DISK_INVALID, EBADF },
	{ config_disk_rate, FAIL_DISK_INVALID, ERANGE },
	{ config_net_no_tap, FAIL_NET_INVALID, ENOTTY },
	{ config_net_group, FAIL_NET_INVALID, EINVAL },
	{ config_net_no_mac, FAIL_NET_INVALID, EINVAL },
	{ config_net_rate_in, FAIL_NET_INVALID, ERANGE },
	{ config_net_rate_out, FAIL_NET_INVALID, ERANGE },
	{ config_cid_2, FAIL_INVALID_ARGUMENT, 0 },
	{ config_cid_0, FAIL_INVALID_ARGUMENT, 0 },
	{ config_cid_any, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_empty, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_97, FAIL_SOCKET_PATH_TOO_LONG, 0 },
	{ config_path_107, FAIL_SOCKET_PATH_TOO_LONG, 0 },
	{ config_path_beside, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_beside_2, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_itself, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_up, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_up_last, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_directory, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_relative, FAIL_INVALID_ARGUMENT, 0 },
	{ config_path_no_run, FAIL_INVALID_ARGUMENT, 0 },
	{ config_cmdline_long, FAIL_CMDLINE_TOO_LONG, 0 },
	{ config_cmdline_key, FAIL_CMDLINE_BAD_CHAR, 0 },
};

START_TEST(config_refused)
{
	config_bad(bad_configs[_i].spoil, bad_configs[_i].code, bad_configs[_i].err_no);
}
END_TEST

/* R124: the longest path that a port still fits behind. */
START_TEST(config_longest_path)
{
	char cmdline[CMDLINE_SIZE];
	struct vm_config config;

	good_config(&config);
	memset(config.vsock_path, 'x', 96);
	config.vsock_path[96] = '\0';
	ck_assert_int_eq(config_check(&config, cmdline, NULL), 0);
	config_deinit(&config);
}
END_TEST

/* What the jail shows; two dots in a name lead nowhere. */
START_TEST(config_path_inside)
{
	static const char *const pairs[][2] = { { "/run/x", "/run/x/vsock" }, { "/run/x/", "/run/x/vsock" },
		{ "/run", "/run/x/vsock" }, { "/run/x", "/run/x/..vsock" } };
	char cmdline[CMDLINE_SIZE];
	struct vm_config config;

	good_config(&config);
	config.run = pairs[_i][0];
	(void) snprintf(config.vsock_path, sizeof(config.vsock_path), "%s", pairs[_i][1]);
	ck_assert_int_eq(config_check(&config, cmdline, NULL), 0);
	config_deinit(&config);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-boot");
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, memory_size, 0, ARRAY_LEN(memory_sizes));
	tcase_add_loop_test(tcase, memory_map, 0, ARRAY_LEN(maps));
	tcase_add_loop_test(tcase, cmdline_length, 0, ARRAY_LEN(cmdline_lengths));
	tcase_add_loop_test(tcase, cmdline_refused, 0, ARRAY_LEN(bad_cmdlines));
	tcase_add_loop_test(tcase, cmdline_accepted, 0, ARRAY_LEN(good_cmdlines));
	tcase_add_test(tcase, elf_good);
	tcase_add_loop_test(tcase, elf_at_the_bounds, 0, 2);
	tcase_add_loop_test(tcase, elf_hostile, 0, ARRAY_LEN(spoilers));
	tcase_add_test(tcase, elf_truncated);
	tcase_add_test(tcase, elf_no_file);
	tcase_add_loop_test(tcase, acpi_tables, 0, ARRAY_LEN(acpi_inputs));
	tcase_add_test(tcase, acpi_generation);
	tcase_add_test(tcase, generation_renews);
	tcase_add_test(tcase, acpi_no_room);
	tcase_add_test(tcase, params_written);
	tcase_add_test(tcase, cpu_as_the_kernel_wants_it);
	tcase_add_loop_test(tcase, params_initramfs_at_the_bound, 0, 2);
	tcase_add_test(tcase, params_initramfs_too_large);
	tcase_add_test(tcase, cpuid_policy);
	tcase_add_test(tcase, msr_policy);
	tcase_add_loop_test(tcase, config_refused, 0, ARRAY_LEN(bad_configs));
	tcase_add_test(tcase, config_longest_path);
	tcase_add_loop_test(tcase, config_path_inside, 0, 4);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
