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

#define CASE_MSEC (120 * 1000)
#define ANSWER_MSEC 3000  /* a second, and three times that on a loaded machine */
#define END_MSEC 9000     /* the VMM gives its threads 3 s */
#define ASK_MSEC 50
#if defined(__SANITIZE_ADDRESS__)
#define RSS_MAX_KIB (1024 * 1024) /* shadow memory and quarantine */
#else
#define RSS_MAX_KIB ((64 + 32) * 1024) /* the guest's memory, and the VMM's */
#endif

struct watch {
	pid_t pid;
	int control, results;
	uint64_t asked, answered;
	int64_t asked_usec;
	long rss_kib;
	char line[256];
	size_t n;
	struct watch_result result;
};

static struct watch_result *say(struct watch *watch, enum outcome_kind outcome, const char *text)
{
	watch->result.outcome = outcome;
	(void) snprintf(watch->result.text, sizeof(watch->result.text), "%s", text);
	return &watch->result;
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

	request.id = ++watch->asked;
	request.body_case = CROFT__VMM_REQUEST__BODY_STATS;
	request.stats = &stats;
	n = croft__vmm_request__pack(&request, buf);
	if (send(watch->control, buf, n, MSG_NOSIGNAL) == (ssize_t) n)
		watch->asked_usec = clock_monotonic_usec();
}

static void hear(struct watch *watch)
{
	static uint8_t buf[65536];
	ssize_t n = recv(watch->control, buf, sizeof(buf), MSG_DONTWAIT);
	Croft__VmmMessage *message = n > 0 ? croft__vmm_message__unpack(NULL, (size_t) n, buf) : NULL;

	if (message && message->body_case == CROFT__VMM_MESSAGE__BODY_RESPONSE && message->response->stats &&
		message->response->id == watch->asked)
		watch->answered = watch->asked;
	if (message)
		croft__vmm_message__free_unpacked(message, NULL);
	else if (n == 0)
		watch->control = fd_close(watch->control);
}

/* Takes what there is of the result. True: all of it. */
static bool read_result(struct watch *watch)
{
	ssize_t n = read(watch->results, watch->line + watch->n, sizeof(watch->line) - 1 - watch->n);

	if (n <= 0) {
		watch->results = -1; /* the process is gone: its status says more */
		return false;
	}
	watch->n += (size_t) n;
	watch->line[watch->n] = '\0';
	return strchr(watch->line, '\n');
}

static void judge(struct watch *watch)
{
	static const struct {
		unsigned int verdict;
		enum outcome_kind outcome;
	} outcomes[] = { { SERVED, OUTCOME_PASS }, { REFUSED, OUTCOME_REJECT }, { SKIPPED, OUTCOME_SKIP } };
	unsigned int verdict = 0;
	unsigned long long got = 0;
	int at = 0;

	(void) sscanf(watch->line, "%u %llu %n", &verdict, &got, &at);
	watch->line[strcspn(watch->line, "\n")] = '\0';
	watch->result.outcome = OUTCOME_FAIL;
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		if (outcomes[i].verdict == verdict)
			watch->result.outcome = outcomes[i].outcome;
	if (watch->result.outcome == OUTCOME_FAIL)
		(void) snprintf(watch->result.text, sizeof(watch->result.text), "%.200s (0x%llx)", watch->line + at, got);
	else
		(void) snprintf(watch->result.text, sizeof(watch->result.text), "%.200s", watch->line + at);
}

/* Until the result is there and the last question answered. */
static bool follow(struct watch *watch)
{
	int64_t until = clock_monotonic_usec() + CASE_MSEC * INT64_C(1000), next = 0;
	bool is_over = false;

	while (!is_over || watch->answered != watch->asked) {
		struct pollfd fds[] = { { .fd = watch->results, .events = POLLIN }, { .fd = watch->control, .events = POLLIN } };
		int64_t now = clock_monotonic_usec();

		if (now > until) {
			(void) say(watch, OUTCOME_WEDGED, "the case does not end");
			return false;
		}
		if (watch->answered == watch->asked && now >= next && !is_over) {
			ask(watch);
			next = now + ASK_MSEC * 1000;
		}
		if (watch->answered != watch->asked && now - watch->asked_usec > ANSWER_MSEC * 1000) {
			(void) say(watch, OUTCOME_WEDGED, "the control socket does not answer");
			return false;
		}
		if (poll(fds, 2, ASK_MSEC) < 0)
			continue;
		if (fds[1].revents)
			hear(watch);
		if (fds[0].revents && read_result(watch)) {
			is_over = true;
			ask(watch); /* once more after it */
		}
		if (watch->results < 0 || watch->control < 0) {
			(void) say(watch, OUTCOME_FAIL, "the process ended by itself");
			return false;
		}
	}
	return true;
}

/* SIGTERM, and it ends as it should. */
static void end(struct watch *watch)
{
	int status = 0, pid_fd = pidfd_open(watch->pid, 0);
	struct pollfd wait = { .fd = pid_fd, .events = POLLIN };
	bool is_wedged = watch->result.outcome == OUTCOME_WEDGED, has_ended;

	(void) kill(watch->pid, SIGTERM);
	has_ended = poll(&wait, 1, END_MSEC) == 1;
	if (!has_ended)
		(void) kill(watch->pid, SIGKILL);
	(void) waitpid(watch->pid, &status, 0);
	(void) fd_close(pid_fd);
	if (is_wedged)
		return;
	if (!has_ended)
		(void) say(watch, OUTCOME_WEDGED, "SIGTERM does not end it");
	else if (WIFSIGNALED(status) || WEXITSTATUS(status) != EXIT_SIGNAL)
		(void) snprintf(say(watch, OUTCOME_FAIL, "")->text, sizeof(watch->result.text), "it ended with %s %d",
			WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	else if (watch->rss_kib > RSS_MAX_KIB)
		(void) snprintf(say(watch, OUTCOME_FAIL, "")->text, sizeof(watch->result.text), "%ld KiB of memory",
			watch->rss_kib);
}

struct watch_result watch_case(pid_t pid, const char *control_path, int results, int *writing_end)
{
	struct watch watch = { .pid = pid, .results = results, .control = -1 };

	*writing_end = fd_close(*writing_end);
	if (pid < 0)
		return *say(&watch, OUTCOME_FAIL, "no process");
	watch.control = unix_connect(control_path, SOCK_SEQPACKET);
	if (watch.control < 0) {
		(void) say(&watch, OUTCOME_FAIL, "no control socket");
	} else if (follow(&watch)) {
		judge(&watch);
		watch.rss_kib = rss_kib(pid);
	}
	end(&watch);
	(void) fd_close(watch.control);
	return watch.result;
}
