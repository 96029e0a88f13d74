/* SPDX-License-Identifier: Apache-2.0
 *
 * The villain as the whole of a 64-bit guest: no kernel, no C library, one CPU without interrupts. It runs the cases that
 * the command line names (villain.first=N villain.count=N, numbers of villain_find()) and says on the serial port
 *
 *   begin N            and then       end N <verdict> <number> <why>
 *
 * and at last "done". The VMM enters it at guest_entry with the first GiB mapped one to one.
 */
#include "villain.h"

#define SERIAL 0x3f8
#define CMDLINE 0x20000u
#define PDPT 0xa000u          /* the VMM's page directory pointers */
#define DEVICES UINT64_C(0xd0000000)
#define STRIDE UINT64_C(0x1000)
#define SLOTS 18u
#define KVM_FEATURES 0x40000001u
#define KVM_SYSTEM_TIME 0x4b564d01u
#define PAUSE_NSEC 100000u
#define PAGE_FLAGS 0x83u      /* present, writable, 2 MiB */

void guest_entry(void);
void guest_main(void);
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
void *memmove(void *to, const void *from, size_t size);

static uint8_t stack[65536] __attribute__((aligned(16), used));
static uint64_t page_directory[512] __attribute__((aligned(4096)));
static struct villain villain;

/* What KVM says of its clock. */
static volatile struct {
	uint32_t version, pad;
	uint64_t tsc, nsec;
	uint32_t mul;
	int8_t shift;
	uint8_t flags, more_pad[2];
} clock __attribute__((aligned(64)));

__attribute__((naked)) void guest_entry(void)
{
	__asm__("lea stack+65536(%rip), %rsp\n"
		"xor %ebp, %ebp\n"
		"call guest_main\n"
		"1: hlt\n"
		"jmp 1b\n");
}

/* ---- what compilers call ---- */

void *memcpy(void *to, const void *from, size_t size)
{
	copy(to, from, size);
	return to;
}

void *memset(void *to, int value, size_t size)
{
	fill(to, value, size);
	return to;
}

void *memmove(void *to, const void *from, size_t size)
{
	uint8_t *p = to;
	const uint8_t *q = from;

	if (p <= q)
		copy(to, from, size);
	else
		for (size_t i = size; i-- > 0;)
			((volatile uint8_t *) p)[i] = q[i];
	return to;
}

/* ---- the serial port ---- */

static void put_char(char c)
{
	__asm__ volatile("outb %0, %1" : : "a"((uint8_t) c), "Nd"((uint16_t) SERIAL));
}

static void put_text(const char *text)
{
	while (*text)
		put_char(*text++);
}

static void put_number(uint64_t value)
{
	char digits[24];
	unsigned int n = sizeof(digits) - 1;

	digits[n] = '\0';
	do {
		digits[--n] = (char) ('0' + value % 10);
		value /= 10;
	} while (value);
	put_text(digits + n);
}

/* ---- exceptions: none is expected, and none goes without a word (docs/decisions/0002) ---- */

#define VECTORS 32u
#define STUB_SIZE 16u

struct fault_frame {
	uint64_t vector, error, rip, cs, flags, rsp, ss;
};

static struct {
	uint16_t low, selector, ist_type, middle;
	uint32_t high, zero;
} gates[VECTORS] __attribute__((aligned(16)));

void fault_report(const struct fault_frame *frame);
void fault_stubs(void);

/* A stub for each vector: those without an error code push a zero for it. */
__attribute__((naked, aligned(16), used)) void fault_stubs(void)
{
	__asm__(".set vector, 0\n"
		".rept 32\n"
		".balign 16\n"
		".if (vector != 8) && (vector != 17) && (vector != 21) && ((vector < 10) || (vector > 14))\n"
		"push $0\n"
		".endif\n"
		"push $vector\n"
		"jmp 1f\n"
		".set vector, vector + 1\n"
		".endr\n"
		".balign 16\n"
		"1: mov %rsp, %rdi\n"
		"and $-16, %rsp\n"
		"call fault_report\n");
}

static void put_hex(uint64_t value)
{
	for (int shift = 60; shift >= 0; shift -= 4)
		put_char("0123456789abcdef"[value >> shift & 15]);
	put_char(' ');
}

/* Says what it was and shuts the CPU down, which it would have done without us. */
__attribute__((used)) void fault_report(const struct fault_frame *frame)
{
	static const struct __attribute__((packed)) {
		uint16_t limit;
		uint64_t base;
	} none = { 0, 0 };
	uint64_t cr2, cr3;

	__asm__ volatile("mov %%cr2, %0\n\tmov %%cr3, %1" : "=r"(cr2), "=r"(cr3));
	put_text("fault ");
	put_number(frame->vector);
	put_text(" error, rip, rsp, flags, cr2, cr3: ");
	put_hex(frame->error);
	put_hex(frame->rip);
	put_hex(frame->rsp);
	put_hex(frame->flags);
	put_hex(cr2);
	put_hex(cr3);
	put_text("\n");
	__asm__ volatile("lidt %0\n\tint3" : : "m"(none));
}

static void catch_faults(void)
{
	struct __attribute__((packed)) {
		uint16_t limit;
		uint64_t base;
	} table = { sizeof(gates) - 1, (uint64_t) (uintptr_t) gates };
	uint16_t cs;

	__asm__("mov %%cs, %0" : "=r"(cs));
	for (unsigned int i = 0; i < VECTORS; i++) {
		uint64_t at = (uint64_t) (uintptr_t) fault_stubs + i * STUB_SIZE;

		gates[i].low = (uint16_t) at;
		gates[i].selector = cs;
		gates[i].ist_type = 0x8e00; /* present, interrupt gate */
		gates[i].middle = (uint16_t) (at >> 16);
		gates[i].high = (uint32_t) (at >> 32);
	}
	__asm__ volatile("lidt %0" : : "m"(table));
}

/* ---- the port ---- */

uint64_t port_read(struct villain *v, uint32_t offset, unsigned int len)
{
	uintptr_t address = (uintptr_t) v->port + offset;

	switch (len) {
	case 1:
		return *(volatile uint8_t *) address;
	case 2:
		return *(volatile uint16_t *) address;
	case 4:
		return *(volatile uint32_t *) address;
	default:
		return *(volatile uint64_t *) address;
	}
}

void port_write(struct villain *v, uint32_t offset, uint64_t value, unsigned int len)
{
	uintptr_t address = (uintptr_t) v->port + offset;

	switch (len) {
	case 1:
		*(volatile uint8_t *) address = (uint8_t) value;
		break;
	case 2:
		*(volatile uint16_t *) address = (uint16_t) value;
		break;
	case 4:
		*(volatile uint32_t *) address = (uint32_t) value;
		break;
	default:
		*(volatile uint64_t *) address = value;
		break;
	}
}

/* ---- the clock: KVM's, since an access costs what it costs, here a microsecond and there a hundred ---- */

static void cpuid(uint32_t leaf, uint32_t ret[static 4])
{
	__asm__("cpuid" : "=a"(ret[0]), "=b"(ret[1]), "=c"(ret[2]), "=d"(ret[3]) : "a"(leaf), "c"(0));
}

static bool start_clock(void)
{
	uint64_t where = (uint64_t) (uintptr_t) &clock | 1;
	uint32_t leaf[4];

	cpuid(KVM_FEATURES, leaf);
	if (!(leaf[0] & 1u << 3))
		return false;
	__asm__ volatile("wrmsr" : : "c"(KVM_SYSTEM_TIME), "a"((uint32_t) where), "d"((uint32_t) (where >> 32)) : "memory");
	return clock.mul != 0;
}

static uint64_t now_nsec(void)
{
	uint32_t version, low, high;
	uint64_t at, nsec;

	do {
		version = clock.version;
		__asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
		at = ((uint64_t) high << 32 | low) - clock.tsc;
		at = clock.shift < 0 ? at >> -clock.shift : at << clock.shift;
		nsec = clock.nsec + (at >> 32) * clock.mul + ((at & UINT32_MAX) * clock.mul >> 32);
	} while ((version & 1) || version != clock.version);
	return nsec;
}

/* With a register that costs a way out to the VMM. */
void port_pause(struct villain *v)
{
	uint64_t until = now_nsec() + PAUSE_NSEC;

	do {
		__asm__ volatile("pause");
		(void) reg(v, R_VENDOR_ID);
	} while (now_nsec() < until);
}

/* ---- the machine ---- */

/* The fourth GiB, where the devices are. */
static void map_devices(void)
{
	volatile uint64_t *pointers = (volatile uint64_t *) (uintptr_t) PDPT;
	uint64_t cr3;

	for (uint64_t i = 0; i < 512; i++)
		page_directory[i] = (UINT64_C(3) << 30) + (i << 21) + PAGE_FLAGS;
	pointers[3] = (uint64_t) (uintptr_t) page_directory | 3;
	__asm__ volatile("mov %%cr3, %0\n\tmov %0, %%cr3" : "=r"(cr3) : : "memory");
}

static bool find_device(struct villain *v, const struct villain_device *device)
{
	for (unsigned int slot = 0; slot < SLOTS; slot++) {
		bool is_ro;

		v->port = (void *) (uintptr_t) (DEVICES + slot * STRIDE);
		if (reg(v, R_MAGIC) != 0x74726976 || reg(v, R_DEVICE_ID) != device->id)
			continue;
		is_ro = device->id == 2 && (villain_offered(v) & UINT64_C(1) << 5);
		if (is_ro == (device->kind == KIND_BLK_RO))
			return true;
	}
	return false;
}

/* The number behind `key` on the command line. */
static uint64_t option(const char *key, uint64_t otherwise)
{
	const volatile char *line = (const volatile char *) (uintptr_t) CMDLINE;

	for (unsigned int i = 0; line[i] && i < 2048; i++) {
		unsigned int k = 0;
		uint64_t value = 0;

		while (key[k] && line[i + k] == key[k])
			k++;
		if (key[k])
			continue;
		for (k += i; line[k] >= '0' && line[k] <= '9'; k++)
			value = value * 10 + (uint64_t) (line[k] - '0');
		return value;
	}
	return otherwise;
}

static void run(unsigned int number, const struct villain_instance *instance)
{
	struct villain *v = &villain;
	enum verdict verdict;

	put_text("begin ");
	put_number(number);
	put_text("\n");
	v->base = 0;
	v->is_guest = true;
	v->device = instance->device;
	v->q = instance->q;
	if (find_device(v, instance->device))
		verdict = villain_run(v, instance->row);
	else
		verdict = skip(v, "this VM has no such device");
	put_text("end ");
	put_number(number);
	put_text(" ");
	put_number(verdict);
	put_text(" ");
	put_number(v->got);
	put_text(" ");
	put_text(v->why);
	put_text("\n");
}

void guest_main(void)
{
	unsigned int first = (unsigned int) option("villain.first=", 0), count = (unsigned int) option("villain.count=", 1);
	unsigned int stride = (unsigned int) option("villain.stride=", 1);
	struct villain_instance instance;

	catch_faults();
	map_devices();
	if (option("villain.fault=", 0) == 1) /* does the report work? */
		*(volatile uint8_t *) (UINT64_C(1) << 40) = 1;
	if (!start_clock()) {
		put_text("there is no clock\n");
		return;
	}
	put_text("villain\n");
	for (unsigned int i = 0; i < count && villain_find(first + i * stride, &instance); i++)
		run(first + i * stride, &instance);
	put_text("done\n");
}
