/* SPDX-License-Identifier: Apache-2.0
 *
 * croft template import and list. An image is what croft-image-pack makes of a directory or an archive; a squashfs
 * image goes as it is. Its digest is taken here and compared by the scheduler with the bytes that arrive.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/evp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/id.h"
#include "cli/list.h"
#include "cli/upload.h"

#define PACK_PROGRAM "croft-image-pack"
#define DIGEST_TEXT_SIZE 72 /* "sha256:", 64 digits, NUL */
#define HASH_PIECE 65536u

extern char **environ;

struct import {
	struct cli *cli;
	const char *name, *source;
	bool shared;
	char temporary[PATH_MAX]; /* directory with the packed image; "": none */
	char image[PATH_MAX + 16];
	int fd;
	curl_off_t size;
	char digest[DIGEST_TEXT_SIZE];
	struct buf answer;
};

/* ---- the image ---- */

static bool is_squashfs(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	char magic[4];

	return fd >= 0 && read(fd, magic, sizeof(magic)) == (ssize_t) sizeof(magic) && !memcmp(magic, "hsqs", 4);
}

/* The one beside this program, else the one in PATH. */
static void find_packer(char *ret, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = '\0';
		(void) snprintf(ret, size, "%s/%s", dirname(self), PACK_PROGRAM);
		if (access(ret, X_OK) == 0)
			return;
	}
	(void) snprintf(ret, size, "%s", PACK_PROGRAM);
}

/* Its progress and its complaints go to our stderr, its digest nowhere: we take our own. */
static int run_packer(const struct import *import, struct err *reterr)
{
	char packer[PATH_MAX + 32];
	char *argv[] = { packer, (char *) (uintptr_t) import->source, (char *) (uintptr_t) import->image, NULL };
	posix_spawn_file_actions_t actions;
	int status, r;
	pid_t pid = -1;

	find_packer(packer, sizeof(packer));
	r = posix_spawn_file_actions_init(&actions);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (r == 0)
		r = posix_spawnp(&pid, packer, &actions, NULL, argv, environ);
	(void) posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return err_set_at(reterr, STAGE_HOST, FAIL_IO_FAILED, r, "Cannot run %s.", PACK_PROGRAM);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_set_at(reterr, STAGE_HOST, FAIL_IO_FAILED, errno, "Cannot wait for %s.", PACK_PROGRAM);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return err_set_at(reterr, STAGE_IMAGE, FAIL_IMAGE_INVALID, 0, "%s could not make an image of %s.", PACK_PROGRAM,
		import->source);
}

static int make_image(struct import *import, struct err *reterr)
{
	const char *place = getenv("TMPDIR");
	struct stat st;

	if (stat(import->source, &st) < 0)
		return err_set_at(reterr, STAGE_IMAGE, FAIL_IMAGE_INVALID, errno, "Cannot read %s.", import->source);
	if (S_ISREG(st.st_mode) && is_squashfs(import->source)) {
		(void) snprintf(import->image, sizeof(import->image), "%s", import->source);
		return 0;
	}
	(void) snprintf(import->temporary, sizeof(import->temporary), "%s/croft-import-XXXXXX",
		place && *place == '/' ? place : "/var/tmp");
	if (!mkdtemp(import->temporary)) {
		*import->temporary = '\0';
		return err_set_at(reterr, STAGE_HOST, FAIL_IO_FAILED, errno, "Cannot make a temporary directory.");
	}
	(void) snprintf(import->image, sizeof(import->image), "%s/image.sqfs", import->temporary);
	return run_packer(import, reterr);
}

static int hash_image(struct import *import, EVP_MD_CTX *context, struct err *reterr)
{
	CLEANUP_FREE uint8_t *piece = malloc(HASH_PIECE);
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned int size;
	ssize_t n;

	if (!context || !piece || !EVP_DigestInit_ex(context, EVP_sha256(), NULL))
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
	while ((n = read(import->fd, piece, HASH_PIECE)) > 0) {
		import->size += n;
		if (!EVP_DigestUpdate(context, piece, (size_t) n))
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "The image cannot be hashed.");
	}
	if (n < 0)
		return err_set_at(reterr, STAGE_IMAGE, FAIL_IO_FAILED, errno, "Cannot read %s.", import->image);
	if (!EVP_DigestFinal_ex(context, digest, &size))
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "The image cannot be hashed.");
	(void) strcpy(import->digest, "sha256:");
	hex_put(import->digest + strlen(import->digest), digest, MIN(size, 32));
	return 0;
}

static int open_image(struct import *import, struct err *reterr)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	int r;

	import->fd = open(import->image, O_RDONLY | O_CLOEXEC);
	if (import->fd < 0)
		r = err_set(reterr, FAIL_INVALID_ARGUMENT, errno, "The file cannot be read: %.200s.", import->image);
	else
		r = hash_image(import, context, reterr);
	EVP_MD_CTX_free(context);
	if (r == 0 && lseek(import->fd, 0, SEEK_SET) < 0)
		r = err_set_at(reterr, STAGE_IMAGE, FAIL_IO_FAILED, errno, "Cannot read %s again.", import->image);
	return r;
}

static int upload_image(struct import *import, long *ret_status, struct failure *failure)
{
	char path[ID_NAME_MAX + 64];

	(void) snprintf(path, sizeof(path), "/v1/templates/%s%s", import->name, import->shared ? "?shared=true" : "");
	return upload(import->cli,
		&(struct upload){ .path = path, .what = import->name, .fd = import->fd, .size = import->size, .header = "X-Croft-Digest",
			.value = import->digest, .answer = &import->answer },
		ret_status, failure);
}

static int import_run(struct import *import)
{
	struct failure failure = { 0 };
	long status = 0;
	json_t *answer;

	if (!id_name_is_valid(import->name)) {
		err_set(&failure.err, FAIL_INVALID_ARGUMENT, EINVAL,
			"A template's name has 1 to %d of the characters a-z, 0-9 and -.", ID_NAME_MAX);
	} else if (api_need_key(import->cli, &failure.err) == 0 && make_image(import, &failure.err) == 0 && open_image(import, &failure.err) == 0 &&
		upload_image(import, &status, &failure) == 0 && (status < 200 || status > 299)) {
		failure_of_answer(&failure, (int) status,
			buf_size(&import->answer) ? (const char *) buf_peek(&import->answer) : "", buf_size(&import->answer));
	}
	if (err_is_set(&failure.err))
		return print_failure(import->cli, "cannot import the template", &failure);
	answer = json_loadb(buf_size(&import->answer) ? (const char *) buf_peek(&import->answer) : "",
		buf_size(&import->answer), 0, NULL);
	if (import->cli->json)
		return print_json(answer ? answer : json_object());
	(void) printf("%s version %" JSON_INTEGER_FORMAT " %s %lld bytes\n", import->name,
		json_integer_value(json_object_get(answer, "version")), import->digest, (long long) import->size);
	json_decref(answer);
	return EXIT_OK;
}

static int template_import(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct import import = { .cli = cli, .fd = -1, .answer = BUF_NULL(1u << 20) };
	const struct arg args[] = {
		{ "shared", 0, ARG_FLAG, &import.shared, NULL, "For every tenant (the provider's operator)." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status = r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;

	if (r == ARGS_OK && argc != 3)
		status = args_complain(command, "a name and a root file system are needed");
	if (r == ARGS_OK && argc == 3) {
		import.name = argv[1];
		import.source = argv[2];
		status = import_run(&import);
	}
	fd_close(import.fd);
	buf_deinit(&import.answer);
	if (*import.temporary)
		(void) dir_remove(import.temporary);
	return status;
}

static int template_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/templates",
		.what = "cannot list templates",
		.heads = { "NAME", "VERSION", "SIZE", "SHARED", "CREATED", "DIGEST" },
		.members = { "name", "version", "size", "shared", "created", "digest" },
	};

	return list_run(cli, command, argc, argv, &view);
}

const struct command commands_template[] = {
	{ "template import", "[OPTION]... NAME ROOTFS.tar|DIR|IMAGE.sqfs", "Import a root file system as a template.",
		template_import, NULL },
	{ "template list", "", "List templates.", template_list, NULL },
	{ "template ls", "", NULL, template_list, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
