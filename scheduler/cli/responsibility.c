/* SPDX-License-Identifier: Apache-2.0
 *
 * croft responsibility: who does what under the two contracts, as installer/responsibility.ini has it.
 */
#include "base/failure.h"
#include "cli/list.h"

int responsibility(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view rows = { .heads = { "DUTY", "MANAGED", "SELF-HOSTED", "COMPONENTS", "WHAT" },
		.members = { "duty", "managed", "self", "components", "what" } };
	int status = only_names(cli, command, 0, &argc, argv);
	unsigned int n;
	const struct duty *duties = responsibility_duties(&n);
	json_t *list;

	if (status >= 0)
		return status;
	list = json_array();
	for (unsigned int i = 0; i < n; i++)
		(void)json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s}", "duty", duties[i].name, "managed",
			owner_name(duties[i].owner[RESPONSIBILITY_MANAGED]), "self", owner_name(duties[i].owner[RESPONSIBILITY_SELF]),
			"components", duties[i].components, "what", duties[i].what));
	if (cli->json)
		return print_json(list);
	status = table_print(list_table(&rows, list));
	json_decref(list);
	return status;
}
