/* SPDX-License-Identifier: Apache-2.0
 *
 * See double.h.
 */
#include "double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "virtio/blk.h"
#include "virtio/mmio.h"
#include "virtio/rng.h"
#include "virtio/vsock.h"
#include "vmm.h"

#define EXIT_SET_UP 90 /* the double itself failed */

struct double_vm {
	struct vmm vmm;
	struct memory memory;
	struct blk_device blk;
	struct rng_device rng;
	struct vsock_device vsock;
	struct device *device;
	const struct villain_instance *instance;
	int result_fd;
	struct villain villain;
};

/* ---- the port ---- */

uint64_t port_read(struct villain *v, uint32_t offset, unsigned int len)
{
	uint8_t bytes[8] = { 0 };
	uint64_t value;

	mmio_read(v->port, offset, bytes, len);
	memcpy(&value, bytes, sizeof(value));
	return value;
}

void port_write(struct villain *v, uint32_t offset, uint64_t value, unsigned int len)
{
	uint8_t bytes[8];

	memcpy(bytes, &value, sizeof(bytes));
	mmio_write(v->port, offset, bytes, len);
}

void port_pause(struct villain *v)
{
	(void) v;
	(void) usleep(100);
}

/* ---- the thread ---- */

static void *be_vcpu(void *data)
{
	struct double_vm *vm = data;
	struct villain *v = &vm->villain;
	enum verdict verdict;

	v->base = (uintptr_t) vm->memory.base;
	v->port = vm->device;
	v->device = vm->instance->device;
	v->q = vm->instance->q;
	verdict = villain_run(v, vm->instance->row);
	(void) dprintf(vm->result_fd, "%u %llu %s\n", (unsigned int) verdict, (unsigned long long) v->got, v->why);
	return NULL;
}

/* ---- the machine ---- */

static int make_device(struct double_vm *vm, const struct double_files *files)
{
	enum kind kind = vm->instance->device->kind;
	int r;

	switch (kind) {
	case KIND_BLK:
	case KIND_BLK_RO:
		vm->device = &vm->blk.device;
		r = blk_init(&vm->blk, &vm->memory, files->disk_fd, kind == KIND_BLK_RO, "villain", NULL);
		return r < 0 ? r : blk_start(&vm->blk, NULL, NULL);
	case KIND_VSOCK:
		vm->device = &vm->vsock.device;
		return vsock_init(&vm->vsock, &vm->vmm.loop, &vm->memory, 3, files->vsock_path, files->vsock_fd);
	case KIND_RNG:
		vm->device = &vm->rng.device;
		return rng_init(&vm->rng, &vm->vmm.loop, &vm->memory);
	case KIND_NET:
	case KIND_BALLOON:
	case KIND_MAX_:
		break;
	}
	return -1;
}

static void end_device(struct double_vm *vm)
{
	switch (vm->instance->device->kind) {
	case KIND_BLK:
	case KIND_BLK_RO:
		blk_deinit(&vm->blk);
		break;
	case KIND_VSOCK:
		vsock_deinit(&vm->vsock);
		break;
	case KIND_RNG:
		rng_deinit(&vm->rng);
		break;
	case KIND_NET:
	case KIND_BALLOON:
	case KIND_MAX_:
		break;
	}
}

int double_run(const struct villain_instance *instance, const struct double_files *files)
{
	struct double_vm *vm = calloc(1, sizeof(*vm));
	pthread_t vcpu;
	int status;

	if (!vm || vmm_init(&vm->vmm, files->control_fd, NULL) < 0 ||
		memory_init(&vm->memory, MEMORY_SIZE >> 20, NULL) < 0)
		return EXIT_SET_UP;
	vm->instance = instance;
	vm->result_fd = files->result_fd;
	if (make_device(vm, files) < 0 || pthread_create(&vcpu, NULL, be_vcpu, vm) != 0)
		return EXIT_SET_UP;
	(void) vmm_run(&vm->vmm); /* no VM in it: there is nothing that could hang */
	/* a vCPU would be kicked out of the guest; ours has ended or is why the runner ends us */
	if (pthread_tryjoin_np(vcpu, NULL) != 0)
		return (int) vm->vmm.exit.reason;
	end_device(vm);
	status = (int) vm->vmm.exit.reason;
	memory_deinit(&vm->memory);
	vmm_deinit(&vm->vmm);
	free(vm);
	return status;
}
