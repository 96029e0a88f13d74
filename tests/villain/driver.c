/* SPDX-License-Identifier: Apache-2.0
 *
 * See villain.h.
 */
#include "villain.h"

#define PATIENCE 100000u /* pauses of at least 100 us: 10 s, of which a working device needs milliseconds */
#define QUIET 40u

/* ---- without a C library ---- */

void fill(void *to, int value, size_t size)
{
	volatile uint8_t *p = to;

	for (size_t i = 0; i < size; i++)
		p[i] = (uint8_t) value;
}

void copy(void *to, const void *from, size_t size)
{
	volatile uint8_t *p = to;
	const volatile uint8_t *q = from;

	for (size_t i = 0; i < size; i++)
		p[i] = q[i];
}

bool is_same(const void *a, const void *b, size_t size)
{
	const volatile uint8_t *p = a, *q = b;

	for (size_t i = 0; i < size; i++)
		if (p[i] != q[i])
			return false;
	return true;
}

/* ---- registers ---- */

uint64_t villain_offered(struct villain *v)
{
	uint64_t low, high;

	set_reg(v, R_DEVICE_FEATURES_SEL, 0);
	low = reg(v, R_DEVICE_FEATURES);
	set_reg(v, R_DEVICE_FEATURES_SEL, 1);
	high = reg(v, R_DEVICE_FEATURES);
	return low | high << 32;
}

void villain_accept(struct villain *v, uint64_t features)
{
	set_reg(v, R_DRIVER_FEATURES_SEL, 0);
	set_reg(v, R_DRIVER_FEATURES, (uint32_t) features);
	set_reg(v, R_DRIVER_FEATURES_SEL, 1);
	set_reg(v, R_DRIVER_FEATURES, (uint32_t) (features >> 32));
	v->features = features;
}

void villain_reset(struct villain *v)
{
	set_reg(v, R_STATUS, 0);
}

void villain_begin(struct villain *v)
{
	villain_reset(v);
	set_reg(v, R_STATUS, S_ACKNOWLEDGE);
	set_reg(v, R_STATUS, S_ACKNOWLEDGE | S_DRIVER);
}

bool villain_negotiate(struct villain *v, uint64_t features)
{
	villain_begin(v);
	villain_accept(v, features);
	set_reg(v, R_STATUS, S_ACKNOWLEDGE | S_DRIVER | S_FEATURES_OK);
	return reg(v, R_STATUS) == (S_ACKNOWLEDGE | S_DRIVER | S_FEATURES_OK);
}

void villain_place_queue(struct villain *v, unsigned int q, uint32_t n, uint64_t desc_gpa, uint64_t avail, uint64_t used)
{
	set_reg(v, R_QUEUE_SEL, q);
	set_reg(v, R_QUEUE_NUM, n);
	set_reg(v, R_DESC, (uint32_t) desc_gpa);
	set_reg(v, R_DESC + 4, (uint32_t) (desc_gpa >> 32));
	set_reg(v, R_AVAIL, (uint32_t) avail);
	set_reg(v, R_AVAIL + 4, (uint32_t) (avail >> 32));
	set_reg(v, R_USED, (uint32_t) used);
	set_reg(v, R_USED + 4, (uint32_t) (used >> 32));
}

static void clear_ring(struct villain *v, unsigned int q, uint16_t n)
{
	struct villain_queue *queue = &v->queues[q];

	for (unsigned int i = 0; i < N_MAX; i++)
		desc(v, q, i, 0, 0, 0, 0);
	fill(at(v, avail_at(q)), 0, 6 + 2 * N_MAX);
	fill(at(v, used_at(q)), 0, 6 + 8 * N_MAX);
	queue->n = n;
	queue->avail = queue->used = 0;
}

bool villain_make_queue(struct villain *v, unsigned int q, uint16_t n)
{
	clear_ring(v, q, n);
	villain_place_queue(v, q, n, desc_at(q), avail_at(q), used_at(q));
	set_reg(v, R_QUEUE_READY, 1);
	return reg(v, R_QUEUE_READY) == 1;
}

unsigned int villain_device_queues(struct villain *v)
{
	unsigned int n = 0;

	do {
		set_reg(v, R_QUEUE_SEL, n);
	} while (reg(v, R_QUEUE_NUM_MAX) != 0 && ++n < QUEUES_MAX);
	return n;
}

bool villain_start_with(struct villain *v, uint64_t features, uint16_t n)
{
	unsigned int n_queues;

	if (!villain_negotiate(v, features | F_VERSION_1))
		return false;
	n_queues = villain_device_queues(v);
	for (unsigned int q = 0; q < n_queues; q++)
		if (!villain_make_queue(v, q, n))
			return false;
	set_reg(v, R_STATUS, S_ACKNOWLEDGE | S_DRIVER | S_FEATURES_OK | S_DRIVER_OK);
	if (reg(v, R_STATUS) != (S_ACKNOWLEDGE | S_DRIVER | S_FEATURES_OK | S_DRIVER_OK))
		return false;
	if (v->device->prepare)
		v->device->prepare(v);
	return true;
}

bool villain_start(struct villain *v)
{
	return villain_start_with(v, 0, N);
}

/* ---- rings ---- */

void set_u16(struct villain *v, uint64_t gpa, uint16_t value)
{
	__atomic_store_n((uint16_t *) at(v, gpa), value, __ATOMIC_SEQ_CST);
}

uint16_t get_u16(struct villain *v, uint64_t gpa)
{
	return __atomic_load_n((uint16_t *) at(v, gpa), __ATOMIC_SEQ_CST);
}

static void put_desc(struct villain *v, uint64_t gpa, uint64_t low, uint64_t high)
{
	uint64_t *to = at(v, gpa);

	/* whole words, as another CPU does it while the device looks */
	__atomic_store_n(&to[0], low, __ATOMIC_RELAXED);
	__atomic_store_n(&to[1], high, __ATOMIC_RELAXED);
}

static void note_writable(struct villain *v, uint64_t addr, uint64_t len, unsigned int flags)
{
	if ((flags & D_WRITE) && !(flags & D_INDIRECT) && len > 0 && addr >= DATA && addr - DATA < DATA_SIZE)
		villain_allow(v, addr, len);
}

void desc(struct villain *v, unsigned int q, unsigned int index, uint64_t addr, uint64_t len, unsigned int flags,
	unsigned int next)
{
	uint64_t high = (uint32_t) len | (uint64_t) (uint16_t) flags << 32 | (uint64_t) (uint16_t) next << 48;

	v->queues[q].shadow[index].low = addr;
	v->queues[q].shadow[index].high = high;
	put_desc(v, desc_at(q) + index * UINT64_C(16), addr, high);
	note_writable(v, addr, len, flags);
}

void inner(struct villain *v, uint64_t table, unsigned int index, uint64_t addr, uint32_t len, unsigned int flags,
	unsigned int next)
{
	put_desc(v, table + index * UINT64_C(16), addr,
		len | (uint64_t) (uint16_t) flags << 32 | (uint64_t) (uint16_t) next << 48);
	note_writable(v, addr, len, flags);
}

void push(struct villain *v, unsigned int q, unsigned int head)
{
	struct villain_queue *queue = &v->queues[q];

	set_u16(v, avail_at(q) + 4 + (uint64_t) (queue->avail % queue->n) * 2, (uint16_t) head);
	set_u16(v, avail_at(q) + 2, ++queue->avail);
}

void kick(struct villain *v, unsigned int q)
{
	set_reg(v, R_QUEUE_NOTIFY, q);
}

bool has_used(struct villain *v, unsigned int q)
{
	return get_u16(v, used_at(q) + 2) != v->queues[q].used;
}

void drop_used(struct villain *v, unsigned int q)
{
	v->queues[q].used = get_u16(v, used_at(q) + 2);
}

static int64_t take_used(struct villain *v, unsigned int q, uint32_t *ret_head)
{
	struct villain_queue *queue = &v->queues[q];
	uint32_t entry[2];

	copy(entry, at(v, used_at(q) + 4 + (uint64_t) (queue->used % queue->n) * 8), sizeof(entry));
	queue->used++;
	if (ret_head)
		*ret_head = entry[0];
	villain_check_used(v, q, entry[0], entry[1]);
	return entry[1];
}

int64_t wait_used(struct villain *v, unsigned int q, uint32_t *ret_head)
{
	for (unsigned int i = 0; i < PATIENCE; i++) {
		if (has_used(v, q))
			return take_used(v, q, ret_head);
		port_pause(v);
		if (i % 64 == 63 && needs_reset(v))
			return -1;
	}
	return -1;
}

int64_t wait_head(struct villain *v, unsigned int q, uint32_t head)
{
	for (;;) {
		uint32_t found;
		int64_t len = wait_used(v, q, &found);

		if (len < 0 || found == head)
			return len;
	}
}

bool needs_reset(struct villain *v)
{
	return reg(v, R_STATUS) & S_NEEDS_RESET;
}

bool wait_needs_reset(struct villain *v)
{
	for (unsigned int i = 0; i < PATIENCE; i++) {
		if (needs_reset(v))
			return true;
		port_pause(v);
	}
	return false;
}

void pause_some(struct villain *v, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		port_pause(v);
}

bool stays_quiet(struct villain *v, unsigned int q)
{
	for (unsigned int i = 0; i < QUIET; i++) {
		if (has_used(v, q))
			return false;
		port_pause(v);
	}
	return true;
}

/* ---- what devices may touch ---- */

void villain_allow(struct villain *v, uint64_t gpa, uint64_t size)
{
	uint64_t to = size < DATA + DATA_SIZE - gpa ? gpa + size : DATA + DATA_SIZE;

	for (unsigned int i = 0; i < v->n_allowed; i++)
		if (v->allowed[i].from <= gpa && to <= v->allowed[i].to)
			return;
	if (v->n_allowed == ALLOWED_MAX) { /* a case that needs more is looked at less closely */
		v->allowed[0].from = DATA;
		v->allowed[0].to = DATA + DATA_SIZE;
		return;
	}
	v->allowed[v->n_allowed].from = gpa;
	v->allowed[v->n_allowed++].to = to;
}

void villain_guard(struct villain *v)
{
	volatile uint64_t *p = at(v, DATA);

	v->n_allowed = 0;
	for (size_t i = 0; i < DATA_SIZE / 8; i++)
		p[i] = PAINT;
}

static bool is_allowed(const struct villain *v, uint64_t gpa)
{
	for (unsigned int i = 0; i < v->n_allowed; i++)
		if (v->allowed[i].from < gpa + 8 && gpa < v->allowed[i].to)
			return true;
	return false;
}

const char *villain_check_guard(struct villain *v)
{
	volatile uint64_t *p = at(v, DATA);

	for (size_t i = 0; i < DATA_SIZE / 8; i++)
		if (p[i] != PAINT && !is_allowed(v, DATA + i * 8)) {
			v->got = DATA + i * 8;
			return "memory was written that the device was not given";
		}
	if (!is_same(at(v, TEXT), v->text, TEXT_SIZE))
		return "memory was written that the device may only read";
	for (unsigned int q = 0; q < QUEUES_MAX; q++)
		for (unsigned int i = 0; v->queues[q].n > 0 && i < N_MAX; i++)
			if (!is_same(at(v, desc_at(q) + i * UINT64_C(16)), &v->queues[q].shadow[i], 16)) {
				v->got = i;
				return "a descriptor was written";
			}
	return NULL;
}

uint64_t text(struct villain *v, uint32_t offset, const void *bytes, size_t size)
{
	copy(v->text + offset, bytes, size);
	copy(at(v, TEXT + offset), bytes, size);
	return TEXT + offset;
}

/* ---- verdicts ---- */

enum verdict fail(struct villain *v, const char *why, uint64_t got)
{
	v->why = why;
	v->got = got;
	return FAILED;
}

enum verdict skip(struct villain *v, const char *why)
{
	v->why = why;
	return SKIPPED;
}

enum verdict expect_broken(struct villain *v, unsigned int q)
{
	NEED(wait_needs_reset(v), "DEVICE_NEEDS_RESET is not set", reg(v, R_STATUS));
	drop_used(v, q);
	v->queues[q].avail = get_u16(v, avail_at(q) + 2);
	push(v, q, 0);
	kick(v, q);
	NEED(stays_quiet(v, q), "a broken queue goes on", v->queues[q].used);
	NEED(needs_reset(v), "DEVICE_NEEDS_RESET went away by itself", reg(v, R_STATUS));
	return REFUSED;
}

enum verdict expect_works(struct villain *v, unsigned int q)
{
	const char *why;

	NEED(!needs_reset(v), "the device needs a reset", reg(v, R_STATUS));
	why = v->device->request(v, q);
	NEED(!why, why, v->got);
	NEED(!needs_reset(v), "the device needs a reset", reg(v, R_STATUS));
	return SERVED;
}

enum verdict expect_works_or_broken(struct villain *v, unsigned int q)
{
	const char *why = v->device->request(v, q);

	if (needs_reset(v)) /* before the request or while it waited */
		return REFUSED;
	NEED(!why, why, v->got);
	return SERVED;
}

/* After a reset everything is well again, on every queue. */
static enum verdict recover(struct villain *v)
{
	NEED(villain_start(v), "the device does not come up after a reset", reg(v, R_STATUS));
	for (unsigned int q = 0; q < v->device->n_queues; q++) {
		const char *why = v->device->request(v, q);

		NEED(!why, why, v->got);
	}
	villain_reset(v);
	NEED(reg(v, R_STATUS) == 0, "the status is not 0 after a reset", reg(v, R_STATUS));
	return SERVED;
}

enum verdict villain_run(struct villain *v, const struct villain_case *row)
{
	enum verdict verdict;
	const char *why;

	v->why = "";
	v->used_why = NULL;
	v->got = 0;
	for (unsigned int q = 0; q < QUEUES_MAX; q++)
		v->queues[q].n = 0;
	fill(v->text, 0, TEXT_SIZE);
	fill(at(v, TEXT), 0, TEXT_SIZE);
	villain_guard(v);
	if (v->is_guest && v->device->settle)
		v->device->settle(v);
	verdict = row->run(v, row->argument);
	if (verdict == FAILED || verdict == SKIPPED)
		return verdict;
	if (!(verdict & row->expect))
		return fail(v, verdict == SERVED ? "served, and should be refused" : "refused, and should be served", 0);
	if (verdict == REFUSED && !villain_right(row))
		return fail(v, "refused, and no clause lets the device do that", 0);
	why = villain_check_guard(v);
	if (why)
		return fail(v, why, v->got);
	if (recover(v) == FAILED)
		return FAILED;
	why = villain_check_guard(v);
	if (why)
		return fail(v, why, v->got);
	if (v->used_why)
		return fail(v, v->used_why, v->used_got);
	v->why = verdict == REFUSED ? villain_right(row) : "";
	return verdict;
}
