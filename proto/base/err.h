/* SPDX-License-Identifier: Apache-2.0
 *
 * The error object that an operation fills when a user or another process can see it fail.
 *
 * It is made once, at its origin, from structure (an errno, a state), never from a text; what travels up
 * is the same object. First failure wins: err_set() on an error that is set already changes nothing, so a
 * failing clean-up cannot hide the cause. Fixed size, owned by the caller, no allocation: it works under
 * ENOMEM and can be copied.
 *
 * Return convention of the whole project: int 0 or -errno (forwarded, never matched on except for system
 * and library calls at the call site); an enum for the answers to a question; bool for predicates.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"
#include "base/util.h"

#define ERR_FIELDS_MAX 6
#define ERR_KEY_MAX 24
#define ERR_VALUE_MAX 96
#define ERR_MSG_MAX 256

/* One structured detail, e.g. {"asked_mb", "65536"}. */
struct err_field {
	char key[ERR_KEY_MAX];
	char value[ERR_VALUE_MAX];
};

struct err {
	enum fail_code code;   /* FAIL_NONE: no error */
	enum fail_stage stage; /* from the row of `code` unless the origin named another */
	enum fail_component component; /* likewise */
	int err_no;            /* positive errno, 0 where none applies */
	unsigned int n_fields;
	struct err_field fields[ERR_FIELDS_MAX];
	char msg[ERR_MSG_MAX]; /* a whole sentence without trailing newline */
};

#define ERR_NULL { .code = FAIL_NONE }

/* Sets the error unless one is set. `err_no` is a positive errno or 0. Returns -err_no, or -EIO when that
 * is 0, so that `return err_set(...)` is a failure in every case. `err` may be NULL. */
int err_set(struct err *err, enum fail_code code, int err_no, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* The same with a stage other than the usual one of the code. */
int err_set_at(struct err *err, enum fail_stage stage, enum fail_code code, int err_no, const char *fmt, ...)
	PRINTF_LIKE(5, 6);

/* Adds one structured detail; what is over ERR_FIELDS_MAX or too long is cut. */
void err_add(struct err *err, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts context in front of the message. Returns what err_set() would have. */
int err_prefix(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The value of a detail, NULL when it is absent. */
const char *err_field(const struct err *err, const char *key);

static inline bool err_is_set(const struct err *err)
{
	return err->code != FAIL_NONE;
}

static inline enum fail_class err_class(const struct err *err)
{
	return failure_info(err->code)->class;
}

static inline bool err_is_retryable(const struct err *err)
{
	return class_is_retryable(err_class(err));
}

/* One line for a log or a terminal: "vmm KVM_UNAVAILABLE (node-host): message: remedy". */
void err_format(const struct err *err, char *buf, size_t size);

#ifdef CROFT_ORIGINS
#include "lib/origins.h" /* tests only: where failures are made */
#endif
