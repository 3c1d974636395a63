/* The one list of commands: help, completion and suggestions come from it, and tests/ctl-help.sh compares it with the man page. */
#ifndef GPUWM_CTL_CATALOG_H
#define GPUWM_CTL_CATALOG_H

#include "../command.h"

#include <stdio.h>

/* Commands that belong together, under one heading. */
struct command_group {
	const char *title; /* NULL ends the list of groups */
	const struct command *const *commands; /* ends with NULL */
};
extern const struct command_group command_groups[];

/* Of these groups, which arguments->groups are for a command that runs. */
/* A command by its name or its other name; NULL: there is none. */
const struct command *command_find(const struct command_group *groups, const char *name);
/* Prints that there is no such command, and which one was probably meant. Returns EXIT_USAGE. */
int command_unknown(const struct command_group *groups, const char *name);
/* The command that follows `command` in the list; NULL: the first one. Returns NULL at the end. */
const struct command *command_next(const struct command_group *groups, const struct command *command);

/* ---- help: what gpuwmctl says about itself ---- */

/* "usage: gpuwmctl [--socket PATH] ... COMMAND [ARGUMENTS]" */
void help_usage_print(FILE *file);
/* The list of commands. */
void help_print(const struct command_group *groups);
/* Usage, options and examples of one command. */
void help_command_print(const struct command *command);

#endif
