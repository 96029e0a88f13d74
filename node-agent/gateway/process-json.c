/* SPDX-License-Identifier: Apache-2.0
 *
 * See process-json.h. The getters below are proto3 JSON's scalar rules; `path` is the member's whole name for
 * the message. No text of the caller is put into a message: it may be a secret, and it may be no UTF-8 when cut.
 */
#include "gateway/process-json.h"

#include <errno.h>
#include <string.h>

#include "wire/base64.h"

static int invalid(struct err *reterr, const char *path, const char *what)
{
	err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s.", path, what);
	err_add(reterr, "field", "%s", path);
	return -EINVAL;
}

static int no_memory(struct err *reterr)
{
	return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for the request.");
}

/* NULL where the member is absent or null. */
static json_t *member(const json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);

	return json_is_null(value) ? NULL : value;
}

static int parse_root(const char *json, size_t size, json_t **ret, struct err *reterr)
{
	json_error_t error;
	json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);

	if (!root) {
		if (json_error_code(&error) == json_error_out_of_memory)
			return no_memory(reterr);
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL,
			"The request is no JSON: line %d, column %d.", error.line, error.column);
	}
	if (!json_is_object(root)) {
		json_decref(root);
		return invalid(reterr, "request", "must be an object");
	}
	*ret = root;
	return 0;
}

static int get_object(const json_t *object, const char *name, const char *path, json_t **ret, struct err *reterr)
{
	*ret = member(object, name);
	if (*ret && !json_is_object(*ret))
		return invalid(reterr, path, "must be an object");
	return 0;
}

static int get_string(const json_t *object, const char *name, const char *path, size_t max, const char **ret,
	struct err *reterr)
{
	const json_t *value = member(object, name);

	*ret = "";
	if (!value)
		return 0;
	if (!json_is_string(value))
		return invalid(reterr, path, "must be a string");
	if (json_string_length(value) > max)
		return invalid(reterr, path, "is too long");
	*ret = json_string_value(value);
	return 0;
}

static bool number_of_text(const char *text, uint32_t *ret)
{
	uint64_t n = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		n = n * 10 + (uint64_t) (*text - '0');
		if (n > UINT32_MAX)
			return false;
	}
	*ret = (uint32_t) n;
	return true;
}

static int get_u32(const json_t *object, const char *name, const char *path, uint32_t max, uint32_t *ret,
	struct err *reterr)
{
	const json_t *value = member(object, name);
	uint32_t n = 0;

	*ret = 0;
	if (!value)
		return 0;
	if (json_is_string(value)) {
		if (!number_of_text(json_string_value(value), &n))
			return invalid(reterr, path, "must be a whole number that is not negative");
	} else if (json_is_number(value)) {
		double number = json_number_value(value);

		n = number >= 0 && number <= (double) UINT32_MAX ? (uint32_t) number : 0;
		if (number < 0 || (double) n < number)
			return invalid(reterr, path, "must be a whole number that is not negative");
	} else {
		return invalid(reterr, path, "must be a number");
	}
	if (n > max)
		return invalid(reterr, path, "is too large");
	*ret = n;
	return 0;
}

static int get_bool(const json_t *object, const char *name, const char *path, bool *ret, struct err *reterr)
{
	const json_t *value = member(object, name);

	if (value && !json_is_boolean(value))
		return invalid(reterr, path, "must be true or false");
	if (value)
		*ret = json_is_true(value);
	return 0;
}

static int get_selector(const json_t *root, struct process_selector *ret, struct err *reterr)
{
	json_t *process;
	int r = get_object(root, "process", "process", &process, reterr);

	if (r < 0)
		return r;
	if (!process)
		return invalid(reterr, "process", "is missing");
	if (member(process, "pid") && member(process, "tag"))
		return invalid(reterr, "process", "must have a pid or a tag, not both");
	r = get_u32(process, "pid", "process.pid", INT32_MAX, &ret->pid, reterr);
	if (r == 0)
		r = get_string(process, "tag", "process.tag", PROCESS_TAG_MAX, &ret->tag, reterr);
	if (r == 0 && ret->pid == 0 && !*ret->tag)
		return invalid(reterr, "process", "must have a pid above 0 or a tag");
	return r;
}

static int get_pty(const json_t *root, bool *ret_has, uint32_t *cols, uint32_t *rows, struct err *reterr)
{
	json_t *pty, *size;
	int r = get_object(root, "pty", "pty", &pty, reterr);

	*ret_has = false;
	if (r < 0 || !pty)
		return r;
	r = get_object(pty, "size", "pty.size", &size, reterr);
	if (r == 0)
		r = get_u32(size, "cols", "pty.size.cols", PROCESS_PTY_MAX, cols, reterr);
	if (r == 0)
		r = get_u32(size, "rows", "pty.size.rows", PROCESS_PTY_MAX, rows, reterr);
	*ret_has = r == 0;
	return r;
}

static int get_args(const json_t *config, struct process_start *start, struct err *reterr)
{
	const json_t *args = member(config, "args");
	json_t *value;
	size_t i;

	if (!args)
		return 0;
	if (!json_is_array(args))
		return invalid(reterr, "process.args", "must be an array of strings");
	if (json_array_size(args) > PROCESS_ELEMENTS_MAX)
		return invalid(reterr, "process.args", "has too many elements");
	start->args = calloc(json_array_size(args) + 1, sizeof(*start->args));
	if (!start->args)
		return no_memory(reterr);
	json_array_foreach(args, i, value) {
		if (!json_is_string(value))
			return invalid(reterr, "process.args", "must be an array of strings");
		start->args[start->n_args++] = json_string_value(value);
	}
	return 0;
}

static int get_envs(json_t *config, struct process_start *start, struct err *reterr)
{
	const char *name;
	json_t *envs, *value;
	int r = get_object(config, "envs", "process.envs", &envs, reterr);

	if (r < 0 || !envs)
		return r;
	if (json_object_size(envs) > PROCESS_ELEMENTS_MAX)
		return invalid(reterr, "process.envs", "has too many members");
	start->envs = calloc(json_object_size(envs) + 1, sizeof(*start->envs));
	if (!start->envs)
		return no_memory(reterr);
	json_object_foreach(envs, name, value) {
		if (!*name || strchr(name, '='))
			return invalid(reterr, "process.envs", "has a name that is empty or contains `=`");
		if (!json_is_string(value))
			return invalid(reterr, "process.envs", "must have strings as values");
		start->envs[start->n_envs++] = (struct process_env){ name, json_string_value(value) };
	}
	return 0;
}

static int get_config(json_t *config, struct process_start *start, struct err *reterr)
{
	int r;

	if (!config)
		return invalid(reterr, "process", "is missing");
	r = get_string(config, "cmd", "process.cmd", PROCESS_PATH_MAX, &start->cmd, reterr);
	if (r < 0)
		return r;
	if (!*start->cmd)
		return invalid(reterr, "process.cmd", "is missing");
	r = get_string(config, "cwd", "process.cwd", PROCESS_PATH_MAX, &start->cwd, reterr);
	if (r == 0)
		r = get_args(config, start, reterr);
	if (r == 0)
		r = get_envs(config, start, reterr);
	return r;
}

int process_start_parse(const char *json, size_t size, struct process_start *ret, struct err *reterr)
{
	struct process_start start = { .stdin_open = true };
	json_t *config;
	int r = parse_root(json, size, &start.root, reterr);

	if (r < 0)
		return r;
	r = get_object(start.root, "process", "process", &config, reterr);
	if (r == 0)
		r = get_config(config, &start, reterr);
	if (r == 0)
		r = get_string(start.root, "tag", "tag", PROCESS_TAG_MAX, &start.tag, reterr);
	if (r == 0)
		r = get_bool(start.root, "stdin", "stdin", &start.stdin_open, reterr);
	if (r == 0)
		r = get_pty(start.root, &start.has_pty, &start.cols, &start.rows, reterr);
	if (r < 0) {
		process_start_deinit(&start);
		return r;
	}
	*ret = start;
	return 0;
}

void process_start_deinit(struct process_start *start)
{
	json_decref(start->root);
	free(start->args);
	free(start->envs);
	*start = (struct process_start){ 0 };
}

/* {"stdin": bytes} or {"pty": bytes}. */
static int get_input(const json_t *root, struct process_input *input, struct err *reterr)
{
	const json_t *value, *pty;
	json_t *object;
	int r = get_object(root, "input", "input", &object, reterr);

	if (r < 0)
		return r;
	value = member(object, "stdin");
	pty = member(object, "pty");
	if (!value == !pty)
		return invalid(reterr, "input", "must have exactly one of `stdin` and `pty`");
	value = value ? value : pty;
	if (!json_is_string(value))
		return invalid(reterr, "input", "must be a string in base64");
	r = base64_decode(json_string_value(value), json_string_length(value), &input->data, &input->size);
	if (r == -ENOMEM)
		return no_memory(reterr);
	return r < 0 ? invalid(reterr, "input", "is no base64") : 0;
}

int process_input_parse(const char *json, size_t size, struct process_input *ret, struct err *reterr)
{
	struct process_input input = { 0 };
	int r = parse_root(json, size, &input.root, reterr);

	if (r == 0)
		r = get_selector(input.root, &input.process, reterr);
	if (r == 0)
		r = get_input(input.root, &input, reterr);
	if (r < 0) {
		process_input_deinit(&input);
		return r;
	}
	*ret = input;
	return 0;
}

void process_input_deinit(struct process_input *input)
{
	json_decref(input->root);
	free(input->data);
	*input = (struct process_input){ 0 };
}

/* By name as the SDKs send it, or any other signal by number: what `croft` forwards. */
static int get_signal(const json_t *root, uint32_t *ret, struct err *reterr)
{
	static const struct {
		const char *name;
		uint32_t number;
	} names[] = { { "SIGNAL_SIGTERM", 15 }, { "SIGNAL_SIGKILL", 9 } };
	const json_t *value = member(root, "signal");
	int r;

	if (json_is_string(value)) {
		for (size_t i = 0; i < ARRAY_LEN(names); i++) {
			if (strcmp(json_string_value(value), names[i].name))
				continue;
			*ret = names[i].number;
			return 0;
		}
		return invalid(reterr, "signal", "must be SIGNAL_SIGTERM, SIGNAL_SIGKILL or a number from 1 to 64");
	}
	r = get_u32(root, "signal", "signal", 64, ret, reterr);
	if (r == 0 && *ret == 0)
		return invalid(reterr, "signal", "is missing");
	return r;
}

int process_signal_parse(const char *json, size_t size, struct process_signal *ret, struct err *reterr)
{
	struct process_signal signal = { 0 };
	int r = parse_root(json, size, &signal.root, reterr);

	if (r == 0)
		r = get_selector(signal.root, &signal.process, reterr);
	if (r == 0)
		r = get_signal(signal.root, &signal.signal, reterr);
	if (r < 0) {
		process_signal_deinit(&signal);
		return r;
	}
	*ret = signal;
	return 0;
}

void process_signal_deinit(struct process_signal *signal)
{
	json_decref(signal->root);
	*signal = (struct process_signal){ 0 };
}

int process_update_parse(const char *json, size_t size, struct process_update *ret, struct err *reterr)
{
	struct process_update update = { 0 };
	int r = parse_root(json, size, &update.root, reterr);

	if (r == 0)
		r = get_selector(update.root, &update.process, reterr);
	if (r == 0)
		r = get_pty(update.root, &update.has_pty, &update.cols, &update.rows, reterr);
	if (r < 0) {
		process_update_deinit(&update);
		return r;
	}
	*ret = update;
	return 0;
}

void process_update_deinit(struct process_update *update)
{
	json_decref(update->root);
	*update = (struct process_update){ 0 };
}

int process_named_parse(const char *json, size_t size, struct process_named *ret, struct err *reterr)
{
	struct process_named named = { 0 };
	int r = parse_root(json, size, &named.root, reterr);

	if (r == 0)
		r = get_selector(named.root, &named.process, reterr);
	if (r < 0) {
		process_named_deinit(&named);
		return r;
	}
	*ret = named;
	return 0;
}

void process_named_deinit(struct process_named *named)
{
	json_decref(named->root);
	*named = (struct process_named){ 0 };
}

int process_empty_parse(const char *json, size_t size, struct err *reterr)
{
	json_t *root;
	int r = parse_root(json, size, &root, reterr);

	if (r == 0)
		json_decref(root);
	return r;
}
