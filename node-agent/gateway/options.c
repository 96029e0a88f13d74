/* SPDX-License-Identifier: Apache-2.0
 *
 * See options.h.
 */
#include "gateway/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define AT(member) offsetof(struct gateway_options, member)
#define MIB (UINT64_C(1024) * 1024)

/* clang-format off */
static const struct config_option options[] = {
	{ "", "run", CONFIG_STRING, AT(run), "", 0, 0, false,
		"Directory of the sockets; $RUNTIME_DIRECTORY, /run/croft for root or $XDG_RUNTIME_DIR/croft when empty." },
	{ "gateway", "listen", CONFIG_STRING, AT(listen), "127.0.0.1", 0, 0, false,
		"Address for clients inside the network; empty for none." },
	{ "gateway", "port", CONFIG_U64, AT(port), "7282", 0, 65535, false,
		"Port for clients; 0 takes any free one." },
	{ "gateway", "tls_cert", CONFIG_STRING, AT(tls_cert), "", 0, 0, false,
		"Certificate chain for clients in a PEM file; empty: plain HTTP." },
	{ "gateway", "tls_key", CONFIG_STRING, AT(tls_key), "", 0, 0, false,
		"Its key, in a PEM file." },
	{ "gateway", "insecure", CONFIG_BOOL, AT(insecure), "no", 0, 0, false,
		"Serve plain HTTP on an address that is not loopback." },
	{ "gateway", "max_connections", CONFIG_U64, AT(max_connections), "2048", 1, 65536, false,
		"Most connections of clients at once." },
	{ "gateway", "max_streams", CONFIG_U64, AT(max_streams), "1024", 1, 65536, false,
		"Most process streams of all sandboxes at once." },
	{ "gateway", "max_streams_per_sandbox", CONFIG_U64, AT(max_streams_per_sandbox), "256", 1, 65536, false,
		"Most process streams of one sandbox at once." },
	{ "gateway", "max_body_bytes", CONFIG_SIZE, AT(max_body_bytes), "64M", 8 * MIB, 0, false,
		"Most bytes of request bodies held at once." },
	{ "gateway", "keepalive", CONFIG_DURATION, AT(keepalive_us), "50s", USEC_PER_SEC, 290 * USEC_PER_SEC, false,
		"A stream without an event for this long gets a keepalive." },
	{ "gateway", "guest_timeout", CONFIG_DURATION, AT(guest_timeout_us), "10s", USEC_PER_MSEC, 600 * USEC_PER_SEC,
		false, "How long the guest may take to its first answer." },
	{ "", "audit", CONFIG_STRING, AT(audit), "digests", 0, 0, false,
		"What the scheduler is told of commands: digests: ids, digests, sizes, exit status; full: their first 255 bytes too." },
	{ "audit", "directory", CONFIG_STRING, AT(audit_directory), "", 0, 0, false,
		"Directory of the node's audit log; $STATE_DIRECTORY/audit, or audit in the run directory, when empty." },
	{ "audit", "size", CONFIG_SIZE, AT(audit_size), "64M", MIB, 0, false, "Most bytes of it; then the oldest sixteenth goes." },
	{ "audit", "age", CONFIG_DURATION, AT(audit_age_us), "720h", 60 * USEC_PER_SEC, 0, false,
		"What is older goes." },
	{ "audit", "output", CONFIG_SIZE, AT(audit_output), "4K", 0, 16384, false,
		"Bytes of each command's stdout and stderr that are in it, beside digest and size." },
	{ "gateway", "idle_timeout", CONFIG_DURATION, AT(idle_us), "120s", USEC_PER_SEC, 86400 * USEC_PER_SEC, false,
		"A client's connection without a request is closed after this long." },
};
/* clang-format on */

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int set_audit_directory(struct gateway_options *target, struct err *reterr)
{
	const char *unit = environment("STATE_DIRECTORY");
	char *directory = NULL;
	int n;

	if (strcmp(target->audit, "digests") != 0 && strcmp(target->audit, "full") != 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, 0, "audit is digests or full.");
	if (*target->audit_directory)
		return 0;
	if (unit)
		n = asprintf(&directory, "%.*s/audit", (int) strcspn(unit, ":"), unit);
	else
		n = asprintf(&directory, "%s/audit", target->run);
	if (n < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the options.");
	free(target->audit_directory);
	target->audit_directory = directory;
	return 0;
}

static int set_run(struct gateway_options *target, struct err *reterr)
{
	const char *unit = environment("RUNTIME_DIRECTORY"), *xdg = environment("XDG_RUNTIME_DIR");
	char *run = NULL;
	int n;

	if (*target->run)
		return 0;
	if (unit) /* systemd separates several by colons; the first is the main one */
		n = asprintf(&run, "%.*s", (int) strcspn(unit, ":"), unit);
	else if (geteuid() == 0)
		n = asprintf(&run, "/run/croft");
	else if (xdg)
		n = asprintf(&run, "%s/croft", xdg);
	else
		return err_set(reterr, FAIL_CONFIG_INVALID, 0, "Neither $XDG_RUNTIME_DIR nor --run names a directory.");
	if (n < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the options.");
	free(target->run);
	target->run = run;
	return 0;
}

int options_set_places(struct gateway_options *target, struct err *reterr)
{
	int r = set_run(target, reterr);

	return r < 0 ? r : set_audit_directory(target, reterr);
}

const struct config_option *options_table(size_t *ret_n)
{
	*ret_n = ARRAY_LEN(options);
	return options;
}
