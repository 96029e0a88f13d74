/* SPDX-License-Identifier: Apache-2.0
 *
 * What the operator may set: one table, from which the file's parser, the environment variables, the flags,
 * --help and the sample file come. Filled once, then left alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"

struct options {
	char *state;
	bool insecure;
	bool relay;
	char *log_level;

	char *api_address;
	uint64_t api_port;
	char *api_domain; /* "": localhost:<port> */
	uint64_t api_connections;
	char *tls_cert, *tls_key; /* files in PEM; "": plain HTTP */

	char *link_address;
	uint64_t link_port, link_next_port;
	char *link_tls_address, *link_tls_cert, *link_tls_key;
	uint64_t link_tls_port, link_tls_connections;
	char *feed_address; /* "": no feed */
	char *feed_subscribers;
	uint64_t feed_port, feed_queue;
	char *otlp_endpoint; /* "": spans go nowhere */
	char *otlp_headers_file;
	uint64_t otlp_queue, otlp_batch, otlp_timeout;
	char *link_advertise; /* comma-separated tcp:// and tls:// addresses for join tokens; "": the addresses listened on */

	uint64_t image_max_bytes;
	uint64_t store_max_bytes;
	int64_t history_age;
	uint64_t history_count;
	uint64_t audit_count;
	uint64_t rate_per_second; /* of one key; 0: no limit */
	uint64_t rate_burst;
	int64_t token_ttl; /* longest life of a join token */

	uint64_t heartbeat_ms;
	int64_t suspect_after;
	int64_t lost_after;
	int64_t grace;
	int64_t place_timeout;
	int64_t dispatch_timeout;
	int64_t start_timeout;
	uint64_t max_attempts;

	uint64_t default_vcpus, default_memory_mib, default_disk_mib;
	int64_t default_timeout;
};

extern const struct config_option options_table[];
extern const size_t options_count;

/* Reads defaults, file, environment and flags; then what no single row can check: a listener that is neither
 * loopback nor protected needs --insecure (CONFIG_INVALID). Free with options_free(). */
int options_load(struct options *ret, int *argc, char **argv, struct err *reterr);
void options_free(struct options *options);

/* 127.0.0.0/8, ::1, "localhost". */
bool address_is_loopback(const char *address);
