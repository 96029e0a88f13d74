/* SPDX-License-Identifier: Apache-2.0
 *
 * The jail: croft-vmm confines itself before it reads the first byte from its control socket. Nothing is executed
 * afterwards, so that the new root can be empty (docs/decisions/0003). Each step is a row of one table in jail.c;
 * the report says of each step that was due whether it was applied, or with which errno the host forbade it.
 *
 * Started as root it changes to the uid of this VM; started by an ordinary user it makes a user namespace first
 * and keeps the uid. In the new root there is one thing: the run directory, read-only, at the path that it had,
 * because the guest's vsock connections are connect() to sockets in it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define JAIL_ID_MAX 64
#define JAIL_KEEP_MAX 8
#define JAIL_TEXT_MAX 240

enum jail_mode {
	JAIL_OFF,       /* for debugging by hand */
	JAIL_AVAILABLE, /* what the host allows; the report says what it forbids */
	JAIL_REQUIRED,  /* all of it or JAIL_FAILED */
};

enum jail_step {
	JAIL_DESCRIPTORS,  /* closes all but those in `keep` and 0-2 */
	JAIL_ENVIRONMENT,
	JAIL_CGROUP,       /* where cgroup_fd is given */
	JAIL_OOM_SCORE,
	JAIL_PAGEMAP,      /* opened while it can be, for later forks */
	JAIL_LIMITS,
	JAIL_NAMESPACES,   /* mount, net, ipc, uts, cgroup; for an ordinary user in a user namespace */
	JAIL_ROOT,
	JAIL_USER,         /* where uid is given */
	JAIL_CAPABILITIES,
	JAIL_NO_NEW_PRIVS,
	JAIL_NO_DUMP,
	JAIL_FILTERS,      /* by jail_arm() */
	JAIL_STEP_MAX_
};

struct jail_config {
	enum jail_mode mode;
	const char *run;        /* the run directory; "": none, and then the guest reaches no socket */
	bool has_user, has_run_owner;
	uid_t uid, run_owner;   /* `run_owner`: who may own the run directory in place of `uid` */
	gid_t gid;
	int cgroup_fd;          /* a cgroup's directory; -1: stays where it is. Closed after use */
	int keep[JAIL_KEEP_MAX];
	unsigned int n_keep;
};

struct jail_report {
	uint32_t applied;       /* bit per jail_step */
	uint32_t missing;       /* likewise; a step that was not due is in neither */
	int err_no[JAIL_STEP_MAX_];
};

struct jail {
	struct jail_report report;
	int pagemap_fd;
};

#define JAIL_NULL { .pagemap_fd = -1 }

/* 1 to 64 letters, digits and '-'. INVALID_ID. */
int jail_check_id(const char *id, struct err *reterr);
/* The run directory can be trusted: absolute, no symbolic link on the way, a directory of ours or of root, that and
 * its parents not writable by others. JAIL_UNSAFE_PATH. */
int jail_check_run(const char *run, uid_t uid, struct err *reterr);

/* All steps but the filters. The process has one thread. JAIL_FAILED, JAIL_UNSAFE_PATH. */
int jail_enter(struct jail *jail, const struct jail_config *config, struct err *reterr);
/* The filter of start-up; from here on nothing can be opened. */
int jail_arm(struct jail *jail, const struct jail_config *config, struct err *reterr);

const char *jail_step_name(enum jail_step step);
/* "applied a b c" or "applied a b; not applied: c (EPERM)" */
void jail_report_format(const struct jail_report *report, char ret[static JAIL_TEXT_MAX]);
