/* SPDX-License-Identifier: Apache-2.0
 *
 * What people and programs see: failures in one block, tables, JSON. Text from outside is cleaned before it reaches
 * a terminal: names and messages must not move its cursor.
 */
#pragma once

#include "cli/http.h"

/* Prints the failure of `what` ("cannot create the sandbox") on stderr and returns the exit status: not found,
 * timeout or error. Frees the failure. */
int print_failure(const struct cli *cli, const char *what, struct failure *failure);
enum cli_exit exit_of(const struct err *err);
/* A failure record that came inside a good answer (the `failure` member of a sandbox). */
int print_record(const struct cli *cli, const char *what, const json_t *record);

/* Whether all that was printed on stdout got there: 0, or -EIO. main() asks when the command is done, and says it. */
int print_finish(void);

/* One JSON text and a newline on stdout. `json` is taken over. Returns EXIT_OK, or EXIT_ERROR when stdout fails. */
int print_json(json_t *json);

/* A table: rows of `n_columns` strings; a NULL prints as "-". Rows are added as printf-free copies. */
struct table;
struct table *table_new(size_t n_columns, const char *const *heads);
void table_add(struct table *table, const char *const *cells);
/* Prints and frees it. */
int table_print(struct table *table);

/* The text of a member, cleaned, in `buf`; NULL when it is absent or null. Numbers and bools as text. */
const char *text_of(const json_t *object, const char *name, char *buf, size_t size);
/* Replaces control characters in place. */
char *clean(char *text);
/* "12 ms", "3.4 s" */
const char *text_of_us(int64_t us, char *buf, size_t size);
