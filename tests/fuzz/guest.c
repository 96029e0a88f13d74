/* SPDX-License-Identifier: Apache-2.0
 *
 * guest.proto: FUZZ_REQUEST is the guest's side of it, FUZZ_EVENT the gateway's, which has a hostile guest before it.
 * The bytes are a stream of frames, cut by the frames' own lengths.
 */
#include "fuzz.h"

#include "base/frame.h"
#include "base/log.h"
#ifdef FUZZ_REQUEST
#include "guest/request.h"
#define FRAME_MAX REQUEST_FRAME_MAX
#else
#include "gateway/guest-wire.h"
#include "gateway/process-event.h"
#define FRAME_MAX GUEST_FRAME_MAX
#endif

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	size_t n;

	if (size < FRAME_HEAD)
		return LLVMFuzzerMutate(data, size, max_size);
	n = mutate_message(data, size, max_size, seed, FRAME_HEAD);
	if (seed % 3 && n >= FRAME_HEAD) { /* a length that fits, mostly */
		uint32_t length = (uint32_t) (n - FRAME_HEAD);

		for (unsigned int i = 0; i < 4; i++)
			data[i] = (uint8_t) (length >> (24 - 8 * i));
	}
	return n;
}

#ifdef FUZZ_REQUEST
static void take_frame(const uint8_t *data, size_t size)
{
	struct request *request = NULL;
	struct err err = ERR_NULL;

	if (request_parse(&request, data, size, &err) < 0) {
		CLAIM(err.code != FAIL_NONE);
		return;
	}
	if (request->kind == REQUEST_START) {
		CLAIM(request->cmd && request->cwd && request->user && request->tag && request->args && request->env);
		for (char **arg = request->args; *arg; arg++)
			CLAIM(strlen(*arg) <= REQUEST_FRAME_MAX);
	}
	request_free(request);
}
#else
static void take_frame(const uint8_t *data, size_t size)
{
	struct guest_event event;
	struct err err = ERR_NULL;
	json_t *json = NULL;

	if (guest_event_decode(data, size, &event, &err) < 0) {
		CLAIM(err.code != FAIL_NONE);
		return;
	}
	switch (event.kind) {
	case GUEST_EVENT_DATA:
		CLAIM(event.data.size <= GUEST_FRAME_MAX);
		json = process_event_data(&event.data);
		CLAIM(json);
		break;
	case GUEST_EVENT_ENDED:
		json = process_event_end(&event.ended, &(struct failure_context){ 0 });
		CLAIM(json);
		break;
	case GUEST_EVENT_PROCESSES:
		json = process_list(event.processes, event.n_processes);
		CLAIM(json);
		break;
	case GUEST_EVENT_FAILURE:
		CLAIM(event.failure.code != FAIL_NONE);
		break;
	case GUEST_EVENT_CHANGES:
		for (size_t i = 0; i < event.n_changes; i++)
			CLAIM(event.changes[i].path_size > 1 && event.changes[i].path[0] == '/' && event.changes[i].kind < CHANGE_MAX_ &&
				event.changes[i].type < FILE_TYPE_MAX_);
		break;
	case GUEST_EVENT_DONE:
	case GUEST_EVENT_STARTED:
	case GUEST_EVENT_UNKNOWN:
		break;
	}
	json_decref(json);
	guest_event_deinit(&event);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf in = BUF_NULL(2 * FRAME_MAX);
	const uint8_t *frame;
	size_t n;

	if (size <= FRAME_MAX && buf_append(&in, data, size) == 0)
		while (frame_peek(&in, FRAME_MAX, &frame, &n) == FRAME_WHOLE) {
			take_frame(frame, n);
			frame_consume(&in, n);
		}
	buf_deinit(&in);
	return 0;
}
