/* SPDX-License-Identifier: Apache-2.0
 *
 * What croft-guest says about its machine. Nothing here can fail: what cannot be read is empty or 0.
 */
#pragma once

#include "guest/request.h"

void info_read(struct guest_info *ret);
/* `failure` is borrowed. */
void info_hello(struct guest_hello *ret, const struct err *failure);
