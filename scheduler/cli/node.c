/* SPDX-License-Identifier: Apache-2.0
 *
 * croft node and croft token: the machines of an operator's pools, and how they join.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/list.h"

static int node_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/nodes",
		.what = "cannot list nodes",
		.heads = { "ID", "POOL", "HOST", "STATE", "SCHEDULABLE", "SANDBOXES", "RESERVED MiB", "MEMORY MiB", "WHY NOT" },
		.members = { "id", "pool", "hostname", "state", "schedulable", "capacity.sandboxes",
			"capacity.memory_reserved_mib", "capacity.memory_mib", "unschedulable.code" },
	};

	return list_run(cli, command, argc, argv, &view);
}

/* What is held against it: images that it does not start, and the quarantine that ended last. */
static void print_health(const json_t *health)
{
	const json_t *last = json_object_get(health, "last_quarantine");
	char name[64] = "", why[160] = "", since[64] = "", until[64] = "";
	json_t *image;
	size_t i;

	json_array_foreach(json_object_get(health, "images"), i, image) {
		if (!json_is_true(json_object_get(image, "quarantined")))
			continue;
		(void) text_of(image, "template", name, sizeof(name));
		(void) text_of(image, "why", why, sizeof(why));
		(void) text_of(image, "since", since, sizeof(since));
		(void) printf("%-20s %s since %s: %s\n", "image quarantined", name, since, why);
	}
	if (!json_is_object(last))
		return;
	(void) text_of(last, "why", why, sizeof(why));
	(void) text_of(last, "since", since, sizeof(since));
	(void) text_of(last, "until", until, sizeof(until));
	(void) printf("%-20s from %s to %s: %s\n", "last quarantine", since, until, why);
}

static void print_clock(const json_t *node)
{
	const json_t *offset = json_object_get(node, "clock_offset_ms"), *within = json_object_get(node, "clock_within_ms");

	if (json_is_integer(offset) && json_is_integer(within))
		(void) printf("%-20s %" JSON_INTEGER_FORMAT ", within %" JSON_INTEGER_FORMAT "\n", "clock_offset_ms", json_integer_value(offset),
			json_integer_value(within));
	else
		(void) printf("%-20s not measured\n", "clock_offset_ms");
}

static void print_node(const json_t *node)
{
	static const char *const members[] = { "id", "pool", "hostname", "machine", "version", "cpuClass", "state", "schedulable",
		"revoked", "joined", "heard", "images", "takes_for" };
	const char *name;
	json_t *value;
	size_t i;

	print_members(node, members, ARRAY_LEN(members));
	print_clock(node);
	json_object_foreach(json_object_get(node, "capacity"), name, value)
		(void) printf("%-20s %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(value));
	json_object_foreach(json_object_get(node, "kept"), name, value)
		(void) printf("%-20s %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(value));
	json_object_foreach(json_object_get(node, "facts"), name, value) {
		char who[64] = "", why[128] = "", since[64] = "";

		(void) text_of(value, "who", who, sizeof(who));
		(void) text_of(value, "why", why, sizeof(why));
		(void) text_of(value, "since", since, sizeof(since));
		(void) printf("%-20s since %s by %s: %s\n", name, since, who, why);
	}
	json_array_foreach(json_object_get(node, "space"), i, value) {
		char tenant[72] = "";

		(void) text_of(value, "tenant", tenant, sizeof(tenant));
		(void) printf("%-20s %" JSON_INTEGER_FORMAT " MiB of %s\n", "disk_used", json_integer_value(json_object_get(value, "used_mib")),
			*tenant ? tenant : "nobody");
	}
	print_health(json_object_get(node, "health"));
	(void) fflush(stdout);
}

static int node_info(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	json_t *node = NULL;
	int status = only_names(cli, command, 1, &argc, argv);

	if (status >= 0)
		return status;
	if (!id_is_valid(argv[1]))
		err_set(&failure.err, FAIL_NODE_NOT_FOUND, 0, "There is no such node.");
	else
		(void) api_get(cli, &node, &failure, "/v1/nodes/%s", argv[1]);
	if (err_is_set(&failure.err))
		return print_failure(cli, "cannot show the node", &failure);
	if (cli->json)
		return print_json(node);
	print_node(node);
	if (json_is_object(json_object_get(node, "unschedulable")))
		(void) print_record(cli, "nothing can be placed there", json_object_get(node, "unschedulable"));
	json_decref(node);
	return EXIT_OK;
}

/* ---- tokens ---- */

static int token_create(struct cli *cli, const struct command *command, int argc, char **argv)
{
	const char *pool = NULL, *endpoint = NULL, *replaces = NULL, *adopt = NULL;
	int64_t ttl_us = 0;
	json_t *labels = NULL, *request, *answer = NULL;
	char id[64];
	const struct arg args[] = {
		{ "pool", 'p', ARG_STRING, &pool, "NAME", "Pool that the node joins; the first by default." },
		{ "ttl", 0, ARG_DURATION, &ttl_us, "DURATION", "How long it may be used [1h]." },
		{ "label", 'l', ARG_PAIRS, &labels, "KEY=VALUE", "Label of the node; may be repeated." },
		{ "endpoint", 0, ARG_STRING, &endpoint, "tcp://HOST:PORT", "Where the node reaches the scheduler." },
		{ "replaces", 0, ARG_STRING, &replaces, "NODE", "The host was this node: its pool and labels stay, its sandboxes end." },
		{ "adopt", 0, ARG_STRING, &adopt, "TENANT", "What runs on the node when it joins becomes this tenant's." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	struct failure failure = { 0 };
	int status = r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;

	if (r == ARGS_OK && argc != 1)
		status = args_complain(command, "no arguments are taken");
	if (r == ARGS_OK && argc == 1) {
		request = json_pack("{s:s*, s:o*, s:O*, s:o*, s:s*, s:s*}", "pool", pool, "ttl_s",
			ttl_us ? json_integer((ttl_us + USEC_PER_SEC - 1) / USEC_PER_SEC) : NULL, "labels", labels, "endpoints",
			endpoint ? json_pack("[s]", endpoint) : NULL, "replaces", replaces, "adopt_tenant", adopt);
		if (api_call(cli, &(struct api_call){ .method = "POST", .path = "/v1/tokens", .body = request }, &answer,
			    &failure) < 0) {
			status = print_failure(cli, "cannot make a join token", &failure);
		} else if (cli->json) {
			status = print_json(json_incref(answer));
		} else {
			const char *file = json_string_value(json_object_get(answer, "file"));

			status = file && fputs(file, stdout) >= 0 && print_finish() == 0 ? EXIT_OK : EXIT_ERROR;
			if (status != EXIT_OK)
				(void) fprintf(stderr, "croft: the join token was made and is lost; `croft token revoke %s` revokes it\n",
					text_of(answer, "id", id, sizeof(id)) ? id : "ID");
		}
		json_decref(request);
		json_decref(answer);
	}
	json_decref(labels);
	return status;
}

static int token_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/tokens",
		.what = "cannot list join tokens",
		.heads = { "ID", "POOL", "STATE", "CREATED", "EXPIRES", "USED BY" },
		.members = { "id", "pool", "state", "created", "expires", "used_by" },
	};

	return list_run(cli, command, argc, argv, &view);
}

static int token_revoke(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	int status = only_names(cli, command, 1, &argc, argv);

	if (status >= 0)
		return status;
	if (!id_is_valid(argv[1]))
		err_set(&failure.err, FAIL_TOKEN_NOT_FOUND, 0, "There is no such join token.");
	else
		(void) api_delete(cli, &failure, "/v1/tokens/%s", argv[1]);
	if (err_is_set(&failure.err))
		return print_failure(cli, "cannot revoke the token", &failure);
	return cli->json ? print_json(json_object()) : EXIT_OK;
}

/* ---- what people decide about a node ---- */
static int decide(struct cli *cli, const char *verb, const char *id, json_t *body)
{
	struct failure failure = { 0 };
	json_t *node = NULL;
	char path[128], what[64];

	(void) snprintf(what, sizeof(what), "cannot %s the node", verb);
	(void) snprintf(path, sizeof(path), "/v1/nodes/%s/%s", id, verb);
	if (!id_is_valid(id))
		err_set(&failure.err, FAIL_NODE_NOT_FOUND, 0, "There is no such node.");
	else
		(void) api_call(cli, &(struct api_call){ .method = "POST", .path = path, .body = body }, &node, &failure);
	json_decref(body);
	if (err_is_set(&failure.err))
		return print_failure(cli, what, &failure);
	if (cli->json)
		return print_json(node ? node : json_object());
	if (node)
		print_node(node);
	json_decref(node);
	return EXIT_OK;
}

static int node_cordon(struct cli *cli, const struct command *command, int argc, char **argv)
{
	const char *why = "";
	const struct arg args[] = { { "why", 'w', ARG_STRING, &why, "TEXT", "Said wherever the node is shown." } };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2)
		return args_complain(command, "one node is needed");
	return decide(cli, "cordon", argv[1], json_pack("{s:s}", "why", why));
}

static int node_uncordon(struct cli *cli, const struct command *command, int argc, char **argv)
{
	int status = only_names(cli, command, 1, &argc, argv);

	return status >= 0 ? status : decide(cli, "uncordon", argv[1], json_object());
}

static int node_drain(struct cli *cli, const struct command *command, int argc, char **argv)
{
	const char *why = "";
	int64_t deadline_us = 3600 * USEC_PER_SEC;
	const struct arg args[] = {
		{ "why", 'w', ARG_STRING, &why, "TEXT", "Said wherever the node is shown." },
		{ "deadline", 0, ARG_DURATION, &deadline_us, "DURATION", "What still runs then is ended [1h]." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2)
		return args_complain(command, "one node is needed");
	return decide(cli, "drain", argv[1],
		json_pack("{s:s, s:I}", "why", why, "deadline_s",
			(json_int_t) ((deadline_us + USEC_PER_SEC - 1) / USEC_PER_SEC)));
}

static int node_take(struct cli *cli, const struct command *command, int argc, char **argv)
{
	const char *tenant = NULL;
	const struct arg args[] = { { "for", 0, ARG_STRING, &tenant, "TENANT", "Whose it becomes; \"\": nobody's any more." } };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2 || !tenant)
		return args_complain(command, argc != 2 ? "one node is needed" : "--for is needed");
	return decide(cli, "take", argv[1], json_pack("{s:s}", "tenant", tenant));
}

static int node_remove(struct cli *cli, const struct command *command, int argc, char **argv)
{
	bool force = false;
	const struct arg args[] = { { "force", 0, ARG_FLAG, &force, NULL, "Also with sandboxes and snapshots there; they are lost." } };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2)
		return args_complain(command, "one node is needed");
	return decide(cli, "remove", argv[1], json_pack("{s:b}", "force", force));
}

const struct command commands_node[] = {
	{ "node list", "[OPTION]...", "List nodes, also those that --where names.", node_list, NULL },
	{ "node ls", "", NULL, node_list, NULL },
	{ "node info", "ID", "Show one node.", node_info, NULL },
	{ "node cordon", "[OPTION]... ID", "Place nothing more there; what runs goes on.", node_cordon, NULL },
	{ "node uncordon", "ID", "End a cordon or a drain.", node_uncordon, NULL },
	{ "node drain", "[OPTION]... ID", "Place nothing more there and end what still runs at the deadline.", node_drain,
		NULL },
	{ "node upgrade", "[OPTION]... ID PACKAGE.deb", "Offer a signed package to a node, whose owner's configuration decides.", node_upgrade, NULL },
	{ "node take", "--for TENANT ID", "Give a tenant what the node's owner imports there within the hour.", node_take, NULL },
	{ "node remove", "[OPTION]... ID", "Take a node out for good: its key is revoked.", node_remove, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

const struct command commands_token[] = {
	{ "token create", "[OPTION]...", "Make a join token for one node; prints its file.", token_create, NULL },
	{ "token list", "", "List join tokens.", token_list, NULL },
	{ "token ls", "", NULL, token_list, NULL },
	{ "token revoke", "ID", "Revoke a join token.", token_revoke, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
