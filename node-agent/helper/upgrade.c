/* SPDX-License-Identifier: Apache-2.0
 *
 * See upgrade.h. Judging takes the time of reading the package once, in which the helper answers nothing else.
 */
#include "helper/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/release.h"
#include "agent/run-program.h"
#include "base/fd.h"
#include "base/log.h"

#define PACKAGE_MAX ((off_t)256 << 20)
#define PIECE ((size_t)64 * 1024)
#define DAY_MINUTES 1440

static bool parse_window(const char *text, int *ret_from, int *ret_to)
{
	unsigned int h1, m1, h2, m2;
	int end = 0;

	if (sscanf(text, "%2u:%2u-%2u:%2u%n", &h1, &m1, &h2, &m2, &end) != 4 || text[end] || h1 > 23 || h2 > 24 || m1 > 59 || m2 > 59)
		return false;
	*ret_from = (int)(h1 * 60 + m1);
	*ret_to = (int)(h2 * 60 + m2);
	return *ret_to <= DAY_MINUTES && *ret_from != *ret_to;
}

int helper_upgrade_check(const struct helper_options *options, struct err *reterr)
{
	const char *policy = options->upgrade_policy;
	int from, to;

	if (strcmp(policy, "manual") != 0 && strcmp(policy, "window") != 0 && strcmp(policy, "auto") != 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "upgrade.policy: \"%.40s\" is neither manual, window nor auto", policy);
	if (!parse_window(options->upgrade_window, &from, &to))
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "upgrade.window: \"%.40s\" is no HH:MM-HH:MM", options->upgrade_window);
	return 0;
}

bool helper_upgrade_may(const struct helper_options *options, const struct tm *local)
{
	int from, to, now = local->tm_hour * 60 + local->tm_min;

	if (!strcmp(options->upgrade_policy, "auto"))
		return true;
	if (strcmp(options->upgrade_policy, "window") != 0 || !parse_window(options->upgrade_window, &from, &to))
		return false;
	return from < to ? from <= now && now < to : now >= from || now < to;
}

static int permit(const struct helper_options *options, struct err *reterr)
{
	time_t now = time(NULL);
	struct tm local;

	if (localtime_r(&now, &local) && helper_upgrade_may(options, &local))
		return 0;
	(void)err_set(reterr, FAIL_UPGRADE_NOT_PERMITTED, EPERM, "the node's owner permits no upgrade by the scheduler now");
	err_add(reterr, "policy", "%s", options->upgrade_policy);
	if (!strcmp(options->upgrade_policy, "window"))
		err_add(reterr, "window", "%s", options->upgrade_window);
	return -EPERM;
}

/* By position: where the agent's offset stands is the agent's. */
static int copy(int from, int to)
{
	CLEANUP_FREE char *piece = malloc(PIECE);
	off_t at = 0;
	ssize_t n;
	int r = piece ? 0 : -ENOMEM;

	while (r == 0 && (n = pread(from, piece, PIECE, at)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		r = n < 0 ? -errno : at + n > PACKAGE_MAX ? -EFBIG : fd_write_all(to, piece, (size_t)n);
		at += n;
	}
	return r;
}

static int put(const char *dir, const char *name, int from, const char *text)
{
	char path[PATH_MAX];
	CLEANUP_FD int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	return text ? fd_write_all(fd, text, strlen(text)) : copy(from, fd);
}

/* Only a plain file is read: another kind could be waited for without an end. */
static int receive(const char *dir, int package, const char *signature, struct err *reterr)
{
	struct stat st;
	int r = fstat(package, &st) < 0 ? -errno : !S_ISREG(st.st_mode) ? -EINVAL : 0;

	if (r == 0)
		r = put(dir, "offered.deb", package, NULL);
	if (r == 0)
		r = put(dir, "offered.deb.sig", -1, signature);
	return r < 0 ? err_set(reterr, FAIL_IO_FAILED, -r, "the offered package cannot be copied into %.200s", dir) : 0;
}

/* Beside the helper's own program. */
static void find_node(char *ret, size_t size)
{
	char self[PATH_MAX - 16], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	(void)snprintf(ret, size, "%.*s/croft-node", slash ? (int)(slash - self) : 0, self);
}

static int launch(const struct helper_options *options, const char *file, struct err *reterr)
{
	char node[PATH_MAX], launcher[PATH_MAX], no_block[] = "--no-block", collect[] = "--collect", dashes[] = "--", verb[] = "upgrade",
		key[PATH_MAX], path[PATH_MAX];
	char *argv[] = { launcher, no_block, collect, dashes, node, verb, path, key, NULL };
	int status;

	find_node(node, sizeof(node));
	(void)snprintf(launcher, sizeof(launcher), "%s", options->upgrade_launcher);
	(void)snprintf(path, sizeof(path), "%s", file);
	(void)snprintf(key, sizeof(key), "--upgrade-key=%.4000s", options->upgrade_key);
	status = run_program(launcher, argv);
	return status == 0 ? 0 : err_set(reterr, FAIL_IO_FAILED, ECHILD, "%.200s ended with %d", launcher, status);
}

void helper_upgrade_clear(const struct helper_options *options)
{
	char dir[PATH_MAX - 64];

	(void)snprintf(dir, sizeof(dir), "%.3900s/upgrade", options->run);
	(void)dir_remove(dir);
}

int helper_upgrade(const struct helper_options *options, int package, const char *signature, struct err *reterr)
{
	char dir[PATH_MAX - 64], file[PATH_MAX];
	struct release release = { .path = "" };
	int r = permit(options, reterr);

	if (r < 0)
		return r;
	(void)snprintf(dir, sizeof(dir), "%.3900s/upgrade", options->run);
	(void)snprintf(file, sizeof(file), "%s/offered.deb", dir);
	helper_upgrade_clear(options); /* it is over, or has its own copy by now */
	if (mkdir(dir, 0700) < 0)
		return err_set(reterr, FAIL_IO_FAILED, errno, "cannot make %.200s", dir);
	r = receive(dir, package, signature, reterr);
	if (r == 0)
		r = release_check(file, options->upgrade_key, dir, &release, reterr);
	if (r == 0) {
		(void)unlink(release.path); /* its copy; the installation makes its own */
		log_info("an offered package is installed", "package", release.package, "version", release.version, "before", release.installed);
		r = launch(options, file, reterr);
	}
	if (r < 0)
		(void)dir_remove(dir);
	return r;
}
