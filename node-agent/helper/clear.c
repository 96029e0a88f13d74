/* SPDX-License-Identifier: Apache-2.0
 *
 * See clear.h.
 */
#include "helper/clear.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/log.h"
#include "helper/group.h"
#include "helper/upgrade.h"

#define WAIT_STEPS 500 /* of 10 ms: a process in the middle of I/O ends late */
#define LOCK_TRIES 100

/* Of the directory itself: what clears removes it with all in it. Nobody else may open it, or anybody could hold its lock. 0 with a descriptor that may be of a directory that
 * is gone by now, or -errno. */
static int lock_dir(const char *run, int *ret)
{
	CLEANUP_FD int fd = -1;
	int r = dir_make(run, 0711);

	if (r < 0)
		return r;
	fd = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	*ret = TAKE_FD(fd);
	return 0;
}

int helper_lock(const char *run, int *ret, struct err *reterr)
{
	struct stat locked, there;
	int r = 0;

	for (int i = 0; i < LOCK_TRIES; i++) {
		r = lock_dir(run, ret);
		if (r == -ENOENT)
			continue;
		if (r < 0)
			break;
		if (fstat(*ret, &locked) == 0 && stat(run, &there) == 0 && locked.st_ino == there.st_ino &&
			locked.st_dev == there.st_dev)
			return 0;
		*ret = fd_close(*ret);
		r = -EAGAIN;
	}
	if (r == -EWOULDBLOCK)
		return err_set(reterr, FAIL_HELPER_LOCKED, EWOULDBLOCK, "another croft-node-helper is at work in %s", run);
	return err_set_at(reterr, STAGE_HOST, FAIL_IO_FAILED, -r, "cannot lock %s", run);
}

static int clear_group(const struct groups *groups, const char *name, struct err *reterr)
{
	const struct timespec step = { .tv_nsec = 10 * 1000 * 1000 };
	int r = group_kill(groups, name, reterr);

	for (int i = 0; r == 0 && i < WAIT_STEPS && group_is_populated(groups, name); i++)
		(void)nanosleep(&step, NULL);
	return r < 0 ? r : group_remove(groups, name, reterr);
}

/* `*ret_strange`: how many groups there are not croft's. Whoever configured a group that others share keeps theirs. */
static int clear_each(const struct groups *groups, const char *root, unsigned int *ret_strange, struct err *reterr)
{
	DIR *listing = opendir(root);
	struct dirent *entry;
	int r = 0;

	if (!listing)
		return err_set_at(reterr, STAGE_STOP, FAIL_CGROUP_FAILED, errno, "cannot list the control group %s", root);
	while ((entry = readdir(listing))) {
		struct err err = ERR_NULL;

		if (entry->d_type != DT_DIR || *entry->d_name == '.')
			continue;
		if (!id_is_valid(entry->d_name)) {
			log_warn("a control group that is no sandbox's is left alone", "group", entry->d_name);
			++*ret_strange;
			continue;
		}
		if (clear_group(groups, entry->d_name, &err) == 0)
			continue;
		log_failure(LOG_LEVEL_WARN, "a VM's control group is left", &err, "group", entry->d_name, NULL);
		if (r == 0 && reterr)
			*reterr = err;
		r = -EIO;
	}
	(void)closedir(listing);
	return r;
}

static int clear_groups(const char *root, struct err *reterr)
{
	struct groups groups = GROUPS_NULL;
	unsigned int strange = 0;
	int r;

	if (access(root, F_OK) < 0 && errno == ENOENT)
		return 0;
	r = groups_open(&groups, root, reterr);
	if (r == 0)
		r = clear_each(&groups, root, &strange, reterr);
	groups_close(&groups);
	if (r == 0 && strange == 0 && rmdir(root) < 0)
		r = err_set_at(reterr, STAGE_STOP, FAIL_CGROUP_FAILED, errno, "cannot remove the control group %s", root);
	return r;
}

int helper_clear(const struct helper_options *options, struct err *reterr)
{
	CLEANUP_FD int lock = -1;
	struct net_host_config config;
	struct err err = ERR_NULL;
	int r = helper_options_network(options, &config, reterr), net;

	if (r == 0)
		r = helper_lock(options->run, &lock, reterr);
	if (r < 0)
		return r;
	helper_upgrade_clear(options);
	r = clear_groups(options->group_root, reterr);
	/* also beside a VM that would not end: it has no network then */
	net = net_host_clear(&config, &err);
	if (r == 0 && net < 0 && reterr)
		*reterr = err;
	else if (net < 0)
		log_failure(LOG_LEVEL_WARN, "and the network is left", &err, NULL);
	return r < 0 ? r : net;
}
