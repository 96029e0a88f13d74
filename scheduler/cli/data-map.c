/* SPDX-License-Identifier: Apache-2.0
 *
 * croft data-map: for each kind of state where it is, who can read it, how long it lives, and what takes it out and deletes it.
 * The scheduler is asked for nothing but the node of one sandbox.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "cli/list.h"

enum machine { NODE, SCHEDULER };

static const struct kind {
	const char *name;
	enum machine machine;
	bool of_sandbox;
	const char *where, *readers, *lifetime, *export, *delete;
} kinds[] = {
#define KIND(name, machine, of_sandbox, where, readers, lifetime, export, delete) \
	{ name, machine, of_sandbox, where, readers, lifetime, export, delete },
#include "cli/data-map.def"
#undef KIND
};

#define VALUES 5
struct places {
	const char *names[VALUES], *values[VALUES];
};

/* `text` with the words that are named replaced; heap, NULL: no memory. A word ends where a small letter or no letter follows. */
static char *put_places(const char *text, const struct places *places)
{
	char *made = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&made, &size);

	if (!out)
		return NULL;
	while (*text) {
		const size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
		const char *value = NULL;

		for (size_t i = 0; n > 0 && i < VALUES && !value; i++)
			if (places->values[i] && strlen(places->names[i]) == n && !strncmp(text, places->names[i], n))
				value = places->values[i];
		if (value)
			(void)fputs(value, out);
		else
			(void)fwrite(text, 1, n > 0 ? n : 1, out);
		text += n > 0 ? n : 1;
	}
	if (fclose(out) != 0) {
		free(made);
		return NULL;
	}
	return made;
}

static json_t *paths_of(const struct kind *kind, const struct places *places)
{
	json_t *paths = json_array();
	char *list = put_places(kind->where, places), *rest = list;

	for (char *path = strsep(&rest, " "); path; path = strsep(&rest, " "))
		if (*path)
			(void)json_array_append_new(paths, json_string(path));
	free(list);
	return paths;
}

static json_t *view(const struct kind *kind, const struct places *places, const char *sandbox)
{
	const struct places commands = { { "ID" }, { sandbox } };
	char *export = put_places(kind->export, &commands), *delete = put_places(kind->delete, &commands);
	json_t *row = json_pack("{s:s, s:s, s:o, s:s, s:s, s:s?, s:s?}", "kind", kind->name, "machine",
		kind->machine == NODE ? "node" : "scheduler", "where", paths_of(kind, places), "readers", kind->readers, "lifetime", kind->lifetime,
		"export", export, "delete", delete);

	free(export);
	free(delete);
	return row;
}

static void print_line(const char *name, const json_t *row, const char *member)
{
	char text[512];

	if (text_of(row, member, text, sizeof(text)))
		(void)printf("  %-9s %s\n", name, text);
}

static void print_kind(const json_t *row, const char *node)
{
	const json_t *paths = json_object_get(row, "where");
	const char *machine = json_string_value(json_object_get(row, "machine"));
	json_t *path;
	size_t k;

	(void)printf("%s (%s%s%s)\n", json_string_value(json_object_get(row, "kind")), machine, *node ? " " : "", node);
	json_array_foreach(paths, k, path)
		(void)printf("  %-9s %s\n", k == 0 ? "where" : "", json_string_value(path));
	print_line("readers", row, "readers");
	print_line("lifetime", row, "lifetime");
	print_line("export", row, "export");
	print_line("delete", row, "delete");
}

/* The node and state of one sandbox, for its rows. */
static int ask(struct cli *cli, const char *sandbox, json_t *ret, struct failure *failure)
{
	json_t *answer = NULL;

	if (!id_is_valid(sandbox))
		return err_set(&failure->err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
	if (api_get(cli, &answer, failure, "/v1/sandboxes/%s", sandbox) < 0)
		return -1;
	(void)json_object_set_new(ret, "sandbox", json_string(sandbox));
	(void)json_object_set(ret, "node", json_object_get(answer, "node"));
	(void)json_object_set(ret, "state", json_object_get(answer, "state"));
	json_decref(answer);
	return 0;
}

int data_map(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct places places = { { "ID", "NODE", "CACHE", "RUN", "SCHEDULER" },
		{ NULL, "/var/lib/croft/node", "/var/cache/croft", "/run/croft", "/var/lib/croft/scheduler" } };
	struct failure failure = { 0 };
	const struct arg args[] = {
		{ "sandbox", 's', ARG_STRING, &places.values[0], "ID", "Only what is this sandbox's own, on its node [everything]." },
		{ "node-state", 0, ARG_STRING, &places.values[1], "DIR", "`state` of node.conf, where it is another [/var/lib/croft/node]." },
		{ "node-cache", 0, ARG_STRING, &places.values[2], "DIR", "`cache` of node.conf [/var/cache/croft]." },
		{ "node-run", 0, ARG_STRING, &places.values[3], "DIR", "`run` of node.conf [/run/croft]." },
		{ "scheduler-state", 0, ARG_STRING, &places.values[4], "DIR", "`state` of scheduler.conf [/var/lib/croft/scheduler]." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	const char *sandbox = places.values[0], *node;
	json_t *map, *rows, *row;
	size_t k;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1)
		return args_complain(command, "no arguments are taken");
	map = json_pack("{s:[]}", "kinds");
	rows = json_object_get(map, "kinds");
	if (sandbox && ask(cli, sandbox, map, &failure) < 0) {
		json_decref(map);
		return print_failure(cli, "cannot show where the sandbox's data is", &failure);
	}
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (!sandbox || kinds[i].of_sandbox)
			(void)json_array_append_new(rows, view(&kinds[i], &places, sandbox));
	if (cli->json)
		return print_json(map);
	node = json_string_value(json_object_get(map, "node"));
	json_array_foreach(rows, k, row)
		print_kind(row, node ? node : "");
	json_decref(map);
	return EXIT_OK;
}
