/* SPDX-License-Identifier: Apache-2.0
 *
 * guest.proto at the gateway's edge: plain structs become frames for croft-guest, frames from a guest become
 * plain structs. The guest is hostile: each frame is bounded and checked before it is unpacked, a failure may
 * only name what can break inside a guest (it cannot blame the node), and texts are cleaned of control
 * characters.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gateway/process-json.h"

#define GUEST_FRAME_MAX (1024u * 1024u) /* guest.proto's own limit */
#define GUEST_DATA_MAX (32u * 1024u)    /* of one GuestData */
#define GUEST_STREAM_FRAME_MAX (GUEST_DATA_MAX + 1024u) /* of a frame on a Start or Connect */
#define GUEST_PORT 1024u

enum guest_stream { STREAM_STDOUT, STREAM_STDERR, STREAM_PTY, STREAM_MAX_ };

struct guest_data {
	enum guest_stream stream;
	const uint8_t *data;
	size_t size;
	uint64_t lost;
};

struct guest_ended {
	bool exited;    /* else killed by `signal` */
	int exit_code;  /* 0..255 */
	uint32_t signal; /* 1..64 */
	bool timed_out;
	bool out_of_memory;
};

struct guest_process {
	uint32_t pid;
	const char *tag, *cmd, *cwd;
	char *const *args;
	size_t n_args;
	struct process_env *envs;
	size_t n_envs;
};

enum guest_change_kind { CHANGE_ADDED, CHANGE_CHANGED, CHANGE_DELETED, CHANGE_MAX_ };
enum guest_file_type { FILE_TYPE_FILE, FILE_TYPE_DIRECTORY, FILE_TYPE_SYMLINK, FILE_TYPE_OTHER, FILE_TYPE_MAX_ };

struct guest_change {
	enum guest_change_kind kind;
	enum guest_file_type type;
	const uint8_t *path; /* absolute, without "." and ".."; else any bytes but NUL and no string */
	size_t path_size;
	uint64_t size;
	uint32_t mode;
};

enum guest_event_kind {
	GUEST_EVENT_FAILURE,
	GUEST_EVENT_DONE,
	GUEST_EVENT_STARTED,
	GUEST_EVENT_DATA,
	GUEST_EVENT_ENDED,
	GUEST_EVENT_PROCESSES,
	GUEST_EVENT_CHANGES,
	GUEST_EVENT_UNKNOWN, /* of a newer croft-guest: to be passed over */
};

/* Pointers are valid until guest_event_deinit(). */
struct guest_event {
	enum guest_event_kind kind;
	ProtobufCMessage *message;
	struct err failure;
	uint32_t pid;
	struct guest_data data;
	struct guest_ended ended;
	struct guest_process *processes;
	size_t n_processes;
	struct guest_change *changes;
	size_t n_changes;
	bool is_last, is_cut; /* of changes */
};

/* 0, GUEST_PROTOCOL, NO_MEMORY. */
int guest_event_decode(const void *data, size_t size, struct guest_event *ret, struct err *reterr);
void guest_event_deinit(struct guest_event *event);

struct guest_start_options {
	const char *user;        /* "": the default user */
	uint64_t timeout_ms;
	const char *traceparent;
};

/* Each appends one frame. 0, INVALID_ARGUMENT when the request is over GUEST_FRAME_MAX, NO_MEMORY. */
int guest_start_append(struct buf *out, const struct process_start *start,
	const struct guest_start_options *options, struct err *reterr);
int guest_connect_append(struct buf *out, const struct process_selector *process, struct err *reterr);
int guest_list_append(struct buf *out, struct err *reterr);
int guest_diff_append(struct buf *out, struct err *reterr);
int guest_signal_append(struct buf *out, const struct process_selector *process, uint32_t signal,
	struct err *reterr);
int guest_input_append(struct buf *out, const struct process_selector *process, const uint8_t *data, size_t size,
	struct err *reterr);
int guest_close_stdin_append(struct buf *out, const struct process_selector *process, struct err *reterr);
int guest_resize_append(struct buf *out, const struct process_selector *process, uint32_t cols, uint32_t rows,
	struct err *reterr);
