/* SPDX-License-Identifier: Apache-2.0
 *
 * What every command of `croft` works with. The program is one shot: it blocks where it likes, but never on one
 * thing when it must hear two (exec, a wait that Ctrl-C ends).
 *
 * Results go to stdout, everything else to stderr. With -o json a result is one JSON text and a failure is one
 * JSON object on stderr, as the API gives it.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum cli_exit {
	EXIT_OK = 0,
	EXIT_ERROR = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_FOUND = 3,
	EXIT_TIMEOUT = 124,
	EXIT_EXEC = 125,            /* croft could not run the command, for whatever reason */
	EXIT_NOT_EXECUTABLE = 126,
	EXIT_COMMAND_NOT_FOUND = 127,
	EXIT_SIGNAL = 128,          /* and the signal's number */
};

struct cli {
	const char *api_url;     /* without a slash at the end */
	const char *sandbox_url;
	const char *api_key;
	bool json;               /* -o json */
	bool is_terminal;        /* stderr is one */
	char *urls[2];           /* owned copies */
};

/* A noun's verb. */
struct command {
	const char *name;
	const char *usage;       /* what follows the name */
	const char *what;        /* one line */
	int (*run)(struct cli *cli, const struct command *command, int argc, char **argv);
	const struct command *verbs; /* of a noun; ended by a NULL name */
};

extern const struct command commands_audit[], commands_snapshot[], commands_usage[];
extern const struct command commands_sandbox[], commands_node[], commands_token[], commands_template[];
extern const struct command commands_customer[], commands_pool[], commands_tenant[], commands_key[], commands_warm[];

/* One verb each. Return the exit status. */
int node_upgrade(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_create(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_list(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_info(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_kill(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_exec(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_network(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_budget(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_mark(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_pause(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_resume(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_snapshot(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_fork(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_audit(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_diff(struct cli *cli, const struct command *command, int argc, char **argv);
int sandbox_stages(struct cli *cli, const struct command *command, int argc, char **argv);
int capacity(struct cli *cli, const struct command *command, int argc, char **argv);
int data_map(struct cli *cli, const struct command *command, int argc, char **argv);
int responsibility(struct cli *cli, const struct command *command, int argc, char **argv);
int drill(struct cli *cli, const struct command *command, int argc, char **argv);
int top(struct cli *cli, const struct command *command, int argc, char **argv);
int trace(struct cli *cli, const struct command *command, int argc, char **argv);
int usage(struct cli *cli, const struct command *command, int argc, char **argv);
int stages(struct cli *cli, const struct command *command, int argc, char **argv);

/* Runs the command that argv[0], argv[1].. name. */
int cli_run(struct cli *cli, int argc, char **argv);
/* From the environment. */
int cli_init(struct cli *cli, struct err *reterr);
void cli_deinit(struct cli *cli);
