/* What the user may have meant, and what may be typed: suggestions, hints, candidates. */
#ifndef GPUWM_CTL_SUGGEST_H
#define GPUWM_CTL_SUGGEST_H

#include "command.h"

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

/* ---- hints behind an error ---- */

/* Compares the words of a command that found nothing with gpuwmd's list. Prints "  did you mean NAME?" to stderr, or nothing. */
void hint_print(struct gpuwm_client *client, const struct command *command, const struct arguments *arguments);

/* ---- candidates for completion ---- */

/* What is completed. */
struct completion {
	const struct arguments *arguments; /* the words before it */
	const char *current; /* the beginning of the word, which may be "" */
	const char *before; /* what each candidate begins with besides, such as "--device="; or "" */
};

/* Prints one line if the text begins with completion->current: the candidate, a tab, and what it is. about: NULL: nothing. */
void candidate_offer(const struct completion *completion, const char *text, const char *about);
/* Prints the candidates of a kind. For files, one line says that the shell is to complete: ":files". Prints nothing of
 * gpuwmd's names if gpuwmd is away or refuses. */
void candidates_print(const struct completion *completion, enum word_kind kind);

#endif
