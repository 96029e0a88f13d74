/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gateway writes into the node's audit log (audit/log.h): each command when it starts and when it is over, with the first
 * of its output and the digest of all of it; and what the agent tells (setup commands, connections). What of that may leave the
 * node by itself is ids, digests, sizes and exit status, and with `audit = full` command lines; the whole is read through the
 * node, by the sandbox's own client (GET /croft/audit) or by the node's owner (croft-node audit).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gateway/call.h"
#include "gateway/guest-wire.h"
#include "gateway/process-json.h"

struct audit;
struct audit_exec;
struct gateway_options;

int audit_new(struct audit **ret, const struct gateway_options *options, struct err *reterr);
void audit_free(struct audit *audit);

/* An entry of the agent's, as text of JSON. False: it is none. */
bool audit_of_agent(struct audit *audit, const char *text);

/* A command that starts. NULL without memory: then it is not in the log, which counts it as lost. */
struct audit_exec *audit_exec_begin(struct audit *audit, const struct call *call, const struct process_start *start, const char *user);
void audit_exec_data(struct audit_exec *exec, const struct guest_data *data);
/* `ended` NULL: it was not seen to end, for `failure` or (NULL) because the client left. Accepts NULL for `exec`, which is gone. */
void audit_exec_end(struct audit_exec *exec, uint32_t pid, const struct guest_ended *ended, const struct err *failure);

/* What may leave of commands that are over, the oldest first; at most AUDIT_TOLD_MAX wait. */
#define AUDIT_TOLD_MAX 64u
#define AUDIT_TOLD_FIELDS 12u
struct audit_told {
	char sandbox[ID_SIZE];
	size_t n_fields;
	struct {
		char key[24], value[256];
	} fields[AUDIT_TOLD_FIELDS];
};
bool audit_take_told(struct audit *audit, struct audit_told *ret);

/* GET /croft/audit: the sandbox's entries, a line of JSON each, and a last line {"end": ...}. */
void audit_run(struct call *call, const char *body, size_t size);
