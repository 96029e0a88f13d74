/* SPDX-License-Identifier: Apache-2.0
 *
 * store.proto <-> plain records. Encoders allocate with malloc (free with protobuf_c_message_free_unpacked);
 * NULL when memory is short. Decoders take the bytes of a record as the store gave them, and set *ret only on
 * success: STORE_CORRUPT naming the key when they cannot be read.
 */
#pragma once

#include "base/err.h"
#include "fleet/fleet.h"
#include "pb/store.pb-c.h"

Croft__SandboxRecord *codec_sandbox_encode(const struct sandbox_record *record);
int codec_sandbox_decode(const char *key, const void *data, size_t size, struct sandbox_record *ret,
	struct err *reterr);
Croft__NodeRecord *codec_node_encode(const struct node_record *record);
int codec_node_decode(const char *key, const void *data, size_t size, struct node_record *ret,
	struct err *reterr);

Croft__SnapshotRecord *codec_snapshot_encode(const struct snapshot_record *record);
int codec_snapshot_decode(const char *key, const void *data, size_t size, struct snapshot_record *ret,
	struct err *reterr);

/* Lists of key and value. */
int codec_fields_encode(
	const struct sandbox_field *fields, size_t n, Croft__Field ***ret, size_t *ret_n);
int codec_fields_decode(
	Croft__Field *const *fields, size_t n, struct sandbox_field **ret, size_t *ret_n);
void codec_fields_free(struct sandbox_field *fields, size_t n);

/* The rest is small enough to be used as generated: unpacks after check_message(), STORE_CORRUPT naming `key`. */
ProtobufCMessage *codec_unpack(const ProtobufCMessageDescriptor *descriptor, const char *key,
	const void *data, size_t size, struct err *reterr);

/* Replaces a string member; false when memory is short. */
bool codec_set(char **member, const char *text);

/* A message made with malloc() and its init function; NULL when memory is short. */
#define CODEC_NEW(type, init)                                                                      \
	__extension__({                                                                            \
		type *message_ = malloc(sizeof(*message_));                                        \
		if (message_)                                                                      \
			init(message_);                                                            \
		message_;                                                                          \
	})
/* A message whose members could not all be made is freed: NULL. */
ProtobufCMessage *codec_whole(ProtobufCMessage *message, bool is_whole);
