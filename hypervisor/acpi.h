/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest hardware-reduced ACPI machine that an unmodified distribution kernel accepts: RSDP, XSDT,
 * FADT, MADT, and a DSDT with the virtio-mmio devices, the serial port, pvpanic, the generation counter and
 * \_S5. No FACS, PIC, PIT, RTC, i8042, PCI. Pure: bytes in a buffer.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct acpi_input {
	uint64_t gpa;         /* where the buffer will be in guest memory; the RSDP is its start */
	unsigned int n_vcpus;
	unsigned int n_virtio;
};

/* Bytes used, or -ENOSPC. */
int acpi_build(const struct acpi_input *input, uint8_t *buf, size_t size);
