/* help: what gpuwmctl says about itself. */
#ifndef GPUWM_CTL_HELP_H
#define GPUWM_CTL_HELP_H

#include "catalog.h"

#include <stdio.h>

/* "usage: gpuwmctl [--socket PATH] ... COMMAND [ARGUMENTS]" */
void help_usage_print(FILE *file);
/* The list of commands. */
void help_print(const struct command_group *groups);
/* Usage, options and examples of one command. */
void help_command_print(const struct command *command);

int command_help(struct gpuwm_client *client, const struct arguments *arguments);

#endif
