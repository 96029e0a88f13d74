/* SPDX-License-Identifier: Apache-2.0
 *
 * croft customer, pool, tenant and key: who owns and who may. Every verb is one call; what is sent is what the API's
 * table of routes says.
 */
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/list.h"

/* One kind of object. */
struct kind {
	const char *noun;      /* "pool" */
	const char *path;      /* "/v1/pools" */
	enum fail_code absent; /* no such one */
	const char *members[14];
};

static const struct kind customer = { "customer", "/v1/customers", FAIL_CUSTOMER_NOT_FOUND,
	{ "name", "state", "pools", "tenants", "created", "revoked" } };
static const struct kind pool = { "pool", "/v1/pools", FAIL_POOL_NOT_FOUND,
	{ "name", "customer", "state", "shared", "cpu_overcommit_percent", "replace", "lost_after_ms",
		"self_stop_after_ms", "responsibility", "nodes", "created", "revoked" } };
static const struct kind tenant = { "tenant", "/v1/tenants", FAIL_TENANT_NOT_FOUND,
	{ "name", "customer", "state", "weight", "created", "revoked" } };
static const struct kind key = { "key", "/v1/keys", FAIL_KEY_NOT_FOUND,
	{ "id", "role", "tenant", "customer", "name", "hint", "state", "created" } };

static void print_object(const json_t *object, const char *name)
{
	const char *member;
	json_t *value;

	json_object_foreach(json_object_get(object, name), member, value) {
		char text[64];

		if (text_of(json_object_get(object, name), member, text, sizeof(text)))
			(void) printf("%s.%-*s %s\n", name, 19 - (int) strlen(name), member, text);
	}
}

/* Prints an object, or the failure. Takes `object` and `failure` over. */
static int show(struct cli *cli, const struct kind *kind, const char *what, json_t *object, struct failure *failure)
{
	size_t n = 0;

	if (err_is_set(&failure->err)) {
		json_decref(object);
		return print_failure(cli, what, failure);
	}
	if (cli->json)
		return print_json(object);
	while (n < ARRAY_LEN(kind->members) && kind->members[n])
		n++;
	print_members(object, kind->members, n);
	print_object(object, "quota");
	print_object(object, "used");
	print_object(object, "owners");
	json_decref(object);
	return EXIT_OK;
}

static int send_object(struct cli *cli, const struct kind *kind, const char *method, const char *name, json_t *body)
{
	struct failure failure = { 0 };
	json_t *answer = NULL;
	char path[128], what[64];

	(void) snprintf(path, sizeof(path), "%s%s%s", kind->path, *name ? "/" : "", name);
	(void) snprintf(what, sizeof(what), "cannot %s the %s", *name ? "change" : "make", kind->noun);
	(void) api_call(cli, &(struct api_call){ .method = method, .path = path, .body = body }, &answer, &failure);
	json_decref(body);
	return show(cli, kind, what, answer, &failure);
}

/* A name or an id as part of a path; what is none does not exist. */
static bool is_name(const struct kind *kind, const char *name, struct failure *failure)
{
	if (id_name_is_valid(name))
		return true;
	err_set(&failure->err, kind->absent, 0, "There is no such %s.", kind->noun);
	return false;
}

static int info(struct cli *cli, const struct kind *kind, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	json_t *object = NULL;
	char what[64];
	int status = only_names(cli, command, 1, &argc, argv);

	if (status >= 0)
		return status;
	(void) snprintf(what, sizeof(what), "cannot show the %s", kind->noun);
	if (is_name(kind, argv[1], &failure))
		(void) api_get(cli, &object, &failure, "%s/%s", kind->path, argv[1]);
	return show(cli, kind, what, object, &failure);
}

static int revoke_object(struct cli *cli, const struct kind *kind, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	char what[64];
	int status = only_names(cli, command, 1, &argc, argv);

	if (status >= 0)
		return status;
	(void) snprintf(what, sizeof(what), "cannot revoke the %s", kind->noun);
	if (is_name(kind, argv[1], &failure))
		(void) api_delete(cli, &failure, "%s/%s", kind->path, argv[1]);
	if (err_is_set(&failure.err))
		return print_failure(cli, what, &failure);
	return cli->json ? print_json(json_object()) : EXIT_OK;
}

/* ---- customers ---- */
static int customer_create(struct cli *cli, const struct command *command, int argc, char **argv)
{
	int status = only_names(cli, command, 1, &argc, argv);

	return status >= 0 ? status : send_object(cli, &customer, "POST", "", json_pack("{s:s}", "name", argv[1]));
}

static int customer_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/customers",
		.what = "cannot list customers",
		.heads = { "NAME", "STATE", "POOLS", "TENANTS", "CREATED" },
		.members = { "name", "state", "pools", "tenants", "created" },
	};

	return list_run(cli, command, argc, argv, &view);
}

static int customer_info(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return info(cli, &customer, command, argc, argv);
}

static int customer_revoke(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return revoke_object(cli, &customer, command, argc, argv);
}

/* ---- pools ---- */
struct pool_args {
	const char *customer, *replace, *responsibility;
	uint64_t overcommit;
	int64_t lost_after_us, self_stop_us;
	bool shared, not_shared;
	json_t *owners;
};

static json_t *milliseconds(int64_t us)
{
	return us ? json_integer(us / USEC_PER_MSEC) : NULL;
}

static int pool_send(struct cli *cli, const struct command *command, int argc, char **argv, bool is_new)
{
	struct pool_args a = { .customer = NULL };
	const struct arg args[] = {
		{ "shared", 0, ARG_FLAG, &a.shared, NULL, "Other customers' tenants may be placed there." },
		{ "not-shared", 0, ARG_FLAG, &a.not_shared, NULL, "Only the owner's." },
		{ "overcommit", 0, ARG_U64, &a.overcommit, "PERCENT", "vCPUs per CPU, in percent [400]." },
		{ "replace", 0, ARG_STRING, &a.replace, "never|on-loss", "What becomes of sandboxes whose node is lost [never]." },
		{ "lost-after", 0, ARG_DURATION, &a.lost_after_us, "DURATION", "Silence after which a node is lost." },
		{ "self-stop-after", 0, ARG_DURATION, &a.self_stop_us, "DURATION", "With on-loss: a VM that is cut off stops itself." },
		{ "responsibility", 0, ARG_STRING, &a.responsibility, "managed|self", "Whose a failure is, by default [self]." },
		{ "owner", 0, ARG_PAIRS, &a.owners, "COMPONENT=OWNER", "Whose a component is here; may be repeated." },
		{ "customer", 'c', ARG_STRING, &a.customer, "NAME", "Who owns the pool; the key's customer by default." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args) - (is_new ? 0 : 1), &argc, argv);
	int status = r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	struct failure failure = { 0 };
	json_t *body;

	if (r == ARGS_OK && argc != 2)
		status = args_complain(command, "one name is needed");
	if (r == ARGS_OK && argc == 2) {
		body = json_pack("{s:s*, s:s*, s:o*, s:o*, s:s*, s:o*, s:o*, s:s*, s:O*}", "name", is_new ? argv[1] : NULL,
			"customer", a.customer, "shared",
			a.shared ? json_true() : a.not_shared ? json_false() : NULL, "cpu_overcommit_percent",
			a.overcommit ? json_integer((json_int_t) a.overcommit) : NULL, "replace", a.replace, "lost_after_ms",
			milliseconds(a.lost_after_us), "self_stop_after_ms", milliseconds(a.self_stop_us), "responsibility",
			a.responsibility, "owners", a.owners);
		if (is_new)
			status = send_object(cli, &pool, "POST", "", body);
		else if (is_name(&pool, argv[1], &failure))
			status = send_object(cli, &pool, "PATCH", argv[1], body);
		else
			status = print_failure(cli, "cannot change the pool", &failure);
	}
	json_decref(a.owners);
	return status;
}

static int pool_create(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return pool_send(cli, command, argc, argv, true);
}

static int pool_set(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return pool_send(cli, command, argc, argv, false);
}

static int pool_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/pools",
		.what = "cannot list pools",
		.heads = { "NAME", "CUSTOMER", "STATE", "NODES", "SHARED", "OVERCOMMIT %", "REPLACE", "RESPONSIBILITY" },
		.members = { "name", "customer", "state", "nodes", "shared", "cpu_overcommit_percent", "replace",
			"responsibility" },
	};

	return list_run(cli, command, argc, argv, &view);
}

static int pool_info(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return info(cli, &pool, command, argc, argv);
}

static int pool_revoke(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return revoke_object(cli, &pool, command, argc, argv);
}

/* ---- tenants ---- */
static bool add_limit(json_t *quota, const char *name, const char *text)
{
	size_t len = text ? strlen(text) : 0;

	if (!text)
		return true;
	return len > 0 && len < 16 && strspn(text, "0123456789") == len &&
	       json_object_set_new(quota, name, json_integer(atoll(text))) == 0;
}

static int tenant_send(struct cli *cli, const struct command *command, int argc, char **argv, bool is_new)
{
	const char *owner = NULL, *sandboxes = NULL, *vcpus = NULL, *memory = NULL, *starts = NULL,
		   *paused = NULL, *snapshots = NULL, *kept = NULL;
	uint64_t weight = 0;
	const struct arg args[] = {
		{ "max-sandboxes", 0, ARG_STRING, &sandboxes, "N", "Most sandboxes at once; 0: no limit." },
		{ "max-vcpus", 0, ARG_STRING, &vcpus, "N", "Most vCPUs at once." },
		{ "max-memory", 0, ARG_STRING, &memory, "MIB", "Most memory at once, in MiB." },
		{ "starts-per-minute", 0, ARG_STRING, &starts, "N", "Most starts in a minute." },
		{ "max-paused", 0, ARG_STRING, &paused, "N", "Most paused sandboxes." },
		{ "max-snapshots", 0, ARG_STRING, &snapshots, "N", "Most snapshots." },
		{ "max-kept-disk", 0, ARG_STRING, &kept, "MIB", "Most disk for both, in MiB." },
		{ "weight", 0, ARG_U64, &weight, "N", "Its share of the turns when many wait [1] (the provider's operator)." },
		{ "customer", 'c', ARG_STRING, &owner, "NAME", "Whose tenant it is; the key's customer by default." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args) - (is_new ? 0 : 1), &argc, argv);
	struct failure failure = { 0 };
	json_t *quota, *body;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2)
		return args_complain(command, "one name is needed");
	quota = json_object();
	if (!add_limit(quota, "sandboxes", sandboxes) || !add_limit(quota, "vcpus", vcpus) ||
		!add_limit(quota, "memory_mib", memory) || !add_limit(quota, "starts_per_minute", starts) ||
		!add_limit(quota, "paused", paused) || !add_limit(quota, "snapshots", snapshots) ||
		!add_limit(quota, "kept_disk_mib", kept)) {
		json_decref(quota);
		return args_complain(command, "a limit is a whole number");
	}
	body = json_pack("{s:s*, s:s*, s:o, s:o*}", "name", is_new ? argv[1] : NULL, "customer", owner, "quota", quota, "weight",
		weight ? json_integer((json_int_t) weight) : NULL);
	if (is_new)
		return send_object(cli, &tenant, "POST", "", body);
	if (is_name(&tenant, argv[1], &failure))
		return send_object(cli, &tenant, "PATCH", argv[1], body);
	json_decref(body);
	return print_failure(cli, "cannot change the tenant", &failure);
}

static int tenant_create(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return tenant_send(cli, command, argc, argv, true);
}

static int tenant_set(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return tenant_send(cli, command, argc, argv, false);
}

static int tenant_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/tenants",
		.what = "cannot list tenants",
		.heads = { "NAME", "CUSTOMER", "STATE", "SANDBOXES", "OF", "VCPUS", "OF", "MEMORY MiB", "OF" },
		.members = { "name", "customer", "state", "used.sandboxes", "quota.sandboxes", "used.vcpus", "quota.vcpus",
			"used.memory_mib", "quota.memory_mib" },
	};

	return list_run(cli, command, argc, argv, &view);
}

static int tenant_info(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return info(cli, &tenant, command, argc, argv);
}

static int tenant_revoke(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return revoke_object(cli, &tenant, command, argc, argv);
}

/* ---- keys ---- */
static int key_create(struct cli *cli, const struct command *command, int argc, char **argv)
{
	const char *role = NULL, *acts_as = NULL, *owner = NULL, *name = NULL;
	const struct arg args[] = {
		{ "role", 'r', ARG_STRING, &role, "ROLE",
			"tenant, customer-operator, customer-planner, provider-operator, provider-planner [tenant]." },
		{ "tenant", 't', ARG_STRING, &acts_as, "NAME", "The tenant that it acts as." },
		{ "customer", 'c', ARG_STRING, &owner, "NAME", "Of an operator's or planner's key." },
		{ "name", 'n', ARG_STRING, &name, "TEXT", "A note, to know it again." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	struct failure failure = { 0 };
	json_t *body, *answer = NULL;
	const char *secret;
	char id[64];
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1)
		return args_complain(command, "no arguments are taken");
	body = json_pack("{s:s*, s:s*, s:s*, s:s*}", "role", role, "tenant", acts_as, "customer", owner, "name", name);
	(void) api_call(
		cli, &(struct api_call){ .method = "POST", .path = key.path, .body = body }, &answer, &failure);
	json_decref(body);
	if (err_is_set(&failure.err))
		return print_failure(cli, "cannot make a key", &failure);
	if (cli->json)
		return print_json(answer);
	secret = json_string_value(json_object_get(answer, "key"));
	status = secret && puts(secret) >= 0 && print_finish() == 0 ? EXIT_OK : EXIT_ERROR;
	if (status != EXIT_OK)
		(void) fprintf(stderr, "croft: the key was made and is lost; `croft key revoke %s` revokes it\n",
			text_of(answer, "id", id, sizeof(id)) ? id : "ID");
	json_decref(answer);
	return status;
}

static int key_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/keys",
		.what = "cannot list keys",
		.heads = { "ID", "ROLE", "TENANT", "CUSTOMER", "NAME", "HINT", "STATE", "CREATED" },
		.members = { "id", "role", "tenant", "customer", "name", "hint", "state", "created" },
	};

	return list_run(cli, command, argc, argv, &view);
}

static int key_info(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return info(cli, &key, command, argc, argv);
}

static int key_revoke(struct cli *cli, const struct command *command, int argc, char **argv)
{
	return revoke_object(cli, &key, command, argc, argv);
}

const struct command commands_customer[] = {
	{ "customer create", "NAME", "Make a customer (the provider's operator).", customer_create, NULL },
	{ "customer list", "", "List customers.", customer_list, NULL },
	{ "customer ls", "", NULL, customer_list, NULL },
	{ "customer info", "NAME", "Show one customer.", customer_info, NULL },
	{ "customer revoke", "NAME", "Refuse the keys of a customer and of its tenants.", customer_revoke, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

const struct command commands_pool[] = {
	{ "pool create", "[OPTION]... NAME", "Make a pool.", pool_create, NULL },
	{ "pool list", "", "List pools.", pool_list, NULL },
	{ "pool ls", "", NULL, pool_list, NULL },
	{ "pool info", "NAME", "Show one pool and whose what is there.", pool_info, NULL },
	{ "pool set", "[OPTION]... NAME", "Change a pool.", pool_set, NULL },
	{ "pool revoke", "NAME", "Place nothing there any more.", pool_revoke, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

const struct command commands_tenant[] = {
	{ "tenant create", "[OPTION]... NAME", "Make a tenant.", tenant_create, NULL },
	{ "tenant list", "", "List tenants and what they use.", tenant_list, NULL },
	{ "tenant ls", "", NULL, tenant_list, NULL },
	{ "tenant info", "NAME", "Show one tenant, its quota and what it uses.", tenant_info, NULL },
	{ "tenant set", "[OPTION]... NAME", "Change a tenant's quota.", tenant_set, NULL },
	{ "tenant revoke", "NAME", "Refuse the tenant's keys.", tenant_revoke, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

const struct command commands_key[] = {
	{ "key create", "[OPTION]...", "Make a key and print it; it is shown this once.", key_create, NULL },
	{ "key list", "", "List keys.", key_list, NULL },
	{ "key ls", "", NULL, key_list, NULL },
	{ "key info", "ID", "Show one key.", key_info, NULL },
	{ "key revoke", "ID", "Refuse a key from now on.", key_revoke, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
