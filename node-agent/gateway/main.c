/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-gateway: options, one event loop, signals. SIGTERM and SIGINT end the streams with a word to their
 * clients and leave within DRAIN_US; processes in the guests go on.
 */
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/hide.h"
#include "base/log.h"
#include "gateway/gateway.h"
#include "gateway/options.h"
#include "wire/watchdog.h"

#define CONFIG_FILE "/etc/croft/gateway.conf"
#define DRAIN_US (1500 * USEC_PER_MSEC)
#define DRAIN_STEP_US (20 * USEC_PER_MSEC)

struct process {
	struct event_base *base;
	struct gateway *gateway;
	struct event *term, *interrupt, *drain, *watchdog;
	int64_t drain_until_us;
};

static void on_drain(evutil_socket_t fd, short what, void *user)
{
	static const struct timeval step = { 0, DRAIN_STEP_US };
	struct process *process = user;

	(void) fd;
	(void) what;
	if (gateway_active(process->gateway) == 0 || clock_monotonic_usec() >= process->drain_until_us)
		(void) event_base_loopbreak(process->base);
	else
		(void) evtimer_add(process->drain, &step);
}

static void on_signal(evutil_socket_t number, short what, void *user)
{
	struct process *process = user;

	(void) what;
	if (process->drain_until_us)
		return;
	log_info("stopping", "signal", number == SIGTERM ? "SIGTERM" : "SIGINT");
	(void) sd_notify(0, "STOPPING=1");
	process->drain_until_us = clock_monotonic_usec() + DRAIN_US;
	gateway_drain(process->gateway);
	event_active(process->drain, EV_TIMEOUT, 0);
}

/* A stream costs two descriptors, and the usual soft limit is 1024. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void) setrlimit(RLIMIT_NOFILE, &limit); /* else the old one holds, and calls over it fail by name */
	}
}

static int process_run(struct process *process, const struct gateway_options *options, struct err *reterr)
{
	int r;

	process->base = event_base_new();
	process->term = process->base ? evsignal_new(process->base, SIGTERM, on_signal, process) : NULL;
	process->interrupt = process->base ? evsignal_new(process->base, SIGINT, on_signal, process) : NULL;
	process->drain = process->base ? evtimer_new(process->base, on_drain, process) : NULL;
	if (!process->term || !process->interrupt || !process->drain || evsignal_add(process->term, NULL) < 0 ||
		evsignal_add(process->interrupt, NULL) < 0 || watchdog_new(process->base, &process->watchdog) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, 0, "No memory for the event loop.");
	r = gateway_new(&process->gateway, process->base, options, reterr);
	if (r < 0)
		return r;
	if (options->insecure)
		log_warn("serving plain HTTP beyond loopback: access tokens can be read on the way");
	log_info("ready", "address", options->listen, "port", LOG_NUM(gateway_port(process->gateway)), "run",
		options->run);
	(void) sd_notify(0, "READY=1");
	return event_base_dispatch(process->base) < 0 ? err_set(reterr, FAIL_IO_FAILED, 0, "The event loop failed.") : 0;
}

static void process_deinit(struct process *process)
{
	struct event *events[] = { process->term, process->interrupt, process->drain, process->watchdog };

	gateway_free(process->gateway);
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	if (process->base)
		event_base_free(process->base);
}

static void print_help(const struct config_option *table, size_t n)
{
	(void) puts("usage: croft-gateway [run] [OPTION]...\n\nThe data path of a croft node: HTTP to the sandboxes' guests.\n");
	config_print_help(table, n, stdout);
	(void) puts("  --sample                           Print a configuration file with every default.\n"
		    "  --version                          Print the version.");
}

int main(int argc, char **argv)
{
	struct gateway_options options = { 0 };
	struct process process = { 0 };
	struct err err = ERR_NULL;
	char line[1024];
	size_t n;
	const struct config_option *table = options_table(&n);
	int r;

	heap_keep();
	memory_hide();
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help"))
			return print_help(table, n), 0;
		if (!strcmp(argv[i], "--sample"))
			return config_print_sample(table, n, stdout), 0;
		if (!strcmp(argv[i], "--version"))
			return puts("croft-gateway " CROFT_VERSION) < 0;
	}
	log_init("croft-gateway", LOG_LEVEL_INFO);
	(void) signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	r = config_load(table, n, &options, access(CONFIG_FILE, R_OK) == 0 ? CONFIG_FILE : NULL, &argc, argv, &err);
	if (r == 0 && (argc > 2 || (argc == 2 && strcmp(argv[1], "run") != 0)))
		r = err_set(&err, FAIL_CONFIG_INVALID, 0, "croft-gateway has one command: run.");
	if (r == 0)
		r = options_set_places(&options, &err);
	if (r == 0)
		r = process_run(&process, &options, &err);
	process_deinit(&process);
	config_free(table, n, &options);
	if (r < 0) {
		err_format(&err, line, sizeof(line));
		log_failure(LOG_LEVEL_ERROR, "croft-gateway ends", &err, NULL);
		return err.code == FAIL_CONFIG_INVALID ? 78 : 1; /* 78: systemd does not start it again */
	}
	return 0;
}
