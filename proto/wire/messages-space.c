/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages.h: how much of a node's disk is whose.
 */
#include "wire/messages-private.h"

#include <errno.h>

#include "base/util.h"

void space_list_deinit(struct space_list *list)
{
	free(list->items);
	*list = (struct space_list){ 0 };
}

static struct tenant_space *find(const struct space_list *list, const char *tenant)
{
	for (size_t i = 0; i < list->n; i++)
		if (!strcmp(list->items[i].tenant, tenant))
			return &list->items[i];
	return NULL;
}

static int grow(struct space_list *list, const char *tenant, struct tenant_space **ret)
{
	if ((list->n & (list->n - 1)) == 0) { /* room is the next power of two */
		size_t room = list->n ? 2 * list->n : 1;
		struct tenant_space *grown = realloc(list->items, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		list->items = grown;
	}
	*ret = &list->items[list->n++];
	**ret = (struct tenant_space){ .used = 0 };
	memcpy((*ret)->tenant, tenant, strlen(tenant) + 1);
	return 0;
}

int space_list_add(struct space_list *list, const char *tenant, uint64_t used)
{
	struct tenant_space *item;
	int r = 0;

	if (*tenant && !id_name_is_valid(tenant))
		return -EINVAL;
	item = find(list, tenant);
	if (!item && list->n + 1 >= SPACE_TENANTS_MAX) { /* the last place is that of the others together */
		tenant = "";
		item = find(list, tenant);
	}
	if (!item)
		r = grow(list, tenant, &item);
	if (r == 0)
		item->used += used;
	return r;
}

int space_list_copy(const struct space_list *list, struct space_list *ret)
{
	struct space_list copy = { 0 };

	for (size_t i = 0; i < list->n; i++) {
		int r = space_list_add(&copy, list->items[i].tenant, list->items[i].used);

		if (r < 0) {
			space_list_deinit(&copy);
			return r;
		}
	}
	*ret = copy;
	return 0;
}

uint64_t space_list_of(const struct space_list *list, const char *tenant)
{
	const struct tenant_space *item = find(list, tenant);

	return item ? item->used : 0;
}

bool space_put(Croft__TenantSpace ***to, size_t *n_to, const struct space_list *list)
{
	if (list->n == 0)
		return true;
	*to = calloc(list->n, sizeof(**to));
	if (!*to)
		return false;
	for (size_t i = 0; i < list->n; i++) {
		Croft__TenantSpace *item = NEW(tenant_space, TenantSpace);

		if (!item)
			return false;
		(*to)[(*n_to)++] = item;
		item->used_mib = list->items[i].used;
		if (!put_text(&item->tenant, list->items[i].tenant))
			return false;
	}
	return true;
}

int space_take(struct space_list *to, Croft__TenantSpace *const *from, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = space_list_add(to, from[i]->tenant, MIN(from[i]->used_mib, CAPACITY_MIB_MAX));
	return r;
}
