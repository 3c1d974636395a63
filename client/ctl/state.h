/* The colours of states: a word such as "ready", "retiring" or "LOST". */
#ifndef GPUWM_CTL_STATE_H
#define GPUWM_CTL_STATE_H

#include "terminal.h"

/* The style of a text that begins with a state, as in "ready, cached". Damage counts most: "ready, tainted" is bad. */
enum style state_style(const char *text);

#endif
