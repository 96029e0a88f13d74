/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes that say over a real link what is not theirs to say.
 */
#include <stdio.h>

#include "lib/suite.h"
#include "server/link-private.h"
#include "server/message.h"
#include "test-api-rig.h"

/* R007: a node says what only a scheduler says, and asks to enrol: refused by name and counted, and nothing is done. */
START_TEST(test_a_node_commands_nobody)
{
	static const uint8_t bodies[] = { CROFT__ENVELOPE__BODY_ENROLL_RESULT, CROFT__ENVELOPE__BODY_WELCOME,
		CROFT__ENVELOPE__BODY_DESIRED, CROFT__ENVELOPE__BODY_CREATE, CROFT__ENVELOPE__BODY_DESTROY,
		CROFT__ENVELOPE__BODY_UPDATE, CROFT__ENVELOPE__BODY_NETWORK_UPDATE, CROFT__ENVELOPE__BODY_REPORT_ACK,
		CROFT__ENVELOPE__BODY_LEASE, CROFT__ENVELOPE__BODY_TELEMETRY_ACK, CROFT__ENVELOPE__BODY_IMAGE_CHUNK,
		CROFT__ENVELOPE__BODY_STREAM_OPEN, CROFT__ENVELOPE__BODY_CLOCK_PING, CROFT__ENVELOPE__BODY_ENROLL };
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		unsigned int tag = (unsigned int)bodies[i] << 3 | 2; /* that body, empty; version 1, seq 100 + i */
		const uint8_t frame[] = { 0x08, 1, 0x20, (uint8_t)(100 + i), (uint8_t)(0x80 | tag), (uint8_t)(tag >> 7), 0 };

		node.refused = false;
		ck_assert(dealer_send(node.dealer, frame, sizeof(frame)));
		loop_until(rig.base, &node.refused);
		ck_assert_str_eq(failure_info(node.refusal.code)->name,
			bodies[i] == CROFT__ENVELOPE__BODY_ENROLL ? "FORBIDDEN" : "FRAME_UNSUPPORTED");
	}
	ck_assert_uint_eq(rig.server->counters.link_unsupported, ARRAY_LEN(bodies) - 1);
	ck_assert_uint_eq(rig.server->counters.link_wrong_role, 1);
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "running");
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* R166: a copied state directory: the second host is told so, and the first keeps its route. */
START_TEST(test_a_copied_node_is_told)
{
	struct rig rig;
	struct fake_node node, copy;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	copy = node;
	copy.dealer = NULL;
	copy.beat = NULL;
	memset(copy.instance, 'c', sizeof(copy.instance) - 1);
	copy.boot_id = "00000000-1111-2222-3333-444444444444";
	loop_for(rig.base, 1000); /* a handshake a second */
	node_connect(&copy);
	ck_assert(copy.refused && !copy.welcome);
	ck_assert_int_eq(copy.refusal.code, FAIL_NODE_ID_IN_USE);
	rig_create(&rig, &node, "{}", id); /* reaches the first */
	ck_assert(!copy.created);
	node_close(&copy);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-link");
	TCase *tc = tcase_create("api-link");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_a_node_commands_nobody);
	tcase_add_test(tc, test_a_copied_node_is_told);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
