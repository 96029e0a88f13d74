/* SPDX-License-Identifier: Apache-2.0
 *
 * See control.h.
 */
#include "control.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "pb/vmm.pb-c.h"

#define VERSION_MAJOR 1
#ifdef CROFT_FUTURE
#define VERSION_MINOR 1
#else
#define VERSION_MINOR 0
#endif

#define SAME(ours, theirs) static_assert((int) (ours) == (int) CROFT__VMM_EXIT_REASON__VMM_##theirs, #theirs)
SAME(EXIT_POWEROFF, EXIT_POWEROFF);
SAME(EXIT_RESET, EXIT_RESET);
SAME(EXIT_PANIC, EXIT_PANIC);
SAME(EXIT_TRIPLE_FAULT, EXIT_TRIPLE_FAULT);
SAME(EXIT_KVM_INTERNAL, EXIT_KVM_INTERNAL);
SAME(EXIT_HOST_MEMORY, EXIT_HOST_MEMORY);
SAME(EXIT_STOPPED, EXIT_STOPPED);
SAME(EXIT_SIGNAL, EXIT_SIGNAL);
SAME(EXIT_START_FAILED, EXIT_START_FAILED);
SAME(EXIT_USAGE, EXIT_USAGE);
SAME(EXIT_BUG, EXIT_BUG);
SAME(EXIT_SECCOMP, EXIT_SECCOMP);
SAME(EXIT_LEASE, EXIT_LEASE);

/* ---- decoding ---- */

static int invalid(struct err *reterr, const char *what)
{
	return err_set(reterr, FAIL_VMM_CONTROL_INVALID, EINVAL, "malformed request: %s", what);
}

static int copy_text(char *to, size_t size, const char *from)
{
	size_t n = strlen(from);

	if (n >= size)
		return -ENAMETOOLONG;
	memcpy(to, from, n + 1);
	return 0;
}

static void take_rate(const Croft__VmmRate *from, struct rate_config *to)
{
	if (from)
		*to = (struct rate_config) { .ops = from->ops, .ops_burst = from->ops_burst, .bytes = from->bytes,
			.bytes_burst = from->bytes_burst };
}

static int take_disks(const Croft__VmmStart *start, struct vm_config *config, int *fds, struct err *reterr)
{
	for (size_t i = 0; i < start->n_disks; i++) {
		struct disk_config *disk = &config->disks[i];

		if (copy_text(disk->serial, sizeof(disk->serial), start->disks[i]->serial) < 0)
			return invalid(reterr, "a disk's serial has more than 20 bytes");
		disk->is_read_only = start->disks[i]->read_only;
		take_rate(start->disks[i]->limit, &disk->limit);
		if (!config->is_shell)
			disk->fd = TAKE_FD(fds[i]);
		config->n_disks++;
	}
	return 0;
}

static int take_net(const Croft__VmmNet *net, struct vm_config *config, struct err *reterr)
{
	if (net->mac.len != NET_MAC_SIZE)
		return invalid(reterr, "a MAC address has 6 bytes");
	memcpy(config->net.mac, net->mac.data, NET_MAC_SIZE);
	config->net.may_forge_mac = net->may_forge_mac;
	take_rate(net->to_guest, &config->net.to_guest);
	take_rate(net->from_guest, &config->net.from_guest);
	config->has_net = true;
	return 0;
}

static int take_renew(const Croft__VmmRenew *renew, struct control_request *ret, struct err *reterr)
{
	if (renew->lease_ms > LEASE_MS_MAX)
		return invalid(reterr, "a lease of more than a year");
	if (renew->until_us > INT64_MAX)
		return invalid(reterr, "a lease that ends at no time");
	ret->lease_ms = renew->lease_ms;
	ret->lease_until_usec = (int64_t) renew->until_us;
	ret->ends_lease = renew->end;
	return 0;
}

/* What the VM begins from. How many descriptors that were. */
static size_t take_guest(const Croft__VmmStart *start, struct vm_config *config, int *fds)
{
	size_t at = 0;

	if (!config->is_prepared) {
		config->kvm_fd = TAKE_FD(fds[0]);
		at = 1;
	}
	config->is_restore = start->restore;
	config->is_forked = start->forked;
	if (config->is_shell)
		return at;
	if (start->restore) {
		config->state_fd = TAKE_FD(fds[at]);
		config->memory_fd = TAKE_FD(fds[at + 1]);
		for (at += 2; config->n_layers < start->layers; config->n_layers++)
			config->layer_fds[config->n_layers] = TAKE_FD(fds[at + config->n_layers]);
		return at + config->n_layers;
	}
	config->kernel_fd = TAKE_FD(fds[1]);
	if (!start->has_initramfs)
		return 2;
	config->initramfs_fd = TAKE_FD(fds[2]);
	return 3;
}

/* Of a request that has passed check_start(). */
static size_t count_fds(const Croft__VmmStart *start, const struct vm_config *config)
{
	size_t of_shell = (start->vsock ? 1u : 0u) + (start->has_console ? 1u : 0u) + (start->net ? 1u : 0u);

	if (config->is_shell)
		return 1 + of_shell;
	return (config->is_prepared ? 0u : 1u) + (start->restore ? 2u + start->layers : start->has_initramfs ? 2u : 1u) +
		start->n_disks + of_shell;
}

static int check_start(const Croft__VmmStart *start, const struct vm_config *config, struct err *reterr)
{
	if (start->lease_ms > LEASE_MS_MAX)
		return invalid(reterr, "a lease of more than a year");
	if (start->lease_until_us > INT64_MAX)
		return invalid(reterr, "a lease that ends at no time");
	if (start->n_disks > CONFIG_DISKS_MAX)
		return invalid(reterr, "more than 8 disks");
	if (start->restore && (start->has_initramfs || *start->cmdline))
		return invalid(reterr, "a restored VM has no initramfs and no command line");
	if (start->layers > MEMORY_LAYERS_MAX)
		return invalid(reterr, "more than 8 layers of memory");
	if (!start->restore && (start->layers > 0 || start->forked || config->is_shell || config->is_prepared))
		return invalid(reterr, "layers and what is made ahead are a restored VM's");
	if (config->is_shell && (config->is_prepared || start->layers > 0 || start->lease_ms > 0))
		return invalid(reterr, "what is made ahead has no layers and no lease");
	if (config->is_prepared && (start->vsock || start->has_console || start->net || start->balloon))
		return invalid(reterr, "vsock, console, net and balloon are those that were prepared");
	return 0;
}

/* Descriptors come in the order that vmm.proto gives. */
static int take_start(const Croft__VmmStart *start, int *fds, size_t n_fds, struct vm_config *config,
	struct err *reterr)
{
	size_t at = 0, need;
	int r;

	config->is_prepared = start->prepared;
	r = check_start(start, config, reterr);
	if (r < 0)
		return r;
	config->lease_ms = start->lease_ms;
	config->lease_until_usec = (int64_t) start->lease_until_us;
	need = count_fds(start, config);
	if (n_fds != need) {
		(void) invalid(reterr, "the number of descriptors does not fit the request");
		err_add(reterr, "have", "%zu", n_fds);
		err_add(reterr, "need", "%zu", need);
		return -EINVAL;
	}
	if (start->vsock && copy_text(config->vsock_path, sizeof(config->vsock_path), start->vsock->path) < 0)
		return err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG, "vsock.path has %zu bytes",
			strlen(start->vsock->path));
	config->cmdline = strdup(start->cmdline);
	if (!config->cmdline)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the command line");
	config->vcpus = start->vcpus;
	config->memory_mib = start->memory_mib;
	at += take_guest(start, config, fds);
	r = take_disks(start, config, fds + at, reterr);
	if (r < 0)
		return r;
	at += config->is_shell ? 0 : start->n_disks;
	if (start->vsock) {
		config->has_vsock = true;
		config->guest_cid = start->vsock->guest_cid;
		config->vsock_fd = TAKE_FD(fds[at]);
		at++;
	}
	if (start->has_console) {
		config->console_fd = TAKE_FD(fds[at]);
		at++;
	}
	config->has_balloon = start->balloon;
	if (!start->net)
		return 0;
	config->tap_fd = TAKE_FD(fds[at]);
	return take_net(start->net, config, reterr);
}

static int decode_body(const Croft__VmmRequest *message, int *fds, size_t n_fds, struct control_request *ret,
	struct err *reterr)
{
	if (n_fds > 0 && message->body_case != CROFT__VMM_REQUEST__BODY_START &&
		message->body_case != CROFT__VMM_REQUEST__BODY_PREPARE && message->body_case != CROFT__VMM_REQUEST__BODY_SNAPSHOT)
		return invalid(reterr, "descriptors come with start, prepare and snapshot only");
	switch (message->body_case) {
	case CROFT__VMM_REQUEST__BODY_START:
		ret->kind = CONTROL_START;
		return take_start(message->start, fds, n_fds, &ret->start, reterr);
	case CROFT__VMM_REQUEST__BODY_PREPARE:
		ret->kind = CONTROL_PREPARE;
		ret->start.is_shell = true;
		return take_start(message->prepare, fds, n_fds, &ret->start, reterr);
	case CROFT__VMM_REQUEST__BODY_STOP:
		ret->kind = CONTROL_STOP;
		ret->force = message->stop->force;
		ret->grace_ms = message->stop->grace_ms;
		return 0;
	case CROFT__VMM_REQUEST__BODY_RENEW:
		ret->kind = CONTROL_RENEW;
		return take_renew(message->renew, ret, reterr);
	case CROFT__VMM_REQUEST__BODY_STATUS:
		ret->kind = CONTROL_STATUS;
		return 0;
	case CROFT__VMM_REQUEST__BODY_STATS:
		ret->kind = CONTROL_STATS;
		return 0;
	case CROFT__VMM_REQUEST__BODY_BALLOON_TARGET:
		ret->kind = CONTROL_BALLOON;
		ret->balloon_mib = message->balloon_target->mib;
		return 0;
	case CROFT__VMM_REQUEST__BODY_NEW_GENERATION:
		ret->kind = CONTROL_GENERATION;
		return 0;
	case CROFT__VMM_REQUEST__BODY_PAUSE:
		ret->kind = CONTROL_PAUSE;
		return 0;
	case CROFT__VMM_REQUEST__BODY_RESUME:
		ret->kind = CONTROL_RESUME;
		return 0;
	case CROFT__VMM_REQUEST__BODY_SNAPSHOT:
		ret->kind = CONTROL_SNAPSHOT;
		if (n_fds != 2)
			return invalid(reterr, "a snapshot comes with two descriptors");
		ret->is_differential = message->snapshot->differential;
		ret->state_fd = TAKE_FD(fds[0]);
		ret->memory_fd = TAKE_FD(fds[1]);
		return 0;
	case CROFT__VMM_REQUEST__BODY_FORK:
		ret->kind = CONTROL_FORK;
		return 0;
	default:
		return invalid(reterr, "no known body");
	}
}

int control_decode(const uint8_t *data, size_t size, int *fds, size_t n_fds, struct control_request *ret,
	struct err *reterr)
{
	Croft__VmmRequest *message = NULL;
	int r;

	*ret = (struct control_request) { .state_fd = -1, .memory_fd = -1 };
	config_init(&ret->start);
	/* nothing in VmmRequest nests in itself, so what a packet of this size can make us allocate is bounded */
	if (size <= CONTROL_PACKET_MAX)
		message = croft__vmm_request__unpack(NULL, size, data);
	if (message) {
		ret->id = message->id;
		r = decode_body(message, fds, n_fds, ret, reterr);
		croft__vmm_request__free_unpacked(message, NULL);
	} else {
		r = invalid(reterr, "no VmmRequest");
	}
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = fd_close(fds[i]);
	if (r < 0)
		control_request_deinit(ret);
	return r;
}

void control_request_deinit(struct control_request *request)
{
	config_deinit(&request->start);
	request->state_fd = fd_close(request->state_fd);
	request->memory_fd = fd_close(request->memory_fd);
}

/* ---- encoding ---- */

/* protobuf-c has no const for what it only reads. */
static char *text(const char *constant)
{
	return (char *) (uintptr_t) constant;
}

struct failure_message {
	Croft__VmmFailure message;
	Croft__VmmFailureField fields[ERR_FIELDS_MAX], *pointers[ERR_FIELDS_MAX];
};

static Croft__VmmFailure *fill_failure(struct failure_message *out, const struct err *err)
{
	croft__vmm_failure__init(&out->message);
	out->message.code = text(failure_info(err->code)->name);
	out->message.err_no = err->err_no;
	out->message.message = text(err->msg);
	for (unsigned int i = 0; i < err->n_fields; i++) {
		croft__vmm_failure_field__init(&out->fields[i]);
		out->fields[i].key = text(err->fields[i].key);
		out->fields[i].value = text(err->fields[i].value);
		out->pointers[i] = &out->fields[i];
	}
	out->message.n_fields = err->n_fields;
	out->message.fields = out->pointers;
	return &out->message;
}

/* All of our messages are far smaller than a packet; the largest holds a few hundred bytes of text. */
static size_t pack_message(const Croft__VmmMessage *message, uint8_t *buf)
{
	assert(croft__vmm_message__get_packed_size(message) <= CONTROL_PACKET_MAX);
	return croft__vmm_message__pack(message, buf);
}

static size_t pack_response(Croft__VmmResponse *response, uint8_t *buf)
{
	Croft__VmmMessage message = CROFT__VMM_MESSAGE__INIT;

	message.body_case = CROFT__VMM_MESSAGE__BODY_RESPONSE;
	message.response = response;
	return pack_message(&message, buf);
}

size_t control_encode_done(uint64_t id, uint8_t *buf)
{
	Croft__VmmResponse response = CROFT__VMM_RESPONSE__INIT;

	response.id = id;
	return pack_response(&response, buf);
}

size_t control_encode_failure(uint64_t id, const struct err *failure, uint8_t *buf)
{
	Croft__VmmResponse response = CROFT__VMM_RESPONSE__INIT;
	struct failure_message out;

	response.id = id;
	response.failure = fill_failure(&out, failure);
	return pack_response(&response, buf);
}

static Croft__VmmEventKind event_kind(enum vm_event event)
{
	static const Croft__VmmEventKind kinds[VM_EVENT_MAX_] = {
		[VM_EVENT_STARTED] = CROFT__VMM_EVENT_KIND__VMM_EVENT_STARTED,
		[VM_EVENT_USERSPACE] = CROFT__VMM_EVENT_KIND__VMM_EVENT_USERSPACE,
		[VM_EVENT_PANICKED] = CROFT__VMM_EVENT_KIND__VMM_EVENT_PANICKED,
	};

	return kinds[event];
}

static Croft__VmmState state_number(enum control_state state)
{
	switch (state) {
	case CONTROL_WAITING:
		return CROFT__VMM_STATE__VMM_STATE_WAITING;
	case CONTROL_PREPARED:
		return CROFT__VMM_STATE__VMM_STATE_PREPARED;
	case CONTROL_RUNNING:
		return CROFT__VMM_STATE__VMM_STATE_RUNNING;
	case CONTROL_PAUSED:
		return CROFT__VMM_STATE__VMM_STATE_PAUSED;
	case CONTROL_STOPPING:
		break;
	}
	return CROFT__VMM_STATE__VMM_STATE_STOPPING;
}

struct jail_message {
	Croft__VmmJail message;
	Croft__VmmJailMissing missing[JAIL_STEP_MAX_], *pointers[JAIL_STEP_MAX_];
	char *applied[JAIL_STEP_MAX_];
};

static Croft__VmmJail *fill_jail(struct jail_message *out, const struct jail_report *report)
{
	croft__vmm_jail__init(&out->message);
	out->message.applied = out->applied;
	out->message.missing = out->pointers;
	for (unsigned int step = 0; step < JAIL_STEP_MAX_; step++) {
		char *name = text(jail_step_name((enum jail_step) step));

		if (report->applied & 1u << step)
			out->applied[out->message.n_applied++] = name;
		if (!(report->missing & 1u << step))
			continue;
		croft__vmm_jail_missing__init(&out->missing[step]);
		out->missing[step].step = name;
		out->missing[step].err_no = report->err_no[step];
		out->pointers[out->message.n_missing++] = &out->missing[step];
	}
	return &out->message;
}

size_t control_encode_status(uint64_t id, const struct control_status *status, uint8_t *buf)
{
	Croft__VmmResponse response = CROFT__VMM_RESPONSE__INIT;
	Croft__VmmStatus out = CROFT__VMM_STATUS__INIT;
	Croft__VmmEvent events[VM_EVENT_MAX_], *pointers[VM_EVENT_MAX_];
	struct jail_message jail;
	size_t n = 0;

	for (int i = 0; i < VM_EVENT_MAX_; i++) {
		if (status->event_usec[i] == 0)
			continue;
		events[n] = (Croft__VmmEvent) CROFT__VMM_EVENT__INIT;
		events[n].kind = event_kind((enum vm_event) i);
		events[n].monotonic_us = status->event_usec[i];
		pointers[n] = &events[n];
		n++;
	}
	out.state = state_number(status->state);
	out.n_events = n;
	out.events = pointers;
	out.lease_left_ms = status->lease_left_ms;
	out.unforked = status->is_unforked;
	if (status->jail)
		out.jail = fill_jail(&jail, status->jail);
	out.version_major = VERSION_MAJOR;
	out.version_minor = VERSION_MINOR;
	response.id = id;
	response.status = &out;
	return pack_response(&response, buf);
}

static Croft__VmmKvmStats *fill_kvm(Croft__VmmKvmStats *out, const uint64_t counts[static KVM_STAT_MAX_])
{
	croft__vmm_kvm_stats__init(out);
	out->exits = counts[KVM_STAT_EXITS];
	out->io_exits = counts[KVM_STAT_IO_EXITS];
	out->mmio_exits = counts[KVM_STAT_MMIO_EXITS];
	out->halt_exits = counts[KVM_STAT_HALT_EXITS];
	out->irq_exits = counts[KVM_STAT_IRQ_EXITS];
	out->signal_exits = counts[KVM_STAT_SIGNAL_EXITS];
	out->pf_fixed = counts[KVM_STAT_PF_FIXED];
	out->pages_4k = counts[KVM_STAT_PAGES_4K];
	out->pages_2m = counts[KVM_STAT_PAGES_2M];
	out->pages_1g = counts[KVM_STAT_PAGES_1G];
	return out;
}

static Croft__VmmNetStats *fill_net(Croft__VmmNetStats *out, const struct net_stats *net)
{
	croft__vmm_net_stats__init(out);
	out->rx_frames = net->rx_frames;
	out->rx_bytes = net->rx_bytes;
	out->rx_no_room = net->rx_no_room;
	out->rx_invalid = net->rx_invalid;
	out->tx_frames = net->tx_frames;
	out->tx_bytes = net->tx_bytes;
	out->tx_refused = net->tx_refused;
	out->tx_invalid = net->tx_invalid;
	out->tx_wrong_mac = net->tx_wrong_mac;
	out->throttled = net->throttled;
	return out;
}

struct balloon_message {
	Croft__VmmBalloonStats message;
	Croft__VmmGuestMemory guest[BALLOON_TAG_MAX_], *pointers[BALLOON_TAG_MAX_];
};

static Croft__VmmBalloonStats *fill_balloon(struct balloon_message *out, const struct balloon_stats *balloon)
{
	croft__vmm_balloon_stats__init(&out->message);
	out->message.target_pages = balloon->target_pages;
	out->message.pages = balloon->pages;
	out->message.inflated = balloon->inflated;
	out->message.deflated = balloon->deflated;
	out->message.refused = balloon->refused;
	out->message.failed = balloon->failed;
	out->message.guest_us = balloon->guest_usec;
	for (uint32_t tag = 0; tag < BALLOON_TAG_MAX_; tag++) {
		size_t n = out->message.n_guest;

		if (!(balloon->guest_has & 1u << tag))
			continue;
		croft__vmm_guest_memory__init(&out->guest[n]);
		out->guest[n].tag = tag;
		out->guest[n].value = balloon->guest[tag];
		out->pointers[n] = &out->guest[n];
		out->message.n_guest++;
	}
	out->message.guest = out->pointers;
	return &out->message;
}

size_t control_encode_stats(uint64_t id, const struct control_stats *stats, uint8_t *buf)
{
	Croft__VmmDiskStats disks[CONFIG_DISKS_MAX], *pointers[CONFIG_DISKS_MAX];
	Croft__VmmResponse response = CROFT__VMM_RESPONSE__INIT;
	Croft__VmmStats out = CROFT__VMM_STATS__INIT;
	Croft__VmmKvmStats kvm;
	const struct vm_stats *vm = &stats->vm;
	struct balloon_message balloon;
	Croft__VmmNetStats net;

	for (unsigned int i = 0; i < vm->n_disks; i++) {
		disks[i] = (Croft__VmmDiskStats) CROFT__VMM_DISK_STATS__INIT;
		disks[i].reads = vm->disks[i].reads;
		disks[i].writes = vm->disks[i].writes;
		disks[i].read_bytes = vm->disks[i].read_bytes;
		disks[i].written_bytes = vm->disks[i].written_bytes;
		disks[i].flushes = vm->disks[i].flushes;
		disks[i].errors = vm->disks[i].errors;
		disks[i].discards = vm->disks[i].discards;
		disks[i].zeroes = vm->disks[i].zeroes;
		disks[i].discarded_bytes = vm->disks[i].discarded_bytes;
		disks[i].zeroed_bytes = vm->disks[i].zeroed_bytes;
		disks[i].throttled = vm->disks[i].throttled;
		pointers[i] = &disks[i];
	}
	out.memory_mib = stats->memory_mib;
	out.vcpus = stats->vcpus;
	out.vcpu_usec = vm->vcpu_usec;
	out.kvm_runs = vm->kvm_runs;
	out.io_exits = vm->io_exits;
	out.mmio_exits = vm->mmio_exits;
	out.console_bytes = vm->serial.bytes;
	out.console_dropped = vm->serial.dropped;
	out.guest_bad_gpa = vm->bad_gpa;
	out.device_resets_needed = vm->needs_reset;
	out.n_disks = vm->n_disks;
	out.disks = pointers;
	out.vsock_connections = vm->vsock.connections;
	out.vsock_refused = vm->vsock.refused;
	out.rng_bytes = vm->rng_bytes;
	out.bus_locks = vm->bus_locks;
	if (vm->has_kvm)
		out.kvm = fill_kvm(&kvm, vm->kvm);
	if (vm->has_net)
		out.net = fill_net(&net, &vm->net);
	if (vm->has_balloon)
		out.balloon = fill_balloon(&balloon, &vm->balloon);
	response.id = id;
	response.stats = &out;
	return pack_response(&response, buf);
}

static size_t pack_event(Croft__VmmEvent *event, uint8_t *buf)
{
	Croft__VmmMessage message = CROFT__VMM_MESSAGE__INIT;

	message.body_case = CROFT__VMM_MESSAGE__BODY_EVENT;
	message.event = event;
	return pack_message(&message, buf);
}

size_t control_encode_forked(uint64_t id, unsigned int layers, uint64_t copied_pages, uint8_t *buf)
{
	Croft__VmmResponse response = CROFT__VMM_RESPONSE__INIT;
	Croft__VmmForked out = CROFT__VMM_FORKED__INIT;

	out.layers = layers;
	out.copied_pages = copied_pages;
	response.id = id;
	response.forked = &out;
	return pack_response(&response, buf);
}

size_t control_encode_event(enum vm_event event, int64_t monotonic_usec, uint8_t *buf)
{
	Croft__VmmEvent out = CROFT__VMM_EVENT__INIT;

	out.kind = event_kind(event);
	out.monotonic_us = monotonic_usec;
	return pack_event(&out, buf);
}

static void fill_exit(Croft__VmmExit *out, struct failure_message *failure, const struct exit_record *record)
{
	croft__vmm_exit__init(out);
	out->reason = (Croft__VmmExitReason) record->reason;
	out->reached_userspace = record->reached_userspace;
	out->realtime_us = record->realtime_usec;
	out->detail = text(record->detail);
	out->syscall = record->syscall;
	out->syscall_argument = record->syscall_argument;
	out->thread = record->thread;
	if (err_is_set(&record->failure))
		out->failure = fill_failure(failure, &record->failure);
}

size_t control_encode_exiting(const struct exit_record *record, int64_t monotonic_usec, uint8_t *buf)
{
	Croft__VmmEvent out = CROFT__VMM_EVENT__INIT;
	struct failure_message failure;
	Croft__VmmExit exit;

	fill_exit(&exit, &failure, record);
	out.kind = CROFT__VMM_EVENT_KIND__VMM_EVENT_EXITING;
	out.monotonic_us = monotonic_usec;
	out.exit = &exit;
	return pack_event(&out, buf);
}

size_t control_encode_exit(const struct exit_record *record, uint8_t *buf)
{
	struct failure_message failure;
	Croft__VmmExit exit;

	fill_exit(&exit, &failure, record);
	assert(croft__vmm_exit__get_packed_size(&exit) <= CONTROL_PACKET_MAX);
	return croft__vmm_exit__pack(&exit, buf);
}
