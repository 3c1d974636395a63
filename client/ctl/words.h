/* What a command's words are to be: what can't be a name is wrong use, and nobody need be asked. */
#ifndef GPUWM_CTL_WORDS_H
#define GPUWM_CTL_WORDS_H

#include "arguments.h"

/* What a positional argument is. */
enum word_kind {
	WORD_ANY,
	WORD_REF, /* MODEL, MODEL@TAG, MODEL@ALIAS, a version id */
	WORD_NEW, /* MODEL@TAG of a version that is to be */
	WORD_ALIAS_OF, /* MODEL[@ALIAS] */
	WORD_MODEL, /* MODEL alone */
	WORD_NAME,
	WORD_TARGET, /* a tag, an alias, a version id */
};

/* Checks the words, of these kinds, and what the options take. EXIT_DONE, or EXIT_USAGE after printing which word can't be
 * what the command takes, and what that looks like. */
int words_check(const struct arguments *arguments, enum word_kind first, enum word_kind second);

#endif
