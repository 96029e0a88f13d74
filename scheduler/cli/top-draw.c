/* SPDX-License-Identifier: Apache-2.0
 *
 * See top.h: the screen. The answers first, then what they rest on.
 */
#include <stdarg.h>
#include <string.h>

#include "cli/print.h"
#include "cli/top.h"

#define LINE_MAX_BYTES 1024
#define BAR 24
#define FEW_FAILURES 20 /* below everything else */

enum style { PLAIN, BOLD, DIM, GOOD, BAD, HEAD };
static const char *const escapes[] = { [PLAIN] = "", [BOLD] = "\033[1m", [DIM] = "\033[2m", [GOOD] = "\033[1;32m", [BAD] = "\033[1;31m",
	[HEAD] = "\033[7m" };

struct page {
	FILE *to;
	const struct top_screen *screen;
	unsigned int left; /* lines */
};

static void PRINTF_LIKE(3, 4) put(struct page *page, enum style style, const char *fmt, ...)
{
	const struct top_screen *screen = page->screen;
	const bool is_styled = screen->has_color && style != PLAIN;
	char line[LINE_MAX_BYTES];
	va_list ap;

	if (page->left == 0)
		return;
	va_start(ap, fmt);
	(void) vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (char *p = line; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			*p = '?';
	if (strlen(line) > screen->width)
		line[screen->width] = '\0';
	(void) fprintf(page->to, "%s%s%s%s%s", is_styled ? escapes[style] : "", line, is_styled ? "\033[0m" : "",
		screen->is_live ? "\033[K" : "", --page->left == 0 && screen->is_live ? "" : screen->is_live ? "\r\n" : "\n");
}

static json_int_t number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* "99.95 %", "-" where it is null. */
static const char *percent(const json_t *value, char *buf, size_t size)
{
	const double x = json_number_value(value);

	if (!json_is_number(value))
		(void) snprintf(buf, size, "-");
	else
		(void) snprintf(buf, size, "%.*f %%", x > 0.9995 && x < 1 ? 3 : x > 0.98 && x < 1 ? 2 : 1, x * 100);
	return buf;
}

static const char *share(json_int_t used, json_int_t total, char *buf, size_t size)
{
	(void) snprintf(buf, size, "%.0f %%", total > 0 ? 100.0 * (double) used / (double) total : 0.0);
	return buf;
}

static const char *word(const json_t *object, const char *name, char *buf, size_t size)
{
	if (!text_of(object, name, buf, size))
		(void) snprintf(buf, size, "-");
	return buf;
}

static const char *ms(const json_t *object, const char *name, char *buf, size_t size)
{
	return text_of_us((int64_t) (json_number_value(json_object_get(object, name)) * 1000.0), buf, size);
}

/* "2027-02-02" */
static const char *day(const json_t *object, const char *name, char *buf, size_t size)
{
	const char *text = json_string_value(json_object_get(object, name));

	(void) snprintf(buf, size, "%.10s", text ? text : "open");
	return buf;
}

static const json_t *stage_named(const json_t *answer, const char *name)
{
	json_t *stage;
	size_t i;

	json_array_foreach(json_object_get(answer, "stages"), i, stage)
		if (name && !strcmp(json_string_value(json_object_get(stage, "stage")), name))
			return stage;
	return NULL;
}

/* ---- the answers ---- */

static void put_product(struct page *page, const json_t *answer)
{
	const json_t *product = json_object_get(answer, "product");
	const double x = json_number_value(product);
	char text[3][32];

	if (!json_is_number(product)) {
		put(page, PLAIN, "Starts that succeed  -  (nothing was started in this time)");
		return;
	}
	put(page, x >= 0.99 ? GOOD : x < 0.95 ? BAD : BOLD, "Starts that succeed  %s  (%s to %s, %lld attempts)", percent(product, text[0], 32),
		percent(json_object_get(answer, "product_low"), text[1], 32), percent(json_object_get(answer, "product_high"), text[2], 32),
		number(stage_named(answer, "admit"), "attempts"));
}

static void put_weakest(struct page *page, const json_t *answer)
{
	const char *name = json_string_value(json_object_get(answer, "weakest"));
	const json_t *stage = stage_named(answer, name), *code = json_array_get(json_object_get(stage, "codes"), 0);
	char text[3][64], remedy[300];

	if (!stage) {
		put(page, PLAIN, "Weakest stage        %s", json_is_null(json_object_get(answer, "product")) ? "-" : "none: no start failed");
		return;
	}
	put(page, BOLD, "Weakest stage        %s, %s of its attempts succeed: %s, owner %s", name,
		percent(json_object_get(stage, "success"), text[0], 64), word(code, "code", text[1], 64), word(code, "owner", text[2], 64));
	put(page, DIM, "                     %s", word(code, "remedy", remedy, sizeof(remedy)));
}

static const json_t *first_out(const json_t *capacity)
{
	const json_t *first = NULL;
	json_t *pool;
	size_t i;

	json_array_foreach(json_object_get(capacity, "pools"), i, pool) {
		const char *when = json_string_value(json_object_get(json_object_get(pool, "forecast"), "runs_out"));

		if (when && (!first || strcmp(when, json_string_value(json_object_get(json_object_get(first, "forecast"), "runs_out"))) < 0))
			first = pool;
	}
	return first;
}

static void put_capacity(struct page *page, const json_t *capacity)
{
	const json_t *shape = json_object_get(capacity, "shape"), *first = first_out(capacity), *forecast = json_object_get(first, "forecast");
	json_int_t fits = 0, known = 0;
	char text[5][64];
	json_t *pool;
	size_t i;

	json_array_foreach(json_object_get(capacity, "pools"), i, pool) {
		fits += number(pool, "fits");
		known += strcmp(word(json_object_get(pool, "forecast"), "verdict", text[0], 64), "too_short") != 0;
	}
	put(page, fits ? BOLD : BAD, "Fit now              %lld more of %lld vCPU, %lld MiB", fits, number(shape, "vcpus"), number(shape, "memory_mib"));
	if (first)
		put(page, BOLD, "Runs out             %s: pool %s, %s (95 %% sure: %s to %s)", day(forecast, "runs_out", text[0], 64),
			word(first, "pool", text[1], 64), word(forecast, "by", text[2], 64), day(forecast, "earliest", text[3], 64),
			day(forecast, "latest", text[4], 64));
	else
		put(page, PLAIN, "Runs out             %s", known ? "no trend" : "not known yet: a forecast needs 7 days of use");
}

static void put_fleet(struct page *page, const json_t *fleet)
{
	static const char *const why[] = { "suspect", "lost", "cordoned", "draining", "quarantined", "unfit" };
	const json_t *sums = json_object_get(fleet, "sums");
	char out[200] = "";
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(why) && n < sizeof(out); i++)
		if (number(sums, why[i]) > 0)
			n += (size_t) snprintf(out + n, sizeof(out) - n, ", %lld %s", number(sums, why[i]), why[i]);
	if (number(sums, "nodes") == 0)
		put(page, BOLD, "Nodes                none has joined yet: `croft token create`, then `croft-node join` on a machine with KVM");
	else
		put(page, number(sums, "schedulable") ? BOLD : BAD, "Nodes                %lld of %lld take sandboxes%s; %lld sandboxes, %lld starting",
			number(sums, "schedulable"), number(sums, "nodes"), out, number(sums, "sandboxes"), number(sums, "starting"));
}

static void put_gap(struct page *page, const json_t *answer, const char *what)
{
	char from[32];

	if (json_is_false(json_object_get(answer, "complete")))
		put(page, BAD, "GAP in %s: not all since %s is held any more, %lld older records are gone", what, day(answer, "from", from, sizeof(from)),
			number(answer, "dropped"));
}

/* ---- what they rest on ---- */

static void bar(double before, double after, char ret[static BAR + 1])
{
	const int kept = (int) (after * BAR + 0.5), all = before > after ? MAX((int) (before * BAR + 0.5), kept + 1) : kept;

	for (int i = 0; i < BAR; i++)
		ret[i] = i < kept ? '#' : i < all ? 'x' : '.';
	ret[BAR] = '\0';
}

static void put_stages(struct page *page, const json_t *answer)
{
	const char *weakest = json_string_value(json_object_get(answer, "weakest"));
	double left = 1.0;
	json_t *stage;
	size_t i;

	put(page, HEAD, "%-18s %9s %9s %-*s %8s %7s %6s %9s %9s", "STAGE", "SUCCEED", "LEFT", BAR, "OF ALL STARTS", "ATTEMPTS", "FAILED", "SAVED", "P50",
		"P99");
	json_array_foreach(json_object_get(answer, "stages"), i, stage) {
		const json_t *success = json_object_get(stage, "success");
		const char *name = json_string_value(json_object_get(stage, "stage"));
		const bool was_tried = number(stage, "attempts") > 0;
		const double before = left;
		char text[4][32], drawn[BAR + 1], rest[32];

		if (json_is_number(success))
			left *= json_number_value(success);
		bar(before, left, drawn);
		(void) snprintf(rest, sizeof(rest), "%.1f %%", left * 100);
		put(page, weakest && !strcmp(name, weakest) ? BAD : PLAIN, "%-18s %9s %9s %-*s %8lld %7lld %6lld %9s %9s", name,
			was_tried ? percent(success, text[0], 32) : number(stage, "skipped") ? "skipped" : "-", rest, BAR, drawn, number(stage, "attempts"),
			number(stage, "failed"), number(stage, "saved"), was_tried ? ms(stage, "p50_ms", text[1], 32) : "-",
			was_tried ? ms(stage, "p99_ms", text[2], 32) : "-");
		if (!strcmp(name, "ready"))
			break; /* what a life has besides is no part of a start */
	}
}

static void put_failures(struct page *page, const json_t *answer)
{
	const char *owner;
	json_t *list, *one;
	char line[300];
	size_t n = 0, i;

	line[0] = '\0';
	json_object_foreach(json_object_get(answer, "owners"), owner, one)
		if (n < sizeof(line))
			n += (size_t) snprintf(line + n, sizeof(line) - n, "%s%s %lld", n ? ", " : "", owner, number(one, "failed"));
	put(page, BOLD, "Failures by owner: %s", line);
	put(page, HEAD, "%-9s %-14s %-26s %-12s %-20s %-20s", "WHEN", "STAGE", "CODE", "OWNER", "SANDBOX", "NODE");
	list = json_object_get(answer, "failures");
	json_array_foreach(list, i, one) {
		const char *when = json_string_value(json_object_get(one, "when"));
		char text[5][64];

		if (page->screen->view == TOP_ALL && i == FEW_FAILURES)
			break;
		put(page, json_is_true(json_object_get(one, "saved")) ? DIM : PLAIN, "%-9.8s %-14s %-26s %-12s %-20s %-20s%s", when && strlen(when) > 19 ? when + 11 : "-",
			word(one, "stage", text[0], 64), word(one, "code", text[1], 64), word(one, "owner", text[2], 64), word(one, "sandbox", text[3], 64),
			word(one, "node", text[4], 64), json_is_true(json_object_get(one, "saved")) ? " saved by a retry" : "");
	}
	if (json_array_size(list) == 0)
		put(page, PLAIN, "Nothing failed in this time.");
}

static const char *trouble_of(const json_t *node, char *buf, size_t size)
{
	const char *state = json_string_value(json_object_get(node, "state"));
	const char *fact = json_string_value(json_array_get(json_object_get(node, "facts"), 0));
	const char *unfit = json_string_value(json_object_get(node, "unfit"));

	(void) snprintf(buf, size, "%s", state && strcmp(state, "ready") != 0 ? state : fact ? fact : unfit ? unfit :
			json_is_true(json_object_get(node, "schedulable")) ? "takes sandboxes" : "not ready yet");
	return buf;
}

static void put_node(struct page *page, const json_t *node)
{
	char text[6][64];

	put(page, json_is_true(json_object_get(node, "schedulable")) ? PLAIN : BAD, "%-22.22s %-14s %-20s %9lld %7s %7s %7s %6lld of %lld",
		word(node, "hostname", text[0], 64), word(node, "pool", text[1], 64), trouble_of(node, text[2], 64), number(node, "sandboxes"),
		share(number(node, "memory_reserved_mib"), number(node, "memory_mib"), text[3], 64),
		share(number(node, "vcpus_reserved"), number(node, "vcpus"), text[4], 64),
		share(number(node, "disk_reserved_mib"), number(node, "disk_mib"), text[5], 64), number(node, "failures"), number(node, "starts"));
}

/* Those that take nothing first. */
static void put_nodes(struct page *page, const json_t *fleet)
{
	json_t *node;
	size_t i;

	put(page, HEAD, "%-22s %-14s %-20s %9s %7s %7s %7s %s", "HOST", "POOL", "STATE", "SANDBOXES", "MEMORY", "VCPUS", "DISK", "FAILED STARTS");
	for (int pass = 0; pass < 2; pass++)
		json_array_foreach(json_object_get(fleet, "nodes"), i, node)
			if (json_is_true(json_object_get(node, "schedulable")) == (pass == 1))
				put_node(page, node);
}

static void put_pools(struct page *page, const json_t *capacity)
{
	json_t *pool;
	size_t i;

	put(page, HEAD, "%-16s %8s %8s %7s %7s %7s %7s %7s %-10s %s", "POOL", "FIT NOW", "WAITING", "TAKING", "NODES", "MEMORY", "VCPUS", "DISK", "TREND",
		"RUNS OUT");
	json_array_foreach(json_object_get(capacity, "pools"), i, pool) {
		const json_t *used = json_object_get(pool, "used"), *total = json_object_get(pool, "total"), *forecast = json_object_get(pool, "forecast");
		const bool runs_out = json_is_string(json_object_get(forecast, "runs_out"));
		char text[6][64], change[300];

		put(page, number(pool, "fits") || !number(pool, "nodes") ? PLAIN : BAD, "%-16s %8lld %8lld %7lld %7lld %7s %7s %7s %-10s %s", word(pool, "pool", text[0], 64),
			number(pool, "fits"), number(pool, "waiting"), number(pool, "fitting"), number(pool, "nodes"),
			share(number(used, "memory_mib"), number(total, "memory_mib"), text[1], 64), share(number(used, "vcpus"), number(total, "vcpus"), text[2], 64),
			share(number(used, "disk_mib"), number(total, "disk_mib"), text[3], 64), word(forecast, "verdict", text[4], 64),
			runs_out ? day(forecast, "runs_out", text[5], 64) : "-");
		if (json_is_string(json_object_get(pool, "change")))
			put(page, DIM, "  to make room: %s", word(pool, "change", change, sizeof(change)));
	}
}

/* ---- all of it ---- */

const char *top_view_name(enum top_view view)
{
	static const char *const names[] = { [TOP_ALL] = "all", [TOP_STAGES] = "stages", [TOP_FAILURES] = "failures", [TOP_NODES] = "nodes",
		[TOP_CAPACITY] = "capacity" };

	return names[view];
}

static void put_head(struct page *page, const struct top_data *data)
{
	const struct top_screen *screen = page->screen;
	const char *as_of = json_string_value(json_object_get(data->stages, "as_of"));

	put(page, HEAD, "croft top  %s  last %s  as of %.19s UTC  %s%s", screen->url, screen->window, as_of ? as_of : "-", top_view_name(screen->view),
		screen->is_paused ? "  PAUSED" : "");
	if (screen->trouble)
		put(page, BAD, "NOT NEW: %s", screen->trouble);
}

void top_draw(FILE *to, const struct top_screen *screen, const struct top_data *data)
{
	struct page page = { to, screen, screen->height ? screen->height - (screen->is_live ? 1 : 0) : 100000 };
	const enum top_view view = screen->view;

	put_head(&page, data);
	if (data->stages) {
		put_product(&page, data->stages);
		put_weakest(&page, data->stages);
	}
	if (data->capacity)
		put_capacity(&page, data->capacity);
	if (data->fleet)
		put_fleet(&page, data->fleet);
	put_gap(&page, data->stages, "stages");
	put_gap(&page, data->failures, "failures");
	put(&page, PLAIN, "%s", "");
	if (data->stages && (view == TOP_ALL || view == TOP_STAGES))
		put_stages(&page, data->stages);
	if (view == TOP_ALL)
		put(&page, PLAIN, "%s", "");
	if (data->capacity && (view == TOP_CAPACITY || (view == TOP_ALL && !screen->height)))
		put_pools(&page, data->capacity);
	if (data->fleet && view == TOP_NODES)
		put_nodes(&page, data->fleet);
	if (view == TOP_ALL && !screen->height)
		put(&page, PLAIN, "%s", "");
	if (data->failures && (view == TOP_ALL || view == TOP_FAILURES))
		put_failures(&page, data->failures);
	if (!screen->is_live)
		return;
	while (page.left > 0)
		put(&page, PLAIN, "%s", "");
	page.left = 1;
	(void) fputs("\r\n", to);
	put(&page, DIM, "q quit  a all  s stages  f failures%s  w time  p pause  space now", data->fleet ? "  n nodes  c capacity" : "");
}
