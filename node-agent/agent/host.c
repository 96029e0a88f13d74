/* SPDX-License-Identifier: Apache-2.0
 *
 * See host.h.
 */
#include "agent/host.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include "agent/agent.h"
#include "agent/host-tables.h"
#include "agent/image-collect.h"
#include "agent/images.h"
#include "agent/sandbox.h"
#include "agent/space.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/log.h"
#include "doctor/doctor.h"
#include "doctor/kvm.h"

#define LOOK_SEC 5
#define TABLES_SEC 1
#define UNFIT_USEC (15 * USEC_PER_SEC) /* what keeps the node out is looked at this often */
#define COLLECT_TURNS 12u /* of these: a minute */
#define MIB (1024u * 1024u)
#define RESERVED_MIB 1024u /* of the host's memory, for everything that is no sandbox */
#define DISK_STEP_MIB 64u /* free space is told in such steps, so that a log line is no news */

struct host {
	struct agent *agent;
	struct event *timer, *second;
	struct host_tables tables;
	bool is_looking, was_able;
	unsigned int turns;
	int64_t doctor_due_usec;
	struct err unfit; /* what the doctor found last; of the look under way */
};

struct look {
	struct host *host;
	struct sv_capacity found;
	struct space space;
};

static void look_free(struct look *look)
{
	if (!look)
		return;
	image_list_deinit(&look->found.images);
	space_deinit(&look->space);
	free(look);
}

static void measure_memory(const struct agent_options *options, struct node_capacity *ret)
{
	struct sysinfo info;

	ret->memory_mib = options->memory_mib;
	if (ret->memory_mib == 0 && sysinfo(&info) == 0) {
		uint64_t total = (uint64_t)info.totalram * info.mem_unit / MIB;

		ret->memory_mib = total > RESERVED_MIB ? total - RESERVED_MIB : 0;
	}
}

static void measure_disk(const struct agent_options *options, struct sv_capacity *ret)
{
	struct statvfs fs;
	uint64_t floor, free;

	ret->capacity.disk_mib = options->disk_mib;
	if (statvfs(options->state, &fs) < 0)
		return;
	if (options->disk_mib == 0)
		ret->capacity.disk_mib =
			(uint64_t)fs.f_blocks * fs.f_frsize / MIB * (100 - options->disk_floor_percent) / 100;
	/* what is below the floor is nobody's */
	floor = (uint64_t)fs.f_blocks * fs.f_frsize / 100 * options->disk_floor_percent;
	free = (uint64_t)fs.f_bavail * fs.f_frsize;
	ret->disk_free_mib = (free > floor ? free - floor : 0) / MIB / DISK_STEP_MIB * DISK_STEP_MIB;
}

/* Sparse disks fill up behind everybody's back: with less than the floor left nothing new starts, while there is still
 * room for what runs, for journals and for the way out. */
static void check_floor(const struct agent_options *options, struct err *ret)
{
	const char *const places[] = { options->state, options->cache };
	struct statvfs fs;

	for (size_t i = 0; i < ARRAY_LEN(places) && !err_is_set(ret); i++) {
		/* not divided first: on an almost empty file system what that loses decides (a floor of 100 percent) */
		if (statvfs(places[i], &fs) < 0 || fs.f_blocks == 0 ||
			(uint64_t)fs.f_bavail * 100 >= (uint64_t)fs.f_blocks * options->disk_floor_percent)
			continue;
		(void)err_set(ret, FAIL_DISK_PRESSURE, ENOSPC, "%llu %% of the file system of %.100s are free",
			(unsigned long long)(fs.f_bavail * 100 / fs.f_blocks), places[i]);
		err_add(ret, "path", "%.90s", places[i]);
		err_add(ret, "floor_percent", "%llu", (unsigned long long)options->disk_floor_percent);
	}
}

/* The first error says why; the others are in the log, and on the host with the same command. The disk's floor is
 * check_floor()'s to say, which is another code, with every look. */
void host_unfit(const struct doctor *doctor, struct err *ret)
{
	bool was_unfit = err_is_set(ret); /* the log has it */
	size_t errors = 0;

	*ret = (struct err)ERR_NULL;
	for (size_t i = 0; i < doctor->n; i++) {
		const struct doctor_finding *finding = &doctor->findings[i];

		if (finding->severity != DOCTOR_ERROR || !strcmp(finding->check, "disk"))
			continue;
		if (errors++ == 0) {
			(void)err_set(ret, FAIL_HOST_UNFIT, 0, "%s: %.180s", finding->check, finding->text);
			err_add(ret, "check", "%s", finding->check);
			err_add(ret, "do", "%.90s", finding->remedy);
		}
		if (!was_unfit)
			log_warn("the host is not fit", "check", finding->check, "finding", finding->text, "do",
				finding->remedy);
	}
	if (errors > 1)
		err_add(ret, "errors", "%zu", errors);
}

int64_t host_unfit_pause(const struct err *unfit, int64_t period)
{
	return err_is_set(unfit) ? MIN(period, UNFIT_USEC) : period;
}

/* The scheduler's address is not looked at: who hears of it is there. KVM is tried by run_look() and by the canary. */
static void run_doctor(struct host *host)
{
	const struct agent_options *options = host->agent->options;
	struct doctor_config config = { .root = "",
		.state = options->state,
		.disk_floor_percent = (unsigned int)options->disk_floor_percent,
		.sandboxes = options->max_sandboxes };
	CLEANUP(doctor_deinit) struct doctor doctor;

	if (doctor_run(&doctor, &config) == 0) /* else what it found before still holds */
		host_unfit(&doctor, &host->unfit);
}

static void check_fit(struct host *host, struct err *ret)
{
	int64_t now = clock_monotonic_usec(), period = host->agent->options->doctor_period;

	if (period > 0 && host->agent->options->kvm_probe && now >= host->doctor_due_usec) {
		run_doctor(host);
		host->doctor_due_usec = now + host_unfit_pause(&host->unfit, period);
	}
	if (!err_is_set(ret))
		*ret = host->unfit;
}

/* On a worker: opening /dev/kvm and making a VM may take milliseconds. */
static void run_look(void *arg, const atomic_bool *stop)
{
	struct look *look = arg;
	const struct agent *agent = look->host->agent;
	const struct agent_options *options = agent->options;
	struct node_capacity *capacity = &look->found.capacity;
	int cpus = get_nprocs();

	(void)stop;
	measure_memory(options, capacity);
	capacity->cpus = cpus > 0 ? (uint32_t)cpus : 1;
	capacity->max_sandboxes = (uint32_t)options->max_sandboxes;
	capacity->max_starts = (uint32_t)options->max_starts;
	capacity->max_vcpus = (uint32_t)options->max_vcpus;
	measure_disk(options, &look->found);
	(void)kvm_check(options->kvm_device, options->kvm_probe, &look->found.unschedulable);
	check_floor(options, &look->found.unschedulable);
	check_fit(look->host, &look->found.unschedulable);
	if (space_look(options->state, &look->space) < 0)
		log_debug("what the disk's space went to cannot be told");
	look->found.space = look->space.items;
	look->found.n_space = look->space.n;
	if (images_list(agent->images, &look->found.images) < 0)
		log_debug("the images cannot be listed");
}

/* Told at once; that it keeps new sandboxes away for a while comes with the next look. */
static void on_second(evutil_socket_t fd, short what, void *user)
{
	struct timeval tv = { .tv_sec = TABLES_SEC };
	struct host *host = user;
	struct err err = ERR_NULL;
	int64_t now = clock_monotonic_usec();

	(void)fd, (void)what;
	(void)evtimer_add(host->second, &tv);
	if (host_tables_look(&host->tables, "", now) >= 0 && host_tables_full(&host->tables, now, &err))
		agent_node_event(host->agent, "host-limit", "", "", &err);
}

static void tell(struct host *host, struct sv_capacity *found)
{
	struct sv_event event = { .type = SV_EV_CAPACITY, .capacity = found };
	bool is_able;

	if (!err_is_set(&found->unschedulable))
		(void)host_tables_full(&host->tables, clock_monotonic_usec(), &found->unschedulable);
	is_able = !err_is_set(&found->unschedulable);

	if (!is_able && host->was_able)
		log_failure(LOG_LEVEL_ERROR, "no sandbox can be placed here", &found->unschedulable,
			NULL);
	else if (is_able && !host->was_able)
		log_info("sandboxes can be placed here");
	host->was_able = is_able;
	agent_feed(host->agent, &event);
}

static void done_look(void *arg, bool ran)
{
	struct look *look = arg;

	look->host->is_looking = false;
	if (ran)
		tell(look->host, &look->found);
	look_free(look);
}

static void on_time(evutil_socket_t fd, short what, void *user)
{
	struct timeval tv = { .tv_sec = LOOK_SEC };
	struct host *host = user;
	struct look *look;

	(void)fd, (void)what;
	(void)evtimer_add(host->timer, &tv);
	sandbox_trim_all(host->agent);
	sandbox_count_all(host->agent);
	if (host->turns++ % COLLECT_TURNS == 0)
		image_collect_run(host->agent->collect);
	if (host->is_looking)
		return;
	look = calloc(1, sizeof(*look));
	if (!look)
		return;
	look->host = host;
	if (worker_submit(host->agent->worker, 0, run_look, done_look, look) < 0)
		look_free(look);
	else
		host->is_looking = true;
}

int host_new(struct host **ret, struct agent *agent, struct err *reterr)
{
	struct timeval tv = { .tv_sec = LOOK_SEC }, second = { .tv_sec = TABLES_SEC };
	struct host *host = calloc(1, sizeof(*host));
	struct look look = { .host = host };

	if (host)
		host->timer = evtimer_new(agent->base, on_time, host);
	if (host)
		host->second = evtimer_new(agent->base, on_second, host);
	if (!host || !host->timer || !host->second || evtimer_add(host->timer, &tv) < 0 || evtimer_add(host->second, &second) < 0) {
		host_free(host);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the host's measures");
	}
	host->agent = agent;
	host->was_able = true; /* so that the first look tells what is wrong */
	*ret = host;
	(void)host_tables_look(&host->tables, "", clock_monotonic_usec()); /* what is dropped from here on is news */
	run_look(&look, NULL);
	tell(host, &look.found);
	image_list_deinit(&look.found.images);
	space_deinit(&look.space);
	return 0;
}

void host_free(struct host *host)
{
	if (!host)
		return;
	if (host->timer)
		event_free(host->timer);
	if (host->second)
		event_free(host->second);
	free(host);
}
