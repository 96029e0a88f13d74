/* SPDX-License-Identifier: Apache-2.0
 *
 * See kvm-stats.h.
 */
#include "kvm-stats.h"

#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

#define NAME_MAX_SIZE 128u
#define DESCRIPTORS_MAX 512u

static const char *const names[KVM_STAT_MAX_] = {
	[KVM_STAT_EXITS] = "exits",
	[KVM_STAT_IO_EXITS] = "io_exits",
	[KVM_STAT_MMIO_EXITS] = "mmio_exits",
	[KVM_STAT_HALT_EXITS] = "halt_exits",
	[KVM_STAT_IRQ_EXITS] = "irq_exits",
	[KVM_STAT_SIGNAL_EXITS] = "signal_exits",
	[KVM_STAT_PF_FIXED] = "pf_fixed",
	[KVM_STAT_PAGES_4K] = "pages_4k",
	[KVM_STAT_PAGES_2M] = "pages_2m",
	[KVM_STAT_PAGES_1G] = "pages_1g",
};

static void note(struct kvm_stats *stats, const char *name, uint64_t at)
{
	for (int i = 0; i < KVM_STAT_MAX_; i++)
		if (!strcmp(names[i], name))
			stats->at[i] = at;
}

/* The file: a header, a descriptor of fixed size with a name for each counter, the counters. */
static int read_names(struct kvm_stats *stats)
{
	char row[sizeof(struct kvm_stats_desc) + NAME_MAX_SIZE + 1];
	struct kvm_stats_header header;
	size_t size;
	int r = fd_pread_all(stats->fd, &header, sizeof(header), 0);

	if (r < 0 || header.name_size > NAME_MAX_SIZE || header.num_desc > DESCRIPTORS_MAX)
		return r < 0 ? r : -1;
	size = sizeof(struct kvm_stats_desc) + header.name_size;
	for (uint32_t i = 0; i < header.num_desc; i++) {
		uint32_t offset;

		r = fd_pread_all(stats->fd, row, size, (off_t) (header.desc_offset + i * size));
		if (r < 0)
			return r;
		row[size] = '\0';
		memcpy(&offset, row + offsetof(struct kvm_stats_desc, offset), sizeof(offset));
		note(stats, row + offsetof(struct kvm_stats_desc, name), (uint64_t) header.data_offset + offset);
	}
	return 0;
}

void kvm_stats_open(struct kvm_stats *stats, int fd)
{
	*stats = (struct kvm_stats) KVM_STATS_NULL;
	stats->fd = ioctl(fd, KVM_GET_STATS_FD, NULL);
	if (stats->fd >= 0 && read_names(stats) < 0)
		kvm_stats_close(stats);
}

void kvm_stats_close(struct kvm_stats *stats)
{
	stats->fd = fd_close(stats->fd);
}

void kvm_stats_add(const struct kvm_stats *stats, uint64_t sums[static KVM_STAT_MAX_])
{
	for (int i = 0; stats->fd >= 0 && i < KVM_STAT_MAX_; i++) {
		uint64_t value = 0;

		if (stats->at[i] != 0 && fd_pread_all(stats->fd, &value, sizeof(value), (off_t) stats->at[i]) == 0)
			sums[i] += value;
	}
}
