/* SPDX-License-Identifier: Apache-2.0
 *
 * See request.h.
 */
#include "server/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "server/codec.h"
#include "server/shell.h"
#include "wire/json.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))
#define SECRET_BYTES 25
#define LABELS_MAX 32
#define LABEL_MAX 128
#define PRIORITY_MAX 9

void create_request_deinit(struct create_request *request)
{
	request->spec = spec_unref(request->spec);
	codec_fields_free(request->metadata, request->n_metadata);
	codec_fields_free(request->wish.labels, request->wish.n_labels);
	request->metadata = NULL;
	request->wish.labels = NULL;
	request->n_metadata = request->wish.n_labels = 0;
}

static int invalid(const char *field, const char *why, struct err *reterr)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s", field, why);
	err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

int request_timeout(const json_t *body, uint64_t *ret, struct err *reterr)
{
	return json_get_u64(body, "timeout", 1, TIMEOUT_S_MAX, ret, reterr);
}

int request_keeps_memory(const json_t *body, const char *name, struct err *reterr)
{
	bool keeps = true;
	int r = json_get_bool(body, name, &keeps, reterr);

	if (r < 0 || keeps)
		return r;
	(void)err_set(reterr, FAIL_UNSUPPORTED, ENOTSUP, "%s: false is not supported: a pause keeps the memory", name);
	err_add(reterr, "field", "%s", name);
	return -ENOTSUP;
}

/* At the end of its life it is paused, and the next call for it wakes it. */
static int read_end(const json_t *body, struct sandbox_spec *spec, struct err *reterr)
{
	const json_t *resume = json_object_get(body, "autoResume");
	int r = json_get_bool(body, "autoPause", &spec->auto_pause, reterr);

	if (r == 0)
		r = request_keeps_memory(body, "autoPauseMemory", reterr);
	if (r < 0 || !resume || json_is_null(resume))
		return r;
	if (json_is_object(resume))
		return json_get_bool(resume, "enabled", &spec->auto_resume, reterr);
	return json_get_bool(body, "autoResume", &spec->auto_resume, reterr);
}

/* The first of several names that is there. */
static const char *first_of(const json_t *body, const char *a, const char *b)
{
	return json_object_get(body, a) ? a : b;
}

static int read_size(const json_t *body, const struct options *options, struct sandbox_spec *spec,
	struct err *reterr)
{
	uint64_t vcpus = options->default_vcpus, memory = options->default_memory_mib,
		 disk = options->default_disk_mib;
	int r = json_get_u64(body, first_of(body, "vcpus", "cpuCount"), 1, VCPUS_MAX, &vcpus, reterr);

	if (r == 0)
		r = json_get_u64(
			body, "memoryMB", MEMORY_MIB_MIN, SPEC_MEMORY_MIB_MAX, &memory, reterr);
	if (r == 0)
		r = json_get_u64(
			body, "diskSizeMB", DISK_MIB_MIN, SPEC_DISK_MIB_MAX, &disk, reterr);
	if (r < 0)
		return r;
	spec->vcpus = (uint32_t)vcpus;
	spec->memory_mib = memory;
	spec->disk_mib = disk;
	return 0;
}

static int read_shape(const json_t *body, const struct options *options, struct sandbox_spec *spec,
	struct err *reterr)
{
	uint64_t timeout = (uint64_t)(options->default_timeout / USEC_PER_SEC), setup_timeout = 0;
	const char *setup = "";
	int r = read_size(body, options, spec, reterr);

	if (r == 0)
		r = request_timeout(body, &timeout, reterr);
	if (r == 0)
		r = json_get_u64(
			body, "setupTimeoutMs", 1, 24 * 3600 * 1000, &setup_timeout, reterr);
	if (r == 0)
		r = json_get_string(body, "setupCommand", SPEC_TEXT_MAX, &setup, reterr);
	if (r == 0)
		r = json_get_bool(body, "secure", &spec->secure, reterr);
	if (r == 0)
		r = read_end(body, spec, reterr);
	if (r < 0)
		return r;
	spec->timeout_s = (uint32_t)timeout;
	spec->setup_timeout_ms = (uint32_t)setup_timeout;
	if (*setup && spec_set_setup(spec, setup) < 0)
		return invalid("setupCommand", "is too long", reterr);
	return 0;
}

static int read_env(json_t *body, struct sandbox_spec *spec, struct err *reterr)
{
	json_t *env = json_object_get(body, "envVars"), *value;
	const char *name;

	if (!env || json_is_null(env))
		return 0;
	if (!json_is_object(env))
		return invalid("envVars", "must be an object of strings", reterr);
	json_object_foreach(env, name, value)
	{
		int r;

		if (!json_is_string(value))
			return invalid("envVars", "must be an object of strings", reterr);
		if (strlen(json_string_value(value)) != json_string_length(value))
			return invalid("envVars", "may not contain NUL", reterr);
		r = spec_add_env(spec, name, json_string_value(value));
		if (r < 0)
			return invalid("envVars",
				r == -EINVAL ? "has a name that no variable can have"
					     : "is too large",
				reterr);
	}
	return 0;
}

struct fields_limit {
	const char *name;
	size_t most, text_max;
	const char *complaint; /* about what is none */
};

static bool is_text(const json_t *value, size_t max)
{
	return json_is_string(value) && json_string_length(value) <= max &&
	       strlen(json_string_value(value)) == json_string_length(value);
}

static int read_fields(json_t *body, const struct fields_limit *limit, struct sandbox_field **fields,
	size_t *n, struct err *reterr)
{
	json_t *object = json_object_get(body, limit->name), *value;
	const char *name;

	if (!object || json_is_null(object) || (json_is_object(object) && !json_object_size(object)))
		return 0;
	if (!json_is_object(object))
		return invalid(limit->name, "must be an object of strings", reterr);
	if (json_object_size(object) > limit->most)
		return invalid(limit->name, "has too many entries", reterr);
	*fields = calloc(json_object_size(object), sizeof(**fields));
	if (!*fields)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for %s", limit->name);
	json_object_foreach(object, name, value)
	{
		struct sandbox_field *field = &(*fields)[*n];

		if (strlen(name) > limit->text_max || !is_text(value, limit->text_max))
			return invalid(limit->name, limit->complaint, reterr);
		++*n;
		field->key = strdup(name);
		field->value = strdup(json_string_value(value));
		if (!field->key || !field->value)
			return err_set(
				reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for %s", limit->name);
	}
	return 0;
}

/* Where it may be placed, and before which others of the same tenant. */
static int read_wish(json_t *body, struct create_request *request, struct err *reterr)
{
	static const struct fields_limit labels = { "labels", LABELS_MAX, LABEL_MAX,
		"must be an object of strings of at most 128 bytes" };
	const char *region = "", *cpu_class = "";
	uint64_t priority = 0;
	int r = read_fields(
		body, &labels, &request->wish.labels, &request->wish.n_labels, reterr);

	if (r == 0)
		r = json_get_string(body, "region", ID_NAME_MAX, &region, reterr);
	if (r == 0)
		r = json_get_string(body, "cpuClass", ID_NAME_MAX, &cpu_class, reterr);
	if (r == 0)
		r = json_get_u64(body, "priority", 0, PRIORITY_MAX, &priority, reterr);
	if (r < 0)
		return r;
	COPY(request->wish.region, region);
	COPY(request->wish.cpu_class, cpu_class);
	request->priority = (uint32_t)priority;
	return 0;
}

/* The pool: as asked for, when it is the tenant's customer's or shared; "": the customer's first, else the first that
 * is shared. NULL: none, with `reterr`. */
static const struct pool_entry *find_pool(const struct server *server, const char *tenant, const char *asked,
	struct err *reterr)
{
	const struct tenant_entry *entry = registry_tenant(&server->registry, tenant);
	const struct pool_entry *best = NULL;

	for (const struct pool_entry *pool = server->registry.pools; pool; pool = pool->hh.next) {
		bool own = entry && !strcmp(pool->record.customer, entry->customer);

		if (pool->revoked_us || (!own && !pool->record.shared) ||
			(*asked && strcmp(asked, pool->record.name) != 0))
			continue;
		if (!best || own)
			best = pool;
		if (own)
			break;
	}
	if (!best)
		(void)err_set(reterr, FAIL_POOL_NOT_FOUND, ENOENT, "there is no such pool for this tenant");
	return best;
}

static int choose_pool(const json_t *body, const struct server *server, const char *tenant,
	char *ret, size_t size, struct err *reterr)
{
	const struct pool_entry *pool;
	const char *asked = "";
	int r = json_get_string(body, "pool", ID_NAME_MAX, &asked, reterr);

	if (r < 0)
		return r;
	pool = find_pool(server, tenant, asked, reterr);
	if (!pool)
		return -ENOENT;
	(void)snprintf(ret, size, "%s", pool->record.name);
	return 0;
}

/* A size that is named must be the snapshot's. */
static int is_same(const json_t *body, const char *name, uint64_t is, struct err *reterr)
{
	uint64_t asked = is;
	int r = json_get_u64(body, name, 0, INT64_MAX, &asked, reterr);

	if (r < 0 || asked == is)
		return r;
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s is %llu in the snapshot: leave it out", name,
		(unsigned long long)is);
	err_add(reterr, "field", "%s", name);
	return -EINVAL;
}

/* Size, image and disk are the snapshot's. */
static int take_shape(const json_t *body, const struct snapshot_record *snapshot, struct sandbox_spec *spec,
	struct err *reterr)
{
	const struct sandbox_spec *shape = snapshot->spec;
	int r = is_same(body, first_of(body, "vcpus", "cpuCount"), shape->vcpus, reterr);

	if (r == 0)
		r = is_same(body, "memoryMB", shape->memory_mib, reterr);
	if (r == 0)
		r = is_same(body, "diskSizeMB", shape->disk_mib, reterr);
	if (r == 0 && snapshot->state == SNAPSHOT_LOST)
		r = err_set(reterr, FAIL_SNAPSHOT_LOST, ENOENT, "the node that kept the snapshot does not have it any more");
	if (r == 0 && snapshot->state != SNAPSHOT_READY)
		r = err_set(reterr, FAIL_SNAPSHOTTING, EBUSY, "the snapshot is being made");
	if (r < 0)
		return r;
	COPY(spec->template_name, shape->template_name);
	COPY(spec->image_digest, shape->image_digest);
	COPY(spec->snapshot, snapshot->id);
	spec->image_size = shape->image_size;
	spec->vcpus = shape->vcpus;
	spec->memory_mib = shape->memory_mib;
	spec->disk_mib = shape->disk_mib;
	return 0;
}

/* So are node and pool; the tenant may have lost the pool since it was made. */
static int begin_as(const json_t *body, const struct server *server, const struct snapshot_record *snapshot,
	struct create_request *request, struct err *reterr)
{
	struct sandbox_spec *spec = request->spec;
	const char *pool = snapshot->pool;
	int r;

	if (spec->setup_command)
		return invalid("setupCommand", "is for what boots: what begins as a snapshot goes on", reterr);
	r = take_shape(body, snapshot, spec, reterr);
	if (r == 0)
		r = json_get_string(body, "pool", ID_NAME_MAX, &pool, reterr);
	if (r == 0 && strcmp(pool, snapshot->pool) != 0)
		r = invalid("pool", "is another one than the snapshot's: leave it out", reterr);
	if (r == 0 && !find_pool(server, snapshot->tenant, snapshot->pool, reterr))
		r = -ENOENT;
	if (r < 0)
		return r;
	COPY(request->alias, spec->template_name);
	COPY(request->pool, snapshot->pool);
	if (!*request->wish.cpu_class)
		COPY(request->wish.cpu_class, snapshot->cpu_class);
	return 0;
}

const struct snapshot_record *create_request_snapshot(const struct server *server, const char *tenant, const char *name)
{
	const struct fleet *fleet = shell_fleet(server->shell);
	const struct snapshot_record *snapshot = fleet_snapshot_get(fleet, name);

	if (snapshot && !strcmp(snapshot->tenant, tenant))
		return snapshot;
	return registry_template(&server->registry, tenant, name) ? NULL : fleet_snapshot_named(fleet, tenant, name);
}

static int choose_template(const json_t *body, const struct server *server, const char *tenant,
	struct create_request *request, struct err *reterr)
{
	const struct snapshot_record *snapshot;
	const struct template_entry *template;
	const char *name = "base";
	int r = json_get_string(body, "templateID", ID_NAME_MAX, &name, reterr);

	if (r < 0)
		return r;
	snapshot = create_request_snapshot(server, tenant, name);
	if (snapshot)
		return begin_as(body, server, snapshot, request, reterr);
	template = registry_template(&server->registry, tenant, name);
	if (!template) {
		(void)err_set(reterr, FAIL_TEMPLATE_NOT_FOUND, ENOENT,
			"there is no template of this name");
		err_add(reterr, "template", "%s", name);
		return -ENOENT;
	}
	COPY(request->spec->template_name, template->name);
	COPY(request->spec->image_digest, template_latest(template)->digest);
	COPY(request->alias, template->name);
	request->spec->image_size = template_latest(template)->size;
	return 0;
}

static void make_token(struct rng *rng, char *ret, size_t size)
{
	unsigned char bytes[SECRET_BYTES];

	rng_bytes(rng, bytes, sizeof(bytes));
	hex_put(ret, bytes, MIN(sizeof(bytes), (size - 1) / 2));
}

/* No environment, no setup, no life time; nobody but who claims it reaches it. */
int create_request_read_shape(const json_t *body, struct server *server, const struct snapshot_record *snapshot,
	struct sandbox_spec *spec, struct err *reterr)
{
	int r = snapshot ? take_shape(body, snapshot, spec, reterr) : read_size(body, server->options, spec, reterr);

	if (r < 0)
		return r;
	spec->secure = true;
	spec->network.internet = false; /* nobody's yet: whoever takes it over says what it may reach */
	make_token(&server->rng, spec->access_token, sizeof(spec->access_token));
	COPY(spec->tenant, "croft:warm");
	return 0;
}

int create_request_read(const json_t *body, struct server *server, const char *tenant,
	struct create_request *ret, struct err *reterr)
{
	static const struct fields_limit metadata = { "metadata", METADATA_MAX, METADATA_TEXT_MAX,
		"must be an object of strings of at most 4096 bytes" };
	struct create_request request = { .spec = spec_new() };
	json_t *members = (json_t *)(uintptr_t)body; /* jansson iterates over what is not const */
	uint64_t queue_ms = 0;
	int r;

	if (!request.spec)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a sandbox");
	request.spec->secure = true;
	r = read_shape(body, server->options, request.spec, reterr);
	if (r == 0)
		r = read_env(members, request.spec, reterr);
	if (r == 0)
		r = read_fields(
			members, &metadata, &request.metadata, &request.n_metadata, reterr);
	if (r == 0)
		r = request_network_create(body, &request.spec->network, reterr);
	if (r == 0)
		r = request_budget(json_object_get(body, "budget"), "budget.", &request.spec->budget, reterr);
	if (r == 0)
		r = read_wish(members, &request, reterr);
	if (r == 0)
		r = json_get_u64(body, "queueTimeoutMs", 0, 3600 * 1000, &queue_ms, reterr);
	if (r == 0)
		r = choose_template(body, server, tenant, &request, reterr);
	if (r == 0 && !*request.spec->snapshot)
		r = choose_pool(body, server, tenant, request.pool, sizeof(request.pool), reterr);
	if (r == 0) {
		make_token(&server->rng, request.spec->access_token,
			sizeof(request.spec->access_token));
		request.queue_usec = (int64_t)queue_ms * USEC_PER_MSEC;
		COPY(request.spec->tenant, tenant);
		r = spec_check(request.spec, reterr);
	}
	if (r < 0) {
		create_request_deinit(&request);
		return r;
	}
	*ret = request;
	return 0;
}
