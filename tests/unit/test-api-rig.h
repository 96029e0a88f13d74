/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole scheduler in this process, on loopback with a state directory of its own, and what speaks to it: an HTTP
 * client and fake nodes, all on one loop.
 */
#pragma once

#include <check.h>
#include <event2/event.h>
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "server/api.h"
#include "server/link.h"
#include "server/options.h"
#include "server/program.h"
#include "server/server.h"
#include "server/shell.h"
#include "wire/dispatch.h"
#include "wire/endpoint.h"
#include "wire/http-client.h"
#include "wire/messages.h"

struct rig {
	char dir[64];
	struct options options;
	struct event_base *base;
	struct server *server;
	struct http_client *client;
	void *zmq; /* of the fake nodes */
	struct first_keys keys;
	char stranger[API_KEY_SIZE]; /* a tenant of another customer */
	char sibling[API_KEY_SIZE];  /* another tenant of the same one */
	char operator[API_KEY_SIZE]; /* the other customer's operator */
};

void rig_open(struct rig *rig);
void rig_close(struct rig *rig);
void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);

struct answer {
	int status;
	json_t *json; /* NULL: the body is none */
	char *body;
	size_t size;
	char traceparent[TRACEPARENT_SIZE];
	char next[64]; /* x-next-token */
	char as_of[40]; /* x-croft-as-of */
	char limit[16], left[16], retry[16]; /* X-RateLimit-Limit, -Remaining, Retry-After */
	char policy[512], etag[80], location[64]; /* Content-Security-Policy, ETag, Location */
	bool begun, done;
	struct err err; /* the call itself failed */
};
void answer_free(struct answer *answer);

/* Starts a call; `answer->done` becomes true. `fields` may be NULL. */
struct http_call *rig_start_call(struct rig *rig, const char *method, const char *path,
	const char *key, const void *body, size_t size, const struct http_field *fields,
	size_t n_fields, struct answer *answer);
/* ... and waits. */
struct answer rig_call(
	struct rig *rig, const char *method, const char *path, const char *key, const char *body);
/* The status, and the failure's code compared with `code` (NULL: none looked at). */
void rig_expect(struct rig *rig, const char *method, const char *path, const char *key,
	const char *body, int status, const char *code);
const char *answer_code(const struct answer *answer); /* failure.code, "" when there is none */
void rig_template(struct rig *rig, const char *name, const char *bytes);

/* ---- a node ---- */
struct fake_node {
	struct rig *rig;
	struct dealer *dealer;
	struct event *beat;
	struct curve_keys keys, token_keys;
	char server_key[KEY_Z85_SIZE], address[128];
	char token[ID_SIZE];
	char machine[ID_SIZE], instance[ID_SIZE];
	const char *boot_id; /* NULL: a fixed one */
	char hostname[64];
	char node[ID_SIZE];
	bool enrolled, up, welcome, refused;
	struct err refusal; /* of Refused or of the enrolment */
	uint64_t seq, highest_epoch;
	struct leader_mark leader; /* of the last welcome */
	struct node_capacity capacity;
	/* what it does with a create: */
	bool is_silent;           /* nothing */
	struct err start_failure; /* fails with this at fails_at */
	enum fail_stage fails_at; /* STAGE_NONE: vmm */
	const int64_t *took_us;   /* of each stage; NULL: 1 ms */
	char sandbox[ID_SIZE];
	uint64_t generation, version, took;
	char operation[ID_SIZE], traceparent[TRACEPARENT_SIZE];
	bool created, destroyed;
	uint32_t timeout_s;
	struct net_policy network;  /* of the last create or change */
	struct err network_failure; /* what it says to a change */
	bool has_clock;             /* it says what its clock shows, */
	int64_t ahead_us;           /* so far ahead of the scheduler's */
	unsigned int pings;
	unsigned int network_updates;
	bool auto_pause;          /* of the last create */
	bool is_older;            /* it does not say that it can pause */
	struct err sleep_failure; /* what it says to a pause or resume */
	unsigned int pauses, resumes;
	char pause_operation[ID_SIZE]; /* of the last, for node_answer_pause() */
	struct err snapshot_failure; /* what it says to a snapshot */
	bool is_slow;                /* it says nothing to one until node_answer_snapshot() */
	bool keeps_snapshots;        /* it does not say that one is dropped */
	unsigned int snapshots, drops, creates;
	struct snapshot_command snapshot; /* the last */
	char spec_snapshot[ID_SIZE];      /* of the last create */
	char dropped[ID_SIZE];
	uint64_t telemetry_acked, usage_acked;
	/* streams: what came, and what is answered to a request's head */
	uint64_t stream;
	char request[65536];
	size_t request_size;
	const char *reply;  /* NULL: none yet */
	bool reply_goes_on; /* the answer has no end */
	bool stream_open, stream_ended, stream_closed;
	/* an image */
	char *image;
	size_t image_size, image_room;
	bool image_whole;
	struct err image_failure;
};

/* Makes a join token by the API and remembers what is in its file. */
void node_token(struct fake_node *node, struct rig *rig, const char *key);
void node_token_of(struct fake_node *node, struct rig *rig, const char *key, const char *body);
/* Connects; returns when it is up or refused, or after ten seconds. */
void node_dial(struct fake_node *node, const struct curve_keys *keys);
/* Connects with the token and sends Enroll; returns when it was answered. */
void node_enroll(struct fake_node *node);
/* Connects with the node's own key, says hello and an empty inventory; returns when welcomed or refused. */
void node_connect(struct fake_node *node);
void node_join(struct fake_node *node, struct rig *rig);
void node_join_pool(struct fake_node *node, struct rig *rig, const char *pool); /* "": the first */
void node_close(struct fake_node *node);
void node_send(struct fake_node *node, Croft__Envelope *envelope);
void node_report(struct fake_node *node, enum report_state state);
/* Telemetry of one stage, of the moment at which it began; returns when it was acknowledged. */
void node_send_stage(struct fake_node *node, uint64_t seq, const struct stage_record *record);
void node_send_hello(struct fake_node *node);
void node_answer_pause(struct fake_node *node); /* one that it was silent about */
void node_answer_snapshot(struct fake_node *node);

/* ---- shorthands ---- */
void answer_text(const json_t *object, const char *key, char *ret, size_t size);
/* `pattern` with the id in the place of its star. */
void rig_path(char *ret, size_t size, const char *pattern, const char *id);
struct answer rig_get(struct rig *rig, const char *key, const char *pattern, const char *id);
void rig_expect_id(struct rig *rig, const char *method, const char *pattern, const char *id,
	const char *key, const char *body, int status, const char *code);
/* A sandbox that runs on `node`. */
void rig_create(
	struct rig *rig, struct fake_node *node, const char *body, char ret[static ID_SIZE]);
