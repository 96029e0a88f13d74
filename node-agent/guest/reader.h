/* SPDX-License-Identifier: Apache-2.0
 *
 * Between process.c and reader.c only: how output and readers hang on a process.
 */
#pragma once

#include "guest/process.h"

/* A pipe of the process has something, or ended. */
void process_on_output(struct source *source, uint32_t events);
/* Reads its pipes or pauses, as readers and state demand. */
void process_update(struct process *process);
/* DRAINING to ENDED where nothing is left to read. */
void process_try_end(struct process *process);
void readers_wake(struct process *process);
/* When a reader that stalls stops holding up the others; 0: none does. */
int64_t readers_tick(struct process *process, int64_t now_usec);
