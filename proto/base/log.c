/* SPDX-License-Identifier: Apache-2.0
 *
 * See log.h.
 */
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_SIZE 2048
#define VALUE_MAX 512

static const char *const level_names[LOG_LEVEL_MAX_] = { "error", "warn", "info", "debug" };
static const int level_priorities[LOG_LEVEL_MAX_] = { 3, 4, 6, 7 };

/* The only mutable file-scope state of the project beside this module's counter. */
static enum log_level max_level = LOG_LEVEL_INFO;
static const char *process_name = "croft";
static bool journal;
static uint64_t dropped;

void log_init(const char *process, enum log_level level)
{
	const char *wish = getenv("CROFT_LOG"), *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	process_name = process;
	max_level = level;
	for (int i = 0; wish && i < LOG_LEVEL_MAX_; i++)
		if (!strcasecmp(wish, level_names[i]))
			max_level = (enum log_level) i;
	journal = stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
		st.st_dev == dev && st.st_ino == ino;
}

struct line {
	char text[LINE_MAX_SIZE];
	size_t used;
};

static void put_char(struct line *line, char c)
{
	if (line->used < sizeof(line->text) - 2) /* room for the newline */
		line->text[line->used++] = c;
}

static void put_raw(struct line *line, const char *text)
{
	for (; *text; text++)
		put_char(line, *text);
}

/* Escapes what could forge a line or drive a terminal (bytes from 0x80 on too: they hold the C1 controls);
 * quotes where a reader would split. */
static void put_value(struct line *line, const char *text)
{
	static const char hex[] = "0123456789abcdef";
	bool quote = !*text || strpbrk(text, " \"=") != NULL;

	if (quote)
		put_char(line, '"');
	for (size_t n = 0; *text && n < VALUE_MAX; text++, n++) {
		unsigned char c = (unsigned char) *text;

		if (c < 0x20 || c >= 0x7f || c == '\\' || (quote && c == '"')) {
			put_raw(line, "\\x");
			put_char(line, hex[c >> 4]);
			put_char(line, hex[c & 15]);
		} else {
			put_char(line, (char) c);
		}
	}
	if (quote)
		put_char(line, '"');
}

static void put_field(struct line *line, const char *key, const char *value)
{
	if (!value)
		return;
	put_char(line, ' ');
	for (; *key; key++) /* a peer's failure record brings keys of its own */
		put_char(line, isalnum((unsigned char) *key) || strchr("_.-", *key) ? *key : '_');
	put_char(line, '=');
	put_value(line, value);
}

static void begin(struct line *line, enum log_level level, const char *message)
{
	line->used = 0;
	if (journal) {
		char prefix[8];

		(void) snprintf(prefix, sizeof(prefix), "<%d>", level_priorities[level]);
		put_raw(line, prefix);
	}
	put_raw(line, process_name);
	put_char(line, ' ');
	put_raw(line, level_names[level]);
	put_char(line, ' ');
	for (const char *p = message; *p; p++)
		put_char(line, (unsigned char) *p < 0x20 || (unsigned char) *p >= 0x7f ? ' ' : *p);
}

/* A pipe that polls writable has room for PIPE_BUF bytes, which is more than a line; a socket is asked not to
 * wait. What does not fit at once is dropped. */
static bool write_now(const char *text, size_t size)
{
	struct pollfd pfd = { .fd = STDERR_FILENO, .events = POLLOUT };
	ssize_t n = send(STDERR_FILENO, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && errno == ENOTSOCK)
		n = poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLOUT) ? write(STDERR_FILENO, text, size) : -1;
	return n == (ssize_t) size;
}

static void end(struct line *line)
{
	int saved = errno;

	line->text[line->used++] = '\n';
	if (!write_now(line->text, line->used))
		__atomic_add_fetch(&dropped, 1, __ATOMIC_RELAXED);
	errno = saved;
}

/* A field of `err` (may be NULL) that is given again is not repeated: the failure's own word counts. */
static void put_pairs(struct line *line, const struct err *err, va_list args)
{
	const char *key, *value;

	while ((key = va_arg(args, const char *))) {
		value = va_arg(args, const char *);
		if (!err || !err_field(err, key))
			put_field(line, key, value);
	}
}

void log_event(enum log_level level, const char *message, ...)
{
	struct line line;
	va_list args;

	if (level > max_level)
		return;
	begin(&line, level, message);
	va_start(args, message);
	put_pairs(&line, NULL, args);
	va_end(args);
	end(&line);
}

void log_failure(enum log_level level, const char *message, const struct err *err, ...)
{
	struct line line;
	va_list args;

	if (level > max_level)
		return;
	begin(&line, level, message);
	put_field(&line, "stage", stage_name(err->stage));
	put_field(&line, "code", failure_info(err->code)->name);
	put_field(&line, "component", component_name(err->component));
	if (err->err_no)
		put_field(&line, "errno", strerrorname_np(err->err_no));
	put_field(&line, "cause", err->msg);
	for (unsigned int i = 0; i < err->n_fields; i++)
		put_field(&line, err->fields[i].key, err->fields[i].value);
	va_start(args, err);
	put_pairs(&line, err, args);
	va_end(args);
	if (level == LOG_LEVEL_ERROR)
		put_field(&line, "remedy", failure_info(err->code)->remedy);
	end(&line);
}

uint64_t log_dropped(void)
{
	return __atomic_load_n(&dropped, __ATOMIC_RELAXED);
}

struct log_num log_num_make(long long value)
{
	struct log_num num;

	(void) snprintf(num.text, sizeof(num.text), "%lld", value);
	return num;
}
