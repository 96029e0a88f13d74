/* SPDX-License-Identifier: Apache-2.0
 *
 * Between export.c and export-read.c.
 */
#pragma once

#include <openssl/evp.h>

#define EXPORT_MANIFEST "manifest.json"
#define EXPORT_HEX_SIZE 65

EVP_MD_CTX *export_sum_new(void); /* NULL without memory */
int export_digest(EVP_MD_CTX *sum, char ret[static EXPORT_HEX_SIZE]);
