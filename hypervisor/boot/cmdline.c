/* SPDX-License-Identifier: Apache-2.0
 *
 * See cmdline.h.
 */
#include "boot/cmdline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * reboot=a      the reset register; the default path of a hardware-reduced machine without EFI jumps into a
 *               BIOS that is not there and spins
 * panic=-1      a panic ends the VM at once; pvpanic has reported it by then
 * pci=off       there is no PCI: saves 85 port accesses
 * tsc=reliable  the TSC needs no watchdog under KVM
 * 8250.nr_uarts there is one
 * loglevel=3    every character on the console costs two or three exits, and at `quiet` (4) a kernel with PCI complains
 *               that there is none: two thirds of all returns to user space before Debian's first process (docs/hypervisor.md).
 *               A panic or an oops raises the level by itself, and croft-guest raises it to 4 when it has begun
 * notests       the self-tests of the crypto code are half of a distribution kernel's boot
 */
static const char own_part[] = "console=ttyS0 reboot=a panic=-1 pci=off tsc=reliable 8250.nr_uarts=1 "
			       "loglevel=3 cryptomgr.notests";

/* A key that ends in '*' is a prefix. '-' and '_' are the same to the kernel. */
static const char *const reserved[] = { "virtio_mmio.*", "acpi*", "reboot", "panic", "pci", "initrd*", "rdinit",
	"mem", "memmap", "i8042.*" };

#define KEY_MAX 64

static bool is_reserved(const char *key)
{
	for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
		size_t n = strlen(reserved[i]);

		if (reserved[i][n - 1] == '*' ? !strncmp(key, reserved[i], n - 1) : !strcmp(key, reserved[i]))
			return true;
	}
	return false;
}

/* Copies the key that begins at `text` as the kernel reads it: without quotes, up to '=' or a space. */
static void read_key(const char *text, char ret[static KEY_MAX])
{
	size_t n = 0;

	for (; *text && *text != '=' && *text != ' ' && n < KEY_MAX - 1; text++)
		if (*text != '"')
			ret[n++] = *text == '-' ? '_' : *text;
	ret[n] = '\0';
}

static int check_append(const char *append, struct err *reterr)
{
	char key[KEY_MAX];

	for (const char *p = append; *p; p++) {
		if (*p >= 0x20 && *p < 0x7f)
			continue;
		(void) err_set(reterr, FAIL_CMDLINE_BAD_CHAR, EINVAL, "the kernel command line has byte 0x%02x",
			(unsigned int) (unsigned char) *p);
		err_add(reterr, "offset", "%td", p - append);
		return -EINVAL;
	}
	/* every word, also those in quotes: refusing too much is the safe side */
	for (const char *p = append; *p; p++) {
		if (*p == ' ' || (p > append && p[-1] != ' '))
			continue;
		read_key(p, key);
		if (!is_reserved(key))
			continue;
		(void) err_set(reterr, FAIL_CMDLINE_BAD_CHAR, EINVAL, "the kernel command line may not set %s", key);
		err_add(reterr, "key", "%s", key);
		return -EINVAL;
	}
	return 0;
}

int cmdline_build(const char *append, char ret[static CMDLINE_SIZE], struct err *reterr)
{
	size_t extra = append ? strlen(append) : 0, have = sizeof(own_part) - 1 + (extra ? extra + 1 : 0);
	int r;

	if (have > CMDLINE_SIZE - 1) {
		(void) err_set(reterr, FAIL_CMDLINE_TOO_LONG, E2BIG,
			"the kernel command line has %zu bytes, %d fit", have, CMDLINE_SIZE - 1);
		err_add(reterr, "have", "%zu", have);
		err_add(reterr, "max", "%d", CMDLINE_SIZE - 1);
		return -E2BIG;
	}
	r = extra ? check_append(append, reterr) : 0;
	if (r < 0)
		return r;
	(void) snprintf(ret, CMDLINE_SIZE, "%s%s%s", own_part, extra ? " " : "", extra ? append : "");
	return 0;
}
