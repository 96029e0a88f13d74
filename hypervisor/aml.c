/* SPDX-License-Identifier: Apache-2.0
 *
 * See aml.h. Encodings are those of ACPI 6.4, chapter 20 (AML) and 6.4 (resource descriptors).
 */
#include "aml.h"

#include <assert.h>
#include <string.h>

#define OP_NAME 0x08
#define OP_BYTE 0x0a
#define OP_DWORD 0x0c
#define OP_STRING 0x0d
#define OP_SCOPE 0x10
#define OP_BUFFER 0x11
#define OP_PACKAGE 0x12
#define OP_METHOD 0x14
#define OP_NOTIFY 0x86
#define METHOD_SERIALIZED 0x08
#define OP_EXT 0x5b
#define OP_EXT_DEVICE 0x82

void aml_bytes(struct aml *aml, const void *bytes, size_t n)
{
	if (aml->overflow || n > aml->size - aml->used) {
		aml->overflow = true;
		return;
	}
	memcpy(aml->data + aml->used, bytes, n);
	aml->used += n;
}

void aml_le(struct aml *aml, uint64_t value, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++, value >>= 8) {
		uint8_t byte = (uint8_t) value;

		aml_bytes(aml, &byte, 1);
	}
}

/* Always the three-byte form, so that the length of what follows need not be known. */
size_t aml_open(struct aml *aml)
{
	size_t at = aml->used;

	aml_le(aml, 0, 3);
	return at;
}

void aml_close(struct aml *aml, size_t at)
{
	size_t len = aml->used - at;

	if (aml->overflow)
		return;
	aml->data[at] = (uint8_t) (0x80 | (len & 0x0f));
	aml->data[at + 1] = (uint8_t) (len >> 4);
	aml->data[at + 2] = (uint8_t) (len >> 12);
}

size_t aml_scope(struct aml *aml, const char *name)
{
	size_t at;

	aml_le(aml, OP_SCOPE, 1);
	at = aml_open(aml);
	aml_bytes(aml, name, strlen(name));
	return at;
}

size_t aml_device(struct aml *aml, const char *name)
{
	size_t at;

	aml_le(aml, OP_EXT, 1);
	aml_le(aml, OP_EXT_DEVICE, 1);
	at = aml_open(aml);
	aml_bytes(aml, name, strlen(name));
	return at;
}

size_t aml_method(struct aml *aml, const char *name, unsigned int n_args)
{
	size_t at;

	aml_le(aml, OP_METHOD, 1);
	at = aml_open(aml);
	aml_bytes(aml, name, strlen(name));
	aml_le(aml, METHOD_SERIALIZED | n_args, 1);
	return at;
}

void aml_notify(struct aml *aml, const char *name, uint8_t value)
{
	aml_le(aml, OP_NOTIFY, 1);
	aml_bytes(aml, name, strlen(name));
	aml_integer(aml, value);
}

void aml_package(struct aml *aml, const uint32_t *values, unsigned int n)
{
	size_t at;

	aml_le(aml, OP_PACKAGE, 1);
	at = aml_open(aml);
	aml_le(aml, n, 1);
	for (unsigned int i = 0; i < n; i++)
		aml_integer(aml, values[i]);
	aml_close(aml, at);
}

void aml_name(struct aml *aml, const char *name)
{
	aml_le(aml, OP_NAME, 1);
	aml_bytes(aml, name, strlen(name));
}

void aml_string(struct aml *aml, const char *text)
{
	aml_le(aml, OP_STRING, 1);
	aml_bytes(aml, text, strlen(text) + 1);
}

void aml_integer(struct aml *aml, uint32_t value)
{
	aml_le(aml, value <= 0xff ? OP_BYTE : OP_DWORD, 1);
	aml_le(aml, value, value <= 0xff ? 1 : 4);
}

static void put(struct aml_resources *res, uint64_t value, unsigned int n)
{
	assert(res->used + n <= sizeof(res->data));
	for (unsigned int i = 0; i < n; i++, value >>= 8)
		res->data[res->used++] = (uint8_t) value;
}

void aml_resource_memory(struct aml_resources *res, uint32_t base, uint32_t size)
{
	put(res, 0x86, 1); /* Memory32Fixed */
	put(res, 9, 2);
	put(res, 1, 1); /* read and write */
	put(res, base, 4);
	put(res, size, 4);
}

void aml_resource_io(struct aml_resources *res, uint16_t port, uint8_t size)
{
	put(res, 0x47, 1);
	put(res, 1, 1); /* all 16 address lines are decoded */
	put(res, port, 2);
	put(res, port, 2);
	put(res, 1, 1);
	put(res, size, 1);
}

void aml_resource_interrupt(struct aml_resources *res, uint32_t gsi)
{
	put(res, 0x89, 1); /* extended interrupt */
	put(res, 6, 2);
	put(res, 0x03, 1); /* consumer, edge, active high, exclusive */
	put(res, 1, 1);
	put(res, gsi, 4);
}

void aml_crs(struct aml *aml, struct aml_resources *res)
{
	size_t at;

	put(res, 0x79, 1); /* end tag; checksum 0 means none */
	put(res, 0, 1);
	aml_name(aml, "_CRS");
	aml_le(aml, OP_BUFFER, 1);
	at = aml_open(aml);
	aml_integer(aml, (uint32_t) res->used);
	aml_bytes(aml, res->data, res->used);
	aml_close(aml, at);
}
