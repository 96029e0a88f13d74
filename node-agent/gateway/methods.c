/* SPDX-License-Identifier: Apache-2.0
 *
 * See methods.h.
 */
#include "gateway/methods.h"

#include <string.h>

#include "gateway/audit.h"
#include "gateway/diff.h"
#include "gateway/stream.h"
#include "gateway/unary.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static void run_health(struct call *call, const char *body, size_t size)
{
	(void) body;
	(void) size;
	/* 204 and nothing else: a 200 whose body is no JSON makes the SDKs throw. */
	call_respond_empty(call, 204);
}

/* clang-format off */
static const struct call_method methods[] = {
	{ "/health",                                  "GET",  CALL_REST,   STAGE_EXEC,  KIB,     run_health },
	{ "/croft/diff",                              "GET",  CALL_REST,   STAGE_FILES, KIB,     diff_run },
	{ "/croft/audit",                             "GET",  CALL_REST,   STAGE_FILES, KIB,     audit_run },
	{ "/process.Process/Start",                   "POST", CALL_STREAM, STAGE_EXEC,  2 * MIB, stream_start },
	{ "/process.Process/Connect",                 "POST", CALL_STREAM, STAGE_EXEC,  64 * KIB, stream_connect },
	{ "/process.Process/List",                    "POST", CALL_UNARY,  STAGE_EXEC,  64 * KIB, unary_list },
	{ "/process.Process/SendInput",               "POST", CALL_UNARY,  STAGE_EXEC,  8 * MIB, unary_send_input },
	{ "/process.Process/SendSignal",              "POST", CALL_UNARY,  STAGE_EXEC,  64 * KIB, unary_send_signal },
	{ "/process.Process/CloseStdin",              "POST", CALL_UNARY,  STAGE_EXEC,  64 * KIB, unary_close_stdin },
	{ "/process.Process/Update",                  "POST", CALL_UNARY,  STAGE_EXEC,  64 * KIB, unary_update },
	{ "/process.Process/StreamInput",             "POST", CALL_STREAM, STAGE_EXEC,  KIB,     NULL },
	{ "/filesystem.Filesystem/Stat",              "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/ListDir",           "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/MakeDir",           "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/Move",              "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/Remove",            "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/WatchDir",          "POST", CALL_STREAM, STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/CreateWatcher",     "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/GetWatcherEvents",  "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/filesystem.Filesystem/RemoveWatcher",     "POST", CALL_UNARY,  STAGE_FILES, KIB,     NULL },
	{ "/files",                                   NULL,   CALL_REST,   STAGE_FILES, KIB,     NULL },
};
/* clang-format on */

bool method_is_health(const struct call_method *method)
{
	return method && method->run == run_health;
}

const struct call_method *method_find(const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (!strcmp(methods[i].path, path))
			return &methods[i];
	return NULL;
}

enum call_shape method_shape_of(const char *path)
{
	static const char *const services[] = { "/process.Process/", "/filesystem.Filesystem/" };

	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		if (!strncmp(path, services[i], strlen(services[i])))
			return CALL_UNARY;
	return CALL_REST;
}

const struct call_method *method_table(size_t *ret_n)
{
	*ret_n = ARRAY_LEN(methods);
	return methods;
}
