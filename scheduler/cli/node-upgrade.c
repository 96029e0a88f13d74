/* SPDX-License-Identifier: Apache-2.0
 *
 * croft node upgrade: offers a signed package to a node and waits for what the node says of it. The node decides, by its owner's own
 * configuration (upgrade.policy) and by the key that is pinned there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "cli/list.h"
#include "cli/upload.h"

#define SIGNATURE_MAX 511u
#define POLL_US (250 * USEC_PER_MSEC)

/* FILE.sig as a header carries it; "": there is none, which the node shall say. */
static void read_signature(const char *file, char ret[static SIGNATURE_MAX + 1])
{
	CLEANUP_FREE char *path = NULL, *text = NULL;
	size_t size = 0;

	*ret = '\0';
	if (asprintf(&path, "%s.sig", file) < 0) {
		path = NULL;
		return;
	}
	if (file_read(path, SIGNATURE_MAX, &text, &size) < 0)
		return;
	(void) snprintf(ret, SIGNATURE_MAX + 1, "%s", text);
	for (char *c = ret; *c; c++)
		if (*c == '\n')
			*c = '|';
		else if (*c < ' ' || *c > '~')
			*c = '?';
}

static int offer(const struct cli *cli, const char *node, const char *file, struct failure *failure)
{
	struct buf answer = BUF_NULL(1u << 20);
	CLEANUP_FD int fd = open(file, O_RDONLY | O_CLOEXEC);
	char path[128], signature[SIGNATURE_MAX + 1];
	long status = 0;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(&failure->err, FAIL_INVALID_ARGUMENT, errno, "The file cannot be read: %.200s.", file);
	read_signature(file, signature);
	(void) snprintf(path, sizeof(path), "/v1/nodes/%s/upgrade", node);
	r = upload(cli, &(struct upload){ .path = path, .what = file, .fd = fd, .size = st.st_size, .header = "X-Croft-Signature",
		.value = signature, .answer = &answer }, &status, failure);
	if (r == 0 && (status < 200 || status > 299)) {
		failure_of_answer(failure, (int) status, buf_size(&answer) ? (const char *) buf_peek(&answer) : "", buf_size(&answer));
		r = -EIO;
	}
	buf_deinit(&answer);
	return r;
}

/* What the node says, or what stands when the time is over. */
static int await(const struct cli *cli, const char *node, int64_t timeout_us, json_t **ret, struct failure *failure)
{
	int64_t until = clock_monotonic_usec() + timeout_us;
	const char *state;
	int r;

	for (;;) {
		r = api_get(cli, ret, failure, "/v1/nodes/%s/upgrade", node);
		state = r < 0 ? NULL : json_string_value(json_object_get(*ret, "state"));
		if (!state || strcmp(state, "offered") != 0 || clock_monotonic_usec() >= until)
			return r;
		json_decref(*ret);
		*ret = NULL;
		(void) usleep(POLL_US);
	}
}

static int show(struct cli *cli, const char *node, json_t *answer)
{
	const char *state = json_string_value(json_object_get(answer, "state"));
	bool is_taken = state && !strcmp(state, "taken");

	if (cli->json) {
		(void) print_json(json_incref(answer));
	} else if (is_taken) {
		(void) printf("node %s installs it; `croft node info %s` says its version when the agent is back\n", node, node);
	} else if (json_object_get(answer, "failure")) {
		(void) print_record(cli, "the node does not take the package", json_object_get(answer, "failure"));
	} else {
		(void) fprintf(stderr, "croft: the node has not answered; look again with `croft node info %s`\n", node);
	}
	json_decref(answer);
	return is_taken ? EXIT_OK : state && !strcmp(state, "offered") ? EXIT_TIMEOUT : EXIT_ERROR;
}

int node_upgrade(struct cli *cli, const struct command *command, int argc, char **argv)
{
	int64_t timeout_us = 120 * USEC_PER_SEC;
	const struct arg args[] = { { "timeout", 0, ARG_DURATION, &timeout_us, "DURATION", "How long the node's answer is waited for [2m]." } };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	struct failure failure = { 0 };
	json_t *answer = NULL;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 3)
		return args_complain(command, "a node and a package are needed");
	if (!id_is_valid(argv[1]))
		err_set(&failure.err, FAIL_NODE_NOT_FOUND, 0, "There is no such node.");
	else if (api_need_key(cli, &failure.err) == 0 && offer(cli, argv[1], argv[2], &failure) == 0)
		(void) await(cli, argv[1], timeout_us, &answer, &failure);
	if (err_is_set(&failure.err))
		return print_failure(cli, "cannot offer the package", &failure);
	return show(cli, argv[1], answer);
}
