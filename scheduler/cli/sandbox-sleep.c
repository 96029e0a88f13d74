/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox pause and resume.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/args.h"
#include "cli/http.h"
#include "cli/print.h"

#define WAIT_USEC (70 * USEC_PER_SEC) /* longer than the scheduler waits for a node */

/* POST to one sandbox's `verb`; its id is printed when that is done. */
static int ask(struct cli *cli, const char *id, const char *verb, const json_t *body, const char *what)
{
	char path[64];
	struct api_call call = { .method = "POST", .path = path, .body = body, .timeout_us = WAIT_USEC };
	struct failure failure = { 0 };
	json_t *answer = NULL;

	if (!id_is_valid(id)) {
		err_set(&failure.err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
		return print_failure(cli, what, &failure);
	}
	(void) snprintf(path, sizeof(path), "/sandboxes/%s/%s", id, verb);
	if (api_call(cli, &call, &answer, &failure) < 0)
		return print_failure(cli, what, &failure);
	json_decref(answer);
	if (!cli->json)
		(void) printf("%s\n", id);
	return EXIT_OK;
}

static int ask_each(struct cli *cli, const struct command *command, int argc, char **argv, const char *verb,
	const json_t *body, const char *what)
{
	int status = EXIT_OK;

	if (argc < 2)
		return args_complain(command, "the sandbox's id is needed");
	for (int i = 1; i < argc; i++) {
		int one = ask(cli, argv[i], verb, body, what);

		status = status ? status : one;
	}
	return cli->json && status == EXIT_OK ? print_json(json_object()) : status;
}

int sandbox_pause(struct cli *cli, const struct command *command, int argc, char **argv)
{
	enum args_result r = args_parse(cli, command, NULL, 0, &argc, argv);

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	return ask_each(cli, command, argc, argv, "pause", NULL, "cannot pause the sandbox");
}

int sandbox_resume(struct cli *cli, const struct command *command, int argc, char **argv)
{
	int64_t timeout_us = 0;
	const struct arg args[] = { { "timeout", 0, ARG_DURATION, &timeout_us, "DURATION",
		"End the sandbox this long after it is awake." } };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	json_t *body;
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	body = json_object();
	if (timeout_us > 0)
		(void) json_object_set_new(body, "timeout",
			json_integer((json_int_t) ((timeout_us + USEC_PER_SEC - 1) / USEC_PER_SEC)));
	status = ask_each(cli, command, argc, argv, "resume", body, "cannot resume the sandbox");
	json_decref(body);
	return status;
}
