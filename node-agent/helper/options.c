/* SPDX-License-Identifier: Apache-2.0
 *
 * See options.h.
 */
#include "helper/options.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "helper/upgrade.h"

#define AT(member) offsetof(struct helper_options, member)
#define DEFAULT_FILE "/etc/croft/node-helper.conf"

/* clang-format off */
static const struct config_option table[] = {
	{ "helper", "socket", CONFIG_STRING, AT(socket), "/run/croft-helper/helper.sock", 0, 0, false,
	  "Where the agent connects; only root and its user may." },
	{ "helper", "user", CONFIG_STRING, AT(user), "croft-node", 0, 0, false, "The agent's user, by name or number." },
	{ "helper", "run", CONFIG_STRING, AT(run), "/run/croft-helper", 0, 0, false,
	  "Directory of namespaces and of whose they are; root's own." },
	{ "helper", "disks", CONFIG_STRING, AT(disks), "/var/lib/croft/node/sandboxes", 0, 0, false,
	  "Directory below which a sandbox's disk is opened, as SANDBOX/disk." },
	{ "network", "pool", CONFIG_STRING, AT(pool), "198.18.0.0/16", 0, 0, false,
	  "IPv4 block of the sandboxes' addresses, /16 to /29, eight a sandbox; no route of the host may lead into it." },
	{ "network", "allow_private", CONFIG_STRING, AT(allow_private), "", 0, 0, false,
	  "What sandboxes may reach in private ranges: CIDR:PORT or CIDR:PORT/udp, comma-separated. Nothing else opens them." },
	{ "network", "spares", CONFIG_U64, AT(spares), "4", 0, 256, false, "Network slots made ahead." },
	{ "network", "connections", CONFIG_U64, AT(connections), "4096", 16, 65536, false,
	  "Most connections of one sandbox at once." },
	{ "network", "packets_per_sec", CONFIG_U64, AT(packets_per_sec), "100000", 20, 10000000, false,
	  "Most packets a second of one sandbox, each way." },
	{ "network", "kib_per_sec", CONFIG_U64, AT(kib_per_sec), "131072", 16, 104857600, false,
	  "Most KiB a second of one sandbox, each way." },
	{ "group", "root", CONFIG_STRING, AT(group_root), "/sys/fs/cgroup/croft", 0, 0, false,
	  "Control group (v2) below which each VM has its own." },
	{ "group", "memory_mib", CONFIG_U64, AT(group_memory_mib), "0", 0, 1u << 30, false,
	  "Most memory of all VMs together, held by the kernel; 0: no more than each VM's own limit." },
	{ "group", "cpu_percent", CONFIG_U64, AT(group_cpu_percent), "0", 0, 1000000, false,
	  "Most processor time of all VMs together, 100 for each processor; 0: each VM's own limit." },
	{ "group", "io_weight", CONFIG_U64, AT(group_io_weight), "100", 1, 10000, false,
	  "Share of a busy disk for all VMs together, beside 100 for the host's services and 100 for its users." },
	{ "vmm", "path", CONFIG_STRING, AT(vmm_path), "/usr/bin/croft-vmm", 0, 0, false, "The VMM that is started." },
	{ "vmm", "run", CONFIG_STRING, AT(vm_run), "/run/croft", 0, 0, false,
	  "The agent's run directory, below which each VM has its own." },
	{ "vmm", "uid_first", CONFIG_U64, AT(uid_first), "0", 0, 4000000000u, false,
	  "First uid of VMs, which nobody else may have; 0: VMs are not started by the helper." },
	{ "vmm", "uid_count", CONFIG_U64, AT(uid_count), "8192", 1, 65536, false, "How many uids." },
	{ "upgrade", "policy", CONFIG_STRING, AT(upgrade_policy), "manual", 0, 0, false,
	  "Packages that the scheduler offers: manual: none is taken; window: in the hours of upgrade.window; auto: at once. Always signed, never older." },
	{ "upgrade", "window", CONFIG_STRING, AT(upgrade_window), "02:00-04:00", 0, 0, false,
	  "From when to when, of this host's clock, as HH:MM-HH:MM; it may go over midnight." },
	{ "upgrade", "key", CONFIG_STRING, AT(upgrade_key), "/etc/croft/release.pem", 0, 0, false,
	  "Public Ed25519 key (PEM) of those whose packages are taken." },
	{ "upgrade", "launcher", CONFIG_STRING, AT(upgrade_launcher), "/usr/bin/systemd-run", 0, 0, false,
	  "What starts the installation, in a unit of its own: the helper is stopped by it." },
};
/* clang-format on */

int helper_options_load(struct helper_options *options, int *argc, char **argv, struct err *reterr)
{
	const char *file = access(DEFAULT_FILE, R_OK) == 0 ? DEFAULT_FILE : NULL;
	int r;

	memset(options, 0, sizeof(*options));
	r = config_load(table, ARRAY_LEN(table), options, file, argc, argv, reterr);
	if (r == 0 && helper_upgrade_check(options, reterr) < 0) {
		helper_options_free(options);
		r = -EINVAL;
	}
	return r;
}

void helper_options_free(struct helper_options *options)
{
	config_free(table, ARRAY_LEN(table), options);
}

void helper_options_help(FILE *out)
{
	config_print_help(table, ARRAY_LEN(table), out);
}

void helper_options_sample(FILE *out)
{
	config_print_sample(table, ARRAY_LEN(table), out);
}

int helper_options_network(const struct helper_options *options, struct net_host_config *ret, struct err *reterr)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->run = options->run;
	ret->spares = (uint32_t)options->spares;
	ret->limits.connections = (uint32_t)options->connections;
	ret->limits.packets_per_sec = (uint32_t)options->packets_per_sec;
	ret->limits.kib_per_sec = (uint32_t)options->kib_per_sec;
	r = net_cidr_parse(options->pool, &ret->pool, reterr);
	return r < 0 ? r : net_owner_parse(options->allow_private, &ret->owner, reterr);
}
