/* SPDX-License-Identifier: Apache-2.0
 *
 * See options.h.
 */
#include "agent/options.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "core/supervisor.h"

/* What a sandbox's longest socket path adds to the run directory: 8 hex digits, and the name that
 * the VMM makes for the highest vsock port. */
#define LONGEST_SOCKET "/01234567/vsock.sock_4294967295"
#define SOCKET_PATH_MAX ((size_t)107)

#define AT(member) offsetof(struct agent_options, member)
#define DAY_MS (24 * 3600 * 1000u)

/* clang-format off */
static const struct config_option options_table[] = {
	{ "", "state", CONFIG_STRING, AT(state), "", 0, 0, false,
	  "Directory of the node's identity, journal, disks and spool (/var/lib/croft/node, or the user's XDG state)." },
	{ "", "cache", CONFIG_STRING, AT(cache), "", 0, 0, false,
	  "Directory of images (/var/cache/croft, or the user's XDG cache)." },
	{ "", "run", CONFIG_STRING, AT(run), "", 0, 0, false,
	  "Directory of sockets, at most 63 characters (/run/croft, or the user's XDG runtime directory)." },
	{ "", "token_file", CONFIG_STRING, AT(token_file), "", 0, 0, false, "join: the file with the join token." },
	{ "", "replace", CONFIG_BOOL, AT(replace), "no", 0, 0, false,
	  "join: give up the identity that this state directory holds." },
	{ "", "adopt", CONFIG_BOOL, AT(adopt), "no", 0, 0, false,
	  "join: to another scheduler, with what runs here; its token was made with --adopt." },
	{ "", "fix", CONFIG_BOOL, AT(fix), "no", 0, 0, false,
	  "doctor: set right what is safe to change, now and at each boot." },
	{ "", "why", CONFIG_STRING, AT(why), "", 0, 0, false, "drain: the reason, which croft node info shows." },
	{ "", "deadline", CONFIG_DURATION, AT(deadline), "0s", 0, 0, false,
	  "drain: what still runs after so long is ended; 0s: nothing is." },
	{ "", "all", CONFIG_BOOL, AT(all), "no", 0, 0, false, "stop: all sandboxes." },
	{ "", "now", CONFIG_BOOL, AT(now), "no", 0, 0, false, "uninstall: also while sandboxes are here; they end." },
	{ "", "check", CONFIG_BOOL, AT(check), "no", 0, 0, false, "upgrade: only say what of the packages is right." },
	{ "upgrade", "key", CONFIG_STRING, AT(upgrade_key), "/etc/croft/release.pem", 0, 0, false,
	  "Public Ed25519 key (PEM) of those whose packages croft-node upgrade takes." },
	{ "vmm", "path", CONFIG_STRING, AT(vmm_path), "", 0, 0, false, "The VMM (croft-vmm beside croft-node)." },
	{ "vmm", "kvm", CONFIG_STRING, AT(kvm_device), "/dev/kvm", 0, 0, false, "The device handed to the VMM." },
	{ "vmm", "probe", CONFIG_BOOL, AT(kvm_probe), "yes", 0, 0, false,
	  "Ask the device for KVM's version and a VM; no: only that it opens (for a stub VMM)." },
	{ "vmm", "jail", CONFIG_STRING, AT(vmm_jail), "available", 0, 0, false,
	  "required: no start where the host forbids a step of the VMM's jail; available: go on, and the stage says which." },
	{ "vmm", "timeout_ms", CONFIG_U64, AT(vmm_timeout_ms), "30000", 100, DAY_MS, false,
	  "Longest wait for an answer of the VMM." },
	{ "guest", "kernel", CONFIG_STRING, AT(kernel), "/usr/lib/croft/vmlinux", 0, 0, false,
	  "Guest kernel, an ELF vmlinux." },
	{ "guest", "initramfs", CONFIG_STRING, AT(initramfs), "/usr/lib/croft/initramfs.cpio", 0, 0, false,
	  "Guest initramfs with croft-guest; empty: none." },
	{ "guest", "cmdline", CONFIG_STRING, AT(cmdline), "", 0, 0, false, "Appended to the kernel command line." },
	{ "guest", "kernel_timeout_ms", CONFIG_U64, AT(kernel_timeout_ms), "60000", 100, DAY_MS, false,
	  "Longest time from the first vCPU to the guest's first process." },
	{ "guest", "guest_timeout_ms", CONFIG_U64, AT(guest_timeout_ms), "60000", 100, DAY_MS, false,
	  "Longest time from the first process to croft-guest's hello." },
	{ "guest", "stop_grace_ms", CONFIG_U64, AT(stop_grace_ms), "2000", 0, DAY_MS, false,
	  "How long a guest may take to power off before it is ended." },
	{ "guest", "canary_period", CONFIG_DURATION, AT(canary_period), "5m", 0, 0, false,
	  "A test VM is booted so often, unless a sandbox was; without one that boots nothing is placed here. 0s: none is." },
	{ "doctor", "period", CONFIG_DURATION, AT(doctor_period), "5m", 0, 0, false,
	  "The checks of croft-node doctor are run so often (not without vmm.probe); with an error nothing is placed here. 0s: never." },
	{ "limits", "sandboxes", CONFIG_U64, AT(max_sandboxes), "64", 0, 4096, false, "Most sandboxes at once." },
	{ "limits", "starts", CONFIG_U64, AT(max_starts), "8", 1, 256, false, "Most starts at once." },
	{ "limits", "vcpus", CONFIG_U64, AT(max_vcpus), "32", 1, 32, false, "Most vCPUs of one sandbox." },
	{ "limits", "memory_mib", CONFIG_U64, AT(memory_mib), "0", 0, 1u << 30, false,
	  "Memory for all sandboxes with their VMMs; 0: the host's less 1 GiB." },
	{ "limits", "disk_mib", CONFIG_U64, AT(disk_mib), "0", 0, UINT64_C(1) << 40, false,
	  "Disk for all sandboxes; 0: the state's file system above limits.disk_floor_percent." },
	{ "limits", "sandbox_disk_mib", CONFIG_U64, AT(max_disk_mib), "1048576", 1, UINT64_C(1) << 40, false,
	  "Largest writable disk of one sandbox." },
	{ "limits", "disk_floor_percent", CONFIG_U64, AT(disk_floor_percent), "15", 0, 100, false,
	  "With less of the state's or the cache's file system free, nothing new starts here." },
	{ "helper", "socket", CONFIG_STRING, AT(helper_socket), "", 0, 0, false,
	  "Socket of croft-node-helper, which makes network slots; empty: sandboxes have no network." },
	{ "helper", "dns", CONFIG_STRING, AT(helper_dns), "", 0, 0, false,
	  "Name server that the sandboxes' resolver asks, as ADDRESS:PORT; empty: those of /etc/resolv.conf." },
	{ "link", "relay", CONFIG_BOOL, AT(relay), "yes", 0, 0, false,
	  "Let the scheduler relay clients to this node's gateway; no: only clients in this network reach it." },
	{ "link", "streams", CONFIG_U64, AT(max_streams), "256", 1, 65536, false, "Most relayed streams at once." },
	{ "link", "transport", CONFIG_STRING, AT(link_transport), "tcp", 0, 0, false,
	  "tcp: the link as it is (CURVE); tls: in a TLS envelope, for networks that let nothing else out." },
	{ "link", "tls_name", CONFIG_STRING, AT(link_tls_name), "", 0, 0, false,
	  "Server name in the TLS hello, where firewalls permit some only; empty: the scheduler's host name." },
	{ "link", "proxy", CONFIG_STRING, AT(link_proxy), "", 0, 0, false,
	  "Proxy to the scheduler, socks5://HOST:PORT or http://HOST:PORT (CONNECT); empty: none. Variables like https_proxy have no say." },
	{ "link", "proxy_user", CONFIG_STRING, AT(link_proxy_user), "", 0, 0, false, "User at the proxy; empty: none." },
	{ "link", "proxy_password_file", CONFIG_STRING, AT(link_proxy_password_file), "", 0, 0, false,
	  "File with that user's password in its first line, which not everybody can read." },
	{ "link", "on_revoke", CONFIG_STRING, AT(on_revoke), "keep", 0, 0, false,
	  "When the scheduler says that this node was removed: keep: sandboxes run on until their timeouts; stop: they end." },
	{ "gateway", "admin", CONFIG_STRING, AT(gateway_admin), "", 0, 0, false,
	  "The gateway's admin socket (gateway-admin.sock in the run directory)." },
	{ "gateway", "http", CONFIG_STRING, AT(gateway_http), "", 0, 0, false,
	  "The gateway's HTTP unix socket, to which streams are relayed (gateway.sock in the run directory)." },
	{ "audit", "directory", CONFIG_STRING, AT(audit_directory), "", 0, 0, false,
	  "audit: the directory of the gateway's audit log (/var/lib/croft-gateway/audit, or audit in the run directory)." },
	{ "telemetry", "spool", CONFIG_SIZE, AT(spool_size), "512M", 65536, 0, false,
	  "Most bytes of telemetry kept while the scheduler cannot be reached." },
	{ "telemetry", "usage_period", CONFIG_DURATION, AT(usage_period), "10s", 100000, 60000000, false,
	  "How often it is written down what sandboxes use: a host that fails loses what they used since." },
	{ "image", "max_age", CONFIG_DURATION, AT(image_max_age), "168h", 0, 0, false,
	  "An image that no sandbox used for so long is removed from the cache; 0s: none for its age." },
	{ "image", "max_size", CONFIG_SIZE, AT(max_image_size), "64G", 512, 0, false, "Largest image taken." },
};
/* clang-format on */

static int set_place(char **place, struct err *reterr, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int set_place(char **place, struct err *reterr, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list args;
	char *copy;
	int n;

	va_start(args, fmt);
	n = vsnprintf(path, sizeof(path), fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(reterr, FAIL_CONFIG_INVALID, ENAMETOOLONG, "a path is too long");
	copy = strdup(path);
	if (!copy)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory");
	free(*place);
	*place = copy;
	return 0;
}

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* One of the three directories: the unit's, the system's for root, the user's. */
static int default_place(char **place, const char *unit, const char *system, const char *xdg,
	const char *in_home, const char *tail, struct err *reterr)
{
	const char *by_unit = environment(unit), *by_xdg = environment(xdg),
		   *home = environment("HOME");

	if (**place)
		return 0;
	if (by_unit)
		return set_place(place, reterr, "%.*s", (int)strcspn(by_unit, ":"), by_unit);
	if (geteuid() == 0)
		return set_place(place, reterr, "%s", system);
	if (by_xdg)
		return set_place(place, reterr, "%s/%s", by_xdg, tail);
	if (in_home && home)
		return set_place(place, reterr, "%s/%s/%s", home, in_home, tail);
	if (!in_home) /* a user without a session, who may still ask for doctor or status */
		return set_place(place, reterr, "%s", system);
	return err_set(reterr, FAIL_CONFIG_INVALID, 0,
		"neither $%s nor an option names the directory %s", xdg, tail);
}

static int default_vmm(struct agent_options *options, struct err *reterr)
{
	char self[PATH_MAX];
	ssize_t n;
	char *slash;

	if (*options->vmm_path)
		return 0;
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return set_place(&options->vmm_path, reterr, "/usr/bin/croft-vmm");
	self[n] = '\0';
	slash = strrchr(self, '/');
	return set_place(&options->vmm_path, reterr, "%.*s/croft-vmm", (int)(slash - self), self);
}

static int set_places(struct agent_options *options, struct err *reterr)
{
	int r = default_place(&options->state, "STATE_DIRECTORY", "/var/lib/croft/node",
		"XDG_STATE_HOME", ".local/state", "croft/node", reterr);

	if (r == 0)
		r = default_place(&options->cache, "CACHE_DIRECTORY", "/var/cache/croft",
			"XDG_CACHE_HOME", ".cache", "croft", reterr);
	if (r == 0)
		r = default_place(&options->run, "RUNTIME_DIRECTORY", "/run/croft",
			"XDG_RUNTIME_DIR", NULL, "croft", reterr);
	if (r == 0)
		r = default_vmm(options, reterr);
	if (r == 0 && !*options->gateway_admin)
		r = set_place(
			&options->gateway_admin, reterr, "%s/gateway-admin.sock", options->run);
	if (r == 0 && !*options->gateway_http)
		r = set_place(&options->gateway_http, reterr, "%s/gateway.sock", options->run);
	return r;
}

static int check_socket(const char *path, struct err *reterr)
{
	size_t have = strlen(path);

	if (have <= SOCKET_PATH_MAX)
		return 0;
	(void)err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG,
		"the socket path %.100s has %zu bytes, %zu are possible", path, have,
		SOCKET_PATH_MAX);
	err_add(reterr, "have", "%zu", have);
	err_add(reterr, "max", "%zu", SOCKET_PATH_MAX);
	return -ENAMETOOLONG;
}

/* The journal has room for as much of it as well. */
static int check_run(const char *run, struct err *reterr)
{
	size_t room = sizeof(((struct sv_config *)NULL)->run_base) - 1;
	size_t max = MIN(room, SOCKET_PATH_MAX - strlen(LONGEST_SOCKET)), have = strlen(run);

	if (have <= max)
		return 0;
	(void)err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG,
		"the run directory %.100s has %zu bytes; with %zu the longest socket path still fits",
		run, have, max);
	err_add(reterr, "have", "%zu", have);
	err_add(reterr, "max", "%zu", max);
	return -ENAMETOOLONG;
}

static int check(const struct agent_options *options, struct err *reterr)
{
	const struct {
		const char *name, *path;
	} places[] = { { "state", options->state }, { "cache", options->cache },
		{ "run", options->run } };
	int r;

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (*places[i].path != '/')
			return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
				"%s: \"%s\" is no absolute path", places[i].name, places[i].path);
	if (strcmp(options->on_revoke, "keep") != 0 && strcmp(options->on_revoke, "stop") != 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "link.on_revoke: \"%.40s\" is neither keep nor stop",
			options->on_revoke);
	r = check_run(options->run, reterr);
	if (r == 0)
		r = check_socket(options->gateway_admin, reterr);
	if (r == 0)
		r = check_socket(options->gateway_http, reterr);
	return r;
}

static const char *default_file(char *buf, size_t size)
{
	const char *xdg = environment("XDG_CONFIG_HOME"), *home = environment("HOME");

	if (geteuid() != 0 && (xdg || home)) {
		int n = xdg ? snprintf(buf, size, "%s/croft/node.conf", xdg)
			    : snprintf(buf, size, "%s/.config/croft/node.conf", home);

		if (n > 0 && (size_t)n < size && access(buf, R_OK) == 0)
			return buf;
	}
	return access("/etc/croft/node.conf", R_OK) == 0 ? "/etc/croft/node.conf" : NULL;
}

int agent_options_load(struct agent_options *options, int *argc, char **argv, struct err *reterr)
{
	char file[PATH_MAX];
	int r;

	memset(options, 0, sizeof(*options));
	r = config_load(options_table, ARRAY_LEN(options_table), options,
		default_file(file, sizeof(file)), argc, argv, reterr);
	if (r < 0)
		return r;
	r = set_places(options, reterr);
	if (r == 0)
		r = check(options, reterr);
	if (r < 0)
		agent_options_free(options);
	return r;
}

void agent_options_free(struct agent_options *options)
{
	config_free(options_table, ARRAY_LEN(options_table), options);
}

void agent_options_help(FILE *out)
{
	config_print_help(options_table, ARRAY_LEN(options_table), out);
}

void agent_options_sample(FILE *out)
{
	config_print_sample(options_table, ARRAY_LEN(options_table), out);
}
