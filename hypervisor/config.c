/* SPDX-License-Identifier: Apache-2.0
 *
 * See config.h.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/fd.h"

#define CID_GUEST_MIN 3u
#define PORT_DIGITS 10u /* of the longest "_<port>" after its underscore */
#define SOCKET_PATH_MAX 107u

void config_init(struct vm_config *config)
{
	*config = (struct vm_config) { .kvm_fd = -1, .kernel_fd = -1, .initramfs_fd = -1, .console_fd = -1,
		.vsock_fd = -1, .tap_fd = -1, .state_fd = -1, .memory_fd = -1, .pagemap_fd = -1 };
	for (unsigned int i = 0; i < MEMORY_LAYERS_MAX; i++)
		config->layer_fds[i] = -1;
	for (unsigned int i = 0; i < CONFIG_DISKS_MAX; i++)
		config->disks[i].fd = -1;
}

void config_deinit(struct vm_config *config)
{
	(void) fd_close(config->kvm_fd);
	(void) fd_close(config->kernel_fd);
	(void) fd_close(config->initramfs_fd);
	(void) fd_close(config->console_fd);
	(void) fd_close(config->vsock_fd);
	(void) fd_close(config->tap_fd);
	(void) fd_close(config->state_fd);
	(void) fd_close(config->memory_fd);
	for (unsigned int i = 0; i < MEMORY_LAYERS_MAX; i++)
		(void) fd_close(config->layer_fds[i]);
	for (unsigned int i = 0; i < CONFIG_DISKS_MAX; i++)
		(void) fd_close(config->disks[i].fd);
	free(config->cmdline);
	config_init(config);
}

static int refuse_disk(unsigned int index, int err_no, const char *why, struct err *reterr)
{
	(void) err_set(reterr, FAIL_DISK_INVALID, err_no, "disk %u: %s", index, why);
	err_add(reterr, "disk", "%u", index);
	return -err_no;
}

static int check_disk(const struct disk_config *disk, unsigned int index, bool is_later, struct err *reterr)
{
	struct stat st;
	int flags;

	if (!rate_config_is_valid(&disk->limit))
		return refuse_disk(index, ERANGE, "a rate limit is over 2^40", reterr);
	if (is_later)
		return 0;
	if (fstat(disk->fd, &st) < 0)
		return refuse_disk(index, errno, "it cannot be examined", reterr);
	if (!S_ISREG(st.st_mode))
		return refuse_disk(index, EINVAL, "it is no regular file", reterr);
	if (st.st_size == 0)
		return refuse_disk(index, EINVAL, "it is empty", reterr);
	if (st.st_size % 512 != 0)
		return refuse_disk(index, EINVAL, "its size is no multiple of 512", reterr);
	flags = fcntl(disk->fd, F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (!disk->is_read_only && (flags & O_ACCMODE) != O_RDWR))
		return refuse_disk(index, EBADF, "it is not open for what it is to do", reterr);
	/* every write would go to its end */
	if (!disk->is_read_only && (flags & O_APPEND))
		return refuse_disk(index, EBADF, "it is open for appending", reterr);
	return 0;
}

/* Directly or deeper, but never up again. */
static bool is_inside(const char *path, const char *directory)
{
	size_t n = strlen(directory);

	while (n > 0 && directory[n - 1] == '/')
		n--;
	if (n == 0 || strncmp(path, directory, n) != 0 || path[n] != '/' || !strcmp(path + n, "/"))
		return false;
	for (const char *at = strstr(path, "/.."); at; at = strstr(at + 1, "/.."))
		if (at[3] == '/' || at[3] == '\0')
			return false;
	return true;
}

static int check_vsock(const struct vm_config *config, struct err *reterr)
{
	size_t n = strlen(config->vsock_path);

	if (config->guest_cid < CID_GUEST_MIN || config->guest_cid == UINT32_MAX)
		return err_set_at(reterr, STAGE_VMM, FAIL_INVALID_ARGUMENT, EINVAL, "guest cid %u is reserved",
			config->guest_cid);
	if (n == 0)
		return err_set_at(reterr, STAGE_VMM, FAIL_INVALID_ARGUMENT, EINVAL, "vsock.path is empty");
	if (n + 1 + PORT_DIGITS > SOCKET_PATH_MAX) {
		(void) err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG,
			"vsock.path has %zu bytes, %u fit with a port behind them", n,
			SOCKET_PATH_MAX - 1 - PORT_DIGITS);
		err_add(reterr, "have", "%zu", n);
		err_add(reterr, "max", "%u", SOCKET_PATH_MAX - 1 - PORT_DIGITS);
		return -ENAMETOOLONG;
	}
	/* the jail shows nothing else: every connection of the guest would be refused, and nobody would know why */
	if (config->run && !is_inside(config->vsock_path, config->run))
		return err_set_at(reterr, STAGE_VMM, FAIL_INVALID_ARGUMENT, EINVAL, "vsock.path is not inside %s",
			*config->run ? config->run : "a run directory (--run), of which there is none");
	return 0;
}

static int check_net(const struct vm_config *config, struct err *reterr)
{
	static const uint8_t none[NET_MAC_SIZE];
	const struct net_config *net = &config->net;
	const int wanted = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
	struct ifreq ifr = { .ifr_flags = 0 };

	if ((net->mac[0] & 1) || !memcmp(net->mac, none, sizeof(none)))
		return err_set(reterr, FAIL_NET_INVALID, EINVAL, "the MAC address is no station's");
	if (!rate_config_is_valid(&net->to_guest) || !rate_config_is_valid(&net->from_guest))
		return err_set(reterr, FAIL_NET_INVALID, ERANGE, "a rate limit of the network is over 2^40");
	if (ioctl(config->tap_fd, TUNGETIFF, &ifr) < 0)
		return err_set(reterr, FAIL_NET_INVALID, errno, "the descriptor given as TAP is none");
	if ((ifr.ifr_flags & wanted) != wanted)
		return err_set(reterr, FAIL_NET_INVALID, EINVAL, "the TAP %.16s has flags 0x%x and wants 0x%x too",
			ifr.ifr_name, (unsigned int) (unsigned short) ifr.ifr_flags, (unsigned int) wanted);
	return 0;
}

int config_check(const struct vm_config *config, char ret_cmdline[static CMDLINE_SIZE], struct err *reterr)
{
	struct memory_region regions[2];
	unsigned int n_regions;
	int r;

	if (config->vcpus == 0 || config->vcpus > CONFIG_VCPUS_MAX) {
		(void) err_set(reterr, FAIL_VCPUS_INVALID, EINVAL, "a VM has 1 to %d vCPUs, not %u", CONFIG_VCPUS_MAX,
			config->vcpus);
		err_add(reterr, "asked", "%u", config->vcpus);
		err_add(reterr, "max", "%d", CONFIG_VCPUS_MAX);
		return -EINVAL;
	}
	r = memory_layout(config->memory_mib, regions, &n_regions, reterr);
	for (unsigned int i = 0; r == 0 && i < config->n_disks; i++)
		r = check_disk(&config->disks[i], i, config->is_shell, reterr);
	if (r == 0 && config->has_vsock)
		r = check_vsock(config, reterr);
	if (r == 0 && config->has_net)
		r = check_net(config, reterr);
	return r < 0 ? r : cmdline_build(config->cmdline, ret_cmdline, reterr);
}
