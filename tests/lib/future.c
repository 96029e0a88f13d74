/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a build with CROFT_FUTURE stand for the next minor version: every message that a process packs, and every
 * message in it, has members that nobody knows yet, of each wire type; some enumerations have values, and the link has
 * messages, that are new. Linked in front of protobuf-c (--wrap), so that the product's own code is what it always is. Both
 * calls of a message see the same changes, which are undone before they return.
 *
 *   every message         members 1901 to 1904
 *   Envelope              each fifth heartbeat and each fourth ReportAck is a message 90 instead (both are sent again anyhow)
 *   SandboxReport         "stopping" is a state 77; a stage "hibernate", and an outcome 9 of a known one
 *   JournalRecord         the same stages, for an agent that is rolled back
 *   FailureRecord         GUEST_PANIC has become GUEST_PANIC_TWICE (failure.def), between processes
 *   VmmStatus             an event of kind 99
 */
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_MAX 256
#define ARRAY_MAX 256

size_t __real_protobuf_c_message_get_packed_size(const ProtobufCMessage *message);
size_t __real_protobuf_c_message_pack(const ProtobufCMessage *message, uint8_t *out);
size_t __wrap_protobuf_c_message_get_packed_size(const ProtobufCMessage *message);
size_t __wrap_protobuf_c_message_pack(const ProtobufCMessage *message, uint8_t *out);

/* ---- what is changed, and how it was ---- */

struct patch {
	void *where;
	size_t size;
	uint8_t old[16];
};

/* A VMM may have no memory to get any more: what it sends is small. */
static __thread struct patch first[FIRST_MAX], *rest;
static __thread size_t n_patches, rest_room;

static struct patch *patch_at(size_t i)
{
	return i < FIRST_MAX ? &first[i] : &rest[i - FIRST_MAX];
}

static void have_room(void)
{
	if (n_patches < FIRST_MAX + rest_room)
		return;
	rest = realloc(rest, (rest_room + 4096) * sizeof(*rest));
	if (!rest)
		abort();
	rest_room += 4096;
}

static void change(void *where, const void *value, size_t size)
{
	struct patch *patch;

	have_room();
	patch = patch_at(n_patches++);
	patch->where = where;
	patch->size = size;
	memcpy(patch->old, where, size);
	memcpy(where, value, size);
}

static void undo(void)
{
	while (n_patches > 0) {
		const struct patch *patch = patch_at(--n_patches);

		memcpy(patch->where, patch->old, patch->size);
	}
}

/* ---- members by name ---- */

static void *member(const ProtobufCMessage *message, unsigned int offset)
{
	return (void *)((uintptr_t)message + offset);
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessage *message, const char *name)
{
	return protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
}

static bool is_a(const ProtobufCMessage *message, const char *name)
{
	return message && !strcmp(message->descriptor->name, name);
}

/* An empty message of that type; it stays for good, and is used by one thread at a time. */
static ProtobufCMessage *sample(const ProtobufCMessageDescriptor *descriptor, void *buf, size_t size)
{
	if (descriptor->sizeof_message > size)
		abort();
	descriptor->message_init(buf);
	return buf;
}

/* One more element, in front of the others. */
static void prepend(ProtobufCMessage *message, const char *name, ProtobufCMessage *element, void **list)
{
	const ProtobufCFieldDescriptor *field = field_of(message, name);
	size_t *n = member(message, field->quantifier_offset), more = *n + 1;
	void ***array = member(message, field->offset);

	if (more > ARRAY_MAX)
		return;
	list[0] = element;
	if (*n)
		memcpy(list + 1, *array, *n * sizeof(*list));
	change(array, &list, sizeof(list));
	change(n, &more, sizeof(more));
}

static void set_enum(ProtobufCMessage *message, const char *name, int value)
{
	change(member(message, field_of(message, name)->offset), &value, sizeof(value));
}

/* ---- the news ---- */

static ProtobufCMessageUnknownField members[] = {
	{ .tag = 1901, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 2, .data = (uint8_t[]){ 0xac, 0x02 } },
	{ .tag = 1902, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, .len = 4, .data = (uint8_t[]){ 3, 0x0a, 1, 'x' } },
	{ .tag = 1903, .wire_type = PROTOBUF_C_WIRE_TYPE_32BIT, .len = 4, .data = (uint8_t[]){ 1, 2, 3, 4 } },
	{ .tag = 1904, .wire_type = PROTOBUF_C_WIRE_TYPE_64BIT, .len = 8, .data = (uint8_t[]){ 1, 2, 3, 4, 5, 6, 7, 8 } },
};
static ProtobufCMessageUnknownField new_body[] = {
	{ .tag = 90, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, .len = 4, .data = (uint8_t[]){ 3, 0x0a, 1, 'x' } },
};

static void add_members(ProtobufCMessage *message, ProtobufCMessageUnknownField *fields, unsigned int n)
{
	if (message->n_unknown_fields)
		return; /* a later version's, passed on */
	change(&message->unknown_fields, &fields, sizeof(fields));
	change(&message->n_unknown_fields, &n, sizeof(n));
}

/* Decided when its size is asked. */
static __thread bool is_new_body;

static bool has_body(const ProtobufCMessage *envelope, const char *name)
{
	const ProtobufCFieldDescriptor *field = field_of(envelope, name);

	return field && *(uint32_t *)member(envelope, field->quantifier_offset) == field->id;
}

static void decide_body(const ProtobufCMessage *message)
{
	static __thread unsigned int heartbeats, acks;

	is_new_body = is_a(message, "croft.Envelope") &&
		((has_body(message, "heartbeat") && ++heartbeats % 5 == 0) || (has_body(message, "report_ack") && ++acks % 4 == 0));
}

/* A scheduler before minor version 1 refuses a report with a stage that it does not know. */
static bool may_say_stages(void)
{
	const char *text = getenv("CROFT_FUTURE_STAGES");

	return !text || strcmp(text, "no") != 0;
}

static void new_stages(ProtobufCMessage *message)
{
	static __thread _Alignas(16) uint8_t bufs[2][512];
	static __thread void *lists[2][ARRAY_MAX];
	static const char *const names[] = { "hibernate", "image" };
	const ProtobufCMessageDescriptor *descriptor = field_of(message, "stages")->descriptor;

	for (unsigned int i = 0; i < 2; i++) {
		ProtobufCMessage *stage = sample(descriptor, bufs[i], sizeof(bufs[i]));

		memcpy(member(stage, field_of(stage, "stage")->offset), &names[i], sizeof(names[i]));
		*(int *)member(stage, field_of(stage, "outcome")->offset) = i == 0 ? 1 : 9;
		prepend(message, "stages", stage, lists[i]);
	}
}

static void new_event(ProtobufCMessage *message)
{
	static __thread _Alignas(16) uint8_t buf[256];
	static __thread void *list[ARRAY_MAX];
	ProtobufCMessage *event = sample(field_of(message, "events")->descriptor, buf, sizeof(buf));

	*(int *)member(event, field_of(event, "kind")->offset) = 99;
	prepend(message, "events", event, list);
}

static void new_code(ProtobufCMessage *message)
{
	static const char twice[] = "GUEST_PANIC_TWICE";
	const char **code = member(message, field_of(message, "code")->offset), *value = twice;

	if (!strcmp(*code, "GUEST_PANIC"))
		change(code, &value, sizeof(value));
}

/* An inventory has many reports, whose lists would be the same memory: of those, fields alone. */
static void news_of(ProtobufCMessage *message, const ProtobufCMessage *root)
{
	bool is_between = is_a(root, "croft.Envelope");

	if (is_between && is_a(message, "croft.SandboxReport") && has_body(root, "report")) {
		if (may_say_stages())
			new_stages(message);
		if (*(int *)member(message, field_of(message, "state")->offset) == 3)
			set_enum(message, "state", 77);
	} else if (is_a(message, "croft.JournalRecord")) {
		new_stages(message);
	} else if (is_between && is_a(message, "croft.FailureRecord")) {
		new_code(message);
	} else if (is_a(message, "croft.VmmStatus")) {
		new_event(message);
	}
}

static void visit(ProtobufCMessage *message, const ProtobufCMessage *root);

static void visit_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, const ProtobufCMessage *root)
{
	void *at = member(message, field->offset);

	if (field->type != PROTOBUF_C_TYPE_MESSAGE)
		return;
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		size_t n = *(size_t *)member(message, field->quantifier_offset);

		for (size_t i = 0; i < n; i++)
			visit((*(ProtobufCMessage ***)at)[i], root);
	} else if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
		*(uint32_t *)member(message, field->quantifier_offset) == field->id) {
		visit(*(ProtobufCMessage **)at, root);
	}
}

static void visit(ProtobufCMessage *message, const ProtobufCMessage *root)
{
	if (!message)
		return;
	news_of(message, root);
	for (unsigned int i = 0; i < message->descriptor->n_fields; i++)
		visit_field(message, &message->descriptor->fields[i], root);
	add_members(message, members, sizeof(members) / sizeof(*members));
}

static void begin(const ProtobufCMessage *message)
{
	ProtobufCMessage *mutable = (ProtobufCMessage *)(uintptr_t)message;
	uint32_t none = 0;

	if (is_new_body) {
		change(member(message, field_of(message, "heartbeat")->quantifier_offset), &none, sizeof(none));
		add_members(mutable, new_body, 1);
	} else {
		visit(mutable, message);
	}
}

size_t __wrap_protobuf_c_message_get_packed_size(const ProtobufCMessage *message)
{
	size_t size;

	decide_body(message);
	begin(message);
	size = __real_protobuf_c_message_get_packed_size(message);
	undo();
	return size;
}

size_t __wrap_protobuf_c_message_pack(const ProtobufCMessage *message, uint8_t *out)
{
	size_t size;

	is_new_body = is_new_body && is_a(message, "croft.Envelope");
	begin(message);
	size = __real_protobuf_c_message_pack(message, out);
	undo();
	return size;
}
