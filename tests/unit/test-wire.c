/* SPDX-License-Identifier: Apache-2.0
 *
 * What the link is made of besides its sockets: the dispatch table, the envelope, records, credit windows,
 * keys.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rng.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "test-wire-rig.h"
#include "wire/check.h"
#include "wire/credit.h"
#include "wire/endpoint.h"

static struct bytes frame; /* too large for a stack under ASan; each test runs in its own process */

/* ---- dispatch ---- */

enum role { ROLE_TOKEN, ROLE_NODE };
enum state { NEW, READY };

struct call {
	unsigned int calls;
	uint64_t seq;
	char text[64];
};

static int on_enroll(void *user, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	struct call *call = user;

	(void) reterr;
	call->calls++;
	call->seq = head->seq;
	(void) snprintf(call->text, sizeof(call->text), "%s", envelope->enroll->hostname);
	return 0;
}

static int on_heartbeat(void *user, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct call *call = user;

	(void) head;
	call->calls++;
	return envelope->heartbeat->running == 99 ?
		err_set(reterr, FAIL_AUTH_WRONG_NODE, EPERM, "not that one") : 0;
}

static const struct dispatch_row rows[] = {
	{ CROFT__ENVELOPE__BODY_ENROLL, DISPATCH_IN(ROLE_TOKEN), DISPATCH_ANY, 4096, on_enroll },
	{ CROFT__ENVELOPE__BODY_HEARTBEAT, DISPATCH_IN(ROLE_NODE), DISPATCH_IN(READY), 100, on_heartbeat },
	{ CROFT__ENVELOPE__BODY_REFUSED, DISPATCH_IN(ROLE_NODE), DISPATCH_IN(READY), 4096, on_heartbeat },
};

static uint8_t *pack_enroll(size_t host_size, size_t *ret_size)
{
	struct envelope_head head = { .seq = 5 };
	char *host = calloc(1, host_size + 1);
	Croft__Envelope envelope;
	Croft__Enroll enroll;
	uint8_t *data;

	ck_assert_ptr_nonnull(host);
	memset(host, 'h', host_size);
	croft__envelope__init(&envelope);
	croft__enroll__init(&enroll);
	enroll.hostname = host;
	envelope.body_case = CROFT__ENVELOPE__BODY_ENROLL;
	envelope.enroll = &enroll;
	data = envelope_pack(&head, &envelope, ret_size);
	free(host);
	return data;
}

static uint8_t *pack_heartbeat(uint32_t running, size_t *ret_size)
{
	struct envelope_head head = { .seq = 6 };
	Croft__Envelope envelope;
	Croft__Heartbeat heartbeat;

	croft__envelope__init(&envelope);
	croft__heartbeat__init(&heartbeat);
	heartbeat.running = running;
	envelope.body_case = CROFT__ENVELOPE__BODY_HEARTBEAT;
	envelope.heartbeat = &heartbeat;
	return envelope_pack(&head, &envelope, ret_size);
}

static void expect_result(struct dispatch *table, const void *data, size_t size, unsigned int role, unsigned int state,
	struct call *call, enum dispatch_result expected, enum fail_code code)
{
	struct envelope_head head;
	struct err err = ERR_NULL;
	uint64_t before = table->counts[expected];
	enum dispatch_result result = dispatch(table, data, size, role, state, call, &head, &err);

	ck_assert_msg(result == expected, "%s, not %s: %s", dispatch_result_name(result),
		dispatch_result_name(expected), err.msg);
	ck_assert_int_eq(err.code, code);
	ck_assert_uint_eq(table->counts[expected], before + 1);
	ck_assert_int_eq(dispatch_is_answerable(result, &head),
		result != DISPATCH_OK && result != DISPATCH_MALFORMED && head.seq != 0);
}

START_TEST(test_dispatch)
{
	struct dispatch table = { .rows = rows, .n_rows = ARRAY_LEN(rows) };
	struct call call = { 0 };
	uint8_t *data;
	size_t size;

	data = pack_enroll(4, &size);
	expect_result(&table, data, size, ROLE_TOKEN, NEW, &call, DISPATCH_OK, FAIL_NONE);
	ck_assert_uint_eq(call.calls, 1);
	ck_assert_uint_eq(call.seq, 5);
	ck_assert_str_eq(call.text, "hhhh");
	expect_result(&table, data, size, ROLE_NODE, NEW, &call, DISPATCH_FORBIDDEN, FAIL_FORBIDDEN);
	expect_result(&table, data, size, 32, NEW, &call, DISPATCH_FORBIDDEN, FAIL_FORBIDDEN);
	expect_result(&table, data, size - 1, ROLE_TOKEN, NEW, &call, DISPATCH_MALFORMED, FAIL_FRAME_INVALID);
	free(data);
	data = pack_enroll(5000, &size);
	expect_result(&table, data, size, ROLE_TOKEN, NEW, &call, DISPATCH_TOO_LARGE, FAIL_FRAME_INVALID);
	free(data);
	data = pack_heartbeat(1, &size);
	ck_assert_uint_le(size, 100); /* design.md 5 */
	expect_result(&table, data, size, ROLE_NODE, NEW, &call, DISPATCH_STATE, FAIL_CONFLICT);
	expect_result(&table, data, size, ROLE_TOKEN, READY, &call, DISPATCH_FORBIDDEN, FAIL_FORBIDDEN);
	expect_result(&table, data, size, ROLE_NODE, READY, &call, DISPATCH_OK, FAIL_NONE);
	ck_assert_uint_eq(call.calls, 2);
	free(data);
	data = pack_heartbeat(99, &size);
	expect_result(&table, data, size, ROLE_NODE, READY, &call, DISPATCH_FAILED, FAIL_AUTH_WRONG_NODE);
	free(data);
	ck_assert_uint_eq(call.calls, 3); /* what was refused never reached a handler */
	frame.size = 0;
	expect_result(&table, frame.data, 0, ROLE_NODE, READY, &call, DISPATCH_VERSION, FAIL_VERSION_UNSUPPORTED);
}
END_TEST

START_TEST(test_dispatch_version)
{
	struct dispatch table = { .rows = rows, .n_rows = ARRAY_LEN(rows) };
	struct call call = { 0 };

	for (uint32_t major = 0; major < 4; major++) {
		bool ours = major == LINK_VERSION_MAJOR;

		frame.size = 0;
		put_tag(&frame, 1, 0);
		put_varint(&frame, major);
		put_tag(&frame, 2, 0);
		put_varint(&frame, 77); /* a higher minor version passes */
		put_bytes(&frame, 12, "", 0);
		expect_result(&table, frame.data, frame.size, ROLE_NODE, READY, &call,
			ours ? DISPATCH_OK : DISPATCH_VERSION, ours ? FAIL_NONE : FAIL_VERSION_UNSUPPORTED);
	}
	/* bodies that no row names, or that this version does not know */
	for (uint32_t body = 13; body < 100; body = body == 13 ? 99 : 100) {
		frame.size = 0;
		put(&frame, "\x08\x01\x20\x05", 4);
		put_bytes(&frame, body, "", 0);
		expect_result(&table, frame.data, frame.size, ROLE_NODE, READY, &call, DISPATCH_UNSUPPORTED,
			FAIL_FRAME_UNSUPPORTED);
	}
	/* two bodies: the last one counts in the judgement and in the unpacked message alike */
	frame.size = 0;
	put(&frame, "\x08\x01", 2);
	put_bytes(&frame, 12, "", 0);
	put_bytes(&frame, 10, "", 0);
	expect_result(&table, frame.data, frame.size, ROLE_NODE, READY, &call, DISPATCH_FORBIDDEN, FAIL_FORBIDDEN);
}
END_TEST

START_TEST(test_envelope)
{
	size_t size, refused_size;
	uint8_t *data = make_report(&size), *refused;
	Croft__Envelope *back = (Croft__Envelope *) (void *) check_unpack(&croft__envelope__descriptor, data, size, NULL);
	struct dispatch table = { .rows = rows, .n_rows = ARRAY_LEN(rows) };
	struct envelope_head head;
	struct stage_record record;
	struct err err = ERR_NULL;

	ck_assert_ptr_nonnull(back);
	ck_assert_uint_eq(back->version_major, LINK_VERSION_MAJOR);
	ck_assert_uint_eq(back->epoch, 7);
	ck_assert_uint_eq(back->ack, 3);
	ck_assert_uint_eq(back->deadline_ms, 1500);
	ck_assert_uint_eq(strlen(back->traceparent), TRACEPARENT_SIZE - 1);
	ck_assert_int_eq(stage_record_decode(back->report->stages[2], &record), 0);
	ck_assert_int_eq(record.stage, STAGE_VMM);
	ck_assert_int_eq(record.failure.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(record.failure.err_no, EACCES);
	ck_assert_str_eq(err_field(&record.failure, "path"), "/dev/kvm");
	protobuf_c_message_free_unpacked(&back->base, NULL);
	/* the same through dispatch(): the head is read without unpacking */
	ck_assert_int_eq(dispatch(&table, data, size, ROLE_NODE, READY, NULL, &head, &err), DISPATCH_UNSUPPORTED);
	ck_assert_uint_eq(head.seq, 9);
	ck_assert_uint_eq(head.epoch, 7);
	ck_assert_uint_eq(strlen(head.trace.trace_id), 32);
	refused = envelope_pack_refused(&head, head.seq, &err, &refused_size);
	ck_assert_ptr_nonnull(refused);
	back = (Croft__Envelope *) (void *) check_unpack(&croft__envelope__descriptor, refused, refused_size, NULL);
	ck_assert_ptr_nonnull(back);
	ck_assert_int_eq(back->body_case, CROFT__ENVELOPE__BODY_REFUSED);
	ck_assert_uint_eq(back->refused->seq, 9);
	ck_assert_str_eq(back->refused->failure->code, "FRAME_UNSUPPORTED");
	protobuf_c_message_free_unpacked(&back->base, NULL);
	ck_assert(!dispatch_is_answerable(DISPATCH_FAILED,
		&(struct envelope_head) { .seq = 1, .body = CROFT__ENVELOPE__BODY_REFUSED }));
	free(refused);
	free(data);
}
END_TEST

START_TEST(test_envelope_too_large)
{
	size_t size = 0;
	uint8_t *data = pack_enroll(ENDPOINT_FRAME_MAX - 64, &size);

	ck_assert_ptr_nonnull(data);
	free(data);
	ck_assert_ptr_null(pack_enroll(ENDPOINT_FRAME_MAX, &size));
}
END_TEST

/* ---- records ---- */

START_TEST(test_record_unknown_names)
{
	Croft__FailureRecord record;
	Croft__StageRecord stage;
	struct stage_record plain;
	char code[] = "FROM_THE_FUTURE", name[] = "no-such-stage", vmm[] = "vmm";
	struct err err;

	croft__failure_record__init(&record);
	record.code = code;
	record.stage = name;
	record.err_no = -5;
	failure_decode(&record, &err);
	ck_assert(err_is_set(&err)); /* never "no error" */
	ck_assert_int_eq(err.code, FAIL_PEER_FAILURE);
	ck_assert_str_eq(err_field(&err, "peer_code"), "FROM_THE_FUTURE");
	ck_assert_int_eq(err.stage, STAGE_NONE);
	ck_assert_int_eq(err.err_no, 0);
	croft__stage_record__init(&stage);
	stage.stage = name;
	stage.outcome = CROFT__OUTCOME__OUTCOME_OK;
	ck_assert_int_eq(stage_record_decode(&stage, &plain), -EINVAL);
	stage.stage = vmm;
	ck_assert_int_eq(stage_record_decode(&stage, &plain), 0);
	stage.outcome = CROFT__OUTCOME__OUTCOME_UNSPECIFIED;
	ck_assert_int_eq(stage_record_decode(&stage, &plain), -EINVAL);
}
END_TEST

START_TEST(test_record_long_texts)
{
	struct err err = ERR_NULL, back;
	char text[1000];
	Croft__FailureRecord *record;

	memset(text, 't', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void) err_set(&err, FAIL_DISK_FULL, ENOSPC, "%s", text);
	for (int i = 0; i < ERR_FIELDS_MAX + 2; i++)
		err_add(&err, text, "%s", text);
	record = failure_encode(&err);
	ck_assert_ptr_nonnull(record);
	failure_decode(record, &back);
	ck_assert_int_eq(memcmp(&err, &back, sizeof(err)), 0);
	protobuf_c_message_free_unpacked(&record->base, NULL);
}
END_TEST

/* ---- credit ---- */

START_TEST(test_credit)
{
	struct credit_out out = { 0 };
	struct credit_in in;
	uint64_t sent = 0;
	struct rng rng = rng_seeded(3);

	ck_assert_uint_eq(credit_out_take(&out, 10), 0);
	ck_assert(credit_out_grant(&out, CREDIT_WINDOW));
	ck_assert_uint_eq(credit_out_take(&out, 1000000), CREDIT_FRAME_MAX);
	ck_assert_uint_eq(credit_out_take(&out, 7), 7);
	ck_assert_uint_eq(out.left, CREDIT_WINDOW - CREDIT_FRAME_MAX - 7);
	ck_assert(!credit_out_grant(&out, UINT64_MAX));
	ck_assert(!credit_out_grant(&out, UINT64_C(1) << 40));
	ck_assert_uint_eq(out.left, CREDIT_WINDOW - CREDIT_FRAME_MAX - 7);

	/* a whole stream: never more under way than the window, and never a stall */
	credit_in_init(&in, CREDIT_WINDOW);
	out.left = CREDIT_WINDOW;
	while (sent < 10 * 1024 * 1024) {
		uint64_t held = 0, n;

		while ((n = credit_out_take(&out, 1 + rng_below(&rng, 100000))) > 0) {
			ck_assert(credit_in_receive(&in, n));
			held += n;
			sent += n;
		}
		ck_assert_uint_le(held, CREDIT_WINDOW);
		ck_assert(!credit_in_receive(&in, in.granted + 1));
		while (held > 0) {
			n = 1 + rng_below(&rng, 50000);
			n = MIN(held, n);
			ck_assert(credit_out_grant(&out, credit_in_consume(&in, n)));
			held -= n;
		}
		ck_assert_uint_ge(out.left, CREDIT_WINDOW / 2);
		ck_assert_uint_eq(out.left, in.granted);
	}
}
END_TEST

/* ---- keys ---- */

static const struct {
	const char *key;
	enum fail_code code;
} keys[] = {
	{ "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", FAIL_CURVE_WEAK_KEY },
	{ "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6", FAIL_CURVE_WEAK_KEY },
	{ "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", FAIL_CURVE_WEAK_KEY },
	{ "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs", FAIL_CURVE_WEAK_KEY },
	{ "0000000000000000000000000000000000000000", FAIL_CURVE_WEAK_KEY },
	{ "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf", FAIL_CURVE_BAD_KEY },   /* 39 */
	{ "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf78", FAIL_CURVE_BAD_KEY }, /* 41 */
	{ "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]y 7", FAIL_CURVE_BAD_KEY },
	{ "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]y\"7", FAIL_CURVE_BAD_KEY },
	{ "########################################", FAIL_CURVE_BAD_KEY }, /* over 32 bits a group */
	{ "", FAIL_CURVE_BAD_KEY },
};

START_TEST(test_key_check)
{
	struct err err = ERR_NULL;

	ck_assert_int_lt(curve_key_check(keys[_i].key, &err), 0);
	ck_assert_int_eq(err.code, keys[_i].code);
}
END_TEST

START_TEST(test_key_file)
{
	struct curve_keys made, back, other;
	struct err err = ERR_NULL;
	char path[64], text[256];
	struct stat st;

	(void) snprintf(path, sizeof(path), "/tmp/croft-test-key-%d", (int) getpid());
	ck_assert_int_eq(curve_keys_new(&made, &err), 0);
	ck_assert_int_eq(curve_key_check(made.public_key, &err), 0);
	ck_assert_int_eq(curve_keys_write(path, &made, &err), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(curve_keys_read(path, &back, &err), 0);
	ck_assert_int_eq(memcmp(&made, &back, sizeof(made)), 0);
	for (mode_t mode = 0001; mode <= 0040; mode <<= 1) {
		ck_assert_int_eq(chmod(path, 0600 | mode), 0);
		err = (struct err) ERR_NULL;
		ck_assert_int_lt(curve_keys_read(path, &back, &err), 0);
		ck_assert_int_eq(err.code, FAIL_CURVE_WEAK_KEY);
	}
	/* the two keys must be a pair */
	ck_assert_int_eq(curve_keys_new(&other, NULL), 0);
	memcpy(other.secret_key, made.secret_key, sizeof(other.secret_key));
	ck_assert_int_eq(curve_keys_write(path, &other, NULL), 0);
	err = (struct err) ERR_NULL;
	ck_assert_int_lt(curve_keys_read(path, &back, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CURVE_BAD_KEY);
	/* written by hand, with published keys */
	(void) snprintf(text, sizeof(text), "public=%s\nsecret=%s\n", keys[0].key, keys[1].key);
	ck_assert_int_eq(file_replace(path, text, strlen(text), 0600), 0);
	err = (struct err) ERR_NULL;
	ck_assert_int_lt(curve_keys_read(path, &back, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CURVE_WEAK_KEY);
	for (const char *const *bad = (const char *const[]) { "", "public = x\n", "secret", "public = \n", NULL }; *bad;
		bad++) {
		ck_assert_int_eq(file_replace(path, *bad, strlen(*bad), 0600), 0);
		err = (struct err) ERR_NULL;
		ck_assert_int_lt(curve_keys_read(path, &back, &err), 0);
		ck_assert_int_eq(err.code, FAIL_CURVE_BAD_KEY);
	}
	ck_assert_int_eq(unlink(path), 0);
	err = (struct err) ERR_NULL;
	ck_assert_int_lt(curve_keys_read(path, &back, &err), 0);
	ck_assert_int_eq(err.code, FAIL_IO_FAILED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *tc = tcase_create("wire");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_dispatch);
	tcase_add_test(tc, test_dispatch_version);
	tcase_add_test(tc, test_envelope);
	tcase_add_test(tc, test_envelope_too_large);
	tcase_add_test(tc, test_record_unknown_names);
	tcase_add_test(tc, test_record_long_texts);
	tcase_add_test(tc, test_credit);
	tcase_add_loop_test(tc, test_key_check, 0, (int) ARRAY_LEN(keys));
	tcase_add_test(tc, test_key_file);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
