/* SPDX-License-Identifier: Apache-2.0
 *
 * See kills.h.
 */
#include "agent/kills.h"

void kills_restart(struct kills *kills, bool is_heard)
{
	*kills = (struct kills){ .is_heard = is_heard, .next_usec = kills->next_usec };
}

void kills_said(struct kills *kills, uint64_t since_its_start)
{
	if (kills->is_heard && since_its_start > kills->said)
		kills->said = since_its_start;
}

uint64_t kills_tell(struct kills *kills, int64_t now)
{
	if (kills->said <= kills->told || now < kills->next_usec)
		return 0;
	kills->told = kills->said;
	kills->next_usec = now + KILLS_PAUSE_USEC;
	return kills->told;
}
