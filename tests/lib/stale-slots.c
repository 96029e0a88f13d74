/* SPDX-License-Identifier: Apache-2.0
 *
 * stale-slots RUN POOL N
 *
 * Leaves N network slots behind in a helper's run directory, as a helper that was killed leaves them: each a namespace
 * with its TAP, link and rules, and nobody's record. Root. Prints how many there are.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "network/host.h"

int main(int argc, char **argv)
{
	struct net_host_config config = {
		.limits = { .connections = 200, .packets_per_sec = 200000, .kib_per_sec = 1000000 } };
	struct net_host_counts counts = { 0 };
	CLEANUP(net_host_freep) struct net_host *host = NULL;
	struct err err = ERR_NULL;
	char text[1024];
	int r;

	log_init("stale-slots", LOG_LEVEL_WARN);
	if (argc != 4) {
		(void)fprintf(stderr, "usage: stale-slots RUN POOL N\n");
		return 2;
	}
	config.run = argv[1];
	config.spares = (uint32_t)strtoul(argv[3], NULL, 10);
	r = net_cidr_parse(argv[2], &config.pool, &err);
	if (r == 0)
		r = net_host_new(&host, &config, &err);
	if (r < 0) {
		err_format(&err, text, sizeof(text));
		(void)fprintf(stderr, "stale-slots: %s\n", text);
		return 1;
	}
	/* a tick makes one; twice as many as it takes when none fails */
	for (uint32_t i = 0; i < 2 * config.spares && net_host_tick(host); i++)
		;
	net_host_count(host, &counts);
	(void)printf("%u\n", counts.spare);
	return counts.spare == config.spares ? 0 : 1;
}
