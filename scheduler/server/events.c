/* SPDX-License-Identifier: Apache-2.0
 *
 * See events.h.
 */
#include "server/events.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/failures.h"
#include "server/shell.h"

#define LOOK_MS 500
#define HEAD_SIZE 192

enum changed { CHANGED_STAGES = 1, CHANGED_NODES = 2, CHANGED_SANDBOXES = 4 };

struct kept {
	char *text; /* the whole event */
	char tenant[ID_NAME_MAX + 1];
};

struct client {
	LIST_ENTRY(client) link;
	struct events *events;
	struct api_request *req;
	bool wants_all;
	uint64_t next;       /* number of the event that it gets next */
	char head[HEAD_SIZE]; /* short events: hello, changed, beat */
	const char *sending; /* what is not sent of the event under way */
	char *owned;         /* ... its copy */
	unsigned int changed;
	int64_t changed_us, sent_us; /* monotonic */
	bool is_over;
};

struct events {
	struct server *server;
	struct event *look;
	LIST_HEAD(, client) clients;
	unsigned int n_clients;
	struct kept ring[EVENTS_KEPT];
	uint64_t last; /* number of the newest; 0: none */
	struct fleet_counts counts;
	uint64_t n_dropped;
	int64_t beat_us, changed_us;
};

static uint64_t oldest(const struct events *events)
{
	return events->last > EVENTS_KEPT ? events->last - EVENTS_KEPT + 1 : 1;
}

static bool sees(const struct client *client, const char *tenant)
{
	return client->wants_all ? api_may_see_tenant(client->req, tenant) : !strcmp(client->req->tenant, tenant);
}

/* ---- what a client gets ---- */

static void say(struct client *client, const char *name, const char *data)
{
	(void)snprintf(client->head, sizeof(client->head), "event: %s\ndata: %s\n\n", name, data);
	client->sending = client->head;
}

static bool take_kept(struct client *client)
{
	const struct events *events = client->events;

	while (client->next <= events->last) {
		const struct kept *kept = &events->ring[client->next % EVENTS_KEPT];

		client->next++;
		if (!kept->text || !sees(client, kept->tenant))
			continue;
		client->owned = strdup(kept->text); /* the ring goes on while it is sent */
		client->sending = client->owned;
		return client->owned != NULL;
	}
	return false;
}

static bool take_changed(struct client *client, int64_t now_us)
{
	char data[96];

	if (!client->changed || now_us - client->changed_us < client->events->changed_us)
		return false;
	(void)snprintf(data, sizeof(data), "{\"stages\":%s,\"nodes\":%s,\"sandboxes\":%s}",
		client->changed & CHANGED_STAGES ? "true" : "false", client->changed & CHANGED_NODES ? "true" : "false",
		client->changed & CHANGED_SANDBOXES ? "true" : "false");
	client->changed = 0;
	client->changed_us = now_us;
	say(client, "changed", data);
	return true;
}

static bool take_next(struct client *client, int64_t now_us)
{
	if (take_kept(client) || take_changed(client, now_us))
		return true;
	if (now_us - client->sent_us < client->events->beat_us)
		return false;
	client->sending = ": beat\n\n";
	return true;
}

static long on_want(struct http_request *http, void *buf, size_t room, void *user)
{
	struct client *client = user;
	const int64_t now_us = clock_monotonic_usec();
	size_t n = 0;

	(void)http;
	if (client->next < oldest(client->events)) {
		client->events->n_dropped++;
		return -2;
	}
	if (client->is_over)
		return -1;
	while (n < room && (client->sending || take_next(client, now_us))) {
		size_t left = strlen(client->sending), piece = MIN(left, room - n);

		memcpy((char *)buf + n, client->sending, piece);
		n += piece;
		client->sending = piece == left ? NULL : client->sending + piece;
		if (!client->sending)
			free(TAKE(client->owned));
	}
	if (n > 0)
		client->sent_us = now_us;
	return (long)n;
}

/* ---- what happens ---- */

static void keep(struct events *events, const struct stage_fact *fact)
{
	struct kept *kept;
	json_t *object = view_failed(events->server, fact, false);
	char *data = object ? json_dumps(object, JSON_COMPACT) : NULL;

	json_decref(object);
	events->last++;
	kept = &events->ring[events->last % EVENTS_KEPT];
	free(TAKE(kept->text));
	if (data && asprintf(&kept->text, "id: %s.%" PRIu64 "\nevent: failure\ndata: %s\n\n", events->server->run, events->last,
			    data) < 0)
		kept->text = NULL; /* one that nobody hears of: the number is missing */
	(void)snprintf(kept->tenant, sizeof(kept->tenant), "%s", fact->tenant ? fact->tenant : "");
	free(data);
}

void events_stage(struct events *events, const struct stage_fact *fact)
{
	const char *tenant = fact->tenant ? fact->tenant : "";
	struct client *client;

	if (fact->outcome == RESULT_FAILED)
		keep(events, fact);
	LIST_FOREACH (client, &events->clients, link) {
		if (!sees(client, tenant)) {
			/* who has all of its own is not behind for others' */
			client->next += fact->outcome == RESULT_FAILED && client->next == events->last;
			continue;
		}
		client->changed |= CHANGED_STAGES;
		if (fact->outcome == RESULT_FAILED)
			http_stream_wake(client->req->http);
	}
}

/* A tenant is told of its own alone, which its stages do. */
static unsigned int look_at_fleet(struct events *events)
{
	struct fleet_counts counts;
	unsigned int changed = 0;

	fleet_count(shell_fleet(events->server->shell), &counts);
	if (memcmp(counts.nodes, events->counts.nodes, sizeof(counts.nodes)) != 0)
		changed |= CHANGED_NODES;
	if (memcmp(counts.sandboxes, events->counts.sandboxes, sizeof(counts.sandboxes)) != 0)
		changed |= CHANGED_NODES | CHANGED_SANDBOXES;
	events->counts = counts;
	return changed;
}

static bool may_stay(const struct client *client)
{
	const struct registry *registry = &client->events->server->registry;
	const struct key_entry *key = registry_key_by_id(registry, client->req->key_id);

	return key && registry_key_is_good(registry, key) && !client->events->server->stopping;
}

static void on_look(evutil_socket_t fd, short what, void *user)
{
	struct events *events = user;
	const int64_t now_us = clock_monotonic_usec();
	struct client *client, *next;
	unsigned int changed;

	(void)fd;
	(void)what;
	if (LIST_EMPTY(&events->clients))
		return;
	changed = look_at_fleet(events);
	for (client = LIST_FIRST(&events->clients); client; client = next) {
		next = LIST_NEXT(client, link);
		client->changed |= client->req->role == ROLE_TENANT ? 0 : changed;
		if (!client->is_over && !may_stay(client)) {
			client->is_over = true;
			http_stream_wake(client->req->http);
		} else if ((client->changed && now_us - client->changed_us >= events->changed_us) ||
			   now_us - client->sent_us >= events->beat_us) {
			http_stream_wake(client->req->http);
		}
	}
}

/* ---- clients ---- */

static void client_free(void *data)
{
	struct client *client = data;

	LIST_REMOVE(client, link);
	client->events->n_clients--;
	free(client->owned);
	free(client);
}

/* "RUN.NUMBER" of the last event that the client has. *ret_missed: events between that and the first that is left, of anybody;
 * -1: it was another run of the scheduler, and nobody knows. */
static uint64_t read_last(const struct events *events, const char *text, int64_t *ret_missed)
{
	const size_t run = strlen(events->server->run);
	uint64_t number = 0;
	char *end = NULL;

	*ret_missed = 0;
	if (!text || !*text)
		return events->last + 1;
	if (strncmp(text, events->server->run, run) == 0 && text[run] == '.' && text[run + 1] >= '0' && text[run + 1] <= '9')
		number = strtoull(text + run + 1, &end, 10);
	if (!end || *end || number > events->last) {
		*ret_missed = -1;
		return oldest(events);
	}
	if (number + 1 < oldest(events))
		*ret_missed = (int64_t)(oldest(events) - number - 1);
	return MAX(number + 1, oldest(events));
}

/* Nobody takes all the streams there are: not one key, not one customer with many keys, and what is left is the provider's. */
static int check_room(const struct events *events, const struct api_request *req, struct err *reterr)
{
	const bool is_provider = role_is_provider(req->role);
	unsigned int of_key = 0, of_customer = 0, of_customers = 0;
	const struct client *client;

	LIST_FOREACH (client, &events->clients, link) {
		of_key += !strcmp(client->req->key_id, req->key_id);
		if (role_is_provider(client->req->role))
			continue;
		of_customers++;
		of_customer += !strcmp(client->req->customer, req->customer);
	}
	if (of_key >= EVENTS_KEY_MAX)
		return err_set(reterr, FAIL_RATE_LIMITED, EBUSY, "this key has %u streams of events open, as many as it may", of_key);
	if (!is_provider && of_customer >= EVENTS_CUSTOMER_MAX)
		return err_set(reterr, FAIL_RATE_LIMITED, EBUSY, "this customer's keys have %u streams of events open, as many as they may",
			of_customer);
	if (events->n_clients >= EVENTS_CLIENTS_MAX || (!is_provider && of_customers >= EVENTS_CUSTOMERS_MAX))
		return err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN, "%u streams of events are open", events->n_clients);
	return 0;
}

void api_events(struct api_request *req)
{
	static const struct http_field fields[] = { { "Cache-Control", "no-store" }, { "X-Accel-Buffering", "no" } };
	struct events *events = req->server->events;
	struct client *client = NULL;
	struct err err = ERR_NULL;
	char data[HEAD_SIZE - 32], missed_text[24] = "null";
	int64_t missed;

	if (check_room(events, req, &err) == 0) {
		client = calloc(1, sizeof(*client));
		if (!client)
			(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream of events");
	}
	if (!client) {
		api_fail(req, &err);
		return;
	}
	*client = (struct client){ .events = events, .req = req, .wants_all = api_wants_all(req) };
	client->sent_us = client->changed_us = clock_monotonic_usec();
	client->next = read_last(events, http_header(req->http, "last-event-id"), &missed);
	if (missed >= 0)
		(void)snprintf(missed_text, sizeof(missed_text), "%" PRId64, missed);
	(void)snprintf(data, sizeof(data), "{\"run\":\"%s\",\"last\":%" PRIu64 ",\"missed\":%s}", events->server->run, events->last,
		missed_text);
	say(client, "hello", data);
	LIST_INSERT_HEAD(&events->clients, client, link);
	events->n_clients++;
	req->extra = client;
	req->extra_free = client_free;
	api_answer_stream(req, "text/event-stream", fields, ARRAY_LEN(fields), on_want, client);
}

/* ---- life ---- */

int events_new(struct events **ret, struct server *server, struct err *reterr)
{
	const struct timeval every = { .tv_usec = LOOK_MS * 1000 };
	struct events *events = calloc(1, sizeof(*events));

	if (events) {
		events->server = server;
		events_pace(events, EVENTS_BEAT_US, EVENTS_CHANGED_US);
		LIST_INIT(&events->clients);
		events->look = event_new(server->base, -1, EV_PERSIST, on_look, events);
	}
	if (!events || !events->look || event_priority_set(events->look, LOOP_BULK) < 0 || event_add(events->look, &every) < 0) {
		events_free(events);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for events");
	}
	*ret = events;
	return 0;
}

void events_free(struct events *events)
{
	if (!events)
		return;
	if (events->look)
		event_free(events->look);
	for (size_t i = 0; i < EVENTS_KEPT; i++)
		free(events->ring[i].text);
	free(events);
}

void events_pace(struct events *events, int64_t beat_us, int64_t changed_us)
{
	events->beat_us = beat_us;
	events->changed_us = changed_us;
}

unsigned int events_clients(const struct events *events)
{
	return events ? events->n_clients : 0;
}

uint64_t events_dropped(const struct events *events)
{
	return events->n_dropped;
}
