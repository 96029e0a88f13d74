/* SPDX-License-Identifier: Apache-2.0
 *
 * process.Process in proto3 JSON: requests become plain structs, events become JSON. Pure. What proto3 JSON lets
 * a writer choose is accepted here (lowerCamelCase or the proto's own names, numbers as strings, enums by name
 * or number, null for absent, unknown members ignored); a wrong type, two members of one oneof or a number out
 * of range is INVALID_ARGUMENT naming the member. Everything is held to the limits below before it can reach a
 * guest.
 *
 * The strings of a decoded request are borrowed from its `root`, which the request owns.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PROCESS_ELEMENTS_MAX 16384u /* arguments and variables of one process together */
#define PROCESS_TAG_MAX 256u
#define PROCESS_PATH_MAX 4096u
#define PROCESS_PTY_MAX 65535u

struct process_env {
	const char *name;
	const char *value;
};

/* Exactly one of the two: pid > 0, or tag. */
struct process_selector {
	uint32_t pid;
	const char *tag;
};

struct process_start {
	json_t *root;
	const char *cmd;
	const char **args;
	size_t n_args;
	struct process_env *envs;
	size_t n_envs;
	const char *cwd; /* "" where absent */
	const char *tag;
	bool stdin_open; /* absent means true: old clients know no other */
	bool has_pty;
	uint32_t cols, rows;
};

struct process_input {
	json_t *root;
	struct process_selector process;
	uint8_t *data;
	size_t size;
};

struct process_signal {
	json_t *root;
	struct process_selector process;
	uint32_t signal;
};

struct process_update {
	json_t *root;
	struct process_selector process;
	bool has_pty;
	uint32_t cols, rows;
};

/* Connect and CloseStdin. */
struct process_named {
	json_t *root;
	struct process_selector process;
};

/* On failure nothing is owned; else free with the deinit beside it. */
int process_start_parse(const char *json, size_t size, struct process_start *ret, struct err *reterr);
void process_start_deinit(struct process_start *start);
int process_input_parse(const char *json, size_t size, struct process_input *ret, struct err *reterr);
void process_input_deinit(struct process_input *input);
int process_signal_parse(const char *json, size_t size, struct process_signal *ret, struct err *reterr);
void process_signal_deinit(struct process_signal *signal);
int process_update_parse(const char *json, size_t size, struct process_update *ret, struct err *reterr);
void process_update_deinit(struct process_update *update);
int process_named_parse(const char *json, size_t size, struct process_named *ret, struct err *reterr);
void process_named_deinit(struct process_named *named);
/* A request without members that we know. */
int process_empty_parse(const char *json, size_t size, struct err *reterr);
