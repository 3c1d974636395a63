/* Help, which comes from the list of commands, and finding a command in it. */
#include "catalog.h"

#include "../commands.h"
#include "../exit.h"

#include "../../../service/suggest.h"

#include <stdio.h>
#include <string.h>

static bool all;
static const struct option_row help_options[] = {
	{"all", "the help of every command", .into = &all},
	{0},
};

#define NAME_COLUMNS 10

/* ---- usage ---------------------------------------------------------------- */

void help_usage_print(FILE *file)
{
	static const char begin[] = "usage: gpuwmctl ";

	fputs(begin, file);
	lines_wrap(file, "[--socket PATH] [-o FORM] [--help] [--version] COMMAND [ARGUMENTS]", strlen(begin),
		   strlen(begin));
}

/* ---- help ----------------------------------------------------------------- */

void help_print(const struct command_group *groups)
{
	static const char *const notes[] = {
		"REF is MODEL, MODEL@TAG, MODEL@ALIAS or a version id. DEVICE is host, a GPU's UUID (or the beginning of one) "
		"or cuda:N, numbered from 0 in the order of gpuwmctl status. PATH is by default $GPUWM_SOCKET, else "
		"the first where a gpuwmd listens of $XDG_RUNTIME_DIR/gpuwm/gpuwm.sock, ~/.local/state/gpuwm/gpuwm.sock and "
		"/run/gpuwm/gpuwm.sock.",
		"With -o, table is for people; wide has more columns, and cuts nothing; json is for programs, errors "
		"included; name prints one reference a line.",
		"gpuwmctl help COMMAND tells about one command, and man gpuwmctl about all.",
		"exit status: 0 ok, 1 failed, 2 usage, 3 gpuwmd not reachable, 4 not found, 5 in use, 6 permission, 7 timed "
		"out, 8 no room, 9 damaged. gpuwmctl explain tells more about them.",
	};

	help_usage_print(stdout);
	for (const struct command_group *group = groups; group->title; group++) {
		printf("\n%s:\n", group->title);
		for (const struct command *const *c = group->commands; *c; c++)
			if (!(*c)->hidden)
				printf("  %-*s  %s\n", NAME_COLUMNS, (*c)->name, (*c)->summary);
	}
	puts("\noptions:");
	options_print(global_options, options_columns(global_options, 0));
	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
		putchar('\n');
		lines_wrap(stdout, notes[i], 0, 0);
	}
}

void help_command_print(const struct command *command)
{
	static const char begin[] = "usage: gpuwmctl ";
	const char *example = command->example;
	char usage[USAGE_MAX];

	fputs(begin, stdout);
	lines_wrap(stdout, usage_text(command, usage), strlen(begin), strlen(begin));
	putchar('\n');
	lines_wrap(stdout, command->summary, 0, 0);
	if (command->also)
		printf("Also: %s\n", command->also);
	if (command->about) {
		putchar('\n');
		lines_wrap(stdout, command->about, 0, 0);
	}
	if (command->options) {
		puts("\noptions:");
		options_print(command->options, options_columns(command->options, 0));
	}
	printf("\nexample%s:\n", strchr(example, '\n') ? "s" : "");
	while (*example) {
		size_t length = strcspn(example, "\n");

		printf("  %.*s\n", (int)length, example);
		example += length + (example[length] == '\n');
	}
}

static int help_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	const char *name = arguments->positional[0];
	const struct command_group *groups = arguments->groups;
	const struct command *command = name ? command_find(groups, name) : NULL;

	(void)client;
	if (name && all)
		return exit_with(EXIT_USAGE, NULL, "help takes a command or --all, not both");
	if (all) {
		for (command = command_next(groups, NULL); command; command = command_next(groups, command)) {
			if (command->hidden)
				continue;
			help_command_print(command);
			putchar('\n');
		}
		return EXIT_DONE;
	}
	if (name && !command)
		return command_unknown(groups, name);
	if (command)
		help_command_print(command);
	else
		help_print(groups);
	return EXIT_DONE;
}

const struct command command_help = {
	.name = "help",
	.words = {{"COMMAND", WORD_COMMAND, true}},
	.summary = "list the commands, or show the help of one",
	.options = help_options,
	.example = "gpuwmctl help swap",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = help_run,
};

/* ---- finding a command ---- */

const struct command *command_next(const struct command_group *groups, const struct command *command)
{
	bool found = !command;

	for (const struct command_group *group = groups; group->title; group++)
		for (const struct command *const *c = group->commands; *c; c++) {
			if (found)
				return *c;
			found = *c == command;
		}
	return NULL;
}

const struct command *command_find(const struct command_group *groups, const char *name)
{
	for (const struct command *c = command_next(groups, NULL); c; c = command_next(groups, c))
		if (strcmp(c->name, name) == 0 || (c->also && strcmp(c->also, name) == 0))
			return c;
	return NULL;
}

int command_unknown(const struct command_group *groups, const char *name)
{
	struct suggestion suggestion;
	char detail[SUGGEST_TEXT + 64];

	suggest_begin(&suggestion, name);
	for (const struct command *c = command_next(groups, NULL); c; c = command_next(groups, c)) {
		if (!c->hidden)
			suggest_offer(&suggestion, c->name);
		if (c->also)
			suggest_offer(&suggestion, c->also);
	}
	snprintf(detail, sizeof(detail), "%s%s%sgpuwmctl --help lists the commands",
		 suggestion.name[0] ? "did you mean " : "", suggestion.name, suggestion.name[0] ? "? " : "");
	return exit_with(EXIT_USAGE, detail, "there is no command '%s'", name);
}
