/* SPDX-License-Identifier: Apache-2.0
 *
 * See feed.h. The socket is an XPUB: it hands over who subscribes to what, so that nothing is written where nobody listens, and can be
 * asked to refuse a message where a queue is full, which is how that is noticed. What it refused is sent once more to whoever has room;
 * from then on libzmq leaves the one without room out, until it has some.
 */
#include "server/feed.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "place/capacity.h"
#include "server/api.h"
#include "server/shell.h"
#include "server/view.h"
#include "wire/endpoint.h"
#include "wire/socket.h"

#define INPUT_MAX 1024 /* bytes that a subscriber may send at once: its handshake takes some 300 */
#define LINE_SIZE 256

enum topic { TOPIC_BEAT, TOPIC_FLEET, TOPIC_POOL, TOPIC_STAGE, TOPIC_MAX_ };
static const char *const topic_names[TOPIC_MAX_] = {
	[TOPIC_BEAT] = "beat", [TOPIC_FLEET] = "fleet", [TOPIC_POOL] = "pool", [TOPIC_STAGE] = "stage"
};

struct feed {
	struct server *server;
	struct socket socket;
	struct event *beat;
	struct curve_keys keys;
	char address[LINK_ENDPOINT_SIZE];
	uint64_t seqs[TOPIC_MAX_]; /* of the last message */
	struct feed_counts counts;
	struct fleet_counts fleet; /* as last said */
	bool is_losing;            /* and the log says so */
};

/* ---- what goes out ---- */

static int send_frames(struct feed *feed, enum topic topic, const char *text)
{
	const char *name = topic_names[topic];

	if (zmq_send(feed->socket.zmq, name, strlen(name), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
		zmq_send(feed->socket.zmq, text, strlen(text), ZMQ_DONTWAIT) < 0)
		return -errno;
	return 0;
}

static void send_anyway(struct feed *feed, enum topic topic, const char *text)
{
	feed->counts.full++;
	if (!feed->is_losing)
		log_warn("a subscriber of the feed reads too slowly and loses messages", "topic", topic_names[topic]);
	feed->is_losing = true;
	(void)socket_set_int(&feed->socket, ZMQ_XPUB_NODROP, 0);
	(void)send_frames(feed, topic, text);
	(void)socket_set_int(&feed->socket, ZMQ_XPUB_NODROP, 1);
}

/* Takes `object`. */
static void publish(struct feed *feed, enum topic topic, json_t *object)
{
	char *text;

	(void)json_object_set_new(object, "run", json_string(feed->server->run));
	(void)json_object_set_new(object, "seq", json_integer((json_int_t)feed->seqs[topic]));
	text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	if (!text)
		return; /* a number that nobody gets: lost, as it should look */
	feed->counts.sent++;
	if (send_frames(feed, topic, text) == -EAGAIN)
		send_anyway(feed, topic, text);
	free(text);
	socket_touch(&feed->socket);
}

/* Whether it is to be written: it has a number in any case. */
static bool is_wanted(struct feed *feed, enum topic topic)
{
	if (!feed)
		return false;
	feed->seqs[topic]++;
	return feed->counts.topics > 0;
}

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

void feed_stage(struct feed *feed, const struct stage_fact *fact)
{
	const struct failure_info *info = failure_info(fact->code);
	const bool has_failed = fact->outcome == RESULT_FAILED;
	json_t *object;

	if (!is_wanted(feed, TOPIC_STAGE))
		return;
	object = json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "when", view_time(fact->when_us), "stage", stage_name(fact->stage),
		"outcome", outcome_name(fact->outcome), "took_us", (json_int_t)fact->took_us, "n", (json_int_t)MAX(fact->n, 1), "attempt",
		(json_int_t)fact->attempt, "vcpus", (json_int_t)fact->vcpus, "memory_mib", (json_int_t)fact->memory_mib);
	(void)json_object_set_new(object, "code", has_failed ? json_string(info->name) : json_null());
	(void)json_object_set_new(object, "component", has_failed ? json_string(component_name(info->component)) : json_null());
	(void)json_object_set_new(object, "owner",
		has_failed ? json_string(api_owner_name(feed->server, fact->pool ? fact->pool : "", info->component)) : json_null());
	(void)json_object_set_new(object, "sandbox", text_or_null(fact->sandbox));
	(void)json_object_set_new(object, "trace", text_or_null(fact->trace));
	(void)json_object_set_new(object, "tenant", text_or_null(fact->tenant));
	(void)json_object_set_new(object, "pool", text_or_null(fact->pool));
	(void)json_object_set_new(object, "node", text_or_null(fact->node));
	(void)json_object_set_new(object, "template", text_or_null(fact->template_name));
	(void)json_object_set_new(object, "version", text_or_null(fact->version));
	(void)json_object_set_new(object, "region", text_or_null(fact->region));
	publish(feed, TOPIC_STAGE, object);
}

static json_t *view_room(const struct place_room *room)
{
	return json_pack("{s:I, s:f, s:I, s:I}", "memory_mib", (json_int_t)room->memory_mib, "vcpus", (double)room->cpu_percent / 100,
		"disk_mib", (json_int_t)room->disk_mib, "sandboxes", (json_int_t)room->sandboxes);
}

void feed_pool(struct feed *feed, const char *pool, const struct place_room *total, const struct place_room *used)
{
	if (is_wanted(feed, TOPIC_POOL))
		publish(feed, TOPIC_POOL,
			json_pack("{s:o, s:s, s:o, s:o}", "when", view_time(clock_realtime_usec()), "pool", pool, "total", view_room(total),
				"used", view_room(used)));
}

static void say_fleet(struct feed *feed)
{
	json_t *nodes = json_object(), *sandboxes = json_object();
	struct fleet_counts counts;

	fleet_count(shell_fleet(feed->server->shell), &counts);
	for (enum node_link i = 0; i < NODE_LINK_MAX_; i++)
		(void)json_object_set_new(nodes, node_link_name(i), json_integer((json_int_t)counts.nodes[i]));
	for (enum sandbox_state i = 0; i < SANDBOX_STATE_MAX_; i++)
		(void)json_object_set_new(sandboxes, sandbox_state_name(i), json_integer((json_int_t)counts.sandboxes[i]));
	publish(feed, TOPIC_FLEET,
		json_pack("{s:o, s:o, s:o, s:I}", "when", view_time(clock_realtime_usec()), "nodes", nodes, "sandboxes", sandboxes, "queued",
			(json_int_t)counts.queued));
}

static void on_beat(evutil_socket_t fd, short what, void *user)
{
	struct feed *feed = user;
	json_t *seqs = json_object();

	(void)fd;
	(void)what;
	if (is_wanted(feed, TOPIC_FLEET))
		say_fleet(feed);
	for (enum topic i = 0; i < TOPIC_MAX_; i++)
		(void)json_object_set_new(seqs, topic_names[i], json_integer((json_int_t)feed->seqs[i] + (i == TOPIC_BEAT)));
	if (is_wanted(feed, TOPIC_BEAT))
		publish(feed, TOPIC_BEAT,
			json_pack("{s:o, s:O, s:I}", "when", view_time(clock_realtime_usec()), "seqs", seqs, "full",
				(json_int_t)feed->counts.full));
	json_decref(seqs);
}

/* Each topic that is subscribed to is said once, and once more when nobody is left: \1 or \0 and its name. Else is what a peer sent,
 * and nothing. */
static bool on_input(void *user)
{
	struct feed *feed = user;
	char message[INPUT_MAX];
	const int n = zmq_recv(feed->socket.zmq, message, sizeof(message), ZMQ_DONTWAIT);

	if (n < 0)
		return false;
	if (n > 0 && message[0] == 1)
		feed->counts.topics++;
	if (n > 0 && message[0] == 0 && feed->counts.topics > 0)
		feed->counts.topics--;
	return true;
}

/* ---- who may listen ---- */

/* A line: a public key, then a name, or what you like. "#" begins a remark. */
static int allow_line(struct zap *zap, char *line, const char *path, unsigned int number, struct err *reterr)
{
	char *key = line + strspn(line, " \t\r\n");
	int r;

	key[strcspn(key, " \t\r\n")] = '\0';
	if (!*key || *key == '#')
		return 0;
	if (curve_key_check(key, reterr) < 0) {
		err_add(reterr, "line", "%s:%u", path, number);
		return -EINVAL;
	}
	r = zap_allow_feed(zap, key);
	if (r == -EEXIST)
		return err_set(reterr, FAIL_CONFIG_INVALID, EEXIST, "%s:%u: the key is a node's or a join token's", path, number);
	return r == 0 ? 0 : err_set(reterr, FAIL_NO_MEMORY, -r, "no memory for the keys of the feed");
}

static int allow_all(struct zap *zap, const char *path, struct err *reterr)
{
	FILE *file = fopen(path, "re");
	char line[LINE_SIZE];
	unsigned int n = 0;
	int r = 0;

	if (!file)
		return err_set(reterr, FAIL_CONFIG_INVALID, errno, "feed.subscribers %s cannot be read", path);
	while (r == 0 && fgets(line, sizeof(line), file))
		r = allow_line(zap, line, path, ++n, reterr);
	(void)fclose(file);
	return r;
}

/* ---- life ---- */

static int read_keys(struct feed *feed, struct err *reterr)
{
	char path[PATH_MAX];
	int r;

	(void)state_path(feed->server->options, "feed.key", path, sizeof(path));
	if (access(path, F_OK) == 0)
		return curve_keys_read(path, &feed->keys, reterr);
	r = curve_keys_new(&feed->keys, reterr);
	return r < 0 ? r : curve_keys_write(path, &feed->keys, reterr);
}

static int set_options(struct feed *feed)
{
	const int64_t max = INPUT_MAX;
	void *zmq = feed->socket.zmq;
	int r = socket_set_limits(&feed->socket);

	if (r == 0)
		r = socket_set_int(&feed->socket, ZMQ_SNDHWM, (int)feed->server->options->feed_queue);
	if (r == 0)
		r = socket_set_int(&feed->socket, ZMQ_XPUB_NODROP, 1);
	if (r == 0)
		r = socket_set_int(&feed->socket, ZMQ_CURVE_SERVER, 1);
	if (r == 0 && (zmq_setsockopt(zmq, ZMQ_MAXMSGSIZE, &max, sizeof(max)) < 0 ||
			      zmq_setsockopt(zmq, ZMQ_CURVE_SECRETKEY, feed->keys.secret_key, KEY_Z85_SIZE) < 0 ||
			      zmq_setsockopt(zmq, ZMQ_ZAP_DOMAIN, ZAP_FEED_DOMAIN, strlen(ZAP_FEED_DOMAIN)) < 0))
		r = -errno;
	return r == 0 ? socket_set_int(&feed->socket, OPTION_ZAP_ENFORCE_DOMAIN, 1) : r;
}

static int listen_there(struct feed *feed, struct err *reterr)
{
	const struct options *options = feed->server->options;
	size_t size = sizeof(feed->address);
	char address[LINK_ENDPOINT_SIZE];
	int r = socket_open(&feed->socket, feed->server->zmq, ZMQ_XPUB);

	if (r == 0)
		r = set_options(feed);
	if (r < 0)
		return err_set(reterr, FAIL_ZAP_DISABLED, -r, "the feed's socket cannot be made safe");
	(void)snprintf(address, sizeof(address), "tcp://%s:%u", options->feed_address, (unsigned int)options->feed_port);
	if (zmq_bind(feed->socket.zmq, address) < 0)
		return err_set(reterr, FAIL_LISTEN_FAILED, errno, "cannot listen on %s", address);
	(void)zmq_getsockopt(feed->socket.zmq, ZMQ_LAST_ENDPOINT, feed->address, &size);
	r = socket_watch(&feed->socket, feed->server->base, on_input, feed);
	return r == 0 ? 0 : err_set(reterr, FAIL_NO_MEMORY, -r, "no memory for the feed");
}

int feed_new(struct feed **ret, struct server *server, struct zap *zap, struct err *reterr)
{
	static const struct timeval second = { .tv_sec = 1 };
	struct feed *feed;
	int r;

	*ret = NULL;
	if (!*server->options->feed_address)
		return 0;
	feed = calloc(1, sizeof(*feed));
	if (!feed)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the feed");
	feed->server = server;
	r = read_keys(feed, reterr);
	if (r == 0)
		r = allow_all(zap, server->options->feed_subscribers, reterr);
	if (r == 0)
		r = listen_there(feed, reterr);
	if (r == 0) {
		feed->beat = event_new(server->base, -1, EV_PERSIST, on_beat, feed);
		if (!feed->beat || event_priority_set(feed->beat, LOOP_BULK) < 0 || event_add(feed->beat, &second) < 0)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the feed");
	}
	if (r < 0) {
		feed_free(feed);
		return r;
	}
	*ret = feed;
	return 0;
}

void feed_free(struct feed *feed)
{
	if (!feed)
		return;
	if (feed->beat)
		event_free(feed->beat);
	socket_close(&feed->socket);
	explicit_bzero(&feed->keys, sizeof(feed->keys));
	free(feed);
}

struct feed_counts feed_count(const struct feed *feed)
{
	return feed ? feed->counts : (struct feed_counts){ .sent = 0 };
}

const char *feed_address(const struct feed *feed)
{
	return feed ? feed->address : "";
}

const char *feed_public_key(const struct feed *feed)
{
	return feed ? feed->keys.public_key : "";
}
