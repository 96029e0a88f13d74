/* SPDX-License-Identifier: Apache-2.0
 *
 * See acpi.h. Offsets are those of ACPI 6.4, chapter 5.2.
 */
#include "acpi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aml.h"
#include "boot/layout.h"

#define HEADER_SIZE 36
#define RSDP_SIZE 36
#define FADT_SIZE 276

#define FADT_FLAGS_PWR_BUTTON (1u << 4) /* no fixed-hardware button */
#define FADT_FLAGS_SLP_BUTTON (1u << 5)
#define FADT_FLAGS_RESET_REG (1u << 10)
#define FADT_FLAGS_HW_REDUCED (1u << 20)
/* No VGA, no CMOS RTC; "8042 present" is clear, and the kernel believes it as long as no i8042.* option is
 * on its command line. */
#define FADT_BOOT_ARCH 0x0024

#define MADT_LAPIC 0
#define MADT_IOAPIC 1

static uint8_t checksum(const uint8_t *bytes, size_t n)
{
	uint8_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum = (uint8_t) (sum + bytes[i]);
	return (uint8_t) -sum;
}

static void put_le(uint8_t *at, uint64_t value, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++, value >>= 8)
		at[i] = (uint8_t) value;
}

/* Opens a table; returns its start. Length and checksum come from table_end(). */
static size_t table_begin(struct aml *out, const char *signature, uint8_t revision)
{
	size_t at;

	while (out->used % 16 != 0 && !out->overflow)
		aml_le(out, 0, 1);
	at = out->used;
	aml_bytes(out, signature, 4);
	aml_le(out, 0, 4);
	aml_le(out, revision, 1);
	aml_le(out, 0, 1);
	aml_bytes(out, "CROFT ", 6);
	aml_bytes(out, "CROFTVMM", 8);
	aml_le(out, 1, 4);
	aml_bytes(out, "CRFT", 4);
	aml_le(out, 1, 4);
	return at;
}

static void table_end(struct aml *out, size_t at)
{
	if (out->overflow)
		return;
	put_le(out->data + at + 4, out->used - at, 4);
	out->data[at + 9] = checksum(out->data + at, out->used - at);
}

static void write_virtio(struct aml *out, unsigned int index)
{
	struct aml_resources res = { .used = 0 };
	char name[8];
	size_t at;

	(void) snprintf(name, sizeof(name), "VR%02u", index % 100);
	at = aml_device(out, name);
	aml_name(out, "_HID");
	aml_string(out, "LNRO0005");
	aml_name(out, "_UID");
	aml_integer(out, index);
	aml_resource_memory(&res, LAYOUT_VIRTIO + index * LAYOUT_VIRTIO_STRIDE, LAYOUT_VIRTIO_STRIDE);
	aml_resource_interrupt(&res, LAYOUT_GSI_VIRTIO + index);
	aml_crs(out, &res);
	aml_close(out, at);
}

/* Without COM1 here a hardware-reduced kernel has no interrupt for it, and the first write() to the console
 * blocks for ever. */
static void write_serial(struct aml *out)
{
	struct aml_resources res = { .used = 0 };
	size_t at = aml_device(out, "COM1");

	aml_name(out, "_HID");
	aml_string(out, "PNP0501");
	aml_name(out, "_UID");
	aml_integer(out, 0);
	aml_resource_io(&res, LAYOUT_PORT_SERIAL, 8);
	aml_resource_interrupt(&res, LAYOUT_GSI_SERIAL);
	aml_crs(out, &res);
	aml_close(out, at);
}

static void write_pvpanic(struct aml *out)
{
	struct aml_resources res = { .used = 0 };
	size_t at = aml_device(out, "PEVT");

	aml_name(out, "_HID");
	aml_string(out, "QEMU0001");
	aml_resource_io(&res, LAYOUT_PORT_PVPANIC, 1);
	aml_crs(out, &res);
	aml_close(out, at);
}

/* The counter and, since there is no PIC for a general-purpose event, the device that turns its interrupt into a
 * notification. Drivers go by _CID. */
static void write_generation(struct aml *out)
{
	static const uint32_t address[] = { LAYOUT_GENERATION, 0 };
	struct aml_resources res = { .used = 0 };
	size_t at = aml_device(out, "VGEN"), method;

	aml_name(out, "_HID");
	aml_string(out, "CRFT0001");
	aml_name(out, "_CID");
	aml_string(out, "VM_Gen_Counter");
	aml_name(out, "_DDN");
	aml_string(out, "VM_Gen_Counter");
	aml_name(out, "ADDR");
	aml_package(out, address, 2);
	aml_close(out, at);
	at = aml_device(out, "GED_");
	aml_name(out, "_HID");
	aml_string(out, "ACPI0013");
	aml_name(out, "_UID");
	aml_integer(out, 0);
	aml_resource_interrupt(&res, LAYOUT_GSI_GENERATION);
	aml_crs(out, &res);
	method = aml_method(out, "_EVT", 1); /* it has one interrupt: the argument says nothing */
	aml_notify(out, "VGEN", 0x80);
	aml_close(out, method);
	aml_close(out, at);
}

static size_t write_dsdt(struct aml *out, const struct acpi_input *input)
{
	static const uint32_t s5[] = { LAYOUT_SLEEP_TYPE_S5 };
	size_t at = table_begin(out, "DSDT", 2), scope = aml_scope(out, "\\_SB_");

	for (unsigned int i = 0; i < input->n_virtio; i++)
		write_virtio(out, i);
	write_serial(out);
	write_pvpanic(out);
	write_generation(out);
	aml_close(out, scope);
	aml_name(out, "_S5_");
	aml_package(out, s5, 1); /* SLP_TYP */
	table_end(out, at);
	return at;
}

/* A register of one byte in port space (generic address structure). */
static void put_port(uint8_t *at, uint16_t port)
{
	at[0] = 1; /* system I/O */
	at[1] = 8;
	at[3] = 1;
	put_le(at + 4, port, 8);
}

static size_t write_fadt(struct aml *out, uint64_t dsdt)
{
	uint8_t body[FADT_SIZE] = { 0 };
	size_t at = table_begin(out, "FACP", 6);

	put_le(body + 40, dsdt, 4);
	put_le(body + 109, FADT_BOOT_ARCH, 2);
	put_le(body + 112, FADT_FLAGS_HW_REDUCED | FADT_FLAGS_RESET_REG | FADT_FLAGS_PWR_BUTTON | FADT_FLAGS_SLP_BUTTON,
		4);
	put_port(body + 116, LAYOUT_PORT_RESET);
	body[128] = LAYOUT_RESET_VALUE;
	body[131] = 4; /* minor version: 6.4 */
	put_le(body + 140, dsdt, 8);
	put_port(body + 244, LAYOUT_PORT_SLEEP_CONTROL);
	put_port(body + 256, LAYOUT_PORT_SLEEP_STATUS);
	aml_bytes(out, body + HEADER_SIZE, sizeof(body) - HEADER_SIZE);
	table_end(out, at);
	return at;
}

static size_t write_madt(struct aml *out, unsigned int n_vcpus)
{
	size_t at = table_begin(out, "APIC", 5);

	aml_le(out, LAYOUT_LAPIC, 4);
	aml_le(out, 0, 4); /* PCAT_COMPAT clear: there is no 8259 */
	for (unsigned int i = 0; i < n_vcpus; i++) {
		aml_le(out, MADT_LAPIC, 1);
		aml_le(out, 8, 1);
		aml_le(out, i, 1);
		aml_le(out, i, 1); /* APIC id */
		aml_le(out, 1, 4); /* enabled */
	}
	aml_le(out, MADT_IOAPIC, 1);
	aml_le(out, 12, 1);
	aml_le(out, n_vcpus, 1); /* an id that no LAPIC has */
	aml_le(out, 0, 1);
	aml_le(out, LAYOUT_IOAPIC, 4);
	aml_le(out, 0, 4);
	table_end(out, at);
	return at;
}

static void write_rsdp(uint8_t *at, uint64_t xsdt)
{
	memcpy(at, "RSD PTR ", 8);
	memcpy(at + 9, "CROFT ", 6);
	at[15] = 2;
	put_le(at + 20, RSDP_SIZE, 4);
	put_le(at + 24, xsdt, 8);
	at[8] = checksum(at, 20);
	at[32] = checksum(at, RSDP_SIZE);
}

int acpi_build(const struct acpi_input *input, uint8_t *buf, size_t size)
{
	struct aml out = { .data = buf, .size = size };
	uint8_t rsdp[RSDP_SIZE] = { 0 };
	size_t fadt, madt, xsdt;

	aml_bytes(&out, rsdp, sizeof(rsdp));
	fadt = write_dsdt(&out, input);
	fadt = write_fadt(&out, input->gpa + fadt);
	madt = write_madt(&out, input->n_vcpus);
	xsdt = table_begin(&out, "XSDT", 1);
	aml_le(&out, input->gpa + fadt, 8);
	aml_le(&out, input->gpa + madt, 8);
	table_end(&out, xsdt);
	if (out.overflow)
		return -ENOSPC;
	write_rsdp(buf, input->gpa + xsdt);
	return (int) out.used;
}
