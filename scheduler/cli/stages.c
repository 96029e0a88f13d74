/* SPDX-License-Identifier: Apache-2.0
 *
 * croft stages: how often each stage of a start succeeds, what that makes of the whole, and whose the weakest one is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/list.h"
#include "cli/query.h"

struct wish {
	bool all;
	int64_t window_us;
	uint64_t vcpus, memory_mib;
	const char *pool, *node, *template_name, *version, *region, *tenant, *what_if;
};

/* The caller's; NULL when memory is short. */
static char *query_of(const struct wish *wish)
{
	const struct query_item items[] = {
		{ .name = "window", .number = (uint64_t)wish->window_us / 1000, .unit = "ms" },
		{ .name = "vcpus", .number = wish->vcpus },
		{ .name = "memoryMB", .number = wish->memory_mib },
		{ .name = "pool", .text = wish->pool },
		{ .name = "node", .text = wish->node },
		{ .name = "template", .text = wish->template_name },
		{ .name = "version", .text = wish->version },
		{ .name = "region", .text = wish->region },
		{ .name = "tenant", .text = wish->tenant },
		{ .name = "what_if", .text = wish->what_if },
	};

	return query_new(wish->all ? "scope=all" : "scope=own", items, ARRAY_LEN(items));
}

/* "0.6667", "-" where nothing is known. */
static const char *rate_text(const json_t *object, const char *name, char *buf, size_t size)
{
	const json_t *value = json_object_get(object, name);

	if (json_is_number(value))
		(void) snprintf(buf, size, "%.4f", json_number_value(value));
	else
		(void) snprintf(buf, size, "-");
	return buf;
}

static const char *ms_text(const json_t *object, const char *name, char *buf, size_t size)
{
	return text_of_us((int64_t) (json_number_value(json_object_get(object, name)) * 1000.0), buf, size);
}

static struct table *table_of(const json_t *list)
{
	static const char *const heads[] = { "STAGE", "ATTEMPTS", "FAILED", "SAVED", "SKIPPED", "SUCCESS", "95 %", "P50", "P95",
		"P99" };
	struct table *table = table_new(ARRAY_LEN(heads), heads);
	json_t *stage;
	size_t k;

	json_array_foreach(list, k, stage) {
		char text[9][64], low[24], range[64] = "-";
		const bool was_tried = json_integer_value(json_object_get(stage, "attempts")) > 0;
		const char *cells[ARRAY_LEN(heads)] = { text_of(stage, "stage", text[0], 64),
			text_of(stage, "attempts", text[1], 64), text_of(stage, "failed", text[2], 64),
			text_of(stage, "saved", text[3], 64), text_of(stage, "skipped", text[4], 64),
			rate_text(stage, "success", text[5], 64), range, "-", "-", "-" };

		if (was_tried) {
			(void) snprintf(range, sizeof(range), "%s to %s", rate_text(stage, "low", low, sizeof(low)),
				rate_text(stage, "high", text[6], 24));
			cells[7] = ms_text(stage, "p50_ms", text[6], 64);
			cells[8] = ms_text(stage, "p95_ms", text[7], 64);
			cells[9] = ms_text(stage, "p99_ms", text[8], 64);
		}
		table_add(table, cells);
	}
	return table;
}

/* Whose it is and what to do, for the stage that costs most. */
static void print_weakest(const json_t *answer)
{
	char weakest[64] = "", name[64] = "", text[4][64], remedy[256] = "";
	json_t *stage, *code;
	size_t k, i;

	if (!text_of(answer, "weakest", weakest, sizeof(weakest)))
		return;
	json_array_foreach(json_object_get(answer, "stages"), k, stage) {
		(void) text_of(stage, "stage", name, sizeof(name));
		if (strcmp(name, weakest) != 0)
			continue;
		(void) printf("weakest stage: %s, %s of its attempts succeed\n", weakest,
			rate_text(stage, "success", text[0], 64));
		json_array_foreach(json_object_get(stage, "codes"), i, code) {
			for (size_t t = 0; t < ARRAY_LEN(text); t++)
				text[t][0] = '\0';
			(void) text_of(code, "remedy", remedy, sizeof(remedy));
			(void) text_of(code, "code", text[0], 64);
			(void) text_of(code, "n", text[1], 64);
			(void) text_of(code, "owner", text[2], 64);
			(void) text_of(code, "sandbox", text[3], 64);
			(void) printf("  %s, %sx, owner %s, last at sandbox %s: %s\n", text[0], text[1], text[2], text[3],
				remedy);
		}
	}
}

static void print_product(const json_t *answer)
{
	const json_t *what_if = json_object_get(answer, "what_if");
	char product[24], low[24], high[24], stage[64] = "", success[24], dropped[24] = "";

	(void) printf("success of a whole start: %s", rate_text(answer, "product", product, sizeof(product)));
	if (json_is_number(json_object_get(answer, "product")))
		(void) printf(" (%s to %s)", rate_text(answer, "product_low", low, sizeof(low)),
			rate_text(answer, "product_high", high, sizeof(high)));
	(void) printf("\n");
	print_weakest(answer);
	if (what_if) {
		(void) text_of(what_if, "stage", stage, sizeof(stage));
		(void) printf("if %s succeeded at %s: %s\n", stage, rate_text(what_if, "success", success, sizeof(success)),
			rate_text(what_if, "product", product, sizeof(product)));
	}
	if (json_is_false(json_object_get(answer, "complete"))) {
		(void) text_of(answer, "dropped", dropped, sizeof(dropped));
		(void) printf("not all of that time is held any more: %s older facts are gone\n", dropped);
	}
}

/* One row a stage; what holds for all of them stands in each, what is missing too. */
static const char *const columns[] = { "stage", "attempts", "ok", "failed", "saved", "skipped", "success", "low", "high", "p50_ms", "p90_ms",
	"p95_ms", "p99_ms", "product", "product_low", "product_high", "from", "as_of", "complete", "dropped" };

static int print_rows(const json_t *answer, enum output form)
{
	static const char *const shared[] = { "product", "product_low", "product_high", "from", "as_of", "complete", "dropped" };
	json_t *stage;
	size_t k;

	json_array_foreach(json_object_get(answer, "stages"), k, stage)
		for (size_t i = 0; i < ARRAY_LEN(shared); i++)
			(void) json_object_set(stage, shared[i], json_object_get(answer, shared[i]));
	return list_rows(json_object_get(answer, "stages"), columns, ARRAY_LEN(columns), form);
}

int stages(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct wish wish = { .all = false };
	struct failure failure = { 0 };
	enum output form = OUTPUT_TEXT;
	json_t *answer = NULL;
	char *query;
	const struct arg args[] = {
		{ "all", 'a', ARG_FLAG, &wish.all, NULL, "Of all tenants that the key reaches (operators)." },
		{ "window", 'w', ARG_DURATION, &wish.window_us, "TIME", "Only what began in the last TIME, as in 5m, 24h, 30d." },
		{ "pool", 0, ARG_STRING, &wish.pool, "NAME", "Only of this pool." },
		{ "node", 0, ARG_STRING, &wish.node, "ID", "Only on this node." },
		{ "region", 0, ARG_STRING, &wish.region, "NAME", "Only on nodes of this region." },
		{ "template", 't', ARG_STRING, &wish.template_name, "NAME", "Only starts of this template." },
		{ "tenant", 0, ARG_STRING, &wish.tenant, "NAME", "Only of this tenant." },
		{ "node-version", 0, ARG_STRING, &wish.version, "VERSION", "Only on nodes of this version of croft." },
		{ "vcpus", 0, ARG_U64, &wish.vcpus, "N", "Only starts with N vCPUs." },
		{ "memory", 0, ARG_SIZE_MIB, &wish.memory_mib, "SIZE", "Only starts with this memory, as in 512M or 2G." },
		{ "what-if", 0, ARG_STRING, &wish.what_if, "STAGE:SUCCESS",
			"What the whole would be if one stage had this success, as in vmm:0.999." },
		ARG_OUTPUT_ROW(&form),
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1)
		return args_complain(command, "no arguments are taken");
	cli->json = form == OUTPUT_JSON;
	query = query_of(&wish);
	status = query ? api_get(cli, &answer, &failure, "/v1/stages?%s", query) : -1;
	if (!query)
		err_set(&failure.err, FAIL_NO_MEMORY, 0, "There is no memory for the request.");
	free(query);
	if (status < 0)
		return print_failure(cli, "cannot show the stages", &failure);
	if (cli->json)
		return print_json(answer);
	if (form == OUTPUT_TEXT) {
		status = table_print(table_of(json_object_get(answer, "stages")));
		print_product(answer);
	} else {
		status = print_rows(answer, form);
	}
	json_decref(answer);
	return status;
}
