/* SPDX-License-Identifier: Apache-2.0
 *
 * See progress.h.
 */
#include "cli/progress.h"

#include <stdio.h>

#include "cli/print.h"

void progress_end(struct progress *progress)
{
	if (progress->has_open)
		(void) fputs("\r\033[K", stderr);
	progress->has_open = false;
}

static void print_stage(const json_t *record)
{
	char stage[32], outcome[16], took[32], reason[64], code[64];
	const json_t *failure = json_object_get(record, "failure");
	const char *why = text_of(record, "reason", reason, sizeof(reason));

	if (!why || !*why)
		why = text_of(failure, "code", code, sizeof(code));
	if (!text_of(record, "stage", stage, sizeof(stage)) || !text_of(record, "outcome", outcome, sizeof(outcome)))
		return;
	(void) fprintf(stderr, "  %-9s %-8s %10s%s%s\n", stage, outcome,
		text_of_us(json_integer_value(json_object_get(record, "took_us")), took, sizeof(took)), why ? "  " : "",
		why ? why : "");
}

void progress_show(struct progress *progress, const json_t *sandbox)
{
	const json_t *stages = json_object_get(sandbox, "stages");
	char stage[32];

	if (!progress->is_shown)
		return;
	progress_end(progress);
	for (; progress->n_shown < json_array_size(stages); progress->n_shown++)
		print_stage(json_array_get(stages, progress->n_shown));
	if (text_of(sandbox, "stage", stage, sizeof(stage))) {
		(void) fprintf(stderr, "  %-9s ...", stage);
		progress->has_open = true;
	}
	(void) fflush(stderr);
}
