/* SPDX-License-Identifier: Apache-2.0
 *
 * See watch.h.
 */
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "exit.h"
#include "pb/vmm.pb-c.h"
#include "villain.h"

/* What is wedged stays so: these are far beyond what a loaded machine needs. */
#define ANSWER_MSEC 10000
#define END_MSEC 30000    /* the VMM gives its threads 3 s */
#define ASK_MSEC 50
#if defined(__SANITIZE_ADDRESS__)
#define RSS_MAX_KIB (1024 * 1024) /* shadow memory and quarantine */
#else
#define RSS_MAX_KIB ((64 + 32) * 1024) /* the guest's memory, and the VMM's */
#endif

static bool say(struct watch_result *ret, enum outcome_kind outcome, const char *text)
{
	ret->outcome = outcome;
	(void) snprintf(ret->text, sizeof(ret->text), "%s", text);
	return false;
}

static long rss_kib(pid_t pid)
{
	char path[64], *data, *at;
	long kib = 0;
	size_t n;

	(void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
	if (file_read(path, 65536, &data, &n) < 0)
		return 0;
	at = strstr(data, "VmHWM:");
	if (at)
		kib = atol(at + 6);
	free(data);
	return kib;
}

static void ask(struct watch *watch)
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStatsRequest stats = CROFT__VMM_STATS_REQUEST__INIT;
	uint8_t buf[64];
	size_t n;

	request.id = ++watch->asked + 1000; /* below: the runner's own requests */
	request.body_case = CROFT__VMM_REQUEST__BODY_STATS;
	request.stats = &stats;
	n = croft__vmm_request__pack(&request, buf);
	(void) !send(watch->control, buf, n, MSG_NOSIGNAL); /* a failure is no answer */
	watch->asked_usec = clock_monotonic_usec();
}

static void hear(struct watch *watch)
{
	static uint8_t buf[65536];
	ssize_t n = recv(watch->control, buf, sizeof(buf), MSG_DONTWAIT);
	Croft__VmmMessage *message = n > 0 ? croft__vmm_message__unpack(NULL, (size_t) n, buf) : NULL;

	if (message && message->body_case == CROFT__VMM_MESSAGE__BODY_RESPONSE && message->response->stats &&
		message->response->id == watch->asked + 1000) {
		watch->answered = watch->asked;
		watch->answers++;
	}
	if (message)
		croft__vmm_message__free_unpacked(message, NULL);
	else if (n == 0)
		watch->control = fd_close(watch->control);
}

/* Takes what there is. */
static void read_some(struct watch *watch)
{
	ssize_t n = read(watch->results, watch->line + watch->n, sizeof(watch->line) - 1 - watch->n);

	if (n <= 0)
		watch->results = -1; /* the process is gone: its status says more */
	else
		watch->n += (size_t) n;
	watch->line[watch->n] = '\0';
}

static bool take_line(struct watch *watch, char line[static 256])
{
	char *end = strchr(watch->line, '\n');
	size_t n = end ? (size_t) (end - watch->line) : 0;

	if (!end)
		return false;
	(void) snprintf(line, 256, "%.*s", (int) n, watch->line);
	watch->n -= n + 1;
	memmove(watch->line, end + 1, watch->n + 1);
	return true;
}

/* One turn. False: over. */
static bool turn(struct watch *watch, bool may_ask, struct watch_result *ret)
{
	struct pollfd fds[] = { { .fd = watch->results, .events = POLLIN }, { .fd = watch->control, .events = POLLIN } };
	int64_t now = clock_monotonic_usec();

	if (watch->answered == watch->asked && may_ask && now - watch->asked_usec > ASK_MSEC * 1000)
		ask(watch);
	if (watch->answered != watch->asked && now - watch->asked_usec > ANSWER_MSEC * 1000)
		return say(ret, OUTCOME_WEDGED, "the control socket does not answer");
	if (poll(fds, 2, ASK_MSEC) < 0)
		return true; /* EINTR */
	if (fds[1].revents)
		hear(watch);
	if (fds[0].revents)
		read_some(watch);
	if (watch->control < 0 || (watch->results < 0 && !strchr(watch->line, '\n')))
		return say(ret, OUTCOME_FAIL, "the process ended by itself");
	return true;
}

bool watch_init(struct watch *watch, pid_t pid, const char *control_path, int results)
{
	*watch = (struct watch) { .pid = pid, .results = results };
	watch->control = unix_connect(control_path, SOCK_SEQPACKET);
	return watch->control >= 0;
}

bool watch_line(struct watch *watch, int64_t msec, char line[static 256], struct watch_result *ret)
{
	int64_t until = clock_monotonic_usec() + msec * 1000;

	while (!take_line(watch, line)) {
		if (clock_monotonic_usec() > until) {
			ret->is_guests = true;
			return say(ret, OUTCOME_WEDGED, "the case does not end");
		}
		if (!turn(watch, true, ret))
			return false;
	}
	return true;
}

bool watch_check(struct watch *watch, struct watch_result *ret)
{
	long kib;

	if (watch->answered == watch->asked)
		ask(watch);
	while (watch->answered != watch->asked)
		if (!turn(watch, false, ret))
			return false;
	kib = rss_kib(watch->pid);
	if (kib <= RSS_MAX_KIB && kib > 0)
		return true;
	(void) say(ret, OUTCOME_FAIL, "");
	(void) snprintf(ret->text, sizeof(ret->text), "%ld KiB of memory", kib);
	return false;
}

struct watch_result watch_judge(const char *line)
{
	static const struct {
		unsigned int verdict;
		enum outcome_kind outcome;
	} outcomes[] = { { SERVED, OUTCOME_PASS }, { REFUSED, OUTCOME_REJECT }, { SKIPPED, OUTCOME_SKIP } };
	struct watch_result result = { .outcome = OUTCOME_FAIL };
	unsigned int verdict = 0;
	unsigned long long got = 0;
	int at = 0;

	(void) sscanf(line, "%u %llu %n", &verdict, &got, &at);
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		if (outcomes[i].verdict == verdict)
			result.outcome = outcomes[i].outcome;
	if (result.outcome == OUTCOME_FAIL)
		(void) snprintf(result.text, sizeof(result.text), "%.200s (0x%llx)", line + at, got);
	else
		(void) snprintf(result.text, sizeof(result.text), "%.200s", line + at);
	return result;
}

void watch_end(struct watch *watch, struct watch_result *ret)
{
	int status = 0, pid_fd = pidfd_open(watch->pid, 0);
	struct pollfd wait = { .fd = pid_fd, .events = POLLIN };
	bool has_ended;

	(void) kill(watch->pid, SIGTERM);
	has_ended = poll(&wait, 1, END_MSEC) == 1;
	if (!has_ended)
		(void) kill(watch->pid, SIGKILL);
	(void) waitpid(watch->pid, &status, 0);
	(void) fd_close(pid_fd);
	watch->control = fd_close(watch->control);
	if (ret->outcome == OUTCOME_WEDGED)
		return;
	if (!has_ended) {
		(void) say(ret, OUTCOME_WEDGED, "SIGTERM does not end it");
	} else if (WIFSIGNALED(status) || WEXITSTATUS(status) != EXIT_SIGNAL) {
		(void) say(ret, OUTCOME_FAIL, "");
		ret->is_guests = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_TRIPLE_FAULT;
		(void) snprintf(ret->text, sizeof(ret->text), "it ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
}
