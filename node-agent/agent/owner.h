/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's owner speaks with the agent on the node itself, whether there is a scheduler or not: <run>/owner.sock, to which
 * root and the agent's own user may connect. One line of JSON is asked, one is answered:
 *
 *   {"do": "drain", "why": TEXT, "deadline_us": wall clock or 0}   {"do": "undrain"}
 *   {"do": "stop", "sandbox": ID or "" for all}
 *   {"do": "snapshot", "sandbox": ID, "snapshot": ID}              {"do": "drop", "snapshot": ID}
 *   {"ok": true, "left": sandboxes with a VM}                      {"failure": TEXT}
 *
 * Who asked for what stands in the log, which is the journal. A drain is also a file of the state, <state>/drain, so that it
 * outlives the agent and can be asked for while there is none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct agent;
struct owner;

#define OWNER_SOCKET "owner.sock"
#define OWNER_WHY_SIZE 128u
#define OWNER_LINE_MAX 4096u

struct owner_drain {
	bool drained;
	char why[OWNER_WHY_SIZE];
	int64_t since_us, deadline_us; /* wall clock; 0: none */
};
/* `drained` false where the file is not there. STATE_UNREADABLE, STATE_WRITE_FAILED. */
int owner_drain_read(const char *state, struct owner_drain *ret, struct err *reterr);
int owner_drain_write(const char *state, const struct owner_drain *drain, struct err *reterr);

/* A drain of before is told to the supervisor: before its START. */
void owner_load(struct agent *agent);
int owner_new(struct owner **ret, struct agent *agent, struct err *reterr);
void owner_free(struct owner *owner);
