#include "command.h"

#include "exit.h"
#include "output.h"

#include "../../service/suggest.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define WORD_TEXT 64 /* an option, as it was written */

const struct option_row global_options[] = {
	{.name = "socket",
	 .value = "PATH",
	 .repeats = true,
	 .take = take_socket,
	 .kind = WORD_FILE,
	 .help = "the workers' socket; admin.sock lies beside it"},
	{.name = "output",
	 .letter = 'o',
	 .value = "table|wide|json|name",
	 .repeats = true,
	 .take = take_output,
	 .help = "how to print: name is one reference a line"},
	{.name = "help", .letter = 'h', .repeats = true, .take = take_help, .help = "show this help"},
	{.name = "version", .repeats = true, .take = take_version, .help = "print the version of gpuwmctl"},
	{0},
};

/* What getopt is to know: the global options, and those of a command. */
struct grammar {
	const struct command *command; /* NULL: what stands before it */
	const struct option_row *rows[OPTION_ROWS_MAX];
	bool given[OPTION_ROWS_MAX];
	struct option longs[OPTION_ROWS_MAX + 1]; /* val: the row's number, and FIRST_ROW */
	char shorts[2 + 3 * OPTION_ROWS_MAX + 1];
	int count;
};
/* Above every letter; 1 is getopt's code for what is no option. */
#define FIRST_ROW 256

static bool value_may_miss(const struct option_row *row)
{
	return row->value && row->value[0] == '[';
}

static void grammar_add(struct grammar *grammar, const struct option_row *rows)
{
	for (; rows && rows->name && grammar->count < OPTION_ROWS_MAX; rows++) {
		int number = grammar->count++;
		int takes = !rows->value           ? no_argument
			    : value_may_miss(rows) ? optional_argument
						   : required_argument;
		size_t length = strlen(grammar->shorts);

		grammar->rows[number] = rows;
		grammar->longs[number] = (struct option){rows->name, takes, NULL, FIRST_ROW + number};
		if (rows->letter)
			snprintf(grammar->shorts + length, sizeof(grammar->shorts) - length, "%c%s",
				 rows->letter, rows->value ? ":" : "");
	}
}

/* order: '+' stops at the first word, '-' gives words as they come. */
static void grammar_make(struct grammar *grammar, char order, const struct command *command)
{
	*grammar = (struct grammar){.command = command, .shorts = {order, ':'}};
	grammar_add(grammar, global_options);
	if (command)
		grammar_add(grammar, command->options);
}

/* The number of the row; -1: there is none. */
static int row_of(const struct grammar *grammar, int code)
{
	for (int i = 0; i < grammar->count; i++)
		if (code == FIRST_ROW + i || (grammar->rows[i]->letter && code == grammar->rows[i]->letter))
			return i;
	return -1;
}

/* ---- what is wrong ------------------------------------------------------ */

static int option_refuse(const struct grammar *grammar, int code, char **argv)
{
	const int number = row_of(grammar, optopt);
	const struct option_row *row = number >= 0 ? grammar->rows[number] : NULL;
	const char *whose = grammar->command ? grammar->command->name : "gpuwmctl";
	const char *word = argv[optind - 1];
	char text[WORD_TEXT], detail[SUGGEST_TEXT + 2 * WORD_TEXT];
	struct suggestion suggestion;
	int beginnings = 0; /* rows that begin with what was written */

	if (row && code == ':')
		return exit_with(EXIT_USAGE, row->help, "--%s needs a value: --%s %s", row->name, row->name,
				 row->value);
	if (row)
		return exit_with(EXIT_USAGE, row->help, "--%s takes no value", row->name);
	if (optopt > 0 && optopt < FIRST_ROW && isprint(optopt))
		snprintf(text, sizeof(text), "-%c", optopt);
	else /* "--swap" of "--swap=x" */
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(word, "="), word);
	suggest_begin(&suggestion, text + strspn(text, "-"));
	for (int i = 0; strncmp(text, "--", 2) == 0 && i < grammar->count; i++) {
		suggest_offer(&suggestion, grammar->rows[i]->name);
		beginnings += strncmp(grammar->rows[i]->name, text + 2, strlen(text + 2)) == 0;
	}
	snprintf(detail, sizeof(detail), "%s%s%sgpuwmctl %s%s--help lists the options",
		 suggestion.name[0] ? "did you mean --" : "", suggestion.name, suggestion.name[0] ? "? " : "",
		 grammar->command ? whose : "", grammar->command ? " " : "");
	if (beginnings > 1)
		return exit_with(EXIT_USAGE, detail, "several options of %s begin with %s", whose, text);
	if (!grammar->command)
		return exit_with(EXIT_USAGE, detail,
				 "gpuwmctl has no option %s; a command's options stand after its name", text);
	return exit_with(EXIT_USAGE, detail, "%s has no option %s", whose, text);
}

/* ---- options and words --------------------------------------------------- */

static void word_add(struct arguments *arguments, const char *word)
{
	if (arguments->positional_count++ < POSITIONALS_MAX)
		arguments->positional[arguments->positional_count - 1] = word;
}

static int options_parse(struct grammar *grammar, int argc, char **argv, struct arguments *arguments)
{
	int code = EXIT_DONE, option;

	optind = 0; /* glibc: begin anew */
	opterr = 0;
	while (code == EXIT_DONE &&
	       (option = getopt_long(argc, argv, grammar->shorts, grammar->longs, NULL)) != -1) {
		const int number = row_of(grammar, option);
		const struct option_row *row;
		const char *value = optarg;

		if (option == 1) {
			word_add(arguments, optarg);
			continue;
		}
		if (number < 0) {
			code = option_refuse(grammar, option, argv);
			continue;
		}
		row = grammar->rows[number];
		/* --wait 5: a value that may be missing, and stands apart, is not in getopt's grammar. It is a number. */
		if (!value && value_may_miss(row) && optind < argc && isdigit((unsigned char)argv[optind][0]))
			value = argv[optind++];
		/* Another value would be lost. */
		if (grammar->given[number] && row->value && !row->repeats)
			return exit_with(EXIT_USAGE, row->help, "--%s was given twice, and takes one value",
					 row->name);
		grammar->given[number] = true;
		if (row->take)
			code = row->take(arguments, row, value);
		else
			*(bool *)row->into = true;
	}
	return code;
}

int arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
	struct grammar grammar;
	int code;

	output_choose_early(argc, argv);
	*ret_arguments = (struct arguments){.deadline_ms = -1};
	grammar_make(&grammar, '+', NULL);
	code = options_parse(&grammar, argc, argv, ret_arguments);
	if (code != EXIT_DONE || optind >= argc)
		return code;
	ret_arguments->command = argv[optind];
	ret_arguments->left_count = argc - optind;
	ret_arguments->left = argv + optind;
	return EXIT_DONE;
}

static bool row_is_given(const struct grammar *grammar, const char *name)
{
	for (int i = 0; i < grammar->count; i++)
		if (strcmp(grammar->rows[i]->name, name) == 0)
			return grammar->given[i];
	return false;
}

/* Whether each option has the one that it needs, and the option that the command needs is there. */
static int needs_check(const struct grammar *grammar, const struct arguments *arguments)
{
	const char *required = grammar->command->required;

	for (int i = 0; i < grammar->count; i++) {
		const struct option_row *row = grammar->rows[i];

		if (grammar->given[i] && row->needs && !row_is_given(grammar, row->needs))
			return exit_with(EXIT_USAGE, row->help, "--%s needs --%s", row->name, row->needs);
		if (required && strcmp(required, row->name) == 0 && !grammar->given[i] && !arguments->help)
			return exit_with(EXIT_USAGE, row->help, "%s needs --%s %s", grammar->command->name,
					 row->name, row->value);
	}
	return EXIT_DONE;
}

int arguments_parse_command(const struct command *command, struct arguments *arguments)
{
	struct grammar grammar;
	int code;

	grammar_make(&grammar, '-', command);
	code = options_parse(&grammar, arguments->left_count, arguments->left, arguments);
	for (; code == EXIT_DONE && optind < arguments->left_count; optind++)
		word_add(arguments, arguments->left[optind]); /* after "--" */
	return code == EXIT_DONE ? needs_check(&grammar, arguments) : code;
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
