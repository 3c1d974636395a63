/* complete: for the shells' completion, in client/ctl/completion. */
#ifndef GPUWM_CTL_COMPLETE_H
#define GPUWM_CTL_COMPLETE_H

#include "../command.h"

/* Prints what may stand in the place of the last word of `left`: a line for each candidate, with a tab and what it is. The word
 * before the first is "complete" itself. Prints nothing about mistakes. Always returns EXIT_DONE. */
int command_complete(struct gpuwm_client *client, const struct arguments *arguments);

#endif
