#include "command.h"

#include "exit.h"
#include "output.h"

#include "../../proto/wire/transport.h"

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

static int number_parse(const char *name, const char *text, uint64_t max, uint64_t *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || *ret_number > max)
		return exit_with(EXIT_USAGE, NULL, "--%s takes a number up to %llu, not '%s'", name,
				 (unsigned long long)max, text);
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
			 "--%s takes a time such as 30s, 500ms, 5m or 2h, at most %lluh, not '%s'", name,
			 (unsigned long long)max_ms / 3600000, text);
}

/* 2G, 512M; 2097152 is bytes. gpuwmd judges the size. */
int take_segment_bytes(struct arguments *arguments, const struct option_row *row, const char *text)
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
		return exit_with(EXIT_USAGE, NULL, "--%s takes a size such as 2G, 512M or 2097152, not '%s'",
				 row->name, text);
	arguments->segment_bytes = number << shift;
	return EXIT_DONE;
}

/* What can be printed: descriptors can't. */
int take_transport(struct arguments *arguments, const struct option_row *row, const char *text)
{
	struct error error;

	(void)arguments;
	if (strcmp(text, TRANSPORT_CUDA_IPC) == 0)
		return EXIT_DONE;
	if (strcmp(text, TRANSPORT_FD) == 0)
		return exit_with(EXIT_USAGE,
				 "a process gets descriptors with gpuwm_attach (C) or gpuwm.attach (Python)",
				 "--%s fd: descriptors can't be printed", row->name);
	transport_check(text, &error);
	return exit_with(EXIT_USAGE, "--transport takes cuda_ipc", "%s", error.message);
}

int take_rank(struct arguments *arguments, const struct option_row *row, const char *text)
{
	uint64_t rank;
	int code = number_parse(row->name, text, UINT32_MAX, &rank);

	arguments->rank = (uint32_t)rank;
	return code;
}

int take_ranks(struct arguments *arguments, const struct option_row *row, const char *text)
{
	uint64_t ranks;
	int code = number_parse(row->name, text, DEVICES_MAX, &ranks);

	if (code == EXIT_DONE && ranks == 0)
		return exit_with(EXIT_USAGE, NULL, "--%s takes a number from 1 to %d, not '0'", row->name,
				 DEVICES_MAX);
	arguments->ranks = (uint32_t)ranks;
	return code;
}

int take_cut(struct arguments *arguments, const struct option_row *row, const char *text)
{
	arguments->cut = text;
	return text[0] ? EXIT_DONE : (int)exit_with(EXIT_USAGE, NULL, "--%s is empty", row->name);
}

int take_pid(struct arguments *arguments, const struct option_row *row, const char *text)
{
	return number_parse(row->name, text, INT32_MAX, &arguments->pid);
}

int take_uid(struct arguments *arguments, const struct option_row *row, const char *text)
{
	const struct passwd *user;

	if (isdigit((unsigned char)text[0]))
		return number_parse(row->name, text, UINT32_MAX - 1, &arguments->uid);
	/* cppcheck-suppress getpwnamCalled ; there is one thread */
	user = getpwnam(text);
	if (!user)
		return exit_with(EXIT_USAGE, "gpuwmctl ps lists the users' numbers",
				 "--%s takes a user's name or number, and there is no user '%s' here",
				 row->name, text);
	arguments->uid = user->pw_uid;
	return EXIT_DONE;
}

int take_count(struct arguments *arguments, const struct option_row *row, const char *text)
{
	return number_parse(row->name, text, UINT64_MAX, &arguments->count);
}

int take_after_event(struct arguments *arguments, const struct option_row *row, const char *text)
{
	return number_parse(row->name, text, UINT64_MAX - 1, &arguments->after);
}

int take_after_time(struct arguments *arguments, const struct option_row *row, const char *text)
{
	return duration_parse(row->name, text, FORCE_AFTER_MS_MAX, &arguments->after_ms);
}

int take_timeout(struct arguments *arguments, const struct option_row *row, const char *text)
{
	return duration_parse(row->name, text, TIMEOUT_MS_MAX, &arguments->timeout_ms);
}

int take_lines(struct arguments *arguments, const struct option_row *row, const char *text)
{
	return number_parse(row->name, text, UINT32_MAX, &arguments->lines);
}

int take_wait_seconds(struct arguments *arguments, const struct option_row *row, const char *text)
{
	uint64_t seconds = 0;
	int code = text ? number_parse(row->name, text, INT64_MAX / 1000, &seconds) : EXIT_DONE;

	arguments->wait_ms = text ? (int64_t)seconds * 1000 : -1;
	return code;
}

int take_watch(struct arguments *arguments, const struct option_row *row, const char *text)
{
	int code = text ? duration_parse(row->name, text, WATCH_MS_MAX, &arguments->watch_ms) : EXIT_DONE;

	if (!text)
		arguments->watch_ms = WATCH_MS_DEFAULT;
	if (code == EXIT_DONE && arguments->watch_ms < WATCH_MS_MIN)
		return exit_with(EXIT_USAGE, NULL, "--%s takes %d ms at least, not '%s'", row->name,
				 WATCH_MS_MIN, text);
	return code;
}

/* ---- texts ---------------------------------------------------------------- */

int take_device(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	/* It comes of an empty variable in a script, and would be any device. */
	if (!text[0])
		return exit_with(EXIT_USAGE, "gpuwmctl status lists the devices", "--device is empty");
	if (arguments->device_count == DEVICES_MAX)
		return exit_with(EXIT_USAGE, NULL, "--device was given more than %d times", DEVICES_MAX);
	arguments->devices[arguments->device_count++] = text;
	return EXIT_DONE;
}

/* FIELD=VALUE, cut where it is. gpuwmd judges both. */
int take_key(struct arguments *arguments, const struct option_row *row, const char *text)
{
	char *value = (char *)strchr(text, '='); /* glibc 2.43 returns a const one */

	(void)row;
	if (!value)
		return exit_with(EXIT_USAGE, "write, for example, --key dtype=bf16",
				 "--key takes FIELD=VALUE, not '%s'", text);
	if (arguments->key_count == KEY_FIELDS_MAX)
		return exit_with(EXIT_USAGE, NULL, "--key was given more than %d times", KEY_FIELDS_MAX);
	*value = '\0';
	arguments->key[arguments->key_count++] = (struct gpuwm_key_field){text, value + 1};
	return EXIT_DONE;
}

int take_alias(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	arguments->alias = text;
	return EXIT_DONE;
}

int take_expect(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	arguments->expect = text;
	return EXIT_DONE;
}

int take_fingerprint(struct arguments *arguments, const struct option_row *row, const char *text)
{
	arguments->fingerprint = text;
	if (strlen(text) == FINGERPRINT_TEXT && strspn(text, "0123456789abcdefABCDEF") == FINGERPRINT_TEXT)
		return EXIT_DONE;
	return exit_with(EXIT_USAGE, "gpuwmctl ls --peers prints it",
			 "--%s takes a fingerprint (64 hexadecimal digits), not '%s'", row->name, text);
}

int take_from(struct arguments *arguments, const struct option_row *row, const char *text)
{
	arguments->from_peers = strcmp(text, "peers") == 0;
	if (!arguments->from_peers)
		return exit_with(EXIT_USAGE, "peer://HOST/MODEL@TAG names one peer",
				 "--%s takes peers, not '%s'", row->name, text);
	return EXIT_DONE;
}

int take_config(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	arguments->config = text;
	return text[0] ? EXIT_DONE : (int)exit_with(EXIT_USAGE, NULL, "--config is empty");
}

int take_root(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	if (!text[0])
		return exit_with(EXIT_USAGE, "name the folder, or leave the option out", "--root is empty");
	if (arguments->root_count == ROOTS_MAX)
		return exit_with(EXIT_USAGE, NULL, "--root was given more than %d times", ROOTS_MAX);
	arguments->roots[arguments->root_count++] = text;
	return EXIT_DONE;
}

/* gpuwmd judges it. */
int take_budget(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	if (arguments->budget_count == DEVICES_MAX)
		return exit_with(EXIT_USAGE, NULL, "--budget was given more than %d times", DEVICES_MAX);
	arguments->budgets[arguments->budget_count++] = text;
	return EXIT_DONE;
}

int take_load(struct arguments *arguments, const struct option_row *row, const char *text)
{
	(void)row;
	arguments->load = text;
	return EXIT_DONE;
}

/* An empty one comes of an empty variable in a script, and would share nothing. */
int take_share_with(struct arguments *arguments, const struct option_row *row, const char *text)
{
	arguments->share_with = text;
	return text[0] ? EXIT_DONE : (int)exit_with(EXIT_USAGE, NULL, "--%s is empty", row->name);
}

int take_tier(struct arguments *arguments, const struct option_row *row, const char *text)
{
	arguments->tier = text;
	if (strcmp(text, "host") == 0 || strcmp(text, "files") == 0)
		return EXIT_DONE;
	return exit_with(EXIT_USAGE, NULL, "--%s takes host or files, not '%s'", row->name, text);
}

int take_for(struct arguments *arguments, const struct option_row *row, const char *text)
{
	arguments->freed = strcmp(text, "freed") == 0;
	if (!arguments->freed && strcmp(text, "ready") != 0)
		return exit_with(EXIT_USAGE, NULL, "--%s takes ready or freed, not '%s'", row->name, text);
	return EXIT_DONE;
}
