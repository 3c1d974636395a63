/* A limit of time for calls of the library that have none of their own: an answer of gpuwmd may take CALL_TIMEOUT_MS. */
#ifndef GPUWM_CTL_BOUND_H
#define GPUWM_CTL_BOUND_H

#include "arguments.h"

/* If bound_end is not called until ANSWER_SLACK_MS after arguments->deadline_ms, prints that gpuwmd does not answer, and ends gpuwmctl with
 * EXIT_TIMEOUT. So what is between the two calls only asks, and changes nothing. Does nothing if there is no deadline. EXIT_DONE,
 * or an exit code after printing why there is no such limit. */
int bound_begin(const struct arguments *arguments);
void bound_end(void);

#endif
