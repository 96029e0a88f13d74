/* SPDX-License-Identifier: Apache-2.0
 *
 * A package that came over the agent from the scheduler, neither of which is believed: it is installed where the node's owner permits
 * that (upgrade.policy of the helper's own file), where the pinned key signed it, and where it is not older than what is here.
 */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "base/err.h"
#include "helper/options.h"

/* CONFIG_INVALID: a policy or a window that is none. */
int helper_upgrade_check(const struct helper_options *options, struct err *reterr);
/* Whether the owner permits one at that time of day. */
bool helper_upgrade_may(const struct helper_options *options, const struct tm *local);
/* Judges and starts the installation, which judges once more and stops the helper. `package` stays the caller's. UPGRADE_NOT_PERMITTED,
 * PACKAGE_UNSIGNED, PACKAGE_ALTERED, PACKAGE_OLDER, IO_FAILED: then no file of it is left. */
int helper_upgrade(const struct helper_options *options, int package, const char *signature, struct err *reterr);
/* What an installation left. */
void helper_upgrade_clear(const struct helper_options *options);
