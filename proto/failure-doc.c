/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-failure-doc: prints docs/failures.md from the tables of failure.def. Not installed; the file is made
 * with `build/<preset>/bin/croft-failure-doc > docs/failures.md`, and a test fails where the two differ.
 */
#include <stdio.h>

#include "base/failure.h"

static void print_stages(void)
{
	printf("## Stages\n\n");
	printf("The stages of a start come in this order; each is timed and reported as ok, failed or skipped.\n\n");
	printf("| stage | when | what happens |\n|---|---|---|\n");
	for (unsigned int i = 1; i < STAGE_MAX_; i++)
		printf("| `%s` | %s | %s |\n", stage_name((enum fail_stage) i),
			i <= STAGE_START_COUNT ? "start" : "life", stage_what((enum fail_stage) i));
}

static void print_components(void)
{
	printf("\n## Components and their owners\n\n");
	printf("A code says what broke. Whose it is follows from the component and the pool's responsibility table; "
	       "these are the two default ones.\n\n");
	printf("| component | owner, managed | owner, self-hosted |\n|---|---|---|\n");
	for (unsigned int i = 1; i < COMPONENT_MAX_; i++)
		printf("| `%s` | %s | %s |\n", component_name((enum fail_component) i),
			owner_name(component_owner((enum fail_component) i, RESPONSIBILITY_MANAGED)),
			owner_name(component_owner((enum fail_component) i, RESPONSIBILITY_SELF)));
}

static void print_duties(void)
{
	unsigned int n;
	const struct duty *duties = responsibility_duties(&n);

	printf("\n## Who does what\n\n");
	printf("`installer/responsibility.ini` says it for the two contracts: a provider that runs the scheduler for the customer's nodes "
	       "(`managed`), and a customer that runs all of it. The owners above follow from the duty that names the component.\n\n");
	printf("| duty | what | managed | self-hosted | components |\n|---|---|---|---|---|\n");
	for (unsigned int i = 0; i < n; i++)
		printf("| %s | %s | %s | %s | %s |\n", duties[i].name, duties[i].what, owner_name(duties[i].owner[RESPONSIBILITY_MANAGED]),
			owner_name(duties[i].owner[RESPONSIBILITY_SELF]), *duties[i].components ? duties[i].components : "none");
}

static void print_classes(void)
{
	printf("\n## Classes\n\nThe class decides whether a retry can help.\n\n");
	printf("| class | retryable | meaning |\n|---|---|---|\n");
	for (unsigned int i = 1; i < CLASS_MAX_; i++)
		printf("| `%s` | %s | %s |\n", class_name((enum fail_class) i),
			class_is_retryable((enum fail_class) i) ? "yes" : "no", class_what((enum fail_class) i));
}

/* A bar would end the cell. */
static void print_cell(const char *text)
{
	for (; *text; text++)
		printf(*text == '|' ? "\\|" : "%c", *text);
}

static void print_codes(void)
{
	printf("\n## Codes\n\nThe stage is the one in which the code usually happens; a record names the real one.\n\n");
	printf("| code | stage | component | class | HTTP | what to do |\n|---|---|---|---|---|---|\n");
	for (unsigned int i = FAIL_NONE + 1; i < FAIL_MAX_; i++) {
		const struct failure_info *info = failure_info((enum fail_code) i);

		printf("| `%s` | %s | %s | %s | %d | ", info->name, stage_name(info->stage),
			component_name(info->component), class_name(info->class), info->http);
		print_cell(info->remedy);
		printf(" |\n");
	}
}

int main(void)
{
	printf("<!-- Made by croft-failure-doc from proto/failure.def. Do not edit. -->\n# Failures\n\n");
	printf("Every failure carries the stage in which it happened, a code, the component that broke and from it the "
	       "owner, a class that says whether a retry can help, and what to do. The same record stands in the HTTP "
	       "answer, in telemetry, in the log and on the command line.\n\n");
	print_stages();
	print_components();
	print_duties();
	print_classes();
	print_codes();
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
