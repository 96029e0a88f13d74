/* SPDX-License-Identifier: Apache-2.0
 *
 * Enums and name tables made from failure.def: stages, components, owners, classes, codes.
 * Every name function returns a static string for every value, "unknown" outside the table.
 */
#pragma once

#include <stdbool.h>

enum fail_stage {
	STAGE_NONE,
#define STAGE(id, name, what) STAGE_##id,
#define COMPONENT(id, name)
#define OWNER(id, name)
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef COMPONENT
#undef OWNER
#undef CLASS
#undef FAILURE
	STAGE_MAX_
};

/* The stages of a start are STAGE_ADMIT .. STAGE_READY. */
#define STAGE_START_COUNT 13

enum fail_component {
	COMPONENT_NONE,
#define STAGE(id, name, what)
#define COMPONENT(id, name) COMPONENT_##id,
#define OWNER(id, name)
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef STAGE
#undef OWNER
#undef CLASS
#undef FAILURE
	COMPONENT_MAX_
};

enum fail_owner {
	OWNER_NONE,
#define STAGE(id, name, what)
#define COMPONENT(id, name)
#define OWNER(id, name) OWNER_##id,
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef STAGE
#undef COMPONENT
#undef CLASS
#undef FAILURE
	OWNER_MAX_
};

enum fail_class {
	CLASS_NONE,
#define STAGE(id, name, what)
#define COMPONENT(id, name)
#define OWNER(id, name)
#define CLASS(id, name, retryable, what) CLASS_##id,
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef STAGE
#undef COMPONENT
#undef OWNER
#undef FAILURE
	CLASS_MAX_
};

enum fail_code {
	FAIL_NONE,
#define STAGE(id, name, what)
#define COMPONENT(id, name)
#define OWNER(id, name)
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy) FAIL_##code,
#include "failure.def"
#undef STAGE
#undef COMPONENT
#undef OWNER
#undef CLASS
	FAIL_MAX_
};

enum responsibility { RESPONSIBILITY_MANAGED, RESPONSIBILITY_SELF };

/* What somebody has to see to, by contract, and the components whose failures follow from it. */
struct duty {
	const char *name;
	const char *what;
	enum fail_owner owner[2]; /* by enum responsibility */
	const char *components;   /* with blanks between; may be empty */
};

/* A pool's own table: whose each component is. */
struct responsibility_table {
	enum fail_owner owner[COMPONENT_MAX_];
};

struct failure_info {
	const char *name;     /* "NO_CAPACITY" */
	const char *remedy;   /* one sentence for the person who reads it */
	enum fail_stage stage; /* where it usually happens */
	enum fail_component component;
	enum fail_class class;
	int http;             /* status of an HTTP answer that carries it */
};

/* The row of `code`; a row named "UNKNOWN" (class bug) for a value outside the table. */
const struct failure_info *failure_info(enum fail_code code);

const char *stage_name(enum fail_stage stage);
const char *stage_what(enum fail_stage stage);
const char *component_name(enum fail_component component);
const char *owner_name(enum fail_owner owner);
const char *class_name(enum fail_class class);
const char *class_what(enum fail_class class);
bool class_is_retryable(enum fail_class class);
enum fail_owner component_owner(enum fail_component component, enum responsibility table);
/* One of the two default tables, to be changed where a pool differs. */
void responsibility_default(enum responsibility which, struct responsibility_table *ret);
/* All duties, of installer/responsibility.ini. */
const struct duty *responsibility_duties(unsigned int *ret_n);

/* Lookups by name, for records that come from a peer; the ..._NONE value when there is none. */
enum fail_stage stage_by_name(const char *name);
enum fail_component component_by_name(const char *name);
enum fail_owner owner_by_name(const char *name);
enum fail_class class_by_name(const char *name);
enum fail_code failure_by_name(const char *name);
