/* SPDX-License-Identifier: Apache-2.0
 *
 * See exits.h.
 */
#include "helper/exits.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void exits_started(struct helper_exits *exits, pid_t pid, const char *sandbox)
{
	unsigned int at = exits->next;

	/* one that lives keeps its place where another is to be had */
	for (unsigned int i = 0; i < EXITS_MAX; i++) {
		unsigned int other = (exits->next + i) % EXITS_MAX;

		if (exits->list[other].pid == 0 || exits->list[other].has_ended) {
			at = other;
			break;
		}
	}
	exits->next = (at + 1) % EXITS_MAX;
	for (unsigned int i = 0; i < EXITS_MAX; i++)
		if (exits->list[i].pid != 0 && !strcmp(exits->list[i].sandbox, sandbox))
			exits->list[i].sandbox[0] = '\0'; /* a former life of it */
	exits->list[at].pid = pid;
	exits->list[at].has_ended = false;
	(void)snprintf(exits->list[at].sandbox, sizeof(exits->list[at].sandbox), "%s", sandbox);
}

void exits_reap(struct helper_exits *exits)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (unsigned int i = 0; i < EXITS_MAX; i++)
			if (exits->list[i].pid == pid && !exits->list[i].has_ended) {
				exits->list[i].has_ended = true;
				exits->list[i].status = status;
			}
}

bool exits_find(const struct helper_exits *exits, const char *sandbox, int *ret_status)
{
	for (unsigned int i = 0; i < EXITS_MAX; i++)
		if (exits->list[i].pid != 0 && !strcmp(exits->list[i].sandbox, sandbox)) {
			*ret_status = exits->list[i].status;
			return exits->list[i].has_ended;
		}
	return false;
}
