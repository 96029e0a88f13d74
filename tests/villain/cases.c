/* SPDX-License-Identifier: Apache-2.0
 *
 * All tables, in the order in which they are run.
 */
#include "villain.h"

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
