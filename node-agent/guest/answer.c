/* SPDX-License-Identifier: Apache-2.0
 *
 * See request.h: what goes out.
 */
#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "guest/request.h"
#include "pb/guest.pb-c.h"

/* Not the generated ..._INIT: it casts const away, which clang warns of. */
#define MESSAGE(type, init)                                                                        \
	__extension__({                                                                            \
		type message_;                                                                     \
		init(&message_);                                                                   \
		message_;                                                                          \
	})

/* The messages are not const in protobuf-c though packing only reads them. */
static char *borrow(const char *text)
{
	return (char *) (uintptr_t) (text ? text : "");
}

static int put(struct buf *out, const Croft__GuestEvent *event)
{
	size_t size = croft__guest_event__get_packed_size(event);
	uint8_t *to;
	int r = frame_reserve(out, size, &to);

	if (r == 0)
		(void) croft__guest_event__pack(event, to); /* as many bytes as it said */
	return r;
}

static void fill_failure(Croft__GuestFailure *failure, const struct err *err)
{
	croft__guest_failure__init(failure);
	failure->code = borrow(failure_info(err->code)->name);
	failure->err_no = err->err_no;
	failure->message = borrow(err->msg);
}

int answer_failure(struct buf *out, const struct err *err)
{
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestFailure failure;

	fill_failure(&failure, err);
	event.body_case = CROFT__GUEST_EVENT__BODY_FAILURE;
	event.failure = &failure;
	return put(out, &event);
}

int answer_done(struct buf *out)
{
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestDone done = MESSAGE(Croft__GuestDone, croft__guest_done__init);

	event.body_case = CROFT__GUEST_EVENT__BODY_DONE;
	event.done = &done;
	return put(out, &event);
}

int answer_info(struct buf *out, const struct guest_info *info)
{
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestInfo message = MESSAGE(Croft__GuestInfo, croft__guest_info__init);

	message.boot_id = borrow(info->boot_id);
	message.uptime_us = (uint64_t) info->uptime_usec;
	message.version_major = GUEST_VERSION_MAJOR;
	message.version_minor = GUEST_VERSION_MINOR;
	message.processes = info->processes;
	message.memory_total_kib = info->memory_total_kib;
	message.memory_available_kib = info->memory_available_kib;
	event.body_case = CROFT__GUEST_EVENT__BODY_INFO;
	event.info = &message;
	return put(out, &event);
}

int answer_started(struct buf *out, pid_t pid)
{
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestStarted started = MESSAGE(Croft__GuestStarted, croft__guest_started__init);

	started.pid = (uint32_t) pid;
	event.body_case = CROFT__GUEST_EVENT__BODY_STARTED;
	event.started = &started;
	return put(out, &event);
}

int answer_data(struct buf *out, const struct reader_chunk *chunk)
{
	static const Croft__GuestStream streams[OUTPUT_MAX_] = {
		[OUTPUT_STDOUT] = CROFT__GUEST_STREAM__GUEST_STREAM_STDOUT,
		[OUTPUT_STDERR] = CROFT__GUEST_STREAM__GUEST_STREAM_STDERR,
		[OUTPUT_PTY] = CROFT__GUEST_STREAM__GUEST_STREAM_PTY,
	};
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestData data = MESSAGE(Croft__GuestData, croft__guest_data__init);

	data.stream = streams[chunk->stream];
	data.data = (ProtobufCBinaryData){ chunk->size, (uint8_t *) (uintptr_t) chunk->data };
	data.lost = chunk->lost;
	event.body_case = CROFT__GUEST_EVENT__BODY_DATA;
	event.data = &data;
	return put(out, &event);
}

int answer_ended(struct buf *out, const struct process_end *end)
{
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestEnded ended = MESSAGE(Croft__GuestEnded, croft__guest_ended__init);

	ended.exited = end->exited;
	ended.exit_code = end->exit_code;
	ended.signal = (uint32_t) end->signal;
	ended.timed_out = end->timed_out;
	ended.out_of_memory = end->out_of_memory;
	event.body_case = CROFT__GUEST_EVENT__BODY_ENDED;
	event.ended = &ended;
	return put(out, &event);
}

/* ---- list ---- */

static size_t strv_length(char **strv)
{
	size_t n = 0;

	while (strv && strv[n])
		n++;
	return n;
}

static void list_entry_free(Croft__GuestProcess *entry)
{
	for (size_t i = 0; i < entry->n_env; i++) {
		free(entry->env[i]->name);
		free(entry->env[i]);
	}
	free(entry->env);
	free(entry);
}

static int list_entry_env(Croft__GuestProcess *entry, char **env)
{
	size_t n = strv_length(env);

	entry->env = calloc(n + 1, sizeof(*entry->env));
	if (!entry->env)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		Croft__GuestEnv *one = calloc(1, sizeof(*one));
		char *name = strdup(env[i]);

		if (!one || !name) {
			free(one);
			free(name);
			return -ENOMEM;
		}
		croft__guest_env__init(one);
		one->name = name;
		one->value = strchr(name, '=') + 1; /* request.c made it "NAME=value" */
		one->value[-1] = '\0';
		entry->env[entry->n_env++] = one;
	}
	return 0;
}

static int list_entry(const struct process *process, int detail, Croft__GuestProcess **ret)
{
	Croft__GuestProcess *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	croft__guest_process__init(entry);
	entry->pid = (uint32_t) process->pid;
	entry->cmd = borrow(process->config.cmd);
	entry->cwd = borrow(process->config.cwd);
	entry->tag = borrow(process->config.tag);
	if (detail >= 1) {
		entry->args = process->config.args;
		entry->n_args = strv_length(process->config.args);
	}
	if (detail >= 2 && list_entry_env(entry, process->config.env) < 0) {
		list_entry_free(entry);
		return -ENOMEM;
	}
	*ret = entry;
	return 0;
}

/* detail 2: all; 1: without environments; 0: without arguments. At most the first n_max. */
static int put_processes(struct buf *out, const struct processes *all, int detail, size_t n_max)
{
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestProcesses list = MESSAGE(Croft__GuestProcesses, croft__guest_processes__init);
	const struct process *process;
	int r = 0;

	list.processes = calloc(all->n + 1, sizeof(*list.processes));
	if (!list.processes)
		return -ENOMEM;
	TAILQ_FOREACH(process, &all->list, link) {
		if (process->state != PROCESS_RUNNING || list.n_processes >= n_max)
			continue;
		r = list_entry(process, detail, &list.processes[list.n_processes]);
		if (r < 0)
			break;
		list.n_processes++;
	}
	event.body_case = CROFT__GUEST_EVENT__BODY_PROCESSES;
	event.processes = &list;
	if (r == 0 && croft__guest_event__get_packed_size(&event) > REQUEST_FRAME_MAX)
		r = -EMSGSIZE;
	if (r == 0)
		r = put(out, &event);
	for (size_t i = 0; i < list.n_processes; i++)
		list_entry_free(list.processes[i]);
	free(list.processes);
	return r;
}

int answer_processes(struct buf *out, const struct processes *all)
{
	size_t n_max = PROCESSES_MAX;
	int r = -EMSGSIZE;

	for (int detail = 2; detail >= 0 && r == -EMSGSIZE; detail--)
		r = put_processes(out, all, detail, n_max);
	for (; r == -EMSGSIZE && n_max > 0; n_max /= 2)
		r = put_processes(out, all, 0, n_max);
	return r;
}

int answer_changes(struct buf *out, const struct diff_entry *entries, size_t n, bool is_last, bool is_cut)
{
	static const Croft__GuestChangeKind kinds[DIFF_KIND_MAX_] = {
		[DIFF_ADDED] = CROFT__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_ADDED,
		[DIFF_CHANGED] = CROFT__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_CHANGED,
		[DIFF_DELETED] = CROFT__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_DELETED,
	};
	static const Croft__GuestFileType types[DIFF_TYPE_MAX_] = {
		[DIFF_FILE] = CROFT__GUEST_FILE_TYPE__GUEST_FILE_TYPE_FILE,
		[DIFF_DIRECTORY] = CROFT__GUEST_FILE_TYPE__GUEST_FILE_TYPE_DIRECTORY,
		[DIFF_SYMLINK] = CROFT__GUEST_FILE_TYPE__GUEST_FILE_TYPE_SYMLINK,
		[DIFF_OTHER] = CROFT__GUEST_FILE_TYPE__GUEST_FILE_TYPE_OTHER,
	};
	CLEANUP_FREE Croft__GuestChange *list = calloc(n + 1, sizeof(*list));
	CLEANUP_FREE Croft__GuestChange **pointers = calloc(n + 1, sizeof(*pointers));
	Croft__GuestEvent event = MESSAGE(Croft__GuestEvent, croft__guest_event__init);
	Croft__GuestChanges changes = MESSAGE(Croft__GuestChanges, croft__guest_changes__init);

	if (!list || !pointers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		croft__guest_change__init(&list[i]);
		list[i].kind = kinds[entries[i].kind];
		list[i].type = types[entries[i].type];
		list[i].path = (ProtobufCBinaryData){ strlen(entries[i].path), (uint8_t *) (uintptr_t) entries[i].path };
		list[i].size = entries[i].size;
		list[i].mode = entries[i].mode;
		pointers[i] = &list[i];
	}
	changes.changes = pointers;
	changes.n_changes = n;
	changes.last = is_last;
	changes.cut = is_cut;
	event.body_case = CROFT__GUEST_EVENT__BODY_CHANGES;
	event.changes = &changes;
	return put(out, &event);
}

int hello_encode(struct buf *out, const struct guest_hello *hello)
{
	Croft__GuestHello message = MESSAGE(Croft__GuestHello, croft__guest_hello__init);
	Croft__GuestFailure failure;
	uint8_t *to;
	int r;

	message.version_major = GUEST_VERSION_MAJOR;
	message.version_minor = GUEST_VERSION_MINOR;
	message.boot_id = borrow(hello->boot_id);
	message.kernel = borrow(hello->kernel);
	message.uptime_us = (uint64_t) hello->uptime_usec;
	message.oom_kills = hello->oom_kills;
	if (hello->failure) {
		fill_failure(&failure, hello->failure);
		message.failure = &failure;
	}
	r = frame_reserve(out, croft__guest_hello__get_packed_size(&message), &to);
	if (r == 0)
		(void) croft__guest_hello__pack(&message, to); /* as many bytes as it said */
	return r;
}
