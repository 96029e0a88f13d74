/* SPDX-License-Identifier: Apache-2.0
 *
 * See where.h.
 */
#include "cli/where.h"

#include <stdio.h>
#include <string.h>

#include "cli/list.h"

#define MEMBER_MAX 64
#define OPERATORS "=!<>"

struct condition {
	char member[MEMBER_MAX];
	bool is_less, is_equal, is_greater; /* which results of a comparison fulfil it */
	const char *value;
};

static bool parse(const char *text, struct condition *ret)
{
	const size_t n = strcspn(text, OPERATORS), n_operator = strspn(text + n, OPERATORS);
	const char *operator = text + n;

	if (n == 0 || n >= sizeof(ret->member) || n_operator == 0 || n_operator > 2 || (n_operator == 2 && operator[1] != '=') ||
		(n_operator == 1 && *operator == '!') || !strncmp(operator, "==", 2))
		return false;
	(void)snprintf(ret->member, sizeof(ret->member), "%.*s", (int)n, text);
	ret->is_less = *operator == '<' || *operator == '!';
	ret->is_greater = *operator == '>' || *operator == '!';
	ret->is_equal = *operator != '!' && operator[n_operator - 1] == '=';
	ret->value = operator + n_operator;
	return true;
}

bool where_is_valid(const char *text)
{
	struct condition condition;

	return parse(text, &condition);
}

static bool is_fulfilled(const struct condition *condition, const json_t *element, bool *ret_has)
{
	char text[LIST_TEXT_MAX];
	const char *name = condition->member, *value = list_member(element, condition->member, text, sizeof(text));
	const json_t *member = json_object_get(list_holder(element, &name), name);
	int order;

	if (json_is_boolean(member)) /* as JSON has it, not as the tables */
		value = json_is_true(member) ? "true" : "false";
	if (!value) /* what is not known is not "another one" */
		return false;
	*ret_has = true;
	order = strverscmp(value, condition->value);
	return order < 0 ? condition->is_less : order > 0 ? condition->is_greater : condition->is_equal;
}

const char *where_keep(json_t *list, const json_t *conditions)
{
	json_t *text;
	size_t k;

	json_array_foreach(conditions, k, text) {
		struct condition condition;
		bool has = json_array_size(list) == 0;

		if (!parse(json_string_value(text), &condition))
			continue;
		for (size_t i = json_array_size(list); i-- > 0;)
			if (!is_fulfilled(&condition, json_array_get(list, i), &has))
				(void)json_array_remove(list, i);
		if (!has)
			return json_string_value(text);
	}
	return NULL;
}
