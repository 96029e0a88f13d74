/* SPDX-License-Identifier: Apache-2.0
 *
 * See doctor.h: the host's CPU, kernel and memory.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "doctor/kvm.h"
#include "doctor/doctor.h"

#define CPUINFO_SIZE 65536u
#define OLDEST_MAJOR 5
#define OLDEST_MINOR 14 /* cgroup.kill */
#define TRIED_MAJOR 6
#define TRIED_MINOR 1 /* Debian 12 */
#define MEMORY_MIB_MIN 2048u
#define ENTROPY_MIN 64u
#define KIB_PER_MIB 1024u

#define SHMEM_HUGE "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define KSM_RUN "/sys/kernel/mm/ksm/run"

void doctor_check_kvm(struct doctor *doctor)
{
	const char *step, *device = doctor->config->kvm;
	char remedy[256];
	int r;

	if (!device)
		return;
	r = doctor_try_kvm(device, &step);
	if (r == 0 && !kvm_host_is_hardware()) {
		(void)doctor_say(doctor, DOCTOR_ERROR, "Enable VT-x or AMD-V in the firmware, or nested virtualisation where this is a VM.",
			"%s makes a VM, but this CPU has neither VT-x nor AMD-V: kernels as they are do not boot in it", device);
		return;
	}
	if (r == 0) {
		(void)doctor_say(doctor, DOCTOR_OK, "", "%s makes a VM, and it runs an instruction", device);
		return;
	}
	(void)snprintf(remedy, sizeof(remedy), "%s.",
		!strcmp(step, "KVM_RUN") ? "Update the host's kernel; in a VM, have its host allow nested virtualisation"
					 : kvm_hint(-r));
	(void)doctor_say(doctor, DOCTOR_ERROR, remedy, "%s: %s failed: %s", device, step, strerror(-r));
}

/* Whether the line `key : ... word ...` of the first CPU has the word. */
static bool cpu_has(const char *cpuinfo, const char *key, const char *word)
{
	const char *line = strstr(cpuinfo, key), *end;
	size_t size = strlen(word);

	if (!line)
		return false;
	end = strchrnul(line, '\n');
	for (const char *at = line; (at = strstr(at, word)) && at < end; at += size)
		if (at > line && at[-1] == ' ' && (at[size] == ' ' || at[size] == '\n' || at[size] == '\0'))
			return true;
	return false;
}

static void check_vulnerabilities(struct doctor *doctor)
{
	static const char dir_name[] = "/sys/devices/system/cpu/vulnerabilities";
	char path[PATH_MAX], text[256], list[160] = "";
	const struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "%.3000s%s", doctor->config->root, dir_name);
	dir = opendir(path);
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		size_t n = strlen(list);

		(void)snprintf(path, sizeof(path), "%s/%.100s", dir_name, entry->d_name);
		if (*entry->d_name != '.' && doctor_read(doctor, path, text, sizeof(text)) &&
			!strncmp(text, "Vulnerable", strlen("Vulnerable")))
			(void)snprintf(list + n, sizeof(list) - n, "%s%.40s", n ? ", " : "", entry->d_name);
	}
	(void)closedir(dir);
	if (*list)
		(void)doctor_say(doctor, DOCTOR_WARNING,
			"Update kernel and microcode, and do not boot with mitigations=off: guests of different tenants share this CPU.",
			"the kernel calls this CPU vulnerable to: %s", list);
}

void doctor_check_cpu(struct doctor *doctor)
{
	static char cpuinfo[CPUINFO_SIZE]; /* too large for the stack, and one call at a time */
	size_t before = doctor->n;
	char smt[8];

	/* many CPUs make a long file, of which the first is enough; one that cannot be read whole is not looked at */
	if (doctor_read(doctor, "/proc/cpuinfo", cpuinfo, sizeof(cpuinfo)) &&
		(!cpu_has(cpuinfo, "flags", "constant_tsc") || !cpu_has(cpuinfo, "flags", "nonstop_tsc")))
		(void)doctor_say(doctor, DOCTOR_INFO,
			"Nothing, where this host is a VM whose clock is kvm-clock; else look at its firmware's power settings.",
			"the CPU does not say that its time stamp counter is constant");
	check_vulnerabilities(doctor);
	if (doctor_read(doctor, "/sys/devices/system/cpu/smt/active", smt, sizeof(smt)) && !strcmp(smt, "1"))
		(void)doctor_say(doctor, DOCTOR_INFO,
			"Where tenants are strangers to one another boot the host with nosmt, or give each its own node.",
			"two guests may run on sibling threads of one core");
	if (doctor->n == before)
		(void)doctor_say(doctor, DOCTOR_OK, "", "no vulnerability that the kernel knows of is open");
}

void doctor_check_nesting(struct doctor *doctor)
{
	static const char *const files[] = { "/sys/module/kvm_intel/parameters/nested", "/sys/module/kvm_amd/parameters/nested" };
	size_t before = doctor->n;
	char text[8];

	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (doctor_read(doctor, files[i], text, sizeof(text)) && (*text == 'Y' || *text == '1'))
			(void)doctor_say(doctor, DOCTOR_INFO,
				"No sandbox is offered it; load the module with nested=0 unless something else on this host needs it.",
				"KVM here allows nested virtualisation");
	if (doctor->n == before)
		(void)doctor_say(doctor, DOCTOR_OK, "", "KVM offers no nested virtualisation");
}

void doctor_check_kernel(struct doctor *doctor)
{
	unsigned int major, minor;
	char release[64];

	if (!doctor_read(doctor, "/proc/sys/kernel/osrelease", release, sizeof(release)) ||
		sscanf(release, "%u.%u", &major, &minor) != 2) {
		(void)doctor_say(doctor, DOCTOR_WARNING, "Mount /proc.", "the kernel's version cannot be read");
		return;
	}
	if (major < OLDEST_MAJOR || (major == OLDEST_MAJOR && minor < OLDEST_MINOR))
		(void)doctor_say(doctor, DOCTOR_ERROR, "Boot a kernel of 5.14 or later; Debian 12 has 6.1.",
			"Linux %s is too old: a control group cannot be ended as a whole", release);
	else if (major < TRIED_MAJOR || (major == TRIED_MAJOR && minor < TRIED_MINOR))
		(void)doctor_say(doctor, DOCTOR_WARNING, "Boot a kernel of 6.1 or later.", "croft was never tried on Linux %s", release);
	else
		(void)doctor_say(doctor, DOCTOR_OK, "", "Linux %s", release);
}

void doctor_check_cgroup(struct doctor *doctor)
{
	static const char *const needed[] = { "cpu", "memory", "pids" };
	char controllers[256], padded[260], word[16], mounts[16384];
	size_t before = doctor->n;

	if (!doctor_read(doctor, "/sys/fs/cgroup/cgroup.controllers", controllers, sizeof(controllers))) {
		(void)doctor_say(doctor, DOCTOR_ERROR, "Boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 on /sys/fs/cgroup.",
			"/sys/fs/cgroup is no cgroup v2: no sandbox can be held to its memory and CPU");
		return;
	}
	(void)snprintf(padded, sizeof(padded), " %s ", controllers);
	for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
		(void)snprintf(word, sizeof(word), " %s ", needed[i]);
		if (!strstr(padded, word))
			(void)doctor_say(doctor, DOCTOR_ERROR, "Boot without cgroup_disable, and with cgroup_enable=memory where the kernel wants it.",
				"the control group controller %s is not there", needed[i]);
	}
	if (doctor_read(doctor, "/proc/self/mounts", mounts, sizeof(mounts)) && !strstr(mounts, "favordynmods"))
		(void)doctor_say(doctor, DOCTOR_INFO, "mount -o remount,favordynmods /sys/fs/cgroup",
			"making and ending control groups waits for RCU: a start takes some milliseconds longer");
	if (doctor->n == before)
		(void)doctor_say(doctor, DOCTOR_OK, "", "cgroup v2 with all controllers");
}

static bool meminfo(const char *text, const char *key, unsigned long long *ret_kib)
{
	const char *at = strstr(text, key);

	return at && sscanf(at + strlen(key), " %llu kB", ret_kib) == 1;
}

void doctor_check_memory(struct doctor *doctor)
{
	unsigned long long total, swap;
	size_t before = doctor->n;
	char text[8192];

	if (!doctor_read(doctor, "/proc/meminfo", text, sizeof(text)) || !meminfo(text, "MemTotal:", &total)) {
		(void)doctor_say(doctor, DOCTOR_WARNING, "Mount /proc.", "the host's memory cannot be read");
		return;
	}
	if (total / KIB_PER_MIB < MEMORY_MIB_MIN)
		(void)doctor_say(doctor, DOCTOR_WARNING, "Give the host more memory: 1 GiB of it stays for everything that is no sandbox.",
			"%llu MiB of memory", total / KIB_PER_MIB);
	if (meminfo(text, "SwapTotal:", &swap) && swap > 0)
		(void)doctor_say(doctor, DOCTOR_WARNING, "swapoff -a, or swap to an encrypted device only.",
			"the memory of sandboxes may be written to swap (%llu MiB)", swap / KIB_PER_MIB);
	if (doctor->n == before)
		(void)doctor_say(doctor, DOCTOR_OK, "", "%llu MiB, no swap", total / KIB_PER_MIB);
}

void doctor_check_huge_pages(struct doctor *doctor)
{
	char text[128];

	if (!doctor_read(doctor, SHMEM_HUGE, text, sizeof(text)))
		(void)doctor_say(doctor, DOCTOR_INFO, "Boot a kernel with transparent huge pages.",
			"the kernel has no huge pages for shared memory: guests fault more often");
	else if (strstr(text, "[never]") || strstr(text, "[deny]"))
		doctor_offer(doctor_say(doctor, DOCTOR_WARNING, "Set it to advise: a boot takes some hundred times fewer page faults.",
				     "shared memory gets no huge pages"),
			SHMEM_HUGE, "advise");
	else
		(void)doctor_say(doctor, DOCTOR_OK, "", "shared memory may have huge pages: %s", text);
}

void doctor_check_sharing(struct doctor *doctor)
{
	uint64_t run;

	if (doctor_read_number(doctor, KSM_RUN, &run) && run == 1)
		doctor_offer(doctor_say(doctor, DOCTOR_WARNING, "Switch it off: from how long a write takes a guest learns what another has in memory.",
				     "the kernel merges pages that are the same (KSM)"),
			KSM_RUN, "2");
	else
		(void)doctor_say(doctor, DOCTOR_OK, "", "pages of different guests are not merged");
}

void doctor_check_sysctls(struct doctor *doctor)
{
	uint64_t sandboxes = doctor->config->sandboxes, value;
	const struct {
		const char *path;
		uint64_t need;
		const char *what;
	} rows[] = {
		{ "/proc/sys/net/ipv4/neigh/default/gc_thresh3", MAX(1024, 8 * sandboxes), "neighbours of all network slots" },
		{ "/proc/sys/net/netfilter/nf_conntrack_max", 16384 + 1024 * sandboxes, "connections of all sandboxes" },
		{ "/proc/sys/fs/inotify/max_user_instances", 128, "watchers of one user" },
		{ "/proc/sys/fs/file-max", 65536 + 256 * sandboxes, "open files of the host" },
		{ "/proc/sys/kernel/pid_max", MAX(32768, 64 * sandboxes), "process numbers" },
		{ "/proc/sys/kernel/threads-max", MAX(16384, 64 * sandboxes), "threads" },
		{ "/proc/sys/user/max_net_namespaces", 16 + 2 * sandboxes, "network namespaces" },
	};
	size_t before = doctor->n;
	char need[DOCTOR_VALUE_MAX];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (!doctor_read_number(doctor, rows[i].path, &value) || value >= rows[i].need)
			continue; /* one that is not there bounds nothing */
		(void)snprintf(need, sizeof(need), "%llu", (unsigned long long)rows[i].need);
		doctor_offer(doctor_say(doctor, DOCTOR_WARNING, "Raise it: what runs out ends starts with HOST_LIMIT.",
				     "%s, %s, is %llu; %llu sandboxes want %s", rows[i].path, rows[i].what,
				     (unsigned long long)value, (unsigned long long)sandboxes, need),
			rows[i].path, need);
	}
	if (doctor->n == before)
		(void)doctor_say(doctor, DOCTOR_OK, "", "the kernel's tables hold %llu sandboxes", (unsigned long long)sandboxes);
}

void doctor_check_entropy(struct doctor *doctor)
{
	uint64_t bits;

	if (doctor_read_number(doctor, "/proc/sys/kernel/random/entropy_avail", &bits) && bits < ENTROPY_MIN)
		(void)doctor_say(doctor, DOCTOR_ERROR, "Give the host a random source: virtio-rng in a VM, or haveged.",
			"the kernel has gathered %llu bits of entropy: keys made now may be guessed", (unsigned long long)bits);
	else
		(void)doctor_say(doctor, DOCTOR_OK, "", "the kernel's random numbers are seeded");
}
