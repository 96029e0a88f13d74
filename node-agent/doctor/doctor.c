/* SPDX-License-Identifier: Apache-2.0
 *
 * See doctor.h: the list of checks, their findings, and fixes.
 */
#include "doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define SYSCTL_ROOT "/proc/sys/"
#define SYSCTL_FILE "/etc/sysctl.d/60-croft.conf"
#define TMPFILES_FILE "/etc/tmpfiles.d/croft-host.conf"
#define ROOM 8u

static const struct {
	const char *name;
	void (*run)(struct doctor *doctor);
} checks[] = {
	{ "kvm", doctor_check_kvm },
	{ "cpu", doctor_check_cpu },
	{ "nesting", doctor_check_nesting },
	{ "kernel", doctor_check_kernel },
	{ "cgroup", doctor_check_cgroup },
	{ "memory", doctor_check_memory },
	{ "huge-pages", doctor_check_huge_pages },
	{ "sharing", doctor_check_sharing },
	{ "sysctl", doctor_check_sysctls },
	{ "entropy", doctor_check_entropy },
	{ "disk", doctor_check_disk },
	{ "clock", doctor_check_clock },
	{ "logs", doctor_check_logs },
	{ "scheduler", doctor_check_scheduler },
};

const char *doctor_severity_name(enum doctor_severity severity)
{
	static const char *const names[] = { "ok", "info", "warning", "error" };

	return names[severity];
}

struct doctor_finding *doctor_say(
	struct doctor *doctor, enum doctor_severity severity, const char *remedy, const char *fmt, ...)
{
	struct doctor_finding *finding;
	va_list args;

	if (doctor->n % ROOM == 0) {
		struct doctor_finding *grown = reallocarray(doctor->findings, doctor->n + ROOM, sizeof(*grown));

		if (!grown) {
			doctor->no_memory = true;
			return NULL;
		}
		doctor->findings = grown;
	}
	finding = &doctor->findings[doctor->n++];
	*finding = (struct doctor_finding){ .severity = severity };
	(void)snprintf(finding->check, sizeof(finding->check), "%s", doctor->check);
	(void)snprintf(finding->remedy, sizeof(finding->remedy), "%s", remedy);
	va_start(args, fmt);
	(void)vsnprintf(finding->text, sizeof(finding->text), fmt, args);
	va_end(args);
	return finding;
}

void doctor_offer(struct doctor_finding *finding, const char *path, const char *value)
{
	if (!finding)
		return;
	(void)snprintf(finding->fix_path, sizeof(finding->fix_path), "%s", path);
	(void)snprintf(finding->fix_value, sizeof(finding->fix_value), "%s", value);
}

bool doctor_read(const struct doctor *doctor, const char *path, char *ret, size_t size)
{
	CLEANUP_FREE char *text = NULL;
	char full[PATH_MAX];
	size_t n;

	(void)snprintf(full, sizeof(full), "%.3000s%s", doctor->config->root, path);
	if (file_read(full, size - 1, &text, &n) < 0)
		return false;
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\0'))
		n--;
	memcpy(ret, text, n);
	ret[n] = '\0';
	return true;
}

bool doctor_read_number(const struct doctor *doctor, const char *path, uint64_t *ret)
{
	char text[32], *end;
	unsigned long long value;

	if (!doctor_read(doctor, path, text, sizeof(text)))
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0')
		return false;
	*ret = value;
	return true;
}

int doctor_run(struct doctor *doctor, const struct doctor_config *config)
{
	*doctor = (struct doctor){ .config = config };
	for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
		doctor->check = checks[i].name;
		checks[i].run(doctor);
	}
	return doctor->no_memory ? -ENOMEM : 0;
}

size_t doctor_count(const struct doctor *doctor, enum doctor_severity severity)
{
	size_t n = 0;

	for (size_t i = 0; i < doctor->n; i++)
		n += doctor->findings[i].severity == severity && !doctor->findings[i].is_fixed;
	return n;
}

void doctor_deinit(struct doctor *doctor)
{
	free(doctor->findings);
	*doctor = (struct doctor){ 0 };
}

/* ---- fixes ---- */

static int write_value(const struct doctor *doctor, const char *path, const char *value)
{
	CLEANUP_FD int fd = -1;
	char full[PATH_MAX];
	size_t size = strlen(value);
	ssize_t n;

	(void)snprintf(full, sizeof(full), "%.3000s%s", doctor->config->root, path);
	fd = open(full, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	n = write(fd, value, size);
	return n < 0 ? -errno : (size_t)n == size ? 0 : -EIO;
}

static bool is_sysctl(const struct doctor_finding *finding)
{
	return !strncmp(finding->fix_path, SYSCTL_ROOT, strlen(SYSCTL_ROOT));
}

/* A line of sysctl.d(5) or tmpfiles.d(5). */
static void boot_line(const struct doctor_finding *finding, char *ret, size_t size)
{
	if (is_sysctl(finding))
		(void)snprintf(ret, size, "%s = %s\n", finding->fix_path + strlen(SYSCTL_ROOT), finding->fix_value);
	else
		(void)snprintf(ret, size, "w %s - - - - %s\n", finding->fix_path, finding->fix_value);
}

/* What an earlier run put there stays: a value that is right now has no finding any more. */
static int add_to_boot_file(const struct doctor *doctor, const struct doctor_finding *finding)
{
	static const char head[] = "# Set by `croft-node doctor --fix`; removed when croft-node is purged.\n";
	const char *name = is_sysctl(finding) ? SYSCTL_FILE : TMPFILES_FILE;
	CLEANUP_FREE char *old = NULL, *all = NULL;
	char path[PATH_MAX], line[DOCTOR_PATH_MAX + DOCTOR_VALUE_MAX + 16];
	int r;

	(void)snprintf(path, sizeof(path), "%.3000s%s", doctor->config->root, name);
	boot_line(finding, line, sizeof(line));
	r = file_read(path, 65536, &old, NULL);
	if (r < 0 && r != -ENOENT)
		return r;
	if (old && strstr(old, line))
		return 0;
	if (asprintf(&all, "%s%s", old ? old : head, line) < 0) {
		all = NULL;
		return -ENOMEM;
	}
	return file_replace(path, all, strlen(all), 0644);
}

void doctor_fix(struct doctor *doctor)
{
	for (size_t i = 0; i < doctor->n; i++) {
		struct doctor_finding *finding = &doctor->findings[i];
		int r;

		if (!*finding->fix_path || finding->severity == DOCTOR_OK)
			continue;
		r = write_value(doctor, finding->fix_path, finding->fix_value);
		if (r == 0)
			r = add_to_boot_file(doctor, finding);
		finding->is_fixed = r == 0;
		finding->fix_errno = -r;
	}
}
