/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node-helper as a process, asked as the agent asks it: what its table permits and what it does not, slots and
 * their descriptors, control groups, a VMM of a uid of its own, disks, and that a killed helper comes back knowing
 * the same.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "helper/message.h"
#include "lib/suite.h"
#include "network/make.h"
#include "network/netns.h"
#include "world.h"

#define ID_A "aaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbb"
#define SOCKET "/tmp/helper.sock"
#define DISKS "/tmp/disks"
#define VMM_UID "70000"
#define LONG_MS 8000

static struct world world;
static pid_t helper;
static int sock;
static struct helper_reply *reply;
static int fds[HELPER_FDS_MAX];
static size_t n_fds;
static char group_root[64];

/* Opened before there is another /tmp: the build may lie there. */
static int program = -1;

static void find_helper(void)
{
	char self[256], path[300], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return;
	self[n] = '\0';
	slash = strrchr(self, '/');
	(void)snprintf(path, sizeof(path), "%.*s/croft-node-helper", (int)(slash - self), self);
	program = open(path, O_PATH | O_CLOEXEC);
}

/* With --clear or without. */
static pid_t start_program(bool clear, const char *socket)
{
	const char *argv[] = { "croft-node-helper", "--clear", "--helper-socket", socket, "--helper-user", "65534", "--helper-run", "/tmp/helper",
		"--helper-disks", DISKS, "--network-pool", WORLD_POOL, "--network-spares", "1", "--group-root",
		group_root, "--vmm-path", "/tmp/vmm", "--vmm-run", "/tmp/run", "--vmm-uid-first", VMM_UID,
		"--network-allow-private", WORLD_PRIVATE ":5000", NULL };
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	argv[1] = clear ? argv[1] : argv[0];
	(void)execveat(program, "", (char *const *)(uintptr_t)(clear ? argv : argv + 1), environ, AT_EMPTY_PATH);
	_exit(1); /* ends the process: the helper that did not start */
}

static void start_helper(void)
{
	helper = start_program(false, SOCKET);
}

/* Its exit status. */
static int clear(void)
{
	pid_t pid = start_program(true, SOCKET);
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void connect_helper(void)
{
	struct timespec pause = { .tv_nsec = 20000000 };

	sock = -1;
	for (int i = 0; i < 500 && sock < 0; i++) {
		sock = unix_connect(SOCKET, SOCK_SEQPACKET);
		if (sock < 0)
			(void)nanosleep(&pause, NULL);
	}
	ck_assert_int_ge(sock, 0);
	(void)fcntl(sock, F_SETFL, 0);
}

static void close_fds(void)
{
	while (n_fds > 0)
		(void)fd_close(fds[--n_fds]);
}

/* One request, one answer in `reply` and `fds`. */
static void ask_with(struct helper_request *request, const int *with, size_t n_with)
{
	static uint8_t packet[HELPER_PACKET_MAX];
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size;
	ssize_t n;

	close_fds();
	request->id = 5;
	ck_assert_int_eq(helper_request_encode(request, &data, &size), 0);
	ck_assert_int_eq(unix_send_fds(sock, data, size, with, n_with), (ssize_t)size);
	n = unix_recv_fds(sock, packet, sizeof(packet), fds, HELPER_FDS_MAX, &n_fds);
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(helper_reply_decode(packet, (size_t)n, reply, NULL), 0);
	ck_assert_uint_eq(reply->id, 5);
}

static void ask(enum helper_type type, const char *sandbox)
{
	struct helper_request request = { .type = type, .version = HELPER_VERSION, .generation = 1 };

	(void)snprintf(request.sandbox, sizeof(request.sandbox), "%s", sandbox);
	request.policy.internet = true;
	ask_with(&request, NULL, 0);
}

static void expect(enum fail_code code)
{
	ck_assert_msg(reply->failure.code == code, "%s, not %s: %s", failure_info(reply->failure.code)->name,
		failure_info(code)->name, reply->failure.msg);
}

static void done(enum helper_type type, const char *sandbox)
{
	ask(type, sandbox);
	expect(FAIL_NONE);
}

static void write_vmm(const char *text)
{
	FILE *file = fopen("/tmp/vmm", "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod("/tmp/vmm", 0755), 0);
}

static void setup(void)
{
	world_make(&world);
	(void)snprintf(group_root, sizeof(group_root), "%s/croft-test-%d",
		access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified",
		getpid());
	ck_assert_int_eq(mkdir(DISKS, 0755), 0);
	ck_assert_int_eq(mkdir("/tmp/run", 0755), 0);
	write_vmm("#!/bin/sh\necho \"$@\" >&2\nexec sleep 1000\n");
	reply = calloc(1, sizeof(*reply));
	ck_assert_ptr_nonnull(reply);
	start_helper();
	connect_helper();
}

static void teardown(void)
{
	close_fds();
	if (helper > 0) {
		(void)close(sock);
		(void)kill(helper, SIGTERM);
		ck_assert_int_eq(waitpid(helper, NULL, 0), helper);
	}
	(void)rmdir(group_root);
	free(reply);
	world_free(&world);
}

START_TEST(hello_comes_first_and_once)
{
	struct helper_request old = { .type = HELPER_HELLO, .version = 77 };

	ask(HELPER_LIST, "");
	expect(FAIL_HELPER_REFUSED);
	ask(HELPER_SLOT_MAKE, ID_A);
	expect(FAIL_HELPER_REFUSED);
	ask_with(&old, NULL, 0);
	expect(FAIL_VERSION_UNSUPPORTED);
	done(HELPER_HELLO, "");
	ck_assert(reply->has_facts && !err_is_set(&reply->facts.network) && reply->facts.slots == 32);
	ck_assert(!err_is_set(&reply->facts.groups) && reply->facts.can_start_vmm);
	ask(HELPER_HELLO, "");
	expect(FAIL_HELPER_REFUSED);
	done(HELPER_LIST, "");
	ck_assert_uint_eq(reply->n_slots, 0);
}
END_TEST

START_TEST(garbage_is_answered_and_harms_nobody)
{
	static const char junk[] = "\xff\xff\xff\xff not a message";
	static uint8_t packet[HELPER_PACKET_MAX];
	size_t n_got = 0;
	ssize_t n;

	done(HELPER_HELLO, "");
	ck_assert_int_gt(send(sock, junk, sizeof(junk), 0), 0);
	n = unix_recv_fds(sock, packet, sizeof(packet), fds, HELPER_FDS_MAX, &n_got);
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(helper_reply_decode(packet, (size_t)n, reply, NULL), 0);
	expect(FAIL_FRAME_INVALID);
	done(HELPER_LIST, "");
}
END_TEST

START_TEST(another_user_is_refused)
{
	char byte;
	int fd;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		/* past the file's mode: the socket itself asks who it is */
		if (chmod(SOCKET, 0777) < 0 || setgid(12345) < 0 || setuid(12345) < 0)
			_exit(2); /* ends the process: a child of the test */
		fd = unix_connect(SOCKET, SOCK_SEQPACKET);
		(void)fcntl(fd, F_SETFL, 0);
		_exit(fd >= 0 && recv(fd, &byte, 1, 0) == 0 ? 0 : 1); /* ends the process: a child of the test */
	}
	ck_assert_int_eq(waitpid(pid, &fd, 0), pid);
	ck_assert_int_eq(fd, 0);
}
END_TEST

START_TEST(a_slot_from_make_to_remove)
{
	struct guest guest;
	struct helper_request request = { .type = HELPER_POLICY_SET, .sandbox = ID_A };
	struct net_pin pins[] = { { 0x5db8d822, 60 }, { 0xa9fea9fe, 60 } }; /* WORLD_PUBLIC, WORLD_METADATA */
	int tap, fd;

	done(HELPER_HELLO, "");
	ask(HELPER_TAP_OPEN, ID_A);
	expect(FAIL_HELPER_REFUSED); /* it has none */
	done(HELPER_SLOT_MAKE, ID_A);
	ck_assert_uint_eq(reply->n_slots, 1);
	ck_assert_str_eq(reply->slots[0].sandbox, ID_A);
	ck_assert_uint_eq(reply->slots[0].prefix, NET_GUEST_PREFIX);
	guest.slot.gateway = reply->slots[0].gateway;
	guest.slot.guest = reply->slots[0].guest;
	memcpy(guest.slot.guest_mac, reply->slots[0].mac, NET_MAC_SIZE);
	done(HELPER_TAP_OPEN, ID_A);
	ck_assert_uint_eq(n_fds, 1);
	tap = TAKE_FD(fds[0]);
	n_fds = 0;
	ask(HELPER_TAP_OPEN, ID_A);
	expect(FAIL_NETWORK_SLOT_FAILED); /* one VMM has it */
	ck_assert_int_eq(reply->failure.err_no, EBUSY);
	done(HELPER_DNS_OPEN, ID_A);
	ck_assert_uint_eq(n_fds, 2);
	guest_make_on(&guest, tap);
	fd = guest_connect(&guest, WORLD_PUBLIC, 80, LONG_MS);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(world_echo(fd, LONG_MS), 0);
	(void)close(fd);
	fd = guest_connect(&guest, WORLD_PRIVATE, 5000, LONG_MS); /* the owner's opening, from the helper's options */
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_assert_int_lt(guest_connect(&guest, WORLD_PRIVATE, 80, 500), 0);
	/* closed, but for an answered name */
	ck_assert_int_eq(net_policy_allow(&request.policy, "example.com", NULL), 0);
	ask_with(&request, NULL, 0);
	expect(FAIL_NONE);
	ck_assert_int_lt(guest_connect(&guest, WORLD_PUBLIC, 80, 500), 0);
	net_policy_deinit(&request.policy);
	request = (struct helper_request){ .type = HELPER_PIN, .sandbox = ID_A, .pins = pins, .n_pins = 2 };
	ask_with(&request, NULL, 0);
	expect(FAIL_NONE);
	fd = guest_connect(&guest, WORLD_PUBLIC, 80, LONG_MS);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_assert_int_lt(guest_connect(&guest, WORLD_METADATA, 80, 500), 0);
	done(HELPER_COUNTERS, ID_A);
	ck_assert(reply->has_counters && reply->counters.sent.packets > 0 && reply->counters.denied.packets >= 3);
	ck_assert_uint_ge(reply->counters.n_refused, 2);
	done(HELPER_LIST, "");
	ck_assert_uint_eq(reply->n_slots, 1);
	guest_free(&guest);
	done(HELPER_SLOT_REMOVE, ID_A);
	done(HELPER_SLOT_REMOVE, ID_A);
	done(HELPER_LIST, "");
	ck_assert_uint_eq(reply->n_slots, 0);
	ask(HELPER_COUNTERS, ID_A);
	expect(FAIL_HELPER_REFUSED);
}
END_TEST

START_TEST(groups_hold_and_kill)
{
	struct helper_request request = { .type = HELPER_GROUP_MAKE, .sandbox = ID_A };
	char path[128];

	done(HELPER_HELLO, "");
	ask_with(&request, NULL, 0);
	expect(FAIL_NONE);
	(void)snprintf(path, sizeof(path), "%s/" ID_A, group_root);
	ck_assert_int_eq(access(path, F_OK), 0);
	/* a limit works, or its controller is named */
	request.limits.memory_bytes = 64 << 20;
	ask_with(&request, NULL, 0);
	if (err_is_set(&reply->failure)) {
		expect(FAIL_CGROUP_FAILED);
		ck_assert_str_eq(err_field(&reply->failure, "controller"), "memory");
	}
	done(HELPER_GROUP_KILL, ID_A);
	done(HELPER_GROUP_REMOVE, ID_A);
	ck_assert_int_lt(access(path, F_OK), 0);
	done(HELPER_GROUP_KILL, ID_A);
	done(HELPER_GROUP_REMOVE, ID_A);
}
END_TEST

static void wait_readable(int fd)
{
	struct pollfd one = { fd, POLLIN, 0 };

	ck_assert_int_eq(poll(&one, 1, LONG_MS), 1);
}

START_TEST(a_vmm_in_its_group)
{
	struct helper_request group = { .type = HELPER_GROUP_MAKE, .sandbox = ID_A };
	struct helper_request start = { .type = HELPER_VMM_START, .sandbox = ID_A, .run = "0123abcd" };
	CLEANUP_FREE char *text = NULL;
	int given[3], pidfd;

	given[0] = given[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
	given[2] = open("/tmp/vmm.log", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	done(HELPER_HELLO, "");
	ask_with(&start, given, 3);
	expect(FAIL_HELPER_REFUSED); /* neither slot nor group */
	done(HELPER_SLOT_MAKE, ID_A);
	ask_with(&group, NULL, 0);
	expect(FAIL_NONE);
	ask_with(&start, given, 2);
	expect(FAIL_HELPER_REFUSED); /* other descriptors */
	ask_with(&start, given, 3);
	expect(FAIL_NONE);
	ck_assert_uint_eq(n_fds, 1);
	pidfd = TAKE_FD(fds[0]);
	n_fds = 0;
	ck_assert(reply->pid > 1 && reply->start_ticks > 0);
	/* now it runs: no second one, and what it stands on stays */
	ask_with(&start, given, 3);
	expect(FAIL_HELPER_REFUSED);
	ck_assert_str_eq(err_field(&reply->failure, "state"), "running");
	ask(HELPER_SLOT_REMOVE, ID_A);
	expect(FAIL_HELPER_REFUSED);
	ask(HELPER_TAP_OPEN, ID_A);
	expect(FAIL_HELPER_REFUSED);
	ask(HELPER_GROUP_REMOVE, ID_A);
	expect(FAIL_HELPER_REFUSED);
	ask(HELPER_DISK_OPEN, ID_A);
	expect(FAIL_HELPER_REFUSED);
	done(HELPER_DNS_OPEN, ID_A);
	done(HELPER_COUNTERS, ID_A);
	/* it has said what it was started with before it is ended */
	for (struct stat st = { .st_size = 0 }; st.st_size == 0; (void)fstat(given[2], &st)) {
		struct timespec pause = { .tv_nsec = 20000000 };

		(void)nanosleep(&pause, NULL);
	}
	done(HELPER_COUNTERS, ID_A);
	ck_assert(!reply->group.has_status);
	done(HELPER_GROUP_KILL, ID_A);
	wait_readable(pidfd);
	done(HELPER_COUNTERS, ID_A);
	ck_assert(reply->group.has_status); /* only its parent knows, and the agent is not */
	ck_assert(WIFSIGNALED(reply->group.status));
	ck_assert_int_eq(WTERMSIG(reply->group.status), SIGKILL);
	for (int i = 0; i < 100; i++) {
		struct timespec pause = { .tv_nsec = 20000000 };

		ask(HELPER_GROUP_REMOVE, ID_A);
		if (!err_is_set(&reply->failure))
			break;
		(void)nanosleep(&pause, NULL);
	}
	expect(FAIL_NONE);
	done(HELPER_SLOT_REMOVE, ID_A);
	ck_assert_int_eq(file_read("/tmp/vmm.log", 4096, &text, NULL), 0);
	ck_assert_ptr_nonnull(strstr(text, "--control-fd 3 --exit-fd 4 --id " ID_A " --run /tmp/run/0123abcd"));
	ck_assert_ptr_nonnull(strstr(text, "--uid 7000"));
	ck_assert_ptr_nonnull(strstr(text, "--run-owner "));
	(void)close(pidfd);
}
END_TEST

START_TEST(disks_are_opened_beneath_their_root)
{
	struct helper_request group = { .type = HELPER_GROUP_MAKE, .sandbox = ID_A };

	done(HELPER_HELLO, "");
	ask(HELPER_DISK_OPEN, ID_A);
	expect(FAIL_HELPER_REFUSED); /* nothing of it is held */
	ask_with(&group, NULL, 0);
	expect(FAIL_NONE);
	ask(HELPER_DISK_OPEN, ID_A);
	expect(FAIL_IO_FAILED);
	world_run("mkdir " DISKS "/" ID_A " && echo secret >/tmp/secret && ln -s /tmp/secret " DISKS "/" ID_A "/disk");
	ask(HELPER_DISK_OPEN, ID_A);
	expect(FAIL_IO_FAILED);
	ck_assert_int_eq(reply->failure.err_no, ELOOP);
	world_run("rm " DISKS "/" ID_A "/disk && ln /tmp/secret " DISKS "/" ID_A "/disk");
	ask(HELPER_DISK_OPEN, ID_A); /* another name of another's file */
	expect(FAIL_IO_FAILED);
	world_run("rm " DISKS "/" ID_A "/disk && mkfifo " DISKS "/" ID_A "/disk");
	ask(HELPER_DISK_OPEN, ID_A);
	expect(FAIL_IO_FAILED);
	world_run("rm -r " DISKS "/" ID_A " && mkdir /tmp/other && echo x >/tmp/other/disk && ln -s /tmp/other " DISKS "/" ID_A);
	ask(HELPER_DISK_OPEN, ID_A);
	expect(FAIL_IO_FAILED);
	ck_assert_int_eq(reply->failure.err_no, ELOOP);
	world_run("rm " DISKS "/" ID_A " && mkdir " DISKS "/" ID_A " && echo x >" DISKS "/" ID_A "/disk");
	done(HELPER_DISK_OPEN, ID_A);
	ck_assert_uint_eq(n_fds, 1);
	ck_assert_int_eq(write(fds[0], "y", 1), 1);
	done(HELPER_GROUP_REMOVE, ID_A);
}
END_TEST

START_TEST(a_killed_helper_comes_back)
{
	char name[NET_SLOT_NAME_SIZE];

	done(HELPER_HELLO, "");
	done(HELPER_SLOT_MAKE, ID_A);
	memcpy(name, reply->slots[0].name, sizeof(name));
	done(HELPER_SLOT_MAKE, ID_B);
	ck_assert_int_eq(kill(helper, SIGKILL), 0);
	ck_assert_int_eq(waitpid(helper, NULL, 0), helper);
	(void)close(sock);
	start_helper();
	connect_helper();
	done(HELPER_HELLO, "");
	done(HELPER_LIST, "");
	ck_assert_uint_eq(reply->n_slots, 2);
	done(HELPER_SLOT_MAKE, ID_A);
	ck_assert_str_eq(reply->slots[0].name, name);
	done(HELPER_TAP_OPEN, ID_A);
	done(HELPER_SLOT_REMOVE, ID_A);
	done(HELPER_SLOT_REMOVE, ID_B);
}
END_TEST

static int start_vmm(void)
{
	struct helper_request group = { .type = HELPER_GROUP_MAKE, .sandbox = ID_A };
	struct helper_request start = { .type = HELPER_VMM_START, .sandbox = ID_A, .run = "0123abcd" };
	int given[3];

	given[0] = given[1] = given[2] = open("/dev/null", O_RDWR | O_CLOEXEC);
	done(HELPER_SLOT_MAKE, ID_A);
	ask_with(&group, NULL, 0);
	expect(FAIL_NONE);
	ask_with(&start, given, 3);
	expect(FAIL_NONE);
	(void)close(given[0]);
	n_fds = 0;
	return fds[0];
}

static void kill_helper(void)
{
	ck_assert_int_eq(kill(helper, SIGKILL), 0);
	ck_assert_int_eq(waitpid(helper, NULL, 0), helper);
	(void)close(sock);
	helper = 0;
}

START_TEST(a_vmm_that_ends_at_once_is_known)
{
	int pidfd;

	write_vmm("#!/bin/sh\nexit 7\n");
	done(HELPER_HELLO, "");
	pidfd = start_vmm();
	wait_readable(pidfd);
	for (int i = 0; i < 100 && !reply->group.has_status; i++) {
		struct timespec pause = { .tv_nsec = 20000000 };

		(void)nanosleep(&pause, NULL);
		done(HELPER_COUNTERS, ID_A);
	}
	ck_assert(WIFEXITED(reply->group.status));
	ck_assert_int_eq(WEXITSTATUS(reply->group.status), 7);
	done(HELPER_GROUP_REMOVE, ID_A);
	done(HELPER_SLOT_REMOVE, ID_A);
	(void)close(pidfd);
}
END_TEST

START_TEST(clear_leaves_nothing)
{
	struct pollfd vmm = { .events = POLLIN };

	done(HELPER_HELLO, "");
	vmm.fd = start_vmm();
	/* beside a helper nothing is done, and a second helper is none */
	ck_assert_int_eq(clear(), 1);
	ck_assert_int_eq(poll(&vmm, 1, 0), 0);
	done(HELPER_LIST, "");
	ck_assert_uint_eq(reply->n_slots, 1);
	kill_helper();
	ck_assert_int_eq(poll(&vmm, 1, 0), 0);
	ck_assert_int_eq(clear(), 0);
	ck_assert_int_eq(poll(&vmm, 1, 0), 1);
	ck_assert_int_lt(access(group_root, F_OK), 0);
	world_run("test ! -e /tmp/helper && ! nft list table inet croft 2>/dev/null && ! grep /tmp/helper /proc/mounts");
	ck_assert_int_eq(clear(), 0); /* where there is nothing */
	(void)close(vmm.fd);
}
END_TEST

/* A group that others share is theirs too, and nobody else may list or lock the run directory. */
START_TEST(clear_leaves_what_is_not_crofts)
{
	done(HELPER_HELLO, "");
	world_run("test \"$(stat -c %%a /tmp/helper)\" = 711");
	kill_helper();
	world_run("mkdir -p %s/machine.slice", group_root);
	ck_assert_int_eq(clear(), 0);
	world_run("test -d %s/machine.slice && rmdir %s/machine.slice", group_root, group_root);
	ck_assert_int_eq(clear(), 0);
	ck_assert_int_lt(access(group_root, F_OK), 0);
}
END_TEST

START_TEST(clear_goes_on_past_a_group_that_stays)
{
	int vmm;

	done(HELPER_HELLO, "");
	vmm = start_vmm();
	kill_helper();
	/* somebody's: it does not go, as a directory with another in it does not */
	world_run("mkdir -p %s/bbbbbbbbbbbbbbbbbbbb/other", group_root);
	ck_assert_int_eq(clear(), 1);
	wait_readable(vmm);
	world_run("test ! -e %s/" ID_A " && test ! -e /tmp/helper && ! nft list table inet croft 2>/dev/null", group_root);
	world_run("rmdir %s/bbbbbbbbbbbbbbbbbbbb/other", group_root);
	ck_assert_int_eq(clear(), 0);
	ck_assert_int_lt(access(group_root, F_OK), 0);
	(void)close(vmm);
}
END_TEST

/* What the host cannot hold is no ceiling: there is no helper then, and no VM. */
START_TEST(the_owners_ceiling_is_held_or_nothing_starts)
{
	char path[128], *text = NULL;
	bool has_memory;
	int status;

	done(HELPER_HELLO, "");
	kill_helper();
	(void)snprintf(path, sizeof(path), "%s/cgroup.controllers", group_root);
	ck_assert_int_eq(file_read(path, 4096, &text, NULL), 0);
	has_memory = strstr(text, "memory") != NULL;
	free(text);
	ck_assert_int_eq(setenv("CROFT_GROUP_MEMORY_MIB", "3000", 1), 0);
	start_helper();
	ck_assert_int_eq(unsetenv("CROFT_GROUP_MEMORY_MIB"), 0);
	if (!has_memory) {
		ck_assert_int_eq(waitpid(helper, &status, 0), helper);
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
		start_helper();
	}
	connect_helper();
	done(HELPER_HELLO, "");
	if (has_memory) {
		(void)snprintf(path, sizeof(path), "%s/memory.max", group_root);
		ck_assert_int_eq(file_read(path, 64, &text, NULL), 0);
		ck_assert_str_eq(text, "3145728000\n");
		free(text);
	}
}
END_TEST

static void expect_limit(const char *resource)
{
	const char *field = err_field(&reply->failure, "resource");

	expect(FAIL_HOST_LIMIT);
	ck_assert_msg(field && !strncmp(field, resource, strlen(resource)), "%s: %s", resource, field ? field : "none");
}

/* The soft one: the hard one could not be raised again. */
static void limit_descriptors(rlim_t n)
{
	struct rlimit limit;

	ck_assert_int_eq(prlimit(helper, RLIMIT_NOFILE, NULL, &limit), 0);
	limit.rlim_cur = n;
	ck_assert_int_eq(prlimit(helper, RLIMIT_NOFILE, &limit, NULL), 0);
}

/* At its real origin: the kernel says no, the code names what of, and with the limit away the same request works. */
START_TEST(a_limit_of_the_host_is_named)
{
	struct rlimit before;

	done(HELPER_HELLO, "");
	world_run("echo 0 >%s/cgroup.max.descendants", group_root);
	ask(HELPER_GROUP_MAKE, ID_A);
	expect_limit("control groups");
	world_run("echo max >%s/cgroup.max.descendants", group_root);
	done(HELPER_SLOT_MAKE, ID_A);
	done(HELPER_GROUP_MAKE, ID_A);

	ck_assert_int_eq(prlimit(helper, RLIMIT_NOFILE, NULL, &before), 0);
	limit_descriptors(3);
	ask(HELPER_TAP_OPEN, ID_A);
	expect_limit("descriptors of the process");
	ask(HELPER_DNS_OPEN, ID_A);
	expect_limit("descriptors of the process");
	limit_descriptors(before.rlim_cur);
	done(HELPER_TAP_OPEN, ID_A);
	done(HELPER_DNS_OPEN, ID_A);
	close_fds();
	done(HELPER_GROUP_REMOVE, ID_A);
	done(HELPER_SLOT_REMOVE, ID_A);
}
END_TEST

/* A child in a user namespace of its own, whose limits are its own too. Its status says how far it came. */
static int make_slot_beyond_the_limit(void)
{
	struct net_slot slot = { .name = "s0123456789ab" };
	struct net_slot_rules rules = { .slot = &slot };
	struct err err = ERR_NULL;
	const char *field;
	FILE *file;

	if (unshare(CLONE_NEWUSER) < 0)
		return 1;
	file = fopen("/proc/sys/user/max_net_namespaces", "we");
	if (!file || fputs("0\n", file) < 0 || fclose(file) != 0)
		return 2;
	if (net_slot_make("/tmp", &rules, &err) == 0)
		return 3;
	field = err_field(&err, "resource");
	return err.code == FAIL_HOST_LIMIT && field && strstr(field, "network namespaces") ? 0 : 4;
}

START_TEST(a_limit_of_namespaces_is_named)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(make_slot_beyond_the_limit()); /* the child that has nothing else to do */
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned int)status);
	world_run("test ! -e /tmp/s0123456789ab");
}
END_TEST

START_TEST(one_helper_a_run_directory)
{
	pid_t second = start_program(false, SOCKET ".other");
	int status;

	ck_assert_int_eq(waitpid(second, &status, 0), second);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	done(HELPER_HELLO, "");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("helper");
	TCase *t = tcase_create("helper");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, hello_comes_first_and_once);
	tcase_add_test(t, garbage_is_answered_and_harms_nobody);
	tcase_add_test(t, another_user_is_refused);
	tcase_add_test(t, a_slot_from_make_to_remove);
	tcase_add_test(t, groups_hold_and_kill);
	tcase_add_test(t, a_vmm_in_its_group);
	tcase_add_test(t, disks_are_opened_beneath_their_root);
	tcase_add_test(t, a_killed_helper_comes_back);
	tcase_add_test(t, a_limit_of_the_host_is_named);
	tcase_add_test(t, a_limit_of_namespaces_is_named);
	tcase_add_test(t, the_owners_ceiling_is_held_or_nothing_starts);
	tcase_add_test(t, one_helper_a_run_directory);
	tcase_add_test(t, a_vmm_that_ends_at_once_is_known);
	tcase_add_test(t, clear_leaves_nothing);
	tcase_add_test(t, clear_leaves_what_is_not_crofts);
	tcase_add_test(t, clear_goes_on_past_a_group_that_stays);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	find_helper();
	return suite_run(suite());
}
