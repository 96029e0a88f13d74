/* SPDX-License-Identifier: Apache-2.0
 *
 * What remains of a sandbox that failed: the end of its console and of its VMM's log, in
 * <state>/failed/<id>.console and <id>.vmm.log, for the newest EVIDENCE_MAX failures. The remedies of
 * many failures say "read the console on the node"; this is where. It never leaves the node.
 */
#pragma once

#define EVIDENCE_MAX 32
#define EVIDENCE_TAIL (64u * 1024u)

/* Blocking. What cannot be kept is only logged: no failure may stand in the way of a removal. */
void evidence_keep(const char *state, const char *run_dir, const char *sandbox);
