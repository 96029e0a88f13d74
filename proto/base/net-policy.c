/* SPDX-License-Identifier: Apache-2.0
 *
 * See net-policy.h.
 */
#include "base/net-policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* ---- names ---- */

static bool label_is_valid(const char *label, size_t n)
{
	if (n == 0 || n > 63 || label[0] == '-' || label[n - 1] == '-')
		return false;
	return strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") >= n;
}

bool net_name_is_valid(const char *name, bool wildcard)
{
	if (wildcard && !strncmp(name, "*.", 2))
		name += 2;
	if (*name == '\0' || strlen(name) >= NET_NAME_SIZE)
		return false;
	for (;;) {
		size_t n = strcspn(name, ".");

		if (!label_is_valid(name, n))
			return false;
		if (name[n] == '\0')
			/* nobody's top level is a number: that would be an address in disguise */
			return strspn(name, "0123456789") < n;
		name += n + 1;
	}
}

/* ---- lists ---- */

void net_policy_deinit(struct net_policy *policy)
{
	free(policy->allow);
	free(policy->deny);
	free(policy->allow_names);
	free(policy->deny_names);
	memset(policy, 0, sizeof(*policy));
}

static int full(struct err *reterr, const char *text)
{
	return err_set(reterr, FAIL_INVALID_ARGUMENT, E2BIG, "too many network rules, at \"%.60s\"", text);
}

static int no_memory(struct err *reterr)
{
	return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a network rule");
}

static int add_cidr(struct net_cidr **list, size_t *n, const char *text, struct err *reterr)
{
	struct net_cidr cidr, *grown;
	int r = net_cidr_parse(text, &cidr, reterr);

	if (r < 0)
		return r;
	if (*n >= NET_RULES_MAX)
		return full(reterr, text);
	grown = reallocarray(*list, *n + 1, sizeof(cidr));
	if (!grown)
		return no_memory(reterr);
	*list = grown;
	grown[(*n)++] = cidr;
	return 0;
}

static int add_name(char (**list)[NET_NAME_SIZE], size_t *n, const char *text, struct err *reterr)
{
	char (*grown)[NET_NAME_SIZE];

	if (!net_name_is_valid(text, true)) {
		(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL,
			"\"%.60s\" is neither a CIDR block nor a host name", text);
		err_add(reterr, "name", "%.60s", text);
		return -EINVAL;
	}
	if (*n >= NET_NAMES_MAX)
		return full(reterr, text);
	grown = reallocarray(*list, *n + 1, NET_NAME_SIZE);
	if (!grown)
		return no_memory(reterr);
	*list = grown;
	(void)snprintf(grown[(*n)++], NET_NAME_SIZE, "%s", text);
	return 0;
}

/* No host name looks like this: see net_name_is_valid(). */
static bool looks_like_address(const char *text)
{
	return strchr(text, ':') || strchr(text, '/') || text[strspn(text, "0123456789.")] == '\0';
}

int net_policy_allow(struct net_policy *policy, const char *text, struct err *reterr)
{
	if (looks_like_address(text))
		return add_cidr(&policy->allow, &policy->n_allow, text, reterr);
	return add_name(&policy->allow_names, &policy->n_allow_names, text, reterr);
}

int net_policy_deny(struct net_policy *policy, const char *text, struct err *reterr)
{
	if (looks_like_address(text))
		return add_cidr(&policy->deny, &policy->n_deny, text, reterr);
	return add_name(&policy->deny_names, &policy->n_deny_names, text, reterr);
}

bool net_policy_is_closed(const struct net_policy *policy)
{
	if (!policy->internet)
		return true;
	for (size_t i = 0; i < policy->n_deny; i++)
		if (policy->deny[i].addr.family == NET_V4 && policy->deny[i].prefix == 0)
			return true;
	return false;
}

/* ---- copies ---- */

/* An empty list stays NULL. */
static int copy_list(const void *from, size_t n, size_t size, void *ret)
{
	void *copy = n ? calloc(n, size) : NULL;

	if (n && !copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, from, n * size);
	memcpy(ret, &copy, sizeof(copy));
	return 0;
}

int net_policy_copy(const struct net_policy *policy, struct net_policy *ret)
{
	struct net_policy copy = { .internet = policy->internet };

	if (copy_list(policy->allow, policy->n_allow, sizeof(*policy->allow), &copy.allow) < 0 ||
		copy_list(policy->deny, policy->n_deny, sizeof(*policy->deny), &copy.deny) < 0 ||
		copy_list(policy->allow_names, policy->n_allow_names, NET_NAME_SIZE, &copy.allow_names) < 0 ||
		copy_list(policy->deny_names, policy->n_deny_names, NET_NAME_SIZE, &copy.deny_names) < 0) {
		net_policy_deinit(&copy);
		return -ENOMEM;
	}
	copy.n_allow = policy->n_allow;
	copy.n_deny = policy->n_deny;
	copy.n_allow_names = policy->n_allow_names;
	copy.n_deny_names = policy->n_deny_names;
	*ret = copy;
	return 0;
}

static bool blocks_are_equal(const struct net_cidr *a, const struct net_cidr *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i].prefix != b[i].prefix || net_addr_compare(&a[i].addr, &b[i].addr) != 0)
			return false;
	return true;
}

static bool names_are_equal(char (*a)[NET_NAME_SIZE], char (*b)[NET_NAME_SIZE], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

bool net_policy_is_equal(const struct net_policy *a, const struct net_policy *b)
{
	return a->internet == b->internet && a->n_allow == b->n_allow && a->n_deny == b->n_deny &&
	       a->n_allow_names == b->n_allow_names && a->n_deny_names == b->n_deny_names &&
	       blocks_are_equal(a->allow, b->allow, a->n_allow) && blocks_are_equal(a->deny, b->deny, a->n_deny) &&
	       names_are_equal(a->allow_names, b->allow_names, a->n_allow_names) &&
	       names_are_equal(a->deny_names, b->deny_names, a->n_deny_names);
}
