/* SPDX-License-Identifier: Apache-2.0
 *
 * The state file of a snapshot: 24 bytes of header, then a SnapState of snapshot.proto.
 *
 *    0  "croftvm\0"
 *    8  format, SNAPSHOT_FORMAT
 *   12  bytes that follow the header
 *   16  CRC-32 of them (zlib's)
 *   20  0
 *
 * All numbers are little-endian. The sum finds what broke by accident; who may write the file is for the owner of its
 * folder to say. What is read is nevertheless checked as if a stranger had written it.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "state.h"

/* Raised whenever a state of before would be read as something else: a field that means another thing, devices in another
 * order, guest memory laid out otherwise. Versions of croft with one format read each other's, so that what sleeps on a node
 * wakes after its upgrade. */
#define SNAPSHOT_FORMAT 1u
#define SNAPSHOT_HEADER 24u
#define SNAPSHOT_ROOM (1u << 20) /* of everything but the balloon's bits, at most: 32 vCPUs take 0.6 MiB */

/* *ret is for free(). SNAPSHOT_FAILED without memory. */
int snapshot_encode(const struct vm_state *state, uint8_t **ret, size_t *ret_size, struct err *reterr);
/* *ret is for vm_state_free(). SNAPSHOT_INVALID names what is wrong with the bytes, SNAPSHOT_VERSION another format. */
int snapshot_decode(const uint8_t *data, size_t size, struct vm_state **ret, struct err *reterr);
/* Reads the file from its beginning; one that is larger than a VM of so much memory can have is invalid. */
int snapshot_read(int fd, uint64_t memory_size, struct vm_state **ret, struct err *reterr);
