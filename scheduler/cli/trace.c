/* SPDX-License-Identifier: Apache-2.0
 *
 * croft trace: one run end to end, over all processes.
 */
#include <stdio.h>
#include <string.h>

#include "cli/list.h"

/* A caller's trace may go through several sandboxes. */
static bool is_of_several(const json_t *steps)
{
	const char *first = json_string_value(json_object_get(json_array_get(steps, 0), "sandbox"));
	json_t *step;
	size_t k;

	json_array_foreach(steps, k, step) {
		const char *sandbox = json_string_value(json_object_get(step, "sandbox"));

		if (first && sandbox && strcmp(first, sandbox) != 0)
			return true;
	}
	return false;
}

static struct table *table_of(const json_t *steps)
{
	static const char *const heads[] = { "AT", "TOOK", "PROCESS", "STAGE", "OUTCOME", "ATTEMPT", "NODE", "WHY", "SANDBOX" };
	struct table *table = table_new(ARRAY_LEN(heads) - !is_of_several(steps), heads);
	json_t *step;
	size_t k;

	json_array_foreach(steps, k, step) {
		const json_t *failure = json_object_get(step, "failure");
		char text[9][64], why[160] = "", owner[64] = "";
		const char *cells[ARRAY_LEN(heads)] = { text_of_us(json_integer_value(json_object_get(step, "at_us")), text[0], 64),
			text_of_us(json_integer_value(json_object_get(step, "took_us")), text[1], 64), text_of(step, "process", text[2], 64),
			text_of(step, "stage", text[3], 64), text_of(step, "outcome", text[4], 64), text_of(step, "attempt", text[5], 64),
			text_of(step, "node", text[6], 64), NULL, text_of(step, "sandbox", text[8], 64) };

		if (failure)
			(void) snprintf(why, sizeof(why), "%s, owner %s", text_of(failure, "code", text[7], 64),
				text_of(failure, "owner", owner, sizeof(owner)));
		else
			(void) text_of(step, "reason", why, sizeof(why));
		cells[7] = *why ? why : NULL;
		table_add(table, cells);
	}
	return table;
}

static void print_failures(const json_t *steps)
{
	json_t *step;
	size_t k;

	json_array_foreach(steps, k, step) {
		const json_t *failure = json_object_get(step, "failure");
		char stage[64] = "", message[512] = "", remedy[256] = "";

		if (!failure)
			continue;
		(void) text_of(step, "stage", stage, sizeof(stage));
		(void) text_of(failure, "message", message, sizeof(message));
		(void) text_of(failure, "remedy", remedy, sizeof(remedy));
		(void) printf("%s failed: %s%s%s\n", stage, message, *message ? " " : "", remedy);
	}
}

int trace(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const char *const members[] = { "trace", "sandbox", "tenant", "began" };
	struct failure failure = { 0 };
	json_t *answer = NULL;
	char took[32];
	int status = only_names(cli, command, 1, &argc, argv);

	if (status >= 0)
		return status;
	if (!*argv[1] || argv[1][strspn(argv[1], "0123456789abcdefghijklmnopqrstuvwxyz")])
		return args_complain(command, "a trace (32 hex digits) or a sandbox's id is needed");
	if (api_get(cli, &answer, &failure, "/v1/traces/%s", argv[1]) < 0)
		return print_failure(cli, "cannot show the trace", &failure);
	if (cli->json)
		return print_json(answer);
	print_members(answer, members, ARRAY_LEN(members));
	(void) printf("%-20s %s\n", "took", text_of_us(json_integer_value(json_object_get(answer, "took_us")), took, sizeof(took)));
	status = table_print(table_of(json_object_get(answer, "steps")));
	print_failures(json_object_get(answer, "steps"));
	if (json_is_true(json_object_get(answer, "more")))
		(void) printf("only the first steps are shown\n");
	if (json_is_false(json_object_get(answer, "complete")))
		(void) printf("not all of that time is held any more\n");
	json_decref(answer);
	return status;
}
