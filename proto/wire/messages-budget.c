/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages.h: what a sandbox may use, and the command that changes it.
 */
#include "wire/messages-private.h"

#define LIMIT_MAX (UINT64_C(1) << 53) /* what JSON's numbers carry */

bool budget_is_set(const struct budget *budget)
{
	return budget->cpu_us || budget->memory_mib_ms || budget->egress_bytes || budget->wall_us;
}

bool budget_is_equal(const struct budget *a, const struct budget *b)
{
	return a->cpu_us == b->cpu_us && a->memory_mib_ms == b->memory_mib_ms && a->egress_bytes == b->egress_bytes &&
	       a->wall_us == b->wall_us && a->pauses == b->pauses;
}

bool budget_is_valid(const struct budget *budget)
{
	return budget->cpu_us <= LIMIT_MAX && budget->memory_mib_ms <= LIMIT_MAX && budget->egress_bytes <= LIMIT_MAX &&
	       budget->wall_us <= LIMIT_MAX;
}

Croft__Budget *budget_encode(const struct budget *budget)
{
	Croft__Budget *to = NEW(budget, Budget);

	if (!to)
		return NULL;
	to->cpu_us = budget->cpu_us;
	to->memory_mib_ms = budget->memory_mib_ms;
	to->egress_bytes = budget->egress_bytes;
	to->wall_us = budget->wall_us;
	to->pause = budget->pauses;
	return to;
}

int budget_decode(const Croft__Budget *message, struct budget *ret, struct err *reterr)
{
	*ret = (struct budget){ .cpu_us = 0 };
	if (!message)
		return 0;
	ret->cpu_us = message->cpu_us;
	ret->memory_mib_ms = message->memory_mib_ms;
	ret->egress_bytes = message->egress_bytes;
	ret->wall_us = message->wall_us;
	ret->pauses = message->pause;
	return budget_is_valid(ret) ? 0 : refuse(reterr, "budget");
}

struct sandbox_spec *spec_with_budget(const struct sandbox_spec *spec, const struct budget *budget)
{
	struct sandbox_spec *copy = spec_with_network(spec, &spec->network);

	if (copy)
		copy->budget = *budget;
	return copy;
}

Croft__BudgetUpdate *budget_command_encode(const struct budget_command *command)
{
	Croft__BudgetUpdate *to = NEW(budget_update, BudgetUpdate);

	if (!to)
		return NULL;
	to->generation = command->generation;
	to->number = command->number;
	if (!put_text(&to->sandbox, command->sandbox) || !put_text(&to->operation, command->operation) ||
		!(to->budget = budget_encode(&command->budget)))
		return DROP(to);
	return to;
}

int budget_command_decode(const Croft__BudgetUpdate *message, struct budget_command *ret, struct err *reterr)
{
	struct budget_command command = { .number = message->number };
	int r;

	if (!take_target(command.sandbox, &command.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	r = budget_decode(message->budget, &command.budget, reterr);
	if (r == 0)
		*ret = command;
	return r;
}
