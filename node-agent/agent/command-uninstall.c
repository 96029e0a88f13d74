/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node uninstall [--now]: takes croft off a host that has it from packages, with no scheduler asked. The package's own scripts
 * do the work (installer/deb/node): units stopped, VMs ended, network and groups removed, state purged. Here is what a person wants
 * around it: that nothing that runs is ended by mistake, and a look afterwards at what is left.
 */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/commands.h"
#include "agent/journal.h"
#include "agent/run-program.h"
#include "base/log.h"

#define DPKG "/usr/bin/dpkg"
#define DPKG_QUERY "/usr/bin/dpkg-query"

static bool has_package(const char *name)
{
	char copy[64];
	char query[] = "dpkg-query", show[] = "--show", said[256];
	char *argv[] = { query, show, copy, NULL };

	(void)snprintf(copy, sizeof(copy), "%s", name);
	return run_program_read(DPKG_QUERY, argv, said, sizeof(said)) == 0;
}

static void count(const char *id, const struct sv_journal *journal, const struct err *err, void *user)
{
	unsigned int *n = user;

	(void)id, (void)err;
	*n += !journal || journal->state != SV_ENDED;
}

static bool may_go(const struct agent_options *options)
{
	unsigned int n = 0;
	struct err err = ERR_NULL;

	if (access(options->state, F_OK) < 0)
		return true; /* it never joined */
	if (journal_read(options->state, count, &n, &err) < 0 && !options->now) {
		(void)command_failed(&err);
		return false;
	}
	if (n == 0 || options->now)
		return true;
	(void)fprintf(stderr,
		"croft-node: %u sandboxes are here (croft-node list). `croft-node drain --deadline 1h` lets them end first, `croft-node "
		"export` keeps one; `croft-node uninstall --now` ends them.\n", n);
	return false;
}

/* What the package's scripts promise to remove. */
static unsigned int tell_what_is_left(void)
{
	static const char *const paths[] = { "/var/lib/croft/node", "/var/lib/croft-gateway", "/var/cache/croft/node", "/run/croft", "/run/croft-helper",
		"/etc/croft/node.conf", "/etc/croft/node-helper.conf", "/etc/croft/gateway.conf", "/etc/sysctl.d/60-croft.conf",
		"/sys/fs/cgroup/croft", "/usr/bin/croft-vmm" };
	static const char *const users[] = { "croft-node", "croft-gateway" };
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (access(paths[i], F_OK) == 0)
			n++, (void)printf("left: %s\n", paths[i]);
	for (size_t i = 0; i < ARRAY_LEN(users); i++)
		if (getpwnam(users[i]))
			n++, (void)printf("left: user %s\n", users[i]);
	return n;
}

int command_uninstall(const struct agent_options *options, int argc, char **argv)
{
	char dpkg[] = "dpkg", purge[] = "--purge", node[] = "croft-node", kernel[] = "croft-kernel";
	char *purge_argv[] = { dpkg, purge, node, NULL, NULL };
	int status;

	(void)argv;
	if (argc != 2)
		return (void)fprintf(stderr, "usage: croft-node uninstall [--now]\n"), 2;
	if (geteuid() != 0)
		return (void)fprintf(stderr, "croft-node: uninstall is root's\n"), 1;
	if (!has_package(node)) {
		(void)fprintf(stderr, "croft-node: the package croft-node is not installed here: what was installed otherwise, whoever "
				      "did it removes; croft-node-helper --clear ends what runs\n");
		return 1;
	}
	if (!may_go(options))
		return 1;
	log_info("croft is taken off this host", "uid", LOG_NUM(getuid()));
	if (has_package(kernel))
		purge_argv[3] = kernel;
	status = run_program(DPKG, purge_argv);
	if (status != 0) {
		(void)fprintf(stderr, "croft-node: dpkg ended with %d: what it says above is to be mended, then once more\n", status);
		return 1;
	}
	if (tell_what_is_left() > 0)
		return 1;
	(void)printf("croft-node is gone, and nothing of it is left. At the scheduler: croft node remove NODE\n");
	return 0;
}
