/* SPDX-License-Identifier: Apache-2.0
 *
 * The network slot of a sandbox: asked of croft-node-helper, with the TAP for its VMM; given back when the sandbox
 * is removed. A helper that starts again, or an agent that does, asks which slots there are, gives back those of
 * sandboxes that nobody knows any more, and sets the policy of the others as the journal has it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/helper-link.h"
#include "agent/meters.h"
#include "agent/resolver.h"
#include "agent/sandbox.h"
#include "base/fd.h"
#include "base/log.h"

static void post_network(struct sandbox *sandbox, bool is_made, const char *text, const struct err *err)
{
	struct post post = { .type = SV_EV_NETWORK_DONE, .generation = sandbox->generation, .is_whole = is_made };

	(void)snprintf(post.sandbox, sizeof(post.sandbox), "%s", sandbox->id);
	(void)snprintf(post.text, sizeof(post.text), "%s", text);
	if (err)
		post.err = *err;
	agent_post(sandbox->agent, &post);
}

static int ask(struct sandbox *sandbox, enum helper_type type, helper_done done, struct err *reterr)
{
	struct helper_request request = { .type = type, .generation = sandbox->generation };
	int r;

	memcpy(request.sandbox, sandbox->id, sizeof(request.sandbox));
	if (sandbox->net_spec)
		request.policy = sandbox->net_spec->network; /* lent: a request that is only sent owns nothing */
	r = helper_link_ask(sandbox->agent->helper, &request, NULL, 0, done, sandbox, reterr);
	sandbox->n_asks += r == 0; /* the object stays until the answer came */
	return r;
}

/* ---- its resolver ---- */

static void on_dns(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;
	sandbox->n_asks--;
	if (err_is_set(&reply->failure) || n_fds != 2) {
		log_failure(LOG_LEVEL_WARN, "a sandbox has no resolver", &reply->failure, "sandbox", sandbox->id, NULL);
		return;
	}
	/* the other is for TCP, which nothing here needs: no answer is ever cut short */
	if (!sandbox->net_spec ||
		resolver_add(sandbox->agent->resolver, sandbox->id, TAKE_FD(fds[0]), &sandbox->net_spec->network) < 0)
		log_error("no memory for a sandbox's resolver", "sandbox", sandbox->id);
}

static void open_resolver(struct sandbox *sandbox)
{
	struct err err = ERR_NULL;

	if (ask(sandbox, HELPER_DNS_OPEN, on_dns, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "a sandbox has no resolver", &err, "sandbox", sandbox->id, NULL);
}

/* ---- making ---- */

static void on_tap(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;
	char text[64], address[NET_ADDR_TEXT];
	struct net_addr addr = net_addr_v4(sandbox->slot.guest);

	sandbox->n_asks--;
	if (err_is_set(&reply->failure) || n_fds != 1) {
		post_network(sandbox, false, "", &reply->failure);
		return;
	}
	(void)fd_close(sandbox->tap);
	sandbox->tap = TAKE_FD(fds[0]);
	open_resolver(sandbox);
	net_addr_format(&addr, address);
	(void)snprintf(text, sizeof(text), "%s, %s", sandbox->slot.name, address);
	post_network(sandbox, true, text, NULL);
}

static void on_slot(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;
	struct err err = reply->failure;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (!err_is_set(&err) && reply->n_slots == 1) {
		sandbox->slot = reply->slots[0];
		sandbox->has_slot = true;
		if (ask(sandbox, HELPER_TAP_OPEN, on_tap, &err) == 0)
			return;
	}
	post_network(sandbox, false, "", &err);
}

static void keep_spec(struct sandbox *sandbox, struct sandbox_spec *spec)
{
	spec_ref(spec);
	spec_unref(sandbox->net_spec);
	sandbox->net_spec = spec;
}

void sandbox_make_network(struct sandbox *sandbox, struct sandbox_spec *spec)
{
	struct err err = ERR_NULL;

	keep_spec(sandbox, spec);
	if (!sandbox->agent->helper)
		post_network(sandbox, false, "no croft-node-helper: helper.socket is not set", NULL);
	else if (ask(sandbox, HELPER_SLOT_MAKE, on_slot, &err) < 0)
		post_network(sandbox, false, "", &err);
}

/* ---- another policy ---- */

/* The helper's rules, with the addresses that the resolver answered for names that are allowed now too. */
static int ask_policy(struct sandbox *sandbox, helper_done done, struct err *reterr)
{
	struct helper_request request = { .type = HELPER_POLICY_SET, .policy = sandbox->net_spec->network };
	CLEANUP_FREE struct net_pin *pins = calloc(NET_PINS_MAX, sizeof(*pins));
	int r;

	if (!pins)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a network policy");
	memcpy(request.sandbox, sandbox->id, sizeof(request.sandbox));
	request.pins = pins;
	request.n_pins = resolver_pins(sandbox->agent->resolver, sandbox->id, &request.policy, pins, NET_PINS_MAX);
	r = helper_link_ask(sandbox->agent->helper, &request, NULL, 0, done, sandbox, reterr);
	sandbox->n_asks += r == 0;
	return r;
}

/* err NULL: the new one holds; else the former still does. */
static void policy_set(struct sandbox *sandbox, const struct err *err)
{
	if (err && sandbox->net_former) {
		keep_spec(sandbox, sandbox->net_former);
		(void)resolver_set_policy(sandbox->agent->resolver, sandbox->id, &sandbox->net_spec->network);
	}
	sandbox->net_former = spec_unref(sandbox->net_former);
	sandbox_post(sandbox, SV_EV_NETWORK_SET, err);
}

static void on_policy(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	policy_set(sandbox, err_is_set(&reply->failure) ? &reply->failure : NULL);
}

void sandbox_set_network(struct sandbox *sandbox, struct sandbox_spec *spec)
{
	struct err err = ERR_NULL;

	if (!sandbox->agent->helper) { /* it has no network at all */
		sandbox_post(sandbox, SV_EV_NETWORK_SET, NULL);
		return;
	}
	spec_unref(sandbox->net_former);
	sandbox->net_former = spec_ref(sandbox->net_spec);
	keep_spec(sandbox, spec);
	/* the resolver first: no address is pinned for a name that only the former policy knew once the rules are new */
	(void)resolver_set_policy(sandbox->agent->resolver, sandbox->id, &spec->network);
	if (ask_policy(sandbox, on_policy, &err) < 0)
		policy_set(sandbox, &err);
}

/* Of its answer nothing hangs: what is left of the group is found by the removal. */
static void on_ignored(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;

	(void)reply, (void)fds, (void)n_fds;
	sandbox->n_asks--;
	sandbox_settle(sandbox);
}

static void on_given_back(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (err_is_set(&reply->failure))
		sandbox_post(sandbox, SV_EV_REMOVED, &reply->failure);
	else
		sandbox_remove_files(sandbox);
}

static void on_group_removed(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;
	struct err err = reply->failure;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (err_is_set(&err) || ask(sandbox, HELPER_SLOT_REMOVE, on_given_back, &err) < 0)
		sandbox_post(sandbox, SV_EV_REMOVED, &err);
}

void sandbox_give_back_network(struct sandbox *sandbox)
{
	struct err err = ERR_NULL;

	sandbox->tap = fd_close(sandbox->tap);
	if (sandbox->agent->resolver)
		resolver_remove(sandbox->agent->resolver, sandbox->id);
	sandbox_count_last(sandbox);
	meters_read_last(sandbox);
	if (!sandbox->agent->helper)
		sandbox_remove_files(sandbox);
	else if (ask(sandbox, HELPER_GROUP_KILL, on_ignored, &err) < 0 ||
		 ask(sandbox, HELPER_GROUP_REMOVE, on_group_removed, &err) < 0)
		sandbox_post(sandbox, SV_EV_REMOVED, &err);
}

/* ---- slots that nobody has ---- */

static int ask_list(struct agent *agent, uint32_t from);

static void on_policy_again(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct sandbox *sandbox = user;

	(void)fds, (void)n_fds;
	sandbox->n_asks--;
	if (err_is_set(&reply->failure))
		log_failure(LOG_LEVEL_ERROR, "a sandbox's network policy could not be set again", &reply->failure,
			"sandbox", sandbox->id, NULL);
	sandbox_settle(sandbox);
}

/* The agent may have ended between the journal and the act. Where the rules are these already, nothing is touched. */
static void set_again(struct sandbox *sandbox, struct sandbox_spec *spec)
{
	struct err err = ERR_NULL;

	sandbox->has_slot = true;
	keep_spec(sandbox, spec);
	if (ask_policy(sandbox, on_policy_again, &err) < 0)
		log_failure(LOG_LEVEL_ERROR, "a sandbox's network policy could not be set again", &err, "sandbox",
			sandbox->id, NULL);
	open_resolver(sandbox);
}

/* A slot that the helper has: its sandbox's policy and resolver are set anew, or it is given back. */
static void take_listed(struct agent *agent, const struct helper_slot *slot)
{
	static const enum helper_type parts[] = { HELPER_GROUP_KILL, HELPER_GROUP_REMOVE, HELPER_SLOT_REMOVE };
	struct sandbox *sandbox = sandbox_find(agent, slot->sandbox);
	struct sv_view view;

	if (supervisor_get(agent->supervisor, slot->sandbox, &view) == 0) {
		if (sandbox && view.spec && view.state < SV_REMOVING)
			set_again(sandbox, view.spec);
		return;
	}
	if (sandbox && !strcmp(slot->sandbox, SV_CANARY))
		return; /* the node's own test VM: no sandbox of the supervisor's, and gives its slot back itself */
	log_info("a network slot of a sandbox that is gone is given back", "sandbox", slot->sandbox, "slot",
		slot->name);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		struct helper_request request = { .type = parts[i] };

		memcpy(request.sandbox, slot->sandbox, sizeof(request.sandbox));
		(void)helper_link_ask(agent->helper, &request, NULL, 0, NULL, agent, NULL); /* else with the next hello */
	}
}

static void on_list(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct agent *agent = user;

	(void)fds, (void)n_fds;
	for (size_t i = 0; i < reply->n_slots; i++)
		take_listed(agent, &reply->slots[i]);
	agent->slots_listed += (uint32_t)reply->n_slots;
	/* the list may have moved under us: what is passed over now is seen with the next hello */
	if (reply->n_slots == HELPER_LIST_MAX)
		(void)ask_list(agent, agent->slots_listed);
}

static int ask_list(struct agent *agent, uint32_t from)
{
	struct helper_request request = { .type = HELPER_LIST, .from = from };

	agent->slots_listed = from;
	return helper_link_ask(agent->helper, &request, NULL, 0, on_list, agent, NULL);
}

static void on_up(const struct helper_reply *reply, void *user)
{
	struct agent *agent = user;

	agent->helper_starts_vmms = reply->facts.can_start_vmm;
	if (err_is_set(&reply->facts.network))
		agent_node_event(agent, "network-unavailable", "", "", &reply->facts.network);
	(void)ask_list(agent, 0);
}

int sandbox_net_open(struct agent *agent, struct err *reterr)
{
	int r;

	if (!*agent->options->helper_socket)
		return 0;
	r = helper_link_new(&agent->helper, agent->base, agent->options->helper_socket, on_up, agent, reterr);
	if (r == 0)
		r = resolver_new(&agent->resolver, agent->base, agent->helper, reterr);
	if (r == 0 && *agent->options->helper_dns &&
		resolver_set_upstream(agent->resolver, agent->options->helper_dns) < 0)
		r = err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "helper.dns: \"%.60s\" is no ADDRESS:PORT",
			agent->options->helper_dns);
	return r;
}

void sandbox_net_close(struct agent *agent)
{
	/* the link first: its callbacks hold lookups */
	helper_link_free(agent->helper);
	resolver_free(agent->resolver);
	agent->resolver = NULL;
	agent->helper = NULL;
}
