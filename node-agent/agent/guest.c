/* SPDX-License-Identifier: Apache-2.0
 *
 * See guest.h. A call goes through: connect, "CONNECT 1024\n", "OK <port>\n", the request's frame,
 * the event frames. libevent's bufferevent holds the bytes; its high watermark is what bounds a
 * guest that talks on.
 */
#include "agent/guest.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/guest-failure.h"
#include "agent/message.h"
#include "base/clock.h"
#include "helper/message.h"
#include "base/fd.h"
#include "pb/guest.pb-c.h"
#include "wire/check.h"

#define EVENT_MAX (64u * 1024u) /* GuestData carries at most 32 KiB */
#define GREETING_MAX 64u
#define HEAD 4u

/* DO: all that is answered with no more than that it was done. */
enum call_kind { CALL_INFO, CALL_DO, CALL_RUN, CALL_POWER_OFF };

struct guest_call {
	enum call_kind kind;
	struct bufferevent *bev;
	struct event *timer;
	bool greeted;
	bool started; /* run: the guest said so */
	guest_done done;
	void *user;
	struct guest_result result;
	size_t tail_size;
};

void guest_call_free(struct guest_call *call)
{
	if (!call)
		return;
	if (call->bev)
		bufferevent_free(call->bev);
	if (call->timer)
		event_free(call->timer);
	free(call);
}

/* Ends the call; it is gone afterwards. */
static void finish(struct guest_call *call)
{
	guest_done done = call->done;
	void *user = call->user;
	struct guest_result result = call->result;

	result.tail[call->tail_size] = '\0';
	guest_call_free(call);
	done(&result, user);
}

static void fail(struct guest_call *call, enum fail_code code, int err_no, const char *what)
{
	(void)err_set(&call->result.failure, code, err_no, "%s", what);
	finish(call);
}

static void on_timeout(evutil_socket_t fd, short events, void *user)
{
	(void)fd, (void)events;
	fail(user, FAIL_GUEST_UNREACHABLE, ETIMEDOUT, "croft-guest did not answer in time");
}

/* Keeps the last GUEST_TAIL_MAX bytes. */
static void keep_tail(struct guest_call *call, const uint8_t *data, size_t size)
{
	size_t keep;

	if (size >= GUEST_TAIL_MAX) {
		memcpy(call->result.tail, data + size - GUEST_TAIL_MAX, GUEST_TAIL_MAX);
		call->tail_size = GUEST_TAIL_MAX;
		return;
	}
	keep = MIN(call->tail_size, GUEST_TAIL_MAX - size);
	memmove(call->result.tail, call->result.tail + call->tail_size - keep, keep);
	memcpy(call->result.tail + keep, data, size);
	call->tail_size = keep + size;
}

/* Our words for what croft-guest found: its own text is a guest's and stays where it is. */
static const char *failure_text(enum fail_code code)
{
	switch (code) {
	case FAIL_ROOTFS_UNREADABLE:
		return "the guest cannot mount the template's image";
	case FAIL_ROOTFS_INCOMPLETE:
		return "the template's root has no usable shell";
	case FAIL_GUEST_DISK_UNREADABLE:
		return "the guest cannot mount its writable disk";
	case FAIL_GUEST_FREEZE_FAILED:
		return "the guest's processes or its disk do not stand still, or do not go on";
	case FAIL_GUEST_PROTOCOL:
		return "the guest names a failure that croft-guest does not know";
	default:
		return "croft-guest refused";
	}
}

void guest_failure_decode(const Croft__GuestFailure *failure, struct err *ret)
{
	enum fail_code code = failure_by_name(failure->code);
	int err_no = failure->err_no > 0 && failure->err_no < 4096 ? failure->err_no : 0;

	switch (failure_info(code)->stage) {
	case STAGE_GUEST:
	case STAGE_SETUP:
	case STAGE_EXEC:
	case STAGE_FILES:
	case STAGE_PORT:
	case STAGE_PAUSE:
		break;
	default:
		code = FAIL_GUEST_PROTOCOL;
		break;
	}
	(void)err_set(ret, code, err_no, "%s", failure_text(code));
	if (code == FAIL_ROOTFS_INCOMPLETE)
		err_add(ret, "missing", "/bin/sh"); /* all that croft-guest looks for */
}

enum verdict { GO_ON, FINISHED, NONSENSE };

static enum verdict take_ended(struct guest_call *call, const Croft__GuestEnded *ended)
{
	call->result.exited = ended->exited;
	call->result.exit_code = ended->exit_code;
	call->result.signal = ended->signal;
	call->result.timed_out = ended->timed_out;
	call->result.out_of_memory = ended->out_of_memory;
	return FINISHED;
}

static enum verdict take_info(struct guest_call *call, const Croft__GuestInfo *info)
{
	if (strlen(info->boot_id) != BOOT_ID_SIZE - 1)
		return NONSENSE;
	memcpy(call->result.boot_id, info->boot_id, BOOT_ID_SIZE);
	call->result.uptime_us = info->uptime_us;
	return FINISHED;
}

static enum verdict take_event(struct guest_call *call, const Croft__GuestEvent *event)
{
	switch (event->body_case) {
	case CROFT__GUEST_EVENT__BODY_FAILURE:
		guest_failure_decode(event->failure, &call->result.failure);
		return FINISHED;
	case CROFT__GUEST_EVENT__BODY_DONE:
		return call->kind == CALL_DO || call->kind == CALL_POWER_OFF ? FINISHED : NONSENSE;
	case CROFT__GUEST_EVENT__BODY_INFO:
		return call->kind == CALL_INFO ? take_info(call, event->info) : NONSENSE;
	case CROFT__GUEST_EVENT__BODY_STARTED:
		if (call->kind != CALL_RUN || call->started)
			return NONSENSE;
		call->started = true;
		return GO_ON;
	case CROFT__GUEST_EVENT__BODY_DATA:
		if (!call->started)
			return NONSENSE;
		keep_tail(call, event->data->data.data, event->data->data.len);
		return GO_ON;
	case CROFT__GUEST_EVENT__BODY_ENDED:
		return call->started ? take_ended(call, event->ended) : NONSENSE;
	default: /* what a newer croft-guest says besides; a body that is none at all no croft-guest sends */
		return event->base.n_unknown_fields ? GO_ON : NONSENSE;
	}
}

/* true: the call is finished and gone. */
static bool take_frame(struct guest_call *call, const void *data, size_t size)
{
	Croft__GuestEvent *event;
	enum verdict verdict;

	event = (Croft__GuestEvent *)(void *)check_unpack(
		&croft__guest_event__descriptor, data, size, NULL);
	verdict = event ? take_event(call, event) : NONSENSE;
	if (event)
		croft__guest_event__free_unpacked(event, NULL);
	switch (verdict) {
	case GO_ON:
		return false;
	case FINISHED:
		finish(call);
		return true;
	case NONSENSE:
		break;
	}
	fail(call, FAIL_GUEST_PROTOCOL, EPROTO, "the guest sent what croft-guest never does");
	return true;
}

/* "OK <port>\n" */
static enum verdict take_greeting(struct guest_call *call, struct evbuffer *in)
{
	size_t size;
	char *line = evbuffer_readln(in, &size, EVBUFFER_EOL_LF);
	bool ok;

	if (!line)
		return evbuffer_get_length(in) > GREETING_MAX ? NONSENSE : GO_ON;
	ok = size > 3 && size <= GREETING_MAX && !strncmp(line, "OK ", 3);
	free(line);
	call->greeted = ok;
	return ok ? FINISHED : NONSENSE;
}

static void on_read(struct bufferevent *bev, void *user)
{
	struct guest_call *call = user;
	struct evbuffer *in = bufferevent_get_input(bev);

	if (!call->greeted) {
		enum verdict verdict = take_greeting(call, in);

		if (verdict == NONSENSE)
			fail(call, FAIL_GUEST_PROTOCOL, EPROTO,
				"the VMM's vsock socket gave no greeting");
		if (verdict != FINISHED)
			return;
	}
	for (;;) {
		uint8_t head[HEAD];
		size_t size;
		bool gone;

		if (evbuffer_copyout(in, head, HEAD) < (ssize_t)HEAD)
			return;
		size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 |
		       head[3];
		if (size > EVENT_MAX) {
			fail(call, FAIL_GUEST_PROTOCOL, EMSGSIZE,
				"the guest announced a frame over the limit");
			return;
		}
		if (evbuffer_get_length(in) < HEAD + size)
			return;
		/* out of the buffer first: the call may be freed by its own answer */
		(void)evbuffer_drain(in, HEAD);
		gone = take_frame(call, evbuffer_pullup(in, (ev_ssize_t)size), size);
		if (gone)
			return;
		(void)evbuffer_drain(in, size);
	}
}

static void on_end(struct bufferevent *bev, short what, void *user)
{
	struct guest_call *call = user;

	(void)bev;
	/* a guest that powers off may be faster than its answer */
	if (call->kind == CALL_POWER_OFF && call->greeted) {
		finish(call);
		return;
	}
	fail(call, FAIL_GUEST_UNREACHABLE,
		what & BEV_EVENT_EOF ? ECONNRESET : EVUTIL_SOCKET_ERROR(),
		"the connection to croft-guest ended without an answer");
}

static int send_request(struct guest_call *call, const Croft__GuestRequest *request)
{
	size_t size = croft__guest_request__get_packed_size(request);
	uint8_t *frame = malloc(HEAD + size);
	char connect_line[32];
	int n = snprintf(connect_line, sizeof(connect_line), "CONNECT %d\n", GUEST_PORT),
	    r = -ENOMEM;

	if (!frame)
		return -ENOMEM;
	for (unsigned int i = 0; i < HEAD; i++)
		frame[i] = (uint8_t)(size >> (8 * (HEAD - 1 - i)));
	(void)croft__guest_request__pack(request, frame + HEAD);
	if (bufferevent_write(call->bev, connect_line, (size_t)n) == 0 &&
		bufferevent_write(call->bev, frame, HEAD + size) == 0)
		r = 0;
	free(frame);
	return r;
}

static void set_timer(struct event *timer, int64_t usec)
{
	struct timeval tv = { .tv_sec = usec / 1000000, .tv_usec = usec % 1000000 };

	(void)evtimer_add(timer, &tv);
}

/* Failure to connect is told through `done` like any other, but never from inside this call. */
static int start(struct guest_call **ret, enum call_kind kind, struct event_base *base,
	const char *vsock_path, int64_t timeout_usec, const Croft__GuestRequest *request,
	guest_done done, void *user)
{
	struct guest_call *call = calloc(1, sizeof(*call));
	CLEANUP_FD int fd = -1;

	if (!call)
		return -ENOMEM;
	call->kind = kind;
	call->done = done;
	call->user = user;
	call->timer = evtimer_new(base, on_timeout, call);
	if (!call->timer)
		goto no_memory;
	fd = unix_connect(vsock_path, SOCK_STREAM);
	if (fd < 0) {
		(void)err_set(&call->result.failure, FAIL_GUEST_UNREACHABLE, -fd,
			"cannot connect to %.150s", vsock_path);
		set_timer(call->timer, 0);
		*ret = call;
		return 0;
	}
	call->bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!call->bev)
		goto no_memory;
	(void)TAKE_FD(fd);
	bufferevent_setcb(call->bev, on_read, NULL, on_end, call);
	bufferevent_setwatermark(call->bev, EV_READ, 0, HEAD + EVENT_MAX);
	if (send_request(call, request) < 0 ||
		bufferevent_enable(call->bev, EV_READ | EV_WRITE) < 0)
		goto no_memory;
	set_timer(call->timer, timeout_usec);
	*ret = call;
	return 0;
no_memory:
	guest_call_free(call);
	return -ENOMEM;
}

int guest_info(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, guest_done done, void *user)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request);
	Croft__GuestInfoRequest info = MESSAGE(Croft__GuestInfoRequest, croft__guest_info_request);

	request.body_case = CROFT__GUEST_REQUEST__BODY_INFO;
	request.info = &info;
	return start(ret, CALL_INFO, base, vsock_path, timeout_usec, &request, done, user);
}

static void fill_network(Croft__GuestNetwork *network, uint8_t mac[static NET_MAC_SIZE], const struct helper_slot *slot)
{
	memcpy(mac, slot->mac, NET_MAC_SIZE);
	network->mac.data = mac;
	network->mac.len = NET_MAC_SIZE;
	network->address = slot->guest;
	network->prefix = slot->prefix;
	network->gateway = slot->gateway;
}

struct guest_env {
	Croft__GuestEnv *items, **list;
};

static void env_deinit(struct guest_env *env)
{
	free(env->items);
	free((void *)env->list);
}

static int fill_env(struct guest_env *env, const struct sandbox_spec *spec)
{
	env->items = calloc(spec->n_env + 1, sizeof(*env->items));
	env->list = calloc(spec->n_env + 1, sizeof(Croft__GuestEnv *));
	if (!env->items || !env->list)
		return -ENOMEM;
	for (size_t i = 0; i < spec->n_env; i++) {
		croft__guest_env__init(&env->items[i]);
		env->items[i].name = spec->env[i].key;
		env->items[i].value = spec->env[i].value;
		env->list[i] = &env->items[i];
	}
	return 0;
}

int guest_configure(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, const char *hostname, const struct sandbox_spec *spec,
	const struct helper_slot *slot, guest_done done, void *user)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request);
	Croft__GuestConfigure configure = MESSAGE(Croft__GuestConfigure, croft__guest_configure);
	Croft__GuestNetwork network = MESSAGE(Croft__GuestNetwork, croft__guest_network);
	uint8_t mac[NET_MAC_SIZE];
	CLEANUP(env_deinit) struct guest_env env = { .list = NULL };
	CLEANUP_FREE char *name = strdup(hostname);

	if (!name || fill_env(&env, spec) < 0)
		return -ENOMEM;
	configure.hostname = name;
	configure.n_env = spec->n_env;
	configure.env = env.list;
	configure.realtime_us = clock_realtime_usec();
	if (slot) {
		fill_network(&network, mac, slot);
		configure.network = &network;
	}
	request.body_case = CROFT__GUEST_REQUEST__BODY_CONFIGURE;
	request.configure = &configure;
	return start(ret, CALL_DO, base, vsock_path, timeout_usec, &request, done, user);
}

int guest_run(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, const char *command, uint64_t limit_ms, const struct trace *trace,
	guest_done done, void *user)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request);
	Croft__GuestStart run = MESSAGE(Croft__GuestStart, croft__guest_start);
	CLEANUP_FREE char *copy = strdup(command);
	char shell[] = "/bin/sh", dash_c[] = "-c", tag[] = "croft-setup",
	     traceparent[TRACEPARENT_SIZE] = "";
	char *args[] = { dash_c, copy };

	if (!copy)
		return -ENOMEM;
	if (*trace->trace_id)
		trace_format(trace, traceparent);
	run.cmd = shell;
	run.n_args = ARRAY_LEN(args);
	run.args = args;
	run.tag = tag;
	run.timeout_ms = limit_ms;
	run.traceparent = traceparent;
	request.body_case = CROFT__GUEST_REQUEST__BODY_START;
	request.start = &run;
	return start(ret, CALL_RUN, base, vsock_path, timeout_usec, &request, done, user);
}

int guest_power_off(struct guest_call **ret, struct event_base *base, const char *vsock_path,
	int64_t timeout_usec, guest_done done, void *user)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request);
	Croft__GuestPowerOff off = MESSAGE(Croft__GuestPowerOff, croft__guest_power_off);

	request.body_case = CROFT__GUEST_REQUEST__BODY_POWER_OFF;
	request.power_off = &off;
	return start(ret, CALL_POWER_OFF, base, vsock_path, timeout_usec, &request, done, user);
}

int guest_freeze(struct guest_call **ret, struct event_base *base, const char *vsock_path, int64_t timeout_usec,
	guest_done done, void *user)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request);
	Croft__GuestFreeze freeze = MESSAGE(Croft__GuestFreeze, croft__guest_freeze);

	request.body_case = CROFT__GUEST_REQUEST__BODY_FREEZE;
	request.freeze = &freeze;
	return start(ret, CALL_DO, base, vsock_path, timeout_usec, &request, done, user);
}

int guest_wake(struct guest_call **ret, struct event_base *base, const char *vsock_path, int64_t timeout_usec,
	const uint8_t entropy[static GUEST_ENTROPY_SIZE], const struct helper_slot *slot, const char *hostname,
	const struct sandbox_spec *spec, guest_done done, void *user)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request);
	Croft__GuestWake wake = MESSAGE(Croft__GuestWake, croft__guest_wake);
	Croft__GuestNetwork network = MESSAGE(Croft__GuestNetwork, croft__guest_network);
	CLEANUP(env_deinit) struct guest_env env = { .list = NULL };
	CLEANUP_FREE char *name = hostname ? strdup(hostname) : NULL;
	uint8_t mac[NET_MAC_SIZE];

	if (hostname) {
		if (!name || fill_env(&env, spec) < 0)
			return -ENOMEM;
		wake.hostname = name;
		wake.n_env = spec->n_env;
		wake.env = env.list;
	}

	wake.realtime_us = clock_realtime_usec();
	wake.entropy.data = (uint8_t *)(uintptr_t)entropy; /* packing only reads it */
	wake.entropy.len = GUEST_ENTROPY_SIZE;
	if (slot) {
		fill_network(&network, mac, slot);
		wake.network = &network;
	}
	request.body_case = CROFT__GUEST_REQUEST__BODY_WAKE;
	request.wake = &wake;
	return start(ret, CALL_DO, base, vsock_path, timeout_usec, &request, done, user);
}

int guest_thaw(struct guest_call **ret, struct event_base *base, const char *vsock_path, int64_t timeout_usec,
	guest_done done, void *user)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request);
	Croft__GuestThaw thaw = MESSAGE(Croft__GuestThaw, croft__guest_thaw);

	thaw.realtime_us = clock_realtime_usec();
	request.body_case = CROFT__GUEST_REQUEST__BODY_THAW;
	request.thaw = &thaw;
	return start(ret, CALL_DO, base, vsock_path, timeout_usec, &request, done, user);
}
