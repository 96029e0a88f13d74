/* SPDX-License-Identifier: Apache-2.0
 *
 * croft usage: what sandboxes have used; and whether node and scheduler have the same books.
 */
#include "cli/usage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/list.h"
#include "cli/query.h"

struct wish {
	bool all;
	int64_t since_us;
	const char *by, *sandbox, *pool, *node, *tenant;
};

/* The caller's; NULL when memory is short. */
static char *query_of(const struct wish *wish)
{
	const struct query_item items[] = {
		{ .name = "window", .number = (uint64_t)wish->since_us / 1000, .unit = "ms" },
		{ .name = "by", .text = wish->by },
		{ .name = "sandbox", .text = wish->sandbox },
		{ .name = "pool", .text = wish->pool },
		{ .name = "node", .text = wish->node },
		{ .name = "tenant", .text = wish->tenant },
	};

	return query_new(wish->all ? "scope=all" : "scope=own", items, ARRAY_LEN(items));
}

static int get(struct cli *cli, const struct wish *wish, json_t **ret, struct failure *failure)
{
	char *query = query_of(wish);
	int status = query ? api_get(cli, ret, failure, "/v1/usage?%s", query) : -1;

	if (!query)
		err_set(&failure->err, FAIL_NO_MEMORY, 0, "There is no memory for the request.");
	free(query);
	return status;
}

/* ---- what was used ---- */

static const char *seconds(const json_t *record, const char *name, double unit, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%.3f", json_number_value(json_object_get(record, name)) / unit);
	return buf;
}

static struct table *table_of(const json_t *records)
{
	static const char *const heads[] = { "TENANT", "SANDBOX", "CPU s", "MEMORY GiB s", "DISK GiB s", "EGRESS bytes", "RUNNING s",
		"PAUSED s", "AS OF" };
	struct table *table = table_new(ARRAY_LEN(heads), heads);
	json_t *record;
	size_t k;

	json_array_foreach(records, k, record) {
		char text[ARRAY_LEN(heads)][64];
		const char *cells[ARRAY_LEN(heads)] = { text_of(record, "tenant", text[0], 64), text_of(record, "sandbox", text[1], 64),
			seconds(record, "cpu_s", 1, text[2], 64), seconds(record, "memory_gib_s", 1, text[3], 64),
			seconds(record, "disk_gib_s", 1, text[4], 64), text_of(record, "egress_bytes", text[5], 64),
			seconds(record, "running_us", 1e6, text[6], 64), seconds(record, "paused_us", 1e6, text[7], 64),
			text_of(record, "as_of", text[8], 64) };

		table_add(table, cells);
	}
	return table;
}

/* Nothing where nobody marks results. */
static void print_results(const json_t *answer)
{
	const json_t *results = json_object_get(answer, "results"), *per = json_object_get(answer, "per_accepted");
	char accepted[32], rejected[32], cpu[64], memory[64];

	if (json_integer_value(json_object_get(results, "accepted")) + json_integer_value(json_object_get(results, "rejected")) == 0)
		return;
	(void)printf("results: %s accepted, %s rejected\n", text_of(results, "accepted", accepted, sizeof(accepted)),
		text_of(results, "rejected", rejected, sizeof(rejected)));
	if (json_is_object(per))
		(void)printf("an accepted one costs %s CPU-seconds, %s GiB-seconds of memory\n", seconds(per, "cpu_s", 1, cpu, sizeof(cpu)),
			seconds(per, "memory_gib_s", 1, memory, sizeof(memory)));
}

static void print_rest(const json_t *answer)
{
	const json_t *total = json_object_get(answer, "total"), *gaps = json_object_get(answer, "gaps");
	char cpu[64], memory[64], text[64] = "", lost[64];
	json_t *entry;
	size_t k;

	(void)printf("together: %s CPU-seconds, %s GiB-seconds of memory\n", seconds(total, "cpu_s", 1, cpu, sizeof(cpu)),
		seconds(total, "memory_gib_s", 1, memory, sizeof(memory)));
	print_results(answer);
	json_array_foreach(json_object_get(answer, "lost"), k, entry)
		(void)printf("lost to failures of %s: %s s\n", text_of(entry, "owner", text, sizeof(text)),
			seconds(entry, "lost_us", 1e6, lost, sizeof(lost)));
	if (json_integer_value(json_object_get(gaps, "uncounted_us")) > 0)
		(void)printf("not counted, at most: %s s in which nodes or their agents were down\n",
			seconds(gaps, "uncounted_us", 1e6, text, sizeof(text)));
	if (json_is_false(json_object_get(answer, "complete")))
		(void)printf("not complete: %s record(s) were lost on nodes%s; the books begin at %s\n",
			text_of(gaps, "dropped", lost, sizeof(lost)), json_is_true(json_object_get(answer, "more")) ? ", and there are more rows than these" : "",
			text_of(answer, "oldest", text, sizeof(text)) ? text : "no time");
}

static const char *const columns[] = { "tenant", "sandbox", "generation", "node", "running_us", "paused_us", "disk_us", "cpu_us", "egress_bytes",
	"uncounted_us", "cpu_s", "memory_gib_s", "disk_gib_s", "as_of" };

int usage(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct wish wish = { .by = NULL };
	struct failure failure = { 0 };
	enum output form = OUTPUT_TEXT;
	json_t *answer = NULL;
	const struct arg args[] = {
		{ "all", 'a', ARG_FLAG, &wish.all, NULL, "Of all tenants that the key reaches (operators)." },
		{ "since", 's', ARG_DURATION, &wish.since_us, "TIME", "Only of the last TIME, as in 24h or 30d, in whole hours." },
		{ "by", 0, ARG_STRING, &wish.by, "WHAT", "A row for each sandbox, tenant, or account." },
		{ "tenant", 0, ARG_STRING, &wish.tenant, "NAME", "Only of this tenant." },
		{ "sandbox", 0, ARG_STRING, &wish.sandbox, "ID", "Only of this sandbox." },
		{ "pool", 0, ARG_STRING, &wish.pool, "NAME", "Only in this pool." },
		{ "node", 0, ARG_STRING, &wish.node, "ID", "Only on this node." },
		ARG_OUTPUT_ROW(&form),
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1)
		return args_complain(command, "no arguments are taken");
	cli->json = form == OUTPUT_JSON;
	if (get(cli, &wish, &answer, &failure) < 0)
		return print_failure(cli, "cannot show what was used", &failure);
	if (form == OUTPUT_JSON)
		return print_json(answer);
	if (form == OUTPUT_TEXT) {
		status = table_print(table_of(json_object_get(answer, "records")));
		print_rest(answer);
	} else {
		status = list_rows(json_object_get(answer, "records"), columns, ARRAY_LEN(columns), form);
	}
	json_decref(answer);
	return status;
}

/* ---- the same books? ---- */

/* NULL, and the failure says why. */
static json_t *read_node(const char *path, struct failure *failure)
{
	FILE *from = strcmp(path, "-") != 0 ? fopen(path, "re") : stdin;
	json_error_t error = { .line = 0 };
	json_t *books = from ? json_loadf(from, 0, &error) : NULL;

	if (!from)
		err_set(&failure->err, FAIL_INVALID_ARGUMENT, errno, "The file cannot be read: %.200s.", path);
	else if (!json_is_string(json_object_get(books, "node")) || !json_is_array(json_object_get(books, "records")))
		err_set(&failure->err, FAIL_INVALID_ARGUMENT, 0, "That is not what `croft-node usage -o json` prints: %.200s.", path);
	if (from && from != stdin)
		(void)fclose(from);
	if (!err_is_set(&failure->err))
		return books;
	json_decref(books);
	return NULL;
}

static int print_differences(const json_t *list)
{
	static const char *const heads[] = { "SANDBOX", "GENERATION", "WHAT", "CAUSE" };
	struct table *table = table_new(ARRAY_LEN(heads), heads);
	json_t *entry;
	size_t k;

	if (json_array_size(list) == 0)
		(void)printf("node and scheduler have the same\n");
	json_array_foreach(list, k, entry) {
		char text[2][64], what[256], cause[160];
		const char *cells[ARRAY_LEN(heads)] = { text_of(entry, "sandbox", text[0], 64), text_of(entry, "generation", text[1], 64),
			text_of(entry, "what", what, sizeof(what)), text_of(entry, "cause", cause, sizeof(cause)) };

		table_add(table, cells);
	}
	return table_print(table);
}

static int reconcile(struct cli *cli, const char *path)
{
	struct wish wish = { .all = true, .by = "account" };
	struct failure failure = { 0 };
	json_t *answer = NULL, *books = read_node(path, &failure), *list = NULL;
	size_t n_open = 0;
	int status = EXIT_OK;

	if (books) {
		wish.node = json_string_value(json_object_get(books, "node"));
		if (get(cli, &wish, &answer, &failure) == 0)
			list = usage_differences(json_object_get(books, "records"), json_object_get(answer, "records"));
	}
	for (size_t i = 0; i < json_array_size(list); i++)
		n_open += json_is_false(json_object_get(json_array_get(list, i), "explained"));
	if (!list) {
		status = print_failure(cli, "cannot compare the books", &failure);
	} else if (cli->json) {
		status = print_json(json_pack("{s:s, s:i, s:O, s:O}", "node", wish.node, "unexplained", (int)n_open, "differences", list, "complete",
			json_object_get(answer, "complete")));
	} else {
		status = print_differences(list);
	}
	json_decref(list);
	json_decref(answer);
	json_decref(books);
	return status == EXIT_OK && n_open > 0 ? EXIT_ERROR : status;
}

static int usage_reconcile(struct cli *cli, const struct command *command, int argc, char **argv)
{
	int status = only_names(cli, command, 1, &argc, argv);

	return status >= 0 ? status : reconcile(cli, argv[1]);
}

const struct command commands_usage[] = {
	{ "usage reconcile", "FILE",
		"Compare what `croft-node usage -o json` printed (FILE, or - for standard input) with the scheduler's books.\n"
		"\nEvery difference is listed with its cause; the exit status is 1 where one does not go away by itself.",
		usage_reconcile, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
