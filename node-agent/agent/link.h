/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's side of link.proto: the dealer, the envelope, the table of messages that may come, and
 * the three lanes beside the commands (telemetry, images, relayed streams). What a message means is
 * decided by the supervisor; here it is judged by its row, decoded once and fed. Sending never
 * waits: a message for which there is no room is sent again by whoever has a reason to (the
 * supervisor's timers, the spool, a fetch, a stream).
 *
 * With several scheduler addresses, or a scheduler's next key, the next pair is tried when one does
 * not answer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/messages.h"

struct agent;
struct link;

int link_new(struct link **ret, struct agent *agent, struct err *reterr);
void link_free(struct link *link);
void link_reconnect(struct link *link);

/* One message each; true: it went out. */
bool link_send_hello(struct link *link, const struct hello *hello);
bool link_send_heartbeat(struct link *link, const struct heartbeat *heartbeat);
bool link_send_inventory(struct link *link, const struct inventory *inventory);
bool link_send_report(
	struct link *link, const struct sandbox_report *report, const struct trace *trace);
bool link_send_usage(struct link *link, const struct usage_report *report);
bool link_send_capacity(struct link *link, const struct capacity_report *report);
bool link_send_dropped(struct link *link, const char *snapshot);
/* Answers the message that is being handled. */
bool link_send_refused(struct link *link, const struct err *err);

/* The spool has something to send. */
void link_telemetry_ready(struct link *link);
