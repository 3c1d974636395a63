#include "command.h"

#include "exit.h"

#include "../../proto/names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void usage_append(char text[USAGE_MAX], const char *before, const char *word, const char *after)
{
	size_t length = strlen(text);

	snprintf(text + length, USAGE_MAX - length, "%s%s%s", before, word, after);
}

const char *usage_text(const struct command *command, char ret_text[USAGE_MAX])
{
	char option[64];

	snprintf(ret_text, USAGE_MAX, "%s", command->name);
	for (size_t i = 0; i < POSITIONALS_MAX && command->words[i].name; i++)
		usage_append(ret_text, command->words[i].may_miss ? " [" : " ", command->words[i].name,
			     command->words[i].may_miss ? "]" : "");
	for (const struct option_row *row = command->options; row && row->name; row++) {
		snprintf(option, sizeof(option), "--%s%s%s", row->name, row->value ? " " : "",
			 row->value ? row->value : "");
		if (command->required && strcmp(command->required, row->name) == 0)
			usage_append(ret_text, " ", option, "");
		else
			usage_append(ret_text, " [", option, row->repeats ? "]..." : "]");
	}
	return ret_text;
}

/* ---- words: what can't be a name is wrong use, and nobody need be asked ---- */

static const char ref_looks[] =
	"a REF is MODEL, MODEL@TAG, MODEL@ALIAS or a version id (32 hexadecimal digits)";
static const char name_looks[] = "a name has 1 to 128 letters, digits, '.', '_', '-' and '/'";

int words_count(const struct command *command, const struct arguments *arguments)
{
	char usage[USAGE_MAX], detail[USAGE_MAX + 32];
	int max = 0;

	snprintf(detail, sizeof(detail), "usage: gpuwmctl %s", usage_text(command, usage));
	while (max < POSITIONALS_MAX && command->words[max].name)
		max++;
	for (int i = arguments->positional_count; i < max; i++)
		if (!command->words[i].may_miss)
			return exit_with(EXIT_USAGE, detail, "%s needs %s", command->name,
					 command->words[i].name);
	if (arguments->positional_count > max && max == 0)
		return exit_with(EXIT_USAGE, detail, "%s takes options only, not '%s'", command->name,
				 arguments->positional[0]);
	if (arguments->positional_count > max)
		return exit_with(EXIT_USAGE, detail, "%s takes at most %d word%s, but %d are given",
				 command->name, max, max == 1 ? "" : "s", arguments->positional_count);
	return EXIT_DONE;
}

/* new: MODEL@TAG. */
static int pair_check(const char *text, bool new, struct error *error)
{
	const char *looks = new ? "write MODEL@TAG" : "write MODEL or MODEL@ALIAS";
	struct ref ref;
	const char *why;

	if (new && !strchr(text, '@'))
		return error_set(error, -EINVAL, looks, "'%s' has no tag", text);
	if (ref_parse(text, &ref, &why) < 0)
		return error_set(error, -EINVAL, looks, "'%s' %s", text, why);
	if (ref.has_id)
		return error_set(error, -EINVAL, looks, "'%s' is a version id", text);
	return 0;
}

int name_check(const char *text, struct error *error)
{
	const char *why = name_wrong(text);

	return why ? error_set(error, -EINVAL, name_looks, "'%s' %s", text, why) : 0;
}

static int word_check(enum word_kind kind, const char *text, struct error *error)
{
	struct ref ref;
	const char *why;
	uint8_t id[16];

	switch (kind) {
	case WORD_REF:
		if (ref_parse(text, &ref, &why) < 0)
			return error_set(error, -EINVAL, ref_looks, "'%s' %s", text, why);
		return 0;
	case WORD_NEW:
		return pair_check(text, true, error);
	case WORD_ALIAS_OF:
		return pair_check(text, false, error);
	case WORD_MODEL:
		if (strchr(text, '@'))
			return error_set(error, -EINVAL, "write MODEL alone", "'%s' has a tag or an alias",
					 text);
		return name_is_nameless(text) ? 0 : name_check(text, error);
	case WORD_ALIAS:
	case WORD_NAME:
	case WORD_PIN:
	case WORD_PIN_NEW:
		return name_check(text, error);
	case WORD_TARGET: /* the command says what an empty one means */
		return !text[0] || hex128_parse(text, id) == 0 ? 0 : name_check(text, error);
	default:
		return 0;
	}
}

int words_check(const struct command *command, const struct arguments *arguments)
{
	struct error error;

	for (int i = 0; i < arguments->positional_count; i++)
		if (word_check(command->words[i].kind, arguments->positional[i], &error) < 0)
			return exit_tell(EXIT_USAGE, error.code, error.message, error.detail);
	return EXIT_DONE;
}
