/* SPDX-License-Identifier: Apache-2.0
 *
 * See limit.h.
 */
#include "base/limit.h"

#include <errno.h>

static const char *resource_of(enum limit_act act, int err_no)
{
	if (err_no == EMFILE)
		return "descriptors of the process (LimitNOFILE=)";
	if (err_no == ENFILE)
		return "descriptors of the host (fs.file-max)";
	switch (act) {
	case LIMIT_FILE:
		return NULL;
	case LIMIT_PROCESS:
		return err_no == EAGAIN ? "processes (TasksMax=, RLIMIT_NPROC, kernel.pid_max)" : NULL;
	case LIMIT_NAMESPACE:
		return err_no == ENOSPC ? "network namespaces (user.max_net_namespaces)" : NULL;
	case LIMIT_GROUP:
		return err_no == EAGAIN || err_no == ENOSPC ? "control groups (cgroup.max.descendants)" : NULL;
	}
	return NULL;
}

bool limit_is_reached(struct err *reterr, enum fail_stage stage, enum limit_act act, int err_no, const char *what)
{
	const char *resource = resource_of(act, err_no);

	if (!resource)
		return false;
	(void) err_set_at(reterr, stage, FAIL_HOST_LIMIT, err_no, "%s: the host ran out of %s", what, resource);
	if (reterr)
		err_add(reterr, "resource", "%s", resource);
	return true;
}
