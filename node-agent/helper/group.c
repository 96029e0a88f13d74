/* SPDX-License-Identifier: Apache-2.0
 *
 * See group.h.
 */
#include "helper/group.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limit.h"
#include "base/log.h"

#define FILE_MAX 4096
#define CPU_PERIOD 100000u
#define IO_WEIGHT 100u /* the kernel's own */

static int read_at(int dir, const char *name, char ret[static FILE_MAX])
{
	CLEANUP_FD int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, FILE_MAX - 1);

	if (n < 0)
		return -errno;
	ret[n] = '\0';
	return 0;
}

static int write_at(int dir, const char *name, const char *text)
{
	CLEANUP_FD int fd = openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = text; (at = strstr(at, word)); at += n)
		if ((at == text || at[-1] == ' ') && strchr(" \n", at[n]))
			return true;
	return false;
}

/* One by one: a controller that is in use elsewhere (v1, or the parent keeps it) does not take the others along. */
static bool hand_down(int root, const char *have, const char *controller)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "+%s", controller);
	return has_word(have, controller) && write_at(root, "cgroup.subtree_control", text) == 0;
}

/* Where no systemd did: the group above gives its controllers to ours. One that has processes of its own refuses, and
 * then ours has none; that is said where a limit is set. */
static void ask_parent(int root)
{
	static const char *const controllers[] = { "memory", "cpu", "pids", "io" };
	CLEANUP_FD int parent = openat(root, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char have[FILE_MAX] = "";
	struct statfs fs;

	if (parent < 0 || fstatfs(parent, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
		return;
	(void)read_at(parent, "cgroup.controllers", have);
	for (size_t i = 0; i < sizeof(controllers) / sizeof(*controllers); i++)
		(void)hand_down(parent, have, controllers[i]);
}

int groups_open(struct groups *groups, const char *root, struct err *reterr)
{
	char have[FILE_MAX] = "";
	struct statfs fs;

	*groups = (struct groups)GROUPS_NULL;
	if (mkdir(root, 0755) < 0 && errno != EEXIST)
		return err_set(reterr, FAIL_CGROUP_FAILED, errno, "cannot make the control group %s", root);
	groups->root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (groups->root < 0)
		return err_set(reterr, FAIL_CGROUP_FAILED, errno, "cannot open the control group %s", root);
	if (fstatfs(groups->root, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC) {
		groups_close(groups);
		return err_set(reterr, FAIL_CGROUP_FAILED, EINVAL, "%s is no cgroup v2", root);
	}
	ask_parent(groups->root);
	(void)read_at(groups->root, "cgroup.controllers", have); /* none are had then */
	groups->has_memory = hand_down(groups->root, have, "memory");
	groups->has_cpu = hand_down(groups->root, have, "cpu");
	groups->has_tasks = hand_down(groups->root, have, "pids");
	(void)hand_down(groups->root, have, "io");
	return 0;
}

void groups_close(struct groups *groups)
{
	groups->root = fd_close(groups->root);
}

int group_open(const struct groups *groups, const char *sandbox)
{
	int fd = openat(groups->root, sandbox, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

bool group_exists(const struct groups *groups, const char *sandbox)
{
	return groups->root >= 0 && faccessat(groups->root, sandbox, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int limit_failed(struct err *reterr, int r, const char *controller)
{
	(void)err_set(reterr, FAIL_CGROUP_FAILED, -r, "the control group takes no limit of %s", controller);
	err_add(reterr, "controller", "%s", controller);
	return r;
}

/* `text` where it is to be held. Where nothing is, an earlier ceiling is taken off: a host without the controller has none, and
 * no helper stays away for that. */
static int hold(int group, const char *file, bool is_held, const char *text, const char *none)
{
	int r = write_at(group, file, is_held ? text : none);

	return is_held ? r : 0;
}

int groups_limit(const struct groups *groups, const struct groups_ceiling *ceiling, struct err *reterr)
{
	char text[64];
	int r;

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)ceiling->memory_mib << 20);
	r = hold(groups->root, "memory.max", ceiling->memory_mib > 0, text, "max");
	if (r < 0)
		return limit_failed(reterr, r, "memory");
	(void)snprintf(text, sizeof(text), "%llu %u", (unsigned long long)ceiling->cpu_percent * (CPU_PERIOD / 100),
		CPU_PERIOD);
	r = hold(groups->root, "cpu.max", ceiling->cpu_percent > 0, text, "max");
	if (r < 0)
		return limit_failed(reterr, r, "cpu");
	(void)snprintf(text, sizeof(text), "default %llu", (unsigned long long)ceiling->io_weight);
	r = hold(groups->root, "io.weight", ceiling->io_weight != IO_WEIGHT, text, "default 100");
	return r < 0 ? limit_failed(reterr, r, "io") : 0;
}

static int set_limits(const struct groups *groups, int group, const struct helper_group_limits *limits,
	struct err *reterr)
{
	char text[64];
	int r = 0;

	if (limits->memory_bytes) {
		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)limits->memory_bytes);
		r = groups->has_memory ? write_at(group, "memory.max", text) : -EOPNOTSUPP;
		/* a VM that is swapped out is slow without a word; one whose VMM dies thread by thread is worse */
		if (r == 0) {
			(void)write_at(group, "memory.swap.max", "0"); /* a host without swap has no such file */
			r = write_at(group, "memory.oom.group", "1");
		}
		if (r < 0)
			return limit_failed(reterr, r, "memory");
	}
	if (limits->cpu_percent) {
		(void)snprintf(text, sizeof(text), "%llu %u",
			(unsigned long long)limits->cpu_percent * (CPU_PERIOD / 100), CPU_PERIOD);
		r = groups->has_cpu ? write_at(group, "cpu.max", text) : -EOPNOTSUPP;
		if (r < 0)
			return limit_failed(reterr, r, "cpu");
	}
	if (limits->tasks) {
		(void)snprintf(text, sizeof(text), "%u", limits->tasks);
		r = groups->has_tasks ? write_at(group, "pids.max", text) : -EOPNOTSUPP;
		if (r < 0)
			return limit_failed(reterr, r, "pids");
	}
	return 0;
}

int group_make(const struct groups *groups, const char *sandbox, const struct helper_group_limits *limits,
	struct err *reterr)
{
	CLEANUP_FD int group = -1;
	bool is_new;
	int r;

	if (groups->root < 0)
		return err_set(reterr, FAIL_CGROUP_FAILED, ENOENT, "there is no cgroup v2 for control groups");
	r = mkdirat(groups->root, sandbox, 0755) < 0 ? -errno : 0;
	is_new = r == 0;
	if (limit_is_reached(reterr, STAGE_JAIL, LIMIT_GROUP, -r, "cannot make a control group"))
		return r;
	if (r < 0 && r != -EEXIST)
		return err_set(reterr, FAIL_CGROUP_FAILED, -r, "cannot make a control group");
	group = group_open(groups, sandbox);
	if (group < 0 && limit_is_reached(reterr, STAGE_JAIL, LIMIT_FILE, -group, "cannot open a control group"))
		return group;
	if (group < 0)
		return err_set(reterr, FAIL_CGROUP_FAILED, -group, "cannot open a control group");
	r = set_limits(groups, group, limits, reterr);
	if (r < 0 && is_new)
		(void)unlinkat(groups->root, sandbox, AT_REMOVEDIR); /* empty: nothing can keep it */
	return r;
}

/* `key` at the begin of a line of a flat keyed file. */
static uint64_t read_key(int group, const char *file, const char *key)
{
	char text[FILE_MAX];
	size_t n = strlen(key);

	if (read_at(group, file, text) < 0)
		return 0;
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, n) && line[n] == ' ')
			return strtoull(line + n + 1, NULL, 10);
	}
	return 0;
}

bool group_is_populated(const struct groups *groups, const char *sandbox)
{
	CLEANUP_FD int group = groups->root < 0 ? -1 : group_open(groups, sandbox);

	return group >= 0 && read_key(group, "cgroup.events", "populated") != 0;
}

int group_kill(const struct groups *groups, const char *sandbox, struct err *reterr)
{
	CLEANUP_FD int group = groups->root < 0 ? -ENOENT : group_open(groups, sandbox);
	int r = group < 0 ? group : write_at(group, "cgroup.kill", "1");

	if (r == 0 || group == -ENOENT)
		return 0;
	return err_set_at(reterr, STAGE_STOP, FAIL_CGROUP_FAILED, -r, "cannot kill what is in a control group");
}

int group_remove(const struct groups *groups, const char *sandbox, struct err *reterr)
{
	if (groups->root < 0 || unlinkat(groups->root, sandbox, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	return err_set_at(reterr, STAGE_STOP, FAIL_CGROUP_FAILED, errno, "cannot remove a control group");
}

void group_read(const struct groups *groups, const char *sandbox, struct helper_group_use *ret)
{
	CLEANUP_FD int group = groups->root < 0 ? -1 : group_open(groups, sandbox);
	char text[FILE_MAX];

	memset(ret, 0, sizeof(*ret));
	if (group < 0)
		return;
	if (read_at(group, "memory.current", text) == 0)
		ret->memory_bytes = strtoull(text, NULL, 10);
	ret->oom_kills = read_key(group, "memory.events", "oom_kill");
	ret->cpu_usec = read_key(group, "cpu.stat", "usage_usec");
}
