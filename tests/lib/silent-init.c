/* SPDX-License-Identifier: Apache-2.0
 *
 * Process 1 of a guest that never answers: writes the boot marker, so that the VMM sees a started user space, and
 * then does nothing. Static; tests/lib/bad-initramfs puts it into an initramfs.
 */
#include <sys/io.h>
#include <unistd.h>

#define MARKER_PORT 0x680
#define MARKER_VALUE 0x55

int main(void)
{
	if (ioperm(MARKER_PORT, 1, 1) == 0)
		outb(MARKER_VALUE, MARKER_PORT);
	for (;;)
		(void) pause(); /* a signal wakes it: nothing else does */
}
