/* SPDX-License-Identifier: Apache-2.0
 *
 * A file as the body of a PUT, with its progress on a terminal.
 */
#pragma once

#include <curl/curl.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/http.h"

struct upload {
	const char *path;  /* of the API */
	const char *what;  /* as it is named while it goes */
	int fd;            /* read from where it stands */
	curl_off_t size;
	const char *header, *value; /* one of its own */
	struct buf *answer;
	/* upload.c's own */
	int64_t shown_us;
	char detail[CURL_ERROR_SIZE];
};

/* 0 with the answer and its status, whatever that is; else -errno and `failure`. */
int upload(const struct cli *cli, struct upload *upload, long *ret_status, struct failure *failure);
