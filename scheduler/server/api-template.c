/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates over HTTP, and packages that are offered to nodes. The bytes of an image are written and hashed as they come, into a file of the blob directory
 * that has no name yet; they get their name (their digest) when they are whole, compared and durable, and the
 * template's record is committed after that, before the answer. A package is given to the offer (upgrades.h) without a name. A broken
 * upload leaves nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hex.h"
#include "server/api.h"
#include "server/images.h"
#include "server/shell.h"
#include "server/upgrades.h"
#include "server/view.h"
#include "server/worker.h"

struct upload {
	struct api_request *req; /* NULL: the client is gone */
	struct server *server;
	bool is_busy; /* the worker has it */
	bool is_over; /* it was answered; what still comes is dropped */
	int fd;
	char path[PATH_MAX]; /* "": it has its name */
	EVP_MD_CTX *hash;
	uint64_t size;
	char digest[DIGEST_SIZE];
	char name[ID_NAME_MAX + 1];
	char tenant[ID_NAME_MAX + 1];
	char node[ID_SIZE]; /* a package for this one; "": an image */
	char signature[UPGRADE_SIGNATURE_MAX];
	struct err err;
};

static void upload_free(struct upload *upload)
{
	(void)fd_close(upload->fd);
	if (*upload->path)
		(void)unlink(upload->path); /* a file that stays is removed at the next start */
	EVP_MD_CTX_free(upload->hash);
	free(upload);
}

/* The request ends: the upload with it, unless the worker has it. */
static void upload_leave(void *extra)
{
	struct upload *upload = extra;

	upload->req = NULL;
	if (!upload->is_busy)
		upload_free(upload);
}

static json_t *view_template(const struct template_entry *entry)
{
	const struct template_version *latest = template_latest(entry);

	return json_pack("{s:s, s:b, s:I, s:s, s:I, s:o}", "name", entry->name, "shared",
		!*entry->tenant, "version", (json_int_t)latest->version, "digest", latest->digest,
		"size", (json_int_t)latest->size, "created", view_time(latest->created_us));
}

void api_template_list(struct api_request *req)
{
	json_t *list = json_array();

	for (const struct template_entry *t = req->server->registry.templates; t; t = t->hh.next)
		if (!*t->tenant || !strcmp(t->tenant, req->tenant))
			(void)json_array_append_new(list, view_template(t));
	api_answer(req, 200, list);
}

static void fail(struct upload *upload, const struct err *err)
{
	upload->is_over = true;
	if (upload->req)
		api_fail(upload->req, err);
}

static void on_committed(struct api_request *req, const struct fleet_reply *reply)
{
	const struct upload *upload = req->extra;
	const struct template_entry *entry;

	if (err_is_set(&reply->err)) {
		api_fail(req, &reply->err);
		return;
	}
	entry = registry_template(&req->server->registry, upload->tenant, upload->name);
	api_answer(req, 201, entry ? view_template(entry) : NULL);
}

/* In the worker's thread: durable, then named. */
static void make_durable(void *arg)
{
	struct upload *upload = arg;
	char path[PATH_MAX], dir[PATH_MAX];
	int r = 0;

	(void)image_path(upload->server->options, upload->digest, path);
	(void)snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(path, '/') - path), path);
	if (fchmod(upload->fd, 0600) < 0 || fsync(upload->fd) < 0 || rename(upload->path, path) < 0)
		r = -errno;
	else
		*upload->path = '\0';
	if (r == 0)
		r = dir_fsync(dir);
	if (r < 0)
		(void)err_set_at(&upload->err, STAGE_IMAGE,
			r == -ENOSPC ? FAIL_STORE_FULL : FAIL_STORE_FAILED, -r,
			"the image cannot be made durable");
}

static void on_named(void *arg)
{
	struct upload *upload = arg;
	struct server *server = upload->server;
	const struct template_version *version;
	struct ops ops = { .n = 0 };

	upload->is_busy = false;
	if (!upload->req) {
		upload_free(upload);
		return;
	}
	if (err_is_set(&upload->err)) {
		fail(upload, &upload->err);
		return;
	}
	if (registry_add_template(&server->registry, &ops, upload->tenant, upload->name,
		    upload->digest, upload->size, clock_realtime_usec(), &version) < 0)
		ops.no_memory = true;
	else
		api_warm_follow(server, &ops, upload->tenant, upload->name, version);
	if (!ops.no_memory)
		log_info("a template is imported", "name", upload->name, "tenant", upload->tenant,
			"digest", upload->digest, "version", LOG_NUM(version->version));
	api_step(upload->req, NULL, &ops, on_committed);
}

/* All bytes are here: is it what the client says that it is? */
static int check_digest(struct upload *upload, struct err *reterr)
{
	const char *claimed = http_header(upload->req->http, "x-croft-digest");
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int size = 0;

	if (upload->size == 0)
		return err_set(reterr, FAIL_IMAGE_INVALID, EINVAL, "the image is empty");
	if (EVP_DigestFinal_ex(upload->hash, digest, &size) != 1 || size != 32)
		return err_set(reterr, FAIL_STORE_FAILED, EIO, "the image cannot be hashed");
	(void)snprintf(upload->digest, sizeof(upload->digest), "sha256:");
	hex_put(upload->digest + strlen(upload->digest), digest, size);
	if (claimed && strcmp(claimed, upload->digest) != 0) {
		(void)err_set(reterr, FAIL_IMAGE_DIGEST_MISMATCH, EBADMSG,
			"the bytes are not what X-Croft-Digest says");
		err_add(reterr, "expected", "%s", claimed);
		err_add(reterr, "got", "%s", upload->digest);
		return -EBADMSG;
	}
	return 0;
}

/* The offer has the file from here on. */
static void offer(struct upload *upload)
{
	const struct upgrade_offer offer = { upload->node, upload->digest, upload->signature, upload->size, upload->path };
	struct err err = ERR_NULL;
	int r = upgrades_offer(upload->server, &offer, &err);

	*upload->path = '\0';
	if (r < 0) {
		fail(upload, &err);
		return;
	}
	log_info("a package is offered to a node", "node", upload->node, "digest", upload->digest);
	api_answer(upload->req, 202, upgrades_view(upload->server, upload->node));
}

static void finish(struct upload *upload)
{
	struct err err = ERR_NULL;

	if (check_digest(upload, &err) < 0) {
		fail(upload, &err);
		return;
	}
	if (*upload->node) {
		offer(upload);
		return;
	}
	upload->is_busy = true;
	if (worker_add(upload->server->worker, make_durable, on_named, upload, &err) < 0) {
		upload->is_busy = false;
		fail(upload, &err);
	}
}

static int take_piece(struct upload *upload, const void *data, size_t size, struct err *reterr)
{
	uint64_t max = *upload->node ? UPGRADE_PACKAGE_MAX : upload->server->options->image_max_bytes;
	int r;

	if (size > max - upload->size) {
		(void)err_set(reterr, FAIL_IMAGE_TOO_LARGE, EFBIG,
			*upload->node ? "the package is too large" : "the image is larger than limits.image_size");
		err_add(reterr, "max", "%llu", (unsigned long long)max);
		return -EFBIG;
	}
	r = fd_write_all(upload->fd, data, size);
	if (r < 0)
		return err_set_at(reterr, STAGE_IMAGE,
			r == -ENOSPC || r == -EDQUOT ? FAIL_STORE_FULL : FAIL_STORE_FAILED, -r,
			"the image cannot be written");
	if (EVP_DigestUpdate(upload->hash, data, size) != 1)
		return err_set(reterr, FAIL_STORE_FAILED, EIO, "the image cannot be hashed");
	upload->size += size;
	return 0;
}

static bool on_piece(struct http_request *http, const void *data, size_t size, bool end, void *user)
{
	struct upload *upload = user;
	struct err err = ERR_NULL;

	(void)http;
	if (upload->is_over)
		return true;
	if (size && take_piece(upload, data, size, &err) < 0)
		fail(upload, &err);
	else if (end)
		finish(upload);
	return true;
}

/* The owner: everybody (?shared=true, the provider's operator alone), else the key's tenant. */
static int choose_owner(struct api_request *req, struct upload *upload, struct err *reterr)
{
	const char *shared = api_query(req, "shared");
	bool is_shared = shared && (!strcmp(shared, "true") || !strcmp(shared, "1"));

	if (!id_name_is_valid(req->params[0])) {
		(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL,
			"a template's name has 1 to 63 of the characters a-z, 0-9 and -");
		err_add(reterr, "field", "name");
		return -EINVAL;
	}
	if (is_shared && req->role != ROLE_PROVIDER)
		return err_set(reterr, FAIL_FORBIDDEN, EPERM,
			"only the provider's operator makes shared templates");
	(void)snprintf(upload->name, sizeof(upload->name), "%.*s", ID_NAME_MAX, req->params[0]);
	(void)snprintf(upload->tenant, sizeof(upload->tenant), "%s", is_shared ? "" : req->tenant);
	return 0;
}

static int upload_open(struct upload *upload, struct err *reterr)
{
	(void)snprintf(upload->path, sizeof(upload->path), "%s/blobs/upload-XXXXXX",
		upload->server->options->state);
	upload->fd = mkostemp(upload->path, O_CLOEXEC);
	if (upload->fd < 0) {
		*upload->path = '\0';
		return err_set_at(reterr, STAGE_IMAGE,
			errno == ENOSPC ? FAIL_STORE_FULL : FAIL_STORE_FAILED, errno,
			"no file can be made in the blob directory");
	}
	upload->hash = EVP_MD_CTX_new();
	if (!upload->hash || EVP_DigestInit_ex(upload->hash, EVP_sha256(), NULL) != 1)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an upload");
	return 0;
}

/* The node, and the signature as a header can carry it. */
static int choose_node(struct api_request *req, struct upload *upload, struct err *reterr)
{
	const char *signature = http_header(req->http, "x-croft-signature");
	struct fleet_node_view view;

	if (fleet_node_get(shell_fleet(req->server->shell), req->params[0], &view) < 0 || !api_may_see_pool(req, view.record->pool))
		return err_set(reterr, FAIL_NODE_NOT_FOUND, ENOENT, "there is no such node");
	(void)snprintf(upload->node, sizeof(upload->node), "%s", view.record->id);
	if (!signature)
		return 0; /* the node says what it thinks of that */
	if (strlen(signature) >= sizeof(upload->signature))
		return err_set(reterr, FAIL_INVALID_ARGUMENT, E2BIG, "X-Croft-Signature is longer than a signature");
	for (size_t i = 0; signature[i]; i++)
		upload->signature[i] = signature[i] == '|' ? '\n' : signature[i];
	return 0;
}

static void begin(struct api_request *req, int (*choose)(struct api_request *, struct upload *, struct err *))
{
	struct upload *upload = calloc(1, sizeof(*upload));
	struct err err = ERR_NULL;

	if (!upload) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for an upload");
		api_fail(req, &err);
		return;
	}
	upload->req = req;
	upload->server = req->server;
	upload->fd = -1;
	req->extra = upload;
	req->extra_free = upload_leave;
	if (shell_failure(req->server->shell))
		err = *shell_failure(req->server->shell);
	else if (choose(req, upload, &err) == 0)
		(void)upload_open(upload, &err);
	if (err_is_set(&err))
		fail(upload, &err);
	else
		http_stream_body(req->http, on_piece, upload);
}

void api_template_put(struct api_request *req)
{
	begin(req, choose_owner);
}

void api_node_upgrade(struct api_request *req)
{
	begin(req, choose_node);
}

void api_node_upgrade_get(struct api_request *req)
{
	struct fleet_node_view view;
	struct err err = ERR_NULL;

	if (fleet_node_get(shell_fleet(req->server->shell), req->params[0], &view) == 0 && api_may_see_pool(req, view.record->pool)) {
		api_answer(req, 200, upgrades_view(req->server, view.record->id));
		return;
	}
	(void)err_set(&err, FAIL_NODE_NOT_FOUND, ENOENT, "there is no such node");
	api_fail(req, &err);
}
