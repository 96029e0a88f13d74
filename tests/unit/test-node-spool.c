/* SPDX-License-Identifier: Apache-2.0
 *
 * The telemetry spool: numbers without gaps over restarts, crashes and a full disk; nothing
 * forgotten before it was acknowledged.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/calls.h"
#include "agent/spool.h"
#include "agent/worker.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "wire/records.h"

#define SMALL 65536u

struct bench {
	char dir[64];
	struct event_base *base;
	struct worker *worker;
	struct spool *spool;
	uint64_t size;
};

static void bench_open(struct bench *bench)
{
	struct err err = ERR_NULL;

	ck_assert_int_eq(worker_new(&bench->worker, bench->base, 2, &err), 0);
	ck_assert_msg(spool_new(&bench->spool, bench->dir, bench->size, bench->worker, NULL, NULL,
			      &err) == 0,
		"%s", err.msg);
}

static void bench_close(struct bench *bench)
{
	worker_free(bench->worker);
	spool_free(bench->spool);
}

static void bench_init(struct bench *bench, uint64_t size)
{
	memset(bench, 0, sizeof(*bench));
	(void)snprintf(bench->dir, sizeof(bench->dir), "%s/croft-spool.XXXXXX",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(bench->dir));
	bench->base = event_base_new();
	bench->size = size;
	bench_open(bench);
}

static void bench_deinit(struct bench *bench)
{
	bench_close(bench);
	event_base_free(bench->base);
	ck_assert_int_eq(dir_remove(bench->dir), 0);
}

static struct spool_counts counts(const struct bench *bench)
{
	struct spool_counts ret;

	spool_counts(bench->spool, &ret);
	return ret;
}

static void add(struct bench *bench, const char *name)
{
	Croft__TelemetryRecord record;
	Croft__NodeEvent event;
	char copy[2048];

	(void)snprintf(copy, sizeof(copy), "%s", name);
	croft__telemetry_record__init(&record);
	croft__node_event__init(&event);
	event.name = copy;
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_EVENT;
	record.event = &event;
	spool_append(bench->spool, &record);
}

static void make_durable(struct bench *bench)
{
	while (counts(bench).durable < counts(bench).last)
		ck_assert_int_ge(event_base_loop(bench->base, EVLOOP_ONCE), 0);
}

/* The next record's event name, or "gap:<n>"; its number must be `seq`. "" when there is none. */
static const char *next(struct bench *bench, uint64_t seq)
{
	static char text[2048];
	Croft__TelemetryRecord *record = spool_next(bench->spool);

	text[0] = '\0';
	if (!record)
		return text;
	ck_assert_uint_eq(record->seq, seq);
	if (record->body_case == CROFT__TELEMETRY_RECORD__BODY_GAP)
		(void)snprintf(
			text, sizeof(text), "gap:%llu", (unsigned long long)record->gap->dropped);
	else
		(void)snprintf(text, sizeof(text), "%s", record->event->name);
	croft__telemetry_record__free_unpacked(record, NULL);
	return text;
}

START_TEST(comes_back_in_order_after_a_restart)
{
	struct bench bench;

	bench_init(&bench, SMALL);
	add(&bench, "one");
	add(&bench, "two");
	ck_assert_str_eq(next(&bench, 1), ""); /* not durable: its number might be used again */
	make_durable(&bench);
	ck_assert_str_eq(next(&bench, 1), "one");
	bench_close(&bench);
	bench_open(&bench);
	add(&bench, "three");
	make_durable(&bench);
	ck_assert_str_eq(next(&bench, 1), "one");
	ck_assert_str_eq(next(&bench, 2), "two");
	ck_assert_str_eq(next(&bench, 3), "three");
	ck_assert_str_eq(next(&bench, 4), "");
	bench_deinit(&bench);
}
END_TEST

START_TEST(sends_again_what_was_not_acknowledged)
{
	struct bench bench;

	bench_init(&bench, SMALL);
	add(&bench, "one");
	add(&bench, "two");
	add(&bench, "three");
	make_durable(&bench);
	for (uint64_t seq = 1; seq <= 3; seq++)
		(void)next(&bench, seq);
	spool_ack(bench.spool, 4); /* never sent: no word of ours */
	ck_assert_uint_eq(counts(&bench).acked, 0);
	spool_ack(bench.spool, 1);
	spool_unsend(bench.spool, 0);
	ck_assert_str_eq(next(&bench, 2), "two");
	spool_welcome(bench.spool, 2);
	ck_assert_str_eq(next(&bench, 3), "three");
	bench_deinit(&bench);
}
END_TEST

START_TEST(numbers_go_on_when_everything_was_acknowledged)
{
	struct bench bench;
	char name[64];

	bench_init(&bench, SMALL);
	for (unsigned int i = 1; i <= 3000; i++) {
		(void)snprintf(
			name, sizeof(name), "event-%u-with-some-length-to-fill-a-segment", i);
		add(&bench, name);
		make_durable(&bench);
		ck_assert_str_eq(next(&bench, i), name);
		spool_ack(bench.spool, i);
	}
	ck_assert_uint_eq(counts(&bench).dropped, 0);
	ck_assert_uint_lt(counts(&bench).size, SMALL / 2);
	bench_close(&bench);
	bench_open(&bench);
	spool_welcome(bench.spool, 3000);
	add(&bench, "next");
	make_durable(&bench);
	ck_assert_str_eq(next(&bench, 3001), "next");
	bench_deinit(&bench);
}
END_TEST

/* What has no room is counted, and the count itself is a record. */
START_TEST(a_full_spool_drops_the_newest_and_says_how_many)
{
	struct bench bench;
	char filler[1000];
	unsigned int kept, total = 200;
	uint64_t dropped;

	bench_init(&bench, SMALL);
	memset(filler, 'x', sizeof(filler) - 1);
	filler[sizeof(filler) - 1] = '\0';
	for (unsigned int i = 0; i < total; i++)
		add(&bench, filler);
	kept = (unsigned int)counts(&bench).last;
	dropped = counts(&bench).dropped;
	ck_assert_uint_gt(kept, 40);
	ck_assert_uint_eq(kept + dropped, total);
	ck_assert_uint_le(counts(&bench).size, SMALL);
	make_durable(&bench);
	for (unsigned int i = 1; i <= kept; i++)
		ck_assert_str_eq(next(&bench, i), filler);
	spool_ack(bench.spool, kept);
	add(&bench, "after");
	make_durable(&bench);
	(void)snprintf(filler, sizeof(filler), "gap:%llu", (unsigned long long)dropped);
	ck_assert_str_eq(next(&bench, kept + 1), filler);
	ck_assert_str_eq(next(&bench, kept + 2), "after");
	bench_deinit(&bench);
}
END_TEST

static void segment_name(const struct bench *bench, char *ret, size_t size)
{
	DIR *dir = opendir(bench->dir);
	struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	ret[0] = '\0';
	while ((entry = readdir(dir)))
		if (strstr(entry->d_name, ".seg"))
			(void)snprintf(ret, size, "%s/%s", bench->dir, entry->d_name);
	(void)closedir(dir);
	ck_assert(*ret);
}

START_TEST(a_torn_tail_is_cut_and_its_number_used_again)
{
	struct bench bench;
	char path[PATH_MAX];
	struct stat st;

	bench_init(&bench, SMALL);
	add(&bench, "one");
	add(&bench, "two");
	make_durable(&bench);
	bench_close(&bench);
	segment_name(&bench, path, sizeof(path));
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(truncate(path, st.st_size - 1 - _i), 0);
	bench_open(&bench);
	add(&bench, "other");
	make_durable(&bench);
	ck_assert_str_eq(next(&bench, 1), "one");
	ck_assert_str_eq(next(&bench, 2), "other");
	bench_deinit(&bench);
}
END_TEST

START_TEST(a_damaged_segment_costs_its_own_records)
{
	struct bench bench;
	char filler[1000], path[PATH_MAX];
	uint64_t last, to = 0;
	int fd;

	bench_init(&bench, SMALL);
	memset(filler, 'x', sizeof(filler) - 1);
	filler[sizeof(filler) - 1] = '\0';
	for (int i = 0; i < 40; i++)
		add(&bench, filler);
	make_durable(&bench);
	last = counts(&bench).last;
	(void)snprintf(path, sizeof(path), "%s/%016x.seg", bench.dir, 1);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_pwrite_all(fd, "?", 1, 1500), 0); /* in the second record */
	(void)fd_close(fd);
	ck_assert_str_eq(next(&bench, 1), filler);
	{
		Croft__TelemetryRecord *record = spool_next(bench.spool);

		ck_assert_ptr_nonnull(record);
		ck_assert_int_eq(record->body_case, CROFT__TELEMETRY_RECORD__BODY_GAP);
		to = record->seq;
		ck_assert_uint_eq(record->gap->dropped, to - 1);
		croft__telemetry_record__free_unpacked(record, NULL);
	}
	ck_assert_uint_lt(to, last);
	for (uint64_t seq = to + 1; seq <= last; seq++)
		ck_assert_str_eq(next(&bench, seq), filler);
	bench_deinit(&bench);
}
END_TEST

START_TEST(a_lost_directory_goes_on_behind_what_the_scheduler_has)
{
	struct bench bench;

	bench_init(&bench, SMALL);
	add(&bench, "one");
	add(&bench, "two");
	make_durable(&bench);
	spool_welcome(bench.spool, 500);
	add(&bench, "three");
	make_durable(&bench);
	ck_assert_str_eq(next(&bench, 501), "one");
	ck_assert_str_eq(next(&bench, 502), "two");
	ck_assert_str_eq(next(&bench, 503), "three");
	bench_deinit(&bench);
}
END_TEST

START_TEST(at_most_a_window_is_under_way)
{
	struct bench bench;
	unsigned int n = 0;

	bench_init(&bench, 1024 * 1024);
	for (unsigned int i = 0; i < SPOOL_WINDOW + 10; i++)
		add(&bench, "x");
	make_durable(&bench);
	while (*next(&bench, n + 1))
		n++;
	ck_assert_uint_eq(n, SPOOL_WINDOW);
	spool_ack(bench.spool, 5);
	for (unsigned int i = 0; i < 5; i++)
		ck_assert_str_eq(next(&bench, ++n), "x");
	ck_assert_str_eq(next(&bench, 0), "");
	bench_deinit(&bench);
}
END_TEST

/* Of what a gateway says only what is known goes into the spool. */
START_TEST(calls_without_what_a_guest_wrote)
{
	char sandbox[] = "aaaaaaaaaaaaaaaaaaaa", exec[] = "exec", vmm[] = "vmm", canary[] = "canary", code[] = "GUEST_UNREACHABLE",
	     trace[] = "4bf92f3577b34da6a3ce929d0e0e4736", other[] = "canary/canary/canary";
	Croft__GatewayCalls calls;
	Croft__FailureRecord failure;
	Croft__Field field, *fields[] = { &field };
	Croft__StageRecord good, bad_stage, bad_sandbox, bad_number, *list[] = { &good, &bad_stage, &bad_sandbox, &bad_number };
	Croft__TelemetryRecord *record;
	struct bench bench;
	uint8_t bytes[1024];

	bench_init(&bench, SMALL);
	croft__gateway_calls__init(&calls);
	croft__failure_record__init(&failure);
	croft__field__init(&field);
	field.key = field.value = failure.message = failure.operation = failure.component = failure.sandbox = canary;
	failure.fields = fields;
	failure.n_fields = 1;
	failure.code = code;
	croft__stage_record__init(&good);
	good.stage = exec;
	good.outcome = CROFT__OUTCOME__OUTCOME_FAILED;
	good.failure = &failure;
	good.sandbox = sandbox;
	good.trace_id = trace;
	good.n_alike = 1000;
	good.span_id = good.reason = good.operation = good.node = canary;
	bad_stage = bad_sandbox = bad_number = good;
	bad_stage.stage = vmm;
	bad_sandbox.sandbox = other;
	bad_number.n_alike = STAGE_ALIKE_MAX + 1;
	calls.records = list;
	calls.n_records = ARRAY_LEN(list);
	calls.lost = 5;
	calls_keep(bench.spool, &calls);
	ck_assert_uint_eq(counts(&bench).last, 2);
	make_durable(&bench);
	record = spool_next(bench.spool);
	ck_assert_str_eq(record->stage->failure->code, "GUEST_UNREACHABLE");
	ck_assert_str_eq(record->stage->failure->component, "guest");
	ck_assert_str_eq(record->stage->trace_id, trace);
	ck_assert_uint_eq(record->stage->n_alike, 1000);
	ck_assert_ptr_null(memmem(bytes, croft__telemetry_record__pack(record, bytes), "canary", 6));
	croft__telemetry_record__free_unpacked(record, NULL);
	record = spool_next(bench.spool);
	ck_assert_uint_eq(record->gap->dropped, 5);
	croft__telemetry_record__free_unpacked(record, NULL);
	bench_deinit(&bench);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-spool");
	TCase *tcase = tcase_create("spool");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, comes_back_in_order_after_a_restart);
	tcase_add_test(tcase, calls_without_what_a_guest_wrote);
	tcase_add_test(tcase, sends_again_what_was_not_acknowledged);
	tcase_add_test(tcase, numbers_go_on_when_everything_was_acknowledged);
	tcase_add_test(tcase, a_full_spool_drops_the_newest_and_says_how_many);
	tcase_add_loop_test(tcase, a_torn_tail_is_cut_and_its_number_used_again, 0, 12);
	tcase_add_test(tcase, a_damaged_segment_costs_its_own_records);
	tcase_add_test(tcase, a_lost_directory_goes_on_behind_what_the_scheduler_has);
	tcase_add_test(tcase, at_most_a_window_is_under_way);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
