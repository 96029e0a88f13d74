/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox mark: whether its result was of use. The API judges the word.
 */
#include <stdio.h>

#include "base/id.h"
#include "cli/list.h"

int sandbox_mark(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	json_t *body, *answer = NULL;
	char path[96];
	int status = only_names(cli, command, 2, &argc, argv);

	if (status >= 0)
		return status;
	if (!id_is_valid(argv[1])) {
		(void)err_set(&failure.err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
		return print_failure(cli, "cannot mark the sandbox", &failure);
	}
	(void)snprintf(path, sizeof(path), "/v1/sandboxes/%s/mark", argv[1]);
	body = json_pack("{s:s}", "mark", argv[2]);
	status = api_call(cli, &(struct api_call){ .method = "PUT", .path = path, .body = body }, &answer, &failure);
	json_decref(body);
	json_decref(answer);
	if (status < 0)
		return print_failure(cli, "cannot mark the sandbox", &failure);
	if (cli->json)
		return print_json(json_object());
	(void)printf("%s\n", argv[1]);
	return EXIT_OK;
}
