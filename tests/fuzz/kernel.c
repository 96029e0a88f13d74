/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel files: FUZZ_ELF is the VMM's loader, FUZZ_IMPORT the importer (bzImage and what is packed in it). Nothing is
 * written below VMLINUX_BASE, and what was loaded lies in memory.
 */
#include "fuzz.h"

#include <stdio.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/vmlinux.h"
#ifdef FUZZ_ELF
#include "boot/elf.h"

static struct memory memory;
#else
#include "image/kernel.h"

static char target[64];
#endif

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
#ifdef FUZZ_ELF
	CLAIM(memory_init(&memory, 64, NULL) == 0);
#else
	(void) snprintf(target, sizeof(target), "/tmp/fuzz-kernel-%d", (int) getpid());
#endif
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = file_of(data, size);
	struct err err = ERR_NULL;
#ifdef FUZZ_ELF
	struct elf_image image = { 0 };
	volatile uint8_t *low = memory.base;

	if (elf_load(fd, &memory, &image, &err) == 0)
		CLAIM(image.end <= UINT64_C(64) << 20 && image.entry < image.end && image.entry >= VMLINUX_BASE);
	else
		CLAIM(err.code != FAIL_NONE);
	CLAIM(low[0] == 0 && low[VMLINUX_BASE - 1] == 0);
#else
	struct vmlinux vmlinux;
	char path[64];

	(void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (kernel_import(path, target, &err) < 0)
		CLAIM(err.code != FAIL_NONE);
	else
		(void) unlink(target);
	(void) vmlinux_read(fd, size, &vmlinux, NULL); /* the headers of what is no bzImage too */
#endif
	(void) fd_close(fd);
	return 0;
}
