/* SPDX-License-Identifier: Apache-2.0
 *
 * Who leads: a scheduler's epoch is above what nodes have obeyed, and one with a copy of another's store leads nobody who
 * obeyed that one (docs/decisions/0023).
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/loop.h"
#include "lib/suite.h"
#include "server/lead.h"
#include "server/ops.h"
#include "test-api-rig.h"

START_TEST(test_epoch_is_above_what_nodes_know)
{
	struct fake_node node, far;
	struct rig rig;
	uint64_t epoch;

	rig_open(&rig);
	node_join(&node, &rig);
	node.highest_epoch = 4711;
	node_connect(&node);
	ck_assert(node.welcome);
	ck_assert_uint_gt(rig.server->epoch, 4711);
	ck_assert_uint_gt(node.highest_epoch, 4711);
	epoch = rig.server->epoch;
	/* once in a run: each time all other nodes greet again */
	node_close(&node);
	node.highest_epoch = epoch + 10;
	node_connect(&node);
	ck_assert(!node.welcome);
	ck_assert_uint_eq(rig.server->epoch, epoch);
	/* nor as far as anybody likes: the next start, and a restore, must be above it */
	node_join(&far, &rig);
	far.highest_epoch = UINT64_C(1) << 30;
	node_connect(&far);
	ck_assert(!far.welcome);
	ck_assert_uint_eq(rig.server->epoch, epoch);
	node_close(&far);
	node_close(&node);
	/* what was raised is durable */
	rig_stop(&rig);
	rig_start(&rig);
	ck_assert_uint_gt(rig.server->epoch, epoch);
	rig_close(&rig);
}
END_TEST

/* A scheduler that was started again listens elsewhere; a token says where. */
static void call_again(struct fake_node *node, struct rig *rig)
{
	struct fake_node other;

	node_token(&other, rig, rig->keys.provider);
	memcpy(node->address, other.address, sizeof(node->address));
	node_close(node);
	node->refused = false;
	node_connect(node);
}

/* Two at once, the higher one first: what is durable in the end is the higher one. */
START_TEST(test_epochs_that_come_together)
{
	struct fake_node high, low;
	sqlite3 *db = NULL;
	char path[128];
	struct rig rig;
	uint64_t epoch;

	rig_open(&rig);
	node_join(&high, &rig);
	node_join(&low, &rig);
	epoch = rig.server->epoch;
	memset(&high.leader, 0, sizeof(high.leader));
	memset(&low.leader, 0, sizeof(low.leader));
	high.highest_epoch = epoch + 1000;
	low.highest_epoch = epoch + 500;
	(void)snprintf(path, sizeof(path), "%s/store.db", rig.dir);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK); /* holds the store up, so that both are on their way */
	(void)sqlite3_busy_timeout(db, 10000);
	ck_assert_int_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	node_send_hello(&high);
	loop_for(rig.base, 300);
	node_send_hello(&low);
	loop_for(rig.base, 300);
	ck_assert_uint_eq(rig.server->epoch, epoch); /* nothing is said with what is not durable */
	ck_assert_int_eq(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
	for (int i = 0; i < 500 && rig.server->epoch == epoch; i++)
		loop_for(rig.base, 10);
	ck_assert_uint_eq(rig.server->epoch, epoch + 1001);
	ck_assert(!high.refused && !low.refused);
	loop_for(rig.base, 200);
	rig_stop(&rig);
	rig_start(&rig);
	ck_assert_uint_eq(rig.server->epoch, epoch + 1002);
	call_again(&high, &rig);
	call_again(&low, &rig);
	ck_assert(high.welcome && low.welcome);
	node_close(&high);
	node_close(&low);
	rig_close(&rig);
}
END_TEST

/* As a hello does it, and as the store answers; whether it was accepted. */
static bool raise_by(struct rig *rig, const char *node, uint64_t by, bool is_durable)
{
	struct lead_raise *raise = NULL;
	struct err err = ERR_NULL;
	struct ops ops = { .n = 0 };
	int r = lead_raise(rig->server, node, rig->server->epoch + by, &ops, &raise, &err);

	if (r == 0 && !is_durable)
		(void)err_set(&err, FAIL_STORE_FAILED, EIO, "Injected.");
	if (r == 0)
		lead_raised(is_durable ? NULL : &err, raise);
	ops_deinit(&ops);
	return r == 0;
}

/* Half of what a run may raise in all is asked for three times, and one of them is not written. */
START_TEST(test_a_raise_that_was_not_written_is_none)
{
	struct rig rig;
	uint64_t epoch;

	rig_open(&rig);
	epoch = rig.server->epoch;
	ck_assert(raise_by(&rig, "aaaaaaaaaaaaaaaaaaaa", 16000, true));
	ck_assert(raise_by(&rig, "bbbbbbbbbbbbbbbbbbbb", 16000, false));
	ck_assert_uint_eq(rig.server->epoch, epoch + 16000);
	ck_assert(raise_by(&rig, "bbbbbbbbbbbbbbbbbbbb", 16000, true));
	ck_assert_uint_eq(rig.server->epoch, epoch + 32000);
	ck_assert(!raise_by(&rig, "aaaaaaaaaaaaaaaaaaaa", 1, true)); /* it had its one, whatever failed behind it */
	ck_assert(!raise_by(&rig, "cccccccccccccccccccc", 1000, true));
	ck_assert(raise_by(&rig, "cccccccccccccccccccc", 100, true));
	rig_close(&rig);
}
END_TEST

/* The store as it was, under another name or back in its place. */
static void copy_store(const struct rig *rig, const char *from, const char *to)
{
	CLEANUP_FREE char *data = NULL;
	char path[128];
	size_t size = 0;

	(void)snprintf(path, sizeof(path), "%s/%s", rig->dir, from);
	ck_assert_int_eq(file_read(path, 64 << 20, &data, &size), 0);
	(void)snprintf(path, sizeof(path), "%s/%s", rig->dir, to);
	ck_assert_int_eq(file_replace(path, data, size, 0600), 0);
}

static void expect_split(struct rig *rig, struct fake_node *node, const char *first)
{
	const uint64_t epoch = rig->server->epoch;

	call_again(node, rig);
	ck_assert(!node->welcome);
	ck_assert_int_eq(node->refusal.code, FAIL_SCHEDULER_SPLIT);
	ck_assert_str_eq(err_field(&node->refusal, "instance"), rig->server->run);
	ck_assert_str_eq(err_field(&node->refusal, "first"), first);
	ck_assert_uint_eq(rig->server->epoch, epoch); /* it does not outbid the first */
}

/* Copied while nobody ran, started _i times more than the first: the node obeyed the first, and the copy leads nobody. */
START_TEST(test_a_copied_scheduler_is_told_apart)
{
	struct leader_mark first;
	struct fake_node node;
	struct rig rig;
	uint64_t epoch;

	rig_open(&rig);
	node_join(&node, &rig);
	rig_stop(&rig);
	copy_store(&rig, "store.db", "copy"); /* a closed store is one file */
	rig_start(&rig);
	call_again(&node, &rig);
	ck_assert(node.welcome); /* stopped in order, it may be elsewhere */
	first = node.leader;
	epoch = rig.server->epoch;
	ck_assert_str_eq(first.run, rig.server->run);
	rig_stop(&rig);
	copy_store(&rig, "store.db", "original");
	copy_store(&rig, "copy", "store.db");
	rig_start(&rig);
	for (int i = 0; i < _i; i++) {
		rig_stop(&rig);
		rig_start(&rig);
	}
	ck_assert_uint_eq(rig.server->epoch, epoch + (uint64_t)_i);
	ck_assert_str_eq(rig.server->lineage, first.lineage);
	expect_split(&rig, &node, first.run);
	rig_stop(&rig);
	/* the first, started again: no other has led since */
	copy_store(&rig, "original", "store.db");
	rig_start(&rig);
	call_again(&node, &rig);
	ck_assert(node.welcome);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* The store as kill -9 leaves it at this moment, in the file that is there (_i 0) or in another, as a copy is. */
static void killed_now(struct rig *rig, bool is_copy)
{
	static const char *const files[] = { "store.db", "store.db-wal" };
	CLEANUP_FREE char *data[2] = { NULL };
	size_t size[2];
	char path[128];

	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", rig->dir, files[i]);
		ck_assert_int_eq(file_read(path, 64 << 20, &data[i], &size[i]), 0);
	}
	rig_stop(rig);
	for (size_t i = 0; i < 2; i++) {
		int fd;

		(void)snprintf(path, sizeof(path), "%s/%s", rig->dir, files[i]);
		if (is_copy)
			(void)unlink(path);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(write(fd, data[i], size[i]), (ssize_t)size[i]);
		(void)close(fd);
		free(TAKE(data[i]));
	}
}

/* Copied while the first ran, which every start of the copy outbids: only where its store stands tells it from the first
 * that was killed and started again. A restored backup of the copy may lead. */
START_TEST(test_a_copy_of_a_running_scheduler_is_told_apart)
{
	struct leader_mark first;
	struct fake_node node, late;
	struct restored restored;
	struct err err = ERR_NULL;
	char path[128];
	struct rig rig;
	uint64_t epoch;

	rig_open(&rig);
	node_join(&node, &rig);
	killed_now(&rig, false);
	rig_start(&rig);
	call_again(&node, &rig);
	ck_assert(node.welcome); /* the first, killed */
	first = node.leader;
	killed_now(&rig, true);
	for (int i = 0; i < 2; i++) {
		rig_start(&rig);
		ck_assert_uint_gt(rig.server->epoch, node.highest_epoch);
		expect_split(&rig, &node, first.run);
		if (i == 0) { /* one that obeyed nobody before is the copy's own, and stays so */
			node_join(&late, &rig);
		} else {
			call_again(&late, &rig);
			ck_assert(late.welcome);
			node_close(&late);
		}
		rig_stop(&rig);
	}
	(void)snprintf(path, sizeof(path), "%s/backup", rig.dir);
	ck_assert_msg(backup_state(&rig.options, path, &err) == 0, "%s", err.msg);
	ck_assert_msg(restore_state(&rig.options, path, true, &restored, &err) == 0, "%s", err.msg);
	epoch = node.highest_epoch;
	rig_start(&rig);
	ck_assert_uint_gt(rig.server->epoch, epoch + 10000); /* numbers of its changes are above all that nodes have seen */
	call_again(&node, &rig);
	ck_assert(node.welcome);
	ck_assert_str_ne(node.leader.lineage, first.lineage);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-split");
	TCase *tc = tcase_create("split");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_epoch_is_above_what_nodes_know);
	tcase_add_test(tc, test_epochs_that_come_together);
	tcase_add_test(tc, test_a_raise_that_was_not_written_is_none);
	tcase_add_loop_test(tc, test_a_copied_scheduler_is_told_apart, 0, 3);
	tcase_add_test(tc, test_a_copy_of_a_running_scheduler_is_told_apart);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
