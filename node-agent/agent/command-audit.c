/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node audit: the node's own log for its owner, read from the gateway's files. No scheduler is asked.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/commands.h"
#include "audit/log.h"
#include "base/id.h"

#define UNIT_DIRECTORY "/var/lib/croft-gateway/audit"

static void find_directory(const struct agent_options *options, char ret[static PATH_MAX])
{
	if (*options->audit_directory)
		(void)snprintf(ret, PATH_MAX, "%s", options->audit_directory);
	else if (access(UNIT_DIRECTORY, X_OK) == 0)
		(void)snprintf(ret, PATH_MAX, UNIT_DIRECTORY);
	else
		(void)snprintf(ret, PATH_MAX, "%s/audit", options->run);
}

static int list(const char *directory, const char *sandbox, struct err *reterr)
{
	struct audit_reader *reader;
	const char *line;
	size_t size;
	int r = audit_reader_new(&reader, directory, sandbox, reterr);

	if (r < 0)
		return r;
	while ((r = audit_reader_next(reader, SIZE_MAX, &line, &size, reterr)) == 0 && line)
		(void)puts(line);
	audit_reader_free(reader);
	return r;
}

static int verify(const char *directory, struct err *reterr)
{
	struct audit_verdict verdict;
	int r = audit_log_verify(directory, &verdict, reterr);

	if (r < 0)
		return r;
	(void)printf("%llu entries are as they were written, %llu to %llu; the last is %s\n",
		(unsigned long long)(verdict.head.seq - verdict.base.seq),
		(unsigned long long)(verdict.base.seq + (verdict.head.seq > verdict.base.seq)), (unsigned long long)verdict.head.seq,
		verdict.head.hash);
	if (verdict.n_lost > 0)
		(void)printf("%llu could not be written when they were made\n", (unsigned long long)verdict.n_lost);
	return 0;
}

int command_audit(const struct agent_options *options, int argc, char **argv)
{
	struct err err = ERR_NULL;
	char directory[PATH_MAX];
	int r;

	find_directory(options, directory);
	if (argc == 3 && !strcmp(argv[2], "verify")) {
		r = verify(directory, &err);
	} else if ((argc == 3 || (argc == 4 && id_is_valid(argv[3]))) && !strcmp(argv[2], "list")) {
		r = list(directory, argc == 4 ? argv[3] : "", &err);
	} else {
		(void)fprintf(stderr, "usage: croft-node audit list [ID] | verify\n");
		return 2;
	}
	return r < 0 ? command_failed(&err) : 0;
}
