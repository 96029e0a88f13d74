/* SPDX-License-Identifier: Apache-2.0
 *
 * See host-tables.h.
 */
#include "agent/host-tables.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define STAT_MAX 65536u
#define FULL_PERCENT 80u /* a second after a drop some entries are gone again */

static const struct {
	const char *path;
	const char *column;
	const char *resource;
	const char *count, *max; /* the column rises for other reasons too: it says something while the table is nearly full; NULL: always */
} table_of[HOST_TABLES] = {
	/* dropped are packets as well whose entry clashes with another's, of which a host with much NAT or DNS has some */
	{ "/proc/net/stat/nf_conntrack", "drop", "connection-tracking entries (net.netfilter.nf_conntrack_max)",
		"/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max" },
	{ "/proc/net/stat/arp_cache", "table_fulls", "neighbour entries (net.ipv4.neigh.default.gc_thresh3)", NULL, NULL },
};

/* Which word of the line; -1: none. */
static int column_of(const char *line, const char *name)
{
	size_t size = strlen(name);

	for (int n = 0;; n++) {
		line += strspn(line, " ");
		if (*line == '\0' || *line == '\n')
			return -1;
		if (strcspn(line, " \n") == size && !strncmp(line, name, size))
			return n;
		line += strcspn(line, " \n");
	}
}

static uint64_t hex_word(const char *line, int column)
{
	for (; column > 0; column--) {
		line += strspn(line, " ");
		line += strcspn(line, " \n");
	}
	return strtoull(line, NULL, 16);
}

/* One line a CPU, in hexadecimal, below a line of names. A table that this kernel does not have never fills up. */
static uint64_t read_drops(const char *root, unsigned int table)
{
	CLEANUP_FREE char *text = NULL;
	char path[PATH_MAX];
	const char *line;
	uint64_t sum = 0;
	int column;

	(void)snprintf(path, sizeof(path), "%.3000s%s", root, table_of[table].path);
	if (file_read(path, STAT_MAX, &text, NULL) < 0)
		return 0;
	column = column_of(text, table_of[table].column);
	if (column < 0)
		return 0;
	for (line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
		sum += hex_word(line + 1, column);
	return sum;
}

static uint64_t read_number(const char *root, const char *name)
{
	CLEANUP_FREE char *text = NULL;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%.3000s%s", root, name);
	return file_read(path, STAT_MAX, &text, NULL) < 0 ? 0 : strtoull(text, NULL, 10);
}

static bool may_be_full(const char *root, unsigned int table)
{
	uint64_t max;

	if (!table_of[table].max)
		return true;
	max = read_number(root, table_of[table].max); /* 0: no limit, or none that can be read */
	return max > 0 && read_number(root, table_of[table].count) >= max / 100 * FULL_PERCENT;
}

int host_tables_look(struct host_tables *tables, const char *root, int64_t now)
{
	int begun = -1;

	for (unsigned int i = 0; i < HOST_TABLES; i++) {
		uint64_t drops = read_drops(root, i);

		if (tables->is_read && drops > tables->drops[i] && may_be_full(root, i)) {
			if (tables->last_usec[i] == 0 || now - tables->last_usec[i] >= HOST_TABLE_HOLD_USEC)
				begun = (int)i;
			tables->last_usec[i] = now;
		}
		tables->drops[i] = drops;
	}
	tables->is_read = true;
	return begun;
}

bool host_tables_full(const struct host_tables *tables, int64_t now, struct err *ret)
{
	for (unsigned int i = 0; i < HOST_TABLES; i++) {
		if (tables->last_usec[i] == 0 || now - tables->last_usec[i] >= HOST_TABLE_HOLD_USEC)
			continue;
		(void)err_set_at(ret, STAGE_HOST, FAIL_HOST_LIMIT, 0, "packets are dropped: the host ran out of %s",
			table_of[i].resource);
		if (ret)
			err_add(ret, "resource", "%s", table_of[i].resource);
		return true;
	}
	return false;
}
