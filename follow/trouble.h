/* Troubles that last: the log has each once, and its end. */
#ifndef GPUWM_FOLLOW_TROUBLE_H
#define GPUWM_FOLLOW_TROUBLE_H

#include "../service/log.h"

/* A trouble that may last. log_trouble writes a warning, but only if the text differs from the last one. log_passing writes an info
 * in the same way, for troubles that usually pass by themselves. log_trouble_over writes that the trouble is over, if there was one. */
struct trouble {
	char text[1024]; /* "": there is none */
};
void log_trouble(struct trouble *trouble, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_passing(struct trouble *trouble, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_trouble_over(struct trouble *trouble, const char *what);

#endif
