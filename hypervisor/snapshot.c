/* SPDX-License-Identifier: Apache-2.0
 *
 * See snapshot.h.
 */
#include "snapshot.h"

#include <errno.h>
#include <linux/virtio_ids.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/fd.h"
#include "pb/snapshot.pb-c.h"

static const char magic[8] = "croftvm";

struct header {
	char magic[8];
	uint32_t format, size, sum, zero;
};

void vm_state_free(struct vm_state *state)
{
	for (unsigned int i = 0; i < state->n_devices; i++)
		free(state->devices[i].balloon.held);
	free(state->vcpus);
	free(state);
}

/* ---- out ---- */

/* Messages that point into the state; nothing in them is owned. */
struct out {
	Croft__SnapState state;
	Croft__SnapVcpu vcpus[CONFIG_VCPUS_MAX], *vcpu_at[CONFIG_VCPUS_MAX];
	ProtobufCBinaryData chips[VM_CHIPS];
	Croft__SnapSerial serial;
	Croft__SnapDevice devices[VM_VIRTIO_MAX], *device_at[VM_VIRTIO_MAX];
	Croft__SnapQueue queues[VM_VIRTIO_MAX][DEVICE_QUEUES_MAX], *queue_at[VM_VIRTIO_MAX][DEVICE_QUEUES_MAX];
	Croft__SnapBalloon balloon;
};

static ProtobufCBinaryData bytes_of(const void *data, size_t size)
{
	return (ProtobufCBinaryData) { .data = (uint8_t *) (uintptr_t) data, .len = size }; /* only read */
}

static void put_vcpu(const struct vcpu_state *vcpu, Croft__SnapVcpu *ret)
{
	croft__snap_vcpu__init(ret);
	ret->mp_state = bytes_of(&vcpu->mp_state, sizeof(vcpu->mp_state));
	ret->regs = bytes_of(&vcpu->regs, sizeof(vcpu->regs));
	ret->sregs = bytes_of(&vcpu->sregs, sizeof(vcpu->sregs));
	ret->xcrs = bytes_of(&vcpu->xcrs, sizeof(vcpu->xcrs));
	ret->xsave = bytes_of(&vcpu->xsave, sizeof(vcpu->xsave));
	ret->debugregs = bytes_of(&vcpu->debugregs, sizeof(vcpu->debugregs));
	ret->lapic = bytes_of(&vcpu->lapic, sizeof(vcpu->lapic));
	ret->events = bytes_of(&vcpu->events, sizeof(vcpu->events));
	ret->msrs = bytes_of(vcpu->msrs, vcpu->n_msrs * sizeof(vcpu->msrs[0]));
	ret->has_tsc_offset = vcpu->has_tsc_offset;
	ret->tsc_offset = vcpu->tsc_offset;
}

static void put_queue(const struct queue_state *queue, Croft__SnapQueue *ret)
{
	croft__snap_queue__init(ret);
	ret->size = queue->size;
	ret->desc = queue->desc;
	ret->avail = queue->avail;
	ret->used = queue->used;
	ret->ready = queue->is_ready;
	ret->broken = queue->is_broken;
	ret->next_avail = queue->next_avail;
	ret->next_used = queue->next_used;
	ret->signalled_used = queue->signalled_used;
}

static void put_balloon(const struct balloon_state *balloon, Croft__SnapBalloon *ret)
{
	croft__snap_balloon__init(ret);
	ret->target = balloon->target;
	ret->claimed = balloon->claimed;
	ret->has_stats_buffer = balloon->has_stats_buffer;
	ret->stats_buffer = balloon->stats_buffer;
	ret->held = bytes_of(balloon->held, balloon->held_size);
}

static void put_device(const struct virtio_state *virtio, struct out *out, unsigned int i)
{
	const struct device_state *device = &virtio->device;
	Croft__SnapDevice *ret = &out->devices[i];

	croft__snap_device__init(ret);
	ret->id = device->id;
	ret->status = device->status;
	ret->driver_features = device->driver_features;
	ret->features_page = device->features_page;
	ret->driver_features_page = device->driver_features_page;
	ret->queue_index = device->queue_index;
	ret->interrupt_status = device->interrupt_status;
	ret->config_generation = device->config_generation;
	for (unsigned int q = 0; q < device->n_queues; q++) {
		put_queue(&device->queues[q], &out->queues[i][q]);
		out->queue_at[i][q] = &out->queues[i][q];
	}
	ret->n_queues = device->n_queues;
	ret->queues = out->queue_at[i];
	ret->sectors = virtio->sectors;
	ret->read_only = virtio->is_read_only;
	if (device->id == VIRTIO_ID_NET)
		ret->mac = bytes_of(virtio->mac, NET_MAC_SIZE);
	ret->guest_cid = virtio->guest_cid;
	ret->next_host_port = virtio->next_host_port;
	if (device->id == VIRTIO_ID_BALLOON) {
		put_balloon(&virtio->balloon, &out->balloon);
		ret->balloon = &out->balloon;
	}
	out->device_at[i] = ret;
}

static void put_serial(const struct serial_state *serial, Croft__SnapSerial *ret)
{
	croft__snap_serial__init(ret);
	ret->ier = serial->ier;
	ret->lcr = serial->lcr;
	ret->mcr = serial->mcr;
	ret->scr = serial->scr;
	ret->dll = serial->dll;
	ret->dlm = serial->dlm;
	ret->fifo = serial->fifo;
	ret->thr_pending = serial->thr_pending;
}

static void put_state(const struct vm_state *state, struct out *out)
{
	Croft__SnapState *ret = &out->state;

	croft__snap_state__init(ret);
	ret->version = (char *) (uintptr_t) CROFT_VERSION; /* only read */
	ret->memory_mib = state->memory_mib;
	if (state->has_memory_id)
		ret->memory_id = bytes_of(state->memory_id, LAYER_ID);
	ret->clock_ns = state->clock_nsec;
	ret->tsc_khz = state->tsc_khz;
	ret->cpuid = bytes_of(state->cpuid.entries, state->cpuid.n * sizeof(state->cpuid.entries[0]));
	for (unsigned int i = 0; i < state->n_vcpus; i++) {
		put_vcpu(&state->vcpus[i], &out->vcpus[i]);
		out->vcpu_at[i] = &out->vcpus[i];
	}
	ret->n_vcpus = state->n_vcpus;
	ret->vcpus = out->vcpu_at;
	for (unsigned int i = 0; i < VM_CHIPS; i++)
		out->chips[i] = bytes_of(&state->chips[i], sizeof(state->chips[i]));
	ret->n_chips = VM_CHIPS;
	ret->chips = out->chips;
	put_serial(&state->serial, &out->serial);
	ret->serial = &out->serial;
	for (unsigned int i = 0; i < state->n_devices; i++)
		put_device(&state->devices[i], out, i);
	ret->n_devices = state->n_devices;
	ret->devices = out->device_at;
	ret->reached_userspace = state->reached_userspace;
	ret->panicked = state->panicked;
}

int snapshot_encode(const struct vm_state *state, uint8_t **ret, size_t *ret_size, struct err *reterr)
{
	CLEANUP_FREE struct out *out = calloc(1, sizeof(*out));
	struct header header = { .format = SNAPSHOT_FORMAT };
	size_t size;
	uint8_t *data;

	if (!out)
		return err_set(reterr, FAIL_SNAPSHOT_FAILED, ENOMEM, "no memory for the state");
	put_state(state, out);
	size = croft__snap_state__get_packed_size(&out->state);
	data = malloc(sizeof(header) + size);
	if (!data)
		return err_set(reterr, FAIL_SNAPSHOT_FAILED, ENOMEM, "no memory for the state");
	(void) croft__snap_state__pack(&out->state, data + sizeof(header));
	memcpy(header.magic, magic, sizeof(magic));
	header.size = (uint32_t) size; /* far below 4 GiB */
	header.sum = (uint32_t) crc32_z(0, data + sizeof(header), size);
	memcpy(data, &header, sizeof(header));
	*ret = data;
	*ret_size = sizeof(header) + size;
	return 0;
}

/* ---- in ---- */

static int invalid(struct err *reterr, const char *why)
{
	return err_set(reterr, FAIL_SNAPSHOT_INVALID, EIO, "the snapshot's state %s", why);
}

/* A struct of KVM: exactly its bytes. */
static bool take(const ProtobufCBinaryData *from, void *ret, size_t size)
{
	if (from->len != size)
		return false;
	memcpy(ret, from->data, size);
	return true;
}

/* Entries of a table: a whole number of them, at most `max`. */
static bool take_table(const ProtobufCBinaryData *from, void *ret, size_t entry, size_t max, uint32_t *ret_n)
{
	if (from->len % entry != 0 || from->len / entry > max)
		return false;
	if (from->len > 0)
		memcpy(ret, from->data, from->len);
	*ret_n = (uint32_t) (from->len / entry);
	return true;
}

static bool take_vcpu(const Croft__SnapVcpu *from, struct vcpu_state *ret)
{
	ret->has_tsc_offset = from->has_tsc_offset;
	ret->tsc_offset = from->has_tsc_offset ? from->tsc_offset : 0;
	return take(&from->mp_state, &ret->mp_state, sizeof(ret->mp_state)) &&
		take(&from->regs, &ret->regs, sizeof(ret->regs)) && take(&from->sregs, &ret->sregs, sizeof(ret->sregs)) &&
		take(&from->xcrs, &ret->xcrs, sizeof(ret->xcrs)) && take(&from->xsave, &ret->xsave, sizeof(ret->xsave)) &&
		take(&from->debugregs, &ret->debugregs, sizeof(ret->debugregs)) &&
		take(&from->lapic, &ret->lapic, sizeof(ret->lapic)) &&
		take(&from->events, &ret->events, sizeof(ret->events)) &&
		take_table(&from->msrs, ret->msrs, sizeof(ret->msrs[0]), VCPU_MSRS_MAX, &ret->n_msrs);
}

static bool take_queue(const Croft__SnapQueue *from, struct queue_state *ret)
{
	*ret = (struct queue_state) { .size = (uint16_t) from->size, .desc = from->desc, .avail = from->avail,
		.used = from->used, .is_ready = from->ready, .is_broken = from->broken,
		.next_avail = (uint16_t) from->next_avail, .next_used = (uint16_t) from->next_used,
		.signalled_used = (uint16_t) from->signalled_used };
	return from->size <= UINT16_MAX && from->next_avail <= UINT16_MAX && from->next_used <= UINT16_MAX &&
		from->signalled_used <= UINT16_MAX;
}

static bool take_balloon(const Croft__SnapBalloon *from, struct balloon_state *ret)
{
	if (from->stats_buffer > UINT16_MAX)
		return false;
	*ret = (struct balloon_state) { .target = from->target, .claimed = from->claimed,
		.has_stats_buffer = from->has_stats_buffer, .stats_buffer = (uint16_t) from->stats_buffer,
		.held = malloc(MAX(from->held.len, (size_t) 1)), .held_size = from->held.len };
	if (!ret->held)
		return false;
	if (from->held.len > 0)
		memcpy(ret->held, from->held.data, from->held.len);
	return true;
}

static bool take_device(const Croft__SnapDevice *from, struct virtio_state *ret)
{
	struct device_state *device = &ret->device;

	*device = (struct device_state) { .id = from->id, .status = (uint8_t) from->status,
		.driver_features = from->driver_features, .features_page = from->features_page,
		.driver_features_page = from->driver_features_page, .queue_index = from->queue_index,
		.interrupt_status = from->interrupt_status, .config_generation = from->config_generation,
		.n_queues = (unsigned int) from->n_queues };
	if (from->status > UINT8_MAX || from->n_queues > DEVICE_QUEUES_MAX)
		return false;
	for (size_t q = 0; q < from->n_queues; q++)
		if (!take_queue(from->queues[q], &device->queues[q]))
			return false;
	ret->sectors = from->sectors;
	ret->is_read_only = from->read_only;
	ret->guest_cid = from->guest_cid;
	ret->next_host_port = from->next_host_port;
	if (from->id == VIRTIO_ID_NET && !take(&from->mac, ret->mac, NET_MAC_SIZE))
		return false;
	if (from->id == VIRTIO_ID_BALLOON)
		return from->balloon && take_balloon(from->balloon, &ret->balloon);
	return true;
}

static bool take_serial(const Croft__SnapSerial *from, struct serial_state *ret)
{
	*ret = (struct serial_state) { .ier = (uint8_t) from->ier, .lcr = (uint8_t) from->lcr, .mcr = (uint8_t) from->mcr,
		.scr = (uint8_t) from->scr, .dll = (uint8_t) from->dll, .dlm = (uint8_t) from->dlm, .fifo = from->fifo,
		.thr_pending = from->thr_pending };
	return (from->ier | from->lcr | from->mcr | from->scr | from->dll | from->dlm) <= UINT8_MAX;
}

static int take_state(const Croft__SnapState *from, struct vm_state *ret, struct err *reterr)
{
	if (from->n_vcpus == 0 || from->n_vcpus > CONFIG_VCPUS_MAX || from->n_devices > VM_VIRTIO_MAX ||
		from->n_chips != VM_CHIPS || !from->serial)
		return invalid(reterr, "has more or fewer parts than a VM");
	ret->memory_mib = from->memory_mib;
	ret->has_memory_id = from->memory_id.len > 0;
	if (ret->has_memory_id && !take(&from->memory_id, ret->memory_id, LAYER_ID))
		return invalid(reterr, "has an id of its memory that is none");
	ret->clock_nsec = from->clock_ns;
	ret->tsc_khz = from->tsc_khz;
	ret->reached_userspace = from->reached_userspace;
	ret->panicked = from->panicked;
	if (!take_table(&from->cpuid, ret->cpuid.entries, sizeof(ret->cpuid.entries[0]), CPUID_ENTRIES_MAX, &ret->cpuid.n))
		return invalid(reterr, "has no CPUID table");
	ret->vcpus = calloc(from->n_vcpus, sizeof(ret->vcpus[0]));
	if (!ret->vcpus)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the snapshot's state");
	for (; ret->n_vcpus < from->n_vcpus; ret->n_vcpus++)
		if (!take_vcpu(from->vcpus[ret->n_vcpus], &ret->vcpus[ret->n_vcpus]))
			return invalid(reterr, "has a vCPU that is none");
	for (unsigned int i = 0; i < VM_CHIPS; i++)
		if (!take(&from->chips[i], &ret->chips[i], sizeof(ret->chips[i])) || ret->chips[i].chip_id != i)
			return invalid(reterr, "has an interrupt controller that is none");
	for (; ret->n_devices < from->n_devices; ret->n_devices++)
		if (!take_device(from->devices[ret->n_devices], &ret->devices[ret->n_devices])) {
			ret->n_devices++; /* what it has already is to be freed */
			return invalid(reterr, "has a device that is none");
		}
	return take_serial(from->serial, &ret->serial) ? 0 : invalid(reterr, "has a serial port that is none");
}

static int check_header(const uint8_t *data, size_t size, struct err *reterr)
{
	struct header header;

	if (size < sizeof(header))
		return invalid(reterr, "ends in its header");
	memcpy(&header, data, sizeof(header));
	if (memcmp(header.magic, magic, sizeof(magic)) != 0)
		return invalid(reterr, "is no state of croft-vmm");
	if (header.format != SNAPSHOT_FORMAT) {
		(void) err_set(reterr, FAIL_SNAPSHOT_VERSION, EPROTONOSUPPORT, "the snapshot has format %u, not %u",
			header.format, SNAPSHOT_FORMAT);
		err_add(reterr, "have", "%u", header.format);
		err_add(reterr, "need", "%u", SNAPSHOT_FORMAT);
		return -EPROTONOSUPPORT;
	}
	if (header.zero != 0 || header.size != size - sizeof(header))
		return invalid(reterr, header.size > size - sizeof(header) ? "ends too early" : "goes on behind its end");
	if (crc32_z(0, data + sizeof(header), header.size) != header.sum)
		return invalid(reterr, "does not have its checksum");
	return 0;
}

/* A field that is two bytes in the file can be a hundred in memory, and nothing is known of a file before it is unpacked. What we
 * wrote takes less than four bytes for each of its own (registers are varints of up to ten). */
#define BYTES_A_BYTE 8u
#define BUDGET_ROOM (64u << 10)

static void *bounded_alloc(void *data, size_t size)
{
	size_t *left = data;

	if (size > *left)
		return NULL;
	*left -= size;
	return malloc(size);
}

static void bounded_free(void *data, void *pointer)
{
	(void) data;
	free(pointer);
}

int snapshot_decode(const uint8_t *data, size_t size, struct vm_state **ret, struct err *reterr)
{
	CLEANUP(vm_state_freep) struct vm_state *state = NULL;
	size_t budget = 0;
	ProtobufCAllocator allocator = { .alloc = bounded_alloc, .free = bounded_free, .allocator_data = &budget };
	Croft__SnapState *message;
	int r = check_header(data, size, reterr);

	if (r < 0)
		return r;
	budget = size * BYTES_A_BYTE + BUDGET_ROOM;
	message = croft__snap_state__unpack(&allocator, size - SNAPSHOT_HEADER, data + SNAPSHOT_HEADER);
	if (!message)
		return invalid(reterr, "is no message of snapshot.proto");
	state = calloc(1, sizeof(*state));
	r = state ? take_state(message, state, reterr)
		  : err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the snapshot's state");
	croft__snap_state__free_unpacked(message, &allocator);
	if (r == 0)
		*ret = TAKE(state);
	return r;
}

int snapshot_read(int fd, uint64_t memory_size, struct vm_state **ret, struct err *reterr)
{
	CLEANUP_FREE uint8_t *data = NULL;
	struct stat st;
	size_t size;
	int r;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return invalid(reterr, "is no regular file");
	if ((uint64_t) st.st_size > SNAPSHOT_ROOM + memory_size / 4096 / 8) /* a bit for each page of the balloon */
		return invalid(reterr, "is larger than any can be");
	size = (size_t) st.st_size;
	data = malloc(MAX(size, (size_t) 1));
	if (!data)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the snapshot's state");
	r = fd_pread_all(fd, data, size, 0);
	if (r == -EPIPE)
		return invalid(reterr, "became shorter while it was read");
	if (r < 0)
		return err_set(reterr, FAIL_SNAPSHOT_INVALID, -r, "the snapshot's state cannot be read");
	return snapshot_decode(data, size, ret, reterr);
}
