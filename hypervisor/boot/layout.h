/* SPDX-License-Identifier: Apache-2.0
 *
 * Where things are in the guest's physical address space and in its port space. docs/hypervisor.md has the
 * same as a table.
 */
#pragma once

/* ---- RAM under 1 MiB, written before the first instruction ---- */
#define LAYOUT_GDT 0x500
#define LAYOUT_BOOT_PARAMS 0x7000
#define LAYOUT_PML4 0x9000
#define LAYOUT_PDPT 0xa000
#define LAYOUT_PD 0xb000
#define LAYOUT_BOOT_STACK 0x8ff0
#define LAYOUT_SETUP_DATA 0xc000
#define LAYOUT_CMDLINE 0x20000
#define LAYOUT_LOW_END 0x9fc00       /* end of usable RAM under 1 MiB */
#define LAYOUT_ACPI 0xe0000          /* RSDP, then the tables */
#define LAYOUT_ACPI_END 0xef000
#define LAYOUT_GENERATION 0xef000    /* the VM's generation id, 16 bytes */
#define LAYOUT_RESET_VECTOR 0xffff0  /* where a guest jumps that asks a BIOS for a reset */
#define LAYOUT_HIGH_START 0x100000

/* ---- devices between 3 and 4 GiB ---- */
#define LAYOUT_VIRTIO 0xd0000000u
#define LAYOUT_VIRTIO_STRIDE 0x1000u
#define LAYOUT_IOAPIC 0xfec00000u
#define LAYOUT_LAPIC 0xfee00000u
#define LAYOUT_KVM_IDENTITY_MAP 0xfffbc000u
#define LAYOUT_KVM_TSS 0xfffbd000u

/* ---- interrupts (IO-APIC pins), all edge ---- */
#define LAYOUT_GSI_SERIAL 4
#define LAYOUT_GSI_VIRTIO 5
#define LAYOUT_GSI_GENERATION 23
#define LAYOUT_VIRTIO_MAX (LAYOUT_GSI_GENERATION - LAYOUT_GSI_VIRTIO)

/* ---- ports ---- */
#define LAYOUT_PORT_SERIAL 0x3f8
#define LAYOUT_PORT_PVPANIC 0x505
#define LAYOUT_PORT_SLEEP_CONTROL 0x600
#define LAYOUT_PORT_SLEEP_STATUS 0x601
#define LAYOUT_PORT_RESET 0x604
#define LAYOUT_PORT_BOOT_MARKER 0x680

#define LAYOUT_RESET_VALUE 0x01
#define LAYOUT_BOOT_MARKER_VALUE 0x55
#define LAYOUT_SLEEP_TYPE_S5 5       /* SLP_TYP in \_S5; the driver writes (5 << 2) | SLP_EN = 0x34 */
#define LAYOUT_SLEEP_ENABLE 0x20
