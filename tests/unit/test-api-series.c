/* SPDX-License-Identifier: Apache-2.0
 *
 * R196: however many sandboxes there were, /metrics has as many series as before them, and none that names one; what they leave
 * in memory is bounded. CROFT_SANDBOXES says how many come and go (300); memory is looked at from 20,000 on, when everything that
 * keeps the last few thousand is full.
 */
#include <stdlib.h>
#include <unistd.h>

#include "lib/suite.h"
#include "unit/test-api-rig.h"

#define MEMORY_FROM 20000u
#define GROWTH_MAX (16u << 20)

static unsigned int rounds(void)
{
	const char *text = getenv("CROFT_SANDBOXES");

	return text ? (unsigned int)strtoul(text, NULL, 10) : 300;
}

static size_t rss(void)
{
	CLEANUP_FREE char *text = NULL;
	const char *word;

	ck_assert_int_eq(file_read("/proc/self/statm", 4096, &text, NULL), 0);
	word = strchr(text, ' ');
	ck_assert_ptr_nonnull(word);
	return (size_t)strtoul(word, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* How many series; none has `id` in it. */
static size_t series(struct rig *rig, const char *id)
{
	struct answer answer = rig_call(rig, "GET", "/metrics", rig->keys.provider, NULL);
	size_t n = 0;

	ck_assert_int_eq(answer.status, 200);
	ck_assert_ptr_null(strstr(answer.body, id));
	for (char *rest = NULL, *line = strtok_r(answer.body, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		n += *line != '#';
	answer_free(&answer);
	return n;
}

static void come_and_go(struct rig *rig, struct fake_node *node, char ret[static ID_SIZE])
{
	char path[96];

	rig_create(rig, node, "{}", ret);
	node->destroyed = false;
	rig_path(path, sizeof(path), "/sandboxes/*", ret);
	rig_expect(rig, "DELETE", path, rig->keys.tenant, NULL, 204, NULL);
	loop_until(rig->base, &node->destroyed);
}

START_TEST(as_many_series_as_before)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];
	unsigned int n = rounds();
	size_t before, at_half = 0;

	rig_open(&rig);
	rig.options.rate_per_second = 0; /* a client as quick as it can be */
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	come_and_go(&rig, &node, id); /* the first of each kind may make a series */
	before = series(&rig, id);
	ck_assert_uint_gt(before, 10);
	for (unsigned int i = 0; i < n; i++) {
		come_and_go(&rig, &node, id);
		if (i == n / 2)
			at_half = rss();
	}
	ck_assert_uint_eq(series(&rig, id), before);
	if (n >= MEMORY_FROM)
		ck_assert_msg(rss() < at_half + GROWTH_MAX, "%zu, then %zu bytes", at_half, rss());
	node_close(&node);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-series");
	TCase *tcase = tcase_create("api-series");

	tcase_set_timeout(tcase, 1800);
	tcase_add_test(tcase, as_many_series_as_before);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
