/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node upgrade [--check] FILE...: installs packages of the pinned release key (release.h) that are not older than what is here.
 * All are judged before the first is installed. Sandboxes run on: the package's scripts restart agent, gateway and helper.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/commands.h"
#include "agent/release.h"
#include "agent/run-program.h"
#include "base/fd.h"
#include "base/log.h"

#define DPKG "/usr/bin/dpkg"
#define FILES_MAX 4

static int install(struct release *releases, int n)
{
	char dpkg[] = "dpkg", option[] = "--install", confold[] = "--force-confold";
	char *argv[FILES_MAX + 4] = { dpkg, confold, option };
	int status;

	for (int i = 0; i < n; i++)
		argv[3 + i] = releases[i].path;
	log_info("packages are installed", "uid", LOG_NUM(getuid()), "first", releases[0].package, "version", releases[0].version);
	status = run_program(DPKG, argv);
	if (status != 0)
		(void)fprintf(stderr, "croft-node: dpkg ended with %d: see what it says above\n", status);
	return status != 0;
}

/* A directory of its own for each: their copies have one name. */
static int judge(const struct agent_options *options, const char *file, char *dir, struct release *ret)
{
	struct err err = ERR_NULL;

	if (!mkdtemp(dir)) {
		perror("croft-node: cannot make a directory for the package");
		return 1;
	}
	return release_check(file, options->upgrade_key, dir, ret, &err) < 0 ? command_failed(&err) : 0;
}

int command_upgrade(const struct agent_options *options, int argc, char **argv)
{
	struct release releases[FILES_MAX];
	char dirs[FILES_MAX][32];
	int n = argc - 2, status = 0, made = 0;

	if (n < 1 || n > FILES_MAX)
		return (void)fprintf(stderr, "usage: croft-node upgrade [--check] FILE... (at most %d)\n", FILES_MAX), 2;
	if (geteuid() != 0 && !options->check)
		return (void)fprintf(stderr, "croft-node: upgrade is root's\n"), 1;
	for (; made < n && status == 0; made++) {
		(void)snprintf(dirs[made], sizeof(dirs[made]), "/tmp/croft-upgrade-XXXXXX");
		status = judge(options, argv[2 + made], dirs[made], &releases[made]);
		if (status == 0)
			(void)printf("%s %s, signed; %s is installed\n", releases[made].package, releases[made].version,
				releases[made].installed);
	}
	(void)fflush(stdout);
	if (status == 0 && !options->check)
		status = install(releases, n);
	for (int i = 0; i < made; i++)
		(void)dir_remove(dirs[i]);
	return status;
}
