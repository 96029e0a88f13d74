/* SPDX-License-Identifier: Apache-2.0
 *
 * helper/message: what one side encodes the other decodes; nothing but the one form of each text and number gets
 * through; bytes at random and whole messages with bytes changed never do harm (the sanitizers watch).
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "helper/message.h"
#include "lib/suite.h"
#include "pb/node.pb-c.h"

#define ID "abcdefghijklmnopqrst"

static struct helper_request decode(const void *data, size_t size, enum fail_code want)
{
	struct helper_request request;
	struct err err = ERR_NULL;
	int r = helper_request_decode(data, size, &request, &err);

	ck_assert_msg(err.code == want, "%s, not %s: %s", failure_info(err.code)->name, failure_info(want)->name, err.msg);
	ck_assert_int_eq(r == 0, want == FAIL_NONE);
	return request;
}

static void round_trip(struct helper_request *request, struct helper_request *ret)
{
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size;

	ck_assert_int_eq(helper_request_encode(request, &data, &size), 0);
	*ret = decode(data, size, FAIL_NONE);
	ck_assert_int_eq(ret->type, request->type);
	ck_assert_uint_eq(ret->id, request->id);
	ck_assert_str_eq(ret->sandbox, request->sandbox);
}

START_TEST(every_request_survives)
{
	struct helper_request request = { .type = (enum helper_type)_i, .id = 7, .version = 1 }, got;

	if (request.type != HELPER_HELLO && request.type != HELPER_LIST && request.type != HELPER_UPGRADE)
		memcpy(request.sandbox, ID, sizeof(ID));
	memcpy(request.run, "0123abcd", HELPER_RUN_SIZE);
	if (request.type == HELPER_UPGRADE)
		memset(request.signature, 's', sizeof(request.signature) - 1);
	round_trip(&request, &got);
	ck_assert_str_eq(got.signature, request.signature);
	helper_request_deinit(&got);
}
END_TEST

START_TEST(contents_survive)
{
	struct net_pin pins[2] = { { 0x08080808, 60 }, { 0x01020304, HELPER_TTL_MAX } };
	struct helper_request request = { .type = HELPER_POLICY_SET, .sandbox = ID, .pins = pins, .n_pins = 2 }, got;

	request.policy.internet = true;
	ck_assert_int_eq(net_policy_allow(&request.policy, "1.2.3.0/24", NULL), 0);
	ck_assert_int_eq(net_policy_allow(&request.policy, "*.example.com", NULL), 0);
	ck_assert_int_eq(net_policy_deny(&request.policy, "2001:db8::/32", NULL), 0);
	round_trip(&request, &got);
	ck_assert(got.policy.internet && got.policy.n_allow == 1 && got.policy.n_allow_names == 1 &&
		  got.policy.n_deny == 1);
	ck_assert_uint_eq(got.policy.allow[0].prefix, 24);
	ck_assert_str_eq(got.policy.allow_names[0], "*.example.com");
	ck_assert_uint_eq(got.n_pins, 2);
	ck_assert_uint_eq(got.pins[1].ttl_sec, HELPER_TTL_MAX);
	helper_request_deinit(&got);
	net_policy_deinit(&request.policy);
	request = (struct helper_request){ .type = HELPER_GROUP_MAKE, .sandbox = ID, .limits = { 1 << 30, 200, 64 } };
	round_trip(&request, &got);
	ck_assert(got.limits.memory_bytes == 1 << 30 && got.limits.cpu_percent == 200 && got.limits.tasks == 64);
	request = (struct helper_request){ .type = HELPER_VMM_START, .sandbox = ID, .run = "01234567",
		.jail_required = true };
	round_trip(&request, &got);
	ck_assert_str_eq(got.run, "01234567");
	ck_assert(got.jail_required);
	request = (struct helper_request){ .type = HELPER_SLOT_MAKE, .sandbox = ID, .generation = UINT64_MAX };
	round_trip(&request, &got);
	ck_assert_uint_eq(got.generation, UINT64_MAX);
	helper_request_deinit(&got);
}
END_TEST

/* Packs a message as an agent of bad will would. */
static void refuse(Croft__HelperRequest *message, enum fail_code want)
{
	uint8_t data[4096];
	struct helper_request got;
	size_t size = croft__helper_request__get_packed_size(message);

	ck_assert_uint_le(size, sizeof(data));
	(void)croft__helper_request__pack(message, data);
	got = decode(data, size, want);
	helper_request_deinit(&got);
}

START_TEST(sandbox_ids_have_one_form)
{
	static const char *const bad[] = { "", ".", "..", "../../etc/passwd/xxx", "abcdefghijklmnopqrs/",
		"ABCDEFGHIJKLMNOPQRST", "abcdefghijklmnopqrstu", "abcdefghijklmnopqrs", "abcdefghijklmnopqrs\n" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		Croft__HelperSandbox sandbox;
		Croft__HelperRequest message;
		char text[64];

		(void)snprintf(text, sizeof(text), "%s", bad[i]);
		croft__helper_sandbox__init(&sandbox);
		croft__helper_request__init(&message);
		sandbox.sandbox = text;
		message.body_case = CROFT__HELPER_REQUEST__BODY_DISK_OPEN;
		message.disk_open = &sandbox;
		refuse(&message, FAIL_FRAME_INVALID);
	}
}
END_TEST

START_TEST(a_signature_has_room)
{
	Croft__HelperUpgrade upgrade;
	Croft__HelperRequest message;
	char text[HELPER_SIGNATURE_SIZE + 1];

	memset(text, 's', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	croft__helper_upgrade__init(&upgrade);
	croft__helper_request__init(&message);
	upgrade.signature = text;
	message.body_case = CROFT__HELPER_REQUEST__BODY_UPGRADE;
	message.upgrade = &upgrade;
	refuse(&message, FAIL_FRAME_INVALID);
}
END_TEST

START_TEST(run_directories_have_one_form)
{
	static const char *const bad[] = { "", "../../..", "0123456", "012345678", "0123456G", "/etc/xxx" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		Croft__HelperVmmStart start;
		Croft__HelperRequest message;
		char text[16], id[] = ID;

		(void)snprintf(text, sizeof(text), "%s", bad[i]);
		croft__helper_vmm_start__init(&start);
		croft__helper_request__init(&message);
		start.sandbox = id;
		start.run = text;
		message.body_case = CROFT__HELPER_REQUEST__BODY_VMM_START;
		message.vmm_start = &start;
		refuse(&message, FAIL_FRAME_INVALID);
	}
}
END_TEST

START_TEST(policies_are_checked)
{
	static const struct {
		const char *rule;
		enum fail_code want;
	} rules[] = { { "10.0.0.0/33", FAIL_INVALID_CIDR }, { "10.0.0.1/8", FAIL_INVALID_CIDR },
		{ "\n}; add rule inet croft forward accept", FAIL_INVALID_ARGUMENT }, { "a b", FAIL_INVALID_ARGUMENT },
		{ "", FAIL_INVALID_CIDR }, { "10.0.0.0/8 accept", FAIL_INVALID_CIDR } };

	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		Croft__HelperPolicy policy;
		Croft__HelperSlotMake make;
		Croft__HelperRequest message;
		char text[64], id[] = ID, *list[1] = { text };

		(void)snprintf(text, sizeof(text), "%s", rules[i].rule);
		croft__helper_policy__init(&policy);
		croft__helper_slot_make__init(&make);
		croft__helper_request__init(&message);
		policy.n_allow = 1;
		policy.allow = list;
		make.sandbox = id;
		message.body_case = CROFT__HELPER_REQUEST__BODY_SLOT_MAKE;
		message.slot_make = &make;
		refuse(&message, FAIL_FRAME_INVALID); /* no policy at all */
		make.policy = &policy;
		refuse(&message, rules[i].want);
	}
}
END_TEST

START_TEST(numbers_are_bounded)
{
	Croft__HelperPin pin, *pins[1] = { &pin };
	Croft__HelperPinSet set;
	Croft__HelperGroupMake group;
	Croft__HelperRequest message;
	char id[] = ID;

	croft__helper_pin__init(&pin);
	croft__helper_pin_set__init(&set);
	croft__helper_request__init(&message);
	set.sandbox = id;
	set.n_pins = 1;
	set.pins = pins;
	message.body_case = CROFT__HELPER_REQUEST__BODY_PIN;
	message.pin = &set;
	refuse(&message, FAIL_FRAME_INVALID); /* 0 s */
	pin.ttl_sec = HELPER_TTL_MAX + 1;
	refuse(&message, FAIL_FRAME_INVALID);
	croft__helper_group_make__init(&group);
	group.sandbox = id;
	message.body_case = CROFT__HELPER_REQUEST__BODY_GROUP_MAKE;
	message.group_make = &group;
	group.cpu_percent = UINT32_MAX;
	refuse(&message, FAIL_FRAME_INVALID);
	group.cpu_percent = 0;
	group.memory_bytes = UINT64_MAX;
	refuse(&message, FAIL_FRAME_INVALID);
	croft__helper_request__init(&message);
	refuse(&message, FAIL_FRAME_UNSUPPORTED);
}
END_TEST

START_TEST(random_bytes_do_no_harm)
{
	struct helper_request request = { .type = HELPER_POLICY_SET, .id = 1, .sandbox = ID }, got;
	struct helper_reply *reply = calloc(1, sizeof(*reply));
	CLEANUP_FREE uint8_t *data = NULL;
	struct rng rng = rng_seeded(1);
	uint8_t bytes[512];
	size_t size;

	ck_assert_ptr_nonnull(reply);
	ck_assert_int_eq(net_policy_allow(&request.policy, "1.2.3.0/24", NULL), 0);
	ck_assert_int_eq(net_policy_deny(&request.policy, "example.com", NULL), 0);
	ck_assert_int_eq(helper_request_encode(&request, &data, &size), 0);
	ck_assert_uint_le(size, sizeof(bytes));
	for (int i = 0; i < 30000; i++) {
		size_t n = rng_below(&rng, sizeof(bytes));

		if (i % 2) {
			memcpy(bytes, data, size);
			n = size - (i % 4 == 3 ? rng_below(&rng, size) : 0);
			for (int k = 0; k < 3 && n > 0; k++)
				bytes[rng_below(&rng, n)] = (uint8_t)rng_u64(&rng);
		} else {
			rng_bytes(&rng, bytes, n);
		}
		(void)helper_request_decode(bytes, n, &got, NULL);
		helper_request_deinit(&got);
		(void)helper_reply_decode(bytes, n, reply, NULL);
	}
	free(reply);
	net_policy_deinit(&request.policy);
}
END_TEST

START_TEST(replies_survive)
{
	struct helper_reply *reply = calloc(1, sizeof(*reply)), *got = calloc(1, sizeof(*got));
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size;

	ck_assert(reply && got);
	reply->id = 9;
	(void)err_set(&reply->failure, FAIL_NETWORK_RULES_FAILED, ENOBUFS, "it did not work");
	err_add(&reply->failure, "nft", "words");
	reply->has_facts = reply->facts.can_start_vmm = reply->has_counters = true;
	reply->facts.slots = 12;
	(void)err_set(&reply->facts.groups, FAIL_CGROUP_FAILED, EINVAL, "no cgroup");
	for (size_t i = 0; i < HELPER_LIST_MAX; i++) {
		memcpy(reply->slots[i].sandbox, ID, sizeof(ID));
		memcpy(reply->slots[i].name, "s0123456789ab", NET_SLOT_NAME_SIZE);
		reply->slots[i].guest = (uint32_t)i;
		reply->slots[i].mac[5] = (uint8_t)i;
	}
	reply->n_slots = HELPER_LIST_MAX;
	reply->counters.denied.packets = 3;
	reply->counters.n_refused = NET_DENIED_MAX;
	reply->counters.refused[1] = (struct net_denied){ 1, 6, 443, 5 };
	reply->group.oom_kills = 2;
	reply->pid = 4;
	ck_assert_int_eq(helper_reply_encode(reply, &data, &size), 0);
	ck_assert_int_eq(helper_reply_decode(data, size, got, NULL), 0);
	ck_assert_int_eq(got->failure.code, FAIL_NETWORK_RULES_FAILED);
	ck_assert_int_eq(got->failure.err_no, ENOBUFS);
	ck_assert_str_eq(err_field(&got->failure, "nft"), "words");
	ck_assert_int_eq(got->facts.network.code, FAIL_NONE);
	ck_assert_int_eq(got->facts.groups.code, FAIL_CGROUP_FAILED);
	ck_assert(got->has_facts && got->facts.slots == 12 && got->facts.can_start_vmm);
	ck_assert_uint_eq(got->n_slots, HELPER_LIST_MAX);
	ck_assert(got->slots[5].guest == 5 && got->slots[5].mac[5] == 5);
	ck_assert(got->counters.denied.packets == 3 && got->counters.n_refused == NET_DENIED_MAX);
	ck_assert(got->counters.refused[1].port == 443 && got->group.oom_kills == 2 && got->pid == 4);
	free(reply);
	free(got);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("helper");
	TCase *t = tcase_create("message");

	tcase_add_loop_test(t, every_request_survives, 0, HELPER_TYPE_MAX_);
	tcase_add_test(t, contents_survive);
	tcase_add_test(t, sandbox_ids_have_one_form);
	tcase_add_test(t, a_signature_has_room);
	tcase_add_test(t, run_directories_have_one_form);
	tcase_add_test(t, policies_are_checked);
	tcase_add_test(t, numbers_are_bounded);
	tcase_add_test(t, random_bytes_do_no_harm);
	tcase_add_test(t, replies_survive);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
