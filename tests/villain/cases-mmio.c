/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport: registers, the status machine, features (virtio 1.2, 2.1 to 2.5, 3.1, 4.2, 6). For each device.
 */
#include "devices.h"

#define ALL (S_ACKNOWLEDGE | S_DRIVER | S_FEATURES_OK | S_DRIVER_OK)

static const uint8_t steps[] = { 0, 1, 3, 11, 15 };

static bool go_to(struct villain *v, unsigned int step)
{
	villain_reset(v);
	for (unsigned int i = 1; i <= step; i++) {
		if (steps[i] == 11)
			villain_accept(v, F_VERSION_1);
		set_reg(v, R_STATUS, steps[i]);
	}
	return reg(v, R_STATUS) == steps[step];
}

static enum verdict read_identity(struct villain *v, uint64_t unused)
{
	(void) unused;
	NEED(reg(v, R_MAGIC) == 0x74726976, "MagicValue", reg(v, R_MAGIC));
	NEED(reg(v, R_VERSION) == 2, "Version", reg(v, R_VERSION));
	NEED(reg(v, R_DEVICE_ID) == v->device->id, "DeviceID", reg(v, R_DEVICE_ID));
	NEED(villain_offered(v) & F_VERSION_1, "VERSION_1 is not offered", villain_offered(v));
	return SERVED;
}

static enum verdict write_read_only(struct villain *v, uint64_t offset)
{
	uint32_t before = reg(v, (uint32_t) offset);

	set_reg(v, (uint32_t) offset, ~before);
	NEED(reg(v, (uint32_t) offset) == before, "a read-only register was changed", reg(v, (uint32_t) offset));
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	set_reg(v, (uint32_t) offset, 0x12345678);
	return expect_works(v, 0);
}

static enum verdict read_write_only(struct villain *v, uint64_t offset)
{
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	NEED(reg(v, (uint32_t) offset) == 0, "a write-only register says something", reg(v, (uint32_t) offset));
	return expect_works(v, 0);
}

/* Control registers have 32 bits: other widths read as 0 and write nothing. */
static enum verdict wrong_width(struct villain *v, uint64_t len)
{
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	for (uint32_t offset = 0; offset < R_CONFIG; offset += (uint32_t) len) {
		NEED(port_read(v, offset, (unsigned int) len) == 0, "a control register answers another width", offset);
		port_write(v, offset, 0, (unsigned int) len);
	}
	NEED(reg(v, R_STATUS) == ALL, "a write of another width counted", reg(v, R_STATUS));
	return expect_works(v, 0);
}

static enum verdict unaligned(struct villain *v, uint64_t by)
{
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	for (uint32_t offset = (uint32_t) by; offset + 4 <= R_CONFIG; offset += 4) {
		NEED(reg(v, offset) == 0, "an unaligned read is answered", offset);
		set_reg(v, offset, 0);
	}
	NEED(reg(v, R_STATUS) == ALL, "an unaligned write counted", reg(v, R_STATUS));
	return expect_works(v, 0);
}

/* Locations that 4.2.2 does not name. */
static enum verdict undescribed(struct villain *v, uint64_t value)
{
	static const uint32_t offsets[] = { 0x18, 0x1c, 0x28, 0x2c, 0x3c, 0x40, 0x48, 0x4c, 0x54, 0x58, 0x5c, 0x68, 0x6c,
		0x74, 0x78, 0x7c, 0x88, 0x8c, 0x98, 0x9c, 0xa8, 0xac, 0xc0, 0xc4, 0xd0, 0xe0, 0xf0, 0xf8 };

	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		(void) reg(v, offsets[i]);
		set_reg(v, offsets[i], (uint32_t) value);
	}
	NEED(reg(v, R_STATUS) == ALL, "the status changed", reg(v, R_STATUS));
	return expect_works(v, 0);
}

/* 2.5.2: readable before FEATURES_OK; 4.2.2.2: in 8, 16 and 32 bits, all of which say the same. */
static enum verdict config_reads(struct villain *v, uint64_t unused)
{
	(void) unused;
	villain_reset(v);
	for (uint32_t offset = 0; offset < 64; offset += 4) {
		uint32_t whole = reg(v, R_CONFIG + offset), parts = 0;

		for (uint32_t i = 0; i < 4; i++)
			parts |= (uint32_t) (port_read(v, R_CONFIG + offset + i, 1) & 0xff) << 8 * i;
		NEED(parts == whole, "bytes and word of the configuration differ", offset);
		parts = (uint32_t) port_read(v, R_CONFIG + offset, 2) | (uint32_t) port_read(v, R_CONFIG + offset + 2, 2) << 16;
		NEED(parts == whole, "halves and word of the configuration differ", offset);
	}
	return SERVED;
}

/* Behind its end, and across it: zeros, no bytes of ours. */
static enum verdict config_beyond(struct villain *v, uint64_t len)
{
	for (uint32_t offset = 256; offset + len <= 0x1000 - R_CONFIG; offset += v->is_guest ? 64 : 4)
		NEED(port_read(v, R_CONFIG + offset, (unsigned int) len) == 0, "bytes behind the configuration's end", offset);
	return SERVED;
}

static enum verdict config_write(struct villain *v, uint64_t step)
{
	uint32_t before[4];

	NEED(go_to(v, (unsigned int) step), "the state is not reached", reg(v, R_STATUS));
	for (uint32_t i = 0; i < 4; i++) {
		before[i] = reg(v, R_CONFIG + 4 * i);
		set_reg(v, R_CONFIG + 4 * i, ~before[i]);
		port_write(v, R_CONFIG + 4 * i, 0xff, 1);
	}
	for (uint32_t offset = 64; offset < 0x1000 - R_CONFIG; offset += 64)
		set_reg(v, R_CONFIG + offset, UINT32_MAX);
	if (v->device->kind != KIND_BALLOON) /* which has a field that its driver writes */
		for (uint32_t i = 0; i < 4; i++)
			NEED(reg(v, R_CONFIG + 4 * i) == before[i], "the configuration was written", i);
	return SERVED;
}

/* R086: every value of the register in a state; what the standard's sequence (3.1.1) allows and nothing else. */
static enum verdict every_status(struct villain *v, uint64_t step)
{
	static const uint8_t next[] = { 1, 3, 11, 15, 0 };
	uint32_t stride = v->is_guest ? 5 : 1;

	for (uint32_t value = 1; value < 0x200; value += stride) {
		uint32_t expected = steps[step], found;

		NEED(go_to(v, (unsigned int) step), "the state is not reached", reg(v, R_STATUS));
		if (steps[step] == 3)
			villain_accept(v, F_VERSION_1);
		if ((next[step] != 0 && value == next[step]) || (step > 0 && value == (steps[step] | S_FAILED)))
			expected = value;
		set_reg(v, R_STATUS, value);
		found = reg(v, R_STATUS);
		NEED(found == expected, "an illegal step of the status counted, or a legal one did not", value << 16 | found);
	}
	return SERVED;
}

static enum verdict status_step(struct villain *v, uint64_t from_to)
{
	NEED(go_to(v, (unsigned int) (from_to >> 16)), "the state is not reached", reg(v, R_STATUS));
	set_reg(v, R_STATUS, (uint32_t) (from_to & 0xffff));
	NEED(reg(v, R_STATUS) == steps[from_to >> 16], "the step counted", reg(v, R_STATUS));
	return REFUSED;
}
#define FROM(step) (UINT64_C(step) << 16)

/* 2.1.1: after FAILED a reset comes before anything else. */
static enum verdict after_failed(struct villain *v, uint64_t step)
{
	uint32_t failed = steps[step] | S_FAILED;

	NEED(go_to(v, (unsigned int) step), "the state is not reached", reg(v, R_STATUS));
	set_reg(v, R_STATUS, failed);
	NEED(reg(v, R_STATUS) == failed, "FAILED is not taken", reg(v, R_STATUS));
	villain_accept(v, F_VERSION_1);
	set_reg(v, R_STATUS, 11);
	set_reg(v, R_STATUS, 11 | S_FAILED);
	set_reg(v, R_STATUS, 15 | S_FAILED);
	set_reg(v, R_STATUS, 15);
	NEED(reg(v, R_STATUS) == failed, "initialisation goes on after FAILED", reg(v, R_STATUS));
	return REFUSED;
}

static enum verdict failed_while_live(struct villain *v, uint64_t unused)
{
	(void) unused;
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	set_reg(v, R_STATUS, ALL | S_FAILED);
	desc(v, 0, 0, DATA, 64, D_WRITE, 0);
	push(v, 0, 0);
	kick(v, 0);
	NEED(stays_quiet(v, 0), "a device whose driver gave up goes on", v->queues[0].used);
	return REFUSED;
}

/* R088: one bit that is not offered. */
static enum verdict feature_not_offered(struct villain *v, uint64_t first)
{
	uint64_t offered = villain_offered(v);
	bool refused_any = false;

	for (uint64_t bit = first; bit < first + 8; bit++) {
		uint64_t wish = UINT64_C(1) << bit;

		if (offered & wish)
			continue;
		NEED(!villain_negotiate(v, F_VERSION_1 | wish), "a feature that is not offered was accepted", bit);
		refused_any = true;
	}
	return refused_any ? REFUSED : SERVED;
}

static enum verdict all_features(struct villain *v, uint64_t unused)
{
	(void) unused;
	NEED(!villain_negotiate(v, UINT64_MAX), "all features were accepted", reg(v, R_STATUS));
	return REFUSED;
}

static enum verdict without_version_1(struct villain *v, uint64_t unused)
{
	(void) unused;
	NEED(!villain_negotiate(v, villain_offered(v) & ~F_VERSION_1), "no VERSION_1, and accepted", reg(v, R_STATUS));
	return REFUSED;
}

static enum verdict features_of_page(struct villain *v, uint64_t page)
{
	villain_begin(v);
	villain_accept(v, F_VERSION_1);
	set_reg(v, R_DRIVER_FEATURES_SEL, (uint32_t) page);
	set_reg(v, R_DRIVER_FEATURES, 1);
	set_reg(v, R_STATUS, 11);
	NEED(!(reg(v, R_STATUS) & S_FEATURES_OK), "a feature of a page that is not there was accepted", page);
	set_reg(v, R_DEVICE_FEATURES_SEL, (uint32_t) page);
	NEED(reg(v, R_DEVICE_FEATURES) == 0, "features on a page that is not there", reg(v, R_DEVICE_FEATURES));
	return REFUSED;
}

/* 3.1.1: nothing is accepted after FEATURES_OK. */
static enum verdict features_late(struct villain *v, uint64_t unused)
{
	(void) unused;
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	villain_accept(v, UINT64_MAX);
	NEED(reg(v, R_STATUS) == ALL, "the status changed", reg(v, R_STATUS));
	return expect_works(v, 0);
}

static enum verdict features_early(struct villain *v, uint64_t unused)
{
	(void) unused;
	villain_reset(v);
	villain_accept(v, F_VERSION_1);
	set_reg(v, R_STATUS, 1);
	villain_accept(v, F_VERSION_1);
	set_reg(v, R_STATUS, 3);
	set_reg(v, R_STATUS, 11); /* nothing was accepted since DRIVER: VERSION_1 is not */
	NEED(!(reg(v, R_STATUS) & S_FEATURES_OK), "features from before DRIVER counted", reg(v, R_STATUS));
	return REFUSED;
}

/* ---- queues by their registers ---- */

static enum verdict queue_that_is_not_there(struct villain *v, uint64_t index)
{
	NEED(villain_negotiate(v, F_VERSION_1), "no FEATURES_OK", reg(v, R_STATUS));
	villain_place_queue(v, (unsigned int) index, 8, RINGS, RINGS + 0x4000, RINGS + 0x8000);
	set_reg(v, R_QUEUE_READY, 1);
	NEED(reg(v, R_QUEUE_NUM_MAX) == 0, "QueueNumMax of a queue that is not there", reg(v, R_QUEUE_NUM_MAX));
	NEED(reg(v, R_QUEUE_READY) == 0, "a queue that is not there is ready", index);
	return REFUSED;
}

static enum verdict queue_before(struct villain *v, uint64_t step)
{
	NEED(go_to(v, (unsigned int) step), "the state is not reached", reg(v, R_STATUS));
	NEED(!villain_make_queue(v, 0, N), "a queue became ready too early", step);
	return REFUSED;
}

/* R085: what was latched stays in use. */
static enum verdict queue_moved(struct villain *v, uint64_t where)
{
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	for (unsigned int q = 0; q < villain_device_queues(v); q++)
		villain_place_queue(v, q, 4, where, where + 0x4000, where + 0x8000);
	set_reg(v, R_QUEUE_READY, 1);
	return expect_works(v, v->device->n_queues - 1);
}

static enum verdict queue_moved_before_driver_ok(struct villain *v, uint64_t where)
{
	unsigned int n_queues;

	NEED(villain_negotiate(v, F_VERSION_1), "no FEATURES_OK", reg(v, R_STATUS));
	n_queues = villain_device_queues(v);
	for (unsigned int q = 0; q < n_queues; q++) {
		NEED(villain_make_queue(v, q, N), "a queue does not become ready", q);
		villain_place_queue(v, q, 4, where, where + 0x4000, where + 0x8000);
	}
	set_reg(v, R_STATUS, ALL);
	if (v->device->prepare)
		v->device->prepare(v);
	return expect_works(v, 0);
}

static enum verdict ready_value(struct villain *v, uint64_t value)
{
	NEED(villain_negotiate(v, F_VERSION_1), "no FEATURES_OK", reg(v, R_STATUS));
	villain_place_queue(v, 0, N, desc_at(0), avail_at(0), used_at(0));
	set_reg(v, R_QUEUE_READY, (uint32_t) value);
	NEED(reg(v, R_QUEUE_READY) == 0, "QueueReady took another value than 0 and 1", reg(v, R_QUEUE_READY));
	return REFUSED;
}

/* 4.2.2.1: not while QueueReady is 0. */
static enum verdict queue_stopped(struct villain *v, uint64_t unused)
{
	unsigned int q = v->device->n_queues - 1;

	(void) unused;
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	set_reg(v, R_QUEUE_SEL, q);
	set_reg(v, R_QUEUE_READY, 0);
	NEED(reg(v, R_QUEUE_READY) == 0, "QueueReady is not read back as 0", reg(v, R_QUEUE_READY));
	desc(v, q, 0, DATA, 64, D_WRITE, 0);
	push(v, q, 0);
	v->device->provoke(v, q);
	NEED(stays_quiet(v, q), "a stopped queue is used", v->queues[q].used);
	return REFUSED;
}

static enum verdict only_some_queues(struct villain *v, uint64_t unused)
{
	(void) unused;
	NEED(villain_negotiate(v, F_VERSION_1), "no FEATURES_OK", reg(v, R_STATUS));
	set_reg(v, R_STATUS, ALL); /* with none at all */
	for (unsigned int q = 0; q < 4; q++)
		kick(v, q);
	pause_some(v, 10);
	NEED(!needs_reset(v), "a queue that was not set up breaks the device", reg(v, R_STATUS));
	return SERVED;
}

/* ---- notifications ---- */

static enum verdict notify_nobody(struct villain *v, uint64_t index)
{
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	set_reg(v, R_QUEUE_NOTIFY, (uint32_t) index);
	return expect_works(v, 0);
}

/* 2.1.2: nothing before DRIVER_OK; what waited is served afterwards. */
static enum verdict notify_before_driver_ok(struct villain *v, uint64_t unused)
{
	unsigned int q = v->device->n_queues - 1, n_queues;

	(void) unused;
	NEED(villain_negotiate(v, F_VERSION_1), "no FEATURES_OK", reg(v, R_STATUS));
	n_queues = villain_device_queues(v);
	for (unsigned int i = 0; i < n_queues; i++)
		NEED(villain_make_queue(v, i, N), "a queue does not become ready", i);
	desc(v, q, 0, DATA, 64, v->device->takes_writable[q] ? D_WRITE : 0, 0);
	push(v, q, 0);
	v->device->provoke(v, q);
	NEED(stays_quiet(v, q), "a buffer was used before DRIVER_OK", v->queues[q].used);
	NEED(!(reg(v, R_INTERRUPT_STATUS) & 1), "an interrupt before DRIVER_OK", reg(v, R_INTERRUPT_STATUS));
	return SERVED;
}

static enum verdict notify_storm(struct villain *v, uint64_t n)
{
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	if (v->is_guest)
		n /= 20;
	for (uint64_t i = 0; i < n; i++)
		kick(v, (unsigned int) (i % 4));
	return expect_works(v, 0);
}

static enum verdict reset_storm(struct villain *v, uint64_t n)
{
	if (v->is_guest)
		n /= 20;
	for (uint64_t i = 0; i < n; i++) {
		NEED(villain_start(v), "the device does not come up", i);
		for (unsigned int q = 0; q < v->device->n_queues; q++)
			v->device->provoke(v, q);
	}
	return expect_works(v, 0);
}

/* 2.4.1: nothing after a reset. */
static enum verdict after_reset(struct villain *v, uint64_t unused)
{
	unsigned int q = v->device->n_queues - 1;

	(void) unused;
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	NEED(expect_works(v, q) == SERVED, v->why, v->got);
	desc(v, q, 0, DATA, 64, v->device->takes_writable[q] ? D_WRITE : 0, 0);
	villain_reset(v);
	NEED(reg(v, R_INTERRUPT_STATUS) == 0, "InterruptStatus after a reset", reg(v, R_INTERRUPT_STATUS));
	for (unsigned int i = 0; i < villain_device_queues(v); i++) {
		set_reg(v, R_QUEUE_SEL, i);
		NEED(reg(v, R_QUEUE_READY) == 0, "QueueReady after a reset", i);
	}
	push(v, q, 0);
	v->device->provoke(v, q);
	NEED(stays_quiet(v, q), "a queue is used after a reset", v->queues[q].used);
	return SERVED;
}

static enum verdict acknowledge_nonsense(struct villain *v, uint64_t mask)
{
	NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS));
	NEED(expect_works(v, 0) == SERVED, v->why, v->got);
	NEED(reg(v, R_INTERRUPT_STATUS) == 1, "no bit for a used buffer", reg(v, R_INTERRUPT_STATUS));
	set_reg(v, R_INTERRUPT_ACK, (uint32_t) mask);
	NEED(reg(v, R_INTERRUPT_STATUS) == (1 & ~(uint32_t) mask), "InterruptStatus after InterruptACK",
		reg(v, R_INTERRUPT_STATUS));
	return expect_works(v, 0);
}

/* Every register in every state with values of all kinds: whatever comes of it, a reset must bring back. */
static enum verdict sweep(struct villain *v, uint64_t value)
{
	for (unsigned int step = 0; step < 5; step++) {
		NEED(go_to(v, step), "the state is not reached", step);
		for (uint32_t offset = 0; offset < 0x1000; offset += v->is_guest && offset >= R_CONFIG ? 0x40 : 4) {
			if (offset == R_STATUS)
				continue;
			set_reg(v, offset, (uint32_t) value);
			(void) reg(v, offset);
		}
	}
	return SERVED;
}

#define A (EVERY_KIND & ~ON(KIND_BLK_RO))
const struct villain_case villain_mmio[] = {
	{ "identity", "4.2.2.1", A, "magic, version, id and VERSION_1 are what they must be", read_identity, 0, SERVED, NULL },
	{ "write-magic", "4.2.2.2", A, "MagicValue is written", write_read_only, R_MAGIC, SERVED, NULL },
	{ "write-version", "4.2.2.2", A, "Version is written", write_read_only, R_VERSION, SERVED, NULL },
	{ "write-device-id", "4.2.2.2", A, "DeviceID is written", write_read_only, R_DEVICE_ID, SERVED, NULL },
	{ "write-features", "4.2.2.2", A, "DeviceFeatures is written", write_read_only, R_DEVICE_FEATURES, SERVED, NULL },
	{ "write-num-max", "4.2.2.2", A, "QueueNumMax is written", write_read_only, R_QUEUE_NUM_MAX, SERVED, NULL },
	{ "write-interrupt-status", "4.2.2.2", A, "InterruptStatus is written", write_read_only, R_INTERRUPT_STATUS, SERVED,
		NULL },
	{ "write-generation", "4.2.2.2", A, "ConfigGeneration is written", write_read_only, R_CONFIG_GENERATION, SERVED, NULL },
	{ "read-driver-features", "4.2.2.2", A, "DriverFeatures is read", read_write_only, R_DRIVER_FEATURES, SERVED, NULL },
	{ "read-queue-num", "4.2.2.2", A, "QueueNum is read", read_write_only, R_QUEUE_NUM, SERVED, NULL },
	{ "read-notify", "4.2.2.2", A, "QueueNotify is read", read_write_only, R_QUEUE_NOTIFY, SERVED, NULL },
	{ "read-desc", "4.2.2.2", A, "QueueDescLow is read", read_write_only, R_DESC, SERVED, NULL },
	{ "read-ack", "4.2.2.2", A, "InterruptACK is read", read_write_only, R_INTERRUPT_ACK, SERVED, NULL },
	{ "width-1", "4.2.2.2", A, "control registers in 8 bits", wrong_width, 1, SERVED, NULL },
	{ "width-2", "4.2.2.2", A, "control registers in 16 bits", wrong_width, 2, SERVED, NULL },
	{ "width-8", "4.2.2.2", A, "control registers in 64 bits", wrong_width, 8, SERVED, NULL },
	{ "unaligned-1", "4.2.2.2", A, "control registers at + 1", unaligned, 1, SERVED, NULL },
	{ "unaligned-2", "4.2.2.2", A, "control registers at + 2", unaligned, 2, SERVED, NULL },
	{ "undescribed-0", "4.2.2.2", A, "0 into locations that are not described", undescribed, 0, SERVED, NULL },
	{ "undescribed-1", "4.2.2.2", A, "ones into locations that are not described", undescribed, UINT32_MAX, SERVED, NULL },
	{ "config-widths", "2.5.2", A, "the configuration before FEATURES_OK, in all widths", config_reads, 0, SERVED, NULL },
	{ "config-beyond-4", "4.2.2.2", A, "words behind the configuration's end", config_beyond, 4, SERVED, NULL },
	{ "config-beyond-1", "4.2.2.2", A, "bytes behind the configuration's end", config_beyond, 1, SERVED, NULL },
	{ "config-beyond-8", "4.2.2.2", A, "64 bits of the configuration", config_beyond, 8, SERVED, NULL },
	{ "config-write-early", "3.1.1", A, "the configuration is written before FEATURES_OK", config_write, 2, SERVED, NULL },
	{ "config-write-late", "4.2.2.2", A, "the configuration is written while live", config_write, 4, SERVED, NULL },
	{ "status-from-0", "3.1.1", A, "every status from 0", every_status, 0, SERVED, "R086" },
	{ "status-from-1", "3.1.1", A, "every status from ACKNOWLEDGE", every_status, 1, SERVED, "R086" },
	{ "status-from-3", "3.1.1", A, "every status from DRIVER", every_status, 2, SERVED, "R086" },
	{ "status-from-11", "3.1.1", A, "every status from FEATURES_OK", every_status, 3, SERVED, "R086" },
	{ "status-from-15", "3.1.1", A, "every status from DRIVER_OK", every_status, 4, SERVED, "R086" },
	{ "driver-ok-at-once", "3.1.1", A, "DRIVER_OK without anything before it", status_step, FROM(0) | 15, REFUSED, "R086" },
	{ "no-features-ok", "3.1.1", A, "DRIVER_OK without FEATURES_OK", status_step, FROM(2) | 7, REFUSED, "R086" },
	{ "no-acknowledge", "3.1.1", A, "DRIVER without ACKNOWLEDGE", status_step, FROM(0) | 2, REFUSED, "R086" },
	{ "clear-a-bit", "2.1.1", A, "a status bit is cleared", status_step, FROM(4) | 11, REFUSED, "R086" },
	{ "clear-acknowledge", "2.1.1", A, "ACKNOWLEDGE is cleared", status_step, FROM(2) | 2, REFUSED, "R086" },
	{ "set-needs-reset", "2.1.1", A, "the driver sets DEVICE_NEEDS_RESET", status_step, FROM(2) | 3 | S_NEEDS_RESET, REFUSED,
		"R086" },
	{ "after-failed-1", "2.1.1", A, "initialisation goes on after FAILED, from ACKNOWLEDGE", after_failed, 1, REFUSED, NULL },
	{ "after-failed-3", "2.1.1", A, "initialisation goes on after FAILED, from DRIVER", after_failed, 2, REFUSED, NULL },
	{ "failed-while-live", "2.1.1", A, "buffers after FAILED", failed_while_live, 0, REFUSED, NULL },
	{ "bits-0", "2.2.1", A, "features 0 to 7 that are not offered", feature_not_offered, 0, SERVED | REFUSED, "R088" },
	{ "bits-8", "2.2.1", A, "features 8 to 15 that are not offered", feature_not_offered, 8, REFUSED, "R088" },
	{ "bits-16", "2.2.1", A, "features 16 to 23 that are not offered", feature_not_offered, 16, REFUSED, "R088" },
	{ "bits-24", "2.2.1", A, "features 24 to 31 that are not offered", feature_not_offered, 24, REFUSED, "R088" },
	{ "bits-32", "2.2.1", A, "features 32 to 39 that are not offered", feature_not_offered, 32, REFUSED, "R088" },
	{ "bits-40", "2.2.1", A, "features 40 to 47 that are not offered", feature_not_offered, 40, REFUSED, "R088" },
	{ "bits-48", "2.2.1", A, "features 48 to 55 that are not offered", feature_not_offered, 48, REFUSED, "R088" },
	{ "bits-56", "2.2.1", A, "features 56 to 63 that are not offered", feature_not_offered, 56, REFUSED, "R088" },
	{ "all-features", "2.2.1", A, "all features there can be", all_features, 0, REFUSED, "R088" },
	{ "no-version-1", "6.1", A, "VERSION_1 is not accepted", without_version_1, 0, REFUSED, "R088" },
	{ "page-2", "2.2.1", A, "features of a third page", features_of_page, 2, REFUSED, "R088" },
	{ "page-max", "2.2.1", A, "features of the last page", features_of_page, UINT32_MAX, REFUSED, "R088" },
	{ "features-late", "3.1.1", A, "features after FEATURES_OK", features_late, 0, SERVED, "R088" },
	{ "features-early", "3.1.1", A, "features before DRIVER", features_early, 0, REFUSED, NULL },
	{ "queue-7", "4.2.3.2", A, "a queue that is not there", queue_that_is_not_there, 7, REFUSED, NULL },
	{ "queue-65536", "4.2.3.2", A, "a queue beyond 16 bits", queue_that_is_not_there, 65536, REFUSED, NULL },
	{ "queue-max", "4.2.3.2", A, "the last queue there can be", queue_that_is_not_there, UINT32_MAX, REFUSED, NULL },
	{ "queue-before-driver", "3.1.1", A, "a queue before DRIVER", queue_before, 1, REFUSED, NULL },
	{ "queue-before-features", "3.1.1", A, "a queue before FEATURES_OK", queue_before, 2, REFUSED, NULL },
	{ "queue-after-driver-ok", "3.1.1", A, "a queue after DRIVER_OK", queue_before, 4, REFUSED, NULL },
	{ "moved", "4.2.2.2", A, "ring addresses are written while QueueReady is 1", queue_moved, WASTE, SERVED, "R085" },
	{ "moved-out", "4.2.2.2", A, "the same, to where no memory is", queue_moved, UINT64_C(0xfffffffffff00000), SERVED, "R085" },
	{ "moved-before-driver-ok", "4.2.2.2", A, "the same, between QueueReady and DRIVER_OK", queue_moved_before_driver_ok,
		UINT64_C(0xd0000000), SERVED, "R085" },
	{ "ready-2", "4.2.2", A, "QueueReady 2", ready_value, 2, REFUSED, NULL },
	{ "ready-max", "4.2.2", A, "QueueReady with all bits", ready_value, UINT32_MAX, REFUSED, NULL },
	{ "stopped", "4.2.2.1", A, "a buffer after QueueReady 0", queue_stopped, 0, REFUSED, NULL },
	{ "no-queues", "3.1.1", A, "DRIVER_OK without any queue", only_some_queues, 0, SERVED, NULL },
	{ "notify-9", "4.2.3.3", A, "a notification for a queue that is not there", notify_nobody, 9, SERVED, NULL },
	{ "notify-max", "4.2.3.3", A, "the same with all bits", notify_nobody, UINT32_MAX, SERVED, NULL },
	{ "notify-early", "2.1.2", A, "a notification before DRIVER_OK", notify_before_driver_ok, 0, SERVED, NULL },
	{ "notify-storm", "2.7.10.2", A, "notifications without buffers, very many", notify_storm, 20000, SERVED, NULL },
	{ "reset-storm", "2.4.1", A, "resets, very many", reset_storm, 300, SERVED, "R091" },
	{ "after-reset", "2.4.1", A, "a buffer after a reset", after_reset, 0, SERVED, "R091" },
	{ "ack-undefined", "4.2.2.2", A, "undefined bits in InterruptACK", acknowledge_nonsense, ~UINT64_C(3), SERVED, NULL },
	{ "ack-all", "4.2.2.2", A, "all bits in InterruptACK", acknowledge_nonsense, UINT32_MAX, SERVED, NULL },
	{ "ack-nothing", "4.2.3.4.1", A, "InterruptACK 0", acknowledge_nonsense, 0, SERVED, NULL },
	{ "sweep-0", "4.2.2.2", A, "0 into every register in every state", sweep, 0, SERVED, NULL },
	{ "sweep-1", "4.2.2.2", A, "1 into every register in every state", sweep, 1, SERVED, NULL },
	{ "sweep-ones", "4.2.2.2", A, "ones into every register in every state", sweep, UINT32_MAX, SERVED, NULL },
	{ "sweep-high", "4.2.2.2", A, "the highest bit into every register in every state", sweep, 0x80000000u, SERVED, NULL },
};
const unsigned int villain_mmio_n = sizeof(villain_mmio) / sizeof(villain_mmio[0]);
