/* SPDX-License-Identifier: Apache-2.0
 *
 * How the link leaves this host, as link.* of node.conf says: TCP as it is, inside TLS, through a proxy. Addresses of the other
 * kind than link.transport's are passed over. A SOCKS5 proxy without a user is libzmq's own; for everything else there is
 * a tunnel in this process (wire/tunnel.h).
 */
#pragma once

#include "agent/identity.h"
#include "agent/options.h"

struct event_base;
struct transport;

/* CONFIG_INVALID: link.* contradicts itself, or the password's file cannot be read or can be by everybody. */
int transport_new(struct transport **ret, struct event_base *base, const struct agent_options *options, struct err *reterr);
void transport_free(struct transport *transport);

/* Leaves the addresses of link.transport's kind. LINK_NO_ENDPOINT: there are none. */
int transport_choose(const struct agent_options *options, struct scheduler_address *scheduler, struct err *reterr);
/* Sets what of the dealer's configuration says where to: to the n-th address of `scheduler`. */
void transport_point(struct transport *transport, const char *address, struct dealer_config *config);
/* Why the last attempt failed; NULL: none did, or nobody knows more than that. */
const struct err *transport_failure(const struct transport *transport);

/* What has to take TCP connections for that: the proxy, else those addresses. Returns how many were set. */
size_t transport_hops(const struct agent_options *options, const struct scheduler_address *scheduler,
	char (*ret)[ADDRESS_SIZE], size_t max);
