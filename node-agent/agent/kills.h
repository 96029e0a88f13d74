/* SPDX-License-Identifier: Apache-2.0
 *
 * What a guest says of its kernel's kills for want of memory, and what of it is told. The guest is hostile and may count as it
 * likes: nothing before its first hello, and once a minute at most; what is withheld is in the next count. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define KILLS_PAUSE_USEC INT64_C(60000000)

struct kills {
	bool is_heard; /* the guest said hello, or had when it fell asleep or another agent was here */
	uint64_t said, told;
	int64_t next_usec; /* nothing is told before it */
};

/* Of another life of the guest. What was told still counts. */
void kills_restart(struct kills *kills, bool is_heard);
void kills_said(struct kills *kills, uint64_t since_its_start);
/* How many are to be told now, with which they count as told; 0: nothing is. */
uint64_t kills_tell(struct kills *kills, int64_t now_usec);
