/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox network: replaces what a running sandbox may reach. The API judges the rules; here they are passed on.
 */
#include "cli/sandbox-network.h"

#include <stdio.h>

#include "base/id.h"
#include "cli/print.h"

void network_args_put(const struct network_args *args, json_t *object)
{
	if (args->allow)
		(void) json_object_set(object, "allowOut", args->allow);
	if (args->deny)
		(void) json_object_set(object, "denyOut", args->deny);
}

void network_args_deinit(struct network_args *args)
{
	json_decref(args->allow);
	json_decref(args->deny);
}

static int set_network(struct cli *cli, const char *id, const struct network_args *network)
{
	json_t *body = json_pack("{s:b}", "allow_internet_access", !network->is_closed), *answer = NULL;
	struct failure failure = { 0 };
	char path[96];
	int r;

	(void) snprintf(path, sizeof(path), "/sandboxes/%s/network", id);
	network_args_put(network, body);
	r = api_call(cli, &(struct api_call){ .method = "PUT", .path = path, .body = body }, &answer, &failure);
	json_decref(body);
	json_decref(answer);
	if (r < 0)
		return print_failure(cli, "cannot change what the sandbox may reach", &failure);
	if (cli->json)
		return print_json(json_object());
	(void) printf("%s\n", id);
	return EXIT_OK;
}

int sandbox_network(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct network_args network = { .allow = NULL };
	const struct arg args[] = { NETWORK_ARGS(network) };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status = r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;

	if (r == ARGS_OK && argc != 2) {
		status = args_complain(command, argc < 2 ? "the sandbox's id is needed" : "one sandbox's id is enough");
	} else if (r == ARGS_OK && !id_is_valid(argv[1])) {
		struct failure failure = { 0 };

		err_set(&failure.err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
		status = print_failure(cli, "cannot change what the sandbox may reach", &failure);
	} else if (r == ARGS_OK) {
		status = set_network(cli, argv[1], &network);
	}
	network_args_deinit(&network);
	return status;
}
