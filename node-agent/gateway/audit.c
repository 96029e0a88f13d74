/* SPDX-License-Identifier: Apache-2.0
 *
 * See audit.h.
 */
#include "gateway/audit.h"

#include <errno.h>
#include <event2/event.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/log.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "gateway/gateway.h"
#include "wire/base64.h"

#define COMMAND_MAX 8192u /* of a command line, in the log */
#define WARN_USEC (60 * USEC_PER_SEC)
#define HEX_SIZE (2 * EVP_MAX_MD_SIZE + 1)

struct audit {
	struct audit_log *log;
	size_t output_max;
	bool is_full;
	int64_t warned_us;
	struct audit_told told[AUDIT_TOLD_MAX]; /* a ring */
	size_t first_told, n_told;
};

struct output {
	EVP_MD_CTX *digest;
	uint64_t size, lost; /* lost: that the guest had no room for */
	uint8_t *head;
	size_t head_size;
};

struct audit_exec {
	struct audit *audit;
	char sandbox[ID_SIZE];
	struct trace trace;
	int64_t began_us;
	char command_digest[HEX_SIZE];
	char command[256]; /* the first of it, for `audit = full` */
	struct output outputs[STREAM_MAX_];
};

int audit_new(struct audit **ret, const struct gateway_options *options, struct err *reterr)
{
	const struct audit_config config = { options->audit_directory, options->audit_size, options->audit_age_us };
	struct audit *audit = calloc(1, sizeof(*audit));
	int r;

	if (!audit)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the audit log.");
	audit->output_max = (size_t) options->audit_output;
	audit->is_full = !strcmp(options->audit, "full");
	audit->warned_us = INT64_MIN / 2;
	r = audit_log_open(&audit->log, &config, clock_realtime_usec(), reterr);
	if (r < 0) {
		free(audit);
		return r;
	}
	*ret = audit;
	return 0;
}

void audit_free(struct audit *audit)
{
	if (!audit)
		return;
	audit_log_close(audit->log);
	free(audit);
}

/* Takes `entry` over. What cannot be written is said once a minute: the calls go on. */
static bool append(struct audit *audit, json_t *entry)
{
	int64_t now = clock_monotonic_usec();
	struct err err = ERR_NULL;

	if (audit_log_append(audit->log, entry, clock_realtime_usec(), &err) == 0)
		return true;
	if (now >= audit->warned_us + WARN_USEC) {
		log_failure(LOG_LEVEL_ERROR, "what runs here is not in the audit log", &err, "lost",
			LOG_NUM(audit_log_lost(audit->log)), NULL);
		audit->warned_us = now;
	}
	return false;
}

bool audit_of_agent(struct audit *audit, const char *text)
{
	json_t *entry = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	const char *sandbox = json_string_value(json_object_get(entry, "sandbox"));

	if (!json_is_string(json_object_get(entry, "kind")) || !sandbox || !id_is_valid(sandbox)) {
		json_decref(entry);
		return false;
	}
	(void) append(audit, entry);
	return true;
}

/* ---- commands ---- */

static void hex_of(EVP_MD_CTX *digest, char ret[static HEX_SIZE])
{
	unsigned char bytes[EVP_MAX_MD_SIZE];
	unsigned int n = 0;

	*ret = '\0';
	if (!digest || EVP_DigestFinal_ex(digest, bytes, &n) != 1)
		return;
	hex_put(ret, bytes, n);
}

static EVP_MD_CTX *digest_new(void)
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();

	if (digest && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1) {
		EVP_MD_CTX_free(digest);
		return NULL;
	}
	return digest;
}

static const char *word_of(const struct process_start *start, size_t i)
{
	return i == 0 ? start->cmd : start->args[i - 1];
}

/* The digest is of the words with a NUL behind each, whatever of them is in the log. */
static json_t *command_json(const struct process_start *start, char ret_digest[static HEX_SIZE], bool *ret_is_cut)
{
	EVP_MD_CTX *digest = digest_new();
	json_t *words = json_array();
	size_t size = 0;

	*ret_is_cut = false;
	for (size_t i = 0; i <= start->n_args; i++) {
		const char *word = word_of(start, i);
		size_t n = strlen(word);

		if (digest)
			(void) EVP_DigestUpdate(digest, word, n + 1);
		size += n;
		if (size <= COMMAND_MAX)
			(void) json_array_append_new(words, json_string(word));
		else
			*ret_is_cut = true;
	}
	hex_of(digest, ret_digest);
	EVP_MD_CTX_free(digest);
	return words;
}

static json_t *names_json(const struct process_start *start)
{
	json_t *names = json_array();

	for (size_t i = 0; i < start->n_envs && i < 64; i++)
		(void) json_array_append_new(names, json_string(start->envs[i].name));
	return names;
}

static void exec_free(struct audit_exec *exec)
{
	for (size_t i = 0; i < ARRAY_LEN(exec->outputs); i++) {
		EVP_MD_CTX_free(exec->outputs[i].digest);
		free(exec->outputs[i].head);
	}
	free(exec);
}

struct audit_exec *audit_exec_begin(struct audit *audit, const struct call *call, const struct process_start *start, const char *user)
{
	struct audit_exec *exec = calloc(1, sizeof(*exec));
	json_t *command;
	bool is_cut;

	if (!exec) {
		(void) append(audit, NULL);
		return NULL;
	}
	exec->audit = audit;
	memcpy(exec->sandbox, call->sandbox, sizeof(exec->sandbox));
	exec->trace = call->trace;
	exec->began_us = clock_monotonic_usec();
	for (size_t i = 0; i < ARRAY_LEN(exec->outputs); i++)
		exec->outputs[i].digest = digest_new();
	command = command_json(start, exec->command_digest, &is_cut);
	for (size_t i = 0, n = 0; i <= start->n_args && n < sizeof(exec->command) - 1; i++)
		n += (size_t) snprintf(exec->command + n, sizeof(exec->command) - n, "%s%s", i ? " " : "", word_of(start, i));
	(void) append(audit, json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:b, s:s, s:s, s:o}", "kind", "command", "sandbox",
		exec->sandbox, "trace", exec->trace.trace_id, "span", exec->trace.span_id, "user", user, "command", command,
		"command_is_cut", is_cut, "command_sha256", exec->command_digest, "cwd", start->cwd, "environment", names_json(start)));
	return exec;
}

void audit_exec_data(struct audit_exec *exec, const struct guest_data *data)
{
	struct output *output;
	size_t n;

	if (!exec)
		return;
	output = &exec->outputs[data->stream];
	output->size += data->size;
	output->lost += data->lost;
	if (output->digest)
		(void) EVP_DigestUpdate(output->digest, data->data, data->size);
	n = MIN(data->size, exec->audit->output_max - output->head_size);
	if (n > 0 && !output->head)
		output->head = malloc(exec->audit->output_max);
	if (n > 0 && output->head) {
		memcpy(output->head + output->head_size, data->data, n);
		output->head_size += n;
	}
}

/* Text where it is text but for a character that was cut, else base64: also where it has a NUL, which readers of JSON refuse. */
static void put_head(json_t *to, const struct output *output)
{
	const bool has_nul = output->head_size > 0 && memchr(output->head, '\0', output->head_size);

	for (size_t less = 0; less < 4 && less < output->head_size && !has_nul; less++) {
		json_t *text = json_stringn((const char *) output->head, output->head_size - less);

		if (text) {
			(void) json_object_set_new(to, "head", text);
			return;
		}
	}
	if (output->head_size > 0) {
		CLEANUP_FREE char *encoded = malloc(4 * (output->head_size / 3 + 1) + 1);

		if (encoded) {
			(void) base64_encode(output->head, output->head_size, encoded);
			(void) json_object_set_new(to, "head_base64", json_string(encoded));
		}
	}
}

static json_t *output_json(const struct output *output, char ret_digest[static HEX_SIZE])
{
	json_t *json;

	hex_of(output->digest, ret_digest);
	json = json_pack("{s:I, s:s}", "size", (json_int_t) MIN(output->size, (uint64_t) INT64_MAX), "sha256", ret_digest);
	if (json && output->lost > 0)
		(void) json_object_set_new(json, "lost", json_integer((json_int_t) MIN(output->lost, (uint64_t) INT64_MAX)));
	if (json)
		put_head(json, output);
	return json;
}

/* ---- what may leave ---- */

static void tell(struct audit_told *told, const char *key, const char *value)
{
	if (told->n_fields == AUDIT_TOLD_FIELDS)
		return;
	(void) snprintf(told->fields[told->n_fields].key, sizeof(told->fields[0].key), "%s", key);
	(void) snprintf(told->fields[told->n_fields++].value, sizeof(told->fields[0].value), "%s", value);
}

static void tell_number(struct audit_told *told, const char *key, uint64_t value)
{
	char text[24];

	(void) snprintf(text, sizeof(text), "%llu", (unsigned long long) value);
	tell(told, key, text);
}

static struct audit_told *told_new(struct audit *audit, const char *sandbox)
{
	struct audit_told *told;

	if (audit->n_told == AUDIT_TOLD_MAX) { /* the node has it; the numbers show that one is missing */
		audit->first_told = (audit->first_told + 1) % AUDIT_TOLD_MAX;
		audit->n_told--;
	}
	told = &audit->told[(audit->first_told + audit->n_told++) % AUDIT_TOLD_MAX];
	*told = (struct audit_told){ .n_fields = 0 };
	memcpy(told->sandbox, sandbox, sizeof(told->sandbox));
	tell_number(told, "seq", audit_log_head(audit->log)->seq);
	tell(told, "hash", audit_log_head(audit->log)->hash);
	return told;
}

bool audit_take_told(struct audit *audit, struct audit_told *ret)
{
	if (audit->n_told == 0)
		return false;
	*ret = audit->told[audit->first_told];
	audit->first_told = (audit->first_told + 1) % AUDIT_TOLD_MAX;
	audit->n_told--;
	return true;
}

/* Of a terminal only what there was. */
static bool is_said(const struct audit_exec *exec, size_t stream)
{
	return stream != STREAM_PTY || exec->outputs[stream].size > 0;
}

void audit_exec_end(struct audit_exec *exec, uint32_t pid, const struct guest_ended *ended, const struct err *failure)
{
	static const char *const names[STREAM_MAX_] = { "stdout", "stderr", "pty" };
	char digests[STREAM_MAX_][HEX_SIZE];
	struct audit_told *told;
	json_t *entry;

	if (!exec)
		return;
	entry = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "kind", "ended", "sandbox", exec->sandbox, "trace", exec->trace.trace_id,
		"span", exec->trace.span_id, "pid", (json_int_t) pid, "took_ms",
		(json_int_t) ((clock_monotonic_usec() - exec->began_us) / USEC_PER_MSEC));
	if (ended && ended->exited)
		(void) json_object_set_new(entry, "exit", json_integer(ended->exit_code));
	else if (ended)
		(void) json_object_set_new(entry, "signal", json_integer(ended->signal));
	else if (failure)
		(void) json_object_set_new(entry, "code", json_string(failure_info(failure->code)->name));
	else
		(void) json_object_set_new(entry, "left", json_true()); /* the process may run on */
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (is_said(exec, i))
			(void) json_object_set_new(entry, names[i], output_json(&exec->outputs[i], digests[i]));
	if (append(exec->audit, entry)) {
		told = told_new(exec->audit, exec->sandbox);
		tell(told, "command_sha256", exec->command_digest);
		if (ended)
			tell_number(told, ended->exited ? "exit" : "signal", ended->exited ? (uint64_t) ended->exit_code : ended->signal);
		for (size_t i = 0; i < ARRAY_LEN(names); i++) {
			char key[24];

			if (!is_said(exec, i))
				continue;
			(void) snprintf(key, sizeof(key), "%s_size", names[i]);
			tell_number(told, key, exec->outputs[i].size);
			(void) snprintf(key, sizeof(key), "%s_sha256", names[i]);
			tell(told, key, digests[i]);
		}
		if (exec->audit->is_full)
			tell(told, "command", exec->command);
	}
	exec_free(exec);
}

/* ---- GET /croft/audit ---- */

#define OUT_HIGH (64u * 1024u)
#define SCAN_MAX (4u * 1024u * 1024u) /* at a turn of the loop */

struct asked {
	struct call *call;
	struct audit_reader *reader;
	struct event *again;
	struct buf out;
	uint64_t n;
	bool is_over;
};

static void asked_free(void *data)
{
	struct asked *asked = data;

	audit_reader_free(asked->reader);
	if (asked->again)
		event_free(asked->again);
	buf_deinit(&asked->out);
	free(asked);
}

static void end(struct asked *asked, const struct err *err)
{
	struct failure_context context = call_context(asked->call);
	json_t *line = err ? json_error_body(err, &context) : json_pack("{s:{s:I, s:s}}", "end", "entries", (json_int_t) asked->n,
								   "source", "node");
	CLEANUP_FREE char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;

	json_decref(line);
	if (text && buf_append(&asked->out, text, strlen(text)) == 0)
		(void) buf_append(&asked->out, "\n", 1);
	asked->is_over = true;
	call_note(asked->call, err ? RESULT_FAILED : RESULT_OK, err);
}

/* As much as there is room for, of at most SCAN_MAX bytes of the log. */
static void fill(struct asked *asked)
{
	struct err err = ERR_NULL;
	const char *line;
	size_t size, scanned = 0;
	int r = 0;

	while (!asked->is_over && r == 0 && buf_size(&asked->out) < OUT_HIGH && scanned < SCAN_MAX) {
		r = audit_reader_next(asked->reader, SCAN_MAX, &line, &size, &err);
		if (r == 0 && !line) {
			end(asked, NULL);
		} else if (r == 0) {
			scanned += size;
			asked->n++;
			r = buf_append(&asked->out, line, size);
			if (r == 0)
				r = buf_append(&asked->out, "\n", 1);
			if (r < 0)
				(void) err_set_at(&err, STAGE_FILES, FAIL_NO_MEMORY, -r, "No memory for the audit log.");
		}
	}
	if (r < 0 && r != -EAGAIN)
		end(asked, &err);
}

static void on_again(evutil_socket_t fd, short what, void *user)
{
	struct asked *asked = user;

	(void) fd;
	(void) what;
	fill(asked);
	if (buf_size(&asked->out) == 0 && !asked->is_over)
		event_active(asked->again, EV_TIMEOUT, 0);
	http_stream_wake(asked->call->req);
}

static long on_want(struct http_request *req, void *buf, size_t room, void *user)
{
	struct asked *asked = user;
	size_t size = MIN(room, buf_size(&asked->out));

	(void) req;
	if (size == 0) {
		if (asked->is_over)
			return -1;
		event_active(asked->again, EV_TIMEOUT, 0);
		return 0;
	}
	memcpy(buf, buf_peek(&asked->out), size);
	buf_consume(&asked->out, size);
	return (long) size;
}

void audit_run(struct call *call, const char *body, size_t size)
{
	struct asked *asked = calloc(1, sizeof(*asked));
	char text[TRACEPARENT_SIZE];
	struct http_field field = call_trace_field(call, text);
	struct err err = ERR_NULL;

	(void) body;
	(void) size;
	if (!asked) {
		call_fail_code(call, FAIL_NO_MEMORY, "No memory for the request.");
		return;
	}
	asked->call = call;
	asked->out = (struct buf) BUF_NULL(OUT_HIGH + AUDIT_LINE_MAX + 4096u);
	call->method_data = asked;
	call->method_free = asked_free;
	asked->again = evtimer_new(gateway_base(call->gateway), on_again, asked);
	if (audit_reader_new(&asked->reader, gateway_options(call->gateway)->audit_directory, call->sandbox, &err) < 0) {
		err.stage = STAGE_FILES;
		call_fail(call, &err);
	} else if (!asked->again ||
		   http_respond_stream(call->req, 200, "application/x-ndjson", &field, 1, -1, on_want, asked) < 0) {
		call_fail_code(call, FAIL_NO_MEMORY, "No memory for the request.");
	}
}
