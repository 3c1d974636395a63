/* A question before something that can't be undone. */
#ifndef GPUWM_CTL_ASK_H
#define GPUWM_CTL_ASK_H

#include <stdbool.h>

/* Whether somebody is there to answer: stdin and stderr are terminals. */
bool ask_can(void);
/* Prints "QUESTION [y/N] " to stderr and reads a line. Returns true for y and yes. */
bool ask(const char *question);

#endif
