/* SPDX-License-Identifier: Apache-2.0
 *
 * See process.h: life and end of a process, signals, input. Output and readers are in reader.c.
 */
#include "guest/process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/reader.h"

void processes_init(struct processes *all, struct loop *loop)
{
	*all = (struct processes){ .loop = loop };
	TAILQ_INIT(&all->list);
}

static void strv_free(char **strv)
{
	for (char **p = strv; p && *p; p++)
		free(*p);
	free(strv);
}

void process_config_free(struct process_config *config)
{
	free(config->cmd);
	free(config->cwd);
	free(config->tag);
	strv_free(config->args);
	strv_free(config->env);
	*config = (struct process_config){ 0 };
}

static void pipe_close(struct process_pipe *pipe)
{
	loop_forget(pipe->process->all->loop, &pipe->source);
	pipe->fd = fd_close(pipe->fd);
}

static void input_close(struct process *process)
{
	loop_forget(process->all->loop, &process->input_source);
	process->input_fd = fd_close(process->input_fd);
	buf_deinit(&process->input);
}

static void exec_close(struct process *process)
{
	loop_forget(process->all->loop, &process->exec_source);
	process->exec_fd = fd_close(process->exec_fd);
}

static void process_free(struct process *process)
{
	struct reader *reader;

	while ((reader = TAILQ_FIRST(&process->readers)))
		reader_detach(reader);
	exec_close(process);
	input_close(process);
	for (size_t i = 0; i < ARRAY_LEN(process->pipes); i++)
		pipe_close(&process->pipes[i]);
	output_deinit(&process->output);
	process_config_free(&process->config);
	TAILQ_REMOVE(&process->all->list, process, link);
	process->all->n--;
	free(process);
}

void processes_deinit(struct processes *all)
{
	struct process *process;

	while ((process = TAILQ_FIRST(&all->list))) {
		(void) process_signal(process, SIGKILL); /* an ended one has no group any more */
		process_free(process);
	}
}

bool process_is_alive(const struct process *process)
{
	return process->state == PROCESS_STARTING || process->state == PROCESS_RUNNING;
}

unsigned int processes_count_alive(const struct processes *all)
{
	const struct process *process;
	unsigned int n = 0;

	TAILQ_FOREACH(process, &all->list, link)
		n += process_is_alive(process);
	return n;
}

static bool process_matches(const struct process *process, uint32_t pid, const char *tag)
{
	if (process->state == PROCESS_FAILED)
		return false;
	if (pid != 0)
		return (uint32_t) process->pid == pid;
	return *tag && process->config.tag && !strcmp(process->config.tag, tag);
}

struct process *process_find(struct processes *all, uint32_t pid, const char *tag)
{
	struct process *process, *ended = NULL;

	TAILQ_FOREACH_REVERSE(process, &all->list, process_list, link) {
		if (!process_matches(process, pid, tag))
			continue;
		if (process->state != PROCESS_ENDED)
			return process;
		/* One whose end somebody read is over; it is only kept for a daemon that holds its pipes. */
		if (!ended && !process->end_was_read)
			ended = process;
	}
	return ended;
}

/* ---- start ---- */

static void process_fail(struct process *process, const struct err *err)
{
	process->failure = *err;
	process->state = PROCESS_FAILED;
	exec_close(process);
	input_close(process);
	for (size_t i = 0; i < ARRAY_LEN(process->pipes); i++)
		pipe_close(&process->pipes[i]);
	readers_wake(process);
}

static void process_on_exec(struct source *source, uint32_t events)
{
	struct process *process = container_of(source, struct process, exec_source);
	struct err err = ERR_NULL;

	(void) events;
	switch (spawn_read_exec(process->exec_fd, &err)) {
	case SPAWN_PENDING:
		return;
	case SPAWN_FAILED:
		process_fail(process, &err);
		return;
	case SPAWN_RUNNING:
		exec_close(process);
		process->state = PROCESS_RUNNING;
		process_update(process);
		readers_wake(process);
		return;
	}
}

static void input_update(struct process *process)
{
	uint32_t events = buf_size(&process->input) > 0 ? EPOLLOUT : 0;

	if (process->input_fd < 0)
		return;
	if (!events && process->input_closes)
		input_close(process);
	else if (loop_watch(process->all->loop, &process->input_source, process->input_fd, events) < 0)
		input_close(process); /* no memory in the kernel: the process sees the end of its input */
}

static void input_flush(struct process *process)
{
	while (buf_size(&process->input) > 0) {
		ssize_t n = write(process->input_fd, buf_peek(&process->input), buf_size(&process->input));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* it closed its input; later bytes have no taker */
			input_close(process);
			break;
		}
		buf_consume(&process->input, (size_t) n);
	}
	input_update(process);
}

static void process_on_input(struct source *source, uint32_t events)
{
	(void) events;
	input_flush(container_of(source, struct process, input_source));
}

static void process_adopt(struct process *process, struct spawned *spawned, bool is_pty)
{
	static const enum output_stream streams[2] = { OUTPUT_STDOUT, OUTPUT_STDERR };

	process->pid = spawned->pid;
	process->is_pty = is_pty;
	process->exec_fd = spawned->exec_fd;
	process->exec_source = (struct source) SOURCE_NULL(process_on_exec);
	process->input_fd = spawned->input_fd;
	process->had_input = spawned->input_fd >= 0;
	process->input_source = (struct source) SOURCE_NULL(process_on_input);
	process->input = (struct buf) BUF_NULL(INPUT_MAX);
	for (size_t i = 0; i < ARRAY_LEN(process->pipes); i++)
		process->pipes[i] = (struct process_pipe){
			.source = SOURCE_NULL(process_on_output),
			.process = process,
			.stream = is_pty ? OUTPUT_PTY : streams[i],
			.fd = spawned->out_fd[i],
		};
}

/* Ended processes that wait for a reader or for a daemon's pipes give way to new ones, oldest first. */
static void make_room(struct processes *all)
{
	struct process *process, *next;

	for (process = TAILQ_FIRST(&all->list); process && all->n >= PROCESSES_MAX; process = next) {
		next = TAILQ_NEXT(process, link);
		if (process->state == PROCESS_ENDED && process->n_readers == 0)
			process_free(process);
	}
}

int process_start(struct processes *all, const struct spawn *spawn, struct process_config *config,
	int64_t timeout_usec, struct reader *reader, struct err *reterr)
{
	CLEANUP_FREE struct process *process = NULL;
	struct spawned spawned = SPAWNED_NULL;
	struct process *started;
	int r;

	make_room(all);
	if (all->n >= PROCESSES_MAX)
		return err_set(reterr, FAIL_EXEC_FAILED, EAGAIN, "%u processes run already", all->n);
	process = calloc(1, sizeof(*process));
	if (!process)
		return err_set(reterr, FAIL_EXEC_FAILED, ENOMEM, "no memory for a process");
	r = spawn_start(spawn, &spawned, reterr);
	if (r < 0)
		return r;
	started = TAKE(process);
	started->all = all;
	started->state = PROCESS_STARTING;
	started->oom_before = all->oom ? all->oom->kills : 0;
	TAILQ_INIT(&started->readers);
	process_adopt(started, &spawned, spawn->wants_pty);
	started->config = *config;
	*config = (struct process_config){ 0 };
	if (timeout_usec > 0)
		started->kill_at_usec = clock_monotonic_usec() + timeout_usec;
	TAILQ_INSERT_TAIL(&all->list, started, link);
	all->n++;
	r = loop_watch(all->loop, &started->exec_source, started->exec_fd, EPOLLIN);
	if (r == 0)
		r = reader_attach(reader, started, reterr);
	if (r < 0) {
		(void) process_signal(started, SIGKILL);
		process_free(started);
		return err_set(reterr, FAIL_EXEC_FAILED, -r, "the process could not be watched");
	}
	return 0;
}

/* ---- end ---- */

static bool pipes_are_closed(const struct process *process)
{
	return process->pipes[0].fd < 0 && process->pipes[1].fd < 0;
}

void process_try_end(struct process *process)
{
	if (process->state != PROCESS_DRAINING)
		return;
	for (size_t i = 0; i < ARRAY_LEN(process->pipes); i++) {
		const struct process_pipe *pipe = &process->pipes[i];

		if (pipe->fd >= 0 && !(pipe->must_be_bounded && pipe->must_read == 0))
			return;
	}
	process->state = PROCESS_ENDED;
	process->forget_at_usec = clock_monotonic_usec() + FORGET_USEC;
	input_close(process);
	if (process->is_pty) /* a terminal whose session is over hangs up */
		for (size_t i = 0; i < ARRAY_LEN(process->pipes); i++)
			pipe_close(&process->pipes[i]);
	process_update(process);
	readers_wake(process);
}

/* The leader's own output is in the pipes by now: that much is still to be read, and no more. */
static void drain_is_over(struct process *process)
{
	for (size_t i = 0; i < ARRAY_LEN(process->pipes); i++) {
		struct process_pipe *pipe = &process->pipes[i];
		int n = 0;

		if (pipe->fd >= 0 && ioctl(pipe->fd, FIONREAD, &n) < 0)
			n = 0;
		pipe->must_be_bounded = true;
		pipe->must_read = n > 0 ? (size_t) n : 0;
	}
	process->drain_until_usec = 0;
	process_try_end(process);
}

/* Killed by nobody here, or a shell's word (128 + SIGKILL) that what it waited for was, just after the kernel killed for want
 * of memory. Which process that was the kernel says only in words; two that are killed at once may share the blame. */
static bool was_oom_killed(struct processes *all, const struct process *process)
{
	const struct process_end *end = &process->end;

	if (!all->oom || process->was_killed)
		return false;
	if (end->exited ? end->exit_code != 128 + SIGKILL : end->signal != SIGKILL)
		return false;
	return oom_is_to_blame(all->oom, process->oom_before);
}

void processes_reaped(struct processes *all, pid_t pid, int status)
{
	struct process *process;

	TAILQ_FOREACH(process, &all->list, link)
		if (process->pid == pid && process_is_alive(process))
			break;
	if (!process)
		return;
	if (process->state == PROCESS_STARTING)
		process_on_exec(&process->exec_source, EPOLLIN);
	if (process->state == PROCESS_FAILED)
		return;
	exec_close(process);
	process->end.exited = WIFEXITED(status);
	process->end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
	process->end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	process->end.timed_out = process->end.timed_out && process->end.signal == SIGKILL;
	process->end.out_of_memory = was_oom_killed(all, process);
	process->state = PROCESS_DRAINING;
	process->kill_at_usec = 0;
	process->drain_until_usec = clock_monotonic_usec() + DRAIN_USEC;
	process_update(process);
	process_try_end(process);
}

static bool process_is_over(const struct process *process, int64_t now)
{
	if (process->n_readers > 0)
		return false;
	if (process->state == PROCESS_FAILED)
		return true;
	if (process->state != PROCESS_ENDED)
		return false;
	return (process->end_was_read || now >= process->forget_at_usec) && pipes_are_closed(process);
}

static int64_t process_tick(struct process *process, int64_t now)
{
	int64_t next = 0;

	if (process->kill_at_usec && now >= process->kill_at_usec) {
		process->kill_at_usec = 0;
		process->end.timed_out = process_signal(process, SIGKILL) == 0;
	}
	if (process->drain_until_usec && now >= process->drain_until_usec)
		drain_is_over(process);
	next = deadline_earliest(process->kill_at_usec, process->drain_until_usec);
	next = deadline_earliest(next, readers_tick(process, now));
	if (process->state == PROCESS_ENDED && !process->end_was_read && now < process->forget_at_usec)
		next = deadline_earliest(next, process->forget_at_usec);
	return next;
}

int64_t processes_tick(struct processes *all, int64_t now)
{
	struct process *process, *next;
	int64_t wake = 0;

	for (process = TAILQ_FIRST(&all->list); process; process = next) {
		next = TAILQ_NEXT(process, link);
		wake = deadline_earliest(wake, process_tick(process, now));
		if (process_is_over(process, now))
			process_free(process);
	}
	return wake;
}

/* ---- what is done to it ---- */

enum input_result process_input(struct process *process, const void *data, size_t size)
{
	if (process->input_fd < 0 || process->input_closes)
		return INPUT_CLOSED;
	if (buf_size(&process->input) >= INPUT_HIGH)
		return INPUT_WAIT;
	if (buf_append(&process->input, data, size) < 0)
		return INPUT_WAIT; /* no memory now: again when some bytes are gone */
	input_flush(process);
	return INPUT_TAKEN;
}

enum input_result process_close_input(struct process *process)
{
	/* A terminal has no input to close: its reader wants a ^D, which is a byte. */
	if (process->is_pty || !process->had_input)
		return INPUT_CLOSED;
	process->input_closes = true; /* twice is once */
	input_update(process);
	return INPUT_TAKEN;
}

int process_signal(struct process *process, int signal)
{
	/* Until it is reaped nobody else can have its pid; afterwards the number may be another's. */
	if (!process_is_alive(process))
		return -ESRCH;
	process->was_killed |= signal == SIGKILL;
	if (kill(-process->pid, signal) == 0)
		return 0;
	/* Between fork and setsid() the group does not exist yet. */
	return kill(process->pid, signal) < 0 ? -errno : 0;
}

int process_resize(struct process *process, uint16_t cols, uint16_t rows)
{
	struct winsize size = { .ws_col = cols, .ws_row = rows };

	if (!process->is_pty || process->pipes[0].fd < 0)
		return -ENOTTY;
	return ioctl(process->pipes[0].fd, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}
