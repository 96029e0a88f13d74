/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages.h: network policies, and the command that changes one.
 */
#include "wire/messages-private.h"

/* ---- encoding ---- */

static bool put_block(char ***list, size_t *n, const struct net_cidr *cidr)
{
	char text[NET_CIDR_TEXT];

	net_cidr_format(cidr, text);
	(*list)[*n] = strdup(text);
	return (*list)[(*n)++] != NULL;
}

static bool put_rules(char ***list, size_t *n, const struct net_cidr *blocks, size_t n_blocks,
	char (*names)[NET_NAME_SIZE], size_t n_names)
{
	if (n_blocks + n_names == 0)
		return true;
	*list = calloc(n_blocks + n_names, sizeof(**list));
	if (!*list)
		return false;
	for (size_t i = 0; i < n_blocks; i++)
		if (!put_block(list, n, &blocks[i]))
			return false;
	for (size_t i = 0; i < n_names; i++) {
		(*list)[*n] = strdup(names[i]);
		if (!(*list)[(*n)++])
			return false;
	}
	return true;
}

Croft__NetworkPolicy *net_policy_encode(const struct net_policy *policy)
{
	Croft__NetworkPolicy *to = NEW(network_policy, NetworkPolicy);

	if (!to)
		return NULL;
	to->internet = policy->internet;
	if (!put_rules(&to->allow, &to->n_allow, policy->allow, policy->n_allow, policy->allow_names,
		    policy->n_allow_names) ||
		!put_rules(&to->deny, &to->n_deny, policy->deny, policy->n_deny, policy->deny_names,
			policy->n_deny_names))
		return DROP(to);
	return to;
}

Croft__NetworkUpdate *network_command_encode(const struct network_command *command)
{
	Croft__NetworkUpdate *to = NEW(network_update, NetworkUpdate);

	if (!to)
		return NULL;
	to->generation = command->generation;
	to->number = command->number;
	if (!put_text(&to->sandbox, command->sandbox) || !put_text(&to->operation, command->operation) ||
		!(to->network = net_policy_encode(&command->network)))
		return DROP(to);
	return to;
}

/* ---- decoding ---- */

static int take_rule(struct net_policy *policy, const char *text,
	int (*add)(struct net_policy *, const char *, struct err *), struct err *reterr)
{
	int r = add(policy, text, NULL);

	if (r == -ENOMEM)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for a network policy.");
	return r < 0 ? refuse(reterr, "network") : 0;
}

int net_policy_decode(const Croft__NetworkPolicy *message, struct net_policy *ret, struct err *reterr)
{
	int r = 0;

	*ret = (struct net_policy){ .internet = !message || message->internet };
	if (!message)
		return 0;
	for (size_t i = 0; r == 0 && i < message->n_allow; i++)
		r = take_rule(ret, message->allow[i], net_policy_allow, reterr);
	for (size_t i = 0; r == 0 && i < message->n_deny; i++)
		r = take_rule(ret, message->deny[i], net_policy_deny, reterr);
	return r;
}

void network_command_deinit(struct network_command *command)
{
	net_policy_deinit(&command->network);
}

int network_command_decode(const Croft__NetworkUpdate *message, struct network_command *ret, struct err *reterr)
{
	struct network_command command = { .generation = message->generation, .number = message->number };
	int r;

	if (!take_id(command.sandbox, message->sandbox))
		return refuse(reterr, "sandbox");
	if (message->generation == 0)
		return refuse(reterr, "generation");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	if (!message->network)
		return refuse(reterr, "network");
	r = net_policy_decode(message->network, &command.network, reterr);
	if (r < 0) {
		network_command_deinit(&command);
		return r;
	}
	*ret = command;
	return 0;
}

/* ---- the specification with another policy ---- */

static bool copy_env(struct sandbox_spec *to, const struct sandbox_spec *from)
{
	for (size_t i = 0; i < from->n_env; i++)
		if (spec_add_env(to, from->env[i].key, from->env[i].value) < 0)
			return false;
	return true;
}

struct sandbox_spec *spec_with_network(const struct sandbox_spec *spec, const struct net_policy *network)
{
	CLEANUP(spec_unrefp) struct sandbox_spec *copy = spec_new();

	if (!copy)
		return NULL;
	*copy = *spec;
	copy->n_refs = 1;
	copy->env = NULL;
	copy->n_env = 0;
	copy->setup_command = NULL;
	copy->network = (struct net_policy){ .internet = true };
	if (!copy_env(copy, spec) || (spec->setup_command && spec_set_setup(copy, spec->setup_command) < 0) ||
		net_policy_copy(network, &copy->network) < 0)
		return NULL;
	return TAKE(copy);
}
