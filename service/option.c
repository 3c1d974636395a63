#include "option.h"

#include "suggest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORD_TEXT 64 /* of an unknown option, as it was written */
#define USAGE_TEXT 256

/* ---- values -------------------------------------------------------------- */

int take_text(const struct option_row *row, const char *text, void *data, struct error *error)
{
	(void)data, (void)error;
	*(const char **)row->into = text;
	return 0;
}

int option_number(const struct option_row *row, const char *text, uint64_t *ret_number, struct error *error)
{
	char *end;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (isdigit((unsigned char)text[0]) && !*end && !errno && number >= row->least && number <= row->most) {
		*ret_number = number;
		return 0;
	}
	if (row->most >= INT64_MAX)
		return error_set(error, -EINVAL, row->help, "--%s takes a number of at least %llu, not '%s'",
				 row->name, (unsigned long long)row->least, text);
	return error_set(error, -EINVAL, row->help, "--%s takes a number from %llu to %llu, not '%s'",
			 row->name, (unsigned long long)row->least, (unsigned long long)row->most, text);
}

int take_count(const struct option_row *row, const char *text, void *data, struct error *error)
{
	(void)data;
	return option_number(row, text, row->into, error);
}

int take_seconds(const struct option_row *row, const char *text, void *data, struct error *error)
{
	char *end;
	double seconds = strtod(text, &end);

	(void)data;
	/* strtod knows "nan" and "0x10", too. */
	if (!text[0] || text[strspn(text, "0123456789.")] || *end || seconds > OPTION_SECONDS_MAX ||
	    seconds * 1000 < (double)row->least)
		return error_set(error, -EINVAL, row->help,
				 "--%s takes seconds from %g to %d, such as 8 or 0.5, not '%s'", row->name,
				 (double)row->least / 1000, OPTION_SECONDS_MAX, text);
	*(uint64_t *)row->into = (uint64_t)(seconds * 1000 + 0.5);
	return 0;
}

int option_take(const struct option_row *row, const char *value, void *data, struct error *error)
{
	if (row->take)
		return row->take(row, value, data, error);
	*(bool *)row->into = true;
	return 0;
}

/* ---- the reader ---------------------------------------------------------- */

void option_reader_add(struct option_reader *reader, const struct option_row *rows)
{
	for (; rows && rows->name && reader->count < OPTION_ROWS_MAX; rows++)
		reader->rows[reader->count++] = rows;
}

bool option_is(const struct option_row *row, const char *word)
{
	const size_t length = strcspn(word, "=");

	if (word[1] != '-')
		return row->letter && row->letter == word[1];
	return strlen(row->name) == length - 2 && strncmp(row->name, word + 2, length - 2) == 0;
}

/* Whose options they are. */
static const char *option_owner(const struct option_reader *reader)
{
	return reader->command ? reader->command : reader->program;
}

static int option_unknown(const struct option_reader *reader, const char *word, struct error *error)
{
	char text[WORD_TEXT], detail[SUGGEST_TEXT + 2 * WORD_TEXT];
	struct suggestion suggestion;

	snprintf(text, sizeof(text), "%.*s", (int)strcspn(word, "="), word);
	suggest_begin(&suggestion, text + strspn(text, "-"));
	for (size_t i = 0; i < reader->count; i++)
		suggest_offer(&suggestion, reader->rows[i]->name);
	snprintf(detail, sizeof(detail), "%s%s%s%s%s%s --help lists the options",
		 suggestion.name[0] ? "did you mean --" : "", suggestion.name, suggestion.name[0] ? "? " : "",
		 reader->program, reader->command ? " " : "", reader->command ? reader->command : "");
	return error_set(error, -EINVAL, detail, "%s has no option %s%s", option_owner(reader), text,
			 reader->note ? reader->note : "");
}

/* word: the option, as it is written. rest: what is written together with it, or NULL. */
static int option_read(struct option_reader *reader, const char *word, const char *rest,
		       const struct option_row **ret_row, const char **ret_value, struct error *error)
{
	const char *after = reader->next < reader->argc ? reader->argv[reader->next] : NULL;
	const struct option_row *row;
	size_t i = 0;
	bool may_miss;

	while (i < reader->count && !option_is(reader->rows[i], word))
		i++;
	if (i == reader->count)
		return option_unknown(reader, word, error);
	row = reader->rows[i];
	may_miss = !row->value || row->value[0] == '[';
	if (word[1] != '-' && row->value)
		reader->letters = NULL;
	else if (word[1] != '-')
		rest = NULL; /* other letters */
	if (rest && !row->value)
		return error_set(error, -EINVAL, row->help, "--%s takes no value", row->name);
	if (!rest && row->value && after && (!may_miss || isdigit((unsigned char)after[0]))) {
		rest = after;
		reader->next++;
	}
	if (!rest && !may_miss)
		return error_set(error, -EINVAL, row->help, "--%s needs a value: --%s %s", row->name, row->name,
				 row->value);
	/* Another value would be lost. */
	if (reader->once && reader->given[i] && row->value && !row->repeats)
		return error_set(error, -EINVAL, row->help, "--%s was given twice, and takes one value",
				 row->name);
	reader->given[i] = true;
	*ret_row = row;
	*ret_value = rest;
	return 1;
}

int option_next(struct option_reader *reader, const struct option_row **ret_row, const char **ret_value,
		struct error *error)
{
	const char *word, *equals;
	char letter[] = "-x";

	if (reader->letters && *reader->letters) {
		letter[1] = *reader->letters++;
		return option_read(reader, letter, *reader->letters ? reader->letters : NULL, ret_row,
				   ret_value, error);
	}
	if (reader->next >= reader->argc)
		return 0;
	word = reader->argv[reader->next++];
	if (reader->words_only || word[0] != '-' || !word[1]) {
		*ret_row = NULL;
		*ret_value = word;
		return 1;
	}
	if (word[1] == '-' && word[2]) {
		equals = strchr(word, '=');
		return option_read(reader, word, equals ? equals + 1 : NULL, ret_row, ret_value, error);
	}
	if (word[1] == '-')
		reader->words_only = true;
	else
		reader->letters = word + 1;
	return option_next(reader, ret_row, ret_value, error);
}

static bool option_is_given(const struct option_reader *reader, const char *name)
{
	for (size_t i = 0; i < reader->count; i++)
		if (strcmp(reader->rows[i]->name, name) == 0)
			return reader->given[i];
	return false;
}

int option_needs(const struct option_reader *reader, const char *required, struct error *error)
{
	for (size_t i = 0; i < reader->count; i++) {
		const struct option_row *row = reader->rows[i];

		if (reader->given[i] && row->needs && !option_is_given(reader, row->needs))
			return error_set(error, -EINVAL, row->help, "--%s needs --%s", row->name, row->needs);
		if (!reader->given[i] && required && strcmp(required, row->name) == 0)
			return error_set(error, -EINVAL, row->help, "%s needs --%s %s", option_owner(reader),
					 row->name, row->value);
	}
	return 0;
}

/* ---- the whole command line ---------------------------------------------- */

static const struct option_row always[] = {
	{"help", "show this help", .letter = 'h'},
	{"version", "print the version", .into = NULL},
	{0},
};

static struct option_reader reader_of(const struct command_line *line, int argc, char *const *argv)
{
	struct option_reader reader = {.program = line->program, .argc = argc, .argv = argv, .next = 1};

	option_reader_add(&reader, line->rows);
	option_reader_add(&reader, always);
	return reader;
}

int command_line_check(const struct command_line *line, int argc, char *const *argv, struct error *error)
{
	struct option_reader reader = reader_of(line, argc, argv);
	const struct option_row *row = NULL;
	const char *value;
	char detail[USAGE_TEXT];
	bool has_word;
	int r;

	while ((r = option_next(&reader, &row, &value, error)) > 0 && row) {
		if (row == &always[0])
			command_line_help(line, always);
		else if (row == &always[1])
			printf("%s %s\n", line->program, line->version);
		else
			continue;
		return 1;
	}
	if (r < 0)
		return r;
	has_word = r > 0;
	r = option_needs(&reader, line->required, error);
	if (r < 0)
		return r;
	if (has_word && !line->word) {
		snprintf(detail, sizeof(detail), "%s --help lists the options", line->program);
		return error_set(error, -EINVAL, detail, "%s takes options only, not '%s'", line->program,
				 value);
	}
	if (!has_word && line->word) {
		snprintf(detail, sizeof(detail), "usage: %s %s", line->program, line->usage);
		return error_set(error, -EINVAL, detail, "%s needs %s", line->program, line->word);
	}
	return 0;
}

int command_line_take(const struct command_line *line, int argc, char *const *argv, void *data,
		      char *const **ret_words, struct error *error)
{
	struct option_reader reader = reader_of(line, argc, argv);
	const struct option_row *row = NULL;
	const char *value;
	int r;

	while ((r = option_next(&reader, &row, &value, error)) > 0 && row) {
		r = option_take(row, value, data, error);
		if (r < 0)
			return r;
	}
	if (ret_words)
		*ret_words = argv + reader.next - (r > 0);
	return 0;
}

int command_line_read(const struct command_line *line, int argc, char *const *argv, char *const **ret_words,
		      struct error *error)
{
	int r = command_line_check(line, argc, argv, error);

	return r == 0 ? command_line_take(line, argc, argv, NULL, ret_words, error) : r;
}
