/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a host keeps it from being a good node, each with what to do about it: `croft-node doctor`, before and after a
 * join. A check looks at the kernel's files below `root` ("" but in tests) and says findings; it changes nothing. A fix is
 * one value of the kernel's, written at once and into a file that sets it again at each boot.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum doctor_severity {
	DOCTOR_OK,
	DOCTOR_INFO,    /* worth knowing */
	DOCTOR_WARNING, /* works, and may disappoint */
	DOCTOR_ERROR,   /* no sandbox should be placed here */
};
const char *doctor_severity_name(enum doctor_severity severity); /* "ok", "info", "warning", "error" */

#define DOCTOR_PATH_MAX 96
#define DOCTOR_VALUE_MAX 32

struct doctor_finding {
	char check[24];
	enum doctor_severity severity;
	char text[256];
	char remedy[256];               /* "": none needed */
	char fix_path[DOCTOR_PATH_MAX]; /* what a fix would write; "": no safe one */
	char fix_value[DOCTOR_VALUE_MAX];
	bool is_fixed;
	int fix_errno; /* of a fix that failed */
};

struct doctor_config {
	const char *root;  /* "": this host */
	const char *state; /* the node's directory; need not exist */
	const char *kvm;   /* the device; NULL: whoever asks tries it by other means (the try waits, with a timer of the process) */
	const char *const *schedulers; /* "tcp://host:port" */
	size_t n_schedulers;           /* 0: not joined */
	unsigned int disk_floor_percent;
	uint64_t sandboxes; /* most at once: what tables of the kernel have to hold */
};

struct doctor {
	const struct doctor_config *config;
	struct doctor_finding *findings;
	size_t n;
	const char *check; /* that is being run */
	bool no_memory;
};

/* All checks, in the order of the output. 0 or -ENOMEM. */
int doctor_run(struct doctor *doctor, const struct doctor_config *config);
/* Writes what has a fix, each value and then the files for the next boot; is_fixed or fix_errno of each finding say how it
 * went. */
void doctor_fix(struct doctor *doctor);
size_t doctor_count(const struct doctor *doctor, enum doctor_severity severity); /* not fixed */
void doctor_deinit(struct doctor *doctor);

/* ---- for the checks ---- */

/* Adds a finding; *remedy "" for none. NULL when memory is short. */
struct doctor_finding *doctor_say(struct doctor *doctor, enum doctor_severity severity, const char *remedy,
	const char *fmt, ...) PRINTF_LIKE(4, 5);
void doctor_offer(struct doctor_finding *finding, const char *path, const char *value);

/* The text of a small file below the root, without the newline at its end; false when there is none. */
bool doctor_read(const struct doctor *doctor, const char *path, char *ret, size_t size);
bool doctor_read_number(const struct doctor *doctor, const char *path, uint64_t *ret);

/* checks-host.c, checks-place.c, kvm-try.c */
void doctor_check_kvm(struct doctor *doctor);
void doctor_check_cpu(struct doctor *doctor);
void doctor_check_nesting(struct doctor *doctor);
void doctor_check_kernel(struct doctor *doctor);
void doctor_check_cgroup(struct doctor *doctor);
void doctor_check_memory(struct doctor *doctor);
void doctor_check_huge_pages(struct doctor *doctor);
void doctor_check_sharing(struct doctor *doctor);
void doctor_check_sysctls(struct doctor *doctor);
void doctor_check_entropy(struct doctor *doctor);
void doctor_check_disk(struct doctor *doctor);
void doctor_check_clock(struct doctor *doctor);
void doctor_check_logs(struct doctor *doctor);
void doctor_check_scheduler(struct doctor *doctor);

/* A VM of one page whose one instruction is HLT: 0, or -errno with the step that failed. At most 5 s. */
int doctor_try_kvm(const char *device, const char **ret_step);
