/* SPDX-License-Identifier: Apache-2.0
 *
 * See host.h.
 */
#include "network/host.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limit.h"
#include "base/log.h"
#include "base/rng.h"
#include "network/link.h"
#include "network/netns.h"

#define RECLAIM_PER_TICK 4
#define RECORD_MAX 128
#define FORWARD_PATH "/proc/sys/net/ipv4/ip_forward"

enum slot_state {
	SLOT_SPARE, /* nobody's */
	SLOT_TAKEN, /* a sandbox's, on record */
	SLOT_STALE, /* to be removed */
};

struct entry {
	struct net_host_slot of;
	enum slot_state state;
	bool has_index; /* false: stale, and no address of it is known */
};

struct net_host {
	char netns_dir[PATH_MAX], slots_dir[PATH_MAX], was_off[PATH_MAX];
	struct net_pool pool;
	struct net_owner owner;
	struct net_limits limits;
	struct net_policy nothing; /* denies all */
	uint32_t spares;
	struct rng rng;
	struct entry *entries;
	size_t n;
};

/* ---- the list ---- */

static struct entry *add_entry(struct net_host *host, const char *name)
{
	struct entry *grown = reallocarray(host->entries, host->n + 1, sizeof(*grown));

	if (!grown)
		return NULL;
	host->entries = grown;
	grown += host->n++;
	memset(grown, 0, sizeof(*grown));
	(void)snprintf(grown->of.slot.name, sizeof(grown->of.slot.name), "%s", name);
	return grown;
}

static struct entry *find_name(struct net_host *host, const char *name)
{
	for (size_t i = 0; i < host->n; i++)
		if (!strcmp(host->entries[i].of.slot.name, name))
			return &host->entries[i];
	return NULL;
}

static struct entry *find_state(struct net_host *host, enum slot_state state)
{
	for (size_t i = 0; i < host->n; i++)
		if (host->entries[i].state == state)
			return &host->entries[i];
	return NULL;
}

static struct entry *find_sandbox(const struct net_host *host, const char *sandbox)
{
	for (size_t i = 0; i < host->n; i++)
		if (host->entries[i].state == SLOT_TAKEN && !strcmp(host->entries[i].of.sandbox, sandbox))
			return &host->entries[i];
	return NULL;
}

static void record_path(const struct net_host *host, const char *name, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%.4000s/%.64s", host->slots_dir, name);
}

static void drop(struct net_host *host, struct entry *entry)
{
	if (entry->has_index)
		net_pool_release(&host->pool, entry->of.slot.index);
	*entry = host->entries[--host->n];
}

/* 0 when it is gone, record and all. */
static int remove_entry(struct net_host *host, struct entry *entry, struct err *reterr)
{
	char path[PATH_MAX];
	int r;

	entry->state = SLOT_STALE;
	/* the record last: while it is there the slot is found again */
	r = net_slot_remove(host->netns_dir, entry->of.slot.name, reterr);
	if (r < 0)
		return r;
	record_path(host, entry->of.slot.name, path);
	if (unlink(path) < 0 && errno != ENOENT)
		return err_set_at(reterr, STAGE_STOP, FAIL_IO_FAILED, errno, "cannot remove %s", path);
	drop(host, entry);
	return 0;
}

/* ---- what an earlier life left ---- */

static bool on_link(const char *name, uint32_t address, void *user)
{
	struct net_host *host = user;
	struct entry *entry = add_entry(host, name);

	if (!entry)
		return false;
	entry->state = SLOT_STALE;
	entry->has_index = net_pool_mark(&host->pool, address, &entry->of.slot.index);
	return true;
}

/* Every file of a directory that could be a slot's becomes one. */
static int load_names(struct net_host *host, const char *dir)
{
	DIR *listing = opendir(dir);
	struct dirent *item;
	int r = listing ? 0 : -errno;

	while (listing && (item = readdir(listing))) {
		struct entry *entry;

		if (!net_slot_name_is_valid(item->d_name) || find_name(host, item->d_name))
			continue;
		entry = add_entry(host, item->d_name);
		if (!entry) {
			r = -ENOMEM;
			break;
		}
		entry->state = SLOT_STALE;
	}
	if (listing)
		(void)closedir(listing);
	return r;
}

/* Whose it is. Anything but a whole record of a slot that is whole makes it nobody's. */
static void load_record(struct net_host *host, struct entry *entry)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FD int netns = -1;
	char path[PATH_MAX], sandbox[ID_SIZE];
	unsigned long long generation;
	unsigned int index;

	record_path(host, entry->of.slot.name, path);
	if (!entry->has_index || file_read(path, RECORD_MAX, &text, NULL) < 0 ||
		sscanf(text, "%u %20s %llu\n", &index, sandbox, &generation) != 3 ||
		index != entry->of.slot.index || !id_is_valid(sandbox))
		return;
	netns = netns_open(host->netns_dir, entry->of.slot.name);
	if (netns < 0)
		return;
	net_pool_slot(&host->pool, index, entry->of.slot.name, &entry->of.slot);
	memcpy(entry->of.sandbox, sandbox, sizeof(entry->of.sandbox));
	entry->of.generation = generation;
	entry->state = SLOT_TAKEN;
}

static int load(struct net_host *host, struct err *reterr)
{
	int r = net_link_list(on_link, host);

	if (r == 0)
		r = load_names(host, host->netns_dir);
	if (r == 0)
		r = load_names(host, host->slots_dir);
	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "cannot see which network slots exist");
	for (size_t i = 0; i < host->n; i++)
		load_record(host, &host->entries[i]);
	return 0;
}

/* ---- the host's own rules ---- */

/* Whether the host forwarded before us is asked once and kept: after that the answer is always yes. */
static int set_forwarding(struct net_host *host, bool *ret_was_off)
{
	CLEANUP_FREE char *text = NULL;
	int r;

	*ret_was_off = access(host->was_off, F_OK) == 0;
	r = file_read(FORWARD_PATH, 16, &text, NULL);
	if (r < 0 || *text == '1')
		return r;
	r = *ret_was_off ? 0 : file_replace(host->was_off, "", 0, 0600);
	*ret_was_off = true;
	return r;
}

static int switch_forwarding(bool on)
{
	FILE *file = fopen(FORWARD_PATH, "we");
	int r = file && fputs(on ? "1\n" : "0\n", file) >= 0 ? 0 : -errno;

	if (file && fclose(file) != 0 && r == 0)
		r = -errno;
	return r;
}

static int prepare_host(struct net_host *host, struct err *reterr)
{
	struct net_host_rules rules = { .pool = &host->pool.cidr, .owner = &host->owner };
	struct buf text = BUF_NULL(NET_RULESET_MAX);
	char stamp[NET_STAMP_SIZE];
	int r = set_forwarding(host, &rules.forward_nothing_else);

	if (r < 0)
		return err_set(reterr, FAIL_IO_FAILED, -r, "cannot see whether this host forwards");
	r = net_ruleset_host(&text, &rules, stamp);
	if (r < 0)
		(void)err_set(reterr, FAIL_NETWORK_RULES_FAILED, -r, "the host's rules are too many");
	else
		r = net_rules_apply(&text, stamp, reterr);
	buf_deinit(&text);
	if (r < 0)
		return r;
	/* behind the rules: not for a moment does it forward what it did not before */
	r = switch_forwarding(true);
	return r < 0 ? err_set(reterr, FAIL_NETWORK_UNSUPPORTED, -r, "cannot let this host forward") : 0;
}

static void name_places(struct net_host *host, const char *run)
{
	(void)snprintf(host->netns_dir, sizeof(host->netns_dir), "%.4000s/netns", run);
	(void)snprintf(host->slots_dir, sizeof(host->slots_dir), "%.4000s/slots", run);
	(void)snprintf(host->was_off, sizeof(host->was_off), "%.4000s/forwarding-was-off", run);
}

static int make_places(struct net_host *host, const char *run, struct err *reterr)
{
	int r;

	name_places(host, run);
	r = dir_make(run, 0711);
	if (r == 0)
		r = netns_dir_make(host->netns_dir);
	if (r == 0)
		r = dir_make(host->slots_dir, 0700);
	return r < 0 ? err_set(reterr, FAIL_IO_FAILED, -r, "cannot make the directories of the network in %s", run)
		     : 0;
}

int net_host_new(struct net_host **ret, const struct net_host_config *config, struct err *reterr)
{
	CLEANUP(net_host_freep) struct net_host *host = calloc(1, sizeof(*host));
	int r;

	if (!host)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the network");
	host->owner = config->owner;
	host->limits = config->limits;
	host->spares = config->spares;
	host->rng = rng_system();
	r = net_pool_init(&host->pool, &config->pool, reterr);
	if (r == 0)
		r = net_route_check(&config->pool, reterr);
	if (r == 0)
		r = make_places(host, config->run, reterr);
	if (r == 0)
		r = prepare_host(host, reterr);
	if (r == 0)
		r = load(host, reterr);
	if (r < 0)
		return r;
	*ret = TAKE(host);
	return 0;
}

struct net_host *net_host_free(struct net_host *host)
{
	if (host) {
		net_pool_deinit(&host->pool);
		free(host->entries);
		free(host);
	}
	return NULL;
}

/* ---- slots ---- */

static int with_rules(struct net_host *host, const struct net_slot *slot, const struct net_policy *policy,
	const struct net_pin *pins, size_t n_pins,
	int (*act)(const char *, const struct net_slot_rules *, struct err *), struct err *reterr)
{
	struct net_judge judge;
	struct net_slot_rules rules = { .slot = slot, .judge = &judge, .pins = pins, .n_pins = n_pins,
		.limits = host->limits };
	int r = net_judge_init(&judge, &host->owner, policy);

	if (r < 0)
		return err_set(reterr, FAIL_NO_MEMORY, -r, "no memory for a network policy");
	r = act(host->netns_dir, &rules, reterr);
	net_judge_deinit(&judge);
	return r;
}

static int make_spare(struct net_host *host, struct entry **ret, struct err *reterr)
{
	char key[ID_SIZE];
	struct net_slot slot;
	struct entry *entry;
	int r;

	/* a key of its own each time: the name of a slot that is not quite gone is never met again */
	id_new(&host->rng, key);
	r = net_pool_take(&host->pool, key, &slot, reterr);
	if (r < 0)
		return r;
	entry = add_entry(host, slot.name);
	if (!entry) {
		net_pool_release(&host->pool, slot.index);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a network slot");
	}
	entry->of.slot = slot;
	entry->has_index = true;
	r = with_rules(host, &slot, &host->nothing, NULL, 0, net_slot_make, reterr);
	if (r < 0) {
		entry->state = SLOT_STALE; /* most likely nothing is left of it; the sweep makes sure */
		return r;
	}
	entry->state = SLOT_SPARE;
	*ret = entry;
	return 0;
}

static int write_record(struct net_host *host, const struct entry *entry, struct err *reterr)
{
	char path[PATH_MAX], text[RECORD_MAX];
	int n, r;

	record_path(host, entry->of.slot.name, path);
	n = snprintf(text, sizeof(text), "%u %s %llu\n", entry->of.slot.index, entry->of.sandbox,
		(unsigned long long)entry->of.generation);
	r = file_replace(path, text, (size_t)n, 0600);
	if (r == 0 || limit_is_reached(reterr, STAGE_NETWORK, LIMIT_FILE, -r, "cannot record a network slot"))
		return r;
	return err_set_at(reterr, STAGE_NETWORK, FAIL_IO_FAILED, -r, "cannot write %s", path);
}

int net_host_take(struct net_host *host, const char *sandbox, uint64_t generation, const struct net_policy *policy,
	const struct net_host_slot **ret, struct err *reterr)
{
	struct entry *entry = find_sandbox(host, sandbox);
	int r = 0;

	if (entry && entry->of.generation != generation)
		return err_set(reterr, FAIL_NETWORK_SLOT_FAILED, EEXIST,
			"the sandbox has the network slot of another generation");
	if (!entry)
		entry = find_state(host, SLOT_SPARE);
	if (!entry)
		r = make_spare(host, &entry, reterr);
	if (r == 0)
		r = with_rules(host, &entry->of.slot, policy, NULL, 0, net_slot_apply, reterr);
	if (r < 0)
		goto fail;
	(void)snprintf(entry->of.sandbox, sizeof(entry->of.sandbox), "%s", sandbox);
	entry->of.generation = generation;
	r = write_record(host, entry, reterr);
	if (r < 0)
		goto fail;
	entry->state = SLOT_TAKEN;
	*ret = &entry->of;
	return 0;
fail:
	if (entry)
		(void)remove_entry(host, entry, NULL); /* whatever it is like now; the sweep goes on */
	return r;
}

const struct net_host_slot *net_host_find(const struct net_host *host, const char *sandbox)
{
	struct entry *entry = find_sandbox(host, sandbox);

	return entry ? &entry->of : NULL;
}

const struct net_host_slot *net_host_list(const struct net_host *host, size_t at)
{
	for (size_t i = 0; i < host->n; i++)
		if (host->entries[i].state == SLOT_TAKEN && at-- == 0)
			return &host->entries[i].of;
	return NULL;
}

int net_host_give_back(struct net_host *host, const char *sandbox, struct err *reterr)
{
	struct entry *entry = find_sandbox(host, sandbox);

	return entry ? remove_entry(host, entry, reterr) : 0;
}

int net_host_set_policy(struct net_host *host, const struct net_host_slot *slot, const struct net_policy *policy,
	const struct net_pin *pins, size_t n_pins, struct err *reterr)
{
	return with_rules(host, &slot->slot, policy, pins, n_pins, net_slot_apply, reterr);
}

int net_host_pin(struct net_host *host, const struct net_host_slot *slot, const struct net_pin *pins, size_t n_pins,
	struct err *reterr)
{
	CLEANUP_FREE struct net_pin *open = calloc(n_pins ? n_pins : 1, sizeof(*open));
	size_t n = 0;

	if (!open)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for addresses");
	for (size_t i = 0; i < n_pins; i++) {
		struct net_addr addr = net_addr_v4(pins[i].address);

		if (pins[i].ttl_sec > 0 && !net_is_fenced(&addr))
			open[n++] = pins[i];
	}
	return n ? net_slot_pin(host->netns_dir, slot->slot.name, open, n, reterr) : 0;
}

const char *net_host_netns_dir(const struct net_host *host)
{
	return host->netns_dir;
}

/* ---- behind ---- */

void net_host_count(const struct net_host *host, struct net_host_counts *ret)
{
	*ret = (struct net_host_counts){ .slots = host->pool.n };
	for (size_t i = 0; i < host->n; i++) {
		ret->taken += host->entries[i].state == SLOT_TAKEN;
		ret->spare += host->entries[i].state == SLOT_SPARE;
		ret->stale += host->entries[i].state == SLOT_STALE;
	}
}

bool net_host_tick(struct net_host *host)
{
	struct net_host_counts counts;
	struct err err = ERR_NULL;
	struct entry *entry;

	for (int i = 0; i < RECLAIM_PER_TICK && (entry = find_state(host, SLOT_STALE)); i++) {
		struct entry last;

		if (remove_entry(host, entry, &err) == 0)
			continue;
		log_failure(LOG_LEVEL_WARN, "a network slot is left", &err, "slot", entry->of.slot.name, NULL);
		/* the others are not to wait behind it */
		last = *entry;
		memmove(entry, entry + 1, (size_t)(&host->entries[host->n] - (entry + 1)) * sizeof(*entry));
		host->entries[host->n - 1] = last;
		break;
	}
	net_host_count(host, &counts);
	if (counts.spare < host->spares && counts.spare + counts.taken < host->pool.n) {
		if (make_spare(host, &entry, &err) < 0)
			log_failure(LOG_LEVEL_WARN, "no network slot was made ahead", &err, NULL);
		else
			counts.spare++;
	}
	return counts.stale > 0 || counts.spare < host->spares;
}

/* ---- for good ---- */

/* A table that is added first can be deleted whether it was there or not. */
static int remove_rules(struct err *reterr)
{
	static const char rules[] = "table inet croft {\n}\ndelete table inet croft\n";
	struct buf text = BUF_NULL(NET_RULESET_MAX);
	int r = buf_append(&text, rules, sizeof(rules) - 1);

	r = r < 0 ? err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for rules") : net_rules_add(&text, reterr);
	buf_deinit(&text);
	return r;
}

/* The first failure is the caller's; the others are said here, for the work goes on. */
static int first_of(int r, int next, const struct err *err, struct err *reterr)
{
	if (next >= 0)
		return r;
	if (r < 0)
		log_failure(LOG_LEVEL_WARN, "and more is left of the network", err, NULL);
	else if (reterr)
		*reterr = *err;
	return r < 0 ? r : next;
}

static int give_forwarding_back(const struct net_host *host, struct err *reterr)
{
	int r = access(host->was_off, F_OK) == 0 ? switch_forwarding(false) : 0;

	/* read-only for us: then we never switched it on */
	return r < 0 && r != -EROFS ? err_set_at(reterr, STAGE_STOP, FAIL_IO_FAILED, -r, "cannot end that this host forwards") : 0;
}

static int remove_places(const struct net_host *host, const char *run, struct err *reterr)
{
	int r = netns_dir_remove(host->netns_dir);

	if (r == 0)
		r = dir_remove(run);
	return r < 0 ? err_set_at(reterr, STAGE_STOP, FAIL_IO_FAILED, -r, "cannot remove %s", run) : 0;
}

int net_host_clear(const struct net_host_config *config, struct err *reterr)
{
	CLEANUP(net_host_freep) struct net_host *host = calloc(1, sizeof(*host));
	struct err err = ERR_NULL;
	int r;

	if (!host)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the network");
	r = net_pool_init(&host->pool, &config->pool, reterr);
	if (r < 0)
		return r;
	name_places(host, config->run);
	/* a host that can have no network never had one, and cannot be asked for rules */
	if (access(host->slots_dir, F_OK) < 0) {
		r = dir_remove(config->run);
		return r < 0 ? err_set_at(reterr, STAGE_STOP, FAIL_IO_FAILED, -r, "cannot remove %s", config->run) : 0;
	}
	r = make_places(host, config->run, reterr);
	r = first_of(r, load(host, &err), &err, reterr);
	/* from the end: what is removed is replaced by the last, which was tried already */
	for (size_t i = host->n; i-- > 0;) {
		err = (struct err)ERR_NULL;
		r = first_of(r, remove_entry(host, &host->entries[i], &err), &err, reterr);
	}
	/* before the rules go: a host that did not forward is not to do it unfiltered */
	err = (struct err)ERR_NULL;
	r = first_of(r, give_forwarding_back(host, &err), &err, reterr);
	err = (struct err)ERR_NULL;
	r = first_of(r, remove_rules(&err), &err, reterr);
	if (r < 0)
		return r; /* what says whose a slot is stays, and the next call finds it */
	return remove_places(host, config->run, reterr);
}
