/* SPDX-License-Identifier: Apache-2.0
 *
 * The accounts of a node: what each generation of each sandbox has used (meter.h). An account outlives its sandbox until the
 * scheduler has it, and as long after that as there is room, so that node and scheduler can be compared.
 *
 * The scheduler hears only of what is durable here: what a crash could take back is told to nobody. So an account has three
 * copies of its record: what is counted, what is being written, and what was.
 */
#include <stdio.h>
#include <string.h>

#include "core/internal.h"

#define ACCOUNTS_MAX 4096u /* of sandboxes that are over */
#define AGAIN_USEC (30 * USEC_PER_SEC) /* until a report that was not acknowledged is sent again */
#define NEXT_PART_USEC (USEC_PER_SEC / 2)

static struct sv_account *find(const struct supervisor *sv, const char *sandbox, uint64_t generation)
{
	struct sv_account *account;

	TAILQ_FOREACH (account, &sv->accounts, in_order)
		if (account->meter.used.generation == generation && !strcmp(account->meter.used.sandbox, sandbox))
			return account;
	return NULL;
}

static void drop(struct supervisor *sv, struct sv_account *account)
{
	TAILQ_REMOVE(&sv->accounts, account, in_order);
	sv->n_over -= account->meter.used.is_over;
	free(account);
}

void sv_usage_free(struct supervisor *sv)
{
	while (!TAILQ_EMPTY(&sv->accounts))
		drop(sv, TAILQ_FIRST(&sv->accounts));
}

static bool is_told(const struct sv_account *account)
{
	return account->acked_version >= account->meter.used.version;
}

/* The oldest that the scheduler has; where it has none of them, the oldest. */
static void make_room(struct supervisor *sv)
{
	struct sv_account *account, *victim = NULL;

	if (sv->n_over <= ACCOUNTS_MAX)
		return;
	TAILQ_FOREACH (account, &sv->accounts, in_order) {
		if (!account->meter.used.is_over)
			continue;
		if (!victim || (is_told(account) && !is_told(victim)))
			victim = account;
		if (is_told(victim))
			break;
	}
	if (!victim)
		return;
	sv->n_usage_dropped += !is_told(victim);
	drop(sv, victim);
}

static struct sv_account *add(struct supervisor *sv)
{
	struct sv_account *account = calloc(1, sizeof(*account));

	if (account)
		TAILQ_INSERT_TAIL(&sv->accounts, account, in_order);
	else
		sv->out->no_memory = true;
	return account;
}

static void close_account(struct supervisor *sv, struct sv_account *account)
{
	if (!account || account->meter.used.is_over)
		return;
	meter_end(&account->meter, &sv->now);
	sv->n_over++;
	make_room(sv);
}

void sv_usage_begin(struct supervisor *sv, struct sv_sandbox *sandbox, bool same_vm)
{
	struct sv_account *before = sandbox->account, *account = add(sv);

	sandbox->account = account;
	if (!account) {
		close_account(sv, before);
		return;
	}
	meter_begin(&account->meter, sandbox->journal.sandbox, sandbox->journal.generation, sandbox->journal.spec, &sv->now);
	if (before && same_vm) { /* what it used before is the former's */
		account->meter.cpu_seen_us = before->meter.cpu_seen_us;
		account->meter.egress_seen = before->meter.egress_seen;
	}
	close_account(sv, before);
}

void sv_usage_end(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	close_account(sv, TAKE(sandbox->account));
}

/* METER_MODE_MAX_: as before. */
static enum meter_mode mode_of(const struct sv_sandbox *sandbox)
{
	switch (sandbox->journal.state) {
	case SV_IMAGE:
	case SV_ENDED:
		return METER_OFF;
	case SV_DISK:
	case SV_NETWORK:
	case SV_VMM:
	case SV_KERNEL:
	case SV_GUEST:
	case SV_SETUP:
	case SV_STOPPING:
	case SV_KILLING:
	case SV_REMOVING:
	case SV_KEPT:
	case SV_DROPPING:
		return METER_DISK;
	case SV_RUNNING:
	case SV_PAUSING:
		return METER_RUNNING;
	case SV_THAWING: /* of a wake: it does not run yet */
		return sandbox->journal.is_waking ? METER_PAUSED : METER_RUNNING;
	case SV_SLEEPING:
	case SV_PAUSED:
	case SV_WAKE_NETWORK:
	case SV_WAKE_VMM:
	case SV_WAKE_GUEST:
		return METER_PAUSED;
	case SV_ADOPTING:
	case SV_STATE_MAX_:
		break;
	}
	return METER_MODE_MAX_;
}

void sv_usage_moved(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	enum meter_mode mode = mode_of(sandbox);
	struct sv_account *account = sandbox->account;

	if (!account || mode == METER_MODE_MAX_)
		return;
	if (sandbox->journal.state == SV_NETWORK || sandbox->journal.state == SV_WAKE_NETWORK)
		meter_new_vm(&account->meter);
	if (sandbox->journal.state == SV_ENDED) { /* the account stays with it: it is found again by a kept start */
		close_account(sv, account);
		sandbox->account = NULL;
		return;
	}
	meter_move(&account->meter, mode, &sv->now);
}

void sv_usage_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *failure)
{
	struct meter *meter = sandbox->account ? &sandbox->account->meter : NULL;
	enum sv_state state = sandbox->journal.state;

	if (!meter || !failure || !err_is_set(failure) || failure->code == FAIL_BUDGET_EXCEEDED)
		return; /* who used up what he wanted to use has lost nothing */
	meter_sync(meter, &sv->now);
	if (sv_is_starting(state))
		meter_lose(meter, failure->component, sv->now.mono_usec - meter->begun_usec);
	else if (sandbox->journal.is_waking)
		meter_lose(meter, failure->component, sv->now.mono_usec - sandbox->stage_began_usec);
	else if (state != SV_PAUSED)
		meter_lose(meter, failure->component, (int64_t)(meter->used.running_us - meter->ran_from_us));
}

/* ---- readings ---- */

void sv_on_used(struct supervisor *sv, const struct sv_reading *readings, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct sv_reading *reading = &readings[i];
		struct sv_sandbox *sandbox = sv_sandbox_find(sv, reading->sandbox);
		struct sv_account *account = sandbox ? sandbox->account : NULL;

		if (!account || account->meter.used.generation != reading->generation)
			continue;
		if (reading->has_cpu)
			meter_read_cpu(&account->meter, reading->cpu_us);
		if (reading->has_egress)
			meter_read_egress(&account->meter, reading->egress_bytes);
		sv_budget_look(sv, sandbox);
	}
}

/* ---- files ---- */

void sv_usage_load(struct supervisor *sv, const struct sv_usage_saved *saved)
{
	struct sv_account *account = find(sv, saved->meter.used.sandbox, saved->meter.used.generation);

	if (account && account->meter.used.version >= saved->meter.used.version)
		return; /* it was in both files: the later one counts */
	if (account)
		drop(sv, account);
	account = add(sv);
	if (!account)
		return;
	account->meter = saved->meter;
	account->saved = saved->meter.used;
	account->acked_version = saved->acked_version;
	sv->n_over += account->meter.used.is_over;
	meter_load(&account->meter, !strcmp(saved->host_boot_id, sv->config.host_boot_id), &sv->now);
	make_room(sv);
}

/* An account of what was there before: what it had is not known here, and its version is above any that was told of it, so that
 * the scheduler, which has that, hears what is missing. */
static void begin_anew(struct meter *meter, int64_t ready_us, const struct moment *now)
{
	struct usage_record *used = &meter->used;

	used->version = (uint64_t)MAX(now->real_usec, INT64_C(1));
	if (ready_us <= 0 || ready_us >= now->real_usec)
		return;
	used->began_us = ready_us;
	used->uncounted_us = (uint64_t)(now->real_usec - ready_us);
}

/* A sandbox that is on record without an account: of an older agent, or its file was lost. It is counted from now on. */
static void resume(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	const struct sv_journal *journal = &sandbox->journal;

	if (sandbox->is_bad || journal->state == SV_ENDED || !journal->spec)
		return;
	sandbox->account = find(sv, journal->sandbox, journal->generation);
	if (sandbox->account && sandbox->account->meter.used.is_over)
		sandbox->account = NULL;
	if (sandbox->account)
		return;
	sv_usage_begin(sv, sandbox, false);
	if (sandbox->account)
		begin_anew(&sandbox->account->meter, journal->ready_us, &sv->now);
}

void sv_usage_start(struct supervisor *sv)
{
	struct sv_account *account;

	for (struct sv_sandbox *sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		resume(sv, sandbox);
	TAILQ_FOREACH (account, &sv->accounts, in_order) {
		const struct sv_sandbox *sandbox = sv_sandbox_find(sv, account->meter.used.sandbox);

		if (!account->meter.used.is_over && (!sandbox || sandbox->account != account))
			close_account(sv, account); /* it ended between two writes */
	}
}

void sv_usage_resumed(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	/* whether the VM is there is found out next */
	if (sandbox->journal.state != SV_THAWING)
		sv_usage_moved(sv, sandbox);
}

size_t supervisor_usage_take(
	struct supervisor *sv, struct moment now, void (*each)(const struct sv_usage_saved *saved, void *user), void *user)
{
	struct sv_account *account;
	size_t n = 0;

	TAILQ_FOREACH (account, &sv->accounts, in_order) {
		struct sv_usage_saved saved = { .acked_version = account->acked_version };

		meter_sync(&account->meter, &now);
		account->pending = account->meter.used;
		saved.meter = account->meter;
		memcpy(saved.host_boot_id, sv->config.host_boot_id, sizeof(saved.host_boot_id));
		each(&saved, user);
		n++;
	}
	return n;
}

void sv_on_usage_saved(struct supervisor *sv)
{
	struct sv_account *account;
	bool has_ended = false, has_news = false;

	TAILQ_FOREACH (account, &sv->accounts, in_order) {
		if (account->pending.version > account->saved.version)
			account->saved = account->pending;
		if (account->saved.version > account->acked_version) {
			has_news = true;
			has_ended = has_ended || account->saved.is_over;
		}
	}
	if (has_ended)
		sv->usage_due_usec = MIN(sv->usage_due_usec, sv->now.mono_usec);
	else if (has_news)
		sv->usage_due_usec = MIN(sv->usage_due_usec, sv->usage_sent_usec + sv->config.usage_usec);
}

/* ---- to the scheduler ---- */

static struct usage_report *new_report(struct supervisor *sv)
{
	struct usage_report *report = calloc(1, sizeof(*report));

	if (report)
		report->records = calloc(USAGE_RECORDS_MAX, sizeof(*report->records));
	if (!report || !report->records) {
		free(report);
		sv->out->no_memory = true;
		return NULL;
	}
	report->number = ++sv->usage_number;
	report->n_dropped = sv->n_usage_dropped;
	return report;
}

static bool is_due(const struct supervisor *sv, const struct sv_account *account)
{
	const bool is_under_way = account->sent_version >= account->saved.version &&
				  sv->now.mono_usec < account->sent_usec + AGAIN_USEC;

	return account->saved.version > account->acked_version && !is_under_way;
}

static void send(struct supervisor *sv)
{
	struct usage_report *report = new_report(sv);
	struct sv_account *account;
	struct sv_action *action;
	bool is_whole = true;

	sv->usage_due_usec = NEVER;
	if (!report)
		return;
	TAILQ_FOREACH (account, &sv->accounts, in_order) {
		if (!is_due(sv, account))
			continue;
		if (report->n == USAGE_RECORDS_MAX) {
			is_whole = false;
			break;
		}
		report->records[report->n++] = account->saved;
		account->sent_version = account->saved.version;
		account->sent_in = report->number;
		account->sent_usec = sv->now.mono_usec;
	}
	action = report->n ? sv_emit(sv, SV_DO_SEND_USAGE, NULL) : NULL;
	if (action) {
		action->usage = report;
		sv->usage_sent_usec = sv->now.mono_usec;
		sv->usage_due_usec = sv->now.mono_usec + (is_whole ? AGAIN_USEC : NEXT_PART_USEC);
	} else {
		usage_report_deinit(report);
		free(report);
	}
}

void sv_usage_tick(struct supervisor *sv)
{
	if (sv->takes_usage && sv->now.mono_usec >= sv->usage_due_usec)
		send(sv);
}

void sv_on_usage_ack(struct supervisor *sv, uint64_t number)
{
	struct sv_account *account;

	TAILQ_FOREACH (account, &sv->accounts, in_order)
		if (account->sent_in == number)
			account->acked_version = MAX(account->acked_version, account->sent_version);
}

void sv_usage_welcomed(struct supervisor *sv, bool takes_usage)
{
	struct sv_account *account;

	sv->takes_usage = takes_usage;
	TAILQ_FOREACH (account, &sv->accounts, in_order) {
		account->sent_version = 0; /* what was on its way may be lost */
		if (account->saved.version > account->acked_version)
			sv->usage_due_usec = sv->now.mono_usec;
	}
}
