/* SPDX-License-Identifier: Apache-2.0
 *
 * The exit records of ends that come as a synchronous signal: nothing can be encoded in a handler, so they are
 * encoded before the guest runs, and the handlers write and end the process. SIGBUS is status 15, SIGABRT 20,
 * SIGSYS (seccomp) 21 with the call's number, its second argument and the kind of thread patched in.
 */
#pragma once

/* Installs the handlers. `exit_fd` may be -1: then there is only the status. */
void last_word_prepare(int exit_fd);
