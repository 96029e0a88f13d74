/* SPDX-License-Identifier: Apache-2.0
 *
 * All tables, in the order in which they are run.
 */
#include "villain.h"

/* strcmp() is no part of a guest. */
static bool is_same_text(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

const struct villain_case *villain_case_at(unsigned int index)
{
	const struct {
		const struct villain_case *rows;
		unsigned int n;
	} tables[] = { { villain_mmio, villain_mmio_n }, { villain_ring, villain_ring_n }, { villain_blk, villain_blk_n },
		{ villain_vsock, villain_vsock_n }, { villain_net, villain_net_n } };

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (index < tables[i].n)
			return &tables[i].rows[index];
		index -= tables[i].n;
	}
	return NULL;
}

/* Where the standard lets a device refuse, clause by clause: what the driver must (not) do there, or what the device may
 * answer. A refusal under any other clause is a failure. */
static const struct {
	const char *clause, *right;
} rights[] = {
	{ "2.1.1", "the driver clears no status bit, sets none of the device's, and does not go on after FAILED" },
	{ "2.1.2", "the device asks for a reset when it enters an error state" },
	{ "2.2.1", "the driver accepts no feature that is not offered, and none without those that it needs" },
	{ "2.7", "the driver's rings have a size that is a power of two and lie in memory" },
	{ "2.7.1", "the driver aligns its rings" },
	{ "2.7.4", "a request of nothing holds not what its device needs" },
	{ "2.7.4.2", "the driver puts readable before writable ones" },
	{ "2.7.5", "a descriptor names memory, an entry of its table, and no flag but the three" },
	{ "2.7.5.1", "the device reads no writable buffer and writes no readable one" },
	{ "2.7.5.2", "the driver makes no loop, and no chain of more than 2^32 bytes" },
	{ "2.7.5.3", "an indirect table lies in memory, and so does all it names" },
	{ "2.7.5.3.1", "the driver uses tables if negotiated, no table in a table, none longer than the queue" },
	{ "2.7.6", "the available ring holds entries of the table, at most as many as it has" },
	{ "2.7.6.1", "the driver never takes back what it made available" },
	{ "3.1.1", "the driver goes through initialisation in order" },
	{ "4.2.2", "QueueReady is 0 or 1" },
	{ "4.2.2.1", "the device touches no queue that is not ready" },
	{ "4.2.2.2", "the driver writes no more than QueueNumMax to QueueNum" },
	{ "4.2.3.2", "the driver sets up no queue that is not there" },
	{ "5.1.3.1", "the driver accepts no offload without the checksum that it needs" },
	{ "5.1.6.2", "a frame has its header and is one; the network drops what it likes" },
	{ "5.1.6.2.1", "the driver asks for no offload that was not negotiated" },
	{ "5.2.6", "a request has a header and a status, and names sectors of the disk" },
	{ "5.2.6.1", "the driver names sectors of the disk, in whole sectors" },
	{ "5.2.6.2", "the device answers IOERR or UNSUPP to what it cannot do, and to every write of a read-only disk" },
	{ "5.10.6", "an operation that is none is answered by RST" },
	{ "5.10.6.2", "a packet for somebody else is dropped or answered by RST" },
	{ "5.10.6.3.1", "the driver sends no more than the device has room for" },
	{ "5.10.6.4", "a packet is as long as it says, and so is the room for it" },
	{ "5.10.6.4.2", "a packet of an unknown type is answered by RST" },
	{ "5.10.6.5", "a packet of no connection, and a connection that nobody takes, is answered by RST" },
	{ "6.1", "the driver accepts VERSION_1" },
};

const char *villain_right(const struct villain_case *row)
{
	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		if (is_same_text(rights[i].clause, row->clause))
			return rights[i].right;
	return NULL;
}

bool villain_find(unsigned int number, struct villain_instance *ret)
{
	const struct villain_case *row;

	for (unsigned int i = 0; (row = villain_case_at(i)); i++)
		for (unsigned int kind = 0; kind < KIND_MAX_; kind++) {
			unsigned int n = row->where & EVERY_QUEUE ? villain_devices[kind].n_queues : 1;

			if (!(row->where & ON(kind)) || !villain_devices[kind].name)
				continue;
			if (number < n) {
				*ret = (struct villain_instance) { .row = row, .device = &villain_devices[kind], .q = number,
					.queue_name = row->where & EVERY_QUEUE ? villain_devices[kind].queue_names[number] : "" };
				return true;
			}
			number -= n;
		}
	return false;
}
