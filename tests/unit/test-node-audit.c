/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's own audit log on a real file system: what is in it after a start that was cut off, a disk without room, and what the
 * bounds of size and age drop; and that whatever somebody changed in it is told.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/log.h"
#include "base/clock.h"
#include "lib/suite.h"

#define ONE "aaaaaaaaaaaaaaaaaaaa"
#define OTHER "bbbbbbbbbbbbbbbbbbbb"
#define T0 (INT64_C(1780000000) * USEC_PER_SEC)
#define DAY (INT64_C(86400) * USEC_PER_SEC)
#define BIG (UINT64_C(64) << 20)

static char top[] = "/tmp/test-node-audit-XXXXXX", directory[PATH_MAX];

static void make_directory(void)
{
	memcpy(top + sizeof(top) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(top));
	(void)snprintf(directory, sizeof(directory), "%s/audit", top);
}

static void remove_directory(void)
{
	char command[PATH_MAX + 16];

	(void)snprintf(command, sizeof(command), "rm -r '%s'", top);
	ck_assert_int_eq(system(command), 0);
}

static struct audit_log *open_log(uint64_t size, int64_t now)
{
	const struct audit_config config = { directory, size, 30 * DAY };
	struct audit_log *log = NULL;

	ck_assert_int_eq(audit_log_open(&log, &config, now, NULL), 0);
	return log;
}

static json_t *entry_of(const char *sandbox, int number)
{
	return json_pack("{s:s, s:s, s:i, s:s}", "kind", "command", "sandbox", sandbox, "number", number, "text", "\"sandbox\":\"" OTHER "\"");
}

static int add(struct audit_log *log, const char *sandbox, int number, int64_t now)
{
	struct err err = ERR_NULL;
	int r = audit_log_append(log, entry_of(sandbox, number), now, &err);

	if (r < 0)
		ck_assert_int_eq(err.code, FAIL_NODE_AUDIT_UNWRITTEN);
	return r;
}

static void write_log(int n)
{
	struct audit_log *log = open_log(BIG, T0);

	for (int i = 0; i < n; i++)
		ck_assert_int_eq(add(log, i % 3 ? ONE : OTHER, i, T0 + i), 0);
	audit_log_close(log);
}

static enum fail_code verify(struct audit_verdict *ret)
{
	struct audit_verdict ignored;
	struct err err = ERR_NULL;

	(void)audit_log_verify(directory, ret ? ret : &ignored, &err);
	return err.code;
}

static unsigned int count(const char *sandbox, const char *needle)
{
	struct audit_reader *reader;
	const char *line;
	size_t size;
	unsigned int n = 0;

	ck_assert_int_eq(audit_reader_new(&reader, directory, sandbox, NULL), 0);
	for (;;) {
		int r = audit_reader_next(reader, 1000, &line, &size, NULL);

		ck_assert(r == 0 || r == -EAGAIN);
		if (r == 0 && !line)
			break;
		n += r == 0 && strstr(line, needle);
	}
	audit_reader_free(reader);
	return n;
}

/* The only file. */
static void file_path(char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.4000s/%016x.log", directory, 1);
}

static uint64_t size_of_files(unsigned int *ret_n)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	uint64_t size = 0;

	ck_assert_ptr_nonnull(dir);
	for (*ret_n = 0; (entry = readdir(dir));) {
		struct stat st;

		if (*entry->d_name == '.')
			continue;
		ck_assert_int_eq(fstatat(dirfd(dir), entry->d_name, &st, 0), 0);
		size += (uint64_t)st.st_size;
		++*ret_n;
	}
	(void)closedir(dir);
	return size;
}

START_TEST(written_and_read)
{
	struct audit_verdict verdict;

	ck_assert_int_eq(verify(NULL), FAIL_NONE); /* no log is a whole one */
	write_log(30);
	write_log(30); /* goes on */
	ck_assert_int_eq(verify(&verdict), FAIL_NONE);
	ck_assert_uint_eq(verdict.head.seq, 60);
	ck_assert_uint_eq(verdict.n_lost, 0);
	ck_assert_uint_eq(count("", "\"number\""), 60);
	/* what a command's text claims is of no sandbox */
	ck_assert_uint_eq(count(ONE, "\"number\""), 40);
	ck_assert_uint_eq(count(OTHER, "\"number\""), 20);
}
END_TEST

/* Every length that a power cut may leave of the last entry. */
START_TEST(torn)
{
	struct audit_verdict verdict;
	struct audit_log *log;
	char path[PATH_MAX];
	struct stat st;

	for (int cut = 1; cut < 240; cut += 17) {
		make_directory();
		write_log(3);
		file_path(path);
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_int_eq(truncate(path, st.st_size - cut), 0);
		log = open_log(BIG, T0);
		ck_assert_int_eq(add(log, ONE, 9, T0), 0);
		audit_log_close(log);
		ck_assert_int_eq(verify(&verdict), FAIL_NONE);
		ck_assert_uint_eq(verdict.head.seq, 4); /* two, what was torn, and the new one */
		ck_assert_uint_eq(count("", "\"kind\":\"torn\""), 1);
		ck_assert_uint_eq(count("", "\"number\":9"), 1);
		remove_directory();
	}
	make_directory();
}
END_TEST

/* No room for a whole entry, at each place of it: nothing of it stays, what was lost is counted, and it goes on afterwards. */
START_TEST(disk_full)
{
	struct rlimit before, limit;
	struct audit_verdict verdict;
	struct audit_log *log;
	char path[PATH_MAX];
	struct stat st;
	json_t *entries[5];
	int n_refused, r;

	(void)signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	for (rlim_t room = 0; room < 200; room += 33) {
		make_directory();
		log = open_log(BIG, T0);
		ck_assert_int_eq(add(log, ONE, 0, T0), 0);
		file_path(path);
		ck_assert_int_eq(stat(path, &st), 0);
		limit = (struct rlimit){ (rlim_t)st.st_size + room, before.rlim_max };
		for (int i = 0; i < 5; i++)
			entries[i] = entry_of(ONE, i + 1);
		n_refused = 0; /* check writes a file as well: nothing is asserted while the limit holds */
		r = setrlimit(RLIMIT_FSIZE, &limit);
		for (int i = 0; i < 5; i++) {
			struct err err = ERR_NULL;

			n_refused += audit_log_append(log, entries[i], T0, &err) < 0 && err.code == FAIL_NODE_AUDIT_UNWRITTEN;
		}
		ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
		ck_assert_int_eq(r, 0);
		ck_assert_int_eq(n_refused, 5);
		ck_assert_uint_eq(audit_log_lost(log), 5);
		ck_assert_int_eq(verify(&verdict), FAIL_NONE);
		ck_assert_uint_eq(verdict.head.seq, 1);
		ck_assert_int_eq(add(log, ONE, 6, T0), 0);
		audit_log_close(log);
		ck_assert_int_eq(verify(&verdict), FAIL_NONE);
		ck_assert_uint_eq(verdict.n_lost, 5);
		ck_assert_uint_eq(count("", "\"number\""), 2);
		remove_directory();
	}
	make_directory();
}
END_TEST

START_TEST(changed_byte)
{
	char path[PATH_MAX], byte, other;
	unsigned int n = 0;
	struct stat st;
	int fd;

	write_log(5);
	file_path(path);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	for (off_t at = 0; at < st.st_size; at++) {
		ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
		other = byte == '7' ? '8' : '7';
		if (byte == '\n')
			continue; /* two lines become one: below */
		ck_assert_int_eq(pwrite(fd, &other, 1, at), 1);
		ck_assert_msg(verify(NULL) == FAIL_NODE_AUDIT_BROKEN, "byte %lld", (long long)at);
		ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
		n++;
	}
	ck_assert_uint_gt(n, 500);
	ck_assert_int_eq(verify(NULL), FAIL_NONE);
	(void)close(fd);
}
END_TEST

/* An entry taken out, two that changed places, and the same with a start of the gateway behind it. */
START_TEST(taken_out)
{
	static const char *const commands[] = { "2d", "1d", "1{h;d};2{G}", "2p", "s/\"seq\":4/\"seq\":5/" };

	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		char path[PATH_MAX], command[PATH_MAX + 64];
		struct audit_log *log;

		make_directory();
		write_log(5);
		file_path(path);
		(void)snprintf(command, sizeof(command), "sed -i '%s' '%s'", commands[i], path);
		ck_assert_int_eq(system(command), 0);
		ck_assert_msg(verify(NULL) == FAIL_NODE_AUDIT_BROKEN, "%s", commands[i]);
		log = open_log(BIG, T0);
		ck_assert_int_eq(add(log, ONE, 9, T0), 0);
		audit_log_close(log);
		ck_assert_msg(verify(NULL) == FAIL_NODE_AUDIT_BROKEN, "%s, and a start", commands[i]);
		remove_directory();
	}
	make_directory();
}
END_TEST

START_TEST(bounded_by_size)
{
	const uint64_t most = 64u * 1024u;
	struct audit_log *log = open_log(most, T0);
	struct audit_verdict verdict;
	unsigned int n;

	for (int i = 0; i < 2000; i++) {
		ck_assert_int_eq(add(log, ONE, i, T0), 0);
		ck_assert_uint_le(size_of_files(&n), most + most / AUDIT_FILES + 1024);
	}
	audit_log_close(log);
	ck_assert_uint_gt(size_of_files(&n), most / 2);
	ck_assert_int_eq(verify(&verdict), FAIL_NONE);
	ck_assert_uint_gt(verdict.base.seq, 0);
	ck_assert_uint_ge(verdict.head.seq, 2000);
	ck_assert_uint_eq(count("", "\"number\":1999"), 1);
	ck_assert_uint_eq(count("", "\"number\":0,"), 0);
}
END_TEST

/* The oldest file is taken away by somebody: that it went by no rule is told. */
START_TEST(first_file_gone)
{
	struct audit_log *log = open_log(BIG, T0);
	char path[PATH_MAX];

	audit_log_close(log);
	log = open_log(64u * 1024u, T0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(add(log, ONE, i, T0), 0);
	audit_log_close(log);
	ck_assert_int_eq(verify(NULL), FAIL_NONE);
	file_path(path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(verify(NULL), FAIL_NODE_AUDIT_BROKEN);
}
END_TEST

START_TEST(bounded_by_age)
{
	struct audit_log *log = open_log(64u * 1024u, clock_realtime_usec());
	int64_t now = clock_realtime_usec();
	struct audit_verdict verdict;
	unsigned int n;

	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(add(log, ONE, i, now), 0);
	(void)size_of_files(&n);
	ck_assert_uint_gt(n, 3);
	ck_assert_int_eq(add(log, ONE, 100, now + 29 * DAY), 0);
	(void)size_of_files(&n);
	ck_assert_uint_gt(n, 3);
	ck_assert_int_eq(add(log, ONE, 101, now + 31 * DAY), 0);
	audit_log_close(log);
	(void)size_of_files(&n);
	ck_assert_uint_le(n, 2);
	ck_assert_int_eq(verify(&verdict), FAIL_NONE);
	ck_assert_uint_gt(verdict.base.seq, 0);
}
END_TEST

static TCase *make_case(void)
{
	TCase *tc = tcase_create("log");

	tcase_add_checked_fixture(tc, make_directory, remove_directory);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, written_and_read);
	tcase_add_test(tc, torn);
	tcase_add_test(tc, disk_full);
	tcase_add_test(tc, changed_byte);
	tcase_add_test(tc, taken_out);
	tcase_add_test(tc, bounded_by_size);
	tcase_add_test(tc, first_file_gone);
	tcase_add_test(tc, bounded_by_age);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("node-audit");

	suite_add_tcase(suite, make_case());
	return suite_run(suite);
}
