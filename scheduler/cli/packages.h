/* SPDX-License-Identifier: Apache-2.0
 *
 * Which packages of dpkg, pip and npm a sandbox has more, less or another version of than its template, from the files that it
 * changed: each of the three has a file or directory named after the package in its database. Pure.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct package_change {
	const char *manager; /* dpkg, pip, npm */
	char name[256], version[128]; /* version "": its database's names do not have it */
};

/* Whether a changed file (`change` as in `croft sandbox diff`: added, changed, deleted) says something of a package. */
bool package_of(const char *change, const char *path, struct package_change *ret);
