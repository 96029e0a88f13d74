/* SPDX-License-Identifier: Apache-2.0
 *
 * See transport.h. An attempt that failed is logged when it is another failure than the one before, and each ten minutes.
 */
#include "agent/transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/tunnel.h"

#define SOCKS "socks5://"
#define HTTP "http://"
#define PASSWORD_MAX 255
#define SAY_AGAIN_USEC (600 * USEC_PER_SEC)

struct transport {
	struct tunnel_client *tunnel; /* NULL: libzmq connects by itself */
	char socks[ADDRESS_SIZE];     /* libzmq's own proxy; "": none */
	struct err failure;
	int64_t said_usec;
};

static bool is_tls(const struct agent_options *options)
{
	return !strcmp(options->link_transport, "tls");
}

static int invalid(struct err *reterr, const char *option, const char *why)
{
	return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s %s", option, why);
}

/* "host:port" behind the scheme. */
static bool is_proxy(const char *proxy)
{
	const char *host = !strncmp(proxy, SOCKS, strlen(SOCKS)) ? proxy + strlen(SOCKS)
			 : !strncmp(proxy, HTTP, strlen(HTTP))	 ? proxy + strlen(HTTP)
								 : "";
	const char *colon = strrchr(host, ':');

	return colon && colon != host && colon[1] && !strpbrk(host, "/@ ") && strlen(proxy) < ADDRESS_SIZE &&
	       strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

static int check(const struct agent_options *options, struct err *reterr)
{
	if (!is_tls(options) && strcmp(options->link_transport, "tcp") != 0)
		return invalid(reterr, "link.transport", "is tcp or tls");
	if (*options->link_proxy && !is_proxy(options->link_proxy))
		return invalid(reterr, "link.proxy", "is socks5://HOST:PORT or http://HOST:PORT, without user and password");
	if (*options->link_proxy_password_file && !*options->link_proxy_user)
		return invalid(reterr, "link.proxy_password_file", "needs link.proxy_user");
	if (*options->link_proxy_user && !*options->link_proxy)
		return invalid(reterr, "link.proxy_user", "needs link.proxy");
	return 0;
}

/* Its first line. */
static int read_password(const char *path, char ret[static PASSWORD_MAX + 1], struct err *reterr)
{
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	size_t size;
	int r = stat(path, &st) < 0 ? -errno : file_read(path, 4096, &text, NULL);

	if (r < 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, -r, "link.proxy_password_file: cannot read %.150s", path);
	if (st.st_mode & 07) {
		explicit_bzero(text, strlen(text));
		return err_set(reterr, FAIL_CONFIG_INVALID, EPERM,
			"link.proxy_password_file: everybody can read %.150s; take that away (chmod o= )", path);
	}
	size = strcspn(text, "\r\n");
	if (size > PASSWORD_MAX)
		r = err_set(reterr, FAIL_CONFIG_INVALID, E2BIG, "link.proxy_password_file: %.150s is too long", path);
	else
		(void)snprintf(ret, PASSWORD_MAX + 1, "%.*s", (int)size, text);
	explicit_bzero(text, strlen(text));
	return r;
}

static void on_failure(const struct err *err, void *user)
{
	struct transport *transport = user;
	int64_t now = clock_monotonic_usec();

	if (err->code != transport->failure.code || now - transport->said_usec > SAY_AGAIN_USEC) {
		transport->said_usec = now;
		log_failure(LOG_LEVEL_WARN, "the link does not leave", err, NULL);
	}
	transport->failure = *err;
}

int transport_new(struct transport **ret, struct event_base *base, const struct agent_options *options, struct err *reterr)
{
	const bool is_socks = !strncmp(options->link_proxy, SOCKS, strlen(SOCKS));
	char password[PASSWORD_MAX + 1] = "";
	const struct tunnel_client_config config = { .tls = is_tls(options),
		.tls_name = options->link_tls_name,
		.proxy = options->link_proxy,
		.proxy_user = options->link_proxy_user,
		.proxy_password = password,
		.on_failure = on_failure };
	struct tunnel_client_config mine = config;
	struct transport *transport;
	int r = check(options, reterr);

	if (r == 0 && *options->link_proxy_password_file)
		r = read_password(options->link_proxy_password_file, password, reterr);
	if (r < 0)
		return r;
	transport = calloc(1, sizeof(*transport));
	if (!transport)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	mine.user = transport;
	if (is_socks && !config.tls && !*options->link_proxy_user)
		(void)snprintf(transport->socks, sizeof(transport->socks), "%s", options->link_proxy + strlen(SOCKS));
	else if (config.tls || *options->link_proxy)
		r = tunnel_client_new(&transport->tunnel, base, &mine, reterr);
	explicit_bzero(password, sizeof(password));
	if (r < 0) {
		transport_free(transport);
		return r;
	}
	*ret = transport;
	return 0;
}

void transport_free(struct transport *transport)
{
	if (!transport)
		return;
	tunnel_client_free(transport->tunnel);
	free(transport);
}

int transport_choose(const struct agent_options *options, struct scheduler_address *scheduler, struct err *reterr)
{
	const char *scheme = is_tls(options) ? "tls://" : "tcp://";
	struct scheduler_address chosen = *scheduler;

	chosen.n_addresses = chosen.n_own = 0;
	memset(chosen.addresses, 0, sizeof(chosen.addresses));
	for (unsigned int i = 0; i < scheduler->n_addresses; i++)
		if (!strncmp(scheduler->addresses[i], scheme, strlen(scheme))) {
			memcpy(chosen.addresses[chosen.n_addresses++], scheduler->addresses[i], ADDRESS_SIZE);
			chosen.n_own += i < scheduler->n_own;
		}
	if (chosen.n_addresses == 0)
		return err_set(reterr, FAIL_LINK_NO_ENDPOINT, ENOENT, "the scheduler has no %s address", scheme);
	*scheduler = chosen;
	return 0;
}

void transport_point(struct transport *transport, const char *address, struct dealer_config *config)
{
	config->address = transport->tunnel ? tunnel_client_target(transport->tunnel, address) : address;
	config->socks_proxy = *transport->socks ? transport->socks : NULL;
}

const struct err *transport_failure(const struct transport *transport)
{
	return err_is_set(&transport->failure) ? &transport->failure : NULL;
}

size_t transport_hops(const struct agent_options *options, const struct scheduler_address *scheduler,
	char (*ret)[ADDRESS_SIZE], size_t max)
{
	struct scheduler_address chosen = *scheduler;
	size_t n = 0;

	if (check(options, NULL) < 0 || transport_choose(options, &chosen, NULL) < 0)
		return 0;
	if (*options->link_proxy) {
		(void)snprintf(ret[0], ADDRESS_SIZE, "tcp%s", strstr(options->link_proxy, "://"));
		return 1;
	}
	for (; n < chosen.n_addresses && n < max; n++)
		memcpy(ret[n], chosen.addresses[n], ADDRESS_SIZE);
	return n;
}
