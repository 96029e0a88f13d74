/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes that croft-guest started: their pipes, their output that somebody may still want, their
 * readers, their end.
 *
 *        exec failed                     EOF on all pipes, or 200 ms and what
 *   +--------------------> FAILED        was in the pipes when they were over
 *   |                                                |
 * STARTING --exec--> RUNNING --leader exits--> DRAINING ----> ENDED --end was read or 60 s--> freed
 *
 * Rules
 * - Any number up to READERS_MAX may read a process; each gets every byte from where it began. A reader that
 *   stops reading stops the process's output (its pipe fills); one that stopped for 5 s holds up the process
 *   no longer if another still reads: what it misses is counted in `lost`.
 * - Without a reader the output goes on into the 64 KiB ring, oldest dropped and counted. A reader starts
 *   after the last byte that was read by anybody.
 * - A chunk counts as read when it was written to the connection whole.
 * - The end does not wait for a daemon that inherited the pipes; they are read on and discarded, so that the
 *   daemon lives.
 * - Signals go to the process group, as from a terminal; so does the kill at the time limit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "guest/loop.h"
#include "guest/oom.h"
#include "guest/output.h"
#include "guest/spawn.h"

#define PROCESSES_MAX 1024
#define READERS_MAX 16
#define INPUT_HIGH 65536u         /* bytes waiting for a process above which no more are taken */
#define INPUT_MAX (1u << 21)
#define CONFIG_KEPT_MAX 16384u    /* bytes of a process's arguments and environment kept for list */
#define DRAIN_USEC INT64_C(200000)
#define STALL_USEC INT64_C(5000000)
#define FORGET_USEC INT64_C(60000000)

enum process_state { PROCESS_STARTING, PROCESS_RUNNING, PROCESS_DRAINING, PROCESS_ENDED, PROCESS_FAILED };

struct process_end {
	bool exited;
	int exit_code;
	int signal;
	bool timed_out;
	bool out_of_memory;       /* of the guest: see processes_reaped() */
};

/* As it was asked for; args and env are NULL-terminated and empty when they were too large to keep. */
struct process_config {
	char *cmd, *cwd, *tag;
	char **args;
	char **env;
};

struct processes;
struct process;
struct reader;
typedef void reader_wake_fn(struct reader *reader);

/* Embedded in whoever reads. */
struct reader {
	TAILQ_ENTRY(reader) link;
	struct process *process;  /* NULL: not attached */
	uint64_t position;
	int64_t progress_usec;    /* when it last took something, or had nothing to take */
	bool was_told_start;
	reader_wake_fn *wake;     /* reader_next() may have something now */
};

enum reader_event { READER_NONE, READER_STARTED, READER_FAILED, READER_DATA, READER_ENDED };

struct reader_chunk {
	enum output_stream stream;
	const uint8_t *data;      /* until the process writes again */
	size_t size;
	uint64_t end;             /* position after them, for reader_done() */
	uint64_t lost;
};

struct process_pipe {
	struct source source;
	struct process *process;
	enum output_stream stream;
	int fd;                   /* -1: closed */
	bool must_be_bounded;     /* after the drain: only `must_read` more bytes */
	size_t must_read;
};

struct process {
	TAILQ_ENTRY(process) link;
	struct processes *all;
	enum process_state state;
	pid_t pid;
	bool is_pty;
	bool had_input;
	struct process_config config;

	int exec_fd;
	struct source exec_source;
	struct err failure;       /* FAILED */

	struct process_pipe pipes[2];
	struct output output;
	uint64_t read_upto;       /* position after the last byte that anybody read */
	TAILQ_HEAD(reader_list, reader) readers;
	unsigned int n_readers;

	int input_fd;
	struct source input_source;
	struct buf input;
	bool input_closes;        /* when `input` is empty */

	int64_t kill_at_usec;     /* 0: no time limit */
	int64_t drain_until_usec;
	int64_t forget_at_usec;
	struct process_end end;
	uint64_t oom_before;      /* kills when it was started */
	bool was_killed;          /* by us */
	bool end_was_read;
};

struct processes {
	struct loop *loop;
	struct oom *oom;          /* NULL: not known */
	TAILQ_HEAD(process_list, process) list; /* newest last */
	unsigned int n;
};

void processes_init(struct processes *all, struct loop *loop);
/* Kills what still runs. */
void processes_deinit(struct processes *all);
/* Starts a process and attaches `reader`, which is told STARTED or FAILED. `config` is taken over on
 * success. timeout_usec 0: none. */
int process_start(struct processes *all, const struct spawn *spawn, struct process_config *config,
	int64_t timeout_usec, struct reader *reader, struct err *reterr);
void process_config_free(struct process_config *config);
/* By pid, or by tag where pid is 0 (the newest). A process that runs goes before one that ended. NULL. */
struct process *process_find(struct processes *all, uint32_t pid, const char *tag);
bool process_is_alive(const struct process *process);
unsigned int processes_count_alive(const struct processes *all);
/* waitpid() reported `pid`; pids that are not ours are ignored. */
void processes_reaped(struct processes *all, pid_t pid, int status);
/* Does what is due, frees what is over. Returns when to be called again at the latest, 0: never. */
int64_t processes_tick(struct processes *all, int64_t now_usec);

/* TOO_MANY_STREAMS. The reader begins after what was read already. */
int reader_attach(struct reader *reader, struct process *process, struct err *reterr);
void reader_detach(struct reader *reader);
/* What comes next; the same again until reader_done(). `ret` is set for DATA. */
MUST_USE enum reader_event reader_next(struct reader *reader, struct reader_chunk *ret);
/* The event went out whole; `end` is the chunk's for DATA. */
void reader_done(struct reader *reader, enum reader_event event, uint64_t end);

enum input_result { INPUT_TAKEN, INPUT_WAIT, INPUT_CLOSED };
/* WAIT: no room now; try again when the loop turned. CLOSED: it has no input, or no longer. */
MUST_USE enum input_result process_input(struct process *process, const void *data, size_t size);
MUST_USE enum input_result process_close_input(struct process *process);
/* The whole group. 0, or -ESRCH when it has ended. */
int process_signal(struct process *process, int signal);
/* 0, or -ENOTTY for a process without a terminal. */
int process_resize(struct process *process, uint16_t cols, uint16_t rows);
