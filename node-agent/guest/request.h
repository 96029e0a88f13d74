/* SPDX-License-Identifier: Apache-2.0
 *
 * The edge of guest.proto inside the guest: frames become plain requests, checked once; answers become
 * frames. No other file of this folder sees a generated type. Unpacking may take only so much memory,
 * whatever a frame says (guest.proto's types do not nest without end, so depth needs no check).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "guest/diff.h"
#include "guest/net.h"
#include "guest/process.h"

#define REQUEST_FRAME_MAX (1u << 20)
#define REQUEST_MEMORY_MAX (16u << 20)
#define TAG_MAX 128
#define ENV_MAX 4096
#define ENTROPY_MIN 32
#define ENTROPY_MAX 256
#define GUEST_VERSION_MAJOR 1
#ifdef CROFT_FUTURE
#define GUEST_VERSION_MINOR 3
#else
#define GUEST_VERSION_MINOR 2 /* 1: out_of_memory, oom_kills; 2: diff */
#endif

enum request_kind {
	REQUEST_INFO,
	REQUEST_CONFIGURE,
	REQUEST_START,
	REQUEST_CONNECT,
	REQUEST_LIST,
	REQUEST_SIGNAL,
	REQUEST_INPUT,
	REQUEST_CLOSE_STDIN,
	REQUEST_RESIZE,
	REQUEST_POWER_OFF,
	REQUEST_FREEZE,
	REQUEST_WAKE,
	REQUEST_THAW,
	REQUEST_DIFF,
};

/* Strings are never NULL; arrays are NULL-terminated. All of it is owned by the request. */
struct request {
	enum request_kind kind;
	uint32_t pid;            /* connect, signal, input, close_stdin, resize: the selector */
	const char *tag;         /* ... and the tag of start */
	/* start */
	const char *cmd, *cwd, *user, *traceparent;
	char **args;             /* without argv[0] */
	char **env;              /* "NAME=value"; of configure and wake, too */
	bool wants_stdin, wants_pty;
	uint64_t timeout_ms;
	uint16_t cols, rows;     /* of start's pty, and of resize */
	/* configure */
	const char *default_user;
	/* configure, wake */
	const char *hostname;
	int64_t realtime_usec;
	bool has_network;
	struct guest_network network;
	/* input; wake: entropy */
	const uint8_t *data;
	size_t size;
	int signal;
	void *message;           /* what the above point into */
};

/* FRAME_INVALID, FRAME_UNSUPPORTED, INVALID_ARGUMENT. Free with request_free(). */
int request_parse(struct request **ret, const uint8_t *data, size_t size, struct err *reterr);
void request_free(struct request *request);
DEFINE_CLEANUP(struct request, request_free)

struct guest_info {
	char boot_id[40];
	int64_t uptime_usec;
	unsigned int processes;
	uint64_t memory_total_kib;
	uint64_t memory_available_kib;
};

struct guest_hello {
	char boot_id[40];
	char kernel[72];
	int64_t uptime_usec;
	uint64_t oom_kills;
	const struct err *failure; /* NULL: the root is ready */
};

/* Each adds one frame to `out`. 0, -ENOBUFS, -ENOMEM; on failure nothing was added. */
int answer_failure(struct buf *out, const struct err *err);
int answer_done(struct buf *out);
int answer_info(struct buf *out, const struct guest_info *info);
int answer_started(struct buf *out, pid_t pid);
int answer_data(struct buf *out, const struct reader_chunk *chunk);
int answer_ended(struct buf *out, const struct process_end *end);
/* Those that run. What would not fit into a frame is left out: environments, then arguments, then the newest. */
int answer_processes(struct buf *out, const struct processes *all);
/* At most 128 entries, whose paths are at most 24 KiB together. */
int answer_changes(struct buf *out, const struct diff_entry *entries, size_t n, bool is_last, bool is_cut);
int hello_encode(struct buf *out, const struct guest_hello *hello);
