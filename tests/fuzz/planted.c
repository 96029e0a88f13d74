/* SPDX-License-Identifier: Apache-2.0
 *
 * Shows that a fuzz run can fail: a message whose second field is 4096 or more reads behind an array. Only tests/fuzz/run
 * --planted builds on it; it is no target of its own.
 */
#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mutate_message(data, size, max_size, seed, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	uint64_t value = 0;

	if (size < 4 || data[0] != 0x08 || data[1] & 0x80 || data[2] != 0x10)
		return 0;
	for (size_t i = 3; i < size && i < 13; i++) {
		value |= (uint64_t) (data[i] & 0x7f) << (7 * (i - 3));
		if (!(data[i] & 0x80))
			break;
	}
	copy = calloc(1, 4096);
	CLAIM(copy);
	/* The fault: one byte too far, no further. What lies 100 KB behind an array may not be mapped, and AddressSanitizer then
	 * names a SEGV and no heap-buffer-overflow, for which the run looks. */
	value = copy[value < 4096 ? value : 4096];
	free(copy);
	return value != 0;
}
