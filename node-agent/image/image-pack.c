/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-image-pack ROOTFS OUT.sqfs: makes a template's image from a folder, a tar archive or a squashfs image.
 * Progress and failures go to stderr; the digest of the image goes to stdout. Exit status 0, 1 with the failure
 * as the last line of stderr ("stage CODE (component): ..."), 2 for a wrong command line.
 */
#include <inttypes.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "image/digest.h"
#include "image/pack.h"

#define USAGE "usage: croft-image-pack ROOTFS OUT.sqfs\n"
#define PROGRESS_USEC (2 * USEC_PER_SEC)

static void show_progress(void *userdata, uint64_t entries, uint64_t bytes)
{
	int64_t *next_usec = userdata, now = clock_monotonic_usec();

	if (now < *next_usec)
		return;
	*next_usec = now + PROGRESS_USEC;
	(void) fprintf(stderr, "packing: %" PRIu64 " entries, %" PRIu64 " MiB\n", entries, bytes >> 20);
}

int main(int argc, char **argv)
{
	int64_t next_usec = clock_monotonic_usec() + PROGRESS_USEC;
	struct pack pack = { .progress = show_progress, .userdata = &next_usec };
	struct err err = ERR_NULL;
	char digest[DIGEST_SIZE], text[2048];

	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return fputs(USAGE "\nPacks a directory, a tar archive or a squashfs image into an image that sandboxes start\n"
				   "from, and prints its digest; see croft-image-pack(1).\n",
			       stdout) < 0;
	if (argc != 3) {
		(void)fputs(USAGE, stderr);
		return 2;
	}
	(void) signal(SIGPIPE, SIG_IGN);
	(void) setlocale(LC_CTYPE, "C.UTF-8"); /* libarchive drops names that the locale cannot hold */
	if (pack_make(&pack, argv[1], argv[2], &err) == 0 && digest_file(argv[2], digest, &err) == 0) {
		(void) fprintf(stderr, "packed: %" PRIu64 " entries, %" PRIu64 " MiB, %" PRIu64 " left out\n",
			pack.entries, pack.bytes >> 20, pack.dropped);
		return printf("%s\n", digest) < 0 || fflush(stdout) != 0;
	}
	err_format(&err, text, sizeof(text));
	(void) fprintf(stderr, "croft-image-pack: %s\n", text);
	return 1;
}
