/* SPDX-License-Identifier: Apache-2.0
 *
 * See params.h.
 */
#include "boot/params.h"

#include <asm/bootparam.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "boot/layout.h"

#define PAGE 4096u
#define SETUP_RNG_SEED_TYPE 9 /* SETUP_RNG_SEED, newer than some of the headers we build with */
#define HEADER_MAGIC 0x53726448 /* "HdrS" */

struct seed_node {
	uint64_t next;
	uint32_t type;
	uint32_t len;
	uint8_t data[32];
};

static void add_e820(struct boot_params *params, uint64_t addr, uint64_t size, uint32_t type)
{
	struct boot_e820_entry *entry = &params->e820_table[params->e820_entries++];

	entry->addr = addr;
	entry->size = size;
	entry->type = type;
}

static void write_e820(const struct memory *memory, struct boot_params *params)
{
	const uint32_t ram = 1, reserved = 2;

	add_e820(params, 0, LAYOUT_LOW_END, ram);
	add_e820(params, LAYOUT_ACPI, LAYOUT_HIGH_START - LAYOUT_ACPI, reserved);
	add_e820(params, LAYOUT_HIGH_START, memory->regions[0].size - LAYOUT_HIGH_START, ram);
	if (memory->n_regions > 1)
		add_e820(params, memory->regions[1].gpa, memory->regions[1].size, ram);
}

/* As high as it fits under 3 GiB, where the kernel expects it and it is out of the way. */
static int load_initramfs(const struct memory *memory, const struct boot_input *input, uint64_t *ret_gpa,
	uint64_t *ret_size, struct err *reterr)
{
	uint64_t top = memory->regions[0].size, size, gpa;
	struct stat st;
	int r;

	if (fstat(input->initramfs_fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(reterr, FAIL_KERNEL_INVALID, EINVAL, "the initramfs is no regular file");
	size = (uint64_t) st.st_size;
	/* a third of the rest stays free for its unpacked files; otherwise the kernel only panics later */
	if (input->kernel_end >= top || size > (top - input->kernel_end) / 3 * 2) {
		(void) err_set(reterr, FAIL_MEMORY_INVALID, ENOMEM,
			"kernel and initramfs do not fit the guest's %llu MiB",
			(unsigned long long) (memory->size >> 20));
		err_add(reterr, "initramfs_bytes", "%llu", (unsigned long long) size);
		return -ENOMEM;
	}
	gpa = (top - size) & ~(uint64_t) (PAGE - 1);
	r = fd_pread_all(input->initramfs_fd, guest_map(memory, gpa, size), size, 0);
	if (r < 0)
		return err_set(reterr, FAIL_KERNEL_INVALID, -r, "the initramfs cannot be read");
	*ret_gpa = gpa;
	*ret_size = size;
	return 0;
}

static void write_seed(const struct memory *memory, const struct boot_input *input)
{
	struct seed_node node = { .type = SETUP_RNG_SEED_TYPE, .len = sizeof(node.data) };

	memcpy(node.data, input->seed, sizeof(node.data));
	memcpy(guest_map(memory, LAYOUT_SETUP_DATA, sizeof(node)), &node, sizeof(node));
}

/* mov dx, RESET; mov al, VALUE; out dx, al; hlt; jmp to the hlt. 16-bit real mode. */
static void write_reset_vector(const struct memory *memory)
{
	static const uint8_t code[] = { 0xba, LAYOUT_PORT_RESET & 0xff, LAYOUT_PORT_RESET >> 8, 0xb0,
		LAYOUT_RESET_VALUE, 0xee, 0xf4, 0xeb, 0xfd };

	memcpy(guest_map(memory, LAYOUT_RESET_VECTOR, sizeof(code)), code, sizeof(code));
}

int boot_params_write(const struct memory *memory, const struct boot_input *input, struct err *reterr)
{
	struct boot_params *params = guest_map(memory, LAYOUT_BOOT_PARAMS, sizeof(*params));
	uint64_t initramfs = 0, initramfs_size = 0;
	int r;

	if (input->initramfs_fd >= 0) {
		r = load_initramfs(memory, input, &initramfs, &initramfs_size, reterr);
		if (r < 0)
			return r;
	}
	memset(params, 0, sizeof(*params));
	params->hdr.type_of_loader = 0xff;
	params->hdr.boot_flag = 0xaa55;
	params->hdr.header = HEADER_MAGIC;
	params->hdr.version = 0x020f;
	params->hdr.cmd_line_ptr = LAYOUT_CMDLINE;
	params->hdr.cmdline_size = (uint32_t) strlen(input->cmdline);
	params->hdr.kernel_alignment = 0x200000;
	params->hdr.ramdisk_image = (uint32_t) initramfs;
	params->hdr.ramdisk_size = (uint32_t) initramfs_size;
	params->hdr.setup_data = LAYOUT_SETUP_DATA;
	params->acpi_rsdp_addr = input->acpi_rsdp;
	write_e820(memory, params);
	write_seed(memory, input);
	write_reset_vector(memory);
	memcpy(guest_map(memory, LAYOUT_CMDLINE, strlen(input->cmdline) + 1), input->cmdline,
		strlen(input->cmdline) + 1);
	return 0;
}
