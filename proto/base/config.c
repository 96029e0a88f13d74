/* SPDX-License-Identifier: Apache-2.0
 *
 * See config.h.
 */
#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/fd.h"

#define FILE_MAX (1024 * 1024)
#define NAME_MAX_SIZE 96

static int parse_bool(const char *text, bool *ret)
{
	static const char *const yes[] = { "yes", "true", "1", "on" }, *const no[] = { "no", "false", "0", "off" };

	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		if (!strcasecmp(text, yes[i])) {
			*ret = true;
			return 0;
		}
		if (!strcasecmp(text, no[i])) {
			*ret = false;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_u64(const char *text, bool suffixes, uint64_t *ret)
{
	static const char units[] = "KMGT";
	unsigned long long value;
	const char *unit;
	char *end;

	if (!isdigit((unsigned char) *text))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (suffixes && *end && !end[1] && (unit = strchr(units, toupper((unsigned char) *end)))) {
		uint64_t factor = UINT64_C(1024) << (10 * (unit - units));

		return __builtin_mul_overflow((uint64_t) value, factor, ret) ? -EINVAL : 0;
	}
	if (*end)
		return -EINVAL;
	*ret = value;
	return 0;
}

static bool is_within(const struct config_option *option, uint64_t value)
{
	return value >= option->min && (option->max == 0 || value <= option->max);
}

static int set_option(const struct config_option *option, void *target, const char *text, const char *where,
	struct err *reterr)
{
	void *to = (char *) target + option->offset;
	uint64_t number = 0;
	int64_t usec = 0;
	int r = 0;

	switch (option->type) {
	case CONFIG_STRING: {
		char *copy = strdup(text);

		if (!copy)
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "%s: no memory", where);
		free(*(char **) to);
		*(char **) to = copy;
		return 0;
	}
	case CONFIG_BOOL:
		r = parse_bool(text, to);
		break;
	case CONFIG_U64:
	case CONFIG_SIZE:
		r = parse_u64(text, option->type == CONFIG_SIZE, &number);
		if (r == 0 && is_within(option, number))
			*(uint64_t *) to = number;
		else
			r = r ? r : -ERANGE;
		break;
	case CONFIG_DURATION:
		r = clock_parse_duration(text, &usec);
		if (r == 0 && is_within(option, (uint64_t) usec))
			*(int64_t *) to = usec;
		else
			r = r ? r : -ERANGE;
		break;
	}
	if (r == -ERANGE)
		return err_set(reterr, FAIL_CONFIG_INVALID, ERANGE, "%s: \"%s\" is outside %llu to %llu", where, text,
			(unsigned long long) option->min, (unsigned long long) option->max);
	if (r < 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s: \"%s\" is no value for %s", where, text,
			option->key);
	return 0;
}

/* "CROFT_GUEST_KERNEL" or "--guest-kernel". */
static void option_name(const struct config_option *option, bool flag, char *ret, size_t size)
{
	(void) snprintf(ret, size, "%s%s%s%s", flag ? "--" : "CROFT_", option->section, *option->section ? "_" : "",
		option->key);
	for (char *p = ret + (flag ? 2 : 0); *p; p++)
		*p = flag ? (*p == '_' || *p == '.' ? '-' : *p)
			  : (*p == '.' || *p == '-' ? '_' : (char) toupper((unsigned char) *p));
}

static const struct config_option *find_option(const struct config_option *options, size_t n, const char *section,
	const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(options[i].section, section) && !strcmp(options[i].key, key))
			return &options[i];
	return NULL;
}

static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char) *text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char) end[-1]))
		*--end = '\0';
	return text;
}

struct section {
	char name[64];
};

static int take_section(const char *text, const char *where, struct section *section, struct err *reterr)
{
	size_t len = strlen(text);

	if (len < 3 || text[len - 1] != ']' || len - 2 >= sizeof(section->name))
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s: not a section: %s", where, text);
	memcpy(section->name, text + 1, len - 2);
	section->name[len - 2] = '\0';
	return 0;
}

static int load_line(const struct config_option *options, size_t n, void *target, char *line, const char *where,
	struct section *section, struct err *reterr)
{
	const struct config_option *option;
	char *key = trim(line), *value;

	if (!*key || *key == '#' || *key == ';')
		return 0;
	if (*key == '[')
		return take_section(key, where, section, reterr);
	value = strchr(key, '=');
	if (!value)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s: not `key = value`: %s", where, key);
	*value = '\0';
	value = trim(value + 1);
	key = trim(key);
	option = find_option(options, n, section->name, key);
	if (!option)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s: unknown key \"%s\" in section [%s]", where, key,
			section->name);
	return set_option(option, target, value, where, reterr);
}

static int load_file(const struct config_option *options, size_t n, void *target, const char *file, struct err *reterr)
{
	struct section section = { "" };
	CLEANUP_FREE char *data = NULL;
	char where[512], *line, *next;
	int number = 1;
	size_t size;
	int r;

	r = file_read(file, FILE_MAX, &data, &size);
	if (r < 0)
		return err_set(reterr, FAIL_CONFIG_INVALID, -r, "cannot read %s", file);
	if (strlen(data) != size)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s holds a NUL byte", file);
	for (line = data; line && r == 0; line = next, number++) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		(void) snprintf(where, sizeof(where), "%s:%d", file, number);
		r = load_line(options, n, target, line, where, &section, reterr);
	}
	return r;
}

static int load_environment(const struct config_option *options, size_t n, void *target, struct err *reterr)
{
	char name[NAME_MAX_SIZE];

	for (size_t i = 0; i < n; i++) {
		const char *value;
		int r;

		option_name(&options[i], false, name, sizeof(name));
		value = getenv(name);
		if (!value)
			continue;
		r = set_option(&options[i], target, value, name, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

/* One flag at argv[i]. Returns how many arguments it took, or -errno. */
static int load_flag(const struct config_option *options, size_t n, void *target, int left, char **argv,
	struct err *reterr)
{
	char name[NAME_MAX_SIZE];

	for (size_t k = 0; k < n; k++) {
		size_t len;
		const char *value;
		int taken = 2, r;

		option_name(&options[k], true, name, sizeof(name));
		len = strlen(name);
		if (strncmp(argv[0], name, len) || (argv[0][len] && argv[0][len] != '='))
			continue;
		if (argv[0][len] == '=') {
			value = argv[0] + len + 1;
			taken = 1;
		} else if (options[k].type == CONFIG_BOOL) {
			value = "yes";
			taken = 1;
		} else if (left < 2) {
			return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%s needs a value", name);
		} else {
			value = argv[1];
		}
		r = set_option(&options[k], target, value, name, reterr);
		return r < 0 ? r : taken;
	}
	return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "unknown option %s", argv[0]);
}

static int load_flags(const struct config_option *options, size_t n, void *target, int *argc, char **argv,
	struct err *reterr)
{
	int kept = 1;

	for (int i = 1; i < *argc;) {
		int taken;

		if (!strcmp(argv[i], "--")) {
			for (i++; i < *argc; i++)
				argv[kept++] = argv[i];
			break;
		}
		if (strncmp(argv[i], "--", 2)) {
			argv[kept++] = argv[i++];
			continue;
		}
		if (!strcmp(argv[i], "--config") || !strncmp(argv[i], "--config=", 9)) {
			i += argv[i][8] ? 1 : 2;
			continue;
		}
		taken = load_flag(options, n, target, *argc - i, argv + i, reterr);
		if (taken < 0)
			return taken;
		i += taken;
	}
	*argc = kept;
	argv[kept] = NULL;
	return 0;
}

int config_load(const struct config_option *options, size_t n_options, void *target, const char *file, int *argc,
	char **argv, struct err *reterr)
{
	int r = 0;

	for (size_t i = 0; i < n_options; i++) /* whatever the struct held: set_option() frees old strings */
		if (options[i].type == CONFIG_STRING)
			*(char **) (void *) ((char *) target + options[i].offset) = NULL;
	for (size_t i = 0; i < n_options && r == 0; i++)
		r = set_option(&options[i], target, options[i].fallback, options[i].key, reterr);
	for (int i = 1; r == 0 && i < *argc && strcmp(argv[i], "--"); i++) {
		if (!strncmp(argv[i], "--config=", 9)) {
			file = argv[i] + 9;
			continue;
		}
		if (strcmp(argv[i], "--config"))
			continue;
		if (i + 1 >= *argc)
			r = err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "--config needs a file");
		else
			file = argv[i + 1];
	}
	if (r == 0 && file)
		r = load_file(options, n_options, target, file, reterr);
	if (r == 0)
		r = load_environment(options, n_options, target, reterr);
	if (r == 0)
		r = load_flags(options, n_options, target, argc, argv, reterr);
	if (r < 0)
		config_free(options, n_options, target);
	return r;
}

void config_free(const struct config_option *options, size_t n_options, void *target)
{
	for (size_t i = 0; i < n_options; i++) {
		char **to = (char **) (void *) ((char *) target + options[i].offset);

		if (options[i].type != CONFIG_STRING)
			continue;
		free(*to);
		*to = NULL;
	}
}

void config_print_help(const struct config_option *options, size_t n_options, FILE *out)
{
	char name[NAME_MAX_SIZE];

	(void) fprintf(out, "  %-34s %s\n", "--config FILE", "Read options from FILE.");
	for (size_t i = 0; i < n_options; i++) {
		option_name(&options[i], true, name, sizeof(name));
		(void) fprintf(out, "  %-34s %s%s%s%s\n", name, options[i].help, *options[i].fallback ? " [" : "",
			options[i].fallback, *options[i].fallback ? "]" : "");
	}
}

void config_print_sample(const struct config_option *options, size_t n_options, FILE *out)
{
	const char *section = "";

	for (size_t i = 0; i < n_options; i++) {
		if (strcmp(section, options[i].section)) {
			section = options[i].section;
			(void) fprintf(out, "\n[%s]\n", section);
		}
		(void) fprintf(out, "# %s%s\n#%s = %s\n", options[i].help, options[i].reloadable ? " (reloadable)" : "",
			options[i].key, options[i].fallback);
	}
}
