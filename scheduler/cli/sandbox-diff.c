/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox diff: printed as it comes, since it may be long. With -o json it is one text all the same, also where it was cut
 * off; the exit status says that.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/list.h"
#include "wire/json.h"

#define DIFF_TIMEOUT_US (400 * USEC_PER_SEC) /* above the node's */

struct diff {
	bool is_json, is_open, has_end, is_cut; /* open: the JSON text was begun */
};

static int no_memory(struct failure *failure)
{
	return err_set(&failure->err, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
}

static int print_element(struct diff *diff, const json_t *line, struct failure *failure)
{
	CLEANUP_FREE char *text = json_dumps(line, JSON_COMPACT);

	if (!text)
		return no_memory(failure);
	(void) printf("%s%s", diff->is_open ? ",\n" : "{\"changes\": [\n", text);
	diff->is_open = true;
	return 0;
}

/* `end` NULL: the answer broke off, and an answer that never began is none. */
static int print_end(struct diff *diff, const json_t *end, struct failure *failure)
{
	CLEANUP_FREE char *text = end ? json_dumps(end, JSON_COMPACT) : strdup("{\"complete\":false}");

	if (!text)
		return no_memory(failure);
	if (diff->is_open || end)
		(void) printf("%s\n], \"end\": %s}\n", diff->is_open ? "" : "{\"changes\": [", text);
	diff->is_open = false;
	return 0;
}

static int print_change(const json_t *line, struct failure *failure)
{
	const char *change = json_string_value(json_object_get(line, "change"));
	const char *path = json_string_value(json_object_get(line, "path"));
	const char *encoded = json_string_value(json_object_get(line, "path_base64"));
	CLEANUP_FREE char *text = path ? strdup(path) : encoded ? strdup(encoded) : NULL;

	if (!text)
		return path || encoded ? no_memory(failure) :
					 err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "A change of the answer has no path.");
	(void) printf("%c %s%s\n", !strcmp(change, "added") ? 'A' : !strcmp(change, "deleted") ? 'D' : 'C', path ? "" : "base64:",
		clean(text));
	return 0;
}

static int on_line(json_t *line, struct failure *failure, void *user)
{
	struct diff *diff = user;
	const json_t *end = json_object_get(line, "end");

	if (json_parse_error(line, &failure->err) == 0) {
		failure->body = json_incref(line);
		return -EIO;
	}
	if (end) {
		diff->has_end = true;
		diff->is_cut = json_is_false(json_object_get(end, "complete"));
		return diff->is_json ? print_end(diff, end, failure) : 0;
	}
	if (!json_is_string(json_object_get(line, "change")))
		return 0; /* of a newer node */
	return diff->is_json ? print_element(diff, line, failure) : print_change(line, failure);
}

int sandbox_diff(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	struct diff diff = { .is_open = false };
	char path[64];
	struct api_call call = { .method = "GET", .path = path, .timeout_us = DIFF_TIMEOUT_US, .on_line = on_line, .user = &diff };
	int status = only_names(cli, command, 1, &argc, argv), r;

	if (status >= 0)
		return status;
	if (!id_is_valid(argv[1])) {
		(void) err_set(&failure.err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
		return print_failure(cli, "cannot compare the sandbox", &failure);
	}
	diff.is_json = cli->json;
	(void) snprintf(path, sizeof(path), "/v1/sandboxes/%s/diff", argv[1]);
	r = api_call(cli, &call, NULL, &failure);
	if (r == 0 && !diff.has_end)
		r = err_set(&failure.err, FAIL_API_PROTOCOL, EPROTO, "The answer was cut off.");
	if (diff.is_open)
		(void) print_end(&diff, NULL, &failure);
	(void) fflush(stdout);
	if (r < 0)
		return print_failure(cli, "cannot compare the sandbox", &failure);
	if (diff.is_cut)
		(void) fprintf(stderr, "croft: there are more changes than these\n");
	return EXIT_OK;
}
