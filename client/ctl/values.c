#include "command.h"

#include "output.h"

#include "../../proto/names.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#define WATCH_MS_DEFAULT 2000 /* as watch(1) */
#define WATCH_MS_MIN 100 /* more often nobody could read it */
#define WATCH_MS_MAX 86400000 /* a day */
/* As long as a forced retire may leave to holders: nobody waits longer for one. */
#define TIMEOUT_MS_MAX FORCE_AFTER_MS_MAX

/* ---- of every command ---------------------------------------------------- */

int take_socket(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct arguments *arguments = data;

	arguments->socket = text;
	return text[0] ? 0 : error_set(error, -EINVAL, row->help, "--%s is empty", row->name);
}

int take_output(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct arguments *arguments = data;
	enum output_form form;

	if (output_form_parse(text, &form) < 0)
		return error_set(error, -EINVAL, row->help, "-%c takes %s, not '%s'", row->letter, output_forms,
				 text);
	output_choose(form);
	arguments->json = output_is_data();
	return 0;
}

int take_help(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct arguments *arguments = data;

	(void)row, (void)text, (void)error;
	arguments->help = true;
	return 0;
}

int take_version(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct arguments *arguments = data;

	(void)row, (void)text, (void)error;
	arguments->version = true;
	return 0;
}

/* ---- numbers, times, sizes ----------------------------------------------- */

int take_number(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct option_number *number = row->into;

	(void)data;
	number->given = true;
	return option_number(row, text, &number->value, error);
}

/* 500ms, 30s, 5m, 2h; 30 is 30 seconds. */
int take_time(const struct option_row *row, const char *text, void *data, struct error *error)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"", 1000}, {"m", 60000}, {"h", 3600000}};
	struct option_number *time = row->into;
	char *end;
	uint64_t number;

	(void)data;
	errno = 0;
	number = strtoull(text, &end, 10);
	for (size_t i = 0; isdigit((unsigned char)text[0]) && errno == 0 && i < sizeof(units) / sizeof(*units);
	     i++) {
		if (strcmp(end, units[i].unit) != 0 || number > row->most / units[i].ms)
			continue;
		*time = (struct option_number){.given = true, .value = number * units[i].ms};
		return 0;
	}
	return error_set(error, -EINVAL, NULL,
			 "--%s takes a time such as 30s, 500ms, 5m or 2h, at most %lluh, not '%s'", row->name,
			 (unsigned long long)row->most / 3600000, text);
}

/* 2G, 512M; 2097152 is bytes. gpuwmd judges the size. */
int take_size(const struct option_row *row, const char *text, void *data, struct error *error)
{
	static const char units[] = "KMGT";
	char *end;
	const char *unit;
	unsigned shift;
	uint64_t number;

	(void)data;
	errno = 0;
	number = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (!isdigit((unsigned char)text[0]) || errno != 0 || number == 0 || (*end && (!unit || end[1])) ||
	    number > UINT64_MAX >> shift)
		return error_set(error, -EINVAL, NULL,
				 "--%s takes a size such as 2G, 512M or 2097152, not '%s'", row->name, text);
	*(uint64_t *)row->into = number << shift;
	return 0;
}

int take_timeout(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct arguments *arguments = data;
	const struct option_row time = {.name = row->name, .into = &arguments->limit, .most = TIMEOUT_MS_MAX};

	return take_time(&time, text, data, error);
}

int take_wait_seconds(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct arguments *arguments = data;
	const struct option_row seconds = {
		.name = row->name, .into = &arguments->limit, .most = INT64_MAX / 1000, .help = row->help};

	*(bool *)row->into = true;
	if (!text)
		return 0;
	if (take_number(&seconds, text, data, error) < 0)
		return -EINVAL;
	arguments->limit.value *= 1000;
	return 0;
}

int take_watch(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct arguments *arguments = data;
	const struct option_row time = {.name = row->name, .into = &arguments->watch, .most = WATCH_MS_MAX};

	arguments->watch = (struct option_number){.given = true, .value = WATCH_MS_DEFAULT};
	if (text && take_time(&time, text, data, error) < 0)
		return -EINVAL;
	if (arguments->watch.value < WATCH_MS_MIN)
		return error_set(error, -EINVAL, row->help, "--%s takes %d ms at least, not '%s'", row->name,
				 WATCH_MS_MIN, text);
	return 0;
}

/* ---- texts ---------------------------------------------------------------- */

/* An empty text comes of an empty variable in a script, and would mean that the option is not there. */
static int empty_refuse(const struct option_row *row, struct error *error)
{
	return error_set(error, -EINVAL,
			 row->kind == WORD_DEVICE ? "gpuwmctl status lists the devices" : row->help,
			 "--%s is empty", row->name);
}

int take_filled(const struct option_row *row, const char *text, void *data, struct error *error)
{
	if (!text[0])
		return empty_refuse(row, error);
	return take_text(row, text, data, error);
}

int take_name(const struct option_row *row, const char *text, void *data, struct error *error)
{
	if (name_check(text, error) < 0)
		return -EINVAL;
	return take_text(row, text, data, error);
}

int take_version_id(const struct option_row *row, const char *text, void *data, struct error *error)
{
	uint8_t id[16];

	if (hex128_parse(text, id) < 0)
		return error_set(error, -EINVAL, "gpuwmctl show REF prints it",
				 "--%s takes a version id (32 hexadecimal digits), not '%s'", row->name, text);
	return take_text(row, text, data, error);
}

int take_texts(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct option_texts *list = row->into;

	(void)data;
	if (!text[0])
		return empty_refuse(row, error);
	if (list->count == row->most)
		return error_set(error, -EINVAL, NULL, "--%s was given more than %u times", row->name,
				 (unsigned)row->most);
	list->texts[list->count++] = text;
	return 0;
}

/* The text is cut where it is. gpuwmd judges the value. */
int take_key(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct option_key *key = row->into;
	char *value = (char *)strchr(text, '='); /* glibc 2.43 returns a const one */

	(void)data;
	if (!value)
		return error_set(error, -EINVAL, "write, for example, --key dtype=bf16",
				 "--%s takes FIELD=VALUE, not '%s'", row->name, text);
	if (key->count == KEY_FIELDS_MAX)
		return error_set(error, -EINVAL, NULL, "--%s was given more than %d times", row->name,
				 KEY_FIELDS_MAX);
	*value = '\0';
	key->fields[key->count++] = (struct gpuwm_key_field){text, value + 1};
	return name_check(text, error);
}

int take_user(const struct option_row *row, const char *text, void *data, struct error *error)
{
	const struct passwd *user;

	if (isdigit((unsigned char)text[0]))
		return take_number(row, text, data, error);
	/* cppcheck-suppress getpwnamCalled ; there is one thread */
	user = getpwnam(text);
	if (!user)
		return error_set(error, -EINVAL, "gpuwmctl clients lists the users' numbers",
				 "--%s takes a user's name or number, and there is no user '%s' here",
				 row->name, text);
	*(struct option_number *)row->into = (struct option_number){.given = true, .value = user->pw_uid};
	return 0;
}
