/* SPDX-License-Identifier: Apache-2.0
 *
 * The control socket: packets of any bytes with any number of descriptors. Whatever does not make sense has a code, and
 * every descriptor is owned by the request or closed.
 */
#include "fuzz.h"

#include <fcntl.h>

#include "base/fd.h"
#include "base/log.h"
#include "control.h"
#include "config.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mutate_message(data, size, max_size, seed, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fds[CONTROL_FDS_MAX], first, next;
	struct control_request request;
	struct err err = ERR_NULL;
	size_t n;

	if (size == 0)
		return 0;
	first = open("/dev/null", O_RDONLY | O_CLOEXEC);
	(void) close(first);
	n = data[0] % (CONTROL_FDS_MAX + 1);
	for (size_t i = 0; i < n; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (control_decode(data + 1, size - 1, fds, n, &request, &err) == 0) {
		char cmdline[CMDLINE_SIZE];

		if (request.kind == CONTROL_START)
			(void) !config_check(&request.start, cmdline, &err);
		control_request_deinit(&request);
	} else {
		CLAIM(err.code != FAIL_NONE);
	}
	next = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CLAIM(next == first); /* no descriptor was left behind */
	(void) close(next);
	return 0;
}
