/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the vsock cases: what listens at "<path>_<port>" (ports of devices.h).
 */
#pragma once

/* Serves until it is killed; for a process of its own. Closes `ready_fd` as soon as all of it listens. */
void peers_serve(const char *path, int ready_fd);
