/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes ACPI machine language: just the terms that our DSDT needs, so that no compiler is wanted at build
 * or run time. Everything goes into a buffer of fixed size; what does not fit sets `overflow` and the result
 * is not to be used.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aml {
	uint8_t *data;
	size_t used, size;
	bool overflow;
};

void aml_bytes(struct aml *aml, const void *bytes, size_t n);
/* Little-endian, `n` bytes of `value`. */
void aml_le(struct aml *aml, uint64_t value, unsigned int n);

/* A package length is filled in by aml_close() with what aml_open() returned. */
size_t aml_open(struct aml *aml);
void aml_close(struct aml *aml, size_t at);

/* `name` is a name as it is stored: four characters, with a leading '\' where it is absolute. */
size_t aml_scope(struct aml *aml, const char *name);
size_t aml_device(struct aml *aml, const char *name);
/* Serialized; its terms follow, up to aml_close(). */
size_t aml_method(struct aml *aml, const char *name, unsigned int n_args);
/* Notify (name, value) */
void aml_notify(struct aml *aml, const char *name, uint8_t value);
/* A package of integers as an object. */
void aml_package(struct aml *aml, const uint32_t *values, unsigned int n);
void aml_name(struct aml *aml, const char *name); /* the object follows */
void aml_string(struct aml *aml, const char *text);
void aml_integer(struct aml *aml, uint32_t value);

/* Name(_CRS, ResourceTemplate () { ... }): fill a template of ours, then write it. */
struct aml_resources {
	uint8_t data[64];
	size_t used;
};
void aml_resource_memory(struct aml_resources *res, uint32_t base, uint32_t size);
void aml_resource_io(struct aml_resources *res, uint16_t port, uint8_t size);
void aml_resource_interrupt(struct aml_resources *res, uint32_t gsi); /* edge, active high, exclusive */
void aml_crs(struct aml *aml, struct aml_resources *res);
