#include "catalog.h"

#include "../exit.h"
#include "../suggest.h"

#include <stdio.h>
#include <string.h>

const struct command *command_next(const struct command_group *groups, const struct command *command)
{
	bool found = !command;

	for (const struct command_group *group = groups; group->title; group++)
		for (const struct command *c = group->commands; c->name; c++) {
			if (found)
				return c;
			found = c == command;
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
