/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept on disk: the scheduler's records of sandboxes and nodes, and the node's journal. The first byte chooses.
 * What decodes encodes, and decodes again.
 */
#include "fuzz.h"

#include "agent/journal.h"
#include "base/log.h"
#include "server/codec.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mutate_message(data, size, max_size, seed, 1);
}

static uint8_t *pack(ProtobufCMessage *message, size_t *ret_size)
{
	uint8_t *bytes;

	CLAIM(message);
	*ret_size = protobuf_c_message_get_packed_size(message);
	bytes = malloc(*ret_size + 1);
	CLAIM(bytes);
	(void) protobuf_c_message_pack(message, bytes);
	protobuf_c_message_free_unpacked(message, NULL);
	return bytes;
}

static void sandbox(const uint8_t *data, size_t size)
{
	struct sandbox_record record = { .generation = 0 };
	struct err err = ERR_NULL;
	uint8_t *bytes;
	size_t n;

	if (codec_sandbox_decode("sandbox/x", data, size, &record, &err) < 0) {
		CLAIM(err.code != FAIL_NONE);
		return;
	}
	bytes = pack(&codec_sandbox_encode(&record)->base, &n);
	sandbox_record_deinit(&record);
	CLAIM(codec_sandbox_decode("sandbox/x", bytes, n, &record, &err) == 0);
	sandbox_record_deinit(&record);
	free(bytes);
}

static void node(const uint8_t *data, size_t size)
{
	struct node_record record;
	struct err err = ERR_NULL;
	uint8_t *bytes;
	size_t n;

	memset(&record, 0, sizeof(record));
	if (codec_node_decode("node/x", data, size, &record, &err) < 0) {
		CLAIM(err.code != FAIL_NONE);
		return;
	}
	bytes = pack(&codec_node_encode(&record)->base, &n);
	node_record_deinit(&record);
	CLAIM(codec_node_decode("node/x", bytes, n, &record, &err) == 0);
	node_record_deinit(&record);
	free(bytes);
}

static void journal(const uint8_t *data, size_t size)
{
	struct sv_journal record;
	struct err err = ERR_NULL;
	uint8_t *bytes;
	size_t n;

	memset(&record, 0, sizeof(record));
	if (journal_unpack(data, size, &record, &err) < 0) {
		CLAIM(err.code != FAIL_NONE);
		return;
	}
	CLAIM(journal_pack(&record, &bytes, &n) == 0);
	sv_journal_deinit(&record);
	CLAIM(journal_unpack(bytes, n, &record, &err) == 0);
	sv_journal_deinit(&record);
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0] % 3) {
	case 0:
		sandbox(data + 1, size - 1);
		break;
	case 1:
		node(data + 1, size - 1);
		break;
	default:
		journal(data + 1, size - 1);
		break;
	}
	return 0;
}
