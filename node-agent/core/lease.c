/* SPDX-License-Identifier: Apache-2.0
 *
 * Leases: how long the VMs of this node may live without word of the scheduler, in a pool that starts elsewhere what ran
 * on a lost node (link.proto, LeaseGrant; docs/protocol.md). The scheduler counts this node's silence from when it got
 * the last heartbeat, so a lease is counted from when a heartbeat was sent: it is never over later than the scheduler
 * thinks. All of it on CLOCK_BOOTTIME, which neither a person nor a time server sets and which goes on while the host
 * sleeps.
 *
 * sandbox->lease_until_usec is the latest end that its VM was ever told; leases are never shortened, so that a VMM that
 * missed a word is no later than that. What a heartbeat says follows from it alone.
 */
#include "core/internal.h"

/* The clock that leases are told in; a planted fault takes the wrong one, here and in the VMM. */
static int64_t lease_now(const struct supervisor *sv)
{
	return PLANTED(LEASE_ON_WALL_CLOCK) ? sv->now.real_usec : sv->now.boot_usec;
}

/* Whether a VM of it may be there that goes on without a lease. */
static bool may_live_on(const struct sv_sandbox *sandbox)
{
	enum sv_state state = sandbox->journal.state;

	if (sandbox->is_bad)
		return true;
	if (state >= SV_REMOVING || !sandbox->vmm_seen)
		return false;
	/* a VMM that was not told to start runs no guest; the one of a former agent may */
	if ((state == SV_VMM || state == SV_WAKE_VMM) && (sandbox->awaits_lease || !sandbox->is_jailed))
		return false;
	return sandbox->lease_until_usec == 0;
}

/* What is left of the longest lease; 0: not every VM has one. */
static int64_t longest(const struct supervisor *sv)
{
	const struct sv_sandbox *sandbox;
	int64_t left = sv->lease_ms * USEC_PER_MSEC;

	if (err_is_set(&sv->unreadable))
		return 0;
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next) {
		if (may_live_on(sandbox))
			return 0;
		left = MAX(left, sandbox->lease_until_usec - lease_now(sv));
	}
	return left;
}

void sv_lease_heartbeat(struct supervisor *sv, struct heartbeat *heartbeat)
{
	int64_t left = sv->lease_ms ? (longest(sv) + USEC_PER_MSEC - 1) / USEC_PER_MSEC : 0;

	heartbeat->number = ++sv->heartbeat;
	heartbeat->lease_ms = (uint32_t)MIN(left, (int64_t)UINT32_MAX);
	sv->heartbeat_sent_usec[sv->heartbeat % HEARTBEATS_KEPT] = lease_now(sv);
}

static void emit_lease(struct supervisor *sv, enum sv_action_type type, struct sv_sandbox *sandbox)
{
	struct sv_action *action = sv_emit(sv, type, sandbox);

	if (!action)
		return;
	action->vmm = sandbox->journal.vmm;
	action->spec = spec_ref(sandbox->journal.spec);
	action->lease.length_ms = sv->lease_ms;
	action->restore_own = sandbox->journal.state == SV_WAKE_VMM;
	action->restore = action->restore_own || *sandbox->journal.spec->snapshot;
	action->lease.until_usec = sv->lease_ms ? sv->lease_until_usec : 0;
	sandbox->lease_until_usec = sv->lease_ms ? MAX(sandbox->lease_until_usec, sv->lease_until_usec) : 0;
}

void sv_lease_start(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->awaits_lease =
		!sv->was_welcomed || (sv->lease_ms > 0 && sv->lease_until_usec <= lease_now(sv));
	if (!sandbox->awaits_lease)
		emit_lease(sv, SV_DO_START_VMM, sandbox);
}

/* What waited, and what lives: as the pool wants it now. */
static void apply(struct supervisor *sv)
{
	struct sv_sandbox *sandbox;

	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next) {
		if (sandbox->awaits_lease)
			sv_lease_start(sv, sandbox);
		else if (sandbox->lease_until_usec == 0 || !sandbox->vmm_seen)
			continue;
		else if (sv->lease_ms == 0 || sandbox->lease_until_usec < sv->lease_until_usec)
			emit_lease(sv, SV_DO_RENEW_VMM, sandbox);
	}
}

void sv_lease_welcomed(struct supervisor *sv, uint32_t lease_ms)
{
	sv->was_welcomed = true;
	sv->lease_ms = lease_ms;
	apply(sv);
}

void sv_on_lease(struct supervisor *sv, const struct lease_grant *grant)
{
	int64_t sent;

	if (!sv->welcomed || grant->heartbeat > sv->heartbeat || grant->heartbeat <= sv->leased_heartbeat ||
		sv->heartbeat - grant->heartbeat >= HEARTBEATS_KEPT)
		return;
	sent = sv->heartbeat_sent_usec[grant->heartbeat % HEARTBEATS_KEPT];
	sv->leased_heartbeat = grant->heartbeat;
	sv->lease_ms = grant->lease_ms;
	sv->lease_until_usec = sent + grant->lease_ms * USEC_PER_MSEC;
	apply(sv);
}
