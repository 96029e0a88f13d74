/* SPDX-License-Identifier: Apache-2.0
 *
 * base/fd and base/config: files that are replaced whole, trees that are removed without following links,
 * descriptors that travel, options from file, environment and flags.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"

static char dir[64];

static const char *in_dir(const char *name)
{
	static char path[4][256];
	static unsigned int next;
	char *to = path[next++ % ARRAY_LEN(path)];

	(void) snprintf(to, sizeof(path[0]), "%s/%s", dir, name);
	return to;
}

static void setup(void)
{
	(void) snprintf(dir, sizeof(dir), "/tmp/croft-test-fd-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
	ck_assert_int_lt(access(dir, F_OK), 0);
}

static void write_file(const char *path, const char *text)
{
	ck_assert_int_eq(file_replace(path, text, strlen(text), 0644), 0);
}

/* ---- files ---- */

START_TEST(test_file_replace)
{
	const char *path = in_dir("file");
	CLEANUP_FREE char *data = NULL;
	struct stat st;
	size_t size;

	(void) umask(077);
	ck_assert_int_eq(file_replace(path, "one", 3, 0640), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0640); /* as asked, whatever the umask */
	ck_assert_int_eq(file_replace(path, "a\0b", 3, 0600), 0);
	ck_assert_int_eq(file_read(path, 3, &data, &size), 0);
	ck_assert_uint_eq(size, 3);
	ck_assert_int_eq(memcmp(data, "a\0b", 4), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(file_replace(in_dir("none/file"), "x", 1, 0600), -ENOENT);
	/* a name that cannot be replaced: the old state and no temporary are left */
	ck_assert_int_eq(mkdir(in_dir("folder"), 0700), 0);
	write_file(in_dir("folder/inside"), "x");
	ck_assert_int_lt(file_replace(in_dir("folder"), "x", 1, 0600), 0);
	ck_assert_int_eq(access(in_dir("folder/inside"), F_OK), 0);
	{
		char tmp[300];

		(void) snprintf(tmp, sizeof(tmp), "%s.new-%d", in_dir("folder"), (int) getpid());
		ck_assert_int_lt(access(tmp, F_OK), 0);
	}
}
END_TEST

/* A link in the place of the file is replaced, what it points at is not touched. */
START_TEST(test_file_replace_link)
{
	CLEANUP_FREE char *data = NULL;
	struct stat st;

	write_file(in_dir("target"), "precious");
	ck_assert_int_eq(symlink(in_dir("target"), in_dir("link")), 0);
	write_file(in_dir("link"), "new");
	ck_assert_int_eq(lstat(in_dir("link"), &st), 0);
	ck_assert(S_ISREG(st.st_mode));
	ck_assert_int_eq(file_read(in_dir("target"), 100, &data, NULL), 0);
	ck_assert_str_eq(data, "precious");
}
END_TEST

START_TEST(test_file_read)
{
	CLEANUP_FREE char *data = NULL, *more = NULL, *big = calloc(1, 100001);
	size_t size;

	ck_assert_ptr_nonnull(big);
	memset(big, 'b', 100000);
	write_file(in_dir("big"), big);
	ck_assert_int_eq(file_read(in_dir("big"), 99999, &data, &size), -EFBIG);
	ck_assert_ptr_null(data);
	ck_assert_int_eq(file_read(in_dir("big"), 100000, &data, &size), 0);
	ck_assert_uint_eq(size, 100000);
	ck_assert_str_eq(data, big);
	ck_assert_int_eq(file_read(in_dir("none"), 10, &more, &size), -ENOENT);
	ck_assert_int_eq(file_read("/proc/self/status", 1024 * 1024, &more, &size), 0); /* st_size is 0 there */
	ck_assert_uint_gt(size, 100);
}
END_TEST

START_TEST(test_dir)
{
	ck_assert_int_eq(dir_make(in_dir("a/b/c"), 0700), 0);
	ck_assert_int_eq(dir_make(in_dir("a/b/c"), 0700), 0);
	write_file(in_dir("a/file"), "x");
	ck_assert_int_eq(dir_make(in_dir("a/file/x"), 0700), -ENOTDIR);
	ck_assert_int_eq(dir_make("", 0700), -ENAMETOOLONG);
	ck_assert_int_eq(dir_remove(in_dir("none")), 0);
	ck_assert_int_eq(dir_fsync(in_dir("a")), 0);
	ck_assert_int_eq(dir_fsync(in_dir("none")), -ENOENT);
}
END_TEST

START_TEST(test_dir_remove_links)
{
	ck_assert_int_eq(dir_make(in_dir("outside/sub"), 0700), 0);
	write_file(in_dir("outside/sub/precious"), "x");
	ck_assert_int_eq(dir_make(in_dir("tree/deep/er"), 0700), 0);
	write_file(in_dir("tree/deep/file"), "x");
	ck_assert_int_eq(symlink(in_dir("outside"), in_dir("tree/deep/link")), 0);
	ck_assert_int_eq(symlink("..", in_dir("tree/deep/up")), 0);
	ck_assert_int_eq(symlink("no-such-place", in_dir("tree/dangling")), 0);
	ck_assert_int_eq(symlink(in_dir("outside"), in_dir("link")), 0);
	ck_assert_int_eq(mkfifo(in_dir("tree/fifo"), 0600), 0); /* opening it would wait for ever */
	ck_assert_int_eq(dir_remove(in_dir("tree")), 0);
	ck_assert_int_lt(access(in_dir("tree"), F_OK), 0);
	ck_assert_int_lt(dir_remove(in_dir("link")), 0); /* a link is not a directory */
	ck_assert_int_eq(access(in_dir("outside/sub/precious"), F_OK), 0);
}
END_TEST

START_TEST(test_dir_remove_deep)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), next;

	for (int i = 0; i < 150; i++) {
		ck_assert_int_eq(mkdirat(fd, "a-directory-with-a-name-that-makes-paths-long", 0700), 0);
		next = openat(fd, "a-directory-with-a-name-that-makes-paths-long", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		(void) fd_close(fd);
		fd = next;
	}
	(void) fd_close(fd);
	/* over PATH_MAX; teardown removes it */
}
END_TEST

/* ---- descriptors ---- */

START_TEST(test_fd)
{
	int fds[2], taken, one;
	char text[4];

	ck_assert_int_eq(fd_close(-1), -1);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	one = fds[0];
	taken = TAKE_FD(one);
	ck_assert_int_eq(one, -1);
	ck_assert_int_eq(taken, fds[0]);
	ck_assert_int_eq(fd_write_all(fds[1], "abc", 3), 0);
	ck_assert_int_eq(fd_read_all(fds[0], text, 2), 0);
	fds[1] = fd_close(fds[1]);
	ck_assert_int_eq(fd_read_all(fds[0], text, 2), -EPIPE); /* one byte is left, then the end */
	errno = 77;
	fds[0] = fd_close(fds[0]);
	ck_assert_int_eq(errno, 77);
	ck_assert_int_lt(fd_set_nonblock(-1), 0);
}
END_TEST

START_TEST(test_fd_at_offset)
{
	char text[7] = { 0 };
	int fd = open(in_dir("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(fd_pwrite_all(fd, "abcdef", 6, 3), 0);
	ck_assert_int_eq(fd_pread_all(fd, text, 6, 3), 0);
	ck_assert_str_eq(text, "abcdef");
	ck_assert_int_eq(fd_pread_all(fd, text, 6, 4), -EPIPE);
	(void) fd_close(fd);
}
END_TEST

static unsigned int open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* _i 0: stream, 1: seqpacket */
START_TEST(test_unix_fds)
{
	int type = _i ? SOCK_SEQPACKET : SOCK_STREAM, fds[3], got[3], pair[2];
	unsigned int before;
	char text[16];
	size_t n;

	ck_assert_int_eq(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	for (int i = 0; i < 3; i++)
		fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(unix_recv_fds(pair[1], text, sizeof(text), got, 3, &n), -EAGAIN);
	ck_assert_int_eq(unix_send_fds(pair[0], "hey", 3, fds, 3), 3);
	ck_assert_int_eq(unix_recv_fds(pair[1], text, sizeof(text), got, 3, &n), 3);
	ck_assert_uint_eq(n, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(fcntl(got[i], F_GETFD), FD_CLOEXEC);
		(void) fd_close(got[i]);
	}
	/* more than there is room for: none is left open */
	before = open_fds();
	ck_assert_int_eq(unix_send_fds(pair[0], "x", 1, fds, 3), 1);
	ck_assert_int_eq(unix_recv_fds(pair[1], text, sizeof(text), got, 2, &n), -EMSGSIZE);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(open_fds(), before);
	ck_assert_int_eq(unix_send_fds(pair[0], "x", 1, fds, 1000), -EINVAL);
	ck_assert_int_eq(unix_send_fds(pair[0], "abcdef", 6, NULL, 0), 6);
	if (_i)
		ck_assert_int_eq(unix_recv_fds(pair[1], text, 3, got, 3, &n), -EMSGSIZE); /* a packet is whole or nothing */
	else
		ck_assert_int_eq(unix_recv_fds(pair[1], text, 3, got, 3, &n), 3);
	(void) fd_close(pair[0]);
	for (int i = 0; i < 3; i++)
		(void) fd_close(fds[i]);
	ck_assert_int_ge(unix_recv_fds(pair[1], text, sizeof(text), got, 3, &n), 0);
	ck_assert_int_eq(unix_recv_fds(pair[1], text, sizeof(text), got, 3, &n), 0);
	(void) fd_close(pair[1]);
}
END_TEST

START_TEST(test_unix_listen)
{
	char path[200];
	const char *name = in_dir("socket");
	struct stat st;
	int fd, other, served;

	(void) umask(0);
	fd = unix_listen(name, SOCK_STREAM, 0600, 1);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(stat(name, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_ne(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	other = unix_connect(name, SOCK_STREAM);
	ck_assert_int_ge(other, 0);
	/* somebody lives there */
	ck_assert_int_eq(unix_listen(name, SOCK_STREAM, 0600, 1), -EADDRINUSE);
	ck_assert_int_eq(unix_listen(name, SOCK_SEQPACKET, 0600, 1), -EADDRINUSE);
	/* and does not see that it was asked for */
	served = accept(fd, NULL, NULL);
	ck_assert_int_ge(served, 0);
	(void) fd_close(served);
	ck_assert_int_eq(accept(fd, NULL, NULL), -1);
	(void) fd_close(other);
	(void) fd_close(fd);
	ck_assert_int_eq(unix_connect(name, SOCK_STREAM), -ECONNREFUSED);
	fd = unix_listen(name, SOCK_SEQPACKET, 0666, 1); /* a stale one is taken over */
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(stat(name, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0666);
	(void) fd_close(fd);
	/* never a file that is no socket */
	write_file(in_dir("precious"), "x");
	ck_assert_int_eq(unix_listen(in_dir("precious"), SOCK_STREAM, 0600, 1), -EEXIST);
	ck_assert_int_eq(access(in_dir("precious"), F_OK), 0);
	memset(path, 'p', sizeof(path));
	path[0] = '/';
	path[108] = '\0';
	ck_assert_int_eq(unix_listen(path, SOCK_STREAM, 0600, 1), -ENAMETOOLONG);
	ck_assert_int_eq(unix_connect(path, SOCK_STREAM), -ENAMETOOLONG);
	path[107] = '\0'; /* 107 bytes fit */
	ck_assert_int_eq(unix_connect(path, SOCK_STREAM), -ENOENT);
}
END_TEST

/* ---- config ---- */

struct options {
	char *state;
	char *kernel;
	bool relay;
	uint64_t most;
	int64_t wait;
	uint64_t size;
};

static const struct config_option options[] = {
	{ "", "state", CONFIG_STRING, offsetof(struct options, state), "/var", 0, 0, false, "Where state is." },
	{ "guest", "kernel", CONFIG_STRING, offsetof(struct options, kernel), "", 0, 0, true, "The kernel." },
	{ "node", "relay", CONFIG_BOOL, offsetof(struct options, relay), "no", 0, 0, false, "Relay." },
	{ "node", "max_sandboxes", CONFIG_U64, offsetof(struct options, most), "5", 1, 100, false, "How many." },
	{ "node", "wait", CONFIG_DURATION, offsetof(struct options, wait), "2s", 1000, 60000000, false, "How long." },
	{ "node", "disk", CONFIG_SIZE, offsetof(struct options, size), "1G", 0, 0, false, "How much." },
};

static void clear_environment(void)
{
	static const char *const names[] = { "CROFT_STATE", "CROFT_GUEST_KERNEL", "CROFT_NODE_RELAY",
		"CROFT_NODE_MAX_SANDBOXES", "CROFT_NODE_WAIT", "CROFT_NODE_DISK" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		(void) unsetenv(names[i]);
}

/* The options take argv as main() has it; nothing writes to the strings. */
static int load(const char *file, const char **args, struct options *ret, struct err *err, int *ret_argc)
{
	char **argv = (char **) (uintptr_t) args;
	int argc = 0, r;

	while (argv[argc])
		argc++;
	*err = (struct err) ERR_NULL;
	memset(ret, 0xa5, sizeof(*ret)); /* the target need not be clean */
	r = config_load(options, ARRAY_LEN(options), ret, file, &argc, argv, err);
	*ret_argc = argc;
	return r;
}

START_TEST(test_config_weight)
{
	const char *none[] = { "p", NULL };
	const char *flags[] = { "p", "--node-max-sandboxes", "9", "run", "--node-relay", "--node-wait=7s", "--", "--state", NULL };
	struct options got;
	struct err err;
	int argc;

	clear_environment();
	ck_assert_int_eq(load(NULL, none, &got, &err, &argc), 0);
	ck_assert_str_eq(got.state, "/var");
	ck_assert_str_eq(got.kernel, "");
	ck_assert(!got.relay);
	ck_assert_uint_eq(got.most, 5);
	ck_assert_int_eq(got.wait, 2000000);
	ck_assert_uint_eq(got.size, UINT64_C(1) << 30);
	config_free(options, ARRAY_LEN(options), &got);

	write_file(in_dir("conf"), "# a comment\nstate = /from file \n\n[node]\nmax_sandboxes = 7\n; another\nwait=3s\n"
		"disk = 20M\n[guest]\nkernel=/k=1\n");
	ck_assert_int_eq(setenv("CROFT_NODE_MAX_SANDBOXES", "8", 1), 0);
	ck_assert_int_eq(setenv("CROFT_NODE_WAIT", "4s", 1), 0);
	ck_assert_msg(load(in_dir("conf"), flags, &got, &err, &argc) == 0, "%s", err.msg);
	ck_assert_str_eq(got.state, "/from file");
	ck_assert_str_eq(got.kernel, "/k=1");
	ck_assert(got.relay);
	ck_assert_uint_eq(got.most, 9);
	ck_assert_int_eq(got.wait, 7000000);
	ck_assert_uint_eq(got.size, 20 * 1024 * 1024);
	ck_assert_int_eq(argc, 3);
	ck_assert_str_eq(flags[1], "run");
	ck_assert_str_eq(flags[2], "--state"); /* behind "--" it is an argument */
	ck_assert_ptr_null(flags[3]);
	config_free(options, ARRAY_LEN(options), &got);
	config_free(options, ARRAY_LEN(options), &got);
}
END_TEST

/* _i 0: "--config FILE", 1: "--config=FILE" */
START_TEST(test_config_flag)
{
	char joined[300];
	const char *argv[] = { "p", "--config", NULL, "x", NULL };
	const char *argv_joined[] = { "p", joined, "x", NULL };
	struct options got;
	struct err err;
	int argc;

	clear_environment();
	write_file(in_dir("conf"), "state = /here\n");
	argv[2] = in_dir("conf");
	(void) snprintf(joined, sizeof(joined), "--config=%s", in_dir("conf"));
	ck_assert_msg(load("/no/such/file", _i ? argv_joined : argv, &got, &err, &argc) == 0, "%s", err.msg);
	ck_assert_str_eq(got.state, "/here");
	ck_assert_int_eq(argc, 2);
	config_free(options, ARRAY_LEN(options), &got);
}
END_TEST

static const struct {
	const char *text;
	const char *place; /* ":LINE: " */
	const char *says;
} bad_files[] = {
	{ "state = /x\n\n# c\nnope = 1\n", ":4: ", "nope" },
	{ "\n\n[node]\nkernel = /k\n", ":4: ", "kernel" },
	{ "[nodes]\nrelay = yes\n", ":2: ", "nodes" },
	{ "[node]\nmax_sandboxes = 0\n", ":2: ", "outside" },
	{ "[node]\nmax_sandboxes = 101\n", ":2: ", "outside" },
	{ "[node]\nmax_sandboxes = -1\n", ":2: ", "-1" },
	{ "[node]\nmax_sandboxes = 5x\n", ":2: ", "5x" },
	{ "[node]\nmax_sandboxes = 99999999999999999999\n", ":2: ", "9999" },
	{ "[node]\nmax_sandboxes =\n", ":2: ", "no value" },
	{ "[node]\nrelay = perhaps\n", ":2: ", "perhaps" },
	{ "[node]\nwait = 61s\n", ":2: ", "outside" },
	{ "[node]\nwait = soon\n", ":2: ", "soon" },
	{ "[node]\ndisk = 99999999999T\n", ":2: ", "T" },
	{ "[node]\ndisk = 1GB\n", ":2: ", "1GB" },
	{ "a line without a sign\n", ":1: ", "without" },
	{ "[node\n", ":1: ", "section" },
	{ "[]\n", ":1: ", "section" },
	{ "state = /a\r\n[node]\r\nrelay = x\r\n", ":3: ", "x" },
};

START_TEST(test_config_bad_file)
{
	const char *none[] = { "p", NULL };
	struct options got;
	struct err err;
	int argc;
	char place[300];

	clear_environment();
	write_file(in_dir("conf"), bad_files[_i].text);
	ck_assert_int_lt(load(in_dir("conf"), none, &got, &err, &argc), 0);
	ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
	(void) snprintf(place, sizeof(place), "%s%s", in_dir("conf"), bad_files[_i].place);
	ck_assert_msg(strstr(err.msg, place) && strstr(err.msg, bad_files[_i].says), "%s", err.msg);
	ck_assert_ptr_null(got.state); /* freed again */
}
END_TEST

static const char *const bad_flags[][4] = {
	{ "p", "--nope", "1", NULL },
	{ "p", "--node-max-sandboxes", NULL, NULL },
	{ "p", "--node-max-sandboxes", "0", NULL },
	{ "p", "--node-max-sandboxesx", "5", NULL },
	{ "p", "--node-relay=maybe", NULL, NULL },
	{ "p", "--config", NULL, NULL },
	{ "p", "--config", "/no/such/file", NULL },
};

START_TEST(test_config_bad_flag)
{
	const char *argv[4];
	struct options got;
	struct err err;
	int argc;

	clear_environment();
	memcpy(argv, bad_flags[_i], sizeof(argv));
	ck_assert_int_lt(load(NULL, argv, &got, &err, &argc), 0);
	ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
	ck_assert_msg(strstr(err.msg, _i == 6 ? "/no/such/file" : "--"), "%s", err.msg);
}
END_TEST

START_TEST(test_config_bad_environment)
{
	const char *none[] = { "p", NULL };
	struct options got;
	struct err err;
	int argc;

	clear_environment();
	ck_assert_int_eq(setenv("CROFT_NODE_RELAY", "2", 1), 0);
	ck_assert_int_lt(load(NULL, none, &got, &err, &argc), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "CROFT_NODE_RELAY"));
}
END_TEST

/* What follows a NUL would silently not count. */
START_TEST(test_config_nul)
{
	const char *none[] = { "p", NULL };
	struct options got;
	struct err err;
	int argc;

	clear_environment();
	ck_assert_int_eq(file_replace(in_dir("conf"), "state = /a\0\n[node]\nrelay = yes\n", 30, 0600), 0);
	ck_assert_int_lt(load(in_dir("conf"), none, &got, &err, &argc), 0);
	ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
}
END_TEST

START_TEST(test_config_texts)
{
	const char *none[] = { "p", NULL };
	char text[4096] = "";
	struct options got;
	struct err err;
	int argc;
	FILE *out;

	clear_environment();
	out = fmemopen(text, sizeof(text), "w");
	config_print_help(options, ARRAY_LEN(options), out);
	(void) fclose(out);
	ck_assert_ptr_nonnull(strstr(text, "--node-max-sandboxes"));
	ck_assert_ptr_nonnull(strstr(text, "How many. [5]"));
	/* the sample is a file that loads as it is and changes nothing */
	out = fopen(in_dir("sample"), "w");
	ck_assert_ptr_nonnull(out);
	config_print_sample(options, ARRAY_LEN(options), out);
	(void) fclose(out);
	ck_assert_msg(load(in_dir("sample"), none, &got, &err, &argc) == 0, "%s", err.msg);
	ck_assert_uint_eq(got.most, 5);
	config_free(options, ARRAY_LEN(options), &got);
}
END_TEST

#define OWNER 12345
#define OWNERS_GROUP 23456

/* In a child, which is another user afterwards. Its exit status: 0, or the number of the check that failed. */
static int become_owner(const char *path)
{
	const gid_t more[] = { 7, 8 };
	uid_t uids[3];
	gid_t gids[3];
	struct stat st;

	if (setgroups(ARRAY_LEN(more), more) < 0 || dir_become_owner(path) != 0)
		return 1;
	if (getresuid(&uids[0], &uids[1], &uids[2]) < 0 || getresgid(&gids[0], &gids[1], &gids[2]) < 0)
		return 2;
	for (int i = 0; i < 3; i++)
		if (uids[i] != OWNER || gids[i] != OWNERS_GROUP)
			return 3;
	if (getgroups(0, NULL) != 0)
		return 4;
	if (setuid(0) == 0 || setgid(0) == 0)
		return 5;
	/* what it makes there is the owner's */
	if (chdir(path) < 0 || file_replace("made", "x", 1, 0600) != 0 || stat("made", &st) < 0 || st.st_uid != OWNER ||
		st.st_gid != OWNERS_GROUP)
		return 6;
	/* a second call, now that root is gone */
	return dir_become_owner("/") != 0 || geteuid() != OWNER ? 7 : 0;
}

START_TEST(test_dir_become_owner)
{
	const char *owned = in_dir("owned");
	int status;
	pid_t child;

	if (geteuid() != 0) { /* there is nobody else to become */
		ck_assert_int_eq(dir_become_owner(in_dir("absent")), 0);
		return;
	}
	ck_assert_int_eq(chmod(dir, 0711), 0);
	ck_assert_int_eq(mkdir(owned, 0700), 0);
	/* of what is nobody else's, or no directory, root stays root */
	ck_assert_int_eq(dir_become_owner(owned), 0);
	ck_assert_int_eq(chown(owned, OWNER, OWNERS_GROUP), 0);
	ck_assert_int_eq(symlink(owned, in_dir("link")), 0);
	ck_assert_int_eq(dir_become_owner(in_dir("link")), -ENOTDIR);
	ck_assert_int_eq(dir_become_owner(in_dir("absent")), -ENOENT);
	ck_assert_int_eq(geteuid(), 0);
	owned = in_dir("owned");
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(become_owner(owned));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("base-fd");
	TCase *tc = tcase_create("base-fd");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_file_replace);
	tcase_add_test(tc, test_file_replace_link);
	tcase_add_test(tc, test_file_read);
	tcase_add_test(tc, test_dir);
	tcase_add_test(tc, test_dir_remove_links);
	tcase_add_test(tc, test_dir_remove_deep);
	tcase_add_test(tc, test_dir_become_owner);
	tcase_add_test(tc, test_fd);
	tcase_add_test(tc, test_fd_at_offset);
	tcase_add_loop_test(tc, test_unix_fds, 0, 2);
	tcase_add_test(tc, test_unix_listen);
	tcase_add_test(tc, test_config_weight);
	tcase_add_loop_test(tc, test_config_flag, 0, 2);
	tcase_add_loop_test(tc, test_config_bad_file, 0, (int) ARRAY_LEN(bad_files));
	tcase_add_loop_test(tc, test_config_bad_flag, 0, (int) ARRAY_LEN(bad_flags));
	tcase_add_test(tc, test_config_bad_environment);
	tcase_add_test(tc, test_config_nul);
	tcase_add_test(tc, test_config_texts);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
