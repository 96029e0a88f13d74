/* SPDX-License-Identifier: Apache-2.0
 *
 * croft drill: what of a sandbox survives what, tried on sandboxes of its own. Sandboxes are made, used, paused and ended by the commands of
 * this program, as any caller would; what only a machine's owner can do (restart a process, kill a VM, cut a node off) is a command
 * that is given, or `systemctl` where this is root on the machine itself. What could not be tried is said, and counts as nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "cli/args.h"
#include "cli/drill-judge.h"
#include "cli/print.h"

#define TEXT_MAX 8192u
#define POLL_US (250 * USEC_PER_MSEC)
#define WORDS_MAX 12u

struct step_result {
	bool is_run;
	char why_not[160];
	struct drill_row rows[DRILL_ASPECT_MAX_];
	const char *verdict;
	int64_t useful_us; /* from the step's beginning until a command's result came; -1: never */
};

struct drill {
	struct cli *cli;
	const char *pool, *template;
	const char *hooks[DRILL_STEP_MAX_], *back; /* shell commands; NULL: none */
	int64_t patience_us;
	char id[ID_SIZE], dir[64];
	struct step_result results[DRILL_STEP_MAX_];
};

/* ---- commands ---- */

static pid_t begin(const char *program, char *const argv[], int out)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	(void) setpgid(0, 0);
	(void) dup2(out, STDOUT_FILENO);
	(void) execvp(program, argv);
	_exit(127); /* ends the process: the one that was forked for this alone */
}

static int64_t left_ms(int64_t until)
{
	int64_t left = (until - clock_monotonic_usec()) / USEC_PER_MSEC;

	return left > 0 ? left : 0;
}

/* Its output, at most; the exit status, or -1 when it was not done in time. */
static int run(const char *program, char *const argv[], int64_t until, char ret[static TEXT_MAX])
{
	int ends[2], status = 0;
	size_t n = 0;
	ssize_t got = 1;
	pid_t pid;

	*ret = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid = begin(program, argv, ends[1]);
	(void) fd_close(ends[1]);
	while (pid > 0 && got > 0 && n < TEXT_MAX - 1) {
		struct pollfd fd = { .fd = ends[0], .events = POLLIN };

		got = poll(&fd, 1, (int) left_ms(until)) > 0 ? read(ends[0], ret + n, TEXT_MAX - 1 - n) : -1;
		n += got > 0 ? (size_t) got : 0;
	}
	ret[n] = '\0';
	(void) fd_close(ends[0]);
	if (pid > 0 && got != 0)
		(void) kill(-pid, SIGKILL);
	if (pid <= 0 || waitpid(pid, &status, 0) < 0)
		return -1;
	return got == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* This program, with these words. */
static int self(int64_t until, char ret[static TEXT_MAX], const char *const *words)
{
	char copies[WORDS_MAX][1024], *argv[WORDS_MAX + 1] = { NULL };
	size_t n = 1;

	(void) snprintf(copies[0], sizeof(copies[0]), "croft");
	for (; n < WORDS_MAX && words[n - 1]; n++)
		(void) snprintf(copies[n], sizeof(copies[n]), "%s", words[n - 1]);
	for (size_t i = 0; i < n; i++)
		argv[i] = copies[i];
	return run("/proc/self/exe", argv, until, ret);
}

#define SELF(until, ret, ...) self(until, ret, (const char *const[]){ __VA_ARGS__, NULL })

static int hook(const struct drill *drill, const char *command)
{
	char sh[] = "sh", c[] = "-c", text[TEXT_MAX], copy[1024];
	char *argv[] = { sh, c, copy, NULL };

	(void) snprintf(copy, sizeof(copy), "%s", command);
	(void) setenv("SANDBOX", drill->id, 1);
	return run("/bin/sh", argv, clock_monotonic_usec() + drill->patience_us, text);
}

/* What the task does: a file, and a process that draws a secret, keeps it in memory and counts there. */
static const char task[] =
	"mkdir -p $1 && cd $1 && head -c 65536 /dev/urandom >file && { setsid sh -c 's=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d \" \\n\"); i=0; "
	"echo $$ >process; while :; do i=$((i+1)); echo $s $i >ticks.new && mv ticks.new ticks; sleep 0.2; done' >/dev/null 2>&1 </dev/null & } ; "
	"while ! [ -s ticks ]; do sleep 0.1; done";
static const char glance[] =
	"cd $1 && sha256sum <file | cut -c1-64; p=$(cat process); if grep -q '^State:.[^Z]' /proc/$p/status 2>/dev/null; then echo $p; else echo; fi; tr ' ' '\\n' <ticks";
static const char undo[] = "kill $(cat $1/process); rm -rf $1";

/* One of those, in the sandbox. */
static int inside(const struct drill *drill, const char *script, int64_t until, char ret[static TEXT_MAX])
{
	return SELF(until, ret, "sandbox", "exec", drill->id, "--", "sh", "-c", script, "sh", drill->dir);
}

/* ---- looking ---- */

/* The network that is recorded, and what its node has else. */
static void read_policy(const json_t *sandbox, char *ret, size_t size)
{
	char *network = json_dumps(json_object_get(sandbox, "network"), JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS),
	     *differs = json_dumps(json_object_get(sandbox, "node_differs"), JSON_COMPACT | JSON_ENCODE_ANY);

	(void) snprintf(ret, size, "internet %s %s%s%s", json_is_true(json_object_get(sandbox, "internet")) ? "yes" : "no",
		network ? network : "", differs && strcmp(differs, "[]") != 0 ? ", its node has another: " : "",
		differs && strcmp(differs, "[]") != 0 ? differs : "");
	free(network);
	free(differs);
}

static void look_from_outside(const struct drill *drill, struct drill_seen *ret)
{
	struct failure failure = { 0 };
	json_t *sandbox = NULL;

	if (api_get(drill->cli, &sandbox, &failure, "/v1/sandboxes/%s", drill->id) == 0) {
		(void) text_of(sandbox, "state", ret->state, sizeof(ret->state));
		(void) text_of(sandbox, "ends", ret->ends, sizeof(ret->ends));
		(void) text_of(json_object_get(sandbox, "failure"), "code", ret->code, sizeof(ret->code));
		ret->generation = json_integer_value(json_object_get(sandbox, "generation"));
		read_policy(sandbox, ret->policy, sizeof(ret->policy));
	}
	json_decref(sandbox);
	failure_deinit(&failure);
}

static void take_line(char **rest, char *ret, size_t size)
{
	char *line = strsep(rest, "\n");

	(void) snprintf(ret, size, "%s", line ? line : "");
}

static void look_inside(const struct drill *drill, int64_t until, struct drill_seen *ret)
{
	char text[TEXT_MAX], ticks[24] = "", *rest = text;

	if (inside(drill, glance, until, text) != 0)
		return;
	take_line(&rest, ret->file, sizeof(ret->file));
	take_line(&rest, ret->process, sizeof(ret->process));
	take_line(&rest, ret->secret, sizeof(ret->secret));
	take_line(&rest, ticks, sizeof(ticks));
	ret->ticks = strtoll(ticks, NULL, 10);
	ret->is_there = *ret->file && *ticks;
}

static bool is_over(const struct drill_seen *seen)
{
	return !strcmp(seen->state, "ended");
}

/* Until it does again what it did, or is over, or patience is. */
static void look(const struct drill *drill, const struct drill_seen *before, struct drill_seen *ret)
{
	int64_t until = clock_monotonic_usec() + drill->patience_us;

	do {
		*ret = (struct drill_seen){ .is_there = false };
		look_from_outside(drill, ret);
		if (is_over(ret))
			return;
		if (*ret->state)
			look_inside(drill, until, ret);
		if (ret->is_there && *ret->process && ret->ticks > before->ticks)
			return;
		/* it answers, and what ran in it does not: that does not come by waiting */
		if (ret->is_there && (!*ret->process || strcmp(ret->secret, before->secret) != 0) && *before->secret)
			return;
		(void) usleep(POLL_US);
	} while (clock_monotonic_usec() < until);
}

/* ---- steps ---- */

static int create(struct drill *drill)
{
	char text[TEXT_MAX];
	int64_t until = clock_monotonic_usec() + drill->patience_us;
	int status = drill->pool ? SELF(until, text, "sandbox", "create", "--quiet", "--no-internet", "--template", drill->template, "--pool", drill->pool) :
				   SELF(until, text, "sandbox", "create", "--quiet", "--no-internet", "--template", drill->template);

	text[strcspn(text, "\n")] = '\0';
	*drill->id = '\0';
	if (status != 0 || !id_is_valid(text))
		return -EIO;
	(void) snprintf(drill->id, sizeof(drill->id), "%.*s", ID_LEN, text);
	(void) snprintf(drill->dir, sizeof(drill->dir), "/tmp/croft-drill-%.*s", ID_LEN, text);
	return inside(drill, task, until, text) == 0 ? 0 : -EIO;
}

static void destroy(const struct drill *drill)
{
	char text[TEXT_MAX];
	int64_t until = clock_monotonic_usec() + drill->patience_us;

	if (!*drill->id)
		return;
	(void) inside(drill, undo, until, text);
	(void) SELF(until, text, "sandbox", "kill", drill->id);
}

/* A caller that goes without a word while its command runs. */
static int do_client(struct drill *drill)
{
	char croft[] = "croft", noun[] = "sandbox", verb[] = "exec", dashes[] = "--", id[ID_SIZE], program[] = "sleep", much[] = "3";
	char *argv[] = { croft, noun, verb, id, dashes, program, much, NULL };
	CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid;

	(void) snprintf(id, sizeof(id), "%s", drill->id);
	pid = begin("/proc/self/exe", argv, null);
	if (pid < 0)
		return -EIO;
	(void) usleep(USEC_PER_SEC);
	(void) kill(pid, SIGKILL);
	return waitpid(pid, NULL, 0) == pid ? 0 : -EIO;
}

static int do_pause(struct drill *drill)
{
	char text[TEXT_MAX];
	int64_t until = clock_monotonic_usec() + drill->patience_us;

	return SELF(until, text, "sandbox", "pause", drill->id) == 0 && SELF(until, text, "sandbox", "resume", drill->id) == 0 ? 0 :
																		  -EIO;
}

static int do_node(struct drill *drill)
{
	int64_t until = clock_monotonic_usec() + drill->patience_us;
	char state[24] = "";
	int r = hook(drill, drill->hooks[DRILL_NODE]);

	while (r == 0 && strcmp(state, "suspect") != 0 && strcmp(state, "lost") != 0 && clock_monotonic_usec() < until) {
		struct failure failure = { 0 };
		json_t *sandbox = NULL;

		if (api_get(drill->cli, &sandbox, &failure, "/v1/sandboxes/%s", drill->id) == 0)
			(void) text_of(sandbox, "node_state", state, sizeof(state));
		json_decref(sandbox);
		failure_deinit(&failure);
		(void) usleep(POLL_US);
	}
	/* whatever became of it, the node is given back */
	return hook(drill, drill->back) == 0 && r == 0 && *state ? 0 : -EIO;
}

static int act(struct drill *drill, enum drill_step step)
{
	switch (step) {
	case DRILL_CLIENT:
		return do_client(drill);
	case DRILL_PAUSE:
		return do_pause(drill);
	case DRILL_NODE:
		return do_node(drill);
	case DRILL_TASK:
		return 0;
	default:
		return hook(drill, drill->hooks[step]) == 0 ? 0 : -EIO;
	}
}

static void run_step(struct drill *drill, enum drill_step step)
{
	struct step_result *result = &drill->results[step];
	struct drill_seen before = { .is_there = false }, after;
	int64_t began = clock_monotonic_usec();
	bool has_new = false;

	if (step == DRILL_TASK) {
		if (create(drill) < 0) {
			(void) snprintf(result->why_not, sizeof(result->why_not), "no sandbox did the task");
			return;
		}
		result->useful_us = clock_monotonic_usec() - began;
	}
	look(drill, &(struct drill_seen){ .is_there = false }, &before);
	if (step != DRILL_TASK)
		began = clock_monotonic_usec();
	if (act(drill, step) < 0) {
		(void) snprintf(result->why_not, sizeof(result->why_not), "what the step does failed");
		return;
	}
	look(drill, &before, &after);
	if (step != DRILL_TASK)
		result->useful_us = after.is_there ? clock_monotonic_usec() - began : -1;
	result->is_run = true;
	result->verdict = drill_verdict(step, &before, &after, false);
	/* the next step begins with one that is whole */
	if (strcmp(result->verdict, "resumed") != 0) {
		destroy(drill);
		has_new = create(drill) == 0;
		result->useful_us = has_new ? clock_monotonic_usec() - began : -1;
		result->verdict = drill_verdict(step, &before, &after, has_new);
	}
	for (enum drill_aspect i = 0; i < DRILL_ASPECT_MAX_; i++)
		drill_judge(step, i, &before, &after, &result->rows[i]);
}

/* ---- what can be done here ---- */

static bool unit_is_here(const char *unit)
{
	char systemctl[] = "systemctl", verb[] = "is-active", quiet[] = "--quiet", name[64], text[TEXT_MAX];
	char *argv[] = { systemctl, verb, quiet, name, NULL };

	(void) snprintf(name, sizeof(name), "%s", unit);
	return geteuid() == 0 && run("systemctl", argv, clock_monotonic_usec() + 5 * USEC_PER_SEC, text) == 0;
}

static void choose(struct drill *drill, enum drill_step step)
{
	static const char *const flags[DRILL_STEP_MAX_] = { [DRILL_AGENT] = "--restart-agent", [DRILL_SCHEDULER] = "--restart-scheduler",
		[DRILL_VM] = "--kill-vm", [DRILL_NODE] = "--lose-node and --return-node" };
	static const struct {
		const char *unit, *command;
	} local[DRILL_STEP_MAX_] = { [DRILL_AGENT] = { "croft-node", "systemctl restart croft-node" },
		[DRILL_SCHEDULER] = { "croft-scheduler", "systemctl restart croft-scheduler" },
		[DRILL_VM] = { "croft-node", "echo 1 >/sys/fs/cgroup/croft/$SANDBOX/cgroup.kill" } };

	if (!drill->hooks[step] && local[step].unit && unit_is_here(local[step].unit))
		drill->hooks[step] = local[step].command;
	if (flags[step] && (!drill->hooks[step] || (step == DRILL_NODE && !drill->back)))
		(void) snprintf(drill->results[step].why_not, sizeof(drill->results[step].why_not),
			"it needs %s, or root on the machine itself", flags[step]);
}

/* ---- saying it ---- */

static bool is_held(const struct step_result *result)
{
	for (enum drill_aspect i = 0; i < DRILL_ASPECT_MAX_; i++)
		if (!result->rows[i].is_held)
			return false;
	return true;
}

static json_t *rows_json(enum drill_step step, const struct step_result *result)
{
	json_t *rows = json_array();

	for (enum drill_aspect i = 0; result->is_run && i < DRILL_ASPECT_MAX_; i++)
		(void) json_array_append_new(rows, json_pack("{s:s, s:s, s:b, s:s}", "what", drill_aspect_name(i), "declared",
			drill_contract_name(drill_declared(step, i)), "held", result->rows[i].is_held, "evidence", result->rows[i].evidence));
	return rows;
}

static int say_json(const struct drill *drill, bool held)
{
	json_t *steps = json_array();

	for (enum drill_step i = 0; i < DRILL_STEP_MAX_; i++) {
		const struct step_result *result = &drill->results[i];
		json_t *step = json_pack("{s:s, s:b, s:o}", "step", drill_step_name(i), "run", result->is_run, "rows", rows_json(i, result));

		if (result->is_run)
			(void) json_object_update_new(step, json_pack("{s:s, s:b, s:o}", "verdict", result->verdict, "held", is_held(result),
				"useful_ms", result->useful_us < 0 ? json_null() : json_integer(result->useful_us / USEC_PER_MSEC)));
		else
			(void) json_object_set_new(step, "why_not", json_string(result->why_not));
		(void) json_array_append_new(steps, step);
	}
	return print_json(json_pack("{s:b, s:o}", "held", held, "steps", steps));
}

static void say_text(const struct drill *drill)
{
	char took[32];

	for (enum drill_step i = 0; i < DRILL_STEP_MAX_; i++) {
		const struct step_result *result = &drill->results[i];

		if (!result->is_run) {
			(void) printf("%-10s not run: %s\n", drill_step_name(i), result->why_not);
			continue;
		}
		(void) printf("%-10s %s: %s, useful work after %s\n", drill_step_name(i), drill_step_what(i),
			!strcmp(result->verdict, "person") ? "needs a person" : result->verdict,
			result->useful_us < 0 ? "never" : text_of_us(result->useful_us, took, sizeof(took)));
		for (enum drill_aspect k = 0; k < DRILL_ASPECT_MAX_; k++)
			(void) printf("  %-6s %-10s %s: %s\n", result->rows[k].is_held ? "held" : "BROKEN", drill_aspect_name(k),
				drill_contract_name(drill_declared(i, k)), result->rows[k].evidence);
	}
}

static int run_drill(struct drill *drill)
{
	bool held = true, has_task = false;
	int status;

	for (enum drill_step i = 0; i < DRILL_STEP_MAX_; i++)
		choose(drill, i);
	for (enum drill_step i = 0; i < DRILL_STEP_MAX_; i++) {
		struct step_result *result = &drill->results[i];

		if (i > DRILL_TASK && !has_task)
			(void) snprintf(result->why_not, sizeof(result->why_not), "there is no sandbox to try it on");
		if (!*result->why_not)
			run_step(drill, i);
		if (i == DRILL_TASK)
			has_task = result->is_run;
		held = held && (result->is_run ? is_held(result) : i != DRILL_TASK && strcmp(result->why_not, "what the step does failed") != 0);
	}
	destroy(drill);
	if (drill->cli->json) {
		status = say_json(drill, held);
	} else {
		say_text(drill);
		status = print_finish() == 0 ? EXIT_OK : EXIT_ERROR;
	}
	return status != EXIT_OK || held ? status : EXIT_ERROR;
}

int drill(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct drill drill = { .cli = cli, .template = "base", .patience_us = 120 * USEC_PER_SEC };
	const struct arg args[] = {
		{ "pool", 'p', ARG_STRING, &drill.pool, "NAME", "Pool whose nodes are tried." },
		{ "template", 't', ARG_STRING, &drill.template, "NAME", "What the sandboxes begin from [base]." },
		{ "patience", 0, ARG_DURATION, &drill.patience_us, "DURATION", "How long a step may take [2m]." },
		{ "restart-agent", 0, ARG_STRING, &drill.hooks[DRILL_AGENT], "COMMAND", "Restarts the agent of $SANDBOX's node." },
		{ "restart-scheduler", 0, ARG_STRING, &drill.hooks[DRILL_SCHEDULER], "COMMAND", "Restarts the scheduler." },
		{ "kill-vm", 0, ARG_STRING, &drill.hooks[DRILL_VM], "COMMAND", "Kills the VM of $SANDBOX." },
		{ "lose-node", 0, ARG_STRING, &drill.hooks[DRILL_NODE], "COMMAND", "Cuts the node of $SANDBOX off." },
		{ "return-node", 0, ARG_STRING, &drill.back, "COMMAND", "Gives it back." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	struct failure failure = { 0 };
	json_t *pool = NULL;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1)
		return args_complain(command, "unexpected argument \"%s\"", argv[1]);
	if (api_need_key(cli, &failure.err) < 0 || (drill.pool && api_get(cli, &pool, &failure, "/v1/pools/%s", drill.pool) < 0))
		return print_failure(cli, "cannot begin the drill", &failure);
	json_decref(pool);
	return run_drill(&drill);
}
