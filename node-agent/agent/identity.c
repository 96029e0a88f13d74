/* SPDX-License-Identifier: Apache-2.0
 *
 * See identity.h.
 */
#include "agent/identity.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/messages.h"

#define FILE_SIZE_MAX (64 * 1024)
#define TOKEN_HEAD "# croft join token"
#define NODE_HEAD "# croft node"

/* One line's value goes where its row says. */
struct row {
	const char *key;
	char *to;
	size_t size;
	bool required;
};

struct parse {
	const char *file;
	enum fail_code code;
	const struct row *rows;
	size_t n_rows;
	struct scheduler_address *scheduler;
};

static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

static int add_addresses(const struct parse *parse, const char *scheme, char *list, unsigned int line,
	struct err *reterr)
{
	char *rest, *address;

	for (address = strtok_r(list, ",", &rest); address; address = strtok_r(NULL, ",", &rest)) {
		struct scheduler_address *to = parse->scheduler;

		address = trim(address);
		if (strncmp(address, scheme, 6) || !address[6] || strlen(address) >= ADDRESS_SIZE)
			return err_set(reterr, parse->code, EINVAL, "%s:%u: no %s address",
				parse->file, line, scheme);
		if (to->n_addresses >= SCHEDULERS_MAX)
			return err_set(reterr, parse->code, E2BIG, "%s:%u: more than %d addresses",
				parse->file, line, SCHEDULERS_MAX);
		(void)snprintf(to->addresses[to->n_addresses++], ADDRESS_SIZE, "%s", address);
	}
	return 0;
}

static int set_row(const struct parse *parse, const char *key, char *value, unsigned int line,
	struct err *reterr)
{
	static const struct {
		const char *key, *scheme;
		bool is_own;
	} addresses[] = { { "scheduler", "tcp://", true }, { "scheduler_tls", "tls://", true },
		{ "scheduler_told", "tcp://", false }, { "scheduler_told_tls", "tls://", false } };

	for (size_t i = 0; i < ARRAY_LEN(addresses); i++)
		if (!strcmp(key, addresses[i].key)) {
			int r = add_addresses(parse, addresses[i].scheme, value, line, reterr);

			if (addresses[i].is_own)
				parse->scheduler->n_own = parse->scheduler->n_addresses;
			return r;
		}
	for (size_t i = 0; i < parse->n_rows; i++) {
		const struct row *row = &parse->rows[i];

		if (strcmp(row->key, key))
			continue;
		if (strlen(value) >= row->size)
			return err_set(reterr, parse->code, EINVAL, "%s:%u: %s is too long",
				parse->file, line, key);
		(void)snprintf(row->to, row->size, "%s", value);
		return 0;
	}
	return 0;
}

static int parse_text(const struct parse *parse, const char *head, char *text, struct err *reterr)
{
	unsigned int number = 0;
	char *rest = text;

	if (strncmp(text, head, strlen(head)))
		return err_set(reterr, parse->code, EINVAL, "%s does not begin with \"%s\"",
			parse->file, head);
	while (rest) {
		char *line = strsep(&rest, "\n"), *value;
		int r;

		number++;
		line = trim(line);
		if (!*line || *line == '#')
			continue;
		value = strchr(line, '=');
		if (!value)
			return err_set(reterr, parse->code, EINVAL, "%s:%u: not `key = value`",
				parse->file, number);
		*value = '\0';
		r = set_row(parse, trim(line), trim(value + 1), number, reterr);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < parse->n_rows; i++)
		if (parse->rows[i].required && !*parse->rows[i].to)
			return err_set(reterr, parse->code, EINVAL, "%s lacks `%s`", parse->file,
				parse->rows[i].key);
	if (parse->scheduler->n_addresses == 0)
		return err_set(reterr, parse->code, EINVAL, "%s lacks `scheduler`", parse->file);
	return 0;
}

static int check_scheduler(const struct scheduler_address *scheduler, struct err *reterr)
{
	int r = curve_key_check(scheduler->key, reterr);

	if (r == 0 && *scheduler->next_key)
		r = curve_key_check(scheduler->next_key, reterr);
	if (r == 0 && *scheduler->old_key)
		r = curve_key_check(scheduler->old_key, reterr);
	return r;
}

/* ---- where to, and with which key ---- */

struct targets {
	unsigned int n;
	struct {
		const char *address, *key;
	} list[SCHEDULERS_MAX * 3];
};

static void add_targets(struct targets *targets, const struct scheduler_address *scheduler, unsigned int from, unsigned int to,
	const char *key)
{
	for (unsigned int i = from; *key && i < to; i++) {
		targets->list[targets->n].address = scheduler->addresses[i];
		targets->list[targets->n++].key = key;
	}
}

/* Our own addresses come with both keys before those that were told: where the present key was stolen, the thief may have told
 * one while it was believed, and whoever uses the next key stands at ours. The old key is the last resort. */
static void list_targets(const struct scheduler_address *scheduler, struct targets *ret)
{
	const unsigned int n_own = scheduler->n_own, n = scheduler->n_addresses;

	ret->n = 0;
	add_targets(ret, scheduler, 0, n_own, scheduler->key);
	add_targets(ret, scheduler, 0, n_own, scheduler->next_key);
	add_targets(ret, scheduler, n_own, n, scheduler->key);
	add_targets(ret, scheduler, n_own, n, scheduler->next_key);
	add_targets(ret, scheduler, 0, n, scheduler->old_key);
}

unsigned int scheduler_n_targets(const struct scheduler_address *scheduler)
{
	struct targets targets;

	list_targets(scheduler, &targets);
	return targets.n;
}

const char *scheduler_target(const struct scheduler_address *scheduler, unsigned int n, const char **ret_key)
{
	struct targets targets;

	list_targets(scheduler, &targets);
	*ret_key = targets.list[n % targets.n].key;
	return targets.list[n % targets.n].address;
}

static bool has_address(const struct scheduler_address *scheduler, const char *address)
{
	for (unsigned int i = 0; i < scheduler->n_addresses; i++)
		if (!strcmp(scheduler->addresses[i], address))
			return true;
	return false;
}

bool scheduler_learn(struct scheduler_address *mine, const struct link_set *told, const char *used_key)
{
	struct scheduler_address next = *mine;
	bool is_next = *mine->next_key && !strcmp(told->key, mine->next_key);

	if (!is_next && strcmp(told->key, mine->key) != 0)
		return false; /* nobody who has a key of ours says so without having been announced */
	if (*mine->old_key && !strcmp(used_key, mine->old_key))
		return false; /* what is true the present key says; the old one may be a thief's by now */
	if (is_next) {
		memcpy(next.old_key, mine->key, sizeof(next.old_key));
		memcpy(next.key, mine->next_key, sizeof(next.key));
		memset(next.next_key, 0, sizeof(next.next_key));
	}
	if (!strcmp(used_key, next.key)) {
		if (!*next.next_key && *told->next_key && curve_key_check(told->next_key, NULL) == 0)
			memcpy(next.next_key, told->next_key, sizeof(next.next_key));
		if (strcmp(told->old_key, next.old_key) != 0)
			memset(next.old_key, 0, sizeof(next.old_key)); /* served no more, and nobody's then */
	}
	next.n_addresses = next.n_own;
	memset(next.addresses[next.n_own], 0, sizeof(next.addresses) - next.n_own * sizeof(next.addresses[0]));
	for (unsigned int i = 0; i < told->n_endpoints && next.n_addresses < SCHEDULERS_MAX; i++)
		if (!has_address(&next, told->endpoints[i]))
			memcpy(next.addresses[next.n_addresses++], told->endpoints[i], ADDRESS_SIZE);
	if (!memcmp(&next, mine, sizeof(next)))
		return false;
	*mine = next;
	return true;
}

int identity_read(const char *state, struct identity *ret, struct err *reterr)
{
	struct identity id = { .node = "" };
	const struct row rows[] = { { "node", id.node, sizeof(id.node), true },
		{ "pool", id.pool, sizeof(id.pool), true },
		{ "key_file", id.key_file, sizeof(id.key_file), true },
		{ "scheduler_key", id.scheduler.key, sizeof(id.scheduler.key), true },
		{ "scheduler_next_key", id.scheduler.next_key, sizeof(id.scheduler.next_key),
			false },
		{ "scheduler_old_key", id.scheduler.old_key, sizeof(id.scheduler.old_key), false } };
	CLEANUP_FREE char *text = NULL;
	char path[PATH_MAX];
	const struct parse parse = { .file = path,
		.code = FAIL_STATE_UNREADABLE,
		.rows = rows,
		.n_rows = ARRAY_LEN(rows),
		.scheduler = &id.scheduler };
	int r;

	(void)snprintf(path, sizeof(path), "%s/node", state);
	r = file_read(path, FILE_SIZE_MAX, &text, NULL);
	if (r == -ENOENT)
		return err_set(reterr, FAIL_NOT_JOINED, ENOENT, "%s holds no node", state);
	if (r < 0)
		return err_set_at(
			reterr, STAGE_HOST, FAIL_STATE_UNREADABLE, -r, "cannot read %s", path);
	r = parse_text(&parse, NODE_HEAD, text, reterr);
	if (r == 0)
		r = check_scheduler(&id.scheduler, reterr);
	if (r == 0 && (!id_is_valid(id.node) || strchr(id.key_file, '/')))
		r = err_set_at(
			reterr, STAGE_HOST, FAIL_STATE_UNREADABLE, EINVAL, "%s is damaged", path);
	if (r < 0)
		return r;
	*ret = id;
	return 0;
}

int identity_write(const char *state, const struct identity *id, struct err *reterr)
{
	char path[PATH_MAX], text[SCHEDULERS_MAX * (ADDRESS_SIZE + 16) + 512];
	size_t used;
	int r;

	used = (size_t)snprintf(text, sizeof(text),
		NODE_HEAD
		"\nnode = %s\npool = %s\nkey_file = %s\nscheduler_key = %s\nscheduler_next_key = %s\n"
		"scheduler_old_key = %s\n",
		id->node, id->pool, id->key_file, id->scheduler.key, id->scheduler.next_key, id->scheduler.old_key);
	for (unsigned int i = 0; i < id->scheduler.n_addresses; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "scheduler%s%s = %s\n",
			i < id->scheduler.n_own ? "" : "_told", strncmp(id->scheduler.addresses[i], "tls", 3) ? "" : "_tls", id->scheduler.addresses[i]);
	(void)snprintf(path, sizeof(path), "%s/node", state);
	r = file_replace(path, text, used, 0600);
	if (r < 0)
		return err_set_at(
			reterr, STAGE_HOST, FAIL_STATE_WRITE_FAILED, -r, "cannot write %s", path);
	return 0;
}

int join_token_read(const char *file, int64_t now_us, struct join_token *ret, struct err *reterr)
{
	struct join_token token = { .id = "" };
	char expires[CLOCK_RFC3339_SIZE + 8] = "";
	const struct row rows[] = { { "token_id", token.id, sizeof(token.id), true },
		{ "token_public", token.keys.public_key, sizeof(token.keys.public_key), true },
		{ "token_secret", token.keys.secret_key, sizeof(token.keys.secret_key), true },
		{ "scheduler_key", token.scheduler.key, sizeof(token.scheduler.key), true },
		{ "scheduler_next_key", token.scheduler.next_key, sizeof(token.scheduler.next_key),
			false },
		{ "scheduler_old_key", token.scheduler.old_key, sizeof(token.scheduler.old_key), false },
		{ "pool", token.pool, sizeof(token.pool), false },
		{ "expires", expires, sizeof(expires), false } };
	const struct parse parse = { .file = file,
		.code = FAIL_JOIN_TOKEN_INVALID,
		.rows = rows,
		.n_rows = ARRAY_LEN(rows),
		.scheduler = &token.scheduler };
	CLEANUP_FREE char *text = NULL;
	int r = file_read(file, FILE_SIZE_MAX, &text, NULL);

	if (r < 0)
		return err_set(reterr, FAIL_JOIN_TOKEN_INVALID, -r, "cannot read %s", file);
	r = parse_text(&parse, TOKEN_HEAD, text, reterr);
	if (r == 0)
		r = check_scheduler(&token.scheduler, reterr);
	if (r == 0)
		r = curve_key_check(token.keys.public_key, reterr);
	if (r == 0)
		r = curve_key_check(token.keys.secret_key, reterr);
	if (r == 0 && !id_name_is_valid(token.id))
		r = err_set(reterr, FAIL_JOIN_TOKEN_INVALID, EINVAL, "%s: token_id is no id", file);
	if (r == 0 && *expires && clock_parse_rfc3339(expires, &token.expires_us) < 0)
		r = err_set(
			reterr, FAIL_JOIN_TOKEN_INVALID, EINVAL, "%s: expires is no time", file);
	if (r < 0)
		return r;
	if (token.expires_us != 0 && token.expires_us <= now_us)
		return err_set(reterr, FAIL_JOIN_TOKEN_EXPIRED, ETIME,
			"the token of %s expired at %s", file, expires);
	*ret = token;
	return 0;
}

int machine_id(const char *state, char ret[static ID_SIZE], struct err *reterr)
{
	CLEANUP_FREE char *text = NULL;
	struct rng rng = rng_system();
	char path[PATH_MAX];
	size_t size;
	int r;

	(void)snprintf(path, sizeof(path), "%s/machine", state);
	r = file_read(path, 256, &text, &size);
	if (r == 0 && size >= ID_LEN) {
		text[ID_LEN] = '\0';
		if (id_is_valid(text)) {
			memcpy(ret, text, ID_SIZE);
			return 0;
		}
	}
	if (r == 0)
		return err_set_at(
			reterr, STAGE_HOST, FAIL_STATE_UNREADABLE, EINVAL, "%s is damaged", path);
	if (r != -ENOENT)
		return err_set_at(
			reterr, STAGE_HOST, FAIL_STATE_UNREADABLE, -r, "cannot read %s", path);
	/* random, never from the hardware: two state directories on one host are two nodes */
	id_new(&rng, ret);
	r = file_replace(path, ret, ID_LEN, 0600);
	if (r < 0)
		return err_set_at(
			reterr, STAGE_HOST, FAIL_STATE_WRITE_FAILED, -r, "cannot write %s", path);
	return 0;
}

int state_lock(const char *state, struct err *reterr)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/lock", state);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set_at(
			reterr, STAGE_HOST, FAIL_STATE_WRITE_FAILED, errno, "cannot open %s", path);
	if (fcntl(fd, F_OFD_SETLK, &whole) < 0)
		return err_set(reterr, FAIL_STATE_LOCKED, errno, "%s is locked", path);
	return TAKE_FD(fd);
}

bool state_is_locked(const char *state)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/lock", state);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}
