/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults: mistakes that the simulator must find (tests/sim/planted). They exist only in a build with
 * CROFT_PLANT, which makes a test program and nothing that is installed; elsewhere PLANTED() is the constant
 * false.
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
	PLANT_EMPTY_SET_DESTROYS,      /* node: a partial or empty set destroys what it does not name */
	PLANT_MAX_
};

#ifdef CROFT_PLANT
extern enum plant plant_chosen; /* by the test program's flag */
#define PLANTED(name) (plant_chosen == PLANT_##name)
#else
#define PLANTED(name) false
#endif
