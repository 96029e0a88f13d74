/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node's subcommands, a file each. They print to standard output what was asked for and to
 * standard error what went wrong; the value is the exit status: 0 done, 1 failed, 2 usage.
 */
#pragma once

#include "agent/options.h"

int command_doctor(const struct agent_options *options, int argc, char **argv);
int command_join(const struct agent_options *options, int argc, char **argv);
int command_run(const struct agent_options *options, int argc, char **argv);
int command_drain(const struct agent_options *options, int argc, char **argv);
int command_undrain(const struct agent_options *options, int argc, char **argv);
int command_export(const struct agent_options *options, int argc, char **argv);
int command_import(const struct agent_options *options, int argc, char **argv);
int command_list(const struct agent_options *options, int argc, char **argv);
int command_stop(const struct agent_options *options, int argc, char **argv);
int command_uninstall(const struct agent_options *options, int argc, char **argv);
int command_endpoints(const struct agent_options *options, int argc, char **argv);
int command_status(const struct agent_options *options, int argc, char **argv);
int command_upgrade(const struct agent_options *options, int argc, char **argv);
int command_audit(const struct agent_options *options, int argc, char **argv);
int command_usage(const struct agent_options *options, int argc, char **argv);

/* Prints the failure for a person: what, whose, what to do. Returns 1, or 2 for what the caller
 * mistyped. */
int command_failed(const struct err *err);
