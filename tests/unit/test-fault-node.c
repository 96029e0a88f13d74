/* SPDX-License-Identifier: Apache-2.0
 *
 * The node when memory or the disk fails at each point in turn: the supervisor loses no action without saying so, the
 * journal and the spool are whole afterwards and lose nothing that was promised, an image is there verified or not at
 * all.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/image-file.h"
#include "agent/journal.h"
#include "agent/spool.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/supervisor.h"
#include "lib/fault.h"
#include "lib/loop.h"
#include "lib/suite.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"
#define OTHER "cccccccccccccccccccc"
#define OP "bbbbbbbbbbbbbbbbbbbb"
#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char dir[64];

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "%s/croft-fault.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
}

/* ---- the supervisor: create to running to ended ---- */

struct run {
	struct supervisor *core;
	struct rng rng;
	struct moment now;
	struct sv_actions out;
	bool gave_up; /* a step said no_memory: the shell ends the process */
	enum report_state last;
	size_t n_stages;
	bool was_removed;
};

static void look(struct run *run)
{
	if (run->out.no_memory) {
		run->gave_up = true;
		return;
	}
	for (size_t i = 0; i < run->out.n; i++) {
		const struct sv_action *action = &run->out.items[i];

		if (action->type == SV_DO_SEND_REPORT) {
			run->last = action->report->state;
			run->n_stages = action->report->n_stages;
		}
		run->was_removed |= action->type == SV_DO_JOURNAL_REMOVE;
	}
}

static void feed(struct run *run, struct sv_event event)
{
	if (run->gave_up)
		return;
	event.epoch = 1;
	sv_actions_clear(&run->out);
	supervisor_step(run->core, run->now, &run->rng, &event, &run->out);
	look(run);
}

static struct sv_event of(enum sv_event_type type)
{
	struct sv_event event = { .type = type, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	return event;
}

static struct sandbox_spec *spec_make(void)
{
	struct sandbox_spec *spec = spec_new();

	ck_assert_ptr_nonnull(spec);
	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	spec->vcpus = 1;
	spec->memory_mib = 100;
	spec->disk_mib = 10;
	return spec;
}

static void feed_start(struct run *run)
{
	static const struct sv_vmm_id vmm = { .pid = 4711, .start_ticks = 5 };
	struct sv_event event;

	feed(run, of(SV_EV_JOURNALLED));
	feed(run, of(SV_EV_IMAGE_DONE));
	feed(run, of(SV_EV_DISK_DONE));
	event = of(SV_EV_NETWORK_DONE);
	event.network.is_made = true;
	event.network.text = "slot";
	feed(run, event);
	event = of(SV_EV_VMM_SPAWNED);
	event.spawned.vmm = &vmm;
	feed(run, event);
	event = of(SV_EV_VMM_JAILED);
	event.jailed.is_whole = true;
	event.jailed.text = "seccomp";
	feed(run, event);
	feed(run, of(SV_EV_VMM_STARTED));
	feed(run, of(SV_EV_VMM_USERSPACE));
	event = of(SV_EV_GUEST_HELLO);
	event.guest.boot_id = "guest-boot";
	feed(run, event);
	feed(run, of(SV_EV_GUEST_CONFIGURED));
	feed(run, of(SV_EV_JOURNALLED));
}

static void feed_life(struct run *run, const struct create_command *create)
{
	struct destroy_command destroy = { .sandbox = ID, .operation = OP, .generation = 1, .reason = END_REQUEST };
	struct report_ack ack = { .sandbox = ID, .generation = 1, .version = 1000 };
	struct sv_event event = { .type = SV_EV_CREATE, .create = create };

	feed(run, event);
	feed_start(run);
	fault_hold();
	if (!run->gave_up) {
		ck_assert_int_eq(run->last, REPORT_RUNNING);
		ck_assert_uint_eq(run->n_stages, STAGE_READY - STAGE_ACCEPT + 1);
	}
	fault_go_on();
	feed(run, (struct sv_event){ .type = SV_EV_DESTROY, .destroy = &destroy });
	run->now.mono_usec += 100 * USEC_PER_SEC;
	feed(run, (struct sv_event){ .type = SV_EV_TICK });
	feed(run, of(SV_EV_VMM_EXITED));
	feed(run, of(SV_EV_REMOVED));
	fault_hold();
	if (!run->gave_up)
		ck_assert_int_eq(run->last, REPORT_ENDED);
	fault_go_on();
	feed(run, (struct sv_event){ .type = SV_EV_REPORT_ACK, .ack = &ack });
}

START_TEST(the_supervisor_says_when_it_lost_an_action)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 10000 };
	struct welcome welcome = { .node = OTHER, .pool = "pool", .heartbeat_ms = 1000 };
	unsigned long k;

	for (k = 1;; k++) {
		struct run run = { .rng = rng_seeded(1), .now = { .mono_usec = 1000, .real_usec = 1000 } };
		struct create_command create = { .sandbox = ID, .operation = OP, .generation = 1, .attempt = 1 };
		struct sv_config config;
		bool failed;

		sv_config_default(&config);
		memcpy(config.host_boot_id, "boot", 5);
		memcpy(config.run_base, "/run/croft", 11);
		ck_assert_int_eq(supervisor_new(&run.core, &config), 0);
		feed(&run, (struct sv_event){ .type = SV_EV_START });
		feed(&run, (struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
		feed(&run, (struct sv_event){ .type = SV_EV_LINK_UP });
		feed(&run, (struct sv_event){ .type = SV_EV_WELCOME, .welcome = &welcome });
		create.spec = spec_make();
		fault_arm(FAULT_MEMORY, k);
		feed_life(&run, &create);
		failed = fault_disarm();
		if (!failed) {
			ck_assert(!run.gave_up);
			ck_assert(run.was_removed);
		}
		sv_actions_clear(&run.out);
		free(run.out.items);
		spec_unref(create.spec);
		supervisor_free(run.core);
		if (!failed)
			break;
	}
	ck_assert_uint_gt(k, 50);
}
END_TEST

/* ---- the journal ---- */

static struct sv_journal *journal_make(enum sv_state state)
{
	struct sv_journal *journal = calloc(1, sizeof(*journal));

	ck_assert_ptr_nonnull(journal);
	memcpy(journal->sandbox, ID, ID_SIZE);
	memcpy(journal->operation, OP, ID_SIZE);
	journal->generation = 7;
	journal->state = state;
	journal->spec = spec_make();
	journal->stages = calloc(1, sizeof(*journal->stages));
	ck_assert_ptr_nonnull(journal->stages);
	journal->n_stages = 1;
	journal->stages[0].stage = STAGE_IMAGE;
	journal->stages[0].outcome = RESULT_OK;
	return journal;
}

static int journal_save(const struct sv_journal *journal, struct err *reterr)
{
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size;
	int r = journal_pack(journal, &data, &size);

	return r < 0 ? r : journal_write(dir, journal->sandbox, data, size, reterr);
}

struct loaded {
	unsigned int n, torn;
	enum sv_state state;
};

static void on_loaded(const char *sandbox, const struct sv_journal *journal, const struct err *err, void *user)
{
	struct loaded *loaded = user;

	(void)err;
	fault_hold();
	ck_assert_str_eq(sandbox, ID);
	fault_go_on();
	loaded->n++;
	if (journal)
		loaded->state = journal->state;
	else
		loaded->torn++;
}

static struct loaded load(void)
{
	struct loaded loaded = { .state = SV_STATE_MAX_ };
	struct err err = ERR_NULL;

	ck_assert_msg(journal_load(dir, on_loaded, &loaded, &err) == 0, "%s", err.msg);
	return loaded;
}

static const unsigned int kinds[] = { FAULT_MEMORY, FAULT_FILE };

/* After a write that failed the former state is there, or the new one: never a torn one, never none. */
START_TEST(a_journal_write_is_all_or_nothing)
{
	struct sv_journal *before = journal_make(SV_IMAGE), *after = journal_make(SV_RUNNING);
	struct err err = ERR_NULL;

	for (unsigned long k = 1;; k++) {
		struct loaded loaded;
		int r;

		ck_assert_int_eq(journal_save(before, &err), 0);
		fault_arm(kinds[_i], k);
		r = journal_save(after, &err);
		if (!fault_disarm()) {
			ck_assert_int_eq(r, 0);
			ck_assert_int_eq(load().state, SV_RUNNING);
			break;
		}
		loaded = load();
		ck_assert_uint_eq(loaded.n, 1);
		ck_assert_uint_eq(loaded.torn, 0);
		ck_assert(loaded.state == SV_RUNNING || (r < 0 && loaded.state == SV_IMAGE));
		err = (struct err)ERR_NULL;
	}
	sv_journal_deinit(before);
	sv_journal_deinit(after);
	free(before);
	free(after);
}
END_TEST

/* Reading never removes what it could not read. */
START_TEST(a_journal_that_cannot_be_read_now_is_still_there)
{
	struct sv_journal *journal = journal_make(SV_RUNNING);
	struct err err = ERR_NULL;

	ck_assert_int_eq(journal_save(journal, &err), 0);
	for (unsigned long k = 1;; k++) {
		struct loaded loaded = { .state = SV_STATE_MAX_ };
		bool failed;
		int r;

		fault_arm(kinds[_i], k);
		r = journal_load(dir, on_loaded, &loaded, &err);
		failed = fault_disarm();
		if (!failed) {
			ck_assert_int_eq(r, 0);
			ck_assert_int_eq(loaded.state, SV_RUNNING);
			break;
		}
		ck_assert_msg(r < 0 || loaded.n == 1, "call %lu: the sandbox was passed over", k);
		ck_assert_int_eq(load().state, SV_RUNNING);
		err = (struct err)ERR_NULL;
	}
	sv_journal_deinit(journal);
	free(journal);
}
END_TEST

/* ---- the spool ---- */

struct bench {
	struct event_base *base;
	struct worker *worker;
	struct spool *spool;
};

static void bench_open(struct bench *bench)
{
	struct err err = ERR_NULL;

	ck_assert_int_eq(worker_new(&bench->worker, bench->base, 1, &err), 0);
	ck_assert_msg(spool_new(&bench->spool, dir, 65536, bench->worker, NULL, NULL, &err) == 0, "%s", err.msg);
}

static void bench_close(struct bench *bench)
{
	worker_free(bench->worker);
	spool_free(bench->spool);
}

static void append(struct bench *bench, unsigned int number)
{
	Croft__TelemetryRecord record;
	Croft__NodeEvent event;
	char name[1200]; /* some segments */

	memset(name, 'x', sizeof(name));
	(void)snprintf(name + sizeof(name) - 16, 16, "%u", number);
	croft__telemetry_record__init(&record);
	croft__node_event__init(&event);
	event.name = name;
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_EVENT;
	record.event = &event;
	spool_append(bench->spool, &record);
}

static void make_durable(struct bench *bench)
{
	Croft__TelemetryRecord *record;
	struct spool_counts counts;

	for (;;) {
		spool_counts(bench->spool, &counts);
		if (counts.durable == counts.last)
			return;
		record = spool_next(bench->spool); /* begins a sync that could not be begun */
		if (record)
			croft__telemetry_record__free_unpacked(record, NULL);
		ck_assert_int_ge(event_base_loop(bench->base, EVLOOP_ONCE), 0);
	}
}

/* Everything that was appended is there in its order, or counted in a gap in its place. */
static void drain(struct bench *bench, unsigned int n_appended)
{
	unsigned int next = 1, gaps = 0;
	Croft__TelemetryRecord *record;
	uint64_t seq = 0;

	while (next <= n_appended) {
		record = spool_next(bench->spool);
		ck_assert_msg(record != NULL, "behind %u nothing comes", next);
		ck_assert_uint_gt(record->seq, seq);
		seq = record->seq;
		if (record->body_case == CROFT__TELEMETRY_RECORD__BODY_GAP) {
			next += (unsigned int)record->gap->dropped;
			gaps++;
		} else {
			unsigned int number = (unsigned int)strtoul(record->event->name + strspn(record->event->name, "x"),
				NULL, 10);

			ck_assert_msg(number == 0 || number == next, "%u instead of %u", number, next);
			next += number != 0;
		}
		croft__telemetry_record__free_unpacked(record, NULL);
		spool_ack(bench->spool, seq);
	}
	ck_assert_uint_le(gaps, 1);
}

#define APPENDED 40u

START_TEST(the_spool_keeps_or_counts_each_record)
{
	struct bench bench = { .base = event_base_new() };
	unsigned long k;

	for (k = 1;; k++) {
		struct spool_counts counts;
		bool failed;

		bench_open(&bench);
		fault_arm(kinds[_i], k);
		for (unsigned int i = 1; i <= APPENDED; i++)
			append(&bench, i);
		failed = fault_disarm();
		append(&bench, APPENDED + 1); /* with this one a gap is told, where there is one */
		make_durable(&bench);
		spool_counts(bench.spool, &counts);
		ck_assert_uint_le(counts.dropped, 1);
		ck_assert(failed || counts.dropped == 0);
		bench_close(&bench); /* and again from the disk */
		bench_open(&bench);
		drain(&bench, APPENDED + 1);
		bench_close(&bench);
		ck_assert_int_eq(dir_remove(dir), 0);
		ck_assert_int_eq(mkdir(dir, 0700), 0);
		if (!failed)
			break;
	}
	ck_assert_uint_gt(k, 5);
	event_base_free(bench.base);
}
END_TEST

/* Opening and reading: what cannot be read now is not counted as lost. */
START_TEST(the_spool_reads_again_what_it_could_not)
{
	struct bench bench = { .base = event_base_new() };

	bench_open(&bench);
	for (unsigned int i = 1; i <= APPENDED; i++)
		append(&bench, i);
	make_durable(&bench);
	bench_close(&bench);
	for (unsigned long k = 1;; k++) {
		struct err err = ERR_NULL;
		bool failed;

		ck_assert_int_eq(worker_new(&bench.worker, bench.base, 1, &err), 0);
		fault_arm(FAULT_MEMORY, k);
		if (spool_new(&bench.spool, dir, 65536, bench.worker, NULL, NULL, &err) < 0) {
			failed = fault_disarm();
			ck_assert(failed && err_is_set(&err));
			worker_free(bench.worker);
			continue;
		}
		for (unsigned int i = 1; i <= APPENDED; i++) {
			Croft__TelemetryRecord *record = spool_next(bench.spool);

			if (!record) /* not now */
				record = spool_next(bench.spool);
			fault_hold();
			ck_assert_ptr_nonnull(record);
			ck_assert_uint_eq(record->seq, i);
			ck_assert_int_eq(record->body_case, CROFT__TELEMETRY_RECORD__BODY_EVENT);
			fault_go_on();
			croft__telemetry_record__free_unpacked(record, NULL);
		}
		failed = fault_disarm();
		bench_close(&bench);
		if (!failed)
			break;
	}
	event_base_free(bench.base);
}
END_TEST

/* ---- images ---- */

static const char content[] = "these are the bytes of an image";

static int fetch(const char *digest, struct err *reterr)
{
	struct image_file file;
	atomic_bool stop = false;
	bool present = false;
	int r = image_file_init(&file, dir, digest);

	if (r < 0)
		(void)err_set(reterr, FAIL_NO_MEMORY, -r, "no memory");
	if (r == 0)
		r = image_file_open(&file, &stop, &present, reterr);
	/* as after a break: the rest of it */
	if (r == 0 && !present && file.offset < strlen(content))
		r = image_file_write(&file, &content[file.offset], (strlen(content) - file.offset + 1) / 2, reterr);
	if (r == 0 && !present && file.offset < strlen(content))
		r = image_file_write(&file, &content[file.offset], strlen(content) - file.offset, reterr);
	if (r == 0 && !present)
		r = image_file_finish(&file, reterr);
	image_file_deinit(&file);
	return r;
}

START_TEST(an_image_is_whole_or_not_there)
{
	static const unsigned int all[] = { FAULT_MEMORY, FAULT_FILE, FAULT_SHORT };
	char digest[DIGEST_SIZE] = "sha256:", path[PATH_MAX];
	unsigned char sum[EVP_MAX_MD_SIZE];

	ck_assert_int_eq(EVP_Digest(content, strlen(content), sum, NULL, EVP_sha256(), NULL), 1);
	for (unsigned int i = 0; i < 32; i++)
		(void)snprintf(digest + 7 + 2 * i, 3, "%02x", sum[i]);
	(void)snprintf(path, sizeof(path), "%s/%s", dir, digest);
	for (unsigned long k = 1;; k++) {
		CLEANUP_FREE char *found = NULL;
		struct err err = ERR_NULL;
		bool failed;
		int r;

		fault_arm(all[_i], k);
		r = fetch(digest, &err);
		failed = fault_disarm();
		ck_assert(r == 0 || (failed && err_is_set(&err)));
		ck_assert(r == 0 || err.code != FAIL_IMAGE_DIGEST_MISMATCH); /* nobody's bytes are wrong */
		if (r == 0 || access(path, F_OK) == 0) {
			ck_assert_int_eq(file_read(path, 1000, &found, NULL), 0);
			ck_assert_str_eq(found, content);
		}
		err = (struct err)ERR_NULL;
		ck_assert_msg(fetch(digest, &err) == 0, "the next try (k %lu): %s", k, err.msg);
		ck_assert_int_eq(dir_remove(dir), 0);
		ck_assert_int_eq(mkdir(dir, 0700), 0);
		if (!failed)
			break;
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault-node");
	TCase *tcase = tcase_create("faults");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, the_supervisor_says_when_it_lost_an_action);
	tcase_add_loop_test(tcase, a_journal_write_is_all_or_nothing, 0, (int)ARRAY_LEN(kinds));
	tcase_add_loop_test(tcase, a_journal_that_cannot_be_read_now_is_still_there, 0, (int)ARRAY_LEN(kinds));
	tcase_add_loop_test(tcase, the_spool_keeps_or_counts_each_record, 0, (int)ARRAY_LEN(kinds));
	tcase_add_test(tcase, the_spool_reads_again_what_it_could_not);
	tcase_add_loop_test(tcase, an_image_is_whole_or_not_there, 0, 3);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
