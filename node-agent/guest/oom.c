/* SPDX-License-Identifier: Apache-2.0
 *
 * See oom.h.
 */
#include "guest/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define VMSTAT_MAX 65536
/* A kill is counted and logged before its victim is dead, and a shell tells of a child a little later. */
#define BLAME_USEC (2 * USEC_PER_SEC)
#define PAUSE_MAX (300 * USEC_PER_SEC)
#define FIELD "\noom_kill "

static void on_log(struct source *source, uint32_t events)
{
	struct oom *oom = container_of(source, struct oom, source);

	(void) events;
	/* What stands there is nothing to go by (a process may write it): only that the kernel had something to say. */
	(void) lseek(oom->fd, 0, SEEK_END);
	(void) oom_look(oom);
}

void oom_init(struct oom *oom, struct loop *loop, uint64_t (*count)(void), pid_t (*tell)(uint64_t kills))
{
	*oom = (struct oom){ .loop = loop, .source = SOURCE_NULL(on_log), .fd = -1, .count = count, .tell = tell };
}

void oom_deinit(struct oom *oom)
{
	loop_forget(oom->loop, &oom->source);
	oom->fd = fd_close(oom->fd);
}

int oom_watch(struct oom *oom, int fd)
{
	oom->fd = fd;
	(void) oom_look(oom); /* of what was before */
	return loop_watch(oom->loop, &oom->source, fd, EPOLLIN);
}

uint64_t oom_look(struct oom *oom)
{
	uint64_t kills = oom->count ? oom->count() : 0;

	if (kills > oom->kills) {
		oom->kills = kills;
		oom->rose_usec = clock_monotonic_usec();
	}
	return oom->kills;
}

bool oom_is_to_blame(struct oom *oom, uint64_t before)
{
	return oom_look(oom) > before && clock_monotonic_usec() - oom->rose_usec <= BLAME_USEC;
}

bool oom_reaped(struct oom *oom, pid_t pid, int status)
{
	if (oom->teller == 0 || pid != oom->teller)
		return false;
	oom->teller = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		oom->told = oom->telling;
		oom->pause_usec = 0;
	} else {
		oom->pause_usec = MIN(MAX(2 * oom->pause_usec, USEC_PER_SEC), PAUSE_MAX);
		oom->again_usec = clock_monotonic_usec() + oom->pause_usec;
	}
	return true;
}

int64_t oom_tick(struct oom *oom, int64_t now)
{
	pid_t pid;

	if (!oom->tell || oom->teller != 0 || oom->kills <= oom->told)
		return 0; /* the teller's end comes as a signal */
	if (now < oom->again_usec)
		return oom->again_usec;
	oom->again_usec = now + USEC_PER_SEC;
	pid = oom->tell(oom->kills);
	if (pid <= 0)
		return oom->again_usec; /* no memory for it yet */
	oom->teller = pid;
	oom->telling = oom->kills;
	return 0;
}

int oom_open_log(void)
{
	CLEANUP_FD int fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || lseek(fd, 0, SEEK_END) < 0)
		return -errno;
	return TAKE_FD(fd);
}

uint64_t oom_count(void)
{
	CLEANUP_FREE char *text = NULL;
	const char *at;

	if (file_read("/proc/vmstat", VMSTAT_MAX, &text, NULL) < 0)
		return 0;
	at = strstr(text, FIELD);
	return at ? strtoull(at + strlen(FIELD), NULL, 10) : 0;
}
