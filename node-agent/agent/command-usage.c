/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node usage [-o json]: what sandboxes have used on this node, from the files of its state: the node owner's own books, which
 * `croft usage reconcile` compares with the scheduler's. Also true while the agent is down; of one that runs, at most one period old.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "agent/commands.h"
#include "agent/identity.h"
#include "agent/usage-file.h"
#include "wire/json.h"

static bool is_later(const struct usage_record *a, const struct usage_record *b)
{
	return a->generation == b->generation && !strcmp(a->sandbox, b->sandbox) && a->version > b->version;
}

/* A crash between the two files leaves an account in both. */
static bool is_overtaken(const struct usage_list *list, size_t at)
{
	for (size_t i = 0; i < list->n; i++)
		if (is_later(&list->items[i].meter.used, &list->items[at].meter.used))
			return true;
	return false;
}

static void print_row(const struct usage_record *used)
{
	(void)printf("%-22s %4llu %-5s %12.3f %12.3f %12.3f %14.1f %14llu\n", used->sandbox, (unsigned long long)used->generation,
		used->is_over ? "yes" : "no", (double)used->running_us / 1e6, (double)used->paused_us / 1e6,
		(double)used->cpu_us / 1e6, (double)used->running_us / 1e6 * (double)used->memory_mib / 1024.0,
		(unsigned long long)used->egress_bytes);
}

static int print_json(const struct identity *identity, const struct usage_list *list)
{
	json_t *records = json_array(), *all;

	for (size_t i = 0; i < list->n; i++)
		if (!is_overtaken(list, i)) {
			json_t *record = json_usage(&list->items[i].meter.used);

			(void)json_object_set_new(record, "acked_version", json_integer((json_int_t)list->items[i].acked_version));
			(void)json_array_append_new(records, record);
		}
	all = json_pack("{s:s, s:s, s:o}", "node", identity->node, "pool", identity->pool, "records", records);
	(void)json_dumpf(all, stdout, JSON_INDENT(2));
	(void)printf("\n");
	json_decref(all);
	return 0;
}

int command_usage(const struct agent_options *options, int argc, char **argv)
{
	const bool as_json = argc == 4 && !strcmp(argv[2], "-o") && !strcmp(argv[3], "json");
	struct usage_list list = { .n = 0 };
	struct identity identity;
	struct err err = ERR_NULL;
	int r;

	if (argc != 2 && !as_json) {
		(void)fprintf(stderr, "usage: croft-node usage [-o json]\n");
		return 2;
	}
	r = identity_read(options->state, &identity, &err);
	for (enum usage_file i = 0; i < USAGE_FILES && r == 0; i++)
		r = usage_read(options->state, i, &list, &err);
	if (r == 0 && as_json) {
		(void)print_json(&identity, &list);
	} else if (r == 0) {
		(void)printf("%-22s %4s %-5s %12s %12s %12s %14s %14s\n", "SANDBOX", "GEN", "OVER", "RUNNING s", "PAUSED s", "CPU s",
			"MEMORY GiB s", "EGRESS bytes");
		for (size_t i = 0; i < list.n; i++)
			if (!is_overtaken(&list, i))
				print_row(&list.items[i].meter.used);
	}
	usage_list_deinit(&list);
	return r < 0 ? command_failed(&err) : 0;
}
