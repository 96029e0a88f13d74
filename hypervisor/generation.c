/* SPDX-License-Identifier: Apache-2.0
 *
 * See generation.h.
 */
#include "generation.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "boot/layout.h"

static int write_id(const struct generation *generation)
{
	uint8_t id[GENERATION_SIZE];

	if (getrandom(id, sizeof(id), GRND_NONBLOCK) != sizeof(id))
		return -errno;
	memcpy(generation->id, id, sizeof(id));
	return 0;
}

int generation_init(struct generation *generation)
{
	*generation = (struct generation) { .irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	return generation->irq_fd < 0 ? -errno : 0;
}

int generation_place(struct generation *generation, const struct memory *memory)
{
	generation->id = guest_map(memory, LAYOUT_GENERATION, GENERATION_SIZE);
	return write_id(generation);
}

void generation_deinit(struct generation *generation)
{
	*generation = (struct generation) { .irq_fd = fd_close(generation->irq_fd) };
}

int generation_renew(struct generation *generation)
{
	uint64_t one = 1;
	int r = write_id(generation);

	if (r == 0 && write(generation->irq_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		r = -errno; /* EAGAIN: an edge waits already, and its handler finds the newest id */
	return r;
}
