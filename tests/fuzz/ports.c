/* SPDX-License-Identifier: Apache-2.0
 *
 * The port and MMIO buses with all that answers on them: serial, pvpanic, sleep, reset and boot marker, virtio. Built
 * three times: FUZZ_SERIAL and FUZZ_PVPANIC keep to one device's ports, FUZZ_MMIO reads and writes all of the space.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include "base/fd.h"
#include "base/log.h"
#include "boot/layout.h"
#include "pvpanic.h"
#include "virtio/blk.h"
#include "virtio/mmio.h"
#include "virtio/rng.h"
#include "vm.h"

static struct loop loop;
static struct memory memory;

static void init_vm(struct vm *vm)
{
	int console = open("/dev/null", O_WRONLY | O_CLOEXEC), disk = memfd_create("disk", MFD_CLOEXEC);
	struct bus_range serial = { .base = LAYOUT_PORT_SERIAL, .size = 8, .read = serial_read, .write = serial_write,
		.data = &vm->serial };

	memset(vm, 0, sizeof(*vm));
	vm->loop = &loop;
	vm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	vm->serial_irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	CLAIM(pthread_mutex_init(&vm->exit_lock, NULL) == 0);
	CLAIM(serial_init(&vm->serial, &loop, vm->serial_irq_fd, console) == 0);
	CLAIM(bus_add(&vm->ports, &serial) == 0 && pvpanic_init(vm, &vm->ports) == 0);
	CLAIM(ftruncate(disk, 4096) == 0 && blk_init(&vm->disks[0], &memory, disk, false, "fuzz", NULL) == 0);
	CLAIM(rng_init(&vm->rng, &loop, &memory) == 0);
	vm->devices[0] = &vm->disks[0].device;
	vm->devices[1] = &vm->rng.device;
	for (unsigned int i = 0; i < 2; i++) {
		struct bus_range range = { .base = LAYOUT_VIRTIO + i * LAYOUT_VIRTIO_STRIDE, .size = LAYOUT_VIRTIO_STRIDE,
			.read = mmio_read, .write = mmio_write, .data = vm->devices[i] };

		CLAIM(bus_add(&vm->mmio, &range) == 0);
	}
}

static void deinit_vm(struct vm *vm)
{
	rng_deinit(&vm->rng);
	blk_deinit(&vm->disks[0]);
	serial_deinit(&vm->serial);
	(void) fd_close(vm->serial_irq_fd);
	(void) fd_close(vm->wake_fd);
	(void) pthread_mutex_destroy(&vm->exit_lock);
}

static uint64_t where(struct script *script, bool *ret_is_port)
{
#if defined(FUZZ_SERIAL)
	*ret_is_port = true;
	return LAYOUT_PORT_SERIAL - 1 + take8(script) % 10;
#elif defined(FUZZ_PVPANIC)
	static const uint16_t ports[] = { LAYOUT_PORT_PVPANIC, LAYOUT_PORT_SLEEP_CONTROL, LAYOUT_PORT_SLEEP_STATUS,
		LAYOUT_PORT_RESET, LAYOUT_PORT_BOOT_MARKER };

	*ret_is_port = true;
	return ports[take8(script) % 5] - 1u + take8(script) % 3;
#else
	uint8_t kind = take8(script);

	*ret_is_port = kind < 60;
	if (kind < 60)
		return take(script, 2);
	if (kind < 250)
		return LAYOUT_VIRTIO - 8 + take(script, 2) % (2 * LAYOUT_VIRTIO_STRIDE + 16);
	return take(script, 8);
#endif
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	CLAIM(memory_init(&memory, 64, NULL) == 0 && loop_init(&loop) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct vm vm;
	struct script script = { data, size };

	init_vm(&vm);
	while (script.left > 0) {
		uint8_t bytes[8], kind = take8(&script);
		uint32_t len = 1 + (kind >> 1) % 8;
		bool is_port;
		uint64_t addr = where(&script, &is_port);
		uint64_t value = take(&script, len);

		memcpy(bytes, &value, sizeof(bytes));
		if (kind & 1)
			bus_write(is_port ? &vm.ports : &vm.mmio, addr, bytes, len);
		else
			bus_read(is_port ? &vm.ports : &vm.mmio, addr, bytes, len);
		if (kind & 0x80)
			CLAIM(loop_step(&loop, 0) == 0);
	}
	CLAIM(loop_step(&loop, 0) == 0);
	CLAIM(serial_stats(&vm.serial).dropped <= serial_stats(&vm.serial).bytes);
	deinit_vm(&vm);
	return 0;
}
