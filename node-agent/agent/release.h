/* SPDX-License-Identifier: Apache-2.0
 *
 * Packages that may be installed here: those of the release key that its owner pinned (upgrade.key, a public Ed25519 key in PEM; its
 * secret half is kept offline). Beside a package lies FILE.sig, two lines:
 *
 *   sha256 = <64 hex digits of the package>
 *   signature = <base64: Ed25519 over "croft-package-1\n<sha256>\n">
 *
 * so that a package that nobody signed and one that was changed since are told apart (installer/package --sign).
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define RELEASE_NAME_SIZE 64u
#define RELEASE_VERSION_SIZE 128u

struct release {
	char package[RELEASE_NAME_SIZE];
	char version[RELEASE_VERSION_SIZE], installed[RELEASE_VERSION_SIZE];
	char path[256]; /* of a copy that nobody else can change; the caller removes it */
};

/* Copies FILE into `dir`, root's own, and judges the copy. PACKAGE_UNSIGNED, PACKAGE_ALTERED, PACKAGE_OLDER, IO_FAILED; then nothing is
 * left in `dir`. Nothing of the package is looked at before its signature is right. */
int release_check(const char *file, const char *key, const char *dir, struct release *ret, struct err *reterr);
