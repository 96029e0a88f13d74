/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's disk by tenant: what a directory takes, whose it is, when it is told, and the bound of the list.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/space.h"
#include "base/fd.h"
#include "lib/suite.h"
#include "test-supervisor-rig.h"

#define SECOND "ccccccccccccccccccca"
#define SNAP "ddddddddddddddddddda"
#define STRANGER "eeeeeeeeeeeeeeeeeeea"
#define MIB (UINT64_C(1) << 20)

/* ---- what a directory takes ---- */

static char dir[64];

static void write_file(const char *name, size_t size, off_t length)
{
	CLEANUP_FREE char *data = calloc(1, size + 1);
	CLEANUP_FD int fd = -1;
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	ck_assert_int_ge(fd, 0);
	memset(data, 'x', size);
	ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
	ck_assert_int_eq(fsync(fd), 0); /* some file systems give out blocks only then */
	if (length > 0)
		ck_assert_int_eq(ftruncate(fd, length), 0);
}

static void make_dir(const char *name)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static uint64_t bytes_of(const struct space *space, const char *id)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < space->n; i++)
		if (!strcmp(space->items[i].id, id))
			bytes += space->items[i].bytes;
	return bytes;
}

static void check_about(uint64_t bytes, uint64_t wanted)
{
	ck_assert_uint_ge(bytes, wanted);
	ck_assert_uint_le(bytes, wanted + wanted / 4 + 65536); /* what the file system itself needs for it */
}

START_TEST(a_directory_takes_the_blocks_of_its_files)
{
	struct space space;
	char path[200];

	(void)snprintf(dir, sizeof(dir), "/tmp/croft-space.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(space_look(dir, &space), 0); /* nothing was ever made here */
	ck_assert_uint_eq(space.n, 0);
	make_dir("sandboxes");
	make_dir("sandboxes/" ID);
	make_dir("sandboxes/" SECOND);
	make_dir("sandboxes/not-an-id");
	make_dir("snapshots");
	make_dir("snapshots/" SNAP ".new");
	write_file("sandboxes/" ID "/disk", 2 * MIB, 1 << 30); /* sparse: what was written to it */
	write_file("sandboxes/" ID "/state", MIB, 0);
	write_file("sandboxes/not-an-id/disk", MIB, 0);
	write_file("snapshots/" SNAP ".new/memory", MIB, 0); /* not finished, and there all the same */
	(void)snprintf(path, sizeof(path), "%s/sandboxes/%s/link", dir, SECOND);
	ck_assert_int_eq(symlink("../" ID "/disk", path), 0); /* not its own */
	ck_assert_int_eq(space_look(dir, &space), 0);
	ck_assert_uint_eq(space.n, 3);
	check_about(bytes_of(&space, ID), 3 * MIB);
	ck_assert_uint_eq(bytes_of(&space, SECOND), 0);
	check_about(bytes_of(&space, SNAP), MIB);
	space_deinit(&space);
	ck_assert_int_eq(dir_remove(dir), 0);
}
END_TEST

/* ---- whose it is ---- */

static struct sandbox_spec *spec_of(const char *tenant)
{
	struct sandbox_spec *spec = spec_make(100, NULL, 0);

	(void)snprintf(spec->tenant, sizeof(spec->tenant), "%s", tenant);
	return spec;
}

/* The next look, `sec` later; what was told of it, or NULL. */
static const struct space_list *look(unsigned int sec, const struct sv_space *items, size_t n)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 },
		.disk_free_mib = 10000, .space = items, .n_space = n };

	rig.now.mono_usec += sec * USEC_PER_SEC;
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
	return find(SV_DO_SEND_CAPACITY) ? &find(SV_DO_SEND_CAPACITY)->capacity->space : NULL;
}

START_TEST(it_is_summed_by_tenant_and_told_when_it_is_news)
{
	struct sv_space items[] = { { ID, 3 * MIB }, { SECOND, 1000 }, { SNAP, 5 * MIB + 1 }, { STRANGER, 7 * MIB } };
	struct snapshot_info info = { .vcpus = 1, .memory_mib = 1000, .disk_mib = 100, .tenant = "first" };
	const struct space_list *told;

	memcpy(info.id, SNAP, ID_SIZE);
	memcpy(info.sandbox, ID, ID_SIZE);
	memcpy(info.template_name, "base", 5);
	memcpy(info.image_digest, DIGEST, DIGEST_SIZE);
	feed((struct sv_event){ .type = SV_EV_LOAD_SNAPSHOT, .snapshot = &info });
	create_as(ID, 1, 1, spec_of("first"), 0);
	create_as(SECOND, 1, 1, spec_of("second"), 0);
	told = look(10, items, ARRAY_LEN(items));
	ck_assert_ptr_nonnull(told);
	ck_assert_uint_eq(told->n, 3);
	ck_assert_uint_eq(space_list_of(told, "first"), 9); /* 8 MiB and a byte */
	ck_assert_uint_eq(space_list_of(told, "second"), 1);
	ck_assert_uint_eq(space_list_of(told, ""), 7); /* of what nobody knows */
	items[0].bytes += 60 * MIB;
	ck_assert_ptr_null(look(10, items, ARRAY_LEN(items)));
	for (unsigned int i = 0; i < 20; i++) /* by little and little it is news too */
		if (items[0].bytes += 4 * MIB, look(10, items, ARRAY_LEN(items)))
			break;
	told = find(SV_DO_SEND_CAPACITY) ? &find(SV_DO_SEND_CAPACITY)->capacity->space : NULL;
	ck_assert_ptr_nonnull(told);
	ck_assert_uint_ge(space_list_of(told, "first"), 9 + 64);
	ck_assert_uint_le(space_list_of(told, "first"), 9 + 72);
	told = look(10, items, 1); /* the others are gone */
	ck_assert_ptr_nonnull(told);
	ck_assert_uint_eq(told->n, 1);
	ck_assert_ptr_null(look(10, items, 1));
	told = look(10, items, 2);
	ck_assert_ptr_nonnull(told);
	ck_assert_uint_eq(told->n, 2);
}
END_TEST

/* A scheduler that was started again knows nothing of it, and a hello does not say it. */
START_TEST(it_is_told_again_after_a_welcome)
{
	const struct sv_space items[] = { { ID, 3 * MIB } };

	create_as(ID, 1, 1, spec_of("first"), 0);
	ck_assert_ptr_nonnull(look(10, items, 1));
	ck_assert_ptr_null(look(10, items, 1));
	feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	connect_core();
	ck_assert_ptr_nonnull(look(10, items, 1));
	ck_assert_ptr_null(look(10, items, 1));
}
END_TEST

/* ---- the bound ---- */

START_TEST(more_tenants_than_the_list_holds_are_summed_up)
{
	struct space_list list = { 0 }, copy;
	char name[ID_NAME_MAX + 1];
	uint64_t sum = 0;

	for (unsigned int i = 0; i < 2 * SPACE_TENANTS_MAX; i++) {
		(void)snprintf(name, sizeof(name), "tenant-%u", i);
		ck_assert_int_eq(space_list_add(&list, name, i), 0);
	}
	ck_assert_int_eq(space_list_add(&list, "Not A Name", 1), -EINVAL);
	ck_assert_uint_eq(list.n, SPACE_TENANTS_MAX);
	ck_assert_uint_eq(space_list_of(&list, "tenant-7"), 7);
	ck_assert_uint_eq(space_list_of(&list, name), 0);
	ck_assert_int_eq(space_list_copy(&list, &copy), 0);
	for (size_t i = 0; i < copy.n; i++)
		sum += copy.items[i].used;
	ck_assert_uint_eq(copy.n, SPACE_TENANTS_MAX);
	ck_assert_uint_eq(sum, SPACE_TENANTS_MAX * (2 * SPACE_TENANTS_MAX - 1)); /* nothing is lost */
	space_list_deinit(&list);
	space_list_deinit(&copy);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("space");
	TCase *of_disk = tcase_create("disk"), *of_core = tcase_create("core");

	tcase_add_test(of_disk, a_directory_takes_the_blocks_of_its_files);
	tcase_add_test(of_disk, more_tenants_than_the_list_holds_are_summed_up);
	tcase_add_checked_fixture(of_core, setup, teardown);
	tcase_add_test(of_core, it_is_summed_by_tenant_and_told_when_it_is_news);
	tcase_add_test(of_core, it_is_told_again_after_a_welcome);
	suite_add_tcase(suite, of_disk);
	suite_add_tcase(suite, of_core);
	return suite_run(suite);
}
