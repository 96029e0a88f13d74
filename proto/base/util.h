/* SPDX-License-Identifier: Apache-2.0
 *
 * Ownership helpers that every file may use. A local resource is declared with CLEANUP(), handed over with
 * TAKE(); a destructor accepts NULL.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define MUST_USE __attribute__((warn_unused_result))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Moves the value out of a pointer variable, which becomes NULL. */
#define TAKE(p)                                                                                    \
	__extension__({                                                                            \
		__typeof__(p) take_ = (p);                                                         \
		(p) = NULL;                                                                        \
		take_;                                                                             \
	})

#define container_of(ptr, type, member)                                                            \
	((type *) (void *) ((char *) (ptr) - offsetof(type, member)))

static inline void util_freep(void *p)
{
	free(*(void **) p);
}
#define CLEANUP_FREE CLEANUP(util_freep)

/* Defines x_freep() for CLEANUP() from x_free(struct x *). */
#define DEFINE_CLEANUP(type, fn)                                                                   \
	static inline void fn##p(type **p)                                                         \
	{                                                                                          \
		if (*p)                                                                            \
			fn(*p);                                                                    \
	}
