/* SPDX-License-Identifier: Apache-2.0
 *
 * The virtio-mmio transport (version 2): registers to device calls. One page per device; an access of the
 * wrong width or to a register that is not there reads as 0 and writes nothing. Registers that set up a
 * queue count only between FEATURES_OK and DRIVER_OK and while that queue is not ready.
 */
#pragma once

#include <stdint.h>

#include "virtio/device.h"

#define MMIO_QUEUE_NOTIFY 0x50u

/* bus functions; `data` is the struct device */
void mmio_read(void *data, uint64_t offset, uint8_t *bytes, uint32_t len);
void mmio_write(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len);
