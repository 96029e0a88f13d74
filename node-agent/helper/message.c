/* SPDX-License-Identifier: Apache-2.0
 *
 * See message.h: requests. Replies are in reply.c.
 */
#include "helper/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "helper/edge.h"
#include "wire/check.h"

#define TASKS_MAX (1u << 20)
#define CPU_PERCENT_MAX (1024u * 100)

static const char *const names[HELPER_TYPE_MAX_] = {
	[HELPER_HELLO] = "hello",
	[HELPER_SLOT_MAKE] = "slot_make",
	[HELPER_SLOT_REMOVE] = "slot_remove",
	[HELPER_TAP_OPEN] = "tap_open",
	[HELPER_DNS_OPEN] = "dns_open",
	[HELPER_POLICY_SET] = "policy_set",
	[HELPER_PIN] = "pin",
	[HELPER_COUNTERS] = "counters",
	[HELPER_LIST] = "list",
	[HELPER_GROUP_MAKE] = "group_make",
	[HELPER_GROUP_KILL] = "group_kill",
	[HELPER_GROUP_REMOVE] = "group_remove",
	[HELPER_VMM_START] = "vmm_start",
	[HELPER_DISK_OPEN] = "disk_open",
	[HELPER_UPGRADE] = "upgrade",
};

const char *helper_type_name(enum helper_type type)
{
	return type < HELPER_TYPE_MAX_ ? names[type] : "unknown";
}

void helper_request_deinit(struct helper_request *request)
{
	net_policy_deinit(&request->policy);
	free(request->pins);
	request->pins = NULL;
	request->n_pins = 0;
}

/* ---- decoding ---- */

static int invalid(struct err *reterr, const char *what)
{
	return err_set(reterr, FAIL_FRAME_INVALID, EINVAL, "a request of the agent has no valid %s", what);
}

static int take_sandbox(const char *sandbox, struct helper_request *ret, struct err *reterr)
{
	if (!id_is_valid(sandbox))
		return invalid(reterr, "sandbox id");
	(void)snprintf(ret->sandbox, sizeof(ret->sandbox), "%s", sandbox);
	return 0;
}

static int take_policy(const Croft__HelperPolicy *policy, struct helper_request *ret, struct err *reterr)
{
	int r = 0;

	if (!policy)
		return invalid(reterr, "policy");
	ret->policy.internet = policy->internet;
	for (size_t i = 0; r == 0 && i < policy->n_allow; i++)
		r = net_policy_allow(&ret->policy, policy->allow[i], reterr);
	for (size_t i = 0; r == 0 && i < policy->n_deny; i++)
		r = net_policy_deny(&ret->policy, policy->deny[i], reterr);
	return r;
}

static int take_pins(Croft__HelperPin *const *pins, size_t n, struct helper_request *ret, struct err *reterr)
{
	if (n > NET_PINS_MAX)
		return invalid(reterr, "number of addresses");
	ret->pins = calloc(n ? n : 1, sizeof(*ret->pins));
	if (!ret->pins)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for addresses");
	for (size_t i = 0; i < n; i++) {
		if (pins[i]->ttl_sec == 0 || pins[i]->ttl_sec > HELPER_TTL_MAX)
			return invalid(reterr, "time to live");
		ret->pins[i] = (struct net_pin){ pins[i]->address, pins[i]->ttl_sec };
	}
	ret->n_pins = n;
	return 0;
}

static int take_slot_make(const Croft__HelperSlotMake *make, struct helper_request *ret, struct err *reterr)
{
	ret->generation = make->generation;
	return take_policy(make->policy, ret, reterr);
}

static int take_policy_set(const Croft__HelperPolicySet *set, struct helper_request *ret, struct err *reterr)
{
	int r = take_policy(set->policy, ret, reterr);

	return r < 0 ? r : take_pins(set->pins, set->n_pins, ret, reterr);
}

static int take_group(const Croft__HelperGroupMake *make, struct helper_request *ret, struct err *reterr)
{
	if (make->cpu_percent > CPU_PERCENT_MAX || make->tasks > TASKS_MAX || make->memory_bytes > INT64_MAX)
		return invalid(reterr, "limit of a control group");
	ret->limits = (struct helper_group_limits){ make->memory_bytes, make->cpu_percent, make->tasks };
	return 0;
}

static int take_vmm(const Croft__HelperVmmStart *start, struct helper_request *ret, struct err *reterr)
{
	if (strlen(start->run) != HELPER_RUN_SIZE - 1 ||
		strspn(start->run, "0123456789abcdef") != HELPER_RUN_SIZE - 1)
		return invalid(reterr, "run directory");
	memcpy(ret->run, start->run, HELPER_RUN_SIZE);
	ret->jail_required = start->jail_required;
	return 0;
}

static int take_upgrade(const Croft__HelperUpgrade *upgrade, struct helper_request *ret, struct err *reterr)
{
	if (strlen(upgrade->signature) >= sizeof(ret->signature))
		return invalid(reterr, "signature");
	(void)snprintf(ret->signature, sizeof(ret->signature), "%s", upgrade->signature);
	return 0;
}

/* The type, and the sandbox of those that have one; the rest is the type's own. */
static int take_head(const Croft__HelperRequest *message, struct helper_request *ret, const char **ret_sandbox)
{
#define ROW(NAME, field, type_)                                                                    \
	case CROFT__HELPER_REQUEST__BODY_##NAME:                                                   \
		ret->type = type_;                                                                 \
		*ret_sandbox = message->field->sandbox;                                            \
		return 0
	switch (message->body_case) {
		ROW(SLOT_MAKE, slot_make, HELPER_SLOT_MAKE);
		ROW(SLOT_REMOVE, slot_remove, HELPER_SLOT_REMOVE);
		ROW(TAP_OPEN, tap_open, HELPER_TAP_OPEN);
		ROW(DNS_OPEN, dns_open, HELPER_DNS_OPEN);
		ROW(POLICY_SET, policy_set, HELPER_POLICY_SET);
		ROW(PIN, pin, HELPER_PIN);
		ROW(COUNTERS, counters, HELPER_COUNTERS);
		ROW(GROUP_MAKE, group_make, HELPER_GROUP_MAKE);
		ROW(GROUP_KILL, group_kill, HELPER_GROUP_KILL);
		ROW(GROUP_REMOVE, group_remove, HELPER_GROUP_REMOVE);
		ROW(VMM_START, vmm_start, HELPER_VMM_START);
		ROW(DISK_OPEN, disk_open, HELPER_DISK_OPEN);
	case CROFT__HELPER_REQUEST__BODY_HELLO:
		ret->type = HELPER_HELLO;
		ret->version = message->hello->version;
		return 0;
	case CROFT__HELPER_REQUEST__BODY_LIST:
		ret->type = HELPER_LIST;
		ret->from = message->list->from;
		return 0;
	case CROFT__HELPER_REQUEST__BODY_UPGRADE:
		ret->type = HELPER_UPGRADE;
		return 0;
	case CROFT__HELPER_REQUEST__BODY__NOT_SET:
	default:
		return -EINVAL;
	}
#undef ROW
}

static int take(const Croft__HelperRequest *message, struct helper_request *ret, struct err *reterr)
{
	const char *sandbox = NULL;
	int r;

	ret->id = message->id;
	if (take_head(message, ret, &sandbox) < 0)
		return err_set(reterr, FAIL_FRAME_UNSUPPORTED, EINVAL, "this helper does not know the request");
	r = sandbox ? take_sandbox(sandbox, ret, reterr) : 0;
	if (r < 0)
		return r;
	switch (ret->type) {
	case HELPER_SLOT_MAKE:
		return take_slot_make(message->slot_make, ret, reterr);
	case HELPER_POLICY_SET:
		return take_policy_set(message->policy_set, ret, reterr);
	case HELPER_PIN:
		return take_pins(message->pin->pins, message->pin->n_pins, ret, reterr);
	case HELPER_GROUP_MAKE:
		return take_group(message->group_make, ret, reterr);
	case HELPER_VMM_START:
		return take_vmm(message->vmm_start, ret, reterr);
	case HELPER_UPGRADE:
		return take_upgrade(message->upgrade, ret, reterr);
	default:
		return 0;
	}
}

int helper_request_decode(const void *data, size_t size, struct helper_request *ret, struct err *reterr)
{
	Croft__HelperRequest *message;
	int r;

	memset(ret, 0, sizeof(*ret));
	message = (Croft__HelperRequest *)(void *)check_unpack(
		&croft__helper_request__descriptor, data, size, reterr);
	if (!message)
		return -EBADMSG;
	r = take(message, ret, reterr);
	croft__helper_request__free_unpacked(message, NULL);
	return r;
}

/* ---- encoding ---- */

/* What a message is made of while it is packed. */
struct parts {
	Croft__HelperHello hello;
	Croft__HelperSlotMake slot_make;
	Croft__HelperSandbox sandbox;
	Croft__HelperPolicySet policy_set;
	Croft__HelperPinSet pin;
	Croft__HelperList list;
	Croft__HelperGroupMake group_make;
	Croft__HelperVmmStart vmm_start;
	Croft__HelperUpgrade upgrade;
	Croft__HelperPolicy policy;
	char **allow, **deny;
	char (*texts)[NET_CIDR_TEXT];
	Croft__HelperPin *pins, **pin_list;
};

static void parts_deinit(struct parts *parts)
{
	free(parts->allow);
	free(parts->deny);
	free(parts->texts);
	free(parts->pins);
	free(parts->pin_list);
}

static int put_policy(struct parts *parts, const struct net_policy *policy)
{
	size_t n_allow = policy->n_allow + policy->n_allow_names, n_deny = policy->n_deny + policy->n_deny_names;
	size_t n = 0;

	croft__helper_policy__init(&parts->policy);
	parts->allow = calloc(n_allow + 1, sizeof(char *));
	parts->deny = calloc(n_deny + 1, sizeof(char *));
	parts->texts = calloc(policy->n_allow + policy->n_deny + 1, sizeof(*parts->texts));
	if (!parts->allow || !parts->deny || !parts->texts)
		return -ENOMEM;
	for (size_t i = 0; i < policy->n_allow; i++, n++) {
		net_cidr_format(&policy->allow[i], parts->texts[n]);
		parts->allow[i] = parts->texts[n];
	}
	for (size_t i = 0; i < policy->n_deny; i++, n++) {
		net_cidr_format(&policy->deny[i], parts->texts[n]);
		parts->deny[i] = parts->texts[n];
	}
	for (size_t i = 0; i < policy->n_allow_names; i++)
		parts->allow[policy->n_allow + i] = policy->allow_names[i];
	for (size_t i = 0; i < policy->n_deny_names; i++)
		parts->deny[policy->n_deny + i] = policy->deny_names[i];
	parts->policy.internet = policy->internet;
	parts->policy.n_allow = n_allow;
	parts->policy.allow = parts->allow;
	parts->policy.n_deny = n_deny;
	parts->policy.deny = parts->deny;
	return 0;
}

static int put_pins(struct parts *parts, const struct net_pin *pins, size_t n)
{
	parts->pins = calloc(n + 1, sizeof(*parts->pins));
	parts->pin_list = calloc(n + 1, sizeof(*parts->pin_list));
	if (!parts->pins || !parts->pin_list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		croft__helper_pin__init(&parts->pins[i]);
		parts->pins[i].address = pins[i].address;
		parts->pins[i].ttl_sec = pins[i].ttl_sec;
		parts->pin_list[i] = &parts->pins[i];
	}
	return 0;
}

#define SET(message, NAME, field, value)                                                           \
	((message)->body_case = CROFT__HELPER_REQUEST__BODY_##NAME, (message)->field = (value))

static void put_sandbox(Croft__HelperRequest *message, struct parts *parts, enum helper_type type)
{
	switch (type) {
	case HELPER_SLOT_REMOVE:
		SET(message, SLOT_REMOVE, slot_remove, &parts->sandbox);
		break;
	case HELPER_TAP_OPEN:
		SET(message, TAP_OPEN, tap_open, &parts->sandbox);
		break;
	case HELPER_DNS_OPEN:
		SET(message, DNS_OPEN, dns_open, &parts->sandbox);
		break;
	case HELPER_COUNTERS:
		SET(message, COUNTERS, counters, &parts->sandbox);
		break;
	case HELPER_GROUP_KILL:
		SET(message, GROUP_KILL, group_kill, &parts->sandbox);
		break;
	case HELPER_GROUP_REMOVE:
		SET(message, GROUP_REMOVE, group_remove, &parts->sandbox);
		break;
	default:
		SET(message, DISK_OPEN, disk_open, &parts->sandbox);
		break;
	}
}

static int put_slot_make(
	Croft__HelperRequest *message, struct parts *parts, const struct helper_request *request, char *sandbox)
{
	croft__helper_slot_make__init(&parts->slot_make);
	parts->slot_make.sandbox = sandbox;
	parts->slot_make.generation = request->generation;
	parts->slot_make.policy = &parts->policy;
	SET(message, SLOT_MAKE, slot_make, &parts->slot_make);
	return put_policy(parts, &request->policy);
}

static int put_policy_set(
	Croft__HelperRequest *message, struct parts *parts, const struct helper_request *request, char *sandbox)
{
	int r = put_policy(parts, &request->policy);

	if (r == 0)
		r = put_pins(parts, request->pins, request->n_pins);
	croft__helper_policy_set__init(&parts->policy_set);
	parts->policy_set.sandbox = sandbox;
	parts->policy_set.policy = &parts->policy;
	parts->policy_set.n_pins = request->n_pins;
	parts->policy_set.pins = parts->pin_list;
	SET(message, POLICY_SET, policy_set, &parts->policy_set);
	return r;
}

static int put_pin(
	Croft__HelperRequest *message, struct parts *parts, const struct helper_request *request, char *sandbox)
{
	int r = put_pins(parts, request->pins, request->n_pins);

	croft__helper_pin_set__init(&parts->pin);
	parts->pin.sandbox = sandbox;
	parts->pin.n_pins = request->n_pins;
	parts->pin.pins = parts->pin_list;
	SET(message, PIN, pin, &parts->pin);
	return r;
}

static void put_group_make(
	Croft__HelperRequest *message, struct parts *parts, const struct helper_request *request, char *sandbox)
{
	croft__helper_group_make__init(&parts->group_make);
	parts->group_make.sandbox = sandbox;
	parts->group_make.memory_bytes = request->limits.memory_bytes;
	parts->group_make.cpu_percent = request->limits.cpu_percent;
	parts->group_make.tasks = request->limits.tasks;
	SET(message, GROUP_MAKE, group_make, &parts->group_make);
}

static int put(Croft__HelperRequest *message, struct parts *parts, const struct helper_request *request,
	char *sandbox, char *run, char *signature)
{
	switch (request->type) {
	case HELPER_HELLO:
		croft__helper_hello__init(&parts->hello);
		parts->hello.version = request->version;
		SET(message, HELLO, hello, &parts->hello);
		return 0;
	case HELPER_SLOT_MAKE:
		return put_slot_make(message, parts, request, sandbox);
	case HELPER_POLICY_SET:
		return put_policy_set(message, parts, request, sandbox);
	case HELPER_PIN:
		return put_pin(message, parts, request, sandbox);
	case HELPER_LIST:
		croft__helper_list__init(&parts->list);
		parts->list.from = request->from;
		SET(message, LIST, list, &parts->list);
		return 0;
	case HELPER_GROUP_MAKE:
		put_group_make(message, parts, request, sandbox);
		return 0;
	case HELPER_VMM_START:
		croft__helper_vmm_start__init(&parts->vmm_start);
		parts->vmm_start.sandbox = sandbox;
		parts->vmm_start.run = run;
		parts->vmm_start.jail_required = request->jail_required;
		SET(message, VMM_START, vmm_start, &parts->vmm_start);
		return 0;
	case HELPER_UPGRADE:
		croft__helper_upgrade__init(&parts->upgrade);
		parts->upgrade.signature = signature;
		SET(message, UPGRADE, upgrade, &parts->upgrade);
		return 0;
	default:
		croft__helper_sandbox__init(&parts->sandbox);
		parts->sandbox.sandbox = sandbox;
		put_sandbox(message, parts, request->type);
		return 0;
	}
}

int helper_pack(const ProtobufCMessage *message, uint8_t **ret_data, size_t *ret_size)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	uint8_t *data;

	if (size > HELPER_PACKET_MAX)
		return -EMSGSIZE;
	data = malloc(size ? size : 1);
	if (!data)
		return -ENOMEM;
	*ret_size = protobuf_c_message_pack(message, data);
	*ret_data = data;
	return 0;
}

int helper_request_encode(const struct helper_request *request, uint8_t **ret_data, size_t *ret_size)
{
	CLEANUP(parts_deinit) struct parts parts = { .allow = NULL };
	char sandbox[ID_SIZE], run[HELPER_RUN_SIZE], signature[HELPER_SIGNATURE_SIZE];
	Croft__HelperRequest message;
	int r;

	memcpy(sandbox, request->sandbox, sizeof(sandbox));
	memcpy(run, request->run, sizeof(run));
	memcpy(signature, request->signature, sizeof(signature));
	croft__helper_request__init(&message);
	message.id = request->id;
	r = put(&message, &parts, request, sandbox, run, signature);
	return r < 0 ? r : helper_pack(&message.base, ret_data, ret_size);
}
