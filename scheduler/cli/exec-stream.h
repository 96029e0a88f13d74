/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer to /process.Process/Start as it comes, in pieces cut anywhere: frames of a Connect stream become
 * events. Pure and bounded. Unknown events and members are skipped, so a newer gateway is understood.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/http.h"

#define EXEC_FRAME_MAX (1u << 20)

enum exec_event_kind {
	EXEC_STARTED,
	EXEC_OUTPUT,
	EXEC_LOST,  /* `size` bytes were dropped in the guest because nobody read */
	EXEC_ENDED, /* the process; the stream may still end with an error */
};

struct exec_event {
	enum exec_event_kind kind;
	uint32_t pid;
	bool is_stderr;
	const uint8_t *data;
	uint64_t size;
	bool exited;       /* else by a signal */
	int exit_code;
	int signal;        /* 0: the gateway did not say which */
	const json_t *failure; /* ENDED: the record of why, where it was none of the command's own doing; else NULL */
};

struct exec_stream {
	struct buf in;
	bool is_over;      /* the end frame came; what follows is ignored */
	bool has_ended;    /* the process's end event came */
	struct failure failure; /* of the end frame, where it has one */
	/* Negative: stop with it. */
	int (*on_event)(const struct exec_event *event, void *user);
	void *user;
};

#define EXEC_STREAM_NULL { .in = BUF_NULL(EXEC_FRAME_MAX + 5) }

/* 0, API_PROTOCOL in failure.err, or what on_event() returned. */
int exec_stream_feed(struct exec_stream *stream, const void *data, size_t size);
void exec_stream_deinit(struct exec_stream *stream);
