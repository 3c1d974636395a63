/* The loop: gpuwmd's events in, settings of the load balancer out. */
#ifndef GPUWM_FOLLOW_FOLLOW_H
#define GPUWM_FOLLOW_FOLLOW_H

#include "options.h"

/* Runs until a signal ends it. signals: a signalfd of SIGTERM, SIGINT and SIGCHLD. The load balancer keeps its servers at the end. Returns 0,
 * or a negative errno if the loop can't wait. */
int follow_run(struct options *options, int signals);

#endif
