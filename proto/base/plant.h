/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults: mistakes that the simulator (tests/sim/planted) and the hostile driver (tests/villain/planted)
 * must find. They exist only in a build with CROFT_PLANT, which makes test programs and nothing that is installed;
 * elsewhere PLANTED() is the constant false.
 */
#pragma once

#include <stdbool.h>

enum plant {
	PLANT_NONE,
	PLANT_REPLY_BEFORE_COMMIT,     /* fleet: the answer leaves one batch before the record */
	PLANT_FENCING_DROPPED,         /* fleet: an overdue start goes elsewhere before its node said that it is gone */
	PLANT_ROOM_KEPT_ON_REFUSAL,    /* fleet: reservation not freed when a node refuses */
	PLANT_ROOM_NOT_COUNTED,        /* place: reservation after the decision, not with it */
	PLANT_PARTIAL_INVENTORY,       /* fleet: one part taken as the whole */
	PLANT_DELETE_LOST_IN_STARTING, /* fleet: DELETE answered, nothing done */
	PLANT_DEADLINE_NOT_REARMED,    /* fleet: deadlines of loaded sandboxes forgotten */
	PLANT_STALL_COUNTED,           /* fleet: own stall counted as the nodes' silence */
	PLANT_RESEND_NEW_OPERATION,    /* fleet: a resend is a new generation */
	PLANT_ACK_BEFORE_JOURNAL,      /* node: the report leaves before the journal write */
	PLANT_TOMBSTONE_DROPPED,       /* node: forgotten before the scheduler acknowledged */
	PLANT_OLD_EPOCH_ACCEPTED,      /* node: an older leader is obeyed */
	PLANT_RENAME_WITHOUT_SYNC,     /* node: the journal's directory is not synced */
	PLANT_HELLO_BY_ROUTE,          /* link: a route is who was there before */
	PLANT_QUARANTINE_FORGOTTEN,    /* fleet: by a restart */
	PLANT_HISTORY_BEFORE_COMMIT,   /* fleet: an ended sandbox leaves the store one batch before its history */
	PLANT_EMPTY_SET_DESTROYS,      /* node: a partial or empty set destroys what it does not name */
	PLANT_CLAIM_NOT_COMPARED,      /* fleet: a warm VM is claimed without compare-and-set */
	PLANT_DRAIN_RACES_CLAIM,       /* fleet: a claim does not look whether its node is drained */
	PLANT_LEASE_ON_WALL_CLOCK,     /* node, VMM: a lease ends by the clock that people and time servers set */
	PLANT_REPLACED_BEFORE_STOP,    /* fleet: a replacement starts before the lease of the former VM is over */
	PLANT_THAWED_BEFORE_JOURNAL,   /* node: a woken guest writes to its disk before the journal says so */
	PLANT_WAKE_NOT_RESERVED,       /* fleet: a paused sandbox wakes without room */
	PLANT_FORK_SNAPSHOT_KEPT,      /* fleet: a fork's own snapshot stays when its sandboxes have begun */
	PLANT_SNAPSHOT_NOT_DESIRED,    /* fleet: snapshots are not named to a node that comes back, which drops them */
	PLANT_COPY_FOLLOWED,           /* fleet: whoever was obeyed before is taken for a run of this store */
	PLANT_EPOCH_WITHOUT_WELCOME,   /* node: a message with a higher epoch is obeyed, whoever sends it */

	/* mistakes of ours that seeds once showed: tests/sim/kept-seeds */
	PLANT_OF_KEPT_SEEDS_,
	PLANT_INVENTORY_NOT_AWAITED = PLANT_OF_KEPT_SEEDS_, /* fleet: placed on between hello and inventory */
	PLANT_OTHER_INVENTORY_TAKEN,   /* fleet: an inventory made for the fleet before is taken */
	PLANT_DELETED_START_UNHEARD,   /* fleet: how a start failed that was deleted meanwhile is no evidence */
	PLANT_CLAIM_FORGETS_PLACES,    /* fleet: a claimed warm sandbox forgets where it was */
	PLANT_UNWRITTEN_CONFIRMED,     /* node: a life time whose journal write failed is confirmed by the next try */
	PLANT_MAX_,

	/* the virtual hardware, which tests/villain/planted must find */
	PLANT_RING_LOOP,               /* queue: a chain may be longer than its table */
	PLANT_MAP_LENGTH,              /* memory: only the first byte of a buffer is checked */
	PLANT_STATUS_SKIPPED,          /* device: any status may follow any other */
	PLANT_RESET_KEEPS_QUEUES,      /* device: a reset leaves the queues in use */
	PLANT_DISK_END,                /* blk: where a request ends is computed in 64 bits that wrap */
	PLANT_READ_ONLY_WRITTEN,       /* blk: a read-only disk is written */
	PLANT_VSOCK_CID,               /* vsock: packets in another's name are served */
	PLANT_USED_UNWRITTEN,          /* blk: a request that failed is given back as if it had been filled */
	PLANT_USED_TOO_LONG,           /* queue: more bytes used than there is room for */
	PLANT_MEMORY_KEPT,             /* rng: requests keep memory for good, up to a bound */
	PLANT_LOOP_STUCK,              /* rng: a request is never dealt with, nor anything else then */
	PLANT_HARDWARE_MAX_
};

#ifdef CROFT_PLANT
extern enum plant plant_chosen; /* by the test program's flag */
#define PLANTED(name) (plant_chosen == PLANT_##name)
#else
#define PLANTED(name) false
#endif
