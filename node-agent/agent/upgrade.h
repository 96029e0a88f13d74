/* SPDX-License-Identifier: Apache-2.0
 *
 * A package that the scheduler offers: brought over the bulk lane as an image is, then handed to the helper, which decides. Nothing of it is
 * looked at here. One at a time; what becomes of it is said once, and an agent that ends meanwhile says nothing.
 */
#pragma once

#include "base/err.h"
#include "pb/link.pb-c.h"

struct agent;
struct upgrade;

/* FRAME_INVALID of what is no offer; everything else is told to the scheduler. */
int upgrade_offered(struct agent *agent, const Croft__UpgradeOffer *offer, struct err *reterr);
void upgrade_free(struct upgrade *upgrade);
