/* What a command's words are to be: what can't be a name is wrong use, and nobody need be asked. */
#ifndef GPUWM_CTL_WORDS_H
#define GPUWM_CTL_WORDS_H

#include "command.h"

/* Checks that no word is missing or too many. EXIT_DONE, or EXIT_USAGE after printing what is wrong. */
int words_count(const struct command *command, const struct arguments *arguments);

/* Checks the words, of the kinds that the command says, and what the options take. EXIT_DONE, or EXIT_USAGE after printing
 * which word can't be what the command takes, and what that looks like. */
int words_check(const struct command *command, const struct arguments *arguments);

#endif
