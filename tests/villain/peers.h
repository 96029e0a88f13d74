/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the vsock cases: what listens at "<path>_<port>" (ports of devices.h).
 */
#pragma once

/* Serves until it is killed; for a process of its own. */
void peers_serve(const char *path);
