/* SPDX-License-Identifier: Apache-2.0
 *
 * wire/messages: what goes in comes out, and each decoder refuses what nobody may believe.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/suite.h"
#include "wire/messages.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"
#define OP "bbbbbbbbbbbbbbbbbbbb"
#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct sandbox_spec *spec_make(void)
{
	struct sandbox_spec *spec = spec_new();

	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	memcpy(spec->access_token, "token", 6);
	spec->image_size = 123;
	spec->vcpus = 2;
	spec->memory_mib = 512;
	spec->disk_mib = 1024;
	spec->timeout_s = 60;
	spec->setup_timeout_ms = 1500;
	spec->secure = true;
	spec->auto_pause = true;
	spec->auto_resume = true;
	memcpy(spec->snapshot, OP, ID_SIZE);
	ck_assert_int_eq(spec_add_env(spec, "NAME", "value with = and spaces"), 0);
	ck_assert_int_eq(spec_set_setup(spec, "exit 3"), 0);
	return spec;
}

static void spec_equal(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	ck_assert_str_eq(a->template_name, b->template_name);
	ck_assert_str_eq(a->image_digest, b->image_digest);
	ck_assert_str_eq(a->access_token, b->access_token);
	ck_assert_str_eq(a->setup_command, b->setup_command);
	ck_assert_str_eq(a->snapshot, b->snapshot);
	ck_assert_uint_eq(a->image_size, b->image_size);
	ck_assert_uint_eq(a->vcpus, b->vcpus);
	ck_assert_uint_eq(a->memory_mib, b->memory_mib);
	ck_assert_uint_eq(a->disk_mib, b->disk_mib);
	ck_assert_uint_eq(a->timeout_s, b->timeout_s);
	ck_assert_uint_eq(a->setup_timeout_ms, b->setup_timeout_ms);
	ck_assert(a->secure == b->secure);
	ck_assert(a->auto_pause == b->auto_pause);
	ck_assert(a->auto_resume == b->auto_resume);
	ck_assert_uint_eq(a->n_env, b->n_env);
	ck_assert_str_eq(a->env[0].key, b->env[0].key);
	ck_assert_str_eq(a->env[0].value, b->env[0].value);
}

#define FREE(message) protobuf_c_message_free_unpacked(&(message)->base, NULL)

START_TEST(test_create)
{
	struct create_command command = {
		.sandbox = ID, .operation = OP, .generation = 3, .attempt = 2
	};
	struct create_command back;
	Croft__CreateSandbox *message;

	command.spec = spec_make();
	message = create_command_encode(&command);
	ck_assert_int_eq(create_command_decode(message, &back, NULL), 0);
	ck_assert_str_eq(back.sandbox, ID);
	ck_assert_str_eq(back.operation, OP);
	ck_assert_uint_eq(back.generation, 3);
	ck_assert_uint_eq(back.attempt, 2);
	spec_equal(back.spec, command.spec);
	create_command_deinit(&command);
	create_command_deinit(&back);
	FREE(message);
}
END_TEST

START_TEST(test_report)
{
	struct stage_record stage = {
		.stage = STAGE_VMM, .outcome = RESULT_FAILED, .sandbox = ID, .generation = 4
	};
	struct sandbox_report report = {
		.sandbox = ID,
		.operation = OP,
		.updated = OP,
		.generation = 4,
		.version = 9,
		.state = REPORT_ENDED,
		.accepted = true,
		.stages = &stage,
		.n_stages = 1,
		.guest_boot_id = "boot",
		.end_reason = END_FAILED,
	};
	struct sandbox_report back;
	Croft__SandboxReport *message;

	(void)err_set(&report.failure, FAIL_KVM_UNAVAILABLE, 13, "No permission.");
	report.spec = spec_make();
	stage.failure = report.failure;
	message = sandbox_report_encode(&report);
	ck_assert_int_eq(sandbox_report_decode(message, &back, NULL), 0);
	ck_assert_str_eq(back.updated, OP);
	ck_assert_uint_eq(back.version, 9);
	ck_assert_int_eq(back.state, REPORT_ENDED);
	ck_assert_int_eq(back.end_reason, END_FAILED);
	ck_assert_int_eq(back.failure.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(back.failure.err_no, 13);
	ck_assert_uint_eq(back.n_stages, 1);
	ck_assert_int_eq(back.stages[0].stage, STAGE_VMM);
	ck_assert_int_eq(back.stages[0].failure.code, FAIL_KVM_UNAVAILABLE);
	spec_equal(back.spec, report.spec);
	report.spec = spec_unref(report.spec);
	sandbox_report_deinit(&back);
	FREE(message);
}
END_TEST

START_TEST(test_hello_and_capacity)
{
	struct hello hello = {
		.instance = ID, .machine = OP, .boot_id = "boot", .hostname = "host", .version = "1",
		.cpu_class = "amd-25-1", .snapshots = true
	};
	struct capacity_report report = { .memory_used_mib = 5, .disk_free_mib = 6 };
	struct hello back;
	struct capacity_report report_back;
	Croft__Hello *message;
	Croft__CapacityReport *report_message;

	hello.capacity = report.capacity = (struct node_capacity){ 1, 2, 3, 4, 5, 6, 7 };
	hello.highest_epoch = 8;
	(void)err_set(&hello.unschedulable, FAIL_KVM_UNAVAILABLE, 0, "No.");
	ck_assert_int_eq(image_list_add(&hello.images, DIGEST), 0);
	ck_assert_int_eq(image_list_copy(&hello.images, &report.images), 0);
	ck_assert_int_eq(space_list_add(&report.space, "tenant", 9), 0);
	ck_assert_int_eq(space_list_add(&report.space, "", 4), 0);
	message = hello_encode(&hello);
	report_message = capacity_report_encode(&report);
	ck_assert_int_eq(hello_decode(message, &back, NULL), 0);
	ck_assert_int_eq(capacity_report_decode(report_message, &report_back, NULL), 0);
	ck_assert_str_eq(back.images.digests[0], DIGEST);
	ck_assert_uint_eq(back.highest_epoch, 8);
	ck_assert_str_eq(back.cpu_class, "amd-25-1");
	ck_assert(back.snapshots);
	ck_assert(!back.pauses);
	ck_assert_int_eq(back.unschedulable.code, FAIL_KVM_UNAVAILABLE);
	ck_assert(capacity_is_equal(&back.capacity, &hello.capacity));
	ck_assert(capacity_is_equal(&report_back.capacity, &hello.capacity));
	ck_assert_uint_eq(report_back.images.n, 1);
	ck_assert_uint_eq(report_back.capacity.frozen_mib, 7);
	ck_assert_uint_eq(report_back.space.n, 2);
	ck_assert_uint_eq(space_list_of(&report_back.space, "tenant"), 9);
	ck_assert_uint_eq(space_list_of(&report_back.space, ""), 4);
	ck_assert_int_eq(report_back.unschedulable.code, FAIL_NONE);
	hello_deinit(&hello);
	hello_deinit(&back);
	capacity_report_deinit(&report);
	capacity_report_deinit(&report_back);
	FREE(message);
	FREE(report_message);
}
END_TEST

START_TEST(test_sets)
{
	struct desired_sandbox wanted = { .sandbox = ID, .generation = 2 };
	struct desired_set set = { .sandboxes = &wanted,
		.n = 1,
		.part = 3,
		.complete = true,
		.inventory = 7 },
			   set_back;
	struct sandbox_report item = { .sandbox = ID, .generation = 2, .state = REPORT_RUNNING };
	struct inventory inventory = { .sandboxes = &item, .n = 1, .part = 1, .number = 7, .greeting = 9 }, back;
	Croft__DesiredSet *message = desired_set_encode(&set);
	Croft__Inventory *inventory_message = inventory_encode(&inventory);

	ck_assert_int_eq(desired_set_decode(message, &set_back, NULL), 0);
	ck_assert_uint_eq(set_back.sandboxes[0].generation, 2);
	ck_assert_uint_eq(set_back.inventory, 7);
	ck_assert_uint_eq(set_back.part, 3);
	ck_assert(set_back.complete);
	ck_assert(!set_back.knows_snapshots);
	ck_assert_int_eq(inventory_decode(inventory_message, &back, NULL), 0);
	ck_assert_uint_eq(back.greeting, 9);
	ck_assert(!back.complete);
	ck_assert_uint_eq(back.number, 7);
	ck_assert_str_eq(back.sandboxes[0].sandbox, ID);
	desired_set_deinit(&set_back);
	inventory_deinit(&back);
	FREE(message);
	FREE(inventory_message);
}
END_TEST

#define SNAPSHOT "cccccccccccccccccccc"

static struct snapshot_info snapshot_make(void)
{
	return (struct snapshot_info){
		.id = SNAPSHOT, .sandbox = ID, .tenant = "acme", .template_name = "base", .image_digest = DIGEST,
		.image_size = 123, .vcpus = 2, .memory_mib = 512, .disk_mib = 1024, .size_mib = 77,
		.cpu_class = "amd-25-1", .created_usec = 1700000000000000, .is_live = true,
	};
}

static void snapshot_equal(const struct snapshot_info *a, const struct snapshot_info *b)
{
	ck_assert_str_eq(a->id, b->id);
	ck_assert_str_eq(a->sandbox, b->sandbox);
	ck_assert_str_eq(a->tenant, b->tenant);
	ck_assert_str_eq(a->template_name, b->template_name);
	ck_assert_str_eq(a->image_digest, b->image_digest);
	ck_assert_str_eq(a->cpu_class, b->cpu_class);
	ck_assert_uint_eq(a->image_size, b->image_size);
	ck_assert_uint_eq(a->vcpus, b->vcpus);
	ck_assert_uint_eq(a->memory_mib, b->memory_mib);
	ck_assert_uint_eq(a->disk_mib, b->disk_mib);
	ck_assert_uint_eq(a->size_mib, b->size_mib);
	ck_assert_int_eq(a->created_usec, b->created_usec);
	ck_assert(a->is_live == b->is_live);
}

START_TEST(test_snapshots)
{
	struct snapshot_info info = snapshot_make(), other = snapshot_make(), back;
	struct snapshot_command command = { .sandbox = ID, .operation = OP, .generation = 3, .number = 8, .snapshot = SNAPSHOT,
		.is_live = true };
	struct snapshot_command command_back;
	struct sandbox_report report = { .sandbox = ID, .generation = 2, .state = REPORT_RUNNING, .snapshot = &info }, copy;
	struct inventory inventory = { .snapshots = (struct snapshot_info[]){ info, other }, .n_snapshots = 2, .number = 4 };
	struct desired_set set = { .snapshots = (char[][ID_SIZE]){ SNAPSHOT, OP }, .n_snapshots = 2, .complete = true,
		.knows_snapshots = true }, set_back;
	Croft__SnapshotSandbox *command_message = snapshot_command_encode(&command);
	Croft__SandboxReport *report_message = sandbox_report_encode(&report);
	Croft__Inventory *inventory_message;
	Croft__DesiredSet *set_message = desired_set_encode(&set);
	struct sandbox_report report_back;
	struct inventory inventory_back;

	ck_assert_int_eq(snapshot_command_decode(command_message, &command_back, NULL), 0);
	ck_assert_str_eq(command_back.snapshot, SNAPSHOT);
	ck_assert_str_eq(command_back.sandbox, ID);
	ck_assert_uint_eq(command_back.number, 8);
	ck_assert(command_back.is_live);
	ck_assert_int_eq(sandbox_report_decode(report_message, &report_back, NULL), 0);
	snapshot_equal(report_back.snapshot, &info);
	ck_assert_int_eq(sandbox_report_copy(&report_back, &copy), 0);
	sandbox_report_deinit(&report_back);
	snapshot_equal(copy.snapshot, &info);
	sandbox_report_deinit(&copy);
	memcpy(inventory.snapshots[1].id, OP, ID_SIZE);
	inventory_message = inventory_encode(&inventory);
	ck_assert_int_eq(inventory_decode(inventory_message, &inventory_back, NULL), 0);
	ck_assert_uint_eq(inventory_back.n_snapshots, 2);
	snapshot_equal(&inventory_back.snapshots[0], &info);
	ck_assert_str_eq(inventory_back.snapshots[1].id, OP);
	inventory_deinit(&inventory_back);
	ck_assert_int_eq(desired_set_decode(set_message, &set_back, NULL), 0);
	ck_assert_uint_eq(set_back.n_snapshots, 2);
	ck_assert_str_eq(set_back.snapshots[1], OP);
	ck_assert(set_back.knows_snapshots);
	desired_set_deinit(&set_back);
	info.vcpus = 0;
	FREE(report_message);
	report_message = sandbox_report_encode(&report);
	ck_assert_int_eq(snapshot_info_decode(report_message->snapshot, &back, NULL), -EPROTO);
	ck_assert_int_eq(sandbox_report_decode(report_message, &report_back, NULL), -EPROTO);
	FREE(command_message);
	FREE(report_message);
	FREE(inventory_message);
	FREE(set_message);
}
END_TEST

START_TEST(test_drop_snapshot)
{
	Croft__DropSnapshot *drop = drop_snapshot_encode(SNAPSHOT), *bad = drop_snapshot_encode("../x");
	Croft__SnapshotDropped *dropped = snapshot_dropped_encode(SNAPSHOT);
	char id[ID_SIZE];

	ck_assert_int_eq(drop_snapshot_decode(drop, id, NULL), 0);
	ck_assert_str_eq(id, SNAPSHOT);
	ck_assert_int_eq(drop_snapshot_decode(bad, id, NULL), -EPROTO);
	ck_assert_int_eq(snapshot_dropped_decode(dropped, id, NULL), 0);
	ck_assert_str_eq(id, SNAPSHOT);
	FREE(drop);
	FREE(bad);
	FREE(dropped);
}
END_TEST

START_TEST(test_small_ones)
{
	struct destroy_command destroy = { .sandbox = ID,
		.generation = 1,
		.operation = OP,
		.reason = END_SUPERSEDED },
			       d;
	struct update_command update = { .sandbox = ID,
		.generation = 1,
		.operation = OP,
		.timeout_s = 9 },
			      u;
	struct report_ack ack = { .sandbox = ID, .generation = 1, .version = 5 }, a;
	struct welcome welcome = { .takes_usage = true, .node = ID,
		.greeting = 5,
		.pool = "pool",
		.heartbeat_ms = 1000,
		.lineage = OP },
		       w;
	Croft__DestroySandbox *destroy_message = destroy_command_encode(&destroy);
	Croft__UpdateSandbox *update_message = update_command_encode(&update);
	Croft__ReportAck *ack_message = report_ack_encode(&ack);
	Croft__Welcome *welcome_message = welcome_encode(&welcome);

	ck_assert_int_eq(destroy_command_decode(destroy_message, &d, NULL), 0);
	ck_assert_int_eq(d.reason, END_SUPERSEDED);
	ck_assert_int_eq(update_command_decode(update_message, &u, NULL), 0);
	ck_assert_uint_eq(u.timeout_s, 9);
	ck_assert_int_eq(report_ack_decode(ack_message, &a, NULL), 0);
	ck_assert_uint_eq(a.version, 5);
	ck_assert_int_eq(welcome_decode(welcome_message, &w, NULL), 0);
	ck_assert(w.takes_usage);
	ck_assert_uint_eq(w.greeting, 5);
	ck_assert_str_eq(w.pool, "pool");
	FREE(destroy_message);
	FREE(update_message);
	FREE(ack_message);
	FREE(welcome_message);
}
END_TEST

START_TEST(test_network_policies)
{
	struct network_command command = { .sandbox = ID, .generation = 3, .operation = OP }, back;
	struct sandbox_spec *spec = spec_new(), *other;
	struct net_policy decoded;
	Croft__NetworkUpdate *message;

	ck_assert(spec->network.internet);
	ck_assert_int_eq(net_policy_allow(&command.network, "*.example.com", NULL), 0);
	ck_assert_int_eq(net_policy_allow(&command.network, "203.0.113.0/24", NULL), 0);
	ck_assert_int_eq(net_policy_deny(&command.network, "2001:db8::/32", NULL), 0);
	message = network_command_encode(&command);
	ck_assert_int_eq(network_command_decode(message, &back, NULL), 0);
	ck_assert(net_policy_is_equal(&command.network, &back.network));
	ck_assert(back.generation == 3 && !strcmp(back.operation, OP));
	network_command_deinit(&back);
	message->network->deny[0][0] = 'x'; /* a name with a slash */
	ck_assert_int_lt(network_command_decode(message, &back, NULL), 0);
	FREE(message);
	/* an older scheduler says nothing of it */
	ck_assert_int_eq(net_policy_decode(NULL, &decoded, NULL), 0);
	ck_assert(decoded.internet && decoded.n_allow == 0);
	ck_assert_int_eq(spec_add_env(spec, "A", "b"), 0);
	ck_assert_int_eq(spec_set_setup(spec, "true"), 0);
	other = spec_with_network(spec, &command.network);
	ck_assert(other->n_env == 1 && !strcmp(other->env[0].value, "b") && !strcmp(other->setup_command, "true"));
	ck_assert(net_policy_is_equal(&other->network, &command.network) &&
		  !net_policy_is_equal(&other->network, &spec->network));
	spec_unref(spec);
	spec_unref(other);
	network_command_deinit(&command);
}
END_TEST

/* One wrong member per row, in an otherwise good create. */
struct bad_row {
	const char *what;
	void (*spoil)(Croft__CreateSandbox *message);
};

#define SPOIL(name, statement)                                                                     \
	static void name(Croft__CreateSandbox *message)                                            \
	{                                                                                          \
		statement;                                                                         \
	}
SPOIL(bad_id, message->sandbox[3] = '/')
SPOIL(short_id, message->sandbox[19] = '\0')
SPOIL(no_generation, message->generation = 0)
SPOIL(bad_operation, message->operation[0] = 'A')
SPOIL(bad_digest, message->spec->image_digest[10] = 'G')
SPOIL(no_vcpus, message->spec->vcpus = 0)
SPOIL(many_vcpus, message->spec->vcpus = 257)
SPOIL(no_memory, message->spec->memory_mib = 0)
SPOIL(much_memory, message->spec->memory_mib = UINT64_MAX)
SPOIL(much_disk, message->spec->disk_mib = UINT64_MAX)
SPOIL(long_life, message->spec->timeout_s = UINT32_MAX)
SPOIL(bad_template, message->spec->template_name[0] = '.')
SPOIL(bad_token, message->spec->access_token[0] = '\n')
SPOIL(bad_env, message->spec->env[0]->key[1] = '=')

static const struct bad_row bad_rows[] = {
	{ "sandbox", bad_id },
	{ "sandbox", short_id },
	{ "sandbox", no_generation },
	{ "operation", bad_operation },
	{ "spec", bad_digest },
	{ "spec", no_vcpus },
	{ "spec", many_vcpus },
	{ "spec", no_memory },
	{ "spec", much_memory },
	{ "spec", much_disk },
	{ "spec", long_life },
	{ "spec", bad_template },
	{ "access_token", bad_token },
	{ "env", bad_env },
};

START_TEST(test_bad_members)
{
	struct create_command command = { .sandbox = ID, .operation = OP, .generation = 1 }, back;
	struct err err = ERR_NULL;
	Croft__CreateSandbox *message;

	command.spec = spec_make();
	message = create_command_encode(&command);
	bad_rows[_i].spoil(message);
	ck_assert_int_lt(create_command_decode(message, &back, &err), 0);
	ck_assert_int_eq(err.code, FAIL_FRAME_INVALID);
	ck_assert_str_eq(err_field(&err, "member"), bad_rows[_i].what);
	create_command_deinit(&command);
	FREE(message);
}
END_TEST

/* R049: the API asks the same question before placement. */
/* What a refusal tells as the largest can be asked for, and not a MiB more. */
START_TEST(test_memory_within_a_cost)
{
	struct sandbox_spec *spec = spec_new();

	for (uint64_t cost = 0; cost < 20000; cost++) {
		spec->memory_mib = spec_memory_within(cost);
		if (spec->memory_mib > 0)
			ck_assert_uint_le(spec_memory_cost(spec), cost);
		spec->memory_mib++;
		ck_assert_uint_gt(spec_memory_cost(spec), cost);
	}
	spec_unref(spec);
}
END_TEST

START_TEST(test_spec_check_names_the_field)
{
	static const uint32_t bad[] = { 0, 256, 257, UINT32_MAX };
	struct sandbox_spec *spec = spec_make();

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_NULL;

		spec->vcpus = bad[i];
		ck_assert_int_lt(spec_check(spec, &err), 0);
		ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
		ck_assert_str_eq(err_field(&err, "field"), "vcpus");
	}
	spec->vcpus = 255;
	ck_assert_int_eq(spec_check(spec, NULL), 0);
	spec_unref(spec);
}
END_TEST

START_TEST(test_bounds)
{
	struct sandbox_spec *spec = spec_make();
	struct image_list images = { 0 };
	char *text = malloc(SPEC_TEXT_MAX + 2);
	int r = 0;

	memset(text, 'x', SPEC_TEXT_MAX + 1);
	text[SPEC_TEXT_MAX + 1] = '\0';
	ck_assert_int_lt(spec_set_setup(spec, text), 0);
	ck_assert_int_lt(spec_add_env(spec, "BIG", text), 0);
	for (int i = 0; i < SPEC_ENV_MAX + 10 && r == 0; i++)
		r = spec_add_env(spec, "A", "b");
	ck_assert_int_lt(r, 0);
	ck_assert_uint_le(spec->n_env, SPEC_ENV_MAX);
	for (r = 0; r == 0 && images.n <= IMAGES_MAX;)
		r = image_list_add(&images, DIGEST);
	ck_assert_int_lt(r, 0);
	ck_assert_uint_eq(images.n, IMAGES_MAX);
	ck_assert_int_lt(image_list_add(&images, "sha256:xyz"), 0);
	image_list_deinit(&images);
	spec_unref(spec);
	free(text);
}
END_TEST

/* R185: what a newer peer added passes: fields are ignored, and a state that is not known says that the sandbox is there. */
START_TEST(test_what_a_newer_node_says)
{
	struct stage_record stages[] = { { .stage = STAGE_IMAGE, .outcome = RESULT_OK }, { .stage = STAGE_NETWORK,
		.outcome = RESULT_OK }, { .stage = STAGE_DISK, .outcome = RESULT_OK } };
	struct sandbox_report report = { .generation = 3, .version = 7, .state = REPORT_RUNNING, .accepted = true,
		.stages = stages, .n_stages = 3 }, back;
	Croft__SandboxReport *message, *newer;
	struct err err = ERR_NULL;
	uint8_t data[512];
	size_t size;

	memcpy(report.sandbox, "aaaaaaaaaaaaaaaaaaaa", ID_SIZE);
	message = sandbox_report_encode(&report);
	ck_assert_ptr_nonnull(message);
	message->state = (Croft__SandboxState)77;
	message->stages[0]->stage[0] = 'I'; /* a name and an outcome that have none here */
	message->stages[1]->outcome = (Croft__Outcome)9;
	size = croft__sandbox_report__pack(message, data);
	memcpy(data + size, "\xa2\x7d\x03new\xa8\x7d\x05", 9); /* fields 2004 and 2005 */
	newer = croft__sandbox_report__unpack(NULL, size + 9, data);
	ck_assert_ptr_nonnull(newer);
	ck_assert_uint_eq(newer->base.n_unknown_fields, 2);
	ck_assert_int_eq(sandbox_report_decode(newer, &back, &err), 0);
	ck_assert_int_eq(back.state, REPORT_UNKNOWN);
	ck_assert_uint_eq(back.generation, 3);
	/* of its stages those that are known count */
	ck_assert_uint_eq(newer->n_stages, 3);
	ck_assert_uint_eq(back.n_stages, 1);
	ck_assert_int_eq(back.stages[0].stage, STAGE_DISK);
	sandbox_report_deinit(&back);
	newer->state = CROFT__SANDBOX_STATE__SANDBOX_STATE_UNSPECIFIED; /* none at all is a mistake, not news */
	ck_assert_int_lt(sandbox_report_decode(newer, &back, &err), 0);
	croft__sandbox_report__free_unpacked(newer, NULL);
	croft__sandbox_report__free_unpacked(message, NULL);
}
END_TEST

START_TEST(test_names)
{
	for (unsigned int i = END_NONE + 1; i < END_REASON_MAX_; i++)
		ck_assert_int_eq(end_reason_by_name(end_reason_name((enum end_reason)i)), i);
	ck_assert_int_eq(end_reason_by_name("no such"), END_NONE);
	for (unsigned int i = 0; i < REPORT_MAX_; i++)
		ck_assert_str_ne(report_state_name((enum report_state)i), "unknown");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("messages");
	TCase *tcase = tcase_create("messages");

	tcase_add_test(tcase, test_create);
	tcase_add_test(tcase, test_report);
	tcase_add_test(tcase, test_what_a_newer_node_says);
	tcase_add_test(tcase, test_hello_and_capacity);
	tcase_add_test(tcase, test_sets);
	tcase_add_test(tcase, test_network_policies);
	tcase_add_test(tcase, test_small_ones);
	tcase_add_test(tcase, test_snapshots);
	tcase_add_test(tcase, test_drop_snapshot);
	tcase_add_loop_test(tcase, test_bad_members, 0, ARRAY_LEN(bad_rows));
	tcase_add_test(tcase, test_memory_within_a_cost);
	tcase_add_test(tcase, test_spec_check_names_the_field);
	tcase_add_test(tcase, test_bounds);
	tcase_add_test(tcase, test_names);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
