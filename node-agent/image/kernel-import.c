/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-kernel-import BZIMAGE VMLINUX: unpacks a distribution's kernel to what croft-vmm loads. Exit status 0,
 * 1 with the failure on stderr, 2 for a wrong command line.
 */
#include <stdio.h>

#include "image/kernel.h"

int main(int argc, char **argv)
{
	struct err err = ERR_NULL;
	char text[2048];

	if (argc != 3) {
		(void) fputs("usage: croft-kernel-import BZIMAGE VMLINUX\n", stderr);
		return 2;
	}
	if (kernel_import(argv[1], argv[2], &err) == 0)
		return 0;
	err_format(&err, text, sizeof(text));
	(void) fprintf(stderr, "croft-kernel-import: %s\n", text);
	return 1;
}
