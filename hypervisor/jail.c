/* SPDX-License-Identifier: Apache-2.0
 *
 * See jail.h. The order of the table is the order of the steps, and it matters: what needs /proc comes before the
 * new root, what needs privilege before the capabilities go, and "may not be dumped" last, since it makes
 * /proc/self another's.
 */
#include "jail.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "filter.h"
#include "jail-root.h"

/* CMakeLists.txt says so of a build with sanitizers: their run-time opens files, reads /proc and traces itself. */
#ifndef CROFT_SANITIZED
#define CROFT_SANITIZED 0
#endif

#define OOM_SCORE "500" /* the kernel takes a sandbox before it takes an agent */
#define DESCRIPTORS_MAX 2048u /* 1024 connections of the guest, devices, vCPUs */
#define CAPABILITIES_MAX 64

struct step_context {
	struct jail *jail;
	const struct jail_config *config;
	bool has_root;
};

/* ---- steps: 0, -errno, or -ENOTSUP in a build with sanitizers ---- */

static int compare(const void *a, const void *b)
{
	int x = *(const int *) a, y = *(const int *) b;

	return (x > y) - (x < y);
}

static int close_others(struct step_context *context)
{
	const struct jail_config *config = context->config;
	int keep[JAIL_KEEP_MAX + 1];
	unsigned int n = 0, from = STDERR_FILENO + 1;

	for (unsigned int i = 0; i < config->n_keep; i++)
		if (config->keep[i] > STDERR_FILENO)
			keep[n++] = config->keep[i];
	if (config->cgroup_fd > STDERR_FILENO)
		keep[n++] = config->cgroup_fd;
	qsort(keep, n, sizeof(keep[0]), compare);
	for (unsigned int i = 0; i < n; i++) {
		if ((unsigned int) keep[i] > from && close_range(from, (unsigned int) keep[i] - 1, 0) < 0)
			return -errno;
		from = (unsigned int) keep[i] + 1;
	}
	return close_range(from, UINT_MAX, 0) < 0 ? -errno : 0;
}

/* Its bytes too: clearenv() alone forgets where they are. */
static int clear_environment(struct step_context *context)
{
	(void) context;
	for (char **entry = environ; entry && *entry; entry++)
		explicit_bzero(*entry, strlen(*entry));
	return clearenv() == 0 ? 0 : -ENOMEM;
}

static int join_cgroup(struct step_context *context)
{
	CLEANUP_FD int dir = context->config->cgroup_fd;
	CLEANUP_FD int procs = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);

	return procs < 0 ? -errno : fd_write_all(procs, "0", 1);
}

static int set_oom_score(struct step_context *context)
{
	CLEANUP_FD int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	(void) context;
	return fd < 0 ? -errno : fd_write_all(fd, OOM_SCORE, sizeof(OOM_SCORE) - 1);
}

/* Without CAP_SYS_ADMIN meanwhile: the kernel tells physical addresses to a file that was opened with it, whoever reads it later,
 * and a VMM that its guest took over would know where its pages lie beside others'. */
static int open_pagemap(struct step_context *context)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct before[2], during[2];
	int r;

	if (syscall(SYS_capget, &header, before) < 0)
		return -errno;
	memcpy(during, before, sizeof(during));
	during[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &header, during) < 0)
		return -errno;
	context->jail->pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	r = context->jail->pagemap_fd < 0 ? -errno : 0;
	return syscall(SYS_capset, &header, before) < 0 ? -errno : r;
}

/* Lowered for good: the hard limit too. A limit that is lower already stays. */
static int set_limits(struct step_context *context)
{
	static const struct {
		__rlimit_resource_t resource;
		rlim_t max;
	} limits[] = { { RLIMIT_NOFILE, DESCRIPTORS_MAX }, { RLIMIT_CORE, 0 }, { RLIMIT_MEMLOCK, 0 },
		{ RLIMIT_MSGQUEUE, 0 }, { RLIMIT_RTPRIO, 0 }, { RLIMIT_NICE, 0 } };

	(void) context;
	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct rlimit limit;

		if (getrlimit(limits[i].resource, &limit) < 0)
			return -errno;
		limit.rlim_max = MIN(limit.rlim_max, limits[i].max);
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(limits[i].resource, &limit) < 0)
			return -errno;
	}
	return 0;
}

static int make_namespaces(struct step_context *context)
{
	return jail_make_namespaces(context->has_root);
}

static int make_root(struct step_context *context)
{
	/* without a mount namespace of its own it would be everybody's root */
	if (!(context->jail->report.applied & 1u << JAIL_NAMESPACES))
		return -EPERM;
	return CROFT_SANITIZED ? -ENOTSUP : jail_make_root(context->config->run);
}

static int drop_bounding_set(void)
{
	for (int cap = 0; cap < CAPABILITIES_MAX; cap++) {
		if (prctl(PR_CAPBSET_READ, cap) != 1)
			continue; /* not in it, or the kernel has no such capability */
		if (prctl(PR_CAPBSET_DROP, cap) < 0)
			return -errno;
	}
	return 0;
}

static int set_user(struct step_context *context)
{
	uid_t uid = context->config->uid, uids[3];
	gid_t gid = context->config->gid, gids[3];
	int r = drop_bounding_set(); /* needs what the change of the uid takes away */

	if (r < 0)
		return r;
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -errno;
	if (getresuid(&uids[0], &uids[1], &uids[2]) < 0 || getresgid(&gids[0], &gids[1], &gids[2]) < 0)
		return -errno;
	for (int i = 0; i < 3; i++)
		if (uids[i] != uid || gids[i] != gid)
			return -EPERM;
	return 0;
}

static int drop_capabilities(struct step_context *context)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } }, now[2];
	int bounding = drop_bounding_set();

	(void) context;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0 ||
		syscall(SYS_capget, &header, now) < 0)
		return -errno;
	if (memcmp(now, none, sizeof(now)) != 0)
		return -EPERM;
	return bounding;
}

static int set_no_new_privs(struct step_context *context)
{
	(void) context;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* No core dump and no ptrace by others of this user: the memory is a guest's. */
static int set_no_dump(struct step_context *context)
{
	(void) context;
	if (CROFT_SANITIZED)
		return -ENOTSUP;
	return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}

/* A host may forbid those without `is_vital` to a user or in a container; they are reported. */
static const struct {
	const char *name;
	int (*apply)(struct step_context *context);
	bool is_vital;
} steps[JAIL_STEP_MAX_] = {
	[JAIL_DESCRIPTORS] = { "descriptors", close_others, true },
	[JAIL_ENVIRONMENT] = { "environment", clear_environment, true },
	[JAIL_CGROUP] = { "cgroup", join_cgroup, true },
	[JAIL_OOM_SCORE] = { "oom-score", set_oom_score, false },
	[JAIL_PAGEMAP] = { "pagemap", open_pagemap, false },
	[JAIL_LIMITS] = { "limits", set_limits, true },
	[JAIL_NAMESPACES] = { "namespaces", make_namespaces, false },
	[JAIL_ROOT] = { "root", make_root, false },
	[JAIL_USER] = { "user", set_user, true },
	[JAIL_CAPABILITIES] = { "capabilities", drop_capabilities, false },
	[JAIL_NO_NEW_PRIVS] = { "no-new-privs", set_no_new_privs, true },
	[JAIL_NO_DUMP] = { "no-dump", set_no_dump, false },
	[JAIL_FILTERS] = { "filters", NULL, true },
};

const char *jail_step_name(enum jail_step step)
{
	return steps[step].name;
}

/* ---- the whole ---- */

static bool is_due(const struct jail_config *config, enum jail_step step)
{
	switch (step) {
	case JAIL_CGROUP:
		return config->cgroup_fd >= 0;
	case JAIL_USER:
		return config->has_user;
	default:
		return steps[step].apply != NULL;
	}
}

/* Notes the outcome; 0 when the jail may go on without the step. */
static int note(struct jail *jail, const struct jail_config *config, enum jail_step step, int r, struct err *reterr)
{
	if (r == 0) {
		jail->report.applied |= 1u << step;
		return 0;
	}
	jail->report.missing |= 1u << step;
	jail->report.err_no[step] = -r;
	if (!(steps[step].is_vital && r != -ENOTSUP) && config->mode != JAIL_REQUIRED)
		return 0;
	(void) err_set(reterr, FAIL_JAIL_FAILED, -r, "the step \"%s\" of the jail: %s", steps[step].name,
		strerrorname_np(-r));
	err_add(reterr, "step", "%s", steps[step].name);
	return r;
}

static int check(const struct jail_config *config, bool has_root, struct err *reterr)
{
	if (has_root && (!config->has_user || config->uid == 0 || config->gid == 0))
		return err_set(reterr, FAIL_JAIL_FAILED, EINVAL,
			"croft-vmm started by root needs --uid and --gid, neither of them 0");
	if (!has_root && config->has_user)
		return err_set(reterr, FAIL_JAIL_FAILED, EPERM, "only root can give croft-vmm another uid");
	if (!*config->run)
		return 0;
	return jail_check_run(config->run,
		config->has_run_owner ? config->run_owner : config->has_user ? config->uid : geteuid(), reterr);
}

int jail_enter(struct jail *jail, const struct jail_config *config, struct err *reterr)
{
	struct step_context context = { .jail = jail, .config = config, .has_root = geteuid() == 0 };
	int r;

	*jail = (struct jail) JAIL_NULL;
	if (config->mode == JAIL_OFF) {
		(void) open_pagemap(&context); /* without it only the first fork works */
		return 0;
	}
	r = check(config, context.has_root, reterr);
	for (int step = 0; r == 0 && step < JAIL_STEP_MAX_; step++)
		if (is_due(config, (enum jail_step) step))
			r = note(jail, config, (enum jail_step) step, steps[step].apply(&context), reterr);
	return r;
}

int jail_arm(struct jail *jail, const struct jail_config *config, struct err *reterr)
{
	if (config->mode == JAIL_OFF)
		return 0;
	return note(jail, config, JAIL_FILTERS, CROFT_SANITIZED ? -ENOTSUP : filter_install(THREAD_START), reterr);
}

/* ---- checks ---- */

int jail_check_id(const char *id, struct err *reterr)
{
	size_t n = strlen(id);

	if (n == 0 || n > JAIL_ID_MAX)
		return err_set(reterr, FAIL_INVALID_ID, EINVAL, "an id has 1 to %d characters, not %zu", JAIL_ID_MAX, n);
	for (const char *p = id; *p; p++)
		if (!isalnum((unsigned char) *p) && *p != '-')
			return err_set(reterr, FAIL_INVALID_ID, EINVAL, "an id has letters, digits and '-' only");
	return 0;
}

static int unsafe(const char *path, int err_no, const char *why, struct err *reterr)
{
	(void) err_set(reterr, FAIL_JAIL_UNSAFE_PATH, err_no, "%s", why);
	err_add(reterr, "path", "%s", path);
	return -err_no;
}

/* Whether somebody else could put another entry in the place of one of `st`'s. */
static bool is_open_to_others(const struct stat *st)
{
	return (st->st_mode & (S_IWOTH | S_IWGRP)) && !(st->st_mode & S_ISVTX);
}

int jail_check_run(const char *run, uid_t uid, struct err *reterr)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	CLEANUP_FD int fd = -1;
	char part[PATH_MAX];
	struct stat st;

	if (*run != '/' || strlen(run) >= sizeof(part) || strstr(run, "/../") || strstr(run, "/./") ||
		(strlen(run) >= 3 && !strcmp(run + strlen(run) - 3, "/..")))
		return unsafe(run, EINVAL, "the run directory is no plain absolute path", reterr);
	fd = (int) syscall(SYS_openat2, AT_FDCWD, run, &how, sizeof(how));
	if (fd < 0 || fstat(fd, &st) < 0)
		return unsafe(run, errno, errno == ELOOP ? "a symbolic link leads to the run directory" :
			"the run directory cannot be opened", reterr);
	if (st.st_uid != 0 && st.st_uid != uid && st.st_uid != geteuid())
		return unsafe(run, EPERM, "the run directory is another's", reterr);
	if (st.st_mode & S_IWOTH)
		return unsafe(run, EPERM, "everybody can write in the run directory", reterr);
	for (const char *slash = strchr(run + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		(void) snprintf(part, sizeof(part), "%.*s", (int) (slash - run), run);
		if (lstat(part, &st) < 0)
			return unsafe(part, errno, "a parent of the run directory cannot be examined", reterr);
		if (is_open_to_others(&st))
			return unsafe(part, EPERM, "others than its owner can write in a parent of the run directory", reterr);
	}
	return 0;
}

/* ---- the report ---- */

void jail_report_format(const struct jail_report *report, char ret[static JAIL_TEXT_MAX])
{
	size_t used = 0;

	ret[0] = '\0';
	for (int missing = 0; missing <= 1; missing++) {
		uint32_t set = missing ? report->missing : report->applied;
		const char *before = missing ? "; not applied: " : "";

		for (int step = 0; step < JAIL_STEP_MAX_ && used < JAIL_TEXT_MAX; step++) {
			if (!(set & 1u << step))
				continue;
			used += (size_t) snprintf(ret + used, JAIL_TEXT_MAX - used, "%s%s", before, steps[step].name);
			if (missing && used < JAIL_TEXT_MAX)
				used += (size_t) snprintf(ret + used, JAIL_TEXT_MAX - used, " (%s)",
					strerrorname_np(report->err_no[step]));
			before = missing ? ", " : " ";
		}
	}
}
