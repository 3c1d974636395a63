/* After "not found": which model, tag or alias was probably meant. */
#ifndef GPUWM_CTL_HINT_H
#define GPUWM_CTL_HINT_H

#include "command.h"

/* Compares the words of a command that found nothing with gpuwmd's list. Prints "  did you mean NAME?" to stderr, or nothing. */
void hint_print(struct gpuwm_client *client, const struct command *command, const struct arguments *arguments);

#endif
