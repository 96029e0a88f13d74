/* SPDX-License-Identifier: Apache-2.0
 *
 * Enrolment: a join token becomes a node. The node makes its own keys (the scheduler never sees the
 * secret one), sends the public one with the token's keys, and stores what it is told. The key file
 * is named after the token, so that a join that broke off after the scheduler had agreed is the
 * same join when it is repeated.
 */
#pragma once

#include "agent/identity.h"
#include "agent/options.h"

#define JOIN_TIMEOUT_SEC 30

/* Blocking; runs a loop of its own. JOIN_TOKEN_..., ALREADY_JOINED, LINK_UNREACHABLE, whatever the
 * scheduler said. */
int join(const struct agent_options *options, struct identity *ret, struct err *reterr);
