/* SPDX-License-Identifier: Apache-2.0
 *
 * The villain in a real guest: croft-vmm with villain-guest as its kernel, a disk, a read-only one, vsock, rng, a
 * balloon, a TAP where the host gives us one, and the serial port on a pipe that says how each case went.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "pb/vmm.pb-c.h"
#include "suite.h"
#include "tap.h"

#define GLITCHES_MAX 2
#define UP_MSEC (60 * 1000) /* from start to the guest's first word, in an emulated host */
#define MEMORY_MIB 64
#define FDS_MAX 8

/* `name` beside this program. */
static void beside(const char *name, char path[static PATH_MAX])
{
	const char *bin = getenv("CROFT_BIN");
	ssize_t n;

	if (bin) {
		(void) snprintf(path, PATH_MAX, "%s/%s", bin, name);
		return;
	}
	n = readlink("/proc/self/exe", path, PATH_MAX - 64);
	path[n > 0 ? n : 0] = '\0';
	(void) strcpy(strrchr(path, '/') + 1, name);
}

static pid_t spawn(const struct suite *suite)
{
	char program[PATH_MAX];
	int listen_fd = unix_listen(suite->control_path, SOCK_SEQPACKET, 0600, 8);
	pid_t pid = fork();

	if (pid == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		beside("croft-vmm", program);
		(void) dup2(listen_fd, 60);
		(void) execl(program, "croft-vmm", "--control-fd", "60", "--log-level", "error", "--id", "villain",
			"--jail", "off", (char *) NULL); /* root in the emulated host; test-vmm-jail-kvm is about the jail */
		_exit(127);
	}
	(void) fd_close(listen_fd);
	return pid;
}

/* Sends `start`; closes all of `fds`. NULL, or the failure's code; static. */
static const char *send_start(int control, Croft__VmmStart *start, int *fds, size_t n_fds)
{
	static char code[64];
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	struct pollfd wait = { .fd = control, .events = POLLIN };
	bool is_answered = false;
	uint8_t buf[4096];
	size_t n;

	request.id = 1;
	request.body_case = CROFT__VMM_REQUEST__BODY_START;
	request.start = start;
	n = croft__vmm_request__pack(&request, buf);
	(void) snprintf(code, sizeof(code), "no answer");
	if (unix_send_fds(control, buf, n, fds, n_fds) == (ssize_t) n)
		while (!is_answered && poll(&wait, 1, UP_MSEC) == 1) {
			ssize_t got = recv(control, buf, sizeof(buf), 0);
			Croft__VmmMessage *message = got > 0 ? croft__vmm_message__unpack(NULL, (size_t) got, buf) : NULL;

			if (!message)
				break;
			if (message->body_case == CROFT__VMM_MESSAGE__BODY_RESPONSE) {
				is_answered = true;
				(void) snprintf(code, sizeof(code), "%s",
					message->response->failure ? message->response->failure->code : "");
			}
			croft__vmm_message__free_unpacked(message, NULL);
		}
	for (size_t i = 0; i < n_fds; i++)
		(void) fd_close(fds[i]);
	return *code ? code : NULL;
}

/* NULL, or why there is no guest. *ret_results is where it speaks. */
static const char *start(struct suite *suite, struct watch *watch, unsigned int first, unsigned int count, unsigned int stride,
	int *ret_results)
{
	Croft__VmmStart message;
	Croft__VmmDisk writable, readable, *disks[] = { &writable, &readable };
	Croft__VmmVsock vsock;
	Croft__VmmNet net;
	Croft__VmmBalloon balloon;
	uint8_t mac[] = { 2, 0, 0, 0, 0, 1 };
	char kernel[PATH_MAX], disk[64], cmdline[96], serial[] = "villain";
	int fds[FDS_MAX], console[2];
	pid_t pid = spawn(suite);

	croft__vmm_start__init(&message);
	croft__vmm_disk__init(&writable);
	croft__vmm_disk__init(&readable);
	croft__vmm_vsock__init(&vsock);
	croft__vmm_net__init(&net);
	croft__vmm_balloon__init(&balloon);
	if (pid < 0 || pipe2(console, O_CLOEXEC) < 0)
		return "no process";
	if (!watch_init(watch, pid, suite->control_path, console[0]))
		return "no control socket";
	beside("villain-guest", kernel);
	(void) snprintf(disk, sizeof(disk), "/proc/self/fd/%d", suite->disk_fd);
	(void) snprintf(cmdline, sizeof(cmdline), "villain.first=%u villain.count=%u villain.stride=%u", first, count, stride);
	readable.read_only = true;
	writable.serial = readable.serial = serial;
	message.vcpus = 1;
	message.memory_mib = MEMORY_MIB;
	message.cmdline = cmdline;
	message.disks = disks;
	message.n_disks = 2;
	message.vsock = &vsock;
	vsock.guest_cid = 3;
	vsock.path = suite->vsock_path;
	message.has_console = true;
	message.balloon = &balloon;
	net.mac = (ProtobufCBinaryData) { .data = mac, .len = sizeof(mac) };
	fds[0] = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	fds[1] = open(kernel, O_RDONLY | O_CLOEXEC);
	fds[2] = open(disk, O_RDWR | O_CLOEXEC);
	fds[3] = open(disk, O_RDONLY | O_CLOEXEC);
	fds[4] = unix_listen(suite->vsock_path, SOCK_STREAM, 0600, 8);
	fds[5] = console[1];
	*ret_results = console[0];
	if (suite->tap_fd < 0)
		return send_start(watch->control, &message, fds, 6);
	message.net = &net;
	tap_drain(suite->tap_fd);
	fds[6] = fcntl(suite->tap_fd, F_DUPFD_CLOEXEC, 0);
	return send_start(watch->control, &message, fds, 7);
}

/* Whether the case of a guest that hung or whose CPU shut down is made once more, in another guest: each was seen once in some
 * thousand cases in the emulated host, and not again in the same case (docs/decisions/0002). Not on a real KVM; not when the
 * VMM itself was late. */
static bool is_forgiven(struct suite *suite, const struct villain_instance *instance, const struct watch_result *result)
{
	const char *host = getenv("CROFT_KVM_HOST");
	char name[128];

	if (!result->is_guests || !host || strcmp(host, "emulated") != 0 || suite->glitches >= GLITCHES_MAX)
		return false;
	suite->glitches++;
	suite_name(instance, name, sizeof(name));
	(void) printf("# emulated host: %s: %s; it is made again in another guest\n", name, result->text);
	return true;
}

/* Whether the guest met an exception, which it should not: then that is the result. */
static bool is_fault(const char *line, struct watch_result *result)
{
	if (strncmp(line, "fault ", 6) != 0)
		return false;
	*result = (struct watch_result) { .outcome = OUTCOME_FAIL, .is_guests = true };
	(void) snprintf(result->text, sizeof(result->text), "%s", line);
	return true;
}

/* The cases of one guest. The number of those that were counted; the last one is counted when the guest has ended. */
static unsigned int run_guest(struct suite *suite, unsigned int first, unsigned int count, unsigned int stride)
{
	struct watch_result result = { .outcome = OUTCOME_FAIL };
	struct villain_instance instance;
	struct watch watch;
	unsigned int n = 0;
	int results = -1;
	char line[256];
	const char *why = start(suite, &watch, first, count, stride, &results);
	bool goes_on = !why && watch_line(&watch, UP_MSEC, line, &result);

	if (why)
		(void) snprintf(result.text, sizeof(result.text), "start: %s", why);
	while (goes_on && n < count && villain_find(first + n * stride, &instance)) {
		goes_on = watch_line(&watch, CASE_MSEC, line, &result); /* begin */
		if (goes_on && strncmp(line, "begin ", 6) != 0) {
			result = (struct watch_result) { .outcome = OUTCOME_FAIL, .text = "the guest does not say what it does" };
			goes_on = false;
		}
		goes_on = goes_on && watch_line(&watch, CASE_MSEC, line, &result) && !is_fault(line, &result); /* end */
		if (goes_on) {
			const char *rest = strchr(line + 4, ' ');

			result = watch_judge(rest ? rest : "");
			goes_on = watch_check(&watch, &result);
		}
		why = suite_check_disk(suite);
		if (why && result.outcome != OUTCOME_WEDGED) {
			result.outcome = OUTCOME_FAIL;
			(void) snprintf(result.text, sizeof(result.text), "%s", why);
		}
		if (!goes_on || ++n == count || !villain_find(first + n * stride, &instance))
			break;
		(void) villain_find(first + (n - 1) * stride, &instance);
		suite_count(suite, &instance, &result);
	}
	if (watch.pid > 0)
		watch_end(&watch, &result);
	(void) fd_close(results);
	n = goes_on && n > 0 ? n : n + 1;
	if (villain_find(first + (n - 1) * stride, &instance)) {
		if (!goes_on && is_forgiven(suite, &instance, &result))
			return n - 1;
		suite_count(suite, &instance, &result);
	}
	return n;
}

int real_run(struct suite *suite, char **patterns, int n, unsigned int batch, unsigned int stride)
{
	struct villain_instance instance;
	pid_t echo;

	if (access("/dev/kvm", R_OK | W_OK) < 0) {
		(void) printf("not run: no /dev/kvm\n");
		return 77;
	}
	suite->tap_fd = tap_make(&echo);
	for (unsigned int i = 0; villain_find(i, &instance);) {
		if (n > 0 && !suite_wants(&instance, patterns, n)) {
			i += stride;
			continue;
		}
		i += stride * run_guest(suite, i, n > 0 ? 1 : batch, stride);
	}
	suite->tap_fd = fd_close(suite->tap_fd);
	if (echo > 0) {
		(void) kill(echo, SIGKILL);
		(void) waitpid(echo, NULL, 0);
	}
	return 0;
}
