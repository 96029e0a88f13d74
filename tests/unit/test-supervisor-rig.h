/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the node's core: one supervisor, what it answered to the last event, what it journalled last, and the events
 * of one sandbox's life.
 */
#pragma once

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/supervisor.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"
#define OP "bbbbbbbbbbbbbbbbbbbb"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

struct rig {
	struct supervisor *core;
	struct sv_config config;
	struct rng rng;
	struct moment now;
	struct sv_actions out;
	struct sv_journal saved; /* the last journal write */
	bool has_saved;
};

static struct rig rig;

static inline void feed(struct sv_event event)
{
	sv_actions_clear(&rig.out);
	supervisor_step(rig.core, rig.now, &rig.rng, &event, &rig.out);
	ck_assert(!rig.out.no_memory);
	for (size_t i = 0; i < rig.out.n; i++)
		if (rig.out.items[i].type == SV_DO_JOURNAL_WRITE) {
			sv_journal_deinit(&rig.saved);
			ck_assert_int_eq(
				sv_journal_copy(rig.out.items[i].journal.record, &rig.saved), 0);
			rig.has_saved = true;
		}
}

static inline void feed_of(enum sv_event_type type, const struct err *err)
{
	struct sv_event event;

	memset(&event, 0, sizeof(event)); /* what else the event may say: nothing */
	event.type = type;
	event.generation = 1;
	event.err = err;
	memcpy(event.sandbox, ID, ID_SIZE);
	feed(event);
}

static inline void feed_exit(enum sv_exit reason, bool reached_userspace)
{
	struct sv_event event = { .type = SV_EV_VMM_EXITED, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	event.exited.reason = reason;
	event.exited.reached_userspace = reached_userspace;
	feed(event);
}

static inline void feed_guest(enum sv_event_type type, const struct err *err)
{
	struct sv_event event = { .type = type, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	event.guest.boot_id = "guest-boot";
	event.guest.err = err;
	feed(event);
}

static inline void feed_network(bool is_made, const struct err *err)
{
	struct sv_event event = { .type = SV_EV_NETWORK_DONE, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	event.network.is_made = is_made;
	event.network.text = is_made ? "slot" : "no helper";
	event.network.err = err;
	feed(event);
}

static inline void feed_spawned(void)
{
	struct sv_event event = { .type = SV_EV_VMM_SPAWNED, .generation = 1 };
	struct sv_vmm_id vmm = { .pid = 4711, .start_ticks = 5 };

	memcpy(event.sandbox, ID, ID_SIZE);
	event.spawned.vmm = &vmm;
	feed(event);
}

static inline void feed_jailed(bool is_whole, const char *text)
{
	struct sv_event event = { .type = SV_EV_VMM_JAILED, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	event.jailed.is_whole = is_whole;
	event.jailed.text = text;
	feed(event);
}

static inline const struct sv_action *find(enum sv_action_type type)
{
	for (size_t i = 0; i < rig.out.n; i++)
		if (rig.out.items[i].type == type)
			return &rig.out.items[i];
	return NULL;
}

static inline size_t place_of(enum sv_action_type type)
{
	const struct sv_action *action = find(type);

	ck_assert_ptr_nonnull(action);
	return (size_t)(action - rig.out.items);
}

static inline const struct sandbox_report *report(void)
{
	const struct sv_action *action = find(SV_DO_SEND_REPORT);

	return action ? action->report : NULL;
}

static inline void later(int64_t usec)
{
	rig.now.mono_usec += usec;
	rig.now.real_usec += usec;
	feed((struct sv_event){ .type = SV_EV_TICK });
}

static inline void connect_core(void)
{
	struct welcome welcome = {
		.node = "cccccccccccccccccccc", .pool = "pool", .heartbeat_ms = 1000, .takes_usage = true
	};

	feed((struct sv_event){ .type = SV_EV_LINK_UP });
	ck_assert_ptr_nonnull(find(SV_DO_SEND_HELLO));
	feed((struct sv_event){ .type = SV_EV_WELCOME, .epoch = 1, .welcome = &welcome });
}

static inline void make_core(void)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 },
		.disk_free_mib = 10000 };

	sv_config_default(&rig.config);
	rig.config.pauses = rig.config.snapshots = true;
	memcpy(rig.config.host_boot_id, "boot-1", 7);
	memcpy(rig.config.run_base, "/run/croft", 11);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	if (rig.has_saved)
		feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	feed((struct sv_event){ .type = SV_EV_START });
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
}

static inline void setup(void)
{
	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(1);
	rig.now = (struct moment){ .mono_usec = 1000 * USEC_PER_SEC,
		.real_usec = 5000 * USEC_PER_SEC };
	make_core();
	connect_core();
	ck_assert_ptr_nonnull(find(SV_DO_SEND_INVENTORY));
	ck_assert(find(SV_DO_SEND_INVENTORY)->inventory->complete);
}

static inline void teardown(void)
{
	sv_actions_clear(&rig.out);
	sv_journal_deinit(&rig.saved);
	rig.core = supervisor_free(rig.core);
}

static inline struct sandbox_spec *spec_make(
	uint64_t memory_mib, const char *setup_command, uint32_t timeout_s)
{
	struct sandbox_spec *spec = spec_new();

	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	spec->vcpus = 1;
	spec->memory_mib = memory_mib;
	spec->disk_mib = 100;
	spec->timeout_s = timeout_s;
	if (setup_command)
		ck_assert_int_eq(spec_set_setup(spec, setup_command), 0);
	return spec;
}

/* The write of the last step is durable, where it wanted to know. */
static inline void journalled(const char *id, uint64_t generation)
{
	struct sv_event event = { .type = SV_EV_JOURNALLED, .generation = generation };
	const struct sv_action *write = find(SV_DO_JOURNAL_WRITE);

	if (!write || !write->journal.answer)
		return;
	memcpy(event.sandbox, id, ID_SIZE);
	feed(event);
}

static inline void create_unanswered(const char *id, uint64_t generation, uint64_t epoch,
	struct sandbox_spec *spec, int64_t left_usec)
{
	struct create_command command = {
		.generation = generation, .attempt = 1, .spec = spec, .left_usec = left_usec
	};

	memcpy(command.sandbox, id, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_CREATE, .epoch = epoch, .create = &command });
	spec_unref(spec);
}

static inline void create_as(const char *id, uint64_t generation, uint64_t epoch,
	struct sandbox_spec *spec, int64_t left_usec)
{
	create_unanswered(id, generation, epoch, spec, left_usec);
	journalled(id, generation);
}

static inline void create(const char *setup_command, uint32_t timeout_s)
{
	create_as(ID, 1, 1, spec_make(1000, setup_command, timeout_s), 0);
}

static inline void destroy(uint64_t generation)
{
	struct destroy_command command = { .generation = generation, .reason = END_REQUEST };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_DESTROY, .epoch = 1, .destroy = &command });
}

static inline void ack(uint64_t version)
{
	struct report_ack message = { .generation = 1, .version = version };

	memcpy(message.sandbox, ID, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_REPORT_ACK, .epoch = 1, .ack = &message });
}

static inline enum sv_state state(void)
{
	struct sv_view view;

	return supervisor_get(rig.core, ID, &view) == 0 ? view.state : SV_STATE_MAX_;
}

/* Drives a start up to the given state. */
static inline void drive(enum sv_state to, const char *setup_command, uint32_t timeout_s)
{
	create(setup_command, timeout_s);
	if (to == SV_IMAGE)
		return;
	feed_of(SV_EV_IMAGE_DONE, NULL);
	if (to == SV_DISK)
		return;
	feed_of(SV_EV_DISK_DONE, NULL);
	if (to == SV_NETWORK)
		return;
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	if (to == SV_VMM)
		return;
	feed_of(SV_EV_VMM_STARTED, NULL);
	if (to == SV_KERNEL)
		return;
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	if (to == SV_GUEST)
		return;
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	journalled(ID, 1);
}

static inline void check_outcome(
	const struct sandbox_report *last, enum fail_stage stage, enum outcome outcome)
{
	for (size_t i = 0; i < last->n_stages; i++)
		if (last->stages[i].stage == stage) {
			ck_assert_int_eq(last->stages[i].outcome, outcome);
			return;
		}
	ck_abort_msg("stage %s is missing", stage_name(stage));
}
