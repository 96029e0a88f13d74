/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox audit: five questions of a sandbox that runs. Commands, connections and output are of its node's own log, which is
 * read through the node; files, and the packages that follow from them, are its guest's word, as croft sandbox diff has it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/list.h"
#include "cli/packages.h"
#include "wire/json.h"

#define AUDIT_TIMEOUT_US (400 * USEC_PER_SEC) /* above the node's, for each of both */
#define ENTRIES_MAX 100000u

struct asked {
	json_t *lines; /* what came but for the end */
	bool has_end, is_cut;
};

static const char *string_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

static int on_line(json_t *line, struct failure *failure, void *user)
{
	struct asked *asked = user;
	const json_t *end = json_object_get(line, "end");

	if (json_parse_error(line, &failure->err) == 0) {
		failure->body = json_incref(line);
		return -EIO;
	}
	if (end) {
		asked->has_end = true;
		asked->is_cut = asked->is_cut || json_is_false(json_object_get(end, "complete"));
		return 0;
	}
	if (json_array_size(asked->lines) == ENTRIES_MAX) {
		asked->is_cut = true;
		return 0;
	}
	return json_array_append(asked->lines, line) == 0 ? 0 : err_set(&failure->err, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
}

static int ask(struct cli *cli, const char *sandbox, const char *what, struct asked *asked, struct failure *failure)
{
	char path[64];
	const struct api_call call = { .method = "GET", .path = path, .timeout_us = AUDIT_TIMEOUT_US, .on_line = on_line, .user = asked };
	int r;

	asked->lines = json_array();
	(void) snprintf(path, sizeof(path), "/v1/sandboxes/%s/%s", sandbox, what);
	r = api_call(cli, &call, NULL, failure);
	if (r == 0 && !asked->has_end)
		r = err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "The answer was cut off.");
	return r;
}

/* ---- the five answers ---- */

static bool is_kind(const json_t *entry, const char *kind)
{
	return !strcmp(string_of(entry, "kind"), kind);
}

static json_t *end_of(const json_t *entries, size_t at)
{
	const json_t *entry = json_array_get(entries, at);
	const bool is_setup = is_kind(entry, "setup");

	for (size_t i = at + 1; i < json_array_size(entries); i++) {
		json_t *later = json_array_get(entries, i);

		if (is_setup ? is_kind(later, "setup-ended") :
			       is_kind(later, "ended") && !strcmp(string_of(later, "span"), string_of(entry, "span")))
			return later;
	}
	return NULL;
}

/* Each with how it ended, and its output apart. */
static void take_commands(const json_t *entries, json_t *commands, json_t *outputs)
{
	for (size_t i = 0; i < json_array_size(entries); i++) {
		json_t *entry = json_array_get(entries, i), *end, *command, *output;

		if (!is_kind(entry, "command") && !is_kind(entry, "setup"))
			continue;
		end = end_of(entries, i);
		command = json_pack("{s:O, s:O, s:s*, s:s*, s:O*, s:O*, s:O*, s:O*}", "when", json_object_get(entry, "when"), "command",
			json_object_get(entry, "command"), "user", string_of(entry, "user"), "cwd", string_of(entry, "cwd"), "exit",
			json_object_get(end, "exit"), "signal", json_object_get(end, "signal"), "code", json_object_get(end, "code"), "took_ms",
			json_object_get(end, "took_ms"));
		(void) json_array_append_new(commands, command);
		output = json_pack("{s:O, s:O*, s:O*, s:O*, s:O*}", "command", json_object_get(entry, "command"), "pty",
			json_object_get(end, "pty"), "stdout", json_object_get(end, "stdout"), "stderr", json_object_get(end, "stderr"), "tail", json_object_get(end, "tail"));
		if (end)
			(void) json_array_append(outputs, output);
		json_decref(output);
	}
}

/* The latest counters, and each destination that was denied. */
static json_t *connections_of(const json_t *entries)
{
	json_t *denied = json_array(), *counters = NULL;

	for (size_t i = 0; i < json_array_size(entries); i++) {
		json_t *entry = json_array_get(entries, i);

		if (is_kind(entry, "connections"))
			counters = entry;
		if (is_kind(entry, "denied"))
			(void) json_array_append_new(denied, json_pack("{s:O*, s:O*, s:O*, s:O*, s:O*}", "when", json_object_get(entry, "when"),
				"address", json_object_get(entry, "address"), "protocol", json_object_get(entry, "protocol"), "port",
				json_object_get(entry, "port"), "packets", json_object_get(entry, "packets")));
	}
	return json_pack("{s:O*, s:o}", "counters", counters, "denied", denied);
}

static json_t *packages_of(const json_t *changes)
{
	json_t *packages = json_array();

	for (size_t i = 0; i < json_array_size(changes); i++) {
		const json_t *change = json_array_get(changes, i);
		struct package_change package;

		if (package_of(string_of(change, "change"), string_of(change, "path"), &package))
			(void) json_array_append_new(packages, json_pack("{s:s, s:s, s:s, s:s*}", "change", string_of(change, "change"), "manager",
				package.manager, "name", package.name, "version", *package.version ? package.version : NULL));
	}
	return packages;
}

/* ---- on a terminal ---- */

static void print_words(const json_t *command)
{
	if (json_is_string(command)) {
		CLEANUP_FREE char *text = strdup(json_string_value(command));

		(void) fputs(text ? clean(text) : "", stdout);
	}
	for (size_t i = 0; i < json_array_size(command); i++) {
		CLEANUP_FREE char *word = strdup(json_string_value(json_array_get(command, i)));

		(void) printf("%s%s", i ? " " : "", word ? clean(word) : "");
	}
}

static void print_commands(const json_t *commands)
{
	(void) printf("Commands: %zu\n", json_array_size(commands));
	for (size_t i = 0; i < json_array_size(commands); i++) {
		const json_t *command = json_array_get(commands, i), *exit = json_object_get(command, "exit");

		(void) printf("  %s  ", string_of(command, "when"));
		if (exit)
			(void) printf("exit %-3lld  ", (long long) json_integer_value(exit));
		else if (json_object_get(command, "signal"))
			(void) printf("signal %lld  ", (long long) json_integer_value(json_object_get(command, "signal")));
		else
			(void) printf("%s  ", *string_of(command, "code") ? string_of(command, "code") : "no end yet");
		print_words(json_object_get(command, "command"));
		(void) printf("\n");
	}
}

static void print_files(const json_t *changes)
{
	(void) printf("Files: %zu\n", json_array_size(changes));
	for (size_t i = 0; i < json_array_size(changes); i++) {
		const json_t *change = json_array_get(changes, i);
		const char *kind = string_of(change, "change"), *path = string_of(change, "path");
		CLEANUP_FREE char *text = strdup(*path ? path : string_of(change, "path_base64"));

		(void) printf("  %c %s%s\n", !strcmp(kind, "added") ? 'A' : !strcmp(kind, "deleted") ? 'D' : 'C', *path ? "" : "base64:",
			text ? clean(text) : "");
	}
}

static void print_connections(const json_t *connections)
{
	const json_t *counters = json_object_get(connections, "counters"), *denied = json_object_get(connections, "denied");

	(void) printf("Connections: %lld packets out (%lld bytes), %lld in (%lld bytes), %lld denied\n",
		(long long) json_integer_value(json_object_get(counters, "sent_packets")),
		(long long) json_integer_value(json_object_get(counters, "sent_bytes")),
		(long long) json_integer_value(json_object_get(counters, "received_packets")),
		(long long) json_integer_value(json_object_get(counters, "received_bytes")),
		(long long) json_integer_value(json_object_get(counters, "denied_packets")));
	for (size_t i = 0; i < json_array_size(denied); i++) {
		const json_t *row = json_array_get(denied, i);

		(void) printf("  denied %s %s port %lld, %lld packets\n", string_of(row, "address"), string_of(row, "protocol"),
			(long long) json_integer_value(json_object_get(row, "port")),
			(long long) json_integer_value(json_object_get(row, "packets")));
	}
}

static void print_packages(const json_t *packages)
{
	(void) printf("Packages: %zu\n", json_array_size(packages));
	for (size_t i = 0; i < json_array_size(packages); i++) {
		const json_t *package = json_array_get(packages, i);
		CLEANUP_FREE char *name = strdup(string_of(package, "name")), *version = strdup(string_of(package, "version"));

		(void) printf("  %s %s %s %s\n", string_of(package, "change"), string_of(package, "manager"), name ? clean(name) : "",
			version ? clean(version) : "");
	}
}

static void print_outputs(const json_t *outputs)
{
	static const char *const names[] = { "stdout", "stderr", "pty" };

	(void) printf("Output: of %zu commands\n", json_array_size(outputs));
	for (size_t i = 0; i < json_array_size(outputs); i++)
		for (size_t j = 0; j < ARRAY_LEN(names); j++) {
			const json_t *command = json_array_get(outputs, i), *output = json_object_get(command, names[j]);

			if (json_integer_value(json_object_get(output, "size")) == 0)
				continue;
			(void) printf("  %s %lld bytes sha256:%s  ", names[j], (long long) json_integer_value(json_object_get(output, "size")),
				string_of(output, "sha256"));
			print_words(json_object_get(command, "command"));
			(void) printf("\n");
		}
}

/* Takes `answer` over. */
static int print(struct cli *cli, json_t *answer)
{
	if (cli->json)
		return print_json(answer);
	print_commands(json_object_get(answer, "commands"));
	print_files(json_object_get(answer, "files"));
	print_connections(json_object_get(answer, "connections"));
	print_packages(json_object_get(answer, "packages"));
	print_outputs(json_object_get(answer, "output"));
	json_decref(answer);
	return print_finish() < 0 ? EXIT_ERROR : EXIT_OK;
}

int sandbox_audit(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	struct asked log = { .lines = NULL }, diff = { .lines = NULL };
	int status = only_names(cli, command, 1, &argc, argv), r;
	json_t *commands, *outputs, *answer;

	if (status >= 0)
		return status;
	if (!id_is_valid(argv[1])) {
		(void) err_set(&failure.err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
		return print_failure(cli, "cannot audit the sandbox", &failure);
	}
	r = ask(cli, argv[1], "audit", &log, &failure);
	if (r == 0)
		r = ask(cli, argv[1], "diff", &diff, &failure);
	if (r == 0) {
		commands = json_array();
		outputs = json_array();
		take_commands(log.lines, commands, outputs);
		answer = json_pack("{s:o, s:O, s:o, s:o, s:o, s:b}", "commands", commands, "files", diff.lines, "connections",
			connections_of(log.lines), "packages", packages_of(diff.lines), "output", outputs, "complete",
			!log.is_cut && !diff.is_cut);
		status = print(cli, answer);
	} else {
		status = print_failure(cli, "cannot audit the sandbox", &failure);
	}
	json_decref(log.lines);
	json_decref(diff.lines);
	if (r == 0 && (log.is_cut || diff.is_cut))
		(void) fprintf(stderr, "croft: there is more than this\n");
	return status;
}
