/* "Did you mean": which name a misspelled word is taken for. */
#ifndef GPUWM_SERVICE_SUGGEST_H
#define GPUWM_SERVICE_SUGGEST_H

#include <stddef.h>

#define SUGGEST_TEXT 300 /* model@tag */

struct suggestion {
	const char *word;
	size_t distance; /* of the name, in edits; what is at most allowed as long as there is none */
	char name[SUGGEST_TEXT]; /* "": no name is close enough */
};

void suggest_begin(struct suggestion *suggestion, const char *word);
/* Takes the name if it is closer than those before: one edit is a character that is missing, too many or another one, or two
 * neighbours that changed places. A word of 3 characters may differ by 1, of 6 by 2, a longer one by 3; and a name may begin
 * with the word. Names that differ in numbers only are not taken for each other. */
void suggest_offer(struct suggestion *suggestion, const char *name);

#endif
