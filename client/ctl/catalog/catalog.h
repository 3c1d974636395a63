/* The one list of commands: help, completion and suggestions come from it, and tests/ctl-help.sh compares it with the man page. */
#ifndef GPUWM_CTL_CATALOG_H
#define GPUWM_CTL_CATALOG_H

#include "../command.h"

#include <stdio.h>

/* Commands that belong together, under one heading. */
struct command_group {
	const char *title; /* NULL ends the list of groups */
	const struct command *commands;
};
extern const struct command_group command_groups[];

/* The rows of each group, one file a group. */
extern const struct command commands_look[], commands_operate[], commands_gpuwmd[], commands_gpuwmctl[];

/* Of these groups, which arguments->groups are for a command that runs. */
/* A command by its name or its other name; NULL: there is none. */
const struct command *command_find(const struct command_group *groups, const char *name);
/* Prints that there is no such command, and which one was probably meant. Returns EXIT_USAGE. */
int command_unknown(const struct command_group *groups, const char *name);
/* The command that follows `command` in the list; NULL: the first one. Returns NULL at the end. */
const struct command *command_next(const struct command_group *groups, const struct command *command);

/* --watch of a command that lists. */
#define ROW_WATCH                                                                                              \
	{                                                                                                      \
		OPTION_WATCH, "watch", 0, "[SECONDS]", false, NULL, take_watch,                                \
			"show it again at each event, and every SECONDS (default 2); q or Ctrl-C ends it"      \
	}

/* --device; each command says what it does with it. */
#define ROW_DEVICE(does)                                                                                       \
	{                                                                                                      \
		OPTION_DEVICE, "device", 0, "DEVICE", false, NULL, take_device, does                           \
	}

/* ---- help: what gpuwmctl says about itself ---- */

/* "usage: gpuwmctl [--socket PATH] ... COMMAND [ARGUMENTS]" */
void help_usage_print(FILE *file);
/* The list of commands. */
void help_print(const struct command_group *groups);
/* Usage, options and examples of one command. */
void help_command_print(const struct command *command);

int command_help(struct gpuwm_client *client, const struct arguments *arguments);

/* ---- complete: for the shells' completion, in client/ctl/completion ---- */

/* Prints what may stand in the place of the last word of `left`: a line for each candidate, with a tab and what it is. The word
 * before the first is "complete" itself. Prints nothing about mistakes. Always returns EXIT_DONE. */
int command_complete(struct gpuwm_client *client, const struct arguments *arguments);

#endif
