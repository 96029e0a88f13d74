/* SPDX-License-Identifier: Apache-2.0
 *
 * See agent.h: the loop, the step, what is made at the start and in which order it goes. The end of
 * the agent is nobody else's: VMs, their files and their journals stay for the next one.
 */
#include "agent/agent.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/calls.h"
#include "agent/cpu-class.h"
#include "agent/forks.h"
#include "agent/host.h"
#include "agent/image-collect.h"
#include "agent/images.h"
#include "agent/journal.h"
#include "agent/link-send.h"
#include "agent/message.h"
#include "agent/meters.h"
#include "agent/owner.h"
#include "agent/pidref.h"
#include "agent/relay.h"
#include "agent/routes.h"
#include "agent/sandbox.h"
#include "agent/snapshots.h"
#include "agent/spool.h"
#include "agent/upgrade.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/watchdog.h"

#define THREADS 4
#define USAGE_WRITES 6 /* of what sandboxes use, to each time that it is told, where that is less than a minute */
#define SIGNALS 2
#define OWN_EVENTS (SIGNALS + 1) /* and the service manager's watchdog */
#define STOP_USEC (1000 * USEC_PER_MSEC) /* of the two seconds that SIGTERM may take */
#define BULK_STOP_USEC (500 * USEC_PER_MSEC)

/* ---- steps ---- */

void agent_fail(struct agent *agent, const struct err *err)
{
	if (!err_is_set(&agent->fatal))
		agent->fatal = *err;
	(void)event_base_loopbreak(agent->base);
}

static void arm_tick(struct agent *agent, int64_t now_usec)
{
	struct timeval tv;
	int64_t wait;

	if (agent->actions.next_usec == INT64_MAX) {
		(void)evtimer_del(agent->tick);
		return;
	}
	wait = MAX(agent->actions.next_usec - now_usec, INT64_C(0));
	tv = (struct timeval){ .tv_sec = wait / USEC_PER_SEC, .tv_usec = wait % USEC_PER_SEC };
	(void)evtimer_add(agent->tick, &tv);
}

void agent_feed(struct agent *agent, const struct sv_event *event)
{
	struct moment now = { .mono_usec = clock_monotonic_usec(),
		.real_usec = clock_realtime_usec(),
		.boot_usec = clock_boottime_usec() };
	struct err err = ERR_NULL;

	if (agent->is_stepping) {
		(void)err_set(&err, FAIL_IO_FAILED, EDEADLK,
			"an event inside a step: a mistake of this program");
		agent_fail(agent, &err);
		return;
	}
	agent->is_stepping = true;
	supervisor_step(agent->supervisor, now, &agent->rng, event, &agent->actions);
	if (agent->actions.no_memory) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM,
			"a step lost an action; the next agent adopts the sandboxes");
		agent_fail(agent, &err);
	}
	perform_actions(agent, &agent->actions);
	arm_tick(agent, now.mono_usec);
	sv_actions_clear(&agent->actions);
	agent->is_stepping = false;
}

static void on_tick(evutil_socket_t fd, short what, void *user)
{
	struct sv_event event = { .type = SV_EV_TICK };

	(void)fd, (void)what;
	agent_feed(user, &event);
}

/* ---- posted results ---- */

void agent_post(struct agent *agent, const struct post *post)
{
	struct post *copy = malloc(sizeof(*copy));
	struct err err = ERR_NULL;

	if (!copy) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a result");
		agent_fail(agent, &err);
		return;
	}
	*copy = *post;
	STAILQ_INSERT_TAIL(&agent->posts, copy, link);
	event_active(agent->post_event, EV_TIMEOUT, 0);
}

static void feed_post(struct agent *agent, struct post *post)
{
	struct sv_event event = { .type = post->type, .generation = post->generation };
	const struct err *err = err_is_set(&post->err) ? &post->err : NULL;
	struct sandbox *sandbox = sandbox_find(agent, post->sandbox);

	(void)snprintf(event.sandbox, sizeof(event.sandbox), "%s", post->sandbox);
	switch (post->type) {
	case SV_EV_NETWORK_DONE:
		event.network.is_made = post->is_whole;
		event.network.text = post->text;
		event.network.err = err;
		break;
	case SV_EV_VMM_SPAWNED:
		event.spawned.vmm = err ? NULL : &post->vmm;
		event.spawned.err = err;
		break;
	case SV_EV_VMM_JAILED:
		event.jailed.is_whole = post->is_whole;
		event.jailed.text = post->text;
		break;
	case SV_EV_VMM_EXITED:
		if (sandbox)
			sandbox_reap(sandbox);
		event.exited.reason = post->exit_reason;
		event.exited.signal = post->exit_signal;
		event.exited.reached_userspace = post->reached_userspace;
		event.exited.failure = err;
		break;
	case SV_EV_GUEST_HELLO:
	case SV_EV_ADOPTED:
		event.guest.boot_id = post->boot_id;
		event.guest.lease_left_ms = post->lease_left_ms;
		event.guest.is_unforked = post->is_unforked;
		event.guest.err = err;
		break;
	case SV_EV_SNAPSHOT_TAKEN:
		event.taken.frozen = &post->frozen;
		event.taken.size_mib = post->snapshot.size_mib;
		event.taken.err = err;
		break;
	case SV_EV_SNAPSHOT_KEPT:
		event.kept.info = &post->snapshot;
		event.kept.err = err;
		break;
	case SV_EV_SNAPSHOT_DROPPED:
		event.dropped.snapshot = post->snapshot.id;
		event.dropped.answer = post->answer;
		event.dropped.err = err;
		break;
	case SV_EV_USED:
		event.used.readings = &post->reading;
		event.used.n = 1;
		break;
	default:
		event.err = err;
		break;
	}
	agent_feed(agent, &event);
	sandbox = sandbox_find(agent, post->sandbox);
	if (sandbox)
		sandbox_settle(sandbox);
}

static void on_posts(evutil_socket_t fd, short what, void *user)
{
	STAILQ_HEAD(, post) mine = STAILQ_HEAD_INITIALIZER(mine);
	struct agent *agent = user;
	struct post *post;

	(void)fd, (void)what;
	/* those of this turn; what they bring about comes with the next */
	STAILQ_CONCAT(&mine, &agent->posts);
	while ((post = STAILQ_FIRST(&mine))) {
		STAILQ_REMOVE_HEAD(&mine, link);
		feed_post(agent, post);
		free(post);
	}
}

/* ---- telemetry of the node ---- */

void agent_node_event(
	struct agent *agent, const char *name, const char *sandbox, const char *snapshot, const struct err *err)
{
	Croft__TelemetryRecord record = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record);
	Croft__NodeEvent event = MESSAGE(Croft__NodeEvent, croft__node_event);
	Croft__Field code = MESSAGE(Croft__Field, croft__field), which = MESSAGE(Croft__Field, croft__field), *fields[2];
	char name_copy[64], sandbox_copy[ID_SIZE], key[] = "code", value[64], which_key[] = "snapshot", which_value[ID_SIZE];

	if (err && err_is_set(err))
		log_failure(LOG_LEVEL_WARN, name, err, "sandbox", *sandbox ? sandbox : NULL, "snapshot",
			*snapshot ? snapshot : NULL, NULL);
	else
		log_info(name, "sandbox", *sandbox ? sandbox : NULL, "snapshot", *snapshot ? snapshot : NULL);
	(void)snprintf(name_copy, sizeof(name_copy), "%s", name);
	(void)snprintf(sandbox_copy, sizeof(sandbox_copy), "%s", sandbox);
	event.name = name_copy;
	event.sandbox = sandbox_copy;
	event.fields = fields;
	if (err && err_is_set(err)) {
		(void)snprintf(value, sizeof(value), "%s", failure_info(err->code)->name);
		code.key = key;
		code.value = value;
		fields[event.n_fields++] = &code;
	}
	if (*snapshot) {
		(void)snprintf(which_value, sizeof(which_value), "%s", snapshot);
		which.key = which_key;
		which.value = which_value;
		fields[event.n_fields++] = &which;
	}
	record.when_us = clock_realtime_usec();
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_EVENT;
	record.event = &event;
	spool_append(agent->spool, &record);
}

static void on_calls(const Croft__GatewayCalls *calls, void *user)
{
	const struct agent *agent = user;

	calls_keep(agent->spool, calls);
}

static void on_spool_ready(void *user)
{
	struct agent *agent = user;

	link_telemetry_ready(agent->link);
}

/* ---- start ---- */

static int make_supervisor(struct agent *agent, struct err *reterr)
{
	const struct agent_options *options = agent->options;
	struct sv_config config;

	sv_config_default(&config);
	config.pauses = config.snapshots = true;
	config.stops_on_revoke = !strcmp(options->on_revoke, "stop");
	(void)snprintf(config.machine, sizeof(config.machine), "%s", agent->machine);
	(void)snprintf(config.instance, sizeof(config.instance), "%s", agent->instance);
	if (gethostname(config.hostname, sizeof(config.hostname) - 1) < 0)
		(void)snprintf(config.hostname, sizeof(config.hostname), "unknown");
	config.hostname[sizeof(config.hostname) - 1] = '\0';
	(void)snprintf(config.version, sizeof(config.version), "%s", CROFT_VERSION);
	cpu_class_of_host(config.cpu_class);
	(void)snprintf(config.run_base, sizeof(config.run_base), "%s", options->run);
	pidref_boot_id(config.host_boot_id);
	config.policy_max_sandboxes = (uint32_t)options->max_sandboxes;
	config.policy_max_vcpus = (uint32_t)options->max_vcpus;
	config.vmm_timeout_usec = (int64_t)options->vmm_timeout_ms * USEC_PER_MSEC;
	/* a host that is busy is no reason to end what runs: an answer is waited for as long as of a VMM that starts */
	config.adopt_timeout_usec = MAX(config.adopt_timeout_usec, config.vmm_timeout_usec);
	config.kernel_timeout_usec = (int64_t)options->kernel_timeout_ms * USEC_PER_MSEC;
	config.guest_timeout_usec = (int64_t)options->guest_timeout_ms * USEC_PER_MSEC;
	config.usage_usec = MIN(config.usage_usec, (int64_t)options->usage_period * USAGE_WRITES);
	config.stop_grace_usec = (int64_t)options->stop_grace_ms * USEC_PER_MSEC;
	if (*options->initramfs) /* else there is no croft-guest without an image */
		config.canary_usec = (int64_t)options->canary_period;
	if (supervisor_new(&agent->supervisor, &config) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the supervisor");
	return 0;
}

/* An image that a sandbox on record has, whatever became of that so far, or a snapshot. */
static bool is_in_use(const char *digest, void *user)
{
	const struct agent *agent = user;
	size_t n = supervisor_list(agent->supervisor, NULL, 0);
	CLEANUP_FREE char(*ids)[ID_SIZE] = calloc(n + 1, sizeof(*ids));

	if (!ids || supervisor_keeps_image(agent->supervisor, digest))
		return true;
	n = MIN(supervisor_list(agent->supervisor, ids, n), n);
	for (size_t i = 0; i < n; i++) {
		struct sv_view view;

		if (supervisor_get(agent->supervisor, ids[i], &view) == 0 && view.state != SV_ENDED && view.spec &&
			!strcmp(view.spec->image_digest, digest))
			return true;
	}
	return false;
}

/* Begins to make room before the floor is reached. */
#define ROOM_ABOVE_FLOOR_PERCENT 5u

static int make_collect(struct agent *agent, const char *dir, struct err *reterr)
{
	const struct gc_limits limits = { .max_age_us = agent->options->image_max_age,
		.keep_free_percent = (unsigned int)agent->options->disk_floor_percent + ROOM_ABOVE_FLOOR_PERCENT };

	agent->collect = image_collect_new(agent->worker, agent->images, dir, &limits, is_in_use, agent);
	return agent->collect ? 0 : err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the images");
}

static int make_parts(struct agent *agent, struct err *reterr)
{
	const struct relay_sender sender = { .data = link_send_stream_data,
		.credit = link_send_stream_credit,
		.close = link_send_stream_close };
	const struct agent_options *options = agent->options;
	struct relay_config relay = { .enabled = options->relay,
		.max_streams = options->max_streams,
		.gateway_path = options->gateway_http };
	char path[PATH_MAX];
	int r;

	(void)snprintf(path, sizeof(path), "%.4000s/spool", options->state);
	r = worker_new(&agent->worker, agent->base, THREADS, reterr);
	if (r == 0)
		r = worker_new(&agent->bulk, agent->base, 1, reterr);
	if (r == 0)
		r = spool_new(&agent->spool, path, options->spool_size, agent->worker,
			on_spool_ready, agent, reterr);
	if (r == 0) {
		(void)snprintf(path, sizeof(path), "%.3900s/images", options->cache);
		r = images_new(&agent->images, agent->base, agent->worker, path,
			options->max_image_size, link_send_image_request, agent, reterr);
	}
	if (r == 0)
		r = make_collect(agent, path, reterr);
	if (r == 0)
		r = routes_new(&agent->routes, agent->base, options->gateway_admin, on_calls, agent, reterr);
	if (r == 0)
		r = relay_new(&agent->relay, agent->base, &relay, &sender, agent, reterr);
	if (r == 0)
		r = make_supervisor(agent, reterr);
	return r;
}

static void load_one(
	const char *id, const struct sv_journal *journal, const struct err *err, void *user)
{
	struct sv_event event = { .type = journal ? SV_EV_LOAD : SV_EV_LOAD_BAD };
	struct agent *agent = user;

	(void)snprintf(event.sandbox, sizeof(event.sandbox), "%s", id);
	if (journal) {
		if (sandbox_load(agent, journal) < 0)
			return;
		event.generation = journal->generation;
		event.journal = journal;
	} else {
		log_failure(LOG_LEVEL_ERROR, "a sandbox's journal cannot be read; it is left alone",
			err, "sandbox", id, NULL);
		event.err = err;
	}
	agent_feed(agent, &event);
}

static void load_snapshot(const struct snapshot_info *info, void *user)
{
	struct sv_event event = { .type = SV_EV_LOAD_SNAPSHOT, .snapshot = info };

	agent_feed(user, &event);
}

/* Journals first: nothing is served before everything that lives here is known. */
static int load_state(struct agent *agent, struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_START };
	struct err err = ERR_NULL;
	int r;

	agent_node_event(agent, "agent-started", "", "", NULL);
	(void)journal_read_epoch(
		agent->options->state, &agent->saved_epoch, &event.start.leader, &err);
	meters_load(agent);
	if (!err_is_set(&err))
		(void)snapshots_load(agent->options->state, load_snapshot, agent, &err);
	if (!err_is_set(&err))
		(void)journal_load(agent->options->state, load_one, agent, &err);
	if (err_is_set(&err))
		log_failure(LOG_LEVEL_ERROR,
			"the state cannot be read: nothing is served, nothing deleted", &err, NULL);
	r = link_new(&agent->link, agent, reterr);
	if (r == 0)
		r = sandbox_net_open(agent, reterr);
	if (r < 0)
		return r;
	owner_load(agent);
	event.start.unreadable = err_is_set(&err) ? &err : NULL;
	event.start.highest_epoch = agent->saved_epoch;
	agent_feed(agent, &event);
	r = meters_new(&agent->meters, agent, reterr);
	if (r == 0)
		r = host_new(&agent->host, agent, reterr);
	return r < 0 ? r : owner_new(&agent->owner, agent, reterr);
}

static int read_identity(struct agent *agent, struct err *reterr)
{
	char path[PATH_MAX];
	int r = identity_read(agent->options->state, &agent->identity, reterr);

	if (r == 0)
		r = machine_id(agent->options->state, agent->machine, reterr);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%.4000s/%.64s", agent->options->state,
		agent->identity.key_file);
	return curve_keys_read(path, &agent->keys, reterr);
}

static void on_signal(evutil_socket_t number, short what, void *user)
{
	struct agent *agent = user;

	(void)what;
	log_info("stopping; sandboxes go on", "signal", number == SIGTERM ? "SIGTERM" : "SIGINT");
	(void)sd_notify(0, "STOPPING=1");
	(void)event_base_loopbreak(agent->base);
}

static int make_loop(struct agent *agent, struct event **events, struct err *reterr)
{
	static const int numbers[] = { SIGTERM, SIGINT };

	agent->base = event_base_new();
	agent->zmq = zmq_ctx_new();
	if (agent->base) {
		agent->tick = evtimer_new(agent->base, on_tick, agent);
		agent->post_event = evtimer_new(agent->base, on_posts, agent);
		for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
			events[i] = evsignal_new(agent->base, numbers[i], on_signal, agent);
			if (!events[i] || evsignal_add(events[i], NULL) < 0)
				return err_set(
					reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the loop");
		}
	}
	if (!agent->zmq || !agent->tick || !agent->post_event ||
		watchdog_new(agent->base, &events[SIGNALS]) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the loop");
	return 0;
}

/* false: something hangs; nothing more may be touched, the process is to end. */
static bool agent_deinit(struct agent *agent, struct event **events)
{
	struct post *post;

	/* first what may call back, then what is called */
	owner_free(TAKE(agent->owner));
	link_free(agent->link);
	agent->link = NULL;
	if (!worker_stop(agent->worker, STOP_USEC) || !worker_stop(agent->bulk, BULK_STOP_USEC)) {
		log_warn("file work hangs in the kernel; ending without it");
		return false;
	}
	worker_free(agent->worker);
	worker_free(agent->bulk);
	meters_free(agent->meters);
	agent->meters = NULL;
	sandbox_net_close(agent);
	if (agent->sandboxes)
		sandbox_free_all(agent);
	forks_free(&agent->forks);
	perform_free(agent);
	upgrade_free(agent->upgrade);
	images_free(agent->images);
	image_collect_free(agent->collect);
	relay_free(agent->relay);
	routes_free(agent->routes);
	host_free(agent->host);
	spool_free(agent->spool);
	supervisor_free(agent->supervisor);
	sv_actions_clear(&agent->actions);
	free(agent->actions.items);
	while ((post = STAILQ_FIRST(&agent->posts))) {
		STAILQ_REMOVE_HEAD(&agent->posts, link);
		free(post);
	}
	for (size_t i = 0; i < OWN_EVENTS; i++)
		if (events[i])
			event_free(events[i]);
	if (agent->tick)
		event_free(agent->tick);
	if (agent->post_event)
		event_free(agent->post_event);
	if (agent->zmq)
		(void)zmq_ctx_term(agent->zmq);
	if (agent->base)
		event_base_free(agent->base);
	explicit_bzero(&agent->keys, sizeof(agent->keys));
	return true;
}

static int run(struct agent *agent, struct event **events, struct err *reterr)
{
	CLEANUP_FD int lock = -1;
	int r = read_identity(agent, reterr); /* first: nothing is made for a node that never joined */

	if (r < 0)
		return r;
	r = dir_make(agent->options->cache, 0755);
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "cannot make %s", agent->options->cache);
	r = dir_make(agent->options->run, 0750);
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "cannot make %s", agent->options->run);
	lock = state_lock(agent->options->state, reterr);
	if (lock < 0)
		return lock;
	r = make_loop(agent, events, reterr);
	if (r == 0)
		r = make_parts(agent, reterr);
	if (r == 0)
		r = load_state(agent, reterr);
	if (r < 0)
		return r;
	log_info("ready", "node", agent->identity.node, "pool", agent->identity.pool, "state",
		agent->options->state);
	(void)sd_notify(0, "READY=1");
	if (event_base_dispatch(agent->base) < 0)
		return err_set(reterr, FAIL_IO_FAILED, 0, "the event loop failed");
	if (err_is_set(&agent->fatal)) {
		*reterr = agent->fatal;
		return -EIO;
	}
	return 0;
}

int agent_run(const struct agent_options *options, struct err *reterr)
{
	struct agent *agent = calloc(1, sizeof(*agent));
	struct event *events[OWN_EVENTS] = { NULL };
	int r;

	if (!agent)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the agent");
	agent->options = options;
	agent->rng = rng_system();
	STAILQ_INIT(&agent->posts);
	STAILQ_INIT(&agent->held);
	TAILQ_INIT(&agent->writes);
	id_new(&agent->rng, agent->instance);
	r = run(agent, events, reterr);
	if (agent_deinit(agent, events))
		free(agent);
	return r;
}
