/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-guest's service: connections that each carry one request of guest.proto. Transport is any stream
 * socket that it is given (vsock in a sandbox, unix sockets in tests); what only PID 1 may do comes through
 * struct server_host.
 *
 * A connection is REQUEST until a whole frame came, then
 *   CLOSING  the answer is on its way out, then the connection ends, or
 *   STREAM   Start and Connect: events until the end; input, close_stdin, resize and signal for that process
 *            are taken and not answered, or
 *   WAITING  an input waits for room; nothing more is read until it has it.
 * A peer that goes away, or closes its writing side, detaches; the process lives on.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "base/err.h"
#include "guest/loop.h"
#include "guest/oom.h"
#include "guest/process.h"
#include "guest/request.h"
#include "guest/sleep.h"

#define CONNS_MAX 512
#define REQUEST_USEC INT64_C(30000000) /* from the connection to the end of its first frame */
#define DIFFS_MAX 4                     /* at once */
#define FLUSH_USEC INT64_C(30000000)   /* for the peer to take an answer */

/* What the process that hosts the service can do. Each may be NULL. */
struct server_host {
	void (*set_hostname)(const char *hostname);
	void (*set_clock)(int64_t realtime_usec);
	void (*power_off)(void); /* does not return, where it works */
	int (*set_network)(const struct guest_network *network, struct err *reterr);
	/* See sleep.h. */
	int (*freeze)(struct err *reterr);
	int (*wake)(const struct guest_wake *wake, struct err *reterr);
	int (*thaw)(int64_t realtime_usec, struct err *reterr);
	/* See diff.h: answers on `fd` by a child, whose pid it is; -errno. */
	pid_t (*diff)(int fd);
	/* See oom.h. */
	uint64_t (*count_oom)(void);
	pid_t (*tell_oom)(uint64_t kills);
};

enum conn_state { CONN_REQUEST, CONN_STREAM, CONN_WAITING, CONN_CLOSING };

struct server;

struct conn {
	TAILQ_ENTRY(conn) link;
	struct server *server;
	enum conn_state state;
	int fd;
	struct source source;
	struct buf in, out;
	int64_t deadline_usec;     /* REQUEST, CLOSING; 0: none */
	struct reader reader;      /* of a stream */
	enum reader_event sending; /* the event in `out`, READER_NONE: none */
	uint64_t sending_end;
	struct request *waiting;   /* an input without room */
	bool was_stream;           /* WAITING goes back to STREAM */
	bool powers_off;           /* when the answer is out */
};

struct server {
	struct loop loop;
	struct processes processes;
	struct oom oom;
	pid_t diffs[DIFFS_MAX];    /* 0: none */
	TAILQ_HEAD(conn_list, conn) conns;
	unsigned int n_conns;
	unsigned int n_waiting;
	struct source listener;
	int listen_fd;
	int64_t accept_again_usec; /* 0: accepting */
	struct source signals;
	int signal_fd;
	int64_t wake_usec;
	const char *etc;           /* "/etc", where users are looked up */
	struct server_host host;
	const struct err *failure; /* the root is not usable: the answer to all that needs it */
	bool is_frozen;            /* whoever would write to the disk would wait for the thaw, which comes through here */
	int group_fd;              /* cgroup.procs of all processes; -1: none */
	char **env;                /* of every process */
	char *default_user;
};

/* Blocks SIGCHLD and takes it over: from now on only this server reaps. Ignores SIGPIPE. Everything given is
 * borrowed. */
int server_init(struct server *server, const char *etc, const struct server_host *host);
void server_deinit(struct server *server);
/* Accepts from `listen_fd` (non-blocking), which becomes the server's. */
int server_listen(struct server *server, int listen_fd);
/* Serves one connection on `fd`, which becomes the server's in any case. */
int server_adopt(struct server *server, int fd);
/* One turn of the loop, at most wait_ms long (-1: until something happens). */
int server_turn(struct server *server, int wait_ms);
