/* SPDX-License-Identifier: Apache-2.0
 *
 * The VM's generation id (ACPI's VM generation counter): 16 random bytes in the guest's memory that change, with an
 * interrupt, when the VM has become another one (a restore, a fork). A guest kernel with CONFIG_VMGENID reseeds its
 * random generator then; the others do not notice.
 */
#pragma once

#include "memory.h"

#define GENERATION_SIZE 16

struct generation {
	uint8_t *id;   /* in guest memory; the guest may write there and hurts only itself */
	int irq_fd;    /* eventfd of its interrupt; owned */
};

#define GENERATION_NULL { .irq_fd = -1 }

int generation_init(struct generation *generation);
/* Makes the first id in memory that is there by now; no interrupt. 0 or -errno. */
int generation_place(struct generation *generation, const struct memory *memory);
void generation_deinit(struct generation *generation);
/* Another id, and tells the guest. */
int generation_renew(struct generation *generation);
