/* SPDX-License-Identifier: Apache-2.0
 *
 * See usage-file.h.
 */
#include "agent/usage-file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/sealed.h"
#include "base/fd.h"
#include "pb/store.pb-c.h"
#include "wire/check.h"

#define MAGIC "CROFTU1\n"
#define FILE_MAX_BYTES (16 * 1024 * 1024)

static const char *const names[USAGE_FILES] = { [USAGE_LIVE] = "usage", [USAGE_OVER] = "usage-over" };
static const char *const modes[METER_MODE_MAX_] = {
	[METER_OFF] = "off",
	[METER_DISK] = "disk",
	[METER_RUNNING] = "running",
	[METER_PAUSED] = "paused",
};

static void free_file(Croft__UsageFile *file)
{
	croft__usage_file__free_unpacked(file, NULL);
}
DEFINE_CLEANUP(Croft__UsageFile, free_file)

void usage_list_deinit(struct usage_list *list)
{
	free(list->items);
	*list = (struct usage_list){ .n = 0 };
}

int usage_list_add(struct usage_list *list, const struct sv_usage_saved *saved)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct sv_usage_saved *grown = realloc(list->items, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		list->items = grown;
		list->room = room;
	}
	list->items[list->n++] = *saved;
	return 0;
}

static Croft__UsageAccount *encode(const struct sv_usage_saved *saved)
{
	Croft__UsageAccount *account = malloc(sizeof(*account));

	if (!account)
		return NULL;
	croft__usage_account__init(account);
	account->used = usage_record_encode(&saved->meter.used);
	account->mode = strdup(modes[saved->meter.mode]);
	account->host_boot_id = strdup(saved->host_boot_id);
	account->since_mono_us = saved->meter.since_usec;
	account->cpu_seen_us = saved->meter.cpu_seen_us;
	account->egress_seen = saved->meter.egress_seen;
	account->has_run = saved->meter.has_run;
	account->ran_from_us = saved->meter.ran_from_us;
	account->acked_version = saved->acked_version;
	if (account->used && account->mode && account->host_boot_id)
		return account;
	croft__usage_account__free_unpacked(account, NULL);
	return NULL;
}

int usage_pack(const struct usage_list *list, uint8_t **ret, size_t *ret_size)
{
	CLEANUP(free_filep) Croft__UsageFile *file = malloc(sizeof(*file));
	uint8_t *data;
	size_t size;

	if (!file)
		return -ENOMEM;
	croft__usage_file__init(file);
	file->format = 1;
	file->accounts = calloc(list->n + 1, sizeof(Croft__UsageAccount *));
	if (!file->accounts)
		return -ENOMEM;
	for (; file->n_accounts < list->n; file->n_accounts++) {
		file->accounts[file->n_accounts] = encode(&list->items[file->n_accounts]);
		if (!file->accounts[file->n_accounts])
			return -ENOMEM;
	}
	size = croft__usage_file__get_packed_size(file);
	data = malloc(SEALED_HEAD + size + 1);
	if (!data)
		return -ENOMEM;
	(void)croft__usage_file__pack(file, data + SEALED_HEAD);
	if (sealed_close(MAGIC, data, size) < 0) {
		free(data);
		return -ENOMEM;
	}
	*ret = data;
	*ret_size = SEALED_HEAD + size;
	return 0;
}

static int decode(const Croft__UsageAccount *account, struct sv_usage_saved *ret, struct err *reterr)
{
	int r = account->used ? usage_record_decode(account->used, &ret->meter.used, reterr) : -EINVAL;

	while (ret->meter.mode < METER_MODE_MAX_ && strcmp(modes[ret->meter.mode], account->mode) != 0)
		ret->meter.mode++;
	if (r < 0 || ret->meter.mode == METER_MODE_MAX_ || strlen(account->host_boot_id) >= sizeof(ret->host_boot_id))
		return err_set(reterr, FAIL_STATE_UNREADABLE, EINVAL, "an account of usage is none of ours");
	memcpy(ret->host_boot_id, account->host_boot_id, strlen(account->host_boot_id));
	ret->meter.since_usec = account->since_mono_us;
	ret->meter.cpu_seen_us = account->cpu_seen_us;
	ret->meter.egress_seen = account->egress_seen;
	ret->meter.has_run = account->has_run;
	ret->meter.ran_from_us = account->ran_from_us;
	ret->acked_version = account->acked_version;
	return 0;
}

int usage_unpack(const void *data, size_t size, struct usage_list *list, struct err *reterr)
{
	CLEANUP(free_filep) Croft__UsageFile *file = NULL;
	int r = 0;

	if (!sealed_is_right(MAGIC, data, size))
		return err_set(reterr, FAIL_STATE_UNREADABLE, EBADMSG, "the accounts of usage are torn: their digest is another");
	file = (Croft__UsageFile *)(void *)check_unpack(
		&croft__usage_file__descriptor, (const uint8_t *)data + SEALED_HEAD, size - SEALED_HEAD, reterr);
	if (!file)
		return -EINVAL;
	for (size_t i = 0; i < file->n_accounts && r == 0; i++) {
		struct sv_usage_saved saved = { .acked_version = 0 };

		r = decode(file->accounts[i], &saved, reterr);
		if (r == 0 && usage_list_add(list, &saved) < 0)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for accounts of usage");
	}
	return r;
}

static void path_of(const char *state, enum usage_file which, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.4000s/%s", state, names[which]);
}

int usage_write(const char *state, enum usage_file which, const void *data, size_t size, struct err *reterr)
{
	char path[PATH_MAX];
	int r;

	path_of(state, which, path);
	r = file_replace(path, data, size, 0600);
	return r < 0 ? err_set(reterr, FAIL_STATE_WRITE_FAILED, -r, "cannot write %.200s", path) : 0;
}

int usage_read(const char *state, enum usage_file which, struct usage_list *list, struct err *reterr)
{
	CLEANUP_FREE char *data = NULL;
	char path[PATH_MAX];
	size_t size = 0;
	int r;

	path_of(state, which, path);
	r = file_read(path, FILE_MAX_BYTES, &data, &size);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_set(reterr, FAIL_STATE_UNREADABLE, -r, "cannot read %.200s", path);
	return usage_unpack(data, size, list, reterr);
}

void usage_put_aside(const char *state, enum usage_file which)
{
	char path[PATH_MAX], aside[PATH_MAX];

	path_of(state, which, path);
	(void)snprintf(aside, sizeof(aside), "%.4000s/%s.unreadable", state, names[which]);
	(void)rename(path, aside);
}
