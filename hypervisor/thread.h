/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of threads in croft-vmm; each has its own seccomp filter (seccomp.def).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

enum thread_kind {
	THREAD_START, /* the first thread, until the machine runs */
	THREAD_LOOP,  /* the same one from then on */
	THREAD_VCPU,
	THREAD_DISK,
	THREAD_MAX_
};

/* The first thing that a new thread calls: gives it its name and its filter. False: it must not go on. */
typedef bool (*thread_begin_fn)(void *data, enum thread_kind kind, unsigned int index);

/* As pthread_create(), with a stack that no huge page fits into: where the host gives those for the asking, one page touched would
 * cost each clone 2 MiB. 0 or an errno. */
int thread_create(pthread_t *ret, void *(*run)(void *data), void *data);

/* Stands for the process's own number in the compiled filters; no pid is so high. */
#define FILTER_OWN_PID 0x7ffffffe

/* Takes a vCPU out of the guest; used for nothing else. The first that neither glibc (32, 33) nor musl (32 to 34) keeps for
 * itself, as a constant for the filters. */
#define VCPU_SIGNAL 35
