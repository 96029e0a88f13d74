/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables behind failure.h, each made by including failure.def once.
 */
#include "base/failure.h"

#include <string.h>

#include "base/util.h"
#include "responsibility.h"

struct stage_row {
	const char *name;
	const char *what;
};

static const struct stage_row stages[STAGE_MAX_] = {
	[STAGE_NONE] = { "none", "no stage" },
#define STAGE(id, name, what) [STAGE_##id] = { name, what },
#define COMPONENT(id, name)
#define OWNER(id, name)
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef COMPONENT
#undef OWNER
#undef CLASS
#undef FAILURE
};

struct component_row {
	const char *name;
	enum fail_owner owner[2];
};

static const struct component_row components[COMPONENT_MAX_] = {
	[COMPONENT_NONE] = { "none", { OWNER_NONE, OWNER_NONE } },
#define STAGE(id, name, what)
#define COMPONENT(id, name) [COMPONENT_##id] = { name, { MANAGED_##id, SELF_##id } },
#define OWNER(id, name)
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef STAGE
#undef OWNER
#undef CLASS
#undef FAILURE
};

static const char *const owners[OWNER_MAX_] = {
	[OWNER_NONE] = "none",
#define STAGE(id, name, what)
#define COMPONENT(id, name)
#define OWNER(id, name) [OWNER_##id] = name,
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef STAGE
#undef COMPONENT
#undef CLASS
#undef FAILURE
};

struct class_row {
	const char *name;
	bool retryable;
	const char *what;
};

static const struct class_row classes[CLASS_MAX_] = {
	[CLASS_NONE] = { "none", false, "no class" },
#define STAGE(id, name, what)
#define COMPONENT(id, name)
#define OWNER(id, name)
#define CLASS(id, name, retryable, what) [CLASS_##id] = { name, retryable, what },
#define FAILURE(code, stage, component, class, http, remedy)
#include "failure.def"
#undef STAGE
#undef COMPONENT
#undef OWNER
#undef FAILURE
};

static const struct failure_info failures[FAIL_MAX_] = {
	[FAIL_NONE] = { "UNKNOWN", "Read the logs; this code is not in the table.", STAGE_HOST,
		COMPONENT_NODE_SOFTWARE, CLASS_BUG, 500 },
#define STAGE(id, name, what)
#define COMPONENT(id, name)
#define OWNER(id, name)
#define CLASS(id, name, retryable, what)
#define FAILURE(code, stage, component, class, http, remedy)                                       \
	[FAIL_##code] = { #code, remedy, STAGE_##stage, COMPONENT_##component, CLASS_##class, http },
#include "failure.def"
#undef STAGE
#undef COMPONENT
#undef OWNER
#undef CLASS
};

const struct failure_info *failure_info(enum fail_code code)
{
	return &failures[(unsigned int) code < FAIL_MAX_ ? code : FAIL_NONE];
}

const char *stage_name(enum fail_stage stage)
{
	return (unsigned int) stage < STAGE_MAX_ ? stages[stage].name : "unknown";
}

const char *stage_what(enum fail_stage stage)
{
	return (unsigned int) stage < STAGE_MAX_ ? stages[stage].what : "unknown";
}

const char *component_name(enum fail_component component)
{
	return (unsigned int) component < COMPONENT_MAX_ ? components[component].name : "unknown";
}

const char *owner_name(enum fail_owner owner)
{
	return (unsigned int) owner < OWNER_MAX_ ? owners[owner] : "unknown";
}

const char *class_name(enum fail_class class)
{
	return (unsigned int) class < CLASS_MAX_ ? classes[class].name : "unknown";
}

const char *class_what(enum fail_class class)
{
	return (unsigned int) class < CLASS_MAX_ ? classes[class].what : "unknown";
}

bool class_is_retryable(enum fail_class class)
{
	return (unsigned int) class < CLASS_MAX_ && classes[class].retryable;
}

enum fail_owner component_owner(enum fail_component component, enum responsibility table)
{
	if ((unsigned int) component >= COMPONENT_MAX_)
		return OWNER_NONE;
	return components[component].owner[table];
}

void responsibility_default(enum responsibility which, struct responsibility_table *ret)
{
	for (unsigned int i = 0; i < COMPONENT_MAX_; i++)
		ret->owner[i] = components[i].owner[which];
}

const struct duty *responsibility_duties(unsigned int *ret_n)
{
	static const struct duty duties[] = {
#define DUTY(name, what, managed, self, components) { name, what, { managed, self }, components },
		DUTIES
#undef DUTY
	};

	*ret_n = ARRAY_LEN(duties);
	return duties;
}

enum fail_owner owner_by_name(const char *name)
{
	for (unsigned int i = 1; i < OWNER_MAX_; i++)
		if (!strcmp(owners[i], name))
			return (enum fail_owner) i;
	return OWNER_NONE;
}

enum fail_stage stage_by_name(const char *name)
{
	for (unsigned int i = 1; i < STAGE_MAX_; i++)
		if (!strcmp(stages[i].name, name))
			return (enum fail_stage) i;
	return STAGE_NONE;
}

enum fail_component component_by_name(const char *name)
{
	for (unsigned int i = 1; i < COMPONENT_MAX_; i++)
		if (!strcmp(components[i].name, name))
			return (enum fail_component) i;
	return COMPONENT_NONE;
}

enum fail_class class_by_name(const char *name)
{
	for (unsigned int i = 1; i < CLASS_MAX_; i++)
		if (!strcmp(classes[i].name, name))
			return (enum fail_class) i;
	return CLASS_NONE;
}

enum fail_code failure_by_name(const char *name)
{
	for (unsigned int i = 1; i < FAIL_MAX_; i++)
		if (!strcmp(failures[i].name, name))
			return (enum fail_code) i;
	return FAIL_NONE;
}
