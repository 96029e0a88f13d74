/* SPDX-License-Identifier: Apache-2.0
 *
 * A 16550A that only sends: the guest's console. What the guest writes goes into a ring of 1 MiB on the vCPU
 * thread and leaves it on the loop thread, without blocking, to the console descriptor. When the ring is
 * full the oldest bytes are dropped and counted; the guest never waits.
 *
 * A regular file is kept under SERIAL_FILE_MAX: then it begins anew with the last SERIAL_KEEP bytes, so that
 * a guest cannot fill the host's disk and the end of its output is always there.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "loop.h"

#define SERIAL_RING (UINT64_C(1) << 20)
#define SERIAL_FILE_MAX (UINT64_C(8) << 20)
#define SERIAL_KEEP (UINT64_C(256) << 10)

struct serial_stats {
	uint64_t bytes;   /* the guest wrote */
	uint64_t dropped; /* never reached the console */
};

struct serial {
	pthread_mutex_t lock; /* everything down to `dropped` */
	uint8_t ier, lcr, mcr, scr, dll, dlm;
	bool fifo, thr_pending; /* the "transmitter empty" interrupt is pending */
	bool is_awake;          /* the loop thread will look by itself */
	uint64_t head, tail;    /* bytes ever written and ever taken */
	uint64_t dropped;
	uint8_t *ring;

	int irq_fd;             /* borrowed */
	int wake_fd;            /* something came while the loop thread was not looking */
	struct loop *loop;
	struct loop_source wake, out;
	struct loop_timer pause; /* between two looks: a byte alone is not worth a turn of the loop */
	int console_fd;         /* -1: bytes are counted and dropped; owned */
	bool is_file;
	uint64_t file_size;     /* what we wrote to it since it last began */
};

#define SERIAL_NULL { .irq_fd = -1, .wake_fd = -1, .console_fd = -1, .wake = LOOP_SOURCE_NULL, .out = LOOP_SOURCE_NULL }

/* Takes over `console_fd` (-1: none) on success. 0 or -errno. */
int serial_init(struct serial *serial, struct loop *loop, int irq_fd, int console_fd);
/* Tries once more, without blocking, to get rid of what the ring holds. */
void serial_deinit(struct serial *serial);

/* For the port bus: offsets 0 to 7. */
void serial_read(void *data, uint64_t offset, uint8_t *bytes, uint32_t len);
void serial_write(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len);

/* What a snapshot keeps. Both while no vCPU runs. */
struct serial_state {
	uint8_t ier, lcr, mcr, scr, dll, dlm;
	bool fifo, thr_pending;
};
void serial_save(struct serial *serial, struct serial_state *ret);
void serial_load(struct serial *serial, const struct serial_state *state);

struct serial_stats serial_stats(struct serial *serial);
