/* SPDX-License-Identifier: Apache-2.0
 *
 * croft capacity: how many more sandboxes of a shape fit, what stands in the way of the next one, and what a change would do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/list.h"
#include "cli/query.h"

struct wish {
	const char *pool, *template_name, *tenant, *region, *cpu_class, *replay;
	json_t *labels;
	uint64_t vcpus, memory_mib, disk_mib;
	uint64_t if_vcpus, if_memory_mib, if_disk_mib, if_overcommit;
	uint64_t if_nodes, if_node_cpus, if_node_memory_mib, if_node_disk_mib, if_node_sandboxes;
};

/* "a=b,c=d", the caller's; NULL for none. */
static char *text_of_labels(json_t *labels)
{
	char *text = NULL;
	const char *key;
	json_t *value;
	size_t size;
	FILE *list = labels ? open_memstream(&text, &size) : NULL;

	if (!list)
		return NULL;
	json_object_foreach(labels, key, value)
		(void) fprintf(list, "%s%s=%s", ftell(list) > 0 ? "," : "", key, json_string_value(value));
	(void) fclose(list);
	return text;
}

/* The caller's; NULL when memory is short. */
static char *query_of(const struct wish *wish)
{
	char *labels = text_of_labels(wish->labels), *query;
	const struct query_item items[] = {
		{ .name = "pool", .text = wish->pool },
		{ .name = "template", .text = wish->template_name },
		{ .name = "tenant", .text = wish->tenant },
		{ .name = "region", .text = wish->region },
		{ .name = "cpuClass", .text = wish->cpu_class },
		{ .name = "labels", .text = labels },
		{ .name = "vcpus", .number = wish->vcpus },
		{ .name = "memoryMB", .number = wish->memory_mib },
		{ .name = "diskSizeMB", .number = wish->disk_mib },
		{ .name = "replay", .text = wish->replay },
		{ .name = "if_vcpus", .number = wish->if_vcpus },
		{ .name = "if_memoryMB", .number = wish->if_memory_mib },
		{ .name = "if_diskSizeMB", .number = wish->if_disk_mib },
		{ .name = "if_overcommit", .number = wish->if_overcommit },
		{ .name = "if_nodes", .number = wish->if_nodes },
		{ .name = "if_node_cpus", .number = wish->if_node_cpus },
		{ .name = "if_node_memoryMB", .number = wish->if_node_memory_mib },
		{ .name = "if_node_diskMB", .number = wish->if_node_disk_mib },
		{ .name = "if_node_sandboxes", .number = wish->if_node_sandboxes },
	};

	query = query_new("", items, ARRAY_LEN(items));
	free(labels);
	return query;
}

static struct table *table_of(const json_t *pools, bool has_if)
{
	static const char *const heads[] = { "POOL", "FITS", "WAITING", "NODES", "TAKING", "MEMORY MiB", "VCPUS", "DISK MiB", "SLOTS",
		"IF" };
	static const char *const sizes[] = { "memory_mib", "vcpus", "disk_mib", "sandboxes" };
	struct table *table = table_new(ARRAY_LEN(heads) - !has_if, heads);
	json_t *pool;
	size_t k;

	json_array_foreach(pools, k, pool) {
		const json_t *used = json_object_get(pool, "used"), *total = json_object_get(pool, "total"),
			     *then = json_object_get(pool, "if");
		char text[6][64], room[ARRAY_LEN(sizes)][64];
		const char *cells[ARRAY_LEN(heads)] = { text_of(pool, "pool", text[0], 64), text_of(pool, "fits", text[1], 64),
			text_of(pool, "waiting", text[2], 64), text_of(pool, "nodes", text[3], 64),
			text_of(pool, "fitting", text[4], 64), room[0], room[1], room[2], room[3], text_of(then, "fits", text[5], 64) };

		for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
			(void) snprintf(room[i], sizeof(room[i]), "%lld of %lld",
				(long long) json_integer_value(json_object_get(used, sizes[i])),
				(long long) json_integer_value(json_object_get(total, sizes[i])));
		table_add(table, cells);
	}
	return table;
}

/* Of one pool: where each node stops, what is left there, and what to do. */
static void print_stops(const json_t *pool)
{
	char name[64] = "", by[64], nodes[32], memory[32], vcpus[32], disk[32], change[256] = "";
	json_t *stop;
	size_t k;

	(void) text_of(pool, "pool", name, sizeof(name));
	json_array_foreach(json_object_get(pool, "stops"), k, stop)
		(void) printf("%s: %s node(s) stop at %s, with %s MiB, %s vCPUs and %s MiB of disk left\n", name,
			text_of(stop, "nodes", nodes, sizeof(nodes)), text_of(stop, "by", by, sizeof(by)),
			text_of(stop, "memory_mib", memory, sizeof(memory)), text_of(stop, "vcpus", vcpus, sizeof(vcpus)),
			text_of(stop, "disk_mib", disk, sizeof(disk)));
	if (text_of(pool, "change", change, sizeof(change)))
		(void) printf("%s: for one more then: %s\n", name, change);
}

/* The day of a time as the API says it; "never" where there is none. */
static const char *day_of(const json_t *forecast, const char *name, char *buf, size_t size)
{
	if (!text_of(forecast, name, buf, size))
		return "never";
	buf[strcspn(buf, "T")] = '\0';
	return buf;
}

static void print_forecast(const json_t *pool)
{
	const json_t *forecast = json_object_get(pool, "forecast");
	char name[64] = "", verdict[64] = "", by[64] = "", when[64], earliest[64], latest[64];

	(void) text_of(pool, "pool", name, sizeof(name));
	(void) text_of(forecast, "verdict", verdict, sizeof(verdict));
	(void) text_of(forecast, "by", by, sizeof(by));
	if (!strcmp(verdict, "grows"))
		(void) printf("%s: runs out of %s on %s as it grows now (95 %%: %s to %s)\n", name, by,
			day_of(forecast, "runs_out", when, sizeof(when)), day_of(forecast, "earliest", earliest, sizeof(earliest)),
			day_of(forecast, "latest", latest, sizeof(latest)));
	else if (!strcmp(verdict, "too_short"))
		(void) printf("%s: less than seven whole days are known, too few for a trend\n", name);
	else if (!strcmp(verdict, "none"))
		(void) printf("%s: no trend: it does not grow beyond what chance explains\n", name);
}

/* "placed 10, refused 2 (cpu 2), first on 2026-01-05, at most 8 at once" */
static void print_replayed(const char *pool, const char *what, const json_t *result)
{
	const json_t *by = json_object_get(result, "by");
	char placed[32] = "", refused[32] = "", standing[32] = "", first[64] = "", peak[32] = "";
	const char *name;
	json_t *n;

	(void) text_of(result, "placed", placed, sizeof(placed));
	(void) text_of(result, "refused", refused, sizeof(refused));
	(void) text_of(result, "standing_refused", standing, sizeof(standing));
	(void) text_of(json_object_get(result, "peak"), "sandboxes", peak, sizeof(peak));
	(void) printf("%s: %s: %s find room, %s do not", pool, what, placed, refused);
	json_object_foreach((json_t *) (uintptr_t) by, name, n)
		(void) printf(", %lld for %s", (long long) json_integer_value(n), name);
	if (strcmp(standing, "0") != 0)
		(void) printf(" (%s of them or of those that ran before)", standing);
	if (text_of(result, "first_refused", first, sizeof(first)))
		(void) printf(", the first at %s", first);
	(void) printf("; %s at once at most\n", peak);
}

static void print_replay(const json_t *pool)
{
	const json_t *replay = json_object_get(pool, "replay"), *then = json_object_get(replay, "if");
	char name[64] = "", requests[32], unplaced[32], from[64], since[64];

	if (!json_is_object(replay))
		return;
	(void) text_of(pool, "pool", name, sizeof(name));
	(void) printf("%s: %s requests since %s, of which %s got no room\n", name, text_of(replay, "requests", requests, sizeof(requests)),
		text_of(replay, "from", from, sizeof(from)), text_of(replay, "unplaced", unplaced, sizeof(unplaced)));
	if (!json_is_true(json_object_get(replay, "complete")))
		(void) printf("%s: all of them are known only since %s\n", name, text_of(replay, "since", since, sizeof(since)));
	print_replayed(name, "asked again of the pool as it is", json_object_get(replay, "now"));
	if (json_is_object(then))
		print_replayed(name, "with the change", then);
}

static int print_capacity(const json_t *answer)
{
	const json_t *pools = json_object_get(answer, "pools");
	json_t *pool;
	size_t k;
	int status = table_print(table_of(pools, json_is_object(json_object_get(answer, "if"))));

	json_array_foreach(pools, k, pool) {
		print_stops(pool);
		print_forecast(pool);
		print_replay(pool);
	}
	return status;
}

static const char *const columns[] = { "pool", "customer", "overcommit_percent", "fits", "waiting", "nodes", "fitting",
	"total.memory_mib", "total.vcpus", "total.disk_mib", "total.sandboxes", "used.memory_mib", "used.vcpus", "used.disk_mib",
	"used.sandboxes", "if.fits", "if.waiting", "if.more", "forecast.verdict", "forecast.by", "forecast.runs_out",
	"forecast.earliest", "forecast.latest", "replay.requests", "replay.unplaced", "replay.complete", "replay.now.placed",
	"replay.now.refused", "replay.if.placed", "replay.if.refused" };

int capacity(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct wish w = { .pool = NULL };
	struct failure failure = { 0 };
	enum output form = OUTPUT_TEXT;
	json_t *answer = NULL;
	char *query;
	const struct arg args[] = {
		{ "pool", 0, ARG_STRING, &w.pool, "NAME", "Only of this pool." },
		{ "template", 't', ARG_STRING, &w.template_name, "NAME", "Of this template: some nodes may not start it." },
		{ "tenant", 0, ARG_STRING, &w.tenant, "NAME", "Whose template it is, when not everybody's." },
		{ "vcpus", 0, ARG_U64, &w.vcpus, "N", "vCPUs of each; as of a create by default." },
		{ "memory", 'm', ARG_SIZE_MIB, &w.memory_mib, "SIZE", "Memory of each." },
		{ "disk", 'd', ARG_SIZE_MIB, &w.disk_mib, "SIZE", "Disk of each." },
		{ "replay", 0, ARG_STRING, &w.replay, "TIME", "Ask again for all that was asked for in that time (as 7d): of the pool as it is, and as it might be." },
		{ "region", 0, ARG_STRING, &w.region, "NAME", "On nodes of this region." },
		{ "cpu-class", 0, ARG_STRING, &w.cpu_class, "CLASS", "On nodes with this CPU." },
		{ "label", 'l', ARG_PAIRS, &w.labels, "NAME=VALUE", "On nodes with this label; may be repeated." },
		{ "if-vcpus", 0, ARG_U64, &w.if_vcpus, "N", "What fits if each had N vCPUs." },
		{ "if-memory", 0, ARG_SIZE_MIB, &w.if_memory_mib, "SIZE", "... and this memory." },
		{ "if-disk", 0, ARG_SIZE_MIB, &w.if_disk_mib, "SIZE", "... and this disk." },
		{ "if-overcommit", 0, ARG_U64, &w.if_overcommit, "PERCENT", "... if the pool's CPUs were overcommitted so." },
		{ "if-nodes", 0, ARG_U64, &w.if_nodes, "N", "... with N nodes more, like the pool's largest but for:" },
		{ "if-node-cpus", 0, ARG_U64, &w.if_node_cpus, "N", "CPUs of each of them." },
		{ "if-node-memory", 0, ARG_SIZE_MIB, &w.if_node_memory_mib, "SIZE", "Memory of each of them." },
		{ "if-node-disk", 0, ARG_SIZE_MIB, &w.if_node_disk_mib, "SIZE", "Disk of each of them." },
		{ "if-node-sandboxes", 0, ARG_U64, &w.if_node_sandboxes, "N", "Most sandboxes on each of them." },
		ARG_OUTPUT_ROW(&form),
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status;

	if (r == ARGS_OK && argc != 1)
		(void) args_complain(command, "no arguments are taken");
	if (r != ARGS_OK || argc != 1) {
		json_decref(w.labels);
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	}
	cli->json = form == OUTPUT_JSON;
	query = query_of(&w);
	json_decref(w.labels);
	status = query ? api_get(cli, &answer, &failure, "/v1/capacity?%s", *query ? query + 1 : "") : -1;
	if (!query)
		err_set(&failure.err, FAIL_NO_MEMORY, 0, "There is no memory for the request.");
	free(query);
	if (status < 0)
		return print_failure(cli, "cannot show the capacity", &failure);
	if (form == OUTPUT_JSON)
		return print_json(answer);
	status = form == OUTPUT_TEXT ? print_capacity(answer)
				     : list_rows(json_object_get(answer, "pools"), columns, ARRAY_LEN(columns), form);
	json_decref(answer);
	return status;
}
