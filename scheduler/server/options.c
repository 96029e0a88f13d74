/* SPDX-License-Identifier: Apache-2.0
 *
 * See options.h.
 */
#include "server/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define CONFIG_FILE "/etc/croft/scheduler.conf"
#define SEC ((uint64_t)USEC_PER_SEC)
#define AT(member) offsetof(struct options, member)

/* clang-format off */
const struct config_option options_table[] = {
	{ "", "state", CONFIG_STRING, AT(state), "", 0, 0, false,
		"Directory of the store, the keys and the image bytes (/var/lib/croft/scheduler, or the user's XDG state)." },
	{ "", "insecure", CONFIG_BOOL, AT(insecure), "no", 0, 0, false,
		"Serve plain HTTP on an address that is not loopback." },
	{ "", "relay", CONFIG_BOOL, AT(relay), "yes", 0, 0, false,
		"Relay calls to sandboxes over the nodes' links." },
	{ "", "log", CONFIG_STRING, AT(log_level), "info", 0, 0, false,
		"Level of the log: error, warn, info or debug." },
	{ "api", "address", CONFIG_STRING, AT(api_address), "127.0.0.1", 0, 0, false,
		"Address of the HTTP API." },
	{ "api", "port", CONFIG_U64, AT(api_port), "7280", 0, 65535, false,
		"Port of the HTTP API; 0: any, it is said in the log." },
	{ "api", "domain", CONFIG_STRING, AT(api_domain), "", 0, 0, false,
		"Domain under which <port>-<sandbox>.<domain> leads here; empty: localhost and the port." },
	{ "api", "connections", CONFIG_U64, AT(api_connections), "2048", 16, 100000, false,
		"Most HTTP connections at once." },
	{ "api", "tls_cert", CONFIG_STRING, AT(tls_cert), "", 0, 0, false,
		"Certificate chain of the API in a PEM file; empty: plain HTTP." },
	{ "api", "tls_key", CONFIG_STRING, AT(tls_key), "", 0, 0, false,
		"Its key, in a PEM file." },
	{ "link", "address", CONFIG_STRING, AT(link_address), "127.0.0.1", 0, 0, false,
		"Address on which nodes are awaited (always CURVE); * for all." },
	{ "link", "port", CONFIG_U64, AT(link_port), "7281", 0, 65535, false,
		"Port on which nodes are awaited; 0: any, it is said in the log." },
	{ "link", "next_port", CONFIG_U64, AT(link_next_port), "0", 0, 65535, false,
		"Port that is served with a new key of the link during an overlap (`keys rotate`), where the other serves the old one; 0: none." },
	{ "link", "advertise", CONFIG_STRING, AT(link_advertise), "", 0, 0, false,
		"tcp:// and tls:// addresses that join tokens name, comma-separated; empty: those listened on." },
	{ "link", "tls_port", CONFIG_U64, AT(link_tls_port), "0", 0, 65535, false,
		"Port for nodes whose link comes in a TLS envelope (link.transport of node.conf), for example 443; 0: none." },
	{ "link", "tls_address", CONFIG_STRING, AT(link_tls_address), "", 0, 0, false,
		"Address of that port; empty: link.address." },
	{ "link", "tls_cert", CONFIG_STRING, AT(link_tls_cert), "", 0, 0, false,
		"Certificate chain of that port in a PEM file, for firewalls that look at it (nodes do not); empty: one is made." },
	{ "link", "tls_key", CONFIG_STRING, AT(link_tls_key), "", 0, 0, false, "Its key, in a PEM file." },
	{ "link", "tls_connections", CONFIG_U64, AT(link_tls_connections), "4096", 1, 100000, false,
		"Most connections of that port at once; more wait." },
	{ "feed", "address", CONFIG_STRING, AT(feed_address), "", 0, 0, false,
		"Address on which stages, pools and the fleet are published (ZeroMQ, always CURVE); empty: nowhere." },
	{ "feed", "port", CONFIG_U64, AT(feed_port), "7282", 0, 65535, false,
		"Port of the feed; 0: any, it is said in the log." },
	{ "feed", "subscribers", CONFIG_STRING, AT(feed_subscribers), "", 0, 0, false,
		"File with the public CURVE keys (Z85) that may subscribe, one a line; read at start." },
	{ "feed", "queue", CONFIG_U64, AT(feed_queue), "10000", 1, 1000000, false,
		"Messages that wait for one subscriber at most; what comes then it loses." },
	{ "otlp", "endpoint", CONFIG_STRING, AT(otlp_endpoint), "", 0, 0, false,
		"URL to which stages are posted as spans (OTLP/HTTP, JSON), for example https://collector:4318/v1/traces; empty: nowhere." },
	{ "otlp", "headers_file", CONFIG_STRING, AT(otlp_headers_file), "", 0, 0, false,
		"File with headers of these requests, \"Name: value\" a line, as of a bearer; closed to others; read at start." },
	{ "otlp", "queue", CONFIG_U64, AT(otlp_queue), "8192", 1, 1000000, false,
		"Spans that wait for the collector at most; what comes then is dropped and counted." },
	{ "otlp", "batch", CONFIG_U64, AT(otlp_batch), "256", 1, 4096, false, "Most spans of one request." },
	{ "otlp", "timeout", CONFIG_DURATION, AT(otlp_timeout), "10s", SEC / 10, 300 * SEC, false,
		"How long an answer is waited for before the request is sent again." },
	{ "limits", "image_size", CONFIG_SIZE, AT(image_max_bytes), "16G", 4096, 0, false,
		"Largest image that may be imported." },
	{ "limits", "store_size", CONFIG_SIZE, AT(store_max_bytes), "0", 0, 0, false,
		"Largest size of the store's file; 0: what the file system holds." },
	{ "limits", "rate_per_second", CONFIG_U64, AT(rate_per_second), "200", 0, 1000000, false,
		"Requests a second that one key may send to the API; 0: any number." },
	{ "limits", "rate_burst", CONFIG_U64, AT(rate_burst), "400", 1, 1000000, false,
		"Requests that one key may send at once." },
	{ "limits", "token_ttl", CONFIG_DURATION, AT(token_ttl), "1h", SEC, 30 * 24 * 3600 * SEC, false,
		"Longest, and usual, life of a join token." },
	{ "limits", "history_age", CONFIG_DURATION, AT(history_age), "30d", 60 * SEC, 10 * 365 * 24 * 3600 * SEC, false,
		"How long ended sandboxes are remembered." },
	{ "limits", "history_count", CONFIG_U64, AT(history_count), "100000", 1, 10000000, false,
		"How many ended sandboxes are remembered." },
	{ "limits", "audit_count", CONFIG_U64, AT(audit_count), "1000000", 1000, 1000000000, false,
		"How many entries of the audit log are kept; one takes about 1 KiB." },
	{ "fleet", "heartbeat_ms", CONFIG_U64, AT(heartbeat_ms), "1000", 50, 60000, false,
		"How often a node says that it lives." },
	{ "fleet", "suspect_after", CONFIG_DURATION, AT(suspect_after), "2800ms", SEC / 10, 3600 * SEC, false,
		"Silence after which nothing more is placed on a node; a dead one is seen 0.2 s later at most." },
	{ "fleet", "lost_after", CONFIG_DURATION, AT(lost_after), "60s", SEC / 5, 24 * 3600 * SEC, false,
		"Silence after which a node counts as lost." },
	{ "fleet", "grace", CONFIG_DURATION, AT(grace), "300s", 0, 24 * 3600 * SEC, false,
		"After a start of the scheduler no node is lost earlier than this." },
	{ "fleet", "place_timeout", CONFIG_DURATION, AT(place_timeout), "60s", SEC / 10, 3600 * SEC, false,
		"Longest wait for a start slot." },
	{ "fleet", "dispatch_timeout", CONFIG_DURATION, AT(dispatch_timeout), "20s", SEC / 10, 3600 * SEC, false,
		"Longest wait until a node accepted a sandbox." },
	{ "fleet", "start_timeout", CONFIG_DURATION, AT(start_timeout), "120s", SEC / 10, 3600 * SEC, false,
		"Longest time from accepted to ready." },
	{ "fleet", "max_attempts", CONFIG_U64, AT(max_attempts), "3", 1, 10, false,
		"Most attempts of one start." },
	{ "sandbox", "vcpus", CONFIG_U64, AT(default_vcpus), "1", 1, 32, false,
		"vCPUs of a sandbox that asks for none." },
	{ "sandbox", "memory_mib", CONFIG_U64, AT(default_memory_mib), "512", 64, 1 << 24, false,
		"Memory of a sandbox that asks for none." },
	{ "sandbox", "disk_mib", CONFIG_U64, AT(default_disk_mib), "1024", 16, 1 << 28, false,
		"Writable disk of a sandbox that asks for none." },
	{ "sandbox", "timeout", CONFIG_DURATION, AT(default_timeout), "300s", SEC, 30 * 24 * 3600 * SEC, false,
		"Life of a sandbox that asks for none." },
};
/* clang-format on */
const size_t options_count = ARRAY_LEN(options_table);

bool address_is_loopback(const char *address)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (!strcmp(address, "localhost"))
		return true;
	if (inet_pton(AF_INET, address, &v4) == 1)
		return (ntohl(v4.s_addr) >> 24) == 127;
	return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* Whether what goes there is read by nobody else: TLS, or this host. */
static bool is_private_url(const char *url)
{
	const char *host = url + strlen("http://");
	char text[64];

	if (!strncmp(url, "https://", 8))
		return true;
	if (*host == '[')
		(void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(host + 1, "]"), host + 1);
	else
		(void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(host, ":/"), host);
	return address_is_loopback(text) || !strcmp(text, "localhost");
}

/* /var/lib for root, the XDG place for everybody else. */
static int default_state(struct options *options, struct err *reterr)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int r;

	if (*options->state)
		return 0;
	if (geteuid() == 0)
		r = asprintf(&path, "/var/lib/croft/scheduler");
	else if (xdg && *xdg == '/')
		r = asprintf(&path, "%s/croft/scheduler", xdg);
	else
		r = asprintf(&path, "%s/.local/state/croft/scheduler", home ? home : "");
	if (r < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the options");
	free(options->state);
	options->state = path;
	return 0;
}

/* What no single row of the table can check. */
static int check(const struct options *options, struct err *reterr)
{
	if (!*options->tls_cert != !*options->tls_key)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"api.tls_cert and api.tls_key go together: %s is not set",
			*options->tls_cert ? "api.tls_key" : "api.tls_cert");
	if (!*options->link_tls_cert != !*options->link_tls_key)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"link.tls_cert and link.tls_key go together: %s is not set",
			*options->link_tls_cert ? "link.tls_key" : "link.tls_cert");
	if (!address_is_loopback(options->api_address) && !*options->tls_cert && !options->insecure)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"api.address %s is not loopback: set api.tls_cert and api.tls_key, or say --insecure",
			options->api_address);
	if (*options->feed_address && !*options->feed_subscribers)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"feed.address needs feed.subscribers: the file with the keys that may subscribe");
	if (*options->otlp_endpoint && strncmp(options->otlp_endpoint, "https://", 8) != 0 && strncmp(options->otlp_endpoint, "http://", 7) != 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "otlp.endpoint is no http:// or https:// URL");
	if (*options->otlp_endpoint && *options->otlp_headers_file && !is_private_url(options->otlp_endpoint) && !options->insecure)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"otlp.headers_file would go out in clear: make otlp.endpoint an https:// URL, or say --insecure");
	if (options->lost_after <= options->suspect_after)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"fleet.lost_after must be longer than fleet.suspect_after");
	return 0;
}

int options_load(struct options *ret, int *argc, char **argv, struct err *reterr)
{
	const char *file = access(CONFIG_FILE, R_OK) == 0 ? CONFIG_FILE : NULL;
	int r = config_load(options_table, options_count, ret, file, argc, argv, reterr);

	if (r < 0)
		return r;
	r = default_state(ret, reterr);
	if (r == 0)
		r = check(ret, reterr);
	if (r < 0)
		options_free(ret);
	return r;
}

void options_free(struct options *options)
{
	config_free(options_table, options_count, options);
}
