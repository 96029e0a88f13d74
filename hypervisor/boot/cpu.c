/* SPDX-License-Identifier: Apache-2.0
 *
 * See cpu.h.
 */
#include "boot/cpu.h"

#include <string.h>

#include "boot/layout.h"

#define PTE_PRESENT 0x1u
#define PTE_WRITE 0x2u
#define PTE_HUGE 0x80u

#define CR0_PE 0x1u
#define CR0_ET 0x10u
#define CR0_PG 0x80000000u
#define CR4_PAE 0x20u
#define EFER_LME 0x100u
#define EFER_LMA 0x400u

/* what the boot protocol names: __BOOT_CS 0x10, __BOOT_DS 0x18 */
static const uint64_t gdt[] = { 0, 0, UINT64_C(0x00af9b000000ffff), UINT64_C(0x00cf93000000ffff) };

void boot_cpu_write_tables(const struct memory *memory)
{
	uint64_t *pml4 = guest_map(memory, LAYOUT_PML4, 4096), *pdpt = guest_map(memory, LAYOUT_PDPT, 4096);
	uint64_t *pd = guest_map(memory, LAYOUT_PD, 4096);

	memset(pml4, 0, 4096);
	memset(pdpt, 0, 4096);
	pml4[0] = LAYOUT_PDPT | PTE_PRESENT | PTE_WRITE;
	pdpt[0] = LAYOUT_PD | PTE_PRESENT | PTE_WRITE;
	for (uint64_t i = 0; i < 512; i++)
		pd[i] = (i << 21) | PTE_PRESENT | PTE_WRITE | PTE_HUGE;
	memcpy(guest_map(memory, LAYOUT_GDT, sizeof(gdt)), gdt, sizeof(gdt));
}

void boot_cpu_registers(uint64_t entry, struct kvm_sregs *sregs, struct kvm_regs *ret)
{
	struct kvm_segment code = { .base = 0, .limit = 0xffffffff, .selector = 0x10, .type = 11, .present = 1,
		.s = 1, .l = 1, .g = 1 };
	struct kvm_segment data = { .base = 0, .limit = 0xffffffff, .selector = 0x18, .type = 3, .present = 1,
		.s = 1, .db = 1, .g = 1 };

	sregs->cs = code;
	sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
	sregs->gdt = (struct kvm_dtable) { .base = LAYOUT_GDT, .limit = sizeof(gdt) - 1 };
	sregs->idt = (struct kvm_dtable) { 0 };
	sregs->cr0 = CR0_PE | CR0_ET | CR0_PG;
	sregs->cr3 = LAYOUT_PML4;
	sregs->cr4 = CR4_PAE;
	sregs->efer = EFER_LME | EFER_LMA;
	*ret = (struct kvm_regs) { .rip = entry, .rsi = LAYOUT_BOOT_PARAMS, .rsp = LAYOUT_BOOT_STACK,
		.rbp = LAYOUT_BOOT_STACK, .rflags = 2 };
}
