/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault injection: the k-th call of a kind fails, for k = 1, 2, ... until a run passes untouched. Each of those runs
 * must end in a clean error or in success: no crash, no leak (the sanitizers look), nothing half done.
 *
 *	for (unsigned long k = 1;; k++) {
 *		fault_arm(FAULT_MEMORY | FAULT_FILE, k);
 *		r = operation();
 *		if (!fault_disarm())
 *			break;          // nothing failed: this was the whole run
 *		...                     // r says so, or the operation did without
 *	}
 *	ck_assert_int_eq(r, 0);
 *
 * The calls are those of our own code (croft_fault_test() links with --wrap), not those inside libraries: what
 * a library does when memory is short is its own business, and what it tells us then can be had by failing ours.
 * Counts calls of all threads. check's library is linked in and would be counted too: its asserts stand outside, or
 * between fault_hold() and fault_go_on().
 */
#pragma once

#include <stdbool.h>

enum fault_kind {
	FAULT_MEMORY = 1, /* malloc, calloc, realloc, reallocarray, strdup, strndup: NULL, ENOMEM */
	FAULT_FILE = 2,   /* open, openat, opendir, fopen, mkostemp, mkdir, rename, renameat, ftruncate, fallocate,
			     fsync, fdatasync, write, pwrite: ENOSPC; read, pread: EIO; of regular files */
	FAULT_SHORT = 4,  /* write, pwrite, read, pread: half of what was asked, once */
};

/* From now on the k-th call (from 1) of the kinds fails; once. */
void fault_arm(unsigned int kinds, unsigned long k);
/* Nothing fails any more. Whether the k-th call came. */
bool fault_disarm(void);
/* This thread's calls pass uncounted for a while. */
void fault_hold(void);
void fault_go_on(void);
