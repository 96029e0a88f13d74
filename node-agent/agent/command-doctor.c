/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node doctor [--fix] [-o json]: what of this host keeps it from being a good node. Exit status 0: no error is left;
 * 1: one is.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "agent/commands.h"
#include "agent/identity.h"
#include "agent/transport.h"
#include "doctor/doctor.h"

static json_t *finding_json(const struct doctor_finding *finding)
{
	json_t *item = json_pack("{s:s, s:s, s:s, s:s}", "check", finding->check, "severity",
		doctor_severity_name(finding->severity), "finding", finding->text, "remedy", finding->remedy);

	if (item && *finding->fix_path) {
		json_t *fix = json_pack("{s:s, s:s, s:b}", "path", finding->fix_path, "value", finding->fix_value, "done",
			finding->is_fixed);

		if (fix && finding->fix_errno)
			(void)json_object_set_new(fix, "error", json_string(strerrorname_np(finding->fix_errno)));
		(void)json_object_set_new(item, "fix", fix);
	}
	return item;
}

static void print_json(const struct doctor *doctor)
{
	json_t *list = json_array(), *all;

	for (size_t i = 0; i < doctor->n; i++)
		(void)json_array_append_new(list, finding_json(&doctor->findings[i]));
	all = json_pack("{s:I, s:I, s:o}", "errors", (json_int_t)doctor_count(doctor, DOCTOR_ERROR), "warnings",
		(json_int_t)doctor_count(doctor, DOCTOR_WARNING), "checks", list);
	(void)json_dumpf(all, stdout, JSON_INDENT(2));
	(void)printf("\n");
	json_decref(all);
}

static void print_text(const struct doctor *doctor, bool fix)
{
	size_t n_fixes = 0;

	for (size_t i = 0; i < doctor->n; i++) {
		const struct doctor_finding *finding = &doctor->findings[i];

		(void)printf("%-8s %-11s %s\n", finding->is_fixed ? "fixed" : doctor_severity_name(finding->severity),
			finding->check, finding->text);
		if (*finding->remedy && !finding->is_fixed)
			(void)printf("%20s %s\n", "", finding->remedy);
		if (finding->fix_errno)
			(void)printf("%20s not fixed: writing %s failed: %s\n", "", finding->fix_path,
				strerror(finding->fix_errno));
		n_fixes += *finding->fix_path && !finding->is_fixed;
	}
	(void)printf("\n%zu errors, %zu warnings", doctor_count(doctor, DOCTOR_ERROR), doctor_count(doctor, DOCTOR_WARNING));
	if (n_fixes && !fix)
		(void)printf("; %zu of all that root may set right with --fix", n_fixes);
	(void)printf("\n");
}

int command_doctor(const struct agent_options *options, int argc, char **argv)
{
	bool as_json = argc == 4 && !strcmp(argv[2], "-o") && !strcmp(argv[3], "json");
	char hops[SCHEDULERS_MAX][ADDRESS_SIZE];
	const char *addresses[SCHEDULERS_MAX];
	struct doctor_config config = {
		.root = "",
		.state = options->state,
		.kvm = options->kvm_device,
		.schedulers = addresses,
		.disk_floor_percent = (unsigned int)options->disk_floor_percent,
		.sandboxes = options->max_sandboxes,
	};
	CLEANUP(doctor_deinit) struct doctor doctor;
	struct identity identity;
	struct err err = ERR_NULL;

	if (argc != 2 && !as_json) {
		(void)fprintf(stderr, "usage: croft-node doctor [--fix] [-o json]\n");
		return 2;
	}
	for (size_t i = 0; i < SCHEDULERS_MAX; i++)
		addresses[i] = hops[i];
	if (identity_read(options->state, &identity, &err) == 0)
		config.n_schedulers = transport_hops(options, &identity.scheduler, hops, SCHEDULERS_MAX);
	if (doctor_run(&doctor, &config) < 0) {
		(void)err_set(&err, FAIL_NO_MEMORY, 0, "No memory for the findings.");
		return command_failed(&err);
	}
	if (options->fix)
		doctor_fix(&doctor);
	if (as_json)
		print_json(&doctor);
	else
		print_text(&doctor, options->fix);
	return doctor_count(&doctor, DOCTOR_ERROR) > 0;
}
