/* SPDX-License-Identifier: Apache-2.0
 *
 * croft warm: microVMs that are kept ready.
 */
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/list.h"

static int warm_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/warm",
		.what = "cannot list warm pools",
		.heads = { "POOL", "TEMPLATE", "READY", "STARTING", "TARGET", "VCPUS", "MEMORY MiB", "DISK MiB" },
		.members = { "pool", "template", "ready", "starting", "target", "vcpus", "memory_mib", "disk_mib" },
	};

	return list_run(cli, command, argc, argv, &view);
}

struct warm_args {
	const char *target, *tenant;
	uint64_t starts, vcpus, memory, disk;
	int64_t age_us;
};

static json_t *number(uint64_t value)
{
	return value ? json_integer((json_int_t) value) : NULL;
}

static int send_warm(struct cli *cli, const struct warm_args *a, const char *pool, const char *name)
{
	static const char *const members[] = { "pool", "template", "snapshot", "image", "vcpus", "memory_mib", "disk_mib", "target",
		"max_starts", "max_age_ms", "ready", "starting" };
	struct failure failure = { 0 };
	json_t *answer = NULL;
	json_t *body = json_pack("{s:I, s:s*, s:o*, s:o*, s:o*, s:o*, s:o*}", "target", (json_int_t) atoll(a->target),
		"tenant", a->tenant, "max_starts", number(a->starts), "max_age_ms",
		number((uint64_t) (a->age_us / USEC_PER_MSEC)), "vcpus", number(a->vcpus), "memoryMB", number(a->memory),
		"diskSizeMB", number(a->disk));
	char path[256];

	(void) snprintf(path, sizeof(path), "/v1/pools/%s/warm/%s", pool, name);
	(void) api_call(cli, &(struct api_call){ .method = "PUT", .path = path, .body = body }, &answer, &failure);
	json_decref(body);
	if (err_is_set(&failure.err)) {
		json_decref(answer);
		return print_failure(cli, "cannot set the warm pool", &failure);
	}
	if (cli->json)
		return print_json(answer);
	print_members(answer, members, ARRAY_LEN(members));
	json_decref(answer);
	return EXIT_OK;
}

static int warm_set(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct warm_args a = { .target = NULL };
	const struct arg args[] = {
		{ "target", 'n', ARG_STRING, &a.target, "N", "How many are kept ready; 0: none any more." },
		{ "starts", 0, ARG_U64, &a.starts, "N", "Most that are started at once [2]." },
		{ "max-age", 0, ARG_DURATION, &a.age_us, "DURATION", "Greatest age of a ready one [1h]." },
		{ "vcpus", 0, ARG_U64, &a.vcpus, "N", "vCPUs; as of a create by default." },
		{ "memory", 'm', ARG_SIZE_MIB, &a.memory, "SIZE", "Memory." },
		{ "disk", 'd', ARG_SIZE_MIB, &a.disk, "SIZE", "Disk." },
		{ "tenant", 't', ARG_STRING, &a.tenant, "NAME", "Whose template it is, when not everybody's, or whose snapshot." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	size_t len = a.target ? strlen(a.target) : 0;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 3 || !id_name_is_valid(argv[1]) || !id_name_is_valid(argv[2]))
		return args_complain(command, "a pool and a template or snapshot are needed");
	if (len == 0 || len > 9 || strspn(a.target, "0123456789") != len)
		return args_complain(command, "--target is needed: a whole number");
	return send_warm(cli, &a, argv[1], argv[2]);
}

const struct command commands_warm[] = {
	{ "warm set", "--target N [OPTION]... POOL TEMPLATE", "Keep so many microVMs of a template or snapshot ready.", warm_set, NULL },
	{ "warm list", "", "List warm pools.", warm_list, NULL },
	{ "warm ls", "", NULL, warm_list, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
