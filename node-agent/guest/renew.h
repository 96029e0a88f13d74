/* SPDX-License-Identifier: Apache-2.0
 *
 * A sandbox that began as a snapshot of another is somebody else: it gets its own host name, machine id (where it had one)
 * and boot id before one of its processes goes on. PID 1 only.
 *
 * The kernel makes its boot id once and has no way to make another, so a file with a new one is mounted over the place at
 * which it is read. A guest that looks below the mount, or that read it before the snapshot, knows the old one.
 */
#pragma once

/* Its disk takes writes and its processes stand still. It takes three seconds at most, whatever the guest made of the paths.
 * 0, or -errno, and then it may be done again: a part is another sandbox's yet. Its host name and its boot id are always its
 * own; its machine id is where there is one that is a file, hidden behind a mount where it cannot be written. The files
 * that name the host are written when its processes go on, if ever, where they hang. */
int renew_identity(const char *hostname);
