/* SPDX-License-Identifier: Apache-2.0
 *
 * The state file of a snapshot, with its sum made to fit, so that what lies behind the sum is reached; then the devices that
 * such a state is put into. Whatever is accepted is written again to the same bytes' meaning.
 */
#include "fuzz.h"

#include <zlib.h>

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "snapshot.h"

static struct memory memory;
static const struct device_ops no_ops;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err err = ERR_NULL;

	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	CLAIM(memory_init(&memory, 64, &err) == 0);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mutate_message(data, size, max_size, seed, 0);
}

static void load(const struct virtio_state *virtio)
{
	struct device_config config = { .ops = &no_ops, .id = virtio->device.id, .features = UINT64_C(0xffffff),
		.n_queues = MIN(virtio->device.n_queues, (unsigned int) DEVICE_QUEUES_MAX), .queue_size = 256 };
	struct device device;
	struct chain chain;

	CLAIM(device_init(&device, &memory, &config) == 0);
	if (device_load(&device, &virtio->device) == 0) {
		for (unsigned int i = 0; i < device.n_queues; i++)
			if (device.queues[i].is_ready && device_pop(&device, i, &chain))
				queue_push(&device.queues[i], chain.head, 0);
		device_wake(&device);
	}
	device_deinit(&device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[1 << 20];
	uint32_t header[] = { SNAPSHOT_FORMAT, (uint32_t) size, (uint32_t) crc32_z(0, data, size), 0 };
	struct vm_state *state = NULL;
	struct err err = ERR_NULL;
	uint8_t *again = NULL;
	size_t again_size;

	if (size > sizeof(file) - SNAPSHOT_HEADER)
		return 0;
	memcpy(file, "croftvm", 8);
	memcpy(file + 8, header, sizeof(header));
	memcpy(file + SNAPSHOT_HEADER, data, size);
	if (snapshot_decode(file, SNAPSHOT_HEADER + size, &state, &err) < 0) {
		CLAIM(err.code != FAIL_NONE && !state);
		return 0;
	}
	for (unsigned int i = 0; i < state->n_devices; i++)
		load(&state->devices[i]);
	CLAIM(snapshot_encode(state, &again, &again_size, &err) == 0);
	vm_state_free(state);
	CLAIM(snapshot_decode(again, again_size, &state, &err) == 0);
	vm_state_free(state);
	free(again);
	return 0;
}
