/* SPDX-License-Identifier: Apache-2.0
 *
 * See host-limit.h.
 */
#include "host-limit.h"

#include <errno.h>
#include <stddef.h>

static const char *resource_of(int err_no)
{
	switch (err_no) {
	case EMFILE:
		return "descriptors (RLIMIT_NOFILE)";
	case ENFILE:
		return "descriptors (fs.file-max)";
	case ENOMEM:
		return "memory";
	case EAGAIN:
		return "threads (RLIMIT_NPROC, pids.max)";
	case EFBIG:
		return "file size (RLIMIT_FSIZE)";
	default:
		return NULL;
	}
}

void host_limit_refine(struct err *err)
{
	const char *resource = resource_of(err->err_no);

	if (!resource || (err->code != FAIL_VMM_START_FAILED && err->code != FAIL_HOST_LIMIT))
		return;
	err->code = FAIL_HOST_LIMIT;
	err->component = failure_info(FAIL_HOST_LIMIT)->component;
	err->stage = STAGE_VMM;
	err_add(err, "resource", "%s", resource);
}
