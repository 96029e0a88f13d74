/* SPDX-License-Identifier: Apache-2.0
 *
 * The villain: a virtio driver that breaks each rule of virtio 1.2 on purpose, and what it expects of a device when
 * it does. The same source runs twice: in one process with the devices (double.c) and as the whole of a 64-bit guest
 * in a real VM (guest.c), so nothing here may need a C library.
 *
 * A case is a row {id, clause, devices, what, run, argument, expectation, case of the project's list}. It brings a
 * device up, does what it must not, and says what the device did: served (or ignored) it, or refused it by one of the
 * ways that the standard has for that (DEVICE_NEEDS_RESET, FEATURES_OK not set, an error status, an empty used entry,
 * RST). Behind every case the device must work again after a reset, memory that it was not given must be as it was,
 * and descriptor tables untouched: villain_run() sees to that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- guest memory, 64 MiB of it; a guest's own image lies at 16 MiB ---- */
#define MEMORY_SIZE UINT64_C(0x4000000)
#define RINGS UINT64_C(0x2000000)      /* queue q: descriptors at + q * RING_STRIDE, available + 0x4000, used + 0x8000 */
#define RING_STRIDE UINT64_C(0x10000)
#define TABLES UINT64_C(0x2080000)     /* for indirect descriptors */
#define DATA UINT64_C(0x2100000)       /* what devices may write: guarded, see villain_allow() */
#define DATA_SIZE UINT64_C(0x100000)
#define TEXT UINT64_C(0x2200000)       /* what they may only read: guarded by a copy */
#define TEXT_SIZE 0x1000u
#define WASTE UINT64_C(0x2400000)      /* 26 MiB that nobody looks at */
#define WASTE_SIZE UINT64_C(0x1800000)

#define PAINT UINT64_C(0xa5c35a3ca5c35a3c) /* what DATA holds where nobody wrote */

#define N 16                           /* entries of a ring, where the case does not say otherwise */
#define N_MAX 256
#define GOOD 12                        /* from here on for the request that shows that the device works */

/* ---- virtio 1.2 ---- */
#define D_NEXT 1u
#define D_WRITE 2u
#define D_INDIRECT 4u
#define S_ACKNOWLEDGE 1u
#define S_DRIVER 2u
#define S_DRIVER_OK 4u
#define S_FEATURES_OK 8u
#define S_NEEDS_RESET 64u
#define S_FAILED 128u
#define F_INDIRECT (UINT64_C(1) << 28)
#define F_EVENT_IDX (UINT64_C(1) << 29)
#define F_VERSION_1 (UINT64_C(1) << 32)

enum {
	R_MAGIC = 0x00,
	R_VERSION = 0x04,
	R_DEVICE_ID = 0x08,
	R_VENDOR_ID = 0x0c,
	R_DEVICE_FEATURES = 0x10,
	R_DEVICE_FEATURES_SEL = 0x14,
	R_DRIVER_FEATURES = 0x20,
	R_DRIVER_FEATURES_SEL = 0x24,
	R_QUEUE_SEL = 0x30,
	R_QUEUE_NUM_MAX = 0x34,
	R_QUEUE_NUM = 0x38,
	R_QUEUE_READY = 0x44,
	R_QUEUE_NOTIFY = 0x50,
	R_INTERRUPT_STATUS = 0x60,
	R_INTERRUPT_ACK = 0x64,
	R_STATUS = 0x70,
	R_DESC = 0x80,
	R_AVAIL = 0x90,
	R_USED = 0xa0,
	R_SHM_LEN = 0xb0,
	R_CONFIG_GENERATION = 0xfc,
	R_CONFIG = 0x100,
};

/* ---- what a case is ---- */
enum verdict { SERVED = 1, REFUSED = 2, SKIPPED = 4, FAILED = 8 };

enum kind { KIND_BLK, KIND_BLK_RO, KIND_VSOCK, KIND_RNG, KIND_NET, KIND_BALLOON, KIND_MAX_ };
#define ON(kind) (1u << (kind))
#define EVERY_KIND (ON(KIND_MAX_) - 1u)
#define EVERY_QUEUE 0x100u /* the case is run for each queue that the villain knows how to use */

struct villain;
typedef enum verdict (*villain_fn)(struct villain *v, uint64_t argument);

struct villain_case {
	const char *id, *clause;
	unsigned int where;   /* ON(kind) | ..., and EVERY_QUEUE or the device's first */
	const char *what;
	villain_fn run;
	uint64_t argument;
	unsigned int expect;  /* SERVED | REFUSED: either is right */
	const char *row;      /* "R083", or NULL */
};

struct villain_queue {
	uint16_t n, avail, used;
	struct {
		uint64_t low, high;
	} shadow[N_MAX];      /* the descriptor table as we wrote it */
};

#define QUEUES_MAX 6
#define ALLOWED_MAX 64

/* How to use a kind of device. */
struct villain_device {
	enum kind kind;
	const char *name;
	uint32_t id;
	unsigned int n_queues; /* that the villain knows how to use */
	const char *queue_names[3];
	bool takes_readable[3], takes_writable[3]; /* what each queue's buffers are */
	/* In a guest that runs case after case: takes what earlier ones left under way. NULL: nothing can be. */
	void (*settle)(struct villain *v);
	/* After the driver is up: whatever the device needs before a queue can be used. NULL: nothing. */
	void (*prepare)(struct villain *v);
	/* Makes the device look at queue `q`. */
	void (*provoke)(struct villain *v, unsigned int q);
	/* One request as it should be, from descriptor GOOD on; NULL, or what was wrong with the answer. */
	const char *(*request)(struct villain *v, unsigned int q);
};
extern const struct villain_device villain_devices[KIND_MAX_];

struct villain {
	uintptr_t base;        /* where guest address 0 is */
	void *port;
	const struct villain_device *device;
	unsigned int q;        /* the queue of a case for every queue */
	bool is_guest;         /* each access is an exit: long loops are cut */
	uint64_t features;     /* accepted at the last start */
	struct villain_queue queues[QUEUES_MAX];
	unsigned int n_allowed;
	struct {
		uint64_t from, to;
	} allowed[ALLOWED_MAX];
	uint8_t text[TEXT_SIZE]; /* the copy */
	uint32_t next_port;      /* of vsock: each connection another */
	const char *why;         /* of FAILED or SKIPPED */
	uint64_t got;
	const char *used_why;    /* what was wrong with a used entry, whatever the case says of it */
	uint64_t used_got;
};

/* Runs one case with all that stands around it. */
enum verdict villain_run(struct villain *v, const struct villain_case *row);

/* A case at one device and one queue. */
struct villain_instance {
	const struct villain_case *row;
	const struct villain_device *device;
	unsigned int q;
	const char *queue_name; /* "-rx", or "" */
};
/* Number `number` of all of them, false behind the last. Both halves count alike. */
bool villain_find(unsigned int number, struct villain_instance *ret);
/* Row `index` of all tables, NULL behind the last. */
const struct villain_case *villain_case_at(unsigned int index);
/* What lets a device refuse in this case, by its clause; NULL: nothing does, and a refusal is a failure. */
const char *villain_right(const struct villain_case *row);
extern const struct villain_case villain_mmio[], villain_ring[], villain_blk[], villain_vsock[], villain_net[];
extern const unsigned int villain_mmio_n, villain_ring_n, villain_blk_n, villain_vsock_n, villain_net_n;

/* ---- supplied by double.c and guest.c ---- */
uint64_t port_read(struct villain *v, uint32_t offset, unsigned int len);
void port_write(struct villain *v, uint32_t offset, uint64_t value, unsigned int len);
/* Lets the other side work for 100 us at least. */
void port_pause(struct villain *v);

/* ---- driver.c: registers ---- */
static inline uint32_t reg(struct villain *v, uint32_t offset)
{
	return (uint32_t) port_read(v, offset, 4);
}
static inline void set_reg(struct villain *v, uint32_t offset, uint32_t value)
{
	port_write(v, offset, value, 4);
}
uint64_t villain_offered(struct villain *v);
void villain_accept(struct villain *v, uint64_t features);
/* Reset, ACKNOWLEDGE, DRIVER. */
void villain_reset(struct villain *v);
void villain_begin(struct villain *v);
/* And features, FEATURES_OK. False: it is not set. */
bool villain_negotiate(struct villain *v, uint64_t features);
void villain_place_queue(struct villain *v, unsigned int q, uint32_t n, uint64_t desc, uint64_t avail, uint64_t used);
/* Queue q with n entries at its place, all of it zero. False: it did not become ready. */
bool villain_make_queue(struct villain *v, unsigned int q, uint16_t n);
/* All of it up to DRIVER_OK with all queues that the device has. `features` beside VERSION_1. */
bool villain_start_with(struct villain *v, uint64_t features, uint16_t n);
bool villain_start(struct villain *v);
unsigned int villain_device_queues(struct villain *v);

/* ---- driver.c: rings ---- */
static inline void *at(struct villain *v, uint64_t gpa)
{
	return (void *) (v->base + (uintptr_t) gpa);
}
static inline uint64_t desc_at(unsigned int q)
{
	return RINGS + q * RING_STRIDE;
}
static inline uint64_t avail_at(unsigned int q)
{
	return desc_at(q) + 0x4000;
}
static inline uint64_t used_at(unsigned int q)
{
	return desc_at(q) + 0x8000;
}
void set_u16(struct villain *v, uint64_t gpa, uint16_t value);
uint16_t get_u16(struct villain *v, uint64_t gpa);
/* Notes what the device may write when it is a writable one that lies in DATA. */
void desc(struct villain *v, unsigned int q, unsigned int index, uint64_t addr, uint64_t len, unsigned int flags,
	unsigned int next);
/* One entry of an indirect table at `table`. */
void inner(struct villain *v, uint64_t table, unsigned int index, uint64_t addr, uint32_t len, unsigned int flags,
	unsigned int next);
void push(struct villain *v, unsigned int q, unsigned int head);
void kick(struct villain *v, unsigned int q);
/* The next used entry within the bound: its length; -1: none came. *ret_head may be NULL. */
int64_t wait_used(struct villain *v, unsigned int q, uint32_t *ret_head);
/* The same, but others that come before that of `head` are thrown away. */
int64_t wait_head(struct villain *v, unsigned int q, uint32_t head);
void drop_used(struct villain *v, unsigned int q);
bool has_used(struct villain *v, unsigned int q);
bool wait_needs_reset(struct villain *v);
bool needs_reset(struct villain *v);
/* A few pauses. True: nothing was used in queue q meanwhile. */
bool stays_quiet(struct villain *v, unsigned int q);
void pause_some(struct villain *v, unsigned int n);

/* ---- driver.c: what devices may touch ---- */
void villain_allow(struct villain *v, uint64_t gpa, uint64_t size);
/* Forgets what was allowed and paints all of DATA anew. */
void villain_guard(struct villain *v);
/* NULL, or what is wrong. */
const char *villain_check_guard(struct villain *v);
/* Into TEXT at `offset`; the address. */
uint64_t text(struct villain *v, uint32_t offset, const void *bytes, size_t size);
void fill(void *at, int value, size_t size);
void copy(void *to, const void *from, size_t size);
bool is_same(const void *a, const void *b, size_t size);

/* ---- used.c: what devices say they wrote ---- */
void villain_check_used(struct villain *v, unsigned int q, uint32_t head, uint32_t len);

/* ---- verdicts ---- */
enum verdict fail(struct villain *v, const char *why, uint64_t got);
enum verdict skip(struct villain *v, const char *why);
#define NEED(condition, why, value)                                                                \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return fail(v, why, (uint64_t) (value));                                   \
	} while (0)
/* The device must say DEVICE_NEEDS_RESET, give nothing more back until then, and is REFUSED then. */
enum verdict expect_broken(struct villain *v, unsigned int q);
/* No reset is needed, and the next request on queue q is served: SERVED. */
enum verdict expect_works(struct villain *v, unsigned int q);
/* The same, or the device has said DEVICE_NEEDS_RESET, at whatever time: SERVED or REFUSED. */
enum verdict expect_works_or_broken(struct villain *v, unsigned int q);
