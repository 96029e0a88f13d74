/* SPDX-License-Identifier: Apache-2.0
 *
 * See request.h: what comes in.
 */
#include "guest/request.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "pb/guest.pb-c.h"

/* ---- an allocator with a bound ---- */

struct budget {
	size_t left;
};

static void *budget_alloc(void *data, size_t size)
{
	struct budget *budget = data;
	size_t cost = size + 16; /* what malloc itself takes for a small block */

	if (cost > budget->left)
		return NULL;
	budget->left -= cost;
	return malloc(size);
}

static void budget_free(void *data, void *p)
{
	(void) data;
	free(p);
}

static Croft__GuestRequest *unpack(const uint8_t *data, size_t size)
{
	struct budget budget = { REQUEST_MEMORY_MAX };
	ProtobufCAllocator allocator = { budget_alloc, budget_free, &budget };

	return croft__guest_request__unpack(&allocator, size, data);
}

/* ---- checks ---- */

static int invalid(struct err *reterr, const char *what)
{
	return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s", what);
}

static void strv_free(char **strv)
{
	for (char **p = strv; p && *p; p++)
		free(*p);
	free(strv);
}

static int take_env(struct request *request, Croft__GuestEnv **env, size_t n, struct err *reterr)
{
	if (n > ENV_MAX)
		return invalid(reterr, "there are more than 4096 environment variables");
	request->env = calloc(n + 1, sizeof(*request->env));
	if (!request->env)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the environment");
	for (size_t i = 0; i < n; i++) {
		if (!*env[i]->name || strchr(env[i]->name, '='))
			return invalid(reterr, "the name of an environment variable is empty or has a \"=\"");
		if (asprintf(&request->env[i], "%s=%s", env[i]->name, env[i]->value) < 0) {
			request->env[i] = NULL;
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the environment");
		}
	}
	return 0;
}

static int take_args(struct request *request, char **args, size_t n, struct err *reterr)
{
	request->args = calloc(n + 1, sizeof(*request->args));
	if (!request->args)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the arguments");
	for (size_t i = 0; i < n; i++) {
		request->args[i] = strdup(args[i]);
		if (!request->args[i])
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the arguments");
	}
	return 0;
}

static int take_size(struct request *request, const Croft__GuestPtySize *size, struct err *reterr)
{
	if (!size || size->cols > UINT16_MAX || size->rows > UINT16_MAX)
		return invalid(reterr, "the size of a terminal is at most 65535 by 65535");
	request->cols = size->cols ? (uint16_t) size->cols : 80;
	request->rows = size->rows ? (uint16_t) size->rows : 24;
	return 0;
}

static int take_start(struct request *request, const Croft__GuestStart *start, struct err *reterr)
{
	int r;

	if (!*start->cmd)
		return invalid(reterr, "the command is empty");
	if (strlen(start->cmd) >= PATH_MAX || strlen(start->cwd) >= PATH_MAX)
		return invalid(reterr, "the command or the working directory is longer than a path may be");
	if (strlen(start->tag) > TAG_MAX)
		return invalid(reterr, "the tag is longer than 128 bytes");
	request->cmd = start->cmd;
	request->cwd = start->cwd;
	request->user = start->user;
	request->tag = start->tag;
	request->traceparent = start->traceparent;
	request->wants_stdin = start->stdin;
	request->wants_pty = start->pty != NULL;
	request->timeout_ms = MIN(start->timeout_ms, UINT64_C(1) << 40);
	r = take_args(request, start->args, start->n_args, reterr);
	if (r == 0)
		r = take_env(request, start->env, start->n_env, reterr);
	if (r == 0 && start->pty)
		r = take_size(request, start->pty, reterr);
	return r;
}

static int take_network(struct request *request, const Croft__GuestNetwork *network, struct err *reterr)
{
	if (network->mac.len != sizeof(request->network.mac) || network->prefix == 0 || network->prefix > 32 ||
		network->mtu > 65535)
		return invalid(reterr, "the network is not valid");
	request->has_network = true;
	memcpy(request->network.mac, network->mac.data, sizeof(request->network.mac));
	request->network.address = network->address;
	request->network.prefix = network->prefix;
	request->network.gateway = network->gateway;
	request->network.mtu = network->mtu;
	return 0;
}

static int take_hostname(struct request *request, const char *hostname, struct err *reterr)
{
	if (strlen(hostname) > 63 || strpbrk(hostname, "/ \t\n\r#"))
		return invalid(reterr, "the host name is longer than 63 bytes or has a character that none has");
	request->hostname = hostname;
	return 0;
}

static int take_configure(struct request *request, const Croft__GuestConfigure *configure, struct err *reterr)
{
	if (take_hostname(request, configure->hostname, reterr) < 0)
		return -EINVAL;
	if (configure->realtime_us < 0)
		return invalid(reterr, "the time is negative");
	request->default_user = configure->default_user;
	request->realtime_usec = configure->realtime_us;
	if (configure->network && take_network(request, configure->network, reterr) < 0)
		return -EINVAL;
	return take_env(request, configure->env, configure->n_env, reterr);
}

static int take_wake(struct request *request, const Croft__GuestWake *wake, struct err *reterr)
{
	if (wake->realtime_us < 0)
		return invalid(reterr, "the time is negative");
	if (wake->entropy.len < ENTROPY_MIN || wake->entropy.len > ENTROPY_MAX)
		return invalid(reterr, "there are 32 to 256 bytes of entropy");
	request->realtime_usec = wake->realtime_us;
	request->data = wake->entropy.data;
	request->size = wake->entropy.len;
	if (take_hostname(request, wake->hostname, reterr) < 0)
		return -EINVAL;
	if (wake->network && take_network(request, wake->network, reterr) < 0)
		return -EINVAL;
	return take_env(request, wake->env, wake->n_env, reterr);
}

static void take_selector(struct request *request, uint32_t pid, const char *tag)
{
	request->pid = pid;
	request->tag = tag;
}

static int take_body(struct request *request, const Croft__GuestRequest *message, struct err *reterr)
{
	switch (message->body_case) {
	case CROFT__GUEST_REQUEST__BODY_INFO:
		request->kind = REQUEST_INFO;
		return 0;
	case CROFT__GUEST_REQUEST__BODY_CONFIGURE:
		request->kind = REQUEST_CONFIGURE;
		return take_configure(request, message->configure, reterr);
	case CROFT__GUEST_REQUEST__BODY_START:
		request->kind = REQUEST_START;
		return take_start(request, message->start, reterr);
	case CROFT__GUEST_REQUEST__BODY_CONNECT:
		request->kind = REQUEST_CONNECT;
		take_selector(request, message->connect->pid, message->connect->tag);
		return 0;
	case CROFT__GUEST_REQUEST__BODY_LIST:
		request->kind = REQUEST_LIST;
		return 0;
	case CROFT__GUEST_REQUEST__BODY_SIGNAL:
		request->kind = REQUEST_SIGNAL;
		take_selector(request, message->signal->pid, message->signal->tag);
		if (message->signal->signal < 1 || message->signal->signal >= (uint32_t) NSIG)
			return invalid(reterr, "there is no such signal");
		request->signal = (int) message->signal->signal;
		return 0;
	case CROFT__GUEST_REQUEST__BODY_INPUT:
		request->kind = REQUEST_INPUT;
		take_selector(request, message->input->pid, message->input->tag);
		request->data = message->input->data.data;
		request->size = message->input->data.len;
		return 0;
	case CROFT__GUEST_REQUEST__BODY_CLOSE_STDIN:
		request->kind = REQUEST_CLOSE_STDIN;
		take_selector(request, message->close_stdin->pid, message->close_stdin->tag);
		return 0;
	case CROFT__GUEST_REQUEST__BODY_RESIZE:
		request->kind = REQUEST_RESIZE;
		take_selector(request, message->resize->pid, message->resize->tag);
		return take_size(request, message->resize->size, reterr);
	case CROFT__GUEST_REQUEST__BODY_POWER_OFF:
		request->kind = REQUEST_POWER_OFF;
		return 0;
	case CROFT__GUEST_REQUEST__BODY_FREEZE:
		request->kind = REQUEST_FREEZE;
		return 0;
	case CROFT__GUEST_REQUEST__BODY_WAKE:
		request->kind = REQUEST_WAKE;
		return take_wake(request, message->wake, reterr);
	case CROFT__GUEST_REQUEST__BODY_THAW:
		request->kind = REQUEST_THAW;
		request->realtime_usec = message->thaw->realtime_us;
		return 0;
	case CROFT__GUEST_REQUEST__BODY_DIFF:
		request->kind = REQUEST_DIFF;
		return 0;
	default: /* the generated enum has members of its own, and a newer peer may ask for more */
		return err_set(reterr, FAIL_FRAME_UNSUPPORTED, ENOSYS, "croft-guest does not know this request");
	}
}

int request_parse(struct request **ret, const uint8_t *data, size_t size, struct err *reterr)
{
	CLEANUP(request_freep) struct request *request = calloc(1, sizeof(*request));
	Croft__GuestRequest *message;
	int r;

	if (!request)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a request");
	request->tag = request->cmd = request->cwd = request->user = request->traceparent = "";
	request->hostname = request->default_user = "";
	message = unpack(data, size);
	if (!message)
		return err_set(reterr, FAIL_FRAME_INVALID, EBADMSG, "the request is no GuestRequest");
	request->message = message;
	r = take_body(request, message, reterr);
	if (r < 0)
		return r;
	*ret = TAKE(request);
	return 0;
}

void request_free(struct request *request)
{
	if (!request)
		return;
	strv_free(request->args);
	strv_free(request->env);
	croft__guest_request__free_unpacked(request->message, NULL); /* NULL is fine; malloc's free is its own */
	free(request);
}
