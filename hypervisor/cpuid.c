/* SPDX-License-Identifier: Apache-2.0
 *
 * See cpuid.h.
 */
#include "cpuid.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include "base/util.h"

#define BIT(n) (UINT32_C(1) << (n))
#define ANY UINT32_MAX

enum reg { EAX, EBX, ECX, EDX };

/* What guests do not get, and why. A row clears bits in one register of a leaf. */
static const struct policy {
	uint32_t leaf, subleaf;
	enum reg reg;
	uint32_t clear;
} policy[] = {
	/* no nested virtualisation: KVM's largest attack surface */
	{ 0x00000001, ANY, ECX, BIT(5) },                                /* VMX */
	{ 0x80000001, ANY, ECX, BIT(2) | BIT(12) },                      /* SVM, SKINIT */
	/* waiting in the CPU would keep the host's core */
	{ 0x00000001, ANY, ECX, BIT(3) },                                /* MONITOR */
	{ 0x80000001, ANY, ECX, BIT(29) },                               /* MONITORX */
	{ 0x00000005, ANY, EAX, ANY },                                   /* MWAIT leaf */
	{ 0x00000005, ANY, EBX, ANY },
	{ 0x00000005, ANY, ECX, ANY },
	{ 0x00000005, ANY, EDX, ANY },
	{ 0x00000007, 0, ECX, BIT(5) },                                  /* WAITPKG */
	/* power and thermal controls are the host's; only "the timer never stops" stays */
	{ 0x00000001, ANY, ECX, BIT(6) | BIT(7) | BIT(8) },              /* SMX, EST, TM2 */
	{ 0x00000001, ANY, EDX, BIT(22) | BIT(29) },                     /* thermal */
	{ 0x00000006, ANY, EAX, ~BIT(2) },
	{ 0x00000006, ANY, EBX, ANY },
	{ 0x00000006, ANY, ECX, ANY },
	{ 0x00000006, ANY, EDX, ANY },
	/* performance counters and tracing: side channels, and state that no snapshot carries */
	{ 0x00000001, ANY, ECX, BIT(2) | BIT(15) },                      /* DTES64, PDCM */
	{ 0x00000001, ANY, EDX, BIT(21) },                               /* DS */
	{ 0x00000007, 0, EBX, BIT(12) | BIT(15) | BIT(25) },             /* RDT, RDT, PT */
	{ 0x00000007, 0, EDX, BIT(19) },                                 /* architectural LBR */
	{ 0x0000000a, ANY, EAX, ANY },
	{ 0x0000000a, ANY, EBX, ANY },
	{ 0x0000000a, ANY, ECX, ANY },
	{ 0x0000000a, ANY, EDX, ANY },
	{ 0x00000014, ANY, EAX, ANY },
	{ 0x00000014, ANY, EBX, ANY },
	{ 0x00000014, ANY, ECX, ANY },
	{ 0x80000001, ANY, ECX, BIT(10) | BIT(15) | BIT(23) | BIT(24) | BIT(27) | BIT(28) }, /* IBS, LWP, PMU */
	{ 0x8000001b, ANY, EAX, ANY },                                   /* IBS leaf */
	{ 0x80000022, ANY, EAX, ANY },                                   /* PMU version 2 */
	{ 0x80000022, ANY, EBX, ANY },
	/* enclaves and encrypted memory: not offered */
	{ 0x00000007, 0, EBX, BIT(2) },                                  /* SGX */
	{ 0x00000007, 0, ECX, BIT(30) },                                 /* SGX launch control */
	{ 0x00000007, 0, EDX, BIT(18) },                                 /* PCONFIG */
	{ 0x00000012, ANY, EAX, ANY },
	{ 0x00000012, ANY, EBX, ANY },
	{ 0x00000012, ANY, ECX, ANY },
	{ 0x00000012, ANY, EDX, ANY },
	{ 0x8000001f, ANY, EAX, ANY },                                   /* SME, SEV */
	/* AMX: 8 KiB of state per thread, in every snapshot and fork */
	{ 0x00000007, 0, EDX, BIT(22) | BIT(24) | BIT(25) },
	{ 0x00000007, 1, EAX, BIT(21) },
	{ 0x00000007, 1, EDX, BIT(8) },
	{ 0x0000000d, 0, EAX, BIT(17) | BIT(18) },
	{ 0x0000000d, 1, EAX, BIT(4) },                                  /* XFD */
	{ 0x0000000d, 1, ECX, BIT(8) | BIT(15) },                        /* PT and LBR state */
	{ 0x0000001d, ANY, EAX, ANY },
	{ 0x0000001e, ANY, EBX, ANY },
	/* asynchronous page faults: the guest would see the host's paging, and forks would wait for it */
	{ 0x40000001, ANY, EAX, BIT(4) | BIT(10) | BIT(14) },
	/* a TSC that always runs: the guest would take it for its clock, and it runs while the VM is paused; kvm-clock does not */
	{ 0x80000007, ANY, EDX, BIT(8) },
	/* supervisor features that need devices */
	{ 0x00000007, 0, ECX, BIT(29) },                                 /* ENQCMD */
};

/* Leaves that are about nested virtualisation or a topology that is not ours. */
static const uint32_t empty_leaves[] = { 0x8000000a, 0x0000001b, 0x0000001f, 0x80000026 };

/* The registers that belong to the rows above. CPUID alone hides them from those who ask; KVM would still emulate
 * some. At most KVM_MSR_FILTER_MAX_RANGES rows; bit i of `allowed` leaves base + i alone. */
static const struct denied {
	uint32_t base, n, allowed;
} denied_msrs[] = {
	{ 0x0000008c, 4, 0 },      /* SGX: launch control's hash */
	{ 0x000000c1, 8, 0 },      /* PMU: counters */
	{ 0x00000186, 8, 0 },      /* PMU: event selectors */
	{ 0x000001c4, 2, 0 },      /* AMX: XFD, XFD_ERR */
	{ 0x00000309, 4, 0 },      /* PMU: fixed counters */
	{ 0x00000345, 1, 0 },      /* PMU: capabilities */
	{ 0x0000038d, 0x6b, 0 },   /* PMU: control, overflow, PEBS */
	{ 0x00000480, 0x12, 0 },   /* VMX */
	{ 0x00000560, 0x12, 0 },   /* PT */
	{ 0x00000600, 1, 0 },      /* PMU: debug store */
	{ 0x4b564d02, 6, 0x0e },   /* async page faults: 02, 06, 07; between them steal time, EOI, poll control */
	{ 0xc0000300, 4, 0 },      /* PMU of AMD, version 2 */
	{ 0xc0010000, 8, 0 },      /* PMU of AMD */
	{ 0xc0010114, 4, 0 },      /* SVM: VM_CR to VM_HSAVE_PA */
	{ 0xc0010200, 12, 0 },     /* PMU of AMD, family 15h */
};

static uint32_t *reg_of(struct kvm_cpuid_entry2 *entry, enum reg reg)
{
	switch (reg) {
	case EAX:
		return &entry->eax;
	case EBX:
		return &entry->ebx;
	case ECX:
		return &entry->ecx;
	case EDX:
		break;
	}
	return &entry->edx;
}

static void apply_policy(struct kvm_cpuid_entry2 *entry)
{
	for (size_t i = 0; i < ARRAY_LEN(policy); i++)
		if (policy[i].leaf == entry->function &&
			(policy[i].subleaf == ANY || policy[i].subleaf == entry->index))
			*reg_of(entry, policy[i].reg) &= ~policy[i].clear;
	/* the tiles' own subleaves of the state layout */
	if (entry->function == 0xd && (entry->index == 17 || entry->index == 18))
		entry->eax = entry->ebx = entry->ecx = entry->edx = 0;
	for (size_t i = 0; i < ARRAY_LEN(empty_leaves); i++)
		if (empty_leaves[i] == entry->function)
			entry->eax = entry->ebx = entry->ecx = entry->edx = 0;
}

/* Bits that an APIC id of `n` cores takes. */
static uint32_t id_bits(unsigned int n)
{
	uint32_t bits = 0;

	while ((1u << bits) < n)
		bits++;
	return bits;
}

static void apply_extended_topology(struct kvm_cpuid_entry2 *entry, unsigned int index, unsigned int n)
{
	entry->edx = index;
	entry->eax = entry->ebx = 0;
	entry->ecx = entry->index;
	if (entry->index == 0) { /* threads: one per core */
		entry->ebx = 1;
		entry->ecx |= 1u << 8;
	} else if (entry->index == 1) { /* cores */
		entry->eax = id_bits(n);
		entry->ebx = n;
		entry->ecx |= 2u << 8;
	}
}

/* Caches: the first two levels are a core's own, the third is shared by all. */
static void apply_cache_topology(struct kvm_cpuid_entry2 *entry, unsigned int n, bool is_intel_leaf)
{
	uint32_t level = (entry->eax >> 5) & 7, sharers = level >= 3 ? n - 1 : 0;

	if ((entry->eax & 0x1f) == 0)
		return; /* no more caches */
	entry->eax &= is_intel_leaf ? UINT32_C(0x00003fff) : ~UINT32_C(0x03ffc000);
	entry->eax |= sharers << 14;
	if (is_intel_leaf)
		entry->eax |= ((1u << id_bits(n)) - 1) << 26;
}

static void apply_topology(struct kvm_cpuid_entry2 *entry, unsigned int index, unsigned int n, bool has_tsc_deadline)
{
	switch (entry->function) {
	case 0x1:
		entry->ebx = (entry->ebx & 0xffff) | n << 16 | index << 24;
		entry->ecx |= BIT(31) | BIT(21); /* hypervisor; x2APIC, which KVM always emulates */
		if (has_tsc_deadline)
			entry->ecx |= BIT(24);
		entry->edx = n > 1 ? entry->edx | BIT(28) : entry->edx & ~BIT(28);
		break;
	case 0x4:
		apply_cache_topology(entry, n, true);
		break;
	case 0xb:
		apply_extended_topology(entry, index, n);
		break;
	case 0x80000008:
		entry->ecx = id_bits(n) << 12 | (n - 1);
		break;
	case 0x8000001d:
		apply_cache_topology(entry, n, false);
		break;
	case 0x8000001e:
		entry->eax = index;
		entry->ebx = index; /* core id, one thread each */
		entry->ecx = 0;
		break;
	default:
		break;
	}
}

int cpuid_deny_msrs(int vm_fd)
{
	struct kvm_msr_filter filter = { .flags = KVM_MSR_FILTER_DEFAULT_ALLOW };
	uint64_t bitmaps[ARRAY_LEN(denied_msrs)][2] = { { 0 } };

	static_assert(ARRAY_LEN(denied_msrs) <= KVM_MSR_FILTER_MAX_RANGES, "ranges of the MSR filter");
	for (size_t i = 0; i < ARRAY_LEN(denied_msrs); i++) {
		assert(denied_msrs[i].n <= 8 * sizeof(bitmaps[i]));
		bitmaps[i][0] = denied_msrs[i].allowed;
		filter.ranges[i] = (struct kvm_msr_filter_range) { .flags = KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE,
			.base = denied_msrs[i].base, .nmsrs = denied_msrs[i].n, .bitmap = (uint8_t *) bitmaps[i] };
	}
	return ioctl(vm_fd, KVM_X86_SET_MSR_FILTER, &filter) < 0 ? -errno : 0;
}

bool cpuid_is_denied_msr(uint32_t index)
{
	for (size_t i = 0; i < ARRAY_LEN(denied_msrs); i++) {
		uint32_t at = index - denied_msrs[i].base;

		if (index >= denied_msrs[i].base && at < denied_msrs[i].n)
			return at >= 32 || !(denied_msrs[i].allowed & BIT(at));
	}
	return false;
}

int cpuid_read_supported(int kvm_fd, struct cpuid *ret)
{
	static_assert(offsetof(struct cpuid, entries) == sizeof(struct kvm_cpuid2), "layout of kvm_cpuid2");

	ret->n = CPUID_ENTRIES_MAX;
	ret->padding = 0;
	return ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, ret) < 0 ? -errno : 0;
}

void cpuid_apply(struct cpuid *cpuid, unsigned int index, unsigned int n_vcpus, bool has_tsc_deadline)
{
	for (uint32_t i = 0; i < cpuid->n; i++) {
		apply_policy(&cpuid->entries[i]);
		apply_topology(&cpuid->entries[i], index, n_vcpus, has_tsc_deadline);
	}
}
