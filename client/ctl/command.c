#include "command.h"

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
