/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what VMs use, and writes the accounts down (usage-file.h): every few seconds, and once more at the end. What a guest did
 * after that, up to a crash of the host, is nobody's: one period at most. An agent that is killed loses none of it, because
 * control groups, network slots and the clock go on counting.
 */
#pragma once

#include "agent/agent.h"

struct meters;
struct sandbox;

/* Reads the files, and feeds what they say: before everything else is loaded. One that cannot be read is put aside and told of. */
void meters_load(struct agent *agent);
int meters_new(struct meters **ret, struct agent *agent, struct err *reterr);
/* After the worker was freed; writes the last word, blocking. */
void meters_free(struct meters *meters);
/* Its VM ended, and its control group goes next. */
void meters_read_last(struct sandbox *sandbox);
/* What its network slot has counted. */
void meters_read_egress(struct sandbox *sandbox, uint64_t bytes);
