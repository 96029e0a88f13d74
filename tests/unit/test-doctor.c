/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor/: what each check says of hosts that are made of files, and what a fix writes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "doctor/doctor.h"
#include "lib/suite.h"

static const struct {
	const char *path, *text;
} healthy[] = {
	{ "/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc svm\n\nprocessor\t: 1\nflags\t\t: fpu\n" },
	{ "/sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n" },
	{ "/sys/devices/system/cpu/vulnerabilities/retbleed", "Mitigation: untrained return thunk\n" },
	{ "/sys/devices/system/cpu/smt/active", "0\n" },
	{ "/sys/module/kvm_amd/parameters/nested", "0\n" },
	{ "/proc/sys/kernel/osrelease", "6.1.0-37-amd64\n" },
	{ "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n" },
	{ "/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,favordynmods 0 0\n" },
	{ "/proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\nSwapTotal:             0 kB\n" },
	{ "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n" },
	{ "/sys/kernel/mm/ksm/run", "0\n" },
	{ "/proc/sys/net/ipv4/neigh/default/gc_thresh3", "1024\n" },
	{ "/proc/sys/net/netfilter/nf_conntrack_max", "262144\n" },
	{ "/proc/sys/fs/inotify/max_user_instances", "128\n" },
	{ "/proc/sys/fs/file-max", "9223372036854775807\n" },
	{ "/proc/sys/kernel/pid_max", "32768\n" },
	{ "/proc/sys/kernel/threads-max", "63000\n" },
	{ "/proc/sys/user/max_net_namespaces", "31000\n" },
	{ "/proc/sys/kernel/random/entropy_avail", "256\n" },
	{ "/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n" },
	{ "/run/systemd/journal/socket", "" },
	{ "/etc/sysctl.d/keep", "" },
	{ "/etc/tmpfiles.d/keep", "" },
};

static char root[] = "/tmp/croft-doctor.XXXXXX";

static void put(const char *path, const char *text)
{
	char full[PATH_MAX];
	FILE *file;

	(void)snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = full + strlen(root); (slash = strchr(slash + 1, '/'));) {
		*slash = '\0';
		(void)mkdir(full, 0755);
		*slash = '/';
	}
	file = fopen(full, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void get(const char *path, char ret[static 4096])
{
	CLEANUP_FREE char *text = NULL;
	char full[PATH_MAX];

	(void)snprintf(full, sizeof(full), "%s%s", root, path);
	ck_assert_int_eq(file_read(full, 4095, &text, NULL), 0);
	(void)snprintf(ret, 4096, "%s", text);
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(root));
	for (size_t i = 0; i < ARRAY_LEN(healthy); i++)
		put(healthy[i].path, healthy[i].text);
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(root), 0);
}

static struct doctor_config config_make(void)
{
	return (struct doctor_config){ .root = root, .state = root, .kvm = "/nowhere/kvm", .sandboxes = 64 };
}

/* The worst of a check. */
static const struct doctor_finding *worst(const struct doctor *doctor, const char *check)
{
	const struct doctor_finding *found = NULL;

	for (size_t i = 0; i < doctor->n; i++)
		if (!strcmp(doctor->findings[i].check, check) &&
			(!found || doctor->findings[i].severity > found->severity))
			found = &doctor->findings[i];
	ck_assert_msg(found, "no finding of %s", check);
	return found;
}

START_TEST(test_healthy)
{
	static const char *const fine[] = { "cpu", "nesting", "kernel", "cgroup", "memory", "huge-pages", "sharing", "sysctl",
		"entropy", "logs" };
	struct doctor_config config = config_make();
	struct doctor doctor;

	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		const struct doctor_finding *finding = worst(&doctor, fine[i]);

		ck_assert_msg(finding->severity == DOCTOR_OK, "%s: %s", fine[i], finding->text);
		ck_assert_str_eq(finding->remedy, "");
	}
	ck_assert_int_eq(worst(&doctor, "scheduler")->severity, DOCTOR_INFO); /* not joined */
	for (size_t i = 0; i < doctor.n; i++)
		if (doctor.findings[i].severity > DOCTOR_OK)
			ck_assert_str_ne(doctor.findings[i].remedy, "");
	doctor_deinit(&doctor);
}
END_TEST

static const struct {
	const char *path, *text; /* text NULL: the file is not there */
	const char *check;
	enum doctor_severity severity;
	const char *says;
	const char *fix; /* NULL: none */
} broken[] = {
	{ "/proc/cpuinfo", "flags\t: fpu tsc nonstop_tsc\n", "cpu", DOCTOR_INFO, "time stamp counter", NULL },
	{ "/proc/cpuinfo", "flags\t: fpu constant_tsc xnonstop_tsc\n", "cpu", DOCTOR_INFO, "time stamp counter", NULL },
	{ "/sys/devices/system/cpu/vulnerabilities/retbleed", "Vulnerable: no microcode\n", "cpu", DOCTOR_WARNING, "retbleed", NULL },
	{ "/sys/devices/system/cpu/smt/active", "1\n", "cpu", DOCTOR_INFO, "sibling", NULL },
	{ "/sys/module/kvm_amd/parameters/nested", "1\n", "nesting", DOCTOR_INFO, "nested", NULL },
	{ "/sys/module/kvm_intel/parameters/nested", "Y\n", "nesting", DOCTOR_INFO, "nested", NULL },
	{ "/proc/sys/kernel/osrelease", "5.10.0-30-amd64\n", "kernel", DOCTOR_ERROR, "5.10.0-30-amd64", NULL },
	{ "/proc/sys/kernel/osrelease", "4.19.0\n", "kernel", DOCTOR_ERROR, "4.19.0", NULL },
	{ "/proc/sys/kernel/osrelease", "5.15.0\n", "kernel", DOCTOR_WARNING, "never tried", NULL },
	{ "/sys/fs/cgroup/cgroup.controllers", NULL, "cgroup", DOCTOR_ERROR, "no cgroup v2", NULL },
	{ "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n", "cgroup", DOCTOR_ERROR, "memory", NULL },
	{ "/sys/fs/cgroup/cgroup.controllers", "cpuset io memory pids\n", "cgroup", DOCTOR_ERROR, "controller cpu", NULL },
	{ "/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "cgroup", DOCTOR_INFO, "RCU", NULL },
	{ "/proc/meminfo", "MemTotal:  1000000 kB\nSwapTotal: 0 kB\n", "memory", DOCTOR_WARNING, "976 MiB", NULL },
	{ "/proc/meminfo", "MemTotal:  8000000 kB\nSwapTotal: 2097152 kB\n", "memory", DOCTOR_WARNING, "2048 MiB", NULL },
	{ "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n", "huge-pages",
		DOCTOR_WARNING, "no huge pages", "advise" },
	{ "/sys/kernel/mm/ksm/run", "1\n", "sharing", DOCTOR_WARNING, "KSM", "2" },
	{ "/proc/sys/net/ipv4/neigh/default/gc_thresh3", "512\n", "sysctl", DOCTOR_WARNING, "neighbours", "1024" },
	{ "/proc/sys/net/netfilter/nf_conntrack_max", "65536\n", "sysctl", DOCTOR_WARNING, "connections", "81920" },
	{ "/proc/sys/user/max_net_namespaces", "100\n", "sysctl", DOCTOR_WARNING, "namespaces", "144" },
	{ "/proc/sys/kernel/random/entropy_avail", "12\n", "entropy", DOCTOR_ERROR, "12 bits", NULL },
	{ "/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n", "clock", DOCTOR_INFO, "", NULL },
	{ "/run/systemd/journal/socket", NULL, "logs", DOCTOR_INFO, "no journal", NULL },
};

START_TEST(test_broken)
{
	struct doctor_config config = config_make();
	const struct doctor_finding *finding;
	struct doctor doctor;
	char full[PATH_MAX];

	(void)snprintf(full, sizeof(full), "%s%s", root, broken[_i].path);
	if (broken[_i].text)
		put(broken[_i].path, broken[_i].text);
	else
		ck_assert_int_eq(unlink(full), 0);
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	finding = worst(&doctor, broken[_i].check);
	ck_assert_msg(finding->severity >= broken[_i].severity, "%s is %s: %s", broken[_i].check,
		doctor_severity_name(finding->severity), finding->text);
	if (strcmp(broken[_i].check, "clock")) /* the time service is this machine's */
		ck_assert_int_eq(finding->severity, broken[_i].severity);
	ck_assert_msg(strstr(finding->text, broken[_i].says), "%s", finding->text);
	ck_assert_str_ne(finding->remedy, "");
	ck_assert_str_eq(finding->fix_path, broken[_i].fix ? broken[_i].path : "");
	ck_assert_str_eq(finding->fix_value, broken[_i].fix ? broken[_i].fix : "");
	doctor_deinit(&doctor);
}
END_TEST

START_TEST(test_kvm)
{
	struct doctor_config config = config_make();
	struct doctor doctor;

	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	ck_assert_int_eq(worst(&doctor, "kvm")->severity, DOCTOR_ERROR);
	ck_assert_msg(strstr(worst(&doctor, "kvm")->text, "open failed: No such file"), "%s", worst(&doctor, "kvm")->text);
	doctor_deinit(&doctor);
	config.kvm = "/dev/null";
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	ck_assert_msg(strstr(worst(&doctor, "kvm")->text, "KVM_GET_API_VERSION"), "%s", worst(&doctor, "kvm")->text);
	ck_assert_uint_ge(doctor_count(&doctor, DOCTOR_ERROR), 1);
	doctor_deinit(&doctor);
}
END_TEST

START_TEST(test_disk)
{
	struct doctor_config config = config_make();
	struct doctor doctor;
	char below[PATH_MAX];

	(void)snprintf(below, sizeof(below), "%s/not/there/yet", root);
	config.state = below;
	config.disk_floor_percent = 100;
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	ck_assert_int_eq(worst(&doctor, "disk")->severity, DOCTOR_ERROR);
	ck_assert_msg(strstr(worst(&doctor, "disk")->text, "less than 100 %"), "%s", worst(&doctor, "disk")->text);
	doctor_deinit(&doctor);
	config.disk_floor_percent = 0;
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	ck_assert_int_le(worst(&doctor, "disk")->severity, DOCTOR_INFO);
	doctor_deinit(&doctor);
}
END_TEST

START_TEST(test_scheduler)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	CLEANUP_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct doctor_config config = config_make();
	const char *addresses[2] = { "tcp://127.0.0.1:1", NULL };
	char text[64];
	struct doctor doctor;

	config.schedulers = addresses;
	config.n_schedulers = 1;
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	ck_assert_int_eq(worst(&doctor, "scheduler")->severity, DOCTOR_ERROR);
	doctor_deinit(&doctor);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	(void)snprintf(text, sizeof(text), "tcp://127.0.0.1:%u", ntohs(address.sin_port));
	addresses[1] = text;
	config.n_schedulers = 2;
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	ck_assert_int_eq(worst(&doctor, "scheduler")->severity, DOCTOR_WARNING); /* one of the two */
	doctor_deinit(&doctor);
	addresses[0] = "127.0.0.1:1";
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	ck_assert_msg(strstr(worst(&doctor, "scheduler")->text, "is no address"), "%s", worst(&doctor, "scheduler")->text);
	doctor_deinit(&doctor);
}
END_TEST

START_TEST(test_fix)
{
	struct doctor_config config = config_make();
	struct doctor doctor;
	char text[4096];
	size_t warnings;

	put("/sys/kernel/mm/ksm/run", "1\n");
	put("/proc/sys/net/ipv4/neigh/default/gc_thresh3", "512\n");
	put("/proc/sys/kernel/pid_max", "100\n");
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	warnings = doctor_count(&doctor, DOCTOR_WARNING);
	doctor_fix(&doctor);
	ck_assert_uint_eq(doctor_count(&doctor, DOCTOR_WARNING), warnings - 3);
	ck_assert(worst(&doctor, "sharing")->is_fixed);
	doctor_deinit(&doctor);
	get("/sys/kernel/mm/ksm/run", text);
	ck_assert_int_eq(text[0], '2');
	get("/proc/sys/net/ipv4/neigh/default/gc_thresh3", text);
	ck_assert_int_eq(strncmp(text, "1024", 4), 0);
	get("/etc/tmpfiles.d/croft-host.conf", text);
	ck_assert_ptr_nonnull(strstr(text, "\nw /sys/kernel/mm/ksm/run - - - - 2\n"));
	get("/etc/sysctl.d/60-croft.conf", text);
	ck_assert_ptr_nonnull(strstr(text, "\nnet/ipv4/neigh/default/gc_thresh3 = 1024\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nkernel/pid_max = 32768\n"));
	/* again, as after a boot that lost one value: no line twice, none lost */
	put("/proc/sys/kernel/pid_max", "100\n");
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	doctor_fix(&doctor);
	doctor_deinit(&doctor);
	get("/etc/sysctl.d/60-croft.conf", text);
	ck_assert_ptr_nonnull(strstr(text, "kernel/pid_max"));
	ck_assert_ptr_null(strstr(strstr(text, "kernel/pid_max") + 1, "kernel/pid_max"));
	ck_assert_ptr_nonnull(strstr(text, "gc_thresh3"));
}
END_TEST

/* What cannot be written is still what is wrong, and says so. */
START_TEST(test_fix_fails)
{
	struct doctor_config config = config_make();
	struct doctor doctor;
	char path[PATH_MAX];

	put("/sys/kernel/mm/ksm/run", "1\n");
	(void)snprintf(path, sizeof(path), "%s/etc/tmpfiles.d", root);
	ck_assert_int_eq(dir_remove(path), 0);
	ck_assert_int_eq(doctor_run(&doctor, &config), 0);
	doctor_fix(&doctor);
	ck_assert(!worst(&doctor, "sharing")->is_fixed);
	ck_assert_int_eq(worst(&doctor, "sharing")->fix_errno, ENOENT);
	doctor_deinit(&doctor);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("doctor");
	TCase *tcase = tcase_create("doctor");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_healthy);
	tcase_add_loop_test(tcase, test_broken, 0, ARRAY_LEN(broken));
	tcase_add_test(tcase, test_kvm);
	tcase_add_test(tcase, test_disk);
	tcase_add_test(tcase, test_scheduler);
	tcase_add_test(tcase, test_fix);
	tcase_add_test(tcase, test_fix_fails);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
