/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent's smaller parts: options, join token and identity, journal records, the worker's order,
 * processes known by more than their number.
 */
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cpu-class.h"
#include "agent/host.h"
#include "agent/host-tables.h"
#include "agent/identity.h"
#include "agent/journal.h"
#include "agent/kills.h"
#include "doctor/doctor.h"
#include "doctor/kvm.h"
#include "agent/options.h"
#include "agent/pidref.h"
#include "agent/sealed.h"
#include "agent/vmm-exit.h"
#include "agent/vmm-jail.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "pb/store.pb-c.h"

#define KEY "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7" /* published in libzmq's manual */

static void make_dir(char ret[static 64])
{
	(void)snprintf(ret, 64, "/tmp/croft-parts.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(ret));
}

/* ---- options ---- */

static int load(struct agent_options *options, const char *run, struct err *reterr)
{
	char name[] = "croft-node", run_flag[] = "--run", run_value[256], state[] = "--state=/s",
	     cache[] = "--cache=/c";
	char config[] = "--config", none[] = "/dev/null";
	char *argv[] = { name, config, none, state, cache, run_flag, run_value, NULL };
	int argc = 7;

	(void)snprintf(run_value, sizeof(run_value), "%s", run);
	return agent_options_load(options, &argc, argv, reterr);
}

START_TEST(a_run_directory_is_short_enough_or_refused)
{
	static const struct {
		size_t length;
		bool fits;
	} rows[] = { { 10, true }, { 60, true }, { 63, true }, { 64, false }, { 90, false },
		{ 107, false }, { 108, false } };
	struct agent_options options;
	struct err err = ERR_NULL;
	char run[128] = "/";

	memset(run + 1, 'r', rows[_i].length - 1);
	run[rows[_i].length] = '\0';
	if (rows[_i].fits) {
		ck_assert_msg(load(&options, run, &err) == 0, "%s", err.msg);
		ck_assert_str_eq(options.run, run);
		agent_options_free(&options);
		return;
	}
	ck_assert_int_lt(load(&options, run, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SOCKET_PATH_TOO_LONG);
	ck_assert_pstr_eq(err_field(&err, "max"), "63");
}
END_TEST

START_TEST(places_must_be_absolute_and_sockets_follow_the_run_directory)
{
	struct agent_options options;
	struct err err = ERR_NULL;

	ck_assert_int_eq(load(&options, "/r", &err), 0);
	ck_assert_str_eq(options.gateway_http, "/r/gateway.sock");
	ck_assert_str_eq(options.gateway_admin, "/r/gateway-admin.sock");
	ck_assert_ptr_nonnull(strstr(options.vmm_path, "/croft-vmm"));
	agent_options_free(&options);
	ck_assert_int_lt(load(&options, "relative", &err), 0);
	ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
}
END_TEST

/* ---- tokens and identity ---- */

struct token_row {
	const char *text;
	enum fail_code code;
};

static const struct token_row token_rows[] = {
	{ "# croft join token\nscheduler = tcp://h:1, tcp://i:2\nscheduler_tls = tls://h:443\nscheduler_key = @S\ntoken_id = t-1\ntoken_public = @P\n"
	  "token_secret = @K\npool = p\nexpires = 2099-01-01T00:00:00Z\nnews = of a later version\n",
		FAIL_NONE },
	{ "# croft join token\nscheduler = tls://h:443\nscheduler_key = @S\ntoken_id = t\ntoken_public = @P\n"
	  "token_secret = @K\n",
		FAIL_JOIN_TOKEN_INVALID },
	{ "scheduler = tcp://h:1\n", FAIL_JOIN_TOKEN_INVALID },
	{ "# croft join token\nscheduler = tcp://h:1\n", FAIL_JOIN_TOKEN_INVALID },
	{ "# croft join token\nscheduler = ipc://x\nscheduler_key = @S\ntoken_id = t\ntoken_public = @P\ntoken_secret = @K\n",
		FAIL_JOIN_TOKEN_INVALID },
	{ "# croft join token\nscheduler_key = @S\ntoken_id = t\ntoken_public = @P\ntoken_secret = @K\n",
		FAIL_JOIN_TOKEN_INVALID },
	{ "# croft join token\nscheduler = tcp://h:1\nscheduler_key = @S\ntoken_id = ../x\ntoken_public = @P\n"
	  "token_secret = @K\n",
		FAIL_JOIN_TOKEN_INVALID },
	{ "# croft join token\nscheduler = tcp://h:1\nscheduler_key = @S\ntoken_id = t\ntoken_public = @P\n"
	  "token_secret = @K\nexpires = 2020-01-01T00:00:00Z\n",
		FAIL_JOIN_TOKEN_EXPIRED },
	{ "# croft join token\nscheduler = tcp://h:1\nscheduler_key = short\ntoken_id = t\ntoken_public = @P\n"
	  "token_secret = @K\n",
		FAIL_CURVE_BAD_KEY },
	{ "# croft join token\nscheduler = tcp://h:1\nscheduler_key = " KEY
	  "\ntoken_id = t\ntoken_public = @P\n"
	  "token_secret = @K\n",
		FAIL_CURVE_WEAK_KEY },
};

static void expand(const char *text, const struct curve_keys *scheduler,
	const struct curve_keys *token, FILE *out)
{
	for (; *text; text++) {
		if (*text != '@' || !strchr("SPK", text[1])) {
			(void)fputc(*text, out);
			continue;
		}
		text++;
		(void)fputs(*text == 'S'   ? scheduler->public_key
			    : *text == 'P' ? token->public_key
					   : token->secret_key,
			out);
	}
}

START_TEST(a_token_file_is_read_or_refused_by_name)
{
	const struct token_row *row = &token_rows[_i];
	struct curve_keys scheduler, keys;
	struct join_token token;
	struct err err = ERR_NULL;
	char dir[64], path[96];
	FILE *out;
	int r;

	make_dir(dir);
	(void)snprintf(path, sizeof(path), "%s/token", dir);
	ck_assert_int_eq(curve_keys_new(&scheduler, &err), 0);
	ck_assert_int_eq(curve_keys_new(&keys, &err), 0);
	out = fopen(path, "we");
	ck_assert_ptr_nonnull(out);
	expand(row->text, &scheduler, &keys, out);
	(void)fclose(out);
	r = join_token_read(path, clock_realtime_usec(), &token, &err);
	ck_assert_str_eq(failure_info(err.code)->name, failure_info(row->code)->name);
	ck_assert_int_eq(r == 0, row->code == FAIL_NONE);
	if (r == 0) {
		ck_assert_uint_eq(token.scheduler.n_addresses, 3);
		ck_assert_str_eq(token.scheduler.addresses[1], "tcp://i:2");
		ck_assert_str_eq(token.scheduler.addresses[2], "tls://h:443");
		ck_assert_str_eq(token.keys.secret_key, keys.secret_key);
		ck_assert_str_eq(token.pool, "p");
	}
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

START_TEST(an_identity_comes_back_and_two_directories_are_two_machines)
{
	struct identity id = { .node = "nodenodenodenodenode",
		.pool = "default",
		.key_file = "node-t.key" },
			back;
	char dir[64], other[64], machine[ID_SIZE], again[ID_SIZE], second[ID_SIZE];
	struct curve_keys keys;
	struct err err = ERR_NULL;
	int lock;

	make_dir(dir);
	make_dir(other);
	ck_assert_int_lt(identity_read(dir, &back, &err), 0);
	ck_assert_int_eq(err.code, FAIL_NOT_JOINED);
	ck_assert_int_eq(curve_keys_new(&keys, NULL), 0);
	id.scheduler.n_addresses = 3;
	id.scheduler.n_own = 2;
	(void)snprintf(id.scheduler.addresses[2], ADDRESS_SIZE, "tls://told:443");
	(void)snprintf(id.scheduler.addresses[0], ADDRESS_SIZE, "tcp://h:1");
	(void)snprintf(id.scheduler.addresses[1], ADDRESS_SIZE, "tls://h:443");
	memcpy(id.scheduler.key, keys.public_key, sizeof(id.scheduler.key));
	ck_assert_int_eq(identity_write(dir, &id, NULL), 0);
	ck_assert_int_eq(identity_read(dir, &back, NULL), 0);
	ck_assert_str_eq(back.node, id.node);
	ck_assert_uint_eq(back.scheduler.n_addresses, 3);
	ck_assert_uint_eq(back.scheduler.n_own, 2);
	ck_assert_str_eq(back.scheduler.addresses[2], "tls://told:443");
	ck_assert_str_eq(back.scheduler.addresses[0], "tcp://h:1");
	ck_assert_str_eq(back.scheduler.addresses[1], "tls://h:443");
	ck_assert_str_eq(back.scheduler.next_key, "");

	ck_assert_int_eq(machine_id(dir, machine, NULL), 0);
	ck_assert_int_eq(machine_id(dir, again, NULL), 0);
	ck_assert_int_eq(machine_id(other, second, NULL), 0);
	ck_assert_str_eq(machine, again);
	ck_assert_str_ne(machine, second);

	ck_assert(!state_is_locked(dir));
	lock = state_lock(dir, NULL);
	ck_assert_int_ge(lock, 0);
	ck_assert(state_is_locked(dir));
	memset(&err, 0, sizeof(err));
	ck_assert_int_lt(state_lock(dir, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STATE_LOCKED);
	(void)fd_close(lock);
	ck_assert(!state_is_locked(dir));
	ck_assert_int_eq(dir_remove(dir), 0);
	ck_assert_int_eq(dir_remove(other), 0);
}
END_TEST

/* ---- journal ---- */

START_TEST(a_journal_record_comes_back_whole)
{
	struct sv_journal journal = { .sandbox = "sandboxsandboxsandbo",
		.generation = 9,
		.state = SV_RUNNING,
		.operation = "operationoperationop",
		.report_version = 12,
		.acked_version = 11,
		.attempt = 2,
		.update_number = 31,
		.is_waking = true,
		.ready_us = 123456,
		.life_left_us = 5,
		.life_end_mono_us = 77,
		.end_reason = END_TIMEOUT,
		.guest_boot_id = "01234567-89ab-cdef-0123-456789abcdef",
		.vmm = { .pid = 4242, .start_ticks = 99, .run_dir = "/run/croft/00112233" } };
	struct stage_record stage = { .stage = STAGE_IMAGE, .outcome = RESULT_OK, .took_us = 5 };
	struct sv_journal back = { .sandbox = "" };
	struct rng rng = rng_seeded(1);
	struct err err = ERR_NULL;
	uint8_t *data;
	size_t size;

	trace_new(&rng, &journal.trace);
	journal.spec = spec_new();
	(void)snprintf(journal.spec->image_digest, DIGEST_SIZE, "sha256:%064d", 1);
	(void)snprintf(journal.spec->template_name, sizeof(journal.spec->template_name), "base");
	journal.spec->vcpus = 1;
	journal.spec->memory_mib = 64;
	journal.spec->auto_pause = true;
	ck_assert_int_eq(spec_add_env(journal.spec, "A", "b"), 0);
	journal.stages = &stage;
	journal.n_stages = 1;
	(void)err_set(&journal.failure, FAIL_GUEST_PANIC, 0, "it did");
	ck_assert_int_eq(journal_pack(&journal, &data, &size), 0);
	ck_assert_msg(journal_unpack(data, size, &back, &err) == 0, "%s", err.msg);
	ck_assert_str_eq(back.sandbox, journal.sandbox);
	ck_assert_uint_eq(back.generation, 9);
	ck_assert_int_eq(back.state, SV_RUNNING);
	ck_assert_int_eq(back.end_reason, END_TIMEOUT);
	ck_assert_int_eq(back.vmm.pid, 4242);
	ck_assert_str_eq(back.vmm.run_dir, journal.vmm.run_dir);
	ck_assert_str_eq(back.trace.trace_id, journal.trace.trace_id);
	ck_assert_str_eq(back.spec->env[0].value, "b");
	ck_assert_uint_eq(back.n_stages, 1);
	ck_assert_int_eq(back.stages[0].stage, STAGE_IMAGE);
	ck_assert_int_eq(back.failure.code, FAIL_GUEST_PANIC);
	ck_assert_int_eq(back.life_end_mono_us, 77);
	ck_assert_uint_eq(back.update_number, 31);
	ck_assert(back.is_waking && back.spec->auto_pause);
	/* a torn record never reads as another one */
	for (size_t n = 0; n < size; n++) {
		struct err torn = ERR_NULL;

		ck_assert_int_lt(journal_unpack(data, n, &back, &torn), 0);
		ck_assert_int_eq(torn.code, FAIL_STATE_UNREADABLE);
	}
	sv_journal_deinit(&back);
	free(data);
	spec_unref(journal.spec);
}
END_TEST

/* The record of an agent that was newer, read after a roll-back. `change` makes the record that it wrote. */
static int read_newer(void (*change)(Croft__JournalRecord *record), struct sv_journal *ret, struct err *reterr)
{
	struct sv_journal journal = { .sandbox = "sandboxsandboxsandbo", .generation = 9, .state = SV_RUNNING };
	struct stage_record stage = { .stage = STAGE_IMAGE, .outcome = RESULT_OK };
	uint8_t future[] = "\x03new", *data, *again;
	ProtobufCMessageUnknownField field = { .tag = 2004, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
		.len = 4, .data = future };
	Croft__JournalRecord *record;
	size_t size;
	int r;

	journal.stages = &stage;
	journal.n_stages = 1;
	ck_assert_int_eq(journal_pack(&journal, &data, &size), 0);
	record = croft__journal_record__unpack(NULL, size - SEALED_HEAD, data + SEALED_HEAD);
	ck_assert_ptr_nonnull(record);
	change(record);
	record->base.unknown_fields = &field;
	record->base.n_unknown_fields = 1;
	size = croft__journal_record__get_packed_size(record);
	again = malloc(SEALED_HEAD + size);
	(void)croft__journal_record__pack(record, again + SEALED_HEAD);
	ck_assert_int_eq(sealed_close((const char *)data, again, size), 0); /* its magic */
	record->base.n_unknown_fields = 0;
	record->base.unknown_fields = NULL;
	croft__journal_record__free_unpacked(record, NULL);
	r = journal_unpack(again, SEALED_HEAD + size, ret, reterr);
	free(again);
	free(data);
	return r;
}

#define WRITES 3000

struct writer {
	const char *state;
	atomic_bool is_done;
};

static void *write_on_and_on(void *user)
{
	struct writer *writer = user;
	struct sv_journal journal = { .sandbox = "sandboxsandboxsandbo", .state = SV_RUNNING };
	struct stage_record stages[40] = { { .stage = STAGE_NONE } };
	struct err err = ERR_NULL;

	for (unsigned int i = 0; i < ARRAY_LEN(stages); i++)
		stages[i] = (struct stage_record){ .stage = STAGE_IMAGE, .outcome = RESULT_OK };
	journal.stages = stages;
	for (uint64_t n = 1; n <= WRITES; n++) {
		uint8_t *data;
		size_t size;

		journal.generation = n;
		journal.n_stages = n % 2 ? ARRAY_LEN(stages) : 1; /* a shorter one over a longer one */
		if (journal_pack(&journal, &data, &size) < 0 ||
			journal_write(writer->state, journal.sandbox, data, size, &err) < 0)
			abort();
		free(data);
	}
	writer->is_done = true;
	return NULL;
}

static void has_been_read(const char *sandbox, const struct sv_journal *journal, const struct err *err, void *user)
{
	uint64_t *last = user;

	(void)sandbox;
	ck_assert_msg(journal != NULL, "%s", err ? err->msg : "");
	ck_assert_uint_ge(journal->generation, *last);
	ck_assert_uint_eq(journal->n_stages, journal->generation % 2 ? 40 : 1);
	*last = journal->generation;
}

/* R064: who reads a record while it is replaced finds the former one or the next, whole. */
START_TEST(a_record_that_is_replaced_is_never_read_in_part)
{
	struct writer writer = { .is_done = false };
	struct err err = ERR_NULL;
	pthread_t thread;
	uint64_t last = 0;
	char dir[] = "/dev/shm/croft-parts.XXXXXX"; /* where a flush costs nothing */

	ck_assert_ptr_nonnull(mkdtemp(dir));
	writer.state = dir;
	ck_assert_int_eq(pthread_create(&thread, NULL, write_on_and_on, &writer), 0);
	while (!writer.is_done || last < WRITES)
		ck_assert_int_eq(journal_read(dir, has_been_read, &last, &err), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

static void put(char **text, const char *value)
{
	free(*text);
	*text = strdup(value);
}

static void with_a_new_stage(Croft__JournalRecord *record)
{
	put(&record->stages[0]->stage, "hibernate");
	record->end_reason = strdup("hibernated");
}

static void with_a_new_outcome(Croft__JournalRecord *record)
{
	record->stages[0]->outcome = (Croft__Outcome)9;
}

static void with_a_new_state(Croft__JournalRecord *record)
{
	put(&record->state, "hibernating");
}

START_TEST(what_a_newer_agent_wrote_is_read_or_left_alone_by_name)
{
	struct sv_journal back = { .sandbox = "" };
	struct err err = ERR_NULL;

	ck_assert_int_eq(read_newer(with_a_new_stage, &back, &err), 0);
	ck_assert_int_eq(back.state, SV_RUNNING);
	ck_assert_uint_eq(back.generation, 9);
	ck_assert_uint_eq(back.n_stages, 0);
	ck_assert_int_eq(back.end_reason, END_NONE);
	sv_journal_deinit(&back);
	ck_assert_int_eq(read_newer(with_a_new_outcome, &back, &err), 0);
	ck_assert_uint_eq(back.n_stages, 0);
	sv_journal_deinit(&back);
	ck_assert_int_lt(read_newer(with_a_new_state, &back, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STATE_UNREADABLE);
	ck_assert_pstr_eq(err_field(&err, "state"), "hibernating");
}
END_TEST

struct walk {
	unsigned int n_good, n_bad;
};

static void count(
	const char *sandbox, const struct sv_journal *journal, const struct err *err, void *user)
{
	struct walk *walk = user;

	(void)sandbox;
	if (journal)
		walk->n_good++;
	else
		walk->n_bad++;
	ck_assert_int_eq(journal == NULL, err != NULL);
}

START_TEST(an_empty_directory_promises_nothing_and_a_strange_name_is_left_alone)
{
	struct walk walk = { 0 };
	struct err err = ERR_NULL;
	char dir[64], path[160];

	make_dir(dir);
	ck_assert_int_eq(journal_read(dir, count, &walk, &err), 0); /* never run */
	(void)snprintf(path, sizeof(path), "%s/sandboxes/emptyemptyemptyempty", dir);
	ck_assert_int_eq(dir_make(path, 0700), 0);
	ck_assert_int_eq(journal_read(dir, count, &walk, &err), 0);
	ck_assert_int_eq(access(path, F_OK), 0); /* reading mends nothing */
	ck_assert_int_eq(journal_load(dir, count, &walk, &err), 0);
	ck_assert_int_lt(access(path, F_OK), 0);
	/* with a disk in it there was a sandbox: not to be thrown away */
	ck_assert_int_eq(dir_make(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/emptyemptyemptyempty/disk", dir);
	ck_assert_int_eq(file_replace(path, "x", 1, 0600), 0);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/Strange", dir);
	ck_assert_int_eq(dir_make(path, 0700), 0);
	ck_assert_int_eq(journal_load(dir, count, &walk, &err), 0);
	ck_assert_uint_eq(walk.n_good, 0);
	ck_assert_uint_eq(walk.n_bad, 1);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

START_TEST(a_directory_that_cannot_be_read_is_said_and_left)
{
	struct walk walk = { 0 };
	struct err err = ERR_NULL;
	char dir[64], path[160];

	make_dir(dir);
	(void)snprintf(path, sizeof(path), "%s/sandboxes", dir);
	ck_assert_int_eq(file_replace(path, "no directory", 12, 0600), 0);
	ck_assert_int_lt(journal_load(dir, count, &walk, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STATE_UNREADABLE);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

/* ---- worker ---- */

#define JOBS 64

struct worker_bench {
	unsigned int order[2], n_done;
	bool all_done;
	atomic_int running[2];
};

struct worker_job {
	struct worker_bench *bench;
	unsigned int key, number;
};

static void run_job(void *arg, const atomic_bool *stop)
{
	struct worker_job *job = arg;

	(void)stop;
	/* jobs of one key never overlap */
	ck_assert_int_eq(atomic_fetch_add(&job->bench->running[job->key], 1), 0);
	(void)usleep(50);
	(void)atomic_fetch_sub(&job->bench->running[job->key], 1);
}

static void done_job(void *arg, bool ran)
{
	struct worker_job *job = arg;
	struct worker_bench *bench = job->bench;

	ck_assert(ran);
	ck_assert_uint_eq(job->number, bench->order[job->key]++);
	bench->all_done = ++bench->n_done == 2 * JOBS;
	free(job);
}

START_TEST(jobs_of_one_key_keep_their_order)
{
	struct worker_bench bench = { .n_done = 0 };
	struct event_base *base = event_base_new();
	struct worker *worker;

	ck_assert_int_eq(worker_new(&worker, base, 4, NULL), 0);
	for (unsigned int i = 0; i < JOBS; i++)
		for (unsigned int key = 0; key < 2; key++) {
			struct worker_job *job = calloc(1, sizeof(*job));

			*job = (struct worker_job){ &bench, key, i };
			ck_assert_int_eq(worker_submit(worker, key + 1, run_job, done_job, job), 0);
		}
	loop_until(base, &bench.all_done);
	worker_free(worker);
	event_base_free(base);
}
END_TEST

/* ---- processes, KVM ---- */

START_TEST(a_process_is_known_by_more_than_its_number)
{
	uint64_t ticks = 0;
	siginfo_t info;
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	ck_assert_int_eq(pidref_start_ticks(pid, &ticks), 0);
	ck_assert_int_eq(pidref_open(pid, ticks + 1), -ESRCH); /* the number, but another process */
	fd = pidref_open(pid, ticks);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pidref_signal(fd, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(pidref_start_ticks(pid, &ticks), -ESRCH); /* a zombie is gone */
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(pidref_signal(fd, SIGKILL), -ESRCH);
	(void)fd_close(fd);
}
END_TEST

/* The signatures of known CPUs, and their families and models as their makers and /proc/cpuinfo name them. */
START_TEST(a_cpu_class_is_vendor_family_model)
{
	static const struct {
		const char *vendor;
		uint32_t signature;
		const char *name;
	} cpus[] = {
		{ "AuthenticAMD", 0x00a00f11, "amd-25-1" },      /* Milan */
		{ "AuthenticAMD", 0x00a10f11, "amd-25-17" },     /* Genoa */
		{ "AuthenticAMD", 0x00800f12, "amd-23-1" },      /* Naples */
		{ "GenuineIntel", 0x000806f8, "intel-6-143" },   /* Sapphire Rapids */
		{ "GenuineIntel", 0x00050654, "intel-6-85" },    /* Skylake-SP */
		{ "GenuineIntel", 0x00000f29, "intel-15-2" },    /* a Pentium 4 */
		{ "CentaurHauls", 0x000006fa, "other-6-15" },
	};
	char name[CPU_CLASS_SIZE];

	for (size_t i = 0; i < ARRAY_LEN(cpus); i++) {
		cpu_class_name(cpus[i].vendor, cpus[i].signature, name);
		ck_assert_str_eq(name, cpus[i].name);
	}
	cpu_class_of_host(name);
	ck_assert_msg(id_name_is_valid(name), "%s", name);
}
END_TEST

/* ---- the kernel's tables ---- */

#define CONNTRACK "/proc/net/stat/nf_conntrack"
#define NEIGHBOURS "/proc/net/stat/arp_cache"

/* The columns are the kernel's, by name and not by number, and a line a CPU. */
static void write_stat(const char *root, const char *path, const char *names, unsigned int one, unsigned int two)
{
	static const char line[] = "00000009  000000ff  000000ff   ";
	char full[PATH_MAX], text[512];

	(void)snprintf(full, sizeof(full), "%s%s", root, path);
	(void)snprintf(text, sizeof(text), "%s\n%s%08x 000000ff\n%s%08x 000000ff\n", names, line, one, line, two);
	ck_assert_int_eq(file_replace(full, text, strlen(text), 0644), 0);
}

static const char conntrack_stat[] = "entries  clashres early drop early_drop";
static const char neighbour_stat[] = "entries allocs   unresolved_discards table_fulls more";

static void write_conntrack(const char *root, const char *count)
{
	char full[PATH_MAX];

	(void)snprintf(full, sizeof(full), "%s/proc/sys/net/netfilter/nf_conntrack_count", root);
	ck_assert_int_eq(file_replace(full, count, strlen(count), 0644), 0);
	(void)snprintf(full, sizeof(full), "%s/proc/sys/net/netfilter/nf_conntrack_max", root);
	ck_assert_int_eq(file_replace(full, "1000\n", 5, 0644), 0);
}

START_TEST(a_full_table_of_the_kernel_is_named)
{
	struct host_tables tables = { .is_read = false };
	struct err err = ERR_NULL;
	int64_t now = 1000 * USEC_PER_SEC;
	char root[64], dir[PATH_MAX];

	make_dir(root);
	ck_assert_int_eq(host_tables_look(&tables, root, now), -1); /* a kernel that has neither */
	for (const char *const *at = (const char *const[]){ "/proc", "/proc/net", "/proc/net/stat", "/proc/sys", "/proc/sys/net",
			"/proc/sys/net/netfilter", NULL }; *at; at++) {
		(void)snprintf(dir, sizeof(dir), "%s%s", root, *at);
		ck_assert_int_eq(mkdir(dir, 0755), 0);
	}
	memset(&tables, 0, sizeof(tables));
	write_stat(root, CONNTRACK, conntrack_stat, 7, 9); /* before our time */
	write_stat(root, NEIGHBOURS, neighbour_stat, 0, 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(host_tables_look(&tables, root, now), -1);
	ck_assert(!host_tables_full(&tables, now, &err));
	write_stat(root, CONNTRACK, conntrack_stat, 7, 0xa); /* nobody says how full it is */
	ck_assert_int_eq(host_tables_look(&tables, root, now), -1);
	write_conntrack(root, "799\n");
	write_stat(root, CONNTRACK, conntrack_stat, 7, 0xf); /* there is room: entries that clashed */
	ck_assert_int_eq(host_tables_look(&tables, root, now), -1);
	ck_assert(!host_tables_full(&tables, now, &err));
	write_conntrack(root, "800\n");
	ck_assert_int_eq(host_tables_look(&tables, root, now), -1);
	write_stat(root, CONNTRACK, conntrack_stat, 7, 0x10);
	ck_assert_int_eq(host_tables_look(&tables, root, now), 0);
	ck_assert(host_tables_full(&tables, now, &err));
	ck_assert_int_eq(err.code, FAIL_HOST_LIMIT);
	ck_assert_ptr_nonnull(strstr(err_field(&err, "resource"), "nf_conntrack_max"));
	write_stat(root, CONNTRACK, conntrack_stat, 8, 0x11); /* goes on: no news, but it holds */
	now += 50 * USEC_PER_SEC;
	ck_assert_int_eq(host_tables_look(&tables, root, now), -1);
	now += 50 * USEC_PER_SEC;
	ck_assert(host_tables_full(&tables, now, NULL));
	now += 10 * USEC_PER_SEC;
	ck_assert(!host_tables_full(&tables, now, NULL));
	write_stat(root, NEIGHBOURS, neighbour_stat, 0, 1);
	ck_assert_int_eq(host_tables_look(&tables, root, now), 1);
	err = (struct err)ERR_NULL;
	ck_assert(host_tables_full(&tables, now, &err));
	ck_assert_ptr_nonnull(strstr(err_field(&err, "resource"), "gc_thresh3"));
	ck_assert_int_eq(dir_remove(root), 0);
}
END_TEST

/* ---- a guest's want of memory ---- */

START_TEST(a_guest_that_counts_kills_without_end_is_told_once_a_minute)
{
	struct kills kills = { .is_heard = false };
	int64_t now = 1000 * USEC_PER_SEC;
	unsigned int n = 0;

	kills_said(&kills, 1000); /* before its first hello it has nothing to say */
	ck_assert_uint_eq(kills_tell(&kills, now), 0);
	kills.is_heard = true;
	ck_assert_uint_eq(kills_tell(&kills, now), 0);
	kills_said(&kills, 2);
	ck_assert_uint_eq(kills_tell(&kills, now), 2); /* at once */
	ck_assert_uint_eq(kills_tell(&kills, now + 2 * KILLS_PAUSE_USEC), 0);
	for (uint64_t i = 3; i < 603; i++) { /* ten minutes */
		now += USEC_PER_SEC;
		kills_said(&kills, i);
		kills_said(&kills, 1);
		n += kills_tell(&kills, now) != 0;
	}
	ck_assert_uint_eq(n, 10);
	kills_said(&kills, 700);
	ck_assert_uint_eq(kills_tell(&kills, now + KILLS_PAUSE_USEC - 1), 0);
	ck_assert_uint_eq(kills_tell(&kills, now + KILLS_PAUSE_USEC), 700); /* none is lost */
	kills_restart(&kills, true); /* falling asleep and waking is no way around it */
	kills_said(&kills, 701);
	ck_assert_uint_eq(kills_tell(&kills, now + KILLS_PAUSE_USEC + 1), 0);
}
END_TEST

/* ---- the doctor ---- */

/* A full disk has a code of its own, under which what sleeps may wake; and what keeps the node out is looked at again soon. */
START_TEST(what_the_doctor_finds_keeps_out_but_for_the_disk)
{
	struct doctor_finding findings[] = {
		{ .check = "disk", .severity = DOCTOR_ERROR, .text = "1 % are free", .remedy = "Free some." },
		{ .check = "clock", .severity = DOCTOR_WARNING, .text = "not in step", .remedy = "Mend it." },
		{ .check = "cgroup", .severity = DOCTOR_ERROR, .text = "there is none", .remedy = "Mount it." },
		{ .check = "kernel", .severity = DOCTOR_ERROR, .text = "too old", .remedy = "Take another." },
	};
	struct doctor doctor = { .findings = findings, .n = 2 };
	struct err err = ERR_NULL;

	host_unfit(&doctor, &err);
	ck_assert_int_eq(err.code, FAIL_NONE);
	ck_assert_int_eq(host_unfit_pause(&err, 300 * USEC_PER_SEC), 300 * USEC_PER_SEC);
	doctor.n = 4;
	host_unfit(&doctor, &err);
	ck_assert_int_eq(err.code, FAIL_HOST_UNFIT);
	ck_assert_str_eq(err_field(&err, "check"), "cgroup");
	ck_assert_str_eq(err_field(&err, "errors"), "2");
	ck_assert_int_eq(host_unfit_pause(&err, 300 * USEC_PER_SEC), 15 * USEC_PER_SEC);
	ck_assert_int_eq(host_unfit_pause(&err, USEC_PER_SEC), USEC_PER_SEC);
	doctor.n = 2;
	host_unfit(&doctor, &err);
	ck_assert_int_eq(err.code, FAIL_NONE);
}
END_TEST

START_TEST(a_host_without_kvm_says_what_to_do)
{
	struct err err = ERR_NULL;

	ck_assert_int_lt(kvm_check("/nonexistent/kvm", true, &err), 0);
	ck_assert_int_eq(err.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(err.err_no, ENOENT);
	ck_assert_ptr_nonnull(err_field(&err, "hint"));
	memset(&err, 0, sizeof(err));
	ck_assert_int_lt(kvm_check("/dev/null", true, &err), 0); /* a device, but not that one */
	ck_assert_int_eq(err.err_no, ENOTTY);
	ck_assert_int_eq(kvm_check("/dev/null", false, NULL), 0);
}
END_TEST

/* A KVM without VT-x or AMD-V below it makes VMs, and no kernel boots in them. */
START_TEST(a_kvm_without_hardware_is_none)
{
	char words[4096] = "";
	CLEANUP_FD int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	bool has;

	ck_assert(!kvm_is_hardware(0, 0));
	ck_assert(!kvm_is_hardware(~(1u << 5), ~(1u << 2)));
	ck_assert(kvm_is_hardware(1u << 5, 0)); /* VMX */
	ck_assert(kvm_is_hardware(0, 1u << 2)); /* SVM */
	ck_assert_int_gt(read(fd, words, sizeof(words) - 1), 0);
	has = strstr(words, " vmx ") || strstr(words, " svm ");
	ck_assert_int_eq(kvm_host_is_hardware(), has); /* the kernel's own word */
}
END_TEST

/* R121: absent, its module absent, not ours, in use: the errno is told, and what to do is another thing each time. */
START_TEST(each_way_to_have_no_kvm_has_its_hint)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char dir[64], path[96];
	struct err err = ERR_NULL;
	int fd;

	make_dir(dir);
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/none", dir);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_lt(kvm_check(addr.sun_path, true, &err), 0); /* a node without a driver behind it */
	ck_assert_int_eq(err.err_no, ENXIO);
	ck_assert_ptr_nonnull(strstr(err_field(&err, "hint"), "load kvm_intel or kvm_amd"));
	(void)fd_close(fd);

	(void)snprintf(path, sizeof(path), "%s/kvm", dir);
	ck_assert_int_eq(file_replace(path, "", 0, 0000), 0);
	ck_assert_int_eq(chmod(dir, 0755), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	memset(&err, 0, sizeof(err));
	ck_assert_int_lt(kvm_check(path, true, &err), 0);
	ck_assert_int_eq(err.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(err.err_no, EACCES);
	ck_assert_ptr_nonnull(strstr(err_field(&err, "hint"), "group kvm"));
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(dir_remove(dir), 0);

	/* what no test can bring about */
	ck_assert_ptr_nonnull(strstr(kvm_hint(ENODEV), "load kvm_intel or kvm_amd"));
	ck_assert_ptr_nonnull(strstr(kvm_hint(EBUSY), "another hypervisor"));
	ck_assert_ptr_nonnull(kvm_hint(EIO));
}
END_TEST

struct jail_row {
	const char *applied[5];
	struct {
		const char *step;
		int err_no;
	} missing[6];
	bool is_whole;
	const char *text;
};

static const struct jail_row jail_rows[] = {
	{ { NULL }, { { NULL, 0 } }, false, "this VMM has no jail" },
	{ { "namespaces", "root", "filters" }, { { NULL, 0 } }, true,
		"user namespace, empty root, filters" },
	{ { "user", "root", "filters", "cgroup" }, { { NULL, 0 } }, true,
		"uid of its own, empty root, filters, cgroup" },
	{ { "filters" }, { { "namespaces", ENOSPC }, { "root", EPERM }, { "capabilities", EPERM } }, false,
		"not applied: namespaces (ENOSPC) root capabilities (EPERM)" },
	{ { NULL }, { { "bad\nstep", 9999 } }, false, "not applied: bad?step (?)" },
	{ { NULL },
		{ { "a-step-with-a-long-name", 1 }, { "a-step-with-a-long-name", 2 },
			{ "a-step-with-a-long-name", 1 } },
		false, "not applied: a-step-with-a-long-name (EPERM) a-step-with-a-long" },
};

START_TEST(the_stage_says_what_of_the_jail_was_applied)
{
	const struct jail_row *row = &jail_rows[_i];
	Croft__VmmJailMissing missing[6], *pointers[6];
	char text[VMM_JAIL_TEXT_MAX];
	Croft__VmmJail jail;

	croft__vmm_jail__init(&jail);
	jail.applied = (char **)(uintptr_t)row->applied;
	jail.missing = pointers;
	while (row->applied[jail.n_applied])
		jail.n_applied++;
	for (; row->missing[jail.n_missing].step; jail.n_missing++) {
		pointers[jail.n_missing] = &missing[jail.n_missing];
		croft__vmm_jail_missing__init(&missing[jail.n_missing]);
		missing[jail.n_missing].step = (char *)(uintptr_t)row->missing[jail.n_missing].step;
		missing[jail.n_missing].err_no = row->missing[jail.n_missing].err_no;
	}
	ck_assert_int_eq(vmm_jail_describe(&jail, text), row->is_whole);
	ck_assert_str_eq(text, row->text);
	ck_assert(!vmm_jail_describe(NULL, text));
}
END_TEST

START_TEST(a_forbidden_system_call_is_reported_with_its_number)
{
	siginfo_t killed = { .si_code = CLD_KILLED, .si_status = SIGSYS };
	struct vmm_exit end;
	Croft__VmmExit record;
	uint8_t packed[256];
	char dir[64], path[96];

	make_dir(dir);
	(void)snprintf(path, sizeof(path), "%s/exit", dir);
	croft__vmm_exit__init(&record);
	record.reason = CROFT__VMM_EXIT_REASON__VMM_EXIT_SECCOMP;
	record.syscall = 257;
	record.syscall_argument = 0xae80;
	record.thread = 3;
	ck_assert_int_eq(
		file_replace(path, packed, croft__vmm_exit__pack(&record, packed), 0600), 0);
	vmm_exit_read(dir, NULL, &end);
	ck_assert_int_eq(end.reason, SV_EXIT_SECCOMP);
	ck_assert_int_eq(end.failure.code, FAIL_SECCOMP_VIOLATION);
	ck_assert_pstr_eq(err_field(&end.failure, "nr"), "257");
	ck_assert_pstr_eq(err_field(&end.failure, "argument"), "0xae80");
	ck_assert_pstr_eq(err_field(&end.failure, "thread"), "vCPU");
	ck_assert_int_eq(unlink(path), 0);
	vmm_exit_read(dir, &killed, &end); /* by the kernel, in the handler itself */
	ck_assert_int_eq(end.reason, SV_EXIT_SECCOMP);
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

START_TEST(why_a_newer_vmm_ended_is_named)
{
	char dir[64], path[96], code[] = "DISK_IS_TIRED", text[] = "it is";
	Croft__VmmFailure failure;
	struct vmm_exit end;
	Croft__VmmExit record;
	uint8_t packed[256];

	make_dir(dir);
	(void)snprintf(path, sizeof(path), "%s/exit", dir);
	croft__vmm_exit__init(&record);
	record.reason = (Croft__VmmExitReason)99;
	record.reached_userspace = true;
	ck_assert_int_eq(file_replace(path, packed, croft__vmm_exit__pack(&record, packed), 0600), 0);
	vmm_exit_read(dir, NULL, &end);
	ck_assert_int_eq(end.failure.code, FAIL_PEER_FAILURE);
	ck_assert_pstr_eq(err_field(&end.failure, "peer_code"), "exit reason 99");
	ck_assert(end.reached_userspace);
	croft__vmm_failure__init(&failure);
	failure.code = code;
	failure.message = text;
	record.failure = &failure;
	ck_assert_int_eq(file_replace(path, packed, croft__vmm_exit__pack(&record, packed), 0600), 0);
	vmm_exit_read(dir, NULL, &end);
	ck_assert_int_eq(end.failure.code, FAIL_VMM_START_FAILED);
	ck_assert_pstr_eq(err_field(&end.failure, "peer_code"), "DISK_IS_TIRED");
	record.reason = CROFT__VMM_EXIT_REASON__VMM_EXIT_UNSPECIFIED; /* none of any version */
	ck_assert_int_eq(file_replace(path, packed, croft__vmm_exit__pack(&record, packed), 0600), 0);
	vmm_exit_read(dir, NULL, &end);
	ck_assert_int_eq(end.reason, SV_EXIT_CRASHED);
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-parts");
	TCase *tcase = tcase_create("parts");

	tcase_add_loop_test(tcase, a_run_directory_is_short_enough_or_refused, 0, 7);
	tcase_add_test(tcase, places_must_be_absolute_and_sockets_follow_the_run_directory);
	tcase_add_loop_test(
		tcase, a_token_file_is_read_or_refused_by_name, 0, ARRAY_LEN(token_rows));
	tcase_add_test(tcase, an_identity_comes_back_and_two_directories_are_two_machines);
	tcase_add_test(tcase, a_journal_record_comes_back_whole);
	tcase_add_test(tcase, a_record_that_is_replaced_is_never_read_in_part);
	tcase_add_test(tcase, what_a_newer_agent_wrote_is_read_or_left_alone_by_name);
	tcase_add_test(tcase, an_empty_directory_promises_nothing_and_a_strange_name_is_left_alone);
	tcase_add_test(tcase, a_directory_that_cannot_be_read_is_said_and_left);
	tcase_add_test(tcase, jobs_of_one_key_keep_their_order);
	tcase_add_test(tcase, a_process_is_known_by_more_than_its_number);
	tcase_add_test(tcase, a_cpu_class_is_vendor_family_model);
	tcase_add_test(tcase, a_full_table_of_the_kernel_is_named);
	tcase_add_test(tcase, a_guest_that_counts_kills_without_end_is_told_once_a_minute);
	tcase_add_test(tcase, what_the_doctor_finds_keeps_out_but_for_the_disk);
	tcase_add_test(tcase, a_host_without_kvm_says_what_to_do);
	tcase_add_test(tcase, each_way_to_have_no_kvm_has_its_hint);
	tcase_add_test(tcase, a_kvm_without_hardware_is_none);
	tcase_add_loop_test(
		tcase, the_stage_says_what_of_the_jail_was_applied, 0, ARRAY_LEN(jail_rows));
	tcase_add_test(tcase, why_a_newer_vmm_ended_is_named);
	tcase_add_test(tcase, a_forbidden_system_call_is_reported_with_its_number);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
