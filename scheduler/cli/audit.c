/* SPDX-License-Identifier: Apache-2.0
 *
 * croft audit: the audit log, and whether it is as it was written. `verify` computes every hash itself: it believes the
 * scheduler, or a file, nothing but what it can check.
 */
#include "cli/list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/chain.h"

#define PAGE 1000
#define FAULTS_MAX 100 /* that are listed */
#define LINE_MAX_ (1 << 20)

static const char *const columns[] = { "seq", "when", "role", "key", "verb", "outcome", "status", "code", "object", "made", "request", "trace",
	"personal.key_name", "personal.tenant", "personal.customer", "personal.path", "personal.made", "who", "prev", "hash" };

/* ---- list ---- */

static struct table *table_of(const json_t *entries)
{
	static const char *const heads[] = { "SEQ", "WHEN", "ROLE", "KEY", "WHAT", "OUTCOME", "OBJECT", "NAME" };
	struct table *table = table_new(ARRAY_LEN(heads), heads);
	json_t *entry;
	size_t k;

	json_array_foreach(entries, k, entry) {
		const json_t *personal = json_object_get(entry, "personal");
		char text[8][160];
		const char *code = text_of(entry, "code", text[6], 160), *path = text_of(personal, "path", text[4], 160),
			   *method = text_of(entry, "verb", text[0], 160), *object = text_of(entry, "made", text[5], 160);
		const char *cells[ARRAY_LEN(heads)] = { text_of(entry, "seq", text[1], 32), text_of(entry, "when", text[2], 32),
			text_of(entry, "role", text[3], 32), NULL, NULL, code ? code : text_of(entry, "outcome", text[6], 160),
			object ? object : text_of(entry, "object", text[5], 160), NULL };
		char key[64], what[256], name[96];

		cells[3] = text_of(entry, "key", key, sizeof(key));
		(void)snprintf(what, sizeof(what), "%.*s %s", path && method ? (int)strcspn(method, " ") : 0, method ? method : "",
			path ? path : method ? method : "");
		cells[4] = what + (*what == ' ');
		cells[7] = text_of(personal, "key_name", name, sizeof(name));
		table_add(table, cells);
	}
	return table;
}

static int get_page(struct cli *cli, uint64_t after, uint64_t limit, json_t **ret, struct failure *failure)
{
	return api_get(cli, ret, failure, "/v1/audit?after=%" PRIu64 "&limit=%" PRIu64, after, limit);
}

static int audit_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	enum output form = OUTPUT_TEXT;
	json_t *answer = NULL;
	const char *after = NULL;
	uint64_t from = 0, limit = 0;
	const struct arg args[] = {
		{ "after", 0, ARG_STRING, &after, "SEQ", "Begin behind this entry [the latest entries]." },
		{ "limit", 0, ARG_U64, &limit, "N", "At most so many, and at most 1000 [100]." },
		ARG_OUTPUT_ROW(&form),
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	char *end = NULL;
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1)
		return args_complain(command, "no arguments are taken");
	from = after ? strtoull(after, &end, 10) : 0;
	if (after && (*after < '0' || *after > '9' || *end))
		return args_complain(command, "--after needs the number of an entry");
	cli->json = form == OUTPUT_JSON;
	limit = limit ? limit : 100;
	if (!after && get_page(cli, 0, 1, &answer, &failure) == 0) {
		const uint64_t head = (uint64_t)json_integer_value(json_object_get(json_object_get(answer, "head"), "seq"));

		from = head > limit ? head - limit : 0;
		json_decref(answer);
		answer = NULL;
	}
	if (err_is_set(&failure.err) || get_page(cli, from, limit, &answer, &failure) < 0)
		return print_failure(cli, "cannot show the audit log", &failure);
	if (form == OUTPUT_JSON)
		return print_json(answer);
	status = form == OUTPUT_TEXT ? table_print(table_of(json_object_get(answer, "entries")))
				     : list_rows(json_object_get(answer, "entries"), columns, ARRAY_LEN(columns), form);
	json_decref(answer);
	return status;
}

/* ---- verify ---- */

struct verifying {
	struct chain chain; /* of what was read */
	struct chain base;
	uint64_t n, n_erased, n_faults;
	json_t *faults;
	bool has_begun;
};

static void add_fault(struct verifying *verifying, uint64_t seq, const char *what)
{
	if (verifying->n_faults++ < FAULTS_MAX)
		(void)json_array_append_new(verifying->faults, json_pack("{s:I, s:s}", "seq", (json_int_t)seq, "fault", what));
}

static void take(struct verifying *verifying, const json_t *entry)
{
	const uint64_t seq = (uint64_t)json_integer_value(json_object_get(entry, "seq"));
	const char *hash = json_string_value(json_object_get(entry, "hash")), *prev = json_string_value(json_object_get(entry, "prev"));
	enum chain_result result;

	if (!verifying->has_begun && verifying->base.seq == 0 && seq > 1 && prev) { /* a file that begins later */
		verifying->chain.seq = seq - 1;
		(void)snprintf(verifying->chain.hash, sizeof(verifying->chain.hash), "%s", prev);
		verifying->base = verifying->chain;
	}
	verifying->has_begun = true;
	verifying->n++;
	verifying->n_erased += json_object_get(entry, "who") && !json_object_get(entry, "personal");
	result = chain_check(&verifying->chain, entry);
	if (result == CHAIN_OK)
		return;
	add_fault(verifying, seq, chain_result_text(result));
	if (seq > verifying->chain.seq && hash) { /* the rest is compared with this one as it is */
		verifying->chain.seq = seq;
		(void)snprintf(verifying->chain.hash, sizeof(verifying->chain.hash), "%s", hash);
	}
}

static void chain_of(const json_t *mark, struct chain *ret)
{
	const char *hash = json_string_value(json_object_get(mark, "hash"));

	ret->seq = (uint64_t)json_integer_value(json_object_get(mark, "seq"));
	(void)snprintf(ret->hash, sizeof(ret->hash), "%s", hash ? hash : CHAIN_HASH_NONE);
}

/* What a head says that was kept, or the scheduler's own. */
static void compare_head(struct verifying *verifying, const struct chain *head, const char *whose)
{
	char text[160];

	if (verifying->chain.seq < head->seq) {
		(void)snprintf(text, sizeof(text), "is the last one, but %s is entry %" PRIu64 ": the end is missing", whose, head->seq);
		add_fault(verifying, verifying->chain.seq, text);
	} else if (verifying->chain.seq == head->seq && *head->hash && strcmp(verifying->chain.hash, head->hash) != 0) {
		(void)snprintf(text, sizeof(text), "has another hash than %s: the log was written anew", whose);
		add_fault(verifying, head->seq, text);
	}
}

/* A head that was kept and lies further up. */
static void compare_kept(struct verifying *verifying, const json_t *entry, const struct chain *kept)
{
	const char *hash = json_string_value(json_object_get(entry, "hash"));

	if (kept->seq == 0 || !*kept->hash || json_integer_value(json_object_get(entry, "seq")) != (json_int_t)kept->seq || !hash)
		return;
	if (strcmp(hash, kept->hash) != 0)
		add_fault(verifying, kept->seq, "has another hash than the head that was kept: the log was written anew");
}

static int read_scheduler(struct cli *cli, struct verifying *verifying, const struct chain *kept, struct failure *failure)
{
	struct chain head = CHAIN_NEW;
	bool more = true;

	while (more) {
		json_t *page = NULL, *entry;
		size_t k;

		if (get_page(cli, verifying->chain.seq, PAGE, &page, failure) < 0)
			return -1;
		if (!verifying->has_begun) {
			chain_of(json_object_get(page, "base"), &verifying->base);
			verifying->chain = verifying->base;
			verifying->has_begun = true;
			chain_of(json_object_get(page, "head"), &head);
		}
		json_array_foreach(json_object_get(page, "entries"), k, entry) {
			take(verifying, entry);
			compare_kept(verifying, entry, kept);
		}
		more = json_is_true(json_object_get(page, "more")) && k > 0;
		json_decref(page);
	}
	compare_head(verifying, &head, "the scheduler's head");
	return 0;
}

/* JSON lines, as `croft audit list -o jsonl` prints them. */
static int read_file(const char *path, struct verifying *verifying, const struct chain *kept, struct failure *failure)
{
	FILE *from = strcmp(path, "-") != 0 ? fopen(path, "re") : stdin;
	char *line = NULL;
	size_t room = 0;

	if (!from)
		return err_set(&failure->err, FAIL_INVALID_ARGUMENT, errno, "The file cannot be read: %.200s.", path);
	while (getline(&line, &room, from) > 0) {
		json_t *entry = json_loads(line, JSON_REJECT_DUPLICATES, NULL);

		take(verifying, entry);
		compare_kept(verifying, entry, kept);
		json_decref(entry);
	}
	free(line);
	if (from != stdin)
		(void)fclose(from);
	return 0;
}

/* "SEQ" or "SEQ:HASH". */
static bool parse_head(const char *text, struct chain *ret)
{
	char *end;

	errno = 0;
	ret->seq = strtoull(text, &end, 10);
	*ret->hash = '\0';
	if (errno || *text < '0' || *text > '9' || ret->seq == 0)
		return false;
	if (*end == ':' && strlen(end + 1) == CHAIN_HASH_SIZE - 1 && strspn(end + 1, "0123456789abcdef") == CHAIN_HASH_SIZE - 1)
		(void)snprintf(ret->hash, sizeof(ret->hash), "%s", end + 1);
	else if (*end)
		return false;
	return true;
}

static int show(struct cli *cli, struct verifying *verifying)
{
	const bool is_whole = verifying->n_faults == 0;
	json_t *fault;
	char text[192];
	size_t k;

	if (cli->json)
		return print_json(json_pack("{s:b, s:I, s:I, s:I, s:{s:I, s:s}, s:O, s:I}", "verified", is_whole, "entries", (json_int_t)verifying->n,
			       "erased", (json_int_t)verifying->n_erased, "base", (json_int_t)verifying->base.seq, "head", "seq",
			       (json_int_t)verifying->chain.seq, "hash", verifying->chain.hash, "faults", verifying->faults, "n_faults",
			       (json_int_t)verifying->n_faults));
	json_array_foreach(verifying->faults, k, fault)
		(void)printf("entry %lld %s\n", (long long)json_integer_value(json_object_get(fault, "seq")),
			text_of(fault, "fault", text, sizeof(text)));
	if (verifying->n_faults > FAULTS_MAX)
		(void)printf("and %" PRIu64 " more\n", verifying->n_faults - FAULTS_MAX);
	(void)printf("%" PRIu64 " entries from %" PRIu64 " on, %" PRIu64 " without their personal fields; head %" PRIu64 ":%s\n", verifying->n,
		verifying->base.seq + 1, verifying->n_erased, verifying->chain.seq, verifying->chain.hash);
	return EXIT_OK;
}

static int audit_verify(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct verifying verifying = { .chain = CHAIN_NEW, .base = CHAIN_NEW, .faults = json_array() };
	struct failure failure = { 0 };
	const char *file = NULL, *text = NULL;
	struct chain kept = { 0, "" };
	const struct arg args[] = {
		{ "file", 'f', ARG_STRING, &file, "FILE", "Entries as `croft audit list -o jsonl` printed them, instead of the scheduler's; - for standard input." },
		{ "head", 0, ARG_STRING, &text, "SEQ[:HASH]", "A head that was kept elsewhere (metrics, a backup): entry SEQ must be there, with this hash." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status;

	if (r != ARGS_OK || argc != 1 || (text && !parse_head(text, &kept))) {
		json_decref(verifying.faults);
		if (r != ARGS_OK)
			return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
		return args_complain(command, argc != 1 ? "no arguments are taken" : "--head is SEQ or SEQ:HASH");
	}
	status = file ? read_file(file, &verifying, &kept, &failure) : read_scheduler(cli, &verifying, &kept, &failure);
	if (status < 0) {
		json_decref(verifying.faults);
		return print_failure(cli, "cannot verify the audit log", &failure);
	}
	if (kept.seq)
		compare_head(&verifying, &kept, "the head that was kept");
	status = show(cli, &verifying);
	json_decref(verifying.faults);
	if (verifying.n_faults == 0 || status != EXIT_OK)
		return status;
	(void)err_set(&failure.err, FAIL_AUDIT_BROKEN, EBADMSG, "The audit log is not as it was written: %" PRIu64 " fault(s).", verifying.n_faults);
	return print_failure(cli, "the audit log does not verify", &failure);
}

const struct command commands_audit[] = {
	{ "audit list", "", "Show who asked for what change, when, and what became of it (the provider).", audit_list, NULL },
	{ "audit verify", "",
		"Compute the hashes of the audit log anew: changed, missing and moved entries are named.\n"
		"\nThat its end is missing, or all of it was written anew, only a head shows that was kept elsewhere: give it as --head. "
		"The exit status is 1 where something is wrong.",
		audit_verify, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
