/* SPDX-License-Identifier: Apache-2.0
 *
 * For a process with keys or tokens in its memory: no core file has it, also none that the host pipes to a program in spite
 * of a limit of 0, and no other process of the same user may read it.
 */
#pragma once

#include <sys/prctl.h>

/* At the start of main(). Programs that it starts begin without it. */
static inline void memory_hide(void)
{
	(void)prctl(PR_SET_DUMPABLE, 0); /* fails for no reason but a wrong argument */
}
