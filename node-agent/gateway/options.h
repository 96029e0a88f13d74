/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table of croft-gateway.
 */
#pragma once

#include <stddef.h>

#include "base/config.h"
#include "gateway/gateway.h"

const struct config_option *options_table(size_t *ret_n);
/* Fills in what has no fixed default. CONFIG_INVALID. */
int options_set_places(struct gateway_options *target, struct err *reterr);
