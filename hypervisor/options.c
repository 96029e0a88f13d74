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
	{ "", "id", CONFIG_STRING, AT(id), "", 0, 0, false, "The sandbox's id, for logs." },
	{ "", "run", CONFIG_STRING, AT(run), "", 0, 0, false, "The sandbox's run directory, so that `ps` shows it." },
	{ "", "log-level", CONFIG_STRING, AT(log_level_name), "info", 0, 0, false, "error, warn, info or debug." },
};

static int parse_fd(const char *text, const char *flag, int *ret, struct err *reterr)
{
	char *end;
	long value;

	*ret = -1;
	if (!*text)
		return 0;
	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || *end || end == text || value < 0 || value > INT_MAX)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "--%s: \"%s\" is no descriptor", flag, text);
	*ret = (int) value;
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
		r = parse_fd(options->control_fd, "control-fd", &options->control_fd_number, reterr);
	if (r == 0)
		r = parse_fd(options->exit_fd, "exit-fd", &options->exit_fd_number, reterr);
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
			    "15 host memory fault, 16 stopped, 17 signal, 18 start failed, 19 usage, 20 bug.\n\n");
	config_print_help(table, ARRAY_LEN(table), out);
	(void) fprintf(out, "  --version\n  --help\n");
}
