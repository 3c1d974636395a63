#include "command.h"

#include "exit.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

const struct option_row global_options[] = {
	{"socket", "the workers' socket; admin.sock lies beside it", "PATH", take_socket, .repeats = true,
	 .kind = WORD_FILE},
	{"output", "how to print: name is one reference a line", "table|wide|json|name", take_output,
	 .letter = 'o', .repeats = true},
	{"help", "show this help", .take = take_help, .letter = 'h', .repeats = true},
	{"version", "print the version of gpuwmctl", .take = take_version, .repeats = true},
	{0},
};

static void word_add(struct arguments *arguments, const char *word)
{
	if (arguments->positional_count++ < POSITIONALS_MAX)
		arguments->positional[arguments->positional_count - 1] = word;
}

int arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
	struct option_reader reader = {.program = "gpuwmctl",
				       .note = "; a command's options stand after its name",
				       .argc = argc,
				       .argv = argv,
				       .next = 1};
	const struct option_row *row;
	struct error error;
	const char *value;
	int r;

	option_reader_add(&reader, global_options);
	output_choose_early(argc, argv);
	*ret_arguments = (struct arguments){.deadline_ms = -1};
	while ((r = option_next(&reader, &row, &value, &error)) > 0) {
		if (!row) {
			ret_arguments->command = value;
			ret_arguments->left = argv + reader.next - 1;
			ret_arguments->left_count = argc - reader.next + 1;
			return EXIT_DONE;
		}
		r = option_take(row, value, ret_arguments, &error);
		if (r < 0)
			break;
	}
	return r < 0 ? (int)exit_tell(EXIT_USAGE, error.code, error.message, error.detail) : EXIT_DONE;
}

int arguments_parse_command(const struct command *command, struct arguments *arguments)
{
	struct option_reader reader = {.program = "gpuwmctl",
				       .command = command->name,
				       .once = true,
				       .argc = arguments->left_count,
				       .argv = arguments->left,
				       .next = 1};
	const struct option_row *row;
	struct error error;
	const char *value;
	int r;

	option_reader_add(&reader, global_options);
	option_reader_add(&reader, command->options);
	while ((r = option_next(&reader, &row, &value, &error)) > 0) {
		if (row)
			r = option_take(row, value, arguments, &error);
		else
			word_add(arguments, value);
		if (r < 0)
			break;
	}
	if (r == 0)
		r = option_needs(&reader, arguments->help ? NULL : command->required, &error);
	return r < 0 ? (int)exit_tell(EXIT_USAGE, error.code, error.message, error.detail) : EXIT_DONE;
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
