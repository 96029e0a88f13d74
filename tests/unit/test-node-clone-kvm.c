/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node with real microVMs and a scheduler made of its messages: a snapshot of a sandbox at work, two sandboxes that
 * begin as it, and what is theirs alone.
 */
#include <check.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "pb/guest.pb-c.h"
#include "unit/test-node-rig.h"

#define PARENT "parentparentparentpa"
#define CLONE_A "cloneacloneacloneacl"
#define CLONE_B "clonebclonebclonebcl"
#define SNAP "snapsnapsnapsnapsnap"
#define TAKE_OP "taketaketaketaketake"
#define USER 4242 /* the VMM does not run as root */
#define ANSWER_S 120
#define OUTPUT_MAX 4096
#define COUNT                                                                                                                  \
	"setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i >/dev/shm/new; mv /dev/shm/new /dev/shm/count; sleep 0.1; done'"     \
	" </dev/null >/dev/null 2>&1 &"

static struct rig rig;
static char kernel[PATH_MAX], initramfs[PATH_MAX], vmm[PATH_MAX];
static const char *const options[] = { "--vmm-path", vmm, "--vmm-kvm", "/dev/kvm", "--guest-kernel", kernel,
	"--guest-initramfs", initramfs, "--vmm-timeout-ms", "120000", "--guest-kernel-timeout-ms", "240000",
	"--guest-guest-timeout-ms", "240000",
	"--guest-canary-period", "0s" }; /* no VM beside the test's own */

/* ---- the node ---- */

static void leave_root(void)
{
	struct stat st;

	ck_assert_int_eq(stat("/dev/kvm", &st), 0);
	if (getuid() != 0)
		return;
	ck_assert_int_eq(setgroups(1, &st.st_gid), 0);
	ck_assert_int_eq(setgid(USER), 0);
	ck_assert_int_eq(setuid(USER), 0);
}

static const char *of_cache(const char *name, char ret[static PATH_MAX])
{
	const char *cache = getenv("CROFT_CACHE_DIR");

	(void)snprintf(ret, PATH_MAX, "%s/%s", cache ? cache : "/var/cache/croft", name);
	return ret;
}

/* As if it had been fetched: the agent verifies it by its name. */
static void put_image(void)
{
	char path[PATH_MAX];
	CLEANUP_FREE char *data = NULL;
	uint8_t digest[EVP_MAX_MD_SIZE];
	size_t size = 0, at;
	int fd;

	ck_assert_int_eq(file_read(of_cache("images/tiny.sqfs", path), 64 << 20, &data, &size), 0);
	ck_assert_int_eq(EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL), 1);
	at = (size_t)snprintf(rig.digest, sizeof(rig.digest), "sha256:");
	for (size_t i = 0; i < 32; i++)
		at += (size_t)snprintf(rig.digest + at, sizeof(rig.digest) - at, "%02x", digest[i]);
	rig.image_size = size;
	(void)snprintf(path, sizeof(path), "%s/images", rig.cache);
	ck_assert_int_eq(dir_make(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/images/%s", rig.cache, rig.digest);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_eq(fd_write_all(fd, data, size), 0);
	ck_assert_int_eq(close(fd), 0);
}

static void start_node(void)
{
	char self[PATH_MAX] = "", *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	ck_assert_int_gt(n, 0);
	slash = strrchr(self, '/');
	*slash = '\0';
	ck_assert_int_eq(setenv("CROFT_BIN", self, 0), 0);
	(void)snprintf(vmm, sizeof(vmm), "%.4000s/croft-vmm", getenv("CROFT_BIN"));
	(void)of_cache("guest-kernel/vmlinux", kernel);
	(void)of_cache("guest-kernel/initramfs.img", initramfs);
	leave_root();
	rig_init(&rig);
	rig.deadline_s = 300;
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		rig.extra[i] = (char *)(uintptr_t)options[i];
	put_image();
	rig_join(&rig);
	rig_start(&rig);
}

static void create(const char *sandbox, const char *snapshot)
{
	struct sandbox_spec *spec = rig_spec(&rig);

	spec->disk_mib = 64;
	(void)snprintf(spec->snapshot, sizeof(spec->snapshot), "%s", snapshot);
	ck_assert_int_eq(spec_add_env(spec, "WHO", sandbox), 0);
	rig_create(&rig, sandbox, spec);
	spec_unref(spec);
}

static void check_runs(const char *sandbox)
{
	rig_wait_state(&rig, sandbox, REPORT_RUNNING);
}

/* ---- commands in a guest, over the VMM's socket ---- */

static bool read_event(int fd, Croft__GuestEvent **ret)
{
	uint8_t head[4];
	size_t size;
	CLEANUP_FREE uint8_t *data = NULL;

	if (fd_read_all(fd, head, sizeof(head)) < 0)
		return false;
	size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
	data = malloc(size + 1);
	if (fd_read_all(fd, data, size) < 0)
		return false;
	*ret = croft__guest_event__unpack(NULL, size, data);
	return *ret != NULL;
}

static void send_script(int fd, const char *script)
{
	Croft__GuestRequest request;
	Croft__GuestStart start;
	char shell[] = "/bin/sh", dash_c[] = "-c", copy[OUTPUT_MAX], *args[] = { dash_c, copy };
	uint8_t frame[2 * OUTPUT_MAX];
	size_t size;

	croft__guest_request__init(&request);
	croft__guest_start__init(&start);
	(void)snprintf(copy, sizeof(copy), "%s", script);
	start.cmd = shell;
	start.args = args;
	start.n_args = ARRAY_LEN(args);
	request.body_case = CROFT__GUEST_REQUEST__BODY_START;
	request.start = &start;
	size = croft__guest_request__get_packed_size(&request);
	ck_assert_uint_lt(size, sizeof(frame) - 4);
	for (unsigned int i = 0; i < 4; i++)
		frame[i] = (uint8_t)(size >> (8 * (3 - i)));
	(void)croft__guest_request__pack(&request, frame + 4);
	ck_assert_int_eq(fd_write_all(fd, frame, 4 + size), 0);
}

static int dial(const char *path)
{
	struct timeval limit = { .tv_sec = ANSWER_S };
	int fd = unix_connect(path, SOCK_STREAM), r;
	char byte = '\0';

	if (fd < 0)
		return fd;
	ck_assert_int_eq(fcntl(fd, F_SETFL, 0), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	ck_assert_int_eq(fd_write_all(fd, "CONNECT 1024\n", 13), 0);
	while (byte != '\n')
		if ((r = fd_read_all(fd, &byte, 1)) < 0) {
			(void)fd_close(fd);
			return r;
		}
	return fd;
}

/* What it printed; false: it was not run, or did not end well, and RET says why. */
static bool run_at(const char *path, const char *script, char ret[static OUTPUT_MAX])
{
	CLEANUP_FD int fd = dial(path);
	Croft__GuestEvent *event;
	bool ended = false, is_well = false;
	size_t n = 0;

	if (fd < 0) {
		(void)snprintf(ret, OUTPUT_MAX, "no connection: %s", strerrorname_np(-fd));
		return false;
	}
	send_script(fd, script);
	while (!ended && read_event(fd, &event)) {
		if (event->body_case == CROFT__GUEST_EVENT__BODY_DATA) {
			size_t part = MIN(event->data->data.len, OUTPUT_MAX - 1 - n);

			memcpy(ret + n, event->data->data.data, part);
			n += part;
		}
		ended = event->body_case == CROFT__GUEST_EVENT__BODY_ENDED ||
			event->body_case == CROFT__GUEST_EVENT__BODY_FAILURE;
		is_well = event->body_case == CROFT__GUEST_EVENT__BODY_ENDED && event->ended->exited && event->ended->exit_code == 0;
		croft__guest_event__free_unpacked(event, NULL);
	}
	if (!ended)
		n += (size_t)snprintf(ret + n, OUTPUT_MAX - n, "%s", " and no end");
	ret[MIN(n, (size_t)OUTPUT_MAX - 1)] = '\0';
	return ended && is_well;
}

/* A sandbox is found by its host name, which is its id. */
static void find_socket(const char *sandbox, char ret[static PATH_MAX])
{
	char pattern[PATH_MAX], said[OUTPUT_MAX], seen[2 * OUTPUT_MAX] = "";
	FILE *list;

	(void)snprintf(pattern, sizeof(pattern), "ls -d %s/*/vsock.sock", rig.run);
	list = popen(pattern, "r");
	ck_assert_ptr_nonnull(list);
	while (fgets(ret, PATH_MAX, list)) {
		ret[strcspn(ret, "\n")] = '\0';
		if (run_at(ret, "cat /proc/sys/kernel/hostname", said) && !strncmp(said, sandbox, strlen(sandbox))) {
			(void)pclose(list);
			return;
		}
		(void)snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), " [%.200s: %.200s]", ret, said);
	}
	(void)pclose(list);
	rig_print_log(&rig);
	ck_abort_msg("no guest has the host name %s:%s", sandbox, seen);
}

static void run_in(const char *sandbox, const char *script, char ret[static OUTPUT_MAX])
{
	char path[PATH_MAX];

	find_socket(sandbox, path);
	ck_assert_msg(run_at(path, script, ret), "%s: %s said: %s", sandbox, script, ret);
}

static long count_of(const char *sandbox)
{
	char text[OUTPUT_MAX];

	run_in(sandbox, "cat /dev/shm/count", text);
	return strtol(text, NULL, 10);
}

static void check_counts(const char *sandbox, long from)
{
	long first = count_of(sandbox);

	ck_assert_int_ge(first, from);
	for (int i = 0; i < 100 && count_of(sandbox) == first; i++)
		loop_for(rig.base, 100);
	ck_assert_int_gt(count_of(sandbox), first);
}

/* ---- what is theirs alone ---- */

static const char *const own[] = { "cat /proc/sys/kernel/random/boot_id", "cat /proc/sys/kernel/random/uuid",
	"cat /proc/sys/kernel/hostname", "cat /etc/hostname", "cat /etc/machine-id", "echo $WHO" };
static const char *const same[] = { "sha256sum </dev/shm/ram", "cat /root/kept", "grep -c . /etc/machine-id" };

static void check_differ(const char *a, const char *b)
{
	char one[OUTPUT_MAX], other[OUTPUT_MAX];

	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		run_in(a, own[i], one);
		run_in(b, own[i], other);
		ck_assert_uint_gt(strlen(one), 1);
		ck_assert_msg(strcmp(one, other) != 0, "%s: %s", own[i], one);
	}
	for (size_t i = 0; i < ARRAY_LEN(same); i++) {
		run_in(a, same[i], one);
		run_in(b, same[i], other);
		ck_assert_str_eq(one, other);
	}
}

static void check_clock(const char *sandbox)
{
	char text[OUTPUT_MAX];
	time_t before = time(NULL);
	long guest;

	run_in(sandbox, "date +%s", text);
	guest = strtol(text, NULL, 10);
	ck_assert_int_ge(guest, before - 1);
	ck_assert_int_le(guest, time(NULL) + 1);
}

static bool is_answered(struct rig *unused, void *operation)
{
	(void)unused;
	return !strcmp(rig_find(&rig, PARENT)->report.updated, operation);
}

static bool is_dropped(struct rig *unused, void *snapshot)
{
	(void)unused;
	return !strcmp(rig.dropped, snapshot);
}

START_TEST(two_begin_as_one_and_go_on_without_it)
{
	static char operation[] = TAKE_OP, snapshot[] = SNAP;
	char before[OUTPUT_MAX], after[OUTPUT_MAX];
	const struct sandbox_report *report;
	long count;

	start_node();
	create(PARENT, "");
	check_runs(PARENT);
	run_in(PARENT,
		"mkdir -p /root; echo kept >/root/kept; echo 0123456789abcdef0123456789abcdef >/etc/machine-id;"
		" dd if=/dev/urandom of=/dev/shm/ram bs=1M count=4 2>/dev/null; " COUNT " sleep 1",
		before);
	run_in(PARENT, own[0], before);
	count = count_of(PARENT);

	rig_snapshot(&rig, PARENT, operation, 1, SNAP);
	rig_until(&rig, is_answered, operation, "an answer to the snapshot");
	report = &rig_find(&rig, PARENT)->report;
	ck_assert_msg(!err_is_set(&report->update_failure), "%s", report->update_failure.msg);
	ck_assert_uint_ge(report->snapshot->size_mib, 4);
	check_counts(PARENT, count); /* it goes on as who it was */
	check_clock(PARENT);
	run_in(PARENT, own[0], after);
	ck_assert_str_eq(before, after);

	create(CLONE_A, SNAP);
	create(CLONE_B, SNAP);
	check_runs(CLONE_A);
	check_runs(CLONE_B);
	ck_assert_str_eq(rig_stage(&rig, CLONE_A, STAGE_VMM)->reason, "restore");
	check_differ(PARENT, CLONE_A);
	check_differ(CLONE_A, CLONE_B);
	check_differ(CLONE_B, PARENT);
	check_clock(CLONE_A);

	rig_destroy(&rig, PARENT, "request");
	rig_wait_state(&rig, PARENT, REPORT_ENDED);
	rig_drop_snapshot(&rig, SNAP);
	rig_until(&rig, is_dropped, snapshot, "the word that it is dropped");
	check_counts(CLONE_A, count);
	check_counts(CLONE_B, count);
	run_in(CLONE_A, "echo mine >/root/kept; sync", before);
	run_in(CLONE_B, "cat /root/kept", after);
	ck_assert_str_eq(after, "kept\n");
	rig_deinit(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-clone-kvm");
	TCase *tcase = tcase_create("node-clone-kvm");

	tcase_set_timeout(tcase, 1500);
	tcase_add_test(tcase, two_begin_as_one_and_go_on_without_it);
	suite_add_tcase(suite, tcase);
	return rig_suite_run_kvm(suite);
}
