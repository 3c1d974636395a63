/* A letter for each version, which stands for its memory in the bars. A version keeps its letter for as long as it is there. */
#ifndef GPUWM_CTL_TOP_LETTERS_H
#define GPUWM_CTL_TOP_LETTERS_H

#include <jansson.h>

#define LETTERS 52 /* a to z, A to Z; further versions have LETTER_OTHER */
#define LETTER_OTHER '#'

struct letters {
	char ids[LETTERS][33]; /* "": the letter is free */
};

/* Gives up the letters of versions that are gone from the list, and gives letters to new ones. */
void letters_update(struct letters *letters, const json_t *list);
char letters_of(const struct letters *letters, const char *id);

#endif
