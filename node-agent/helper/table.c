/* SPDX-License-Identifier: Apache-2.0
 *
 * See table.h.
 */
#include "helper/table.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "helper/spawn.h"
#include "helper/upgrade.h"

#define NONE HELPER_STATE_NONE
#define HELD HELPER_STATE_HELD
#define RUNNING HELPER_STATE_RUNNING
#define ANY (NONE | HELD | RUNNING)

struct call {
	struct helper *helper;
	const struct helper_request *request;
	const int *fds;
	struct helper_reply *reply;
	int *ret_fds;
	size_t *ret_n_fds;
};

struct row {
	bool before_hello;   /* may be the first word; all others may not */
	unsigned int states; /* of the sandbox; 0: it is about none */
	bool needs_slot;
	size_t n_fds;
	int (*act)(struct call *call, struct err *reterr);
};

/* ---- handlers ---- */

static int act_hello(struct call *call, struct err *reterr)
{
	struct helper_reply *reply = call->reply;
	struct net_host_counts counts;

	if (call->request->version != HELPER_VERSION)
		return err_set(reterr, FAIL_VERSION_UNSUPPORTED, EPROTO, "the agent speaks version %u, the helper %u",
			call->request->version, HELPER_VERSION);
	reply->has_facts = true;
	reply->facts.version = HELPER_VERSION;
	reply->facts.network = call->helper->network_failure;
	reply->facts.groups = call->helper->groups_failure;
	reply->facts.can_start_vmm = call->helper->options->uid_first > 0 && call->helper->groups.root >= 0;
	if (call->helper->host) {
		net_host_count(call->helper->host, &counts);
		reply->facts.slots = counts.slots;
		reply->facts.stale_slots = counts.stale;
	}
	return 0;
}

static void put_slot(const struct net_host_slot *slot, struct helper_reply *reply)
{
	struct helper_slot *to = &reply->slots[reply->n_slots++];

	memcpy(to->sandbox, slot->sandbox, sizeof(to->sandbox));
	to->generation = slot->generation;
	memcpy(to->name, slot->slot.name, sizeof(to->name));
	to->guest = slot->slot.guest;
	to->gateway = slot->slot.gateway;
	to->prefix = NET_GUEST_PREFIX;
	to->cid = slot->slot.cid;
	memcpy(to->mac, slot->slot.guest_mac, sizeof(to->mac));
}

static int act_slot_make(struct call *call, struct err *reterr)
{
	const struct net_host_slot *slot;
	int r;

	if (!call->helper->host) {
		*reterr = call->helper->network_failure;
		return -ENODEV;
	}
	r = net_host_take(call->helper->host, call->request->sandbox, call->request->generation,
		&call->request->policy, &slot, reterr);
	if (r == 0)
		put_slot(slot, call->reply);
	return r;
}

static int act_slot_remove(struct call *call, struct err *reterr)
{
	if (!call->helper->host)
		return 0;
	return net_host_give_back(call->helper->host, call->request->sandbox, reterr);
}

static const struct net_host_slot *slot_of(const struct call *call)
{
	return call->helper->host ? net_host_find(call->helper->host, call->request->sandbox) : NULL;
}

static int act_tap_open(struct call *call, struct err *reterr)
{
	int fd = net_slot_open_tap(net_host_netns_dir(call->helper->host), slot_of(call)->slot.name, reterr);

	if (fd < 0)
		return fd;
	call->ret_fds[(*call->ret_n_fds)++] = fd;
	return 0;
}

static int act_dns_open(struct call *call, struct err *reterr)
{
	int udp, tcp, r;

	r = net_slot_open_dns(net_host_netns_dir(call->helper->host), &slot_of(call)->slot, &udp, &tcp, reterr);
	if (r < 0)
		return r;
	call->ret_fds[(*call->ret_n_fds)++] = udp;
	call->ret_fds[(*call->ret_n_fds)++] = tcp;
	return 0;
}

static int act_policy_set(struct call *call, struct err *reterr)
{
	return net_host_set_policy(call->helper->host, slot_of(call), &call->request->policy, call->request->pins,
		call->request->n_pins, reterr);
}

static int act_pin(struct call *call, struct err *reterr)
{
	return net_host_pin(call->helper->host, slot_of(call), call->request->pins, call->request->n_pins, reterr);
}

static int act_counters(struct call *call, struct err *reterr)
{
	const struct net_host_slot *slot = slot_of(call);

	group_read(&call->helper->groups, call->request->sandbox, &call->reply->group);
	call->reply->has_counters = true;
	exits_reap(&call->helper->exits); /* the agent may have seen its end before we did */
	call->reply->group.has_status = exits_find(&call->helper->exits, call->request->sandbox,
		&call->reply->group.status);
	if (!slot)
		return 0;
	return net_slot_read(net_host_netns_dir(call->helper->host), slot->slot.name, &call->reply->counters, reterr);
}

static int act_list(struct call *call, struct err *reterr)
{
	const struct net_host_slot *slot;

	(void)reterr;
	for (size_t i = call->request->from;
		call->helper->host && call->reply->n_slots < HELPER_LIST_MAX &&
		(slot = net_host_list(call->helper->host, i));
		i++)
		put_slot(slot, call->reply);
	return 0;
}

static int act_group_make(struct call *call, struct err *reterr)
{
	return group_make(&call->helper->groups, call->request->sandbox, &call->request->limits, reterr);
}

static int act_group_kill(struct call *call, struct err *reterr)
{
	return group_kill(&call->helper->groups, call->request->sandbox, reterr);
}

static int act_group_remove(struct call *call, struct err *reterr)
{
	return group_remove(&call->helper->groups, call->request->sandbox, reterr);
}

static int act_vmm_start(struct call *call, struct err *reterr)
{
	const struct net_host_slot *slot = slot_of(call);
	struct helper_vmm vmm = { .options = call->helper->options,
		.sandbox = call->request->sandbox,
		.run = call->request->run,
		.jail_required = call->request->jail_required,
		.gid = call->helper->agent_gid,
		.agent_uid = call->helper->agent_uid,
		.control = call->fds[0],
		.exit = call->fds[1],
		.log = call->fds[2] };
	CLEANUP_FD int group = group_open(&call->helper->groups, call->request->sandbox);
	int pidfd;

	if (group < 0)
		return err_set(reterr, FAIL_CGROUP_FAILED, -group, "the VM has no control group");
	vmm.group = group;
	/* the slot's number is the VM's alone while it has it */
	vmm.number = slot->slot.index;
	pidfd = helper_vmm_spawn(&vmm, &call->reply->pid, &call->reply->start_ticks, reterr);
	if (pidfd < 0)
		return pidfd;
	exits_started(&call->helper->exits, (pid_t)call->reply->pid, call->request->sandbox);
	call->ret_fds[(*call->ret_n_fds)++] = pidfd;
	return 0;
}

/* No link anywhere on the way, no mount, and a plain file: the agent owns the directory, and might be another's by
 * now. */
static int act_disk_open(struct call *call, struct err *reterr)
{
	struct open_how how = { .flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV };
	char path[ID_SIZE + 8];
	CLEANUP_FD int fd = -1;
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/disk", call->request->sandbox);
	fd = call->helper->disks < 0 ? -1
				     : (int)syscall(SYS_openat2, call->helper->disks, path, &how, sizeof(how));
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set_at(reterr, STAGE_DISK, FAIL_IO_FAILED, call->helper->disks < 0 ? ENOENT : errno,
			"cannot open the disk of %s", call->request->sandbox);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return err_set_at(reterr, STAGE_DISK, FAIL_IO_FAILED, EINVAL, "the disk of %s is no file of its own",
			call->request->sandbox);
	call->ret_fds[(*call->ret_n_fds)++] = TAKE_FD(fd);
	return 0;
}

static int act_upgrade(struct call *call, struct err *reterr)
{
	return helper_upgrade(call->helper->options, call->fds[0], call->request->signature, reterr);
}

/* ---- the table ---- */

/* clang-format off */
static const struct row table[HELPER_TYPE_MAX_] = {
	/*                        first  states               slot   fds */
	[HELPER_HELLO] =        { true,  0,                   false, 0, act_hello },
	[HELPER_LIST] =         { false, 0,                   false, 0, act_list },
	[HELPER_SLOT_MAKE] =    { false, NONE | HELD,         false, 0, act_slot_make },
	[HELPER_SLOT_REMOVE] =  { false, NONE | HELD,         false, 0, act_slot_remove },
	[HELPER_TAP_OPEN] =     { false, HELD,                true,  0, act_tap_open },
	[HELPER_DNS_OPEN] =     { false, HELD | RUNNING,      true,  0, act_dns_open },
	[HELPER_POLICY_SET] =   { false, HELD | RUNNING,      true,  0, act_policy_set },
	[HELPER_PIN] =          { false, HELD | RUNNING,      true,  0, act_pin },
	[HELPER_COUNTERS] =     { false, HELD | RUNNING,      false, 0, act_counters },
	[HELPER_GROUP_MAKE] =   { false, NONE | HELD,         false, 0, act_group_make },
	[HELPER_GROUP_KILL] =   { false, ANY,                 false, 0, act_group_kill },
	[HELPER_GROUP_REMOVE] = { false, NONE | HELD,         false, 0, act_group_remove },
	[HELPER_VMM_START] =    { false, HELD,                true,  3, act_vmm_start },
	[HELPER_DISK_OPEN] =    { false, HELD,                false, 0, act_disk_open },
	[HELPER_UPGRADE] =      { false, 0,                   false, 1, act_upgrade },
};
/* clang-format on */

static enum helper_state state_of(const struct helper *helper, const char *sandbox)
{
	if (group_is_populated(&helper->groups, sandbox))
		return RUNNING;
	if (group_exists(&helper->groups, sandbox) || (helper->host && net_host_find(helper->host, sandbox)))
		return HELD;
	return NONE;
}

static const char *state_name(enum helper_state state)
{
	return state == RUNNING ? "running" : state == HELD ? "held" : "none";
}

static int refused(const struct helper_request *request, const char *why, struct err *reterr)
{
	(void)err_set(reterr, FAIL_HELPER_REFUSED, EPERM, "%s is not permitted: %s", helper_type_name(request->type),
		why);
	err_add(reterr, "request", "%s", helper_type_name(request->type));
	return -EPERM;
}

static int permit(const struct helper *helper, bool greeted, const struct helper_request *request, size_t n_fds,
	struct err *reterr)
{
	const struct row *row = &table[request->type];
	enum helper_state state;

	if (row->before_hello == greeted)
		return refused(request, greeted ? "it was said before" : "hello comes first", reterr);
	if (n_fds != row->n_fds)
		return refused(request, "it comes with other descriptors", reterr);
	if (row->states == 0)
		return 0;
	state = state_of(helper, request->sandbox);
	if (!(row->states & state)) {
		(void)refused(request, "not in the sandbox's state", reterr);
		err_add(reterr, "state", "%s", state_name(state));
		return -EPERM;
	}
	if (row->needs_slot && !(helper->host && net_host_find(helper->host, request->sandbox)))
		return refused(request, "the sandbox has no network slot", reterr);
	if (request->type == HELPER_VMM_START && helper->options->uid_first == 0)
		return refused(request, "vmm.uid_first is not set", reterr);
	return 0;
}

void helper_perform(struct helper *helper, bool *greeted, const struct helper_request *request, const int *fds,
	size_t n_fds, struct helper_reply *reply, int *ret_fds, size_t *ret_n_fds)
{
	struct call call = { helper, request, fds, reply, ret_fds, ret_n_fds };
	struct err err = ERR_NULL;
	int r;

	memset(reply, 0, sizeof(*reply));
	*ret_n_fds = 0;
	reply->id = request->id;
	r = permit(helper, *greeted, request, n_fds, &err);
	if (r == 0)
		r = table[request->type].act(&call, &err);
	if (r < 0) {
		reply->failure = err;
		reply->n_slots = 0;
		log_failure(LOG_LEVEL_WARN, "a request failed", &err, "request", helper_type_name(request->type),
			"sandbox", *request->sandbox ? request->sandbox : NULL, NULL);
	} else if (request->type == HELPER_HELLO) {
		*greeted = true;
	}
}

/* ---- the object ---- */

/* VMs may live without groups, but not beyond a ceiling that nobody holds: then there is no helper, and no VM starts. */
static int open_groups(struct helper *helper, const struct helper_options *options, struct err *reterr)
{
	const struct groups_ceiling ceiling = { .memory_mib = options->group_memory_mib,
		.cpu_percent = options->group_cpu_percent,
		.io_weight = options->group_io_weight };
	struct err *err = &helper->groups_failure;
	int r = groups_open(&helper->groups, options->group_root, err);

	if (r == 0)
		r = groups_limit(&helper->groups, &ceiling, err);
	else if (ceiling.memory_mib == 0 && ceiling.cpu_percent == 0) {
		log_failure(LOG_LEVEL_ERROR, "VMs have no control groups here", err, NULL);
		return 0;
	}
	if (r < 0)
		*reterr = *err;
	return r;
}

int helper_open(struct helper *helper, const struct helper_options *options, uid_t agent_uid, gid_t agent_gid,
	struct err *reterr)
{
	struct net_host_config config;
	int r;

	memset(helper, 0, sizeof(*helper));
	helper->options = options;
	helper->agent_uid = agent_uid;
	helper->agent_gid = agent_gid;
	helper->groups = (struct groups)GROUPS_NULL;
	helper->disks = -1;
	r = helper_options_network(options, &config, reterr);
	if (r < 0)
		return r;
	if (net_host_new(&helper->host, &config, &helper->network_failure) < 0)
		log_failure(LOG_LEVEL_ERROR, "sandboxes have no network here", &helper->network_failure, NULL);
	r = open_groups(helper, options, reterr);
	if (r < 0)
		return r;
	helper->disks = open(options->disks, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (helper->disks < 0)
		log_info("no disk is opened here", "path", options->disks, "errno", strerrorname_np(errno));
	return 0;
}

void helper_close(struct helper *helper)
{
	helper->host = net_host_free(helper->host);
	groups_close(&helper->groups);
	helper->disks = fd_close(helper->disks);
}
