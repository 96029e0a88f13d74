/* SPDX-License-Identifier: Apache-2.0
 *
 * See request.h: what a sandbox may reach, as E2B's clients say it. Members that would widen or rewrite traffic in a way
 * that no node does yet are refused by name: who sends them counts on them.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/request.h"
#include "wire/json.h"

#define FIELD_SIZE 48

struct place {
	const char *prefix; /* "network." or "" */
};

static void name_field(char ret[static FIELD_SIZE], const struct place *place, const char *member)
{
	(void)snprintf(ret, FIELD_SIZE, "%s%s", place->prefix, member);
}

static int invalid(const char *field, const char *why, struct err *reterr)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s", field, why);
	err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

/* Names are compared in lower case. */
static int add_rule(struct net_policy *policy, const json_t *value, const char *field,
	int (*add)(struct net_policy *, const char *, struct err *), struct err *reterr)
{
	char text[NET_NAME_SIZE + 2];
	size_t n = json_is_string(value) ? json_string_length(value) : 0;
	int r;

	if (n == 0 || n >= sizeof(text) || strlen(json_string_value(value)) != n)
		return invalid(field, "must be a CIDR block, an address or a host name", reterr);
	for (size_t i = 0; i <= n; i++)
		text[i] = (char)tolower((unsigned char)json_string_value(value)[i]);
	r = add(policy, text, reterr);
	if (r < 0)
		err_add(reterr, "field", "%s", field);
	return r;
}

static int read_list(const json_t *object, const struct place *place, const char *member, struct net_policy *policy,
	int (*add)(struct net_policy *, const char *, struct err *), struct err *reterr)
{
	const json_t *list = json_object_get(object, member), *value;
	char name[FIELD_SIZE];
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	name_field(name, place, member);
	if (!json_is_array(list))
		return invalid(name, "must be an array of CIDR blocks, addresses and host names", reterr);
	json_array_foreach(list, i, value)
	{
		char field[FIELD_SIZE + 24];
		int r;

		(void)snprintf(field, sizeof(field), "%s[%zu]", name, i);
		r = add_rule(policy, value, field, add, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool is_empty(const json_t *value)
{
	return !value || json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0);
}

static int check_unsupported(const json_t *object, const struct place *place, struct err *reterr)
{
	static const char *const members[] = { "rules", "egressProxy" };

	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		char name[FIELD_SIZE];

		if (is_empty(json_object_get(object, members[i])))
			continue;
		name_field(name, place, members[i]);
		(void)err_set(reterr, FAIL_UNSUPPORTED, ENOTSUP, "%s is not supported", name);
		err_add(reterr, "field", "%s", name);
		return -ENOTSUP;
	}
	return 0;
}

/* The lists of one object. */
static int read_lists(const json_t *object, const struct place *place, struct net_policy *policy, struct err *reterr)
{
	char name[FIELD_SIZE];
	int r = check_unsupported(object, place, reterr);

	if (r == 0)
		r = read_list(object, place, "allowOut", policy, net_policy_allow, reterr);
	if (r == 0)
		r = read_list(object, place, "denyOut", policy, net_policy_deny, reterr);
	if (r < 0)
		return r;
	name_field(name, place, "allowOut");
	/* whoever names hosts wants the rest closed; that it stays open would be found out too late */
	if (policy->n_allow_names > 0 && !net_policy_is_closed(policy))
		return invalid(name, "names a host while everything is allowed: put \"0.0.0.0/0\" into denyOut", reterr);
	return 0;
}

static int read_internet(const json_t *body, struct net_policy *policy, struct err *reterr)
{
	policy->internet = true;
	if (json_is_null(json_object_get(body, "allow_internet_access")))
		return 0;
	return json_get_bool(body, "allow_internet_access", &policy->internet, reterr);
}

int request_network_create(const json_t *body, struct net_policy *ret, struct err *reterr)
{
	static const struct place place = { "network." };
	const json_t *network = json_object_get(body, "network");
	int r = read_internet(body, ret, reterr);

	if (r < 0 || !network || json_is_null(network))
		return r;
	if (!json_is_object(network))
		return invalid("network", "must be an object", reterr);
	return read_lists(network, &place, ret, reterr);
}

int request_network_update(const json_t *body, struct net_policy *ret, struct err *reterr)
{
	static const struct place place = { "" };
	int r = read_internet(body, ret, reterr);

	return r < 0 ? r : read_lists(body, &place, ret, reterr);
}
