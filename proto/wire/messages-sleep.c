/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages.h: the commands that put a sandbox to sleep and wake it.
 */
#include "wire/messages-private.h"

Croft__PauseSandbox *pause_command_encode(const struct pause_command *command)
{
	Croft__PauseSandbox *to = NEW(pause_sandbox, PauseSandbox);

	if (!to)
		return NULL;
	to->generation = command->generation;
	to->number = command->number;
	if (!put_text(&to->sandbox, command->sandbox) || !put_text(&to->operation, command->operation))
		return DROP(to);
	return to;
}

Croft__ResumeSandbox *resume_command_encode(const struct resume_command *command)
{
	Croft__ResumeSandbox *to = NEW(resume_sandbox, ResumeSandbox);

	if (!to)
		return NULL;
	to->generation = command->generation;
	to->timeout_s = command->timeout_s;
	to->number = command->number;
	if (!put_text(&to->sandbox, command->sandbox) || !put_text(&to->operation, command->operation) ||
		(command->has_budget && !(to->budget = budget_encode(&command->budget))))
		return DROP(to);
	return to;
}

int pause_command_decode(const Croft__PauseSandbox *message, struct pause_command *ret, struct err *reterr)
{
	struct pause_command command = { .number = message->number };

	if (!take_target(command.sandbox, &command.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	*ret = command;
	return 0;
}

int resume_command_decode(const Croft__ResumeSandbox *message, struct resume_command *ret, struct err *reterr)
{
	struct resume_command command = { .timeout_s = message->timeout_s, .number = message->number };

	if (!take_target(command.sandbox, &command.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	if (command.timeout_s > SPEC_TIMEOUT_S_MAX)
		return refuse(reterr, "timeout_s");
	command.has_budget = message->budget != NULL;
	if (budget_decode(message->budget, &command.budget, reterr) < 0)
		return -EPROTO;
	*ret = command;
	return 0;
}
