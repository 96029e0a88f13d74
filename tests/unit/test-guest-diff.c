/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sandbox made of its image (guest/diff.h), seen in the layers of a real overlay. In a mount namespace of its own, for
 * which it has to be root.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/diff.h"
#include "lib/guest-client.h"
#include "lib/suite.h"

#define IMAGE                                                                                                          \
	"mkdir -p etc/deep usr/bin gone/below replaced/below same; echo a >etc/hosts; echo b >etc/deep/file; echo c >usr/bin/tool; " \
	"echo d >gone/below/file; echo e >replaced/old; echo f >replaced/both; echo g >replaced/below/x; echo h >same/quiet; "     \
	"ln -s hosts etc/link; echo i >becomes; chmod 0640 etc/hosts"

static int upper = -1, lower = -1;

static void script(const char *at, const char *text)
{
	char command[4096];

	(void)snprintf(command, sizeof(command), "cd /mnt/%s && { %s; }", at, text);
	ck_assert_msg(system(command) == 0, "%s", text);
}

/* The image in /mnt/lower, what lies over it in /mnt/upper, both together in /mnt/root. */
static void set_up_layers(void)
{
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("none", "/mnt", "tmpfs", 0, NULL), 0);
	script(".", "mkdir lower upper work root");
	script("lower", IMAGE);
	ck_assert_int_eq(
		mount("overlay", "/mnt/root", "overlay", 0, "lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work"), 0);
	upper = open("/mnt/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lower = open("/mnt/lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(upper, 0);
	ck_assert_int_ge(lower, 0);
}

/* ---- the walk ---- */

struct told {
	char *lines[256];
	size_t n;
};

static int keep(const struct diff_entry *entry, void *user)
{
	static const char kinds[] = "ACD", types[] = "fdlo";
	struct told *told = user;

	ck_assert_uint_lt(told->n, 256);
	ck_assert_int_gt(asprintf(&told->lines[told->n++], "%c%c %s %llu %o", kinds[entry->kind], types[entry->type], entry->path,
				 (unsigned long long)entry->size, entry->mode),
		0);
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void told_reset(struct told *told)
{
	while (told->n > 0)
		free(told->lines[--told->n]);
}

static bool walk(struct told *told, const struct diff_limits *limits)
{
	struct diff_walker walker = { .upper = upper, .lower = lower, .limits = *limits, .tell = keep, .user = told };

	ck_assert_int_eq(diff_walk(&walker), 0);
	qsort(told->lines, told->n, sizeof(told->lines[0]), compare);
	return walker.is_cut;
}

static const struct diff_limits plenty = { .entries = 1000, .visits = 10000, .depth = 32 };

static void expect(const char *const *lines, size_t n)
{
	struct told told = { .n = 0 };

	ck_assert(!walk(&told, &plenty));
	for (size_t i = 0; i < MIN(n, told.n); i++)
		ck_assert_str_eq(told.lines[i], lines[i]);
	ck_assert_uint_eq(told.n, n);
	told_reset(&told);
}
#define EXPECT(...)                                                                                \
	do {                                                                                       \
		static const char *const lines_[] = { __VA_ARGS__ };                               \
		expect(lines_, ARRAY_LEN(lines_));                                                 \
	} while (0)

START_TEST(nothing_is_nothing)
{
	expect(NULL, 0);
	script("root", "ls -lR . >/dev/null; cat etc/hosts >/dev/null");
	expect(NULL, 0);
}
END_TEST

START_TEST(added_changed_and_deleted)
{
	script("root", "umask 022; echo new >etc/new; echo more >>etc/hosts; rm etc/deep/file; rm -r gone; mkdir opt; echo 12345 >opt/x; "
		       "ln -sfn elsewhere etc/link; mkfifo opt/pipe; chmod 0700 usr");
	EXPECT("Ad /opt 0 755", "Af /etc/new 4 644", "Af /opt/x 6 644", "Ao /opt/pipe 0 644", "Cd /usr 0 700", "Cf /etc/hosts 7 640",
		"Cl /etc/link 0 777", "Dd /gone 0 755", "Df /etc/deep/file 2 644");
}
END_TEST

/* The folder is there still, or something of its name: what the image had in it is gone all the same. */
START_TEST(what_was_replaced)
{
	script("root", "umask 022; rm -r replaced; mkdir replaced; echo ff >replaced/both; echo n >replaced/new; rm becomes; mkdir becomes; "
		       "echo x >becomes/x; rm -r same; echo y >same");
	EXPECT("Af /becomes/x 2 644", "Af /replaced/new 2 644", "Cd /becomes 0 755", "Cd /replaced 0 755", "Cf /replaced/both 3 644",
		"Cf /same 2 644", "Dd /replaced/below 0 755", "Df /replaced/old 2 644");
}
END_TEST

START_TEST(made_and_unmade_is_nothing)
{
	script("root", "echo x >etc/brief; mkdir -p brief/below; rm etc/brief; rm -r brief");
	expect(NULL, 0);
}
END_TEST

/* A guest may do to its disk what it likes: none of it leads out of the layers. */
START_TEST(links_are_not_followed)
{
	script("root", "ln -s / out; ln -s ../../.. etc/up");
	EXPECT("Al /etc/up 0 777", "Al /out 0 777");
}
END_TEST

START_TEST(each_limit_cuts_and_says_so)
{
	struct diff_limits limits = plenty;
	struct told told = { .n = 0 };

	script("root", "mkdir -p a/b/c/d; for i in 1 2 3 4 5 6 7 8 9; do echo $i >f$i; done");
	limits.entries = 5;
	ck_assert(walk(&told, &limits));
	ck_assert_uint_eq(told.n, 5);
	limits = plenty;
	limits.visits = 7;
	told_reset(&told);
	ck_assert(walk(&told, &limits));
	ck_assert_uint_le(told.n, 7);
	limits = plenty;
	limits.depth = 2; /* of a/b/c/d, a and b are looked into */
	told_reset(&told);
	ck_assert(walk(&told, &limits));
	ck_assert_uint_eq(told.n, 9 + 3);
	limits = plenty;
	limits.deadline_usec = 1;
	told_reset(&told);
	ck_assert(walk(&told, &limits));
	ck_assert_uint_eq(told.n, 0);
}
END_TEST

/* A path that no program could name by itself. */
START_TEST(too_long_a_path_is_cut)
{
	struct told told = { .n = 0 };
	struct diff_limits limits = plenty;
	CLEANUP_FD int at = dup(upper);
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	for (int i = 0; i < 20; i++) {
		int next;

		ck_assert_int_eq(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		(void)fd_close(at);
		at = next;
	}
	ck_assert(walk(&told, &limits));
	ck_assert_uint_eq(told.n, 15); /* of 256 bytes each: the sixteenth does not fit */
	told_reset(&told);
}
END_TEST

/* ---- the answer ---- */

static pid_t diff(int fd)
{
	return diff_fork(fd, upper, lower);
}

static struct client ask(void)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestDiff body = MESSAGE(Croft__GuestDiff, croft__guest_diff__init);
	struct client client = client_new();

	request.body_case = CROFT__GUEST_REQUEST__BODY_DIFF;
	request.diff = &body;
	client_send(&client, &request);
	return client;
}

/* Reads to the end; how many changes there were. */
static size_t read_changes(struct client *client, bool *ret_cut)
{
	size_t n = 0;

	for (bool is_last = false; !is_last;) {
		Croft__GuestEvent *event = client_next(client);

		ck_assert_int_eq((int)event->body_case, CROFT__GUEST_EVENT__BODY_CHANGES);
		ck_assert_uint_le(event->changes->n_changes, 128);
		n += event->changes->n_changes;
		is_last = event->changes->last;
		*ret_cut = event->changes->cut;
		event_free(event);
	}
	return n;
}

static unsigned int children(void)
{
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_LEN(fx.server.diffs); i++)
		n += fx.server.diffs[i] != 0;
	return n;
}

static void until_reaped(unsigned int n)
{
	int64_t end = clock_monotonic_usec() + 20 * USEC_PER_SEC;

	while (children() > n) {
		ck_assert(clock_monotonic_usec() < end);
		turn();
	}
}

static void set_up(void)
{
	setup();
	set_up_layers();
	fx.server.host.diff = diff;
}

START_TEST(all_of_it_in_pieces)
{
	struct client client;
	bool is_cut = true;

	script("root", "mkdir many; i=0; while [ $i -lt 5000 ]; do : >many/a-rather-long-name-so-that-frames-fill-$i; i=$((i+1)); done");
	client = ask();
	ck_assert_uint_eq(read_changes(&client, &is_cut), 5001);
	ck_assert(!is_cut);
	expect_closed(&client);
	client_close(&client);
	until_reaped(0);
}
END_TEST

/* Who does not read stands in nobody's way: four such, a fifth is refused, others are served, and a connection that ends is seen
 * to end although children were forked while it was open. */
START_TEST(slow_readers)
{
	struct client clients[DIFFS_MAX], other, listed = client_new();
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestList list = MESSAGE(Croft__GuestList, croft__guest_list__init);
	Croft__GuestEvent *event;
	bool is_cut;

	script("root", "mkdir many; i=0; while [ $i -lt 20000 ]; do : >many/a-rather-long-name-so-that-frames-fill-$i; i=$((i+1)); done");
	for (size_t i = 0; i < DIFFS_MAX; i++) {
		clients[i] = ask();
		while (children() <= i)
			turn();
	}
	other = ask();
	expect_failure(&other, "TOO_MANY_STREAMS");
	client_close(&other);
	request.body_case = CROFT__GUEST_REQUEST__BODY_LIST;
	request.list = &list;
	client_send(&listed, &request);
	event = client_next(&listed);
	ck_assert_int_eq((int)event->body_case, CROFT__GUEST_EVENT__BODY_PROCESSES);
	event_free(event);
	expect_closed(&listed);
	client_close(&listed);
	client_close(&clients[0]); /* its child finds nobody */
	until_reaped(DIFFS_MAX - 1);
	ck_assert_uint_eq(read_changes(&clients[1], &is_cut), 20001);
	for (size_t i = 1; i < DIFFS_MAX; i++)
		client_close(&clients[i]);
	until_reaped(0);
}
END_TEST

START_TEST(where_there_are_no_layers)
{
	struct client client;

	fx.server.host.diff = NULL;
	client = ask();
	expect_failure(&client, "UNSUPPORTED");
	client_close(&client);
}
END_TEST

/* A disk that cannot be read is no empty answer. */
START_TEST(a_layer_that_cannot_be_read)
{
	struct client client;
	Croft__GuestEvent *event;

	(void)fd_close(upper);
	upper = open("/mnt/lower/etc/hosts", O_RDONLY | O_CLOEXEC);
	client = ask();
	event = client_next(&client);
	ck_assert_int_eq((int)event->body_case, CROFT__GUEST_EVENT__BODY_CHANGES);
	event_free(event);
	expect_failure(&client, "GUEST_DISK_UNREADABLE");
	client_close(&client);
	until_reaped(0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-diff");
	TCase *walks = tcase_create("walk"), *answers = tcase_create("answer");

	tcase_set_timeout(walks, 60);
	tcase_add_checked_fixture(walks, set_up_layers, NULL);
	tcase_add_test(walks, nothing_is_nothing);
	tcase_add_test(walks, added_changed_and_deleted);
	tcase_add_test(walks, what_was_replaced);
	tcase_add_test(walks, made_and_unmade_is_nothing);
	tcase_add_test(walks, links_are_not_followed);
	tcase_add_test(walks, each_limit_cuts_and_says_so);
	tcase_add_test(walks, too_long_a_path_is_cut);
	suite_add_tcase(suite, walks);
	tcase_set_timeout(answers, 60);
	tcase_add_checked_fixture(answers, set_up, teardown);
	tcase_add_test(answers, all_of_it_in_pieces);
	tcase_add_test(answers, slow_readers);
	tcase_add_test(answers, where_there_are_no_layers);
	tcase_add_test(answers, a_layer_that_cannot_be_read);
	suite_add_tcase(suite, answers);
	return suite_run(suite);
}
