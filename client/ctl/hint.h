/* What the user may have meant, and what may be typed: hints, candidates. */
#ifndef GPUWM_CTL_HINT_H
#define GPUWM_CTL_HINT_H

#include "command.h"

#include "../../service/suggest.h"

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
