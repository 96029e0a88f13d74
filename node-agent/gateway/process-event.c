/* SPDX-License-Identifier: Apache-2.0
 *
 * See process-event.h.
 */
#include "gateway/process-event.h"

#include <stdio.h>

#include "wire/base64.h"

/* The words that E2B's clients show for a signal; one without a word is "signal N". */
static const char *signal_text(uint32_t signal)
{
	static const char *const texts[] = {
		[1] = "hangup",
		[2] = "interrupt",
		[3] = "quit",
		[4] = "illegal instruction",
		[5] = "trace/breakpoint trap",
		[6] = "aborted",
		[7] = "bus error",
		[8] = "floating point exception",
		[9] = "killed",
		[10] = "user defined signal 1",
		[11] = "segmentation fault",
		[12] = "user defined signal 2",
		[13] = "broken pipe",
		[14] = "alarm clock",
		[15] = "terminated",
	};

	return signal < ARRAY_LEN(texts) ? texts[signal] : NULL;
}

json_t *process_event_start(uint32_t pid)
{
	return json_pack("{s:{s:{s:I}}}", "event", "start", "pid", (json_int_t) pid);
}

json_t *process_event_data(const struct guest_data *data)
{
	static const char *const names[STREAM_MAX_] = {
		[STREAM_STDOUT] = "stdout",
		[STREAM_STDERR] = "stderr",
		[STREAM_PTY] = "pty",
	};
	char text[BASE64_ENCODED_SIZE(GUEST_DATA_MAX)];
	size_t size = base64_encode(data->data, MIN(data->size, (size_t) GUEST_DATA_MAX), text);
	json_t *lost = data->lost ? json_integer((json_int_t) MIN(data->lost, (uint64_t) INT64_MAX)) : NULL;

	return json_pack("{s:{s:{s:o, s:o*}}}", "event", "data", names[data->stream],
		json_stringn_nocheck(text, size), "lost", lost);
}

json_t *process_event_keepalive(void)
{
	return json_pack("{s:{s:{}}}", "event", "keepalive");
}

static int add_error(json_t *end, const struct guest_ended *ended, const char *status, const struct failure_context *context)
{
	struct err err = ERR_NULL;
	char text[128];

	if (!ended->out_of_memory)
		return json_object_set_new(end, "error", json_string(status));
	(void) snprintf(text, sizeof(text), "GUEST_OOM: %s, for the sandbox is out of memory", status);
	(void) err_set_at(&err, STAGE_EXEC, FAIL_GUEST_OOM, 0,
		"The sandbox's kernel killed a process of this command for want of memory: %s.", status);
	if (json_object_set_new(end, "error", json_string(text)) < 0)
		return -1;
	return json_object_set_new(end, "failure", json_failure(&err, context));
}

json_t *process_event_end(const struct guest_ended *ended, const struct failure_context *context)
{
	char status[64];
	json_t *end;

	if (ended->exited)
		(void) snprintf(status, sizeof(status), "exit status %d", ended->exit_code);
	else if (signal_text(ended->signal))
		(void) snprintf(status, sizeof(status), "signal: %s", signal_text(ended->signal));
	else
		(void) snprintf(status, sizeof(status), "signal: signal %u", ended->signal);
	end = json_pack("{s:i, s:b, s:s}", "exitCode", ended->exited ? ended->exit_code : -1, "exited",
		(int) ended->exited, "status", status);
	if (!end)
		return NULL;
	if ((!ended->exited || ended->exit_code != 0) && add_error(end, ended, status, context) < 0)
		goto fail;
	if (!ended->exited && json_object_set_new(end, "signal", json_integer(ended->signal)) < 0)
		goto fail;
	return json_pack("{s:{s:o}}", "event", "end", end);
fail:
	json_decref(end);
	return NULL;
}

static json_t *process_entry(const struct guest_process *process)
{
	json_t *args = json_array(), *envs = json_object();
	int r = args && envs ? 0 : -1;

	for (size_t i = 0; r == 0 && i < process->n_args; i++)
		r = json_array_append_new(args, json_string(process->args[i]));
	for (size_t i = 0; r == 0 && i < process->n_envs; i++)
		r = json_object_set_new(envs, process->envs[i].name, json_string(process->envs[i].value));
	if (r < 0) {
		json_decref(args);
		json_decref(envs);
		return NULL;
	}
	return json_pack("{s:{s:s, s:o, s:o, s:s*}, s:I, s:s*}", "config", "cmd", process->cmd, "args", args, "envs",
		envs, "cwd", *process->cwd ? process->cwd : NULL, "pid", (json_int_t) process->pid, "tag",
		*process->tag ? process->tag : NULL);
}

json_t *process_list(const struct guest_process *processes, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < n; i++) {
		if (json_array_append_new(list, process_entry(&processes[i])) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return json_pack("{s:o}", "processes", list);
}
