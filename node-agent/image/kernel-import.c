/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-kernel-import BZIMAGE VMLINUX: unpacks a distribution's kernel to what croft-vmm loads. Exit status 0,
 * 1 with the failure on stderr, 2 for a wrong command line.
 */
#include <stdio.h>
#include <string.h>

#include "image/kernel.h"

#define USAGE "usage: croft-kernel-import BZIMAGE VMLINUX\n"

int main(int argc, char **argv)
{
	struct err err = ERR_NULL;
	char text[2048];

	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return fputs(USAGE "\nUnpacks a Linux bzImage to the vmlinux that croft-vmm boots; see croft-kernel-import(1).\n",
			       stdout) < 0;
	if (argc != 3) {
		(void)fputs(USAGE, stderr);
		return 2;
	}
	if (kernel_import(argv[1], argv[2], &err) == 0)
		return 0;
	err_format(&err, text, sizeof(text));
	(void) fprintf(stderr, "croft-kernel-import: %s\n", text);
	return 1;
}
