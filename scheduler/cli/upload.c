/* SPDX-License-Identifier: Apache-2.0
 *
 * See upload.h.
 */
#include "cli/upload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

#define SHOW_US (200 * USEC_PER_MSEC)

static size_t on_read(char *buf, size_t size, size_t n, void *user)
{
	const struct upload *upload = user;
	ssize_t got = read(upload->fd, buf, size * n);

	return got < 0 ? CURL_READFUNC_ABORT : (size_t) got;
}

static int on_seek(void *user, curl_off_t offset, int origin)
{
	const struct upload *upload = user;

	return lseek(upload->fd, offset, origin) < 0 ? CURL_SEEKFUNC_FAIL : CURL_SEEKFUNC_OK;
}

static size_t on_answer(char *data, size_t size, size_t n, void *user)
{
	struct upload *upload = user;

	return buf_append(upload->answer, data, size * n) < 0 ? 0 : size * n;
}

static int on_progress(void *user, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal, curl_off_t ulnow)
{
	struct upload *upload = user;
	int64_t now = clock_monotonic_usec();

	(void) dltotal;
	(void) dlnow;
	(void) ultotal;
	if (upload->size > 0 && now - upload->shown_us >= SHOW_US) {
		upload->shown_us = now;
		(void) fprintf(stderr, "\ruploading %s: %lld of %lld MiB", upload->what, (long long) (ulnow >> 20),
			(long long) (upload->size >> 20));
	}
	return 0;
}

static struct curl_slist *add(struct curl_slist *list, const char *name, const char *value)
{
	CLEANUP_FREE char *text = NULL;
	struct curl_slist *more;

	if (asprintf(&text, "%s: %s", name, value) < 0) {
		text = NULL;
		return list;
	}
	more = curl_slist_append(list, text);
	return more ? more : list;
}

int upload(const struct cli *cli, struct upload *upload, long *ret_status, struct failure *failure)
{
	bool is_shown = cli->is_terminal && !cli->json;
	struct curl_slist *headers = NULL;
	CURL *easy = http_easy(cli->api_url, upload->path, &headers);
	CURLcode code;

	if (!easy)
		return err_set(&failure->err, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
	headers = add(headers, "X-API-Key", cli->api_key);
	headers = add(headers, upload->header, upload->value);
	headers = add(headers, "Content-Type", "application/octet-stream");
	(void) curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	(void) curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
	(void) curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, upload->size);
	(void) curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
	(void) curl_easy_setopt(easy, CURLOPT_READDATA, upload);
	(void) curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
	(void) curl_easy_setopt(easy, CURLOPT_SEEKDATA, upload);
	(void) curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_answer);
	(void) curl_easy_setopt(easy, CURLOPT_WRITEDATA, upload);
	(void) curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, upload->detail);
	(void) curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
	(void) curl_easy_setopt(easy, CURLOPT_XFERINFODATA, upload);
	(void) curl_easy_setopt(easy, CURLOPT_NOPROGRESS, is_shown ? 0L : 1L);
	code = curl_easy_perform(easy);
	(void) curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, ret_status);
	curl_easy_cleanup(easy);
	curl_slist_free_all(headers);
	if (is_shown)
		(void) fputs("\r\033[K", stderr);
	/* A server that refuses before it has read all may close while we still send; its word counts. */
	if (code == CURLE_OK || (*ret_status >= 400 && buf_size(upload->answer) > 0))
		return 0;
	failure_of_curl(failure, code, upload->detail, cli->api_url);
	return -EIO;
}
