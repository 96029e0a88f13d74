/* SPDX-License-Identifier: Apache-2.0
 *
 * See meters.h.
 */
#include "agent/meters.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/pidref.h"
#include "agent/sandbox.h"
#include "agent/usage-file.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define TEXT_MAX 4096
#define QUICK_ASKS 2 /* the helper is asked with every second turn */
#define GROUPS "/sys/fs/cgroup"

struct meters {
	struct agent *agent;
	struct event *timer, *quick;
	unsigned int quick_turns;
	bool is_saving, is_failing;
	uint64_t over_mark; /* of what usage-over has */
	char own_group[sizeof(((struct sv_vmm_id *)NULL)->cgroup)];
};

/* ---- readings ---- */

static int group_cpu(const char *group, uint64_t *ret)
{
	CLEANUP_FREE char *text = NULL;
	char path[sizeof(GROUPS) + 160];
	unsigned long long usec;

	(void)snprintf(path, sizeof(path), GROUPS "%.128s/cpu.stat", group);
	if (file_read(path, TEXT_MAX, &text, NULL) < 0 || sscanf(text, "usage_usec %llu", &usec) != 1)
		return -EIO;
	*ret = usec;
	return 0;
}

/* Where there is no helper, a VMM has no group of its own: what its process used. */
static int process_cpu(const struct sv_vmm_id *vmm, uint64_t *ret)
{
	struct timespec used;
	clockid_t clock;
	uint64_t ticks;

	if (vmm->pid <= 0 || clock_getcpuclockid((pid_t)vmm->pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
		return -ESRCH;
	if (pidref_start_ticks((pid_t)vmm->pid, &ticks) < 0 || ticks != vmm->start_ticks)
		return -ESRCH; /* another process's */
	*ret = (uint64_t)used.tv_sec * USEC_PER_SEC + (uint64_t)used.tv_nsec / 1000;
	return 0;
}

/* Of the VM that the sandbox has, or had last. */
static bool read_cpu(const struct meters *meters, const char *id, struct sv_reading *ret)
{
	struct sv_view view;
	int r;

	if (supervisor_get(meters->agent->supervisor, id, &view) < 0 || !*view.vmm->run_dir)
		return false;
	r = *view.vmm->cgroup && strcmp(view.vmm->cgroup, meters->own_group) != 0 ? group_cpu(view.vmm->cgroup, &ret->cpu_us)
										    : process_cpu(view.vmm, &ret->cpu_us);
	if (r < 0)
		return false;
	memcpy(ret->sandbox, id, sizeof(ret->sandbox));
	ret->generation = view.generation;
	ret->has_cpu = true;
	return true;
}

static void read_all(struct meters *meters)
{
	struct agent *agent = meters->agent;
	CLEANUP_FREE struct sv_reading *readings = calloc(HASH_COUNT(agent->sandboxes) + 1, sizeof(*readings));
	struct sv_event event = { .type = SV_EV_USED };
	const struct sandbox *sandbox, *next;

	HASH_ITER (hh, agent->sandboxes, sandbox, next)
		if (readings && read_cpu(meters, sandbox->id, &readings[event.used.n]))
			event.used.n++;
	event.used.readings = readings;
	if (event.used.n)
		agent_feed(agent, &event);
}

void meters_read_last(struct sandbox *sandbox)
{
	struct post post = { .type = SV_EV_USED };

	if (sandbox->agent->meters && read_cpu(sandbox->agent->meters, sandbox->id, &post.reading))
		agent_post(sandbox->agent, &post);
}

void meters_read_egress(struct sandbox *sandbox, uint64_t bytes)
{
	struct post post = { .type = SV_EV_USED };

	memcpy(post.reading.sandbox, sandbox->id, sizeof(post.reading.sandbox));
	post.reading.generation = sandbox->generation;
	post.reading.has_egress = true;
	post.reading.egress_bytes = bytes;
	agent_post(sandbox->agent, &post);
}

/* ---- files ---- */

struct taking {
	struct usage_list lists[USAGE_FILES];
	uint64_t over_mark;
	int r;
};

static void take(const struct sv_usage_saved *saved, void *user)
{
	struct taking *taking = user;
	const struct usage_record *used = &saved->meter.used;

	if (usage_list_add(&taking->lists[used->is_over ? USAGE_OVER : USAGE_LIVE], saved) < 0)
		taking->r = -ENOMEM;
	if (used->is_over) /* other accounts, or more of them acknowledged: another sum, but for what does not happen */
		taking->over_mark += (used->version + used->generation + (uint64_t)used->began_us) * 31 + saved->acked_version + 1;
}

struct save {
	struct meters *meters;
	const char *state;
	uint8_t *data[USAGE_FILES]; /* NULL: as it was */
	size_t sizes[USAGE_FILES];
	uint64_t over_mark;
	struct err err;
};

static void save_free(struct save *save)
{
	for (size_t i = 0; i < USAGE_FILES; i++)
		free(save->data[i]);
	free(save);
}

/* NULL: no memory. */
static struct save *make_save(struct meters *meters)
{
	struct moment now = { .mono_usec = clock_monotonic_usec(), .real_usec = clock_realtime_usec() };
	struct save *save = calloc(1, sizeof(*save));
	struct taking taking = { .r = save ? 0 : -ENOMEM };

	if (save) {
		(void)supervisor_usage_take(meters->agent->supervisor, now, take, &taking);
		save->meters = meters;
		save->state = meters->agent->options->state;
		save->over_mark = taking.over_mark;
	}
	for (size_t i = 0; i < USAGE_FILES && taking.r == 0; i++)
		if (i == USAGE_LIVE || taking.over_mark != meters->over_mark)
			taking.r = usage_pack(&taking.lists[i], &save->data[i], &save->sizes[i]);
	for (size_t i = 0; i < USAGE_FILES; i++)
		usage_list_deinit(&taking.lists[i]);
	if (taking.r == 0)
		return save;
	if (save)
		save_free(save);
	return NULL;
}

/* First what is over: an account that is in neither file would be lost. */
static void run_save(void *arg, const atomic_bool *stop)
{
	struct save *save = arg;
	int r = 0;

	(void)stop;
	if (save->data[USAGE_OVER])
		r = usage_write(save->state, USAGE_OVER, save->data[USAGE_OVER], save->sizes[USAGE_OVER], &save->err);
	if (r == 0)
		(void)usage_write(save->state, USAGE_LIVE, save->data[USAGE_LIVE], save->sizes[USAGE_LIVE], &save->err);
}

static void done_save(void *arg, bool ran)
{
	struct sv_event event = { .type = SV_EV_USAGE_SAVED };
	struct save *save = arg;
	struct meters *meters = save->meters;
	const bool has_failed = err_is_set(&save->err);

	if (ran) {
		meters->is_saving = false;
		if (has_failed && !meters->is_failing)
			log_failure(LOG_LEVEL_ERROR, "what sandboxes use cannot be written down", &save->err, NULL);
		meters->is_failing = has_failed;
		if (!has_failed) {
			meters->over_mark = save->over_mark;
			agent_feed(meters->agent, &event);
		}
	}
	save_free(save);
}

static void save_now(struct meters *meters)
{
	struct save *save = meters->is_saving ? NULL : make_save(meters);

	if (!save)
		return; /* with the next turn */
	meters->is_saving = true;
	if (worker_submit(meters->agent->worker, (uint64_t)(uintptr_t)meters, run_save, done_save, save) < 0) {
		meters->is_saving = false;
		save_free(save);
	}
}

/* Of those whose CPU or egress has a budget. */
static void on_quick(evutil_socket_t fd, short what, void *user)
{
	struct meters *meters = user;
	struct agent *agent = meters->agent;
	struct sandbox *sandbox, *next;
	const bool asks = meters->quick_turns++ % QUICK_ASKS == 0;

	(void)fd, (void)what;
	HASH_ITER (hh, agent->sandboxes, sandbox, next) {
		struct sv_reading reading = { .has_cpu = false };
		struct sv_event event = { .type = SV_EV_USED, .used = { &reading, 1 } };
		struct sv_view view;

		if (supervisor_get(agent->supervisor, sandbox->id, &view) < 0 || view.state != SV_RUNNING)
			continue;
		if (view.spec->budget.egress_bytes && asks)
			sandbox_count_sent(sandbox);
		if (view.spec->budget.cpu_us && read_cpu(meters, sandbox->id, &reading))
			agent_feed(agent, &event);
	}
}

static void on_time(evutil_socket_t fd, short what, void *user)
{
	struct meters *meters = user;

	(void)fd, (void)what;
	read_all(meters);
	save_now(meters);
}

/* ---- life ---- */

void meters_load(struct agent *agent)
{
	struct usage_list list = { .n = 0 };
	struct err err = ERR_NULL;

	for (enum usage_file i = 0; i < USAGE_FILES; i++) {
		if (usage_read(agent->options->state, i, &list, &err) == 0)
			continue;
		log_failure(LOG_LEVEL_ERROR, "what sandboxes used up to now cannot be read; it is put aside", &err, NULL);
		agent_node_event(agent, "usage-unreadable", "", "", &err);
		usage_put_aside(agent->options->state, i);
		err = (struct err)ERR_NULL;
	}
	for (size_t i = 0; i < list.n; i++) {
		struct sv_event event = { .type = SV_EV_LOAD_USAGE, .saved = &list.items[i] };

		agent_feed(agent, &event);
	}
	usage_list_deinit(&list);
}

int meters_new(struct meters **ret, struct agent *agent, struct err *reterr)
{
	const int64_t period = (int64_t)agent->options->usage_period;
	struct timeval tv = { .tv_sec = period / USEC_PER_SEC, .tv_usec = period % USEC_PER_SEC };
	const struct timeval quick = { .tv_usec = SV_BUDGET_READ_USEC };
	struct meters *meters = calloc(1, sizeof(*meters));

	if (meters) {
		meters->timer = event_new(agent->base, -1, EV_PERSIST, on_time, meters);
		meters->quick = event_new(agent->base, -1, EV_PERSIST, on_quick, meters);
	}
	if (!meters || !meters->timer || !meters->quick || event_add(meters->timer, &tv) < 0 || event_add(meters->quick, &quick) < 0) {
		if (meters && meters->timer)
			event_free(meters->timer);
		if (meters && meters->quick)
			event_free(meters->quick);
		free(meters);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for what sandboxes use");
	}
	meters->agent = agent;
	vmm_group_of(getpid(), meters->own_group, sizeof(meters->own_group));
	*ret = meters;
	return 0;
}

void meters_free(struct meters *meters)
{
	struct save *save;

	if (!meters)
		return;
	event_free(meters->timer);
	event_free(meters->quick);
	read_all(meters);
	save = make_save(meters);
	if (save) {
		run_save(save, NULL);
		save_free(save);
	}
	free(meters);
}
