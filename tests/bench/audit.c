/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-audit [N]: what an entry of the node's audit log costs: N creates with a setup command and one command each, which is four
 * entries, into a log of the usual bounds in a directory of its own below the current one. Prints processor time and bytes of each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "audit/log.h"
#include "base/clock.h"
#include "base/fd.h"

#define ENTRIES 4

static double cpu_usec(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static json_t *entry_of(int which)
{
	static const char sandbox[] = "abcdefghijklmnopqrst", trace[] = "4bf92f3577b34da6a3ce929d0e0e4736", span[] = "00f067aa0ba902b7",
			  hash[] = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

	switch (which) {
	case 0:
		return json_pack("{s:s, s:s, s:s, s:s}", "kind", "setup", "sandbox", sandbox, "trace", trace, "command", "pip install -r requirements.txt");
	case 1:
		return json_pack("{s:s, s:s, s:i, s:s}", "kind", "setup-ended", "sandbox", sandbox, "exit", 0, "tail", "Successfully installed");
	case 2:
		return json_pack("{s:s, s:s, s:s, s:s, s:s, s:[s, s, s], s:b, s:s, s:s, s:[s]}", "kind", "command", "sandbox", sandbox, "trace", trace,
			"span", span, "user", "user", "command", "sh", "-c", "python3 main.py --epochs 3", "command_is_cut", 0, "command_sha256", hash, "cwd",
			"/home/user", "environment", "PYTHONPATH");
	default:
		return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:{s:i, s:s, s:s}, s:{s:i, s:s}}", "kind", "ended", "sandbox", sandbox, "trace",
			trace, "span", span, "pid", 77, "took_ms", 1200, "exit", 0, "stdout", "size", 64, "sha256", hash, "head",
			"epoch 1 loss 0.5\nepoch 2 loss 0.4\nepoch 3 loss 0.3\ndone in 1.2 s", "stderr", "size", 0, "sha256", hash);
	}
}

int main(int argc, char **argv)
{
	const int n = argc > 1 ? atoi(argv[1]) : 10000;
	char directory[] = "bench-audit-XXXXXX";
	struct audit_log *log;
	struct audit_verdict verdict;
	const char *line;
	struct audit_reader *reader;
	uint64_t bytes = 0;
	size_t size;
	double began, took;
	struct err err = ERR_NULL;
	int failed = 0;

	if (!mkdtemp(directory) || audit_log_open(&log, &(struct audit_config){ directory, UINT64_C(64) << 20, INT64_MAX / 4 }, 0, &err) < 0)
		return 1;
	began = cpu_usec();
	for (int i = 0; i < n * ENTRIES; i++)
		failed += audit_log_append(log, entry_of(i % ENTRIES), clock_realtime_usec(), &err) < 0;
	took = cpu_usec() - began;
	audit_log_close(log);
	if (audit_reader_new(&reader, directory, "", &err) < 0)
		return 1;
	while (audit_reader_next(reader, SIZE_MAX, &line, &size, &err) == 0 && line)
		bytes += size + 1;
	audit_reader_free(reader);
	began = cpu_usec();
	if (audit_log_verify(directory, &verdict, &err) < 0 || failed > 0)
		(void)fprintf(stderr, "bench-audit: %s\n", err.msg);
	(void)printf("%d creates of %d entries: %.1f us of processor and %.0f bytes a create; verifying them %.1f us an entry\n", n, ENTRIES,
		took / n, (double)bytes / (double)(verdict.head.seq - verdict.base.seq) * ENTRIES,
		(cpu_usec() - began) / (double)(verdict.head.seq - verdict.base.seq));
	(void)dir_remove(directory);
	return failed > 0;
}
