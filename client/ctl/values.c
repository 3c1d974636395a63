#include "command.h"

#include "exit.h"
#include "output.h"

#include "../../proto/names.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WATCH_MS_DEFAULT 2000 /* as watch(1) */
#define WATCH_MS_MIN 100 /* more often nobody could read it */
#define WATCH_MS_MAX 86400000 /* a day */
/* As long as a forced retire may leave to holders: nobody waits longer for one. */
#define TIMEOUT_MS_MAX FORCE_AFTER_MS_MAX

/* ---- of every command ---------------------------------------------------- */

int take_socket(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	arguments->socket = text;
	return text[0] ? EXIT_DONE : (int)exit_with(EXIT_USAGE, NULL, "--socket is empty");
}

int take_output(struct arguments *arguments, const struct option_row *row, const char *text)
{
	enum output_form form;

	(void)row;
	if (output_form_parse(text, &form) < 0)
		return exit_with(EXIT_USAGE, NULL, "-o takes %s, not '%s'", output_forms, text);
	output_choose(form);
	arguments->json = output_is_data();
	return EXIT_DONE;
}

int take_help(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row, (void)text;
	arguments->help = true;
	return EXIT_DONE;
}

int take_version(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row, (void)text;
	arguments->version = true;
	return EXIT_DONE;
}

/* ---- numbers, times, sizes ----------------------------------------------- */

int take_number(struct arguments *arguments, const struct option_row *row, const char *text)
{
	struct option_number *number = row->into;
	char *end;

	(void)arguments;
	errno = 0;
	*number = (struct option_number){.given = true, .value = strtoull(text, &end, 10)};
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || number->value > row->most)
		return exit_with(EXIT_USAGE, NULL, "--%s takes a number up to %llu, not '%s'", row->name,
				 (unsigned long long)row->most, text);
	return EXIT_DONE;
}

/* 500ms, 30s, 5m, 2h; 30 is 30 seconds. */
int take_time(struct arguments *arguments, const struct option_row *row, const char *text)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"", 1000}, {"m", 60000}, {"h", 3600000}};
	struct option_number *time = row->into;
	char *end;
	uint64_t number;

	(void)arguments;
	errno = 0;
	number = strtoull(text, &end, 10);
	for (size_t i = 0; isdigit((unsigned char)text[0]) && errno == 0 && i < sizeof(units) / sizeof(*units);
	     i++) {
		if (strcmp(end, units[i].unit) != 0 || number > row->most / units[i].ms)
			continue;
		*time = (struct option_number){.given = true, .value = number * units[i].ms};
		return EXIT_DONE;
	}
	return exit_with(EXIT_USAGE, NULL,
			 "--%s takes a time such as 30s, 500ms, 5m or 2h, at most %lluh, not '%s'", row->name,
			 (unsigned long long)row->most / 3600000, text);
}

/* 2G, 512M; 2097152 is bytes. gpuwmd judges the size. */
int take_size(struct arguments *arguments, const struct option_row *row, const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	const char *unit;
	unsigned shift;
	uint64_t number;

	(void)arguments;
	errno = 0;
	number = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (!isdigit((unsigned char)text[0]) || errno != 0 || number == 0 || (*end && (!unit || end[1])) ||
	    number > UINT64_MAX >> shift)
		return exit_with(EXIT_USAGE, NULL, "--%s takes a size such as 2G, 512M or 2097152, not '%s'",
				 row->name, text);
	*(uint64_t *)row->into = number << shift;
	return EXIT_DONE;
}

int take_timeout(struct arguments *arguments, const struct option_row *row, const char *text)
{
	const struct option_row time = {.name = row->name, .into = &arguments->limit, .most = TIMEOUT_MS_MAX};

	return take_time(arguments, &time, text);
}

int take_wait_seconds(struct arguments *arguments, const struct option_row *row, const char *text)
{
	const struct option_row seconds = {
		.name = row->name, .into = &arguments->limit, .most = INT64_MAX / 1000};

	*(bool *)row->into = true;
	if (!text)
		return EXIT_DONE;
	if (take_number(arguments, &seconds, text) != EXIT_DONE)
		return EXIT_USAGE;
	arguments->limit.value *= 1000;
	return EXIT_DONE;
}

int take_watch(struct arguments *arguments, const struct option_row *row, const char *text)
{
	const struct option_row time = {.name = row->name, .into = &arguments->watch, .most = WATCH_MS_MAX};

	arguments->watch = (struct option_number){.given = true, .value = WATCH_MS_DEFAULT};
	if (text && take_time(arguments, &time, text) != EXIT_DONE)
		return EXIT_USAGE;
	if (arguments->watch.value < WATCH_MS_MIN)
		return exit_with(EXIT_USAGE, NULL, "--%s takes %d ms at least, not '%s'", row->name,
				 WATCH_MS_MIN, text);
	return EXIT_DONE;
}

/* ---- texts ---------------------------------------------------------------- */

int take_text(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)arguments;
	*(const char **)row->into = text;
	return EXIT_DONE;
}

/* An empty text comes of an empty variable in a script, and would mean that the option is not there. */
static int empty_refuse(const struct option_row *row)
{
	return exit_with(EXIT_USAGE, row->kind == WORD_DEVICE ? "gpuwmctl status lists the devices" : row->help,
			 "--%s is empty", row->name);
}

int take_filled(struct arguments *arguments, const struct option_row *row, const char *text)
{
	if (!text[0])
		return empty_refuse(row);
	return take_text(arguments, row, text);
}

int take_name(struct arguments *arguments, const struct option_row *row, const char *text)
{
	if (name_check(text) != EXIT_DONE)
		return EXIT_USAGE;
	return take_text(arguments, row, text);
}

int take_version_id(struct arguments *arguments, const struct option_row *row, const char *text)
{
	uint8_t id[16];

	if (hex128_parse(text, id) < 0)
		return exit_with(EXIT_USAGE, "gpuwmctl show REF prints it",
				 "--%s takes a version id (32 hexadecimal digits), not '%s'", row->name, text);
	return take_text(arguments, row, text);
}

int take_texts(struct arguments *arguments, const struct option_row *row, const char *text)
{
	struct option_texts *list = row->into;

	(void)arguments;
	if (!text[0])
		return empty_refuse(row);
	if (list->count == row->most)
		return exit_with(EXIT_USAGE, NULL, "--%s was given more than %u times", row->name,
				 (unsigned)row->most);
	list->texts[list->count++] = text;
	return EXIT_DONE;
}

/* The text is cut where it is. gpuwmd judges the value. */
int take_key(struct arguments *arguments, const struct option_row *row, const char *text)
{
	struct option_key *key = row->into;
	char *value = (char *)strchr(text, '='); /* glibc 2.43 returns a const one */

	(void)arguments;
	if (!value)
		return exit_with(EXIT_USAGE, "write, for example, --key dtype=bf16",
				 "--%s takes FIELD=VALUE, not '%s'", row->name, text);
	if (key->count == KEY_FIELDS_MAX)
		return exit_with(EXIT_USAGE, NULL, "--%s was given more than %d times", row->name,
				 KEY_FIELDS_MAX);
	*value = '\0';
	key->fields[key->count++] = (struct gpuwm_key_field){text, value + 1};
	return name_check(text);
}
