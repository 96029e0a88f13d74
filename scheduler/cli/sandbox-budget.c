/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox budget: replaces what a sandbox may use. The API judges it.
 */
#include "cli/sandbox-budget.h"

#include <stdio.h>

#include "base/id.h"
#include "cli/print.h"

bool budget_args_is_set(const struct budget_args *args)
{
	return args->cpu_us || args->wall_us || args->gib_s || args->egress_bytes || args->action;
}

json_t *budget_args_json(const struct budget_args *args)
{
	json_t *body = json_object();

	if (args->cpu_us)
		(void) json_object_set_new(body, "cpu_s", json_real((double) args->cpu_us / 1e6));
	if (args->wall_us)
		(void) json_object_set_new(body, "wall_s", json_real((double) args->wall_us / 1e6));
	if (args->gib_s)
		(void) json_object_set_new(body, "gib_s", json_integer((json_int_t) args->gib_s));
	if (args->egress_bytes)
		(void) json_object_set_new(body, "egress_bytes", json_integer((json_int_t) args->egress_bytes));
	if (args->action)
		(void) json_object_set_new(body, "action", json_string(args->action));
	return body;
}

static int set_budget(struct cli *cli, const char *id, const struct budget_args *budget)
{
	json_t *body = budget_args_json(budget), *answer = NULL;
	struct failure failure = { 0 };
	char path[96];
	int r;

	(void) snprintf(path, sizeof(path), "/v1/sandboxes/%s/budget", id);
	r = api_call(cli, &(struct api_call){ .method = "PUT", .path = path, .body = body }, &answer, &failure);
	json_decref(body);
	json_decref(answer);
	if (r < 0)
		return print_failure(cli, "cannot change what the sandbox may use", &failure);
	if (cli->json)
		return print_json(json_object());
	(void) printf("%s\n", id);
	return EXIT_OK;
}

int sandbox_budget(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct budget_args budget = { .action = NULL };
	struct failure failure = { 0 };
	const struct arg args[] = { BUDGET_ARGS(budget) };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2)
		return args_complain(command, argc < 2 ? "the sandbox's id is needed" : "one sandbox's id is enough");
	if (id_is_valid(argv[1]))
		return set_budget(cli, argv[1], &budget);
	err_set(&failure.err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
	return print_failure(cli, "cannot change what the sandbox may use", &failure);
}
