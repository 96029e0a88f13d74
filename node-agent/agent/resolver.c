/* SPDX-License-Identifier: Apache-2.0
 *
 * See resolver.h.
 */
#include "agent/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "agent/helper-link.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/table.h"
#include "network/dns.h"

#define PACKETS_PER_TURN 32
#define UNDER_WAY_MAX 32u /* of one sandbox */
#define PIN_SEC_MIN 60u   /* an answer for 0 s is to be good for a connect all the same */
#define TTL_SEC_MAX 3600u
#define ANSWERS_MAX 256u  /* of one sandbox, remembered: a policy that comes later may allow their names */

/* What a name was answered last. */
struct answer {
	char *name;
	uint32_t addresses[DNS_ADDRESSES_MAX];
	size_t n;
	int64_t until_usec;
};

struct slot_socket {
	UT_hash_handle hh;
	struct resolver *resolver;
	char sandbox[ID_SIZE];
	int fd;
	struct event *event;
	struct net_policy policy;
	struct dns_rate rate;
	LIST_HEAD(, lookup) lookups;
	unsigned int n_lookups;
	struct answer *answers; /* ANSWERS_MAX; NULL: none yet */
	unsigned int next_answer;
};

/* One question under way. Whose socket went first is forgotten, and ends with the answer that nobody hears. */
struct lookup {
	LIST_ENTRY(lookup) link;
	struct slot_socket *socket; /* NULL: gone */
	struct dns_query query;
	struct sockaddr_in from;
	bool is_pinning; /* the helper was asked */
	uint32_t addresses[DNS_ADDRESSES_MAX];
	size_t n;
	uint32_t ttl_sec;
};

struct resolver {
	struct event_base *base;
	struct evdns_base *dns;
	struct helper_link *helper;
	struct slot_socket *sockets;
	struct resolver_counts counts;
	bool is_closing; /* the link to the helper is gone, and will not call back */
};

static void lookup_free(struct lookup *lookup)
{
	if (lookup->socket) {
		LIST_REMOVE(lookup, link);
		lookup->socket->n_lookups--;
	}
	free(lookup);
}

static void say(const struct slot_socket *socket, const struct dns_query *query, const struct sockaddr_in *to,
	enum dns_code code, const uint32_t *addresses, size_t n, uint32_t ttl_sec)
{
	uint8_t out[DNS_MESSAGE_MAX];
	size_t size = dns_answer(query, code, addresses, n, ttl_sec, out);

	/* a full socket: the guest asks again */
	(void)sendto(socket->fd, out, size, MSG_DONTWAIT, (const struct sockaddr *)to, sizeof(*to));
}

static void finish(struct lookup *lookup, enum dns_code code)
{
	if (lookup->socket) {
		struct resolver *resolver = lookup->socket->resolver;

		if (code == DNS_OK)
			resolver->counts.answered++;
		else
			resolver->counts.failed++;
		say(lookup->socket, &lookup->query, &lookup->from, code, lookup->addresses, lookup->n, lookup->ttl_sec);
	}
	lookup_free(lookup);
}

static void on_pinned(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct lookup *lookup = user;

	(void)fds, (void)n_fds;
	/* an address that cannot be reached is no answer */
	finish(lookup, err_is_set(&reply->failure) ? DNS_FAILED : DNS_OK);
}

static void pin(struct lookup *lookup)
{
	struct helper_request request = { .type = HELPER_PIN };
	struct net_pin pins[DNS_ADDRESSES_MAX];
	struct helper_link *helper = lookup->socket->resolver->helper;

	for (size_t i = 0; i < lookup->n; i++)
		pins[i] = (struct net_pin){ lookup->addresses[i], MAX(lookup->ttl_sec, PIN_SEC_MIN) };
	memcpy(request.sandbox, lookup->socket->sandbox, sizeof(request.sandbox));
	request.pins = pins;
	request.n_pins = lookup->n;
	lookup->is_pinning = true;
	if (helper && helper_link_ask(helper, &request, NULL, 0, on_pinned, lookup, NULL) < 0)
		finish(lookup, DNS_FAILED);
	else if (!helper)
		finish(lookup, DNS_OK);
}

/* R134: what a name answers is judged, not the name. */
static void note_stripped(struct lookup *lookup, size_t stripped)
{
	lookup->socket->resolver->counts.stripped += stripped;
	log_warn("private addresses were answered and stripped", "code", failure_info(FAIL_EGRESS_DENIED)->name,
		"sandbox", lookup->socket->sandbox, "name", lookup->query.name, "addresses", LOG_NUM(stripped));
}

static enum dns_code code_of(int result)
{
	switch (result) {
	case DNS_ERR_NONE:
	case DNS_ERR_NODATA:
		return DNS_OK;
	case DNS_ERR_NOTEXIST:
		return DNS_NO_NAME;
	default:
		return DNS_FAILED;
	}
}

/* Without memory it is forgotten: the guest asks again. */
static void remember(struct slot_socket *socket, const struct lookup *lookup)
{
	struct answer *answer = NULL;

	if (!socket->answers)
		socket->answers = calloc(ANSWERS_MAX, sizeof(*socket->answers));
	if (!socket->answers)
		return;
	for (unsigned int i = 0; i < ANSWERS_MAX && !answer; i++)
		if (socket->answers[i].name && !strcmp(socket->answers[i].name, lookup->query.name))
			answer = &socket->answers[i];
	if (!answer) {
		answer = &socket->answers[socket->next_answer++ % ANSWERS_MAX];
		free(answer->name);
		answer->name = strdup(lookup->query.name);
	}
	memcpy(answer->addresses, lookup->addresses, sizeof(answer->addresses));
	answer->n = lookup->n;
	answer->until_usec = clock_monotonic_usec() + MAX(lookup->ttl_sec, PIN_SEC_MIN) * USEC_PER_SEC;
}

static void on_resolved(int result, char type, int count, int ttl, void *addresses, void *user)
{
	struct lookup *lookup = user;
	enum net_name_verdict verdict;
	size_t found = 0;

	if (!lookup->socket) {
		lookup_free(lookup);
		return;
	}
	if (result == DNS_ERR_NONE && type == DNS_IPv4_A && count > 0)
		found = MIN((size_t)count, (size_t)DNS_ADDRESSES_MAX);
	for (size_t i = 0; i < found; i++) {
		uint32_t wire;

		memcpy(&wire, (const char *)addresses + i * sizeof(wire), sizeof(wire));
		lookup->addresses[i] = ntohl(wire);
	}
	lookup->ttl_sec = ttl < 0 ? 0 : MIN((uint32_t)ttl, TTL_SEC_MAX);
	lookup->n = dns_strip(lookup->addresses, found);
	if (lookup->n < found)
		note_stripped(lookup, found - lookup->n);
	/* by the policy of now: it may have changed since the question */
	verdict = net_judge_name(&lookup->socket->policy, lookup->query.name);
	if (lookup->n > 0)
		remember(lookup->socket, lookup);
	if (verdict == NET_NAME_REFUSED) {
		lookup->n = 0;
		finish(lookup, DNS_REFUSED);
	} else if (verdict == NET_NAME_PINNED && lookup->n > 0) {
		pin(lookup);
	} else {
		finish(lookup, code_of(result));
	}
}

static void resolve(struct slot_socket *socket, const struct dns_query *query, const struct sockaddr_in *from)
{
	struct lookup *lookup = socket->n_lookups < UNDER_WAY_MAX ? calloc(1, sizeof(*lookup)) : NULL;

	if (!lookup) {
		socket->resolver->counts.too_many++;
		say(socket, query, from, DNS_FAILED, NULL, 0, 0);
		return;
	}
	lookup->socket = socket;
	lookup->query = *query;
	lookup->from = *from;
	LIST_INSERT_HEAD(&socket->lookups, lookup, link);
	socket->n_lookups++;
	if (!evdns_base_resolve_ipv4(socket->resolver->dns, query->name, DNS_QUERY_NO_SEARCH, on_resolved, lookup))
		finish(lookup, DNS_FAILED);
}

static void take(struct slot_socket *socket, const uint8_t *data, size_t size, const struct sockaddr_in *from)
{
	struct resolver_counts *counts = &socket->resolver->counts;
	enum dns_code code = DNS_REFUSED;
	enum net_name_verdict verdict;
	struct dns_query query;
	enum dns_verdict kind;

	counts->questions++;
	if (!dns_rate_take(&socket->rate, clock_monotonic_usec())) {
		counts->too_many++;
		return; /* no answer: an answer costs, and a client that waits is slower */
	}
	kind = dns_query_parse(data, size, &query, &code);
	if (kind == DNS_IGNORE)
		return;
	verdict = kind == DNS_RESOLVE ? net_judge_name(&socket->policy, query.name) : NET_NAME_REFUSED;
	if (kind == DNS_RESOLVE && verdict != NET_NAME_REFUSED) {
		resolve(socket, &query, from);
		return;
	}
	if (kind == DNS_RESOLVE)
		code = DNS_REFUSED;
	if (code == DNS_REFUSED)
		counts->refused++;
	say(socket, &query, from, code, NULL, 0, 0);
}

static void on_question(evutil_socket_t fd, short what, void *user)
{
	struct slot_socket *socket = user;

	(void)what;
	for (int i = 0; i < PACKETS_PER_TURN; i++) {
		uint8_t data[DNS_MESSAGE_MAX + 1];
		struct sockaddr_in from;
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&from, &size);

		if (n < 0)
			return;
		if (size == sizeof(from) && from.sin_family == AF_INET)
			take(socket, data, (size_t)n, &from);
	}
}

/* ---- the object ---- */

int resolver_new(struct resolver **ret, struct event_base *base, struct helper_link *helper, struct err *reterr)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));

	if (resolver) {
		resolver->base = base;
		resolver->helper = helper;
		/* no name server at all: every question fails, by itself, until there is one */
		resolver->dns = evdns_base_new(base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	}
	if (!resolver || !resolver->dns) {
		free(resolver);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the resolver");
	}
	if (evdns_base_resolv_conf_parse(resolver->dns, DNS_OPTION_NAMESERVERS, "/etc/resolv.conf") != 0)
		log_warn("the host names no name server: sandboxes resolve nothing", "path", "/etc/resolv.conf");
	*ret = resolver;
	return 0;
}

static void socket_free(struct slot_socket *socket)
{
	struct lookup *lookup;

	while ((lookup = LIST_FIRST(&socket->lookups))) {
		LIST_REMOVE(lookup, link);
		lookup->socket = NULL;
		if (lookup->is_pinning && socket->resolver->is_closing)
			free(lookup);
	}
	HASH_DEL(socket->resolver->sockets, socket);
	if (socket->event)
		event_free(socket->event);
	(void)fd_close(socket->fd);
	net_policy_deinit(&socket->policy);
	for (unsigned int i = 0; socket->answers && i < ANSWERS_MAX; i++)
		free(socket->answers[i].name);
	free(socket->answers);
	free(socket);
}

void resolver_free(struct resolver *resolver)
{
	struct slot_socket *socket, *next;

	if (!resolver)
		return;
	resolver->is_closing = true;
	HASH_ITER (hh, resolver->sockets, socket, next)
		socket_free(socket);
	evdns_base_free(resolver->dns, 1); /* ends each lookup with an error */
	free(resolver);
}

int resolver_set_upstream(struct resolver *resolver, const char *server)
{
	evdns_base_clear_nameservers_and_suspend(resolver->dns);
	if (evdns_base_nameserver_ip_add(resolver->dns, server) != 0)
		return -EINVAL;
	return evdns_base_resume(resolver->dns) == 0 ? 0 : -EIO;
}

static struct slot_socket *find(const struct resolver *resolver, const char *sandbox)
{
	struct slot_socket *socket;

	HASH_FIND_STR(resolver->sockets, sandbox, socket);
	return socket;
}

/* What the former socket of the sandbox answered is the new one's. */
static void inherit(struct slot_socket *socket, struct slot_socket *former)
{
	if (!former)
		return;
	socket->answers = TAKE(former->answers);
	socket->next_answer = former->next_answer;
	socket_free(former);
}

int resolver_add(struct resolver *resolver, const char *sandbox, int fd, const struct net_policy *policy)
{
	struct slot_socket *socket = calloc(1, sizeof(*socket));
	int r = -ENOMEM;

	if (!socket) {
		resolver_remove(resolver, sandbox);
		(void)fd_close(fd);
		return -ENOMEM;
	}
	inherit(socket, find(resolver, sandbox));
	socket->resolver = resolver;
	socket->fd = fd;
	LIST_INIT(&socket->lookups);
	(void)snprintf(socket->sandbox, sizeof(socket->sandbox), "%s", sandbox);
	HASH_ADD_STR(resolver->sockets, sandbox, socket);
	if (!socket->hh.tbl) {
		(void)fd_close(fd);
		free(socket->answers);
		free(socket);
		return -ENOMEM;
	}
	if (net_policy_copy(policy, &socket->policy) == 0) {
		socket->event = event_new(resolver->base, fd, EV_READ | EV_PERSIST, on_question, socket);
		r = socket->event && event_add(socket->event, NULL) == 0 ? 0 : -ENOMEM;
	}
	if (r < 0)
		socket_free(socket);
	return r;
}

int resolver_set_policy(struct resolver *resolver, const char *sandbox, const struct net_policy *policy)
{
	struct slot_socket *socket = find(resolver, sandbox);
	struct net_policy copy;

	if (!socket)
		return -ENOENT;
	if (net_policy_copy(policy, &copy) < 0)
		return -ENOMEM;
	net_policy_deinit(&socket->policy);
	socket->policy = copy;
	return 0;
}

size_t resolver_pins(const struct resolver *resolver, const char *sandbox, const struct net_policy *policy,
	struct net_pin *ret, size_t max)
{
	const struct slot_socket *socket = find(resolver, sandbox);
	int64_t now = clock_monotonic_usec();
	size_t n = 0;

	for (unsigned int i = 0; socket && socket->answers && i < ANSWERS_MAX; i++) {
		const struct answer *answer = &socket->answers[i];

		if (!answer->name || answer->until_usec - now < USEC_PER_SEC ||
			net_judge_name(policy, answer->name) != NET_NAME_PINNED)
			continue;
		for (size_t k = 0; k < answer->n && n < max; k++)
			ret[n++] = (struct net_pin){ answer->addresses[k],
				(uint32_t)((answer->until_usec - now) / USEC_PER_SEC) };
	}
	return n;
}

void resolver_remove(struct resolver *resolver, const char *sandbox)
{
	struct slot_socket *socket = find(resolver, sandbox);

	if (socket)
		socket_free(socket);
}

void resolver_count(const struct resolver *resolver, struct resolver_counts *ret)
{
	*ret = resolver->counts;
}
