/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of croft-node as a process: a scheduler made of wire's router that admits one token and
 * one node, welcomes, acknowledges and remembers; a directory for one agent; the agent's process,
 * and questions to the kernel about what it left behind.
 */
#pragma once

#include <check.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pb/link.pb-c.h"
#include "wire/endpoint.h"
#include "wire/messages.h"

#define RIG_RECORDS 512
#define RIG_SANDBOXES 8
#define RIG_SNAPSHOTS 4
#define RIG_IMAGE_SIZE 8192
#define RIG_STREAM 65536

struct rig_sandbox {
	struct sandbox_report report; /* the newest */
	unsigned int n_reports;
	bool in_inventory;
};

struct rig {
	char dir[64], state[96], cache[96], run[96], token[96], kernel[96], kvm[96];
	struct event_base *base;
	void *zmq;
	struct zap *zap;
	struct router *router;
	struct curve_keys keys, token_keys;
	char address[128], node_key[KEY_Z85_SIZE];
	struct route route;
	uint64_t seq, epoch;
	struct err enroll_answer; /* set: how an Enroll is answered */

	char scheduler_run[ID_SIZE]; /* "": it does not say */
	uint32_t lease_ms; /* that it welcomes with; none is granted */

	bool has_hello, has_inventory, is_silent;
	unsigned int n_hellos;
	struct hello hello;
	struct capacity_report capacity;
	bool has_capacity;
	struct rig_sandbox sandboxes[RIG_SANDBOXES];
	unsigned int n_sandboxes;
	struct snapshot_info snapshots[RIG_SNAPSHOTS]; /* of the last inventory */
	unsigned int n_snapshots;
	bool wants_no_snapshots; /* the desired set names none */
	char dropped[ID_SIZE];   /* the last that the node says is gone */
	bool keep_reports;  /* do not acknowledge */
	struct err refused; /* what the node refused last */

	Croft__TelemetryRecord *records[RIG_RECORDS];
	unsigned int n_records;
	uint64_t last_seq, durable_seq;
	bool keep_telemetry;
	struct usage_record usage[RIG_SANDBOXES]; /* the latest of each generation; acknowledged */
	unsigned int n_usage, n_usage_reports;

	uint8_t image[RIG_IMAGE_SIZE];
	char digest[DIGEST_SIZE];
	size_t image_size;
	uint64_t image_sent, image_credit, image_request;
	unsigned int n_image_requests;
	uint64_t image_stop_at; /* 0: never; the rest is not sent */

	char stream[RIG_STREAM];
	size_t stream_size;
	uint64_t stream_credit;
	bool stream_ended, stream_closed;
	struct err stream_failure;

	unsigned int deadline_s; /* of what is waited for; 0: 40 s */
	pid_t agent;
	char *extra[16]; /* further arguments of the agent */
};

/* As suite_run(); what tests left that failed in the middle, directories and processes, is cleared away. */
int rig_suite_run(Suite *suite);
int rig_suite_run_kvm(Suite *suite);

void rig_init(struct rig *rig);
void rig_deinit(struct rig *rig);
/* The image that sandboxes of this rig boot: its first line says what the stub VMM is to do. */
void rig_set_image(struct rig *rig, const char *mode);
void rig_listen(struct rig *rig);
void rig_cut(struct rig *rig); /* nobody answers at the address until rig_listen() */

/* Runs `croft-node COMMAND`; its exit status, and what it printed on standard error. */
int rig_command(struct rig *rig, const char *command, char *ret_text, size_t size);
void rig_write_token(struct rig *rig);
void rig_join(struct rig *rig);
void rig_start(struct rig *rig);          /* the agent, and waits for its inventory */
void rig_launch(struct rig *rig);         /* the agent, and does not wait */
int rig_end(struct rig *rig, int signal); /* its exit status, or -signal */

void rig_create(struct rig *rig, const char *sandbox, const struct sandbox_spec *spec);
/* The same as a snapshot, with a disk. */
void rig_create_from(struct rig *rig, const char *sandbox, const char *snapshot);
/* For rig_until(): the agent said that it dropped this snapshot. */
bool rig_is_dropped(struct rig *rig, void *snapshot);
void rig_create_again(
	struct rig *rig, const char *sandbox, uint64_t generation, const struct sandbox_spec *spec);
void rig_destroy(struct rig *rig, const char *sandbox, const char *reason);
void rig_pause(struct rig *rig, const char *sandbox, const char *operation, uint64_t number);
void rig_resume(struct rig *rig, const char *sandbox, const char *operation, uint64_t number);
void rig_snapshot(
	struct rig *rig, const char *sandbox, const char *operation, uint64_t number, const char *snapshot);
void rig_fork(
	struct rig *rig, const char *sandbox, const char *operation, uint64_t number, const char *snapshot);
void rig_drop_snapshot(struct rig *rig, const char *snapshot);
struct sandbox_spec *rig_spec(struct rig *rig);
void rig_send(struct rig *rig, Croft__Envelope *envelope, uint64_t deadline_ms);
struct rig_sandbox *rig_find(struct rig *rig, const char *sandbox);

bool rig_is(struct rig *rig, const char *sandbox, enum report_state state);
void rig_wait_state(struct rig *rig, const char *sandbox, enum report_state state);
/* For a test that is about to fail: its directory goes with it, or is nobody's. */
void rig_print_log(const struct rig *rig);
/* Turns the loop until done(rig, arg). */
void rig_until(
	struct rig *rig, bool (*done)(struct rig *rig, void *arg), void *arg, const char *what);

const struct stage_record *rig_stage(struct rig *rig, const char *sandbox, enum fail_stage stage);
/* The sandbox's VMM in the kernel's list of processes; 0: none. */
pid_t rig_find_vmm(struct rig *rig);
unsigned int rig_count_files(const char *dir); /* without . and .. and the agent's own socket */
