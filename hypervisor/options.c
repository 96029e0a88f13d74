/* SPDX-License-Identifier: Apache-2.0
 *
 * See options.h.
 */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/config.h"

#define AT(field) offsetof(struct options, field)

static const struct config_option table[] = {
	{ "", "control-fd", CONFIG_STRING, AT(control_fd), "", 0, 0, false,
		"Descriptor of a listening SOCK_SEQPACKET socket: the control socket." },
	{ "", "exit-fd", CONFIG_STRING, AT(exit_fd), "", 0, 0, false,
		"Descriptor to which the VmmExit record is written just before the end." },
	{ "", "control", CONFIG_STRING, AT(control), "", 0, 0, false,
		"Path at which to make the control socket, for use by hand." },
	{ "", "id", CONFIG_STRING, AT(id), "unnamed", 0, 0, false,
		"The sandbox's id, for logs: 1 to 64 letters, digits and hyphens." },
	{ "", "run", CONFIG_STRING, AT(run), "", 0, 0, false,
		"The sandbox's run directory: all of the host's files that the jail shows, for the guest's vsock sockets." },
	{ "", "jail", CONFIG_STRING, AT(jail), "available", 0, 0, false,
		"required: fail where the host forbids a step; available: go on and report it; off: for debugging." },
	{ "", "uid", CONFIG_STRING, AT(uid_text), "", 0, 0, false, "The uid of this VM; needed, and allowed, for root only." },
	{ "", "gid", CONFIG_STRING, AT(gid_text), "", 0, 0, false, "The gid of this VM, likewise." },
	{ "", "run-owner", CONFIG_STRING, AT(run_owner_text), "", 0, 0, false,
		"A uid that may own the run directory, besides root and this VM's own; for root only." },
	{ "", "cgroup-fd", CONFIG_STRING, AT(cgroup_fd), "", 0, 0, false,
		"Descriptor of a cgroup's directory to move into." },
	{ "", "log-level", CONFIG_STRING, AT(log_level_name), "info", 0, 0, false, "error, warn, info or debug." },
};

/* -1: not given. */
static int parse_number(const char *text, const char *flag, int *ret, struct err *reterr)
{
	char *end;
	long value;

	*ret = -1;
	if (!*text)
		return 0;
	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || *end || end == text || value < 0 || value > INT_MAX)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "--%s: \"%s\" is no number that it could be", flag, text);
	*ret = (int) value;
	return 0;
}

static int parse_jail(const char *text, enum jail_mode *ret, struct err *reterr)
{
	static const char *const names[] = { [JAIL_OFF] = "off", [JAIL_AVAILABLE] = "available",
		[JAIL_REQUIRED] = "required" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (!strcmp(text, names[i])) {
			*ret = (enum jail_mode) i;
			return 0;
		}
	}
	return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "--jail: \"%s\" is none of required, available, off", text);
}

/* Both or none. */
static int parse_user(struct options *options, struct err *reterr)
{
	int uid = -1, gid = -1, owner = -1, r = parse_number(options->uid_text, "uid", &uid, reterr);

	if (r == 0)
		r = parse_number(options->gid_text, "gid", &gid, reterr);
	if (r == 0)
		r = parse_number(options->run_owner_text, "run-owner", &owner, reterr);
	if (r < 0)
		return r;
	if (owner >= 0 && uid < 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "--run-owner comes with --uid and --gid");
	options->has_run_owner = owner >= 0;
	options->run_owner = owner >= 0 ? (unsigned int) owner : 0;
	if ((uid < 0) != (gid < 0))
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "give both of --uid and --gid or none");
	options->has_user = uid >= 0;
	options->uid = options->has_user ? (unsigned int) uid : 0;
	options->gid = options->has_user ? (unsigned int) gid : 0;
	return 0;
}

static int parse_level(const char *text, enum log_level *ret, struct err *reterr)
{
	static const char *const names[LOG_LEVEL_MAX_] = { "error", "warn", "info", "debug" };

	for (int i = 0; i < LOG_LEVEL_MAX_; i++) {
		if (!strcasecmp(text, names[i])) {
			*ret = (enum log_level) i;
			return 0;
		}
	}
	return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
		"--log-level: \"%s\" is none of error, warn, info, debug", text);
}

int options_load(struct options *options, int *argc, char **argv, struct err *reterr)
{
	int r;

	memset(options, 0, sizeof(*options));
	r = config_load(table, ARRAY_LEN(table), options, NULL, argc, argv, reterr);
	if (r == 0 && *argc > 1)
		r = err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "\"%s\" is no option", argv[1]);
	if (r == 0)
		r = parse_number(options->control_fd, "control-fd", &options->control_fd_number, reterr);
	if (r == 0)
		r = parse_number(options->exit_fd, "exit-fd", &options->exit_fd_number, reterr);
	if (r == 0)
		r = parse_number(options->cgroup_fd, "cgroup-fd", &options->cgroup_fd_number, reterr);
	if (r == 0)
		r = parse_jail(options->jail, &options->jail_mode, reterr);
	if (r == 0)
		r = parse_user(options, reterr);
	if (r == 0)
		r = jail_check_id(options->id, reterr);
	if (r == 0)
		r = parse_level(options->log_level_name, &options->log_level, reterr);
	if (r == 0 && (options->control_fd_number >= 0) == (*options->control != '\0'))
		r = err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "give one of --control-fd and --control");
	return r;
}

void options_free(struct options *options)
{
	config_free(table, ARRAY_LEN(table), options);
}

void options_print_help(FILE *out)
{
	(void) fprintf(out, "usage: croft-vmm --control-fd N --exit-fd M [OPTION...]\n"
			    "       croft-vmm --control PATH [OPTION...]\n\n"
			    "Runs one microVM through KVM. It opens nothing by itself: kernel, disks and /dev/kvm come as\n"
			    "descriptors with `start` on the control socket (vmm.proto). The exit status says why it ended:\n"
			    "10 guest powered off, 11 guest reset, 12 guest kernel panicked, 13 triple fault, 14 KVM error,\n"
			    "15 host memory fault, 16 stopped, 17 signal, 18 start failed, 19 usage, 20 bug, 21 forbidden system call,\n"
			    "22 lease not renewed.\n\n");
	config_print_help(table, ARRAY_LEN(table), out);
	(void) fprintf(out, "  --version\n  --help\n");
}
