/* SPDX-License-Identifier: Apache-2.0
 *
 * The dashboard's files, which the build puts into the program (embed.cmake). They hold no data: whoever asks gets them,
 * and what they show comes from the API with the key of whoever looks. No I/O.
 */
#pragma once

#include <stddef.h>

struct dashboard_file {
	const char *name;
	const char *etag; /* SHA-256 of the bytes, in quotes */
	const unsigned char *bytes;
	size_t size;
};
extern const struct dashboard_file dashboard_files[];
extern const size_t dashboard_files_count;

/* NULL: there is none of this name. "" is the page itself. */
const struct dashboard_file *dashboard_find(const char *name);
/* By the ending of its name. */
const char *dashboard_content_type(const struct dashboard_file *file);
