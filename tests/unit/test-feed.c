/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed with real subscribers: who gets in, what comes, what a slow one loses and how that is told, and the consumer of docs/.
 */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "lib/suite.h"
#include "place/capacity.h"
#include "server/feed.h"
#include "server/forecast.h"
#include "unit/test-api-rig.h"

#define SLOW_MESSAGES 4000
#define BIG 8192
#define QUEUE 20

static struct rig rig;
static struct curve_keys planner, stranger;

static void replace(char **option, const char *text)
{
	free(*option);
	*option = strdup(text);
	ck_assert_ptr_nonnull(*option);
}

static void set_up(void)
{
	char path[PATH_MAX];
	struct err err = ERR_NULL;
	FILE *file;

	rig_open(&rig);
	rig_stop(&rig);
	ck_assert(curve_keys_new(&planner, &err) == 0 && curve_keys_new(&stranger, &err) == 0);
	(void)snprintf(path, sizeof(path), "%s/subscribers", rig.dir);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	(void)fprintf(file, "# of the planners\n\n  %s the one of the third floor\n", planner.public_key);
	ck_assert_int_eq(fclose(file), 0);
	replace(&rig.options.feed_subscribers, path);
	replace(&rig.options.feed_address, "127.0.0.1");
	rig.options.feed_port = 0;
	rig.options.feed_queue = QUEUE;
	rig_start(&rig);
}

static void tear_down(void)
{
	rig_close(&rig);
}

static void *subscribe(const char *address, const char *server_key, const struct curve_keys *keys, const char *topic, int queue)
{
	const int linger = 0, bytes = 4096;
	void *sub = zmq_socket(rig.zmq, ZMQ_SUB);

	ck_assert_ptr_nonnull(sub);
	ck_assert(zmq_setsockopt(sub, ZMQ_LINGER, &linger, sizeof(linger)) == 0 && zmq_setsockopt(sub, ZMQ_RCVHWM, &queue, sizeof(queue)) == 0 &&
		  zmq_setsockopt(sub, ZMQ_RCVBUF, &bytes, sizeof(bytes)) == 0 &&
		  zmq_setsockopt(sub, ZMQ_CURVE_SERVERKEY, server_key, KEY_Z85_SIZE) == 0 &&
		  zmq_setsockopt(sub, ZMQ_CURVE_PUBLICKEY, keys->public_key, KEY_Z85_SIZE) == 0 &&
		  zmq_setsockopt(sub, ZMQ_CURVE_SECRETKEY, keys->secret_key, KEY_Z85_SIZE) == 0 &&
		  zmq_setsockopt(sub, ZMQ_SUBSCRIBE, topic, strlen(topic)) == 0 && zmq_connect(sub, address) == 0);
	return sub;
}

static void *listen_to(const char *topic, int queue)
{
	return subscribe(feed_address(rig.server->feed), feed_public_key(rig.server->feed), &planner, topic, queue);
}

/* The next message of a topic, within ten seconds; NULL: none comes. The caller's. */
static json_t *next(void *sub, const char *topic, int64_t wait_us)
{
	const int64_t until_us = clock_monotonic_usec() + wait_us;
	static char text[4 * BIG];
	char name[32];

	do {
		int n = zmq_recv(sub, name, sizeof(name) - 1, ZMQ_DONTWAIT), size;
		json_t *object;

		if (n < 0) {
			loop_for(rig.base, 1);
			continue;
		}
		name[n] = '\0';
		ck_assert_str_eq(name, topic);
		size = zmq_recv(sub, text, sizeof(text), ZMQ_DONTWAIT);
		ck_assert(size > 0 && (size_t)size < sizeof(text));
		object = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, NULL);
		ck_assert_msg(object, "%.*s", size, text);
		return object;
	} while (clock_monotonic_usec() < until_us);
	return NULL;
}

static json_int_t number(const json_t *object, const char *name)
{
	ck_assert_msg(json_is_integer(json_object_get(object, name)), "%s", name);
	return json_integer_value(json_object_get(object, name));
}

/* Until the feed knows of so many topics. */
static void await_topics(uint64_t n)
{
	for (unsigned int i = 0; i < 10000 && feed_count(rig.server->feed).topics != n; i++)
		loop_for(rig.base, 1);
	ck_assert_uint_eq(feed_count(rig.server->feed).topics, n);
}

START_TEST(who_may_listen)
{
	const char *address = feed_address(rig.server->feed), *key = feed_public_key(rig.server->feed);
	const uint64_t denied = link_denied(rig.server->link);
	struct curve_keys nodes;
	void *subs[3];
	json_t *message;
	struct fake_node node;

	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	nodes = node.keys;
	subs[0] = subscribe(address, key, &stranger, "", 100);
	subs[1] = subscribe(address, key, &nodes, "", 100);
	subs[2] = subscribe(link_address(rig.server->link), rig.server->keys.served.public_key, &planner, "", 100);
	for (unsigned int i = 0; i < 10000 && link_denied(rig.server->link) < denied + 3; i++)
		loop_for(rig.base, 1);
	ck_assert_uint_ge(link_denied(rig.server->link), denied + 3);
	for (unsigned int i = 0; i < ARRAY_LEN(subs); i++) {
		ck_assert_ptr_null(next(subs[i], "", 100000));
		zmq_close(subs[i]);
	}
	ck_assert_uint_eq(feed_count(rig.server->feed).topics, 0);
	ck_assert_uint_eq(feed_count(rig.server->feed).sent, 0);
	subs[0] = listen_to("beat", 100);
	message = next(subs[0], "beat", 10 * USEC_PER_SEC);
	ck_assert_ptr_nonnull(message);
	json_decref(message);
	zmq_close(subs[0]);
	await_topics(0);
	node_close(&node);
}
END_TEST

START_TEST(a_start_and_a_failure)
{
	struct fake_node node;
	void *sub = listen_to("stage", 1000);
	json_t *message = NULL;
	char id[ID_SIZE];
	json_int_t seq = 0, last = 0;
	bool is_ready = false;

	rig_template(&rig, "base", "image");
	await_topics(1);
	node_join(&node, &rig);
	rig_create(&rig, &node, "{\"vcpus\":1,\"memoryMB\":64}", id);
	while (!is_ready && (message = next(sub, "stage", 10 * USEC_PER_SEC))) {
		seq = number(message, "seq");
		ck_assert(last == 0 || seq == last + 1);
		last = seq;
		ck_assert_str_eq(json_string_value(json_object_get(message, "run")), rig.server->run);
		ck_assert_str_eq(json_string_value(json_object_get(message, "sandbox")), id);
		ck_assert_str_eq(json_string_value(json_object_get(message, "tenant")), "default");
		ck_assert(json_is_null(json_object_get(message, "code")));
		is_ready = !strcmp(json_string_value(json_object_get(message, "stage")), "place");
		json_decref(message);
	}
	ck_assert(is_ready);
	rig_expect(&rig, "POST", "/v1/sandboxes", rig.keys.tenant, "{\"template\":\"base\",\"vcpus\":32,\"memoryMB\":64}", 503, "NO_CAPACITY");
	while ((message = next(sub, "stage", 10 * USEC_PER_SEC)) && json_is_null(json_object_get(message, "code")))
		json_decref(message);
	ck_assert_ptr_nonnull(message);
	ck_assert_str_eq(json_string_value(json_object_get(message, "code")), "NO_CAPACITY");
	ck_assert_str_eq(json_string_value(json_object_get(message, "stage")), "place");
	ck_assert_str_eq(json_string_value(json_object_get(message, "component")), "node-host");
	ck_assert_ptr_nonnull(json_string_value(json_object_get(message, "owner")));
	json_decref(message);
	zmq_close(sub);
	node_close(&node);
}
END_TEST

START_TEST(pools_and_the_fleet)
{
	void *pools = listen_to("pool", 100), *fleet = listen_to("fleet", 100);
	struct fake_node node;
	json_t *message;

	await_topics(2);
	node_join(&node, &rig);
	forecast_look(rig.server->forecast, clock_realtime_usec());
	message = next(pools, "pool", 10 * USEC_PER_SEC);
	while (message && strcmp(json_string_value(json_object_get(message, "pool")), "default") != 0) {
		json_decref(message);
		message = next(pools, "pool", 10 * USEC_PER_SEC);
	}
	ck_assert_int_eq(number(json_object_get(message, "total"), "memory_mib"), (json_int_t)node.capacity.memory_mib);
	ck_assert_int_eq(number(json_object_get(message, "used"), "sandboxes"), 0);
	json_decref(message);
	message = next(fleet, "fleet", 10 * USEC_PER_SEC);
	while (message && number(json_object_get(message, "nodes"), "ready") == 0) {
		json_decref(message);
		message = next(fleet, "fleet", 10 * USEC_PER_SEC);
	}
	ck_assert_ptr_nonnull(message);
	ck_assert_int_eq(number(message, "queued"), 0);
	json_decref(message);
	zmq_close(pools);
	zmq_close(fleet);
	node_close(&node);
}
END_TEST

/* One reads along and misses nothing; one reads nothing, and knows afterwards how much it lost: by the numbers, and by the beat. */
START_TEST(a_slow_one_loses_and_is_told)
{
	static char big[BIG];
	const struct stage_fact fact = { .when_us = 1, .stage = STAGE_VMM, .outcome = RESULT_OK, .template_name = big };
	void *slow = listen_to("stage", 1), *quick, *beats = listen_to("beat", 100);
	json_int_t last = 0, before = 0, n = 0, full, told;
	json_t *message;

	memset(big, 'x', sizeof(big) - 1);
	await_topics(2);
	quick = listen_to("stage", 1000);
	for (json_int_t got = 0; got == 0;) { /* a second subscriber of a topic is not announced */
		feed_stage(rig.server->feed, &fact);
		message = next(quick, "stage", 50000);
		got = message ? number(message, "seq") : 0;
		last = MAX(last, got);
		json_decref(message);
	}
	while ((message = next(quick, "stage", 200000))) {
		last = number(message, "seq");
		json_decref(message);
	}
	for (unsigned int i = 0; i < SLOW_MESSAGES; i++) {
		feed_stage(rig.server->feed, &fact);
		message = next(quick, "stage", 10 * USEC_PER_SEC);
		ck_assert_ptr_nonnull(message);
		ck_assert_int_eq(number(message, "seq"), ++last);
		json_decref(message);
	}
	full = (json_int_t)feed_count(rig.server->feed).full;
	ck_assert_int_gt(full, 0);
	for (; (message = next(slow, "stage", 500000)); n++) {
		ck_assert_int_gt(number(message, "seq"), before);
		before = number(message, "seq");
		json_decref(message);
	}
	feed_stage(rig.server->feed, &fact); /* it has read all that waited: the next one says how much it lost */
	message = next(slow, "stage", 10 * USEC_PER_SEC);
	ck_assert_ptr_nonnull(message);
	ck_assert_int_eq(number(message, "seq"), ++last);
	json_decref(message);
	ck_assert_int_lt(n, SLOW_MESSAGES * 3 / 4);
	do {
		message = next(beats, "beat", 10 * USEC_PER_SEC);
		ck_assert_ptr_nonnull(message);
		told = number(json_object_get(message, "seqs"), "stage");
		ck_assert_int_le(number(message, "full"), full);
		before = number(message, "full");
		json_decref(message);
	} while (told < last);
	ck_assert_int_eq(told, last);
	ck_assert_int_eq(before, full);
	zmq_close(slow);
	zmq_close(quick);
	zmq_close(beats);
}
END_TEST

/* Starts build/.../bin/feed-consumer beside this program. */
static pid_t start_consumer(int *ret_out)
{
	char path[PATH_MAX];
	const char *arguments[] = { "feed-consumer", feed_address(rig.server->feed), feed_public_key(rig.server->feed), planner.public_key,
		planner.secret_key, "beat", NULL };
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	int out[2];
	pid_t pid;

	ck_assert_int_gt(n, 0);
	path[n] = '\0';
	(void)snprintf(strrchr(path, '/') + 1, 32, "feed-consumer");
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)execv(path, (char **)(uintptr_t)arguments);
		_exit(127);
	}
	(void)close(out[1]);
	ck_assert_int_eq(fcntl(out[0], F_SETFL, O_NONBLOCK), 0);
	*ret_out = out[0];
	return pid;
}

START_TEST(the_consumer_of_the_docs)
{
	char text[4096] = "";
	size_t n = 0;
	int out;
	pid_t pid = start_consumer(&out);

	for (unsigned int i = 0; i < 10000 && !strchr(text, '\n'); i++) {
		ssize_t more = read(out, text + n, sizeof(text) - 1 - n);

		n += more > 0 ? (size_t)more : 0;
		text[n] = '\0';
		loop_for(rig.base, 2);
	}
	(void)kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	(void)close(out);
	ck_assert_msg(!strncmp(text, "beat {", 6) && strstr(text, "\"seqs\""), "%s", text);
}
END_TEST

static const char *const wrong[] = { "nonsense\n", "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n" };

/* What is no key, or a published one, keeps the scheduler from starting; so does a file that is not there. */
START_TEST(keys_that_are_none)
{
	struct err err = ERR_NULL;
	FILE *file;

	rig_stop(&rig);
	if ((size_t)_i < ARRAY_LEN(wrong)) {
		file = fopen(rig.options.feed_subscribers, "we");
		ck_assert_ptr_nonnull(file);
		(void)fputs(wrong[_i], file);
		ck_assert_int_eq(fclose(file), 0);
	} else {
		ck_assert_int_eq(unlink(rig.options.feed_subscribers), 0);
	}
	ck_assert_int_lt(server_new(&rig.server, &rig.options, rig.base, &err), 0);
	ck_assert_int_eq(err.code, _i == 0 ? FAIL_CURVE_BAD_KEY : _i == 1 ? FAIL_CURVE_WEAK_KEY : FAIL_CONFIG_INVALID);
	replace(&rig.options.feed_address, "");
	rig_start(&rig);
	ck_assert_ptr_null(rig.server->feed);
}
END_TEST

START_TEST(the_same_key_after_a_restart)
{
	char key[KEY_Z85_SIZE];

	memcpy(key, feed_public_key(rig.server->feed), sizeof(key));
	rig_stop(&rig);
	rig_start(&rig);
	ck_assert_str_eq(feed_public_key(rig.server->feed), key);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("feed");
	TCase *tcase = tcase_create("feed");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, who_may_listen);
	tcase_add_test(tcase, a_start_and_a_failure);
	tcase_add_test(tcase, pools_and_the_fleet);
	tcase_add_test(tcase, a_slow_one_loses_and_is_told);
	tcase_add_test(tcase, the_consumer_of_the_docs);
	tcase_add_loop_test(tcase, keys_that_are_none, 0, ARRAY_LEN(wrong) + 1);
	tcase_add_test(tcase, the_same_key_after_a_restart);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
