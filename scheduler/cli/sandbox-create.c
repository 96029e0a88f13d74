/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox create: asks for a sandbox, then watches its start with long polls until it runs or has failed. A
 * scheduler that restarts meanwhile does not end the watch: the create is recorded. Ctrl-C ends the watch alone.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/args.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/sandbox-budget.h"
#include "cli/sandbox-network.h"

#define POLL_MS "20000"
#define OUTAGE_US (60 * USEC_PER_SEC) /* how long the API may be away during the watch */
#define PAUSE_NS (500 * 1000 * 1000L)

struct create {
	struct cli *cli;
	json_t *request, *answer;
	char id[ID_SIZE];
	bool no_wait, quiet;
};

/* The one thing that a signal handler may touch. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
	interrupted = number;
}

static void catch_interrupts(void)
{
	struct sigaction action = { .sa_handler = on_interrupt };

	(void) sigaction(SIGINT, &action, NULL);
	(void) sigaction(SIGTERM, &action, NULL);
}

/* Whether the same question may get an answer a moment later. */
static bool is_outage(const struct failure *failure)
{
	return failure->err.code == FAIL_API_UNREACHABLE || failure->status == 502 || failure->status == 503;
}

static int ask(struct create *create, const char *version, json_t **ret, struct failure *failure)
{
	char path[160];

	(void) snprintf(path, sizeof(path), "/v1/sandboxes/%s%s%s%s", create->id, version ? "?wait_ms=" : "",
		version ? POLL_MS "&after=" : "", version ? version : "");
	return api_call(create->cli, &(struct api_call){ .method = "GET", .path = path, .stop = &interrupted }, ret,
		failure);
}

/* Asks until there is an answer. */
static int poll_once(struct create *create, const char *version, json_t **ret, struct failure *failure)
{
	const struct timespec pause = { 0, PAUSE_NS };
	int64_t until_us = clock_monotonic_usec() + OUTAGE_US;

	for (;;) {
		int r = ask(create, version, ret, failure);

		if (r == 0 || interrupted || !is_outage(failure) || clock_monotonic_usec() >= until_us)
			return r;
		failure_deinit(failure);
		(void) nanosleep(&pause, NULL);
	}
}

/* Until it is no longer starting. `*ret` is the last answer. */
static int watch(struct create *create, json_t **ret, struct failure *failure)
{
	struct progress progress = { .is_shown = create->cli->is_terminal && !create->quiet && !create->cli->json };
	char version[64] = "", state[32];
	json_t *sandbox = NULL;
	int r;

	for (;;) {
		json_decref(sandbox);
		sandbox = NULL;
		r = poll_once(create, *version ? version : NULL, &sandbox, failure);
		if (r < 0)
			break;
		progress_show(&progress, sandbox);
		if (!text_of(sandbox, "version", version, sizeof(version)) ||
			strspn(version, "0123456789abcdefABCDEF-") != strlen(version) ||
			!text_of(sandbox, "state", state, sizeof(state))) {
			r = err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "The answer has no version or no state.");
			break;
		}
		if (strcmp(state, "starting") != 0)
			break;
	}
	progress_end(&progress);
	*ret = sandbox;
	return r;
}

/* The id alone for people and scripts; everything that is known for programs. `sandbox` may be NULL. */
static int print_created(struct create *create, const json_t *sandbox)
{
	int status;

	if (create->cli->json) {
		json_t *all = json_copy(create->answer);

		if (sandbox)
			(void) json_object_update(all, (json_t *) (uintptr_t) sandbox);
		status = print_json(all);
	} else {
		status = printf("%s\n", create->id) < 0 || print_finish() < 0 ? EXIT_ERROR : EXIT_OK;
	}
	if (status != EXIT_OK)
		(void) fprintf(stderr, "croft: the sandbox %s was made; `croft sandbox kill %s` ends it\n", create->id, create->id);
	return status;
}

static int left_waiting(const struct create *create)
{
	(void) fprintf(stderr, "croft: the sandbox %s goes on starting; `croft sandbox kill %s` ends it\n", create->id,
		create->id);
	return EXIT_SIGNAL + (int) interrupted;
}

static int wait_for(struct create *create)
{
	struct failure failure = { 0 };
	json_t *sandbox = NULL;
	const json_t *record;
	char state[32] = "";
	int r = watch(create, &sandbox, &failure), status;

	(void) text_of(sandbox, "state", state, sizeof(state));
	record = json_object_get(sandbox, "failure");
	if (r < 0 && interrupted) {
		failure_deinit(&failure);
		status = left_waiting(create);
	} else if (r < 0) {
		if (create->cli->json)
			err_add(&failure.err, "sandbox", "%s", create->id);
		else
			(void) left_waiting(create);
		status = print_failure(create->cli, "cannot watch the start of the sandbox", &failure);
	} else if (!strcmp(state, "running") || !strcmp(state, "paused")) {
		status = print_created(create, sandbox);
	} else if (json_is_object(record)) {
		status = print_record(create->cli, "the sandbox did not start", record);
	} else {
		err_set(&failure.err, FAIL_SANDBOX_GONE, 0, "The sandbox was ended before it was ready.");
		status = print_failure(create->cli, "the sandbox did not start", &failure);
	}
	json_decref(sandbox);
	return status;
}

static int create_run(struct create *create)
{
	const struct api_call call = { .method = "POST", .path = "/v1/sandboxes", .body = create->request,
		.stop = &interrupted };
	struct failure failure = { 0 };
	const char *id;

	if (api_call(create->cli, &call, &create->answer, &failure) < 0 && interrupted) {
		failure_deinit(&failure);
		(void) fputs("croft: interrupted before the answer: `croft sandbox list` shows whether the sandbox was made\n", stderr);
		return EXIT_SIGNAL + (int) interrupted;
	}
	if (err_is_set(&failure.err))
		return print_failure(create->cli, "cannot create the sandbox", &failure);
	id = json_string_value(json_object_get(create->answer, "sandboxID"));
	if (!id || !id_is_valid(id)) {
		err_set(&failure.err, FAIL_API_PROTOCOL, EPROTO, "The answer names no sandbox.");
		return print_failure(create->cli, "cannot create the sandbox", &failure);
	}
	memcpy(create->id, id, sizeof(create->id));
	return create->no_wait ? print_created(create, NULL) : wait_for(create);
}

static void put_u64(json_t *object, const char *name, uint64_t value)
{
	if (value)
		(void) json_object_set_new(object, name, json_integer((json_int_t) MIN(value, (uint64_t) INT64_MAX)));
}

static void put_text(json_t *object, const char *name, const char *text)
{
	if (text)
		(void) json_object_set_new(object, name, json_string(text));
}

static void put_object(json_t *object, const char *name, json_t *value)
{
	if (value)
		(void) json_object_set(object, name, value);
}

/* Where it may be placed, and before which others. */
struct wish {
	const char *pool, *region, *cpu_class;
	uint64_t priority;
	json_t *labels;
};

static void put_wish(json_t *object, const struct wish *wish)
{
	put_text(object, "pool", wish->pool);
	put_text(object, "region", wish->region);
	put_text(object, "cpuClass", wish->cpu_class);
	put_object(object, "labels", wish->labels);
	put_u64(object, "priority", wish->priority);
}

static void put_network(json_t *object, const struct network_args *args)
{
	json_t *network = json_object();

	if (args->is_closed)
		(void) json_object_set_new(object, "allow_internet_access", json_false());
	network_args_put(args, network);
	if (json_object_size(network) > 0)
		(void) json_object_set(object, "network", network);
	json_decref(network);
}

int sandbox_create(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct create create = { .cli = cli };
	const char *template = NULL, *snapshot = NULL, *setup = NULL;
	struct wish wish = { .pool = NULL };
	uint64_t vcpus = 0, memory = 0, disk = 0;
	int64_t timeout_us = 0, setup_timeout_us = 0, queue_us = 0;
	bool auto_pause = false, auto_resume = false;
	json_t *env = NULL, *metadata = NULL;
	struct network_args network = { .allow = NULL };
	struct budget_args budget = { .action = NULL };
	const struct arg args[] = {
		{ "template", 't', ARG_STRING, &template, "NAME", "Template to start from [base]." },
		{ "snapshot", 0, ARG_STRING, &snapshot, "ID", "Begin as this snapshot, by its id or name, instead." },
		{ "vcpus", 0, ARG_U64, &vcpus, "N", "Virtual CPUs." },
		{ "memory", 'm', ARG_SIZE_MIB, &memory, "SIZE", "Memory: 512M, 2G." },
		{ "disk", 'd', ARG_SIZE_MIB, &disk, "SIZE", "Writable disk." },
		{ "timeout", 0, ARG_DURATION, &timeout_us, "DURATION", "End the sandbox this long after it is ready." },
		{ "auto-pause", 0, ARG_FLAG, &auto_pause, NULL, "Pause it then, instead of ending it." },
		{ "auto-resume", 0, ARG_FLAG, &auto_resume, NULL, "While it is paused, a call for it wakes it." },
		{ "env", 'e', ARG_PAIRS, &env, "NAME=VALUE", "Variable of every process; may be repeated." },
		{ "metadata", 0, ARG_PAIRS, &metadata, "KEY=VALUE", "Note of yours; may be repeated." },
		{ "setup", 0, ARG_STRING, &setup, "COMMAND", "Run with `sh -c` before the sandbox is ready." },
		{ "setup-timeout", 0, ARG_DURATION, &setup_timeout_us, "DURATION", "How long the setup may take." },
		NETWORK_ARGS(network),
		BUDGET_ARGS(budget),
		{ "pool", 0, ARG_STRING, &wish.pool, "NAME", "Pool to place it in." },
		{ "region", 0, ARG_STRING, &wish.region, "NAME", "Region that the node must be in." },
		{ "label", 'l', ARG_PAIRS, &wish.labels, "KEY=VALUE", "Label that the node must have; may be repeated." },
		{ "cpu-class", 0, ARG_STRING, &wish.cpu_class, "NAME", "CPU class that the node must have." },
		{ "priority", 0, ARG_U64, &wish.priority, "N", "Before those of yours with a lower one, 1 to 9." },
		{ "queue-timeout", 0, ARG_DURATION, &queue_us, "DURATION", "How long it may wait for room." },
		{ "no-wait", 0, ARG_FLAG, &create.no_wait, NULL, "Do not wait until it is ready." },
		{ "quiet", 'q', ARG_FLAG, &create.quiet, NULL, "Show no progress." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status = r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;

	if (r == ARGS_OK && argc > 1)
		status = args_complain(command, "unexpected argument \"%s\"", argv[1]);
	if (r == ARGS_OK && argc == 1 && template && snapshot)
		status = args_complain(command, "a sandbox begins from a template or as a snapshot");
	else if (r == ARGS_OK && argc == 1) {
		create.request = json_object();
		put_text(create.request, "templateID", snapshot ? snapshot : template);
		put_text(create.request, "setupCommand", setup);
		put_wish(create.request, &wish);
		put_u64(create.request, "vcpus", vcpus);
		put_u64(create.request, "memoryMB", memory);
		put_u64(create.request, "diskSizeMB", disk);
		if (auto_pause)
			(void) json_object_set_new(create.request, "autoPause", json_true());
		if (auto_resume)
			(void) json_object_set_new(create.request, "autoResume", json_pack("{s:b}", "enabled", true));
		put_u64(create.request, "timeout", (uint64_t) ((timeout_us + USEC_PER_SEC - 1) / USEC_PER_SEC));
		put_u64(create.request, "setupTimeoutMs", (uint64_t) (setup_timeout_us / USEC_PER_MSEC));
		put_u64(create.request, "queueTimeoutMs", (uint64_t) (queue_us / USEC_PER_MSEC));
		put_network(create.request, &network);
		if (budget_args_is_set(&budget))
			(void) json_object_set_new(create.request, "budget", budget_args_json(&budget));
		put_object(create.request, "envVars", env);
		put_object(create.request, "metadata", metadata);
		catch_interrupts();
		status = create_run(&create);
	}
	json_decref(create.request);
	json_decref(create.answer);
	json_decref(env);
	json_decref(metadata);
	json_decref(wish.labels);
	network_args_deinit(&network);
	return status;
}
