/* SPDX-License-Identifier: Apache-2.0
 *
 * croft top: the answers of the dashboard on a terminal, live. The terminal is its own again however this ends but by SIGKILL.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/args.h"
#include "cli/print.h"
#include "cli/top.h"

#define INTERVAL_US (2 * USEC_PER_SEC)
#define INTERVAL_LEAST_US (500 * USEC_PER_MSEC)
#define ASK_US (10 * USEC_PER_SEC)
#define WIDTH_ONCE 120
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
#define INTERRUPT 3 /* ^C and ^Z, which a raw terminal hands over */
#define SUSPEND 26

static const char *const windows[] = { "5m", "1h", "24h", "30d" };

static volatile sig_atomic_t is_over, is_resized;

static void on_over(int signo)
{
	is_over = signo;
}

static void on_resized(int signo)
{
	(void) signo;
	is_resized = 1;
}

/* ---- asking ---- */

void top_data_deinit(struct top_data *data)
{
	json_decref(data->stages);
	json_decref(data->failures);
	json_decref(data->capacity);
	json_decref(data->fleet);
	*data = (struct top_data){ 0 };
}

static int ask(const struct cli *cli, const char *path, const volatile sig_atomic_t *stop, json_t **ret, struct failure *failure)
{
	const struct api_call call = { .method = "GET", .path = path, .timeout_us = ASK_US, .stop = stop };

	return api_call(cli, &call, ret, failure);
}

/* All pages as one answer. */
static int ask_fleet(const struct cli *cli, bool with_nodes, const volatile sig_atomic_t *stop, json_t **ret, struct failure *failure)
{
	char path[96];
	int r = ask(cli, with_nodes ? "/v1/fleet?limit=2000" : "/v1/fleet?limit=0", stop, ret, failure);

	while (r == 0 && with_nodes && json_is_string(json_object_get(*ret, "next"))) {
		json_t *more = NULL;

		(void) snprintf(path, sizeof(path), "/v1/fleet?limit=2000&after=%.32s", json_string_value(json_object_get(*ret, "next")));
		r = ask(cli, path, stop, &more, failure);
		if (r == 0) {
			(void) json_array_extend(json_object_get(*ret, "nodes"), json_object_get(more, "nodes"));
			(void) json_object_set(*ret, "next", json_object_get(more, "next"));
		}
		json_decref(more);
	}
	return r;
}

int top_data_ask(const struct cli *cli, const char *window, bool with_nodes, const volatile sig_atomic_t *stop, struct top_data *data,
	struct failure *failure)
{
	struct top_data fresh = { 0 };
	json_t *who = NULL;
	char path[96];
	const char *role;
	bool watches;
	int r = ask(cli, "/v1/whoami", stop, &who, failure);

	role = json_string_value(json_object_get(who, "role"));
	watches = role && strcmp(role, "tenant") != 0;
	json_decref(who);
	(void) snprintf(path, sizeof(path), "/v1/stages?window=%s&scope=%s", window, watches ? "all" : "own");
	if (r == 0)
		r = ask(cli, path, stop, &fresh.stages, failure);
	(void) snprintf(path, sizeof(path), "/v1/failures?window=%s&scope=%s&limit=100", strcmp(window, "30d") != 0 ? window : "24h",
		watches ? "all" : "own");
	if (r == 0)
		r = ask(cli, path, stop, &fresh.failures, failure);
	if (r == 0 && watches)
		r = ask(cli, "/v1/capacity", stop, &fresh.capacity, failure);
	if (r == 0 && watches)
		r = ask_fleet(cli, with_nodes, stop, &fresh.fleet, failure);
	if (r < 0) {
		top_data_deinit(&fresh);
		return r;
	}
	top_data_deinit(data);
	*data = fresh;
	return 0;
}

/* ---- the terminal ---- */

static struct termios cooked;

static void enter_terminal(void)
{
	struct termios raw = cooked;

	cfmakeraw(&raw);
	(void) tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	(void) fputs(ENTER, stdout);
	(void) fflush(stdout);
}

static void leave_terminal(void)
{
	(void) fputs(LEAVE, stdout);
	(void) fflush(stdout);
	(void) tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
}

static void suspend(void)
{
	leave_terminal();
	(void) raise(SIGSTOP);
	enter_terminal();
}

static void size_of_terminal(struct top_screen *screen)
{
	struct winsize size = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0)
		size = (struct winsize){ .ws_col = 80, .ws_row = 24 };
	screen->width = size.ws_col;
	screen->height = MAX(size.ws_row, 2);
}

static void catch_signals(void)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct sigaction action = { .sa_handler = on_over };

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		(void) sigaction(ends[i], &action, NULL);
	action.sa_handler = on_resized;
	(void) sigaction(SIGWINCH, &action, NULL);
}

/* ---- live ---- */

struct top {
	const struct cli *cli;
	struct top_screen screen;
	struct top_data data;
	size_t window;
	int64_t interval_us, next_us;
	char trouble[512];
};

static void ask_anew(struct top *top)
{
	struct failure failure = { 0 };
	const bool with_nodes = top->screen.view == TOP_NODES;

	top->trouble[0] = '\0';
	if (top_data_ask(top->cli, windows[top->window], with_nodes, &is_over, &top->data, &failure) < 0)
		(void) snprintf(top->trouble, sizeof(top->trouble), "%s (%s)", failure.err.msg, failure_info(failure.err.code)->name);
	failure_deinit(&failure);
	top->screen.trouble = *top->trouble ? top->trouble : NULL;
	top->next_us = clock_monotonic_usec() + top->interval_us;
}

static void draw(struct top *top)
{
	size_of_terminal(&top->screen);
	top->screen.window = windows[top->window];
	(void) fputs("\033[H", stdout);
	top_draw(stdout, &top->screen, &top->data);
	(void) fputs("\033[J", stdout);
	(void) fflush(stdout);
}

static void show(struct top *top, enum top_view view)
{
	const bool is_new = view == TOP_NODES && top->screen.view != TOP_NODES;

	if ((view == TOP_NODES || view == TOP_CAPACITY) && !top->data.fleet)
		return; /* not this key's */
	top->screen.view = view;
	if (is_new)
		ask_anew(top);
}

static void take_key(struct top *top, char key)
{
	switch (key) {
	case 'q':
	case INTERRUPT:
		is_over = SIGINT;
		break;
	case SUSPEND:
		suspend();
		break;
	case 'a':
		show(top, TOP_ALL);
		break;
	case 's':
		show(top, TOP_STAGES);
		break;
	case 'f':
		show(top, TOP_FAILURES);
		break;
	case 'n':
		show(top, TOP_NODES);
		break;
	case 'c':
		show(top, TOP_CAPACITY);
		break;
	case 'w':
		top->window = (top->window + 1) % ARRAY_LEN(windows);
		ask_anew(top);
		break;
	case 'p':
		top->screen.is_paused = !top->screen.is_paused;
		break;
	case ' ':
		ask_anew(top);
		break;
	default:
		break;
	}
}

/* false: the terminal is gone. */
static bool wait_for_key(struct top *top)
{
	const int64_t left_us = MAX(top->next_us - clock_monotonic_usec(), 0);
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	char keys[16];
	ssize_t n;

	if (poll(&in, 1, top->screen.is_paused ? 1000 : (int) (left_us / USEC_PER_MSEC) + 1) <= 0)
		return true;
	n = read(STDIN_FILENO, keys, sizeof(keys));
	if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
		return false;
	for (ssize_t i = 0; i < n && keys[0] != '\033'; i++) /* an arrow is none of ours */
		take_key(top, keys[i]);
	return true;
}

static int run_live(struct top *top)
{
	if (tcgetattr(STDIN_FILENO, &cooked) < 0)
		return EXIT_ERROR;
	catch_signals();
	top->screen.is_live = true;
	enter_terminal();
	while (!is_over) {
		if (clock_monotonic_usec() >= top->next_us && !top->screen.is_paused)
			ask_anew(top);
		is_resized = 0;
		draw(top);
		if (!is_resized && !is_over && !wait_for_key(top))
			break;
	}
	leave_terminal();
	return ferror(stdout) ? EXIT_ERROR : EXIT_OK;
}

/* ---- once ---- */

static json_t *or_null(json_t *value)
{
	return value ? json_incref(value) : json_null();
}

static int run_once(struct cli *cli, struct top *top)
{
	struct failure failure = { 0 };

	if (top_data_ask(cli, windows[top->window], true, NULL, &top->data, &failure) < 0)
		return print_failure(cli, "cannot show what goes on", &failure);
	if (cli->json)
		return print_json(json_pack("{s:o, s:o, s:o, s:o}", "stages", or_null(top->data.stages), "failures", or_null(top->data.failures),
			"capacity", or_null(top->data.capacity), "fleet", or_null(top->data.fleet)));
	if (isatty(STDOUT_FILENO) == 1)
		size_of_terminal(&top->screen);
	else
		top->screen.width = WIDTH_ONCE;
	top->screen.height = 0;
	top_draw(stdout, &top->screen, &top->data);
	return EXIT_OK;
}

static bool is_terminal(void)
{
	const char *term = getenv("TERM");

	return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && term && *term && strcmp(term, "dumb") != 0;
}

static bool find_window(const char *name, size_t *ret)
{
	for (*ret = 0; *ret < ARRAY_LEN(windows); ++*ret)
		if (!strcmp(windows[*ret], name))
			return true;
	return false;
}

int top(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct top top = { .cli = cli, .interval_us = INTERVAL_US };
	const char *window = "24h";
	bool is_once = false;
	const struct arg args[] = {
		{ "once", '1', ARG_FLAG, &is_once, NULL, "Print it once and end; no terminal is needed." },
		{ "window", 'w', ARG_STRING, &window, "TIME", "What began in the last 5m, 1h, 24h or 30d [24h]." },
		{ "interval", 'i', ARG_DURATION, &top.interval_us, "TIME", "How often to ask anew, from 500ms [2s]." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 1)
		return args_complain(command, "no arguments are taken");
	if (!find_window(window, &top.window))
		return args_complain(command, "--window is 5m, 1h, 24h or 30d");
	if (top.interval_us < INTERVAL_LEAST_US)
		return args_complain(command, "--interval is 500ms at least");
	if (!is_once && !cli->json && !is_terminal())
		return args_complain(command, "a terminal is needed: --once or -o json go without one");
	top.screen = (struct top_screen){ .url = cli->api_url, .window = windows[top.window],
		.has_color = isatty(STDOUT_FILENO) == 1 && !getenv("NO_COLOR") };
	status = is_once || cli->json ? run_once(cli, &top) : run_live(&top);
	top_data_deinit(&top.data);
	return status;
}
