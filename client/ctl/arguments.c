#include "arguments.h"

#include "exit.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum global_option {
	GLOBAL_SOCKET = 1 << 16,
	GLOBAL_VERSION = 1 << 17,
	GLOBAL_HELP = 'h',
	GLOBAL_OUTPUT = 'o',
};

static const struct option options[] = {
	{"socket", required_argument, NULL, GLOBAL_SOCKET},
	{"output", required_argument, NULL, GLOBAL_OUTPUT},
	{"help", no_argument, NULL, GLOBAL_HELP},
	{"version", no_argument, NULL, GLOBAL_VERSION},
	{"device", required_argument, NULL, OPTION_DEVICE},
	{"rank", required_argument, NULL, OPTION_RANK},
	{"alias", required_argument, NULL, OPTION_ALIAS},
	{"swap", no_argument, NULL, OPTION_SWAP},
	{"wait", optional_argument, NULL, OPTION_WAIT},
	{"expect", required_argument, NULL, OPTION_EXPECT},
	{"retire-old", no_argument, NULL, OPTION_RETIRE_OLD},
	{"remove", no_argument, NULL, OPTION_REMOVE},
	{"no-wait", no_argument, NULL, OPTION_NO_WAIT},
	{"after", required_argument, NULL, OPTION_AFTER},
	{"count", required_argument, NULL, OPTION_COUNT},
	{"load", required_argument, NULL, OPTION_LOAD},
	{"keep-old", no_argument, NULL, OPTION_KEEP_OLD},
	{"dry-run", no_argument, NULL, OPTION_DRY_RUN},
	{"key", required_argument, NULL, OPTION_KEY},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"pid", required_argument, NULL, OPTION_PID},
	{"uid", required_argument, NULL, OPTION_UID},
	{"share-with", required_argument, NULL, OPTION_SHARE_WITH},
	{"segment-bytes", required_argument, NULL, OPTION_SEGMENT_BYTES},
	{NULL, 0, NULL, 0},
};

static int number_parse(const char *name, const char *text, uint64_t max, uint64_t *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || *ret_number > max)
		return exit_with(EXIT_USAGE, NULL, "%s takes a number up to %llu, not '%s'", name,
				 (unsigned long long)max, text);
	return EXIT_DONE;
}

/* --wait, --wait=5 and --wait 5; the last is not in getopt's grammar. */
static int wait_parse(struct arguments *arguments, int argc, char **argv)
{
	const char *text = optarg;
	uint64_t seconds;

	arguments->wait_ms = -1;
	arguments->given |= OPTION_WAIT;
	if (!text && optind < argc && isdigit((unsigned char)argv[optind][0]) && arguments->command &&
	    strcmp(arguments->command, "retire") == 0)
		text = argv[optind++];
	if (!text)
		return EXIT_DONE;
	if (number_parse("--wait", text, INT64_MAX / 1000, &seconds) != EXIT_DONE)
		return EXIT_USAGE;
	arguments->wait_ms = (int64_t)seconds * 1000;
	arguments->given |= OPTION_WAIT_SECONDS;
	return EXIT_DONE;
}

/* 500ms, 30s, 5m, 2h; 30 is 30 seconds. */
static int duration_parse(const char *name, const char *text, uint64_t max_ms, uint64_t *ret_ms)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"", 1000}, {"m", 60000}, {"h", 3600000}};
	char *end;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &end, 10);
	for (size_t i = 0; isdigit((unsigned char)text[0]) && errno == 0 && i < sizeof(units) / sizeof(*units);
	     i++) {
		if (strcmp(end, units[i].unit) != 0 || number > max_ms / units[i].ms)
			continue;
		*ret_ms = number * units[i].ms;
		return EXIT_DONE;
	}
	return exit_with(EXIT_USAGE, NULL,
			 "%s takes a time such as 30s, 500ms, 5m or 2h, at most %lluh, not '%s'", name,
			 (unsigned long long)max_ms / 3600000, text);
}

/* 2G, 512M; 2097152 is bytes. gpuwmd judges the size. */
static int size_parse(const char *name, const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	char *end;
	const char *unit;
	unsigned shift;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (!isdigit((unsigned char)text[0]) || errno != 0 || number == 0 || (*end && (!unit || end[1])) ||
	    number > UINT64_MAX >> shift)
		return exit_with(EXIT_USAGE, NULL, "%s takes a size such as 2G, 512M or 2097152, not '%s'",
				 name, text);
	*ret_bytes = number << shift;
	return EXIT_DONE;
}

/* An event's number, but of a retire how long it leaves to who has leases. */
static int after_parse(struct arguments *arguments)
{
	if (arguments->command && strcmp(arguments->command, "retire") == 0)
		return duration_parse("--after", optarg, FORCE_AFTER_MS_MAX, &arguments->after_ms);
	return number_parse("--after", optarg, UINT64_MAX - 1, &arguments->after);
}

static int device_add(struct arguments *arguments)
{
	/* It comes of an empty variable in a script, and would be any device. */
	if (!optarg[0])
		return exit_with(EXIT_USAGE, "gpuwmctl status lists the devices", "--device is empty");
	if (arguments->device_count == DEVICES_MAX)
		return exit_with(EXIT_USAGE, NULL, "--device was given more than %d times", DEVICES_MAX);
	arguments->devices[arguments->device_count++] = optarg;
	return EXIT_DONE;
}

/* FIELD=VALUE, cut where it is. gpuwmd judges both. */
static int key_add(struct arguments *arguments)
{
	char *value = strchr(optarg, '=');

	if (!value)
		return exit_with(EXIT_USAGE, "write, for example, --key dtype=bf16",
				 "--key takes FIELD=VALUE, not '%s'", optarg);
	if (arguments->key_count == KEY_FIELDS_MAX)
		return exit_with(EXIT_USAGE, NULL, "--key was given more than %d times", KEY_FIELDS_MAX);
	*value = '\0';
	arguments->key[arguments->key_count++] = (struct gpuwm_key_field){optarg, value + 1};
	return EXIT_DONE;
}

static int output_parse(struct arguments *arguments)
{
	arguments->json = strcmp(optarg, "json") == 0;
	if (!arguments->json && strcmp(optarg, "table") != 0)
		return exit_with(EXIT_USAGE, NULL, "-o takes json or table, not '%s'", optarg);
	return EXIT_DONE;
}

static void positional_add(struct arguments *arguments)
{
	if (!arguments->command)
		arguments->command = optarg;
	else if (arguments->positional_count++ < POSITIONALS_MAX)
		arguments->positional[arguments->positional_count - 1] = optarg;
}

static int global_parse(struct arguments *arguments, int option)
{
	switch (option) {
	case 1:
		positional_add(arguments);
		return EXIT_DONE;
	case GLOBAL_SOCKET:
		arguments->socket = optarg;
		return optarg[0] ? EXIT_DONE : (int)exit_with(EXIT_USAGE, NULL, "--socket is empty");
	case GLOBAL_OUTPUT:
		return output_parse(arguments);
	case GLOBAL_HELP:
		arguments->help = true;
		return EXIT_DONE;
	case GLOBAL_VERSION:
		arguments->version = true;
		return EXIT_DONE;
	default:
		return EXIT_USAGE;
	}
}

/* One that takes one value: another one would be lost. */
static int single_check(const struct arguments *arguments, int option)
{
	static const int single = OPTION_RANK | OPTION_ALIAS | OPTION_EXPECT | OPTION_LOAD | OPTION_AFTER |
				  OPTION_COUNT | OPTION_WAIT | OPTION_PID | OPTION_UID | OPTION_SHARE_WITH |
				  OPTION_SEGMENT_BYTES;

	for (const struct option *o = options; o->name; o++)
		if (o->val == option && (option & single) == option && (arguments->given & (unsigned)option))
			return exit_with(EXIT_USAGE, NULL, "--%s was given twice", o->name);
	return EXIT_DONE;
}

static int rank_parse(struct arguments *arguments)
{
	uint64_t rank;
	int code = number_parse("--rank", optarg, UINT32_MAX, &rank);

	arguments->rank = (uint32_t)rank;
	return code;
}

static int text_take(const char **ret_text)
{
	*ret_text = optarg;
	return EXIT_DONE;
}

/* An empty one comes of an empty variable in a script, and would share nothing. */
static int share_with_take(struct arguments *arguments)
{
	arguments->share_with = optarg;
	return optarg[0] ? EXIT_DONE : (int)exit_with(EXIT_USAGE, NULL, "--share-with is empty");
}

static int value_parse(struct arguments *arguments, int option)
{
	switch (option) {
	case OPTION_DEVICE:
		return device_add(arguments);
	case OPTION_KEY:
		return key_add(arguments);
	case OPTION_RANK:
		return rank_parse(arguments);
	case OPTION_ALIAS:
		return text_take(&arguments->alias);
	case OPTION_EXPECT:
		return text_take(&arguments->expect);
	case OPTION_LOAD:
		return text_take(&arguments->load);
	case OPTION_SHARE_WITH:
		return share_with_take(arguments);
	case OPTION_SEGMENT_BYTES:
		return size_parse("--segment-bytes", optarg, &arguments->segment_bytes);
	case OPTION_AFTER:
		return after_parse(arguments);
	case OPTION_PID:
		return number_parse("--pid", optarg, INT32_MAX, &arguments->pid);
	case OPTION_UID:
		return number_parse("--uid", optarg, UINT32_MAX - 1, &arguments->uid);
	case OPTION_COUNT:
		return number_parse("--count", optarg, UINT64_MAX, &arguments->count);
	default:
		return EXIT_DONE; /* it takes none */
	}
}

static int option_parse(struct arguments *arguments, int option, int argc, char **argv)
{
	switch (option) {
	case 1:
	case '?':
	case GLOBAL_SOCKET:
	case GLOBAL_OUTPUT:
	case GLOBAL_HELP:
	case GLOBAL_VERSION:
		return global_parse(arguments, option);
	case OPTION_WAIT:
		return wait_parse(arguments, argc, argv);
	default:
		arguments->given |= (unsigned)option;
		return value_parse(arguments, option);
	}
}

int arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
	int option;

	*ret_arguments = (struct arguments){.after = UINT64_MAX};
	/* '-': in the order of the command line, so that --wait knows its command. */
	while ((option = getopt_long(argc, argv, "-ho:", options, NULL)) != -1) {
		int code = single_check(ret_arguments, option);

		if (code == EXIT_DONE)
			code = option_parse(ret_arguments, option, argc, argv);
		if (code != EXIT_DONE)
			return code;
	}
	for (; optind < argc; optind++) {
		optarg = argv[optind];
		positional_add(ret_arguments);
	}
	return EXIT_DONE;
}

int arguments_alias(const struct arguments *arguments, char ret_model[ALIAS_TEXT], const char **ret_alias)
{
	char *at;

	if (strlen(arguments->positional[0]) >= ALIAS_TEXT)
		return exit_with(EXIT_USAGE, NULL, "the name of the alias is too long");
	strcpy(ret_model, arguments->positional[0]);
	at = strchr(ret_model, '@');
	if (at)
		*at = '\0';
	*ret_alias = at ? at + 1 : NULL;
	return EXIT_DONE;
}
