/* SPDX-License-Identifier: Apache-2.0
 *
 * See guest-wire.h.
 */
#include "gateway/guest-wire.h"

#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "pb/guest.pb-c.h"
#include "wire/check.h"

#define GUEST_TEXT_MAX 160

/* protobuf-c's structs have no const strings; packing only reads them. */
static char *lent(const char *text)
{
	return (char *) (uintptr_t) (text ? text : "");
}

/* ---- requests ---- */

static int append(struct buf *out, Croft__GuestRequest *request, struct err *reterr)
{
	size_t size = croft__guest_request__get_packed_size(request);
	uint8_t *to;
	int r;

	if (size > GUEST_FRAME_MAX) {
		err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, E2BIG,
			"The request has %zu bytes for the guest; at most %u are possible.", size, GUEST_FRAME_MAX);
		err_add(reterr, "field", "process");
		return -E2BIG;
	}
	r = frame_reserve(out, size, &to);
	if (r < 0)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, -r, "No memory for a request to the guest.");
	croft__guest_request__pack(request, to);
	return 0;
}

/* The structs of the variables and the pointers to them, in one piece of memory each. */
static Croft__GuestEnv **lend_envs(const struct process_env *envs, size_t n, Croft__GuestEnv **ret_storage)
{
	Croft__GuestEnv **list = calloc(n + 1, sizeof(Croft__GuestEnv *)), *storage = calloc(n + 1, sizeof(*storage));

	if (!list || !storage) {
		free(list);
		free(storage);
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		croft__guest_env__init(&storage[i]);
		storage[i].name = lent(envs[i].name);
		storage[i].value = lent(envs[i].value);
		list[i] = &storage[i];
	}
	*ret_storage = storage;
	return list;
}

int guest_start_append(struct buf *out, const struct process_start *start,
	const struct guest_start_options *options, struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestStart body;
	Croft__GuestPtySize pty;
	CLEANUP_FREE Croft__GuestEnv *storage = NULL;
	CLEANUP_FREE Croft__GuestEnv **envs = lend_envs(start->envs, start->n_envs, &storage);
	CLEANUP_FREE char **args = calloc(start->n_args + 1, sizeof(char *));

	croft__guest_request__init(&request);
	croft__guest_start__init(&body);
	croft__guest_pty_size__init(&pty);
	if (!envs || !args)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for a request to the guest.");
	for (size_t i = 0; i < start->n_args; i++)
		args[i] = lent(start->args[i]);
	pty.cols = start->cols;
	pty.rows = start->rows;
	body.cmd = lent(start->cmd);
	body.args = args;
	body.n_args = start->n_args;
	body.env = envs;
	body.n_env = start->n_envs;
	body.cwd = lent(start->cwd);
	body.user = lent(options->user);
	body.stdin = start->stdin_open;
	body.pty = start->has_pty ? &pty : NULL;
	body.tag = lent(start->tag);
	body.timeout_ms = options->timeout_ms;
	body.traceparent = lent(options->traceparent);
	request.body_case = CROFT__GUEST_REQUEST__BODY_START;
	request.start = &body;
	return append(out, &request, reterr);
}

int guest_connect_append(struct buf *out, const struct process_selector *process, struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestConnect body;

	croft__guest_request__init(&request);
	croft__guest_connect__init(&body);
	body.pid = process->pid;
	body.tag = lent(process->tag);
	request.body_case = CROFT__GUEST_REQUEST__BODY_CONNECT;
	request.connect = &body;
	return append(out, &request, reterr);
}

int guest_list_append(struct buf *out, struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestList body;

	croft__guest_request__init(&request);
	croft__guest_list__init(&body);
	request.body_case = CROFT__GUEST_REQUEST__BODY_LIST;
	request.list = &body;
	return append(out, &request, reterr);
}

int guest_diff_append(struct buf *out, struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestDiff body;

	croft__guest_request__init(&request);
	croft__guest_diff__init(&body);
	request.body_case = CROFT__GUEST_REQUEST__BODY_DIFF;
	request.diff = &body;
	return append(out, &request, reterr);
}

int guest_signal_append(struct buf *out, const struct process_selector *process, uint32_t signal,
	struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestSignal body;

	croft__guest_request__init(&request);
	croft__guest_signal__init(&body);
	body.pid = process->pid;
	body.tag = lent(process->tag);
	body.signal = signal;
	request.body_case = CROFT__GUEST_REQUEST__BODY_SIGNAL;
	request.signal = &body;
	return append(out, &request, reterr);
}

int guest_input_append(struct buf *out, const struct process_selector *process, const uint8_t *data, size_t size,
	struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestInput body;

	croft__guest_request__init(&request);
	croft__guest_input__init(&body);
	body.pid = process->pid;
	body.tag = lent(process->tag);
	body.data.data = (uint8_t *) (uintptr_t) data;
	body.data.len = size;
	request.body_case = CROFT__GUEST_REQUEST__BODY_INPUT;
	request.input = &body;
	return append(out, &request, reterr);
}

int guest_close_stdin_append(struct buf *out, const struct process_selector *process, struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestCloseStdin body;

	croft__guest_request__init(&request);
	croft__guest_close_stdin__init(&body);
	body.pid = process->pid;
	body.tag = lent(process->tag);
	request.body_case = CROFT__GUEST_REQUEST__BODY_CLOSE_STDIN;
	request.close_stdin = &body;
	return append(out, &request, reterr);
}

int guest_resize_append(struct buf *out, const struct process_selector *process, uint32_t cols, uint32_t rows,
	struct err *reterr)
{
	Croft__GuestRequest request;
	Croft__GuestResize body;
	Croft__GuestPtySize size;

	croft__guest_request__init(&request);
	croft__guest_resize__init(&body);
	croft__guest_pty_size__init(&size);
	size.cols = cols;
	size.rows = rows;
	body.pid = process->pid;
	body.tag = lent(process->tag);
	body.size = &size;
	request.body_case = CROFT__GUEST_REQUEST__BODY_RESIZE;
	request.resize = &body;
	return append(out, &request, reterr);
}

/* ---- events ---- */

static int protocol(struct err *reterr, const char *what)
{
	return err_set_at(reterr, STAGE_EXEC, FAIL_GUEST_PROTOCOL, EPROTO, "The guest's answer %s.", what);
}

/* What may break inside a guest. A guest that names anything else lies about whose fault it is. */
static bool may_fail_with(enum fail_code code)
{
	static const enum fail_code codes[] = { FAIL_INVALID_ARGUMENT, FAIL_CONFLICT, FAIL_UNSUPPORTED,
		FAIL_PROCESS_NOT_FOUND, FAIL_COMMAND_NOT_FOUND, FAIL_COMMAND_NOT_EXECUTABLE, FAIL_CWD_NOT_FOUND,
		FAIL_USER_NOT_FOUND, FAIL_EXEC_FAILED, FAIL_EXEC_TIMEOUT, FAIL_TOO_MANY_STREAMS, FAIL_ROOTFS_INCOMPLETE,
		FAIL_ROOTFS_UNREADABLE, FAIL_GUEST_DISK_UNREADABLE, FAIL_NO_MEMORY,
		FAIL_SANDBOX_NOT_READY /* frozen, before the gateway has heard of it */ };

	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (codes[i] == code)
			return true;
	return false;
}

/* Valid UTF-8 in (check_message() saw to that), valid UTF-8 of at most `size` - 1 bytes out, on one line. */
static void clean_text(const char *text, char *ret, size_t size)
{
	size_t n = strnlen(text, size - 1);

	if (text[n])
		while (n > 0 && ((unsigned char) text[n] & 0xc0u) == 0x80u)
			n--;
	for (size_t i = 0; i < n; i++)
		ret[i] = (unsigned char) text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i];
	ret[n] = '\0';
}

static int decode_failure(const Croft__GuestFailure *failure, struct guest_event *event, struct err *reterr)
{
	enum fail_code code = failure_by_name(failure->code);
	char text[GUEST_TEXT_MAX];

	if (code == FAIL_FRAME_UNSUPPORTED) { /* an older croft-guest */
		err_set_at(&event->failure, STAGE_EXEC, FAIL_UNSUPPORTED, ENOSYS,
			"The sandbox's croft-guest is older than this request.");
		event->kind = GUEST_EVENT_FAILURE;
		return 0;
	}
	if (!may_fail_with(code))
		return protocol(reterr, "names a failure that cannot happen in a guest");
	clean_text(failure->message, text, sizeof(text));
	err_set_at(&event->failure, STAGE_EXEC, code, failure->err_no > 0 && failure->err_no < 4096 ? failure->err_no : 0,
		"%s", *text ? text : "The guest refused the request.");
	/* Memory that is short inside the guest is not the node's. */
	event->failure.component = code == FAIL_NO_MEMORY ? COMPONENT_GUEST : event->failure.component;
	event->kind = GUEST_EVENT_FAILURE;
	return 0;
}

static int decode_data(const Croft__GuestData *data, struct guest_event *event, struct err *reterr)
{
	switch ((int) data->stream) {
	case CROFT__GUEST_STREAM__GUEST_STREAM_STDOUT:
		event->data.stream = STREAM_STDOUT;
		break;
	case CROFT__GUEST_STREAM__GUEST_STREAM_STDERR:
		event->data.stream = STREAM_STDERR;
		break;
	case CROFT__GUEST_STREAM__GUEST_STREAM_PTY:
		event->data.stream = STREAM_PTY;
		break;
	default:
		return protocol(reterr, "has data of an unknown stream");
	}
	if (data->data.len > GUEST_DATA_MAX)
		return protocol(reterr, "has more data than a frame may carry");
	event->data.data = data->data.data;
	event->data.size = data->data.len;
	event->data.lost = data->lost;
	event->kind = GUEST_EVENT_DATA;
	return 0;
}

static int decode_ended(const Croft__GuestEnded *ended, struct guest_event *event, struct err *reterr)
{
	if (ended->exited && (ended->exit_code < 0 || ended->exit_code > 255))
		return protocol(reterr, "has an exit status outside 0 to 255");
	if (!ended->exited && (ended->signal < 1 || ended->signal > 64))
		return protocol(reterr, "has a signal outside 1 to 64");
	event->ended = (struct guest_ended){ .exited = ended->exited, .exit_code = ended->exit_code,
		.signal = ended->signal, .timed_out = ended->timed_out,
		.out_of_memory = ended->out_of_memory };
	event->kind = GUEST_EVENT_ENDED;
	return 0;
}

static int decode_process(const Croft__GuestProcess *process, struct guest_process *ret, struct err *reterr)
{
	if (process->pid == 0 || process->pid > INT32_MAX)
		return protocol(reterr, "has a process without a valid pid");
	*ret = (struct guest_process){ .pid = process->pid, .tag = process->tag, .cmd = process->cmd,
		.cwd = process->cwd, .args = process->args, .n_args = process->n_args };
	ret->envs = calloc(process->n_env + 1, sizeof(*ret->envs));
	if (!ret->envs)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for the guest's answer.");
	for (; ret->n_envs < process->n_env; ret->n_envs++)
		ret->envs[ret->n_envs] = (struct process_env){ process->env[ret->n_envs]->name,
			process->env[ret->n_envs]->value };
	return 0;
}

static int decode_processes(const Croft__GuestProcesses *processes, struct guest_event *event, struct err *reterr)
{
	event->processes = calloc(processes->n_processes + 1, sizeof(*event->processes));
	if (!event->processes)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for the guest's answer.");
	while (event->n_processes < processes->n_processes) {
		const Croft__GuestProcess *process = processes->processes[event->n_processes];
		int r = decode_process(process, &event->processes[event->n_processes++], reterr);

		if (r < 0)
			return r;
	}
	event->kind = GUEST_EVENT_PROCESSES;
	return 0;
}

/* "/a/b": from the root, no empty name, none that leads elsewhere. */
static bool is_path(const uint8_t *path, size_t size)
{
	size_t from = 1;

	if (size < 2 || size > PROCESS_PATH_MAX || path[0] != '/' || memchr(path, '\0', size))
		return false;
	while (from <= size) {
		const uint8_t *slash = memchr(path + from, '/', size - from);
		size_t n = slash ? (size_t) (slash - path) - from : size - from;

		if (n == 0 || (n == 1 && path[from] == '.') || (n == 2 && path[from] == '.' && path[from + 1] == '.'))
			return false;
		from += n + 1;
	}
	return true;
}

static int decode_change(const Croft__GuestChange *change, struct guest_change *ret, struct err *reterr)
{
	int kind = (int) change->kind - CROFT__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_ADDED;
	int type = (int) change->type - CROFT__GUEST_FILE_TYPE__GUEST_FILE_TYPE_FILE;

	_Static_assert((int) CROFT__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_DELETED -
				(int) CROFT__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_ADDED == (int) CHANGE_DELETED, "same order");
	_Static_assert((int) CROFT__GUEST_FILE_TYPE__GUEST_FILE_TYPE_OTHER -
				(int) CROFT__GUEST_FILE_TYPE__GUEST_FILE_TYPE_FILE == (int) FILE_TYPE_OTHER, "same order");
	if (kind < 0 || kind >= (int) CHANGE_MAX_)
		return protocol(reterr, "has a change of an unknown kind");
	if (!is_path(change->path.data, change->path.len))
		return protocol(reterr, "has a change of what is no path");
	*ret = (struct guest_change){ .kind = (enum guest_change_kind) kind,
		.type = type < 0 || type >= (int) FILE_TYPE_MAX_ ? FILE_TYPE_OTHER : (enum guest_file_type) type,
		.path = change->path.data,
		.path_size = change->path.len,
		.size = change->size,
		.mode = change->mode & 07777u };
	return 0;
}

static int decode_changes(const Croft__GuestChanges *changes, struct guest_event *event, struct err *reterr)
{
	event->changes = calloc(changes->n_changes + 1, sizeof(*event->changes));
	if (!event->changes)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for the guest's answer.");
	for (; event->n_changes < changes->n_changes; event->n_changes++) {
		int r = decode_change(changes->changes[event->n_changes], &event->changes[event->n_changes], reterr);

		if (r < 0)
			return r;
	}
	event->is_last = changes->last;
	event->is_cut = changes->cut;
	event->kind = GUEST_EVENT_CHANGES;
	return 0;
}

static int decode_body(const Croft__GuestEvent *message, struct guest_event *event, struct err *reterr)
{
	switch ((int) message->body_case) {
	case CROFT__GUEST_EVENT__BODY_FAILURE:
		return decode_failure(message->failure, event, reterr);
	case CROFT__GUEST_EVENT__BODY_DONE:
		event->kind = GUEST_EVENT_DONE;
		return 0;
	case CROFT__GUEST_EVENT__BODY_STARTED:
		if (message->started->pid == 0 || message->started->pid > INT32_MAX)
			return protocol(reterr, "has no valid pid");
		event->pid = message->started->pid;
		event->kind = GUEST_EVENT_STARTED;
		return 0;
	case CROFT__GUEST_EVENT__BODY_DATA:
		return decode_data(message->data, event, reterr);
	case CROFT__GUEST_EVENT__BODY_ENDED:
		return decode_ended(message->ended, event, reterr);
	case CROFT__GUEST_EVENT__BODY_PROCESSES:
		return decode_processes(message->processes, event, reterr);
	case CROFT__GUEST_EVENT__BODY_CHANGES:
		return decode_changes(message->changes, event, reterr);
	default:
		if (message->body_case != CROFT__GUEST_EVENT__BODY__NOT_SET || message->base.n_unknown_fields == 0)
			return protocol(reterr, "is of a kind that was not asked for");
		event->kind = GUEST_EVENT_UNKNOWN;
		return 0;
	}
}

int guest_event_decode(const void *data, size_t size, struct guest_event *ret, struct err *reterr)
{
	struct guest_event event = { 0 };
	struct err check = ERR_NULL;
	int r;

	/* What the check finds wrong is FRAME_INVALID of this node's software; from a guest it is the guest's. */
	event.message = check_unpack(&croft__guest_event__descriptor, data, size, &check);
	if (!event.message && check.code == FAIL_NO_MEMORY)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for the guest's answer.");
	if (!event.message)
		return protocol(reterr, "is no valid message");
	r = decode_body((const Croft__GuestEvent *) event.message, &event, reterr);
	if (r < 0) {
		guest_event_deinit(&event);
		return r;
	}
	*ret = event;
	return 0;
}

void guest_event_deinit(struct guest_event *event)
{
	for (size_t i = 0; i < event->n_processes; i++)
		free(event->processes[i].envs);
	free(event->processes);
	free(event->changes);
	if (event->message)
		protobuf_c_message_free_unpacked(event->message, NULL);
	*event = (struct guest_event){ 0 };
}
