/* SPDX-License-Identifier: Apache-2.0
 *
 * See list.h.
 */
#include "cli/list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/where.h"

int only_names(struct cli *cli, const struct command *command, int n, int *argc, char **argv)
{
	enum args_result r = args_parse(cli, command, NULL, 0, argc, argv);

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (*argc - 1 != n)
		return args_complain(command, n ? "one argument is needed" : "no arguments are taken");
	return -1;
}

const json_t *list_holder(const json_t *object, const char **path)
{
	const char *dot;
	char outer[32];

	while ((dot = strchr(*path, '.'))) {
		(void) snprintf(outer, sizeof(outer), "%.*s", (int) (dot - *path), *path);
		object = json_object_get(object, outer);
		*path = dot + 1;
	}
	return object;
}

const char *list_member(const json_t *object, const char *path, char *buf, size_t size)
{
	const json_t *holder = list_holder(object, &path);

	return text_of(holder, path, buf, size);
}

struct table *list_table(const struct list_view *view, const json_t *list)
{
	struct table *table;
	json_t *element;
	size_t n = 0, k;

	while (n < LIST_COLUMNS_MAX && view->heads[n])
		n++;
	table = table_new(n, view->heads);
	json_array_foreach(list, k, element) {
		char text[LIST_COLUMNS_MAX][LIST_TEXT_MAX];
		const char *cells[LIST_COLUMNS_MAX];

		for (size_t i = 0; i < n; i++)
			cells[i] = list_member(element, view->members[i], text[i], sizeof(text[i]));
		table_add(table, cells);
	}
	return table;
}

/* All pages of the list. */
static int fetch(const struct cli *cli, const char *path, json_t **ret, struct failure *failure)
{
	char next[NEXT_TOKEN_SIZE] = "", page_path[NEXT_TOKEN_SIZE + 128];
	json_t *list = json_array();
	int r;

	do {
		struct api_call call = { .method = "GET", .path = page_path, .next = next };
		json_t *page = NULL;

		(void) snprintf(page_path, sizeof(page_path), "%s%s%s%s", path,
			*next ? strchr(path, '?') ? "&" : "?" : "", *next ? "nextToken=" : "", next);
		r = api_call(cli, &call, &page, failure);
		if (r == 0 && json_array_extend(list, page) < 0)
			r = err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "The answer is no list.");
		json_decref(page);
	} while (r == 0 && *next);
	if (r == 0)
		*ret = list;
	else
		json_decref(list);
	return r;
}

/* The list with what `where` leaves of it. */
static int get_list(const struct cli *cli, const struct list_view *view, bool all, const json_t *where, json_t **ret, struct failure *failure)
{
	const char *nowhere;

	if (fetch(cli, all ? view->path_all : view->path, ret, failure) < 0)
		return -1;
	nowhere = where_keep(*ret, where);
	if (!nowhere)
		return 0;
	json_decref(*ret);
	*ret = NULL;
	return err_set(&failure->err, FAIL_INVALID_ARGUMENT, EINVAL, "--where %.100s: nothing in the list has this member; -o json shows which there are.",
		nowhere);
}

int list_run(struct cli *cli, const struct command *command, int argc, char **argv, const struct list_view *view)
{
	struct failure failure = { 0 };
	json_t *list = NULL, *where = NULL;
	struct table *table;
	bool all = false, is_valid = true;
	const struct arg args[] = {
		{ "where", 'w', ARG_TEXTS, &where, "CONDITION", "Only those for which MEMBER=VALUE, also !=, <, <=, >, >=; may be repeated." },
		{ "all", 'a', ARG_FLAG, &all, NULL, "Of all tenants that the key reaches (operators)." },
	};
	enum args_result r = args_parse(cli, command, args, view->path_all ? 2 : 1, &argc, argv);

	for (size_t i = 0; i < json_array_size(where); i++)
		is_valid = is_valid && where_is_valid(json_string_value(json_array_get(where, i)));
	if (r == ARGS_OK && argc == 1 && is_valid)
		(void) get_list(cli, view, all, where, &list, &failure);
	json_decref(where);
	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1 || !is_valid)
		return args_complain(command, argc != 1 ? "no arguments are taken" : "--where is MEMBER=VALUE, also !=, <, <=, >, >=");
	if (!list)
		return print_failure(cli, view->what, &failure);
	if (cli->json)
		return print_json(list);
	table = list_table(view, list);
	json_decref(list);
	return table_print(table);
}

void print_members(const json_t *object, const char *const *members, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char text[256];

		if (text_of(object, members[i], text, sizeof(text)) && *text)
			(void) printf("%-20s %s\n", members[i], text);
	}
}
