/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a snapshot whole after it was taken, and what drops one: bulk work (worker.h) of the node, which goes on
 * whatever becomes of the sandbox. One after the other, so that what is dropped is what was made before.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/forks.h"
#include "agent/sandbox.h"
#include "agent/snapshots.h"
#include "agent/worker.h"

struct snapshot_job {
	struct agent *agent;
	const char *state;
	int (*act)(const char *state, struct post *post);
	struct post post; /* the result, but for its error */
};

static int keep(const char *state, struct post *post)
{
	return snapshot_finish(state, &post->snapshot, &post->err);
}

static int drop(const char *state, struct post *post)
{
	return snapshot_remove(state, post->snapshot.id, &post->err);
}

static void run_job(void *arg, const atomic_bool *stop)
{
	struct snapshot_job *job = arg;

	(void)stop;
	(void)job->act(job->state, &job->post);
}

static void done_job(void *arg, bool ran)
{
	struct snapshot_job *job = arg;

	if (ran)
		agent_post(job->agent, &job->post);
	free(job);
}

static void submit(struct agent *agent, int (*act)(const char *, struct post *), struct post *post)
{
	struct snapshot_job *job = calloc(1, sizeof(*job));

	if (job) {
		*job = (struct snapshot_job){ .agent = agent, .state = agent->options->state, .act = act, .post = *post };
		if (worker_submit(agent->bulk, 0, run_job, done_job, job) == 0)
			return;
	}
	free(job);
	(void)err_set(&post->err, FAIL_NO_MEMORY, ENOMEM, "no memory for file work");
	agent_post(agent, post);
}

void snapshot_keep(struct agent *agent, const char *sandbox, uint64_t generation, const struct snapshot_info *info)
{
	struct post post = { .type = SV_EV_SNAPSHOT_KEPT, .generation = generation, .snapshot = *info };

	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox);
	submit(agent, keep, &post);
}

void snapshot_drop(struct agent *agent, const char *snapshot, bool answer)
{
	struct post post = { .type = SV_EV_SNAPSHOT_DROPPED, .answer = answer };

	(void)snprintf(post.snapshot.id, sizeof(post.snapshot.id), "%s", snapshot);
	forks_drop(&agent->forks, snapshot);
	submit(agent, drop, &post);
}
