/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that only show: their option-free command lines, and arrays as tables.
 */
#pragma once

#include "cli/args.h"
#include "cli/print.h"

#define LIST_COLUMNS_MAX 10
#define LIST_TEXT_MAX 96

struct list_view {
	const char *path;                      /* of the API */
	const char *path_all;                  /* with --all; NULL: there is no such option */
	const char *what;                      /* "cannot list nodes" */
	const char *heads[LIST_COLUMNS_MAX];   /* ended by NULL */
	const char *members[LIST_COLUMNS_MAX]; /* "capacity.memory_mib" reaches into an object */
};

/* Parses a command line without options of its own that has `n` names. -1: go on, else the exit status. */
int only_names(struct cli *cli, const struct command *command, int n, int *argc, char **argv);

/* Adds a row per element of `list` (borrowed). */
struct table *list_table(const struct list_view *view, const json_t *list);
/* The whole command, with --where. */
int list_run(struct cli *cli, const struct command *command, int argc, char **argv, const struct list_view *view);

/* The object that has the last name of "a.b.c", and *path at that name; NULL when it is absent. */
const json_t *list_holder(const json_t *object, const char **path);
/* The text of a member, cleaned, as list_view names it; NULL when it is absent. */
const char *list_member(const json_t *object, const char *path, char *buf, size_t size);
/* A row per element of `list` (borrowed) with these members: OUTPUT_CSV, with their names as its first line; or a line of JSON
 * per element, whole. EXIT_OK. */
int list_rows(const json_t *list, const char *const *members, size_t n, enum output form);

/* A line for each of the named members that is there. */
void print_members(const json_t *object, const char *const *members, size_t n);
