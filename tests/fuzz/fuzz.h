/* SPDX-License-Identifier: Apache-2.0
 *
 * For all fuzz targets: the entry points of libFuzzer, a reader that takes structured operations out of any bytes
 * (so that every mutation is a legal script), and a mutator of protobuf messages.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

/* A property that does not hold ends the run: that is how libFuzzer learns of it. */
#define CLAIM(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort(); /* ends the process: the fuzzer's way to say so */                \
	} while (0)

struct script {
	const uint8_t *at;
	size_t left;
};

/* The next bytes as a number; zeros behind the end. */
static inline uint64_t take(struct script *script, unsigned int size)
{
	uint64_t value = 0;
	size_t n = size < script->left ? size : script->left;

	memcpy(&value, script->at, n);
	script->at += n;
	script->left -= n;
	return value;
}
static inline uint8_t take8(struct script *script)
{
	return (uint8_t) take(script, 1);
}

/* A file with these bytes, at "/proc/self/fd/<number>" for code that wants a path. */
static inline int file_of(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	CLAIM(fd >= 0 && pwrite(fd, data, size, 0) == (ssize_t) size);
	return fd;
}

/* Changes a message of protobuf's wire format as such: fields are doubled, dropped, swapped, renumbered, nested, their
 * values replaced by edges; half of the time bytes as usual. The first `skip` bytes are left to the bytes' mutator. */
size_t mutate_message(uint8_t *data, size_t size, size_t max_size, unsigned int seed, size_t skip);
