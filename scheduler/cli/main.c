/* SPDX-License-Identifier: Apache-2.0
 *
 * croft: the command line of the API.
 */
#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/print.h"

int main(int argc, char **argv)
{
	struct err err = ERR_NULL;
	struct cli cli;
	int status;

	/* A reader that went away shows as EPIPE. */
	(void) signal(SIGPIPE, SIG_IGN);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || cli_init(&cli, &err) < 0) {
		(void) fputs("croft: cannot start: no memory\n", stderr);
		return EXIT_ERROR;
	}
	status = cli_run(&cli, argc, argv);
	if (print_finish() < 0) {
		(void) fputs("croft: cannot write to stdout\n", stderr);
		status = status == EXIT_OK ? EXIT_ERROR : status;
	}
	cli_deinit(&cli);
	curl_global_cleanup();
	return status;
}
