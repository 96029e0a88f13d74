/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-scheduler run: the loop, signals, and the service manager. SIGTERM and SIGINT stop it: no new request is
 * taken, what is under way may end for a second, who still waits then is told SHUTTING_DOWN, what was acknowledged is durable, and the process is gone within two.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "server/api.h"
#include "server/feed.h"
#include "server/link.h"
#include "server/program.h"
#include "server/server.h"
#include "wire/watchdog.h"

#define DRAIN_USEC (700 * USEC_PER_MSEC)
#define TELL_USEC (300 * USEC_PER_MSEC) /* for the answers to those who still wait then */
#define DRAIN_STEP_USEC 20000

struct run {
	struct event_base *base;
	struct server *server;
	struct event *term, *interrupt, *drain, *watchdog;
	int64_t stop_usec; /* when it has to be over */
	bool is_telling;   /* those who waited longer were answered */
};

static void on_drain(evutil_socket_t fd, short what, void *user)
{
	struct run *run = user;

	(void)fd;
	(void)what;
	if (!run->is_telling && !server_is_idle(run->server) && clock_monotonic_usec() >= run->stop_usec) {
		run->is_telling = true;
		run->stop_usec += TELL_USEC;
		server_refuse_rest(run->server);
	} else if (server_is_idle(run->server) || clock_monotonic_usec() >= run->stop_usec) {
		(void)event_base_loopbreak(run->base);
	}
}

static void on_signal(evutil_socket_t number, short what, void *user)
{
	struct run *run = user;
	const struct timeval step = { .tv_usec = DRAIN_STEP_USEC };

	(void)what;
	if (run->stop_usec) {
		(void)event_base_loopbreak(run->base); /* the second time: at once */
		return;
	}
	log_info("stopping", "signal", strsignal((int)number));
	(void)sd_notify(0, "STOPPING=1"); /* no service manager: nobody to tell */
	run->stop_usec = clock_monotonic_usec() + DRAIN_USEC;
	server_stop(run->server);
	(void)event_add(run->drain, &step);
}

static int add_events(struct run *run, struct err *reterr)
{
	run->term = evsignal_new(run->base, SIGTERM, on_signal, run);
	run->interrupt = evsignal_new(run->base, SIGINT, on_signal, run);
	run->drain = event_new(run->base, -1, EV_PERSIST, on_drain, run);
	if (!run->term || !run->interrupt || !run->drain || event_add(run->term, NULL) < 0 ||
		event_add(run->interrupt, NULL) < 0 || watchdog_new(run->base, &run->watchdog) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the loop");
	return 0;
}

static void free_events(struct run *run)
{
	struct event *const events[] = { run->term, run->interrupt, run->drain, run->watchdog };

	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
}

/* Every connection and stream is a descriptor: as many as we are allowed. */
static void raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE,
			&limit); /* then the old limit holds, and is reported where it is met */
	}
}

static void say_hello(const struct server *server)
{
	char text[64];

	(void)snprintf(
		text, sizeof(text), "%s:%u", server->options->api_address, api_port(server->api));
	if (!address_is_loopback(server->options->api_address) && !*server->options->tls_cert)
		log_warn(
			"--insecure: keys and data travel in plain HTTP on an address that is not loopback",
			"api", text);
	log_info("serving", "version", CROFT_VERSION, "api", text, "link",
		link_address(server->link), "state", server->options->state, "epoch",
		LOG_NUM(server->epoch));
	if (server->feed)
		log_info("feed", "address", feed_address(server->feed), "key", feed_public_key(server->feed));
	(void)sd_notifyf(0, "READY=1\nSTATUS=Serving the API on %s", text);
}

static int serve(const struct options *options, struct err *reterr)
{
	struct run run = { .base = event_base_new() };
	int r;

	if (!run.base || event_base_priority_init(run.base, LOOP_PRIORITIES) < 0)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the loop");
	else
		r = server_new(&run.server, options, run.base, reterr);
	if (r == 0)
		r = add_events(&run, reterr);
	if (r == 0) {
		say_hello(run.server);
		(void)event_base_dispatch(run.base);
		if (err_is_set(&run.server->fatal)) {
			*reterr = run.server->fatal;
			r = -EIO;
		}
	}
	free_events(&run);
	server_free(run.server);
	if (run.base)
		event_base_free(run.base);
	if (r == 0)
		log_info("stopped");
	return r;
}

static enum log_level log_level_by_name(const char *name)
{
	static const char *const names[LOG_LEVEL_MAX_] = { "error", "warn", "info", "debug" };

	for (enum log_level i = 0; i < LOG_LEVEL_MAX_; i++)
		if (!strcmp(name, names[i]))
			return i;
	return LOG_LEVEL_INFO;
}

int command_run(int argc, char **argv)
{
	struct options options = { .state = NULL };
	struct err err = ERR_NULL;
	int r = options_load(&options, &argc, argv, &err);

	if (r == 0 && argc > 1)
		r = err_set(&err, FAIL_CONFIG_INVALID, EINVAL, "what is \"%s\"?", argv[1]);
	if (r < 0) {
		log_failure(LOG_LEVEL_ERROR, "run", &err, NULL);
		options_free(&options);
		return EXIT_USAGE;
	}
	log_init("croft-scheduler", log_level_by_name(options.log_level));
	(void)signal(SIGPIPE, SIG_IGN);
	raise_limits();
	r = serve(&options, &err);
	if (r < 0)
		log_failure(LOG_LEVEL_ERROR, "the scheduler does not run", &err, NULL);
	options_free(&options);
	return r < 0 ? EXIT_FAILED : EXIT_OK;
}
