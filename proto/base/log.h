/* SPDX-License-Identifier: Apache-2.0
 *
 * One line per event on stderr, with object ids as fields: "level message key=value ...". Under systemd
 * (JOURNAL_STREAM names stderr) lines carry the <n> priority prefix that journald reads. Logging never
 * changes control flow and never blocks: a full pipe drops the line and counts it. Libraries log at debug
 * only; the function that handles an error logs it, once. Text that came from a guest or a peer is passed
 * as a field value: control characters are escaped and long values are cut.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVEL_MAX_ };

/* The process's name in each line ("croft-node"), and its level; call once in main(). CROFT_LOG=debug
 * in the environment wins. */
void log_init(const char *process, enum log_level level);

/* Fields follow as pairs (const char *key, const char *value), ended by NULL; a NULL value is left out. */
void log_event(enum log_level level, const char *message, ...) __attribute__((sentinel));
#define log_error(...) log_event(LOG_LEVEL_ERROR, __VA_ARGS__, NULL)
#define log_warn(...) log_event(LOG_LEVEL_WARN, __VA_ARGS__, NULL)
#define log_info(...) log_event(LOG_LEVEL_INFO, __VA_ARGS__, NULL)
#define log_debug(...) log_event(LOG_LEVEL_DEBUG, __VA_ARGS__, NULL)

/* A failure as one line with stage, code, component, errno and its details as fields, at LOG_LEVEL_ERROR with its
 * remedy too. More fields may follow as above. */
void log_failure(enum log_level level, const char *message, const struct err *err, ...)
	__attribute__((sentinel));

/* Lines dropped because stderr was full. */
uint64_t log_dropped(void);

/* "%d" and the like into a small static-size value for a field: log_info("x", "pid", LOG_NUM(pid)). */
struct log_num {
	char text[24];
};
struct log_num log_num_make(long long value);
#define LOG_NUM(v) (log_num_make((long long) (v)).text)
