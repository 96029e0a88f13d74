/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node-helper: options, one event loop, signals. Slots, groups and VMs outlive it.
 */
#include <errno.h>
#include <event2/event.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "helper/clear.h"
#include "helper/server.h"

struct process {
	struct event_base *base;
	struct event *term, *interrupt, *child;
	struct helper helper;
	struct server *server;
	int lock;
};

static void on_end(evutil_socket_t number, short what, void *user)
{
	struct process *process = user;

	(void)number, (void)what;
	(void)event_base_loopbreak(process->base);
}

/* VMMs: the agent learns of their end through its pidfd. */
static void on_child(evutil_socket_t number, short what, void *user)
{
	struct process *process = user;

	(void)number, (void)what;
	exits_reap(&process->helper.exits);
}

/* By name or by number. */
static int find_user(const char *name, struct server_config *ret, struct err *reterr)
{
	struct passwd *user;
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	if (*name && *end == '\0') {
		user = getpwuid((uid_t)number);
		ret->uid = (uid_t)number;
		ret->gid = user ? user->pw_gid : (gid_t)number;
		return 0;
	}
	user = getpwnam(name);
	if (!user)
		return err_set(reterr, FAIL_CONFIG_INVALID, ENOENT, "helper.user: there is no user \"%.60s\"", name);
	ret->uid = user->pw_uid;
	ret->gid = user->pw_gid;
	return 0;
}

static int prepare(struct process *process, struct err *reterr)
{
	(void)prctl(PR_SET_DUMPABLE, 0);
	process->base = event_base_new();
	process->term = process->base ? evsignal_new(process->base, SIGTERM, on_end, process) : NULL;
	process->interrupt = process->base ? evsignal_new(process->base, SIGINT, on_end, process) : NULL;
	process->child = process->base ? evsignal_new(process->base, SIGCHLD, on_child, process) : NULL;
	if (!process->term || !process->interrupt || !process->child || evsignal_add(process->term, NULL) < 0 ||
		evsignal_add(process->interrupt, NULL) < 0 || evsignal_add(process->child, NULL) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the event loop");
	return 0;
}

static int run(struct process *process, const struct helper_options *options, struct err *reterr)
{
	struct server_config config = { .path = options->socket };
	int r;

	if (geteuid() != 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, EPERM, "croft-node-helper does root's part and runs as root");
	r = find_user(options->user, &config, reterr);
	if (r == 0)
		r = helper_lock(options->run, &process->lock, reterr);
	if (r == 0)
		r = prepare(process, reterr);
	if (r == 0)
		r = helper_open(&process->helper, options, config.uid, config.gid, reterr);
	if (r == 0)
		r = server_new(&process->server, process->base, &process->helper, &config, reterr);
	if (r < 0)
		return r;
	log_info("ready", "socket", options->socket, "network", process->helper.host ? "yes" : "no", "groups",
		process->helper.groups.root >= 0 ? "yes" : "no");
	(void)sd_notify(0, "READY=1");
	return event_base_dispatch(process->base) < 0 ? err_set(reterr, FAIL_IO_FAILED, 0, "the event loop failed") : 0;
}

static void deinit(struct process *process)
{
	struct event *events[] = { process->term, process->interrupt, process->child };

	server_free(process->server);
	helper_close(&process->helper);
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	if (process->base)
		event_base_free(process->base);
	process->lock = fd_close(process->lock);
}

static int print_help(void)
{
	(void)puts("usage: croft-node-helper [OPTION]...\n\nRoot's part of a croft node: see croft-node-helper(8).\n");
	helper_options_help(stdout);
	(void)puts("  --clear                            End every VM and remove all that helpers made here, for good.\n"
		   "  --sample-config                    Print a configuration file with every default.\n"
		   "  --version                          Print the version.");
	return 0;
}

int main(int argc, char **argv)
{
	struct process process = { .helper = { .groups = GROUPS_NULL, .disks = -1 }, .lock = -1 };
	struct helper_options options;
	struct err err = ERR_NULL;
	char text[1024];
	bool clear;
	int r;

	if (argc > 1 && !strcmp(argv[1], "--help"))
		return print_help();
	if (argc > 1 && !strcmp(argv[1], "--version"))
		return puts("croft-node-helper " CROFT_VERSION) < 0;
	if (argc > 1 && !strcmp(argv[1], "--sample-config"))
		return helper_options_sample(stdout), 0;
	log_init("croft-node-helper", LOG_LEVEL_INFO);
	clear = argc > 1 && !strcmp(argv[1], "--clear");
	if (clear) {
		argv[1] = argv[0];
		argv++, argc--;
	}
	r = helper_options_load(&options, &argc, argv, &err);
	if (r == 0 && argc > 1)
		r = err_set(&err, FAIL_CONFIG_INVALID, EINVAL, "\"%.60s\" is no option", argv[1]);
	if (r == 0) {
		r = clear ? helper_clear(&options, &err) : run(&process, &options, &err);
		deinit(&process);
		helper_options_free(&options);
	}
	if (r == 0)
		return 0;
	err_format(&err, text, sizeof(text));
	(void)fprintf(stderr, "croft-node-helper: %s\n", text);
	return err.code == FAIL_CONFIG_INVALID ? 2 : 1;
}
