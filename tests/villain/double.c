/* SPDX-License-Identifier: Apache-2.0
 *
 * See double.h.
 */
#include "double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "virtio/balloon.h"
#include "virtio/blk.h"
#include "virtio/mmio.h"
#include "virtio/net.h"
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
	struct net_device net;
	struct balloon_device balloon;
	int echo_fd;              /* the other end of the network device's socket */
	struct loop_source echo;
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

/* ---- the host's end of the network device: frames come back without offloads ---- */

static int fake_header_size(int fd, int size)
{
	(void) fd;
	return size == (int) NET_HEADER_SIZE ? 0 : -1;
}

static int fake_offload(int fd, unsigned int flags)
{
	(void) fd;
	(void) flags;
	return 0;
}

static const struct net_io net_io = { .set_header_size = fake_header_size, .set_offload = fake_offload };

static void on_frame(void *data, uint32_t events)
{
	static uint8_t frame[NET_HEADER_SIZE + NET_FRAME_MAX];
	struct double_vm *vm = data;
	ssize_t n = recv(vm->echo_fd, frame, sizeof(frame), MSG_DONTWAIT);

	(void) events;
	if (n < (ssize_t) NET_HEADER_SIZE)
		return;
	memset(frame, 0, NET_HEADER_SIZE);
	(void) !send(vm->echo_fd, frame, (size_t) n, MSG_DONTWAIT | MSG_NOSIGNAL); /* lost, as on a wire */
}

static int make_net(struct double_vm *vm)
{
	struct net_config config = { .mac = { 2, 0, 0, 0, 0, 1 }, .io = &net_io };
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -1;
	vm->echo_fd = fds[1];
	vm->echo.fd = -1;
	if (loop_add(&vm->vmm.loop, &vm->echo, vm->echo_fd, EPOLLIN, on_frame, vm) < 0)
		return -1;
	return net_init(&vm->net, &vm->vmm.loop, &vm->memory, fds[0], &config);
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
		vm->device = &vm->net.device;
		return make_net(vm);
	case KIND_BALLOON:
		vm->device = &vm->balloon.device;
		return balloon_init(&vm->balloon, &vm->vmm.loop, &vm->memory);
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
		net_deinit(&vm->net);
		break;
	case KIND_BALLOON:
		balloon_deinit(&vm->balloon);
		break;
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
